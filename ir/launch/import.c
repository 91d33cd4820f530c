/* Launch arguments as importers: a line of importers.def a framework. */
#include "ir/launch/internal.h"

#include "ir/core/devices.h"
#include "ir/import/import.h"
#include "ir/lang/lang.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    const ds_import_options *options;
    ds_launch_given given;
    ds_launch_place place;
    bool has_nodes; /* the machine's file has a param nodes */
    int64_t node;   /* devices of the machine; with the param: of one node */
    ds_model model;
    ds_arena arena;
} job;

/* ---- settings ---- */

/* `--set batch=1024`: a number in place of the file's. */
static ds_status read_setting(job *j, const ds_setting *setting, ds_error *err) {
    static const char *const names[] = {"batch", "seq", "vocab"};
    int64_t *const fields[] = {&j->given.batch, &j->given.seq, &j->given.vocab};
    if (strcmp(setting->path, "scenario.profile") == 0) {
        j->place.profile = setting->text;
        return DS_OK;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *end;
        if (strcmp(setting->path, names[i]) != 0) continue;
        errno = 0;
        long long value = strtoll(setting->text, &end, 10);
        if (errno || end == setting->text || *end || value < 1 || value > INT64_C(1) << 31)
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                "--set %s=%s: an integer from 1 to 2^31 is needed", setting->path,
                                setting->text);
        *fields[i] = value;
        return DS_OK;
    }
    return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                        "--set %s: of launch arguments, batch, seq and vocab can be set",
                        setting->path);
}

/* ---- the machine and the model, read by the rooms that know them ---- */

static ds_status load(const job *j, const ds_buf *text, ds_unit **unit, ds_binding *binding,
                      ds_error *err) {
    const ds_import_options *options = j->options;
    ds_diags diags;
    DS_TRY(ds_load_text(options->path ? options->path : "imported.dir", text->text, text->n,
                        options->load, unit, err));
    ds_diags_init(&diags);
    ds_status status = ds_verify(*unit, &diags);
    if (status != DS_OK && diags.all.n)
        ds_error_set(err, status, DS_NOWHERE, "%s", diags.all.at[0].message);
    ds_diags_deinit(&diags);
    return status == DS_OK ? ds_bind(*unit, NULL, 0, binding, err) : status;
}

static ds_status count_devices(job *j, const ds_module *module, const ds_binding *binding,
                               ds_error *err) {
    for (uint32_t i = 0; i < module->params.n; i++)
        if (strcmp(module->params.at[i].name, "nodes") == 0) j->has_nodes = true;
    for (uint32_t i = 0; i < module->topologies.n; i++)
        if (strcmp(module->topologies.at[i]->name, j->place.name) == 0)
            return ds_topology_count_devices(binding, module->topologies.at[i], &j->node, err);
    return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "%s has no topology @%s", j->place.file,
                        j->place.name);
}

static ds_status read_machine(job *j, ds_error *err) {
    ds_buf text = {0};
    ds_unit *unit = NULL;
    ds_binding binding;
    ds_buf_put(&text, "dir 1\nimport ");
    ds_buf_put_quoted(&text, j->place.file);
    ds_buf_putc(&text, '\n');
    ds_status status = load(j, &text, &unit, &binding, err);
    if (status == DS_OK)
        status = count_devices(j, unit->modules.at[0]->imports.at[0].module, &binding, err);
    ds_unit_free(unit);
    ds_buf_deinit(&text);
    if (status == DS_OK && j->options->nodes && !j->has_nodes)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "--nodes %" PRId64 ": the machine %s has no param nodes",
                            j->options->nodes, j->place.file);
    return status;
}

static ds_status take_model(job *j, const ds_binding *binding, ds_error *err) {
    const ds_func *func = ds_scenario_model(binding->unit);
    if (!func || !ds_model_of_function(binding, func, &j->model))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "the model is of no family");
    const ds_module *root = binding->unit->modules.at[0];
    for (uint32_t i = 0; i < root->params.n; i++)
        if (strcmp(root->params.at[i].name, "seq") == 0 && !j->given.seq)
            j->given.seq = binding->params[root->id][i].i;
    j->given.model = &j->model;
    return DS_OK;
}

/* The config.json as a file over the model library, and the model of that file. */
static ds_status read_model(job *j, ds_error *err) {
    const ds_import_options options = {.path = j->options->path, .load = j->options->load};
    ds_buf text = {0};
    ds_unit *unit = NULL;
    ds_binding binding;
    if (!j->options->model) return DS_OK;
    ds_status status = ds_import_hf(j->options->model, j->options->model_n, &options, &text, err);
    if (status == DS_OK) status = load(j, &text, &unit, &binding, err);
    if (status == DS_OK) status = take_model(j, &binding, err);
    ds_unit_free(unit);
    ds_buf_deinit(&text);
    return status;
}

/* ---- the file ---- */

static ds_status write_scenario(job *j, const ds_launch *launch, ds_buf *out, ds_error *err) {
    int64_t nodes = (launch->world + j->node - 1) / j->node;
    if (!j->has_nodes && nodes > 1)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "the arguments need %" PRId64 " devices, and @%s has %" PRId64,
                            launch->world, j->place.name, j->node);
    if (j->has_nodes) j->place.with = ds_arena_printf(&j->arena, "nodes = %" PRId64, nodes);
    return ds_launch_put_scenario(launch, &j->place, out, err);
}

static ds_status run(job *j, ds_launch_framework framework, const char *bytes, size_t n,
                     ds_buf *out, ds_error *err) {
    ds_launch launch;
    for (uint32_t i = 0; i < j->options->n_settings; i++)
        DS_TRY(read_setting(j, &j->options->settings[i], err));
    DS_TRY(read_machine(j, err));
    DS_TRY(read_model(j, err));
    j->given.nodes = j->options->nodes;
    j->given.node = j->options->nodes ? j->node : 0;
    ds_launch_init(&launch, framework, &j->arena);
    ds_status status = ds_launch_read(&launch, &j->given, bytes, n, err);
    if (status == DS_OK) status = write_scenario(j, &launch, out, err);
    ds_launch_deinit(&launch);
    return status;
}

static ds_status import(ds_launch_framework framework, const char *bytes, size_t n,
                        const ds_import_options *options, ds_buf *out, ds_error *err) {
    job j = {.options = options,
             .given.source = options->source,
             .place = {.file = options->on_file, .name = options->on_name}};
    ds_arena_init(&j.arena);
    ds_status status = run(&j, framework, bytes, n, out, err);
    ds_arena_deinit(&j.arena);
    return status;
}

#define IMPORT(name, framework)                                                                    \
    ds_status ds_import_##name(const char *bytes, size_t n, const ds_import_options *options,      \
                               ds_buf *out, ds_error *err) {                                       \
        return import(framework, bytes, n, options, out, err);                                     \
    }
IMPORT(megatron, DS_LAUNCH_MEGATRON)
IMPORT(torchtitan, DS_LAUNCH_TORCHTITAN)
IMPORT(deepspeed, DS_LAUNCH_DEEPSPEED)
