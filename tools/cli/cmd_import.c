/* distsim import FORMAT FILE: models and topologies of other tools as .dir text. */
#include "ir/base/file.h"
#include "ir/import/import.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/cost/cost.h"
#include "tools/cli/cli.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_ON "topologies/dgx-a100.dir:@dgx_a100"

typedef struct format {
    const char *name;
    bool is_topology;
    size_t max_bytes;
    ds_status (*import)(const ds_buf *bytes, const ds_import_options *options, ds_buf *out,
                        ds_error *err);
} format;

static ds_status import_hf(const ds_buf *bytes, const ds_import_options *options, ds_buf *out,
                           ds_error *err) {
    return ds_import_hf(bytes->text, bytes->n, options, out, err);
}

static ds_status import_onnx(const ds_buf *bytes, const ds_import_options *options, ds_buf *out,
                             ds_error *err) {
    return ds_import_onnx((const uint8_t *)bytes->text, bytes->n, options, out, err);
}

static ds_status import_nccl(const ds_buf *bytes, const ds_import_options *options, ds_buf *out,
                             ds_error *err) {
    return ds_import_nccl_topo(bytes->text, bytes->n, options, out, err);
}

static ds_status import_smi(const ds_buf *bytes, const ds_import_options *options, ds_buf *out,
                            ds_error *err) {
    return ds_import_nvidia_smi(bytes->text, bytes->n, options, out, err);
}

static ds_status import_graphml(const ds_buf *bytes, const ds_import_options *options, ds_buf *out,
                                ds_error *err) {
    return ds_import_graphml(bytes->text, bytes->n, options, out, err);
}

static const format formats[] = {{"hf", false, DS_IMPORT_HF_MAX_BYTES, import_hf},
                                 {"onnx", false, DS_IMPORT_ONNX_MAX_BYTES, import_onnx},
                                 {"nccl-topo", true, DS_IMPORT_NCCL_MAX_BYTES, import_nccl},
                                 {"nvidia-smi", true, DS_IMPORT_SMI_MAX_BYTES, import_smi},
                                 {"graphml", true, DS_IMPORT_GRAPHML_MAX_BYTES, import_graphml}};
#define N_FORMATS ((int)(sizeof formats / sizeof *formats))

typedef struct arguments {
    cli_options common;
    const format *format;
    const char *file, *output, *on, *device, *name;
} arguments;

static void read_word(void *arguments_, char *word, struct argp_state *state) {
    arguments *args = arguments_;
    if (args->file) argp_error(state, "one FILE at a time: '%s' is too many", word);
    if (args->format) {
        args->file = cli_input(&args->common, word);
        return;
    }
    for (int i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, word) == 0) args->format = &formats[i];
    if (!args->format)
        argp_error(state, "'%s' is none of hf, onnx, nccl-topo, nvidia-smi, graphml", word);
}

static void read_on(void *place, char *arg, struct argp_state *state) {
    if (strcmp(arg, "none") != 0 && !strstr(arg, ":@"))
        argp_error(state, "--on needs FILE:@NAME or none, got '%s'", arg);
    *(const char **)place = arg;
}

static void check_usage(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    if (!args->file) argp_usage(state);
    if (args->common.job)
        argp_error(state, "--job %s: what is imported has no jobs", args->common.job);
    bool topology = args->format->is_topology;
    if (topology && args->on) argp_error(state, "--on is for models");
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
    {CLI_TEXT, AT(device), "device", 0, "NAME",
     .help = "Of a topology: what its GPUs are, by the hardware catalogue; default: what the file "
             "says or "
             "suggests"},
    {CLI_TEXT, AT(name), "name", 0, "NAME",
     .help = "Of a topology: its name; default: by the file"},
    {0}};

static const cli_verb verb = {
    .options = option_rows,
    .takes = CLI_PROGRAM | CLI_WRITES,
    .word = read_word,
    .may_lack_words = true,
    .check = check_usage,
    .args_doc = "hf CONFIG.json\nonnx MODEL.onnx\nnccl-topo TOPO.xml\nnvidia-smi TOPO.txt\n"
                "graphml GRAPH.graphml",
    .doc =
        "Write a model or a topology of another tool as a .dir file."
        "\vhf: a Hugging Face config.json (gpt2, llama, mistral, qwen2, qwen3, mixtral) becomes a "
        "scenario over the model library; its params are batch and seq. onnx: an ONNX graph "
        "becomes a model function; its params are the sizes that the graph leaves open. --set "
        "gives them their values in the written file. Weights are imported as shapes. What "
        "distsim has no op for is refused with the node's name.\n\n"
        "nccl-topo: what NCCL writes to $NCCL_TOPO_DUMP_FILE. nvidia-smi: what `nvidia-smi topo "
        "-m` prints. graphml: what `distsim topo --graphml` writes. Bandwidths and latencies are "
        "the file's where it has them, else the hardware catalogue's, else assumed: the comment on "
        "top of the written file says which."};

/* Before anything is written it must verify, with the numbers put in. */
static int check(const ds_buf *text, const arguments *args) {
    ds_load_options options = {.include_dirs = args->common.include_dirs.at,
                               .n_include_dirs = args->common.include_dirs.n};
    ds_unit *unit;
    ds_error err;
    ds_diags diags;
    ds_binding binding;
    ds_buf report = {0};
    ds_diags_init(&diags);
    const char *path = args->output ? args->output : "imported.dir";
    ds_status status = ds_load_text(path, text->text, text->n, &options, &unit, &err);
    if (status != DS_OK) ds_error_print(unit, &err, &report);
    if (status == DS_OK && (status = ds_verify(unit, &diags)) == DS_OK &&
        (status = ds_bind(unit, NULL, 0, &binding, &err)) == DS_OK)
        status = ds_verify_bound(unit, &binding, &diags);
    for (uint32_t i = 0; i < diags.all.n; i++)
        if (diags.all.at[i].severity == DS_SEV_ERROR)
            ds_diag_print(unit, &diags.all.at[i], &report);
    if (report.n) fputs(report.text, stderr);
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

/* A GraphML file says its graph's name itself. */
static ds_status fill_options(const arguments *args, ds_arena *arena, ds_import_options *options,
                              ds_error *err) {
    const char *on = args->on ? args->on : DEFAULT_ON, *colon = strstr(on, ":@"),
               *slash = strrchr(args->file, '/'), *file = slash ? slash + 1 : args->file;
    *options = (ds_import_options){.source = file,
                                   .settings = args->common.settings.at,
                                   .n_settings = args->common.settings.n,
                                   .topology = args->name};
    if (colon) {
        options->on_file = ds_arena_strndup(arena, on, (size_t)(colon - on));
        options->on_name = colon + 2;
    }
    if (!args->name && args->format->import != import_graphml)
        options->topology = ds_arena_strndup(arena, file, strcspn(file, "."));
    return find_device(args, arena, &options->device, err);
}

static ds_status import_file(const arguments *args, const ds_import_options *options, ds_buf *text,
                             ds_error *err) {
    ds_buf bytes = {0};
    DS_TRY(cli_check_outputs(&args->common, err));
    ds_buf_put(&bytes, "");
    ds_status status = ds_file_read(args->file, DS_NOWHERE, args->format->max_bytes, &bytes, err);
    if (status == DS_OK) {
        *err = (ds_error){0};
        status = args->format->import(&bytes, options, text, err);
        ds_error inner = *err;
        if (status != DS_OK && inner.loc.line)
            ds_error_set(err, status, DS_NOWHERE, "%s:%u:%u: %s", args->file, inner.loc.line,
                         inner.loc.col, inner.message);
        else if (status != DS_OK)
            ds_error_set(err, status, DS_NOWHERE, "%s: %s", args->file, inner.message);
    }
    ds_buf_deinit(&bytes);
    return status;
}

static int run(const arguments *args, ds_arena *arena) {
    ds_import_options options;
    ds_buf text = {0};
    ds_error err;
    ds_status status = fill_options(args, arena, &options, &err);
    if (status == DS_OK) status = import_file(args, &options, &text, &err);
    int exit_code = status == DS_OK ? check(&text, args) : cli_fail(NULL, &err);
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
    cli_parse(&verb, argc, argv, &args);
    ds_arena arena;
    ds_arena_init(&arena);
    int exit_code = run(&args, &arena);
    ds_arena_deinit(&arena);
    cli_options_deinit(&args.common);
    return exit_code;
}
