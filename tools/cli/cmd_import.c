/* distsim import hf|onnx FILE: models of other tools as .dir text. */
#include "ir/base/file.h"
#include "ir/import/import.h"
#include "ir/lang/lang.h"
#include "ir/lang/verify.h"
#include "tools/cli/cli.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_ON "topologies/dgx-a100.dir:@dgx_a100"

enum { OPT_ON = 0x500 };

typedef struct format {
    const char *name;
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

static const format formats[] = {{"hf", DS_IMPORT_HF_MAX_BYTES, import_hf},
                                 {"onnx", DS_IMPORT_ONNX_MAX_BYTES, import_onnx}};
#define N_FORMATS ((int)(sizeof formats / sizeof *formats))

typedef struct arguments {
    cli_options common;
    const format *format;
    const char *file, *output, *on;
} arguments;

static const struct argp_option options_table[] = {
    {"output", 'o', "FILE", 0, "Write here; default stdout", 0},
    {"on", OPT_ON, "FILE:@NAME", 0,
     "The topology that the scenario runs on; default " DEFAULT_ON ". `none`: no scenario block",
     0},
    {0}};

static void take_word(arguments *args, const char *word, struct argp_state *state) {
    if (args->file) argp_error(state, "one FILE at a time: '%s' is too many", word);
    if (args->format) {
        args->file = word;
        return;
    }
    for (int i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, word) == 0) args->format = &formats[i];
    if (!args->format) argp_error(state, "'%s' is neither hf nor onnx", word);
}

static error_t parse_argument(int key, char *arg, struct argp_state *state) {
    arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->common;
        return 0;
    case 'o':
        args->output = arg;
        return 0;
    case OPT_ON:
        if (strcmp(arg, "none") != 0 && !strstr(arg, ":@"))
            argp_error(state, "--on needs FILE:@NAME or none, got '%s'", arg);
        args->on = arg;
        return 0;
    case ARGP_KEY_ARG:
        take_word(args, arg, state);
        return 0;
    case ARGP_KEY_END:
        if (!args->file) argp_usage(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&cli_argp, 0, NULL, 0}, {0}};
static const struct argp parser = {
    .options = options_table,
    .parser = parse_argument,
    .args_doc = "hf CONFIG.json\nonnx MODEL.onnx",
    .doc =
        "Write a model of another tool as a .dir file that `distsim run` takes."
        "\vhf: a Hugging Face config.json (gpt2, llama, mistral, qwen2, qwen3, mixtral) becomes a "
        "scenario over the model library; its params are batch and seq. onnx: an ONNX graph "
        "becomes a model function; its params are the sizes that the graph leaves open. --set "
        "gives them their values in the written file. Weights are imported as shapes. What "
        "distsim has no op for is refused with the node's name.",
    .children = children};

/* Before anything is written it must verify, with the numbers put in. */
static int check(const ds_buf *text, const arguments *args) {
    ds_load_options options = {args->common.include_dirs.at, args->common.include_dirs.n};
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

static int run(const arguments *args, ds_arena *arena) {
    const char *on = args->on ? args->on : DEFAULT_ON, *colon = strstr(on, ":@");
    ds_import_options options = {.source = strrchr(args->file, '/') ? strrchr(args->file, '/') + 1
                                                                    : args->file,
                                 .settings = args->common.settings.at,
                                 .n_settings = args->common.settings.n};
    if (colon) {
        options.on_file = ds_arena_strndup(arena, on, (size_t)(colon - on));
        options.on_name = colon + 2;
    }
    ds_buf bytes = {0}, text = {0};
    ds_error err;
    ds_buf_put(&bytes, "");
    ds_status status = ds_file_read(args->file, DS_NOWHERE, args->format->max_bytes, &bytes, &err);
    if (status == DS_OK) {
        status = args->format->import(&bytes, &options, &text, &err);
        if (status != DS_OK) {
            ds_error inner = err;
            ds_error_set(&err, inner.code, DS_NOWHERE, "%s: %s", args->file, inner.message);
        }
    }
    int exit_code = status == DS_OK ? check(&text, args) : cli_fail(NULL, &err);
    if (exit_code == 0) {
        status = cli_write(args->output ? args->output : "-", text.text, text.n, &err);
        if (status != DS_OK) exit_code = cli_fail(NULL, &err);
    }
    ds_buf_deinit(&bytes);
    ds_buf_deinit(&text);
    return exit_code;
}

int cmd_import(int argc, char **argv) {
    arguments args = {0};
    argp_parse(&parser, argc, argv, 0, NULL, &args);
    ds_arena arena;
    ds_arena_init(&arena);
    int exit_code = run(&args, &arena);
    ds_arena_deinit(&arena);
    cli_options_deinit(&args.common);
    return exit_code;
}
