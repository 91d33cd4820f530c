/* Reductions over dims of one operand, and the gradient of a maximum. */
#include "ir/ops/internal.h"

/* The rule x -> y of reducing an x of this rank; a reduced dim's factor has this kind. */
static ds_status reduce_rule(const ds_rule_args *args, uint32_t rank, ds_factor_kind kind,
                             ds_rule *out, ds_error *err) {
    uint32_t n, dims[DS_MAX_RANK];
    DS_TRY(ds_ops__attr_dims(args, "dims", rank, dims, &n, err));
    bool all = !ds_attr_find(args->op->attrs, args->op->n_attrs, "dims");
    bool keep = ds_op_attr_bool(args->op, "keep");
    ds_ops__rule_identity(out, rank);
    out->out[0].n = 0;
    for (uint32_t d = 0; d < rank; d++) {
        bool reduced = all;
        for (uint32_t i = 0; i < n; i++) reduced |= dims[i] == d;
        uint8_t f = out->in[0].dims[d].factors[0];
        if (reduced) out->kinds[f] = kind;
        if (!reduced)
            ds_ops__dim(&out->out[0], f);
        else if (keep)
            ds_ops__dim_one(&out->out[0]);
    }
    return DS_OK;
}

ds_status ds_ops__reduce_sum_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    return reduce_rule(args, args->in_rank[0], DS_FACTOR_SUM, out, err);
}

ds_status ds_ops__reduce_max_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    return reduce_rule(args, args->in_rank[0], DS_FACTOR_MAX, out, err);
}

/* Nothing has no maximum and no mean: an empty range is an error where it leaves a result. */
ds_status ds_ops__reduce_some_infer(const ds_infer *ctx, ds_error *err) {
    int64_t size, n_in = 1, n_out = 1;
    DS_TRY(ds_ops__infer_by_rule(ctx, err));
    for (uint32_t d = 0; ctx->env && ctx->may_be_empty && d < ctx->in[0]->rank; d++) {
        DS_TRY(ds_expr_eval_int(ctx->env, ctx->in[0]->dims[d].size, ctx->op->loc, &size, err));
        n_in *= size > 0;
    }
    for (uint32_t d = 0; !n_in && d < ctx->out[0]->rank; d++) {
        DS_TRY(ds_expr_eval_int(ctx->env, ctx->out[0]->dims[d].size, ctx->op->loc, &size, err));
        n_out *= size > 0;
    }
    if (n_in || !n_out) return DS_OK;
    return ds_error_set(err, DS_ERR_SHAPE, ctx->op->loc,
                        "%s of no element: the operand is %s, and an empty range has no %s",
                        ds_op_name(ctx->op->code), ds_ops__type_text(ctx, ctx->in[0]),
                        ctx->op->code == DS_OP_REDUCE_MAX ? "maximum" : "mean");
}

ds_status ds_ops__sum_squares_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    (void)err;
    ds_ops__rule_identity(out, args->in_rank[0]);
    out->out[0].n = 0;
    for (uint32_t f = 0; f < out->n_factors; f++) out->kinds[f] = DS_FACTOR_SUM;
    return DS_OK;
}

/* y, x -> x: which element is the maximum shows in the whole dims alone. */
ds_status ds_ops__reduce_max_grad_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    DS_TRY(reduce_rule(args, args->in_rank[1], DS_FACTOR_WHOLE, out, err));
    ds_rule_term x = out->in[0];
    out->in[0] = out->out[0];
    out->in[1] = out->out[0] = x;
    out->n_in = 2;
    return DS_OK;
}
