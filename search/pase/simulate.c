/* From a scenario's text to a graph, and to a step time. */
#include "search/pase/simulate.h"

#include "ir/verify/verify.h"
#include "sim/run/run.h"

#include <stdlib.h>
#include <string.h>

static ds_status first_of(const ds_diags *diags, ds_error *err) {
    for (uint32_t i = 0; i < diags->all.n; i++)
        if (diags->all.at[i].severity == DS_SEV_ERROR)
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%s", diags->all.at[i].message);
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "it cannot be verified");
}

/* The unit is there, to be freed, whatever comes back. */
static ds_status open_unit(const ds_pase_source *source, ds_unit **unit, ds_binding *binding,
                           ds_error *err) {
    ds_diags diags;
    DS_TRY(ds_load_text(source->path, source->text, source->n, &source->load, unit, err));
    ds_diags_init(&diags);
    ds_status status = ds_verify(*unit, &diags) == DS_OK ? DS_OK : first_of(&diags, err);
    if (!status) status = ds_bind(*unit, source->settings, source->n_settings, binding, err);
    if (!status && ds_verify_bound(*unit, binding, &diags) != DS_OK) status = first_of(&diags, err);
    ds_diags_deinit(&diags);
    return status;
}

ds_status ds_pase_case_open(const ds_pase_source *source, ds_pase_case *out, ds_error *err) {
    memset(out, 0, sizeof *out);
    DS_TRY(open_unit(source, &out->unit, &out->binding, err));
    DS_TRY(ds_model_step_new(&out->binding, &out->step, err));
    DS_TRY(ds_pase_graph_read(out->step, &out->graph, err));
    out->folded = ds_pase_graph_fold(out->graph);
    return DS_OK;
}

void ds_pase_case_close(ds_pase_case *c) {
    ds_pase_graph_free(c->folded);
    ds_pase_graph_free(c->graph);
    ds_model_step_free(c->step);
    ds_unit_free(c->unit);
    memset(c, 0, sizeof *c);
}

ds_status ds_pase_simulate(const ds_pase_source *source, const ds_profiles *profiles,
                           ds_pase_time *out, ds_error *err) {
    ds_unit *unit = NULL;
    ds_result *result = NULL;
    ds_binding binding;
    ds_sim_options options = {0};
    ds_status status = open_unit(source, &unit, &binding, err);
    if (!status) status = ds_sim_options_read(&binding, &options, err);
    options.cost_mode = DS_COST_FITTED;
    if (!status) status = ds_simulate(&binding, profiles, &options, &result, err);
    if (!status)
        *out = (ds_pase_time){.step_ps = result->run.step_ps,
                              .peak_bytes = result->metrics.peak_bytes,
                              .fits = result->metrics.fits};
    ds_result_free(result);
    ds_unit_free(unit);
    return status;
}

ds_status ds_pase_simulate_strategy(const ds_pase_source *source, const ds_profiles *profiles,
                                    const ds_pase_assigned *strategy, ds_pase_time *out,
                                    ds_error *err) {
    const ds_pase_graph *graph = strategy->graph;
    const ds_pase_splits *splits = strategy->splits;
    ds_unit *unit = NULL;
    ds_pase_applied applied;
    ds_buf text = {0};
    ds_status status =
        ds_load_text(source->path, source->text, source->n, &source->load, &unit, err);
    ds_pase_nesting *nesting = ds_xcalloc((size_t)graph->nodes.n + 1, sizeof *nesting);
    if (strategy->aligned) ds_pase_align(graph, splits, strategy->devices, nesting);
    if (!status)
        status = ds_pase_apply_nested(unit, graph, splits, strategy->aligned ? nesting : NULL,
                                      strategy->devices, &applied, err);
    free(nesting);
    if (!status) ds_print_module(unit->modules.at[0], &text);
    ds_unit_free(unit);
    ds_pase_source with = *source;
    with.text = text.text;
    with.n = text.n;
    if (!status) status = ds_pase_simulate(&with, profiles, out, err);
    ds_buf_deinit(&text);
    return status;
}
