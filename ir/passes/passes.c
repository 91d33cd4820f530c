/* The driver: the table of passes, the passes that a scenario asks for, and the verifier after
 * each. */
#include "ir/passes/passes.h"

#include "ir/passes/build/clone.h"
#include "ir/passes/internal.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"

#include <string.h>

typedef struct pass {
    const char *name;
    ds_status (*run)(ds_model_step *step, ds_error *err); /* NULL: not in this version */
} pass;

/* lower makes the step (ds_model_step_new). */
static const pass passes[DS_PASS_COUNT] = {
    [DS_PASS_LOWER] = {"lower", NULL},
    [DS_PASS_STAGE] = {"stage", ds_pass_stage},
    [DS_PASS_GRAD] = {"grad", ds_pass_grad},
    [DS_PASS_OPTIMIZER] = {"optimizer", ds_pass_optimizer},
    [DS_PASS_RECOMPUTE] = {"recompute", ds_pass_recompute},
    [DS_PASS_SHARD] = {"shard", ds_pass_shard},
    [DS_PASS_OFFLOAD] = {"offload", ds_pass_offload},
    [DS_PASS_PIPELINE] = {"pipeline", ds_pass_pipeline},
    [DS_PASS_OVERLAP] = {"overlap", ds_pass_overlap},
    [DS_PASS_PROJECT] = {"project", ds_pass_project},
};

const char *ds_pass_name(ds_pass_id pass_id) {
    return pass_id < DS_PASS_COUNT ? passes[pass_id].name : "?";
}

ds_pass_id ds_pass_by_name(const char *name) {
    uint32_t i = 0;
    while (i < DS_PASS_COUNT && strcmp(passes[i].name, name) != 0) i++;
    return (ds_pass_id)i;
}

/* ---- verification ---- */

static const ds_diag *first_error(const ds_diags *diags) {
    for (uint32_t i = 0; i < diags->all.n; i++)
        if (diags->all.at[i].severity == DS_SEV_ERROR) return &diags->all.at[i];
    return NULL;
}

/* Of longer loops the first and last turns are checked: the text was checked in all turns before it
 * became a step, and the text of all turns is the same. */
#define MOST_VERIFIED_TURNS 256u

ds_status ds_step__verify(ds_model_step *step, const char *after, ds_status code, ds_error *err) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_clone_order_items(step->unit->modules.at[0]);
    ds_status status = ds_verify(step->unit, &diags);
    if (status == DS_OK) {
        status = ds_bind(step->unit, NULL, 0, &step->binding, err);
        if (status == DS_OK && !step->trusted)
            status =
                ds_verify_bound_within(step->unit, &step->binding, MOST_VERIFIED_TURNS, &diags);
    }
    const ds_diag *diag = first_error(&diags);
    if (diag) status = ds_error_set(err, code, diag->loc, "after %s: %s", after, diag->message);
    ds_diags_deinit(&diags);
    return status;
}

/* ---- running ---- */

/* A brief step of more ops is not verified. Verifying would take longer than all passes, and a pass
 * that is wrong here is also wrong with fewer microbatches, where the step is verified. */
#define MOST_VERIFIED_OPS 20000u

static ds_status missing(ds_pass_id pass_id, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "the pass '%s' is not part of this version", passes[pass_id].name);
}

ds_status ds_model_step_run(ds_model_step *step, ds_pass_id pass_id, ds_error *err) {
    if (pass_id >= DS_PASS_COUNT)
        return ds_error_set(err, DS_ERR_INTERNAL, DS_NOWHERE, "there is no pass %d", (int)pass_id);
    if (pass_id == DS_PASS_LOWER) return DS_OK; /* ds_model_step_new has lowered the step */
    if (step->done >> pass_id & 1)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%s has run already",
                            passes[pass_id].name);
    if (step->done >> (pass_id + 1))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%s comes before what has run already",
                            passes[pass_id].name);
    if (!passes[pass_id].run) return missing(pass_id, err);
    DS_TRY(passes[pass_id].run(step, err));
    step->done |= 1u << pass_id;
    bool unseen = step->trusted && step->schematic;
    bool brief =
        ds_step__is_brief(step) && pass_id >= DS_PASS_GRAD &&
        (pass_id < DS_PASS_OVERLAP || step->trusted || step->func->body.n_ops > MOST_VERIFIED_OPS);
    if (unseen || brief) {
        if (pass_id == DS_PASS_OVERLAP) ds_clone_order_items(step->unit->modules.at[0]);
        return ds_bind(step->unit, NULL, 0, &step->binding, err);
    }
    return ds_step__verify(step, passes[pass_id].name, DS_ERR_INTERNAL, err);
}

uint32_t ds_step_tells_apart(const ds_model_step *step) {
    const ds_strategy *s = &step->strategy;
    uint32_t out = 0;
    if (!step->train.on) return 0;
    if (s->recompute != DS_RECOMPUTE_NONE && s->recompute_layers) out |= DS_LAYERS_AGAIN;
    if (s->offload & DS_OFFLOAD_ACTIVATIONS && s->offload_layers) out |= DS_LAYERS_SENT;
    if (s->offload & DS_OFFLOAD_OPTIMIZER && s->offload_fraction < 1) out |= DS_LAYERS_STATES_SENT;
    return out;
}

bool ds_model_step_wants(const ds_model_step *step, ds_pass_id pass_id) {
    const ds_strategy *s = &step->strategy;
    int64_t world = s->dp * s->tp * s->pp * s->cp;
    switch (pass_id) {
    case DS_PASS_STAGE:
        return s->pp > 1 || ds_step_tells_apart(step);
    case DS_PASS_PIPELINE:
        return s->pp > 1;
    case DS_PASS_GRAD:
        return step->train.on;
    case DS_PASS_OPTIMIZER:
        return step->train.on && step->train.optimizer != DS_OPTIMIZER_NONE;
    case DS_PASS_RECOMPUTE:
        return step->train.on && s->recompute != DS_RECOMPUTE_NONE;
    case DS_PASS_OFFLOAD:
        return s->offload != 0;
    case DS_PASS_OVERLAP:
        return world > 1 || s->offload;
    default:
        return true;
    }
}

ds_status ds_model_step_run_to(ds_model_step *step, ds_pass_id last,
                               ds_status (*observe)(void *context, const ds_model_step *step,
                                                    ds_pass_id pass, ds_error *err),
                               void *context, ds_error *err) {
    for (uint32_t i = DS_PASS_LOWER; i <= (uint32_t)last && i < DS_PASS_COUNT; i++) {
        ds_pass_id pass_id = (ds_pass_id)i;
        bool ran = step->done >> i & 1;
        if (!ran && !ds_model_step_wants(step, pass_id)) continue;
        if (!ran) DS_TRY(ds_model_step_run(step, pass_id, err));
        if (observe && (!ran || pass_id == DS_PASS_LOWER))
            DS_TRY(observe(context, step, pass_id, err));
    }
    return DS_OK;
}

void ds_model_step_set_func(ds_model_step *step, ds_func *func) {
    ds_module *module = step->unit->modules.at[0];
    func->trivia.blank_before = true;
    uint32_t i = 0;
    while (i < module->funcs.n && module->funcs.at[i]->name != func->name) i++;
    if (i < module->funcs.n)
        module->funcs.at[i] = func;
    else
        DS_PUSH(&step->unit->arena, &module->funcs, func);
    if (step->func && func->name == step->func->name) step->func = func;
    if (!step->trusted) ds_clone_order_items(module); /* else when verified */
}

ds_loc ds_step__knob(const ds_model_step *step, const char *name) {
    return ds_strategy_knob(step->unit, name);
}
