/* distsim plan MODEL --gpu GPU --nodes N: the best plans without writing a sweep. */
#include "ir/base/file.h"
#include "ir/base/output.h"
#include "ir/base/units.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/report/costs.h"
#include "tools/cli/plan/mixed.h"
#include "tools/cli/plan/plan.h"
#include "tools/cli/progress.h"
#include "tools/report/page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_TOP = 3 };

typedef struct arguments {
    cli_options common;
    cli_plan plan;
    cli_search search;
    cli_mixed_arguments mixed;
    const char *write, *html;
    uint32_t top;
    bool lists_models, lists_machines, json;
    bool is_limited; /* --evals or --method: no further search */
} arguments;

/* One of a sweep's objectives but prices, which a plan does not know. */
static void read_objective(void *place, char *arg, struct argp_state *state) {
    ds_buf words = {0};
    for (int i = 0; i < DS_METRIC_COUNT; i++) {
        const ds_metric *metric = ds_metric_at((ds_metric_id)i);
        if (ds_metric_is_objective((ds_metric_id)i) && metric->kind != DS_METRIC_IS_PRICE &&
            metric->place != DS_AMONG_TOKENS)
            ds_buf_printf(&words, "%s ", metric->sweep);
    }
    ds_buf_put(&words, "cost energy expected");
    *(const char **)place = cli_word("objective", arg, words.text, state);
    ds_buf_deinit(&words);
}

/* One of the words that `optimizer` takes in `train`. */
static void read_optimizer(void *place, char *arg, struct argp_state *state) {
    const ds_knob *knob = ds_scenario_knob("train", "optimizer");
    *(const char **)place = cli_word("optimizer", arg, knob->choices, state);
}

static void read_topology(void *place, char *arg, struct argp_state *state) {
    arguments *args = place;
    (void)state;
    cli_plan_split_name(args->plan.arena, arg, &args->plan.box.path, &args->plan.on_name);
}

static void read_framework(void *place, char *arg, struct argp_state *state) {
    *(const cli_framework **)place =
        cli_plan_framework(cli_word("framework", arg, cli_plan_framework_words(), state));
}

static void read_model(void *arguments_, char *arg, struct argp_state *state) {
    arguments *args = arguments_;
    if (args->plan.source) argp_error(state, "one MODEL: '%s' is too many", arg);
    args->plan.source = arg;
}

static void check_usage(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    if (args->lists_models || args->lists_machines) return;
    if (!args->plan.source)
        argp_error(state,
                   "say which MODEL: a config.json, a .dir file, or a name of --list-models");
    if (args->plan.cluster && (args->plan.gpu || args->plan.box.path || args->plan.nodes))
        argp_error(state,
                   "--cluster says machines and how many: leave out --gpu, --on and --nodes");
    if (args->plan.cluster && args->search.sweep.method)
        argp_error(state,
                   "--method is for machines of one width: --cluster has a search of its own");
    if (args->plan.between_gb_per_s > 0 && !args->plan.cluster)
        argp_error(state, "--between is for --cluster: a topology of your own says its links");
    if (args->plan.gpu && args->plan.box.path)
        argp_error(state, "--gpu or --on: a machine by name, or a file of your own");
    if (args->html && strcmp(args->html, "-") == 0)
        argp_error(state, "--html writes a file: stdout is for the plans");
    if (args->search.sweep.path && strcmp(args->search.sweep.path, "-") == 0)
        argp_error(state, "rows are kept in a file: -o FILE, not stdout");
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_TEXT, AT(plan.gpu), "gpu", 0, "NAME",
     .help = "The machine: a GPU by any name of the hardware catalogue (H100), or a machine of "
             "--list-machines (dgx-h100)"},
    {CLI_I64, AT(plan.nodes), "nodes", 'n', "N",
     .help = "How many of the machine; default: 1. With --on the topology's param `nodes`",
     .least = 1, .most = 1000000},
    {CLI_TEXT, AT(plan.cluster), "cluster", 0, "NAME:MACHINES[xGPUS],...",
     .help =
         "In place of --gpu machines of several kinds: A100:4x8,V100:12x8 are 4 machines with 8 "
         "A100 and 12 with 8 V100. Plans then have stages of several widths or unequal replicas"},
    {CLI_REAL, AT(plan.between_gb_per_s), "between", 0, "GB/s",
     .help = "With --cluster: rate of the link from each kind's network to the others, each way; "
             "default: no limit but the machines' own ports"},
    {CLI_READ, 0, "on", 0, "FILE[@NAME]",
     .help = "In place of --gpu a topology of your own: the last one of the file, which the others "
             "are part of, or the one named. Default: the topology of MODEL's scenario",
     .read = read_topology},
    {CLI_READ, AT(plan.framework), "framework", 0, "NAME",
     .help = "The framework whose rules and possibilities count: megatron (default), torchtitan, "
             "deepspeed or fsdp",
     .read = read_framework},
    {CLI_I64, AT(plan.batch), "batch", 'b', "N",
     .help = "Samples a step; default: 4M tokens, or as in the scenario of MODEL", .least = 1,
     .most = 1000000000},
    {CLI_I64, AT(plan.seq), "seq", 0, "N",
     .help = "Tokens a sample; default: as in pre-training (names of the library), 4096 or the "
             "config's positions (config.json), or the file's",
     .least = 1, .most = 1000000000},
    {CLI_READ, AT(plan.objective), "objective", 0, "WHAT",
     .help =
         "step_time (default), throughput, memory, mfu or bubble; on several kinds of machines "
         "step_time, cost ($ a million tokens), energy (J a token at the boards' limits, an upper "
         "bound) or expected (cost with --preempt)",
     .read = read_objective},
    {CLI_FLAG, AT(mixed.front), "front", 0, NULL,
     .help = "On several kinds of machines: the Pareto front of time and $, with searches for both "
             "and for plans between"},
    {CLI_FLAG, AT(mixed.peers), "peers", 0, NULL,
     .help = "On several kinds of machines: also the plans that the methods of AMP, Metis, "
             "FlashFlex and "
             "Sailor make, simulated alike"},
    {CLI_TEXT, AT(mixed.prices), "price", 0, "GPU=USD,...",
     .help = "$ for a GPU and hour; default: published prices where known"},
    {CLI_TEXT, AT(mixed.preempt), "preempt", 0, "GPU=RATE,...",
     .help = "Preemptions and failures of a GPU in an hour; each costs the work since the last "
             "checkpoint, and a restart"},
    {CLI_REAL, AT(mixed.within_s), "within", 0, "SECONDS",
     .help = "On several kinds of machines: the best plan whose step takes at most so long, as for "
             "the cheapest with --objective cost"},
    {CLI_REAL, AT(mixed.checkpoint_s), "checkpoint", 0, "SECONDS",
     .help = "Time of a checkpoint; default: 60"},
    {CLI_REAL, AT(mixed.restart_s), "restart", 0, "SECONDS",
     .help = "Time of a restart; default: 300"},
    {CLI_WORD, AT(plan.dtype), "dtype", 0, "TYPE",
     .help = "bf16, f16 or f32; default: bf16, or f16 on devices without bf16",
     .words = "bf16|f16|f32"},
    {CLI_READ, AT(plan.optimizer), "optimizer", 0, "NAME", .help = "adam (default), sgd, ...",
     .read = read_optimizer},
    CLI_EVALS(AT(search.sweep.max_rows),
              "Simulate N candidates at most; default: none with bound, else 1000; "
              "with --method as the method has; with --front for each search"),
    {CLI_TEXT, AT(search.sweep.method), "method", 0, "METHOD",
     .help =
         "How to search, as in `distsim sweep`. Default: bound, which proves its plan to be the "
         "best; for the objectives mfu and bubble, and where bound does not follow a key of --set, "
         "grid, or random if --evals are fewer than the candidates"},
    {CLI_U32, AT(top), "top", 0, "N", .help = "Show the N best plans; default: 3, at most 10",
     .least = 1, .most = DS_BEST_KEPT},
    CLI_WORKERS(AT(search.sweep.n_workers),
                "Workers; default: one a processor. Plans do not depend on it"),
    {CLI_TEXT, AT(search.sweep.path), "output", 'o', "FILE.csv",
     .help = "Keep the rows of all candidates, as `distsim sweep` does, and in FILE.dir the sweep: "
             "`distsim "
             "replay` runs any of them again"},
    {CLI_OUTPUT, AT(write), "write", 0, "FILE",
     .help = "Write the best plan as a scenario, for `distsim run`; - is stdout"},
    {CLI_OUTPUT, AT(html), "html", 0, "FILE",
     .help =
         "Write a page with the plans, their candidates and the launch command, to be opened in "
         "a browser"},
    CLI_JSON(AT(json),
             "Print the plans with all results, the cause that binds, the launch text and "
             "the scenario as one JSON object"),
    {CLI_FLAG, AT(lists_models), "list-models", 0, NULL, .help = "Print the names of models"},
    {CLI_FLAG, AT(lists_machines), "list-machines", 0, NULL, .help = "Print the machines"},
    {0}};

const cli_verb cli_verb_plan = {
    .options = option_rows,
    .takes = CLI_IMPORTS | CLI_SETS | CLI_DATABASE | CLI_COSTS | CLI_WRITES,
    .word = read_model,
    .may_lack_words = true,
    .check = check_usage,
    .args_doc = "MODEL",
    .doc =
        "Plan the training of a model on a cluster. MODEL is a config.json of Hugging Face, a .dir "
        "file (MODEL.dir@FUNCTION names a function), or a name of --list-models. Candidates are "
        "the "
        "degrees of parallelism, microbatches, schedules, ZeRO stages and recomputation that the "
        "framework has, priced by its rules; each is simulated, or excluded by a bound. Shown are "
        "the best, why the first of them is, and how to launch it. --set PARAM=VALUE goes to the "
        "model or the topology, whichever has the param. Exit code 1 if nothing fits."};

/* ---- what is shown ---- */

/* 70553706496 → "70.6 B" */
static void put_parameters(int64_t n, ds_buf *out) {
    if (n < 0) return;
    double b = (double)n;
    const char *unit = b >= 1e9 ? "billion" : b >= 1e6 ? "million" : "thousand";
    ds_buf_printf(out, ", %.4g %s parameters", b / (b >= 1e9 ? 1e9 : b >= 1e6 ? 1e6 : 1e3), unit);
}

static void put_head(const cli_plan *plan, ds_buf *out) {
    uint32_t n = plan->world / plan->node;
    ds_buf_printf(out, "  model        %s: @%s of %s", plan->source, plan->model_func,
                  plan->model.path);
    put_parameters(plan->parameters, out);
    ds_buf_printf(
        out, "\n  machine      @%s of %s: %" PRIu32 " x %s, %" PRIu32 " node%s of %" PRIu32 "\n",
        plan->on_name, plan->box.path, plan->world, plan->device, n, n == 1 ? "" : "s", plan->node);
    ds_buf_printf(out, "  batch        %" PRId64 " samples, %s\n", plan->batch, plan->batch_why);
    if (plan->seq)
        ds_buf_printf(out, "  sequence     %" PRId64 " tokens, %s\n", plan->seq, plan->seq_why);
    ds_buf_printf(out, "  framework    %s (--framework), %s, %s\n", plan->framework->title,
                  plan->dtype, plan->optimizer);
}

static void put_counts(const cli_search *s, ds_buf *out) {
    const ds_sweep_result *r = &s->result;
    uint64_t simulated =
        r->n[DS_VERDICT_OK] + r->n[DS_VERDICT_DOES_NOT_FIT] + r->n[DS_VERDICT_EXCLUDED];
    ds_buf_printf(out, "%" PRIu64 " candidates, searched by %s", s->n_candidates, s->sweep.method);
    if (s->unbounded) ds_buf_printf(out, " (bound cannot: %s)", s->unbounded);
    ds_buf_put(out, ": ");
    ds_buf_printf(out,
                  "%" PRIu64 " simulated, of which %" PRIu64 " do not fit; %" PRIu64
                  " not legal, %" PRIu64 " failed\n",
                  simulated, r->n[DS_VERDICT_DOES_NOT_FIT], r->n[DS_VERDICT_ILLEGAL],
                  r->n[DS_VERDICT_FAILED]);
}

static void put_plans(const arguments *args, const ds_best *best, ds_buf *out) {
    ds_buf_put(out, "\n   ");
    ds_best_put_line(NULL, NULL, out);
    ds_buf_put(out, "  plan\n");
    for (uint32_t i = 0; i < best->top.n && i < args->top; i++) {
        ds_buf_printf(out, "%3" PRIu32, i + 1);
        ds_best_put_line(&best->top.at[i], NULL, out);
        ds_buf_printf(out, "  %s\n", best->top.at[i].values);
    }
}

static ds_status write_plan(arguments *args, const ds_sweep_row *row, ds_error *err) {
    if (!args->write) return DS_OK;
    ds_buf text = {0};
    cli_plan plan = args->plan;
    cli_plan_see_from(&plan, args->write);
    cli_plan_put_scenario(&plan, row, &text);
    ds_status status = cli_plan_fix(&plan, args->write, &text, err);
    if (status == DS_OK) status = cli_write(&args->common, args->write, text.text, text.n, err);
    ds_buf_deinit(&text);
    return status;
}

/* The report of the best plan as JSON; `writes`: --write is obeyed too. */
static ds_status put_json(arguments *args, const cli_search *s, bool writes, ds_buf *out,
                          ds_error *err) {
    cli_plan *plan = &args->plan;
    ds_buf why = {0}, launch = {0}, scenario = {0};
    ds_status status = DS_OK;
    char hash[20];
    ds_sweep_row row;
    ds_buf_put(&why, "");
    ds_buf_put(&launch, "");
    ds_buf_put(&scenario, "");
    if (s->result.best.top.n) {
        snprintf(hash, sizeof hash, "%016" PRIx64, s->result.best.top.at[0].hash);
        status = ds_sweep_find_row(s->sweep.path, hash, plan->arena, &row, err);
        if (status == DS_OK)
            status = cli_plan_put_why(plan, &row, s->sweep.path, s->profiles, &why, err);
        if (status == DS_OK) cli_plan_put_launch(plan, &row, &launch);
        if (status == DS_OK) cli_plan_put_scenario(plan, &row, &scenario);
        if (status == DS_OK) status = cli_plan_fix(plan, "plan", &scenario, err);
        if (status == DS_OK && writes) status = write_plan(args, &row, err);
    }
    cli_plan_texts texts = {why.text, launch.text, scenario.text};
    if (status == DS_OK) cli_plan_put_json(plan, s, &texts, out);
    ds_buf_deinit(&why);
    ds_buf_deinit(&launch);
    ds_buf_deinit(&scenario);
    return status;
}

static ds_status put_best(arguments *args, const cli_search *s, ds_buf *out, ds_error *err) {
    const ds_best *best = &s->result.best;
    cli_plan *plan = &args->plan;
    char hash[20];
    ds_sweep_row row;
    put_plans(args, best, out);
    snprintf(hash, sizeof hash, "%016" PRIx64, best->top.at[0].hash);
    DS_TRY(ds_sweep_find_row(s->sweep.path, hash, plan->arena, &row, err));
    DS_TRY(cli_plan_put_why(plan, &row, s->sweep.path, s->profiles, out, err));
    cli_plan_put_launch(plan, &row, out);
    return write_plan(args, &row, err);
}

/* Every candidate failed: the first reason. */
static ds_status put_failure(const arguments *args, const char *path, ds_buf *out, ds_error *err) {
    ds_sweep_row row;
    DS_TRY(ds_sweep_first_row(&path, 1, args->plan.arena, &row, err));
    const char *reason = row.cells ? ds_sweep_cell(&row, "reason") : NULL;
    ds_buf_printf(out, "\nno candidate could be simulated; the first: %s\n", reason ? reason : "");
    return DS_OK;
}

static void put_fixed(const cli_plan *plan, ds_buf *out) {
    ds_buf_put(out, "\nno candidate: the model and the devices allow none with");
    for (uint32_t i = 0; i < plan->n_fixed; i++)
        ds_buf_printf(out, "%s --set %s=%s", i ? "," : "", plan->fixed[i].path,
                      plan->fixed[i].text);
    ds_buf_putc(out, '\n');
}

/* Of a machine by name; a topology of one's own says itself how it grows. */
static ds_status put_nothing_fits(arguments *args, ds_buf *out, ds_error *err) {
    int64_t nodes = 0;
    const ds_sweep_result *r = &args->search.result;
    if (r->rows && r->n[DS_VERDICT_FAILED] == r->rows)
        return put_failure(args, args->search.sweep.path, out, err);
    if (!r->rows && args->plan.n_fixed) {
        put_fixed(&args->plan, out);
        return DS_OK;
    }
    ds_buf_put(out, "\nnothing fits: more devices, a smaller batch or a smaller model\n");
    if (!args->plan.nodes || args->is_limited) return DS_OK;
    DS_TRY(cli_plan_nodes(&args->plan, &args->search, &nodes, err));
    if (nodes)
        ds_buf_printf(out, "--nodes %" PRId64 " would do: with full recomputation something fits\n",
                      nodes);
    return DS_OK;
}

static ds_status write_page(arguments *args, const cli_search *s, ds_error *err) {
    if (!args->html) return DS_OK;
    ds_buf json = {0}, page = {0};
    ds_status status = put_json(args, s, false, &json, err);
    if (status == DS_OK) status = report_plan_page(json.text, s->sweep.path, s->keeps, &page, err);
    if (status == DS_OK) status = cli_write(&args->common, args->html, page.text, page.n, err);
    ds_buf_deinit(&json);
    ds_buf_deinit(&page);
    return status;
}

static ds_status show(arguments *args, cli_search *s, ds_error *err) {
    ds_buf out = {0};
    ds_status status = DS_OK;
    if (args->json) {
        status = put_json(args, s, true, &out, err);
    } else {
        put_head(&args->plan, &out);
        ds_report_scenario_costs(&s->binding, s->profiles, &out);
        put_counts(s, &out);
        status =
            s->result.best.top.n ? put_best(args, s, &out, err) : put_nothing_fits(args, &out, err);
    }
    if (status == DS_OK) status = write_page(args, s, err);
    if (status == DS_OK)
        fputs(out.text, args->write && strcmp(args->write, "-") == 0 ? stderr : stdout);
    ds_buf_deinit(&out);
    fprintf(stderr, "%.1f s, %.1f candidates/s\n", s->seconds, (double)s->rows / s->seconds);
    return status;
}

/* "rows.csv" → "rows.dir". */
static const char *program_beside(arguments *args) {
    const char *rows = args->search.sweep.path, *dot = strrchr(rows, '.');
    int n = (int)(dot && strcmp(dot, ".csv") == 0 ? (size_t)(dot - rows) : strlen(rows));
    return ds_arena_printf(args->plan.arena, "%.*s.dir", n, rows);
}

static void keep_rows(arguments *args) {
    args->search.program = program_beside(args);
    args->search.keeps = true;
    cli_output(&args->common, args->search.sweep.path);
    cli_output(&args->common, args->search.program);
}

static int search_plans(arguments *args) {
    cli_search *s = &args->search;
    ds_error err;
    ds_status status = cli_plan_search(&args->plan, s, &err);
    bool fits = status == DS_OK && s->result.best.top.n;
    if (status == DS_OK) status = show(args, s, &err);
    int exit_code = status != DS_OK ? cli_fail(s->unit, &err) : fits ? 0 : 1;
    cli_plan_search_deinit(s);
    return exit_code;
}

static int no_machine(void) {
    fputs("distsim: error: say on which machine: --gpu H100 --nodes 16 (names: distsim plan "
          "--list-machines), or --on FILE\n",
          stderr);
    return 2;
}

static int plan_kinds(arguments *args, const ds_profiles *profiles) {
    if (args->search.sweep.path) {
        fprintf(stderr, "distsim: error: -o is for plans of one kind of devices: a search over "
                        "several kinds has no table of candidates\n");
        return 2;
    }
    args->mixed.html = args->html;
    args->mixed.json = args->json;
    args->mixed.write = args->write;
    args->mixed.top = args->top;
    args->mixed.n_workers = args->search.sweep.n_workers;
    args->mixed.max_runs = args->search.sweep.max_rows;
    return cli_plan_mixed(&args->plan, &args->mixed, &args->common, profiles);
}

/* An option that a plan on one kind of machines would not obey; NULL: there is none. */
static const char *option_of_kinds(const arguments *args) {
    const cli_mixed_arguments *mixed = &args->mixed;
    if (mixed->front) return "--front";
    if (mixed->peers) return "--peers";
    if (mixed->within_s > 0) return "--within";
    if (mixed->prices) return "--price";
    if (mixed->preempt) return "--preempt";
    if (mixed->checkpoint_s > 0) return "--checkpoint";
    if (mixed->restart_s > 0) return "--restart";
    static const char *const goals[] = {"cost", "energy", "expected"};
    for (size_t i = 0; i < sizeof goals / sizeof *goals; i++)
        if (strcmp(args->plan.objective, goals[i]) == 0)
            return "--objective cost, energy or expected";
    return NULL;
}

static int refuse_option_of_kinds(const char *option) {
    fprintf(stderr,
            "distsim: error: %s: only the search over several kinds of machines knows it; "
            "--cluster takes one kind too, as in --cluster H100:2\n",
            option);
    return 2;
}

static int plan_model(arguments *args) {
    cli_plan *plan = &args->plan;
    const ds_profiles *profiles = NULL;
    ds_error err;
    ds_setting *settings = args->common.settings.at;
    uint32_t n_settings = args->common.settings.n;
    for (uint32_t i = 0; i < n_settings && plan->seq; i++)
        if (strcmp(settings[i].path, "seq") == 0) {
            fputs("distsim: error: --seq and --set seq say the same: leave one out\n", stderr);
            return 2;
        }
    int exit_code = cli_plan_find_model(plan, settings, n_settings);
    if (exit_code) return exit_code;
    if (!plan->gpu && !plan->box.path && !plan->cluster) return no_machine();
    if (cli_load_profiles(&args->common, &profiles, &err) != DS_OK) return cli_fail(NULL, &err);
    if (plan->gpu) exit_code = cli_plan_find_machine(plan, profiles);
    if (plan->cluster) exit_code = cli_plan_find_cluster(plan, profiles);
    if (!exit_code) exit_code = cli_plan_look(plan, settings, n_settings);
    args->search.profiles = profiles;
    if (!exit_code) cli_plan_choose_dtype(plan, profiles);
    /* --method asks for a sweep over one width for all */
    if (!exit_code && (plan->cluster || (plan->n_types > 1 && !args->search.method)))
        return plan_kinds(args, profiles);
    const char *option = exit_code ? NULL : option_of_kinds(args);
    if (option) return refuse_option_of_kinds(option);
    if (!exit_code) exit_code = search_plans(args);
    return exit_code;
}

static int print_lists(const arguments *args) {
    ds_buf text = {0};
    ds_error err;
    if (args->lists_models) cli_library_put_models(&text);
    if (args->lists_machines) cli_library_put_machines(&text);
    ds_status status = cli_print(text.text, text.n, &err);
    ds_buf_deinit(&text);
    return status == DS_OK ? 0 : cli_fail(NULL, &err);
}

int cmd_plan(int argc, char **argv) {
    ds_arena arena;
    arguments args = {.plan = {.arena = &arena,
                               .objective = "step_time",
                               .optimizer = "adam",
                               .framework = cli_plan_framework(NULL)},
                      .search = {.program = "plan"},
                      .top = DEFAULT_TOP};
    ds_arena_init(&arena);
    cli_parse(&cli_verb_plan, argc, argv, &args);
    args.search.common = &args.common;
    args.search.method = args.search.sweep.method;
    args.is_limited = args.search.method || args.search.sweep.max_rows;
    args.plan.load = (ds_load_options){.include_dirs = args.common.include_dirs.at,
                                       .n_include_dirs = args.common.include_dirs.n};
    ds_error err;
    int exit_code = 0;
    ds_status status = DS_OK;
    bool lists = args.lists_models || args.lists_machines;
    if (args.search.sweep.path) { /* its rows are read from there */
        keep_rows(&args);
        status =
            ds_output_check(args.search.sweep.path, DS_OUTPUT_OVERWRITE | DS_OUTPUT_REGULAR, &err);
    }
    if (status == DS_OK) status = cli_check_outputs(&args.common, &err);
    if (status != DS_OK) exit_code = cli_fail(NULL, &err);
    if (!exit_code) exit_code = lists ? print_lists(&args) : plan_model(&args);
    ds_buf_deinit(&args.plan.keys);
    ds_arena_deinit(&arena);
    cli_options_deinit(&args.common);
    return exit_code;
}
