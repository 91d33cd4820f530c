/* distsim validate DATA.csv …: what was measured, and what is predicted for it.
 *
 * Each row of a table of training runs becomes a scenario and is simulated (tools/validate).
 * Printed are the errors of each set and split; --out has every row, with the reason of each that
 * has no prediction. Nothing is fitted here: constants come from the cost database. */
#include "ir/base/json.h"
#include "ir/base/units.h"
#include "ir/strategy/terms.h"
#include "tools/cli/validate.h"
#include "tools/validate/errors.h"
#include "tools/validate/pairs.h"
#include "tools/validate/stack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Each word between commas is a term. */
static void check_terms(const char *list, struct argp_state *state) {
    for (size_t n; list && *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        size_t begin = strspn(list, " "), length = begin < n ? n - begin : 0;
        uint32_t i = 0;
        while (i < DS_N_TERMS && (strlen(ds_term_name(i)) != length ||
                                  strncmp(list + begin, ds_term_name(i), length) != 0))
            i++;
        if (i == DS_N_TERMS)
            argp_error(state, "--without: '%.*s' is no term (ir/strategy/KNOBS.generated.md)",
                       (int)length, list + begin);
    }
}

static void check_usage(void *arguments_, struct argp_state *state) {
    const validate_arguments *args = arguments_;
    if (args->json && args->ledger) argp_error(state, "--json and --ledger exclude each other");
    if (args->memory && (args->json || args->ledger || args->out))
        argp_error(state, "--memory prints a table; it has no --json, --ledger or --out");
    if (args->pairs && (args->json || args->ledger || args->memory))
        argp_error(state, "--pairs prints a table; it has no --json, --ledger or --memory");
    check_terms(args->without, state);
}

#define AT(member) offsetof(validate_arguments, member)
#define FROM_1(at, name, letter, value, text)                                                      \
    {                                                                                              \
        CLI_U32, at, name, letter, value, .help = text, .least = 1, .most = UINT32_MAX,            \
                                          .says = "takes a number from 1 on, not"                  \
    }
static const cli_option option_rows[] = {
    {CLI_OUTPUT, AT(out), "out", 'o', "FILE",
     .help = "Write a CSV with a line a row: prediction, error, reason of refusal"},
    CLI_JSON(AT(json), "Print the errors as one JSON array, an object a set and split"),
    {CLI_FLAG, AT(ledger), "ledger", 0, NULL, .help = "Print the errors as a Markdown table"},
    {CLI_FLAG, AT(pairs), "pairs", 0, NULL,
     .help = "Print the gain of one setting in throughput, measured and predicted, for each two "
             "rows that differ in that setting alone"},
    {CLI_TEXT, AT(split), "split", 0, "NAME", .help = "Only rows of this split (calib, val, …)"},
    FROM_1(AT(every), "every", 0, "N",
           "Only every N-th row of each set and split, from the first on"),
    FROM_1(AT(scenario), "scenario", 0, "LINE",
           "Print the scenario of the row in this line of the file, and do not simulate"),
    FROM_1(AT(workers), "jobs", 'j', "N",
           "Rows predicted at a time; default: the number of processors"),
    {CLI_FLAG, AT(zero_shot), "zero-shot", 0, NULL,
     .help =
         "Predict all rows with the generic profile of their GPU, as if their testbed had never "
         "been measured; the facts of the machine and the framework are kept"},
    {CLI_TEXT, AT(without), "without", 0, "TERM,…",
     .help = "Switch terms of the cost model off (the scenario's `without`), to see their effect"},
    {CLI_FLAG, AT(memory), "memory", 0, NULL,
     .help = "Predict memory instead, of the rows that have a figure for it, and print each"},
    {CLI_FLAG, AT(all_microbatches), "all-microbatches", 0, NULL,
     .help = "With --memory: simulate all microbatches of a step; by default as many as are in "
             "flight at "
             "once, which hold as much"},
    {0}};

const cli_verb cli_verb_validate = {
    .options = option_rows,
    .takes = CLI_IMPORTS | CLI_DATABASE | CLI_WRITES,
    .files = AT(files),
    .check = check_usage,
    .args_doc = "DATA.csv...",
    .doc =
        "Predict published measurements and print the errors: the time of a training step for "
        "every "
        "row of tables as in tests/data/e2e, by set and split."
        "\vA row is refused, with the reason, if the row and its source leave out a fact that the "
        "simulation needs. Constants come from the cost database; nothing is fitted. "
        "Models are imported from the folder scenarios (-I)."};

/* ---- rows ---- */

typedef DS_VEC(val_prediction) predictions;
typedef DS_VEC(ds_csv) tables;

static void read_rows(const validate_arguments *args, const char *file, const ds_csv *csv,
                      predictions *all) {
    for (uint32_t i = 0; i < csv->rows.n; i++) {
        val_prediction p = {.file = file};
        char room[64];
        val_row_read(csv, i, &p.row);
        if (args->split && strcmp(p.row.split, args->split) != 0) continue;
        snprintf(p.set, sizeof p.set, "%s", val_set_of(&p.row, file, room, sizeof room));
        DS_HPUSH(all, p);
    }
}

static bool same_part(const val_prediction *a, const val_prediction *b) {
    return !strcmp(a->set, b->set) && !strcmp(a->row.split, b->row.split);
}

/* Keeps every N-th row of each set and split. O(n²). */
static void thin_out(uint32_t every, predictions *all) {
    uint32_t kept = 0;
    uint32_t *before = ds_xcalloc(all->n + 1, sizeof *before); /* of the same set and split */
    for (uint32_t i = 0; i < all->n; i++)
        for (uint32_t k = i; k-- > 0 && !before[i];)
            if (same_part(&all->at[i], &all->at[k])) before[i] = before[k] + 1;
    for (uint32_t i = 0; i < all->n; i++)
        if (before[i] % every == 0) all->at[kept++] = all->at[i];
    all->n = kept;
    free(before);
}

static ds_status read_file(const validate_arguments *args, const char *file, tables *csvs,
                           predictions *all, ds_error *err) {
    ds_csv csv;
    DS_TRY(ds_csv_read(file, &csv, err));
    DS_HPUSH(csvs, csv);
    read_rows(args, file, &csv, all);
    return DS_OK;
}

/* ---- what is printed ---- */

static void put_percent(double value, ds_buf *out) {
    if (value < 0)
        ds_buf_put(out, "-");
    else
        ds_buf_printf(out, "%.2f %%", value);
}

/* The name of a set and a split, which the table's cells may be. */
static void put_names(const val_errors *e, ds_buf *out) {
    for (int i = 0; i < 2; i++) {
        ds_buf_put(out, i ? " | " : "| ");
        for (const char *at = i ? e->split : e->set; *at; at++) {
            if (*at == '|') ds_buf_putc(out, '\\');
            ds_buf_putc(out, (unsigned char)*at < ' ' ? ' ' : *at);
        }
    }
}

static void put_ledger(const val_errors *errors, uint32_t n, ds_buf *out) {
    ds_buf_put(out,
               "| set | split | n | refused | mean | median | p90 | max | bias | Spearman | "
               "constant TFLOP/s | regret within 2 % | worst regret | in interval | do not fit | "
               "half width | ran out | said to fit |\n"
               "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < n; i++) {
        const val_errors *e = &errors[i];
        put_names(e, out);
        ds_buf_printf(out, " | %u | %u | ", e->n, e->refused);
        const double shown[] = {e->mape, e->median, e->p90, e->max};
        for (int k = 0; k < 4; k++) {
            put_percent(shown[k], out);
            ds_buf_put(out, " | ");
        }
        if (e->n)
            ds_buf_printf(out, "%+.2f %% | ", e->bias);
        else
            ds_buf_put(out, "- | ");
        if (e->spearman > -2)
            ds_buf_printf(out, "%.3f | ", e->spearman);
        else
            ds_buf_put(out, "- | ");
        put_percent(e->baseline_mape, out);
        if (e->n) ds_buf_put(out, e->baseline_from_calib ? " (calib)" : " (all rows)");
        if (e->groups)
            ds_buf_printf(out, " | %.0f %% of %u | %.1f %% | ", e->regret_within_2pct, e->groups,
                          e->worst_regret);
        else
            ds_buf_put(out, " | - | - | ");
        if (e->covered >= 0)
            ds_buf_printf(out, "%.0f %% | %u | %.1f %% | ", e->covered, e->unfit, e->half_width);
        else
            ds_buf_printf(out, "- | %u | - | ", e->unfit);
        ds_buf_printf(out, "%u | %u |\n", e->ran_out, e->let_run);
    }
}

/* One line a set and split: the generic profile's errors, and the calibrated profile's beside
 * them. The errors of both come from the same rows in the same order. */
static void put_zero_shot(const predictions *all, const predictions *calibrated, ds_buf *out) {
    val_errors *zero, *own;
    uint32_t n = val_errors_of(all->at, all->n, &zero);
    val_errors_of(calibrated->at, calibrated->n, &own);
    ds_buf_put(out, "| set | split | n | refused | mean | median | p90 | max | bias | Spearman | "
                    "in interval | half width | calibrated mean | calibrated Spearman |\n"
                    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < n; i++) {
        const val_errors *e = &zero[i], *c = &own[i];
        const double shown[] = {e->mape, e->median, e->p90, e->max};
        put_names(e, out);
        ds_buf_printf(out, " | %u | %u | ", e->n, e->refused);
        for (int k = 0; k < 4; k++) {
            put_percent(shown[k], out);
            ds_buf_put(out, " | ");
        }
        ds_buf_printf(out, e->n ? "%+.2f %% | " : "- | ", e->bias);
        ds_buf_printf(out, e->spearman > -2 ? "%.3f | " : "- | ", e->spearman);
        ds_buf_printf(out, e->covered >= 0 ? "%.0f %% | " : "- | ", e->covered);
        ds_buf_printf(out, e->half_width >= 0 ? "%.1f %% | " : "- | ", e->half_width);
        put_percent(c->mape, out);
        ds_buf_printf(out, c->spearman > -2 ? " | %.3f |\n" : " | - |\n", c->spearman);
    }
    free(own);
    free(zero);
}

/* The same of the rows of each profile, whatever table they are in: what `profile.csv` states. The
 * title begins with a capital letter, since tests/validate/ledger.sh compares lines of sets. */
static void put_profiles(const predictions *all, ds_buf *out) {
    predictions of = {0};
    for (uint32_t i = 0; i < all->n; i++) {
        const val_testbed *testbed = val_testbed_of(&all->at[i].row);
        bool timed = !all->at[i].refused && !all->at[i].ran_out;
        if (!testbed || !testbed->profile || !timed) continue;
        val_prediction p = all->at[i];
        snprintf(p.set, sizeof p.set, "%s", testbed->profile);
        DS_HPUSH(&of, p);
    }
    val_errors *errors;
    uint32_t n = val_errors_of(of.at, of.n, &errors);
    ds_buf_put(out, "\n| Profile | split | steps | mean | bias | in interval |\n"
                    "|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < n; i++) {
        ds_buf_printf(out, "| %s | %s | %u | %.2f %% | %+.2f %% | ", errors[i].set, errors[i].split,
                      errors[i].n, errors[i].mape, errors[i].bias);
        if (errors[i].covered >= 0)
            ds_buf_printf(out, "%.0f %% |\n", errors[i].covered);
        else
            ds_buf_put(out, "- |\n");
    }
    free(errors);
    free(of.at);
}

static void json_number(ds_json *json, const char *key, double value, bool known) {
    ds_json_key(json, key);
    if (known)
        ds_json_double(json, value);
    else
        ds_json_null(json);
}

static void put_json(const val_errors *errors, uint32_t n, ds_buf *out) {
    ds_json json;
    ds_json_init(&json, out, 2);
    ds_json_begin_array(&json);
    for (uint32_t i = 0; i < n; i++) {
        const val_errors *e = &errors[i];
        bool some = e->n > 0;
        ds_json_begin_object(&json);
        ds_json_key_string(&json, "set", e->set);
        ds_json_key_string(&json, "split", e->split);
        ds_json_key_int(&json, "n", e->n);
        ds_json_key_int(&json, "refused", e->refused);
        json_number(&json, "mape", e->mape, some);
        json_number(&json, "median", e->median, some);
        json_number(&json, "p90", e->p90, some);
        json_number(&json, "max", e->max, some);
        json_number(&json, "bias", e->bias, some);
        json_number(&json, "spearman", e->spearman, e->spearman > -2);
        json_number(&json, "baseline_mape", e->baseline_mape, e->baseline_mape >= 0);
        ds_json_key(&json, "baseline_from");
        if (some)
            ds_json_string(&json, e->baseline_from_calib ? "calib" : "all");
        else
            ds_json_null(&json);
        json_number(&json, "regret_within_2pct", e->regret_within_2pct, e->groups > 0);
        ds_json_key_int(&json, "regret_groups", e->groups);
        json_number(&json, "interval_coverage", e->covered, e->covered >= 0);
        json_number(&json, "interval_half_width", e->half_width, e->half_width >= 0);
        ds_json_key_int(&json, "unfit", e->unfit);
        ds_json_key_int(&json, "ran_out", e->ran_out);
        ds_json_key_int(&json, "let_run", e->let_run);
        ds_json_end_object(&json);
    }
    ds_json_end_array(&json);
    ds_buf_putc(out, '\n');
}

/* Reasons of refusals, each once with the number of its rows. */
static void put_refusals(const predictions *all, ds_buf *out) {
    for (uint32_t i = 0; i < all->n; i++) {
        const val_prediction *p = &all->at[i];
        bool first = p->refused;
        uint32_t n = 0;
        for (uint32_t k = 0; k < all->n && first; k++) {
            const val_prediction *q = &all->at[k];
            bool same = q->refused && !strcmp(q->why, p->why) && !strcmp(q->set, p->set);
            if (same && k < i) first = false;
            n += same;
        }
        if (first)
            ds_buf_printf(out, "refused: %s, %u row%s (line %u%s): %s\n", p->set, n,
                          n > 1 ? "s" : "", p->row.line, n > 1 ? ", …" : "", p->why);
    }
}

/* Rows that ran, and would not by the memory that is predicted for them: what the source does not
 * say of recomputation and offloading is taken as none. Rows that ran out, and would run. */
static void put_unfit(const val_errors *errors, uint32_t n, ds_buf *out) {
    for (uint32_t i = 0; i < n; i++) {
        const val_errors *e = &errors[i];
        if (e->unfit)
            ds_buf_printf(out, "do not fit in memory, though they ran: %s, %s: %u of %u rows\n",
                          e->set, e->split, e->unfit, e->n);
        if (e->ran_out)
            ds_buf_printf(out, "ran out of memory: %s, %s: %u rows, said to fit: %u\n", e->set,
                          e->split, e->ran_out, e->let_run);
    }
}

static void put_rows(const predictions *all, bool zero_shot, ds_buf *out) {
    static const char *const header[] = {"set",
                                         "split",
                                         "line",
                                         "source_ref",
                                         "model",
                                         "gpu",
                                         "gpus",
                                         "layers",
                                         "hidden",
                                         "seq",
                                         "dp",
                                         "tp",
                                         "pp",
                                         "cp",
                                         "vpp",
                                         "mbs",
                                         "gbs",
                                         "zero",
                                         "recompute",
                                         "measured_s",
                                         "predicted_s",
                                         "error_pct",
                                         "peak_gib",
                                         "fits",
                                         "refused",
                                         "low_s",
                                         "high_s",
                                         "compute_s",
                                         "exposed_s",
                                         "profile",
                                         "compute",
                                         "attention",
                                         "narrow",
                                         "experts",
                                         "communication",
                                         "host",
                                         "measured_mfu_pct",
                                         "predicted_mfu_pct"};
    enum { N = sizeof header / sizeof *header };
    ds_csv_put_row(out, header, N);
    for (uint32_t i = 0; i < all->n; i++) {
        const val_prediction *p = &all->at[i];
        const val_row *r = &p->row;
        char number[N][32] = {{0}};
        const char *cells[N];
        const int64_t counts[] = {r->gpus,
                                  r->layers,
                                  r->hidden,
                                  r->seq,
                                  r->dp,
                                  r->tp,
                                  r->pp,
                                  r->cp,
                                  p->refused ? r->vpp : p->vpp,
                                  p->refused ? r->mbs : p->mbs,
                                  r->gbs,
                                  r->zero};
        for (int k = 0; k < N; k++) cells[k] = number[k];
        cells[0] = p->set;
        cells[1] = r->split;
        snprintf(number[2], sizeof number[2], "%u", r->line);
        cells[3] = r->ref;
        cells[4] = r->model;
        cells[5] = r->gpu;
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            snprintf(number[6 + k], sizeof number[0], "%lld", (long long)counts[k]);
        cells[18] = r->recompute;
        if (!p->ran_out) snprintf(number[19], sizeof number[0], "%.9g", r->seconds);
        if (!p->refused) {
            if (!p->ran_out) {
                snprintf(number[20], sizeof number[0], "%.9g", p->seconds);
                snprintf(number[21], sizeof number[0], "%.3f", val_error(p));
            }
            snprintf(number[22], sizeof number[0], "%.2f", p->peak_gib);
            cells[23] = val_is_unfit(p) ? "no" : "yes";
        }
        cells[24] = p->why;
        if (!p->refused && p->high > 0) {
            snprintf(number[25], sizeof number[0], "%.9g", p->low);
            snprintf(number[26], sizeof number[0], "%.9g", p->high);
        }
        if (!p->refused) {
            snprintf(number[27], sizeof number[0], "%.9g", p->compute_s);
            snprintf(number[28], sizeof number[0], "%.9g", p->exposed_s);
        }
        const val_testbed *testbed = val_testbed_of(r);
        cells[29] = testbed && !zero_shot ? testbed->profile : VAL_GENERIC;
        if (!cells[29]) cells[29] = "";
        for (int k = DS_PART_COMPUTE; k <= DS_PART_HOST && p->share[DS_PART_STEP] > 0; k++)
            snprintf(number[30 + k - DS_PART_COMPUTE], sizeof number[0], "%.6g", p->share[k]);
        if (val_is_mfu_alone(r) || (r->mfu_pct > 0 && *r->cluster)) {
            snprintf(number[N - 2], sizeof number[0], "%.6g", r->mfu_pct);
            if (!p->refused)
                snprintf(number[N - 1], sizeof number[0], "%.4g", val_mfu_pct(r, p->seconds));
        }
        ds_csv_put_row(out, cells, N);
    }
}

static void put_pairs(const predictions *all, bool zero_shot, ds_buf *out) {
    val_pair *pairs;
    uint32_t n = val_pairs_of(all->at, all->n, zero_shot, &pairs), within = 0;
    ds_buf_put(out, "| set | split | setting | from line | to line | measured | predicted | within "
                    "a third |\n|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < n; i++) {
        const val_pair *p = &pairs[i];
        const char *from = p->from->row.split, *to = p->to->row.split;
        bool same = strcmp(from, to) == 0;
        ds_buf_printf(out, "| %s | %s%s%s | %s | %u | %u | %+.1f %% | %+.1f %% | %s |\n",
                      p->from->set, from, same ? "" : ", ", same ? "" : to, p->change,
                      p->from->row.line, p->to->row.line, p->measured, p->predicted,
                      p->is_within ? "yes" : "no");
        within += p->is_within;
    }
    ds_buf_printf(out, "pairs: %u, within a third of the measured gain: %u\n", n, within);
    free(pairs);
}

static int print(const validate_arguments *args, const predictions *all,
                 const predictions *calibrated) {
    val_errors *errors;
    ds_buf text = {0};
    ds_error err;
    uint32_t n = val_errors_of(all->at, all->n, &errors);
    if (args->pairs) {
        put_pairs(all, args->zero_shot, &text);
    } else if (calibrated->n) {
        put_zero_shot(all, calibrated, &text);
    } else if (args->json) {
        put_json(errors, n, &text);
    } else {
        put_ledger(errors, n, &text);
        if (args->ledger) {
            put_profiles(all, &text);
        } else {
            put_refusals(all, &text);
            put_unfit(errors, n, &text);
        }
    }
    fputs(text.text, stdout);
    int exit_code = 0;
    if (args->out) {
        text.n = 0;
        put_rows(all, args->zero_shot, &text);
        if (cli_write(&args->common, args->out, text.text, text.n, &err) != DS_OK)
            exit_code = cli_fail(NULL, &err);
    }
    ds_buf_deinit(&text);
    free(errors);
    return exit_code;
}

static int print_scenario(const validate_arguments *args, const predictions *all) {
    for (uint32_t i = 0; i < all->n; i++) {
        val_row row = all->at[i].row;
        ds_error err;
        ds_buf text = {0};
        if (row.line != args->scenario) continue;
        val_testbed testbed = {.nvlink_gb_per_s = 300, .nic_mb_per_s = 25000};
        if (!args->memory && val_testbed_for(&row, args->zero_shot, &testbed, &err) != DS_OK)
            return cli_fail(NULL, &err);
        testbed.without = args->without;
        if (!args->memory) val_testbed_complete(&testbed, &row);
        if (val_row_complete(&row, &err) != DS_OK) return cli_fail(NULL, &err);
        bool some = args->memory && !args->all_microbatches;
        val_scenario(&row, &testbed, args->memory ? VAL_MEMORY : VAL_TIME,
                     some ? val_memory_microbatches(&row) : 0, &text);
        fputs(text.text, stdout);
        ds_buf_deinit(&text);
        return 0;
    }
    ds_error err;
    ds_error_set(&err, DS_ERR_DATA, DS_NOWHERE, "no file has a row in line %u", args->scenario);
    return cli_fail(NULL, &err);
}

/* ---- the verb ---- */

/* --zero-shot --ledger predicts twice: with the generic profiles, and with the calibrated ones. */
static int predict_and_print(const validate_arguments *args, const val_job *job, predictions *all) {
    predictions calibrated = {0};
    val_job own = *job;
    ds_error err;
    own.zero_shot = false;
    for (uint32_t i = 0; i < all->n && args->zero_shot && args->ledger; i++)
        DS_HPUSH(&calibrated, all->at[i]);
    ds_status status = val_predict(job, all->at, all->n, &err);
    if (status == DS_OK && calibrated.n)
        status = val_predict(&own, calibrated.at, calibrated.n, &err);
    int exit_code = status == DS_OK ? print(args, all, &calibrated) : cli_fail(NULL, &err);
    free(calibrated.at);
    return exit_code;
}

static int validate(validate_arguments *args, const ds_profiles *profiles) {
    tables csvs = {0};
    predictions all = {0};
    ds_error err;
    int exit_code = 0;
    if (cli_check_outputs(&args->common, &err) != DS_OK) return cli_fail(NULL, &err);
    for (uint32_t i = 0; i < args->files.n && !exit_code; i++)
        if (read_file(args, args->files.at[i], &csvs, &all, &err) != DS_OK)
            exit_code = cli_fail(NULL, &err);
    if (args->every && !args->scenario) thin_out(args->every, &all);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    val_job job = {.profiles = profiles,
                   .load = {.include_dirs = args->common.include_dirs.at,
                            .n_include_dirs = args->common.include_dirs.n},
                   .n_workers = args->workers ? args->workers
                                : cores > 0   ? (uint32_t)cores
                                              : 1,
                   .zero_shot = args->zero_shot,
                   .planner = validate_plan,
                   .without = args->without};
    if (!exit_code && args->scenario) {
        exit_code = print_scenario(args, &all);
    } else if (!exit_code) {
        exit_code = predict_and_print(args, &job, &all);
    }
    for (uint32_t i = 0; i < csvs.n; i++) ds_csv_deinit(&csvs.at[i]);
    free(csvs.at);
    free(all.at);
    return exit_code;
}

static int validate_files(validate_arguments *args) {
    ds_profiles *profiles;
    ds_error err;
    if (ds_profiles_load(args->common.profiles, &profiles, &err) != DS_OK)
        return cli_fail(NULL, &err);
    int exit_code = 0;
    if (args->memory && !args->scenario) {
        for (uint32_t i = 0; i < args->files.n && !exit_code; i++)
            exit_code = validate_memory(args, profiles, args->files.at[i]);
    } else {
        exit_code = validate(args, profiles);
    }
    ds_profiles_free(profiles);
    return exit_code;
}

int cmd_validate(int argc, char **argv) {
    validate_arguments args = {0};
    cli_parse(&cli_verb_validate, argc, argv, &args);
    int exit_code = validate_files(&args);
    cli_options_deinit(&args.common);
    free(args.files.at);
    return exit_code;
}
