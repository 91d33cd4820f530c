/* Mixture of experts with an explicit group dim and a capacity, after GShard (Lepikhin et al.
 * 2020): tokens [g, s, d], choices [g, s, k], expert buffers [e, g, c, d]. What a token's place in
 * a buffer is depends on its group only, so splitting g changes nothing; an all_to_all of the
 * buffers from dim 1 to dim 0 then splits the experts. */
#include "ir/ops/internal.h"

ds_status ds_ops__topk_sizes(ds_match *m, ds_error *err) {
    const ds_infer *ctx = m->ctx;
    ds_expr k = ds_ops__attr_item(&ctx->unit->exprs, ctx->op, "k", 0), e = ds_ops__size(m, "e");
    int64_t count = 0, experts = 0;
    bool known_k, known_e;
    DS_TRY(ds_ops__int(&ctx->unit->exprs, ctx->env, k, ctx->op->loc, &count, &known_k, err));
    DS_TRY(ds_ops__int(&ctx->unit->exprs, ctx->env, e, ctx->op->loc, &experts, &known_e, err));
    if (known_k && known_e && (count < 1 || count > experts))
        return ds_error_set(err, DS_ERR_VALUE, ctx->op->loc,
                            "topk: k is %lld, but the last dim has %lld elements", (long long)count,
                            (long long)experts);
    ds_ops__set_size(m, "k", k);
    return DS_OK;
}

/* A comparison per element and chosen rank. */
ds_status ds_ops__topk_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                            const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    int64_t elements;
    DS_TRY(ds_shape_elements(&in[0], &elements, err));
    bool ok = true;
    work->flop = ds_ops__mul(&ok, elements, out[0].dims[out[0].rank - 1]);
    return ds_ops__overflow(op, ok, err);
}

ds_status ds_ops__dispatch_sizes(ds_match *m, ds_error *err) {
    ds_exprs *exprs = &m->ctx->unit->exprs;
    ds_expr experts = ds_ops__attr_item(exprs, m->ctx->op, "experts", 0);
    ds_expr capacity = ds_ops__attr_item(exprs, m->ctx->op, "capacity", 0);
    ds_ops__set_size(m, "e", experts);
    ds_ops__set_size(m, "c", capacity);
    DS_TRY(ds_ops__at_least(m->ctx, "experts", experts, 1, err));
    return ds_ops__at_least(m->ctx, "capacity", capacity, 1, err);
}

/* A multiply-add per element of every chosen row; only chosen rows are read. */
ds_status ds_ops__combine_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                               const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    bool ok = true;
    int64_t choices, buffer;
    DS_TRY(ds_shape_elements(&in[1], &choices, err));
    DS_TRY(ds_shape_bytes(&in[0], &buffer, err));
    int64_t points = ds_ops__mul(&ok, choices, out[0].dims[2]);
    int64_t chosen = ds_ops__mul(&ok, points, (int64_t)ds_dtype_bits(in[0].dtype)) / 8;
    if (chosen < buffer) work->bytes_read += chosen - buffer;
    work->flop = ds_ops__mul(&ok, 2, points);
    return ds_ops__overflow(op, ok, err);
}
