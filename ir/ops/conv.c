/* Convolution and pooling over NCHW images.
 *
 * Output size, per spatial dim: floor((h + 2 pad - dilation (r - 1) - 1) / stride) + 1.
 * FLOPs: 2 N K P Q (C / groups) R S; pooling: one comparison or addition per window element. */
#include "ir/ops/internal.h"

static bool one_group(const ds_rule_args *args) {
    const ds_attr *attr = ds_attr_find(args->op->attrs, args->op->n_attrs, "groups");
    int64_t groups;
    return !attr || (ds_expr_is_int(args->exprs, attr->expr, &groups) && groups == 1);
}

ds_status ds_ops__conv2d_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    const char *text = one_group(args)
                           ? ds_op_desc_of(args->op->code)->rule
                           : "n (u c) h w, (u k) c r s -> n (u k) p q; "
                             "c: whole, k: whole, r: whole, s: whole, h: window, w: window";
    return ds_rule_parse(text, args->op->loc, out, err);
}

/* a + c, written as a - 3 where c is -3. */
static ds_expr plus(ds_exprs *exprs, ds_expr a, ds_expr c) {
    int64_t value;
    if (ds_expr_is_int(exprs, c, &value) && value < 0 && value != INT64_MIN)
        return ds_expr_fold(exprs, DS_EXPR_SUB, a, ds_expr_int(exprs, -value));
    return ds_expr_fold(exprs, DS_EXPR_ADD, a, c);
}

typedef struct window {
    ds_expr size, stride, pad, dilation;
} window;

/* What cannot be decided yet passes; the result's own check finds sizes below 1. */
static ds_status check_window(const ds_match *m, const window *w, ds_error *err) {
    DS_TRY(ds_ops__at_least(m->ctx, "window", w->size, 1, err));
    DS_TRY(ds_ops__at_least(m->ctx, "stride", w->stride, 1, err));
    DS_TRY(ds_ops__at_least(m->ctx, "dilation", w->dilation, 1, err));
    return ds_ops__at_least(m->ctx, "pad", w->pad, 0, err);
}

static ds_status output_size(const ds_match *m, ds_expr in, const window *w, ds_expr *out,
                             ds_error *err) {
    DS_TRY(check_window(m, w, err));
    ds_exprs *exprs = &m->ctx->unit->exprs;
    ds_expr one = ds_expr_int(exprs, 1), two = ds_expr_int(exprs, 2);
    ds_expr reach = ds_expr_fold(exprs, DS_EXPR_MUL, w->dilation,
                                 ds_expr_fold(exprs, DS_EXPR_SUB, w->size, one));
    ds_expr extra =
        ds_expr_fold(exprs, DS_EXPR_SUB, ds_expr_fold(exprs, DS_EXPR_MUL, two, w->pad), reach);
    int64_t stride;
    if (ds_expr_is_int(exprs, w->stride, &stride) && stride == 1) {
        *out = plus(exprs, in, extra);
        return DS_OK;
    }
    ds_expr last = plus(exprs, in, ds_expr_fold(exprs, DS_EXPR_SUB, extra, one));
    *out = ds_expr_fold(exprs, DS_EXPR_ADD, ds_expr_fold(exprs, DS_EXPR_DIV, last, w->stride), one);
    return DS_OK;
}

static ds_expr item(const ds_match *m, const char *name, uint32_t i) {
    return ds_ops__attr_item(&m->ctx->unit->exprs, m->ctx->op, name, i);
}

ds_status ds_ops__conv2d_sizes(ds_match *m, ds_error *err) {
    static const char *const names[2][3] = {{"h", "r", "p"}, {"w", "s", "q"}};
    for (uint32_t i = 0; i < 2; i++) {
        window w = {ds_ops__size(m, names[i][1]), item(m, "stride", i), item(m, "pad", i),
                    item(m, "dilation", i)};
        ds_expr size;
        DS_TRY(output_size(m, ds_ops__size(m, names[i][0]), &w, &size, err));
        ds_ops__set_size(m, names[i][2], size);
    }
    if (ds_ops__factor_named(&m->rule, "u") == DS_MAX_FACTORS) return DS_OK;
    ds_ops__set_size(m, "u", item(m, "groups", 0));
    return ds_ops__at_least(m->ctx, "groups", item(m, "groups", 0), 1, err);
}

ds_status ds_ops__conv2d_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                              const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    bool ok = true;
    const int64_t *w = in[1].dims, *y = out[0].dims;
    work->kind = DS_WORK_CONV;
    work->batch = 1;
    work->m = ds_ops__mul(&ok, y[0], ds_ops__mul(&ok, y[2], y[3]));
    work->n = y[1];
    work->k = ds_ops__mul(&ok, w[1], ds_ops__mul(&ok, w[2], w[3]));
    work->flop = ds_ops__mul(&ok, 2, ds_ops__mul(&ok, work->m, ds_ops__mul(&ok, work->n, work->k)));
    return ds_ops__overflow(op, ok, err);
}

ds_status ds_ops__pool_sizes(ds_match *m, ds_error *err) {
    static const char *const names[2][2] = {{"h", "p"}, {"w", "q"}};
    ds_expr one = ds_expr_int(&m->ctx->unit->exprs, 1);
    for (uint32_t i = 0; i < 2; i++) {
        window w = {item(m, "window", i), item(m, "stride", i), item(m, "pad", i), one};
        if (!DS_HAS_EXPR(w.size))
            return ds_error_set(err, DS_ERR_VALUE, m->ctx->op->loc, "%s: 'window' is an empty list",
                                m->desc->name);
        if (!DS_HAS_EXPR(w.stride)) w.stride = w.size;
        ds_expr size;
        DS_TRY(output_size(m, ds_ops__size(m, names[i][0]), &w, &size, err));
        ds_ops__set_size(m, names[i][1], size);
    }
    return DS_OK;
}

ds_status ds_ops__pool_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                            const ds_shape *out, ds_work *work, ds_error *err) {
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    int64_t elements, h = 1, w = 1;
    DS_TRY(ds_shape_elements(&out[0], &elements, err));
    DS_TRY(ds_ops__attr_item_int(op, env, "window", 0, &h, err));
    DS_TRY(ds_ops__attr_item_int(op, env, "window", 1, &w, err));
    bool ok = true;
    work->flop = ds_ops__mul(&ok, elements, ds_ops__mul(&ok, h, w));
    return ds_ops__overflow(op, ok, err);
}
