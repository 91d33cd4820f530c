/* Gradients of normalisations, look-ups, losses, attention, recurrence and mixtures of experts. */
#include "ir/passes/grad/vjp.h"

#include <stdio.h>

/* ---- normalisation ---- */

/* backward(dy, x [, scale]) -> dx [, dscale [, dshift]], as many results as are wanted. */
ds_status ds_vjp__norm(ds_vjp *v, ds_error *err) {
    static const char *const suffix[] = {".dx", ".dscale", ".dshift"};
    static const char *const attrs[] = {"eps", "groups", NULL};
    ds_use dy;
    ds_value out[3];
    uint32_t n = ds_vjp_wants(v, 2) ? 3 : ds_vjp_wants(v, 1) ? 2 : 1;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_op *op = ds_vjp_op(v, ds_op_desc_of(v->op->code)->backward);
    ds_vjp_read(v, op, dy);
    ds_vjp_read(v, op, ds_vjp_in(v, 0));
    if (v->op->n_in > 1) ds_vjp_read(v, op, ds_vjp_in(v, 1));
    ds_vjp_attrs(v, op, attrs);
    for (uint32_t i = 0; i < n; i++) out[i] = ds_vjp_result(v, op, suffix[i], i);
    DS_TRY(ds_build_put(&v->g->b, op, err));
    for (uint32_t i = 0; i < n; i++) DS_TRY(ds_vjp_give(v, i, ds_use_of(out[i]), err));
    return DS_OK;
}

/* ---- look-up ---- */

ds_status ds_vjp__embedding(ds_vjp *v, ds_error *err) {
    ds_use dy, dw;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_op *op = ds_vjp_op(v, DS_OP_EMBEDDING_GRAD);
    ds_vjp_read(v, op, dy);
    ds_vjp_read(v, op, ds_vjp_in(v, 0));
    ds_build_attr_expr(&v->g->b, op, "rows", ds_vjp_in_type(v, 1)->dims[0].size);
    ds_vjp_attrs(v, op, (const char *const[]){"start", NULL});
    DS_TRY(ds_vjp_put(v, op, ".dw", 1, &dw, err));
    return ds_vjp_give(v, 1, dw, err);
}

/* `use` with one more dim of size 1 at the end. */
static ds_status column(ds_vjp *v, ds_use use, const ds_type *type, const char *suffix, ds_use *out,
                        ds_error *err) {
    ds_expr dims[DS_MAX_RANK];
    for (uint32_t d = 0; d < type->rank; d++) dims[d] = type->dims[d].size;
    dims[type->rank] = ds_vjp_int(v, 1);
    const ds_type *with = ds_type_make(&v->g->unit->arena, type->dtype, dims, type->rank + 1);
    return ds_vjp_reshape(v, use, with, suffix, DS_LIKE_NONE, out, err);
}

static ds_status scatter(ds_vjp *v, ds_use dy, ds_use index, ds_error *err) {
    ds_use dx;
    const ds_type *x = ds_vjp_in_type(v, 0);
    ds_op *op = ds_vjp_op(v, DS_OP_TOPK_GRAD);
    ds_vjp_read(v, op, dy);
    ds_vjp_read(v, op, index);
    ds_build_attr_expr(&v->g->b, op, "size", x->dims[x->rank - 1].size);
    DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

ds_status ds_vjp__pick(ds_vjp *v, ds_error *err) {
    ds_use dy, index;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    DS_TRY(column(v, dy, ds_vjp_out_type(v, 0), ".dy.column", &dy, err));
    DS_TRY(column(v, ds_vjp_in(v, 1), ds_vjp_in_type(v, 1), ".index", &index, err));
    return scatter(v, dy, index, err);
}

ds_status ds_vjp__topk(ds_vjp *v, ds_error *err) {
    ds_use dy;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    return scatter(v, dy, ds_vjp_out(v, 1), err);
}

/* ---- losses ---- */

static bool upstream_is_one(const ds_vjp *v) {
    ds_use loss = ds_use_of(v->op->out[0]);
    const ds_grad_slot *slot = ds_grad__slot(v->g, &loss);
    return slot->term.is_const && slot->term.c == 1;
}

ds_status ds_vjp__cross_entropy(ds_vjp *v, ds_error *err) {
    if (ds_vjp_has(v, 1))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, v->op->loc,
                            "grad: the second result of cross_entropy has no gradient");
    bool one = upstream_is_one(v);
    ds_use dx;
    ds_op *op = ds_vjp_op(v, DS_OP_CROSS_ENTROPY_GRAD);
    ds_vjp_read(v, op, ds_vjp_in(v, 0));
    ds_vjp_read(v, op, ds_vjp_in(v, 1));
    ds_vjp_read(v, op, ds_vjp_out(v, 1));
    ds_vjp_attrs(v, op, (const char *const[]){"reduction", NULL});
    DS_TRY(ds_vjp_put(v, op, one ? ".dx" : ".dx.one", 0, &dx, err));
    DS_TRY(ds_vjp_upstream(v, &dx, ".dx", 0, err));
    return ds_vjp_give(v, 0, dx, err);
}

ds_status ds_vjp__mse(ds_vjp *v, ds_error *err) {
    bool one = upstream_is_one(v);
    ds_use dx;
    ds_op *op = ds_vjp_op(v, DS_OP_MSE_GRAD);
    ds_vjp_read(v, op, ds_vjp_in(v, 0));
    ds_vjp_read(v, op, ds_vjp_in(v, 1));
    ds_vjp_attrs(v, op, (const char *const[]){"reduction", NULL});
    DS_TRY(ds_vjp_put(v, op, one ? ".dx" : ".dx.one", 0, &dx, err));
    DS_TRY(ds_vjp_upstream(v, &dx, ".dx", 0, err));
    DS_TRY(ds_vjp_give(v, 0, dx, err));
    if (!ds_vjp_wants(v, 1)) return DS_OK;
    DS_TRY(ds_vjp_unary(v, DS_OP_NEG, dx, ".dy", 1, &dx, err));
    return ds_vjp_give(v, 1, dx, err);
}

/* ---- attention ---- */

ds_status ds_vjp__attention(ds_vjp *v, ds_error *err) {
    static const char *const suffix[] = {".dq", ".dk", ".dv"};
    static const char *const attrs[] = {"causal",  "window",  "document", "scale",
                                        "q_start", "k_start", NULL};
    if (ds_vjp_has(v, 1))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, v->op->loc,
                            "grad: the second result of attention has no gradient");
    ds_use dy;
    ds_value out[3];
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_op *op = ds_vjp_op(v, DS_OP_ATTENTION_GRAD);
    ds_vjp_read(v, op, dy);
    for (uint32_t i = 0; i < 3; i++) ds_vjp_read(v, op, ds_vjp_in(v, i));
    ds_vjp_read(v, op, ds_vjp_out(v, 0));
    ds_vjp_read(v, op, ds_vjp_out(v, 1));
    ds_vjp_attrs(v, op, attrs);
    for (uint32_t i = 0; i < 3; i++) out[i] = ds_vjp_result(v, op, suffix[i], i);
    DS_TRY(ds_build_put(&v->g->b, op, err));
    for (uint32_t i = 0; i < 3; i++) DS_TRY(ds_vjp_give(v, i, ds_use_of(out[i]), err));
    return DS_OK;
}

/* The transpose of a rotation is the rotation back. */
ds_status ds_vjp__rotary(ds_vjp *v, ds_error *err) {
    ds_use dy, dx;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_op *op = ds_vjp_op(v, DS_OP_ROTARY);
    ds_vjp_read(v, op, dy);
    ds_vjp_attrs(v, op, (const char *const[]){"base", "start", NULL});
    if (!ds_op_attr_bool(v->op, "inverse")) ds_build_attr_bool(&v->g->b, op, "inverse", true);
    DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

/* ---- recurrence ---- */

/* backward(dy, all operands), which has a result for each of them. */
static ds_status of_all(ds_vjp *v, ds_use dy, const char *const *suffix, const char *const *attrs,
                        ds_error *err) {
    ds_value out[DS_MAX_OPERANDS];
    ds_op *op = ds_vjp_op(v, ds_op_desc_of(v->op->code)->backward);
    ds_vjp_read(v, op, dy);
    for (uint32_t i = 0; i < v->op->n_in; i++) ds_vjp_read(v, op, ds_vjp_in(v, i));
    if (attrs) ds_vjp_attrs(v, op, attrs);
    for (uint32_t i = 0; i < v->op->n_in; i++) out[i] = ds_vjp_result(v, op, suffix[i], i);
    DS_TRY(ds_build_put(&v->g->b, op, err));
    for (uint32_t i = 0; i < v->op->n_in; i++) DS_TRY(ds_vjp_give(v, i, ds_use_of(out[i]), err));
    return DS_OK;
}

ds_status ds_vjp__causal_conv(ds_vjp *v, ds_error *err) {
    ds_use dy;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    return of_all(v, dy, (const char *const[]){".dx", ".dw", ".d2"},
                  (const char *const[]){"silu", NULL}, err);
}

ds_status ds_vjp__ssd_scan(ds_vjp *v, ds_error *err) {
    static const char *const suffix[] = {".dx", ".d1", ".d2", ".d3", ".d4", ".d5", ".d6"};
    ds_use dy;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    return of_all(v, dy, suffix, (const char *const[]){"chunk", NULL}, err);
}

/* The gradient of the last hidden state belongs to the last step of the hidden states. */
static ds_status add_last_hidden(ds_vjp *v, ds_use *dy, ds_error *err) {
    const ds_type *y = ds_vjp_out_type(v, 0);
    ds_use dh;
    ds_expr one = ds_vjp_int(v, 1), dims[3] = {y->dims[0].size, one, y->dims[2].size};
    DS_TRY(ds_vjp_dy(v, 1, &dh, err));
    const ds_type *step = ds_type_make(&v->g->unit->arena, y->dtype, dims, 3);
    DS_TRY(ds_vjp_reshape(v, dh, step, ".dh.step", DS_LIKE_NONE, &dh, err));
    ds_op *pad = ds_vjp_op(v, DS_OP_PAD);
    ds_vjp_read(v, pad, dh);
    ds_build_attr_int(&v->g->b, pad, "dim", 1);
    ds_build_attr_expr(&v->g->b, pad, "lo", ds_vjp_fold(v, DS_EXPR_SUB, y->dims[1].size, one));
    DS_TRY(ds_vjp_put(v, pad, ".dh.steps", DS_LIKE_NONE, &dh, err));
    if (!ds_vjp_has(v, 0)) {
        *dy = dh;
        return DS_OK;
    }
    return ds_vjp_put(v, ds_vjp_binary(v, DS_OP_ADD, *dy, dh), ".dy", DS_LIKE_NONE, dy, err);
}

ds_status ds_vjp__lstm(ds_vjp *v, ds_error *err) {
    static const char *const suffix[] = {".dx", ".dwx", ".dwh", ".db", ".dh0", ".dc0"};
    if (ds_vjp_has(v, 2))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, v->op->loc,
                            "grad: the loss depends on %%%s, the last cell state of an lstm, "
                            "which has no gradient",
                            ds_value_at(v->g->old, v->op->out[2])->name);
    ds_use dy = {0};
    if (ds_vjp_has(v, 0)) DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    if (ds_vjp_has(v, 1)) DS_TRY(add_last_hidden(v, &dy, err));
    return of_all(v, dy, suffix, NULL, err);
}

/* ---- mixtures of experts ---- */

/* Weights of a token's choices: <rows of tokens, rows of their buffers>. */
static ds_status choice_weights(ds_vjp *v, ds_use tokens, ds_use buffers, ds_error *err) {
    ds_use dw;
    ds_op *op = ds_vjp_op(v, DS_OP_COMBINE_GRAD);
    ds_vjp_read(v, op, tokens);
    ds_vjp_read(v, op, buffers);
    ds_vjp_read(v, op, ds_vjp_in(v, 1));
    bool same = ds_vjp_in_type(v, 2)->dtype == ds_vjp_in_type(v, 0)->dtype;
    DS_TRY(ds_vjp_put(v, op, ".dw", same ? 2 : DS_LIKE_NONE, &dw, err));
    return ds_vjp_give(v, 2, dw, err);
}

ds_status ds_vjp__dispatch(ds_vjp *v, ds_error *err) {
    ds_use dy, dx;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    if (ds_vjp_wants(v, 0)) {
        ds_op *op = ds_vjp_op(v, DS_OP_COMBINE);
        ds_vjp_read(v, op, dy);
        for (uint32_t i = 1; i < v->op->n_in; i++) ds_vjp_read(v, op, ds_vjp_in(v, i));
        DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
        DS_TRY(ds_vjp_give(v, 0, dx, err));
    }
    return ds_vjp_wants(v, 2) ? choice_weights(v, ds_vjp_in(v, 0), dy, err) : DS_OK;
}

ds_status ds_vjp__combine(ds_vjp *v, ds_error *err) {
    ds_use dy, dx;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    if (ds_vjp_wants(v, 0)) {
        const ds_type *buffers = ds_vjp_in_type(v, 0);
        ds_op *op = ds_vjp_op(v, DS_OP_DISPATCH);
        ds_vjp_read(v, op, dy);
        for (uint32_t i = 1; i < v->op->n_in; i++) ds_vjp_read(v, op, ds_vjp_in(v, i));
        ds_build_attr_expr(&v->g->b, op, "experts", buffers->dims[buffers->rank - 3].size);
        ds_build_attr_expr(&v->g->b, op, "capacity", buffers->dims[buffers->rank - 2].size);
        DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
        DS_TRY(ds_vjp_give(v, 0, dx, err));
    }
    return ds_vjp_wants(v, 2) ? choice_weights(v, dy, ds_vjp_in(v, 0), err) : DS_OK;
}
