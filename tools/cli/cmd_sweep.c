/* distsim sweep FILE -o out.csv: every candidate of the file's sweep, simulated. */
#include "ir/base/output.h"
#include "search/driver/sweep.h"
#include "search/plot/plot.h"
#include "tools/cli/cli.h"
#include "tools/cli/progress.h"
#include "tools/report/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_options common;
    const char *file;
    ds_sweep_options sweep;
    const char *plot, *html;
    ds_plot_axes axes;
    uint64_t every; /* --check; DS_CHECK_NONE: not given */
    bool quiet, mpi, json;
    bool done; /* there are rows to be drawn, and this process has them */
} arguments;

static void read_axes(void *place, char *arg, struct argp_state *state) {
    ds_error err;
    if (ds_plot_read_axes(arg, place, &err) != DS_OK) argp_error(state, "%s", err.message);
}

static void read_shard(void *place, char *arg, struct argp_state *state) {
    ds_sweep_options *sweep = place;
    unsigned i, n;
    char rest;
    if (sscanf(arg, "%u/%u%c", &i, &n, &rest) != 2 || i < 1 || i > n || n > 1000000)
        argp_error(state, "--shard takes I/N with I from 1 to N, as in 2/8, not '%s'", arg);
    sweep->shard = i - 1;
    sweep->n_shards = n;
}

/* Does the method split operations, instead of walking through candidates? */
static bool is_search(const arguments *args) {
    const char *method = args->sweep.method;
    return method && (strcmp(method, "pase") == 0 || strcmp(method, "tap") == 0);
}

static void check(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    const ds_sweep_options *sweep = &args->sweep;
    if (is_search(args) &&
        (sweep->path || sweep->certificate || sweep->n_shards || args->mpi || args->json))
        argp_error(state,
                   "--method %s has no rows; its program is written by `distsim search -o FILE`",
                   sweep->method);
    if (!sweep->path && (sweep->resume || sweep->db || args->plot || args->html))
        argp_error(state, "--resume, --db, --plot and --html need the file of rows: -o FILE");
    if (args->json && sweep->path && strcmp(sweep->path, "-") == 0)
        argp_error(state, "--json and -o -: stdout is for one of them");
    if (args->plot && strcmp(sweep->path, "-") == 0)
        argp_error(state, "--plot reads the rows again: -o FILE, not stdout");
    if (args->html && strcmp(sweep->path, "-") == 0)
        argp_error(state, "--html reads the rows again: -o FILE, not stdout");
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_LINE, 0, "vary", 0, "NAME=VALUES",
     .help = "Vary a param or a knob: tp=1,2,4, zero=0..4 (ends before 4), zero=0..=3, "
             "tp=powers_of_two(1, 8), "
             "pp=divisors(world). With FILE's sweep: in place of its dimension of this name, or "
             "one more; repeatable"},
    {CLI_LINE, 0, "where", 0, "CONDITION",
     .help = "One more condition, as in tp * pp <= 16; repeatable"},
    {CLI_LINE, 0, "minimize", 0, "WHAT",
     .help = "The objective in place of FILE's objectives, as in step_time; repeatable"},
    {CLI_LINE, 0, "maximize", 0, "WHAT", .help = "Likewise"},
    {CLI_OWN, AT(sweep.path), "output", 'o', "FILE",
     .help = "Write the rows there, as CSV; - is stdout. Without it none are kept"},
    {CLI_FLAG, AT(sweep.resume), "resume", 0, NULL,
     .help =
         "Continue the rows in FILE. FILE must be a table of the same sweep; any other file is "
         "refused "
         "and stays as it is. The result is the table of an undisturbed sweep. --overwrite beside "
         "--resume replaces the other outputs"},
    {CLI_FLAG, AT(sweep.spreadsheet), "spreadsheet", 0, NULL,
     .help =
         "Put an apostrophe before texts that begin with =, +, -, @, a tab, a line end or an "
         "apostrophe, since spreadsheets evaluate such texts. Without --spreadsheet the rows are "
         "exact: "
         "open the rows of a stranger's file in no spreadsheet"},
    {CLI_OWN, AT(sweep.db), "db", 0, "FILE",
     .help = "At the end, write the rows into a SQLite file too: table rows"},
    {CLI_TEXT, AT(sweep.method), "method", 0, "METHOD",
     .help =
         "Which candidates, in which order: grid, all of them (the default); random, a sample; "
         "bound, "
         "until the best is proved to be the best; beam, the most promising knob by knob; anneal "
         "and "
         "mcmc, random walks that look for better ones. pase and tap are no walks through "
         "candidates: "
         "they find the best split of every operation over all devices, as `distsim search FILE "
         "--method METHOD --cost-model distsim --simulate` does"},
    {CLI_U64, AT(sweep.seed), "seed", 0, "N", .help = "Of random draws; default: 0"},
    {CLI_U32, AT(sweep.width), "width", 0, "N",
     .help = "Of beam: how many answers to the knobs so far are kept; default: 16", .least = 1,
     .most = 100000},
    {CLI_OWN, AT(sweep.certificate), "certificate", 0, "FILE",
     .help = "Of bound: write the proof of the best candidate there, for `distsim certify`"},
    CLI_WORKERS(AT(sweep.n_workers),
                "Workers; default: one a processor, of several MPI ranks one each. The rows do not "
                "depend on it"),
    {CLI_REAL, AT(sweep.max_seconds), "time", 0, "SECONDS",
     .help = "Stop after SECONDS. Candidates under way have no rows; --resume evaluates these "
             "candidates",
     .says = "takes a number of seconds, not"},
    CLI_EVALS(AT(sweep.max_rows),
              "Stop after N rows, and where the conditions of grid reject 10 million values in a "
              "row; default: none; random, anneal, mcmc: 1000"),
    {CLI_READ, AT(sweep), "shard", 0, "I/N",
     .help = "Only every N-th candidate, from the I-th on (1 to N); `distsim merge` puts shards "
             "together",
     .read = read_shard},
    {CLI_TEXT, AT(plot), "plot", 0, "NAME.svg|NAME.png",
     .help =
         "At the end, draw the rows by gnuplot: NAME-memory, NAME-best, NAME-scaling; the script "
         "NAME.gp stays beside them"},
    {CLI_OUTPUT, AT(html), "html", 0, "FILE",
     .help =
         "At the end, write a page with the rows and their pictures, to be opened in a browser"},
    {CLI_U64, AT(every), "check", 0, "N",
     .help = "Simulate one row in N again, by itself and device by device, and end with exit code "
             "3 and both values if a figure differs; 1: every row, 0: none. Hashes of the rows "
             "decide which. Default: one in 1024, one at least",
     .most = DS_CHECK_NONE - 1},
    {CLI_READ, AT(axes), "plot-axes", 0, "X,Y",
     .help = "Axes of the first picture: two columns of results, or knobs "
             "and params that the sweep varies, as in tp,mfu; of two knobs, as in tp,pp, the best "
             "throughput. Default: peak_memory,throughput",
     .read = read_axes},
    {CLI_FLAG, AT(mpi), "mpi", 0, NULL,
     .help =
         "Share the candidates with the other MPI ranks. Without it too if mpirun or srun started "
         "several and there is no --shard"},
    CLI_JSON(AT(json), "Print the best candidates, all their results and the counts of verdicts as "
                       "one JSON object, in place of the table"),
    CLI_QUIET(AT(quiet), "No table at the end, no progress"),
    {0}};

const cli_verb cli_verb_sweep = {
    .options = option_rows,
    .takes = CLI_PROGRAM | CLI_COSTS | CLI_WRITES,
    .file = AT(file),
    .keeps_words = true,
    .check = check,
    .args_doc = "FILE",
    .doc =
        "Explore the sweep of FILE, or of --vary: each candidate is simulated as `distsim run` "
        "does it, and is "
        "a row with its status; candidates that are illegal, do not fit or fail are rows too. "
        "At the end: the best candidates and, with several objectives, the Pareto front. Costs "
        "are fitted ones unless the scenario says `cost = measured`. `distsim replay HASH --from "
        "out.csv` runs a row again. Exit code 1 if no candidate fits and holds the conditions, but "
        "0 for a shard without candidates."};

/* ---- the end ---- */

static void put_end(ds_sweep_end end, ds_buf *text) {
    if (end == DS_SWEEP_END_ROWS) ds_buf_put(text, " (not all of the space: --evals)");
    if (end == DS_SWEEP_END_TIME) ds_buf_put(text, " (not all of the space: --time)");
    if (end == DS_SWEEP_END_REJECTED)
        ds_buf_printf(text, " (not all of the space: the conditions reject %d values in a row)",
                      DS_SWEEP_MOST_REJECTED);
    ds_buf_putc(text, '\n');
}

static void print_checks(const ds_sweep_result *r) {
    if (r->checked)
        fprintf(stderr,
                "%" PRIu64 " row%s simulated again, %" PRIu64 " device by device: the same\n",
                r->checked, r->checked == 1 ? "" : "s", r->unfolded);
    if (r->beyond)
        fprintf(stderr, "%" PRIu64 " row%s not checked: too large, or the file has changed\n",
                r->beyond, r->beyond == 1 ? "" : "s");
}

static void print_summary(const ds_sweep_result *r, bool hashes, FILE *out) {
    ds_buf text = {0};
    ds_buf_printf(&text, "%" PRIu64 " candidate%s%s", r->rows, r->rows == 1 ? "" : "s",
                  r->rows ? ":" : "");
    bool any = false;
    for (int i = 0; i < DS_VERDICT_COUNT; i++) {
        if (!r->n[i]) continue;
        ds_buf_printf(&text, "%s %" PRIu64 " %s", any ? "," : "", r->n[i],
                      ds_verdict_text((ds_verdict)i));
        any = true;
    }
    put_end(r->end, &text);
    ds_best_print(&r->best, hashes, &text);
    fputs(text.text, out);
    ds_buf_deinit(&text);
    if (r->here)
        fprintf(stderr, "%.1f s, %.1f candidates/s\n", r->seconds, (double)r->here / r->seconds);
    print_checks(r);
}

static ds_status print_json(const cli_source *source, const ds_sweep_result *r, ds_error *err) {
    ds_buf text = {0};
    ds_json json;
    ds_json_init(&json, &text, 2);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "version", DS_VERSION);
    ds_json_key_string(&json, "file", source->unit->modules.at[0]->path);
    ds_diags_put_json(&source->diags, &json);
    ds_sweep_put_json(r, &json);
    ds_json_end_object(&json);
    ds_buf_putc(&text, '\n');
    ds_status status = cli_print(text.text, text.n, err);
    ds_buf_deinit(&text);
    return status;
}

/* ---- the sweep ---- */

static int explore(arguments *args, const cli_source *source, const ds_profiles *profiles) {
    ds_sweep_subject subject = {.binding = &source->binding,
                                .settings = args->common.settings.at,
                                .n_settings = args->common.settings.n,
                                .path = args->file,
                                .load = cli_load_options(&args->common),
                                .job = args->common.job,
                                .profiles = profiles};
    const ds_module *root = source->unit->modules.at[0];
    if (strcmp(args->file, "-") == 0) {
        subject.path = root->path;
        subject.text = root->text;
        subject.text_n = root->text_n;
    }
    cli_progress progress = {0};
    bool first = ds_ranks_self(args->sweep.ranks) == 0;
    if (!args->quiet && first) cli_tell_costs(source, profiles, NULL);
    if (!args->quiet && first) cli_progress_begin(&progress, &args->sweep);
    ds_sweep_result result;
    ds_error err;
    ds_status status = ds_sweep_run(&subject, &args->sweep, &result, &err);
    cli_progress_end(&progress);
    bool to_stdout = strcmp(args->sweep.path, "-") == 0;
    if (!first) { /* its errors are told by the first */
        ds_sweep_result_deinit(&result);
        return 0;
    }
    args->done = status == DS_OK;
    if (status == DS_OK && args->json) status = print_json(source, &result, &err);
    if (status == DS_OK && !args->quiet && !args->json)
        print_summary(&result, strcmp(args->sweep.path, "/dev/null") != 0,
                      to_stdout ? stderr : stdout);
    bool asked = args->every && args->every != DS_CHECK_NONE;
    if (status == DS_OK && asked && !result.checked && !result.beyond)
        fprintf(stderr,
                "no row simulated again: --check looks at simulated rows that this run adds\n");
    if (status == DS_OK && args->sweep.certificate && !result.complete)
        fprintf(stderr, "no certificate: the sweep was stopped before its best was proved\n");
    bool empty = args->sweep.n_shards && !result.rows; /* more shards than candidates */
    int exit_code = result.best.top.n || empty ? 0 : 1;
    if (status != DS_OK) exit_code = cli_fail(source->unit, &err);
    ds_sweep_result_deinit(&result);
    return exit_code;
}

/* Knobs that pictures have as axes are dimensions of the sweep. */
static ds_status check_axes(const arguments *args, const ds_unit *unit, ds_error *err) {
    const ds_plot_axes *axes = &args->axes;
    const char *const knobs[] = {axes->x == DS_METRIC_COUNT ? axes->x_knob : NULL,
                                 axes->y == DS_METRIC_COUNT ? axes->y_knob : NULL};
    const ds_module *root = unit->modules.at[0];
    const ds_sweep *sweep = root->sweeps.n ? &root->sweeps.at[0] : NULL;
    for (int i = 0; i < 2; i++) {
        bool found = !knobs[i];
        for (uint32_t k = 0; sweep && k < sweep->n_entries && !found; k++)
            found = sweep->entries[k].kind == DS_SWEEP_DIM &&
                    ds_plot_is_knob(sweep->entries[k].name, knobs[i]);
        if (!found)
            return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                                "--plot-axes: '%s' is neither a column of results nor varied by "
                                "the sweep",
                                knobs[i]);
    }
    return DS_OK;
}

/* Pictures replace neither the sweep's file nor what else it writes; their rows are read from -o.
 */
static ds_status check_plot(const arguments *args, ds_error *err) {
    const ds_sweep_options *sweep = &args->sweep;
    const char *const paths[] = {args->file, sweep->path, sweep->db, sweep->certificate};
    for (int i = 0; i < 4; i++)
        if (paths[i] && ds_plot_writes(args->plot, paths[i]))
            return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                                "--plot %s writes %s too: say another name", args->plot, paths[i]);
    return ds_output_check(sweep->path, DS_OUTPUT_OVERWRITE | DS_OUTPUT_REGULAR, err);
}

static int load(arguments *args, cli_source *source, const ds_profiles **profiles) {
    ds_error err;
    int exit_code = ds_status_exit_code(cli_open_sweep(args->file, &args->common, source));
    if (!exit_code && args->plot &&
        ds_plot_check(args->plot, args->common.overwrite, &err) != DS_OK)
        exit_code = cli_fail(NULL, &err);
    if (!exit_code && args->plot && check_plot(args, &err) != DS_OK)
        exit_code = cli_fail(NULL, &err);
    if (!exit_code && args->plot && check_axes(args, source->unit, &err) != DS_OK)
        exit_code = cli_fail(NULL, &err);
    if (!exit_code && cli_load_profiles(&args->common, profiles, &err) != DS_OK)
        exit_code = cli_fail(NULL, &err);
    return exit_code;
}

/* Of several ranks the first loads alone, so that what is wrong with the file is told once. */
static int load_and_explore(arguments *args) {
    cli_source source;
    const ds_profiles *profiles = NULL;
    ds_ranks *ranks = args->sweep.ranks;
    bool first = ds_ranks_self(ranks) == 0;
    if (!first && ds_ranks_share(ranks, 0) != 0) return 0;
    int exit_code = load(args, &source, &profiles);
    if (!first || ds_ranks_share(ranks, exit_code) == 0)
        exit_code = ds_ranks_worst(ranks, exit_code);
    if (!exit_code && first) cli_warn_sweep(&source, &args->common);
    if (!exit_code) exit_code = explore(args, &source, profiles);
    cli_close(&source);
    return exit_code;
}

static ds_status write_page(const arguments *args, ds_error *err) {
    ds_buf page = {0};
    ds_status status = report_sweep_page(args->sweep.path, args->file, &page, err);
    if (status == DS_OK) status = cli_write(&args->common, args->html, page.text, page.n, err);
    ds_buf_deinit(&page);
    return status;
}

static void name_pictures(const char *plot) {
    int stem = (int)(strlen(plot) - 4); /* .svg or .png, by ds_plot_check */
    fprintf(stderr, "pictures: %.*s-memory%s, %.*s-best%s, %.*s-scaling%s; script: %.*s.gp\n", stem,
            plot, plot + stem, stem, plot, plot + stem, stem, plot, plot + stem, stem, plot);
}

static int sweep(arguments *args) {
    ds_error err;
    if (!args->sweep.path) args->sweep.path = "/dev/null";
    args->sweep.overwrite = args->common.overwrite;
    if (args->mpi || (ds_ranks_expected() > 1 && !args->sweep.n_shards)) {
        if (strcmp(args->file, "-") == 0) {
            ds_error_set(&err, DS_ERR_USAGE, DS_NOWHERE,
                         "with MPI every rank reads the program: it must be a FILE, not stdin");
            return cli_fail(NULL, &err);
        }
        if (ds_ranks_start(&args->sweep.ranks, &err) != DS_OK) return cli_fail(NULL, &err);
    }
    int exit_code = load_and_explore(args);
    ds_ranks_end(args->sweep.ranks);
    if (args->done && args->plot &&
        ds_plot_draw(args->sweep.path, args->plot, args->axes, args->common.overwrite, &err) !=
            DS_OK)
        return cli_fail(NULL, &err);
    if (args->done && args->html && write_page(args, &err) != DS_OK) return cli_fail(NULL, &err);
    if (args->done && args->plot && !args->quiet) name_pictures(args->plot);
    return exit_code;
}

/* ---- splits of operations ---- */

/* distsim search, with the options that both verbs have. */
static int search(const arguments *args) {
    ds_arena arena;
    DS_VEC(char *) words = {0};
    ds_arena_init(&arena);
    char *fixed[] = {"search",       (char *)args->file, "--method",  (char *)args->sweep.method,
                     "--cost-model", "distsim",          "--simulate"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) DS_PUSH(&arena, &words, fixed[i]);
    for (uint32_t i = 0; i < args->common.settings.n; i++) {
        const ds_setting *s = &args->common.settings.at[i];
        DS_PUSH(&arena, &words, ds_arena_printf(&arena, "--set=%s=%s", s->path, s->text));
    }
    for (uint32_t i = 0; i < args->common.include_dirs.n; i++)
        DS_PUSH(&arena, &words, ds_arena_printf(&arena, "-I%s", args->common.include_dirs.at[i]));
    if (args->common.profiles)
        DS_PUSH(&arena, &words, ds_arena_printf(&arena, "--database=%s", args->common.profiles));
    if (args->common.job)
        DS_PUSH(&arena, &words, ds_arena_printf(&arena, "--job=%s", args->common.job));
    DS_PUSH(&arena, &words, NULL);
    int exit_code = cmd_search((int)words.n - 1, words.at);
    ds_arena_deinit(&arena);
    return exit_code;
}

int cmd_sweep(int argc, char **argv) {
    arguments args = {.axes = DS_PLOT_AXES, .every = DS_CHECK_NONE};
    cli_parse(&cli_verb_sweep, argc, argv, &args);
    if (args.every != DS_CHECK_NONE) args.sweep.check = args.every ? args.every : DS_CHECK_NONE;
    int exit_code = is_search(&args) ? search(&args) : sweep(&args);
    cli_options_deinit(&args.common);
    return exit_code;
}
