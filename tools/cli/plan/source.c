/* distsim plan: what MODEL and --gpu are.
 *
 *     name of the library   →  its file, its function, its params
 *     config.json           →  the text that `import hf` makes  ┐
 *     FILE.dir              →  the file                         ┴→  scenario { model = @m.llama }
 *                                                                   →  the import of m, with its numbers
 *
 * A .dir file without a scenario, or with the model in the file itself, is imported as it is. */
#include "ir/base/file.h"
#include "ir/import/import.h"
#include "ir/lang/lang.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "tools/cli/plan/plan.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void cli_plan_give(cli_imported *imported, const char *name, const char *text) {
    uint32_t i = 0;
    while (i < imported->n_given && strcmp(imported->given[i].name, name) != 0) i++;
    if (i == sizeof imported->given / sizeof *imported->given) return; /* no model has as many */
    imported->given[i] = (cli_given){name, text};
    if (i == imported->n_given) imported->n_given++;
}

void cli_plan_split_name(ds_arena *arena, const char *arg, const char **file, const char **name) {
    const char *at = strrchr(arg, '@');
    *file = arg;
    if (!at || at == arg || strchr(at, '/')) return;
    *file = ds_arena_strndup(arena, arg, (size_t)(at - arg));
    *name = at + 1;
}

static int refuse(const char *message) {
    fprintf(stderr, "distsim: error: %s\n", message);
    return 1;
}

/* ---- machines ---- */

int cli_plan_find_machine(cli_plan *plan, const ds_profiles *profiles) {
    const cli_machine *machine;
    ds_error err;
    if (cli_library_find_machine(plan->gpu, profiles, &machine, &err) != DS_OK)
        return cli_fail(NULL, &err);
    plan->box.path = ds_arena_printf(plan->arena, "machines/%s.dir", machine->name);
    plan->on_name = "cluster";
    if (!plan->nodes) plan->nodes = 1;
    return 0;
}

/* All devices of a mixed cluster have the one dtype. */
void cli_plan_choose_dtype(cli_plan *plan, const ds_profiles *profiles) {
    uint32_t kind;
    ds_error ignored;
    if (plan->dtype) return;
    plan->dtype = "bf16";
    for (uint32_t i = 0; i < plan->n_types; i++) {
        if (ds_profiles_find_kind(profiles, plan->types[i], DS_NOWHERE, &kind, &ignored) != DS_OK)
            continue;
        const double *peaks = ds_profiles_kind(profiles, kind)->peak_flop_per_s;
        if (!(peaks[DS_BF16] > 0) && peaks[DS_F16] > 0) plan->dtype = "f16";
    }
}

/* ---- a name of the library ---- */

/* "layers = 80, hidden = 8192" */
static void give_all(cli_plan *plan, const char *with) {
    while (*with) {
        size_t name = strcspn(with, " ="), n = strcspn(with, ",");
        const char *value = strchr(with, '=') + 1;
        value += strspn(value, " ");
        cli_plan_give(&plan->model, ds_arena_strndup(plan->arena, with, name),
                      ds_arena_strndup(plan->arena, value, (size_t)(with + n - value)));
        with += n;
        with += strspn(with, ", ");
    }
}

static void take_library(cli_plan *plan, const cli_library_model *model) {
    plan->model.path = model->file;
    plan->model_func = model->function;
    give_all(plan, model->with);
    if (plan->seq || !model->seq) return;
    plan->seq = model->seq;
    plan->seq_why = "as in pre-training";
}

/* ---- a program whose scenario names the model ---- */

typedef struct program {
    cli_plan *plan;
    const char *path;
    ds_unit *unit;
    ds_binding binding;
    ds_setting *settings;
    uint32_t n_settings;
} program;

static const char *number_text(cli_plan *plan, const ds_num *num) {
    ds_buf text = {0};
    if (num->kind == DS_NUM_STR)
        ds_buf_put_quoted(&text, num->s);
    else if (num->kind == DS_NUM_REAL)
        ds_buf_printf(&text, "%.17g", num->r);
    else
        ds_buf_put_int(&text, num->i);
    if (num->kind == DS_NUM_REAL && !strpbrk(text.text, ".en")) ds_buf_put(&text, ".0");
    const char *kept = ds_arena_strdup(plan->arena, text.text);
    ds_buf_deinit(&text);
    return kept;
}

static uint32_t param_of(const ds_module *module, const char *name) {
    for (uint32_t i = 0; i < module->params.n; i++)
        if (strcmp(module->params.at[i].name, name) == 0) return i;
    return UINT32_MAX;
}

/* The import by which the file has a module; NULL: the module is the file, or further away. */
static const ds_import *import_of(const program *p, const ds_module *module) {
    const ds_module *root = p->unit->modules.at[0];
    for (uint32_t i = 0; i < root->imports.n; i++)
        if (root->imports.at[i].module == module) return &root->imports.at[i];
    return NULL;
}

/* The import's file: as it is written where the library is meant, since that holds everywhere. */
static const char *path_of(const program *p, const ds_import *import) {
    char *folder = ds_file_real_path(p->path), *real = ds_file_real_path(import->module->path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    size_t n = slash ? (size_t)(slash - folder) + 1 : 0;
    bool beside = n && real && strncmp(real, folder, n) == 0 && strcmp(real + n, import->path) == 0;
    const char *path = ds_arena_strdup(p->plan->arena, beside ? real : import->path);
    free(folder);
    free(real);
    return path;
}

/* The numbers of everything that `with` says, except the batch, which a plan says itself. */
static void take_import(const program *p, const ds_import *import, cli_imported *out) {
    out->path = path_of(p, import);
    for (uint32_t i = 0; i < import->n_with; i++) {
        const char *name = import->with[i].name;
        uint32_t param = param_of(import->module, name);
        if (param == UINT32_MAX || strcmp(name, "batch") == 0) continue;
        const ds_num *num = &p->binding.params[import->module->id][param];
        cli_plan_give(out, ds_arena_strdup(p->plan->arena, name), number_text(p->plan, num));
    }
}

static int64_t bound_int(const program *p, const ds_module *module, const char *name) {
    uint32_t i = param_of(module, name);
    if (i == UINT32_MAX || p->binding.params[module->id][i].kind != DS_NUM_INT) return 0;
    return p->binding.params[module->id][i].i;
}

static void take_model(const program *p, bool config) {
    cli_plan *plan = p->plan;
    const ds_func *func = ds_scenario_model(p->unit);
    if (!func || plan->model_func) return; /* MODEL@FUNCTION names another one */
    const ds_import *import = import_of(p, func->module);
    if (!import && func->module != p->unit->modules.at[0]) return;
    plan->model_func = ds_arena_strdup(plan->arena, func->name);
    if (import) take_import(p, import, &plan->model);
    if (!plan->seq && !plan->seq_why && bound_int(p, func->module, "seq"))
        plan->seq_why = config ? "by default: 4096, or the positions of the config if fewer"
                               : "as the file says";
    if (plan->batch || config) return;
    plan->batch = bound_int(p, func->module, "batch");
    if (plan->batch) plan->batch_why = "as the file says";
}

/* The scenario's topology, where the command line says none. */
static void take_topology(const program *p) {
    cli_plan *plan = p->plan;
    const ds_topology *topology = ds_scenario_topology(p->unit);
    if (!topology || plan->gpu || plan->box.path) return;
    const ds_import *import = import_of(p, topology->module);
    if (!import && topology->module != p->unit->modules.at[0]) return;
    plan->box.path = p->path;
    plan->on_name = ds_arena_strdup(plan->arena, topology->name);
    if (import) take_import(p, import, &plan->box);
}

/* Settings of the file's own params; the others are the model's or the machine's. */
static ds_status bind_own(program *p, ds_error *err) {
    DS_VEC(ds_setting) own = {0};
    for (uint32_t i = 0; i < p->n_settings; i++) {
        ds_setting *setting = &p->settings[i];
        if (!setting->path || param_of(p->unit->modules.at[0], setting->path) == UINT32_MAX)
            continue;
        DS_HPUSH(&own, *setting);
        if (strcmp(setting->path, "seq") == 0) p->plan->seq_why = "as given";
        setting->path = NULL;
    }
    ds_status status = ds_bind(p->unit, own.at, own.n, &p->binding, err);
    free(own.at);
    return status;
}

static int read_program(program *p, const char *text, size_t n, bool config) {
    ds_diags diags;
    ds_error err;
    p->plan->model.path = p->path;
    ds_status status = ds_load_text(p->path, text, n, &p->plan->load, &p->unit, &err);
    if (status != DS_OK) return cli_fail(p->unit, &err);
    if (!ds_unit_scenario(p->unit)) return 0;
    ds_diags_init(&diags);
    status = ds_verify(p->unit, &diags);
    ds_diags_deinit(&diags);
    if (status != DS_OK) return 0; /* an import of the file says why */
    const ds_func *model = ds_scenario_model(p->unit);
    if (!model || !import_of(p, model->module)) p->n_settings = 0;
    if (bind_own(p, &err) != DS_OK) return cli_fail(p->unit, &err);
    take_model(p, config);
    take_topology(p);
    return 0;
}

/* ---- files ---- */

static int read_config(program *p, const ds_buf *json) {
    const char *slash = strrchr(p->path, '/');
    const ds_import_options options = {
        .source = slash ? slash + 1 : p->path, .path = p->path, .load = &p->plan->load};
    ds_buf text = {0};
    ds_error err = {0};
    int exit_code;
    if (ds_import_hf(json->text, json->n, &options, &text, &err) == DS_OK)
        exit_code = read_program(p, text.text, text.n, true);
    else
        exit_code = refuse(ds_arena_printf(p->plan->arena, "%s: %s", p->path, err.message));
    ds_buf_deinit(&text);
    return exit_code;
}

static bool ends_in_dir(const char *path) {
    size_t n = strlen(path);
    return n >= 4 && strcmp(path + n - 4, ".dir") == 0;
}

static int read_file(program *p) {
    ds_buf bytes = {0};
    ds_error err;
    ds_buf_put(&bytes, "");
    ds_status status = ds_file_read(p->path, DS_NOWHERE, DS_LOAD_MAX_BYTES, &bytes, &err);
    if (status != DS_OK) return ds_buf_deinit(&bytes), cli_fail(NULL, &err);
    const char *start = bytes.text + strspn(bytes.text, " \t\r\n\xef\xbb\xbf");
    int exit_code;
    if (*start == '{')
        exit_code = read_config(p, &bytes);
    else if (ends_in_dir(p->path) || strncmp(start, "dir ", 4) == 0)
        exit_code = read_program(p, bytes.text, bytes.n, false);
    else
        exit_code = refuse(ds_arena_printf(p->plan->arena,
                                           "%s is neither a config.json of Hugging Face (a JSON "
                                           "object begins with '{') nor a .dir "
                                           "program (whose first line is 'dir 1')",
                                           p->path));
    ds_buf_deinit(&bytes);
    return exit_code;
}

static int no_such_model(const cli_plan *plan, const char *path) {
    const char *near = cli_library_suggest(path);
    fprintf(stderr,
            "distsim: error: no file and no model of the library is called '%s'%s%s%s; MODEL is a "
            "config.json of Hugging Face, a .dir file, or a name that `distsim plan --list-models` "
            "prints\n",
            plan->source, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return 1;
}

int cli_plan_find_model(cli_plan *plan, ds_setting *settings, uint32_t n_settings) {
    struct stat info;
    program p = {.plan = plan, .settings = settings, .n_settings = n_settings};
    cli_plan_split_name(plan->arena, plan->source, &p.path, &plan->model_func);
    bool exists = stat(p.path, &info) == 0;
    const cli_library_model *model = exists ? NULL : cli_library_find_model(p.path);
    if (model) return take_library(plan, model), 0;
    if (!exists) return no_such_model(plan, p.path);
    if (S_ISDIR(info.st_mode)) p.path = ds_arena_printf(plan->arena, "%s/config.json", p.path);
    int exit_code = read_file(&p);
    ds_unit_free(p.unit);
    return exit_code;
}
