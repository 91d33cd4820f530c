/* The command line: one file cmd_VERB.c a verb, one line a verb in CLI_VERBS.
 *
 * Results go to stdout, diagnostics and progress to stderr. Exit codes: 0 ok, 1 the program or plan
 * is wrong or does not fit, 2 usage, 3 internal or a stdout that cannot be written to; a ds_status
 * maps to one by ds_status_exit_code.
 *
 * A verb parses its arguments with argp, taking the options that all verbs share from cli_argp as a
 * child parser:
 *
 *     static const struct argp_child children[] = {{&cli_argp, 0, NULL, 0}, {0}};
 *     case ARGP_KEY_INIT: state->child_inputs[0] = &args->common; return 0; */
#ifndef DS_CLI_CLI_H
#define DS_CLI_CLI_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/error.h"
#include "ir/core/ir.h"

#include <argp.h>

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

struct ds_result; /* sim/report/report.h */

/* Options shared by the verbs that read a program: --set, -I, --profiles, --job. */
typedef struct cli_options {
    DS_VEC(ds_setting) settings; /* heap */
    DS_VEC(const char *) include_dirs;
    DS_VEC(const char *) degrades; /* --degrade, of the verbs that have it; heap */
    const char *profiles;          /* NULL: the default (sim/cost/cost.h) */
    void (*change)(void *context,
                   ds_unit *unit); /* by cli_open, before params are bound; or NULL */
    void *change_context;
    /* by cli_run, of what was simulated, unless an option made it another run; or NULL */
    ds_status (*examine)(void *context, const struct ds_result *result, ds_error *err);
    void *examine_context;
    const char *job;              /* the scenario becomes that of this job; NULL: as it is */
    bool overwrite;               /* --overwrite, of the verbs that write files */
    DS_VEC(const char *) outputs; /* paths that cli_output has noted; heap */
    ds_arena arena;
} cli_options;

extern const struct argp cli_argp; /* its input is a cli_options, zeroed at first */
extern const struct argp
    cli_writer_argp; /* the same with --overwrite, for verbs that write files */
void cli_options_deinit(cli_options *options);
/* One more setting, from PARAM=VALUE; `name` is the option that gave it, for a usage error. */
void cli_add_setting(cli_options *options, const char *name, const char *text,
                     struct argp_state *state);

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
/* Finds the cut of a pipeline with balance = time, and the parts of a batch with dp_shares = time,
 * by simulation, and makes them the scenario's;
 * nothing for other scenarios. */
ds_status cli_balance(const cli_source *source, const cli_options *options, ds_error *err);

/* distsim run, by another verb: `prepare` (may be NULL) may change the parsed options before
 * anything is loaded; what it returns ends the run unless it is 0. */
int cli_run(int argc, char **argv, int (*prepare)(void *context, cli_options *options),
            void *context);

/* argp_parse for a verb, its `arguments` filled by the parser: a usage error ends the process with
 * exit code 2, a lack of memory as ds_out_of_memory has it. */
void cli_parse(const struct argp *parser, int argc, char **argv, void *arguments);

/* Prints an error to stderr, with its source line if `unit` (may be NULL) knows it; returns the
 * exit code. */
int cli_fail(const ds_unit *unit, const ds_error *err);

/* Notes the path of a file that the verb will write, and returns the path. */
const char *cli_output(cli_options *options, const char *path);
/* Before long work: refuses a noted path that may not be written, and two paths of one file. The
 * functions that open a program call it first. */
ds_status cli_check_outputs(const cli_options *options, ds_error *err);
/* Writes n bytes to `path` by the policy of ir/base/output.h ("-": stdout). */
ds_status cli_write(const cli_options *options, const char *path, const char *text, size_t n,
                    ds_error *err);
ds_status cli_print(const char *text, size_t n, ds_error *err);

#endif
