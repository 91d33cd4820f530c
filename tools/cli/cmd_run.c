/* distsim run FILE: simulates the scenario of a file and reports; --compare: of two. */
#include "ir/base/stop.h"
#include "ir/strategy/jitter.h"
#include "ir/strategy/scenario.h"
#include "ir/strategy/tokens.h"
#include "sim/report/analysis.h"
#include "sim/run/balance.h"
#include "tools/cli/run/changes.h"
#include "tools/report/page.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A program of so many tasks simulates in about a second, so a dozen changes of it in a quarter of
 * a minute: more than that only if asked for. */
#define ADVICE_MAX_TASKS 100000u

enum { MOST_COLUMNS = 16 }; /* of a table of several values */

typedef struct arguments {
    cli_options common;
    const char *file;
    const char *json, *csv, *trace, *html; /* NULL: not asked for; "-": stdout */
    const char *explain;
    const char *cost;   /* NULL: as the scenario says */
    const char *memory; /* the same */
    bool compares;      /* with `other`, or the same file if that is NULL */
    const char *other;
    cli_options other_only; /* its settings beyond the common ones */
    const char *network;    /* the same */
    const char *ladder;     /* NULL: not asked for */
    cli_texts what_ifs;
    bool sensitivity;
    bool unfold, quiet;
    bool advice, no_advice, memory_chart;
    uint32_t max_instances;
    bool has_runs, has_seed;
    uint32_t runs, seed, threads; /* of jitter; threads 0: one for each processor */
    const char *runs_csv;
} arguments;

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

static void read_json(void *place, char *file, struct argp_state *state) {
    arguments *args = place;
    args->json = cli_output(&args->common, json_file(file, state));
}

static void read_ladder(void *place, char *terms, struct argp_state *state) {
    if (terms && !*terms) argp_error(state, "--ladder= names no term");
    ((arguments *)place)->ladder = terms ? terms : CLI_LADDER;
}

static int n_changes(const arguments *args) {
    return (args->ladder != NULL) + (args->what_ifs.n > 0) + args->sensitivity;
}

/* Tables of several runs have no trace, no jitter, and one kind of change. */
static void check_changes(const arguments *args, struct argp_state *state) {
    if (!n_changes(args)) return;
    if (n_changes(args) + args->compares > 1)
        argp_error(state, "--ladder, --what-if, --sensitivity and comparisons are tables of their "
                          "own: ask for one of them");
    if (args->html || args->csv || args->trace || args->explain || args->memory_chart ||
        args->runs || args->has_seed || args->threads || args->runs_csv || args->advice)
        argp_error(state, "a table of changes has --json alone, of steps without jitter");
    if (args->file && strcmp(args->file, "-") == 0)
        argp_error(state, "a table of changes reads the program several times, and stdin once");
}

static void check_usage(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    const char *outputs[] = {args->json, args->csv, args->trace, args->runs_csv, args->html};
    int n_stdout = (args->explain != NULL) + args->memory_chart;
    check_changes(args, state);
    for (int i = 0; i < 5; i++) n_stdout += outputs[i] && strcmp(outputs[i], "-") == 0;
    if (n_stdout > 1) argp_error(state, "only one report can go to stdout");
    if (args->compares && (args->csv || args->trace || args->explain || args->memory_chart))
        argp_error(state, "a comparison is a table, --json or --html, without --csv, --trace, "
                          "--explain-cost and --memory-chart");
    if (args->compares && (args->runs || args->has_seed || args->threads || args->runs_csv))
        argp_error(state, "a comparison is of steps without jitter: --runs, --seed, --threads and "
                          "--runs-csv are for one program");
    if (args->has_runs && !args->runs && args->runs_csv)
        argp_error(state, "--runs 0 makes no rows for --runs-csv");
    if (args->compares && args->file && strcmp(args->file, "-") == 0 &&
        (!args->other || strcmp(args->other, "-") == 0))
        argp_error(state, "a comparison cannot read both programs from stdin");
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_READ, 0, "json", 0, "FILE",
     .help = "Write the result as a JSON object; without FILE to stdout, in place of the summary",
     .may_lack = true, .read = read_json},
    {CLI_OUTPUT, AT(csv), "csv", 0, "FILE", .help = "Write one row per task"},
    {CLI_OUTPUT, AT(trace), "trace", 0, "FILE",
     .help = "Write a trace to be opened with ui.perfetto.dev"},
    {CLI_OUTPUT, AT(html), "html", 0, "FILE",
     .help = "Write a page with pictures to be opened in a browser, also of a comparison"},
    {CLI_TEXT, AT(explain), "explain-cost", 0, "PATTERN",
     .help = "Say how the costs of some ops were found, in place of the summary. PATTERN is a "
             "mnemonic, a "
             "name or a path, with * and ?"},
    {CLI_INPUT, AT(other), "compare", 0, "OTHER",
     .help = "Simulate OTHER too and print the differences from FILE in time and memory by cause, "
             "in place "
             "of the summary; also as --json",
     .given = AT(compares)},
    {CLI_SETTING, AT(other_only), "compare-set", 0, "PARAM=VALUE",
     .help = "--set for OTHER alone; without --compare, OTHER is FILE; repeatable. Several values, "
             "as in zero=0..4 (ends before 4), zero=0..=3 or tp=1,2,8, are simulated each and "
             "printed side by side",
     .given = AT(compares)},
    {CLI_TEXTS, AT(what_ifs), "what-if", 0, "CHANGE",
     .help = "Print the step time on another machine: \"compute * 1.5\", \"memory * 2\" "
             "(bandwidth), \"link nic * 2\", \"latency * 0.5\", \"host * 2\"; repeatable: one "
             "after the other"},
    {CLI_READ, 0, "ladder", 0, "TERMS",
     .help = "Print the step time without terms of the cost model, left out one after the "
             "other; default: " CLI_LADDER,
     .may_lack = true, .read = read_ladder},
    {CLI_FLAG, AT(sensitivity), "sensitivity", 0, NULL,
     .help = "Print by how much 1 % more of each resource changes the step: by simulation, and by "
             "the critical path"},
    CLI_DEGRADE("A change to try: as after the word in the file, such as \"gpu[3] compute = 0.8\"; "
                "repeatable"),
    {CLI_TEXTS, AT(other_only.degrades), "compare-degrade", 0, "WHAT",
     .help = "--degrade for OTHER alone; without --compare, OTHER is FILE; repeatable",
     .given = AT(compares)},
    {CLI_U32, AT(runs), "runs", 0, "N",
     .help = "How often to run with the scenario's jitter; 0: not at all; default: as the scenario "
             "says",
     .most = DS_JITTER_MAX_RUNS, .given = AT(has_runs)},
    {CLI_U32, AT(seed), "seed", 0, "S",
     .help = "Seed of the jitter; default: the scenario's, else 0", .most = UINT32_MAX / 4,
     .given = AT(has_seed)},
    {CLI_U32, AT(threads), "threads", 0, "N",
     .help =
         "Threads for runs with jitter; the result is the same; default: one for each processor",
     .least = 1, .most = UINT32_MAX / 4},
    {CLI_OUTPUT, AT(runs_csv), "runs-csv", 0, "FILE", .help = "Write one row per run with jitter"},
    {CLI_WORD, AT(cost), "cost", 0, "measured|fitted",
     .help = "Measured rows first, or fitted curves alone; default: the scenario's, else measured",
     .says = "is measured or fitted, not"},
    {CLI_WORD, AT(memory), "memory", 0, "exact|rounded|allocator",
     .help = "The memory that counts: live bytes, the same in blocks of 512 bytes, or the blocks "
             "that a caching allocator reserves with workspace, CUDA context and communicators; "
             "default: the "
             "scenario's, "
             "else exact",
     .says = "is exact, rounded or allocator, not"},
    {CLI_FLAG, AT(memory_chart), "memory-chart", 0, NULL,
     .help = "Draw the memory of the fullest device over the step, in place of the summary"},
    {CLI_FLAG, AT(advice), "advice", 0, NULL,
     .help = "If a model does not fit, simulate changes of its strategy and say which would; by "
             "default up "
             "to 100000 tasks. If a pipeline's stages have unequal work, simulate another cut"},
    {CLI_FLAG, AT(no_advice), "no-advice", 0, NULL, .help = "Never"},
    {CLI_FLAG, AT(unfold), "unfold", 0, NULL,
     .help = "Simulate every device by itself, equal ones too, and every turn of loops"},
    {CLI_WORD, AT(network), "network", 0, "fluid|stepwise",
     .help = "Transfers as fluid phases, or message by message (slower; every device by itself); "
             "default: "
             "the scenario's, else fluid",
     .says = "is fluid or stepwise, not"},
    {CLI_U32, AT(max_instances), "max-instances", 0, "N",
     .help = "Refuse programs that unroll to more op instances; default: 20000000", .least = 1,
     .most = UINT32_MAX / 4},
    CLI_QUIET(AT(quiet), "No summary"),
    {0}};

const cli_verb cli_verb_run = {
    .options = option_rows,
    .takes = CLI_PROGRAM | CLI_COSTS | CLI_WRITES,
    .file = AT(file),
    .check = check_usage,
    .args_doc = "FILE",
    .doc =
        "Simulate a scenario: how long a step takes, where the time goes, how much memory each "
        "device needs. Of a model the passes first make the step that `train` and `strategy` ask "
        "for (distsim opt prints it). With --compare or --compare-set two are simulated, and the "
        "causes of their differences are printed. FILE - is stdin. Exit code 1 if the program is "
        "wrong or "
        "does not fit."};

/* ---- progress: after a second, on a terminal ---- */

typedef struct progress {
    int64_t start_ns;
    double shown_s;
} progress;

static void show_progress(void *context, uint32_t done, uint32_t total) {
    progress *p = context;
    double now_s = (double)(ds_clock_ns() - p->start_ns) * 1e-9;
    if (now_s < 1 || now_s < p->shown_s + 0.2) return;
    p->shown_s = now_s;
    fprintf(stderr, "\r%u of %u tasks, %.0f %%", done, total, 100.0 * done / total);
}

static void end_progress(const progress *p) {
    if (p->shown_s > 0) fputs("\r\033[K", stderr); /* ECMA-48: erase to the end of the line */
}

/* ---- reports ---- */

static ds_status write_report(void (*report)(const ds_result *, ds_buf *), const ds_result *result,
                              const cli_options *options, const char *path, ds_error *err) {
    if (!path) return DS_OK;
    ds_buf text = {0};
    report(result, &text);
    ds_status status = cli_write(options, path, text.text, text.n, err);
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
        status = cli_print(text.text, text.n, err);
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
    const char *outputs[] = {args->json, args->csv, args->trace, args->runs_csv, args->html};
    for (int i = 0; i < 5; i++)
        if (outputs[i] && strcmp(outputs[i], "-") == 0) return true;
    return args->explain || args->memory_chart;
}

static ds_status write_page(const arguments *args, const ds_result *result, ds_error *err) {
    if (!args->html) return DS_OK;
    ds_buf page = {0};
    report_run_page(result, args->file, &page);
    ds_status status = cli_write(&args->common, args->html, page.text, page.n, err);
    ds_buf_deinit(&page);
    return status;
}

static ds_status report(const arguments *args, const ds_result *result, ds_error *err) {
    DS_TRY(write_report(ds_report_json, result, &args->common, args->json, err));
    DS_TRY(write_report(ds_report_csv, result, &args->common, args->csv, err));
    DS_TRY(write_report(ds_report_trace, result, &args->common, args->trace, err));
    DS_TRY(write_report(ds_report_runs_csv, result, &args->common, args->runs_csv, err));
    DS_TRY(write_page(args, result, err));
    if (args->explain) DS_TRY(explain(result, args->explain, err));
    if (args->memory_chart)
        DS_TRY(write_report(ds_report_memory_chart, result, &args->common, "-", err));
    bool summary = !args->quiet && !stdout_is_taken(args);
    if (summary) DS_TRY(write_report(ds_report_summary, result, &args->common, "-", err));
    if (!summary && !result->metrics.fits) /* the summary says so itself */
        fprintf(
            stderr, "distsim: the program does not fit: %lld bytes are missing on %s\n",
            (long long)(result->metrics.peak_bytes - result->metrics.capacity_bytes),
            ds_topo_device_path(result->plan->topo, result->plan->classes[result->fullest].device));
    return DS_OK;
}

/* The scenario's jitter, and what the command line says instead; 0 runs: none. */
static ds_status read_jitter(const arguments *args, const ds_binding *binding, ds_jitter *jitter,
                             ds_error *err) {
    DS_TRY(ds_jitter_read(binding, jitter, err));
    if (!jitter->is_given) jitter->runs = 0;
    if (!jitter->is_given && (args->runs || args->has_seed || args->threads || args->runs_csv))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "--runs, --seed, --threads and --runs-csv are for scenarios with a "
                            "`jitter` block: nothing is random in this one");
    if ((args->compares || n_changes(args)) && jitter->runs && !args->has_runs)
        return ds_error_set(err, DS_ERR_UNSUPPORTED,
                            ds_scenario_find(binding->unit, "", "jitter")->loc,
                            "a comparison is of steps without jitter, and this scenario has some: "
                            "--runs 0 leaves it out");
    if (args->has_runs && jitter->is_given) jitter->runs = args->runs;
    if (args->has_seed) jitter->seed = args->seed;
    return DS_OK;
}

/* The scenario's options, and what the command line says instead. */
static ds_status read_options(const arguments *args, const ds_binding *binding,
                              ds_sim_options *options, ds_error *err) {
    *options = (ds_sim_options){.unfold = args->unfold, .max_instances = args->max_instances};
    DS_TRY(ds_sim_options_read(binding, options, err));
    if (args->cost)
        options->cost_mode = strcmp(args->cost, "fitted") == 0 ? DS_COST_FITTED : DS_COST_MEASURED;
    if (args->memory) ds_mem_mode_parse(args->memory, &options->mem_mode);
    if (args->network) options->stepwise = strcmp(args->network, "stepwise") == 0;
    return DS_OK;
}

/* Does a report look at tasks one by one, or compare them in time? The JSON of a decode, whose tasks
 * are a million, says how often a segment runs. */
static bool shows_tasks(const arguments *args, const ds_tokens *tokens) {
    return ((args->json || args->html) && !tokens->is_given) || args->csv || args->trace ||
           args->explain || args->memory_chart || args->compares || args->sensitivity ||
           args->advice || args->common.examine;
}

static ds_status simulate_program(const arguments *args, const ds_binding *binding,
                                  const ds_profiles *profiles, ds_result **result, ds_error *err) {
    progress p = {.start_ns = ds_clock_ns()};
    ds_sim_options options;
    ds_tokens tokens;
    ds_jitter jitter;
    DS_TRY(read_options(args, binding, &options, err));
    DS_TRY(read_jitter(args, binding, &jitter, err));
    options.unfold = options.unfold || jitter.runs;
    DS_TRY(ds_tokens_read(binding, &tokens, err));
    options.repeat_turns = shows_tasks(args, &tokens) ? 0 : DS_REPEAT_TURNS;
    if (isatty(STDERR_FILENO)) {
        options.progress = show_progress;
        options.progress_context = &p;
    }
    ds_status status = ds_simulate(binding, profiles, &options, result, err);
    end_progress(&p);
    if (status == DS_OK && jitter.runs)
        status = ds_jitter_runs(*result, &jitter, args->threads, err);
    return status;
}

/* Loads and simulates; prints what is wrong with it. Returns the exit code. */
static int simulate_file(const arguments *args, const char *file, cli_options *options,
                         const ds_profiles *profiles, cli_side *out) {
    ds_error err;
    int exit_code = ds_status_exit_code(cli_open(file, options, &out->source));
    if (exit_code) return exit_code;
    ds_status status = simulate_program(args, &out->source.binding, profiles, &out->result, &err);
    return status == DS_OK ? 0 : cli_fail(out->source.unit, &err);
}

/* Options that change times or memory make it another run than the one that is examined. */
static ds_status examine(const arguments *args, const ds_result *result, ds_error *err) {
    const cli_options *common = &args->common;
    bool changed = args->cost || args->memory || args->network || common->degrades.n;
    if (!common->examine || changed) return DS_OK;
    return common->examine(common->examine_context, result, err);
}

static int fits_code(const ds_result *result) {
    return result->metrics.fits ? 0 : ds_status_exit_code(DS_ERR_MEMORY);
}

static void advise(const arguments *args, const ds_profiles *profiles, cli_side *s) {
    ds_sim_options options;
    int64_t n_tasks = 0;
    for (uint32_t c = 0; c < s->result->plan->n_classes; c++)
        n_tasks += s->result->accounts[c].n_tasks;
    if (args->no_advice || (!args->advice && n_tasks > ADVICE_MAX_TASKS)) return;
    if (read_options(args, &s->source.binding, &options, NULL) != DS_OK) return;
    if (args->advice) ds_balance_advise(s->result, profiles, &options);
    ds_advise(s->result, profiles, &options, args->common.settings.at, args->common.settings.n);
}

static int run_one(arguments *args, const ds_profiles *profiles) {
    cli_side s = {.result = NULL};
    ds_error err;
    int exit_code = simulate_file(args, args->file, &args->common, profiles, &s);
    if (!exit_code) advise(args, profiles, &s);
    if (!exit_code && report(args, s.result, &err) != DS_OK)
        exit_code = cli_fail(s.source.unit, &err);
    if (!exit_code && examine(args, s.result, &err) != DS_OK) exit_code = cli_fail(NULL, &err);
    if (!exit_code) exit_code = fits_code(s.result);
    cli_close_side(&s);
    return exit_code;
}

/* ---- comparison ---- */

/* The runs of a comparison. */
typedef struct compared {
    const ds_result *results[MOST_COLUMNS];
    const char *names[MOST_COLUMNS];
    uint32_t n;
} compared;

static ds_status write_compared(const arguments *args, const compared *runs, const ds_buf *json,
                                ds_error *err) {
    ds_buf page = {0};
    report_compare_page(runs->results, runs->names, runs->n, json->text, &page);
    ds_status status = cli_write(&args->common, args->html, page.text, page.n, err);
    ds_buf_deinit(&page);
    return status;
}

/* Prints the table and writes the JSON object of --json, and both as a page (of `runs`); frees both. */
static ds_status put_reports(const arguments *args, const compared *runs, ds_buf *table,
                             ds_buf *json, ds_error *err) {
    ds_status status =
        args->json ? cli_write(&args->common, args->json, json->text, json->n, err) : DS_OK;
    if (status == DS_OK && args->html) status = write_compared(args, runs, json, err);
    if (status == DS_OK && !args->quiet && !stdout_is_taken(args))
        status = cli_print(table->text, table->n, err);
    ds_buf_deinit(table);
    ds_buf_deinit(json);
    return status;
}

/* "zero=3": how the other program differs, by the command line; else its file. */
static const char *other_name(const arguments *args, ds_buf *scratch) {
    const cli_options *only = &args->other_only;
    if (args->other) ds_buf_put(scratch, args->other);
    for (uint32_t i = 0; i < only->settings.n; i++) {
        const char *dot = strrchr(only->settings.at[i].path, '.');
        ds_buf_printf(scratch, "%s%s=%s", scratch->n ? ", " : "",
                      dot ? dot + 1 : only->settings.at[i].path, only->settings.at[i].text);
    }
    for (uint32_t i = 0; i < only->degrades.n; i++)
        ds_buf_printf(scratch, "%sdegrade %s", scratch->n ? ", " : "", only->degrades.at[i]);
    return scratch->n ? scratch->text : args->file;
}

static ds_status report_comparison(const arguments *args, const cli_side *a, const cli_side *b,
                                   ds_error *err) {
    ds_comparison comparison;
    ds_buf table = {0}, json = {0};
    ds_compare(a->result, b->result, &comparison);
    ds_report_comparison(&comparison, &table);
    ds_report_comparison_json(&comparison, &json);
    ds_comparison_deinit(&comparison);
    ds_buf changes = {0};
    compared runs = {.results = {a->result, b->result}, .n = 2};
    runs.names[0] = args->file;
    runs.names[1] = other_name(args, &changes);
    ds_status status = put_reports(args, &runs, &table, &json, err);
    ds_buf_deinit(&changes);
    return status;
}

/* The common options, then those of the other program alone; free its settings and degrades. */
static cli_options other_options(const arguments *args) {
    cli_options both = args->common;
    both.settings.at = NULL;
    both.settings.n = both.settings.cap = 0;
    for (uint32_t i = 0; i < args->common.settings.n; i++)
        DS_HPUSH(&both.settings, args->common.settings.at[i]);
    for (uint32_t i = 0; i < args->other_only.settings.n; i++)
        DS_HPUSH(&both.settings, args->other_only.settings.at[i]);
    both.degrades.at = NULL;
    both.degrades.n = both.degrades.cap = 0;
    for (uint32_t i = 0; i < args->common.degrades.n; i++)
        DS_HPUSH(&both.degrades, args->common.degrades.at[i]);
    for (uint32_t i = 0; i < args->other_only.degrades.n; i++)
        DS_HPUSH(&both.degrades, args->other_only.degrades.at[i]);
    return both;
}

static int run_two(arguments *args, const ds_profiles *profiles) {
    cli_side a = {.result = NULL}, b = {.result = NULL};
    cli_options options = other_options(args);
    ds_error err;
    int exit_code = simulate_file(args, args->file, &args->common, profiles, &a);
    if (!exit_code)
        exit_code =
            simulate_file(args, args->other ? args->other : args->file, &options, profiles, &b);
    if (!exit_code && report_comparison(args, &a, &b, &err) != DS_OK)
        exit_code = cli_fail(NULL, &err);
    if (!exit_code && examine(args, a.result, &err) != DS_OK) exit_code = cli_fail(NULL, &err);
    if (!exit_code) exit_code = fits_code(a.result);
    if (!exit_code) exit_code = fits_code(b.result);
    cli_close_side(&a);
    cli_close_side(&b);
    free(options.settings.at);
    free(options.degrades.at);
    return exit_code;
}

/* ---- several values of a param, side by side ---- */

typedef struct values {
    ds_arena arena;
    const char *param;
    DS_VEC(const char *) each;  /* "0", "1" */
    DS_VEC(const char *) names; /* "zero=0" */
} values;

static void add_value(values *v, const char *text) {
    const char *dot = strrchr(v->param, '.'), *name = dot ? dot + 1 : v->param;
    DS_PUSH(&v->arena, &v->each, text);
    DS_PUSH(&v->arena, &v->names, ds_arena_printf(&v->arena, "%s=%s", name, text));
}

/* "0..4" and "0..=3" are 0, 1, 2 and 3; "1,2,8" is a list; a text without both is one value. No value
 * for an empty range, MOST_COLUMNS + 1 for a longer one. */
static void read_values(const ds_setting *setting, values *v) {
    char *end;
    const char *text = setting->text;
    v->param = setting->path;
    long long first = strtoll(text, &end, 10), last = first;
    if (end != text && strncmp(end, "..", 2) == 0) {
        bool closed = end[2] == '=';
        last = strtoll(end + 2 + closed, &end, 10);
        if (!closed && last > LLONG_MIN) last--;
        for (long long i = first; !*end && i <= last && v->each.n <= MOST_COLUMNS; i++) {
            add_value(v, ds_arena_printf(&v->arena, "%lld", i));
            if (i == last) break;
        }
        if (!*end) return;
    }
    if (*text == '[') { /* a list is one value */
        add_value(v, text);
        return;
    }
    for (; *text; text += strcspn(text, ","), text += *text == ',') {
        size_t n = strcspn(text, ",");
        add_value(v, ds_arena_strndup(&v->arena, text, n));
    }
}

static ds_status report_columns(const arguments *args, const compared *runs, ds_error *err) {
    ds_buf table = {0}, json = {0};
    ds_report_columns(runs->results, runs->names, runs->n, &table);
    ds_report_columns_json(runs->results, runs->names, runs->n, &json);
    return put_reports(args, runs, &table, &json, err);
}

/* A value that is refused has no column; its error is on stderr. */
static int run_columns(const arguments *args, values *v, const ds_profiles *profiles) {
    compared runs = {.n = 0};
    cli_side sides[MOST_COLUMNS] = {{.result = NULL}};
    int exit_code = 0;
    for (uint32_t i = 0; i < v->each.n; i++) {
        cli_options options = other_options(args);
        options.settings.at[options.settings.n - 1].text = v->each.at[i];
        int refused = simulate_file(args, args->file, &options, profiles, &sides[i]);
        free(options.settings.at);
        free(options.degrades.at);
        if (refused) fprintf(stderr, "distsim: %s is left out\n", v->names.at[i]);
        if (refused) exit_code = refused;
        if (refused) continue;
        runs.results[runs.n] = sides[i].result;
        runs.names[runs.n++] = v->names.at[i];
    }
    ds_error err;
    if (runs.n) exit_code = 0;
    if (runs.n && report_columns(args, &runs, &err) != DS_OK) exit_code = cli_fail(NULL, &err);
    for (uint32_t i = 0; i < v->each.n; i++) cli_close_side(&sides[i]);
    return exit_code;
}

/* One --compare-set with several values is a table of columns; else two programs are compared. */
static int compare(arguments *args, const ds_profiles *profiles) {
    const cli_options *other = &args->other_only;
    values v = {0};
    const ds_setting *empty = NULL;
    bool several = false;
    ds_arena_init(&v.arena);
    for (uint32_t i = 0; i < other->settings.n; i++) {
        v.each.n = v.names.n = 0;
        const ds_setting *s = &other->settings.at[i];
        read_values(s, &v);
        several = several || v.each.n > 1 || (v.each.n && strcmp(v.each.at[0], s->text) != 0);
        if (!v.each.n && *s->text) empty = s;
    }
    int exit_code;
    if (empty) {
        fprintf(stderr, "distsim run: --compare-set %s=%s: the range has no value\n", empty->path,
                empty->text);
        exit_code = 2;
    } else if (several && (args->other || other->settings.n > 1 || v.each.n > MOST_COLUMNS)) {
        fprintf(stderr,
                "distsim run: --compare-set with several values stands alone and has at most %d "
                "values: say everything else as --set\n",
                MOST_COLUMNS);
        exit_code = 2;
    } else {
        exit_code = several ? run_columns(args, &v, profiles) : run_two(args, profiles);
    }
    ds_arena_deinit(&v.arena);
    return exit_code;
}

/* ---- changes of the machine ---- */

typedef struct changed_run {
    const arguments *args;
    const ds_profiles *profiles;
} changed_run;

static int simulate_changed(void *context, cli_options *options, cli_side *out) {
    const changed_run *c = context;
    return simulate_file(c->args, c->args->file, options, c->profiles, out);
}

static int run_changes(const arguments *args, const ds_profiles *profiles) {
    changed_run context = {args, profiles};
    cli_changes changes = {.options = &args->common,
                           .ladder = args->ladder,
                           .what_ifs = args->what_ifs,
                           .sensitivity = args->sensitivity,
                           .simulate = simulate_changed,
                           .context = &context};
    ds_buf table = {0}, json = {0};
    ds_error err;
    int exit_code = cli_run_changes(&changes, &table, &json);
    if (!table.n) { /* an error was told */
        ds_buf_deinit(&table);
        ds_buf_deinit(&json);
        return exit_code;
    }
    return put_reports(args, NULL, &table, &json, &err) == DS_OK ? exit_code : cli_fail(NULL, &err);
}

static int run(arguments *args) {
    const ds_profiles *profiles;
    ds_error err;
    if (cli_load_profiles(&args->common, &profiles, &err) != DS_OK) return cli_fail(NULL, &err);
    if (n_changes(args)) return run_changes(args, profiles);
    return args->compares ? compare(args, profiles) : run_one(args, profiles);
}

int cli_run(int argc, char **argv, int (*prepare)(void *context, cli_options *options),
            void *context) {
    arguments args = {0};
    cli_parse(&cli_verb_run, argc, argv, &args);
    int exit_code = prepare ? prepare(context, &args.common) : 0;
    if (!exit_code) exit_code = run(&args);
    cli_options_deinit(&args.common);
    cli_options_deinit(&args.other_only);
    free(args.what_ifs.at);
    return exit_code;
}

int cmd_run(int argc, char **argv) {
    return cli_run(argc, argv, NULL, NULL);
}
