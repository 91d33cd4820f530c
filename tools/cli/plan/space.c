/* distsim plan: the sizes of model and topology, and the space that is worth exploring. */
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/topo/topo.h"
#include "tools/cli/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bounds of the space; assumed: nobody runs plans beyond, and sweeps would not end. */
enum {
    MAX_SEQUENCES = 16,   /* of a microbatch */
    MAX_MICROBATCHES = 64 /* of models without sequences */
};

/* ---- reading ---- */

static void put_imports(const cli_plan *plan, const char *batch, ds_buf *out) {
    ds_buf_put(out, "dir 1\n\nimport ");
    ds_buf_put_quoted(out, plan->on_path);
    ds_buf_printf(out, " as box%s\n", plan->on_with);
    if (batch) ds_buf_printf(out, "param batch = %s\n", batch);
    ds_buf_put(out, "import ");
    ds_buf_put_quoted(out, plan->model_path);
    const char *given = plan->model_with;
    if (!batch)
        ds_buf_printf(out, " as model%s\n", given);
    else
        ds_buf_printf(out, " as model%s batch = batch\n", *given ? given : " with");
}

typedef struct reading {
    ds_unit *unit;
    ds_binding binding;
    ds_module *box, *model;
} reading;

static int print_errors(const ds_unit *unit, const ds_diags *diags) {
    ds_buf text = {0};
    ds_buf_put(&text, "");
    for (uint32_t i = 0; i < diags->all.n; i++)
        if (diags->all.at[i].severity == DS_SEV_ERROR)
            ds_diag_print(unit, &diags->all.at[i], &text);
    fputs(text.text, stderr);
    ds_buf_deinit(&text);
    return 1;
}

static int read_both(const cli_plan *plan, reading *r) {
    ds_buf text = {0};
    ds_error err;
    ds_diags diags;
    *r = (reading){0};
    put_imports(plan, NULL, &text);
    ds_status status = ds_load_text("plan", text.text, text.n, &plan->load, &r->unit, &err);
    ds_buf_deinit(&text);
    if (status != DS_OK) return cli_fail(r->unit, &err);
    ds_diags_init(&diags);
    int exit_code = ds_verify(r->unit, &diags) == DS_OK ? 0 : print_errors(r->unit, &diags);
    ds_diags_deinit(&diags);
    if (exit_code) return exit_code;
    if (ds_bind(r->unit, NULL, 0, &r->binding, &err) != DS_OK) return cli_fail(r->unit, &err);
    r->box = r->unit->modules.at[0]->imports.at[0].module;
    r->model = r->unit->modules.at[0]->imports.at[1].module;
    return 0;
}

static uint32_t find_param(const ds_module *module, const char *name) {
    for (uint32_t i = 0; i < module->params.n; i++)
        if (strcmp(module->params.at[i].name, name) == 0) return i;
    return UINT32_MAX;
}

static int64_t param(const reading *r, const char *name) {
    uint32_t i = find_param(r->model, name);
    if (i == UINT32_MAX) return 0;
    const ds_num *num = &r->binding.params[r->model->id][i];
    return num->kind == DS_NUM_INT ? num->i : 0;
}

/* ---- settings ---- */

static void put_value(const char *text, ds_buf *out) {
    char *end;
    strtod(text, &end);
    if (*text && !*end)
        ds_buf_put(out, text);
    else
        ds_buf_put_quoted(out, text);
}

static int unknown_param(const reading *r, const char *name) {
    DS_VEC(const char *) names = {0};
    for (uint32_t i = 0; i < r->model->params.n; i++) DS_HPUSH(&names, r->model->params.at[i].name);
    for (uint32_t i = 0; i < r->box->params.n; i++) DS_HPUSH(&names, r->box->params.at[i].name);
    const char *near = ds_suggest(name, names.at, names.n);
    fprintf(stderr, "distsim: error: neither the model nor the topology has a param '%s'%s%s%s\n",
            name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    free(names.at);
    return 1;
}

static int give_settings(cli_plan *plan, const ds_setting *settings, uint32_t n) {
    reading r;
    ds_buf with[2] = {{0}, {0}};
    int exit_code = read_both(plan, &r);
    for (uint32_t i = 0; i < n && !exit_code; i++) {
        const char *name = settings[i].path;
        bool of_model = find_param(r.model, name) != UINT32_MAX;
        if (!of_model && find_param(r.box, name) == UINT32_MAX) exit_code = unknown_param(&r, name);
        if (of_model && strcmp(name, "batch") == 0) {
            fputs("distsim: error: say the batch as --batch\n", stderr);
            exit_code = 2;
        }
        ds_buf *out = &with[of_model];
        ds_buf_printf(out, "%s%s = ", out->n ? ", " : " with ", name);
        put_value(settings[i].text, out);
    }
    if (with[0].n) plan->on_with = ds_arena_strdup(&plan->arena, with[0].text);
    if (with[1].n) plan->model_with = ds_arena_printf(&plan->arena, "%s,", with[1].text);
    ds_buf_deinit(&with[0]);
    ds_buf_deinit(&with[1]);
    ds_unit_free(r.unit);
    return exit_code;
}

/* ---- model and topology ---- */

static int missing(const char *what, const char *path) {
    fprintf(stderr, "distsim: error: %s has no %s\n", path, what);
    return 1;
}

/* The function named like the file, else the last function with weights, since callees come before
 * their callers. */
static int look_at_model(cli_plan *plan, const reading *r) {
    const ds_func *found = NULL;
    const char *slash = strrchr(plan->model_path, '/');
    const char *stem = slash ? slash + 1 : plan->model_path;
    size_t n = strcspn(stem, ".");
    for (uint32_t i = 0; i < r->model->funcs.n; i++) {
        const ds_func *func = r->model->funcs.at[i];
        bool wanted = plan->model_func ? strcmp(func->name, plan->model_func) == 0 : func->is_model;
        bool named = strncmp(func->name, stem, n) == 0 && !func->name[n];
        if (wanted && (!found || named || strncmp(found->name, stem, n) != 0 || found->name[n]))
            found = func;
    }
    if (!found && plan->model_func)
        return missing(ds_arena_printf(&plan->arena, "function @%s", plan->model_func),
                       plan->model_path);
    if (!found) return missing("model: no function with weights", plan->model_path);
    if (find_param(r->model, "batch") == UINT32_MAX)
        return missing("param 'batch', which a plan splits over replicas", plan->model_path);
    plan->model_func = ds_arena_strdup(&plan->arena, found->name);
    plan->has_loss = found->n_results == 1 && found->results[0]->rank == 0;
    plan->layers = param(r, "layers");
    plan->hidden = param(r, "hidden");
    plan->heads = param(r, "heads");
    plan->seq = param(r, "seq");
    plan->experts = param(r, "experts");
    return 0;
}

static int look_at_topology(cli_plan *plan, const reading *r) {
    const ds_topology *found = NULL;
    for (uint32_t i = 0; i < r->box->topologies.n; i++) {
        const ds_topology *topology = r->box->topologies.at[i];
        if (!plan->on_name || strcmp(topology->name, plan->on_name) == 0) found = topology;
    }
    if (!found)
        return missing(plan->on_name ? ds_arena_printf(&plan->arena, "topology @%s", plan->on_name)
                                     : "topology",
                       plan->on_path);
    ds_topo *topo;
    ds_error err;
    if (ds_topo_build(&r->binding, found, &topo, &err) != DS_OK) return cli_fail(r->unit, &err);
    plan->on_name = ds_arena_strdup(&plan->arena, found->name);
    plan->world = ds_topo_n_devices(topo);
    plan->node = 0;
    for (uint32_t i = 0; i < plan->world; i++)
        plan->node += ds_topo_island(topo, i) == ds_topo_island(topo, 0);
    plan->device = plan->world ? ds_arena_strdup(&plan->arena, ds_topo_device_type(topo, 0)) : "";
    ds_topo_free(topo);
    return plan->world ? 0 : missing("device", plan->on_path);
}

int cli_plan_look(cli_plan *plan, const ds_setting *settings, uint32_t n_settings) {
    reading r = {0};
    plan->model_with = plan->on_with = "";
    int exit_code = give_settings(plan, settings, n_settings);
    if (exit_code) return exit_code;
    const char *with = plan->model_with; /* ends in a comma for the batch, which read_both omits */
    size_t n = strlen(with);
    if (n) plan->model_with = ds_arena_strndup(&plan->arena, with, n - 1);
    exit_code = read_both(plan, &r);
    plan->model_with = with;
    if (!exit_code) exit_code = look_at_model(plan, &r);
    if (!exit_code) exit_code = look_at_topology(plan, &r);
    if (!exit_code && !plan->batch) {
        plan->batch = param(&r, "batch");
        if (plan->batch < plan->world) plan->batch = plan->world;
    }
    ds_unit_free(r.unit);
    return exit_code;
}

/* ---- the space ---- */

static void put_scenario_head(const cli_plan *plan, ds_buf *out) {
    char batch[24];
    snprintf(batch, sizeof batch, "%" PRId64, plan->batch);
    put_imports(plan, batch, out);
    ds_buf_printf(out,
                  "\nscenario {\n  name = \"%s\"\n  model = @model.%s\n  on = @box.%s\n"
                  "  train { %soptimizer = %s, dtype = %s }\n  strategy { ",
                  plan->model_func, plan->model_func, plan->on_name,
                  plan->has_loss ? "" : "loss = mse, ", plan->optimizer, plan->dtype);
    if (plan->seq) ds_buf_put(out, "sp = true");
}

static void put_pipelines(const cli_plan *plan, ds_buf *out) {
    ds_buf_printf(out,
                  "  schedule in [\"1f1b\", \"interleaved\"]\n"
                  "  where pp > 1 or schedule == \"1f1b\"\n"
                  "  where schedule == \"1f1b\" or microbatches / pp * pp == microbatches and "
                  "%" PRId64 " / (2 * pp) * (2 * pp) == %" PRId64 "\n",
                  plan->layers, plan->layers);
}

void cli_plan_put_sweep(const cli_plan *plan, ds_buf *out) {
    put_scenario_head(plan, out);
    ds_buf_printf(out, " }\n}\n\nsweep {\n  tp in powers_of_two(1, %" PRIu32 ")\n", plan->node);
    if (plan->layers > 1)
        ds_buf_printf(out, "  pp in divisors(%" PRId64 ")\n", plan->layers);
    else
        ds_buf_put(out, "  pp in [1]\n");
    ds_buf_put(out, "  where tp * pp <= world\n  dp in divisors(world)\n"
                    "  where dp * tp * pp == world\n  where batch / dp * dp == batch\n"
                    "  where batch >= dp\n");
    if (plan->experts > 1)
        ds_buf_printf(out, "  ep in divisors(%" PRId64 ")\n  where dp / ep * ep == dp\n",
                      plan->experts);
    ds_buf_put(out, "  microbatches in divisors(batch / dp)\n  where microbatches >= pp\n");
    if (plan->seq)
        ds_buf_printf(out, "  where batch / dp / microbatches <= %d\n", MAX_SEQUENCES);
    else
        ds_buf_printf(out, "  where microbatches <= max(%d, pp)\n", MAX_MICROBATCHES);
    if (plan->layers > 1) put_pipelines(plan, out);
    ds_buf_put(out, "  zero in [0, 1, 2, 3]\n  where dp > 1 or zero == 0\n"
                    "  where pp == 1 or zero <= 1\n");
    bool timed = strcmp(plan->objective, "throughput") == 0; /* the same with a given batch */
    bool most = !timed && ds_metric_at(ds_metric_by_name(plan->objective))->more;
    ds_buf_printf(out, "  recompute in [none, %sfull]\n  %s %s\n  subject to fits\n}\n",
                  plan->heads ? "selective, " : "", most ? "maximize" : "minimize",
                  timed ? "step_time" : plan->objective);
}

const char *cli_plan_text(const ds_sweep_row *row, const char *column) {
    return ds_sweep_cell(row, column);
}

int64_t cli_plan_int(const ds_sweep_row *row, const char *column) {
    const char *text = ds_sweep_cell(row, column);
    return text ? strtoll(text, NULL, 10) : 1;
}

void cli_plan_put_scenario(const cli_plan *plan, const ds_sweep_row *row, ds_buf *out) {
    static const char *const knobs[] = {"dp",           "tp",   "pp",       "ep",
                                        "microbatches", "zero", "recompute"};
    put_scenario_head(plan, out);
    bool any = plan->seq > 0;
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        const char *value = cli_plan_text(row, knobs[i]);
        if (!value) continue;
        ds_buf_printf(out, "%s%s = %s", any ? ", " : "", knobs[i], value);
        any = true;
    }
    const char *schedule = cli_plan_text(row, "schedule");
    if (schedule) ds_buf_printf(out, ", schedule = \"%s\"", schedule);
    ds_buf_put(out, " }\n}\n");
}
