/* A scenario with a `model`: passes make the step, and the step is simulated like any program.
 *
 * Only the passes read `train` and `strategy`. Errors of passes are about the step's own unit, a
 * copy: the copy's files are named as the source's, so an error's place is the source's. */
#include "ir/passes/build/count.h"
#include "ir/strategy/scenario.h"
#include "sim/run/internal.h"

#include <string.h>

/* ---- the step ---- */

static ds_status make_step(const ds_binding *source, bool brief, bool trusted, ds_model_step **out,
                           ds_error *err) {
    *out = NULL;
    DS_TRY(ds_model_step_new(source, out, err));
    (*out)->brief = brief;
    (*out)->trusted = trusted;
    ds_status status = ds_model_step_run_to(*out, DS_PASS_OVERLAP, NULL, NULL, err);
    if (status == DS_OK) return DS_OK;
    ds_model_step_place_error(source->unit, err);
    ds_model_step_free(*out);
    *out = NULL;
    return status;
}

/* A brief step has few checks. Where that fails, each pass runs again and is verified, so that the
 * error is that of the first pass that went wrong. */
ds_status ds_run__make_step(const ds_binding *source, bool trusted, ds_model_step **out,
                            ds_error *err) {
    ds_error unsaid;
    if (make_step(source, true, trusted, out, &unsaid) == DS_OK) return DS_OK;
    return make_step(source, false, false, out, err);
}

/* ---- sizes of the model ---- */

ds_status ds_model_samples(const ds_binding *source, int64_t *out, ds_error *err) {
    const ds_func *model = ds_scenario_model(source->unit);
    ds_env env = ds_binding_env(source, NULL);
    for (uint32_t i = 0; i < model->n_args && *out == 0; i++) {
        const ds_value_info *arg = ds_value_at(model, model->args[i]);
        if (ds_type_is_over(arg->type, 0, "dp"))
            DS_TRY(ds_expr_eval_int(&env, arg->type->dims[0].size, arg->loc, out, err));
    }
    return DS_OK;
}

ds_status ds_model_flop(const ds_binding *source, bool trains, double *out, double *padding,
                        ds_error *err) {
    ds_model_counts counts;
    DS_TRY(ds_model_count(source, ds_scenario_model(source->unit), &counts, err));
    *out = (trains ? 3.0 : 1.0) * (double)(counts.matmul_flop - counts.padding_flop);
    *padding = (trains ? 3.0 : 1.0) * (double)counts.padding_flop;
    return DS_OK;
}
