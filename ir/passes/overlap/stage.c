/* Stages in a pipelined step: a wait on one stage depends on no op of another stage. */
#include "ir/passes/overlap/internal.h"
#include "ir/strategy/scenario.h"

#include <string.h>

static bool stage_of(const ds_model_step *step, const ds_place *on, uint32_t *out) {
    ds_env env = ds_binding_env(&step->binding, NULL);
    int64_t stage;
    for (uint32_t s = 0; step->stage_mesh && s < step->strategy.pp; s++)
        if (on->name == step->stage_mesh[s]) {
            *out = s;
            return true;
        }
    for (uint32_t i = 0; i < on->n_coords; i++)
        if (strcmp(on->coords[i].axis, "pp") == 0 &&
            ds_expr_eval_int(&env, on->coords[i].at, DS_NOWHERE, &stage, NULL) == DS_OK) {
            *out = (uint32_t)stage;
            return true;
        }
    return false;
}

static bool coordinate(const ds_model_step *step, const ds_type *type, uint32_t *out) {
    return type && stage_of(step, &type->on, out);
}

uint32_t ds_overlap__n_stages(const ds_model_step *step, const ds_func *func) {
    bool placed = step->done >> DS_PASS_PIPELINE & 1;
    return placed && func == step->func ? (uint32_t)step->strategy.pp : 1;
}

uint32_t ds_overlap__stage(const ds_model_step *step, const ds_func *func, const ds_op *op,
                           uint32_t otherwise) {
    bool call = op->code == DS_OP_CALL;
    const ds_func *of = call ? op->callee : func;
    const ds_value *values = call ? of->args : op->out;
    uint32_t n = call ? of->n_args : op->n_out, stage;
    if (op->n_mesh_args) return stage_of(step, &op->mesh_args[0], &stage) ? stage : otherwise;
    return n && coordinate(step, ds_value_at(of, values[0])->type, &stage) ? stage : otherwise;
}

/* The slice that the first call of the function gives. */
static const ds_place *given(const ds_model_step *step, const ds_func *func) {
    const ds_block *body = &step->func->body;
    for (uint32_t i = 0; i < body->n_ops; i++)
        if (body->ops[i]->callee == func && body->ops[i]->n_mesh_args)
            return &body->ops[i]->mesh_args[0];
    return NULL;
}

const ds_mesh *ds_overlap__mesh(const ds_model_step *step, const ds_func *func,
                                const ds_place *on) {
    const ds_mesh *mesh = on->kind == DS_PLACE_MESH ? ds_find_mesh(func->module, on->name) : NULL;
    if (mesh || !step->stage_mesh) return mesh ? mesh : ds_scenario_mesh(step->unit);
    const ds_place *slice = given(step, func);
    return slice ? ds_find_mesh(func->module, slice->name) : ds_scenario_mesh(step->unit);
}

static ds_use made_before(const ds_model_step *step, const ds_func *func, uint32_t stage,
                          uint32_t at) {
    for (uint32_t i = at; i-- > 0;) {
        const ds_op *op = func->body.ops[i];
        if (ds_overlap__stage(step, func, op, UINT32_MAX) != stage) continue;
        for (uint32_t k = 0; k < op->n_out; k++) {
            const ds_value_info *info = ds_value_at(func, op->out[k]);
            if (!info->n_binders && !info->type->host) return ds_use_of(op->out[k]);
        }
    }
    return (ds_use){.value = {UINT32_MAX}};
}

ds_use ds_overlap__base(const ds_model_step *step, const ds_func *func, uint32_t stage,
                        uint32_t at) {
    for (uint32_t i = 0; i < func->n_args; i++) {
        const ds_value_info *arg = ds_value_at(func, func->args[i]);
        uint32_t its;
        if (!coordinate(step, arg->type, &its) || its != stage || arg->type->host) continue;
        ds_expr *index = DS_NEW_N(&step->unit->arena, ds_expr, arg->n_binders + 1);
        for (uint32_t b = 0; b < arg->n_binders; b++) index[b] = arg->binders[b].lo;
        return ds_use_at(&step->unit->arena, func->args[i], index, arg->n_binders);
    }
    return made_before(step, func, stage, at);
}
