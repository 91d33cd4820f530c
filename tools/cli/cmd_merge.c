/* distsim merge a.csv b.csv … -o out.csv: the shards of a sweep as one table. */
#include "search/sweep.h"
#include "tools/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { OPT_OVERWRITE = 0x300 };

typedef struct arguments {
    DS_VEC(const char *) files;
    const char *out;
    bool overwrite;
} arguments;

static const struct argp_option options_table[] = {
    {"output", 'o', "FILE", 0, "Write the rows there; default: stdout", 0},
    {"overwrite", OPT_OVERWRITE, NULL, 0, "Although FILE exists", 0},
    {0}};

static error_t parse_argument(int key, char *arg, struct argp_state *state) {
    arguments *args = state->input;
    switch (key) {
    case 'o':
        args->out = arg;
        return 0;
    case OPT_OVERWRITE:
        args->overwrite = true;
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

static const struct argp parser = {
    .options = options_table,
    .parser = parse_argument,
    .args_doc = "CSV...",
    .doc =
        "Put together what `distsim sweep --shard 1/N` … `--shard N/N` have written: the table "
        "that the whole sweep would have written. Rows of another sweep, a row twice and missing "
        "rows are errors."};

int cmd_merge(int argc, char **argv) {
    arguments args = {.out = "-"};
    ds_error err;
    uint64_t n_rows;
    argp_parse(&parser, argc, argv, 0, NULL, &args);
    ds_status status =
        ds_sweep_merge(args.files.at, args.files.n, args.out, args.overwrite, &n_rows, &err);
    free(args.files.at);
    if (status != DS_OK) return cli_fail(NULL, &err);
    fprintf(stderr, "%" PRIu64 " rows\n", n_rows);
    return 0;
}
