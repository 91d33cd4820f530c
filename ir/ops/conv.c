/* Convolution and pooling over NCHW images, and their gradients.
 *
 * Output size, per spatial dim: floor((h + 2 pad - dilation (r - 1) - 1) / stride) + 1.
 * FLOPs: 2 N K P Q (C / groups) R S; pooling: one comparison or addition per window element. */
#include "ir/ops/internal.h"

static bool one_group(const ds_rule_args *args) {
    const ds_attr *attr = ds_attr_find(args->op->attrs, args->op->n_attrs, "groups");
    int64_t groups;
    return !attr || (ds_expr_is_int(args->exprs, attr->expr, &groups) && groups == 1);
}

/* Channels in u groups: the c and k of a group stay together. */
static const char *grouped_rule(ds_opcode code) {
    switch (code) {
    case DS_OP_CONV2D_GRAD_X:
        return "n (u k) p q, (u k) c r s -> n (u c) h w; c: whole, k: whole, r: whole, s: whole, "
               "p: window, q: window, h: whole, w: whole";
    case DS_OP_CONV2D_GRAD_W:
        return "n (u c) h w, n (u k) p q -> (u k) c r s; n: sum, c: whole, k: whole, r: whole, "
               "s: whole, h: window, w: window, p: window, q: window";
    default:
        return "n (u c) h w, (u k) c r s -> n (u k) p q; "
               "c: whole, k: whole, r: whole, s: whole, h: window, w: window";
    }
}

ds_status ds_ops__conv2d_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    ds_opcode code = args->op->code;
    const char *text = one_group(args) ? ds_op_desc_of(code)->rule : grouped_rule(code);
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

/* Factors of images, windows and results, along both spatial dims. */
static const char *const names[2][3] = {{"h", "r", "p"}, {"w", "s", "q"}};

/* An attribute may be a number or a list; a list has items. */
static ds_status check_lists(const ds_match *m, ds_error *err) {
    static const char *const lists[] = {"size", "window", "stride", "pad", "dilation"};
    const ds_op *op = m->ctx->op;
    for (uint32_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, lists[i]);
        if (attr && attr->kind == DS_ATTR_LIST && attr->n_items == 0)
            return ds_error_set(err, DS_ERR_VALUE, attr->loc, "%s: '%s' is an empty list",
                                m->desc->name, lists[i]);
    }
    return DS_OK;
}

/* What the attributes say of spatial dim i, over windows of `size`. */
static window window_of(const ds_match *m, uint32_t i, ds_expr size, bool pool) {
    ds_expr one = ds_expr_int(&m->ctx->unit->exprs, 1);
    window w = {size, item(m, "stride", i), item(m, "pad", i), pool ? one : item(m, "dilation", i)};
    if (!DS_HAS_EXPR(w.stride)) w.stride = size;
    return w;
}

static ds_status set_groups(ds_match *m, ds_error *err) {
    if (ds_ops__factor_named(&m->rule, "u") == DS_MAX_FACTORS) return DS_OK;
    ds_ops__set_size(m, "u", item(m, "groups", 0));
    return ds_ops__at_least(m->ctx, "groups", item(m, "groups", 0), 1, err);
}

/* dy's size along spatial dim i must be that of the forward op's result. */
static ds_status check_output(const ds_match *m, uint32_t i, const window *w, ds_error *err) {
    ds_expr in = ds_ops__size(m, names[i][0]), out = ds_ops__size(m, names[i][2]), want;
    ds_tri same;
    DS_TRY(output_size(m, in, w, &want, err));
    DS_TRY(ds_ops__equal(m->ctx, out, want, &same, err));
    if (same != DS_NO) return DS_OK;
    return ds_error_set(err, DS_ERR_SHAPE, m->ctx->op->loc,
                        "%s: %s = %s gives %s = %s in the forward op, but dy has %s", m->desc->name,
                        names[i][0], ds_ops__expr_text(m->ctx, in), names[i][2],
                        ds_ops__expr_text(m->ctx, want), ds_ops__expr_text(m->ctx, out));
}

ds_status ds_ops__conv2d_sizes(ds_match *m, ds_error *err) {
    DS_TRY(check_lists(m, err));
    for (uint32_t i = 0; i < 2; i++) {
        window w = window_of(m, i, ds_ops__size(m, names[i][1]), false);
        ds_expr size;
        DS_TRY(output_size(m, ds_ops__size(m, names[i][0]), &w, &size, err));
        ds_ops__set_size(m, names[i][2], size);
    }
    return set_groups(m, err);
}

ds_status ds_ops__conv2d_grad_x_sizes(ds_match *m, ds_error *err) {
    DS_TRY(check_lists(m, err));
    for (uint32_t i = 0; i < 2; i++) {
        window w = window_of(m, i, ds_ops__size(m, names[i][1]), false);
        ds_ops__set_size(m, names[i][0], item(m, "size", i));
        DS_TRY(check_output(m, i, &w, err));
    }
    return set_groups(m, err);
}

ds_status ds_ops__conv2d_grad_w_sizes(ds_match *m, ds_error *err) {
    DS_TRY(check_lists(m, err));
    for (uint32_t i = 0; i < 2; i++) {
        window w = window_of(m, i, item(m, "window", i), false);
        ds_ops__set_size(m, names[i][1], w.size);
        DS_TRY(check_output(m, i, &w, err));
    }
    return set_groups(m, err);
}

/* The forward op's GEMM is [n p q] x [k] over [c r s]. By the images it is [n p q] x [c r s] over
 * [k], scattered; by the filters [k] x [c r s] over [n p q]. All have the same FLOPs. */
ds_status ds_ops__conv2d_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                              const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    bool ok = true, by_x = op->code == DS_OP_CONV2D_GRAD_X, by_w = op->code == DS_OP_CONV2D_GRAD_W;
    const int64_t *y = by_x ? in[0].dims : by_w ? in[1].dims : out[0].dims;
    const int64_t *w = by_w ? out[0].dims : in[1].dims;
    int64_t pixels = ds_ops__mul(&ok, y[0], ds_ops__mul(&ok, y[2], y[3]));
    int64_t taps = ds_ops__mul(&ok, w[1], ds_ops__mul(&ok, w[2], w[3]));
    work->kind = DS_WORK_CONV;
    work->batch = 1;
    work->m = by_w ? y[1] : pixels;
    work->n = by_x || by_w ? taps : y[1];
    work->k = by_x ? y[1] : by_w ? pixels : taps;
    work->flop = ds_ops__mul(&ok, 2, ds_ops__mul(&ok, work->m, ds_ops__mul(&ok, work->n, work->k)));
    return ds_ops__overflow(op, ok, err);
}

ds_status ds_ops__pool_sizes(ds_match *m, ds_error *err) {
    DS_TRY(check_lists(m, err));
    for (uint32_t i = 0; i < 2; i++) {
        window w = window_of(m, i, item(m, "window", i), true);
        ds_expr size;
        DS_TRY(output_size(m, ds_ops__size(m, names[i][0]), &w, &size, err));
        ds_ops__set_size(m, names[i][2], size);
    }
    return DS_OK;
}

ds_status ds_ops__pool_grad_sizes(ds_match *m, ds_error *err) {
    bool sized = m->ctx->op->code == DS_OP_AVG_POOL_GRAD;
    DS_TRY(check_lists(m, err));
    for (uint32_t i = 0; i < 2; i++) {
        window w = window_of(m, i, item(m, "window", i), true);
        if (sized) ds_ops__set_size(m, names[i][0], item(m, "size", i));
        DS_TRY(check_output(m, i, &w, err));
    }
    return DS_OK;
}

/* The forward op's result and dy have as many elements; each stands for a window. */
ds_status ds_ops__pool_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                            const ds_shape *out, ds_work *work, ds_error *err) {
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    bool ok = true, backward = op->code == DS_OP_MAX_POOL_GRAD || op->code == DS_OP_AVG_POOL_GRAD;
    int64_t elements, h = 1, w = 1;
    DS_TRY(ds_shape_elements(backward ? &in[0] : &out[0], &elements, err));
    DS_TRY(ds_ops__attr_item_int(op, env, "window", 0, &h, err));
    DS_TRY(ds_ops__attr_item_int(op, env, "window", 1, &w, err));
    work->flop = ds_ops__mul(&ok, elements, ds_ops__mul(&ok, h, w));
    return ds_ops__overflow(op, ok, err);
}
