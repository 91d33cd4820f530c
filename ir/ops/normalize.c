/* Softmax and the normalisations: a row, or a group of images, is needed whole.
 *
 * FLOPs per element: softmax max, -, exp, +, / = 5; its gradient *, +, -, * = 4; layer_norm and
 * batch_norm + (mean), -, square, + (variance), * = 5; rms_norm square, +, * = 3; scale and shift 1
 * each where given. The gradients of layer_norm and batch_norm find the normalised x again (5),
 * then
 * + (sum of dy), *, + (sum of dy x), -, *, -, * = 12; of rms_norm 3, then *, +, *, -, * = 8; 1 more
 * for the scale, 2 for its gradient, 1 for that of the shift. What is done once a row (division,
 * square root) is left out. */
#include "ir/ops/internal.h"

ds_status ds_ops__softmax_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    uint32_t dim;
    DS_TRY(ds_ops__attr_dim(args, "dim", args->in_rank[0], &dim, err));
    ds_ops__rule_identity(out, args->in_rank[0]);
    out->kinds[out->in[0].dims[dim].factors[0]] = DS_FACTOR_WHOLE;
    return DS_OK;
}

/* A scale of rank 2 is one for each group of channels: groups are rows of their own. */
ds_status ds_ops__rms_norm_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    bool backward = args->op->code == DS_OP_RMS_NORM_GRAD;
    uint32_t scale = backward ? 2 : 1;
    const char *text = ds_op_desc_of(args->op->code)->rule;
    if (args->n_in > scale && args->in_rank[scale] == 2)
        text = backward ? "... g v, ... g v, g v -> ... g v, g v; v: whole, ...: sum"
                        : "... g v, g v -> ... g v; v: whole";
    return ds_rule_parse(text, args->op->loc, out, err);
}

/* The rule for images of rank 2, 3 or 4. */
static ds_status rule_by_rank(const ds_rule_args *args, const char *const rules[3], ds_rule *out,
                              ds_error *err) {
    uint32_t rank = args->in_rank[0];
    if (rank < 2 || rank > 4)
        return ds_error_set(
            err, DS_ERR_SHAPE, args->op->loc,
            "%s: operand 0 has %u dims; [batch, channels] and up to two more are needed",
            ds_op_name(args->op->code), rank);
    return ds_rule_parse(rules[rank - 2], args->op->loc, out, err);
}

ds_status ds_ops__batch_norm_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    static const char *const rules[] = {
        "(u n) c, c, c -> (u n) c; n: whole",
        "(u n) c l, c, c -> (u n) c l; n: whole, l: whole",
        "(u n) c h w, c, c -> (u n) c h w; n: whole, h: whole, w: whole",
    };
    return rule_by_rank(args, rules, out, err);
}

ds_status ds_ops__batch_norm_grad_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    static const char *const rules[] = {
        "(u n) c, (u n) c, c -> (u n) c, c, c; u: sum, n: whole",
        "(u n) c l, (u n) c l, c -> (u n) c l, c, c; u: sum, n: whole, l: whole",
        "(u n) c h w, (u n) c h w, c -> (u n) c h w, c, c; u: sum, n: whole, h: whole, w: whole",
    };
    return rule_by_rank(args, rules, out, err);
}

ds_status ds_ops__batch_norm_sizes(ds_match *m, ds_error *err) {
    ds_expr groups = ds_ops__attr_item(&m->ctx->unit->exprs, m->ctx->op, "groups", 0);
    ds_ops__set_size(m, "u", groups);
    return ds_ops__at_least(m->ctx, "groups", groups, 1, err);
}

/* The table's FLOPs and so many more per element. */
static ds_status work_with(const ds_op *op, const ds_shape *in, const ds_shape *out, int64_t more,
                           ds_work *work, ds_error *err) {
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    int64_t elements;
    DS_TRY(ds_shape_elements(&in[0], &elements, err));
    bool ok = true;
    work->flop = ds_ops__mul(&ok, elements, ds_op_desc_of(op->code)->flop_per_point + more);
    return ds_ops__overflow(op, ok, err);
}

ds_status ds_ops__norm_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                            const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    return work_with(op, in, out, (int64_t)op->n_in - 1, work, err);
}

ds_status ds_ops__norm_grad_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                                 const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    int64_t more = (op->n_in > 2) + 2 * (op->n_out > 1) + (op->n_out > 2);
    return work_with(op, in, out, more, work, err);
}
