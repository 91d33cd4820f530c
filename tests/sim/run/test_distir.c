/* scenarios/distir-mlp.dir against the measured steps of DistIR's experiment
 * (tests/data/distir_mlp.csv): mean absolute error at most 8 % and rank correlation at least 0.98
 * is what was promised, on the 45 rows that the profile was fitted to and on the 9 that it was not.
 * What it reaches is 2.9 % and 2.8 %, so 4 % is the bound against getting worse. The 9 rows were
 * looked at while the profile was made, not fitted to: they do not stand for data that nobody has
 * seen. DistIR's own simulator is off by 46 % over the published experiment; its predictions stand
 * in the same file, so its error on these rows is checked too. */
#include "tests/support/sim.h"

#include "ir/base/csv.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS       100
#define PROMISED_ERROR 0.08
#define REACHED_ERROR  0.04 /* 2.9 % and 2.8 %, and room for the choice of another constant */

typedef struct row {
    double measured_ms, predicted_ms, distir_ms;
    bool calib;
} row;

/* Ranks from 0, ties sharing their mean. */
static double rank_of(const double *value, uint32_t n, uint32_t i) {
    double rank = -0.5;
    for (uint32_t k = 0; k < n; k++) rank += (value[k] < value[i]) + 0.5 * (value[k] == value[i]);
    return rank;
}

/* Pearson's correlation of the ranks. */
static double spearman(const double *x, const double *y, uint32_t n) {
    double sxy = 0, sxx = 0, syy = 0, mean = (double)(n - 1) / 2;
    for (uint32_t i = 0; i < n; i++) {
        double a = rank_of(x, n, i) - mean, b = rank_of(y, n, i) - mean;
        sxy += a * b;
        sxx += a * a;
        syy += b * b;
    }
    return sxy / sqrt(sxx * syy);
}

static void check(const row *rows, uint32_t n, const char *name) {
    double x[MAX_ROWS], y[MAX_ROWS], error = 0, distir = 0;
    for (uint32_t i = 0; i < n; i++) {
        x[i] = rows[i].measured_ms;
        y[i] = rows[i].predicted_ms;
        error += fabs(y[i] / x[i] - 1) / n;
        distir += fabs(rows[i].distir_ms / x[i] - 1) / n;
    }
    double rho = spearman(x, y, n);
    printf("%s: %u rows, mean |error| %.2f %%, Spearman %.4f (DistIR's simulator: %.1f %%)\n", name,
           n, 100 * error, rho, 100 * distir);
    cr_expect_leq(error, PROMISED_ERROR, "%s", name);
    cr_expect_leq(error, REACHED_ERROR, "%s: worse than it was", name);
    cr_expect_geq(rho, 0.98, "%s", name);
    cr_expect_geq(distir, 0.4, "%s: the rows are the published ones", name);
}

static const char *cell(const ds_csv *csv, uint32_t i, const char *column) {
    uint32_t at = ds_csv_find(csv, column);
    cr_assert_neq(at, DS_CSV_NO_COLUMN, "%s", column);
    return csv->rows.at[i].cells[at];
}

static row predict(const ds_csv *csv, uint32_t i) {
    char settings[128];
    snprintf(settings, sizeof settings, "world=%s layers=%s batch=%s width=%s",
             cell(csv, i, "world_size"), cell(csv, i, "num_layers"), cell(csv, i, "batch_size"),
             cell(csv, i, "hidden_dim"));
    sim_case c;
    sim_run_file(&c, "scenarios/distir-mlp.dir", settings, false);
    cr_assert_eq(c.status, DS_OK, "%s", settings);
    row r = {.measured_ms = strtod(cell(csv, i, "measured_ms"), NULL),
             .distir_ms = strtod(cell(csv, i, "distir_simulated_ms"), NULL),
             .predicted_ms = (double)c.result->run.step_ps * 1e-9,
             .calib = strcmp(cell(csv, i, "split"), "calib") == 0};
    sim_free(&c);
    return r;
}

Test(distir, predicts_the_measured_steps) {
    ds_csv csv;
    ds_error err;
    cr_assert_eq(ds_csv_read(DS_TEST_DIR "/data/distir_mlp.csv", &csv, &err), DS_OK, "%s",
                 err.message);
    row calib[MAX_ROWS], val[MAX_ROWS];
    uint32_t n_calib = 0, n_val = 0;
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        row r = predict(&csv, i);
        if (r.calib)
            calib[n_calib++] = r;
        else
            val[n_val++] = r;
    }
    cr_assert_eq(n_calib, 45);
    cr_assert_eq(n_val, 9);
    check(calib, n_calib, "rows the profile was fitted to");
    check(val, n_val, "rows it was not fitted to (looked at)");
    ds_csv_deinit(&csv);
}
