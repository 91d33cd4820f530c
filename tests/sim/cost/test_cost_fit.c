/* Fits against curves that are known: rows made from them, exactly, with noise, with outliers; the
 * cross-validation and the error measures by hand; the committed constants from the committed rows.
 */
#include "ir/base/csv.h"
#include "ir/base/rng.h"
#include "sim/cost/constant.h"
#include "sim/cost/fit/fit.h"
#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FLOP_PER_S  1e14
#define BYTES_PER_S 1e12

/* (w + w_half)/(rate e_max): the closed form of w/(rate e(w)). */
static double time_of(double w, double rate, double e_max, double w_half) {
    return (w + w_half) / (rate * e_max);
}

static void expect_near(double got, double wanted, double share, const char *what) {
    cr_expect_leq(fabs(got / wanted - 1), share, "%s: %.6g, not %.6g", what, got, wanted);
}

#define N_SYNTHETIC 300

/* Bytes from 10^4 to 10^9, e_max 0.8, w_half 2·10^6; 30 shapes. */
static void make_curve(ds_fit_row *rows) {
    for (uint32_t i = 0; i < N_SYNTHETIC; i++) {
        double bytes = 1e4 * pow(1e5, i / (N_SYNTHETIC - 1.0));
        rows[i] = (ds_fit_row){.bytes = bytes, .group = i % 30};
        rows[i].seconds = time_of(bytes, BYTES_PER_S, 0.8, 2e6);
    }
}

/* Twelve uniform numbers less 6: near enough to a normal distribution, and the same everywhere. */
static double normal(ds_rng *rng) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += ds_rng_uniform(rng);
    return sum;
}

Test(cost_fit, finds_the_constants_of_exact_rows) {
    ds_fit_row rows[N_SYNTHETIC];
    ds_fit_roofline fit;
    ds_error err;
    make_curve(rows);
    cr_assert_eq(ds_fit_efficiency(rows, N_SYNTHETIC, 0, BYTES_PER_S, &fit, &err), DS_OK, "%s",
                 err.message);
    expect_near(fit.bytes.e_max, 0.8, 1e-6, "e_max");
    expect_near(fit.bytes.w_half, 2e6, 1e-6, "w_half");
    expect_near(fit.bytes.w_min, 1e4, 1e-12, "w_min");
    expect_near(fit.bytes.w_max, 1e9, 1e-12, "w_max");
    cr_expect_eq(fit.flop.reference_per_s, 0);
    cr_expect_eq(fit.n_rows, N_SYNTHETIC);
    cr_expect_eq(fit.n_folds, DS_FIT_FOLDS);
    cr_expect_lt(fit.seen.p90, 1e-6);
    cr_expect_lt(fit.unseen.p90, 1e-6);
}

/* 5 % of noise on every row, and every tenth row slower by a factor of ten. */
Test(cost_fit, noise_and_outliers_do_not_pull) {
    ds_fit_row rows[N_SYNTHETIC];
    ds_fit_roofline fit;
    ds_error err;
    ds_rng rng = {7};
    make_curve(rows);
    for (uint32_t i = 0; i < N_SYNTHETIC; i++) {
        rows[i].seconds *= exp(0.05 * normal(&rng));
        if (i % 10 == 3) rows[i].seconds *= 10;
    }
    cr_assert_eq(ds_fit_efficiency(rows, N_SYNTHETIC, 0, BYTES_PER_S, &fit, &err), DS_OK, "%s",
                 err.message);
    /* the standard error of 0.05/sqrt(150), three times */
    expect_near(fit.bytes.e_max, 0.8, 0.0125, "e_max");
    expect_near(fit.bytes.w_half, 2e6, 0.025, "w_half");
    /* the median of |normal| is 0.6745; the outliers shift it to the 5/9 quantile, 0.765 */
    expect_near(fit.seen.median, 0.05 * 0.765, 0.2, "median error");
    expect_near(fit.unseen.median, 0.05 * 0.765, 0.2, "median error of rows left out");
}

/* Square-ish GEMMs of 64 … 8192: small ones are bound by bytes, large ones by FLOP. */
Test(cost_fit, finds_two_curves_under_their_maximum) {
    ds_fit_row rows[64];
    ds_fit_roofline fit;
    ds_error err;
    uint32_t n = 0;
    for (uint32_t i = 0; i < 8; i++) {
        for (uint32_t k = 0; k < 8; k++) {
            double m = 64 << i, inner = 64 << k;
            ds_fit_row row = {.flop = 2 * m * inner * inner,
                              .bytes = 2 * (2 * m * inner + inner * inner),
                              .group = k};
            row.seconds = fmax(time_of(row.flop, FLOP_PER_S, 0.75, 1e9),
                               time_of(row.bytes, BYTES_PER_S, 0.9, 2e7));
            rows[n++] = row;
        }
    }
    cr_assert_eq(ds_fit_efficiency(rows, n, FLOP_PER_S, BYTES_PER_S, &fit, &err), DS_OK, "%s",
                 err.message);
    expect_near(fit.flop.e_max, 0.75, 1e-6, "flop e_max");
    expect_near(fit.flop.w_half, 1e9, 1e-5, "flop w_half");
    expect_near(fit.bytes.e_max, 0.9, 1e-6, "bytes e_max");
    expect_near(fit.bytes.w_half, 2e7, 1e-6, "bytes w_half");
}

/* relu, its gradient, mse, its gradient, sgd on a CPU with other work, microseconds: one curve for
 * all five. Without one of its folds the least loss is at no fixed time, to which its logarithm
 * goes without end. Rates of the ops in the largest rows enclose the curve's. */
Test(cost_fit, constants_that_run_away_end_no_fit) {
    static const struct {
        int elements;
        double us[5];
    } sizes[] = {
        {16 * 112, {1.642, 1.845, 1.254, 1.228, 0.7981}},
        {48 * 112, {5.446, 5.497, 3.726, 3.653, 2.4}},
        {96 * 112, {11.16, 10.99, 7.205, 7.198, 4.819}},
        {224 * 112, {24.95, 25.63, 17.37, 16.58, 11.28}},
        {16 * 240, {3.634, 3.898, 2.566, 2.369, 1.72}},
        {48 * 240, {10.83, 11.78, 7.698, 7.674, 5.116}},
        {96 * 240, {22.23, 23.55, 15.41, 15.06, 10.4}},
        {224 * 240, {53.81, 54.96, 36.1, 34.82, 24.1}},
        {16 * 400, {5.798, 6.34, 4.273, 3.009, 2.822}},
        {48 * 400, {17.75, 19.11, 12.84, 11.6, 8.708}},
        {96 * 400, {36.55, 38.91, 26.08, 24.17, 17.72}},
        {224 * 400, {83.26, 88.71, 63.67, 58.07, 52.29}},
    };
    static const double bytes_an_element[] = {8, 12, 8, 12, 8};
    ds_fit_row rows[60];
    ds_fit_roofline fit;
    ds_error err;
    for (uint32_t i = 0; i < 60; i++)
        rows[i] = (ds_fit_row){.bytes = bytes_an_element[i % 5] * sizes[i / 5].elements,
                               .seconds = 1e-6 * sizes[i / 5].us[i % 5],
                               .group = i % 5 + 5 * (i / 20)};
    cr_assert_eq(ds_fit_efficiency(rows, 60, 0, 100e9, &fit, &err), DS_OK, "%s", err.message);
    double largest = 224 * 400, rate = fit.bytes.e_max * 100e9;
    cr_expect(rate > 8 * largest / 83.26e-6 && rate < 12 * largest / 52.29e-6, "%g bytes/s", rate);
}

/* Two groups, one twice as slow: each is predicted by the other's constants, so errors are 100 %
 * and 50 %. */
Test(cost_fit, a_group_is_predicted_by_the_others) {
    ds_fit_row rows[40];
    ds_fit_roofline fit;
    ds_error err;
    for (uint32_t i = 0; i < 40; i++) {
        double bytes = 1e5 * (1 + i / 2);
        rows[i] = (ds_fit_row){.bytes = bytes, .group = 5 + 10 * (i % 2)};
        rows[i].seconds = time_of(bytes, BYTES_PER_S, 0.8, 1e6) * (i % 2 ? 1 : 2);
    }
    cr_assert_eq(ds_fit_efficiency(rows, 40, 0, BYTES_PER_S, &fit, &err), DS_OK, "%s", err.message);
    cr_expect_eq(fit.n_folds, 2);
    expect_near(fit.unseen.mean, 0.75, 1e-6, "mean error of rows left out");
    expect_near(fit.unseen.p90, 1, 1e-6, "90th percentile of rows left out");
}

static void expect_refused(const ds_fit_row *rows, uint32_t n, double flop_per_s,
                           const char *message) {
    ds_fit_roofline fit;
    ds_error err = {0};
    cr_expect_eq(ds_fit_efficiency(rows, n, flop_per_s, BYTES_PER_S, &fit, &err), DS_ERR_VALUE);
    cr_expect_str_eq(err.message, message);
}

Test(cost_fit, refuses_what_determines_no_curve) {
    ds_fit_row rows[N_SYNTHETIC];
    make_curve(rows);
    expect_refused(rows, 7, 0, "7 rows are too few to fit 2 constants: 8 are needed");
    expect_refused(rows, 15, 1e14, "15 rows are too few to fit 4 constants: 16 are needed");
    expect_refused(rows, 20, 1e14,
                   "row 0 of a fit: 0 FLOP, 10000 bytes, 2.5125e-06 s; each must be "
                   "positive");
    for (uint32_t i = 0; i < 20; i++) rows[i].group = 3;
    expect_refused(rows, 20, 0, "20 rows of one group: nothing can be left out of a fit");
    for (uint32_t i = 0; i < 20; i++) rows[i].bytes = 4096;
    expect_refused(rows, 20, 0, "all 20 rows have 4096 bytes: one size does not make a curve");
    rows[4].seconds = NAN;
    expect_refused(rows, 20, 0, "row 4 of a fit: 0 FLOP, 4096 bytes, nan s; each must be positive");
    ds_fit_roofline fit;
    cr_expect_eq(ds_fit_efficiency(rows, 20, 0, 0, &fit, NULL), DS_ERR_VALUE);
}

/* Errors 0.1, 0.2, 0, 1: the 90th percentile lies 0.7 of the way from the third to the fourth. */
Test(cost_fit, error_measures) {
    const double predicted[] = {1.1, 1.6, 3, 8}, measured[] = {1, 2, 3, 4};
    ds_fit_errors e = ds_fit_errors_of(predicted, measured, 4);
    cr_expect_float_eq(e.mean, 0.325, 1e-12);
    cr_expect_float_eq(e.median, 0.15, 1e-12);
    cr_expect_float_eq(e.p90, 0.2 + 0.7 * 0.8, 1e-12);
}

/* ---- the simplex search ---- */

/* Rosenbrock's valley, its minimum 0 at (1, 1). */
static ds_status valley(void *context, const double *x, double *value, ds_error *err) {
    (void)err;
    ++*(uint32_t *)context;
    *value = 100 * (x[1] - x[0] * x[0]) * (x[1] - x[0] * x[0]) + (1 - x[0]) * (1 - x[0]);
    return DS_OK;
}

static ds_status broken(void *context, const double *x, double *value, ds_error *err) {
    (void)x;
    *value = 1;
    if (++*(uint32_t *)context < 10) return DS_OK;
    return ds_error_set(err, DS_ERR_COST, DS_NOWHERE, "no cost");
}

Test(cost_fit, simplex_search) {
    const double starts[] = {5, -5, -1.2, 1};
    ds_fit_search search = {.n = 2,
                            .starts = starts,
                            .n_starts = 2,
                            .step = 1,
                            .tolerance = 1e-8,
                            .max_iterations = 1000};
    double best[2], value;
    uint32_t calls = 0;
    ds_error err = {0};
    cr_assert_eq(ds_fit_minimize(&search, valley, &calls, best, &value, &err), DS_OK, "%s",
                 err.message);
    cr_expect_float_eq(best[0], 1, 1e-5);
    cr_expect_float_eq(best[1], 1, 1e-5);
    cr_expect_lt(value, 1e-10);

    calls = 0;
    cr_expect_eq(ds_fit_minimize(&search, broken, &calls, best, &value, &err), DS_ERR_COST);
    cr_expect_str_eq(err.message, "no cost");
    cr_expect_eq(calls, 10, "nothing is evaluated after an error");
    search.n_starts = 0;
    cr_expect_eq(ds_fit_minimize(&search, valley, &calls, best, &value, &err), DS_ERR_VALUE);
}

/* ---- committed constants ---- */

static double number(const ds_csv *csv, uint32_t row, const char *column) {
    uint32_t at = ds_csv_find(csv, column);
    cr_assert_neq(at, DS_CSV_NO_COLUMN, "%s", column);
    return strtod(csv->rows.at[row].cells[at], NULL);
}

static const char *text(const ds_csv *csv, uint32_t row, const char *column) {
    uint32_t at = ds_csv_find(csv, column);
    cr_assert_neq(at, DS_CSV_NO_COLUMN, "%s", column);
    return csv->rows.at[row].cells[at];
}

static void read_profile(const char *file, ds_csv *csv) {
    ds_buf path = {0};
    ds_error err;
    ds_buf_printf(&path, "%s/cost_profiles/A100-SXM4-80GB/%s", DS_SOURCE_DIR, file);
    cr_assert_eq(ds_csv_read(path.text, csv, &err), DS_OK, "%s", err.message);
    ds_buf_deinit(&path);
}

/* All f16 GEMMs of the A100; rows come to an order of their own here, which is no matter. */
static ds_fit_row *a100_gemms(uint32_t *n) {
    ds_csv ops;
    read_profile("ops.csv", &ops);
    ds_fit_row *rows = ds_xcalloc(ops.rows.n, sizeof *rows);
    *n = 0;
    for (uint32_t i = ops.rows.n; i-- > 0;) {
        if (strcmp(text(&ops, i, "class"), "gemm") != 0) continue;
        double m = number(&ops, i, "m"), k = number(&ops, i, "k"), cols = number(&ops, i, "n");
        rows[(*n)++] = (ds_fit_row){.flop = 2 * m * cols * k,
                                    .bytes = 2 * (m * k + k * cols + m * cols),
                                    .seconds = number(&ops, i, "time_us") * 1e-6,
                                    .group = (uint32_t)(cols * 7 + k)};
    }
    ds_csv_deinit(&ops);
    return rows;
}

Test(cost_fit, the_committed_a100_gemm_curves_are_the_fit_to_the_committed_rows) {
    uint32_t n;
    ds_csv curves;
    ds_fit_roofline fit;
    ds_error err;
    ds_fit_row *rows = a100_gemms(&n);
    cr_assert_eq(n, 2100);
    /* 312 TFLOP/s and 2039 GB/s: the card's data sheet */
    cr_assert_eq(ds_fit_efficiency(rows, n, 312e12, 2039e9, &fit, &err), DS_OK, "%s", err.message);
    read_profile("efficiency.csv", &curves);
    for (uint32_t i = 0; i < curves.rows.n; i++) {
        if (strcmp(text(&curves, i, "op"), "gemm") != 0 || number(&curves, i, "n") == 0) continue;
        const char *resource = text(&curves, i, "resource");
        const ds_fit_curve *c = strcmp(resource, "flop") == 0 ? &fit.flop : &fit.bytes;
        expect_near(c->e_max, number(&curves, i, "e_max"), 0.01, resource);
        expect_near(c->w_half, number(&curves, i, "w_half"), 0.01, resource);
        expect_near(fit.seen.median, number(&curves, i, "median_error"), 0.01, resource);
        expect_near(fit.seen.p90, number(&curves, i, "p90_error"), 0.01, resource);
    }
    ds_csv_deinit(&curves);
    free(rows);
}

/* ---- constants of a loaded database ---- */

Test(cost_fit, constants_are_read_and_changed_by_name) {
    static const ds_constant issue = {.name = DS_CONSTANT_ISSUE_PS};
    static const ds_constant launch = {
        .name = DS_CONSTANT_COLL_LAUNCH_PS, .op = "all_reduce", .group = 8};
    ds_constant e_max = {.name = DS_CONSTANT_E_MAX, .op = "gemm", .dtype = "f32", .flop = true};
    ds_profiles *p = cost_tree_load_committed();
    ds_error err = {0};
    uint32_t v100, a100;
    double value;
    cr_assert_eq(ds_profiles_find_profile(p, "V100-PCIE-16GB", DS_NOWHERE, &v100, &err), DS_OK);
    cr_assert_eq(ds_profiles_find_profile(p, "A100-SXM4-80GB", DS_NOWHERE, &a100, &err), DS_OK);

    cr_assert_eq(ds_constant_set(p, v100, &issue, 31e6 + 0.4, &err), DS_OK);
    cr_expect_eq(ds_profile_issue_ps(p, v100), 31000000);
    cr_assert_eq(ds_constant_get(p, a100, &launch, &value, &err), DS_OK);
    cr_expect_eq(value, 7.53e6, "8 us of a 2 KiB send less 0.47 us");

    /* 10^12 FLOP at half of 14.13 TFLOP/s, the curve flattened: 2e12/14.13e12 s */
    ds_constant w_half = e_max;
    w_half.name = DS_CONSTANT_W_HALF;
    cr_assert_eq(ds_constant_set(p, v100, &e_max, 0.5, &err), DS_OK);
    cr_assert_eq(ds_constant_set(p, v100, &w_half, 0, &err), DS_OK);
    ds_work work = {.kind = DS_WORK_GEMM, .dtype = DS_F32, .flop = 1000000000000, .batch = 1};
    ds_cost cost;
    cr_assert_eq(ds_cost_op(&(ds_cost_query){.profiles = p,
                                             .kind = ds_profile_kind(p, v100),
                                             .profile = v100,
                                             .op = "matmul",
                                             .work = &work},
                            DS_COST_FITTED, &cost, NULL, &err),
                 DS_OK, "%s", err.message);
    expect_near((double)cost.ps, 2e24 / 14.13e12, 1e-9, "ps");

    /* whole waves, 108 tiles of 128 x 256, and no end of k: half the share of the peak takes
     * 2 m n k / (312e12 0.5) s more, whatever hides under it */
    static const ds_constant tiles = {.name = DS_CONSTANT_TILES_E_MAX, .dtype = "f16"};
    int64_t ps[2];
    work = (ds_work){.kind = DS_WORK_GEMM, .dtype = DS_F16, .batch = 1};
    work.m = 128 * 108, work.n = 256, work.k = 1 << 20;
    work.flop = 2 * work.m * work.n * work.k;
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(ds_constant_set(p, a100, &tiles, i ? 0.25 : 0.5, &err), DS_OK);
        cr_assert_eq(ds_cost_op(&(ds_cost_query){.profiles = p,
                                                 .kind = ds_profile_kind(p, a100),
                                                 .profile = a100,
                                                 .op = "matmul",
                                                 .work = &work},
                                DS_COST_FITTED, &cost, NULL, &err),
                     DS_OK, "%s", err.message);
        ps[i] = cost.ps;
    }
    expect_near((double)(ps[1] - ps[0]), 1e12 * (double)work.flop / 156e12, 1e-3, "ps");
    cr_expect_eq(ds_constant_get(p, v100, &tiles, &value, &err), DS_ERR_NAME);

    cr_expect_eq(ds_constant_set(p, v100, &e_max, 0, &err), DS_ERR_VALUE);
    cr_expect_eq(ds_constant_set(p, a100, &launch, -1, &err), DS_ERR_VALUE);
    e_max.dtype = "f64";
    cr_expect_eq(ds_constant_get(p, v100, &e_max, &value, &err), DS_ERR_NAME);
    cr_expect_str_eq(err.message,
                     "profile V100-PCIE-16GB has no efficiency curve of gemm, dtype f64, "
                     "resource flop");
    cr_expect_eq(ds_constant_get(p, v100, &launch, &value, &err), DS_ERR_NAME);
    cr_expect_eq(ds_constant_get(p, 0, &issue, &value, &err), DS_ERR_NAME);
    ds_profiles_free(p);
}
