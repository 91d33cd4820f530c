/* Optimizers: elementwise over the weight, its gradient, states and (mixed precision) a master
 * copy. Result 0 is the new weight, result i > 0 the new operand i + 1.
 *
 * FLOPs per element: sgd *, - = 2; momentum *, + and *, - = 4; adam m 3, v 4, bias corrections 2,
 * sqrt, + eps, /, *, - 5 = 14; adamw and decay *, - = 16. */
#include "ir/ops/internal.h"

ds_status ds_ops__optimizer_infer(const ds_infer *ctx, ds_error *err) {
    if (ctx->op->n_out + 1 != ctx->op->n_in)
        return ds_error_set(err, DS_ERR_TYPE, ctx->op->loc,
                            "%s of %u operands has %u results (the weight and every state), not %u",
                            ds_op_name(ctx->op->code), ctx->op->n_in, ctx->op->n_in - 1,
                            ctx->op->n_out);
    return ds_ops__infer_by_rule(ctx, err);
}
