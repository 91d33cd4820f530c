/* distsim plan MODEL --on TOPOLOGY: the best plans without writing a sweep. */
#include "ir/base/file.h"
#include "ir/base/output.h"
#include "ir/base/units.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "tools/cli/plan/plan.h"
#include "tools/cli/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_EVALS = 1000, DEFAULT_TOP = 3 };

typedef struct arguments {
    cli_options common;
    cli_plan plan;
    ds_sweep_options sweep;
    const char *write;
    const char *program; /* the sweep's file, or what it is called */
    bool keeps;          /* rows and program */
    uint32_t top;
} arguments;

/* One of a sweep's objectives but prices, which a plan does not know. */
static void read_objective(void *place, char *arg, struct argp_state *state) {
    ds_buf words = {0};
    for (int i = 0; i < DS_METRIC_COUNT; i++) {
        const ds_metric *metric = ds_metric_at((ds_metric_id)i);
        if (ds_metric_is_objective((ds_metric_id)i) && metric->kind != DS_METRIC_IS_PRICE)
            ds_buf_printf(&words, "%s ", metric->sweep);
    }
    *(const char **)place = cli_word("objective", arg, words.text, state);
    ds_buf_deinit(&words);
}

/* One of the words that `optimizer` takes in `train`. */
static void read_optimizer(void *place, char *arg, struct argp_state *state) {
    const ds_knob *knob = ds_scenario_knob("train", "optimizer");
    *(const char **)place = cli_word("optimizer", arg, knob->choices, state);
}

/* "FILE@NAME": the name is what follows the last @ that has no slash behind it. */
static void split_name(arguments *args, const char *arg, const char **file, const char **name) {
    const char *at = strrchr(arg, '@');
    *file = arg;
    if (!at || at == arg || strchr(at, '/')) return;
    *file = ds_arena_strndup(&args->plan.arena, arg, (size_t)(at - arg));
    *name = at + 1;
}

static void read_topology(void *place, char *arg, struct argp_state *state) {
    arguments *args = place;
    (void)state;
    split_name(args, arg, &args->plan.on_path, &args->plan.on_name);
}

static void read_model(void *arguments_, char *arg, struct argp_state *state) {
    arguments *args = arguments_;
    if (args->plan.model_path) argp_error(state, "one MODEL: '%s' is too many", arg);
    split_name(args, arg, &args->plan.model_path, &args->plan.model_func);
}

static void check_usage(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    if (!args->plan.model_path || !args->plan.on_path)
        argp_error(state, "say what and where: MODEL.dir --on TOPOLOGY.dir");
    if (args->sweep.path && strcmp(args->sweep.path, "-") == 0)
        argp_error(state, "rows are kept in a file: -o FILE, not stdout");
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_READ, 0, "on", 0, "FILE[@NAME]",
     .help =
         "The topology: the last one of the file, which the others are part of, or the one named",
     .read = read_topology},
    {CLI_I64, AT(plan.batch), "batch", 'b', "N",
     .help = "Samples a step; default: the model's, or one a device if that is more", .least = 1,
     .most = 1000000000},
    {CLI_READ, AT(plan.objective), "objective", 0, "WHAT",
     .help = "step_time (default), throughput, memory, mfu or bubble", .read = read_objective},
    {CLI_WORD, AT(plan.dtype), "dtype", 0, "TYPE", .help = "bf16 (default), f16 or f32",
     .words = "bf16|f16|f32"},
    {CLI_READ, AT(plan.optimizer), "optimizer", 0, "NAME", .help = "adam (default), sgd, ...",
     .read = read_optimizer},
    CLI_EVALS(AT(sweep.max_rows),
              "Simulate N candidates at most; default: 1000, with --method what "
              "that method has"),
    {CLI_TEXT, AT(sweep.method), "method", 0, "METHOD",
     .help = "How to search, as in `distsim sweep`: bound proves its plan to be the best. Default: "
             "grid, "
             "all "
             "candidates; beam if they are more than --evals (random, if the objective is neither "
             "step_time nor "
             "throughput)"},
    {CLI_U32, AT(top), "top", 0, "N", .help = "Show the N best plans; default: 3, at most 10",
     .least = 1, .most = DS_BEST_KEPT},
    CLI_WORKERS(AT(sweep.n_workers),
                "Workers; default: one a processor. Plans do not depend on it"),
    {CLI_TEXT, AT(sweep.path), "output", 'o', "FILE.csv",
     .help = "Keep the rows of all candidates, as `distsim sweep` does, and in FILE.dir the sweep: "
             "`distsim "
             "replay` runs any of them again"},
    {CLI_OUTPUT, AT(write), "write", 0, "FILE",
     .help = "Write the best plan as a scenario, for `distsim run`; - is stdout"},
    {0}};

static const cli_verb verb = {
    .options = option_rows,
    .takes = CLI_PROGRAM | CLI_WRITES,
    .word = read_model,
    .may_lack_words = true,
    .check = check_usage,
    .args_doc = "MODEL.dir[@FUNCTION] --on TOPOLOGY.dir[@NAME]",
    .doc =
        "Plan the training of a model on a cluster. Candidates have tensor parallelism in powers "
        "of two up to a node, pipelines of stages with equally many layers, data parallelism over "
        "the rest, microbatches of every size, both usual schedules, ZeRO and recomputation; each "
        "is simulated. Shown are the best, why the first of them is, and the options that "
        "Megatron-LM and torchtitan take for it. --set PARAM=VALUE goes to the model or the "
        "topology, whichever has the param. Exit code 1 if nothing fits."};

/* ---- files that import model and topology ---- */

/* Imports are looked for in the file's folder and those above it. */
static bool is_below_here(arguments *args, const char *file) {
    const char *slash = strrchr(file, '/');
    if (strcmp(file, "-") == 0 || !slash) return true;
    char *folder =
        ds_file_real_path(ds_arena_printf(&args->plan.arena, "%.*s/", (int)(slash - file), file));
    char *here = ds_file_real_path(".");
    bool below = folder && here && strncmp(folder, here, strlen(here)) == 0;
    free(folder);
    free(here);
    return below;
}

static const char *absolute(ds_arena *arena, const char *path) {
    char *real = ds_file_real_path(path);
    const char *kept = real ? ds_arena_strdup(arena, real) : path;
    free(real);
    return kept;
}

/* The plan with paths that hold for imports of `file`. */
static cli_plan seen_from(arguments *args, const char *file) {
    cli_plan plan = args->plan;
    if (is_below_here(args, file)) return plan;
    plan.model_path = absolute(&args->plan.arena, plan.model_path);
    plan.on_path = absolute(&args->plan.arena, plan.on_path);
    return plan;
}

/* ---- the sweep ---- */

typedef struct sweep {
    ds_buf text;
    ds_unit *unit;
    ds_binding binding;
    uint64_t n_candidates;
    ds_sweep_result result;
} sweep;

static ds_status open_sweep(arguments *args, sweep *s, ds_error *err) {
    ds_diags diags;
    const cli_plan plan = seen_from(args, args->program);
    cli_plan_put_sweep(&plan, &s->text);
    DS_TRY(ds_load_text(args->program, s->text.text, s->text.n, &plan.load, &s->unit, err));
    DS_TRY(cli_check_imports(&args->common, s->unit, err));
    ds_diags_init(&diags);
    ds_status status = ds_verify(s->unit, &diags);
    for (uint32_t i = 0; i < diags.all.n && status != DS_OK; i++)
        if (diags.all.at[i].severity == DS_SEV_ERROR)
            ds_error_set(err, status, diags.all.at[i].loc, "%s", diags.all.at[i].message);
    ds_diags_deinit(&diags);
    DS_TRY(status);
    return ds_bind(s->unit, NULL, 0, &s->binding, err);
}

static ds_status count_candidates(sweep *s, ds_error *err) {
    ds_space *space;
    ds_arena arena;
    bool found = true;
    DS_TRY(ds_space_new(&s->binding, NULL, 0, &space, err));
    ds_arena_init(&arena);
    ds_candidate candidate = ds_candidate_new(space, &arena);
    ds_status status = DS_OK;
    while (found && status == DS_OK) {
        status = ds_space_next(space, &candidate, &found, err);
        if (status == DS_OK && found) s->n_candidates++;
    }
    ds_space_free(space);
    ds_arena_deinit(&arena);
    return status;
}

/* Beam search is led by bounds, which there are for the step's time. */
static void choose_method(arguments *args, const sweep *s) {
    ds_sweep_options *options = &args->sweep;
    const char *objective = args->plan.objective;
    if (options->method) return;
    if (!options->max_rows) options->max_rows = DEFAULT_EVALS;
    bool timed = strcmp(objective, "step_time") == 0 || strcmp(objective, "throughput") == 0;
    options->method = s->n_candidates <= options->max_rows ? "grid" : timed ? "beam" : "random";
}

static ds_status run_sweep(arguments *args, sweep *s, const ds_profiles *profiles, ds_error *err) {
    DS_TRY(open_sweep(args, s, err));
    DS_TRY(count_candidates(s, err));
    if (args->keeps) DS_TRY(cli_write(&args->common, args->program, s->text.text, s->text.n, err));
    ds_sweep_subject subject = {.binding = &s->binding,
                                .path = args->program,
                                .text = s->text.text,
                                .text_n = s->text.n,
                                .load = args->plan.load,
                                .profiles = profiles};
    choose_method(args, s);
    args->sweep.overwrite = !args->keeps || args->common.overwrite; /* else a file of our own */
    cli_progress progress = {0};
    cli_progress_begin(&progress, &args->sweep);
    ds_status status = ds_sweep_run(&subject, &args->sweep, &s->result, err);
    cli_progress_end(&progress);
    return status;
}

/* ---- what is shown ---- */

static void put_head(const arguments *args, const sweep *s, ds_buf *out) {
    const cli_plan *plan = &args->plan;
    const ds_sweep_result *r = &s->result;
    uint64_t simulated =
        r->n[DS_VERDICT_OK] + r->n[DS_VERDICT_DOES_NOT_FIT] + r->n[DS_VERDICT_EXCLUDED];
    ds_buf_printf(out,
                  "@%s of %s on @%s of %s: %" PRIu32 " x %s, %" PRIu32 " a node; batch %" PRId64
                  ", %s, %s\n",
                  plan->model_func, plan->model_path, plan->on_name, plan->on_path, plan->world,
                  plan->device, plan->node, plan->batch, plan->dtype, plan->optimizer);
    ds_buf_printf(out, "%" PRIu64 " candidates, searched by %s: ", s->n_candidates,
                  args->sweep.method);
    ds_buf_printf(out,
                  "%" PRIu64 " simulated, of which %" PRIu64 " do not fit; %" PRIu64
                  " not legal, %" PRIu64 " failed\n",
                  simulated, r->n[DS_VERDICT_DOES_NOT_FIT], r->n[DS_VERDICT_ILLEGAL],
                  r->n[DS_VERDICT_FAILED]);
}

static void put_plans(const arguments *args, const ds_best *best, ds_buf *out) {
    ds_buf_put(out, "\n   ");
    ds_best_put_line(NULL, false, out);
    ds_buf_put(out, "  plan\n");
    for (uint32_t i = 0; i < best->top.n && i < args->top; i++) {
        ds_buf_printf(out, "%3" PRIu32, i + 1);
        ds_best_put_line(&best->top.at[i], false, out);
        ds_buf_printf(out, "  %s\n", best->top.at[i].values);
    }
}

static ds_status write_plan(arguments *args, const ds_sweep_row *row, ds_error *err) {
    if (!args->write) return DS_OK;
    ds_buf text = {0};
    const cli_plan plan = seen_from(args, args->write);
    cli_plan_put_scenario(&plan, row, &text);
    ds_status status = cli_write(&args->common, args->write, text.text, text.n, err);
    ds_buf_deinit(&text);
    return status;
}

static ds_status show(arguments *args, const sweep *s, const ds_profiles *profiles, ds_error *err) {
    const ds_best *best = &s->result.best;
    ds_buf out = {0};
    char hash[20];
    ds_sweep_row row;
    put_head(args, s, &out);
    ds_status status = DS_OK;
    if (!best->top.n) {
        ds_buf_put(&out, "\nnothing fits: more devices, a smaller batch or a smaller model\n");
    } else {
        put_plans(args, best, &out);
        snprintf(hash, sizeof hash, "%016" PRIx64, best->top.at[0].hash);
        status = ds_sweep_find_row(args->sweep.path, hash, &args->plan.arena, &row, err);
        if (status == DS_OK)
            status = cli_plan_put_why(&args->plan, &row, args->sweep.path, profiles, &out, err);
        if (status == DS_OK) cli_plan_put_launch(&args->plan, &row, &out);
        if (status == DS_OK) status = write_plan(args, &row, err);
    }
    if (status == DS_OK)
        fputs(out.text, args->write && strcmp(args->write, "-") == 0 ? stderr : stdout);
    ds_buf_deinit(&out);
    fprintf(stderr, "%.1f s, %.1f candidates/s\n", s->result.seconds,
            (double)s->result.rows / s->result.seconds);
    return status;
}

static int search_plans(arguments *args) {
    sweep s = {0};
    ds_profiles *profiles;
    ds_error err;
    ds_status status = ds_profiles_load(args->common.profiles, &profiles, &err);
    if (status != DS_OK) return cli_fail(NULL, &err);
    status = run_sweep(args, &s, profiles, &err);
    if (status == DS_OK) status = show(args, &s, profiles, &err);
    int exit_code = status != DS_OK ? cli_fail(s.unit, &err) : s.result.best.top.n ? 0 : 1;
    ds_sweep_result_deinit(&s.result);
    ds_profiles_free(profiles);
    ds_unit_free(s.unit);
    ds_buf_deinit(&s.text);
    return exit_code;
}

/* "rows.csv" → "rows.dir". */
static const char *program_beside(arguments *args) {
    const char *rows = args->sweep.path, *dot = strrchr(rows, '.');
    int n = (int)(dot && strcmp(dot, ".csv") == 0 ? (size_t)(dot - rows) : strlen(rows));
    return ds_arena_printf(&args->plan.arena, "%.*s.dir", n, rows);
}

static void keep_rows(arguments *args) {
    args->program = program_beside(args);
    args->keeps = true;
    cli_output(&args->common, args->sweep.path);
    cli_output(&args->common, args->program);
}

/* Rows that nobody wants to keep lie in a file of their own meanwhile. */
static int search_with_rows(arguments *args) {
    if (args->keeps) return search_plans(args);
    const char *folder = getenv("TMPDIR");
    char *path = ds_arena_printf(&args->plan.arena, "%s/distsim-plan-XXXXXX",
                                 folder && *folder ? folder : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0) {
        fprintf(stderr, "distsim: error: cannot write %s: %s\n", path, strerror(errno));
        return 1;
    }
    close(fd);
    args->sweep.path = path;
    int exit_code = search_plans(args);
    unlink(path);
    return exit_code;
}

int cmd_plan(int argc, char **argv) {
    arguments args = {.plan = {.objective = "step_time", .dtype = "bf16", .optimizer = "adam"},
                      .program = "plan",
                      .top = DEFAULT_TOP};
    ds_arena_init(&args.plan.arena);
    cli_parse(&verb, argc, argv, &args);
    args.plan.load = (ds_load_options){.include_dirs = args.common.include_dirs.at,
                                       .n_include_dirs = args.common.include_dirs.n};
    ds_error err;
    int exit_code = 0;
    ds_status status = DS_OK;
    if (args.sweep.path) { /* its rows are read from there */
        keep_rows(&args);
        status = ds_output_check(args.sweep.path, DS_OUTPUT_OVERWRITE | DS_OUTPUT_REGULAR, &err);
    }
    if (status == DS_OK) status = cli_check_outputs(&args.common, &err);
    if (status != DS_OK) exit_code = cli_fail(NULL, &err);
    if (!exit_code)
        exit_code = cli_plan_look(&args.plan, args.common.settings.at, args.common.settings.n);
    if (!exit_code) exit_code = search_with_rows(&args);
    ds_arena_deinit(&args.plan.arena);
    cli_options_deinit(&args.common);
    return exit_code;
}
