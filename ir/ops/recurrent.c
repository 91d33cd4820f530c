/* LSTM: x [b, s, i], input weights [i, 4h], recurrent weights [h, 4h], bias [4h], states [b, h].
 *
 * FLOPs of a step: 2·b·4h·(i + h) for the products, and 18 per hidden unit: three sigmoids of 4,
 * tanh of the candidate 1, c = f·c + i·g 3, h = o·tanh(c) 2; a bias adds 4 per unit.
 *
 * The gradient does the forward pass again, which gives the gates, and twice its products: dz W'
 * and dz R', x' dz and h' dz. 23 more per unit: dh from both sides 1, do 1, dc 5 with tanh' of c,
 * di, df, dg and the step's dc 4, three sigmoids' slopes of 3 and tanh's of 3; a bias adds 4. */
#include "ir/ops/internal.h"

/* lstm's operands; lstm_grad has dy before them, and a result for each. */
ds_status ds_ops__lstm_sizes(ds_match *m, ds_error *err) {
    const ds_op *op = m->ctx->op;
    bool backward = op->code == DS_OP_LSTM_GRAD;
    if (op->n_in == (backward ? 6 : 5))
        return ds_error_set(err, DS_ERR_TYPE, op->loc,
                            "%s takes both initial states, hidden and cell, or neither",
                            m->desc->name);
    if (backward && op->n_out != op->n_in - 1)
        return ds_error_set(err, DS_ERR_TYPE, op->loc,
                            "lstm_grad of %u operands of lstm has as many results, not %u",
                            op->n_in - 1, op->n_out);
    /* j, the rows of the recurrent weights, is the hidden size too: the columns are 4 times that.
     */
    ds_ops__set_size(m, "g", ds_expr_int(&m->ctx->unit->exprs, 4));
    ds_expr hidden = ds_ops__size(m, "j"), state = ds_ops__size(m, "h");
    ds_tri same = DS_YES;
    if (DS_HAS_EXPR(state)) DS_TRY(ds_ops__equal(m->ctx, hidden, state, &same, err));
    if (same == DS_NO)
        return ds_error_set(err, DS_ERR_SHAPE, op->loc,
                            "%s: the %s have %s units, the recurrent weights %s", m->desc->name,
                            backward ? "hidden states" : "initial states",
                            ds_ops__expr_text(m->ctx, state), ds_ops__expr_text(m->ctx, hidden));
    ds_ops__set_size(m, "h", hidden);
    return DS_OK;
}

/* `in` from x on; `products` times the forward pass's, and `units` FLOPs per hidden unit. */
static ds_status lstm_work(const ds_op *op, const ds_shape *in, int64_t products, int64_t units,
                           ds_work *work, ds_error *err) {
    bool ok = true;
    work->kind = DS_WORK_RECURRENT;
    work->batch = in[0].dims[1];
    work->m = in[0].dims[0];
    work->n = in[2].dims[1];
    work->k = ds_ops__add(&ok, in[0].dims[2], in[2].dims[0]);
    int64_t gates = ds_ops__mul(&ok, 2 * products, ds_ops__mul(&ok, work->n, work->k));
    int64_t step = ds_ops__add(&ok, gates, ds_ops__mul(&ok, units, in[2].dims[0]));
    work->flop = ds_ops__mul(&ok, ds_ops__mul(&ok, work->batch, work->m), step);
    return ds_ops__overflow(op, ok, err);
}

ds_status ds_ops__lstm_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                            const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    return lstm_work(op, in, 1, op->n_in > 3 ? 22 : 18, work, err);
}

ds_status ds_ops__lstm_grad_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                                 const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    return lstm_work(op, in + 1, 3, op->n_in > 4 ? 49 : 41, work, err);
}
