/* distsim replay HASH --from out.csv: one row of a sweep once more, with all that `run` can show.
 *
 * The row says which file it comes from and under which settings; its values are put in their
 * places, and what would be run must have the row's hash. Then it is a `run`, whose result must be
 * the row's: the row may have been put together without being simulated as a whole. */
#include "ir/base/map.h"
#include "search/driver/reject.h"
#include "search/driver/rows.h"
#include "search/driver/sweep.h"
#include "sim/run/run.h"
#include "tools/cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of --help alone: split takes the two options, and `run` reads the others. */
static const cli_option option_rows[] = {
    {CLI_INPUT, 0, "file", 0, "FILE", .help = "The sweep's file, if the row names another place"},
    {CLI_INPUT, 0, "from", 0, "CSV", .help = "The rows that `distsim sweep -o` has written"},
    {0}};

const cli_verb cli_verb_replay = {
    .options = option_rows,
    .args_doc = "HASH --from out.csv [OPTION of distsim run...]",
    .doc = "Run the row of a sweep whose hash is, or begins with, HASH again. Every option of "
           "`distsim run` may follow: --json, --trace, --csv, --memory, ... `distsim help run` "
           "lists the options.\v"
           "The program and the profiles must be the sweep's; else there is an error. The "
           "result is compared with every figure of the row (times, memory and degrees exactly, "
           "rates and shares to 1e-9): if they differ, both are printed, and the exit code is 1. "
           "With --cost, --memory, --network or --degrade the run is another one, and is not "
           "compared."};

typedef struct replay {
    const char *hash, *from, *file;
    ds_arena arena;
    ds_sweep_row row;
    cli_source source; /* holds the space's sweep while the run goes on */
    ds_space *space;
    ds_candidate candidate;
} replay;

/* ---- arguments: those of replay are taken out, the rest goes to `run` ---- */

typedef DS_VEC(char *) words;

static int usage(const char *message) {
    fprintf(stderr, "distsim replay: %s\nTry `distsim replay --help'.\n", message);
    return 2;
}

/* --name VALUE or --name=VALUE at argv[*i]. */
static bool take_option(int argc, char **argv, int *i, const char *name, const char **value) {
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0) return false;
    if (argv[*i][n] == '=') {
        *value = argv[*i] + n + 1;
        return true;
    }
    if (argv[*i][n] || *i + 1 >= argc) return false;
    *value = argv[++*i];
    return true;
}

static void split(replay *r, int argc, char **argv, words *rest) {
    DS_HPUSH(rest, argv[0]);
    for (int i = 1; i < argc; i++) {
        if (take_option(argc, argv, &i, "--from", &r->from)) continue;
        if (take_option(argc, argv, &i, "--file", &r->file)) continue;
        if (i == 1)
            r->hash = argv[i];
        else
            DS_HPUSH(rest, argv[i]);
    }
}

/* The row's settings as --set options. */
static ds_status add_settings(replay *r, words *rest, ds_error *err) {
    ds_settings settings = {0};
    DS_TRY(ds_rows_read_settings(ds_sweep_cell(&r->row, "settings"), &r->arena, &settings, err));
    for (uint32_t i = 0; i < settings.n; i++)
        DS_HPUSH(rest, ds_arena_printf(&r->arena, "--set=%s=%s", settings.at[i].path,
                                       settings.at[i].text));
    return DS_OK;
}

/* ---- the candidate ---- */

/* The dimensions' columns stand between DistIR's ten and step_time_ps. */
static const char *const *values_of(const ds_sweep_row *row, uint32_t n_dims) {
    enum { FIRST_DIM = 10 };
    bool fits = row->n > FIRST_DIM + n_dims &&
                strcmp(row->columns[FIRST_DIM + n_dims], "step_time_ps") == 0;
    return fits ? row->cells + FIRST_DIM : NULL;
}

static ds_status find(replay *r, const cli_options *options, ds_error *err) {
    bool found = false;
    DS_TRY(ds_space_new(&r->source.binding, options->settings.at, options->settings.n, &r->space,
                        err));
    r->candidate = ds_candidate_new(r->space, &r->arena);
    const char *const *values = values_of(&r->row, ds_space_n_dims(r->space));
    if (values) DS_TRY(ds_space_find(r->space, values, &r->candidate, &found, err));
    if (found) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "the sweep of %s has no candidate like this row of %s", r->file, r->from);
}

static bool has_same_sweep(const ds_unit *a, const ds_unit *b) {
    ds_buf x = {0}, y = {0};
    ds_print_sweep_content(a->modules.at[0], &x);
    ds_print_sweep_content(b->modules.at[0], &y);
    bool same = x.n == y.n && (!x.n || memcmp(x.text, y.text, x.n) == 0);
    ds_buf_deinit(&x);
    ds_buf_deinit(&y);
    return same;
}

/* What the row is compared with (--compare OTHER) stays as it is. */
static void set_knobs(void *context, ds_unit *unit) {
    replay *r = context;
    if (has_same_sweep(r->source.unit, unit)) ds_space_set_knobs(r->space, &r->candidate, unit);
}

/* What would be run has the row's hash. */
static ds_status check_hash(replay *r, const cli_options *options, ds_error *err) {
    ds_unit *unit = r->source.unit;
    const ds_profiles *profiles;
    ds_binding binding;
    ds_setting *settings;
    uint32_t n;
    char hash[20];
    DS_TRY(cli_load_profiles(options, &profiles, err));
    uint64_t content = ds_eval_content(unit, profiles);
    ds_scenario scenario = *ds_unit_scenario(unit);
    set_knobs(r, unit);
    ds_space_settings(r->space, &r->candidate, &r->arena, &settings, &n);
    DS_TRY(ds_bind(unit, settings, n, &binding, err));
    snprintf(hash, sizeof hash, "%016" PRIx64, ds_eval_hash(&binding, content));
    ds_scenario_restore(unit, &scenario);
    const char *wanted = ds_sweep_cell(&r->row, "hash");
    if (strcmp(hash, wanted) == 0) return DS_OK;
    return ds_error_set(
        err, DS_ERR_DATA, DS_NOWHERE,
        "%s or the profiles have changed since the sweep: the row's hash is %s, and "
        "now it would be %s",
        r->file, wanted, hash);
}

/* A row that the sweep has not simulated: what it was told by. */
static ds_status say_bound(replay *r, const cli_options *options, ds_error *err) {
    const ds_profiles *profiles;
    ds_eval *eval;
    ds_outcome outcome = {0};
    const char *step = ds_sweep_cell(&r->row, "step_time_ps");
    bool told = step && !*step && strcmp(ds_sweep_cell(&r->row, "status"), "does_not_fit") == 0;
    if (!told) return DS_OK;
    DS_TRY(cli_load_profiles(options, &profiles, err));
    ds_eval_source source = {.path = r->file,
                             .load = cli_load_options(options),
                             .job = options->job,
                             .space = r->space,
                             .profiles = profiles,
                             .content = ds_eval_content(r->source.unit, profiles)};
    ds_status status = ds_eval_new_memory_first(&source, &eval, err);
    if (status == DS_OK) {
        eval->run(eval, &r->candidate, &outcome);
        fprintf(stderr, "the sweep did not simulate it: %s\n",
                outcome.reason.text ? outcome.reason.text : "");
        eval->free(eval);
    }
    ds_outcome_deinit(&outcome);
    return status;
}

/* A sweep takes fitted costs unless the scenario says something else. */
static void change(void *context, ds_unit *unit) {
    set_knobs(context, unit);
    if (ds_scenario_find(unit, "", "cost")) return;
    ds_attr fitted = {.kind = DS_ATTR_WORD, .word = ds_intern(&unit->strings, "fitted")};
    ds_scenario_set(unit, "", "cost", fitted);
}

/* ---- the row against the run ---- */

/* What became of the candidate, and why; a condition may look at any figure. */
static ds_status judge(replay *r, ds_outcome *o, ds_error *err) {
    const char *failed = NULL;
    bool subject;
    DS_TRY(ds_space_judge(r->space, &r->candidate, &o->metrics, &r->arena, &failed, &subject, err));
    if (!failed || o->verdict != DS_VERDICT_OK) return DS_OK;
    o->verdict = DS_VERDICT_EXCLUDED;
    ds_buf_printf(&o->reason, "where %s", failed);
    return DS_OK;
}

/* A row that the sweep has not simulated has no figures, and says why; blank cells of others are
 * wrong ones. */
static bool is_simulated(const ds_sweep_row *row) {
    const char *cell = ds_sweep_cell(row, "status");
    bool any = cell && strcmp(cell, ds_verdict_text(DS_VERDICT_OK)) == 0;
    for (uint32_t i = 0; i < row->n && !any; i++) {
        ds_metric_id id = ds_metric_by_column(row->columns[i]);
        any = id < DS_METRIC_COUNT && ds_metric_at(id)->place != DS_AMONG_SIZES && *row->cells[i] &&
              strcmp(row->cells[i], "-1") != 0;
    }
    return any;
}

static ds_status examine(void *context, const ds_result *result, ds_error *err) {
    replay *r = context;
    ds_outcome outcome = {0};
    ds_buf text = {0};
    if (!is_simulated(&r->row)) return DS_OK;
    ds_outcome_of(result, &outcome);
    ds_status status = judge(r, &outcome, err);
    if (status == DS_OK) ds_rows_compare(&r->row, &outcome, &text);
    if (status == DS_OK && text.n)
        status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the row of %s is wrong: %s", r->from,
                              text.text);
    ds_outcome_deinit(&outcome);
    ds_buf_deinit(&text);
    return status;
}

static int prepare(void *context, cli_options *options) {
    replay *r = context;
    ds_error err;
    ds_setting *settings;
    uint32_t n;
    cli_input(options, r->from);
    int exit_code = ds_status_exit_code(cli_open_sweep(r->file, options, &r->source));
    if (exit_code) return exit_code;
    ds_status status = find(r, options, &err);
    if (status == DS_OK) status = check_hash(r, options, &err);
    if (status == DS_OK) status = say_bound(r, options, &err);
    if (status != DS_OK) return cli_fail(r->source.unit, &err);
    ds_space_settings(r->space, &r->candidate, &r->arena, &settings, &n);
    for (uint32_t i = options->settings.n; i < n; i++) DS_HPUSH(&options->settings, settings[i]);
    options->change = change;
    options->change_context = r;
    options->examine = examine;
    options->examine_context = r;
    return 0;
}

static int run(replay *r, words *rest) {
    ds_error err;
    if (ds_sweep_find_row(r->from, r->hash, &r->arena, &r->row, &err) != DS_OK)
        return cli_fail(NULL, &err);
    const char *source = ds_sweep_cell(&r->row, "source");
    if (!source || !ds_sweep_cell(&r->row, "settings"))
        return usage("the rows do not say which file they come from");
    if (!r->file) r->file = source;
    if (add_settings(r, rest, &err) != DS_OK) return cli_fail(NULL, &err);
    DS_HPUSH(rest, ds_arena_strdup(&r->arena, r->file));
    int n = (int)rest->n;
    DS_HPUSH(rest, NULL);
    return cli_run(n, rest->at, prepare, r);
}

int cmd_replay(int argc, char **argv) {
    replay r = {0};
    words rest = {0};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-?") == 0)
            cli_parse(&cli_verb_replay, 2, (char *[]){argv[0], argv[i], NULL}, &r); /* ends here */
    ds_arena_init(&r.arena);
    split(&r, argc, argv, &rest);
    int exit_code = !r.hash || *r.hash == '-' ? usage("say HASH first, then --from out.csv")
                    : !r.from                 ? usage("say which rows: --from out.csv")
                                              : run(&r, &rest);
    free(rest.at);
    ds_space_free(r.space);
    cli_close(&r.source);
    ds_arena_deinit(&r.arena);
    return exit_code;
}
