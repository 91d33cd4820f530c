/* Communication: collectives over axes and across devices become groups of ranks, sends become
 * pairs.
 *
 * A rank's ops keep the program's order, so each device has the same order of work on the same
 * streams. A collective over one device moves nothing: its results are its operands. */
#include "ir/passes/project/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- groups ---- */

ds_status ds_project__group(ds_projector *p, ds_pj_member self, const char *const *axes,
                            uint32_t n_axes, ds_expr **out, uint32_t *n, ds_error *err) {
    const ds_exec_place *place = self.place;
    int64_t size = 1, leader = self.position;
    for (uint32_t k = 0; k < n_axes; k++) size *= ds_exec_axis_size(place, axes[k]);
    if (size > (int64_t)place->n_devices)
        return ds_error_set(err, DS_ERR_SHARDING, DS_NOWHERE, "a group names an axis twice");
    int64_t *stride = DS_NEW_N(&p->unit->arena, int64_t, n_axes + 1);
    for (uint32_t k = 0; k < n_axes; k++) {
        uint32_t axis = ds_exec_axis(place, axes[k]);
        stride[k] = axis < place->n_axes;
        for (uint32_t a = axis + 1; a < place->n_axes; a++) stride[k] *= place->sizes[a];
        leader -= ds_exec_coordinate(place, axis, self.position) * stride[k];
    }
    *n = (uint32_t)size;
    *out = DS_NEW_N(&p->unit->arena, ds_expr, size);
    for (int64_t r = 0; r < size; r++) {
        int64_t rest = r, at = leader;
        for (uint32_t k = n_axes; k-- > 0;) {
            int64_t along = ds_exec_axis_size(place, axes[k]);
            at += rest % along * stride[k];
            rest /= along;
        }
        (*out)[r] = ds_project__number(p, ds_project__rank_of(p, place->devices[at]));
    }
    return DS_OK;
}

/* One collective under construction, as this rank's op. */
typedef struct meeting {
    ds_projector *p;
    ds_pj_frame *f;
    const ds_op *from;
    ds_expr *ranks;
    uint32_t n;
} meeting;

static ds_status begin_collective(const meeting *m, ds_op **out, ds_error *err) {
    DS_TRY(ds_project__new_op(m->p, m->f, m->from, m->from->code, out, err));
    ds_op *op = *out;
    op->has_group = true;
    op->group = m->ranks;
    op->n_group = m->n;
    DS_TRY(ds_project__expr(m->p, m->f, m->from->dim, m->from->loc, &op->dim, err));
    return ds_project__expr(m->p, m->f, m->from->dim_to, m->from->loc, &op->dim_to, err);
}

static void set_root(const meeting *m, ds_op *op, int64_t root) {
    ds_project__drop_attr(op, "root");
    if (root) ds_build_attr_int(&m->p->b, op, "root", root);
}

/* Writes `root` of a local region as a number instead of a list. All members there have operands
 * and results, so the list's item counts members. */
static void keep_root(const meeting *m, ds_op *op) {
    const ds_attr *root = ds_attr_find(op->attrs, op->n_attrs, "root");
    if (!root || root->kind != DS_ATTR_LIST) return;
    ds_expr first = root->n_items ? root->items[0].expr : ds_project__number(m->p, 0);
    ds_build_attr_expr(&m->p->b, op, "root", first);
}

/* Makes the operand of a member without an operand, in a broadcast or scatter: the operand is never
 * read. */
static ds_status stand_in(const meeting *m, const char *name, ds_type *type, ds_use *out,
                          ds_error *err) {
    ds_op *op = ds_build_op(&m->p->b, DS_OP_ZEROS);
    ds_value value = ds_build_out(&m->p->b, op, name, type);
    *out = ds_use_of(value);
    return ds_build_put(&m->p->b, op, err);
}

static ds_status unequal(const meeting *m, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, m->from->loc,
                        "%s of unequal shards: in a group of ranks all members hold as much",
                        ds_op_name(m->from->code));
}

static bool is_over(const ds_op *op, const char *axis) {
    for (uint32_t i = 0; i < op->n_over; i++)
        if (op->over[i] == axis) return true;
    return false;
}

static bool uneven_over(const ds_op *op, const ds_type *type) {
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++)
            if (type->dims[d].splits[s].n_sizes && is_over(op, type->dims[d].splits[s].axis))
                return true;
    return false;
}

/* ---- over axes ---- */

static bool from_root(ds_opcode code) {
    return code == DS_OP_BROADCAST || code == DS_OP_SCATTER;
}

static bool to_root(ds_opcode code) {
    return code == DS_OP_GATHER || code == DS_OP_REDUCE;
}

/* The number of the group's member on the place `roots`. */
static int64_t root_of(const meeting *m, const ds_exec_place *roots) {
    for (uint32_t i = 0; i < m->n; i++) {
        int64_t rank = 0;
        (void)ds_expr_is_int(&m->p->unit->exprs, m->ranks[i], &rank);
        if (ds_exec_position(roots, m->p->world->devices[rank]) != UINT32_MAX) return i;
    }
    return 0;
}

/* Writes the attribute `op`: a program's partial says sum or maximum, a rank's types have no
 * partials. */
static ds_status set_reduction(const meeting *m, ds_op *op, ds_error *err) {
    bool sum = false, max = false;
    for (uint32_t i = 0; i < m->from->n_in; i++) {
        const ds_type *type = ds_project__use_type(m->p, m->f, &m->from->in[i]);
        for (uint32_t k = 0; k < type->n_partials; k++)
            if (is_over(m->from, type->partials[k].axis))
                *(type->partials[k].reduction == DS_RED_MAX ? &max : &sum) = true;
    }
    if (sum && max)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, m->from->loc,
                            "%s of sums and maxima: write two", ds_op_name(m->from->code));
    if (max) ds_build_attr_word(&m->p->b, op, "op", "max");
    return DS_OK;
}

static ds_status add_operand(const meeting *m, ds_op *op, uint32_t i, const ds_exec_place *root,
                             ds_error *err) {
    const ds_use *from = &m->from->in[i];
    const ds_type *type = ds_project__use_type(m->p, m->f, from);
    const ds_exec_place *place;
    uint32_t at;
    ds_use use;
    DS_TRY(ds_project__position(m->p, m->f, type, from->loc, &place, &at, err));
    if (at != UINT32_MAX) {
        DS_TRY(ds_project__read_one(m->p, m->f, from, &use, err));
    } else {
        int64_t rank = 0;
        ds_pj_box box;
        (void)ds_expr_is_int(&m->p->unit->exprs, m->ranks[root_of(m, root)], &rank);
        at = ds_exec_position(place, m->p->world->devices[rank]);
        DS_TRY(ds_project__box(m->p, m->f, type, (ds_pj_member){place, at}, from->loc, &box, err));
        DS_TRY(stand_in(m, "nothing", ds_project__type_of_box(m->p, &box), &use, err));
    }
    ds_build_in(&m->p->b, op, use);
    return DS_OK;
}

static ds_status over_axes(meeting *m, ds_error *err) {
    const ds_op *from = m->from;
    ds_opcode code = from->code;
    const ds_exec_place *in, *out, *place;
    uint32_t at, ignored;
    const ds_type *result = ds_value_at(m->f->scope.func, from->out[0])->type;
    const ds_type *operand = ds_project__use_type(m->p, m->f, &from->in[0]);
    DS_TRY(ds_project__position(m->p, m->f, operand, from->loc, &in, &at, err));
    DS_TRY(ds_project__position(m->p, m->f, result, from->loc, &out, &ignored, err));
    place = from_root(code) ? out : in;
    at = ds_exec_position(place, m->p->device);
    if (at == UINT32_MAX) return DS_OK;
    DS_TRY(ds_project__group(m->p, (ds_pj_member){place, at}, from->over, from->n_over, &m->ranks,
                             &m->n, err));
    if (m->n == 1 && !ds_attr_find(from->attrs, from->n_attrs, "cost")) {
        for (uint32_t i = 0; i < from->n_in; i++)
            DS_TRY(ds_project__read(m->p, m->f, &from->in[i], &m->f->slots[from->out[i].i], err));
        return DS_OK;
    }
    ds_op *op;
    DS_TRY(begin_collective(m, &op, err));
    DS_TRY(set_reduction(m, op, err));
    if (in == out)
        keep_root(m, op);
    else
        set_root(m, op, root_of(m, from_root(code) ? in : out));
    for (uint32_t i = 0; i < from->n_in; i++) DS_TRY(add_operand(m, op, i, in, err));
    for (uint32_t i = 0; i < from->n_out; i++) {
        const ds_value_info *info = ds_value_at(m->f->scope.func, from->out[i]);
        ds_type *type;
        if (code != DS_OP_ALL_REDUCE && code != DS_OP_REDUCE && code != DS_OP_BROADCAST &&
            (uneven_over(from, info->type) ||
             uneven_over(from, ds_project__use_type(m->p, m->f, &from->in[i]))))
            return unequal(m, err);
        DS_TRY(ds_project__type(m->p, m->f, info->type, from->loc, &type, err));
        ds_build_out(&m->p->b, op, info->name, type);
    }
    DS_TRY(ds_build_put(&m->p->b, op, err));
    bool has_result = ds_exec_position(out, m->p->device) != UINT32_MAX;
    for (uint32_t i = 0; i < from->n_out && has_result; i++)
        m->f->slots[from->out[i].i] = (ds_pj_slot){.kind = DS_PJ_ONE, .use = ds_use_of(op->out[i])};
    return DS_OK;
}

/* ---- across devices and slices ---- */

static void join_rank(meeting *m, uint64_t device) {
    ds_expr rank = ds_project__number(m->p, ds_project__rank_of(m->p, device));
    for (uint32_t i = 0; i < m->n; i++)
        if (m->ranks[i].i == rank.i) return;
    m->ranks[m->n++] = rank;
}

/* Finds the places of operands, then of results, and this rank's position, which is the same in all
 * places that have the rank. UINT32_MAX: in none. */
static ds_status find_places(const meeting *m, const ds_exec_place **places, uint32_t *at,
                             ds_error *err) {
    const ds_op *op = m->from;
    uint32_t ignored, n = op->n_in + (op->n_to ? op->n_out : 0);
    for (uint32_t i = 0; i < op->n_in + op->n_out; i++) {
        const ds_type *type = i < op->n_in
                                  ? ds_project__use_type(m->p, m->f, &op->in[i])
                                  : ds_value_at(m->f->scope.func, op->out[i - op->n_in])->type;
        DS_TRY(ds_project__position(m->p, m->f, type, op->loc, &places[i], &ignored, err));
    }
    return ds_exec_places_across(places, op->n_in, n, m->p->device, op, at, err);
}

/* Checks that operands have equal sizes, and that a root is a member: in a group each member has
 * one operand and one result. */
static ds_status check_across(const meeting *m, const ds_exec_place *const *places, ds_error *err) {
    const ds_op *op = m->from;
    for (uint32_t i = 1; i < op->n_in; i++) {
        const ds_type *a = ds_project__use_type(m->p, m->f, &op->in[0]);
        const ds_type *b = ds_project__use_type(m->p, m->f, &op->in[i]);
        for (uint32_t d = 0; d < a->rank; d++) {
            int64_t x, y;
            DS_TRY(ds_project__int(m->p, m->f, a->dims[d].size, op->loc, &x, err));
            DS_TRY(ds_project__int(m->p, m->f, b->dims[d].size, op->loc, &y, err));
            if (x != y) return unequal(m, err);
        }
    }
    bool rooted = from_root(op->code) || to_root(op->code);
    const ds_exec_place *root = places[from_root(op->code) ? 0 : op->n_in];
    uint32_t lo = from_root(op->code) ? op->n_in : 0;
    uint32_t n = from_root(op->code) ? op->n_out : op->n_in;
    for (uint32_t i = lo; i < lo + n; i++)
        if (rooted && places[i]->devices[0] == root->devices[0]) return DS_OK;
    if (!rooted || op->code == DS_OP_BROADCAST) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                        "%s with a root that is no member: in a group of ranks it is one",
                        ds_op_name(op->code));
}

/* The number of this rank's operand or result; UINT32_MAX: none. */
static uint32_t mine(const meeting *m, const ds_exec_place *const *places, uint32_t n,
                     uint32_t at) {
    for (uint32_t i = 0; i < n; i++)
        if (places[i]->devices[at] == m->p->device) return i;
    return UINT32_MAX;
}

static ds_status across(meeting *m, ds_error *err) {
    const ds_op *from = m->from;
    uint32_t n = from->n_in + from->n_out, at;
    const ds_exec_place **places = DS_NEW_N(&m->p->unit->arena, const ds_exec_place *, n);
    DS_TRY(find_places(m, places, &at, err));
    if (at == UINT32_MAX) return DS_OK;
    m->ranks = DS_NEW_N(&m->p->unit->arena, ds_expr, n);
    uint32_t first = from->code == DS_OP_SCATTER ? from->n_in : 0; /* parts have the order of a
                                                                      scatter's results */
    for (uint32_t i = 0; i < n; i++) join_rank(m, places[(first + i) % n]->devices[at]);
    uint32_t in = mine(m, places, from->n_in, at);
    uint32_t out = mine(m, places + from->n_in, from->n_out, at);
    if (m->n == 1 && !ds_attr_find(from->attrs, from->n_attrs, "cost"))
        return ds_project__read(m->p, m->f, &from->in[0], &m->f->slots[from->out[0].i], err);
    DS_TRY(check_across(m, places, err));
    ds_op *op;
    ds_use use;
    ds_type *type = NULL;
    DS_TRY(begin_collective(m, &op, err));
    if (from_root(from->code) || to_root(from->code)) {
        const ds_exec_place *holds = places[from_root(from->code) ? 0 : from->n_in];
        ds_expr rank = ds_project__number(m->p, ds_project__rank_of(m->p, holds->devices[at]));
        int64_t root = 0;
        while (m->ranks[root].i != rank.i) root++;
        set_root(m, op, root);
    }
    if (in != UINT32_MAX) {
        DS_TRY(ds_project__read_one(m->p, m->f, &from->in[in], &use, err));
    } else {
        ds_pj_box box;
        const ds_type *like = ds_project__use_type(m->p, m->f, &from->in[0]);
        DS_TRY(
            ds_project__box(m->p, m->f, like, (ds_pj_member){places[0], at}, from->loc, &box, err));
        DS_TRY(stand_in(m, "nothing", ds_project__type_of_box(m->p, &box), &use, err));
    }
    ds_build_in(&m->p->b, op, use);
    const ds_value_info *info =
        ds_value_at(m->f->scope.func, from->out[out == UINT32_MAX ? 0 : out]);
    if (out != UINT32_MAX) DS_TRY(ds_project__type(m->p, m->f, info->type, from->loc, &type, err));
    ds_build_out(&m->p->b, op, out == UINT32_MAX ? "nothing" : info->name, type);
    DS_TRY(ds_build_put(&m->p->b, op, err));
    if (out != UINT32_MAX)
        m->f->slots[from->out[out].i] =
            (ds_pj_slot){.kind = DS_PJ_ONE, .use = ds_use_of(op->out[0])};
    return DS_OK;
}

/* ---- sends ---- */

static ds_expr tag_of(ds_projector *p, const ds_op *op) {
    const uint64_t *known = ds_map_find(&p->tags, DS_KEY(op));
    if (!known) {
        ds_map_put(&p->tags, DS_KEY(op), p->tags.n);
        known = ds_map_find(&p->tags, DS_KEY(op));
    }
    return ds_project__number(p, (int64_t)*known);
}

ds_status ds_project__send(ds_projector *p, const ds_pj_frame *f, const ds_op *like, ds_use what,
                           int64_t to, ds_error *err) {
    ds_op *op;
    DS_TRY(ds_project__new_op(p, f, like, DS_OP_SEND, &op, err));
    ds_build_in(&p->b, op, what);
    op->to_rank = ds_project__number(p, to);
    op->tag = tag_of(p, like);
    return ds_build_put(&p->b, op, err);
}

ds_status ds_project__recv(ds_projector *p, const ds_pj_frame *f, const ds_op *like,
                           ds_pj_arrival what, ds_use *out, ds_error *err) {
    ds_op *op;
    DS_TRY(ds_project__new_op(p, f, like, DS_OP_RECV, &op, err));
    *out = ds_use_of(ds_build_out(&p->b, op, what.name, what.type));
    op->from_rank = ds_project__number(p, what.from);
    op->tag = tag_of(p, like);
    return ds_build_put(&p->b, op, err);
}

uint32_t ds_project__same_coordinates(const ds_exec_place *from, const ds_exec_place *to,
                                      uint32_t position) {
    int64_t at = 0;
    for (uint32_t a = 0; a < from->n_axes; a++) {
        uint32_t axis = ds_exec_axis(to, from->axes[a]);
        int64_t c = axis < to->n_axes ? ds_exec_coordinate(to, axis, position) : 0;
        at = at * from->sizes[a] + (c < from->sizes[a] ? c : 0);
    }
    return (uint32_t)at;
}

static ds_status send(ds_projector *p, ds_pj_frame *f, const ds_op *op, ds_error *err) {
    const ds_value_info *info = ds_value_at(f->scope.func, op->out[0]);
    const ds_exec_place *from, *to;
    uint32_t here, there;
    DS_TRY(ds_project__position(p, f, ds_project__use_type(p, f, &op->in[0]), op->loc, &from, &here,
                                err));
    DS_TRY(ds_project__position(p, f, info->type, op->loc, &to, &there, err));
    if (from->n_devices != to->n_devices)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "send from %u devices to %u: slices must be of equal size",
                            from->n_devices, to->n_devices);
    for (uint32_t q = 0; q < to->n_devices && here != UINT32_MAX; q++) {
        ds_use use;
        if (ds_project__same_coordinates(from, to, q) != here) continue;
        DS_TRY(ds_project__read_one(p, f, &op->in[0], &use, err));
        if (to->devices[q] == p->device)
            f->slots[op->out[0].i] = (ds_pj_slot){.kind = DS_PJ_ONE, .use = use};
        else
            DS_TRY(ds_project__send(p, f, op, use, ds_project__rank_of(p, to->devices[q]), err));
    }
    if (there == UINT32_MAX) return DS_OK;
    uint64_t source = from->devices[ds_project__same_coordinates(from, to, there)];
    if (source == p->device) return DS_OK;
    ds_type *type;
    ds_pj_slot *slot = &f->slots[op->out[0].i];
    slot->kind = DS_PJ_ONE;
    DS_TRY(ds_project__type(p, f, info->type, op->loc, &type, err));
    ds_pj_arrival what = {ds_project__rank_of(p, source), info->name, type};
    return ds_project__recv(p, f, op, what, &slot->use, err);
}

/* ---- any communication ---- */

ds_status ds_project__comm(ds_projector *p, ds_pj_frame *f, const ds_op *op, ds_error *err) {
    meeting m = {.p = p, .f = f, .from = op};
    for (uint32_t i = 0; i < op->n_out; i++) f->slots[op->out[i].i] = (ds_pj_slot){0};
    if (op->code == DS_OP_RESHARD) return ds_project__reshard(p, f, op, err);
    if (op->code == DS_OP_SEND) return send(p, f, op, err);
    if (op->across || op->n_to) return across(&m, err);
    return over_axes(&m, err);
}
