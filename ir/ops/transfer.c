/* Communication with a root or between places: broadcast, scatter, gather, reduce, send, recv,
 * permute, reshard. A root over a mesh axis is a place: @m{a=r} holds the value, @m is all of it.
 */
#include "ir/ops/collective.h"

#include <string.h>

static bool is_given(const ds_op *op, const char *name) {
    return ds_attr_find(op->attrs, op->n_attrs, name) != NULL;
}

/* Bucketed forms have a result per operand; across broadcast and scatter one per place. */
static ds_status count_results(const ds_coll *c, uint32_t n_in, uint32_t n_out, ds_error *err) {
    const ds_op *op = c->ctx->op;
    if ((n_in == 0 || op->n_in == n_in) && op->n_out == n_out) return DS_OK;
    return ds_error_set(err, DS_ERR_TYPE, op->loc,
                        "%s across: %u operand%s and %u result%s, but %s%u result%s belong here",
                        c->name, op->n_in, op->n_in == 1 ? "" : "s", op->n_out,
                        op->n_out == 1 ? "" : "s", n_in == 1 ? "1 operand and " : "", n_out,
                        n_out == 1 ? "" : "s");
}

/* @m{a=r} → @m. */
static ds_status drop_coords(const ds_coll *c, uint32_t i, ds_type *type, ds_error *err) {
    const ds_op *op = c->ctx->op;
    if (is_given(op, "root"))
        return ds_error_set(
            err, DS_ERR_VALUE, op->loc,
            "%s: the root over a mesh axis is where the operand lives; leave 'root' "
            "out",
            c->name);
    for (uint32_t a = 0; a < op->n_over; a++) {
        ds_place *on = &type->on;
        uint32_t k = 0;
        while (k < on->n_coords && on->coords[k].axis != op->over[a]) k++;
        if (on->kind != DS_PLACE_MESH || k == on->n_coords)
            return ds_error_set(err, DS_ERR_SHARDING, op->in[i].loc,
                                "%s over %s: operand %u (%s) must live at one coordinate of %s, as "
                                "on @m{%s=0}",
                                c->name, op->over[a], i, ds_ops__type_text(c->ctx, c->ctx->in[i]),
                                op->over[a], op->over[a]);
        memmove(&on->coords[k], &on->coords[k + 1], (on->n_coords - k - 1) * sizeof *on->coords);
        on->n_coords--;
    }
    return DS_OK;
}

/* @m → @m{a=r}. */
static ds_status add_coords(const ds_coll *c, uint32_t i, ds_type *type, ds_error *err) {
    const ds_infer *ctx = c->ctx;
    const ds_op *op = ctx->op;
    ds_place on = ds_ops__resolved_place(ctx, &type->on);
    if (on.kind != DS_PLACE_MESH)
        return ds_error_set(err, DS_ERR_SHARDING, op->in[i].loc,
                            "%s over %s: operand %u (%s) must name its mesh, as on @m, since the "
                            "result is at one of its coordinates",
                            c->name, op->over[0], i, ds_ops__type_text(ctx, ctx->in[i]));
    ds_coord *coords = DS_NEW_N(&ctx->unit->arena, ds_coord, on.n_coords + op->n_over);
    for (uint32_t k = 0; k < on.n_coords; k++) coords[k] = on.coords[k];
    on.coords = coords;
    for (uint32_t a = 0; a < op->n_over; a++) {
        ds_expr root = ds_ops__attr_item(&ctx->unit->exprs, op, "root", a);
        int64_t at = 0, size = 0;
        bool known;
        if (!DS_HAS_EXPR(root)) root = ds_expr_int(&ctx->unit->exprs, 0);
        DS_TRY(ds_ops__int(&ctx->unit->exprs, ctx->env, root, op->loc, &at, &known, err));
        bool has_size =
            ctx->axis_size && ctx->axis_size(ctx->context, &type->on, op->over[a], &size);
        if (known && (at < 0 || (has_size && at >= size)))
            return ds_error_set(err, DS_ERR_VALUE, op->loc,
                                "%s: root %lld is no coordinate of axis %s", c->name, (long long)at,
                                op->over[a]);
        on.coords[on.n_coords++] = (ds_coord){op->over[a], root};
    }
    type->on = on;
    return DS_OK;
}

static ds_status group_root(const ds_coll *c, ds_error *err) {
    int64_t root = 0;
    bool known;
    const ds_infer *ctx = c->ctx;
    ds_expr e = ds_ops__attr_item(&ctx->unit->exprs, ctx->op, "root", 0);
    if (!DS_HAS_EXPR(e)) return DS_OK;
    DS_TRY(ds_ops__int(&ctx->unit->exprs, ctx->env, e, ctx->op->loc, &root, &known, err));
    if (!known || (root >= 0 && (!c->n_known || root < c->n))) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, ctx->op->loc,
                        "%s: root %lld is no member of a group of %lld", c->name, (long long)root,
                        (long long)c->n);
}

/* across, one operand to many places: type with dim d shrunk where the op scatters. */
static ds_status one_to_many(const ds_coll *c, bool scatter, ds_error *err) {
    const ds_op *op = c->ctx->op;
    DS_TRY(count_results(c, 1, op->n_to, err));
    DS_TRY(ds_ops__across_operands(c, DS_MAX_RANK, err));
    for (uint32_t i = 0; i < op->n_to; i++) {
        for (uint32_t j = 0; j < i; j++) {
            ds_tri same;
            DS_TRY(ds_ops__same_place(c->ctx, &op->to[i], &op->to[j], &same, err));
            if (same == DS_YES)
                return ds_error_set(err, DS_ERR_SHARDING, op->loc,
                                    "%s: places %u and %u after 'to' are the same", c->name, j, i);
        }
        DS_TRY(ds_ops__across_place(c, &op->to[i], err));
        ds_type *type = ds_ops__copy(c, 0);
        if (scatter) DS_TRY(ds_ops__shrink(c, 0, type, c->dim, err));
        type->on = op->to[i];
        DS_TRY(ds_ops__set_out(c, i, type, err));
    }
    return DS_OK;
}

/* across, many operands to one place. */
static ds_status many_to_one(const ds_coll *c, bool gather, ds_error *err) {
    const ds_op *op = c->ctx->op;
    if (op->n_to != 1)
        return ds_error_set(err, DS_ERR_TYPE, op->loc, "%s across goes to one place, not %u",
                            c->name, op->n_to);
    DS_TRY(count_results(c, 0, 1, err));
    DS_TRY(ds_ops__across_operands(c, gather ? c->dim : DS_MAX_RANK, err));
    DS_TRY(ds_ops__across_place(c, &op->to[0], err));
    ds_type *type = ds_ops__copy(c, 0);
    if (gather) type->dims[c->dim].size = ds_ops__sum_of_dims(c, c->dim);
    type->on = op->to[0];
    return ds_ops__set_out(c, 0, type, err);
}

ds_status ds_ops__broadcast_infer(const ds_infer *ctx, ds_error *err) {
    ds_coll c;
    DS_TRY(ds_ops__coll(ctx, DS_COLL_TO, &c, err));
    if (c.form == DS_FORM_ACROSS) return one_to_many(&c, false, err);
    DS_TRY(ds_ops__same_count(&c, err));
    DS_TRY(ds_ops__one_place(ctx, err));
    for (uint32_t i = 0; i < ctx->op->n_in; i++) {
        ds_type *type = ds_ops__copy(&c, i);
        DS_TRY(c.form == DS_FORM_OVER ? drop_coords(&c, i, type, err) : group_root(&c, err));
        DS_TRY(ds_ops__set_out(&c, i, type, err));
    }
    return DS_OK;
}

ds_status ds_ops__scatter_infer(const ds_infer *ctx, ds_error *err) {
    ds_coll c;
    DS_TRY(ds_ops__coll(ctx, DS_COLL_DIM | DS_COLL_TO, &c, err));
    if (c.form == DS_FORM_ACROSS) return one_to_many(&c, true, err);
    DS_TRY(ds_ops__same_count(&c, err));
    DS_TRY(ds_ops__one_place(ctx, err));
    for (uint32_t i = 0; i < ctx->op->n_in; i++) {
        ds_type *type = ds_ops__copy(&c, i);
        if (c.form == DS_FORM_OVER) {
            DS_TRY(drop_coords(&c, i, type, err));
            DS_TRY(ds_ops__add_splits(&c, i, type, c.dim, err));
        } else {
            DS_TRY(group_root(&c, err));
            DS_TRY(ds_ops__shrink(&c, i, type, c.dim, err));
        }
        DS_TRY(ds_ops__set_out(&c, i, type, err));
    }
    return DS_OK;
}

ds_status ds_ops__gather_infer(const ds_infer *ctx, ds_error *err) {
    ds_coll c;
    DS_TRY(ds_ops__coll(ctx, DS_COLL_DIM | DS_COLL_TO, &c, err));
    if (c.form == DS_FORM_ACROSS) return many_to_one(&c, true, err);
    DS_TRY(ds_ops__same_count(&c, err));
    DS_TRY(ds_ops__one_place(ctx, err));
    for (uint32_t i = 0; i < ctx->op->n_in; i++) {
        ds_type *type = ds_ops__copy(&c, i);
        if (c.form == DS_FORM_OVER) {
            DS_TRY(ds_ops__drop_splits(&c, i, type, c.dim, err));
            DS_TRY(add_coords(&c, i, type, err));
        } else {
            DS_TRY(group_root(&c, err));
            DS_TRY(ds_ops__grow(&c, i, type, c.dim, err));
        }
        DS_TRY(ds_ops__set_out(&c, i, type, err));
    }
    return DS_OK;
}

ds_status ds_ops__reduce_infer(const ds_infer *ctx, ds_error *err) {
    ds_coll c;
    DS_TRY(ds_ops__coll(ctx, DS_COLL_TO, &c, err));
    if (c.form == DS_FORM_ACROSS) return many_to_one(&c, false, err);
    DS_TRY(ds_ops__same_count(&c, err));
    DS_TRY(ds_ops__one_place(ctx, err));
    for (uint32_t i = 0; i < ctx->op->n_in; i++) {
        ds_type *type = ds_ops__copy(&c, i);
        if (c.form == DS_FORM_OVER) {
            DS_TRY(ds_ops__drop_partials(&c, i, type, err));
            DS_TRY(add_coords(&c, i, type, err));
        } else {
            DS_TRY(group_root(&c, err));
        }
        DS_TRY(ds_ops__set_out(&c, i, type, err));
    }
    return DS_OK;
}

ds_status ds_ops__permute_infer(const ds_infer *ctx, ds_error *err) {
    ds_coll c;
    DS_TRY(ds_ops__coll(ctx, 0, &c, err));
    DS_TRY(ds_ops__same_count(&c, err));
    if (c.form == DS_FORM_ACROSS)
        DS_TRY(ds_ops__across_operands(&c, DS_MAX_RANK, err));
    else
        DS_TRY(ds_ops__one_place(ctx, err));
    for (uint32_t i = 0; i < ctx->op->n_in; i++)
        DS_TRY(ds_ops__set_out(&c, i, ds_ops__copy(&c, i), err));
    return DS_OK;
}

/* ---- send, recv, reshard ---- */

static ds_status only_clauses(const ds_infer *ctx, bool to, bool ranks, const char *usage,
                              ds_error *err) {
    const ds_op *op = ctx->op;
    bool has_ranks = DS_HAS_EXPR(op->to_rank) || DS_HAS_EXPR(op->from_rank) || DS_HAS_EXPR(op->tag);
    if (!op->n_over && !op->across && !op->has_group && !DS_HAS_EXPR(op->dim) &&
        (to || !op->n_to) && (ranks || !has_ranks))
        return DS_OK;
    return ds_error_set(err, DS_ERR_TYPE, op->loc, "%s is written %s", ds_op_name(op->code), usage);
}

static const char send_usage[] =
    "'%y = send(%x) to PLACE', or 'send(%x) to RANK tag N' in a per-rank program";

static const ds_mesh_axis *free_axis(const ds_mesh *mesh, const ds_place *place, const char *axis) {
    if (ds_ops__is_fixed(place, axis)) return NULL;
    for (uint32_t i = 0; i < mesh->n_axes; i++)
        if (mesh->axes[i].name == axis) return &mesh->axes[i];
    return NULL;
}

static ds_status wrong_slice(const ds_infer *ctx, const char *axis, ds_error *err) {
    return ds_error_set(err, DS_ERR_SHARDING, ctx->op->loc,
                        "send: axis %s is not the same on the place of %s and on the place it is "
                        "sent to; use reshard",
                        axis, ds_ops__type_text(ctx, ctx->in[0]));
}

/* Every free axis of one place is a free axis of the other and as large. */
static ds_status axes_within(const ds_infer *ctx, const ds_place *a, const ds_place *b,
                             ds_error *err) {
    const ds_mesh *from = ds_ops__mesh_of(ctx, a), *to = ds_ops__mesh_of(ctx, b);
    if (!from || !to) return DS_OK;
    for (uint32_t i = 0; i < from->n_axes; i++) {
        const char *axis = from->axes[i].name;
        if (ds_ops__is_fixed(a, axis)) continue;
        const ds_mesh_axis *other = free_axis(to, b, axis);
        ds_tri same = DS_YES;
        if (!other) {
            /* An axis of size 1 need not be there. */
            DS_TRY(ds_ops__equal(ctx, from->axes[i].size, ds_expr_int(&ctx->unit->exprs, 1), &same,
                                 err));
            if (same == DS_NO) return wrong_slice(ctx, axis, err);
            continue;
        }
        DS_TRY(ds_ops__equal(ctx, from->axes[i].size, other->size, &same, err));
        if (same == DS_NO) return wrong_slice(ctx, axis, err);
    }
    return DS_OK;
}

/* A sharding needs its axes on the target too. */
static ds_status sharding_fits(const ds_infer *ctx, const ds_type *type, const ds_place *to,
                               ds_error *err) {
    for (uint32_t d = 0; d <= type->rank; d++) {
        uint32_t n = d < type->rank ? type->dims[d].n_splits : type->n_partials;
        for (uint32_t s = 0; s < n; s++) {
            const char *axis =
                d < type->rank ? type->dims[d].splits[s].axis : type->partials[s].axis;
            if (to->kind == DS_PLACE_DEVICE || ds_ops__is_fixed(to, axis))
                return wrong_slice(ctx, axis, err);
        }
    }
    return DS_OK;
}

ds_status ds_ops__send_infer(const ds_infer *ctx, ds_error *err) {
    const ds_op *op = ctx->op;
    DS_TRY(only_clauses(ctx, true, true, send_usage, err));
    bool per_rank = DS_HAS_EXPR(op->to_rank);
    if (DS_HAS_EXPR(op->from_rank) || op->n_to + per_rank != 1 ||
        (DS_HAS_EXPR(op->tag) && !per_rank))
        return ds_error_set(err, DS_ERR_TYPE, op->loc, "send is written %s", send_usage);
    if (op->n_out != (per_rank ? 0 : 1))
        return ds_error_set(err, DS_ERR_TYPE, op->loc, "send to a %s has %s result, not %u",
                            per_rank ? "rank" : "place", per_rank ? "no" : "one", op->n_out);
    if (per_rank) return DS_OK;
    ds_place to = ds_ops__resolved_place(ctx, &op->to[0]);
    ds_place from = ds_ops__resolved_place(ctx, &ctx->in[0]->on);
    DS_TRY(sharding_fits(ctx, ctx->in[0], &to, err));
    DS_TRY(axes_within(ctx, &from, &to, err));
    DS_TRY(axes_within(ctx, &to, &from, err));
    ds_type *type = ds_type_copy(&ctx->unit->arena, ctx->in[0]);
    type->on = op->to[0];
    DS_TRY(ds_op_check_type(ctx, type, "send: the result", op->loc, err));
    ctx->out[0] = type;
    return DS_OK;
}

ds_status ds_ops__recv_infer(const ds_infer *ctx, ds_error *err) {
    const ds_op *op = ctx->op;
    static const char usage[] = "'%x = recv tag N from RANK : TYPE', in a per-rank program";
    DS_TRY(only_clauses(ctx, false, true, usage, err));
    if (!DS_HAS_EXPR(op->from_rank) || DS_HAS_EXPR(op->to_rank) || !ctx->out[0])
        return ds_error_set(err, DS_ERR_TYPE, op->loc, "recv is written %s", usage);
    return ds_op_check_type(ctx, ctx->out[0], "the written type", op->loc, err);
}

ds_status ds_ops__reshard_infer(const ds_infer *ctx, ds_error *err) {
    const ds_op *op = ctx->op;
    static const char usage[] = "'%y = reshard(%x) : TYPE'; the result type says the new sharding";
    DS_TRY(only_clauses(ctx, false, false, usage, err));
    const ds_type *in = ctx->in[0], *out = ctx->out[0];
    if (!out) return ds_error_set(err, DS_ERR_TYPE, op->loc, "reshard is written %s", usage);
    DS_TRY(ds_ops__same_shape(ctx, in, out, err));
    for (uint32_t i = 0; i < out->n_partials; i++) {
        uint32_t j = 0;
        while (j < in->n_partials && (in->partials[j].axis != out->partials[i].axis ||
                                      in->partials[j].reduction != out->partials[i].reduction))
            j++;
        if (j == in->n_partials)
            return ds_error_set(err, DS_ERR_SHARDING, op->loc,
                                "reshard: the result %s is partial over %s, but the operand %s is "
                                "not",
                                ds_ops__type_text(ctx, out), out->partials[i].axis,
                                ds_ops__type_text(ctx, in));
    }
    return ds_op_check_type(ctx, out, "the written type", op->loc, err);
}
