/* Axes of size 1, taken out of a step on stages of several widths.
 *
 * While the partitioner chooses layouts, all stages have the same axes (stage.c). In the text an
 * axis of
 * size 1 would be noise: `[batch@dp, k]` on one replica is `[batch, k]`, a sum over one device is
 * its term, and a collective over nothing else is its operand. */
#include "ir/passes/shard/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct narrower {
    const ds_sharder *s;
    ds_map types; /* type → narrowed */
    ds_func *func;
    ds_use *is; /* by value: its replacement; by default itself */
} narrower;

static bool is_one(const narrower *x, const ds_place *on, const char *axis) {
    for (uint32_t m = 0; m < x->s->meshes.n; m++) {
        const ds_shard_mesh *mesh = &x->s->meshes.at[m];
        if (mesh->name != on->name) continue;
        for (uint32_t a = 0; a < mesh->n_axes; a++)
            if (mesh->axes[a].name == axis) return mesh->axes[a].size == 1;
    }
    return false;
}

static ds_type *narrowed(narrower *x, ds_type *type) {
    const uint64_t *found = type ? ds_map_find(&x->types, DS_KEY(type)) : NULL;
    if (!type) return NULL;
    if (found) return (ds_type *)(uintptr_t)*found;
    ds_type *to = ds_type_copy(&x->s->unit->arena, type);
    for (uint32_t d = 0; d < to->rank; d++) {
        ds_dim *dim = &to->dims[d];
        uint32_t n = 0;
        for (uint32_t i = 0; i < dim->n_splits; i++)
            if (!is_one(x, &to->on, dim->splits[i].axis)) dim->splits[n++] = dim->splits[i];
        dim->n_splits = n;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < to->n_partials; i++)
        if (!is_one(x, &to->on, to->partials[i].axis)) to->partials[n++] = to->partials[i];
    to->n_partials = n;
    ds_map_put(&x->types, DS_KEY(type), DS_KEY(to));
    ds_map_put(&x->types, DS_KEY(to), DS_KEY(to));
    return to;
}

/* Drops an op that has nothing left to do: its results become its operands. */
static bool drop(narrower *x, ds_op *op) {
    if (op->code == DS_OP_RESHARD) {
        const ds_type *from = ds_value_at(x->func, op->in[0].value)->type;
        const ds_type *to = ds_value_at(x->func, op->out[0])->type;
        return ds_type_equal(&x->s->unit->exprs, from, to) == DS_YES;
    }
    if (!op->n_over || op->code == DS_OP_LOCAL) return false;
    const ds_place *on = &ds_value_at(x->func, op->in[0].value)->type->on;
    const char **over = DS_NEW_N(&x->s->unit->arena, const char *, op->n_over);
    uint32_t n = 0;
    for (uint32_t i = 0; i < op->n_over; i++)
        if (!is_one(x, on, op->over[i])) over[n++] = op->over[i];
    op->over = over;
    op->n_over = n;
    return n == 0;
}

static void narrow_block(narrower *x, ds_block *block) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        for (uint32_t k = 0; k < op->n_in; k++) {
            const ds_use *is = &x->is[op->in[k].value.i];
            if (is->n_index)
                op->in[k] = *is;
            else
                op->in[k].value = is->value;
        }
        for (uint32_t k = 0; op->result_types && k < op->n_out; k++)
            op->result_types[k] = narrowed(x, op->result_types[k]);
        if (op->body) narrow_block(x, op->body);
        bool gone = drop(x, op);
        for (uint32_t k = 0; gone && k < op->n_out; k++) x->is[op->out[k].i] = op->in[k];
        if (!gone) block->ops[n++] = op;
    }
    block->n_ops = n;
}

static void narrow_func(narrower *x, ds_func *func) {
    x->func = func;
    x->is = ds_xmalloc((func->values.n + 1) * sizeof *x->is);
    for (uint32_t v = 0; v < func->values.n; v++) {
        x->is[v] = ds_use_of((ds_value){v});
        func->values.at[v].type = narrowed(x, func->values.at[v].type);
    }
    narrow_block(x, &func->body);
    for (uint32_t k = 0; k < func->n_results; k++) func->results[k] = narrowed(x, func->results[k]);
    free(x->is);
}

void ds_shard__narrow(ds_sharder *s) {
    narrower x = {.s = s};
    ds_map_init(&x.types);
    for (uint32_t i = 0; i < s->funcs.n; i++) narrow_func(&x, s->funcs.at[i].to);
    ds_map_deinit(&x.types);
}
