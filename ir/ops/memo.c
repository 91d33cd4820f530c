/* What has been inferred once is not inferred again.
 *
 * Passes copy most ops many times over: a layer's ops for every chunk, forward, again for the
 * backward pass, and in each pass that makes the function anew. Without an environment the types of
 * an op's results follow from its code, attributes and operands' types alone, so they are kept in
 * the unit under the words that spell these out: names by address, since they are interned,
 * expressions by their ids. Results are shared, which types are everywhere: whoever wants to change
 * one copies it. Ops that communicate look at more (the mesh, open regions) and are not kept. */
#include "ir/ops/internal.h"

#include <string.h>

#define MOST_WORDS 192u /* an op of eight matrices with attributes; longer ones are not kept */

typedef struct ds_inferred ds_inferred;
struct ds_inferred {
    ds_inferred *next;   /* of the same hash */
    uint32_t n_words;    /* of the key, which follow */
    const ds_type **out; /* NULL: the type that was written stays */
    uint64_t words[];
};

typedef struct key {
    uint64_t words[MOST_WORDS];
    uint32_t n;
    bool other; /* too long, or with a part that has no words */
} key;

static void put(key *k, uint64_t word) {
    if (k->n == MOST_WORDS)
        k->other = true;
    else
        k->words[k->n++] = word;
}

static void put_place(key *k, const ds_place *place) {
    put(k, DS_KEY(place->name) << 2 | place->kind);
    if (place->kind == DS_PLACE_NONE) return;
    put(k, (uint64_t)place->n_coords << 32 | place->n_steps);
    for (uint32_t i = 0; i < place->n_coords; i++) {
        put(k, DS_KEY(place->coords[i].axis));
        put(k, place->coords[i].at.i);
    }
    for (uint32_t i = 0; i < place->n_steps; i++) {
        put(k, DS_KEY(place->steps[i].name));
        put(k, place->steps[i].index.i);
    }
}

/* Uneven sizes by the address of their array: seldom are two arrays the same. */
static void put_type(key *k, const ds_type *type) {
    put(k, (uint64_t)type->dtype | (uint64_t)type->rank << 8 | (uint64_t)type->host << 16 |
               (uint64_t)type->n_partials << 32);
    for (uint32_t d = 0; d < type->rank; d++) {
        const ds_dim *dim = &type->dims[d];
        put(k, (uint64_t)dim->n_splits << 32 | dim->size.i);
        for (uint32_t s = 0; s < dim->n_splits; s++) {
            put(k, DS_KEY(dim->splits[s].axis) << 1 | (dim->splits[s].n_sizes > 0));
            if (!dim->splits[s].n_sizes) continue;
            put(k, DS_KEY(dim->splits[s].sizes));
            put(k, dim->splits[s].n_sizes);
        }
    }
    for (uint32_t i = 0; i < type->n_partials; i++)
        put(k, DS_KEY(type->partials[i].axis) << 2 | type->partials[i].reduction);
    put_place(k, &type->on);
}

/* An op's name says nothing about its types, and hardly two ops have the same. */
static bool is_mere_name(const ds_exprs *exprs, const ds_attr *attr) {
    return attr->name && strcmp(attr->name, "name") == 0 && ds_attr_text(exprs, attr);
}

static void put_attr(key *k, const ds_attr *attr) {
    put(k, DS_KEY(attr->name) << 1 | attr->quoted_name);
    put(k, (uint64_t)attr->kind | (uint64_t)attr->unit << 8 | (uint64_t)attr->flag << 16 |
               (uint64_t)attr->expr.i << 32);
    put(k, DS_KEY(attr->word));
    put(k, attr->n_items);
    k->other |= attr->kind == DS_ATTR_PLACE || attr->kind == DS_ATTR_BLOCK;
    for (uint32_t i = 0; i < attr->n_items; i++) put_attr(k, &attr->items[i]);
}

static bool has_clause(const ds_op *op) {
    return op->n_over || op->across || op->has_group || op->n_to || op->dim.i || op->dim_to.i ||
           op->to_rank.i || op->from_rank.i || op->tag.i;
}

static void spell(key *k, const ds_infer *ctx) {
    const ds_op *op = ctx->op;
    k->n = 0;
    k->other = has_clause(op);
    put(k, op->code | (uint64_t)op->n_in << 16 | (uint64_t)op->n_out << 40);
    /* a place that is left out is the function's only mesh */
    put(k, ctx->func && ctx->func->n_mesh_params == 1 ? DS_KEY(ctx->func->mesh_params[0]) : 0);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        if (!is_mere_name(&ctx->unit->exprs, &op->attrs[i])) put_attr(k, &op->attrs[i]);
    put(k, 0);
    for (uint32_t i = 0; i < op->n_in && !k->other; i++) put_type(k, ctx->in[i]);
    for (uint32_t i = 0; i < op->n_out && !k->other; i++) {
        if (ctx->out[i])
            put_type(k, ctx->out[i]);
        else
            put(k, UINT64_MAX);
    }
}

static uint64_t hash_of(const key *k) {
    uint64_t hash = k->n;
    for (uint32_t i = 0; i < k->n; i++) {
        hash = (hash ^ k->words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static const ds_inferred *find(const ds_inferred *at, const key *k) {
    while (at && (at->n_words != k->n || memcmp(at->words, k->words, k->n * sizeof *k->words) != 0))
        at = at->next;
    return at;
}

static void keep(const ds_infer *ctx, const key *k, uint64_t hash, ds_inferred *next,
                 const ds_type **out) {
    ds_inferred *made = ds_arena_alloc(&ctx->unit->arena, sizeof *made + k->n * sizeof *k->words);
    made->next = next;
    made->n_words = k->n;
    made->out = out;
    memcpy(made->words, k->words, k->n * sizeof *k->words);
    ds_map_put(&ctx->unit->inferred, hash, DS_KEY(made));
}

ds_status ds_ops__infer_once(const ds_infer *ctx, const ds_op_desc *desc,
                             ds_status (*infer)(const ds_infer *ctx, const ds_op_desc *desc,
                                                ds_error *err),
                             ds_error *err) {
    uint32_t n = ctx->op->n_out;
    key k;
    if (ctx->env || (desc->flags & DS_OPF_COLLECTIVE)) return infer(ctx, desc, err);
    spell(&k, ctx);
    if (k.other) return infer(ctx, desc, err);
    uint64_t hash = hash_of(&k);
    const uint64_t *found = ds_map_find(&ctx->unit->inferred, hash);
    ds_inferred *first = found ? (ds_inferred *)(uintptr_t)*found : NULL;
    const ds_inferred *known = find(first, &k);
    if (known) {
        for (uint32_t i = 0; i < n; i++)
            if (known->out[i]) ctx->out[i] = (ds_type *)known->out[i];
        return DS_OK;
    }
    const ds_type **out = DS_NEW_N(&ctx->unit->arena, const ds_type *, n + 1);
    for (uint32_t i = 0; i < n; i++) out[i] = ctx->out[i];
    DS_TRY(infer(ctx, desc, err));
    for (uint32_t i = 0; i < n; i++) out[i] = out[i] == ctx->out[i] ? NULL : ctx->out[i];
    keep(ctx, &k, hash, first, out);
    return DS_OK;
}
