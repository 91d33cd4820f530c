/* Convolutions, pooling, normalisations, softmax, lstm: nodes with windows, axes and states. */
#include "ir/base/units.h"
#include "ir/import/onnx_internal.h"

#include <onnx.pb-c.h>
#include <string.h>

/* ---- windows ---- */

/* Of a convolution or pooling over two spatial dims. */
typedef struct window {
    int64_t size[2], stride[2], dilation[2];
    int64_t before[2], after[2]; /* padding */
} window;

/* Attribute `name` as n numbers, or n times `otherwise`. */
static ds_status numbers(const ds_onnx *g, const char *name, int64_t otherwise, int64_t least,
                         int64_t *out, uint32_t n, ds_error *err) {
    const int64_t *given;
    uint32_t count = n;
    bool there = ds_onnx__attr_ints(g, name, &given, &count);
    if (count != n)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "'%s' has %u entries; %u are needed",
                            name, count, n);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = there ? given[i] : otherwise;
        if (out[i] < least || out[i] > INT32_MAX)
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "'%s' is %lld", name,
                                (long long)out[i]);
    }
    return DS_OK;
}

/* SAME: as much padding as makes the output ceil(input / stride), the odd one at the end or start.
 */
static ds_status pad_same(ds_onnx *g, const ds_type *x, bool upper, window *w, ds_error *err) {
    for (uint32_t i = 0; i < 2; i++) {
        int64_t in;
        if (!ds_expr_is_int(g->exprs, x->dims[2 + i].size, &in))
            return ds_onnx__refuse(err, "auto_pad of an image whose size is left open");
        ds_i128 reach = (ds_i128)(w->size[i] - 1) * w->dilation[i] + 1;
        int64_t last = in > 0 ? (in - 1) / w->stride[i] * w->stride[i] : -w->stride[i];
        ds_i128 wide = last + reach - in;
        if (wide > INT64_MAX) return ds_onnx__refuse(err, "auto_pad of windows wider than 2^63");
        int64_t all = wide < 0 ? 0 : (int64_t)wide;
        w->before[i] = upper ? all / 2 : all - all / 2;
        w->after[i] = all - w->before[i];
    }
    return DS_OK;
}

/* Everything but the size. */
static ds_status read_window(ds_onnx *g, const ds_type *x, window *w, ds_error *err) {
    int64_t pads[4];
    DS_TRY(numbers(g, "strides", 1, 1, w->stride, 2, err));
    DS_TRY(numbers(g, "dilations", 1, 1, w->dilation, 2, err));
    DS_TRY(numbers(g, "pads", 0, 0, pads, 4, err));
    if (ds_onnx__is(g, "auto_pad", "NOTSET", "SAME_UPPER")) return pad_same(g, x, true, w, err);
    if (ds_onnx__is(g, "auto_pad", "NOTSET", "SAME_LOWER")) return pad_same(g, x, false, w, err);
    bool valid = ds_onnx__is(g, "auto_pad", "NOTSET", "VALID");
    for (uint32_t i = 0; i < 2; i++) {
        w->before[i] = valid ? 0 : pads[i];
        w->after[i] = valid ? 0 : pads[2 + i];
    }
    return DS_OK;
}

static bool is_symmetric(const window *w) {
    return w->before[0] == w->after[0] && w->before[1] == w->after[1];
}

/* One number where both are equal. */
static void put_pair(ds_onnx *g, ds_op *op, const char *name, const int64_t pair[2],
                     int64_t otherwise) {
    if (pair[0] == pair[1]) {
        if (pair[0] != otherwise) ds_build_attr_int(&g->b, op, name, pair[0]);
        return;
    }
    const ds_expr items[] = {ds_expr_int(g->exprs, pair[0]), ds_expr_int(g->exprs, pair[1])};
    ds_build_attr_exprs(&g->b, op, name, items, 2);
}

static ds_status images(ds_onnx *g, ds_use *x, ds_error *err) {
    DS_TRY(ds_onnx__use(g, 0, x, err));
    uint32_t rank = ds_onnx__type(g, x)->rank;
    if (rank != 4)
        return ds_onnx__refuse(err, "its input has %u dims; distsim has images [n, c, h, w]", rank);
    return DS_OK;
}

/* Zeros around the image as an op of its own, where both sides differ. */
static ds_status pad_image(ds_onnx *g, window *w, ds_use *x, ds_error *err) {
    if (is_symmetric(w)) return DS_OK;
    for (uint32_t i = 0; i < 2; i++) {
        if (!w->before[i] && !w->after[i]) continue;
        ds_op *op = ds_onnx__op(g, DS_OP_PAD, x, 1);
        ds_build_attr_int(&g->b, op, "dim", 2 + i);
        ds_build_attr_int(&g->b, op, "lo", w->before[i]);
        ds_build_attr_int(&g->b, op, "hi", w->after[i]);
        DS_TRY(ds_onnx__put(g, op, x, err));
        w->before[i] = w->after[i] = 0;
    }
    return DS_OK;
}

static ds_status conv(ds_onnx *g, ds_error *err) {
    ds_use in[2];
    window w;
    DS_TRY(images(g, &in[0], err));
    DS_TRY(ds_onnx__use(g, 1, &in[1], err));
    const ds_type *filter = ds_onnx__type(g, &in[1]);
    if (filter->rank != 4)
        return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE, "its filter has %u dims", filter->rank);
    for (uint32_t i = 0; i < 2; i++)
        if (!ds_expr_is_int(g->exprs, filter->dims[2 + i].size, &w.size[i]))
            return ds_onnx__refuse(err, "a filter whose size is left open");
    DS_TRY(read_window(g, ds_onnx__type(g, &in[0]), &w, err));
    DS_TRY(pad_image(g, &w, &in[0], err));
    ds_op *op = ds_onnx__op(g, DS_OP_CONV2D, in, 2);
    put_pair(g, op, "stride", w.stride, 1);
    put_pair(g, op, "pad", w.before, 0);
    put_pair(g, op, "dilation", w.dilation, 1);
    int64_t groups = ds_onnx__int(g, "group", 1);
    if (groups != 1) ds_build_attr_int(&g->b, op, "groups", groups);
    if (!ds_onnx__in(g, 2)) return ds_onnx__finish(g, op, err);
    ds_use y;
    DS_TRY(ds_onnx__put(g, op, &y, err));
    in[0] = y;
    DS_TRY(ds_onnx__use(g, 2, &in[1], err));
    op = ds_onnx__op(g, DS_OP_BIAS, in, 2);
    ds_build_attr_int(&g->b, op, "dim", 1);
    return ds_onnx__finish(g, op, err);
}

/* Rounding up gives another size only where the windows do not end with the image. */
static ds_status check_ceil(ds_onnx *g, const ds_type *x, const window *w, ds_error *err) {
    if (!ds_onnx__int(g, "ceil_mode", 0)) return DS_OK;
    for (uint32_t i = 0; i < 2; i++) {
        int64_t in;
        bool known = ds_expr_is_int(g->exprs, x->dims[2 + i].size, &in);
        if (w->stride[i] == 1 ||
            (known && in <= INT32_MAX && (in + 2 * w->before[i] - w->size[i]) % w->stride[i] == 0))
            continue;
        return ds_onnx__refuse(err, "ceil_mode: distsim's windows stay inside the padded image");
    }
    return DS_OK;
}

static ds_status pool(ds_onnx *g, ds_opcode code, ds_error *err) {
    ds_use x;
    window w;
    DS_TRY(images(g, &x, err));
    DS_TRY(numbers(g, "kernel_shape", 0, 1, w.size, 2, err));
    DS_TRY(read_window(g, ds_onnx__type(g, &x), &w, err));
    DS_TRY(check_ceil(g, ds_onnx__type(g, &x), &w, err));
    if (w.dilation[0] != 1 || w.dilation[1] != 1)
        return ds_onnx__refuse(err, "distsim's pooling has no dilation");
    if (ds_onnx__wants(g, 1)) return ds_onnx__refuse(err, "distsim's pooling gives no indices");
    bool padded = w.before[0] || w.before[1] || w.after[0] || w.after[1];
    bool average = code == DS_OP_AVG_POOL;
    if (average && padded && !ds_onnx__int(g, "count_include_pad", 0))
        return ds_onnx__refuse(err,
                               "count_include_pad = 0: distsim's mean is over the whole window");
    if (!average && !is_symmetric(&w))
        return ds_onnx__refuse(err, "padding that differs between both sides");
    DS_TRY(pad_image(g, &w, &x, err));
    ds_op *op = ds_onnx__op(g, code, &x, 1);
    put_pair(g, op, "window", w.size, 0);
    put_pair(g, op, "stride", w.stride, 0); /* distsim's default is the window, ONNX's is 1 */
    put_pair(g, op, "pad", w.before, 0);
    return ds_onnx__finish(g, op, err);
}

static ds_status max_pool(ds_onnx *g, ds_error *err) {
    return pool(g, DS_OP_MAX_POOL, err);
}
static ds_status avg_pool(ds_onnx *g, ds_error *err) {
    return pool(g, DS_OP_AVG_POOL, err);
}

static ds_status global_pool(ds_onnx *g, ds_opcode code, ds_error *err) {
    ds_use x;
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    uint32_t rank = ds_onnx__type(g, &x)->rank;
    if (rank < 3) return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE, "its input has %u dims", rank);
    ds_expr dims[DS_MAX_RANK];
    for (uint32_t d = 2; d < rank; d++) dims[d] = ds_expr_int(g->exprs, d);
    ds_op *op = ds_onnx__op(g, code, &x, 1);
    ds_build_attr_exprs(&g->b, op, "dims", dims + 2, rank - 2);
    ds_build_attr_bool(&g->b, op, "keep", true);
    return ds_onnx__finish(g, op, err);
}

static ds_status global_avg_pool(ds_onnx *g, ds_error *err) {
    return global_pool(g, DS_OP_REDUCE_MEAN, err);
}
static ds_status global_max_pool(ds_onnx *g, ds_error *err) {
    return global_pool(g, DS_OP_REDUCE_MAX, err);
}

/* ---- normalisations ---- */

/* Up to opset 12 softmax ran over all dims from axis (1) on, later over axis (-1) alone. */
static ds_status softmax(ds_onnx *g, ds_error *err) {
    ds_use x;
    uint32_t axis;
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    uint32_t rank = ds_onnx__type(g, &x)->rank;
    DS_TRY(ds_onnx__axis(g, ds_onnx__int(g, "axis", g->opset < 13 ? 1 : -1), rank, &axis, err));
    if (g->opset < 13 && axis + 1 != rank)
        return ds_onnx__refuse(err, "opset %lld takes it over %u dims at once, distsim over one",
                               (long long)g->opset, rank - axis);
    ds_op *op = ds_onnx__op(g, DS_OP_SOFTMAX, &x, 1);
    if (axis + 1 != rank) ds_build_attr_int(&g->b, op, "dim", axis);
    return ds_onnx__finish(g, op, err);
}

static ds_status norm(ds_onnx *g, ds_opcode code, uint32_t operands, double eps, ds_error *err) {
    ds_use in[3];
    uint32_t n = 0;
    for (; n < operands && ds_onnx__in(g, n); n++) DS_TRY(ds_onnx__use(g, n, &in[n], err));
    ds_op *op = ds_onnx__op(g, code, in, n);
    ds_build_attr_real(&g->b, op, "eps", eps);
    return ds_onnx__finish(g, op, err);
}

static ds_status layer_norm(ds_onnx *g, ds_error *err) {
    const ds_expr *dims;
    ds_dtype dtype;
    uint32_t rank, axis;
    DS_TRY(ds_onnx__shape(g, 0, &dtype, &dims, &rank, err));
    DS_TRY(ds_onnx__axis(g, ds_onnx__int(g, "axis", -1), rank, &axis, err));
    if (axis + 1 != rank)
        return ds_onnx__refuse(err, "distsim normalises over the last dim, not from dim %u on",
                               axis);
    if (ds_onnx__wants(g, 1) || ds_onnx__wants(g, 2))
        return ds_onnx__refuse(err, "distsim's layer_norm gives no mean and no deviation");
    return norm(g, DS_OP_LAYER_NORM, 3, ds_onnx__float(g, "epsilon", 1e-5), err);
}

static ds_status batch_norm(ds_onnx *g, ds_error *err) {
    for (uint32_t i = 1; i < 5; i++)
        if (ds_onnx__wants(g, i))
            return ds_onnx__refuse(err, "distsim gives no running statistics");
    if (!g->said_batch_norm)
        g->note = "batch_norm takes the batch's own statistics, as in training, here and below";
    g->said_batch_norm = true;
    return norm(g, DS_OP_BATCH_NORM, 3, ds_onnx__float(g, "epsilon", 1e-5), err);
}

/* ---- lstm ---- */

static ds_status one_direction(ds_onnx *g, ds_error *err) {
    const int64_t *unused;
    uint32_t n;
    if (!ds_onnx__is(g, "direction", "forward", "forward"))
        return ds_onnx__refuse(err, "distsim's lstm runs forward, in one direction");
    if (ds_onnx__attr(g, "activations") || ds_onnx__attr(g, "clip") ||
        ds_onnx__int(g, "input_forget", 0) || ds_onnx__int(g, "layout", 0) ||
        ds_onnx__attr_ints(g, "activation_alpha", &unused, &n))
        return ds_onnx__refuse(err, "distsim's lstm has the default activations and layout only");
    if (ds_onnx__in(g, 4) || ds_onnx__in(g, 7))
        return ds_onnx__refuse(err, "distsim's lstm has no sequence lengths and no peepholes");
    return DS_OK;
}

/* Weights of the layout [1, 4 hidden, k], gates i o f c, become [k, 4 hidden], gates i f c o. Only
 * shapes are imported, so the weight is declared as distsim has it. */
static ds_status gate_weight(ds_onnx *g, uint32_t i, ds_expr *hidden, ds_use *out, ds_error *err) {
    const ds_expr *dims;
    ds_dtype dtype;
    uint32_t rank;
    int64_t one, gates;
    DS_TRY(ds_onnx__shape(g, i, &dtype, &dims, &rank, err));
    const ds_onnx_name *name = ds_onnx__in(g, i);
    if (name->has_value || rank != 3 || !ds_expr_is_int(g->exprs, dims[0], &one) || one != 1 ||
        !ds_expr_is_int(g->exprs, dims[1], &gates) || gates % 4)
        return ds_onnx__refuse(err, "its input %u must be an initializer [1, 4 hidden, k]", i);
    *hidden = ds_expr_int(g->exprs, gates / 4);
    const ds_expr swapped[] = {dims[2], dims[1]};
    return ds_onnx__weight(g, i, dtype, swapped, 2, out, err);
}

static ds_status gate_bias(ds_onnx *g, ds_expr hidden, ds_use *out, ds_error *err) {
    const ds_expr *dims;
    ds_dtype dtype;
    uint32_t rank;
    DS_TRY(ds_onnx__shape(g, 3, &dtype, &dims, &rank, err));
    const ds_expr width = ds_expr_fold(g->exprs, DS_EXPR_MUL, hidden, ds_expr_int(g->exprs, 4));
    g->note = "the graph's two bias vectors as one";
    return ds_onnx__weight(g, 3, dtype, &width, 1, out, err);
}

/* [1, b, h] to [b, h]. */
static ds_status state(ds_onnx *g, uint32_t i, ds_expr batch, ds_expr hidden, ds_use *out,
                       ds_error *err) {
    const ds_expr dims[] = {batch, hidden};
    DS_TRY(ds_onnx__use(g, i, out, err));
    return ds_onnx__reshape(g, *out, dims, 2, out, err);
}

static ds_status lstm(ds_onnx *g, ds_error *err) {
    static const uint32_t swap[] = {1, 0, 2};
    ds_use in[6], out[3];
    ds_expr hidden, same;
    DS_TRY(one_direction(g, err));
    DS_TRY(ds_onnx__use(g, 0, &in[0], err));
    const ds_type *x = ds_onnx__type(g, &in[0]);
    if (x->rank != 3)
        return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE, "its input has %u dims, not 3", x->rank);
    ds_expr one = ds_expr_int(g->exprs, 1), steps = x->dims[0].size, batch = x->dims[1].size;
    DS_TRY(ds_onnx__transpose(g, in[0], swap, 3, &in[0], err));
    DS_TRY(gate_weight(g, 1, &hidden, &in[1], err));
    DS_TRY(gate_weight(g, 2, &same, &in[2], err));
    bool states = ds_onnx__in(g, 5) || ds_onnx__in(g, 6);
    uint32_t n = 3;
    if (ds_onnx__in(g, 3)) DS_TRY(gate_bias(g, hidden, &in[n++], err));
    if (states && n == 3) return ds_onnx__refuse(err, "initial states without a bias");
    if (states) DS_TRY(state(g, 5, batch, hidden, &in[n++], err));
    if (states) DS_TRY(state(g, 6, batch, hidden, &in[n++], err));
    ds_op *op = ds_onnx__op(g, DS_OP_LSTM, in, n);
    static const char *const names[] = {"y", "h", "c"};
    uint32_t n_out = ds_onnx__wants(g, 1) || ds_onnx__wants(g, 2) ? 3 : 1;
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = ds_use_of(ds_build_out(&g->b, op, names[i], NULL));
    DS_TRY(ds_build_put(&g->b, op, err));
    if (ds_onnx__wants(g, 0)) {
        const ds_expr dims[] = {steps, one, batch, hidden};
        DS_TRY(ds_onnx__transpose(g, out[0], swap, 3, &out[0], err));
        DS_TRY(ds_onnx__reshape(g, out[0], dims, 4, &out[0], err));
        ds_onnx__out(g, 0, out[0]);
    }
    for (uint32_t i = 1; i < n_out; i++) {
        const ds_expr dims[] = {one, batch, hidden};
        if (!ds_onnx__wants(g, i)) continue;
        DS_TRY(ds_onnx__reshape(g, out[i], dims, 3, &out[i], err));
        ds_onnx__out(g, i, out[i]);
    }
    return DS_OK;
}

const ds_onnx_rule ds_onnx__nn_rules[] = {
    {"Conv", conv, 2, 3, 1},
    {"MaxPool", max_pool, 1, 1, 2},
    {"AveragePool", avg_pool, 1, 1, 1},
    {"GlobalAveragePool", global_avg_pool, 1, 1, 1},
    {"GlobalMaxPool", global_max_pool, 1, 1, 1},
    {"Softmax", softmax, 1, 1, 1},
    {"LayerNormalization", layer_norm, 2, 3, 3},
    {"BatchNormalization", batch_norm, 5, 5, 5},
    {"LSTM", lstm, 3, 8, 3},
    {NULL, NULL, 0, 0, 0},
};
