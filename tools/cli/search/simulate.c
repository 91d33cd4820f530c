#include "tools/cli/search/simulate.h"

#include "ir/base/units.h"
#include "ir/lang/lang.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "sim/run/run.h"
#include "tools/report/page.h"

#include <stdio.h>
#include <string.h>

/* ---- params that nothing reads any more ---- */

static bool is_set(const cli_options *options, const char *name) {
    for (uint32_t i = 0; i < options->settings.n; i++)
        if (strcmp(options->settings.at[i].path, name) == 0) return true;
    return false;
}

/* Statements of params as they are printed: from an item's param to the last of its group. Each run
 * of params that stay becomes a group and an item of its own; expressions know params by index, so
 * the others remain in the module, but no item names them. */
static void drop_params(const cli_options *options, ds_unit *unit, ds_module *root) {
    DS_VEC(ds_item) kept = {0};
    uint32_t group = UINT32_MAX;
    for (uint32_t i = 0; i < root->items.n; i++) {
        ds_item item = root->items.at[i];
        if (item.kind != DS_ITEM_PARAMS) {
            DS_PUSH(&unit->arena, &kept, item);
            continue;
        }
        const ds_trivia trivia = root->params.at[item.index].trivia;
        uint32_t statement = root->params.at[item.index].group;
        bool any = false, before = false;
        for (uint32_t k = item.index; k < root->params.n; k++) {
            ds_param *param = &root->params.at[k];
            if (param->group != statement) break;
            bool stays = param->n_uses > 0 || is_set(options, param->name);
            group -= !(stays && before);
            param->group = group;
            before = stays;
            if (!stays || (k > item.index && root->params.at[k - 1].group == group)) continue;
            param->trivia = any ? (ds_trivia){0} : trivia;
            any = true;
            DS_PUSH(&unit->arena, &kept, ((ds_item){DS_ITEM_PARAMS, k}));
        }
    }
    root->items.at = kept.at;
    root->items.n = kept.n;
    root->items.cap = kept.cap;
}

/* It is read again, as the verifier counts what a text mentions. */
ds_status cli_search_drop_unused(const cli_options *common, const char *file, ds_buf *text,
                                 ds_error *err) {
    ds_unit *unit = NULL;
    ds_load_options options = cli_load_options(common);
    options.has_settings = true;
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_load_text(file, text->text, text->n, &options, &unit, err);
    if (!status && ds_verify(unit, &diags) == DS_OK) {
        drop_params(common, unit, unit->modules.at[0]);
        text->n = 0;
        ds_print_module(unit->modules.at[0], text);
    }
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
    return status;
}

ds_status cli_search_text(const cli_search_run *run, const ds_pase_graph *graph,
                          const ds_pase_splits *strategy, ds_buf *text, ds_pase_applied *applied,
                          ds_error *err) {
    ds_unit *unit = NULL;
    ds_load_options options = cli_load_options(run->options);
    ds_status status = ds_load_file(run->file, &options, &unit, err);
    if (!status) status = ds_pase_apply(unit, graph, strategy, run->devices, applied, err);
    if (!status) ds_print_module(unit->modules.at[0], text);
    ds_unit_free(unit);
    return status ? status : cli_search_drop_unused(run->options, run->file, text, err);
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

void cli_search_simulate(const cli_search_run *run, const char *name, const char *text,
                         cli_search_steps *steps) {
    cli_search_step *step = &steps->at[steps->n++];
    ds_unit *unit = NULL;
    ds_result *result = NULL;
    ds_binding binding;
    ds_load_options options = cli_load_options(run->options);
    options.has_settings = true;
    *step = (cli_search_step){0};
    snprintf(step->name, sizeof step->name, "%s", name);
    step->status = ds_load_text(run->file, text, strlen(text), &options, &unit, &step->err);
    if (!step->status) step->status = run_unit(run, unit, &result, &binding, &step->err);
    if (!step->status) {
        step->step_ps = result->run.step_ps;
        step->peak_bytes = result->metrics.peak_bytes;
        step->fits = result->metrics.fits;
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

static void simulate_mesh(const cli_search_run *run, int64_t tp, cli_search_steps *steps) {
    ds_unit *unit = NULL;
    ds_error err = {0};
    ds_load_options options = cli_load_options(run->options);
    char name[48];
    if (run->devices % tp != 0) return;
    snprintf(name, sizeof name, tp == 1 ? "data parallel" : "dp %lld x tp %lld",
             (long long)(run->devices / tp), (long long)tp);
    if (ds_load_file(run->file, &options, &unit, &err) == DS_OK) {
        ds_attr items[2 + DS_PASE_KEPT_KNOBS] = {integer(unit, "dp", run->devices / tp),
                                                 integer(unit, "tp", tp)};
        ds_attr block = {.kind = DS_ATTR_BLOCK, .items = items, .n_items = 2};
        ds_buf text = {0};
        ds_pase_keep_knobs(unit, &block);
        ds_scenario_set(unit, "", "strategy", block);
        ds_print_module(unit->modules.at[0], &text);
        cli_search_simulate(run, name, text.text, steps);
        ds_buf_deinit(&text);
    }
    ds_unit_free(unit);
}

void cli_search_simulate_meshes(const cli_search_run *run, int64_t most_tp,
                                cli_search_steps *steps) {
    for (int64_t tp = 1; tp <= most_tp && tp <= run->devices; tp *= 2)
        simulate_mesh(run, tp, steps);
}

/* ---- reports ---- */

/* Of those that fit, the first of the fastest; NULL: none does. */
static const cli_search_step *fastest(const cli_search_steps *steps) {
    const cli_search_step *best = NULL;
    for (uint32_t i = 0; i < steps->n; i++) {
        const cli_search_step *step = &steps->at[i];
        if (step->status || !step->fits) continue;
        if (!best || step->step_ps < best->step_ps) best = step;
    }
    return best;
}

bool cli_search_check(const cli_search_steps *steps, const char *output) {
    const cli_search_step *found = &steps->at[0], *best = fastest(steps);
    ds_buf text = {0};
    if (found->status) {
        fprintf(stderr, "%s cannot run: %s\n", output ? output : "what was found",
                found->err.message);
        return false;
    }
    if (!output || !best || (found->fits && found->step_ps <= best->step_ps)) return true;
    ds_buf_printf(&text, "%s has what costs least, but %s is faster when it is simulated: ", output,
                  best->name);
    ds_print_ps(best->step_ps, &text);
    ds_buf_printf(&text, ", not ");
    ds_print_ps(found->step_ps, &text);
    fprintf(stderr, "%s%s\n", text.text, found->fits ? "" : ", which does not fit");
    ds_buf_deinit(&text);
    return true;
}

void cli_search_print_steps(const cli_search_steps *steps, ds_buf *out) {
    const cli_search_step *best = fastest(steps);
    for (uint32_t i = 0; i < steps->n; i++) {
        const cli_search_step *step = &steps->at[i];
        ds_buf_printf(out, "simulated: %-23s ", step->name);
        if (step->status) {
            ds_buf_printf(out, "refused: %s\n", step->err.message);
            continue;
        }
        ds_print_ps(step->step_ps, out);
        ds_buf_printf(out, ", peak memory %.3f GB%s\n", (double)step->peak_bytes / 1e9,
                      step == best ? ", the fastest"
                      : step->fits ? ""
                                   : ", does not fit");
    }
}

void cli_search_put_steps(const cli_search_steps *steps, ds_json *json) {
    ds_json_key(json, "simulated");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < steps->n; i++) {
        const cli_search_step *step = &steps->at[i];
        ds_json_begin_object(json);
        ds_json_key_string(json, "strategy", step->name);
        if (step->status) {
            ds_json_key_string(json, "refused", step->err.message);
        } else {
            ds_json_key_int(json, "step_time_ps", step->step_ps);
            ds_json_key_int(json, "peak_memory_bytes", step->peak_bytes);
            ds_json_key_bool(json, "fits", step->fits);
        }
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    const cli_search_step *best = fastest(steps);
    if (best) ds_json_key_string(json, "fastest", best->name);
}

ds_status cli_search_write_page(const cli_options *options, const char *path, const char *file,
                                const ds_buf *json, ds_error *err) {
    ds_buf page = {0};
    report_search_page(json->text, file, &page);
    ds_status status = cli_write(options, path, page.text, page.n, err);
    ds_buf_deinit(&page);
    return status;
}
