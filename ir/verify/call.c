/* Calls: a callee's types as its caller sees them.
 *
 * Shapes need no translation, because params are global names. Places need translation: a mesh
 * parameter means a mesh argument, and a mesh of another module may have another name (or none) in
 * the caller's module. */
#include "ir/verify/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- names across modules ---- */

/* The object's name in `module`: its own name, or "alias.name"; NULL if `module` does not see
 * it. */
static const char *name_here(ds_checker *ck, const ds_module *module, const char *name,
                             const void *object, bool is_mesh) {
    for (uint32_t i = 0; i <= module->imports.n; i++) {
        const char *here = name;
        if (i) {
            const ds_import *import = &module->imports.at[i - 1];
            if (!import->alias) continue;
            const char *bare = strrchr(name, '.');
            here = ds_intern(
                &ck->unit->strings,
                ds_arena_printf(&ck->diags->arena, "%s.%s", import->alias, bare ? bare + 1 : name));
        }
        const void *found = is_mesh ? (const void *)ds_find_mesh(module, here)
                                    : (const void *)ds_find_topology(module, here);
        if (found == object) return here;
    }
    return NULL;
}

/* ---- places ---- */

static const ds_place *mesh_arg(const ds_op *call, const char *param) {
    for (uint32_t i = 0; i < call->callee->n_mesh_params && i < call->n_mesh_args; i++)
        if (call->callee->mesh_params[i] == param) return &call->mesh_args[i];
    return NULL;
}

/* @s{tp=0} with @s = @m{pp=1} is @m{pp=1, tp=0}. An axis that the mesh lacks has size 1, so its
 * coordinate is dropped. */
static bool join_places(ds_checker *ck, const ds_func *caller, const ds_op *call,
                        const ds_place *arg, const ds_place *inner, ds_place *out) {
    *out = *arg;
    if (!inner->n_coords || arg->kind == DS_PLACE_DEVICE) return true;
    ds_resolved at;
    if (!ds_verify__resolve(caller, arg, &at)) return false;
    out->coords = DS_NEW_N(&ck->unit->arena, ds_coord, arg->n_coords + inner->n_coords);
    if (arg->n_coords) memcpy(out->coords, arg->coords, arg->n_coords * sizeof *arg->coords);
    for (uint32_t i = 0; i < inner->n_coords; i++) {
        const char *axis = inner->coords[i].axis;
        if (ds_verify__is_fixed(arg, axis)) {
            ds_verify__error(ck, DS_ERR_SHARDING, call->loc, NULL,
                             "@%s picks a coordinate of '%s' from its mesh, but the call gives it "
                             "%s, where '%s' is fixed already",
                             call->callee_name, axis, ds_verify__place_text(ck, arg), axis);
            return false;
        }
        if (at.mesh && !ds_verify__mesh_has_axis(at.mesh, axis)) continue;
        out->coords[out->n_coords++] = inner->coords[i];
    }
    return true;
}

/* The callee's place for the caller. False if the place has no meaning there, which is reported at
 * the callee or at the call. */
static bool place_here(ds_checker *ck, const ds_func *caller, const ds_op *call,
                       const ds_place *place, ds_place *out) {
    ds_resolved at;
    *out = *place;
    if (!ds_verify__resolve(call->callee, place, &at)) return false;
    if (at.kind == DS_PLACE_NONE) return true;
    if (at.param) {
        const ds_place *arg = mesh_arg(call, at.param);
        return arg && join_places(ck, caller, call, arg, place, out);
    }
    if (call->callee->module == caller->module) return true;
    const void *object = at.mesh ? (const void *)at.mesh : (const void *)at.topology;
    const char *name = name_here(ck, caller->module, place->name, object, at.mesh != NULL);
    if (!name) {
        ds_verify__error(ck, DS_ERR_NAME, call->loc, NULL,
                         "@%s has values on @%s, which has no name here: import the file that "
                         "declares it",
                         call->callee_name, place->name);
        return false;
    }
    out->name = name;
    return true;
}

/* The callee's type with the call's index in the place of the index parameter. */
static const ds_type *with_index(ds_checker *ck, const ds_op *call, const ds_type *type) {
    const char *index = call->callee->index_param;
    if (!index) return type;
    return ds_type_subst(&ck->unit->exprs, &ck->unit->arena, type, index, call->index_arg);
}

const ds_type *ds_verify__callee_type(ds_checker *ck, const ds_func *caller, const ds_op *call,
                                      const ds_type *type) {
    if (call->callee->is_model) return ds_verify__seen(ck, call->callee, type);
    ds_place place;
    type = with_index(ck, call, type);
    if (!place_here(ck, caller, call, &type->on, &place)) return NULL;
    ds_type *here = DS_NEW(&ck->unit->arena, ds_type);
    *here = *type;
    here->on = place;
    return ds_verify__without_ones(ck, caller, here);
}

const ds_binder *ds_verify__callee_binders(ds_checker *ck, const ds_op *call,
                                           const ds_binder *binders, uint32_t n) {
    const char *index = call->callee->index_param;
    if (!n || !index) return binders;
    ds_binder *here = DS_NEW_N(&ck->unit->arena, ds_binder, n);
    for (uint32_t i = 0; i < n; i++) {
        here[i] = binders[i];
        here[i].lo = ds_expr_subst(&ck->unit->exprs, binders[i].lo, index, call->index_arg);
        here[i].hi = ds_expr_subst(&ck->unit->exprs, binders[i].hi, index, call->index_arg);
    }
    return here;
}

/* ---- arguments ---- */

static bool check_counts(ds_walker *w, const ds_op *op) {
    const ds_func *callee = op->callee;
    ds_checker *ck = w->ck;
    bool ok = true;
    if (op->n_mesh_args != callee->n_mesh_params) {
        ds_verify__error(ck, DS_ERR_TYPE, op->loc, NULL,
                         "@%s has %u mesh parameter%s, and the call gives %u", op->callee_name,
                         callee->n_mesh_params, callee->n_mesh_params == 1 ? "" : "s",
                         op->n_mesh_args);
        ok = false;
    }
    if (DS_HAS_EXPR(op->index_arg) != (callee->index_param != NULL)) {
        ds_verify__error(ck, DS_ERR_TYPE, op->loc, NULL,
                         callee->index_param ? "@%s has the index parameter '%s', and the call "
                                               "gives no integer for it"
                                             : "@%s has no index parameter, and the call gives an "
                                               "integer",
                         op->callee_name, callee->index_param);
        ok = false;
    }
    if (op->n_in != callee->n_args) {
        ds_buf names = {0};
        for (uint32_t i = 0; i < callee->n_args; i++)
            ds_buf_printf(&names, "%s%%%s", i ? ", " : "",
                          ds_value_at(callee, callee->args[i])->name);
        ds_verify__error(ck, DS_ERR_TYPE, op->loc, NULL,
                         "@%s takes %u argument%s (%s), and the call gives %u", op->callee_name,
                         callee->n_args, callee->n_args == 1 ? "" : "s", names.n ? names.text : "",
                         op->n_in);
        ds_buf_deinit(&names);
        ok = false;
    }
    if (op->n_out != callee->n_results) {
        ds_verify__error(ck, DS_ERR_TYPE, op->loc, NULL,
                         "@%s gives %u result%s, and %u name%s on the left", op->callee_name,
                         callee->n_results, callee->n_results == 1 ? "" : "s", op->n_out,
                         op->n_out == 1 ? " is" : "s are");
        ok = false;
    }
    return ok;
}

static const char *family_note(ds_checker *ck, const ds_binder *binders, uint32_t n) {
    if (!n) return "one value";
    ds_buf buf = {0};
    ds_buf_put(&buf, "a family over ");
    for (uint32_t i = 0; i < n; i++) {
        ds_buf_put(&buf, i ? ", " : "");
        ds_expr_print(&ck->unit->exprs, binders[i].lo, &buf);
        ds_buf_put(&buf, "..");
        ds_expr_print(&ck->unit->exprs, binders[i].hi, &buf);
    }
    const char *text = ds_arena_strdup(&ck->diags->arena, buf.text);
    ds_buf_deinit(&buf);
    return text;
}

static const char *place_hint(ds_checker *ck, const ds_func *caller, const ds_op *op,
                              const ds_type *need, const ds_type *found) {
    if (ds_verify__same_place(ck, caller, NULL, &need->on, &found->on) == DS_NO) {
        if (need->on.kind == DS_PLACE_NONE)
            return ds_arena_printf(
                &ck->diags->arena,
                "give @%s a mesh parameter, as in 'func @%s<mesh @s>(%%x: f32[8] "
                "on @s)', and call it with the mesh",
                op->callee_name, op->callee_name);
        return "a call never moves data: bring the value there first, with 'send' or 'reshard'";
    }
    ds_type a = *need, b = *found;
    a.n_partials = b.n_partials = 0;
    for (uint32_t d = 0; a.rank == b.rank && d < a.rank; d++)
        if (a.dims[d].n_splits != b.dims[d].n_splits)
            return "a call never moves data: change the sharding before it";
    return NULL;
}

static bool check_arg(ds_walker *w, const ds_op *op, uint32_t i) {
    ds_checker *ck = w->ck;
    const ds_func *callee = op->callee;
    const ds_value_info *param = ds_value_at(callee, callee->args[i]), *family;
    const ds_type *found = ds_verify__read(w, &op->in[i], &family);
    if (!found || !param->type_written) return true;
    /* A program's call of a model is reported elsewhere; the model's hints are no types. */
    if (callee->is_model && !w->func->is_model && !ds_type_is_plain(param->type)) return false;
    const char *name = ds_verify__value_text(w, op->in[i].value);
    const ds_binder *binders = family ? family->binders : NULL;
    uint32_t n = family ? family->n_binders : 0;
    const ds_binder *own = ds_verify__callee_binders(ck, op, param->binders, param->n_binders);
    if (ds_verify__same_binders(ck, NULL, own, param->n_binders, binders, n) == DS_NO) {
        ds_verify__error(ck, DS_ERR_TYPE, op->in[i].loc, NULL,
                         "argument %u (%%%s) of @%s is %s, but %s is %s", i + 1, param->name,
                         op->callee_name, family_note(ck, own, param->n_binders), name,
                         family_note(ck, binders, n));
        return false;
    }
    const ds_type *need = ds_verify__callee_type(ck, w->func, op, param->type);
    if (!need) return false;
    need = ds_verify__rename(ck, need, param->binders, binders, n);
    const ds_type *plain = ds_verify__without_ones(ck, w->func, found);
    if (ds_verify__same_tensor(ck, NULL, need, plain) != DS_NO &&
        ds_verify__same_place(ck, w->func, NULL, &need->on, &found->on) != DS_NO)
        return true;
    ds_verify__error(ck, DS_ERR_TYPE, op->in[i].loc, place_hint(ck, w->func, op, need, plain),
                     "argument %u (%%%s) of @%s must be %s, but %s is %s", i + 1, param->name,
                     op->callee_name, ds_verify__type_text(ck, need), name,
                     ds_verify__type_text(ck, found));
    return false;
}

/* ---- results ---- */

static void set_result(ds_walker *w, const ds_op *op, uint32_t i) {
    ds_checker *ck = w->ck;
    const ds_func *callee = op->callee;
    ds_value_info *info = ds_value_at(w->func, op->out[i]);
    uint32_t n = callee->result_binders ? callee->n_result_binders[i] : 0;
    const ds_binder *binders =
        n ? ds_verify__callee_binders(ck, op, callee->result_binders[i], n) : NULL;
    const ds_type *type = ds_verify__callee_type(ck, w->func, op, callee->results[i]);
    if (n && !info->n_binders && !info->in_rec) {
        info->binders = DS_NEW_N(&ck->unit->arena, ds_binder, n);
        memcpy(info->binders, binders, n * sizeof *binders);
        info->n_binders = n;
    } else if (!info->in_rec && ds_verify__same_binders(ck, NULL, info->binders, info->n_binders,
                                                        binders, n) == DS_NO) {
        ds_verify__error(ck, DS_ERR_TYPE, info->loc, NULL,
                         "%%%s is written as %s, but @%s gives %s", info->name,
                         family_note(ck, info->binders, info->n_binders), op->callee_name,
                         family_note(ck, binders, n));
        type = NULL;
    }
    if (type && n) type = ds_verify__rename(ck, type, binders, info->binders, n);
    const char *who = ds_verify__name_text(&ck->diags->arena, '@', op->callee_name);
    ds_verify__set_type(w, op->out[i], type, info->loc, who, "gives");
}

void ds_verify__call(ds_walker *w, ds_op *op) {
    if (!op->callee)
        ds_verify__unknown(w->ck, w->func->module, DS_ITEM_FUNC, op->loc, op->callee_name);
    const ds_attr *weights = ds_attr_find(op->attrs, op->n_attrs, "weights");
    if (weights && !(op->n_out && ds_value_at(w->func, op->out[0])->in_rec))
        ds_verify__error(w->ck, DS_ERR_NAME, weights->loc, NULL,
                         "'weights' is for a call that is an equation of a rec; in a loop each "
                         "turn has weights of its own");
    bool places = true;
    for (uint32_t i = 0; i < op->n_mesh_args; i++)
        places = ds_verify__check_place(w->ck, w->func, &op->mesh_args[i], op->loc) && places;
    bool known = op->callee && check_counts(w, op) && places, ok = known;
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ds_value_info *family;
        if (known) {
            ok = check_arg(w, op, i) && ok;
        } else {
            ds_verify__read(w, &op->in[i], &family);
        }
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        if (ok) {
            set_result(w, op, i);
        } else {
            w->defined[op->out[i].i] = DS_WRONG;
        }
    }
}
