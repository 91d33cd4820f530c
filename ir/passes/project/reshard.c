/* reshard as a list of steps: terms are summed, splits that the result lacks are gathered (or move
 * to another dim, by all_to_all), the remaining splits are cut out of the rank's part. Between
 * meshes a value is made whole on its own mesh, and sent to the devices that lack it. The reshard's
 * hints (`algorithm`, `balance`) do not apply to its steps, and are left out (op.c). */
#include "ir/passes/project/internal.h"

#include <string.h>

#define MAX_AXES DS_EXEC_MAX_AXES

typedef struct axis_list {
    const char *at[MAX_AXES];
    uint32_t n;
} axis_list;

/* The value after the steps so far, as this rank holds it. */
typedef struct moving {
    ds_projector *p;
    ds_pj_frame *f;
    const ds_op *from;
    const char *name;
    const ds_exec_place *place;
    uint32_t position;
    ds_type type; /* the source's type, without the splits and partials undone so far */
    ds_use use;
} moving;

/* ---- steps ---- */

static ds_status local_type(const moving *m, ds_type **out, ds_error *err) {
    ds_pj_box box;
    DS_TRY(ds_project__box(m->p, m->f, &m->type, (ds_pj_member){m->place, m->position},
                           m->from->loc, &box, err));
    *out = ds_project__type_of_box(m->p, &box);
    return DS_OK;
}

static bool has_uneven(const ds_dim *dim, const axis_list *axes) {
    for (uint32_t s = 0; s < dim->n_splits; s++)
        for (uint32_t a = 0; a < axes->n; a++)
            if (dim->splits[s].axis == axes->at[a] && dim->splits[s].n_sizes) return true;
    return false;
}

/* Puts one collective over the axes; m->type is already the result's type. */
static ds_status collective(moving *m, ds_opcode code, const axis_list *axes, int dim, int dim_to,
                            bool max, ds_error *err) {
    ds_projector *p = m->p;
    ds_expr *ranks;
    uint32_t n;
    ds_op *op;
    ds_type *type;
    DS_TRY(ds_project__group(p, (ds_pj_member){m->place, m->position}, axes->at, axes->n, &ranks,
                             &n, err));
    if (n == 1) return DS_OK;
    DS_TRY(ds_project__new_op(p, m->f, m->from, code, &op, err));
    ds_project__drop_attr(op, "name");
    op->has_group = true;
    op->group = ranks;
    op->n_group = n;
    if (dim >= 0) op->dim = ds_project__number(p, dim);
    if (dim_to >= 0) op->dim_to = ds_project__number(p, dim_to);
    if (max) ds_build_attr_word(&p->b, op, "op", "max");
    ds_build_in(&p->b, op, m->use);
    DS_TRY(local_type(m, &type, err));
    m->use = ds_use_of(ds_build_out(&p->b, op, m->name, type));
    return ds_build_put(&p->b, op, err);
}

/* Sums the operand's terms over axes on which the result has no terms. */
static ds_status sum_up(moving *m, const ds_type *to, ds_error *err) {
    for (int max = 0; max < 2; max++) {
        axis_list axes = {0};
        ds_partial *kept = DS_NEW_N(&m->p->unit->arena, ds_partial, m->type.n_partials + 1);
        uint32_t n_kept = 0;
        for (uint32_t i = 0; i < m->type.n_partials; i++) {
            const ds_partial *partial = &m->type.partials[i];
            bool stays = (partial->reduction == DS_RED_MAX) != (max != 0);
            for (uint32_t k = 0; k < to->n_partials; k++)
                stays = stays || to->partials[k].axis == partial->axis;
            if (stays || axes.n == MAX_AXES)
                kept[n_kept++] = *partial;
            else
                axes.at[axes.n++] = partial->axis;
        }
        m->type.partials = kept;
        m->type.n_partials = n_kept;
        if (axes.n) DS_TRY(collective(m, DS_OP_ALL_REDUCE, &axes, -1, -1, max, err));
    }
    return DS_OK;
}

static bool same_split(const ds_split *a, const ds_split *b) {
    if (a->axis != b->axis || a->n_sizes != b->n_sizes) return false;
    for (uint32_t i = 0; i < a->n_sizes; i++)
        if (a->sizes[i].i != b->sizes[i].i) return false;
    return true;
}

/* The number of major splits that both dims have. */
static uint32_t common(const ds_dim *a, const ds_dim *b) {
    uint32_t n = 0;
    while (n < a->n_splits && n < b->n_splits && same_split(&a->splits[n], &b->splits[n])) n++;
    return n;
}

static ds_status gather(moving *m, uint32_t d, uint32_t keep, ds_error *err) {
    ds_dim *dim = &m->type.dims[d];
    axis_list axes = {0};
    for (uint32_t s = keep; s < dim->n_splits && axes.n < MAX_AXES; s++)
        axes.at[axes.n++] = dim->splits[s].axis;
    if (!axes.n) return DS_OK;
    if (has_uneven(dim, &axes))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, m->from->loc,
                            "this reshard gathers unequal shards: in a group of ranks all members "
                            "hold as much");
    dim->n_splits = keep;
    return collective(m, DS_OP_ALL_GATHER, &axes, (int)d, -1, false, err);
}

/* Does one dim lose the splits that one other dim gains, over the same axes in the same order? */
static bool moves_split(const moving *m, const ds_type *to, uint32_t *from_dim, uint32_t *to_dim) {
    uint32_t n_from = 0, n_to = 0;
    for (uint32_t d = 0; d < to->rank; d++) {
        uint32_t n = common(&m->type.dims[d], &to->dims[d]);
        if (n < m->type.dims[d].n_splits) *from_dim = d, n_from++;
        if (n < to->dims[d].n_splits) *to_dim = d, n_to++;
    }
    if (n_from != 1 || n_to != 1 || *from_dim == *to_dim) return false;
    const ds_dim *a = &m->type.dims[*from_dim], *b = &to->dims[*to_dim];
    uint32_t i = common(a, &to->dims[*from_dim]), k = common(&m->type.dims[*to_dim], b);
    if (a->n_splits - i != b->n_splits - k) return false;
    for (; i < a->n_splits; i++, k++)
        if (a->splits[i].axis != b->splits[k].axis || a->splits[i].n_sizes || b->splits[k].n_sizes)
            return false;
    return true;
}

static ds_status move_split(moving *m, const ds_type *to, uint32_t from_dim, uint32_t to_dim,
                            ds_error *err) {
    axis_list axes = {0};
    const ds_dim *target = &to->dims[to_dim];
    for (uint32_t s = common(&m->type.dims[to_dim], target); s < target->n_splits; s++)
        if (axes.n < MAX_AXES) axes.at[axes.n++] = target->splits[s].axis;
    m->type.dims[from_dim] = to->dims[from_dim];
    m->type.dims[to_dim] = *target;
    return collective(m, DS_OP_ALL_TO_ALL, &axes, (int)from_dim, (int)to_dim, false, err);
}

/* ---- cutting ---- */

/* Cuts the wanted box out of the box that the rank has. */
static ds_status cut(moving *m, const ds_pj_box *have, const ds_pj_box *want, ds_error *err) {
    ds_projector *p = m->p;
    ds_pj_box now = *have;
    for (uint32_t d = 0; d < have->rank; d++) {
        if (have->size[d].i == want->size[d].i) continue;
        ds_op *op = ds_build_op(&p->b, DS_OP_SLICE);
        ds_expr lo = ds_project__fold(p, DS_EXPR_SUB, want->lo[d], have->lo[d]);
        ds_expr hi = ds_project__fold(p, DS_EXPR_ADD, lo, want->size[d]);
        ds_build_attr_int(&p->b, op, "dim", d);
        ds_build_attr_expr(&p->b, op, "lo", lo);
        ds_build_attr_expr(&p->b, op, "hi", hi);
        ds_build_in(&p->b, op, m->use);
        now.size[d] = want->size[d];
        m->use = ds_use_of(ds_build_out(&p->b, op, m->name, ds_project__type_of_box(p, &now)));
        DS_TRY(ds_build_put(&p->b, op, err));
    }
    return DS_OK;
}

/* Does every device of `to` already hold its part? Boxes that depend on a kept loop's index have no
 * numbers, and agree only if their expressions are equal. */
static ds_status holds_all(const moving *m, const ds_type *to, const ds_exec_place *place,
                           bool *out, ds_error *err) {
    ds_projector *p = m->p;
    *out = m->type.n_partials == to->n_partials && (!to->n_partials || place == m->place);
    for (uint32_t q = 0; q < place->n_devices && *out; q++) {
        uint32_t at = place == m->place ? q : ds_exec_position(m->place, place->devices[q]);
        ds_pj_box have, want;
        *out = at != UINT32_MAX;
        if (!*out) return DS_OK;
        DS_TRY(ds_project__box(p, m->f, &m->type, (ds_pj_member){m->place, at}, m->from->loc, &have,
                               err));
        DS_TRY(ds_project__box(p, m->f, to, (ds_pj_member){place, q}, m->from->loc, &want, err));
        for (uint32_t d = 0; d < to->rank && *out; d++) {
            if (have.size[d].i == want.size[d].i && have.lo[d].i == want.lo[d].i) continue;
            if (have.size[d].i == have.full[d].i) continue;
            int64_t a, x, b, y;
            const ds_exprs *exprs = &p->unit->exprs;
            *out = ds_expr_is_int(exprs, have.lo[d], &a) && ds_expr_is_int(exprs, want.lo[d], &b) &&
                   ds_expr_is_int(exprs, have.size[d], &x) &&
                   ds_expr_is_int(exprs, want.size[d], &y) && a <= b && b + y <= a + x;
        }
    }
    return DS_OK;
}

/* ---- between meshes ---- */

/* Sends the operand, which is whole on every device of its place, to the devices of `to` outside of
 * this place. */
static ds_status deliver(moving *m, const ds_exec_place *to, const char *name, ds_error *err) {
    ds_projector *p = m->p;
    for (uint32_t q = 0; q < to->n_devices; q++) {
        uint64_t source = m->place->devices[q % m->place->n_devices];
        if (ds_exec_position(m->place, to->devices[q]) != UINT32_MAX) continue;
        if (source == p->device)
            DS_TRY(ds_project__send(p, m->f, m->from, m->use,
                                    ds_project__rank_of(p, to->devices[q]), err));
        if (to->devices[q] != p->device) continue;
        ds_pj_box box; /* whole */
        DS_TRY(ds_project__box(p, m->f, &m->type, (ds_pj_member){m->place, 0}, m->from->loc, &box,
                               err));
        ds_pj_arrival what = {ds_project__rank_of(p, source), name,
                              ds_project__type_of_box(p, &box)};
        DS_TRY(ds_project__recv(p, m->f, m->from, what, &m->use, err));
    }
    return DS_OK;
}

static ds_status make_whole(moving *m, const ds_type *to, bool other_place, ds_error *err) {
    if (other_place && to->n_partials)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, m->from->loc,
                            "reshard: terms of a sum stay terms on another mesh; sum them first");
    if (m->position == UINT32_MAX) { /* the rank is not on the operand's place */
        m->type.n_partials = 0;
        for (uint32_t d = 0; d < to->rank; d++) m->type.dims[d].n_splits = 0;
        return DS_OK;
    }
    DS_TRY(sum_up(m, to, err));
    uint32_t a = 0, b = 0;
    if (!other_place && moves_split(m, to, &a, &b)) return move_split(m, to, a, b, err);
    for (uint32_t d = 0; d < to->rank; d++)
        DS_TRY(gather(m, d, other_place ? 0 : common(&m->type.dims[d], &to->dims[d]), err));
    return DS_OK;
}

ds_status ds_project__reshard(ds_projector *p, ds_pj_frame *f, const ds_op *op, ds_error *err) {
    const ds_value_info *info = ds_value_at(f->scope.func, op->out[0]);
    const ds_type *from = ds_project__use_type(p, f, &op->in[0]), *to = info->type;
    const ds_exec_place *place;
    uint32_t position;
    bool holds;
    ds_pj_box have, want;
    moving m = {.p = p, .f = f, .from = op, .name = info->name};
    m.type = *ds_type_copy(&p->unit->arena, from);
    DS_TRY(ds_project__position(p, f, from, op->loc, &m.place, &m.position, err));
    DS_TRY(ds_project__position(p, f, to, op->loc, &place, &position, err));
    if (m.position != UINT32_MAX) DS_TRY(ds_project__read_one(p, f, &op->in[0], &m.use, err));
    DS_TRY(holds_all(&m, to, place, &holds, err));
    if (!holds) {
        bool other = place != m.place;
        DS_TRY(make_whole(&m, to, other, err));
        if (other) DS_TRY(deliver(&m, place, info->name, err));
    }
    if (position == UINT32_MAX) return DS_OK;
    uint32_t at = m.position != UINT32_MAX ? m.position : 0; /* what came is whole */
    DS_TRY(ds_project__box(p, f, &m.type, (ds_pj_member){m.place, at}, op->loc, &have, err));
    DS_TRY(ds_project__box(p, f, to, (ds_pj_member){place, position}, op->loc, &want, err));
    DS_TRY(cut(&m, &have, &want, err));
    f->slots[op->out[0].i] = (ds_pj_slot){.kind = DS_PJ_ONE, .use = m.use};
    return DS_OK;
}
