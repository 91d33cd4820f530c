/* distsim import FORMAT FILE: models and topologies of other tools as .dir text. */
#include "ir/base/file.h"
#include "ir/import/import.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/cost/cost.h"
#include "tools/cli/cli.h"
#include "tools/cli/colour.h"
#include "tools/cli/plan/library.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_ON        "topologies/dgx-a100.dir:@dgx_a100"
#define DEFAULT_LAUNCH_ON "machines/dgx-h100.dir:@cluster"

typedef struct arguments {
    cli_options common;
    const ds_import_format *format;
    const char *file, *output, *on, *device, *name;
    const char *gpu;   /* a GPU or machine by name, in place of `on` */
    const char *model; /* of DeepSpeed: its config.json */
    int64_t nodes;
    bool decode;
} arguments;

/* ---- the lines of importers.def as text ---- */

static const char names[] =
#define IMPORTER(function, name, ...) ", " name
#include "ir/import/importers.def"
#undef IMPORTER
    ;

static const char usage[] =
#define IMPORTER(function, name, kind, file, ...) "\n" name " " file
#include "ir/import/importers.def"
#undef IMPORTER
    ;

#define SAY(name, sentence) name ": " sentence " "
#define SAY_NOT(name, sentence)
static const char help[] =
    "Write a model or a topology of another tool as a .dir file.\v"
#define OF_MODEL                                                   SAY
#define OF_LAUNCH                                                  SAY
#define OF_TOPOLOGY                                                SAY_NOT
#define OF_NAMED_TOPOLOGY                                          SAY_NOT
#define IMPORTER(function, name, kind, file, most_bytes, sentence) OF_##kind(name, sentence)
#include "ir/import/importers.def"
#undef OF_MODEL
#undef OF_LAUNCH
#undef OF_TOPOLOGY
#undef OF_NAMED_TOPOLOGY
    "--set gives them their values in the written file. Weights are imported as shapes. A "
    "node without an op of distsim is refused by name.\n\n"
#define OF_MODEL          SAY_NOT
#define OF_LAUNCH         SAY_NOT
#define OF_TOPOLOGY       SAY
#define OF_NAMED_TOPOLOGY SAY
#include "ir/import/importers.def"
#undef IMPORTER
    "Bandwidths and latencies are the file's where it has them, else the hardware catalogue's, "
    "else assumed: the comment on top of the written file says which.";

static void read_word(void *arguments_, char *word, struct argp_state *state) {
    arguments *args = arguments_;
    if (args->file) argp_error(state, "one FILE at a time: '%s' is too many", word);
    if (args->format) {
        args->file = cli_input(&args->common, word);
        return;
    }
    args->format = ds_import_format_by_name(word);
    if (!args->format) argp_error(state, "'%s' is none of %s", word, names + 2);
}

static void read_on(void *place, char *arg, struct argp_state *state) {
    if (strcmp(arg, "none") != 0 && !strstr(arg, ":@"))
        argp_error(state, "--on needs FILE:@NAME or none, got '%s'", arg);
    *(const char **)place = arg;
}

static void check_usage(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    if (!args->file) argp_usage(state);
    bool launches = args->format->kind == DS_IMPORT_LAUNCH,
         topology = args->format->kind != DS_IMPORT_MODEL && !launches;
    if (launches && args->on && strcmp(args->on, "none") == 0)
        argp_error(state, "launch arguments need a machine: --on FILE:@NAME");
    if (!launches && args->model) argp_error(state, "--model is for launch arguments");
    if (topology && (args->gpu || args->nodes))
        argp_error(state, "--gpu and --nodes are for models and launch arguments");
    if (args->decode && strcmp(args->format->name, "hf") != 0)
        argp_error(state, "--decode is for hf");
    if (!launches && args->nodes && !args->gpu)
        argp_error(state, "--nodes goes with --gpu: how many of which machine");
    if (args->gpu && args->on) argp_error(state, "one of --gpu and --on");
    if (topology && args->on) argp_error(state, "--on is for models");
    if ((topology || (args->on && strcmp(args->on, "none") == 0)) &&
        cli_setting(&args->common, CLI_PROFILE_KEY))
        argp_error(state, "--profile and --ideal are for models that run somewhere");
    if (!topology && (args->device || args->name))
        argp_error(state, "--device and --name are for topologies");
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_OUTPUT, AT(output), "output", 'o', "FILE", .help = "Write here; default stdout"},
    {CLI_READ, AT(on), "on", 0, "FILE:@NAME",
     .help = "Of a model: the topology that the scenario runs on; default " DEFAULT_ON
             ". `none`: no scenario block",
     .read = read_on},
    {CLI_TEXT, AT(gpu), "gpu", 0, "NAME",
     .help =
         "Of a model or launch arguments: the GPU or machine, as of `distsim plan`; default for "
         "launch arguments: dgx-h100"},
    {CLI_I64, AT(nodes), "nodes", 0, "N",
     .help = "Nodes of the machine; default: 1, or as the launch arguments say", .least = 1,
     .most = 1 << 20},
    {CLI_FLAG, AT(decode), "decode", 0, NULL,
     .help = "Of hf: the model's decoding form, a token at a time; its params are batch, seq and "
             "prompt"},
    {CLI_INPUT, AT(model), "model", 0, "CONFIG.json",
     .help = "Of launch arguments of DeepSpeed: the model, a config.json of Hugging Face"},
    {CLI_TEXT, AT(device), "device", 0, "NAME",
     .help = "Of a topology: the kind of its GPUs, by the hardware catalogue; default: as the file "
             "says or suggests"},
    {CLI_TEXT, AT(name), "name", 0, "NAME",
     .help = "Of a topology: its name; default: by the file"},
    {0}};

const cli_verb cli_verb_import = {.options = option_rows,
                                  .takes = CLI_IMPORTS | CLI_SETS | CLI_DATABASE | CLI_COSTS |
                                           CLI_WRITES,
                                  .word = read_word,
                                  .may_lack_words = true,
                                  .check = check_usage,
                                  .args_doc = usage + 1,
                                  .doc = help};

/* Where the text is looked at before it is written. */
static const char *path_of(const arguments *args) {
    return args->output ? args->output : "imported.dir";
}

/* Before anything is written it must verify, with the numbers put in. */
static int check(const ds_buf *text, const arguments *args, const ds_load_options *load) {
    ds_unit *unit;
    ds_error err;
    ds_diags diags;
    ds_binding binding;
    ds_buf report = {0};
    ds_diags_init(&diags);
    ds_status status = ds_load_text(path_of(args), text->text, text->n, load, &unit, &err);
    if (status != DS_OK) ds_error_print(unit, &err, &report);
    if (status == DS_OK) status = ds_verify(unit, &diags);
    if (status == DS_OK && (status = ds_bind(unit, NULL, 0, &binding, &err)) != DS_OK)
        ds_error_print(unit, &err, &report);
    if (status == DS_OK) status = ds_verify_bound(unit, &binding, &diags);
    for (uint32_t i = 0; i < diags.all.n; i++)
        if (diags.all.at[i].severity == DS_SEV_ERROR)
            ds_diag_print(unit, &diags.all.at[i], &report);
    if (report.n) cli_put_diagnostics(report.text, stderr);
    ds_buf_deinit(&report);
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
    return ds_status_exit_code(status);
}

/* Any name or alias of the catalogue → the catalogue's own. */
static ds_status find_device(const arguments *args, ds_arena *arena, const char **name,
                             ds_error *err) {
    ds_profiles *profiles;
    uint32_t kind;
    *name = NULL;
    if (!args->device) return DS_OK;
    DS_TRY(ds_profiles_load(args->common.profiles, &profiles, err));
    ds_status status = ds_profiles_find_kind(profiles, args->device, DS_NOWHERE, &kind, err);
    if (status == DS_OK) *name = ds_arena_strdup(arena, ds_profiles_kind(profiles, kind)->name);
    ds_profiles_free(profiles);
    return status;
}

/* --gpu, as `FILE:@NAME`, and the GPUs of a node. */
static ds_status find_machine(const arguments *args, ds_arena *arena, const char **on,
                              int64_t *gpus, ds_error *err) {
    ds_profiles *profiles;
    const cli_machine *machine;
    if (!args->gpu) return DS_OK;
    DS_TRY(ds_profiles_load(args->common.profiles, &profiles, err));
    ds_status status = cli_library_find_machine(args->gpu, profiles, &machine, err);
    ds_profiles_free(profiles);
    if (status != DS_OK) return status;
    *on = ds_arena_printf(arena, "machines/%s.dir:@cluster", machine->name);
    *gpus = machine->gpus;
    return DS_OK;
}

static ds_status fill_options(const arguments *args, ds_arena *arena, ds_import_options *options,
                              ds_error *err) {
    bool launches = args->format->kind == DS_IMPORT_LAUNCH;
    const char *on = args->on   ? args->on
                     : launches ? DEFAULT_LAUNCH_ON
                                : DEFAULT_ON,
               *slash = strrchr(args->file, '/'), *file = slash ? slash + 1 : args->file;
    int64_t gpus = 0, nodes = args->gpu && !launches && !args->nodes ? 1 : args->nodes;
    DS_TRY(find_machine(args, arena, &on, &gpus, err));
    const char *colon = strstr(on, ":@");
    *options = (ds_import_options){.source = file,
                                   .settings = args->common.settings.at,
                                   .n_settings = args->common.settings.n,
                                   .path = path_of(args),
                                   .nodes = nodes,
                                   .decode = args->decode,
                                   .devices = gpus * nodes,
                                   .node = gpus,
                                   .topology = args->name};
    if (colon) {
        options->on_file = ds_arena_strndup(arena, on, (size_t)(colon - on));
        options->on_name = colon + 2;
    }
    if (!args->name && args->format->kind != DS_IMPORT_NAMED_TOPOLOGY)
        options->topology = ds_arena_strndup(arena, file, strcspn(file, "."));
    return find_device(args, arena, &options->device, err);
}

static ds_status import_file(const arguments *args, ds_import_options *options, ds_buf *text,
                             ds_error *err) {
    ds_buf bytes = {0}, model = {0};
    DS_TRY(cli_check_outputs(&args->common, err));
    if (args->model) {
        DS_TRY(ds_file_read(args->model, DS_NOWHERE, 1 << 20, &model, err));
        options->model = model.text;
        options->model_n = model.n;
    }
    ds_buf_put(&bytes, "");
    ds_status status = ds_file_read(args->file, DS_NOWHERE, args->format->most_bytes, &bytes, err);
    if (status == DS_OK) {
        *err = (ds_error){0};
        status = args->format->import(bytes.text, bytes.n, options, text, err);
        ds_error inner = *err;
        if (status != DS_OK && inner.loc.line)
            ds_error_set(err, status, DS_NOWHERE, "%s:%u:%u: %s", args->file, inner.loc.line,
                         inner.loc.col, inner.message);
        else if (status != DS_OK)
            ds_error_set(err, status, DS_NOWHERE, "%s: %s", args->file, inner.message);
    }
    ds_buf_deinit(&model);
    ds_buf_deinit(&bytes);
    return status;
}

static int run(const arguments *args, ds_arena *arena) {
    ds_load_options load = {.include_dirs = args->common.include_dirs.at,
                            .n_include_dirs = args->common.include_dirs.n};
    ds_import_options options;
    ds_buf text = {0};
    ds_error err;
    ds_status status = fill_options(args, arena, &options, &err);
    options.load = &load;
    if (status == DS_OK) status = import_file(args, &options, &text, &err);
    int exit_code = status == DS_OK ? check(&text, args, &load) : cli_fail(NULL, &err);
    if (exit_code == 0) {
        status =
            cli_write(&args->common, args->output ? args->output : "-", text.text, text.n, &err);
        if (status != DS_OK) exit_code = cli_fail(NULL, &err);
    }
    ds_buf_deinit(&text);
    return exit_code;
}

int cmd_import(int argc, char **argv) {
    arguments args = {0};
    cli_parse(&cli_verb_import, argc, argv, &args);
    ds_arena arena;
    ds_arena_init(&arena);
    int exit_code = run(&args, &arena);
    ds_arena_deinit(&arena);
    cli_options_deinit(&args.common);
    return exit_code;
}
