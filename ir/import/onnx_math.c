/* Elementwise nodes, matrix products and reductions.
 *
 * ONNX broadcasts both ways, distsim's binary ops only the second operand: where the first is the
 * smaller one, the two change places. Integers that stand for shapes are folded. */
#include "ir/import/onnx_internal.h"

#include <math.h>
#include <onnx.pb-c.h>
#include <string.h>

/* ---- one operand ---- */

static ds_status unary(ds_onnx *g, ds_opcode code, ds_error *err) {
    ds_use x;
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    return ds_onnx__finish(g, ds_onnx__op(g, code, &x, 1), err);
}

/* Relu is relu, and so on. */
static ds_status same_name(ds_onnx *g, ds_error *err) {
    char name[16] = {0};
    for (size_t i = 0; i + 1 < sizeof name && g->node->op_type[i]; i++) {
        char c = g->node->op_type[i];
        name[i] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    ds_opcode code = ds_op_by_name(name);
    return unary(g, code, err);
}

static ds_status gelu(ds_onnx *g, ds_error *err) {
    if (ds_onnx__is(g, "approximate", "none", "none"))
        g->note = "the exact gelu of the graph; distsim's is the tanh form";
    return unary(g, DS_OP_GELU, err);
}

static ds_status negate(ds_onnx *g, ds_error *err) {
    return unary(g, DS_OP_NEG, err);
}

static ds_status clip(ds_onnx *g, ds_error *err) {
    const ds_onnx_name *lo = ds_onnx__in(g, 1), *hi = ds_onnx__in(g, 2);
    double least = lo && lo->has_real ? lo->real : ds_onnx__float(g, "min", -INFINITY);
    double most = hi && hi->has_real ? hi->real : ds_onnx__float(g, "max", INFINITY);
    if ((lo && !lo->has_real) || least != 0 || hi || most < 3e38)
        return ds_onnx__refuse(err, "distsim clips at 0 from below only, as relu");
    return unary(g, DS_OP_RELU, err);
}

static ds_status cast(ds_onnx *g, ds_error *err) {
    ds_onnx_name *in = ds_onnx__in(g, 0);
    ds_dtype to;
    int64_t type = ds_onnx__int(g, "to", 0);
    if (type < 0 || type > INT32_MAX || !ds_onnx__dtype((int32_t)type, &to))
        return ds_onnx__refuse(err, "a cast to ONNX data type %lld", (long long)type);
    if (in && !in->has_value && in->has_items && !ds_dtype_is_float(to)) {
        ds_onnx__out_same(g, 0, in);
        return DS_OK;
    }
    ds_use x;
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    if (ds_onnx__type(g, &x)->dtype == to) {
        ds_onnx__out(g, 0, x);
        return DS_OK;
    }
    ds_op *op = ds_onnx__op(g, DS_OP_CAST, &x, 1);
    ds_build_attr_word(&g->b, op, "dtype", ds_dtype_name(to));
    return ds_onnx__finish(g, op, err);
}

static ds_status identity(ds_onnx *g, ds_error *err) {
    (void)err;
    ds_onnx__out_same(g, 0, ds_onnx__in(g, 0));
    return DS_OK;
}

static ds_status dropout(ds_onnx *g, ds_error *err) {
    const ds_onnx_name *ratio = ds_onnx__in(g, 1);
    double p = ds_onnx__float(g, "ratio", 0.5);
    if (ratio && !ratio->has_real) return ds_onnx__refuse(err, "its ratio is no constant");
    if (ratio) p = ratio->real;
    if (!(p >= 0 && p < 1)) return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "a ratio of %g", p);
    if (ds_onnx__wants(g, 1)) return ds_onnx__refuse(err, "distsim's dropout gives no mask");
    if (p == 0) return identity(g, err);
    ds_use x;
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    ds_op *op = ds_onnx__op(g, DS_OP_DROPOUT, &x, 1);
    ds_build_attr_real(&g->b, op, "p", p);
    return ds_onnx__finish(g, op, err);
}

/* ---- known integers ---- */

typedef enum arithmetic { ADD, SUB, MUL, DIV } arithmetic;

/* Shapes are positive, so that rounding toward zero (ONNX) and downward (distsim) agree; numbers
 * are divided as ONNX does. */
static ds_status fold_one(ds_onnx *g, arithmetic how, ds_expr a, ds_expr b, ds_expr *out,
                          ds_error *err) {
    static const ds_expr_kind kinds[] = {DS_EXPR_ADD, DS_EXPR_SUB, DS_EXPR_MUL, DS_EXPR_DIV};
    int64_t x, y;
    if (how == DIV && ds_expr_is_int(g->exprs, b, &y)) {
        if (y == 0) return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "a shape is divided by 0");
        if (ds_expr_is_int(g->exprs, a, &x) && y != -1) {
            *out = ds_expr_int(g->exprs, x / y);
            return DS_OK;
        }
    }
    *out = ds_expr_fold(g->exprs, kinds[how], a, b);
    if (ds_expr_at(g->exprs, *out)->size > DS_EXPR_MAX_SIZE / 16)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "an expression of sizes grows too long");
    return DS_OK;
}

static ds_status fold(ds_onnx *g, arithmetic how, ds_error *err) {
    const ds_expr *a, *b;
    uint32_t n_a, n_b;
    DS_TRY(ds_onnx__items(g, 0, &a, &n_a, err));
    DS_TRY(ds_onnx__items(g, 1, &b, &n_b, err));
    if (n_a != n_b && n_a != 1 && n_b != 1)
        return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE, "%u and %u elements", n_a, n_b);
    uint32_t n = n_a == 1 ? n_b : n_a;
    uint32_t rank = ds_onnx__in(g, 0)->rank | ds_onnx__in(g, 1)->rank;
    ds_expr *out = DS_NEW_N(&g->unit->arena, ds_expr, n + 1);
    for (uint32_t i = 0; i < n; i++)
        DS_TRY(fold_one(g, how, a[n_a == 1 ? 0 : i], b[n_b == 1 ? 0 : i], &out[i], err));
    ds_onnx__out_items(g, 0, out, n, rank);
    return DS_OK;
}

/* ---- two operands ---- */

static ds_status scale(ds_onnx *g, ds_use x, double factor, ds_use *out, ds_error *err) {
    *out = x;
    if (factor == 1) return DS_OK;
    ds_op *op = ds_onnx__op(g, DS_OP_SCALE, &x, 1);
    ds_build_attr_real(&g->b, op, "factor", factor);
    return ds_onnx__put(g, op, out, err);
}

/* A constant as the second operand for x: a scalar, or like x where it is to come first. */
static ds_status constant(ds_onnx *g, const ds_type *like, bool whole, double value, ds_use *out,
                          ds_error *err) {
    ds_type *type = ds_type_copy(&g->unit->arena, ds_type_plain(&g->unit->arena, like));
    if (!whole) type->rank = 0;
    ds_op *op = ds_build_op(&g->b, DS_OP_FILL);
    ds_build_attr_real(&g->b, op, "value", value);
    *out = ds_use_of(ds_build_out(&g->b, op, "c", type));
    return ds_build_put(&g->b, op, err);
}

static ds_status two(ds_onnx *g, ds_opcode code, ds_use a, ds_use b, ds_use *out, ds_error *err) {
    const ds_use in[] = {a, b};
    return ds_onnx__put(g, ds_onnx__op(g, code, in, 2), out, err);
}

/* x op c, or c op x. */
static ds_status with_constant(ds_onnx *g, arithmetic how, ds_use x, double c, bool constant_first,
                               ds_error *err) {
    const ds_type *type = ds_onnx__type(g, &x);
    ds_use out = x, k;
    if (how == MUL) {
        DS_TRY(scale(g, x, c, &out, err));
        ds_onnx__out_scaled(g, x, c);
    } else if (how == DIV && !constant_first) {
        if (!ds_dtype_is_float(type->dtype))
            return ds_onnx__refuse(err, "distsim divides real numbers only");
        if (c == 0 || !isfinite(1 / c))
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "a division by %g", c);
        DS_TRY(scale(g, x, 1 / c, &out, err));
        ds_onnx__out_scaled(g, x, 1 / c);
    } else if (how == DIV) {
        DS_TRY(constant(g, type, true, c, &k, err));
        DS_TRY(two(g, DS_OP_DIV, k, x, &out, err));
    } else {
        bool negative = how == SUB && !constant_first;
        if (how == SUB && constant_first)
            DS_TRY(ds_onnx__put(g, ds_onnx__op(g, DS_OP_NEG, &x, 1), &x, err));
        DS_TRY(constant(g, type, false, negative ? -c : c, &k, err));
        DS_TRY(two(g, DS_OP_ADD, x, k, &out, err));
    }
    ds_onnx__out(g, 0, out);
    return DS_OK;
}

/* Does a stand for more elements than b in no dim, and for fewer in some? */
static bool is_smaller(ds_onnx *g, const ds_type *a, const ds_type *b) {
    if (a->rank != b->rank) return a->rank < b->rank;
    for (uint32_t d = 0; d < a->rank; d++) {
        int64_t one_a = 0, one_b = 0;
        ds_expr_is_int(g->exprs, a->dims[d].size, &one_a);
        ds_expr_is_int(g->exprs, b->dims[d].size, &one_b);
        if (one_a == 1 && one_b != 1) return true;
    }
    return false;
}

static ds_status with_tensor(ds_onnx *g, arithmetic how, ds_use a, ds_use b, ds_error *err) {
    static const ds_opcode codes[] = {DS_OP_ADD, DS_OP_SUB, DS_OP_MUL, DS_OP_DIV};
    ds_use out;
    if (is_smaller(g, ds_onnx__type(g, &a), ds_onnx__type(g, &b))) {
        ds_use larger = b;
        b = a, a = larger;
        if (how == DIV)
            return ds_onnx__refuse(err, "distsim's div repeats its second operand, not its first");
        if (how == SUB) {
            DS_TRY(two(g, DS_OP_SUB, a, b, &out, err));
            return ds_onnx__finish(g, ds_onnx__op(g, DS_OP_NEG, &out, 1), err);
        }
    }
    const ds_type *type = ds_onnx__type(g, &b);
    if (how == DIV && !ds_dtype_is_float(type->dtype))
        return ds_onnx__refuse(err, "distsim divides real numbers only");
    ds_opcode code = codes[how];
    const ds_op *from = ds_value_at(g->b.func, b.value)->def;
    bool is_weight = from && from->code == DS_OP_WEIGHT;
    bool is_vector = type->rank == 1 && ds_onnx__type(g, &a)->rank > 1;
    if (how == ADD && is_weight && is_vector &&
        ds_expr_equal(g->exprs, type->dims[0].size,
                      ds_onnx__type(g, &a)->dims[ds_onnx__type(g, &a)->rank - 1].size) == DS_YES)
        code = DS_OP_BIAS;
    DS_TRY(two(g, code, a, b, &out, err));
    ds_onnx__out(g, 0, out);
    return DS_OK;
}

static bool is_constant(const ds_onnx *g, const ds_onnx_name *name, double *out) {
    int64_t whole;
    if (name->has_real) *out = name->real;
    if (name->has_real) return true;
    if (!name->has_items || name->n != 1 || !ds_expr_is_int(g->exprs, name->items[0], &whole))
        return false;
    *out = (double)whole;
    return true;
}

static ds_status binary(ds_onnx *g, arithmetic how, ds_error *err) {
    ds_onnx_name *first = ds_onnx__in(g, 0), *second = ds_onnx__in(g, 1);
    ds_use a, b;
    double c;
    bool done = false;
    if (how == ADD || how == MUL) DS_TRY(ds_onnx__gelu_piece(g, how == MUL, &done, err));
    if (done) return DS_OK;
    if (first->has_items && second->has_items) return fold(g, how, err);
    bool at_second = is_constant(g, second, &c);
    bool at_first = !at_second && is_constant(g, first, &c);
    if (!at_first) DS_TRY(ds_onnx__use(g, 0, &a, err));
    if (!at_second) DS_TRY(ds_onnx__use(g, 1, &b, err));
    if (at_second && second->rank <= ds_onnx__type(g, &a)->rank)
        return with_constant(g, how, a, c, false, err);
    if (at_first && first->rank <= ds_onnx__type(g, &b)->rank)
        return with_constant(g, how, b, c, true, err);
    DS_TRY(ds_onnx__use(g, 0, &a, err));
    DS_TRY(ds_onnx__use(g, 1, &b, err));
    return with_tensor(g, how, a, b, err);
}

static ds_status add(ds_onnx *g, ds_error *err) {
    return binary(g, ADD, err);
}
static ds_status sub(ds_onnx *g, ds_error *err) {
    return binary(g, SUB, err);
}
static ds_status mul(ds_onnx *g, ds_error *err) {
    return binary(g, MUL, err);
}
static ds_status divide(ds_onnx *g, ds_error *err) {
    return binary(g, DIV, err);
}

static ds_status sum(ds_onnx *g, ds_error *err) {
    ds_use total, x;
    DS_TRY(ds_onnx__use(g, 0, &total, err));
    for (uint32_t i = 1; i < g->n_in; i++) {
        DS_TRY(ds_onnx__use(g, i, &x, err));
        DS_TRY(two(g, DS_OP_ADD, total, x, &total, err));
    }
    ds_onnx__out(g, 0, total);
    return DS_OK;
}

/* x^2, x^3 and the square root, which is what graphs raise to. */
static ds_status power(ds_onnx *g, ds_error *err) {
    const ds_onnx_name *exponent = ds_onnx__in(g, 1);
    double e;
    if (!exponent || !is_constant(g, exponent, &e) || (e != 2 && e != 3 && e != 0.5))
        return ds_onnx__refuse(err, "distsim raises to the constants 0.5, 2 and 3 only");
    ds_use x, y;
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    if (e == 0.5) return ds_onnx__finish(g, ds_onnx__op(g, DS_OP_SQRT, &x, 1), err);
    DS_TRY(two(g, DS_OP_MUL, x, x, &y, err));
    if (e == 3) DS_TRY(two(g, DS_OP_MUL, y, x, &y, err));
    ds_onnx__out(g, 0, y);
    return DS_OK;
}

/* ---- matrix products ---- */

static ds_status matmul(ds_onnx *g, ds_error *err) {
    ds_use in[2];
    DS_TRY(ds_onnx__use(g, 0, &in[0], err));
    DS_TRY(ds_onnx__use(g, 1, &in[1], err));
    uint32_t a = ds_onnx__type(g, &in[0])->rank, b = ds_onnx__type(g, &in[1])->rank;
    if (a < 2 || b < 2 || (b > 2 && a != b))
        return ds_onnx__refuse(err,
                               "operands of %u and %u dims; distsim multiplies [..., m, k] by "
                               "[k, n], or by [..., k, n] with the same leading dims",
                               a, b);
    return ds_onnx__finish(g, ds_onnx__op(g, DS_OP_MATMUL, in, 2), err);
}

static ds_status gemm(ds_onnx *g, ds_error *err) {
    ds_use in[2], y;
    DS_TRY(ds_onnx__use(g, 0, &in[0], err));
    DS_TRY(ds_onnx__use(g, 1, &in[1], err));
    if (ds_onnx__type(g, &in[0])->rank != 2 || ds_onnx__type(g, &in[1])->rank != 2)
        return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE, "its operands must have 2 dims");
    ds_op *op = ds_onnx__op(g, DS_OP_MATMUL, in, 2);
    if (ds_onnx__int(g, "transA", 0)) ds_build_attr_bool(&g->b, op, "transpose_a", true);
    if (ds_onnx__int(g, "transB", 0)) ds_build_attr_bool(&g->b, op, "transpose_b", true);
    DS_TRY(ds_onnx__put(g, op, &y, err));
    DS_TRY(scale(g, y, ds_onnx__float(g, "alpha", 1), &y, err));
    double beta = ds_onnx__float(g, "beta", 1);
    if (!ds_onnx__in(g, 2) || beta == 0) {
        ds_onnx__out(g, 0, y);
        return DS_OK;
    }
    if (beta != 1) return ds_onnx__refuse(err, "beta = %g; 0 and 1 are known", beta);
    DS_TRY(ds_onnx__use(g, 2, &in[0], err));
    return with_tensor(g, ADD, y, in[0], err);
}

/* ---- reductions ---- */

static ds_status reduce(ds_onnx *g, ds_opcode code, ds_error *err) {
    ds_use x;
    uint32_t axes[DS_MAX_RANK], n;
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    DS_TRY(ds_onnx__axes(g, 1, ds_onnx__type(g, &x)->rank, axes, &n, err));
    if (!n && ds_onnx__int(g, "noop_with_empty_axes", 0)) return identity(g, err);
    ds_op *op = ds_onnx__op(g, code, &x, 1);
    ds_expr dims[DS_MAX_RANK];
    for (uint32_t i = 0; i < n; i++) dims[i] = ds_expr_int(g->exprs, axes[i]);
    if (n) ds_build_attr_exprs(&g->b, op, "dims", dims, n);
    if (ds_onnx__int(g, "keepdims", 1)) ds_build_attr_bool(&g->b, op, "keep", true);
    return ds_onnx__finish(g, op, err);
}

static ds_status reduce_sum(ds_onnx *g, ds_error *err) {
    return reduce(g, DS_OP_REDUCE_SUM, err);
}
static ds_status reduce_mean(ds_onnx *g, ds_error *err) {
    return reduce(g, DS_OP_REDUCE_MEAN, err);
}
static ds_status reduce_max(ds_onnx *g, ds_error *err) {
    return reduce(g, DS_OP_REDUCE_MAX, err);
}

const ds_onnx_rule ds_onnx__math_rules[] = {
    {"Relu", same_name, 1, 1, 1},
    {"Tanh", same_name, 1, 1, 1},
    {"Sigmoid", same_name, 1, 1, 1},
    {"Exp", same_name, 1, 1, 1},
    {"Log", same_name, 1, 1, 1},
    {"Sqrt", same_name, 1, 1, 1},
    {"Erf", ds_onnx__erf, 1, 1, 1},
    {"Neg", negate, 1, 1, 1},
    {"Gelu", gelu, 1, 1, 1},
    {"Clip", clip, 1, 3, 1},
    {"Cast", cast, 1, 1, 1},
    {"Identity", identity, 1, 1, 1},
    {"Dropout", dropout, 1, 3, 2},
    {"Add", add, 2, 2, 1},
    {"Sub", sub, 2, 2, 1},
    {"Mul", mul, 2, 2, 1},
    {"Div", divide, 2, 2, 1},
    {"Sum", sum, 1, UINT32_MAX, 1},
    {"Pow", power, 2, 2, 1},
    {"MatMul", matmul, 2, 2, 1},
    {"Gemm", gemm, 2, 3, 1},
    {"ReduceSum", reduce_sum, 1, 2, 1},
    {"ReduceMean", reduce_mean, 1, 2, 1},
    {"ReduceMax", reduce_max, 1, 2, 1},
    {NULL, NULL, 0, 0, 0},
};
