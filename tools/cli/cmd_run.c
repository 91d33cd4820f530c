/* distsim run FILE: simulates the scenario of a file and reports. */
#include "sim/report/report.h"
#include "tools/cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OPT_JSON = 0x200, OPT_CSV, OPT_TRACE, OPT_UNFOLD, OPT_COST, OPT_EXPLAIN, OPT_MAX_INSTANCES };

typedef struct arguments {
    cli_options common;
    const char *file;
    const char *json, *csv, *trace; /* NULL: not asked for; "-": stdout */
    const char *explain;
    const char *cost; /* NULL: as the scenario says */
    bool unfold, quiet;
    uint32_t max_instances;
} arguments;

static const struct argp_option options_table[] = {
    {"json", OPT_JSON, "FILE", OPTION_ARG_OPTIONAL,
     "Write the result as a JSON object; without FILE to stdout, in place of the summary", 0},
    {"csv", OPT_CSV, "FILE", 0, "Write one row per task", 0},
    {"trace", OPT_TRACE, "FILE", 0, "Write a trace to be opened with ui.perfetto.dev", 0},
    {"explain-cost", OPT_EXPLAIN, "PATTERN", 0,
     "Say how the costs of some ops were found, in place of the summary. PATTERN is a mnemonic, a "
     "name or a path, with * and ?",
     0},
    {"cost", OPT_COST, "measured|fitted", 0,
     "Measured rows first, or fitted curves alone; default: the scenario's, else measured", 0},
    {"unfold", OPT_UNFOLD, NULL, 0, "Simulate every device by itself, equal ones too", 0},
    {"max-instances", OPT_MAX_INSTANCES, "N", 0,
     "Refuse programs that unroll to more op instances; default: 20000000", 0},
    {"quiet", 'q', NULL, 0, "No summary", 0},
    {0}};

static bool is_json_file(const char *word) {
    size_t n = word ? strlen(word) : 0;
    return n && (strcmp(word, "-") == 0 || (n > 5 && strcmp(word + n - 5, ".json") == 0));
}

/* The file of --json may be left out, so getopt takes only --json=FILE; a following word is the
 * file if it looks like one. */
static const char *json_file(char *arg, struct argp_state *state) {
    if (arg) return arg;
    if (state->next < state->argc && is_json_file(state->argv[state->next]))
        return state->argv[state->next++];
    return "-";
}

static void check(const arguments *args, struct argp_state *state) {
    const char *outputs[] = {args->json, args->csv, args->trace};
    int n_stdout = args->explain != NULL;
    for (int i = 0; i < 3; i++) n_stdout += outputs[i] && strcmp(outputs[i], "-") == 0;
    if (n_stdout > 1) argp_error(state, "only one report can go to stdout");
    if (args->cost && strcmp(args->cost, "measured") != 0 && strcmp(args->cost, "fitted") != 0)
        argp_error(state, "--cost is measured or fitted, not '%s'", args->cost);
}

static uint32_t count(const char *arg, struct argp_state *state) {
    char *end;
    unsigned long long value = strtoull(arg, &end, 10);
    if (*arg < '0' || *arg > '9' || *end || value < 1 || value > UINT32_MAX / 4)
        argp_error(state, "--max-instances takes a number from 1 to %u, not '%s'", UINT32_MAX / 4,
                   arg);
    return (uint32_t)value;
}

static error_t parse_argument(int key, char *arg, struct argp_state *state) {
    arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->common;
        return 0;
    case OPT_JSON:
        args->json = json_file(arg, state);
        return 0;
    case OPT_CSV:
        args->csv = arg;
        return 0;
    case OPT_TRACE:
        args->trace = arg;
        return 0;
    case OPT_EXPLAIN:
        args->explain = arg;
        return 0;
    case OPT_COST:
        args->cost = arg;
        return 0;
    case OPT_UNFOLD:
        args->unfold = true;
        return 0;
    case OPT_MAX_INSTANCES:
        args->max_instances = count(arg, state);
        return 0;
    case 'q':
        args->quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        if (args->file) argp_error(state, "one FILE at a time: '%s' is too many", arg);
        args->file = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_usage(state);
        return 0;
    case ARGP_KEY_END:
        check(args, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&cli_argp, 0, NULL, 0}, {0}};
static const struct argp parser = {
    .options = options_table,
    .parser = parse_argument,
    .args_doc = "FILE",
    .doc =
        "Simulate a scenario: how long a step takes, where the time goes, how much memory each "
        "device needs. Of a model the passes first make the step that `train` and `strategy` ask "
        "for (distsim opt prints it). FILE - is stdin. Exit code 1 if the program is wrong or "
        "does not fit.",
    .children = children};

/* ---- progress: after a second, on a terminal ---- */

typedef struct progress {
    struct timespec start;
    double shown_s;
} progress;

static double seconds_since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) * 1e-9;
}

static void show_progress(void *context, uint32_t done, uint32_t total) {
    progress *p = context;
    double now_s = seconds_since(&p->start);
    if (now_s < 1 || now_s < p->shown_s + 0.2) return;
    p->shown_s = now_s;
    fprintf(stderr, "\r%u of %u tasks, %.0f %%", done, total, 100.0 * done / total);
}

static void end_progress(const progress *p) {
    if (p->shown_s > 0) fputs("\r\033[K", stderr); /* ECMA-48: erase to the end of the line */
}

/* ---- reports ---- */

static ds_status write_report(void (*report)(const ds_result *, ds_buf *), const ds_result *result,
                              const char *path, ds_error *err) {
    if (!path) return DS_OK;
    ds_buf text = {0};
    report(result, &text);
    ds_status status = cli_write(path, text.text, text.n, err);
    ds_buf_deinit(&text);
    return status;
}

/* The mnemonic that the pattern may have meant. */
static const char *near_mnemonic(const ds_plan *plan, const char *pattern) {
    const char *best = NULL;
    for (uint32_t i = 0; i < plan->records.n && !best; i++)
        best = ds_suggest(pattern, (const char *const *)&plan->records.at[i]->label, 1);
    return best;
}

static ds_status explain(const ds_result *result, const char *pattern, ds_error *err) {
    ds_buf text = {0};
    ds_status status = DS_OK;
    if (ds_report_explain(result, pattern, &text)) {
        status = cli_write("-", text.text, text.n, err);
    } else {
        const char *near = near_mnemonic(result->plan, pattern);
        status = ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                              "no op of the program matches '%s'%s%s%s", pattern,
                              near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    ds_buf_deinit(&text);
    return status;
}

static bool stdout_is_taken(const arguments *args) {
    const char *outputs[] = {args->json, args->csv, args->trace};
    for (int i = 0; i < 3; i++)
        if (outputs[i] && strcmp(outputs[i], "-") == 0) return true;
    return args->explain != NULL;
}

static ds_status report(const arguments *args, const ds_result *result, ds_error *err) {
    DS_TRY(write_report(ds_report_json, result, args->json, err));
    DS_TRY(write_report(ds_report_csv, result, args->csv, err));
    DS_TRY(write_report(ds_report_trace, result, args->trace, err));
    if (args->explain) DS_TRY(explain(result, args->explain, err));
    bool summary = !args->quiet && !stdout_is_taken(args);
    if (summary) DS_TRY(write_report(ds_report_summary, result, "-", err));
    if (!summary && !result->fits) /* the summary says so itself */
        fprintf(
            stderr, "distsim: the program does not fit: %lld bytes are missing on %s\n",
            (long long)(result->peak_bytes - result->capacity_bytes),
            ds_topo_device_path(result->plan->topo, result->plan->classes[result->fullest].device));
    return DS_OK;
}

static ds_status simulate(const arguments *args, const ds_binding *binding,
                          const ds_profiles *profiles, ds_result **result, ds_error *err) {
    progress p = {.shown_s = 0};
    clock_gettime(CLOCK_MONOTONIC, &p.start);
    ds_sim_options options = {.unfold = args->unfold, .max_instances = args->max_instances};
    if (isatty(STDERR_FILENO)) {
        options.progress = show_progress;
        options.progress_context = &p;
    }
    DS_TRY(ds_sim_options_read(binding, &options, err));
    if (args->cost)
        options.cost_mode = strcmp(args->cost, "fitted") == 0 ? DS_COST_FITTED : DS_COST_MEASURED;
    ds_status status = ds_simulate(binding, profiles, &options, result, err);
    end_progress(&p);
    return status;
}

static int run(const arguments *args) {
    cli_source source;
    ds_profiles *profiles = NULL;
    ds_result *result = NULL;
    ds_error err;
    int exit_code = ds_status_exit_code(cli_open(args->file, &args->common, &source));
    if (exit_code == 0) {
        ds_status status = ds_profiles_load(args->common.profiles, &profiles, &err);
        if (status == DS_OK) status = simulate(args, &source.binding, profiles, &result, &err);
        if (status == DS_OK) status = report(args, result, &err);
        if (status != DS_OK)
            exit_code = cli_fail(source.unit, &err);
        else if (!result->fits)
            exit_code = ds_status_exit_code(DS_ERR_MEMORY);
    }
    ds_result_free(result);
    ds_profiles_free(profiles);
    cli_close(&source);
    return exit_code;
}

int cmd_run(int argc, char **argv) {
    arguments args = {0};
    argp_parse(&parser, argc, argv, 0, NULL, &args);
    int exit_code = run(&args);
    cli_options_deinit(&args.common);
    return exit_code;
}
