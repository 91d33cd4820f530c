/* The command line: one file cmd_VERB.c a verb, one line a verb in CLI_VERBS.
 *
 * Results go to stdout, diagnostics and progress to stderr. Exit codes: 0 ok, 1 the program or plan
 * is wrong or does not fit, 2 usage, 3 internal or a stdout that cannot be written to; a ds_status
 * maps to one by ds_status_exit_code.
 *
 * tools/cli/options.h reads the options of all verbs. */
#ifndef DS_CLI_CLI_H
#define DS_CLI_CLI_H

#include "ir/base/diag.h"
#include "ir/lang/lang.h"
#include "tools/cli/options.h"

/* X(verb, one line for --help). The function is cmd_VERB(argc, argv); argv[0] is "distsim VERB".
 * It returns the exit code. */
#define CLI_VERBS(X)                                                                               \
    X(run, "simulate a scenario: step time, where it goes, memory, traces")                        \
    X(sweep, "explore a sweep's candidates; a table of rows, the best, the Pareto front")          \
    X(search, "the best split of every operation of a model, exactly (PaSE)")                      \
    X(plan, "the best ways to train a model on a cluster, why, and how to launch them")            \
    X(replay, "run one row of a sweep's table again, with reports and traces")                     \
    X(certify, "check the certificate of a sweep by branch and bound")                             \
    X(merge, "put the tables of a sweep's shards together")                                        \
    X(exec, "run a program on real numbers; prove sharded equal to unsharded")                     \
    X(opt, "print a model's program after passes: lower, grad, optimizer, shard, ...")             \
    X(project, "print a sharded program as one body per rank")                                     \
    X(schedule, "pipeline schedules: text, timeline, bubbles; a model under each of them")         \
    X(check, "verify a program and report everything that is wrong with it")                       \
    X(fmt, "print a program canonically")                                                          \
    X(import, "models of Hugging Face and ONNX; topologies of NCCL, nvidia-smi, GraphML")          \
    X(validate, "predict published measurements and print the errors")                             \
    X(profile, "the cost database: list, show, diff, import, export, fit, build")                  \
    X(collectives, "measured collectives beside predicted ones: bus bandwidth against size")       \
    X(topo, "the device graph: links, routes, bisection; Graphviz, GraphML, SimGrid")

#define CLI_X(verb, text) int cmd_##verb(int argc, char **argv);
CLI_VERBS(CLI_X)
#undef CLI_X

/* Where imports are, and what --set says. */
ds_load_options cli_load_options(const cli_options *options);

/* A program, loaded and checked as far as `status` says. */
typedef struct cli_source {
    ds_unit *unit;
    ds_binding binding;
    ds_diags diags;
} cli_source;

/* Reads `path` ("-": stdin) and what it imports, verifies it, binds the params under --set and
 * verifies it again with numbers. All diagnostics go to stderr. Close the source either way. */
ds_status cli_open(const char *path, const cli_options *options, cli_source *source);
/* The same up to the bound params: without a candidate a sweep's scenario need not be legal. */
ds_status cli_open_sweep(const char *path, const cli_options *options, cli_source *source);
/* Reads and verifies without binding; prints errors, and warnings only if asked to. */
ds_status cli_open_unbound(const char *path, const cli_options *options, bool warnings,
                           cli_source *source);
void cli_close(cli_source *source);
/* Refuses a noted output that is a file which the first file of the unit imports: imports are
 * inputs too. The functions that open a program ask so. */
ds_status cli_check_imports(const cli_options *options, const ds_unit *unit, ds_error *err);
/* Finds the cut of a pipeline with balance = time, and the parts of a batch with dp_shares = time,
 * by simulation, and makes them the scenario's;
 * nothing for other scenarios. */
ds_status cli_balance(const cli_source *source, const cli_options *options, ds_error *err);

/* distsim run, by another verb: `prepare` (may be NULL) may change the parsed options before
 * anything is loaded; what it returns ends the run unless it is 0. */
int cli_run(int argc, char **argv, int (*prepare)(void *context, cli_options *options),
            void *context);

/* Prints an error to stderr, with its source line if `unit` (may be NULL) knows it; returns the
 * exit code. */
int cli_fail(const ds_unit *unit, const ds_error *err);

#endif
