/* distsim merge a.csv b.csv … -o out.csv: the shards of a sweep as one table.
 *
 * Shards that were all stopped early have no gaps between their rows. So the space of the sweep
 * that the rows name is walked: it says how many there must be. */
#include "search/driver/rows.h"
#include "search/driver/sweep.h"
#include "tools/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_options common;
    cli_texts files;
    const char *out, *file;
    bool has_count;
    uint64_t count;
} arguments;

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_OWN, AT(out), "output", 'o', "FILE", .help = "Write the rows there; default: stdout"},
    {CLI_U64, AT(count), "count", 0, "N",
     .help =
         "There must be N rows; default: as many as the sweep has candidates, by the file that the "
         "rows "
         "name. Needed for --method random, and where that file has changed or is gone",
     .says = "takes a number of rows, not", .given = AT(has_count)},
    CLI_SWEEP_FILE(AT(file), "The sweep's file, if the file has moved since the rows were written"),
    {0}};

const cli_verb cli_verb_merge = {
    .options = option_rows,
    .takes = CLI_PROGRAM | CLI_WRITES,
    .files = AT(files),
    .keeps_words = true,
    .args_doc = "CSV...",
    .doc =
        "Put together the tables of `distsim sweep --shard 1/N` … `--shard N/N`: the table "
        "that the whole sweep would have written. Rows of another sweep, a row twice and missing "
        "rows are errors, also if the last ones are missing: the rows name the sweep's file, whose "
        "candidates are counted. -I, --database and --job are to be as in the sweep."};

/* The rows' settings, after those of --set. */
static ds_status add_settings(cli_options *options, const char *text, ds_arena *arena,
                              ds_error *err) {
    ds_settings settings = {0};
    DS_TRY(ds_rows_read_settings(text, arena, &settings, err));
    for (uint32_t i = 0; i < settings.n; i++) DS_HPUSH(&options->settings, settings.at[i]);
    return DS_OK;
}

static int count_file(arguments *args, const ds_sweep_row *row, ds_arena *arena) {
    cli_source source = {0};
    const ds_profiles *profiles = NULL;
    ds_error err;
    if (!args->file) args->file = ds_sweep_cell(row, "source");
    if (add_settings(&args->common, ds_sweep_cell(row, "settings"), arena, &err) != DS_OK)
        return cli_fail(NULL, &err);
    int exit_code = ds_status_exit_code(cli_open_sweep(args->file, &args->common, &source));
    if (exit_code)
        fprintf(stderr,
                "how many rows there should be is not known without %s: --file FILE says "
                "where it is, --count N how many\n",
                args->file);
    if (!exit_code && cli_load_profiles(&args->common, &profiles, &err) != DS_OK)
        exit_code = cli_fail(NULL, &err);
    ds_sweep_subject subject = {.binding = &source.binding,
                                .settings = args->common.settings.at,
                                .n_settings = args->common.settings.n,
                                .path = args->file,
                                .profiles = profiles};
    if (!exit_code &&
        ds_sweep_count(&subject, ds_sweep_cell(row, "sweep"), &args->count, &err) != DS_OK)
        exit_code = cli_fail(source.unit, &err);
    cli_close(&source);
    return exit_code;
}

static int count_rows(arguments *args) {
    ds_arena arena;
    ds_sweep_row row;
    ds_error err;
    if (args->has_count) return 0;
    ds_arena_init(&arena);
    ds_status status = ds_sweep_first_row(args->files.at, args->files.n, &arena, &row, &err);
    if (status == DS_OK && !row.cells)
        status = ds_error_set(&err, DS_ERR_DATA, DS_NOWHERE,
                              "there are no rows, so no sweep is named; --count 0 if it has no "
                              "candidates");
    int exit_code = status == DS_OK ? count_file(args, &row, &arena) : cli_fail(NULL, &err);
    ds_arena_deinit(&arena);
    return exit_code;
}

static int merge(arguments *args) {
    ds_error err;
    uint64_t n_rows;
    if (cli_check_outputs(&args->common, &err) != DS_OK) return cli_fail(NULL, &err);
    int exit_code = count_rows(args);
    if (exit_code) return exit_code;
    if (ds_sweep_merge(args->files.at, args->files.n, args->out, args->common.overwrite,
                       args->count, &n_rows, &err) != DS_OK)
        return cli_fail(NULL, &err);
    fprintf(stderr, "%" PRIu64 " rows\n", n_rows);
    return 0;
}

int cmd_merge(int argc, char **argv) {
    arguments args = {.out = "-"};
    cli_parse(&cli_verb_merge, argc, argv, &args);
    int exit_code = merge(&args);
    free(args.files.at);
    cli_options_deinit(&args.common);
    return exit_code;
}
