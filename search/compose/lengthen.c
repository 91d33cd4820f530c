/* An exact template with more virtual stages than it has been read with: the copies of its items,
 * and that they are what they should be (fewer.h). */
#include "search/compose/fewer.h"

#include <stdlib.h>
#include <string.h>

bool ds_lengthen__differ(ds_lengthener *x) {
    return ds_template__unknown(x->t, "chunks that differ");
}

/* ---- what units are ---- */

static uint64_t hash_unit(const ds_body *body, const ds_outline *shape, const ds_unit_task *u) {
    uint64_t hash = ds_hash_mix((uint64_t)u->ps, (uint64_t)u->flop);
    hash = ds_hash_mix(hash, (uint64_t)u->cls << 8 | u->dtype);
    if (u->transfer != DS_NONE) hash = ds_hash_mix(hash, 1 + shape->kind_of[u->transfer]);
    for (uint32_t i = 0; i < u->n_slots; i++) hash = ds_hash_mix(hash, body->slots.at[u->slot + i]);
    return hash;
}

uint64_t ds_lengthen__hash_units(const ds_lengthener *x, uint32_t part, uint32_t first,
                                 uint32_t n) {
    const ds_body *body = x->s->parts[part].body;
    uint64_t hash = n;
    for (uint32_t u = first; u < first + n; u++)
        hash = ds_hash_mix(hash, hash_unit(body, &x->shapes[part], &body->units.at[u]));
    return hash;
}

uint32_t ds_lengthen__source_word(const ds_source *s) {
    return (uint32_t)s->kind << 24 | (uint32_t)s->when << 16 | (uint32_t)s->turn << 8 |
           s->is_relative;
}

uint64_t ds_lengthen__hash_source(const ds_source *s, uint32_t unit) {
    uint64_t hash = ds_hash_mix(ds_lengthen__source_word(s), unit);
    return ds_hash_mix(hash, (uint64_t)(uint32_t)s->chunk << 32 | (uint32_t)s->post);
}

/* All of an item or a send. */
static uint64_t hash_body(const ds_lengthener *x, uint32_t part) {
    const ds_body *b = x->s->parts[part].body;
    uint64_t hash = ds_lengthen__hash_units(x, part, 0, b->units.n);
    for (uint32_t u = 0; u < b->units.n; u++) hash = ds_hash_mix(hash, b->units.at[u].n_preds);
    for (uint32_t i = 0; i < b->preds.n; i++) {
        uint32_t pred = b->preds.at[i];
        const ds_external *ext = &b->exts.at[pred & ~DS_EXT];
        hash = ds_hash_mix(hash, pred & DS_EXT ? ds_lengthen__hash_source(&ext->source, ext->unit)
                                               : pred);
    }
    for (uint32_t i = 0; i < b->allocs.n; i++)
        hash =
            ds_hash_mix(ds_hash_mix(hash, b->allocs.at[i].unit), (uint64_t)b->allocs.at[i].bytes);
    for (uint32_t i = 0; i < b->frees.n; i++) {
        const ds_free *f = &b->frees.at[i];
        hash = ds_hash_mix(ds_hash_mix(hash, (uint64_t)f->bytes), (uint64_t)f->n << 32 | f->taker);
    }
    for (uint32_t i = 0; i < b->users.n; i++) hash = ds_hash_mix(hash, b->users.at[i]);
    for (uint32_t i = 0; i < b->checks.n; i++) {
        const ds_before *c = &b->checks.at[i];
        hash = ds_hash_mix(hash, (uint64_t)c->until << 1 | c->local);
        hash =
            ds_hash_mix(hash, c->local ? c->unit : ds_lengthen__hash_source(&c->source, c->unit));
    }
    return hash;
}

/* ---- items and sends ---- */

static uint32_t item_of(uint32_t kind, uint32_t n_chunks, uint32_t chunk, uint32_t turn) {
    return (kind * n_chunks + chunk) * DS_SIBLING + turn;
}

/* Of an item of a chunk: what is near it refers to from where it is. */
static bool set_source(ds_lengthener *x, uint32_t kind, uint32_t chunk, ds_source *source) {
    uint32_t other = (uint32_t)source->chunk;
    if (ds_fewer__is_near(x->by, chunk, other)) {
        source->is_relative = true;
        source->chunk = (int32_t)other - (int32_t)chunk;
        return true;
    }
    source->chunk = (int32_t)ds_fewer__from_afar(x->by, other);
    return !ds_fewer__more(x->by, kind, chunk) || ds_lengthen__differ(x);
}

static bool set_sources(ds_lengthener *x) {
    for (uint32_t p = 0; p + 1 < x->s->n_parts; p++) {
        const ds_part *part = &x->s->parts[p];
        uint32_t kind = part->group / x->by->n, chunk = part->group % x->by->n;
        ds_body *body = part->body;
        for (uint32_t i = 0; i < body->exts.n; i++)
            if (!set_source(x, kind, chunk, &body->exts.at[i].source)) return false;
        for (uint32_t i = 0; i < body->checks.n; i++)
            if (!body->checks.at[i].local &&
                !set_source(x, kind, chunk, &body->checks.at[i].source))
                return false;
    }
    return true;
}

/* Are the parts that come more often the same? */
static bool compare_repeated(ds_lengthener *x) {
    const ds_sibling *s = x->s;
    uint32_t pp = x->by->pp;
    for (uint32_t kind = 0; kind < 3; kind++)
        for (uint32_t i = 0; i < pp * DS_SIBLING; i++) {
            uint32_t a = ds_fewer__first(x->by, kind) * pp * DS_SIBLING + i;
            uint32_t b = ds_fewer__second(x->by, kind) * pp * DS_SIBLING + i;
            a += kind * x->by->n * DS_SIBLING;
            b += kind * x->by->n * DS_SIBLING;
            if (s->n_posts[a] != s->n_posts[b] || hash_body(x, a) != hash_body(x, b))
                return ds_lengthen__differ(x);
            for (uint32_t q = 0; q < s->n_posts[a]; q++)
                if (hash_body(x, s->first_post[a] + q) != hash_body(x, s->first_post[b] + q))
                    return ds_lengthen__differ(x);
        }
    return true;
}

/* Does a part that goes to a chunk find what it looks at there? */
static bool check_source(ds_lengthener *x, uint32_t from, uint32_t chunk, const ds_source *source) {
    const ds_part *part = &x->s->parts[from];
    uint32_t full = x->by->full, own = part->group % x->by->n;
    int64_t there = source->chunk + (source->is_relative ? (int64_t)chunk : 0);
    if (there < 0 || there >= full) return ds_lengthen__differ(x);
    ds_source old = *source, new = *source;
    old.is_relative = new.is_relative = false;
    old.chunk = source->is_relative
                    ? source->chunk + (int32_t)own
                    : (int32_t)ds_fewer__chunk(x->by, source->kind, (uint32_t)there);
    new.chunk = (int32_t)ds_fewer__chunk(x->by, source->kind, (uint32_t)there);
    return x->shape[ds_template__source_part(x->s, part, &old)] ==
               x->shape[ds_template__source_part(x->s, part, &new)] ||
           ds_lengthen__differ(x);
}

static bool check_part(ds_lengthener *x, uint32_t from, uint32_t chunk) {
    const ds_body *body = x->s->parts[from].body;
    for (uint32_t i = 0; i < body->exts.n; i++)
        if (!check_source(x, from, chunk, &body->exts.at[i].source)) return false;
    for (uint32_t i = 0; i < body->checks.n; i++)
        if (!body->checks.at[i].local && !check_source(x, from, chunk, &body->checks.at[i].source))
            return false;
    return true;
}

static void copy_outline(const ds_outline *from, uint32_t n_transfers, ds_outline *out) {
    *out = (ds_outline){0};
    out->kind_of = ds_xcalloc((size_t)n_transfers + 1, sizeof *out->kind_of);
    if (n_transfers) memcpy(out->kind_of, from->kind_of, n_transfers * sizeof *out->kind_of);
}

/* Where what a part needs is not its body: the same body may be that of many parts. */
void ds_lengthen__copy_part(const ds_part *from, uint32_t group, ds_part *out) {
    *out = (ds_part){.group = group,
                     .turn = from->turn,
                     .mb = from->mb,
                     .post = from->post,
                     .tail = from->tail,
                     .opaque = from->opaque,
                     .flows = from->flows,
                     .callee = from->callee,
                     .body = from->body};
    DS_COPY_VEC(&out->streams, &from->streams);
    DS_COPY_VEC(&out->classes, &from->classes);
    DS_COPY_VEC(&out->transfers, &from->transfers);
}

static bool put_part(ds_lengthener *x, uint32_t from, uint32_t group, ds_longer *out) {
    const ds_part *part = &x->s->parts[from];
    uint32_t at = out->s.n_parts;
    if (!check_part(x, from, group % x->by->full)) return false;
    ds_lengthen__copy_part(part, group, ds_compose__add_part(&out->s));
    copy_outline(&x->shapes[from], part->transfers.n, &out->shapes[at]);
    return true;
}

static uint32_t count_parts(const ds_lengthener *x) {
    const ds_sibling *s = x->s;
    uint32_t full = x->by->full, n = 3 * full * DS_SIBLING + 1;
    for (uint32_t kind = 0; kind < 3; kind++)
        for (uint32_t c = 0; c < full; c++)
            for (uint32_t turn = 0; turn < DS_SIBLING; turn++)
                n += s->n_posts[item_of(kind, x->by->n, ds_fewer__chunk(x->by, kind, c), turn)];
    return n;
}

static bool put_parts(ds_lengthener *x, ds_longer *out) {
    const ds_sibling *s = x->s;
    uint32_t full = x->by->full, n = 3 * full * DS_SIBLING;
    out->s = (ds_sibling){
        .m = s->m, .n_turns = s->n_turns, .n_chunks = full, .n_groups = 3 * full, .whole = true};
    out->s.first_post = ds_xcalloc(n, sizeof *out->s.first_post);
    out->s.n_posts = ds_xcalloc(n, sizeof *out->s.n_posts);
    out->shapes = ds_xcalloc(count_parts(x), sizeof *out->shapes);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t group = i / DS_SIBLING, kind = group / full;
        uint32_t chunk = ds_fewer__chunk(x->by, kind, group % full);
        if (!put_part(x, item_of(kind, x->by->n, chunk, i % DS_SIBLING), group, out)) return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t group = i / DS_SIBLING, kind = group / full;
        uint32_t chunk = ds_fewer__chunk(x->by, kind, group % full);
        uint32_t from = item_of(kind, x->by->n, chunk, i % DS_SIBLING);
        out->s.first_post[i] = out->s.n_parts;
        out->s.n_posts[i] = s->n_posts[from];
        for (uint32_t q = 0; q < s->n_posts[from]; q++)
            if (!put_part(x, s->first_post[from] + q, group, out)) return false;
    }
    return true;
}

/* ---- one sort of replicas ---- */

static void put_inputs(const ds_lengthener *x, ds_longer *out) {
    uint32_t n = x->t->n_chunks;
    out->s.input_bytes = ds_xcalloc((size_t)n + 1, sizeof *out->s.input_bytes);
    out->s.each_bytes = ds_xcalloc((size_t)n + 1, sizeof *out->s.each_bytes);
    memcpy(out->s.input_bytes, x->s->input_bytes, n * sizeof *out->s.input_bytes);
    memcpy(out->s.each_bytes, x->s->each_bytes, n * sizeof *out->s.each_bytes);
}

/* The bodies of items and sends are the old ones; that of the old tail is nobody's any more. */
static void take_bodies(ds_lengthener *x, ds_longer *out) {
    ds_sibling *s = x->s;
    DS_COPY_VEC(&out->s.bodies, &s->bodies);
    s->bodies.n = 0;
    uint32_t n_parts = s->n_parts;
    ds_compose__parts_deinit(s);
    ds_template__outlines_free(x->shapes, n_parts);
}

static bool lengthen(ds_template *t, ds_sibling *s, ds_outline **shapes) {
    ds_lengthener x = {.t = t, .by = t->fewer, .s = s, .shapes = *shapes};
    ds_longer out = {0};
    x.shape = ds_xcalloc(s->n_parts, sizeof *x.shape);
    for (uint32_t p = 0; p + 1 < s->n_parts; p++)
        x.shape[p] = ds_lengthen__hash_units(&x, p, 0, s->parts[p].body->units.n);
    bool fine = set_sources(&x) && compare_repeated(&x) && put_parts(&x, &out) &&
                ds_lengthen__tail(&x, &out);
    free(x.shape);
    free(x.pieces.at);
    free(x.piece_of);
    free(x.nth_piece);
    free(x.at);
    free(x.chunk_at);
    free(x.order.at);
    free(x.free_at);
    if (!fine) {
        ds_template__outlines_free(out.shapes, out.s.n_parts);
        ds_compose__parts_deinit(&out.s);
        return false;
    }
    put_inputs(&x, &out);
    take_bodies(&x, &out);
    *s = out.s;
    *shapes = out.shapes;
    return true;
}

bool ds_template__lengthen(ds_template *t) {
    bool fine = lengthen(t, &t->s, &t->shapes);
    for (uint32_t i = 0; i + 1 < t->replicas.n && fine; i++)
        fine = lengthen(t, &t->others[i], &t->other_shapes[i]);
    return fine;
}
