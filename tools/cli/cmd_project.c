/* distsim project FILE: a sharded program as one body per rank. */
#include "ir/lang/lang.h"
#include "ir/passes/passes.h"
#include "ir/passes/project/project.h"
#include "ir/strategy/scenario.h"
#include "tools/cli/cli.h"

typedef struct arguments {
    cli_options common;
    const char *file, *output;
    int64_t rank; /* -1: all */
} arguments;

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {{CLI_I64, AT(rank), "rank", 0, "R",
                                          .help = "Print rank R's body alone, for reading",
                                          .says = "needs the number of a rank, not"},
                                         CLI_PRINTED(AT(output)),
                                         {0}};

const cli_verb cli_verb_project = {
    .options = option_rows,
    .takes = CLI_PROGRAM | CLI_COSTS | CLI_WRITES,
    .file = AT(file),
    .args_doc = "FILE",
    .doc =
        "Print a sharded program as one body per rank: local shapes, groups of ranks in place of "
        "mesh axes, sends that meet receives. FILE has a program on a mesh, or a model with a "
        "strategy, which passes make a program first. All ranks together are a program that "
        "runs and executes; one alone (--rank) is text to read, since it waits for the others. "
        "FILE - is stdin."};

/* The program loses all bodies but one. */
static ds_status keep_rank(ds_unit *unit, int64_t rank, ds_error *err) {
    ds_program *program = ds_scenario_ranks(unit);
    for (uint32_t i = 0; i < program->n_ranks; i++) {
        if (program->ranks[i]->rank != rank) continue;
        program->ranks[0] = program->ranks[i];
        program->n_ranks = 1;
        return DS_OK;
    }
    uint32_t n = program->n_ranks;
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                        "there is no rank %lld; @%s has ranks %lld to %lld", (long long)rank,
                        program->name, n ? (long long)program->ranks[0]->rank : 0,
                        n ? (long long)program->ranks[n - 1]->rank : -1);
}

static ds_status print(const arguments *args, ds_unit *unit, ds_error *err) {
    if (args->rank >= 0) DS_TRY(keep_rank(unit, args->rank, err));
    ds_buf text = {0};
    ds_print_module(unit->modules.at[0], &text);
    ds_status status =
        cli_write(&args->common, args->output ? args->output : "-", text.text, text.n, err);
    ds_buf_deinit(&text);
    return status;
}

/* A program as it stands. */
static int project_program(const arguments *args, const cli_source *source) {
    ds_unit *unit = NULL;
    ds_error err;
    int exit_code = 0;
    if (ds_project_program(&source->binding, &unit, NULL, &err) != DS_OK)
        exit_code = cli_fail(source->unit, &err);
    else if (print(args, unit, &err) != DS_OK)
        exit_code = cli_fail(unit, &err);
    ds_unit_free(unit);
    return exit_code;
}

/* A model, after all passes that its scenario asks for. */
static int project_model(const arguments *args, const cli_source *source) {
    ds_model_step *step = NULL;
    ds_error err;
    int exit_code = 0;
    if (cli_balance(source, &args->common, &err) != DS_OK ||
        ds_model_step_new(&source->binding, &step, &err) != DS_OK)
        exit_code = cli_fail(source->unit, &err);
    else if (ds_model_step_run_to(step, DS_PASS_PROJECT, NULL, NULL, &err) != DS_OK ||
             print(args, step->unit, &err) != DS_OK)
        exit_code = cli_fail(step->unit, &err);
    ds_model_step_free(step);
    return exit_code;
}

int cmd_project(int argc, char **argv) {
    arguments args = {.rank = -1};
    cli_source source;
    cli_parse(&cli_verb_project, argc, argv, &args);
    int exit_code = ds_status_exit_code(cli_open(args.file, &args.common, &source));
    if (exit_code == 0)
        exit_code = ds_scenario_model(source.unit) ? project_model(&args, &source)
                                                   : project_program(&args, &source);
    cli_close(&source);
    cli_options_deinit(&args.common);
    return exit_code;
}
