/* Nodes that move elements, and those that compute shapes.
 *
 * On known integers these are carried out here, and leave no op behind: Shape, Gather, Concat and
 * Reshape of an export become one reshape. On values they become ops of the table. */
#include "ir/import/onnx_internal.h"

#include <onnx.pb-c.h>
#include <string.h>

/* ---- sizes ---- */

static ds_expr times(ds_onnx *g, ds_expr a, ds_expr b) {
    return ds_expr_fold(g->exprs, DS_EXPR_MUL, a, b);
}

static ds_expr product(ds_onnx *g, const ds_expr *dims, uint32_t n) {
    ds_expr p = ds_expr_int(g->exprs, 1);
    for (uint32_t d = 0; d < n; d++) p = times(g, p, dims[d]);
    return p;
}

static bool is_int(ds_onnx *g, ds_expr e, int64_t value) {
    int64_t is;
    return ds_expr_is_int(g->exprs, e, &is) && is == value;
}

typedef struct dim_sizes {
    const ds_expr *dims;
    uint32_t n;
} dim_sizes;

/* The dim that -1 stands for: all elements over the others. Equal factors cancel first, so that
 * batch · 7 · 7 over batch is 49. */
static ds_status quotient(ds_onnx *g, dim_sizes all, dim_sizes others, uint32_t open, ds_expr *out,
                          ds_error *err) {
    bool used[DS_MAX_RANK] = {false};
    int64_t over = 1, under = 1, value;
    ds_expr above = ds_expr_int(g->exprs, 1), below = above;
    for (uint32_t d = 0; d < others.n; d++) {
        ds_expr dim = others.dims[d];
        if (d == open) continue;
        uint32_t k = 0;
        while (k < all.n && (used[k] || ds_expr_equal(g->exprs, all.dims[k], dim) != DS_YES)) k++;
        if (k < all.n)
            used[k] = true;
        else if (!ds_expr_is_int(g->exprs, dim, &value))
            below = times(g, below, dim);
        else if (__builtin_mul_overflow(under, value, &under))
            return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE, "its shape is too large");
    }
    for (uint32_t k = 0; k < all.n; k++) {
        if (used[k]) continue;
        if (!ds_expr_is_int(g->exprs, all.dims[k], &value))
            above = times(g, above, all.dims[k]);
        else if (__builtin_mul_overflow(over, value, &over))
            return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE, "its input is too large");
    }
    if (under < 1 || (over % under && is_int(g, above, 1)))
        return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE,
                            "%lld elements do not divide into parts of %lld", (long long)over,
                            (long long)under);
    if (over % under == 0) over /= under, under = 1;
    above = times(g, above, ds_expr_int(g->exprs, over));
    below = times(g, below, ds_expr_int(g->exprs, under));
    *out = ds_expr_fold(g->exprs, DS_EXPR_DIV, above, below);
    return DS_OK;
}

/* Output 0: the same elements under these dims. */
static ds_status reshaped(ds_onnx *g, const ds_expr *dims, uint32_t rank, ds_error *err) {
    ds_onnx_name *in = ds_onnx__in(g, 0);
    if (in && !in->has_value && (in->has_items || in->has_real)) {
        ds_onnx_name known = *in;
        known.tensor = NULL;
        known.rank = rank;
        if (rank) memcpy(known.dims, dims, rank * sizeof *dims);
        ds_onnx__out_same(g, 0, &known);
        return DS_OK;
    }
    ds_use x;
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    DS_TRY(ds_onnx__reshape(g, x, dims, rank, &x, err));
    ds_onnx__out(g, 0, x);
    return DS_OK;
}

/* ---- reshape, flatten, squeeze, unsqueeze, transpose ---- */

/* The shape that is asked for: input 1, an attribute before opset 5. */
static ds_status wanted_shape(ds_onnx *g, const ds_expr **dims, uint32_t *n, ds_error *err) {
    const int64_t *given;
    if (ds_onnx__in(g, 1) || !ds_onnx__attr_ints(g, "shape", &given, n))
        return ds_onnx__items(g, 1, dims, n, err);
    ds_expr *out = DS_NEW_N(&g->unit->arena, ds_expr, *n + 1);
    for (uint32_t d = 0; d < *n; d++) out[d] = ds_expr_int(g->exprs, given[d]);
    *dims = out;
    return DS_OK;
}

static ds_status reshape(ds_onnx *g, ds_error *err) {
    const ds_expr *in, *wanted;
    ds_expr dims[DS_MAX_RANK];
    ds_dtype dtype;
    uint32_t rank, n, open = DS_MAX_RANK;
    DS_TRY(ds_onnx__shape(g, 0, &dtype, &in, &rank, err));
    DS_TRY(wanted_shape(g, &wanted, &n, err));
    if (n > DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "%u dims; at most %d", n, DS_MAX_RANK);
    for (uint32_t d = 0; d < n; d++) {
        dims[d] = wanted[d];
        if (is_int(g, wanted[d], 0)) {
            if (d >= rank || ds_onnx__int(g, "allowzero", 0))
                return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE, "dim %u is 0", d);
            dims[d] = in[d];
        } else if (is_int(g, wanted[d], -1)) {
            if (open < DS_MAX_RANK)
                return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "two dims are -1");
            open = d;
        }
    }
    if (open < DS_MAX_RANK)
        DS_TRY(quotient(g, (dim_sizes){in, rank}, (dim_sizes){dims, n}, open, &dims[open], err));
    return reshaped(g, dims, n, err);
}

static ds_status flatten(ds_onnx *g, ds_error *err) {
    const ds_expr *in;
    ds_dtype dtype;
    uint32_t rank;
    DS_TRY(ds_onnx__shape(g, 0, &dtype, &in, &rank, err));
    int64_t axis = ds_onnx__int(g, "axis", 1);
    if (axis < -(int64_t)rank || axis > (int64_t)rank)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "axis %lld of a tensor of %u dims",
                            (long long)axis, rank);
    uint32_t at = (uint32_t)(axis < 0 ? axis + rank : axis);
    const ds_expr dims[] = {product(g, in, at), product(g, in + at, rank - at)};
    return reshaped(g, dims, 2, err);
}

static ds_status squeeze(ds_onnx *g, ds_error *err) {
    const ds_expr *in;
    ds_expr dims[DS_MAX_RANK];
    ds_dtype dtype;
    uint32_t rank, axes[DS_MAX_RANK], n, left = 0, gone = 0;
    DS_TRY(ds_onnx__shape(g, 0, &dtype, &in, &rank, err));
    DS_TRY(ds_onnx__axes(g, 1, rank, axes, &n, err));
    for (uint32_t i = 0; i < n; i++) gone |= 1u << axes[i];
    for (uint32_t d = 0; d < rank; d++) {
        bool one = is_int(g, in[d], 1);
        if (n ? gone >> d & 1 : one) {
            if (!one) return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE, "dim %u is not 1", d);
            continue;
        }
        dims[left++] = in[d];
    }
    return reshaped(g, dims, left, err);
}

static ds_status unsqueeze(ds_onnx *g, ds_error *err) {
    const ds_expr *in;
    const int64_t *given;
    ds_expr dims[DS_MAX_RANK];
    ds_dtype dtype;
    uint32_t rank, n = 0, axes[DS_MAX_RANK], fresh = 0;
    DS_TRY(ds_onnx__shape(g, 0, &dtype, &in, &rank, err));
    if (!ds_onnx__attr_ints(g, "axes", &given, &n)) DS_TRY(ds_onnx__numbers(g, 1, &given, &n, err));
    if (n > DS_MAX_RANK || rank + n > DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "%u dims; at most %d", rank + n,
                            DS_MAX_RANK);
    DS_TRY(ds_onnx__axes(g, 1, rank + n, axes, &n, err));
    for (uint32_t i = 0; i < n; i++) fresh |= 1u << axes[i];
    for (uint32_t d = 0, from = 0; d < rank + n; d++)
        dims[d] = fresh >> d & 1 ? ds_expr_int(g->exprs, 1) : in[from++];
    return reshaped(g, dims, rank + n, err);
}

static ds_status transpose(ds_onnx *g, ds_error *err) {
    ds_use x;
    const int64_t *given;
    uint32_t perm[DS_MAX_RANK], n = 0, seen = 0;
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    uint32_t rank = ds_onnx__type(g, &x)->rank;
    bool reversed = !ds_onnx__attr_ints(g, "perm", &given, &n);
    if (!reversed && n != rank)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "'perm' has %u entries for %u dims", n,
                            rank);
    for (uint32_t d = 0; d < rank; d++) {
        DS_TRY(
            ds_onnx__axis(g, reversed ? (int64_t)(rank - 1 - d) : given[d], rank, &perm[d], err));
        if (seen >> perm[d] & 1)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "'perm' has dim %u twice", perm[d]);
        seen |= 1u << perm[d];
    }
    DS_TRY(ds_onnx__transpose(g, x, perm, rank, &x, err));
    ds_onnx__out(g, 0, x);
    return DS_OK;
}

/* ---- concat, split, slice ---- */

static bool all_known(const ds_onnx *g) {
    for (uint32_t i = 0; i < g->n_in; i++)
        if (!g->in[i] || !g->in[i]->has_items || g->in[i]->rank != 1) return false;
    return true;
}

static ds_status concat_known(ds_onnx *g, ds_error *err) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_in; i++) n += g->in[i]->n;
    if (n > DS_ONNX_MAX_ITEMS)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "%u known integers; at most %u", n,
                            DS_ONNX_MAX_ITEMS);
    ds_expr *items = DS_NEW_N(&g->unit->arena, ds_expr, n + 1);
    n = 0;
    for (uint32_t i = 0; i < g->n_in; i++)
        for (uint32_t k = 0; k < g->in[i]->n; k++) items[n++] = g->in[i]->items[k];
    ds_onnx__out_items(g, 0, items, n, 1);
    return DS_OK;
}

static ds_status concat(ds_onnx *g, ds_error *err) {
    if (all_known(g)) return concat_known(g, err);
    ds_use *in = DS_NEW_N(&g->unit->arena, ds_use, g->n_in + 1);
    uint32_t axis;
    for (uint32_t i = 0; i < g->n_in; i++) DS_TRY(ds_onnx__use(g, i, &in[i], err));
    DS_TRY(
        ds_onnx__axis(g, ds_onnx__int(g, "axis", 0), ds_onnx__type(g, &in[0])->rank, &axis, err));
    ds_op *op = ds_onnx__op(g, DS_OP_CONCAT, in, g->n_in);
    if (axis) ds_build_attr_int(&g->b, op, "dim", axis);
    return ds_onnx__finish(g, op, err);
}

static ds_status split(ds_onnx *g, ds_error *err) {
    ds_use x;
    uint32_t axis, n = (uint32_t)g->node->n_output, given = 0;
    const int64_t *sizes;
    ds_expr items[DS_MAX_OPERANDS];
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    DS_TRY(ds_onnx__axis(g, ds_onnx__int(g, "axis", 0), ds_onnx__type(g, &x)->rank, &axis, err));
    if (n > DS_MAX_OPERANDS)
        return ds_onnx__refuse(err, "%u parts; distsim splits into at most %d", n, DS_MAX_OPERANDS);
    if (!ds_onnx__attr_ints(g, "split", &sizes, &given) && ds_onnx__in(g, 1))
        DS_TRY(ds_onnx__numbers(g, 1, &sizes, &given, err));
    if (given && given != n)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%u sizes for %u results", given, n);
    for (uint32_t i = 0; i < given; i++) items[i] = ds_expr_int(g->exprs, sizes[i]);
    ds_op *op = ds_onnx__op(g, DS_OP_SPLIT, &x, 1);
    if (axis) ds_build_attr_int(&g->b, op, "dim", axis);
    if (given) ds_build_attr_exprs(&g->b, op, "sizes", items, given);
    for (uint32_t i = 0; i < n; i++)
        ds_onnx__out(g, i, ds_use_of(ds_build_out(&g->b, op, "part", NULL)));
    return ds_build_put(&g->b, op, err);
}

/* One bound of a slice: clamped to the dim where both are numbers; negative ones count from the
 * end. ONNX writes "to the end" as a huge number. */
static ds_expr bound(ds_onnx *g, ds_expr at, ds_expr size) {
    int64_t value, whole;
    if (!ds_expr_is_int(g->exprs, at, &value)) return at;
    bool known = ds_expr_is_int(g->exprs, size, &whole);
    if (value >= INT32_MAX) return known && value < whole ? at : size;
    if (value < 0 && known) value = value + whole < 0 || value < -whole ? 0 : value + whole;
    if (value < 0)
        return ds_expr_fold(g->exprs, DS_EXPR_SUB, size,
                            ds_expr_int(g->exprs, value == INT64_MIN ? INT64_MAX : -value));
    return ds_expr_int(g->exprs, known && value > whole ? whole : value);
}

/* Bounds as attributes (before opset 10) or as inputs. */
static ds_status slice_list(ds_onnx *g, const char *attr, uint32_t input, const ds_expr **items,
                            uint32_t *n, ds_error *err) {
    const int64_t *given;
    if (!ds_onnx__attr_ints(g, attr, &given, n)) {
        *n = 0;
        return ds_onnx__in(g, input) ? ds_onnx__items(g, input, items, n, err) : DS_OK;
    }
    ds_expr *out = DS_NEW_N(&g->unit->arena, ds_expr, *n + 1);
    for (uint32_t i = 0; i < *n; i++) out[i] = ds_expr_int(g->exprs, given[i]);
    *items = out;
    return DS_OK;
}

typedef struct cut {
    uint32_t axis;
    ds_expr lo, hi;
} cut;

static ds_status read_cuts(ds_onnx *g, const ds_expr *dims, uint32_t rank, cut *cuts, uint32_t *n,
                           ds_error *err) {
    const ds_expr *starts = NULL, *ends = NULL, *steps = NULL;
    uint32_t n_ends, n_steps, axes[DS_MAX_RANK], n_axes = 0;
    DS_TRY(slice_list(g, "starts", 1, &starts, n, err));
    DS_TRY(slice_list(g, "ends", 2, &ends, &n_ends, err));
    DS_TRY(slice_list(g, "steps", 4, &steps, &n_steps, err));
    DS_TRY(ds_onnx__axes(g, 3, rank, axes, &n_axes, err));
    if (*n != n_ends || (n_axes && n_axes != *n) || (n_steps && n_steps != *n) || *n > rank)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%u starts, %u ends, %u axes and %u steps for %u dims", *n, n_ends,
                            n_axes, n_steps, rank);
    for (uint32_t i = 0; i < *n; i++) {
        if (n_steps && !is_int(g, steps[i], 1))
            return ds_onnx__refuse(err, "distsim slices with step 1 only");
        cuts[i].axis = n_axes ? axes[i] : i;
        cuts[i].lo = bound(g, starts[i], dims[cuts[i].axis]);
        cuts[i].hi = bound(g, ends[i], dims[cuts[i].axis]);
    }
    return DS_OK;
}

/* Cuts of a known vector, or of a known tensor that is a vector but for dims of size 1. */
static bool slice_known(ds_onnx *g, const ds_onnx_name *in, const cut *cuts, uint32_t n) {
    int64_t lo, hi, size;
    if (!in->has_items || in->has_value || n != 1) return false;
    if (!ds_expr_is_int(g->exprs, cuts[0].lo, &lo) || !ds_expr_is_int(g->exprs, cuts[0].hi, &hi))
        return false;
    if (!ds_expr_is_int(g->exprs, in->dims[cuts[0].axis], &size) || size != (int64_t)in->n ||
        lo < 0 || lo > hi || hi > size)
        return false;
    ds_onnx_name part = *in;
    part.tensor = NULL;
    part.items = in->items + lo;
    part.n = (uint32_t)(hi - lo);
    part.dims[cuts[0].axis] = ds_expr_int(g->exprs, hi - lo);
    ds_onnx__out_same(g, 0, &part);
    return true;
}

static ds_status put_slice(ds_onnx *g, ds_use x, uint32_t axis, ds_expr lo, ds_expr hi, ds_use *out,
                           ds_error *err) {
    ds_op *op = ds_onnx__op(g, DS_OP_SLICE, &x, 1);
    ds_build_attr_int(&g->b, op, "dim", axis);
    ds_build_attr_expr(&g->b, op, "lo", lo);
    ds_build_attr_expr(&g->b, op, "hi", hi);
    return ds_onnx__put(g, op, out, err);
}

static ds_status slice(ds_onnx *g, ds_error *err) {
    const ds_expr *dims;
    ds_dtype dtype;
    uint32_t rank, n;
    cut cuts[DS_MAX_RANK];
    ds_use x;
    DS_TRY(ds_onnx__shape(g, 0, &dtype, &dims, &rank, err));
    DS_TRY(read_cuts(g, dims, rank, cuts, &n, err));
    if (slice_known(g, ds_onnx__in(g, 0), cuts, n)) return DS_OK;
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    for (uint32_t i = 0; i < n; i++) {
        if (is_int(g, cuts[i].lo, 0) &&
            ds_expr_equal(g->exprs, cuts[i].hi, dims[cuts[i].axis]) == DS_YES)
            continue;
        DS_TRY(put_slice(g, x, cuts[i].axis, cuts[i].lo, cuts[i].hi, &x, err));
    }
    ds_onnx__out(g, 0, x);
    return DS_OK;
}

/* ---- gather ---- */

static ds_status gather_known(ds_onnx *g, const ds_onnx_name *data, const ds_onnx_name *index,
                              ds_error *err) {
    ds_expr *items = DS_NEW_N(&g->unit->arena, ds_expr, index->n + 1);
    for (uint32_t i = 0; i < index->n; i++) {
        int64_t at;
        uint32_t k;
        if (!ds_expr_is_int(g->exprs, index->items[i], &at))
            return ds_onnx__refuse(err, "an index that is a size left open");
        DS_TRY(ds_onnx__axis(g, at, data->n, &k, err));
        items[i] = data->items[k];
    }
    ds_onnx__out_items(g, 0, items, index->n, index->rank);
    return DS_OK;
}

/* Are the known indices lo, lo + 1, …? */
static bool is_run(ds_onnx *g, const ds_onnx_name *index, int64_t *lo) {
    int64_t at;
    for (uint32_t i = 0; i < index->n; i++) {
        if (!ds_expr_is_int(g->exprs, index->items[i], &at)) return false;
        if (i == 0) *lo = at;
        if (at < 0 || at > INT32_MAX || at != *lo + i) return false;
    }
    return index->n > 0;
}

/* Known consecutive indices, as of positions: a slice, whose dim takes the indices' shape. */
static ds_status gather_run(ds_onnx *g, const ds_onnx_name *index, uint32_t axis, int64_t lo,
                            ds_error *err) {
    ds_use x;
    ds_expr dims[2 * DS_MAX_RANK];
    DS_TRY(ds_onnx__use(g, 0, &x, err));
    DS_TRY(put_slice(g, x, axis, ds_expr_int(g->exprs, lo),
                     ds_expr_int(g->exprs, lo + (int64_t)index->n), &x, err));
    const ds_type *type = ds_onnx__type(g, &x);
    uint32_t n = 0;
    for (uint32_t d = 0; d < axis; d++) dims[n++] = type->dims[d].size;
    for (uint32_t d = 0; d < index->rank; d++) dims[n++] = index->dims[d];
    for (uint32_t d = axis + 1; d < type->rank; d++) dims[n++] = type->dims[d].size;
    if (n > DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "%u dims; at most %d", n, DS_MAX_RANK);
    DS_TRY(ds_onnx__reshape(g, x, dims, n, &x, err));
    ds_onnx__out(g, 0, x);
    return DS_OK;
}

static ds_status gather(ds_onnx *g, ds_error *err) {
    const ds_onnx_name *data = ds_onnx__in(g, 0), *index = ds_onnx__in(g, 1);
    const ds_expr *dims;
    ds_dtype dtype;
    uint32_t rank, axis;
    int64_t lo;
    if (!index) return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "its input 1 is missing");
    DS_TRY(ds_onnx__shape(g, 0, &dtype, &dims, &rank, err));
    DS_TRY(ds_onnx__axis(g, ds_onnx__int(g, "axis", 0), rank, &axis, err));
    if (data->has_items && data->rank == 1 && index->has_items && index->rank <= 1)
        return gather_known(g, data, index, err);
    if (index->has_items && is_run(g, index, &lo)) return gather_run(g, index, axis, lo, err);
    if (axis != 0 || rank != 2)
        return ds_onnx__refuse(err,
                               "distsim looks up rows of a table [rows, width] or takes known "
                               "consecutive indices; here dim %u of %u is indexed",
                               axis, rank);
    ds_use in[2];
    DS_TRY(ds_onnx__use(g, 1, &in[0], err));
    DS_TRY(ds_onnx__use(g, 0, &in[1], err));
    return ds_onnx__finish(g, ds_onnx__op(g, DS_OP_EMBEDDING, in, 2), err);
}

/* ---- shapes and constants ---- */

static ds_status shape(ds_onnx *g, ds_error *err) {
    const ds_expr *dims;
    ds_dtype dtype;
    uint32_t rank;
    DS_TRY(ds_onnx__shape(g, 0, &dtype, &dims, &rank, err));
    int64_t lo = ds_onnx__int(g, "start", 0), hi = ds_onnx__int(g, "end", rank);
    if (lo < 0) lo = lo < -(int64_t)rank ? 0 : lo + rank;
    if (hi < 0) hi = hi < -(int64_t)rank ? 0 : hi + rank;
    if (hi > rank) hi = rank;
    if (lo > hi) lo = hi;
    ds_onnx__out_items(g, 0, dims + lo, (uint32_t)(hi - lo), 1);
    return DS_OK;
}

static ds_status size(ds_onnx *g, ds_error *err) {
    const ds_expr *dims;
    ds_dtype dtype;
    uint32_t rank;
    DS_TRY(ds_onnx__shape(g, 0, &dtype, &dims, &rank, err));
    ds_expr n = product(g, dims, rank);
    ds_onnx__out_items(g, 0, &n, 1, 0);
    return DS_OK;
}

static ds_status out_real(ds_onnx *g, double value) {
    ds_onnx_name known = {.has_real = true, .real = value, .dtype = DS_F32};
    ds_onnx__out_same(g, 0, &known);
    return DS_OK;
}

static ds_status constant(ds_onnx *g, ds_error *err) {
    const Onnx__AttributeProto *value = ds_onnx__attr(g, "value");
    const int64_t *given;
    uint32_t n;
    if (value && value->t) {
        ds_onnx_name known = {.name = g->node->output[0], .tensor = value->t};
        DS_TRY(ds_onnx__learn(g, &known, value->t, err));
        ds_onnx__out_same(g, 0, &known);
        return DS_OK;
    }
    value = ds_onnx__attr(g, "value_float");
    if (value && value->has_f) return out_real(g, ds_onnx__float(g, "value_float", 0));
    value = ds_onnx__attr(g, "value_int");
    bool one = value && value->has_i;
    if (!one && !ds_onnx__attr_ints(g, "value_ints", &given, &n))
        return ds_onnx__refuse(err, "a constant that is no tensor of numbers");
    if (one) given = &value->i, n = 1;
    ds_expr *items = DS_NEW_N(&g->unit->arena, ds_expr, n + 1);
    for (uint32_t i = 0; i < n; i++) items[i] = ds_expr_int(g->exprs, given[i]);
    ds_onnx__out_items(g, 0, items, n, one ? 0 : 1);
    return DS_OK;
}

static ds_status constant_of_shape(ds_onnx *g, ds_error *err) {
    const Onnx__AttributeProto *attr = ds_onnx__attr(g, "value");
    ds_onnx_name value = {.name = "value", .has_real = true, .dtype = DS_F32};
    const ds_expr *dims;
    uint32_t rank;
    int64_t n = 1, whole = 0;
    DS_TRY(ds_onnx__items(g, 0, &dims, &rank, err));
    if (attr && attr->t) {
        value.has_real = false;
        DS_TRY(ds_onnx__learn(g, &value, attr->t, err));
    }
    bool is_whole =
        value.has_items && value.n == 1 && ds_expr_is_int(g->exprs, value.items[0], &whole);
    if (!value.has_real && !is_whole) return ds_onnx__refuse(err, "its value is no number");
    if (is_whole && rank == 1 && ds_expr_is_int(g->exprs, dims[0], &n) && n >= 1 &&
        n <= (int64_t)DS_ONNX_MAX_ITEMS) {
        ds_expr *items = DS_NEW_N(&g->unit->arena, ds_expr, n);
        for (int64_t i = 0; i < n; i++) items[i] = value.items[0];
        ds_onnx__out_items(g, 0, items, (uint32_t)n, 1);
        return DS_OK;
    }
    if (rank > DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "%u dims; at most %d", rank,
                            DS_MAX_RANK);
    for (uint32_t d = 0; d < rank; d++)
        if (ds_expr_is_int(g->exprs, dims[d], &n) && n < 1)
            return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE, "dim %u is %lld", d, (long long)n);
    double number = is_whole ? (double)whole : value.real;
    ds_op *op = ds_build_op(&g->b, number == 0 ? DS_OP_ZEROS : DS_OP_FILL);
    if (number != 0) ds_build_attr_real(&g->b, op, "value", number);
    ds_type *type = ds_type_make(&g->unit->arena, value.dtype, dims, rank);
    ds_use out = ds_use_of(ds_build_out(&g->b, op, "c", type));
    ds_onnx__out(g, 0, out);
    return ds_build_put(&g->b, op, err);
}

static ds_status range(ds_onnx *g, ds_error *err) {
    int64_t at[3];
    for (uint32_t i = 0; i < 3; i++) {
        const int64_t *given;
        uint32_t n;
        DS_TRY(ds_onnx__numbers(g, i, &given, &n, err));
        if (n != 1)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "its input %u is no number", i);
        at[i] = given[0];
    }
    bool fits = at[2] != 0;
    for (uint32_t i = 0; i < 3; i++) fits = fits && at[i] >= -INT32_MAX && at[i] <= INT32_MAX;
    int64_t n = fits ? (at[1] - at[0] + at[2] + (at[2] > 0 ? -1 : 1)) / at[2] : -1;
    if (n < 1 || n > (int64_t)DS_ONNX_MAX_ITEMS)
        return ds_onnx__refuse(err, "a range that is empty or has more than %u elements",
                               DS_ONNX_MAX_ITEMS);
    ds_expr *items = DS_NEW_N(&g->unit->arena, ds_expr, n);
    for (int64_t i = 0; i < n; i++) items[i] = ds_expr_int(g->exprs, at[0] + i * at[2]);
    ds_onnx__out_items(g, 0, items, (uint32_t)n, 1);
    return DS_OK;
}

const ds_onnx_rule ds_onnx__layout_rules[] = {
    {"Reshape", reshape, 1, 2, 1},
    {"Flatten", flatten, 1, 1, 1},
    {"Squeeze", squeeze, 1, 2, 1},
    {"Unsqueeze", unsqueeze, 1, 2, 1},
    {"Transpose", transpose, 1, 1, 1},
    {"Concat", concat, 1, UINT32_MAX, 1},
    {"Split", split, 1, 2, UINT32_MAX},
    {"Slice", slice, 1, 5, 1},
    {"Gather", gather, 2, 2, 1},
    {"Shape", shape, 1, 1, 1},
    {"Size", size, 1, 1, 1},
    {"Constant", constant, 0, 0, 1},
    {"ConstantOfShape", constant_of_shape, 1, 1, 1},
    {"Range", range, 3, 3, 1},
    {NULL, NULL, 0, 0, 0},
};
