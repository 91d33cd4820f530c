/* Places, mesh axes, and the comparison of types. */
#include "ir/verify/internal.h"

#include <string.h>

/* ---- resolution ---- */

static bool is_mesh_param(const ds_func *func, const char *name) {
    for (uint32_t i = 0; i < func->n_mesh_params; i++)
        if (func->mesh_params[i] == name) return true;
    return false;
}

bool ds_verify__resolve(const ds_func *func, const ds_place *place, ds_resolved *out) {
    *out = (ds_resolved){.kind = place->kind};
    switch (place->kind) {
    case DS_PLACE_NONE:
        if (func->n_mesh_params != 1) return true;
        out->kind = DS_PLACE_MESH;
        out->param = func->mesh_params[0];
        return true;
    case DS_PLACE_MESH:
        if (is_mesh_param(func, place->name)) {
            out->param = place->name;
            return true;
        }
        out->mesh = ds_find_mesh(func->module, place->name);
        return out->mesh != NULL;
    case DS_PLACE_DEVICE:
        out->topology = ds_find_topology(func->module, place->name);
        return out->topology != NULL;
    }
    return false;
}

bool ds_verify__is_fixed(const ds_place *place, const char *axis) {
    for (uint32_t i = 0; i < place->n_coords; i++)
        if (place->coords[i].axis == axis) return true;
    return false;
}

bool ds_verify__mesh_has_axis(const ds_mesh *mesh, const char *axis) {
    for (uint32_t i = 0; i < mesh->n_axes; i++)
        if (mesh->axes[i].name == axis) return true;
    return false;
}

/* ---- checks ---- */

static void unknown_mesh(ds_checker *ck, const ds_func *func, const ds_place *place, ds_loc loc) {
    if (ds_find_topology(func->module, place->name)) {
        ds_verify__error(ck, DS_ERR_NAME, loc, NULL,
                         "@%s is a topology; values live on a mesh over it ('mesh @m = [dp = 8] on "
                         "@%s') or on one of its devices ('@%s.gpu[0]')",
                         place->name, place->name, place->name);
        return;
    }
    if (!func->n_mesh_params) {
        ds_verify__unknown(ck, func->module, DS_ITEM_MESH, loc, place->name);
        return;
    }
    ds_names names = {0};
    for (uint32_t i = 0; i < func->n_mesh_params; i++)
        DS_PUSH(&ck->diags->arena, &names.all, func->mesh_params[i]);
    ds_verify__visible(ck, func->module, DS_ITEM_MESH, &names);
    ds_verify__error(ck, DS_ERR_NAME, loc,
                     ds_verify__hint(ck, "@", place->name, names.all.at, names.all.n),
                     "unknown mesh @%s", place->name);
}

static bool check_coord(ds_checker *ck, const ds_func *func, const ds_place *place, uint32_t index,
                        const ds_mesh *mesh, ds_loc loc) {
    const char *axis = place->coords[index].axis;
    if (!ds_verify__check_axis(ck, func->module, axis, loc)) return false;
    for (uint32_t i = 0; i < index; i++) {
        if (place->coords[i].axis != axis) continue;
        ds_verify__error(ck, DS_ERR_NAME, loc, NULL, "the place %s fixes the axis '%s' twice",
                         ds_verify__place_text(ck, place), axis);
        return false;
    }
    if (!mesh || ds_verify__mesh_has_axis(mesh, axis)) return true;
    ds_buf axes = {0};
    for (uint32_t i = 0; i < mesh->n_axes; i++)
        ds_buf_printf(&axes, "%s%s", i ? ", " : "", mesh->axes[i].name);
    ds_verify__error(ck, DS_ERR_NAME, loc, NULL, "mesh @%s has no axis '%s'; it has %s",
                     place->name, axis, axes.n ? axes.text : "none");
    ds_buf_deinit(&axes);
    return false;
}

static bool check_device(ds_checker *ck, const ds_place *place, const ds_topology *topology,
                         ds_loc loc) {
    const ds_node_decl *node = ds_verify__path(ck, topology, place->steps, place->n_steps, loc);
    if (!node) return false;
    if (node->kind == DS_NODE_DEVICE || node->kind == DS_NODE_INSTANCE) return true;
    static const char *const kinds[] = {"device", "switch", "nic", "host", "instance"};
    ds_verify__error(ck, DS_ERR_NAME, loc, NULL, "values live on devices; '%s' of @%s is a %s",
                     node->name, topology->name, kinds[node->kind]);
    return false;
}

bool ds_verify__check_place(ds_checker *ck, const ds_func *func, const ds_place *place,
                            ds_loc loc) {
    if (place->loc.line) loc = place->loc;
    ds_resolved at;
    if (!ds_verify__resolve(func, place, &at)) {
        if (place->kind == DS_PLACE_MESH) {
            unknown_mesh(ck, func, place, loc);
        } else {
            ds_verify__unknown(ck, func->module, DS_ITEM_TOPOLOGY, loc, place->name);
        }
        return false;
    }
    if (at.kind == DS_PLACE_DEVICE) return check_device(ck, place, at.topology, loc);
    bool ok = true;
    for (uint32_t i = 0; i < place->n_coords; i++)
        ok = check_coord(ck, func, place, i, at.mesh, loc) && ok;
    return ok;
}

typedef struct axis_use {
    ds_checker *ck;
    const ds_func *func;
    const ds_type *type;
    const char *what;
    ds_loc loc;
} axis_use;

/* Checks one axis of a type: declared, and not fixed on the place. `role` names the axis's use in
 * the type. */
static bool check_type_axis(const axis_use *u, const char *axis, const char *role) {
    if (!ds_verify__check_axis(u->ck, u->func->module, axis, u->loc)) return false;
    if (!ds_verify__is_fixed(&u->type->on, axis)) return true;
    ds_verify__error(u->ck, DS_ERR_SHARDING, u->loc, NULL,
                     "%s is %s '%s', but lives on %s, where '%s' is fixed to one coordinate",
                     u->what, role, axis, ds_verify__place_text(u->ck, &u->type->on), axis);
    return false;
}

static bool check_once(const axis_use *u) {
    const char *seen[DS_MAX_RANK * 8];
    uint32_t n = 0;
    for (uint32_t d = 0; d < u->type->rank; d++)
        for (uint32_t s = 0; s < u->type->dims[d].n_splits; s++)
            if (n < sizeof seen / sizeof *seen) seen[n++] = u->type->dims[d].splits[s].axis;
    for (uint32_t p = 0; p < u->type->n_partials; p++)
        if (n < sizeof seen / sizeof *seen) seen[n++] = u->type->partials[p].axis;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++)
            if (seen[i] == seen[j]) {
                ds_verify__error(u->ck, DS_ERR_SHARDING, u->loc, NULL,
                                 "the type of %s uses the axis '%s' twice: %s", u->what, seen[i],
                                 ds_verify__type_text(u->ck, u->type));
                return false;
            }
    return true;
}

ds_type *ds_verify__seen(ds_checker *ck, const ds_func *func, const ds_type *type) {
    return func->is_model && type ? ds_type_plain(&ck->unit->arena, type) : (ds_type *)type;
}

/* Checks a model's type: splits are hints, and no other annotation is allowed. */
static bool check_hints(const axis_use *u) {
    const char *fault = NULL;
    if (u->type->n_partials) fault = "'partial' follows from the operations";
    if (u->type->on.kind != DS_PLACE_NONE) fault = "the strategy, not 'on', says where values live";
    if (u->type->host) fault = "the strategy says what is offloaded";
    for (uint32_t d = 0; d < u->type->rank && !fault; d++)
        for (uint32_t s = 0; s < u->type->dims[d].n_splits; s++)
            if (u->type->dims[d].splits[s].n_sizes) fault = "shard sizes follow from the strategy";
    if (!fault) return true;
    ds_verify__error(u->ck, DS_ERR_SHARDING, u->loc, NULL,
                     "%s is %s, but @%s is part of a model, where '@axis' hints at a split: %s",
                     u->what, ds_verify__type_text(u->ck, u->type), u->func->name, fault);
    return false;
}

bool ds_verify__check_type(ds_checker *ck, const ds_func *func, const ds_type *type,
                           const char *what, ds_loc loc) {
    axis_use u = {ck, func, type, what, loc};
    if (func->is_model && !check_hints(&u)) return false;
    if (!ds_verify__check_place(ck, func, &type->on, loc)) return false;
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++)
            if (!check_type_axis(&u, type->dims[d].splits[s].axis, "split over")) return false;
    for (uint32_t p = 0; p < type->n_partials; p++)
        if (!check_type_axis(&u, type->partials[p].axis, "partial over")) return false;
    if (!check_once(&u)) return false;
    if (func->rank < 0) return true;
    bool split = false;
    for (uint32_t d = 0; d < type->rank; d++) split = split || type->dims[d].n_splits;
    if (!split && !type->n_partials && type->on.kind == DS_PLACE_NONE) return true;
    ds_verify__error(ck, DS_ERR_SHARDING, loc, NULL,
                     "%s is %s; in a rank's body types are local: no mesh axes, no 'partial', no "
                     "'on'",
                     what, ds_verify__type_text(ck, type));
    return false;
}

/* ---- comparison ---- */

static ds_tri weakest(ds_tri a, ds_tri b) {
    if (a == DS_NO || b == DS_NO) return DS_NO;
    return a == DS_UNKNOWN || b == DS_UNKNOWN ? DS_UNKNOWN : DS_YES;
}

ds_tri ds_verify__same_expr(ds_checker *ck, const ds_env *env, ds_expr a, ds_expr b) {
    if (DS_HAS_EXPR(a) != DS_HAS_EXPR(b)) return DS_NO;
    if (!DS_HAS_EXPR(a)) return DS_YES;
    ds_tri same = ds_expr_equal(&ck->unit->exprs, a, b);
    int64_t x, y;
    if (same != DS_UNKNOWN || !env || ds_expr_eval_int(env, a, DS_NOWHERE, &x, NULL) ||
        ds_expr_eval_int(env, b, DS_NOWHERE, &y, NULL))
        return same;
    return x == y ? DS_YES : DS_NO;
}

static void put_number(ds_checker *ck, const ds_env *env, ds_expr *e) {
    int64_t value;
    if (DS_HAS_EXPR(*e) && ds_expr_eval_int(env, *e, DS_NOWHERE, &value, NULL) == DS_OK)
        *e = ds_expr_int(&ck->unit->exprs, value);
}

const ds_type *ds_verify__numbers(ds_checker *ck, const ds_env *env, const ds_type *type) {
    ds_type *copy = ds_type_copy(&ck->unit->arena, type);
    for (uint32_t d = 0; d < copy->rank; d++) {
        put_number(ck, env, &copy->dims[d].size);
        for (uint32_t s = 0; s < copy->dims[d].n_splits; s++)
            for (uint32_t k = 0; k < copy->dims[d].splits[s].n_sizes; k++)
                put_number(ck, env, &copy->dims[d].splits[s].sizes[k]);
    }
    for (uint32_t i = 0; i < copy->on.n_coords; i++) put_number(ck, env, &copy->on.coords[i].at);
    for (uint32_t i = 0; i < copy->on.n_steps; i++) put_number(ck, env, &copy->on.steps[i].index);
    return copy;
}

ds_tri ds_verify__same_tensor(ds_checker *ck, const ds_env *env, const ds_type *a,
                              const ds_type *b) {
    ds_type x = *a, y = *b;
    x.on = y.on = (ds_place){0};
    ds_tri same = ds_type_equal(&ck->unit->exprs, &x, &y);
    if (same != DS_UNKNOWN || !env) return same;
    return ds_type_equal(&ck->unit->exprs, ds_verify__numbers(ck, env, &x),
                         ds_verify__numbers(ck, env, &y));
}

ds_tri ds_verify__same_place(ds_checker *ck, const ds_func *func, const ds_env *env,
                             const ds_place *a, const ds_place *b) {
    ds_resolved x, y;
    if (!ds_verify__resolve(func, a, &x) || !ds_verify__resolve(func, b, &y)) return DS_UNKNOWN;
    if (x.kind == DS_PLACE_NONE && y.kind == DS_PLACE_NONE) return DS_YES;
    if (x.kind == DS_PLACE_NONE || y.kind == DS_PLACE_NONE) {
        /* No place means the scenario's mesh, if there is one. */
        const ds_mesh *mesh = ds_scenario_mesh(ck->unit);
        const ds_resolved *other = x.kind == DS_PLACE_NONE ? &y : &x;
        const ds_place *place = x.kind == DS_PLACE_NONE ? b : a;
        if (!mesh || other->kind == DS_PLACE_DEVICE) return DS_UNKNOWN;
        return other->mesh == mesh && !place->n_coords ? DS_YES : DS_NO;
    }
    if (x.kind != y.kind || x.mesh != y.mesh || x.param != y.param || x.topology != y.topology)
        return DS_NO;
    ds_place p = *a, q = *b;
    p.kind = q.kind = x.kind;
    p.name = q.name = "";
    ds_tri same = ds_place_equal(&ck->unit->exprs, &p, &q);
    if (same != DS_UNKNOWN || !env) return same;
    ds_type s = {.on = p}, t = {.on = q};
    return ds_place_equal(&ck->unit->exprs, &ds_verify__numbers(ck, env, &s)->on,
                          &ds_verify__numbers(ck, env, &t)->on);
}

ds_tri ds_verify__same_type(ds_checker *ck, const ds_func *func, const ds_env *env,
                            const ds_type *written, const ds_type *found) {
    ds_tri tensor = ds_verify__same_tensor(ck, env, written, found);
    if (written->on.kind == DS_PLACE_NONE) return tensor;
    return weakest(tensor, ds_verify__same_place(ck, func, env, &written->on, &found->on));
}

const ds_type *ds_verify__rename(ds_checker *ck, const ds_type *type, const ds_binder *from,
                                 const ds_binder *to, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (from[i].name == to[i].name) continue;
        type = ds_type_subst(&ck->unit->exprs, &ck->unit->arena, type, from[i].name,
                             ds_expr_index(&ck->unit->exprs, to[i].name));
    }
    return type;
}

ds_tri ds_verify__same_binders(ds_checker *ck, const ds_env *env, const ds_binder *a, uint32_t n_a,
                               const ds_binder *b, uint32_t n_b) {
    if (n_a != n_b) return DS_NO;
    ds_tri same = DS_YES;
    for (uint32_t i = 0; i < n_a; i++) {
        same = weakest(same, ds_verify__same_expr(ck, env, a[i].lo, b[i].lo));
        same = weakest(same, ds_verify__same_expr(ck, env, a[i].hi, b[i].hi));
    }
    return same;
}

/* ---- axes of size one ---- */

static bool is_one(const ds_resolved *at, const ds_place *place, const char *axis) {
    if (at->kind == DS_PLACE_DEVICE || ds_verify__is_fixed(place, axis)) return true;
    return at->mesh && !ds_verify__mesh_has_axis(at->mesh, axis);
}

const ds_type *ds_verify__without_ones(ds_checker *ck, const ds_func *func, const ds_type *type) {
    ds_resolved at;
    if (!ds_verify__resolve(func, &type->on, &at)) return type;
    bool any = false;
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++)
            any = any || is_one(&at, &type->on, type->dims[d].splits[s].axis);
    for (uint32_t p = 0; p < type->n_partials; p++)
        any = any || is_one(&at, &type->on, type->partials[p].axis);
    if (!any) return type;
    ds_type *copy = ds_type_copy(&ck->unit->arena, type);
    for (uint32_t d = 0; d < copy->rank; d++) {
        ds_dim *dim = &copy->dims[d];
        uint32_t kept = 0;
        for (uint32_t s = 0; s < dim->n_splits; s++)
            if (!is_one(&at, &type->on, dim->splits[s].axis)) dim->splits[kept++] = dim->splits[s];
        dim->n_splits = kept;
    }
    uint32_t kept = 0;
    for (uint32_t p = 0; p < copy->n_partials; p++)
        if (!is_one(&at, &type->on, copy->partials[p].axis))
            copy->partials[kept++] = copy->partials[p];
    copy->n_partials = kept;
    return copy;
}
