/* A run: from a scenario to its entry and place, the threads, and the results put together. */
#include "ir/exec/exec.h"

#include "ir/exec/machine_internal.h"
#include "ir/strategy/scenario.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const ds_func *func; /* exactly one of them */
    const ds_program *program;
    const ds_exec_place *here; /* of values without `on`; of rank i: its device i */
} entry;

/* ---- what runs, and where ---- */

static ds_status only_function(const ds_unit *unit, const ds_func **out, ds_error *err) {
    const ds_module *root = unit->modules.at[0];
    uint32_t n = 0;
    for (uint32_t i = 0; i < root->funcs.n; i++) {
        if (ds_func_open(root->funcs.at[i])) continue;
        *out = root->funcs.at[i];
        n++;
    }
    if (n == 1) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, (ds_loc){root->path, 1, 1, 1},
                        "nothing to run: the file has no scenario, and %u functions that could be "
                        "meant%s",
                        n, n ? "; say which (--entry)" : "");
}

static ds_status find_entry(const ds_binding *binding, const ds_func *chosen, entry *out,
                            ds_error *err) {
    const ds_unit *unit = binding->unit;
    const ds_scenario *scenario = ds_unit_scenario(unit);
    out->func = chosen;
    if (!chosen && ds_scenario_n_jobs(unit))
        return ds_error_set(err, DS_ERR_VALUE, scenario->loc,
                            "the scenario has jobs: say which one (--job %s)",
                            ds_scenario_job(unit, 0)->name);
    if (!chosen && !scenario) DS_TRY(only_function(unit, &out->func, err));
    if (!out->func) out->program = ds_scenario_ranks(unit);
    if (!out->func && !out->program) out->func = ds_scenario_program_func(unit);
    if (!out->func && !out->program) out->func = ds_scenario_model(unit);
    if (!out->func && !out->program)
        return ds_error_set(err, DS_ERR_VALUE, scenario->loc,
                            "nothing to run: the scenario names neither a program nor a model");
    if (out->func && ds_func_open(out->func))
        return ds_error_set(err, DS_ERR_TYPE, out->func->loc,
                            "@%s has %s; the entry of a run must have none", out->func->name,
                            ds_func_open(out->func));
    return DS_OK;
}

/* The scenario's mesh; a model, or a program without one, is on one device. */
static ds_status find_place(ds_exec_run_state *run, entry *e, ds_error *err) {
    const ds_unit *unit = run->binding->unit;
    const ds_module *root = unit->modules.at[0];
    const ds_mesh *mesh = ds_scenario_mesh(unit);
    const ds_topology *topology = ds_scenario_topology(unit);
    if (!topology && root->topologies.n == 1) topology = root->topologies.at[0];
    bool model = e->func && e->func == ds_scenario_model(unit);
    e->here = ds_exec_place_first(&run->places, topology);
    if (mesh && !model) DS_TRY(ds_exec_place_mesh(&run->places, mesh, &e->here, err));
    if (!e->program || mesh) return DS_OK;
    if (!topology)
        return ds_error_set(err, DS_ERR_VALUE, e->program->loc,
                            "a per-rank program needs devices: say `on = @topology` or "
                            "`mesh = @mesh` in the scenario");
    return ds_exec_place_all(&run->places, topology, &e->here, err);
}

/* ---- results ---- */

static ds_status add_output(ds_exec_thread *thread, const char *name, const ds_exec_value *value,
                            ds_error *err) {
    ds_exec_run_state *run = thread->run;
    ds_exec_site site = {.run = run, .loc = thread->func->loc};
    ds_tensor whole;
    DS_TRY(ds_exec__assemble(&site, value, 0, 0, &whole, err));
    ds_exec_tensor t = {.name = ds_arena_strdup(&run->result->arena, name),
                        .dtype = value->dtype,
                        .rank = value->rank,
                        .n = whole.n};
    memcpy(t.dims, whole.dims, sizeof t.dims);
    t.at = ds_xcalloc((size_t)t.n + 1, sizeof *t.at);
    memcpy(t.at, whole.at, (size_t)t.n * sizeof *t.at);
    ds_tensor_drop(&whole);
    DS_HPUSH(&run->result->outputs, t);
    return DS_OK;
}

static ds_status add_slot(ds_exec_thread *thread, const char *name, ds_exec_slot slot, bool inner,
                          ds_error *err) {
    ds_arena *arena = &thread->run->arena;
    if (slot.value) {
        if (inner) name = ds_arena_printf(arena, "%s}", name);
        return add_output(thread, name, slot.value, err);
    }
    for (int64_t i = 0; slot.family && i < slot.family->n; i++) {
        const char *longer = ds_arena_printf(arena, "%s%c%lld", name, inner ? ',' : '{',
                                             (long long)(slot.family->lo + i));
        DS_TRY(add_slot(thread, longer, slot.family->items[i], true, err));
    }
    return DS_OK;
}

/* The name of a returned value, with its index; a second one of that name is "name_2". */
static const char *result_name(ds_exec_thread *thread, uint32_t i, ds_error *err) {
    ds_exec_run_state *run = thread->run;
    const ds_use *use = &thread->return_op->in[i];
    ds_buf text = {0};
    if (thread->rank >= 0) ds_buf_printf(&text, "rank%lld.", (long long)thread->rank);
    ds_buf_put(&text, ds_value_at(thread->func, use->value)->name);
    ds_env env = ds_binding_env(run->binding, NULL);
    for (uint32_t k = 0; k < use->n_index; k++) {
        int64_t at;
        if (ds_expr_eval_int(&env, use->index[k], use->loc, &at, err) != DS_OK) at = -1;
        ds_buf_printf(&text, "%c%lld", k ? ',' : '{', (long long)at);
    }
    if (use->n_index) ds_buf_putc(&text, '}');
    uint32_t same = 1;
    for (uint32_t k = 0; k < i; k++)
        same += thread->return_op->in[k].value.i == use->value.i && !use->n_index;
    if (same > 1) ds_buf_printf(&text, "_%u", same);
    const char *name = ds_arena_strdup(&run->arena, text.text);
    ds_buf_deinit(&text);
    return name;
}

static ds_status add_results(ds_exec_thread *thread, ds_error *err) {
    for (uint32_t i = 0; thread->return_op && i < thread->func->n_results; i++)
        DS_TRY(add_slot(thread, result_name(thread, i, err), thread->results[i], false, err));
    return DS_OK;
}

/* ---- threads ---- */

static ds_status run_function(ds_exec_run_state *run, const entry *e, ds_error *err) {
    ds_exec_thread thread = {.run = run, .rank = -1};
    bool progress;
    ds_status status = ds_exec__thread_start(&thread, e->func, e->here, err);
    if (status == DS_OK) status = ds_exec__thread_run(&thread, &progress, err);
    if (status == DS_OK) status = add_results(&thread, err);
    ds_exec__thread_deinit(&thread);
    return status;
}

static ds_status start_ranks(ds_exec_run_state *run, const entry *e, ds_exec_meetings *meetings,
                             ds_exec_thread *threads, ds_error *err) {
    for (uint32_t i = 0; i < e->program->n_ranks; i++) {
        const ds_func *func = e->program->ranks[i];
        if (func->rank < 0 || func->rank >= e->here->n_devices)
            return ds_error_set(err, DS_ERR_VALUE, func->loc,
                                "rank %lld: the cluster has ranks 0 to %u", (long long)func->rank,
                                e->here->n_devices - 1);
        threads[i] = (ds_exec_thread){.run = run, .rank = func->rank, .meetings = meetings};
        const ds_exec_place *here = ds_exec_place_at(&run->places, e->here, (uint32_t)func->rank);
        DS_TRY(ds_exec__thread_start(&threads[i], func, here, err));
    }
    return DS_OK;
}

static ds_status run_ranks(ds_exec_run_state *run, const entry *e, ds_error *err) {
    uint32_t n = e->program->n_ranks;
    ds_exec_meetings *meetings = ds_exec__meetings_new();
    ds_exec_thread *threads = ds_xcalloc(n + 1, sizeof *threads);
    ds_status status = start_ranks(run, e, meetings, threads, err);
    bool progress = true;
    while (progress && status == DS_OK) {
        progress = false;
        for (uint32_t i = 0; i < n && status == DS_OK; i++)
            status = ds_exec__thread_run(&threads[i], &progress, err);
    }
    if (status == DS_OK) status = ds_exec__meetings_end(meetings, threads, n, err);
    for (uint32_t i = 0; i < n && status == DS_OK; i++) status = add_results(&threads[i], err);
    for (uint32_t i = 0; i < n; i++) ds_exec__thread_deinit(&threads[i]);
    ds_exec__meetings_free(meetings);
    free(threads);
    return status;
}

/* ---- the run ---- */

static ds_status run_entry(ds_exec_run_state *run, ds_error *err) {
    entry e = {0};
    DS_TRY(find_entry(run->binding, run->options->entry, &e, err));
    DS_TRY(find_place(run, &e, err));
    DS_TRY(e.func ? run_function(run, &e, err) : run_ranks(run, &e, err));
    return ds_exec__inputs_used(run, err);
}

ds_status ds_exec_run(const ds_binding *binding, const ds_exec_options *options,
                      ds_exec_result **out, ds_error *err) {
    ds_exec_run_state run = {.binding = binding, .options = options, .margin = INFINITY};
    run.memory.max_bytes = options->max_bytes ? options->max_bytes : DS_EXEC_DEFAULT_MAX_BYTES;
    run.result = ds_xcalloc(1, sizeof *run.result);
    run.given_used = ds_xcalloc(options->n_inputs + 1, sizeof *run.given_used);
    ds_arena_init(&run.result->arena);
    ds_arena_init(&run.arena);
    ds_map_init(&run.devices_seen);
    ds_exec_places_init(&run.places, binding);
    ds_status status = run_entry(&run, err);
    run.result->n_devices = run.devices_seen.n;
    run.result->peak_bytes = run.memory.peak_bytes;
    run.result->margin = run.margin;
    ds_exec_places_deinit(&run.places);
    ds_map_deinit(&run.devices_seen);
    ds_arena_deinit(&run.arena);
    free(run.given_used);
    if (status != DS_OK) {
        ds_exec_result_free(run.result);
        run.result = NULL;
    }
    *out = run.result;
    return status;
}

void ds_exec_result_free(ds_exec_result *result) {
    if (!result) return;
    for (uint32_t i = 0; i < result->inputs.n; i++) free(result->inputs.at[i].at);
    for (uint32_t i = 0; i < result->outputs.n; i++) free(result->outputs.at[i].at);
    free(result->inputs.at);
    free(result->outputs.at);
    ds_arena_deinit(&result->arena);
    free(result);
}
