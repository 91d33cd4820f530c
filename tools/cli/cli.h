/* The command line: one file cmd_VERB.c a verb, one line a verb in CLI_VERBS. Help, man pages and
 * shell completion are made of these lines and of the tables of options.
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
#include "sim/cost/cost.h"
#include "tools/cli/options.h"

#include <stdio.h>

/* The verbs by what a user wants to do, in the order of --help: GROUP(title) begins a group,
 * X(verb, one line). A verb is the function cmd_VERB(argc, argv), where argv[0] is "distsim VERB",
 * which returns the exit code; and the table of options cli_verb_VERB. */
#define CLI_VERBS(GROUP, X)                                                                        \
    GROUP("Ask how long, how much memory, and why")                                                \
    X(run, "simulate a scenario: step time, memory, reasons, traces; compare two")                 \
    X(plan, "the best ways to train a model on a cluster, and how to launch them")                 \
    GROUP("Explore")                                                                               \
    X(sweep, "simulate the candidates of a sweep: a table of rows, the best, the front")           \
    X(replay, "run one row of a sweep's table again, with reports and traces")                     \
    X(certify, "check the certificate of a sweep by branch and bound")                             \
    X(merge, "put the tables of a sweep's shards together")                                        \
    X(search, "the best split of every operation of a model, exactly (PaSE)")                      \
    X(schedule, "pipeline schedules: text, timeline, bubbles; a model under each of them")         \
    GROUP("Bring models, machines and measurements")                                               \
    X(import, "configs, launch commands, ONNX, topologies of other tools as .dir files")           \
    X(topo, "the device graph: links, routes, bisection; Graphviz, GraphML, SimGrid")              \
    X(profile, "the cost database: list, show, diff, import, export, fit, build, check")           \
    X(collectives, "measured collectives beside predicted ones: bandwidth against size")           \
    X(validate, "predict published measurements and print the errors")                             \
    GROUP("Read, check and prove programs")                                                        \
    X(check, "verify a program and report every error")                                            \
    X(fmt, "print a program canonically")                                                          \
    X(opt, "print a model's program after passes: lower, grad, optimizer, shard, ...")             \
    X(project, "print a sharded program as one body per rank")                                     \
    X(exec, "run a program on real numbers; prove sharded equal to unsharded")                     \
    GROUP("Learn")                                                                                 \
    X(lesson, "a course that grades itself: pages, programs with a gap, hints, --check")           \
    GROUP("Help")                                                                                  \
    X(help, "explain a verb; man pages and shell completion")

#define CLI_GROUP(title)
#define CLI_X(verb, text)                                                                          \
    int cmd_##verb(int argc, char **argv);                                                         \
    extern const cli_verb cli_verb_##verb;
CLI_VERBS(CLI_GROUP, CLI_X)
#undef CLI_X
#undef CLI_GROUP

/* A line of CLI_VERBS. */
typedef struct cli_verb_line {
    const char *group; /* the title of a group, before the group's verbs; all else is NULL */
    const char *name;
    const char *called; /* "distsim run", argv[0] of the verb's own messages */
    int (*run)(int argc, char **argv);
    const cli_verb *verb;
    const char *text;
} cli_verb_line;

const cli_verb_line *cli_verb_lines(uint32_t *n);
/* The line of a verb; NULL: no verb has the name, which is said on stderr with the nearest one. */
const cli_verb_line *cli_find_verb(const char *name);
/* Prints the page of `distsim --help`. */
void cli_put_usage(FILE *out);
/* Runs a verb with argv[0] as the verb's messages have it. */
int cli_run_verb(const cli_verb_line *line, int argc, char **argv);

/* Where imports are, and what --set says. */
ds_load_options cli_load_options(const cli_options *options);

/* The database that the options name, whose default profiles a run takes; the options keep it. */
ds_status cli_load_profiles(const cli_options *options, const ds_profiles **out, ds_error *err);

/* A program, loaded and checked as far as `status` says. */
typedef struct cli_source {
    ds_unit *unit;
    ds_binding binding;
    ds_diags diags;
} cli_source;

/* Reads `path` ("-": stdin) and what it imports, verifies it, binds the params under --set and
 * verifies it again with numbers. All diagnostics go to stderr. Close the source either way.
 * Verbs with --profile state the scenario's default framework (cli_state_framework). */
ds_status cli_open(const char *path, cli_options *options, cli_source *source);
/* The same up to the bound params: without a candidate a sweep's scenario need not be legal. */
ds_status cli_open_sweep(const char *path, cli_options *options, cli_source *source);
/* Adds a warning to the source for each knob, or dimension of a sweep, that does nothing in any
 * candidate, and prints the warnings. */
void cli_warn_sweep(cli_source *source, const cli_options *options);
/* Reads and verifies without binding; prints errors, and warnings only if asked to. */
ds_status cli_open_unbound(const char *path, const cli_options *options, bool warnings,
                           cli_source *source);
/* The framework whose stack the default profile of a device kind, or the profile of that name,
 * measured; NULL: none. */
const char *cli_framework_of_device(const ds_profiles *profiles, const char *device);
const char *cli_framework_of_profile(const ds_profiles *profiles, const char *profile);
/* Gives the scenario of a verb with --profile the framework of its devices' stack, if the scenario
 * has a model and its file names neither framework nor profile: a setting of the options, and a key
 * of the unit. Errors: the database cannot be read. */
ds_status cli_state_framework(cli_options *options, ds_unit *unit, ds_error *err);
/* Where costs come from and the default framework, before a result: appended to `out`; NULL: to
 * stderr, beside records. */
void cli_tell_costs(const cli_source *source, const ds_profiles *profiles, ds_buf *out);
void cli_close(cli_source *source);
/* Refuses a noted output that is a file which the first file of the unit imports: imports are
 * inputs too. The functions that open a program ask so. */
ds_status cli_check_imports(const cli_options *options, const ds_unit *unit, ds_error *err);
/* ds_simulate_settings, with the costs that the options say. */
ds_status cli_balance(const cli_source *source, const cli_options *options, ds_error *err);

/* distsim run, by another verb: `prepare` (may be NULL) may change the parsed options before
 * anything is loaded; what it returns ends the run unless it is 0. */
int cli_run(int argc, char **argv, int (*prepare)(void *context, cli_options *options),
            void *context);

/* Prints an error to stderr, with its source line if `unit` (may be NULL) knows it; returns the
 * exit code. */
int cli_fail(const ds_unit *unit, const ds_error *err);
/* The verb that reads files of this name's ending, "run" for .dir; NULL: no verb is known. */
const char *cli_verb_of_file(const char *path);

#endif
