/* Losses and table look-up.
 *
 * A loss divides by the global count, so a split batch gives each device a term of the sum: the
 * result is partial, never a mean of means. FLOPs per element: cross_entropy max, -, exp, + = 4;
 * its gradient -, exp, * = 3 (the 1 taken off at the label is one a row); mse -, square, + = 3;
 * mse_grad
 * -, * = 2; embedding_grad + = 1. */
#include "ir/ops/internal.h"

#include <string.h>

/* `rows` if reduction = none, else `sum`. */
static ds_status reduction_rule(const ds_rule_args *args, const char *rows, const char *sum,
                                ds_rule *out, ds_error *err) {
    const char *text = ds_ops__attr_text(args->op, args->exprs, "reduction");
    bool none = text && strcmp(text, "none") == 0;
    return ds_rule_parse(none ? rows : sum, args->op->loc, out, err);
}

ds_status ds_ops__cross_entropy_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    if (args->n_out < 2)
        return reduction_rule(args, "... v, ... -> ...; v: whole",
                              "... v, ... -> ; v: whole, ...: sum", out, err);
    return reduction_rule(args, "... v, ... -> ..., ...; v: whole",
                          "... v, ... -> , ...; v: whole, ...: sum", out, err);
}

ds_status ds_ops__mse_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    return reduction_rule(args, "..., ... -> ...", "..., ... -> ; ...: sum", out, err);
}

/* Only the rows looked up are read: as many bytes as the result has. */
ds_status ds_ops__embedding_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                                 const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    int64_t ids;
    DS_TRY(ds_shape_bytes(&in[0], &ids, err));
    bool ok = true;
    work->dtype = in[1].dtype;
    work->bytes_read = ds_ops__add(&ok, ids, work->bytes_written);
    DS_TRY(ds_shape_elements(&in[0], &work->tokens, err));
    work->width = in[1].dims[1];
    return ds_ops__overflow(op, ok, err);
}

/* Only the elements picked are read: as many bytes as the result has. */
ds_status ds_ops__pick_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                            const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    int64_t labels;
    DS_TRY(ds_shape_bytes(&in[1], &labels, err));
    bool ok = true;
    work->bytes_read = ds_ops__add(&ok, labels, work->bytes_written);
    return ds_ops__overflow(op, ok, err);
}

ds_status ds_ops__embedding_grad_sizes(ds_match *m, ds_error *err) {
    ds_expr rows = ds_ops__attr_item(&m->ctx->unit->exprs, m->ctx->op, "rows", 0);
    ds_ops__set_size(m, "v", rows);
    return ds_ops__at_least(m->ctx, "rows", rows, 1, err);
}

ds_status ds_ops__embedding_grad_infer(const ds_infer *ctx, ds_error *err) {
    return ds_ops__infer_making(ctx, 1u << 0, err);
}

ds_status ds_ops__embedding_grad_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                                      const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    return ds_shape_elements(&in[0], &work->flop, err);
}
