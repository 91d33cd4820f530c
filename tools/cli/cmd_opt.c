/* distsim opt FILE: prints the program after passes. What mlir-opt is to MLIR. */
#include "ir/lang/lang.h"
#include "ir/passes/passes.h"
#include "ir/strategy/scenario.h"
#include "tools/cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_options common;
    const char *file, *output;
    bool asked; /* --passes was given */
    bool orders;
    uint32_t passes; /* bit i: pass i */
    uint32_t after;  /* of --after */
    ds_pass_id last; /* of `passes` */
} arguments;

static ds_pass_id pass_of(const char *text, size_t n, struct argp_state *state) {
    const char *names[DS_PASS_COUNT];
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), text);
    ds_pass_id pass = ds_pass_by_name(name);
    if (pass < DS_PASS_COUNT) return pass;
    for (uint32_t i = 0; i < DS_PASS_COUNT; i++) names[i] = ds_pass_name((ds_pass_id)i);
    const char *near = ds_suggest(name, names, DS_PASS_COUNT);
    argp_error(state, "there is no pass '%s'%s%s%s", name, near ? "; did you mean '" : "",
               near ? near : "", near ? "'?" : "");
    return pass;
}

/* "lower,grad": names in the order in which passes run. */
static void read_passes(void *place, char *text, struct argp_state *state) {
    arguments *args = place;
    args->asked = true;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ",");
        ds_pass_id pass = pass_of(at, n, state);
        if (pass < DS_PASS_COUNT && args->passes >> pass)
            argp_error(
                state,
                "'%s' comes too late: the order is lower, stage, grad, optimizer, recompute, "
                "shard, offload, pipeline, overlap, project, each once",
                ds_pass_name(pass));
        if (pass < DS_PASS_COUNT) args->passes |= 1u << pass;
        args->last = pass;
        at += n + (at[n] == ',');
    }
    if (!args->passes) argp_error(state, "--passes needs a list such as lower,grad");
    if (!(args->passes & 1u << DS_PASS_LOWER))
        argp_error(state, "passes begin with lower, which makes the step that the others change");
}

static void read_after(void *place, char *pass, struct argp_state *state) {
    *(uint32_t *)place |= 1u << pass_of(pass, strlen(pass), state);
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_READ, 0, "passes", 0, "A,B,...",
     .help = "Run these, in this order: lower, stage, grad, optimizer, recompute, shard, offload, "
             "pipeline, overlap, project; default: all that the scenario asks for",
     .read = read_passes},
    {CLI_READ, AT(after), "after", 0, "PASS",
     .help = "Print the program after PASS too; repeatable", .read = read_after},
    {CLI_FLAG, AT(orders), "orders", 0, NULL,
     .help = "Print the loops in which the equations of each rec run, in place of the program"},
    CLI_PRINTED(AT(output)),
    {0}};

const cli_verb cli_verb_opt = {
    .options = option_rows,
    .takes = CLI_PROGRAM | CLI_COSTS | CLI_WRITES,
    .file = AT(file),
    .args_doc = "FILE",
    .doc =
        "Print a model's program after passes, as text that parses, verifies, runs and executes "
        "again: lower (one function, calls inlined), stage (cut for a pipeline), grad (backward "
        "pass), optimizer, recompute (activations made again), shard (mesh, shardings, "
        "communication), offload (tensors kept at hosts), pipeline (the schedule of the stages), "
        "overlap, project (one body per rank). FILE - is stdin."};

/* ---- the passes ---- */

typedef struct printer {
    const arguments *args;
    ds_buf text;
    ds_pass_id last; /* that ran */
} printer;

static ds_status observe(void *context, const ds_model_step *step, ds_pass_id pass, ds_error *err) {
    printer *p = context;
    (void)err;
    p->last = pass;
    if (!(p->args->after >> pass & 1)) return DS_OK;
    ds_buf_printf(&p->text, "// after %s\n", ds_pass_name(pass));
    ds_print_module(step->unit->modules.at[0], &p->text);
    ds_buf_putc(&p->text, '\n');
    return DS_OK;
}

static ds_status run_named(const arguments *args, ds_model_step *step, printer *p, ds_error *err) {
    for (uint32_t i = 0; i < DS_PASS_COUNT; i++) {
        if (!(args->passes >> i & 1)) continue;
        DS_TRY(ds_model_step_run(step, (ds_pass_id)i, err));
        DS_TRY(observe(p, step, (ds_pass_id)i, err));
    }
    return DS_OK;
}

/* Everything but project, which is another view of the program. */
static ds_status run_wanted(ds_model_step *step, printer *p, ds_error *err) {
    return ds_model_step_run_to(step, DS_PASS_OVERLAP, observe, p, err);
}

static ds_status print(const arguments *args, const cli_source *source, ds_model_step *step,
                       ds_error *err) {
    printer p = {.args = args};
    (void)source;
    ds_status status = args->asked ? run_named(args, step, &p, err) : run_wanted(step, &p, err);
    if (p.text.n) ds_buf_printf(&p.text, "// the result\n");
    if (args->orders && status == DS_OK && !step->orders)
        status = ds_error_set(err, DS_ERR_VALUE, step->func->loc, "the model has no rec");
    else if (args->orders && status == DS_OK)
        ds_buf_put(&p.text, step->orders);
    else if (status == DS_OK)
        ds_print_module(step->unit->modules.at[0], &p.text);
    if (p.text.n) { /* after an error too: what it was before */
        ds_status written =
            cli_write(&args->common, args->output ? args->output : "-", p.text.text, p.text.n, err);
        if (status == DS_OK) status = written;
    }
    ds_buf_deinit(&p.text);
    return status;
}

static int opt_file(arguments *args) {
    cli_source source;
    ds_model_step *step = NULL;
    ds_error err;
    int exit_code = ds_status_exit_code(cli_open(args->file, &args->common, &source));
    if (exit_code == 0) {
        if (cli_balance(&source, &args->common, &err) != DS_OK ||
            ds_model_step_new(&source.binding, &step, &err) != DS_OK)
            exit_code = cli_fail(source.unit, &err);
        else if (print(args, &source, step, &err) != DS_OK)
            exit_code = cli_fail(step->unit, &err);
    }
    ds_model_step_free(step);
    cli_close(&source);
    return exit_code;
}

int cmd_opt(int argc, char **argv) {
    arguments args = {0};
    cli_parse(&cli_verb_opt, argc, argv, &args);
    int exit_code = opt_file(&args);
    cli_options_deinit(&args.common);
    return exit_code;
}
