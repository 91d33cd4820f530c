/* LSTM: x [b, s, i], input weights [i, 4h], recurrent weights [h, 4h], bias [4h], states [b, h].
 *
 * FLOPs of a step: 2·b·4h·(i + h) for the products, and 18 per hidden unit: three sigmoids of 4,
 * tanh of the candidate 1, c = f·c + i·g 3, h = o·tanh(c) 2; a bias adds 4 per unit. */
#include "ir/ops/internal.h"

ds_status ds_ops__lstm_sizes(ds_match *m, ds_error *err) {
    if (m->ctx->op->n_in == 5)
        return ds_error_set(err, DS_ERR_TYPE, m->ctx->op->loc,
                            "lstm takes both initial states, hidden and cell, or neither");
    /* j, the rows of the recurrent weights, is the hidden size too: the columns are 4 times that.
     */
    ds_ops__set_size(m, "g", ds_expr_int(&m->ctx->unit->exprs, 4));
    ds_expr hidden = ds_ops__size(m, "j"), state = ds_ops__size(m, "h");
    ds_tri same = DS_YES;
    if (DS_HAS_EXPR(state)) DS_TRY(ds_ops__equal(m->ctx, hidden, state, &same, err));
    if (same == DS_NO)
        return ds_error_set(err, DS_ERR_SHAPE, m->ctx->op->loc,
                            "lstm: the initial states have %s units, the recurrent weights %s",
                            ds_ops__expr_text(m->ctx, state), ds_ops__expr_text(m->ctx, hidden));
    ds_ops__set_size(m, "h", hidden);
    return DS_OK;
}

ds_status ds_ops__lstm_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                            const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    bool ok = true;
    int64_t hidden = in[2].dims[0];
    work->kind = DS_WORK_RECURRENT;
    work->batch = in[0].dims[1];
    work->m = in[0].dims[0];
    work->n = in[2].dims[1];
    work->k = ds_ops__add(&ok, in[0].dims[2], hidden);
    int64_t products = ds_ops__mul(&ok, 2, ds_ops__mul(&ok, work->n, work->k));
    int64_t units = ds_ops__mul(&ok, hidden, op->n_in > 3 ? 22 : 18);
    int64_t rows = ds_ops__mul(&ok, work->batch, work->m);
    work->flop = ds_ops__mul(&ok, rows, ds_ops__add(&ok, products, units));
    return ds_ops__overflow(op, ok, err);
}
