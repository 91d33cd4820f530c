/* distsim check FILE…: verifies programs, with the params' values, and reports everything found. */
#include "tools/cli/cli.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct arguments {
    cli_options common;
    DS_VEC(const char *) files;
} arguments;

static error_t parse_argument(int key, char *arg, struct argp_state *state) {
    arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->common;
        return 0;
    case ARGP_KEY_ARG:
        DS_HPUSH(&args->files, arg);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_usage(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&cli_argp, 0, NULL, 0}, {0}};
static const struct argp parser = {
    .parser = parse_argument,
    .args_doc = "FILE...",
    .doc = "Verify programs: names, types, shapes, shardings, collectives, and with the params' "
           "values divisibility and ranges. Reports everything that is wrong. FILE - is stdin.",
    .children = children};

static void plural(uint32_t n, const char *what) {
    printf("%u %s%s", n, what, n == 1 ? "" : "s");
}

static int check_file(const char *path, const cli_options *options) {
    cli_source source;
    ds_status status = cli_open(path, options, &source);
    uint32_t n_errors = source.diags.n_errors, n_warnings = source.diags.all.n - n_errors;
    if (status != DS_OK && !n_errors) n_errors = 1; /* a text that could not be read or parsed */
    printf("%s: ", path);
    if (n_errors)
        plural(n_errors, "error");
    else
        printf("ok");
    if (n_warnings) {
        printf(", ");
        plural(n_warnings, "warning");
    }
    putchar('\n');
    cli_close(&source);
    return ds_status_exit_code(status);
}

int cmd_check(int argc, char **argv) {
    arguments args = {0};
    argp_parse(&parser, argc, argv, 0, NULL, &args);
    int worst = 0;
    for (uint32_t i = 0; i < args.files.n; i++) {
        int exit_code = check_file(args.files.at[i], &args.common);
        if (exit_code > worst) worst = exit_code;
    }
    cli_options_deinit(&args.common);
    free(args.files.at);
    return worst;
}
