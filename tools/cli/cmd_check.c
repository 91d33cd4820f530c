/* distsim check FILE…: verifies programs, with the params' values, and reports everything found;
 * with --count also says how large the models in them are. */
#include "ir/passes/build/count.h"
#include "ir/strategy/scenario.h"
#include "tools/cli/cli.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct arguments {
    cli_options common;
    cli_texts files;
    bool count;
    const char *entry;
} arguments;

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_FLAG, AT(count), "count", 0, NULL,
     .help = "Print the model's parameters and the FLOPs of a forward pass"},
    CLI_ENTRY(AT(entry), "Count this function, not the scenario's or the last one in the file"),
    {0}};

const cli_verb cli_verb_check = {
    .options = option_rows,
    .takes = CLI_PROGRAM,
    .files = AT(files),
    .args_doc = "FILE...",
    .doc = "Verify programs: names, types, shapes, shardings, collectives, and with the params' "
           "values divisibility and ranges. Reports everything that is wrong. FILE - is stdin. "
           "With --count, flop is the work of all operations of the function as it stands, "
           "matmul_flop that of matrix products, convolutions, attention and LSTM cells, "
           "padding_flop the part of matmul_flop on rows of experts' buffers that no token uses."};

static void plural(uint32_t n, const char *what) {
    printf("%u %s%s", n, what, n == 1 ? "" : "s");
}

/* What --count counts: as --entry says, else the scenario's model or program, else the last
 * function of the file, as the parts of a model come before the whole. */
static ds_status find_entry(const ds_unit *unit, const char *name, const ds_func **out,
                            ds_error *err) {
    const ds_module *root = unit->modules.at[0];
    *out = name ? ds_find_func(root, name) : ds_scenario_model(unit);
    if (!*out && !name) *out = ds_scenario_program_func(unit);
    if (!*out && !name && root->funcs.n) *out = root->funcs.at[root->funcs.n - 1];
    if (*out) return DS_OK;
    if (name) return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "there is no function @%s", name);
    return ds_error_set(err, DS_ERR_VALUE, (ds_loc){root->path, 1, 1, 1}, "no function to count");
}

/* All digits, also beyond 2^63. */
static void print_count(const char *name, ds_i128 n) {
    const long long half = 1000000000000000000;
    if (n < half)
        printf("  %-12s %lld\n", name, (long long)n);
    else
        printf("  %-12s %lld%018lld\n", name, (long long)(n / half), (long long)(n % half));
}

static ds_status print_counts(const cli_source *source, const char *name) {
    ds_error err;
    const ds_func *entry;
    ds_model_counts counts;
    ds_status status = find_entry(source->unit, name, &entry, &err);
    if (status == DS_OK) status = ds_model_count(&source->binding, entry, &counts, &err);
    if (status != DS_OK) {
        cli_fail(source->unit, &err);
        return status;
    }
    printf("  function     @%s\n", entry->name);
    printf("  parameters   %lld\n", (long long)counts.parameters);
    printf("  weights      %lld\n", (long long)counts.weights);
    print_count("flop", counts.flop);
    print_count("matmul_flop", counts.matmul_flop);
    if (counts.padding_flop) print_count("padding_flop", counts.padding_flop);
    return DS_OK;
}

static int check_file(const char *path, arguments *args) {
    cli_source source;
    ds_status status = cli_open(path, &args->common, &source);
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
    if (args->count && status == DS_OK) status = print_counts(&source, args->entry);
    cli_close(&source);
    return ds_status_exit_code(status);
}

int cmd_check(int argc, char **argv) {
    arguments args = {0};
    cli_parse(&cli_verb_check, argc, argv, &args);
    int worst = 0;
    for (uint32_t i = 0; i < args.files.n; i++) {
        int exit_code = check_file(args.files.at[i], &args);
        if (exit_code > worst) worst = exit_code;
    }
    cli_options_deinit(&args.common);
    free(args.files.at);
    return worst;
}
