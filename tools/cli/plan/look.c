/* distsim plan: the sizes of model and machine, and what the command line left open. */
#include "ir/import/import.h"
#include "ir/lang/lang.h"
#include "ir/lang/mentions.h"
#include "ir/passes/build/count.h"
#include "ir/verify/verify.h"
#include "sim/topo/topo.h"
#include "tools/cli/colour.h"
#include "tools/cli/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static void put_import(const cli_imported *imported, const char *alias, const char *batch,
                       ds_buf *out) {
    ds_buf_put(out, "import ");
    ds_buf_put_quoted(out, imported->path);
    ds_buf_printf(out, " as %s", alias);
    for (uint32_t i = 0; i < imported->n_given; i++)
        ds_buf_printf(out, "%s%s = %s", i ? ", " : " with ", imported->given[i].name,
                      imported->given[i].text);
    if (batch) ds_buf_printf(out, "%sbatch = %s", imported->n_given ? ", " : " with ", batch);
    ds_buf_put(out, "\n");
}

void cli_plan_put_imports(const cli_plan *plan, const char *batch, ds_buf *out) {
    if (plan->cluster)
        cli_plan_put_cluster(plan, out);
    else
        put_import(&plan->box, "box", NULL, out);
    if (batch) ds_buf_printf(out, "param batch = %s\n", batch);
    put_import(&plan->model, "model", batch ? "batch" : NULL, out);
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
    cli_put_diagnostics(text.text, stderr);
    ds_buf_deinit(&text);
    return 1;
}

static int read_both(const cli_plan *plan, reading *r) {
    ds_buf text = {0};
    ds_error err;
    ds_diags diags;
    *r = (reading){0};
    ds_buf_put(&text, "dir 1\n\n");
    cli_plan_put_imports(plan, NULL, &text);
    ds_status status = ds_load_text("plan", text.text, text.n, &plan->load, &r->unit, &err);
    ds_buf_deinit(&text);
    if (status != DS_OK) return cli_fail(r->unit, &err);
    ds_diags_init(&diags);
    int exit_code = ds_verify(r->unit, &diags) == DS_OK ? 0 : print_errors(r->unit, &diags);
    ds_diags_deinit(&diags);
    if (exit_code) return exit_code;
    if (ds_bind(r->unit, NULL, 0, &r->binding, &err) != DS_OK) return cli_fail(r->unit, &err);
    ds_module *root = r->unit->modules.at[0];
    r->box = plan->cluster ? root : root->imports.at[0].module;
    r->model = root->imports.at[root->imports.n - 1].module;
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

static const char *value_text(cli_plan *plan, const char *text) {
    char *end;
    strtod(text, &end);
    if (*text && !*end) return text;
    ds_buf quoted = {0};
    ds_buf_put_quoted(&quoted, text);
    const char *kept = ds_arena_strdup(plan->arena, quoted.text);
    ds_buf_deinit(&quoted);
    return kept;
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

/* "  profile = \"H100-Bridge\"\n": a key that --set states. */
static bool take_key(cli_plan *plan, const ds_setting *setting) {
    static const char section[] = "scenario.";
    if (strncmp(setting->path, section, strlen(section)) != 0) return false;
    ds_buf_printf(&plan->keys, "  %s = %s\n", setting->path + strlen(section),
                  value_text(plan, setting->text));
    return true;
}

static int give_settings(cli_plan *plan, const reading *r, const ds_setting *settings, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const char *name = settings[i].path;
        int exit_code = 0;
        if (!name || take_key(plan, &settings[i])) continue;
        if (cli_plan_fixes(plan, &settings[i], &exit_code)) {
            if (exit_code) return exit_code;
            continue;
        }
        bool of_model = find_param(r->model, name) != UINT32_MAX;
        if (!of_model && find_param(r->box, name) == UINT32_MAX) return unknown_param(r, name);
        if (of_model && strcmp(name, "batch") == 0) {
            fputs("distsim: error: say the batch as --batch\n", stderr);
            return 2;
        }
        if (of_model && strcmp(name, "seq") == 0) plan->seq = 0, plan->seq_why = "as given";
        if (!of_model && strcmp(name, "nodes") == 0) plan->nodes = 0; /* --nodes, or its default */
        cli_plan_give(of_model ? &plan->model : &plan->box, name,
                      value_text(plan, settings[i].text));
    }
    return 0;
}

/* An option that is a param of an import. */
static int give_number(cli_plan *plan, cli_imported *imported, const ds_module *module,
                       const char *name, int64_t value) {
    if (!value) return 0;
    if (find_param(module, name) == UINT32_MAX) {
        fprintf(stderr, "distsim: error: --%s: %s has no param '%s'\n", name, imported->path, name);
        return 1;
    }
    cli_plan_give(imported, name, ds_arena_printf(plan->arena, "%" PRId64, value));
    return 0;
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
    const char *slash = strrchr(plan->model.path, '/');
    const char *stem = slash ? slash + 1 : plan->model.path;
    size_t n = strcspn(stem, ".");
    for (uint32_t i = 0; i < r->model->funcs.n; i++) {
        const ds_func *func = r->model->funcs.at[i];
        bool wanted = plan->model_func ? strcmp(func->name, plan->model_func) == 0 : func->is_model;
        bool named = strncmp(func->name, stem, n) == 0 && !func->name[n];
        if (wanted && (!found || named || strncmp(found->name, stem, n) != 0 || found->name[n]))
            found = func;
    }
    if (!found && plan->model_func)
        return missing(ds_arena_printf(plan->arena, "function @%s", plan->model_func),
                       plan->model.path);
    if (!found) return missing("model: no function with weights", plan->model.path);
    if (find_param(r->model, "batch") == UINT32_MAX)
        return missing("param 'batch', which a plan splits over replicas", plan->model.path);
    plan->model_func = ds_arena_strdup(plan->arena, found->name);
    plan->has_loss = found->n_results == 1 && found->results[0]->rank == 0;
    ds_layer_loop loop;
    plan->has_one_loop = ds_find_layer_loop(&r->binding, found, &loop);
    plan->layers = param(r, "layers");
    plan->hidden = param(r, "hidden");
    plan->heads = param(r, "heads");
    plan->kv_heads = param(r, "kv_heads");
    plan->experts = param(r, "experts");
    plan->vocab = param(r, "vocab");
    plan->seq = param(r, "seq");
    if (!plan->seq_why) plan->seq_why = "by the file's default";
    ds_model_counts counts;
    ds_error err;
    plan->parameters = -1;
    if (ds_model_count(&r->binding, found, &counts, &err) == DS_OK)
        plan->parameters = counts.parameters;
    return 0;
}

static void note_type(cli_plan *plan, const char *type) {
    for (uint32_t i = 0; i < plan->n_types; i++)
        if (strcmp(plan->types[i], type) == 0) return;
    if (plan->n_types < CLI_TYPES)
        plan->types[plan->n_types++] = ds_arena_strdup(plan->arena, type);
}

static int look_at_topology(cli_plan *plan, const reading *r) {
    const ds_topology *found = NULL;
    for (uint32_t i = 0; i < r->box->topologies.n; i++) {
        const ds_topology *topology = r->box->topologies.at[i];
        if (!plan->on_name || strcmp(topology->name, plan->on_name) == 0) found = topology;
    }
    if (!found)
        return missing(plan->on_name ? ds_arena_printf(plan->arena, "topology @%s", plan->on_name)
                                     : "topology",
                       plan->box.path);
    ds_topo *topo;
    ds_error err;
    if (ds_topo_build(&r->binding, found, &topo, &err) != DS_OK) return cli_fail(r->unit, &err);
    plan->on_name = ds_arena_strdup(plan->arena, found->name);
    plan->world = ds_topo_n_devices(topo);
    plan->node = 0;
    for (uint32_t i = 0; i < plan->world; i++)
        plan->node += ds_topo_island(topo, i) == ds_topo_island(topo, 0);
    plan->device = plan->world ? ds_arena_strdup(plan->arena, ds_topo_device_type(topo, 0)) : "";
    plan->n_types = 0;
    for (uint32_t i = 0; i < plan->world; i++) note_type(plan, ds_topo_device_type(topo, i));
    ds_topo_free(topo);
    return plan->world ? 0 : missing("device", plan->box.path);
}

/* ---- the batch ---- */

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

/* The largest divisor of n up to `most`. */
static int64_t divisor_up_to(int64_t n, int64_t most) {
    int64_t d = most < n ? most : n;
    while (d > 1 && n % d) d--;
    return d < 1 ? 1 : d;
}

/* Every degree of data parallelism divides the batch, as far as the batch is large enough. On more
 * devices than samples, a degree that leaves a replica 4 samples or more; assumed: so many
 * microbatches fill a pipeline. */
static void choose_batch(cli_plan *plan, const reading *r) {
    int64_t world = plan->world;
    bool splits = plan->framework->parallel & (CLI_HAS_TP | CLI_HAS_PP);
    if (plan->batch) return;
    if (plan->seq) {
        plan->batch = DS_IMPORT_TOKENS / plan->seq;
        if (!plan->batch) plan->batch = 1;
        int64_t replicas =
            !splits || plan->batch >= world ? world : divisor_up_to(world, plan->batch / 4);
        plan->batch = round_up(plan->batch, replicas);
        plan->batch_why = "by default: 4M tokens a step, as Llama 2 and 3 were trained";
    } else {
        plan->batch = param(r, "batch") < world ? world : param(r, "batch");
        plan->batch_why = "by the file's default, at least one a device";
    }
}

/* ---- all of it ---- */

static int give_options(cli_plan *plan, const reading *r) {
    int exit_code = give_number(plan, &plan->box, r->box, "nodes", plan->nodes);
    if (!exit_code) exit_code = give_number(plan, &plan->model, r->model, "seq", plan->seq);
    return exit_code;
}

int cli_plan_look(cli_plan *plan, const ds_setting *settings, uint32_t n_settings) {
    reading r = {0};
    if (plan->batch && !plan->batch_why) plan->batch_why = "as given";
    if (plan->seq && !plan->seq_why) plan->seq_why = "as given";
    int exit_code = read_both(plan, &r);
    if (!exit_code) exit_code = give_settings(plan, &r, settings, n_settings);
    if (!exit_code) exit_code = give_options(plan, &r);
    ds_unit_free(r.unit);
    if (exit_code) return exit_code;
    exit_code = read_both(plan, &r);
    if (!exit_code) exit_code = look_at_model(plan, &r);
    if (!exit_code) exit_code = look_at_topology(plan, &r);
    if (!exit_code) choose_batch(plan, &r);
    ds_unit_free(r.unit);
    return exit_code;
}

int cli_plan_double(cli_plan *plan) {
    reading r = {0};
    plan->nodes *= 2;
    cli_plan_give(&plan->box, "nodes", ds_arena_printf(plan->arena, "%" PRId64, plan->nodes));
    int exit_code = read_both(plan, &r);
    if (!exit_code) exit_code = look_at_topology(plan, &r);
    if (!exit_code && plan->batch < plan->world) plan->batch = round_up(plan->batch, plan->world);
    ds_unit_free(r.unit);
    return exit_code;
}
