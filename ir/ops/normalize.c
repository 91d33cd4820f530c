/* Softmax and the normalisations: a row, or a group of images, is needed whole.
 *
 * FLOPs per element: softmax max, -, exp, +, / = 5; its gradient *, +, -, * = 4; layer_norm and
 * batch_norm + (mean), -, square, + (variance), * = 5; rms_norm square, +, * = 3; scale and shift 1
 * each where given. What is done once a row (division, square root) is left out. */
#include "ir/ops/internal.h"

ds_status ds_ops__softmax_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    uint32_t dim;
    DS_TRY(ds_ops__attr_dim(args, "dim", args->in_rank[0], &dim, err));
    ds_ops__rule_identity(out, args->in_rank[0]);
    out->kinds[out->in[0].dims[dim].factors[0]] = DS_FACTOR_WHOLE;
    return DS_OK;
}

ds_status ds_ops__batch_norm_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    static const char *const rules[] = {
        "(u n) c, c, c -> (u n) c; n: whole",
        "(u n) c l, c, c -> (u n) c l; n: whole, l: whole",
        "(u n) c h w, c, c -> (u n) c h w; n: whole, h: whole, w: whole",
    };
    uint32_t rank = args->in_rank[0];
    if (rank < 2 || rank > 4)
        return ds_error_set(
            err, DS_ERR_SHAPE, args->op->loc,
            "batch_norm: operand 0 has %u dims; [batch, channels] and up to two more "
            "are needed",
            rank);
    return ds_rule_parse(rules[rank - 2], args->op->loc, out, err);
}

ds_status ds_ops__batch_norm_sizes(ds_match *m, ds_error *err) {
    ds_expr groups = ds_ops__attr_item(&m->ctx->unit->exprs, m->ctx->op, "groups", 0);
    ds_ops__set_size(m, "u", groups);
    return ds_ops__at_least(m->ctx, "groups", groups, 1, err);
}

ds_status ds_ops__norm_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                            const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    int64_t elements;
    DS_TRY(ds_shape_elements(&in[0], &elements, err));
    bool ok = true;
    int64_t each = ds_op_desc_of(op->code)->flop_per_point + (int64_t)op->n_in - 1;
    work->flop = ds_ops__mul(&ok, elements, each);
    return ds_ops__overflow(op, ok, err);
}
