/* Communication that the program writes many times: a pipeline's sends, one for every microbatch.
 *
 * Ops of one context that say the same but for the names of their values differ in nothing that a
 * record holds but the op. The first one's record is made in full; the others are copies of it that
 * share its groups, variants and classes, and say so (ds_record.like).
 *
 * Further apart, ops of any context may do the same: gather as many bytes over the same groups, as
 * every linear layer of a tensor-parallel stage does. Their records are made each for itself, but
 * share what they do, and say so too. */
#include "sim/plan/values.h"

#include <stdlib.h>
#include <string.h>

/* What an op says, as words. */
typedef struct words {
    DS_VEC(uint64_t) list;
    bool unlike; /* something is not put into words: the op is like no other */
} words;

static void put(words *w, uint64_t word) {
    DS_HPUSH(&w->list, word);
}

static void put_place(words *w, const ds_place *place) {
    put(w, place->kind);
    put(w, DS_KEY(place->name));
    put(w, place->n_coords);
    for (uint32_t i = 0; i < place->n_coords; i++) {
        put(w, DS_KEY(place->coords[i].axis));
        put(w, place->coords[i].at.i);
    }
    if (place->n_steps) w->unlike = true;
}

static void put_type(words *w, const ds_type *type) {
    put(w, (uint64_t)type->dtype << 32 | type->rank);
    for (uint32_t d = 0; d < type->rank; d++) {
        const ds_dim *dim = &type->dims[d];
        put(w, (uint64_t)dim->size.i << 32 | dim->n_splits);
        for (uint32_t s = 0; s < dim->n_splits; s++) {
            put(w, DS_KEY(dim->splits[s].axis));
            if (dim->splits[s].n_sizes) w->unlike = true;
        }
    }
    put(w, (uint64_t)type->n_partials << 1 | type->host);
    for (uint32_t i = 0; i < type->n_partials; i++) {
        put(w, DS_KEY(type->partials[i].axis));
        put(w, type->partials[i].reduction);
    }
    put_place(w, &type->on);
}

static void put_attr(words *w, const ds_attr *attr) {
    put(w, DS_KEY(attr->name));
    put(w, (uint64_t)attr->kind << 32 | attr->expr.i);
    put(w, (uint64_t)attr->unit << 1 | attr->flag);
    put(w, DS_KEY(attr->word));
    if (attr->kind == DS_ATTR_PLACE || attr->n_items) w->unlike = true;
}

static void put_site(words *w, const ds_site *site) {
    const ds_op *op = site->op;
    put(w, DS_KEY(site->ctx));
    put(w, (uint64_t)op->code << 32 | op->n_attrs);
    put(w, (uint64_t)op->n_in << 32 | op->n_out);
    put(w, (uint64_t)op->dim.i << 32 | op->dim_to.i);
    put(w, (uint64_t)op->n_over << 32 | op->n_to);
    for (uint32_t i = 0; i < op->n_over; i++) put(w, DS_KEY(op->over[i]));
    for (uint32_t i = 0; i < op->n_to; i++) put_place(w, &op->to[i]);
    for (uint32_t i = 0; i < op->n_attrs; i++) put_attr(w, &op->attrs[i]);
    for (uint32_t i = 0; i < op->n_in; i++) {
        put_type(w, site->in[i].type);
        if (ds_plan__has_range(&op->in[i])) w->unlike = true;
    }
    for (uint32_t i = 0; i < op->n_out; i++) put_type(w, site->out[i].type);
    if (op->across || op->has_group) w->unlike = true;
}

/* The entry of these words, or NULL and the free hash where it belongs. */
static ds_alike *find(ds_builder *b, const words *w, uint64_t *hash) {
    *hash = w->list.n;
    for (uint32_t i = 0; i < w->list.n; i++) *hash = ds_hash_mix(*hash, w->list.at[i]);
    for (;; ++*hash) {
        const uint64_t *found = ds_map_find(&b->alike, *hash);
        if (!found) return NULL;
        ds_alike *a = (ds_alike *)(uintptr_t)*found;
        if (a->n == w->list.n && memcmp(a->words, w->list.at, a->n * sizeof *a->words) == 0)
            return a;
    }
}

const ds_record **ds_plan__alike(ds_builder *b, const ds_site *site) {
    const ds_op_desc *desc = ds_op_desc_of(site->op->code);
    if (!desc || !(desc->flags & DS_OPF_COLLECTIVE) || site->rank_device != DS_NONE || site->region)
        return NULL;
    words w = {0};
    put_site(&w, site);
    ds_alike *a = NULL;
    uint64_t hash;
    if (!w.unlike) a = find(b, &w, &hash);
    if (!w.unlike && !a) {
        a = DS_NEW(&b->plan->arena, ds_alike);
        a->n = w.list.n;
        a->words = DS_NEW_N(&b->plan->arena, uint64_t, w.list.n);
        memcpy(a->words, w.list.at, w.list.n * sizeof *a->words);
        ds_map_put(&b->alike, hash, DS_KEY(a));
    }
    free(w.list.at);
    return a ? &a->record : NULL;
}

/* ---- what is done ---- */

/* Two records of which one was made before: do they hold, and leave, the same on each device? */
typedef struct body {
    uint64_t *words;
    uint32_t n;
    const ds_record *record;
    const struct body *next; /* of the same hash */
} body;

static uint64_t text_word(const ds_builder *b, const ds_op *op, const char *attr) {
    const char *text = ds_attr_text(&b->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, attr));
    return text ? ds_hash_bytes(text, strlen(text)) | 1 : 0;
}

/* Which devices hold how much of unequal parts, if that is the same in all turns of loops. */
static void put_sizes(const ds_builder *b, words *w, const ds_type *type) {
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++) {
            const ds_split *split = &type->dims[d].splits[s];
            if (!split->n_sizes) continue;
            put(w, split->n_sizes);
            for (uint32_t i = 0; i < split->n_sizes; i++) { /* a few runs of equal sizes */
                if (i && split->sizes[i].i == split->sizes[i - 1].i) continue;
                put(w, (uint64_t)split->sizes[i].i << 32 | i);
                if (ds_expr_at(&b->unit->exprs, split->sizes[i])->kind != DS_EXPR_INT)
                    w->unlike = true;
            }
        }
}

/* Local bytes of a value; devices that hold parts of equal sizes have as many. */
static void put_bytes(ds_builder *b, words *w, ds_typed t, uint32_t place, ds_loc loc) {
    int64_t bytes;
    put(w, place);
    put_sizes(b, w, t.type);
    if (ds_plan__local_bytes(b, t, ds_plan__placement(b, place), 0, loc, &bytes, NULL) != DS_OK)
        w->unlike = true;
    else
        put(w, (uint64_t)bytes);
}

static void put_body(ds_builder *b, words *w, const ds_site *site, const uint32_t *in_places,
                     const uint32_t *out_places, uint64_t stream) {
    static const char *const numbers[] = {"cost", "chunks", "shift"};
    const ds_op *op = site->op;
    if (op->code == DS_OP_RESHARD || op->across || op->n_to || site->rank_device != DS_NONE ||
        site->region) {
        w->unlike = true;
        return;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (ds_attr_find(op->attrs, op->n_attrs, numbers[i])) w->unlike = true;
    put(w, (uint64_t)op->code << 32 | op->n_over);
    for (uint32_t i = 0; i < op->n_over; i++) put(w, DS_KEY(op->over[i]));
    put(w, text_word(b, op, "algorithm"));
    put(w, text_word(b, op, "route"));
    put(w, ds_op_attr_bool(op, "padded"));
    put(w, stream);
    put(w, (uint64_t)op->n_in << 32 | op->n_out);
    for (uint32_t i = 0; i < op->n_in; i++) put_bytes(b, w, site->in[i], in_places[i], op->loc);
    for (uint32_t i = 0; i < op->n_out; i++) put_bytes(b, w, site->out[i], out_places[i], op->loc);
}

static const body *first_body(const ds_builder *b, const words *w, uint64_t *hash) {
    *hash = w->list.n;
    for (uint32_t i = 0; i < w->list.n; i++) *hash = ds_hash_mix(*hash, w->list.at[i]);
    const uint64_t *found = ds_map_find(&b->bodies, *hash);
    return found ? (const body *)(uintptr_t)*found : NULL;
}

bool ds_plan__take_body(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                        const uint32_t *out_places, ds_record *r) {
    words w = {0};
    uint64_t hash;
    if (b->options->schematic && b->options->schematic->apart) return false;
    put_body(b, &w, site, in_places, out_places, r->stream);
    const body *found = w.unlike ? NULL : first_body(b, &w, &hash);
    while (found && (found->n != w.list.n ||
                     memcmp(found->words, w.list.at, found->n * sizeof *found->words) != 0))
        found = found->next;
    free(w.list.at);
    if (!found) return false;
    const ds_record *first = found->record;
    r->like = first;
    r->devices = first->devices;
    r->n_devices = first->n_devices;
    r->variant_of = first->variant_of;
    r->variants = first->variants;
    r->n_variants = first->n_variants;
    r->groups = first->groups;
    r->n_groups = first->n_groups;
    r->group_of = first->group_of;
    return true;
}

void ds_plan__keep_body(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                        const uint32_t *out_places, const ds_record *r) {
    words w = {0};
    uint64_t hash;
    if (b->options->schematic && b->options->schematic->apart) return;
    put_body(b, &w, site, in_places, out_places, r->stream);
    if (!w.unlike) {
        body *fresh = DS_NEW(&b->plan->arena, body);
        *fresh = (body){.n = w.list.n, .record = r, .next = first_body(b, &w, &hash)};
        fresh->words = DS_NEW_N(&b->plan->arena, uint64_t, w.list.n);
        memcpy(fresh->words, w.list.at, w.list.n * sizeof *fresh->words);
        ds_map_put(&b->bodies, hash, DS_KEY(fresh));
    }
    free(w.list.at);
}
