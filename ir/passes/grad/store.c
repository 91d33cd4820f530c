/* Stores: tensors that loops carry, where `put` writes what later turns read.
 *
 * In SSA each put makes a new value, so that a slice of the store would be kept for each turn: bytes
 * that grow with the square of the turns. Where every put writes its place once, the store after
 * the loops still has all of the slice's places; the backward pass slices that one. The same holds
 * for a value that was put, and for views of both.
 *
 * The gradient of a store is one tensor, too. A slice adds to its places; the turn that made a point
 * finds there the sum over all its readers. What reads 0:t + 1 so gives point t the terms of the
 * turns t:T, in place and without an inverse of the index. */
#include "ir/passes/grad/internal.h"

#include <string.h>

static bool is_none(ds_value value) {
    return value.i == UINT32_MAX;
}

static const ds_op *maker(const ds_grad *g, ds_value value) {
    const ds_value_info *info = ds_value_at(g->old, value);
    return info->is_arg ? NULL : info->def;
}

/* ---- which values are stores ---- */

static void link(ds_grad *g, const ds_use *from, ds_value to, bool once, const ds_grad_loop *loop) {
    ds_grad_store *store = &g->stores[from->value.i];
    g->stores[to.i].is = true;
    if (from->n_index || g->home[from->value.i] != loop) return;
    *store = (ds_grad_store){.is = true, .once = once, .later = to, .of = store->of};
}

/* A value at its own turn, before a reshape gave it the store's dims. */
static void note_put(ds_grad *g, const ds_op *put, const ds_grad_loop *loop) {
    const ds_use *part = &put->in[1];
    if (part->n_index || g->home[part->value.i] != loop) return;
    g->stores[part->value.i].of = put;
    const ds_op *reshape = maker(g, part->value);
    if (!reshape || reshape->code != DS_OP_RESHAPE || reshape->in[0].n_index) return;
    if (g->home[reshape->in[0].value.i] == loop) g->stores[reshape->in[0].value.i].of = put;
}

/* From one version to the last in its block. *once: no put between has changed a place. */
static ds_value last_of(const ds_grad *g, ds_value value, bool *once) {
    for (; !is_none(g->stores[value.i].later); value = g->stores[value.i].later)
        *once = *once && g->stores[value.i].once;
    return value;
}

/* Does the loop put into carry k? */
static bool fills(const ds_grad *g, const ds_op *loop, uint32_t k, bool *once) {
    const ds_use *next = &ds_block_end(loop->body)->in[k];
    *once = true;
    return g->stores[loop->args[k].i].is && !next->n_index &&
           last_of(g, loop->args[k], once).i == next->value.i;
}

static void find_in(ds_grad *g, const ds_block *block, const ds_grad_loop *loop) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_PUT) {
            bool once = ds_op_attr_bool(op, "once");
            link(g, &op->in[0], op->out[0], once, loop);
            g->stores[op->in[0].value.i].is = true;
            if (once) note_put(g, op, loop);
        }
        if (op->code != DS_OP_FOR) continue;
        find_in(g, op->body, ds_grad__loop(g, op));
        for (uint32_t k = 0; k < op->n_args; k++) {
            bool once;
            if (fills(g, op, k, &once)) link(g, &op->in[k], op->out[k], once, loop);
        }
    }
}

void ds_grad__find_stores(ds_grad *g) {
    g->stores = DS_NEW_N(&g->unit->arena, ds_grad_store, g->n_values + 1);
    for (uint32_t i = 0; i <= g->n_values; i++) g->stores[i].later = DS_NO_VALUE;
    find_in(g, &g->old->body, NULL);
}

bool ds_grad__is_store(const ds_grad *g, ds_value value) {
    return g->stores[value.i].is;
}

/* ---- reading again ---- */

/* The version furthest from the loops that still has all places of `value` as they are there. */
static ds_value final_of(const ds_grad *g, ds_value value) {
    for (;;) {
        while (!is_none(g->stores[value.i].later) && g->stores[value.i].once)
            value = g->stores[value.i].later;
        const ds_grad_loop *home = g->home[value.i];
        if (!home) return value;
        const ds_op *loop = home->op, *yield = ds_block_end(loop->body);
        uint32_t k = 0;
        bool once = false;
        while (k < loop->n_args && (yield->in[k].n_index || yield->in[k].value.i != value.i ||
                                    !fills(g, loop, k, &once)))
            k++;
        if (k == loop->n_args || !once) return value;
        value = loop->out[k];
    }
}

static bool is_view(ds_opcode code) {
    return code == DS_OP_RESHAPE || code == DS_OP_STACK || code == DS_OP_TRANSPOSE ||
           code == DS_OP_SLICE;
}

/* The slice of a store that the value is, or is a view of; NULL: it is none that is there to the
 * end. */
static const ds_op *slice_behind(const ds_grad *g, ds_value value) {
    const ds_grad_loop *home = g->home[value.i];
    for (;;) {
        const ds_op *op = maker(g, value);
        if (!op || !is_view(op->code) || op->in[0].n_index) return NULL;
        value = op->in[0].value;
        if (op->code == DS_OP_SLICE && g->stores[value.i].is)
            return g->home[final_of(g, value).i] == home ? NULL : op;
        if (g->home[value.i] != home) return NULL;
    }
}

static bool is_kept(const ds_grad *g, ds_value value) {
    const ds_op *yield = ds_block_end(g->home[value.i]->op->body);
    for (uint32_t i = yield->n_in - yield->n_keep; i < yield->n_in; i++)
        if (yield->in[i].value.i == value.i && !yield->in[i].n_index) return true;
    return false;
}

/* The op, and what it is of, once more. */
static ds_status again(ds_grad *g, const ds_op *op, ds_use x, ds_use *out, ds_error *err) {
    ds_use old = ds_use_of(op->out[0]);
    ds_op *made = ds_build_op(&g->b, op->code);
    made->loc = op->loc;
    ds_build_in(&g->b, made, x);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, "name") != 0)
            ds_build_attr(&g->b, made, ds_grad__rev_attr(g, op->attrs[i]));
    *out = ds_use_of(ds_build_out(&g->b, made, ds_grad__name(g, old.value, ".again"),
                                  ds_grad__written(g, &old)));
    return ds_build_put(&g->b, made, err);
}

static ds_status view_again(ds_grad *g, ds_value value, const ds_op *slice, ds_use *out,
                            ds_error *err) {
    const ds_op *op = maker(g, value);
    ds_use x;
    if (op == slice) {
        ds_use store = ds_use_of(final_of(g, op->in[0].value));
        x = ds_grad__read(g, &store);
    } else {
        DS_TRY(view_again(g, op->in[0].value, slice, &x, err));
    }
    return again(g, op, x, out, err);
}

/* What `put` stored, from its place. */
static ds_status point_again(ds_grad *g, ds_value value, const ds_op *put, ds_use *out,
                             ds_error *err) {
    ds_use store = ds_use_of(final_of(g, put->out[0])), old = ds_use_of(value);
    ds_exprs *exprs = &g->unit->exprs;
    int64_t dim = 0;
    const ds_attr *dim_attr = ds_attr_find(put->attrs, put->n_attrs, "dim");
    const ds_attr *at = ds_attr_find(put->attrs, put->n_attrs, "at");
    if (dim_attr) ds_expr_is_int(exprs, dim_attr->expr, &dim);
    const ds_type *part = ds_grad__type(g, &put->in[1]);
    ds_expr lo = ds_grad__rev(g, at->expr);
    const char *name = ds_grad__name(g, value, ".again");
    ds_op *slice = ds_build_op(&g->b, DS_OP_SLICE);
    slice->loc = put->loc;
    ds_build_in(&g->b, slice, ds_grad__read(g, &store));
    ds_build_attr_int(&g->b, slice, "dim", dim);
    ds_build_attr_expr(&g->b, slice, "lo", lo);
    ds_build_attr_expr(&g->b, slice, "hi",
                       ds_expr_fold(exprs, DS_EXPR_ADD, lo, part->dims[dim].size));
    *out = ds_use_of(ds_build_out(&g->b, slice, name, NULL));
    DS_TRY(ds_build_put(&g->b, slice, err));
    if (value.i == put->in[1].value.i) return DS_OK;
    ds_op *reshape = ds_build_op(&g->b, DS_OP_RESHAPE);
    reshape->loc = put->loc;
    ds_build_in(&g->b, reshape, *out);
    *out = ds_use_of(ds_build_out(&g->b, reshape, name, ds_grad__type(g, &old)));
    return ds_build_put(&g->b, reshape, err);
}

static bool is_there(const ds_grad *g, ds_value value) {
    for (const ds_grad_level *at = g->level; at; at = at->up)
        for (uint32_t i = 0; i < at->again.n; i++)
            if (at->again.at[i].value.i == value.i) return true;
    return false;
}

static ds_status read_again(ds_grad *g, const ds_use *use, ds_error *err) {
    ds_value value = use->value;
    ds_grad_again entry = {.value = value};
    if (value.i >= g->old->values.n || use->n_index || !g->home[value.i] || is_there(g, value))
        return DS_OK;
    const ds_op *slice = slice_behind(g, value), *put = g->stores[value.i].of;
    if (slice)
        DS_TRY(view_again(g, value, slice, &entry.use, err));
    else if (put && !is_kept(g, value) && g->home[final_of(g, put->out[0]).i] != g->home[value.i])
        DS_TRY(point_again(g, value, put, &entry.use, err));
    else
        return DS_OK;
    DS_HPUSH(&g->level->again, entry);
    return DS_OK;
}

ds_status ds_grad__read_again(ds_grad *g, const ds_op *op, ds_error *err) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    for (uint32_t of = 0; of < op->n_in; of++) {
        if (!g->live[op->in[of].value.i]) continue;
        for (uint32_t i = 0; i < op->n_in; i++)
            if (ds_op_saves_operand(desc, of, i)) DS_TRY(read_again(g, &op->in[i], err));
        for (uint32_t r = 0; r < op->n_out; r++) {
            ds_use result = ds_use_of(op->out[r]);
            if (ds_op_saves_result(desc, of, r)) DS_TRY(read_again(g, &result, err));
        }
    }
    return DS_OK;
}
