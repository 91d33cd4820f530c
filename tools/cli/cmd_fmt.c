/* distsim fmt FILE…: prints programs canonically. Formatting twice changes nothing.
 *
 * fmt prints the types of all values, so it needs a program that verifies; params need no values.
 */
#include "ir/base/output.h"
#include "ir/lang/lang.h"
#include "tools/cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_options common;
    cli_texts files;
    bool in_place;
    bool check;
} arguments;

static void check_usage(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    if (args->in_place && args->check) argp_error(state, "-i and --check exclude each other");
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_FLAG, AT(in_place), "in-place", 'i', NULL, .help = "Rewrite the files"},
    {CLI_FLAG, AT(check), "check", 'c', NULL,
     .help = "Print nothing but the names of files that fmt would change; exit 1 "
             "if there are any"},
    {0}};

const cli_verb cli_verb_fmt = {
    .options = option_rows,
    .takes = CLI_IMPORTS,
    .files = AT(files),
    .check = check_usage,
    .args_doc = "FILE...",
    .doc = "Print programs canonically, comments included. FILE - is stdin."};

static int emit(const char *path, const arguments *args, const ds_module *module,
                const ds_buf *text) {
    bool same = module->text_n == text->n && memcmp(module->text, text->text, text->n) == 0;
    if (args->check) {
        if (!same) puts(path);
        return same ? 0 : 1;
    }
    if (args->in_place && same) return 0;
    ds_error err;
    ds_status status = ds_output_write(args->in_place ? path : "-", DS_OUTPUT_OVERWRITE, text->text,
                                       text->n, &err);
    return status == DS_OK ? 0 : cli_fail(NULL, &err);
}

static int format_file(const char *path, const arguments *args) {
    cli_source source;
    ds_status status = cli_open_unbound(path, &args->common, false, &source);
    int exit_code = ds_status_exit_code(status);
    if (status == DS_OK) {
        const ds_module *root = source.unit->modules.at[0];
        ds_buf text = {0};
        ds_print_module(root, &text);
        exit_code = emit(path, args, root, &text);
        ds_buf_deinit(&text);
    }
    cli_close(&source);
    return exit_code;
}

int cmd_fmt(int argc, char **argv) {
    arguments args = {0};
    cli_parse(&cli_verb_fmt, argc, argv, &args);
    int worst = 0;
    for (uint32_t i = 0; i < args.files.n; i++) {
        int exit_code = format_file(args.files.at[i], &args);
        if (exit_code > worst) worst = exit_code;
    }
    cli_options_deinit(&args.common);
    free(args.files.at);
    return worst;
}
