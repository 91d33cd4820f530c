/* What has been inferred once is not inferred again.
 *
 * Passes copy most ops many times over: a layer's ops for every chunk, forward, again for the
 * backward pass, and in each pass that makes the function anew. Without an environment the types of
 * an op's results follow from its code, attributes and operands' types alone, so they are kept in
 * the unit. Results are shared, as types are everywhere: whoever wants to change one copies it. Ops
 * that communicate look at more (the mesh, open regions) and are not kept. */
#include "ir/ops/memo.h"

#include "ir/ops/internal.h"

#include <string.h>

typedef struct kept kept;
struct kept {
    kept *next; /* of the same hash */
    const void *answer;
    uint32_t n_words;
    uint64_t words[];
};

/* ---- keys ---- */

static void put_place(ds_memo_key *key, const ds_place *place) {
    ds_memo_put(key, DS_KEY(place->name) << 2 | place->kind);
    if (place->kind == DS_PLACE_NONE) return;
    ds_memo_put(key, (uint64_t)place->n_coords << 32 | place->n_steps);
    for (uint32_t i = 0; i < place->n_coords; i++) {
        ds_memo_put(key, DS_KEY(place->coords[i].axis));
        ds_memo_put(key, place->coords[i].at.i);
    }
    for (uint32_t i = 0; i < place->n_steps; i++) {
        ds_memo_put(key, DS_KEY(place->steps[i].name));
        ds_memo_put(key, place->steps[i].index.i);
    }
}

/* Uneven sizes by the address of their array, which types share. */
static void put_dim(ds_memo_key *key, const ds_dim *dim) {
    ds_memo_put(key, (uint64_t)dim->n_splits << 32 | dim->size.i);
    for (uint32_t s = 0; s < dim->n_splits; s++) {
        const ds_split *split = &dim->splits[s];
        ds_memo_put(key, DS_KEY(split->axis) << 1 | (split->n_sizes > 0));
        if (!split->n_sizes) continue;
        ds_memo_put(key, DS_KEY(split->sizes));
        ds_memo_put(key, split->n_sizes);
    }
}

void ds_memo_put_type(ds_memo_key *key, const ds_type *type) {
    ds_memo_put(key, (uint64_t)type->dtype | (uint64_t)type->rank << 8 |
                         (uint64_t)type->host << 16 | (uint64_t)type->n_partials << 32);
    for (uint32_t d = 0; d < type->rank; d++) put_dim(key, &type->dims[d]);
    for (uint32_t i = 0; i < type->n_partials; i++)
        ds_memo_put(key, DS_KEY(type->partials[i].axis) << 2 | type->partials[i].reduction);
    put_place(key, &type->on);
}

/* An op's name says nothing about its types, and hardly two ops have the same. */
static bool is_mere_name(const ds_exprs *exprs, const ds_attr *attr) {
    return attr->name && strcmp(attr->name, "name") == 0 && ds_attr_text(exprs, attr);
}

static void put_attr(ds_memo_key *key, const ds_attr *attr) {
    ds_memo_put(key, DS_KEY(attr->name) << 1 | attr->quoted_name);
    ds_memo_put(key, (uint64_t)attr->kind | (uint64_t)attr->unit << 8 | (uint64_t)attr->flag << 16 |
                         (uint64_t)attr->expr.i << 32);
    ds_memo_put(key, DS_KEY(attr->word));
    ds_memo_put(key, attr->n_items);
    key->other |= attr->kind == DS_ATTR_PLACE || attr->kind == DS_ATTR_BLOCK;
    for (uint32_t i = 0; i < attr->n_items; i++) put_attr(key, &attr->items[i]);
}

static bool has_clause(const ds_op *op) {
    return op->n_over || op->across || op->has_group || op->n_to || op->dim.i || op->dim_to.i ||
           op->to_rank.i || op->from_rank.i || op->tag.i;
}

void ds_memo_begin(ds_memo_key *key, const ds_unit *unit, const ds_op *op) {
    key->n = 0;
    key->other = has_clause(op);
    ds_memo_put(key, op->code | (uint64_t)op->n_in << 16 | (uint64_t)op->n_out << 40);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        if (!is_mere_name(&unit->exprs, &op->attrs[i])) put_attr(key, &op->attrs[i]);
    ds_memo_put(key, UINT64_MAX); /* no attribute's name */
}

/* ---- what is kept ---- */

static uint64_t hash_of(const ds_memo_key *key) {
    uint64_t hash = key->n;
    for (uint32_t i = 0; i < key->n; i++) {
        hash = (hash ^ key->words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static kept *first_of(const ds_map *map, uint64_t hash) {
    const uint64_t *found = ds_map_find(map, hash);
    return found ? (kept *)(uintptr_t)*found : NULL;
}

const void *ds_memo_find(const ds_map *map, const ds_memo_key *key) {
    size_t bytes = key->n * sizeof *key->words;
    const kept *at = key->other ? NULL : first_of(map, hash_of(key));
    while (at && (at->n_words != key->n || memcmp(at->words, key->words, bytes) != 0))
        at = at->next;
    return at ? at->answer : NULL;
}

void ds_memo_keep(ds_map *map, ds_arena *arena, const ds_memo_key *key, const void *answer) {
    if (key->other) return;
    uint64_t hash = hash_of(key);
    kept *made = ds_arena_alloc(arena, sizeof *made + key->n * sizeof *key->words);
    made->next = first_of(map, hash);
    made->answer = answer;
    made->n_words = key->n;
    memcpy(made->words, key->words, key->n * sizeof *key->words);
    ds_map_put(map, hash, DS_KEY(made));
}

/* ---- types ---- */

static void spell(ds_memo_key *key, const ds_infer *ctx) {
    const ds_op *op = ctx->op;
    ds_memo_begin(key, ctx->unit, op);
    /* a place that is left out is the function's only mesh */
    ds_memo_put(key,
                ctx->func && ctx->func->n_mesh_params == 1 ? DS_KEY(ctx->func->mesh_params[0]) : 0);
    for (uint32_t i = 0; i < op->n_in && !key->other; i++) ds_memo_put_type(key, ctx->in[i]);
    for (uint32_t i = 0; i < op->n_out && !key->other; i++) {
        if (ctx->out[i])
            ds_memo_put_type(key, ctx->out[i]);
        else
            ds_memo_put(key, UINT64_MAX);
    }
}

ds_status ds_ops__infer_once(const ds_infer *ctx, const ds_op_desc *desc,
                             ds_status (*infer)(const ds_infer *ctx, const ds_op_desc *desc,
                                                ds_error *err),
                             ds_error *err) {
    uint32_t n = ctx->op->n_out;
    ds_memo_key key;
    if (ctx->env || (desc->flags & DS_OPF_COLLECTIVE)) return infer(ctx, desc, err);
    spell(&key, ctx);
    if (key.other) return infer(ctx, desc, err);
    const ds_type *const *known = ds_memo_find(&ctx->unit->inferred, &key);
    for (uint32_t i = 0; known && i < n; i++)
        if (known[i]) ctx->out[i] = (ds_type *)known[i];
    if (known) return DS_OK;
    const ds_type **out = DS_NEW_N(&ctx->unit->arena, const ds_type *, n + 1);
    for (uint32_t i = 0; i < n; i++) out[i] = ctx->out[i];
    DS_TRY(infer(ctx, desc, err));
    for (uint32_t i = 0; i < n; i++) /* a type that was written stays as it is */
        out[i] = out[i] == ctx->out[i] ? NULL : ctx->out[i];
    ds_memo_keep(&ctx->unit->inferred, &ctx->unit->arena, &key, out);
    return DS_OK;
}
