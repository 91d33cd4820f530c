/* Mixture of experts with explicit groups and a capacity, after GShard (Lepikhin et al. 2020):
 * tokens [..., s, d], choices [..., s, k], expert buffers [..., e, c, d]; the leading dims are the
 * groups. A token's place in a buffer depends on its group only, so splitting groups changes
 * nothing; an all_to_all of the buffers from a leading dim to e then splits the experts. */
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

ds_status ds_ops__topk_grad_sizes(ds_match *m, ds_error *err) {
    ds_expr size = ds_ops__attr_item(&m->ctx->unit->exprs, m->ctx->op, "size", 0);
    ds_ops__set_size(m, "e", size);
    return ds_ops__at_least(m->ctx, "size", size, 1, err);
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

typedef struct row_work {
    uint32_t choices; /* the operand with the choices; the rows are those of operand 0 */
    uint32_t buffers; /* the operand of which only the chosen rows are read; UINT32_MAX: none */
    int64_t flop;     /* of an element */
} row_work;

/* Bytes and FLOPs of every chosen row. */
static ds_status work_of_rows(const ds_op *op, const ds_shape *in, const ds_shape *out,
                              row_work each, ds_work *work, ds_error *err) {
    const ds_shape *rows = &in[0];
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    bool ok = true;
    int64_t n;
    DS_TRY(ds_shape_elements(&in[each.choices], &n, err));
    int64_t points = ds_ops__mul(&ok, n, rows->dims[rows->rank - 1]);
    work->flop = ds_ops__mul(&ok, each.flop, points);
    if (each.buffers < op->n_in) {
        int64_t all, chosen = ds_ops__mul(&ok, points, (int64_t)ds_dtype_bits(rows->dtype)) / 8;
        DS_TRY(ds_shape_bytes(&in[each.buffers], &all, err));
        if (chosen < all) work->bytes_read += chosen - all;
    }
    return ds_ops__overflow(op, ok, err);
}

/* A copy, or a product with its weight, of every chosen row. */
ds_status ds_ops__dispatch_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                                const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    row_work copy = {.choices = 1, .buffers = UINT32_MAX, .flop = op->n_in > 2};
    return work_of_rows(op, in, out, copy, work, err);
}

/* A multiply-add per element of every chosen row. */
ds_status ds_ops__combine_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                               const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    row_work add = {.choices = 1, .buffers = 0, .flop = 2};
    return work_of_rows(op, in, out, add, work, err);
}

ds_status ds_ops__combine_grad_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                                    const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    row_work add = {.choices = 2, .buffers = 1, .flop = 2};
    return work_of_rows(op, in, out, add, work, err);
}
