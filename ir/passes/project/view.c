/* Expressions, places and boxes as one rank sees them. */
#include "ir/passes/project/internal.h"

#include <stdlib.h>

#define MAX_NODES 10000 /* of an expression over a kept loop's index */

ds_expr ds_project__fold(ds_projector *p, ds_expr_kind kind, ds_expr a, ds_expr b) {
    return ds_expr_fold(&p->unit->exprs, kind, a, b);
}

ds_expr ds_project__number(ds_projector *p, int64_t value) {
    return ds_expr_int(&p->unit->exprs, value);
}

/* ---- expressions ---- */

static const ds_exprs *exprs_of(const ds_projector *p) {
    return &p->source->unit->exprs;
}

static const ds_pj_index *find_index(const ds_pj_frame *f, const ds_expr_node *node) {
    const ds_pj_index *at = f->indices;
    bool axis = node->kind == DS_EXPR_AXIS_INDEX;
    while (at && (at->name != node->name || at->is_axis != axis)) at = at->up;
    return at;
}

static ds_status translate(ds_projector *p, const ds_pj_frame *f, ds_expr e, ds_loc loc,
                           ds_expr *out, ds_error *err) {
    const ds_expr_node node = *ds_expr_at(exprs_of(p), e);
    const ds_pj_index *index;
    ds_expr a = DS_NO_EXPR, b = DS_NO_EXPR;
    switch (node.kind) {
    case DS_EXPR_INDEX:
    case DS_EXPR_AXIS_INDEX:
        index = find_index(f, &node);
        if (!index) return ds_error_set(err, DS_ERR_NAME, loc, "'%s' has no value here", node.name);
        *out = index->to;
        return DS_OK;
    case DS_EXPR_INT:
    case DS_EXPR_REAL:
    case DS_EXPR_STR:
    case DS_EXPR_BOOL:
    case DS_EXPR_PARAM: {
        ds_env env = ds_binding_env(p->source, NULL);
        ds_num value;
        DS_TRY(ds_expr_eval(&env, e, loc, &value, err));
        *out = ds_clone_literal(&p->clone, value);
        return DS_OK;
    }
    default:
        if (DS_HAS_EXPR(node.a)) DS_TRY(translate(p, f, node.a, loc, &a, err));
        if (DS_HAS_EXPR(node.b)) DS_TRY(translate(p, f, node.b, loc, &b, err));
        *out = ds_project__fold(p, node.kind, a, b);
        return DS_OK;
    }
}

ds_status ds_project__expr(ds_projector *p, const ds_pj_frame *f, ds_expr e, ds_loc loc,
                           ds_expr *out, ds_error *err) {
    *out = DS_NO_EXPR;
    if (!DS_HAS_EXPR(e)) return DS_OK;
    if (!ds_expr_mentions(exprs_of(p), e, NULL)) {
        ds_env env = ds_binding_env(p->source, NULL);
        ds_num value;
        DS_TRY(ds_expr_eval(&env, e, loc, &value, err));
        *out = ds_clone_literal(&p->clone, value);
        return DS_OK;
    }
    if (ds_expr_at(exprs_of(p), e)->size > MAX_NODES)
        return ds_error_set(err, DS_ERR_LIMIT, loc,
                            "an expression of more than %d parts over the "
                            "index of a loop",
                            MAX_NODES);
    return translate(p, f, e, loc, out, err);
}

ds_status ds_project__literal(ds_projector *p, ds_expr e, ds_loc loc, int64_t *out, ds_error *err) {
    if (ds_expr_is_int(&p->unit->exprs, e, out)) return DS_OK;
    for (uint32_t i = 0; i < p->open.n; i++) { /* unroll the outermost loop: its range depends on no
                                                  other */
        if (!ds_expr_mentions(&p->unit->exprs, e, p->open.at[i])) continue;
        p->unroll = ds_expr_index(&p->unit->exprs, p->open.at[i]);
        break;
    }
    if (DS_HAS_EXPR(p->unroll))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, loc, "what a rank does depends on '%s'",
                            ds_expr_at(&p->unit->exprs, p->unroll)->name);
    /* a literal expression without a value, such as 1 / 0, gives its own error */
    ds_env env = {.exprs = &p->unit->exprs};
    return ds_expr_eval_int(&env, e, loc, out, err);
}

ds_status ds_project__int(ds_projector *p, const ds_pj_frame *f, ds_expr e, ds_loc loc,
                          int64_t *out, ds_error *err) {
    ds_expr copy;
    DS_TRY(ds_project__expr(p, f, e, loc, &copy, err));
    return ds_project__literal(p, copy, loc, out, err);
}

/* ---- places ---- */

int64_t ds_project__rank_of(const ds_projector *p, uint64_t device) {
    uint32_t at = ds_exec_position(p->world, device);
    return at == UINT32_MAX ? -1 : (int64_t)at;
}

static ds_status check_inside(ds_projector *p, const ds_exec_place *place, ds_loc loc,
                              ds_error *err) {
    if (ds_map_find(&p->seen, DS_KEY(place))) return DS_OK;
    for (uint32_t i = 0; i < place->n_devices; i++) {
        if (ds_project__rank_of(p, place->devices[i]) >= 0) continue;
        p->outside = true;
        return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                            "a value is on a device that is none of the %u ranks'",
                            p->world->n_devices);
    }
    ds_map_put(&p->seen, DS_KEY(place), 1);
    return DS_OK;
}

/* Checks that every expression of a place has a value. */
static ds_status place_indices(ds_projector *p, const ds_pj_frame *f, const ds_place *place,
                               ds_loc loc, ds_error *err) {
    int64_t ignored;
    for (uint32_t i = 0; i < place->n_coords; i++)
        DS_TRY(ds_project__int(p, f, place->coords[i].at, loc, &ignored, err));
    for (uint32_t i = 0; i < place->n_steps; i++)
        if (DS_HAS_EXPR(place->steps[i].index))
            DS_TRY(ds_project__int(p, f, place->steps[i].index, loc, &ignored, err));
    return DS_OK;
}

/* The replacements of names that are numbers, innermost first, which is the order of look-ups. */
static const ds_index *numbers(ds_projector *p, const ds_pj_index *at) {
    if (!at) return NULL;
    const ds_index *up = numbers(p, at->up);
    int64_t value;
    ds_index *index = DS_NEW(&p->places.arena, ds_index);
    bool known = ds_expr_is_int(&p->unit->exprs, at->to, &value);
    *index = (ds_index){known ? at->name : "", known ? value : 0, up};
    return index;
}

ds_status ds_project__place(ds_projector *p, const ds_pj_frame *f, const ds_place *place,
                            ds_loc loc, const ds_exec_place **out, ds_error *err) {
    const ds_index *indices = NULL;
    if (place->n_coords || place->n_steps) {
        DS_TRY(place_indices(p, f, place, loc, err));
        indices = numbers(p, f->indices);
    }
    DS_TRY(ds_exec_place_of(&p->places, &f->scope, place, indices, out, err));
    return check_inside(p, *out, loc, err);
}

ds_status ds_project__position(ds_projector *p, const ds_pj_frame *f, const ds_type *type,
                               ds_loc loc, const ds_exec_place **place, uint32_t *position,
                               ds_error *err) {
    DS_TRY(ds_project__place(p, f, &type->on, loc, place, err));
    *position = ds_exec_position(*place, p->device);
    return DS_OK;
}

/* ---- boxes ---- */

/* What a member holds of a dim. */
typedef struct shard {
    ds_expr full, lo, size;
} shard;

/* Splits major → minor, each cutting what is left. */
static ds_status cut_dim(ds_projector *p, const ds_pj_frame *f, const ds_dim *dim,
                         ds_pj_member member, ds_loc loc, shard *out, ds_error *err) {
    DS_TRY(ds_project__expr(p, f, dim->size, loc, &out->full, err));
    out->size = out->full;
    out->lo = ds_project__number(p, 0);
    for (uint32_t s = 0; s < dim->n_splits; s++) {
        const ds_split *split = &dim->splits[s];
        int64_t n = ds_exec_axis_size(member.place, split->axis);
        uint32_t axis = ds_exec_axis(member.place, split->axis);
        int64_t at = ds_exec_coordinate(member.place, axis, member.position);
        if (!split->n_sizes) {
            out->size = ds_project__fold(p, DS_EXPR_DIV, out->size, ds_project__number(p, n));
            ds_expr before = ds_project__fold(p, DS_EXPR_MUL, out->size, ds_project__number(p, at));
            out->lo = ds_project__fold(p, DS_EXPR_ADD, out->lo, before);
            continue;
        }
        if (split->n_sizes != n)
            return ds_error_set(err, DS_ERR_SHAPE, loc,
                                "%u shard sizes are given for axis %s of size %lld", split->n_sizes,
                                split->axis, (long long)n);
        for (int64_t k = 0; k <= at; k++) {
            if (k) out->lo = ds_project__fold(p, DS_EXPR_ADD, out->lo, out->size);
            DS_TRY(ds_project__expr(p, f, split->sizes[k], loc, &out->size, err));
        }
    }
    return DS_OK;
}

ds_status ds_project__box(ds_projector *p, const ds_pj_frame *f, const ds_type *type,
                          ds_pj_member member, ds_loc loc, ds_pj_box *out, ds_error *err) {
    *out = (ds_pj_box){.dtype = type->dtype, .host = type->host, .rank = type->rank};
    for (uint32_t d = 0; d < type->rank; d++) {
        shard part;
        DS_TRY(cut_dim(p, f, &type->dims[d], member, loc, &part, err));
        out->full[d] = part.full;
        out->lo[d] = part.lo;
        out->size[d] = part.size;
    }
    return DS_OK;
}

ds_type *ds_project__type_of_box(ds_projector *p, const ds_pj_box *box) {
    ds_type *type = ds_type_make(&p->unit->arena, box->dtype, box->size, box->rank);
    type->host = box->host;
    return type;
}

ds_status ds_project__type(ds_projector *p, const ds_pj_frame *f, const ds_type *type, ds_loc loc,
                           ds_type **out, ds_error *err) {
    const ds_exec_place *place;
    uint32_t position;
    ds_pj_box box;
    *out = NULL;
    DS_TRY(ds_project__position(p, f, type, loc, &place, &position, err));
    if (position == UINT32_MAX) return DS_OK;
    DS_TRY(ds_project__box(p, f, type, (ds_pj_member){place, position}, loc, &box, err));
    *out = ds_project__type_of_box(p, &box);
    return DS_OK;
}

const ds_type *ds_project__use_type(const ds_projector *p, const ds_pj_frame *f,
                                    const ds_use *use) {
    return ds_use_type(p->source->unit, f->scope.func, use);
}
