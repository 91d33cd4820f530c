/* Blocks, loops, calls and local regions.
 *
 * A loop is first projected as a loop. This fails if the loop's index decides the rank's work (the
 * place of an op, or the element of a family that is spread over ranks). The loop is then taken
 * back and unrolled: with numbers for indices every question has one answer. */
#include "ir/passes/project/internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH  64 /* of nested calls */
#define MAX_TURNS  (INT64_C(1) << 20)
#define MAX_VALUES (UINT32_C(1) << 20) /* of one rank */

/* ---- reading ---- */

static ds_status absent(const ds_pj_frame *f, const ds_use *use, ds_error *err) {
    return ds_error_set(err, DS_ERR_SHARDING, use->loc,
                        "%%%s is read by a rank whose device does not hold it",
                        ds_value_at(f->scope.func, use->value)->name);
}

/* Applies the use's indices from `level` on to a family. */
static ds_status read_family(ds_projector *p, const ds_pj_frame *f, const ds_use *use,
                             uint32_t level, const ds_pj_slot *family, ds_pj_slot *out,
                             ds_error *err) {
    uint32_t n = use->n_index - level;
    *out = (ds_pj_slot){.kind = DS_PJ_ONE, .use = family->use};
    out->use.n_index = n;
    out->use.index = DS_NEW_N(&p->unit->arena, ds_expr, n);
    if (use->index_hi) out->use.index_hi = DS_NEW_N(&p->unit->arena, ds_expr, n);
    for (uint32_t i = 0; i < n; i++) {
        DS_TRY(ds_project__expr(p, f, use->index[level + i], use->loc, &out->use.index[i], err));
        if (ds_use_is_range(use, level + i))
            DS_TRY(ds_project__expr(p, f, use->index_hi[level + i], use->loc, &out->use.index_hi[i],
                                    err));
    }
    return DS_OK;
}

ds_status ds_project__read(ds_projector *p, const ds_pj_frame *f, const ds_use *use,
                           ds_pj_slot *out, ds_error *err) {
    const ds_value_info *info = ds_value_at(f->scope.func, use->value);
    *out = f->slots[use->value.i];
    for (uint32_t i = 0; i < use->n_index; i++) {
        int64_t at;
        if (out->kind == DS_PJ_ABSENT) return DS_OK;
        if (out->kind == DS_PJ_FAMILY) {
            ds_pj_slot family = *out;
            return read_family(p, f, use, i, &family, out, err);
        }
        if (ds_use_is_range(use, i))
            return ds_error_set(err, DS_ERR_UNSUPPORTED, use->loc,
                                "%%%s is several values on a rank: a range of it cannot be stacked",
                                info->name);
        DS_TRY(ds_project__int(p, f, use->index[i], use->loc, &at, err));
        if (out->kind != DS_PJ_MANY || at < out->lo || at >= out->lo + out->n)
            return ds_error_set(err, DS_ERR_VALUE, use->loc, "%%%s has no element %lld", info->name,
                                (long long)at);
        *out = out->items[at - out->lo];
    }
    return DS_OK;
}

ds_status ds_project__read_one(ds_projector *p, const ds_pj_frame *f, const ds_use *use,
                               ds_use *out, ds_error *err) {
    ds_pj_slot slot;
    DS_TRY(ds_project__read(p, f, use, &slot, err));
    if (slot.kind != DS_PJ_ONE) return absent(f, use, err);
    *out = slot.use;
    return DS_OK;
}

/* ---- loops that stay ---- */

typedef struct loop_state {
    const ds_op *op;
    ds_op *made;
    ds_pj_slot *results; /* carries' next values, then kept values */
    uint32_t *place;     /* of a carry among the new loop's carries; UINT32_MAX: absent */
    bool empty;          /* the loop has no work for this rank */
} loop_state;

/* Asks to unroll the loop, because its index decides the rank's work. */
static ds_status must_unroll(ds_projector *p, const loop_state *l, ds_error *err) {
    p->unroll = ds_expr_index(&p->unit->exprs, l->made->index);
    return ds_error_set(err, DS_ERR_UNSUPPORTED, l->op->loc, "the loop cannot be kept");
}

static ds_status make_carries(ds_projector *p, ds_pj_frame *f, loop_state *l,
                              const ds_pj_slot *first, ds_error *err) {
    for (uint32_t i = 0; i < l->op->n_args; i++) {
        const ds_value_info *info = ds_value_at(f->scope.func, l->op->args[i]);
        ds_type *type;
        l->place[i] = UINT32_MAX;
        DS_TRY(ds_project__type(p, f, info->type, l->op->loc, &type, err));
        f->slots[l->op->args[i].i] = (ds_pj_slot){0};
        if (!type) continue;
        if (first[i].kind != DS_PJ_ONE) return must_unroll(p, l, err);
        l->place[i] = l->made->n_args;
        ds_value carry = ds_build_carry(&p->b, l->made, info->name, type, first[i].use);
        f->slots[l->op->args[i].i] = (ds_pj_slot){.kind = DS_PJ_ONE, .use = ds_use_of(carry)};
    }
    return DS_OK;
}

static ds_status end_loop(ds_projector *p, ds_pj_frame *f, loop_state *l, ds_error *err) {
    const ds_op *op = l->op;
    ds_use *uses = DS_NEW_N(&p->unit->arena, ds_use, op->n_out);
    const char **names = DS_NEW_N(&p->unit->arena, const char *, op->n_out);
    uint32_t *to = DS_NEW_N(&p->unit->arena, uint32_t, op->n_out), n = 0, n_next = 0;
    for (uint32_t i = 0; i < op->n_out; i++) {
        const ds_pj_slot *slot = &l->results[i];
        bool carry = i < op->n_args;
        to[i] = UINT32_MAX;
        if (carry && l->place[i] == UINT32_MAX) continue;
        if (!carry && slot->kind == DS_PJ_ABSENT) continue;
        if (slot->kind == DS_PJ_MANY || (carry && slot->kind != DS_PJ_ONE))
            return must_unroll(p, l, err);
        uses[n] = slot->use;
        names[n] = ds_value_at(f->scope.func, op->out[i])->name;
        to[i] = n++;
        n_next += carry;
    }
    DS_TRY(ds_build_yield(&p->b, uses, n_next, uses + n_next, n - n_next, names, err));
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_pj_slot *slot = &f->slots[op->out[i].i];
        *slot = (ds_pj_slot){0};
        if (to[i] == UINT32_MAX) continue;
        slot->kind = i < op->n_args ? DS_PJ_ONE : DS_PJ_FAMILY;
        slot->use = ds_use_of(l->made->out[to[i]]);
    }
    return ds_project__attrs(p, f, op->attrs, op->n_attrs, &l->made->attrs, err);
}

static ds_status keep_loop(ds_projector *p, ds_pj_frame *f, loop_state *l, const ds_pj_slot *first,
                           ds_error *err) {
    const ds_op *op = l->op;
    ds_expr lo, hi;
    DS_TRY(ds_project__expr(p, f, op->lo, op->loc, &lo, err));
    DS_TRY(ds_project__expr(p, f, op->hi, op->loc, &hi, err));
    const char *index = ds_clone_index_name(&p->clone, op->index, p->open.at, p->open.n);
    ds_pj_index inner = {op->index, ds_expr_index(&p->unit->exprs, index), false, f->indices};
    ds_pj_path path = {op->index, inner.to, f->path, DS_NO_EXPR};
    const ds_pj_index *indices = f->indices;
    const ds_pj_path *outer = f->path;
    DS_HPUSH(&p->open, index);
    f->indices = &inner;
    f->path = &path;
    l->made = ds_build_for(&p->b, index, lo, hi);
    l->made->n_attrs = op->n_attrs;
    ds_status status = make_carries(p, f, l, first, err);
    if (status == DS_OK) status = ds_project__block(p, f, op->body, l->results, err);
    l->empty = status == DS_OK && !ds_build_last(&p->b);
    f->indices = indices;
    f->path = outer;
    if (status == DS_OK) status = end_loop(p, f, l, err);
    p->open.n--;
    l->empty = l->empty && !l->made->n_out;
    return status;
}

/* ---- loops that are unrolled ---- */

static ds_status unroll_loop(ds_projector *p, ds_pj_frame *f, loop_state *l, ds_pj_slot *carried,
                             ds_error *err) {
    const ds_op *op = l->op;
    int64_t lo, hi;
    DS_TRY(ds_project__int(p, f, op->lo, op->loc, &lo, err));
    DS_TRY(ds_project__int(p, f, op->hi, op->loc, &hi, err));
    if (hi > lo && (hi - lo > MAX_TURNS || p->b.func->values.n > MAX_VALUES))
        return ds_error_set(err, DS_ERR_LIMIT, op->loc,
                            "%lld turns of a loop, each of which is another one for a rank",
                            (long long)(hi - lo));
    uint32_t n_kept = op->n_out - op->n_args;
    ds_pj_slot *kept = DS_NEW_N(&p->unit->arena, ds_pj_slot, n_kept);
    for (uint32_t k = 0; k < n_kept; k++) {
        kept[k] = (ds_pj_slot){.kind = DS_PJ_MANY, .lo = lo, .n = hi > lo ? hi - lo : 0};
        kept[k].items = DS_NEW_N(&p->unit->arena, ds_pj_slot, kept[k].n);
    }
    const ds_pj_index *indices = f->indices;
    const ds_pj_path *outer = f->path;
    ds_status status = DS_OK;
    for (int64_t at = lo; at < hi && status == DS_OK; at++) {
        ds_pj_index inner = {op->index, ds_project__number(p, at), false, indices};
        ds_pj_path path = {op->index, inner.to, outer, DS_NO_EXPR};
        f->indices = &inner;
        f->path = &path;
        for (uint32_t i = 0; i < op->n_args; i++) f->slots[op->args[i].i] = carried[i];
        status = ds_project__block(p, f, op->body, l->results, err);
        for (uint32_t i = 0; i < op->n_args; i++) carried[i] = l->results[i];
        for (uint32_t k = 0; k < n_kept; k++) kept[k].items[at - lo] = l->results[op->n_args + k];
        if (status == DS_OK && p->b.func->values.n > MAX_VALUES)
            status =
                ds_error_set(err, DS_ERR_LIMIT, op->loc,
                             "unrolled, this loop gives a rank more than %u values", MAX_VALUES);
    }
    f->indices = indices;
    f->path = outer;
    for (uint32_t i = 0; i < op->n_args; i++) f->slots[op->out[i].i] = carried[i];
    for (uint32_t k = 0; k < n_kept; k++) f->slots[op->out[op->n_args + k].i] = kept[k];
    return status;
}

static ds_status loop(ds_projector *p, ds_pj_frame *f, const ds_op *op, ds_error *err) {
    ds_arena *arena = &p->unit->arena;
    loop_state l = {.op = op,
                    .results = DS_NEW_N(arena, ds_pj_slot, op->n_out),
                    .place = DS_NEW_N(arena, uint32_t, op->n_args)};
    ds_pj_slot *first = DS_NEW_N(arena, ds_pj_slot, op->n_args);
    for (uint32_t i = 0; i < op->n_args; i++)
        DS_TRY(ds_project__read(p, f, &op->in[i], &first[i], err));
    ds_build_mark mark = ds_build_here(&p->b);
    ds_status status = keep_loop(p, f, &l, first, err);
    if (l.empty) ds_build_back(&p->b, mark);
    if (status == DS_OK || !l.made || !DS_HAS_EXPR(p->unroll) ||
        p->unroll.i != ds_expr_index(&p->unit->exprs, l.made->index).i)
        return status;
    ds_build_back(&p->b, mark);
    p->unroll = DS_NO_EXPR;
    return unroll_loop(p, f, &l, first, err);
}

/* ---- calls ---- */

/* The names of the caller that a callee knows: coordinates of open regions, but not indices of
 * loops. */
static const ds_pj_index *axes_of(ds_projector *p, const ds_pj_index *at) {
    if (!at) return NULL;
    const ds_pj_index *up = axes_of(p, at->up);
    if (!at->is_axis) return up;
    ds_pj_index *copy = DS_NEW(&p->unit->arena, ds_pj_index);
    *copy = *at;
    copy->up = up;
    return copy;
}

static uint32_t depth_of(const ds_pj_frame *f) {
    uint32_t depth = 0;
    for (const ds_pj_path *at = f->path; at; at = at->up) depth += !DS_HAS_EXPR(at->turn);
    return depth;
}

static ds_status enter(ds_projector *p, const ds_pj_frame *f, const ds_op *op, ds_pj_frame *inner,
                       ds_error *err) {
    const ds_func *func = op->callee;
    inner->scope.mesh_args =
        DS_NEW_N(&p->unit->arena, const ds_exec_place *, func->n_mesh_params + 1);
    for (uint32_t i = 0; i < op->n_mesh_args && i < func->n_mesh_params; i++)
        DS_TRY(
            ds_project__place(p, f, &op->mesh_args[i], op->loc, &inner->scope.mesh_args[i], err));
    if (func->n_mesh_params == 1) inner->scope.here = inner->scope.mesh_args[0];
    if (func->index_param) {
        ds_pj_index *index = DS_NEW(&p->unit->arena, ds_pj_index);
        *index = (ds_pj_index){.name = func->index_param, .up = inner->indices};
        DS_TRY(ds_project__expr(p, f, op->index_arg, op->loc, &index->to, err));
        inner->indices = index;
    }
    for (uint32_t i = 0; i < op->n_in; i++)
        DS_TRY(ds_project__read(p, f, &op->in[i], &inner->slots[func->args[i].i], err));
    return DS_OK;
}

static ds_status microbatch_of(ds_projector *p, const ds_pj_frame *f, const ds_op *op, ds_expr *out,
                               ds_error *err) {
    const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, "microbatch");
    return attr ? ds_project__expr(p, f, attr->expr, attr->loc, out, err) : DS_OK;
}

static ds_status call(ds_projector *p, ds_pj_frame *f, const ds_op *op, ds_error *err) {
    if (ds_attr_find(op->attrs, op->n_attrs, "cost"))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "a call that states its cost is one operation; a rank's body has no "
                            "such calls");
    if (depth_of(f) >= MAX_DEPTH)
        return ds_error_set(err, DS_ERR_LIMIT, op->loc, "calls nest deeper than %d", MAX_DEPTH);
    const ds_func *func = op->callee;
    ds_pj_path path = {ds_project__own_name(p, f->scope.func, op), DS_NO_EXPR, f->path, DS_NO_EXPR};
    DS_TRY(microbatch_of(p, f, op, &path.microbatch, err));
    ds_pj_frame inner = {.scope = {.func = func, .here = f->scope.here},
                         .slots = ds_xcalloc(func->values.n + 1, sizeof *inner.slots),
                         .indices = axes_of(p, f->indices),
                         .path = &path,
                         .n_manual = f->n_manual};
    ds_pj_slot *results = DS_NEW_N(&p->unit->arena, ds_pj_slot, op->n_out);
    ds_status status = enter(p, f, op, &inner, err);
    if (status == DS_OK) status = ds_project__block(p, &inner, &func->body, results, err);
    free(inner.slots);
    for (uint32_t i = 0; i < op->n_out; i++) f->slots[op->out[i].i] = results[i];
    return status;
}

/* ---- local regions ---- */

/* A region's body is already the rank's work; axis_index becomes the rank's coordinate. */
static ds_status region(ds_projector *p, ds_pj_frame *f, const ds_op *op, ds_error *err) {
    const ds_type *type = op->n_in    ? ds_project__use_type(p, f, &op->in[0])
                          : op->n_out ? op->result_types[0]
                                      : NULL;
    const ds_exec_place *place;
    uint32_t position;
    for (uint32_t i = 0; i < op->n_out; i++) f->slots[op->out[i].i] = (ds_pj_slot){0};
    if (!type) return DS_OK;
    DS_TRY(ds_project__position(p, f, type, op->loc, &place, &position, err));
    if (position == UINT32_MAX) return DS_OK;
    for (uint32_t i = 0; i < op->n_args; i++)
        DS_TRY(ds_project__read(p, f, &op->in[i], &f->slots[op->args[i].i], err));
    const ds_pj_index *indices = f->indices;
    ds_pj_index *axes = DS_NEW_N(&p->unit->arena, ds_pj_index, op->n_over);
    for (uint32_t i = 0; i < op->n_over; i++) {
        int64_t at = ds_exec_coordinate(place, ds_exec_axis(place, op->over[i]), position);
        axes[i] = (ds_pj_index){op->over[i], ds_project__number(p, at), true, f->indices};
        f->indices = &axes[i];
    }
    ds_pj_slot *results = DS_NEW_N(&p->unit->arena, ds_pj_slot, op->n_out);
    f->n_manual += op->n_over;
    ds_status status = ds_project__block(p, f, op->body, results, err);
    f->n_manual -= op->n_over;
    f->indices = indices;
    for (uint32_t i = 0; i < op->n_out; i++) f->slots[op->out[i].i] = results[i];
    return status;
}

/* ---- blocks ---- */

ds_status ds_project__block(ds_projector *p, ds_pj_frame *f, const ds_block *block,
                            ds_pj_slot *results, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (p->b.func->values.n > MAX_VALUES)
            return ds_error_set(err, DS_ERR_LIMIT, op->loc,
                                "a rank's body has more than %u values up to here", MAX_VALUES);
        switch (op->code) {
        case DS_OP_FOR:
            DS_TRY(loop(p, f, op, err));
            break;
        case DS_OP_CALL:
            DS_TRY(call(p, f, op, err));
            break;
        case DS_OP_LOCAL:
            DS_TRY(region(p, f, op, err));
            break;
        case DS_OP_YIELD:
        case DS_OP_RETURN:
            for (uint32_t k = 0; k < op->n_in; k++)
                DS_TRY(ds_project__read(p, f, &op->in[k], &results[k], err));
            break;
        case DS_OP_WEIGHT:
            return ds_error_set(err, DS_ERR_TYPE, op->loc,
                                "a program takes its weights as arguments");
        default:
            DS_TRY(ds_project__table_op(p, f, op, err));
            break;
        }
    }
    return DS_OK;
}
