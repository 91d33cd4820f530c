/* Elementwise ops whose operands differ in rank or whose result is written by the user. */
#include "ir/ops/internal.h"

ds_status ds_ops__bias_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    uint32_t dim;
    DS_TRY(ds_ops__attr_dim(args, "dim", args->in_rank[0], &dim, err));
    ds_ops__rule_identity(out, args->in_rank[0]);
    out->n_in = 2;
    ds_ops__dim(&out->in[1], out->in[0].dims[dim].factors[0]);
    return DS_OK;
}

/* The right operand stands for the trailing dims; its literal 1s stand for any size. */
ds_status ds_ops__binary_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    uint32_t left = args->in_rank[0], right = args->in_rank[1];
    if (right > left)
        return ds_error_set(err, DS_ERR_SHAPE, args->op->loc,
                            "%s: operand 1 has %u dims and operand 0 only %u; the operand of lower "
                            "rank comes second",
                            ds_op_name(args->op->code), right, left);
    ds_ops__rule_identity(out, left);
    out->n_in = 2;
    for (uint32_t d = 0; d < right; d++) {
        uint32_t to = left - right + d;
        bool one = args->in_ones[1] & (1u << d), other_one = args->in_ones[0] & (1u << to);
        if (one && !other_one)
            ds_ops__dim_one(&out->in[1]);
        else
            ds_ops__dim(&out->in[1], out->in[0].dims[to].factors[0]);
    }
    return DS_OK;
}

ds_status ds_ops__cast_infer(const ds_infer *ctx, ds_error *err) {
    const ds_type *written = ctx->out[0];
    const char *word = ds_ops__attr_text(ctx->op, &ctx->unit->exprs, "dtype");
    ds_dtype dtype;
    if (word) {
        if (!ds_dtype_parse(word, &dtype))
            return ds_error_set(err, DS_ERR_TYPE, ctx->op->loc, "cast: '%s' is no dtype", word);
    } else if (written) {
        dtype = written->dtype;
    } else {
        return ds_error_set(err, DS_ERR_TYPE, ctx->op->loc,
                            "cast needs the attribute 'dtype' or a written result type");
    }
    DS_TRY(ds_ops__infer_by_rule(ctx, err));
    ctx->out[0]->dtype = dtype;
    return DS_OK;
}

/* A shard's mask needs the box that it is: one number a dim. */
ds_status ds_ops__dropout_infer(const ds_infer *ctx, ds_error *err) {
    static const char *const boxes[] = {"full", "start"};
    const ds_attr *start = ds_attr_find(ctx->op->attrs, ctx->op->n_attrs, "start");
    if (start && !ds_ops__attr_n(ctx->op, "full"))
        return ds_error_set(err, DS_ERR_TYPE, start->loc,
                            "dropout: 'start' says where a box lies in a tensor of the size "
                            "'full', which is not given");
    for (uint32_t i = 0; i < 2; i++) {
        const ds_attr *attr = ds_attr_find(ctx->op->attrs, ctx->op->n_attrs, boxes[i]);
        uint32_t n = ds_ops__attr_n(ctx->op, boxes[i]);
        if (attr && n != ctx->in[0]->rank)
            return ds_error_set(err, DS_ERR_TYPE, attr->loc,
                                "dropout: '%s' has %u entries for %u dims", boxes[i], n,
                                ctx->in[0]->rank);
    }
    return ds_ops__infer_by_rule(ctx, err);
}

ds_status ds_ops__fill_infer(const ds_infer *ctx, ds_error *err) {
    if (!ctx->out[0])
        return ds_error_set(err, DS_ERR_TYPE, ctx->op->loc, "%s: the result type must be written",
                            ds_op_name(ctx->op->code));
    if (ctx->out[0]->n_partials && ctx->op->code == DS_OP_FILL)
        return ds_error_set(err, DS_ERR_SHARDING, ctx->op->loc,
                            "fill: a constant cannot be partial; fill it unsplit");
    return ds_op_check_type(ctx, ctx->out[0], "the written type", ctx->op->loc, err);
}

ds_status ds_ops__zeros_infer(const ds_infer *ctx, ds_error *err) {
    const ds_op *op = ctx->op;
    DS_TRY(ds_ops__fill_infer(ctx, err));
    bool tile = ds_attr_find(op->attrs, op->n_attrs, "tile");
    bool host = ds_attr_find(op->attrs, op->n_attrs, "host");
    if (host && !tile)
        return ds_error_set(err, DS_ERR_VALUE, op->loc,
                            "zeros: a store at the hosts has tiles: write tile = 1");
    if (!tile) return DS_OK;
    ds_exprs *exprs = &ctx->unit->exprs;
    int64_t dim = 0;
    ds_expr given = ds_ops__attr_item(exprs, op, "dim", 0);
    DS_TRY(ds_ops__at_least(ctx, "tile", ds_ops__attr_item(exprs, op, "tile", 0), 1, err));
    if (host)
        DS_TRY(ds_ops__at_least(ctx, "host", ds_ops__attr_item(exprs, op, "host", 0), 1, err));
    if (ds_expr_is_int(exprs, given, &dim) && dim >= 0 && dim < ctx->out[0]->rank) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, op->loc,
                        "zeros: tiles lie along a dim: write dim = 0 to %d",
                        (int)ctx->out[0]->rank - 1);
}

/* Tiles are written by `put`. */
ds_status ds_ops__zeros_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                             const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    if (ds_attr_find(op->attrs, op->n_attrs, "tile")) work->bytes_written = 0;
    return DS_OK;
}
