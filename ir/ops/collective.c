/* Collectives in which every member ends with a result: all_reduce, all_gather, reduce_scatter,
 * all_to_all; and what all collectives share. What each does is in OPS.generated.md, Communication.
 *
 *   form      operands                     results
 *   over      global types, any number     one each: the sharding changes, the shape does not
 *   manual    shard types in a local       one each: the sharding does not change, the shape does
 *   group     local types, per-rank        as manual
 *   across    one a device or mesh slice   one each, where its operand is; a slice's types stay
 *                                          split and partial over the slice's own axes */
#include "ir/ops/collective.h"

#include <stdio.h>
#include <string.h>

/* ---- clauses ---- */

static ds_status read_dim(const ds_coll *c, ds_expr e, uint32_t *out, ds_error *err) {
    const ds_infer *ctx = c->ctx;
    int64_t dim = 0;
    bool known;
    DS_TRY(ds_ops__int(&ctx->unit->exprs, NULL, e, ctx->op->loc, &dim, &known, err));
    if (!known)
        return ds_error_set(err, DS_ERR_TYPE, ctx->op->loc, "%s: 'dim' must be a literal integer",
                            c->name);
    for (uint32_t i = 0; i < ctx->op->n_in; i++)
        if (dim < 0 || dim >= ctx->in[i]->rank)
            return ds_error_set(err, DS_ERR_VALUE, ctx->op->in[i].loc,
                                "%s: there is no dim %lld in operand %u (%s)", c->name,
                                (long long)dim, i, ds_ops__type_text(ctx, ctx->in[i]));
    *out = (uint32_t)dim;
    return DS_OK;
}

static ds_status clause(const ds_coll *c, bool wanted, bool given, const char *example,
                        ds_error *err) {
    if (wanted == given) return DS_OK;
    return ds_error_set(err, DS_ERR_TYPE, c->ctx->op->loc, "%s %s '%s'", c->name,
                        wanted ? "needs a clause such as" : "takes no clause such as", example);
}

static ds_status read_dims(ds_coll *c, unsigned wants, ds_error *err) {
    const ds_op *op = c->ctx->op;
    bool to = wants & DS_COLL_DIM_TO;
    DS_TRY(clause(c, wants & DS_COLL_DIM, DS_HAS_EXPR(op->dim), to ? "dim 1 -> 0" : "dim 1", err));
    DS_TRY(clause(c, to, DS_HAS_EXPR(op->dim_to), "dim 1 -> 0", err));
    if (wants & DS_COLL_DIM) DS_TRY(read_dim(c, op->dim, &c->dim, err));
    if (to) DS_TRY(read_dim(c, op->dim_to, &c->dim_to, err));
    if (to && c->dim == c->dim_to)
        return ds_error_set(err, DS_ERR_VALUE, op->loc, "%s: dim %u -> %u names one dim twice",
                            c->name, c->dim, c->dim_to);
    return DS_OK;
}

/* over: axes distinct, all manual or none; the group's size if it is known. */
static ds_status read_over(ds_coll *c, ds_error *err) {
    const ds_infer *ctx = c->ctx;
    const ds_op *op = ctx->op;
    uint32_t n_manual = 0;
    c->n = 1;
    c->n_known = op->n_in > 0 && ctx->axis_size;
    for (uint32_t a = 0; a < op->n_over; a++) {
        n_manual += ds_ops__is_manual(ctx, op->over[a]);
        for (uint32_t b = 0; b < a; b++)
            if (op->over[a] == op->over[b])
                return ds_error_set(err, DS_ERR_SHARDING, op->loc, "%s over %s twice", c->name,
                                    op->over[a]);
        int64_t size = 0;
        if (c->n_known)
            c->n_known = ctx->axis_size(ctx->context, &ctx->in[0]->on, op->over[a], &size);
        if (c->n_known && (size < 1 || __builtin_mul_overflow(c->n, size, &c->n)))
            return ds_error_set(err, DS_ERR_VALUE, op->loc, "%s: axis %s has size %lld", c->name,
                                op->over[a], (long long)size);
    }
    if (n_manual != 0 && n_manual != op->n_over)
        return ds_error_set(err, DS_ERR_SHARDING, op->loc,
                            "%s: of the axes it goes over some are manual in the local region and "
                            "some are not; write two collectives",
                            c->name);
    c->form = n_manual ? DS_FORM_MANUAL : DS_FORM_OVER;
    return DS_OK;
}

ds_status ds_ops__coll(const ds_infer *ctx, unsigned wants, ds_coll *out, ds_error *err) {
    const ds_op *op = ctx->op;
    *out = (ds_coll){.ctx = ctx, .name = ds_op_name(op->code)};
    uint32_t forms = (op->n_over ? 1u : 0u) + (op->across ? 1u : 0u) + (op->has_group ? 1u : 0u);
    if (forms != 1)
        return ds_error_set(err, DS_ERR_TYPE, op->loc,
                            "%s needs one of 'over AXIS', 'across' and 'group (RANKS)'%s",
                            out->name, forms ? ", not several" : "");
    if (op->n_over) {
        DS_TRY(read_over(out, err));
    } else {
        out->form = op->across ? DS_FORM_ACROSS : DS_FORM_GROUP;
        out->n =
            op->across ? (wants & DS_COLL_TO && op->n_in == 1 ? op->n_to : op->n_in) : op->n_group;
        out->n_known = out->n > 0;
    }
    bool to = out->form == DS_FORM_ACROSS && (wants & DS_COLL_TO);
    DS_TRY(clause(out, to, op->n_to > 0, "to @box.gpu[0]", err));
    if (DS_HAS_EXPR(op->to_rank) || DS_HAS_EXPR(op->from_rank) || DS_HAS_EXPR(op->tag))
        return ds_error_set(err, DS_ERR_TYPE, op->loc, "%s: ranks and tags belong to send and recv",
                            out->name);
    return read_dims(out, wants, err);
}

ds_status ds_ops__same_count(const ds_coll *c, ds_error *err) {
    const ds_op *op = c->ctx->op;
    if (op->n_in == op->n_out) return DS_OK;
    return ds_error_set(err, DS_ERR_TYPE, op->loc, "%s of %u operand%s has as many results, not %u",
                        c->name, op->n_in, op->n_in == 1 ? "" : "s", op->n_out);
}

/* ---- across ---- */

const ds_mesh *ds_ops__mesh_of(const ds_infer *ctx, const ds_place *place) {
    if (place->kind != DS_PLACE_MESH || !ctx->func || !ctx->func->module) return NULL;
    for (uint32_t i = 0; i < ctx->func->n_mesh_params; i++)
        if (ctx->func->mesh_params[i] == place->name) return NULL;
    return ds_find_mesh(ctx->func->module, place->name);
}

bool ds_ops__is_fixed(const ds_place *place, const char *axis) {
    for (uint32_t i = 0; i < place->n_coords; i++)
        if (place->coords[i].axis == axis) return true;
    return false;
}

/* The axes of a slice, one after the other: those that are not fixed and not of size 1. */
typedef struct slice_axes {
    const ds_place *place;
    const ds_mesh *mesh; /* NULL: a single device */
    uint32_t at;
    const ds_mesh_axis *axis; /* the one in hand; NULL behind the last */
    bool is_one_unknown;      /* nothing says yet whether its size is 1 */
} slice_axes;

static ds_status next_axis(const ds_infer *ctx, slice_axes *s, ds_error *err) {
    for (s->axis = NULL; s->mesh && s->at < s->mesh->n_axes;) {
        const ds_mesh_axis *axis = &s->mesh->axes[s->at++];
        ds_tri one;
        if (ds_ops__is_fixed(s->place, axis->name)) continue;
        DS_TRY(ds_ops__equal(ctx, axis->size, ds_expr_int(&ctx->unit->exprs, 1), &one, err));
        if (one == DS_YES) continue;
        s->axis = axis;
        s->is_one_unknown = one == DS_UNKNOWN;
        return DS_OK;
    }
    s->is_one_unknown = false;
    return DS_OK;
}

/* "[dp = 2, tp = 4]", with numbers where they are known. */
static const char *shape_text(const ds_infer *ctx, const ds_place *place) {
    slice_axes s = {.place = place, .mesh = ds_ops__mesh_of(ctx, place)};
    const char *text = "[";
    while (next_axis(ctx, &s, NULL) == DS_OK && s.axis) {
        int64_t size;
        ds_expr e = s.axis->size;
        if (ctx->env && ds_expr_eval_int(ctx->env, e, ctx->op->loc, &size, NULL) == DS_OK)
            e = ds_expr_int(&ctx->unit->exprs, size);
        text = ds_arena_printf(&ctx->unit->arena, "%s%s%s = %s", text, text[1] ? ", " : "",
                               s.axis->name, ds_ops__expr_text(ctx, e));
    }
    return ds_arena_printf(&ctx->unit->arena, "%s]", text);
}

/* Are the places slices with the same axes in the same order, so that devices at one position hold
 * the same part? What depends on a mesh parameter is decided where the mesh is known. */
static ds_status same_axes(const ds_infer *ctx, const ds_place *a, const ds_place *b, ds_tri *out,
                           ds_error *err) {
    slice_axes x = {.place = a, .mesh = ds_ops__mesh_of(ctx, a)};
    slice_axes y = {.place = b, .mesh = ds_ops__mesh_of(ctx, b)};
    *out = DS_UNKNOWN;
    if ((!x.mesh && a->kind != DS_PLACE_DEVICE) || (!y.mesh && b->kind != DS_PLACE_DEVICE))
        return DS_OK;
    do {
        DS_TRY(next_axis(ctx, &x, err));
        DS_TRY(next_axis(ctx, &y, err));
        bool same = x.axis && y.axis && x.axis->name == y.axis->name;
        *out = !x.axis && !y.axis ? DS_YES : DS_NO;
        if (same) DS_TRY(ds_ops__equal(ctx, x.axis->size, y.axis->size, out, err));
        if (!same && (x.is_one_unknown || y.is_one_unknown)) *out = DS_UNKNOWN;
    } while (*out == DS_YES && x.axis);
    return DS_OK;
}

ds_status ds_ops__across_place(const ds_coll *c, const ds_place *on, ds_error *err) {
    const ds_infer *ctx = c->ctx;
    ds_place first = ds_ops__resolved_place(ctx, &ctx->in[0]->on);
    ds_place place = ds_ops__resolved_place(ctx, on);
    ds_tri same;
    DS_TRY(same_axes(ctx, &first, &place, &same, err));
    if (same != DS_NO) return DS_OK;
    ds_type bare = {.dtype = ctx->in[0]->dtype, .on = *on};
    const char *text = strstr(ds_ops__type_text(ctx, &bare), " on ");
    return ds_error_set(err, DS_ERR_SHARDING, ctx->op->loc,
                        "%s across: operand 0 (%s) is on a slice %s, but%s is a slice %s; the i-th "
                        "devices of all slices form a group, so their shapes must be equal",
                        c->name, ds_ops__type_text(ctx, ctx->in[0]), shape_text(ctx, &first),
                        text ? text + 3 : " another place", shape_text(ctx, &place));
}

static bool has_partial(const ds_type *type, const ds_partial *p) {
    for (uint32_t i = 0; i < type->n_partials; i++)
        if (type->partials[i].axis == p->axis && type->partials[i].reduction == p->reduction)
            return true;
    return false;
}

/* Devices at one position must hold the same part, or the same term. */
static ds_status same_sharding(const ds_coll *c, uint32_t i, ds_error *err) {
    const ds_infer *ctx = c->ctx;
    const ds_type *a = ctx->in[0], *b = ctx->in[i];
    bool same = a->n_partials == b->n_partials;
    for (uint32_t p = 0; p < a->n_partials && same; p++) same = has_partial(b, &a->partials[p]);
    for (uint32_t d = 0; d < a->rank && same; d++)
        DS_TRY(ds_ops__same_splits(ctx, &a->dims[d], &b->dims[d], &same, err));
    if (same) return DS_OK;
    return ds_error_set(err, DS_ERR_SHARDING, ctx->op->in[i].loc,
                        "%s across: operands 0 (%s) and %u (%s) must be split, and partial, alike",
                        c->name, ds_ops__type_text(ctx, a), i, ds_ops__type_text(ctx, b));
}

/* A dim that is gathered, cut or split anew lies whole on each device. */
static ds_status whole_dim(const ds_coll *c, uint32_t d, ds_error *err) {
    const ds_dim *dim = &c->ctx->in[0]->dims[d];
    if (!dim->n_splits) return DS_OK;
    return ds_error_set(err, DS_ERR_SHARDING, c->ctx->op->loc,
                        "%s across: dim %u of operand 0 (%s) is split over %s; what is moved "
                        "between slices must be whole in each of them",
                        c->name, d, ds_ops__type_text(c->ctx, c->ctx->in[0]),
                        ds_ops__axes_text(c->ctx, dim->splits, dim->n_splits));
}

/* What is partial may be reduced further, in the way in which it is partial. */
static ds_status same_terms(const ds_coll *c, ds_error *err) {
    const ds_op *op = c->ctx->op;
    const ds_type *type = c->ctx->in[0];
    if (op->code != DS_OP_ALL_REDUCE && op->code != DS_OP_REDUCE &&
        op->code != DS_OP_REDUCE_SCATTER)
        return DS_OK;
    const char *word = ds_ops__attr_text(op, &c->ctx->unit->exprs, "op");
    const char *does = word ? word : "sum";
    for (uint32_t p = 0; p < type->n_partials; p++) {
        const char *want = type->partials[p].reduction == DS_RED_MAX ? "max" : "sum";
        if (strcmp(does, want) != 0)
            return ds_error_set(err, DS_ERR_SHARDING, op->loc,
                                "%s across: operand 0 (%s) is a term of a %s, not of a %s", c->name,
                                ds_ops__type_text(c->ctx, type), want, does);
    }
    return DS_OK;
}

static ds_status own_place(const ds_coll *c, uint32_t i, ds_error *err) {
    const ds_infer *ctx = c->ctx;
    for (uint32_t j = 0; j < i; j++) {
        ds_tri same;
        DS_TRY(ds_ops__same_place(ctx, &ctx->in[j]->on, &ctx->in[i]->on, &same, err));
        if (same == DS_YES)
            return ds_error_set(err, DS_ERR_SHARDING, ctx->op->in[i].loc,
                                "%s across: operands %u (%s) and %u (%s) are on one device or "
                                "slice",
                                c->name, j, ds_ops__type_text(ctx, ctx->in[j]), i,
                                ds_ops__type_text(ctx, ctx->in[i]));
    }
    return ds_ops__across_place(c, &ctx->in[i]->on, err);
}

ds_status ds_ops__across_operands(const ds_coll *c, uint32_t free_dim, ds_error *err) {
    const ds_infer *ctx = c->ctx;
    for (uint32_t i = 0; i < ctx->op->n_in; i++) {
        const ds_type *type = ctx->in[i];
        ds_type like = *type;
        DS_TRY(own_place(c, i, err));
        if (free_dim < type->rank && type->rank == ctx->in[0]->rank) {
            like.dims = DS_NEW_N(&ctx->unit->arena, ds_dim, type->rank);
            memcpy(like.dims, type->dims, type->rank * sizeof *like.dims);
            like.dims[free_dim].size = ctx->in[0]->dims[free_dim].size;
        }
        DS_TRY(ds_ops__same_shape(ctx, ctx->in[0], &like, err));
        DS_TRY(same_sharding(c, i, err));
    }
    if (DS_HAS_EXPR(ctx->op->dim)) DS_TRY(whole_dim(c, c->dim, err));
    if (DS_HAS_EXPR(ctx->op->dim_to)) DS_TRY(whole_dim(c, c->dim_to, err));
    return same_terms(c, err);
}

/* ---- types ---- */

ds_type *ds_ops__copy(const ds_coll *c, uint32_t i) {
    return ds_type_copy(&c->ctx->unit->arena, c->ctx->in[i]);
}

ds_status ds_ops__set_out(const ds_coll *c, uint32_t i, ds_type *type, ds_error *err) {
    char what[64];
    snprintf(what, sizeof what, "%.40s: result %u", c->name, i);
    DS_TRY(ds_op_check_type(c->ctx, type, what, c->ctx->op->loc, err));
    c->ctx->out[i] = type;
    return DS_OK;
}

/* ---- shardings ---- */

static bool splits_over(const ds_type *type, const char *axis) {
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++)
            if (type->dims[d].splits[s].axis == axis) return true;
    return false;
}

/* The reduction an op asks for: its attribute, else that of the partial. */
static ds_status same_reduction(const ds_coll *c, uint32_t i, ds_reduction have, ds_error *err) {
    const ds_op *op = c->ctx->op;
    if (!ds_attr_find(op->attrs, op->n_attrs, "op")) return DS_OK;
    const char *word = ds_ops__attr_text(op, &c->ctx->unit->exprs, "op");
    const char *want = have == DS_RED_MAX ? "max" : "sum";
    if (strcmp(word, want) == 0) return DS_OK;
    return ds_error_set(err, DS_ERR_SHARDING, op->loc,
                        "%s: operand %u (%s) is a term of a %s, not of a %s", c->name, i,
                        ds_ops__type_text(c->ctx, c->ctx->in[i]), want, word);
}

ds_status ds_ops__drop_partials(const ds_coll *c, uint32_t i, ds_type *type, ds_error *err) {
    const ds_op *op = c->ctx->op;
    for (uint32_t a = 0; a < op->n_over; a++) {
        const char *axis = op->over[a];
        uint32_t p = 0;
        while (p < type->n_partials && type->partials[p].axis != axis) p++;
        if (p == type->n_partials)
            return ds_error_set(err, DS_ERR_SHARDING, op->in[i].loc,
                                "%s over %s: operand %u (%s) is not partial over %s%s%s", c->name,
                                axis, i, ds_ops__type_text(c->ctx, c->ctx->in[i]), axis,
                                splits_over(type, axis) ? "; it is split: use all_gather over "
                                                        : "",
                                splits_over(type, axis) ? axis : ", so there is nothing to sum");
        DS_TRY(same_reduction(c, i, type->partials[p].reduction, err));
        memmove(&type->partials[p], &type->partials[p + 1],
                (type->n_partials - p - 1) * sizeof *type->partials);
        type->n_partials--;
    }
    return DS_OK;
}

ds_status ds_ops__drop_splits(const ds_coll *c, uint32_t i, ds_type *type, uint32_t d,
                              ds_error *err) {
    const ds_op *op = c->ctx->op;
    ds_dim *dim = &type->dims[d];
    bool minor = dim->n_splits >= op->n_over;
    for (uint32_t a = 0; a < op->n_over && minor; a++)
        minor = dim->splits[dim->n_splits - op->n_over + a].axis == op->over[a];
    if (minor) {
        dim->n_splits -= op->n_over;
        return DS_OK;
    }
    bool has = false;
    for (uint32_t s = 0; s < dim->n_splits; s++) has |= dim->splits[s].axis == op->over[0];
    return ds_error_set(err, DS_ERR_SHARDING, op->in[i].loc,
                        "%s over %s: dim %u of operand %u (%s) %s", c->name, op->over[0], d, i,
                        ds_ops__type_text(c->ctx, c->ctx->in[i]),
                        has ? "is split over it, but not as the minor-most axes in this order; use "
                              "reshard"
                            : "is not split over it");
}

/* The split that is written for this axis of dim d of result i, with its uneven sizes. */
static const ds_split *written_split(const ds_coll *c, uint32_t i, uint32_t d, const char *axis) {
    const ds_type *written = c->ctx->out[i];
    if (!written || d >= written->rank) return NULL;
    for (uint32_t s = 0; s < written->dims[d].n_splits; s++)
        if (written->dims[d].splits[s].axis == axis) return &written->dims[d].splits[s];
    return NULL;
}

ds_status ds_ops__add_splits(const ds_coll *c, uint32_t i, ds_type *type, uint32_t d,
                             ds_error *err) {
    (void)err; /* an axis used twice is found by the result's check */
    const ds_op *op = c->ctx->op;
    ds_dim *dim = &type->dims[d];
    ds_split *splits = DS_NEW_N(&c->ctx->unit->arena, ds_split, dim->n_splits + op->n_over);
    for (uint32_t s = 0; s < dim->n_splits; s++) splits[s] = dim->splits[s];
    for (uint32_t a = 0; a < op->n_over; a++) {
        const ds_split *written = written_split(c, i, d, op->over[a]);
        splits[dim->n_splits++] = written ? *written : (ds_split){.axis = op->over[a]};
    }
    dim->splits = splits;
    return DS_OK;
}

static ds_status take_written(const ds_coll *c, uint32_t i, ds_type *type, uint32_t d,
                              ds_error *err) {
    const ds_type *written = c->ctx->out[i];
    if (!written || written->rank != type->rank)
        return ds_error_set(err, DS_ERR_TYPE, c->ctx->op->loc,
                            "%s: the size of the group is not known here; write the result type",
                            c->name);
    type->dims[d].size = written->dims[d].size;
    return DS_OK;
}

ds_status ds_ops__grow(const ds_coll *c, uint32_t i, ds_type *type, uint32_t d, ds_error *err) {
    if (!c->n_known) return take_written(c, i, type, d, err);
    ds_exprs *exprs = &c->ctx->unit->exprs;
    type->dims[d].size =
        ds_expr_fold(exprs, DS_EXPR_MUL, type->dims[d].size, ds_expr_int(exprs, c->n));
    return DS_OK;
}

ds_status ds_ops__shrink(const ds_coll *c, uint32_t i, ds_type *type, uint32_t d, ds_error *err) {
    if (!c->n_known) return take_written(c, i, type, d, err);
    ds_exprs *exprs = &c->ctx->unit->exprs;
    ds_expr n = ds_expr_int(exprs, c->n), size = type->dims[d].size;
    ds_expr part = ds_expr_fold(exprs, DS_EXPR_DIV, size, n);
    ds_tri same;
    DS_TRY(ds_ops__equal(c->ctx, ds_expr_fold(exprs, DS_EXPR_MUL, part, n), size, &same, err));
    if (same == DS_NO)
        return ds_error_set(err, DS_ERR_SHAPE, c->ctx->op->loc,
                            "%s: dim %u of operand %u (%s) is %s, which %lld devices do not divide",
                            c->name, d, i, ds_ops__type_text(c->ctx, c->ctx->in[i]),
                            ds_ops__expr_text(c->ctx, size), (long long)c->n);
    type->dims[d].size = part;
    return DS_OK;
}

ds_expr ds_ops__sum_of_dims(const ds_coll *c, uint32_t d) {
    ds_expr sum = c->ctx->in[0]->dims[d].size;
    for (uint32_t i = 1; i < c->ctx->op->n_in; i++)
        sum = ds_expr_fold(&c->ctx->unit->exprs, DS_EXPR_ADD, sum, c->ctx->in[i]->dims[d].size);
    return sum;
}

/* ---- the ops ---- */

ds_status ds_ops__all_reduce_infer(const ds_infer *ctx, ds_error *err) {
    ds_coll c;
    DS_TRY(ds_ops__coll(ctx, 0, &c, err));
    DS_TRY(ds_ops__same_count(&c, err));
    if (c.form == DS_FORM_ACROSS)
        DS_TRY(ds_ops__across_operands(&c, DS_MAX_RANK, err));
    else
        DS_TRY(ds_ops__one_place(ctx, err));
    for (uint32_t i = 0; i < ctx->op->n_in; i++) {
        ds_type *type = ds_ops__copy(&c, i);
        if (c.form == DS_FORM_OVER) DS_TRY(ds_ops__drop_partials(&c, i, type, err));
        DS_TRY(ds_ops__set_out(&c, i, type, err));
    }
    return DS_OK;
}

ds_status ds_ops__all_gather_infer(const ds_infer *ctx, ds_error *err) {
    ds_coll c;
    DS_TRY(ds_ops__coll(ctx, DS_COLL_DIM, &c, err));
    DS_TRY(ds_ops__same_count(&c, err));
    if (c.form == DS_FORM_ACROSS)
        DS_TRY(ds_ops__across_operands(&c, c.dim, err));
    else
        DS_TRY(ds_ops__one_place(ctx, err));
    for (uint32_t i = 0; i < ctx->op->n_in; i++) {
        ds_type *type = ds_ops__copy(&c, i);
        if (c.form == DS_FORM_OVER)
            DS_TRY(ds_ops__drop_splits(&c, i, type, c.dim, err));
        else if (c.form == DS_FORM_ACROSS)
            type->dims[c.dim].size = ds_ops__sum_of_dims(&c, c.dim);
        else
            DS_TRY(ds_ops__grow(&c, i, type, c.dim, err));
        DS_TRY(ds_ops__set_out(&c, i, type, err));
    }
    return DS_OK;
}

ds_status ds_ops__reduce_scatter_infer(const ds_infer *ctx, ds_error *err) {
    ds_coll c;
    DS_TRY(ds_ops__coll(ctx, DS_COLL_DIM, &c, err));
    DS_TRY(ds_ops__same_count(&c, err));
    if (c.form == DS_FORM_ACROSS)
        DS_TRY(ds_ops__across_operands(&c, DS_MAX_RANK, err));
    else
        DS_TRY(ds_ops__one_place(ctx, err));
    for (uint32_t i = 0; i < ctx->op->n_in; i++) {
        ds_type *type = ds_ops__copy(&c, i);
        if (c.form == DS_FORM_OVER) {
            DS_TRY(ds_ops__drop_partials(&c, i, type, err));
            DS_TRY(ds_ops__add_splits(&c, i, type, c.dim, err));
        } else {
            DS_TRY(ds_ops__shrink(&c, i, type, c.dim, err));
        }
        DS_TRY(ds_ops__set_out(&c, i, type, err));
    }
    return DS_OK;
}

ds_status ds_ops__all_to_all_infer(const ds_infer *ctx, ds_error *err) {
    ds_coll c;
    DS_TRY(ds_ops__coll(ctx, DS_COLL_DIM | DS_COLL_DIM_TO, &c, err));
    DS_TRY(ds_ops__same_count(&c, err));
    if (c.form == DS_FORM_ACROSS)
        DS_TRY(ds_ops__across_operands(&c, DS_MAX_RANK, err));
    else
        DS_TRY(ds_ops__one_place(ctx, err));
    for (uint32_t i = 0; i < ctx->op->n_in; i++) {
        ds_type *type = ds_ops__copy(&c, i);
        if (c.form == DS_FORM_OVER) {
            DS_TRY(ds_ops__drop_splits(&c, i, type, c.dim, err));
            DS_TRY(ds_ops__add_splits(&c, i, type, c.dim_to, err));
        } else {
            DS_TRY(ds_ops__grow(&c, i, type, c.dim, err));
            DS_TRY(ds_ops__shrink(&c, i, type, c.dim_to, err));
        }
        DS_TRY(ds_ops__set_out(&c, i, type, err));
    }
    return DS_OK;
}

/* Time is the network's business; bytes are those of operands and results on one device. */
ds_status ds_ops__collective_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                                  const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    work->kind = DS_WORK_NONE;
    return DS_OK;
}
