/* Names of the graph: what they stand for, as operands and as results. */
#include "ir/import/onnx_internal.h"

#include <math.h>
#include <onnx.pb-c.h>
#include <stdlib.h>
#include <string.h>

ds_onnx_name *ds_onnx__name(ds_onnx *g, const char *name) {
    const char *key = ds_intern(&g->unit->strings, name);
    uint64_t *id = ds_map_find(&g->ids, DS_KEY(key));
    if (id) return &g->names.at[*id];
    ds_map_put(&g->ids, DS_KEY(key), g->names.n);
    DS_HPUSH(&g->names, ((ds_onnx_name){.name = key}));
    return &g->names.at[g->names.n - 1];
}

ds_status ds_onnx__refuse(ds_error *err, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    ds_error_vset(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, format, ap);
    va_end(ap);
    return DS_ERR_UNSUPPORTED;
}

/* A value's name from the graph's: "/layer1/conv/Conv_output_0" gives layer1.conv.Conv. */
static const char *value_name(ds_onnx *g, const char *name) {
    static const char tail[] = "_output_0";
    size_t n = strnlen(name, 120), t = sizeof tail - 1;
    if (n > t && memcmp(name + n - t, tail, t) == 0) n -= t;
    char *out = ds_arena_alloc(&g->unit->arena, n + 2);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        bool dot = c == '.' || c == '/' || c == ':';
        if (dot && (k == 0 || out[k - 1] == '.')) continue;
        out[k++] = letter ? c : dot ? '.' : '_';
    }
    while (k && out[k - 1] == '.') k--;
    out[k] = '\0';
    return k ? out : "v";
}

/* ---- tensors ---- */

bool ds_onnx__dtype(int32_t data_type, ds_dtype *out) {
    static const struct {
        int32_t from;
        ds_dtype to;
    } table[] = {{ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DS_F32},
                 {ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16, DS_F16},
                 {ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16, DS_BF16},
                 {ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE, DS_F64},
                 {ONNX__TENSOR_PROTO__DATA_TYPE__INT64, DS_I64},
                 {ONNX__TENSOR_PROTO__DATA_TYPE__INT32, DS_I32},
                 {ONNX__TENSOR_PROTO__DATA_TYPE__INT16, DS_I16},
                 {ONNX__TENSOR_PROTO__DATA_TYPE__INT8, DS_I8},
                 {ONNX__TENSOR_PROTO__DATA_TYPE__UINT8, DS_U8},
                 {ONNX__TENSOR_PROTO__DATA_TYPE__BOOL, DS_BOOL}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].from != data_type) continue;
        *out = table[i].to;
        return true;
    }
    return false;
}

static ds_status tensor_type(ds_onnx *g, const Onnx__TensorProto *t, const char *name,
                             ds_dtype *dtype, ds_expr dims[DS_MAX_RANK], ds_error *err) {
    name = ds_import__plain(&g->unit->arena, name);
    if (!ds_onnx__dtype(t->data_type, dtype))
        return ds_onnx__refuse(err, "tensor '%s' has ONNX data type %d, which distsim lacks", name,
                               t->data_type);
    if (t->n_dims > DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "tensor '%s' has %zu dims; at most %d",
                            name, t->n_dims, DS_MAX_RANK);
    for (size_t d = 0; d < t->n_dims; d++) {
        if (t->dims[d] < 1)
            return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE,
                                "dim %zu of tensor '%s' is %lld; at least 1 is needed", d, name,
                                (long long)t->dims[d]);
        dims[d] = ds_expr_int(g->exprs, t->dims[d]);
    }
    return DS_OK;
}

/* The number of elements, or a number beyond `most`. */
static int64_t count_elements(const Onnx__TensorProto *t, int64_t most) {
    int64_t n = 1;
    for (size_t d = 0; d < t->n_dims; d++) {
        if (t->dims[d] < 0 || t->dims[d] > most) return most + 1;
        n *= t->dims[d];
        if (n > most) return most + 1;
    }
    return n;
}

static double half(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = exponent == 31 ? (fraction ? NAN : INFINITY)
               : exponent     ? ldexp(1024 + fraction, exponent - 25)
                              : ldexp(fraction, -24);
    return bits & 0x8000 ? -x : x;
}

static double real_bits(ds_dtype dtype, const uint8_t *raw) {
    double d;
    float f;
    uint16_t h;
    uint32_t wide;
    switch (dtype) {
    case DS_F64:
        memcpy(&d, raw, sizeof d);
        return d;
    case DS_F32:
        memcpy(&f, raw, sizeof f);
        return (double)f;
    case DS_BF16:
        memcpy(&h, raw, sizeof h);
        wide = (uint32_t)h << 16;
        memcpy(&f, &wide, sizeof f);
        return (double)f;
    default:
        memcpy(&h, raw, sizeof h);
        return half(h);
    }
}

/* The one element of a float tensor; false if its data are not in the file. */
static bool one_real(const Onnx__TensorProto *t, ds_dtype dtype, double *out) {
    uint16_t small;
    if (t->has_raw_data && t->raw_data.len == ds_dtype_bits(dtype) / 8)
        *out = real_bits(dtype, t->raw_data.data);
    else if (dtype == DS_F32 && t->n_float_data == 1)
        *out = (double)t->float_data[0];
    else if (dtype == DS_F64 && t->n_double_data == 1)
        *out = t->double_data[0];
    else if ((dtype == DS_F16 || dtype == DS_BF16) && t->n_int32_data == 1) {
        small = (uint16_t)t->int32_data[0];
        *out = real_bits(dtype, (const uint8_t *)&small);
    } else
        return false;
    return isfinite(*out);
}

/* Element i of n integers; false if the data are not there. Raw data are little-endian, and so is
 * every machine that distsim is built for. */
static bool integer(const Onnx__TensorProto *t, ds_dtype dtype, size_t n, size_t i, int64_t *out) {
    size_t bytes = ds_dtype_bits(dtype) / 8;
    if (t->has_raw_data && t->raw_data.len == n * bytes) {
        uint64_t bits = 0;
        memcpy(&bits, t->raw_data.data + i * bytes, bytes);
        unsigned unused = (unsigned)(64 - 8 * bytes);
        bool is_signed = dtype != DS_U8 && dtype != DS_BOOL;
        *out = is_signed && unused && (bits >> (63 - unused) & 1)
                   ? (int64_t)(bits | ~UINT64_C(0) << (64 - unused))
                   : (int64_t)bits;
        return true;
    }
    if (dtype == DS_I64 ? t->n_int64_data == n : t->n_int32_data == n) {
        *out = dtype == DS_I64 ? t->int64_data[i] : t->int32_data[i];
        return true;
    }
    return false;
}

ds_status ds_onnx__learn(ds_onnx *g, ds_onnx_name *name, const Onnx__TensorProto *t,
                         ds_error *err) {
    if (t->n_dims == 1 && t->dims[0] == 0) { /* the shape of a scalar */
        *name = (ds_onnx_name){.name = name->name, .dtype = DS_I64, .rank = 1, .has_items = true};
        name->dims[0] = ds_expr_int(g->exprs, 0);
        name->items = DS_NEW(&g->unit->arena, ds_expr);
        return DS_OK;
    }
    DS_TRY(tensor_type(g, t, name->name, &name->dtype, name->dims, err));
    name->rank = (uint32_t)t->n_dims;
    int64_t n = count_elements(t, DS_ONNX_MAX_ITEMS);
    if (n > (int64_t)DS_ONNX_MAX_ITEMS) return DS_OK;
    if (ds_dtype_is_float(name->dtype)) {
        name->has_real = n == 1 && one_real(t, name->dtype, &name->real);
        return DS_OK;
    }
    ds_expr *items = DS_NEW_N(&g->unit->arena, ds_expr, n + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t value;
        if (!integer(t, name->dtype, (size_t)n, (size_t)i, &value)) return DS_OK;
        items[i] = ds_expr_int(g->exprs, value);
    }
    name->items = items;
    name->n = (uint32_t)n;
    name->has_items = true;
    return DS_OK;
}

/* ---- operands ---- */

ds_onnx_name *ds_onnx__in(const ds_onnx *g, uint32_t i) {
    return i < g->n_in ? g->in[i] : NULL;
}

static ds_status missing(uint32_t i, ds_error *err) {
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "its input %u is missing", i);
}

static const char *shown(ds_onnx *g, const ds_onnx_name *name) {
    return ds_import__plain(&g->unit->arena, name->name);
}

static void add_note(ds_onnx *g, ds_op *op) {
    if (!g->note) return;
    op->trivia.comments = DS_NEW(&g->unit->arena, const char *);
    op->trivia.comments[0] = ds_arena_printf(&g->unit->arena, " %s", g->note);
    op->trivia.n_comments = 1;
    g->note = NULL;
}

static ds_status put_weight(ds_onnx *g, const char *name, const ds_type *type, ds_use *out,
                            ds_error *err) {
    ds_op *op = ds_build_op(&g->b, DS_OP_WEIGHT);
    *out = ds_use_of(ds_build_out(&g->b, op, value_name(g, name), type));
    add_note(g, op);
    return ds_build_put(&g->b, op, err);
}

ds_status ds_onnx__weight(ds_onnx *g, uint32_t i, ds_dtype dtype, const ds_expr *dims,
                          uint32_t rank, ds_use *out, ds_error *err) {
    const ds_onnx_name *name = ds_onnx__in(g, i);
    if (!name) return missing(i, err);
    return put_weight(g, name->name, ds_type_make(&g->unit->arena, dtype, dims, rank), out, err);
}

/* A constant of one value everywhere. */
static ds_status put_fill(ds_onnx *g, const ds_onnx_name *name, double value, ds_use *out,
                          ds_error *err) {
    ds_type *type = ds_type_make(&g->unit->arena, name->dtype, name->dims, name->rank);
    ds_op *op = ds_build_op(&g->b, DS_OP_FILL);
    ds_build_attr_real(&g->b, op, "value", value);
    *out = ds_use_of(ds_build_out(&g->b, op, value_name(g, name->name), type));
    return ds_build_put(&g->b, op, err);
}

/* Integers that are data, such as positions: an argument, for distsim has no constant tensors. */
static void put_buffer(ds_onnx *g, const ds_onnx_name *name, ds_use *out) {
    ds_type *type = ds_type_make(&g->unit->arena, name->dtype, name->dims, name->rank);
    ds_attr *role = DS_NEW(&g->unit->arena, ds_attr);
    *role = ds_attr_of_word(g->unit, "role", "buffer");
    *out = ds_use_of(ds_build_arg(&g->b, value_name(g, name->name), type, NULL, 0, role, 1));
}

static ds_status materialize(ds_onnx *g, ds_onnx_name *name, ds_error *err) {
    ds_use use;
    int64_t value;
    if (name->has_real) {
        DS_TRY(put_fill(g, name, name->real, &use, err));
    } else if (name->has_items && name->n == 1 &&
               ds_expr_is_int(g->exprs, name->items[0], &value) && llabs(value) < (1LL << 53)) {
        DS_TRY(put_fill(g, name, (double)value, &use, err));
    } else if (name->tensor && ds_dtype_is_float(name->dtype)) {
        ds_type *type = ds_type_make(&g->unit->arena, name->dtype, name->dims, name->rank);
        DS_TRY(put_weight(g, name->name, type, &use, err));
    } else if (name->tensor) {
        put_buffer(g, name, &use);
    } else if (name->gelu) {
        return ds_onnx__refuse_erf(err);
    } else {
        return ds_onnx__refuse(err, "'%s' is computed from shapes, and is read here as data",
                               shown(g, name));
    }
    name->value = use.value;
    name->has_value = true;
    return DS_OK;
}

ds_status ds_onnx__use(ds_onnx *g, uint32_t i, ds_use *out, ds_error *err) {
    ds_onnx_name *name = ds_onnx__in(g, i);
    if (!name) return missing(i, err);
    if (!name->has_value) DS_TRY(materialize(g, name, err));
    *out = ds_use_of(name->value);
    return DS_OK;
}

const ds_type *ds_onnx__type(ds_onnx *g, const ds_use *use) {
    return ds_value_at(g->b.func, use->value)->type;
}

ds_status ds_onnx__shape(ds_onnx *g, uint32_t i, ds_dtype *dtype, const ds_expr **dims,
                         uint32_t *rank, ds_error *err) {
    const ds_onnx_name *name = ds_onnx__in(g, i);
    if (!name) return missing(i, err);
    if (name->gelu) return ds_onnx__refuse_erf(err);
    if (!name->has_value) {
        *dtype = name->dtype;
        *dims = name->dims;
        *rank = name->rank;
        return DS_OK;
    }
    const ds_type *type = ds_value_at(g->b.func, name->value)->type;
    ds_expr *sizes = DS_NEW_N(&g->unit->arena, ds_expr, type->rank + 1);
    for (uint32_t d = 0; d < type->rank; d++) sizes[d] = type->dims[d].size;
    *dtype = type->dtype;
    *dims = sizes;
    *rank = type->rank;
    return DS_OK;
}

ds_status ds_onnx__items(ds_onnx *g, uint32_t i, const ds_expr **items, uint32_t *n,
                         ds_error *err) {
    const ds_onnx_name *name = ds_onnx__in(g, i);
    if (!name) return missing(i, err);
    if (!name->has_items || name->rank > 1)
        return ds_onnx__refuse(err,
                               "its input %u, '%s', must be known integers: a constant or what is "
                               "computed from shapes",
                               i, shown(g, name));
    *items = name->items;
    *n = name->n;
    return DS_OK;
}

ds_status ds_onnx__numbers(ds_onnx *g, uint32_t i, const int64_t **items, uint32_t *n,
                           ds_error *err) {
    const ds_expr *known;
    DS_TRY(ds_onnx__items(g, i, &known, n, err));
    int64_t *numbers = DS_NEW_N(&g->unit->arena, int64_t, *n + 1);
    for (uint32_t k = 0; k < *n; k++)
        if (!ds_expr_is_int(g->exprs, known[k], &numbers[k]))
            return ds_onnx__refuse(err, "its input %u, '%s', must be numbers, not sizes left open",
                                   i, shown(g, ds_onnx__in(g, i)));
    *items = numbers;
    return DS_OK;
}

ds_status ds_onnx__axis(const ds_onnx *g, int64_t axis, uint32_t rank, uint32_t *out,
                        ds_error *err) {
    (void)g;
    if (axis < -(int64_t)rank || axis >= (int64_t)rank)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "axis %lld of a tensor of %u dims",
                            (long long)axis, rank);
    *out = (uint32_t)(axis < 0 ? axis + rank : axis);
    return DS_OK;
}

ds_status ds_onnx__axes(ds_onnx *g, uint32_t i, uint32_t rank, uint32_t axes[DS_MAX_RANK],
                        uint32_t *n, ds_error *err) {
    const int64_t *given;
    *n = 0;
    if (!ds_onnx__attr_ints(g, "axes", &given, n)) {
        if (!ds_onnx__in(g, i)) return DS_OK;
        DS_TRY(ds_onnx__numbers(g, i, &given, n, err));
    }
    if (*n > rank)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%u axes of a tensor of %u dims", *n,
                            rank);
    uint32_t seen = 0;
    for (uint32_t k = 0; k < *n; k++) {
        DS_TRY(ds_onnx__axis(g, given[k], rank, &axes[k], err));
        if (seen >> axes[k] & 1)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "axis %u is given twice", axes[k]);
        seen |= 1u << axes[k];
    }
    return DS_OK;
}

/* ---- results ---- */

static ds_onnx_name *output(ds_onnx *g, uint32_t i) {
    if (i >= g->node->n_output || !*g->node->output[i]) return NULL;
    return ds_onnx__name(g, g->node->output[i]);
}

bool ds_onnx__wants(ds_onnx *g, uint32_t i) {
    const ds_onnx_name *name = output(g, i);
    return name && name->is_needed;
}

ds_op *ds_onnx__op(ds_onnx *g, ds_opcode code, const ds_use *in, uint32_t n) {
    ds_op *op = ds_build_op(&g->b, code);
    op->in = DS_NEW_N(&g->unit->arena, ds_use, n + 1);
    if (n) memcpy(op->in, in, n * sizeof *in);
    op->n_in = n;
    return op;
}

static const char *output_name(ds_onnx *g, uint32_t i) {
    const ds_onnx_name *name = output(g, i);
    return name ? value_name(g, name->name) : "v";
}

/* Sizes that are numbers are at least 1; others are looked at when params are bound. */
static ds_status check_sizes(ds_onnx *g, const ds_op *op, ds_use use, ds_error *err) {
    const ds_type *type = ds_onnx__type(g, &use);
    int64_t size;
    for (uint32_t d = 0; d < type->rank; d++)
        if (ds_expr_is_int(g->exprs, type->dims[d].size, &size) && size < 1)
            return ds_error_set(err, DS_ERR_SHAPE, DS_NOWHERE, "dim %u of what %s gives is %lld", d,
                                ds_op_name(op->code), (long long)size);
    return DS_OK;
}

/* A node may be several ops: y.pad, y.conv2d, and the last one becomes y by ds_onnx__out. */
ds_status ds_onnx__put(ds_onnx *g, ds_op *op, ds_use *out, ds_error *err) {
    const char *name =
        ds_arena_printf(&g->unit->arena, "%s.%s", output_name(g, 0), ds_op_name(op->code));
    *out = ds_use_of(ds_build_out(&g->b, op, name, NULL));
    add_note(g, op);
    DS_TRY(ds_build_put(&g->b, op, err));
    return check_sizes(g, op, *out, err);
}

void ds_onnx__out(ds_onnx *g, uint32_t i, ds_use value) {
    ds_onnx_name *name = output(g, i);
    if (!name) return;
    name->has_value = true;
    name->value = value.value;
    ds_value_info *info = ds_value_at(g->b.func, value.value);
    bool made_here =
        value.value.i >= g->first_value && info->def && info->def->code != DS_OP_WEIGHT;
    if (made_here && name->is_needed) info->name = ds_build_name(&g->b, output_name(g, i));
}

void ds_onnx__out_scaled(ds_onnx *g, ds_use x, double factor) {
    ds_onnx_name *name = output(g, 0);
    if (!name) return;
    name->is_scaled = true;
    name->of = x.value;
    name->factor = factor;
}

void ds_onnx__out_items(ds_onnx *g, uint32_t i, const ds_expr *items, uint32_t n, uint32_t rank) {
    ds_onnx_name *name = output(g, i);
    if (!name) return;
    name->has_items = true;
    name->items = DS_NEW_N(&g->unit->arena, ds_expr, n + 1);
    if (n) memcpy(name->items, items, n * sizeof *items);
    name->n = n;
    name->rank = rank;
    name->dims[0] = ds_expr_int(g->exprs, n);
    name->dtype = DS_I64;
}

void ds_onnx__out_same(ds_onnx *g, uint32_t i, const ds_onnx_name *as) {
    ds_onnx_name *name = output(g, i);
    if (!name || name == as) return;
    ds_onnx_name copy = *as;
    copy.name = name->name;
    copy.is_defined = name->is_defined;
    copy.is_needed = name->is_needed;
    *name = copy;
}

ds_status ds_onnx__finish(ds_onnx *g, ds_op *op, ds_error *err) {
    ds_use out;
    DS_TRY(ds_onnx__put(g, op, &out, err));
    ds_onnx__out(g, 0, out);
    return DS_OK;
}

static bool same_shape(ds_onnx *g, const ds_type *type, const ds_expr *dims, uint32_t rank) {
    if (type->rank != rank) return false;
    for (uint32_t d = 0; d < rank; d++)
        if (ds_expr_equal(g->exprs, type->dims[d].size, dims[d]) != DS_YES) return false;
    return true;
}

ds_status ds_onnx__reshape(ds_onnx *g, ds_use x, const ds_expr *dims, uint32_t rank, ds_use *out,
                           ds_error *err) {
    *out = x;
    if (same_shape(g, ds_onnx__type(g, &x), dims, rank)) return DS_OK;
    ds_op *op = ds_onnx__op(g, DS_OP_RESHAPE, &x, 1);
    ds_build_attr_exprs(&g->b, op, "shape", dims, rank);
    return ds_onnx__put(g, op, out, err);
}

ds_status ds_onnx__transpose(ds_onnx *g, ds_use x, const uint32_t *perm, uint32_t n, ds_use *out,
                             ds_error *err) {
    ds_expr items[DS_MAX_RANK];
    bool moves = false;
    for (uint32_t d = 0; d < n; d++) {
        items[d] = ds_expr_int(g->exprs, perm[d]);
        moves = moves || perm[d] != d;
    }
    *out = x;
    if (!moves) return DS_OK;
    ds_op *op = ds_onnx__op(g, DS_OP_TRANSPOSE, &x, 1);
    ds_build_attr_exprs(&g->b, op, "perm", items, n);
    return ds_onnx__put(g, op, out, err);
}
