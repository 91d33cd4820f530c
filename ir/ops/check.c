/* Comparisons and checks that all of inference shares: sizes, shardings, places, partials, dtypes.
 */
#include "ir/ops/internal.h"

#include "ir/base/units.h"

#include <ctype.h>
#include <string.h>

static const char *kept(const ds_infer *ctx, ds_buf *buf) {
    const char *text = ds_arena_strdup(&ctx->unit->arena, buf->text ? buf->text : "");
    ds_buf_deinit(buf);
    return text;
}

const char *ds_ops__type_text(const ds_infer *ctx, const ds_type *type) {
    ds_buf buf = {0};
    ds_type_print(&ctx->unit->exprs, type, &buf);
    return kept(ctx, &buf);
}

const char *ds_ops__expr_text(const ds_infer *ctx, ds_expr e) {
    ds_buf buf = {0};
    ds_expr_print(&ctx->unit->exprs, e, &buf);
    int64_t value, literal;
    if (ctx->env && !ds_expr_is_int(&ctx->unit->exprs, e, &literal) &&
        ds_expr_eval_int(ctx->env, e, DS_NOWHERE, &value, NULL) == DS_OK)
        ds_buf_printf(&buf, " = %lld", (long long)value);
    return kept(ctx, &buf);
}

const char *ds_ops__axes_text(const ds_infer *ctx, const ds_split *splits, uint32_t n) {
    ds_buf buf = {0};
    if (n != 1) ds_buf_putc(&buf, '(');
    for (uint32_t i = 0; i < n; i++) ds_buf_printf(&buf, "%s%s", i ? ", " : "", splits[i].axis);
    if (n != 1) ds_buf_putc(&buf, ')');
    return kept(ctx, &buf);
}

static const char *place_text(const ds_infer *ctx, const ds_place *place) {
    if (place->kind == DS_PLACE_NONE) return "the function's mesh";
    ds_buf buf = {0};
    ds_place_print(&ctx->unit->exprs, place, &buf);
    return kept(ctx, &buf);
}

ds_status ds_ops__equal(const ds_infer *ctx, ds_expr a, ds_expr b, ds_tri *out, ds_error *err) {
    *out = ds_expr_equal(&ctx->unit->exprs, a, b);
    if (*out != DS_UNKNOWN || !ctx->env) return DS_OK;
    int64_t x, y;
    DS_TRY(ds_expr_eval_int(ctx->env, a, ctx->op->loc, &x, err));
    DS_TRY(ds_expr_eval_int(ctx->env, b, ctx->op->loc, &y, err));
    *out = x == y ? DS_YES : DS_NO;
    return DS_OK;
}

ds_place ds_ops__resolved_place(const ds_infer *ctx, const ds_place *place) {
    if (place->kind != DS_PLACE_NONE || !ctx->func || ctx->func->n_mesh_params != 1) return *place;
    return (ds_place){.kind = DS_PLACE_MESH, .name = ctx->func->mesh_params[0]};
}

/* The weaker of two answers: no, then unknown, then yes. */
static void weaken(ds_tri *all, ds_tri one) {
    if (*all == DS_NO || one == DS_YES) return;
    *all = one;
}

static ds_status same_coords(const ds_infer *ctx, const ds_place *a, const ds_place *b, ds_tri *out,
                             ds_error *err) {
    *out = a->n_coords == b->n_coords ? DS_YES : DS_NO;
    for (uint32_t i = 0; i < a->n_coords && *out != DS_NO; i++) {
        uint32_t j = 0;
        while (j < b->n_coords && b->coords[j].axis != a->coords[i].axis) j++;
        if (j == b->n_coords) {
            *out = DS_NO;
            return DS_OK;
        }
        ds_tri one;
        DS_TRY(ds_ops__equal(ctx, a->coords[i].at, b->coords[j].at, &one, err));
        weaken(out, one);
    }
    return DS_OK;
}

static ds_status same_steps(const ds_infer *ctx, const ds_place *a, const ds_place *b, ds_tri *out,
                            ds_error *err) {
    *out = a->n_steps == b->n_steps ? DS_YES : DS_NO;
    for (uint32_t i = 0; i < a->n_steps && *out != DS_NO; i++) {
        ds_expr x = a->steps[i].index, y = b->steps[i].index;
        if (a->steps[i].name != b->steps[i].name || DS_HAS_EXPR(x) != DS_HAS_EXPR(y)) {
            *out = DS_NO;
            return DS_OK;
        }
        if (!DS_HAS_EXPR(x)) continue;
        ds_tri one;
        DS_TRY(ds_ops__equal(ctx, x, y, &one, err));
        weaken(out, one);
    }
    return DS_OK;
}

ds_status ds_ops__same_place(const ds_infer *ctx, const ds_place *a, const ds_place *b, ds_tri *out,
                             ds_error *err) {
    ds_place x = ds_ops__resolved_place(ctx, a), y = ds_ops__resolved_place(ctx, b);
    *out = x.kind == y.kind && x.name == y.name ? DS_YES : DS_NO;
    if (*out == DS_NO || x.kind == DS_PLACE_NONE) return DS_OK;
    if (x.kind == DS_PLACE_MESH) return same_coords(ctx, &x, &y, out, err);
    return same_steps(ctx, &x, &y, out, err);
}

ds_status ds_ops__one_place(const ds_infer *ctx, ds_error *err) {
    for (uint32_t i = 1; i < ctx->op->n_in; i++) {
        ds_tri same;
        DS_TRY(ds_ops__same_place(ctx, &ctx->in[0]->on, &ctx->in[i]->on, &same, err));
        if (same != DS_NO) continue;
        return ds_error_set(err, DS_ERR_SHARDING, ctx->op->in[i].loc,
                            "%s: operand 0 is on %s, operand %u on %s; an op never moves data: use "
                            "send or reshard",
                            ds_op_name(ctx->op->code), place_text(ctx, &ctx->in[0]->on), i,
                            place_text(ctx, &ctx->in[i]->on));
    }
    return DS_OK;
}

ds_status ds_ops__same_splits(const ds_infer *ctx, const ds_dim *a, const ds_dim *b, bool *out,
                              ds_error *err) {
    *out = a->n_splits == b->n_splits;
    for (uint32_t i = 0; i < a->n_splits && *out; i++) {
        const ds_split *x = &a->splits[i], *y = &b->splits[i];
        *out = x->axis == y->axis && x->n_sizes == y->n_sizes;
        for (uint32_t j = 0; j < x->n_sizes && *out; j++) {
            ds_tri same;
            DS_TRY(ds_ops__equal(ctx, x->sizes[j], y->sizes[j], &same, err));
            *out = same != DS_NO;
        }
    }
    return DS_OK;
}

ds_status ds_ops__same_shape(const ds_infer *ctx, const ds_type *a, const ds_type *b,
                             ds_error *err) {
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (uint32_t d = 0; d < a->rank && same; d++) {
        ds_tri tri;
        DS_TRY(ds_ops__equal(ctx, a->dims[d].size, b->dims[d].size, &tri, err));
        same = tri != DS_NO;
    }
    if (same) return DS_OK;
    return ds_error_set(err, DS_ERR_SHAPE, ctx->op->loc, "%s: %s and %s differ in dtype or shape",
                        ds_op_name(ctx->op->code), ds_ops__type_text(ctx, a),
                        ds_ops__type_text(ctx, b));
}

bool ds_ops__is_manual(const ds_infer *ctx, const char *axis) {
    for (uint32_t i = 0; i < ctx->n_manual; i++)
        if (ctx->manual_axes[i] == axis) return true;
    return false;
}

/* ---- partials ---- */

static bool has_partial(const ds_type *type, const ds_partial *p) {
    for (uint32_t i = 0; i < type->n_partials; i++)
        if (type->partials[i].axis == p->axis && type->partials[i].reduction == p->reduction)
            return true;
    return false;
}

/* Axis of a partial that `a` has and `b` has not; NULL if there is none. */
static const char *missing_partial(const ds_type *a, const ds_type *b) {
    for (uint32_t i = 0; i < a->n_partials; i++)
        if (!has_partial(b, &a->partials[i])) return a->partials[i].axis;
    return NULL;
}

static ds_status not_linear(const ds_infer *ctx, uint32_t i, const char *why, ds_error *err) {
    const ds_type *type = ctx->in[i];
    return ds_error_set(err, DS_ERR_SHARDING, ctx->op->in[i].loc,
                        "%s: operand %u is %s, a term of a sum or maximum, %s; all_reduce it over "
                        "%s first",
                        ds_op_name(ctx->op->code), i, ds_ops__type_text(ctx, type), why,
                        type->partials[0].axis);
}

static ds_status all_alike(const ds_infer *ctx, ds_error *err) {
    for (uint32_t i = 1; i < ctx->op->n_in; i++) {
        const char *axis = missing_partial(ctx->in[0], ctx->in[i]);
        uint32_t with = 0, without = i;
        if (!axis) {
            axis = missing_partial(ctx->in[i], ctx->in[0]);
            with = i, without = 0;
        }
        if (!axis) continue;
        return ds_error_set(err, DS_ERR_SHARDING, ctx->op->in[i].loc,
                            "%s: operand %u is %s but operand %u is %s, which would enter the sum "
                            "once per device of %s; all_reduce operand %u over %s first",
                            ds_op_name(ctx->op->code), with, ds_ops__type_text(ctx, ctx->in[with]),
                            without, ds_ops__type_text(ctx, ctx->in[without]), axis, with, axis);
    }
    return DS_OK;
}

ds_status ds_ops__passed_partials(const ds_infer *ctx, const ds_op_desc *desc,
                                  const ds_partial **out, uint32_t *n, ds_error *err) {
    *out = NULL;
    *n = 0;
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < ctx->op->n_in; i++) {
        const ds_type *type = ctx->in[i];
        if (type->n_partials == 0) continue;
        for (uint32_t p = 0; p < type->n_partials && !(desc->flags & DS_OPF_VIEW); p++)
            if (type->partials[p].reduction == DS_RED_MAX)
                return not_linear(ctx, i, "and a maximum passes through views only", err);
        if (first != UINT32_MAX && (desc->flags & DS_OPF_MULTILINEAR))
            return not_linear(ctx, i, "as is another operand, and a product takes only one such",
                              err);
        if (i > 0 && (desc->flags & DS_OPF_LINEAR_FIRST))
            return not_linear(ctx, i, "but the op is linear in operand 0 only", err);
        if (!(desc->flags & (DS_OPF_LINEAR | DS_OPF_MULTILINEAR | DS_OPF_LINEAR_FIRST)))
            return not_linear(ctx, i, "but the op is not linear in it", err);
        if (first == UINT32_MAX) first = i;
    }
    if (first == UINT32_MAX) return DS_OK;
    if (desc->flags & DS_OPF_LINEAR) DS_TRY(all_alike(ctx, err));
    *out = ctx->in[first]->partials;
    *n = ctx->in[first]->n_partials;
    return DS_OK;
}

/* ---- dtypes ---- */

typedef struct dtype_vars {
    bool bound[26];
    ds_dtype dtype[26];
    uint32_t operand[26];
} dtype_vars;

/* The next item of a signature side: [*at, …) up to ',' or the end; the last one repeats. */
static const char *next_item(const char **at, const char *end, size_t *n) {
    const char *item = *at + strspn(*at, " ");
    *n = strcspn(item, ", ");
    if (item + *n > end) *n = (size_t)(end - item);
    const char *after = item + *n + strspn(item + *n, " ");
    if (after < end && *after == ',') *at = after + 1;
    return item;
}

static bool is_integer(ds_dtype dtype) {
    return !ds_dtype_is_float(dtype) && dtype != DS_BOOL;
}

static ds_status check_dtype(const ds_infer *ctx, dtype_vars *vars, const char *item, size_t n,
                             uint32_t i, ds_error *err) {
    ds_dtype dtype = ctx->in[i]->dtype;
    const char *name = ds_op_name(ctx->op->code);
    if (n != 1 || *item == '_') return DS_OK;
    if (*item == 'I') {
        if (is_integer(dtype)) return DS_OK;
        return ds_error_set(err, DS_ERR_TYPE, ctx->op->in[i].loc,
                            "%s: operand %u is %s, but an integer dtype is needed", name, i,
                            ds_dtype_name(dtype));
    }
    if ((*item == 'F' || *item == 'G') && !ds_dtype_is_float(dtype))
        return ds_error_set(err, DS_ERR_TYPE, ctx->op->in[i].loc,
                            "%s: operand %u is %s, but a float dtype is needed", name, i,
                            ds_dtype_name(dtype));
    uint32_t v = (uint32_t)(*item - 'A');
    if (vars->bound[v] && vars->dtype[v] != dtype)
        return ds_error_set(err, DS_ERR_TYPE, ctx->op->in[i].loc,
                            "%s: operand %u is %s but operand %u is %s; cast one of them", name, i,
                            ds_dtype_name(dtype), vars->operand[v], ds_dtype_name(vars->dtype[v]));
    if (!vars->bound[v]) vars->operand[v] = i;
    vars->bound[v] = true;
    vars->dtype[v] = dtype;
    return DS_OK;
}

ds_status ds_ops__dtypes(const ds_infer *ctx, const ds_op_desc *desc, ds_dtype *out,
                         ds_error *err) {
    if (!desc->dtypes) return DS_OK;
    dtype_vars vars = {0};
    const char *at = desc->dtypes, *arrow = strstr(at, "->");
    size_t n;
    for (uint32_t i = 0; i < ctx->op->n_in; i++) {
        const char *item = next_item(&at, arrow, &n);
        DS_TRY(check_dtype(ctx, &vars, item, n, i, err));
    }
    if (!out) return DS_OK;
    at = arrow + 2;
    const char *end = at + strlen(at);
    for (uint32_t i = 0; i < ctx->op->n_out; i++) {
        const char *item = next_item(&at, end, &n);
        char text[16] = {0};
        memcpy(text, item, n < 15 ? n : 15);
        if (n == 1 && isupper((unsigned char)*item) && vars.bound[*item - 'A'])
            out[i] = vars.dtype[*item - 'A'];
        else if (!ds_dtype_parse(text, &out[i]))
            out[i] = ctx->op->n_in ? ctx->in[0]->dtype : DS_F32;
    }
    return DS_OK;
}

/* ---- a type on its own ---- */

static ds_status axis_once(const ds_infer *ctx, const ds_type *type, const char *what, ds_loc loc,
                           ds_error *err) {
    const char *axes[DS_MAX_RANK * 4];
    uint32_t n = 0;
    for (uint32_t d = 0; d <= type->rank; d++) {
        uint32_t count = d < type->rank ? type->dims[d].n_splits : type->n_partials;
        for (uint32_t i = 0; i < count; i++) {
            const char *axis =
                d < type->rank ? type->dims[d].splits[i].axis : type->partials[i].axis;
            for (uint32_t j = 0; j < n; j++)
                if (axes[j] == axis)
                    return ds_error_set(err, DS_ERR_SHARDING, loc,
                                        "%s would be %s, which uses axis %s twice; all_gather an "
                                        "operand over %s first",
                                        what, ds_ops__type_text(ctx, type), axis, axis);
            if (n < sizeof axes / sizeof *axes) axes[n++] = axis;
        }
    }
    return DS_OK;
}

static bool axis_size(const ds_infer *ctx, const ds_type *type, const char *axis, int64_t *size) {
    return ctx->axis_size && ctx->axis_size(ctx->context, &type->on, axis, size) && *size > 0;
}

/* "4 (dp) x 8 (tp)": the splits up to `last`. */
static const char *parts_text(const ds_infer *ctx, const ds_type *type, const ds_dim *dim,
                              uint32_t last) {
    ds_buf buf = {0};
    for (uint32_t i = 0; i <= last; i++) {
        int64_t count = dim->splits[i].n_sizes;
        if (!count) axis_size(ctx, type, dim->splits[i].axis, &count);
        ds_buf_printf(&buf, "%s%lld (%s)", i ? " x " : "", (long long)count, dim->splits[i].axis);
    }
    return kept(ctx, &buf);
}

static const char *fitting(const ds_infer *ctx, int64_t size, int64_t parts) {
    ds_buf buf = {0};
    ds_put_near_divisors(size > 0 ? size : 1, parts, &buf);
    return kept(ctx, &buf);
}

/* One dim of `block` elements over splits[0..n). Uneven sizes: the rest must divide each of them.
 */
static ds_status divides(const ds_infer *ctx, const ds_type *type, uint32_t d, const char *what,
                         ds_loc loc, int64_t block, ds_error *err) {
    const ds_dim *dim = &type->dims[d];
    for (uint32_t i = 0; i < dim->n_splits; i++) {
        const ds_split *split = &dim->splits[i];
        int64_t count = 0, sum = 0;
        bool known = axis_size(ctx, type, split->axis, &count);
        if (split->n_sizes == 0) {
            if (!known) return DS_OK;
            if (block % count != 0)
                return ds_error_set(
                    err, DS_ERR_SHAPE, loc,
                    "%s is %s: dim %u of size %s does not divide into %s parts; "
                    "%s = %s divides it",
                    what, ds_ops__type_text(ctx, type), d, ds_ops__expr_text(ctx, dim->size),
                    parts_text(ctx, type, dim, i), split->axis, fitting(ctx, block, count));
            block /= count;
            continue;
        }
        if (known && count != split->n_sizes)
            return ds_error_set(err, DS_ERR_SHAPE, loc,
                                "%s is %s: dim %u has %u uneven sizes, but axis %s has size %lld",
                                what, ds_ops__type_text(ctx, type), d, split->n_sizes, split->axis,
                                (long long)count);
        for (uint32_t j = 0; j < split->n_sizes; j++) {
            int64_t size;
            DS_TRY(ds_expr_eval_int(ctx->env, split->sizes[j], loc, &size, err));
            if (size < 0 || __builtin_add_overflow(sum, size, &sum))
                return ds_error_set(err, DS_ERR_SHAPE, loc, "%s is %s: uneven size %lld of dim %u",
                                    what, ds_ops__type_text(ctx, type), (long long)size, d);
        }
        if (sum != block)
            return ds_error_set(err, DS_ERR_SHAPE, loc,
                                "%s is %s: the uneven sizes of dim %u add up to %lld, not %lld",
                                what, ds_ops__type_text(ctx, type), d, (long long)sum,
                                (long long)block);
        if (i + 1 < dim->n_splits)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                                "%s is %s: dim %u is split further under uneven sizes", what,
                                ds_ops__type_text(ctx, type), d);
    }
    return DS_OK;
}

ds_status ds_op_check_type(const ds_infer *ctx, const ds_type *type, const char *what, ds_loc loc,
                           ds_error *err) {
    DS_TRY(axis_once(ctx, type, what, loc, err));
    if (!ctx->env) return DS_OK;
    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t size;
        DS_TRY(ds_expr_eval_int(ctx->env, type->dims[d].size, loc, &size, err));
        if (size < (ctx->may_be_empty ? 0 : 1))
            return ds_error_set(err, DS_ERR_SHAPE, loc, "%s is %s: dim %u has size %s", what,
                                ds_ops__type_text(ctx, type), d,
                                ds_ops__expr_text(ctx, type->dims[d].size));
        DS_TRY(divides(ctx, type, d, what, loc, size, err));
    }
    return DS_OK;
}
