/* Elementwise ops: one element at a time, the right operand repeated where it is smaller. UNARY and
 * BINARY make the function that an op's line names by EVAL of a formula in x, or in x and y. */
#include "ir/exec/internal.h"

#include "ir/base/rng.h"

#include <math.h>

/* Coefficients of gelu's tanh form: Hendrycks and Gimpel 2016, "Gaussian error linear units". */
#define GELU_A 0.044715
#define GELU_C 0.79788456080286535588 /* sqrt(2 / pi) */

static double gelu_argument(double x) {
    return GELU_C * (x + GELU_A * x * x * x);
}

static double gelu_slope(double x) {
    double t = tanh(gelu_argument(x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU_C * (1 + 3 * GELU_A * x * x);
}

/* Without overflow for any x. */
static double sigmoid(double x) {
    if (x >= 0) return 1 / (1 + exp(-x));
    double y = exp(x);
    return y / (1 + y);
}

static double silu_slope(double x) {
    double s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

/* Toward zero, to the nearest value that the dtype has; NaN becomes 0. */
static double to_integer(ds_dtype dtype, double x) {
    if (dtype == DS_BOOL) return x != 0;
    if (isnan(x)) return 0;
    int bits = (int)ds_dtype_bits(dtype);
    double low = dtype == DS_U8 ? 0 : -ldexp(1, bits - 1);
    double high = dtype == DS_U8 ? 255 : ldexp(1, bits - 1) - 1;
    return fmin(fmax(trunc(x), low), high);
}

/* Strides of the right operand along the left one's dims: 0 where it is repeated. */
static ds_status right_strides(const ds_eval *e, int64_t stride[DS_MAX_RANK], ds_error *err) {
    const ds_tensor *x = &e->in[0]->t, *y = &e->in[1]->t;
    uint32_t first = x->rank - y->rank;
    if (e->op->code == DS_OP_BIAS) DS_TRY(ds_eval_dim(e, "dim", x->rank, &first, err));
    int64_t step = 1;
    for (uint32_t d = 0; d < x->rank; d++) stride[d] = 0;
    for (uint32_t d = y->rank; d-- > 0;) {
        uint32_t to = first + d;
        bool fits = to < x->rank && (y->dims[d] == x->dims[to] || y->dims[d] == 1);
        char left[DS_DIMS_TEXT], right[DS_DIMS_TEXT];
        if (!fits)
            return ds_eval_fail(e, err, DS_ERR_SHAPE, "shards of %s and %s do not fit",
                                ds_dims_text(x->rank, x->dims, left),
                                ds_dims_text(y->rank, y->dims, right));
        if (y->dims[d] == x->dims[to]) stride[to] = step;
        step *= y->dims[d];
    }
    return DS_OK;
}

/* How near to 0, against the largest, a number was that a gradient's sign test looked at. */
static void note_margin(const ds_eval *e, const ds_tensor *y) {
    double least = INFINITY, most = 0;
    for (int64_t i = 0; i < y->n; i++) {
        double size = fabs(y->at[i]);
        if (size > most) most = size;
        if (size > 0 && size < least) least = size;
    }
    if (most > 0) ds_eval_margin(e, least / most);
}

static inline ds_status one(const ds_eval *e, double (*f)(double)) {
    for (int64_t i = 0; i < e->out[0]->t.n; i++) e->out[0]->t.at[i] = f(e->in[0]->t.at[i]);
    return DS_OK;
}

static inline ds_status two(const ds_eval *e, double (*f)(double, double), ds_error *err) {
    const ds_tensor *x = &e->in[0]->t, *y = &e->in[1]->t;
    int64_t stride[DS_MAX_RANK], at[DS_MAX_RANK] = {0}, j = 0;
    DS_TRY(right_strides(e, stride, err));
    for (int64_t i = 0; i < x->n; i++) {
        e->out[0]->t.at[i] = f(x->at[i], y->at[j]);
        for (uint32_t d = x->rank; d-- > 0;) {
            j += stride[d];
            if (++at[d] < x->dims[d]) break;
            j -= stride[d] * x->dims[d];
            at[d] = 0;
        }
    }
    return DS_OK;
}

#define UNARY(NAME, FORMULA)                                                                       \
    static double NAME##_at(double x) {                                                            \
        return FORMULA;                                                                            \
    }                                                                                              \
    ds_status ds_exec__eval_##NAME(const ds_eval *e, ds_error *err) {                              \
        (void)err;                                                                                 \
        return one(e, NAME##_at);                                                                  \
    }
#define BINARY(NAME, FORMULA)                                                                      \
    static double NAME##_at(double x, double y) {                                                  \
        return FORMULA;                                                                            \
    }                                                                                              \
    ds_status ds_exec__eval_##NAME(const ds_eval *e, ds_error *err) {                              \
        return two(e, NAME##_at, err);                                                             \
    }

UNARY(relu, x > 0 || isnan(x) ? x : 0)
UNARY(gelu, 0.5 * x * (1 + tanh(gelu_argument(x))))
UNARY(silu, (x * sigmoid(x)))
UNARY(squared_relu, x > 0 || isnan(x) ? x * x : 0)
UNARY(tanh, tanh(x))
UNARY(sigmoid, sigmoid(x))
UNARY(exp, exp(x))
UNARY(log, log(x))
UNARY(sqrt, sqrt(x))
UNARY(neg, -x)
BINARY(add, x + y)
BINARY(bias, x + y)
BINARY(sub, x - y)
BINARY(mul, (x * y))
BINARY(div, x / y)
/* Gradients: x is that of the result, y the forward op's operand or result. */
BINARY(gelu_grad, (x * gelu_slope(y)))
BINARY(silu_grad, (x * silu_slope(y)))
BINARY(squared_relu_grad, y > 0 ? 2 * x * y : 0)
BINARY(tanh_grad, (x * (1 - y * y)))
BINARY(sigmoid_grad, (x * y * (1 - y)))

static double relu_grad(double x, double y) {
    return y > 0 ? x : 0;
}

ds_status ds_exec__eval_relu_grad(const ds_eval *e, ds_error *err) {
    note_margin(e, &e->in[1]->t);
    return two(e, relu_grad, err);
}

/* Where a device's part lies in the whole tensor: with `full` and `start` the value is itself a box
 * of a larger one. */
static ds_status box_of(const ds_eval *e, int64_t lo[DS_MAX_RANK], int64_t full[DS_MAX_RANK],
                        ds_error *err) {
    const ds_exec_part *part = e->in[0];
    for (uint32_t d = 0; d < part->t.rank; d++) {
        int64_t start = 0, end;
        full[d] = part->full[d];
        DS_TRY(ds_eval_item(e, "full", d, &full[d], err));
        DS_TRY(ds_eval_item(e, "start", d, &start, err));
        if (start < 0 || __builtin_add_overflow(start, part->full[d], &end) || end > full[d])
            return ds_eval_fail(e, err, DS_ERR_VALUE,
                                "dim %u: %lld elements at %lld are no part of %lld", d,
                                (long long)part->full[d], (long long)start, (long long)full[d]);
        lo[d] = start + part->lo[d];
    }
    return DS_OK;
}

/* Row-major index in a tensor of `full` of element i of the box of `dims` at lo. */
static int64_t global_index(uint32_t rank, const int64_t *dims, const int64_t *lo,
                            const int64_t *full, int64_t i) {
    int64_t index = 0, step = 1;
    for (uint32_t d = rank; d-- > 0;) {
        index += step * (lo[d] + i % dims[d]);
        step *= full[d];
        i /= dims[d];
    }
    return index;
}

/* The mask of an element depends on names and the global index alone. */
ds_status ds_exec__eval_dropout(const ds_eval *e, ds_error *err) {
    double p = 0;
    int64_t seed = 0, lo[DS_MAX_RANK], full[DS_MAX_RANK], n;
    DS_TRY(ds_eval_real(e, "p", &p, err));
    DS_TRY(ds_eval_int(e, "seed", &seed, err));
    if (!(p >= 0 && p < 1))
        return ds_eval_fail(e, err, DS_ERR_VALUE, "p is %g, not in 0 <= p < 1", p);
    DS_TRY(box_of(e, lo, full, err));
    const ds_tensor *x = &e->in[0]->t;
    DS_TRY(ds_tensor_count(x->rank, full, e->op->loc, &n, err));
    uint64_t key = ds_hash_mix(e->run->options->seed, (uint64_t)seed);
    for (int64_t i = 0; i < x->n; i++) {
        double u = ds_rng_uniform_at(key, e->mask_key, (uint64_t)e->run->options->step,
                                     (uint64_t)global_index(x->rank, x->dims, lo, full, i));
        e->out[0]->t.at[i] = u < p ? 0 : x->at[i] / (1 - p);
    }
    return DS_OK;
}

/* ---- constants, scale, cast ---- */

ds_status ds_exec__eval_zeros(const ds_eval *e, ds_error *err) {
    (void)e, (void)err; /* results begin as zeros */
    return DS_OK;
}

ds_status ds_exec__eval_fill(const ds_eval *e, ds_error *err) {
    double value = 0;
    DS_TRY(ds_eval_real(e, "value", &value, err));
    for (int64_t i = 0; i < e->out[0]->t.n; i++) e->out[0]->t.at[i] = value;
    return DS_OK;
}

ds_status ds_exec__eval_scale(const ds_eval *e, ds_error *err) {
    double factor = 0;
    DS_TRY(ds_eval_real(e, "factor", &factor, err));
    for (int64_t i = 0; i < e->out[0]->t.n; i++) e->out[0]->t.at[i] = factor * e->in[0]->t.at[i];
    return DS_OK;
}

ds_status ds_exec__eval_cast(const ds_eval *e, ds_error *err) {
    (void)err;
    ds_dtype to = e->out_dtype[0];
    bool cuts = !ds_dtype_is_float(to) && (ds_dtype_is_float(e->in_dtype[0]) || to == DS_BOOL);
    for (int64_t i = 0; i < e->out[0]->t.n; i++)
        e->out[0]->t.at[i] = cuts ? to_integer(to, e->in[0]->t.at[i]) : e->in[0]->t.at[i];
    return DS_OK;
}
