/* The tail of an exact template with more virtual stages than it has been read with (fewer.h).
 *
 * It is cut to pieces: units that belong to a chunk, as its updates do, or to none. Those of a
 * virtual stage that comes more often must follow each other; in their place come those of all that
 * it stands for, in the same order, be it from the first chunk to the last or back. */
#include "search/compose/fewer.h"

#include <stdlib.h>
#include <string.h>

static const ds_body *old_tail(const ds_lengthener *x) {
    return x->s->parts[x->s->n_parts - 1].body;
}

static void find_pieces(ds_lengthener *x) {
    const ds_body *body = old_tail(x);
    const uint32_t *label = x->by->tail_chunk;
    uint32_t *seen = ds_xcalloc((size_t)x->by->n + 1, sizeof *seen);
    x->piece_of = ds_xcalloc((size_t)body->units.n + 1, sizeof *x->piece_of);
    for (uint32_t u = 0; u < body->units.n; u++) {
        if (u == 0 || label[u] != label[u - 1]) {
            ds_piece fresh = {.first = u, .chunk = label[u]};
            if (label[u] != DS_NONE) fresh.nth = seen[label[u]]++;
            if (fresh.nth >= x->most) x->most = fresh.nth + 1;
            DS_HPUSH(&x->pieces, fresh);
        }
        x->piece_of[u] = x->pieces.n - 1;
        x->pieces.at[x->pieces.n - 1].n++;
    }
    free(seen);
    x->nth_piece = ds_xmalloc(((size_t)x->by->n * x->most + 1) * sizeof *x->nth_piece);
    memset(x->nth_piece, 0xff, (size_t)x->by->n * x->most * sizeof *x->nth_piece);
    for (uint32_t i = 0; i < x->pieces.n; i++) {
        ds_piece *p = &x->pieces.at[i];
        p->shape = ds_lengthen__hash_units(x, x->s->n_parts - 1, p->first, p->n);
        if (p->chunk != DS_NONE) x->nth_piece[p->chunk * x->most + p->nth] = i;
    }
}

/* The second of the chunks that come more often writes the updates of both: what the first one
 * looks at from afar, at the beginning, may be itself. */
static uint32_t writer_of(const ds_fewer *by, uint32_t chunk) {
    bool first = chunk / by->pp == ds_fewer__first(by, DS_TAIL_KIND);
    return first
               ? chunk + (ds_fewer__second(by, DS_TAIL_KIND) - ds_fewer__first(by, DS_TAIL_KIND)) *
                             by->pp
               : chunk;
}

/* A copy of a piece of the template comes next. */
static bool put_piece(ds_lengthener *x, uint32_t from, uint32_t chunk, uint32_t *next) {
    ds_piece fresh = x->pieces.at[from];
    if (fresh.chunk == DS_NONE) {
        x->at[from] = *next;
    } else {
        uint32_t writer = x->nth_piece[writer_of(x->by, fresh.chunk) * x->most + fresh.nth];
        if (writer == DS_NONE || x->pieces.at[writer].shape != fresh.shape)
            return ds_lengthen__differ(x);
        fresh = x->pieces.at[writer];
        x->chunk_at[chunk * x->most + fresh.nth] = *next;
        fresh.chunk = chunk;
    }
    *next += fresh.n;
    DS_HPUSH(&x->order, fresh);
    return true;
}

/* The pieces of a virtual stage, one after another, in either order; returns how many, 0: others
 * stand between them. */
static uint32_t count_run(const ds_lengthener *x, uint32_t at, bool *ascends) {
    uint32_t pp = x->by->pp, n = x->pieces.n, v = x->pieces.at[at].chunk / pp;
    if (at + pp > n) return 0;
    *ascends = x->pieces.at[at].chunk % pp == 0;
    for (uint32_t i = 0; i < pp; i++) {
        uint32_t chunk = v * pp + (*ascends ? i : pp - 1 - i);
        const ds_piece *p = &x->pieces.at[at + i];
        if (p->chunk != chunk || p->nth != x->pieces.at[at].nth) return 0;
    }
    return pp;
}

static bool order_pieces(ds_lengthener *x) {
    uint32_t pp = x->by->pp, next = 0;
    x->at = ds_xcalloc((size_t)x->pieces.n + 1, sizeof *x->at);
    x->chunk_at = ds_xcalloc((size_t)x->by->full * x->most + 1, sizeof *x->chunk_at);
    for (uint32_t i = 0; i < x->pieces.n;) {
        uint32_t chunk = x->pieces.at[i].chunk;
        uint32_t more = chunk == DS_NONE ? 0 : ds_fewer__more(x->by, DS_TAIL_KIND, chunk);
        if (!more) {
            if (chunk != DS_NONE) chunk = ds_fewer__first_of(x->by, DS_TAIL_KIND, chunk);
            if (!put_piece(x, i++, chunk, &next)) return false;
            continue;
        }
        bool ascends;
        uint32_t run = count_run(x, i, &ascends);
        if (!run) return ds_template__unknown(x->t, "updates in another order");
        for (uint32_t e = 0; e <= more; e++)
            for (uint32_t k = 0; k < run; k++) {
                uint32_t own = ds_fewer__first_of(x->by, DS_TAIL_KIND, x->pieces.at[i + k].chunk);
                if (!put_piece(x, i + k, own + (ascends ? e : more - e) * pp, &next)) return false;
            }
        i += run;
    }
    return true;
}

/* ---- the tail: its units ---- */

/* Where a unit of the template goes, seen from one of a chunk (`own` of the template, `chunk` of
 * the step; DS_NONE: of no chunk). */
static bool unit_meant(ds_lengthener *x, uint32_t unit, uint32_t own, uint32_t chunk,
                       uint32_t *out) {
    uint32_t from = x->piece_of[unit];
    const ds_piece *p = &x->pieces.at[from];
    *out = unit - p->first;
    if (p->chunk == DS_NONE) {
        *out += x->at[from];
        return true;
    }
    int64_t there = ds_fewer__from_afar(x->by, p->chunk);
    if (own != DS_NONE && ds_fewer__is_near(x->by, own, p->chunk))
        there = (int64_t)chunk + p->chunk - own;
    else if (own != DS_NONE && ds_fewer__more(x->by, DS_TAIL_KIND, own))
        return ds_lengthen__differ(x);
    if (there < 0 || there >= x->by->full) return ds_lengthen__differ(x);
    uint32_t is = ds_fewer__chunk(x->by, DS_TAIL_KIND, (uint32_t)there);
    uint32_t other = x->nth_piece[is * x->most + p->nth];
    if (other == DS_NONE || x->pieces.at[other].shape != p->shape) return ds_lengthen__differ(x);
    *out += x->chunk_at[(uint32_t)there * x->most + p->nth];
    return true;
}

/* The tail looks at its own chunk's items, or at those at the ends. */
static bool source_meant(ds_lengthener *x, const ds_source *from, uint32_t own, uint32_t chunk,
                         ds_source *out) {
    const ds_part *tail = &x->s->parts[x->s->n_parts - 1];
    uint32_t old = (uint32_t)from->chunk;
    *out = *from;
    out->chunk = (int32_t)(old == own ? chunk : ds_fewer__from_afar(x->by, old));
    ds_source is = *from;
    is.chunk = (int32_t)ds_fewer__chunk(x->by, from->kind, (uint32_t)out->chunk);
    return x->shape[ds_template__source_part(x->s, tail, from)] ==
               x->shape[ds_template__source_part(x->s, tail, &is)] ||
           ds_lengthen__differ(x);
}

static uint32_t put_external(ds_body *out, ds_map *known, const ds_external *ext) {
    uint64_t key = ds_lengthen__hash_source(&ext->source, ext->unit);
    const uint64_t *found = ds_map_find(known, key);
    if (found) return (uint32_t)*found;
    ds_map_put(known, key, out->exts.n);
    DS_HPUSH(&out->exts, *ext);
    return out->exts.n - 1;
}

static bool put_tail_unit(ds_lengthener *x, uint32_t u, uint32_t own, uint32_t chunk,
                          ds_map *known) {
    const ds_body *body = old_tail(x);
    ds_body *out = x->tail->body;
    ds_unit_task unit = body->units.at[u];
    unit.slot = out->slots.n;
    unit.pred = out->preds.n;
    for (uint32_t i = 0; i < unit.n_slots; i++)
        DS_HPUSH(&out->slots, body->slots.at[body->units.at[u].slot + i]);
    for (uint32_t i = 0; i < unit.n_preds; i++) {
        uint32_t pred = body->preds.at[body->units.at[u].pred + i];
        if (pred & DS_EXT) {
            ds_external ext = body->exts.at[pred & ~DS_EXT];
            if (!source_meant(x, &body->exts.at[pred & ~DS_EXT].source, own, chunk, &ext.source))
                return false;
            pred = DS_EXT | put_external(out, known, &ext);
        } else if (!unit_meant(x, pred, own, chunk, &pred)) {
            return false;
        }
        DS_HPUSH(&out->preds, pred);
    }
    if (unit.transfer != DS_NONE) {
        x->tail_shape->kind_of[x->tail->transfers.n] =
            x->shapes[x->s->n_parts - 1].kind_of[unit.transfer];
        ds_transfer transfer = x->s->parts[x->s->n_parts - 1].transfers.at[unit.transfer];
        unit.transfer = x->tail->transfers.n;
        DS_HPUSH(&x->tail->transfers, transfer);
    }
    DS_HPUSH(&out->units, unit);
    return true;
}

static bool put_tail_units(ds_lengthener *x) {
    ds_map known;
    bool fine = true;
    ds_map_init(&known);
    for (uint32_t i = 0; i < x->order.n && fine; i++) {
        const ds_piece *p = &x->order.at[i];
        uint32_t own = x->pieces.at[x->piece_of[p->first]].chunk;
        for (uint32_t u = p->first; u < p->first + p->n && fine; u++)
            fine = put_tail_unit(x, u, own, p->chunk, &known);
    }
    ds_map_deinit(&known);
    return fine;
}

/* ---- the tail: its buffers ---- */

/* Copies of what belongs to a unit: as many as of the unit. */
typedef struct copies {
    uint32_t own; /* the unit's chunk in the template */
    uint32_t n;
} copies;

static copies copies_of(const ds_lengthener *x, uint32_t unit) {
    const ds_fewer *by = x->by;
    uint32_t own = x->pieces.at[x->piece_of[unit]].chunk, v = own / by->pp;
    if (own == DS_NONE) return (copies){DS_NONE, 1};
    if (v == ds_fewer__first(by, DS_TAIL_KIND)) return (copies){own, 0};
    if (v == ds_fewer__second(by, DS_TAIL_KIND))
        return (copies){own, by->before + 1 + by->after + 1};
    return (copies){own, 1};
}

/* The chunk of the step that the e-th copy is of. */
static uint32_t copy_at(const ds_lengthener *x, const copies *c, uint32_t e) {
    const ds_fewer *by = x->by;
    if (c->own == DS_NONE) return DS_NONE;
    if (c->n == 1) return ds_fewer__first_of(by, DS_TAIL_KIND, c->own);
    uint32_t v = ds_fewer__first(by, DS_TAIL_KIND) + e;
    if (e > by->before) v = ds_fewer__second(by, DS_TAIL_KIND) + e - 1;
    return v * by->pp + c->own % by->pp;
}

static bool put_tail_allocs(ds_lengthener *x) {
    const ds_body *body = old_tail(x);
    for (uint32_t i = 0; i < body->allocs.n; i++) {
        copies c = copies_of(x, body->allocs.at[i].unit);
        for (uint32_t e = 0; e < c.n; e++) {
            ds_alloc alloc = body->allocs.at[i];
            if (!unit_meant(x, alloc.unit, c.own, copy_at(x, &c, e), &alloc.unit)) return false;
            DS_HPUSH(&x->tail->body->allocs, alloc);
        }
    }
    return true;
}

static bool put_tail_free(ds_lengthener *x, uint32_t i, uint32_t own, uint32_t chunk,
                          uint32_t value) {
    const ds_body *body = old_tail(x);
    ds_body *out = x->tail->body;
    ds_free event = body->frees.at[i];
    event.first = out->users.n;
    event.value = value;
    for (uint32_t k = 0; k < event.n; k++) {
        uint32_t user;
        if (!unit_meant(x, body->users.at[body->frees.at[i].first + k], own, chunk, &user))
            return false;
        DS_HPUSH(&out->users, user);
    }
    if (event.taker != DS_NONE && !unit_meant(x, event.taker, own, chunk, &event.taker))
        return false;
    DS_HPUSH(&out->frees, event);
    return true;
}

/* Those of one value stand together. */
static bool put_tail_frees(ds_lengthener *x) {
    const ds_body *body = old_tail(x);
    uint32_t n = body->frees.n, run;
    x->free_at = ds_xcalloc((size_t)n * 2 + 1, sizeof *x->free_at);
    x->free_step = x->free_at + n;
    for (uint32_t i = 0; i < n; i += run) {
        const ds_free *f = &body->frees.at[i];
        copies c = copies_of(x, body->users.at[f->first]);
        for (run = 1; i + run < n && body->frees.at[i + run].value == f->value;) run++;
        for (uint32_t k = 0; k < run; k++) {
            x->free_at[i + k] = x->tail->body->frees.n + k;
            x->free_step[i + k] = run;
        }
        for (uint32_t e = 0; e < c.n; e++) {
            uint32_t value = x->tail->body->frees.n;
            for (uint32_t k = 0; k < run; k++)
                if (!put_tail_free(x, i + k, c.own, copy_at(x, &c, e), value)) return false;
        }
    }
    return true;
}

static bool put_tail_checks(ds_lengthener *x) {
    const ds_body *body = old_tail(x);
    ds_body *out = x->tail->body;
    uint32_t n_units = body->units.n;
    for (uint32_t i = 0; i < body->checks.n; i++) {
        const ds_before *old = &body->checks.at[i];
        bool frees = old->until >= n_units;
        uint32_t until = old->until;
        if (frees) until = body->users.at[body->frees.at[old->until - n_units].first];
        copies c = copies_of(x, until);
        for (uint32_t e = 0; e < c.n; e++) {
            ds_before check = *old;
            uint32_t chunk = copy_at(x, &c, e);
            if (old->local ? !unit_meant(x, old->unit, c.own, chunk, &check.unit)
                           : !source_meant(x, &old->source, c.own, chunk, &check.source))
                return false;
            if (frees)
                check.until = out->units.n + x->free_at[old->until - n_units] +
                              e * x->free_step[old->until - n_units];
            else if (!unit_meant(x, old->until, c.own, chunk, &check.until))
                return false;
            DS_HPUSH(&out->checks, check);
        }
    }
    return true;
}

/* Is a chunk, seen from the first one, what the other is, seen from the second one? */
static bool is_twin(const ds_lengthener *x, uint32_t first, uint32_t chunk, uint32_t second,
                    uint32_t other) {
    return chunk + second == other + first ||
           ds_fewer__from_afar(x->by, chunk) == ds_fewer__from_afar(x->by, other);
}

static bool is_twin_pred(const ds_lengthener *x, const ds_piece *p, uint32_t pred,
                         const ds_piece *q, uint32_t other) {
    const ds_body *body = old_tail(x);
    if ((pred ^ other) & DS_EXT) return false;
    if (pred & DS_EXT) {
        const ds_external *a = &body->exts.at[pred & ~DS_EXT];
        const ds_external *b = &body->exts.at[other & ~DS_EXT];
        return ds_lengthen__source_word(&a->source) == ds_lengthen__source_word(&b->source) &&
               a->source.post == b->source.post && a->unit == b->unit &&
               is_twin(x, p->chunk, (uint32_t)a->source.chunk, q->chunk, (uint32_t)b->source.chunk);
    }
    const ds_piece *a = &x->pieces.at[x->piece_of[pred]], *b = &x->pieces.at[x->piece_of[other]];
    if (a->chunk == DS_NONE || b->chunk == DS_NONE) return pred == other;
    return a->nth == b->nth && pred - a->first == other - b->first &&
           is_twin(x, p->chunk, a->chunk, q->chunk, b->chunk);
}

/* Do the updates of the chunks that come more often wait for the same? */
static bool compare_pieces(ds_lengthener *x) {
    const ds_body *body = old_tail(x);
    for (uint32_t i = 0; i < x->pieces.n; i++) {
        const ds_piece *p = &x->pieces.at[i];
        if (p->chunk == DS_NONE || writer_of(x->by, p->chunk) == p->chunk) continue;
        const ds_piece *q =
            &x->pieces.at[x->nth_piece[writer_of(x->by, p->chunk) * x->most + p->nth]];
        for (uint32_t u = 0; u < p->n; u++) {
            const ds_unit_task *a = &body->units.at[p->first + u];
            const ds_unit_task *b = &body->units.at[q->first + u];
            if (a->n_preds != b->n_preds) return ds_lengthen__differ(x);
            for (uint32_t k = 0; k < a->n_preds; k++)
                if (!is_twin_pred(x, p, body->preds.at[a->pred + k], q,
                                  body->preds.at[b->pred + k]))
                    return ds_lengthen__differ(x);
        }
    }
    return true;
}

bool ds_lengthen__tail(ds_lengthener *x, ds_longer *out) {
    uint32_t at = out->s.n_parts, n = 0;
    const ds_part *old = &x->s->parts[x->s->n_parts - 1];
    find_pieces(x);
    if (!order_pieces(x) || !compare_pieces(x)) return false;
    for (uint32_t i = 0; i < x->order.n; i++) n += x->order.at[i].n;
    x->tail = ds_compose__add_part(&out->s);
    ds_lengthen__copy_part(old, 0, x->tail);
    x->tail->transfers.n = 0;
    x->tail->body = ds_compose__add_body(&out->s);
    DS_COPY_VEC(&x->tail->body->stream_cls, &old->body->stream_cls);
    x->tail->body->n_classes = old->body->n_classes;
    x->tail_shape = &out->shapes[at];
    x->tail_shape->kind_of = ds_xcalloc((size_t)n + 1, sizeof *x->tail_shape->kind_of);
    return put_tail_units(x) && put_tail_allocs(x) && put_tail_frees(x) && put_tail_checks(x);
}
