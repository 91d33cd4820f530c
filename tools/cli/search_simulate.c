#include "tools/cli/search_simulate.h"

#include "ir/base/units.h"
#include "ir/lang/lang.h"
#include "ir/lang/scenario.h"
#include "ir/lang/verify.h"
#include "sim/report/report.h"

#include <stdio.h>
#include <string.h>

static ds_load_options load_options(const cli_search_run *run) {
    return (ds_load_options){run->options->include_dirs.at, run->options->include_dirs.n};
}

ds_status cli_search_text(const cli_search_run *run, const ds_pase_graph *graph,
                          const ds_pase_splits *strategy, ds_buf *text, ds_pase_applied *applied,
                          ds_error *err) {
    ds_unit *unit = NULL;
    ds_load_options options = load_options(run);
    ds_status status = ds_load_file(run->file, &options, &unit, err);
    if (!status) status = ds_pase_apply(unit, graph, strategy, run->devices, applied, err);
    if (!status) ds_print_module(unit->modules.at[0], text);
    ds_unit_free(unit);
    return status;
}

/* ---- one simulation ---- */

static ds_status first_of(const ds_diags *diags, ds_error *err) {
    for (uint32_t i = 0; i < diags->all.n; i++)
        if (diags->all.at[i].severity == DS_SEV_ERROR)
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%s", diags->all.at[i].message);
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "it cannot be verified");
}

static ds_status run_unit(const cli_search_run *run, ds_unit *unit, ds_result **result,
                          ds_binding *binding, ds_error *err) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_sim_options options = {0};
    ds_status status = ds_verify(unit, &diags);
    if (!status)
        status = ds_bind(unit, run->options->settings.at, run->options->settings.n, binding, err);
    else
        status = first_of(&diags, err);
    if (!status && ds_verify_bound(unit, binding, &diags) != DS_OK) status = first_of(&diags, err);
    ds_diags_deinit(&diags);
    DS_TRY(status);
    DS_TRY(ds_sim_options_read(binding, &options, err));
    options.cost_mode = DS_COST_FITTED;
    return ds_simulate(binding, run->profiles, &options, result, err);
}

static void simulate_text(const cli_search_run *run, const char *name, const char *text, size_t n,
                          ds_buf *out) {
    ds_unit *unit = NULL;
    ds_result *result = NULL;
    ds_binding binding;
    ds_error err = {0};
    ds_load_options options = load_options(run);
    ds_status status = ds_load_text(run->file, text, n, &options, &unit, &err);
    if (!status) status = run_unit(run, unit, &result, &binding, &err);
    ds_buf_printf(out, "%-34s ", name);
    if (status) {
        ds_buf_printf(out, "refused: %s\n", err.message);
    } else {
        ds_print_ps(result->run.step_ps, out);
        ds_buf_printf(out, ", peak memory %.3f GB%s\n", (double)result->peak_bytes / 1e9,
                      result->fits ? "" : ", does not fit");
    }
    ds_result_free(result);
    ds_unit_free(unit);
}

/* ---- the model's own strategies ---- */

static ds_attr integer(ds_unit *unit, const char *name, int64_t value) {
    return (ds_attr){.name = ds_intern(&unit->strings, name),
                     .kind = DS_ATTR_EXPR,
                     .expr = ds_expr_int(&unit->exprs, value)};
}

static void simulate_mesh(const cli_search_run *run, int64_t tp, ds_buf *out) {
    ds_unit *unit = NULL;
    ds_error err = {0};
    ds_load_options options = load_options(run);
    char name[64];
    if (run->devices % tp != 0) return;
    snprintf(name, sizeof name,
             tp == 1 ? "simulated: data parallel" : "simulated: dp %lld x tp %lld",
             (long long)(run->devices / tp), (long long)tp);
    if (ds_load_file(run->file, &options, &unit, &err) == DS_OK) {
        ds_attr items[2] = {integer(unit, "dp", run->devices / tp), integer(unit, "tp", tp)};
        ds_attr block = {.kind = DS_ATTR_BLOCK, .items = items, .n_items = 2};
        ds_buf text = {0};
        ds_scenario_set(unit, "", "strategy", block);
        ds_print_module(unit->modules.at[0], &text);
        simulate_text(run, name, text.text, text.n, out);
        ds_buf_deinit(&text);
    }
    ds_unit_free(unit);
}

void cli_search_simulate(const cli_search_run *run, const char *found, ds_buf *out) {
    simulate_text(run, "simulated: found", found, strlen(found), out);
    for (int64_t tp = 1; tp <= 8 && tp <= run->devices; tp *= 2) simulate_mesh(run, tp, out);
}
