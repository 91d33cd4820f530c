/* ds_fit_steps_run against steps whose constants are known: times of a roofline with a floor, which
 * is what whole steps are made of. */
#include "sim/cost/fit/steps.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { N_ROWS = 24, N_CONSTANTS = 3 };
static const double truth[N_CONSTANTS] = {0.62, 0.35, 45e-6};

/* Rows of different weight: products, memory, launches. */
static double time_of(const double *c, int i) {
    double flop = 1e9 * (1 + i * i), bytes = 4e7 * (1 + (i * 7) % 11), launches = 3 + i % 5;
    return flop / (312e12 * c[0]) + bytes / (2039e9 * c[1]) + launches * c[2];
}

typedef struct table {
    double measured[N_ROWS];
    uint32_t fresh, near;
} table;

static ds_status residuals(void *context, const double *c, bool near, double *r, ds_error *err) {
    table *t = context;
    (void)err;
    if (near)
        t->near++;
    else
        t->fresh++;
    for (int i = 0; i < N_ROWS; i++) r[i] = log(time_of(c, i) / t->measured[i]);
    return DS_OK;
}

static const double low[] = {0.05, 0.05, 1e-6}, high[] = {1, 1, 1e-3};
static const ds_fit_steps three = {
    .n = N_CONSTANTS, .n_rows = N_ROWS, .low = low, .high = high, .max_iterations = 40};

static void fill(table *t) {
    memset(t, 0, sizeof *t);
    for (int i = 0; i < N_ROWS; i++) t->measured[i] = time_of(truth, i);
}

static void expect_truth(const double *c, double tolerance) {
    for (int k = 0; k < N_CONSTANTS; k++)
        cr_expect_float_eq(c[k] / truth[k], 1, tolerance, "constant %d: %g, not %g", k, c[k],
                           truth[k]);
}

Test(fit_steps, finds_constants) {
    table t;
    ds_error err;
    double c[] = {0.3, 0.8, 10e-6}, loss;
    fill(&t);
    cr_assert_eq(ds_fit_steps_run(&three, residuals, &t, c, &loss, &err), DS_OK);
    expect_truth(c, 0.01);
    cr_expect_lt(loss, 1e-5);
    cr_expect(t.near && t.near % N_CONSTANTS == 0, "a derivative for each constant");
}

/* Rows in which something else happened, three of 24 and up to three times too slow. */
Test(fit_steps, outliers_hardly_pull) {
    table t;
    ds_error err;
    double c[] = {0.3, 0.8, 10e-6}, loss;
    fill(&t);
    t.measured[3] *= 1.5;
    t.measured[11] *= 3;
    t.measured[17] *= 2;
    cr_assert_eq(ds_fit_steps_run(&three, residuals, &t, c, &loss, &err), DS_OK);
    expect_truth(c, 0.05);
}

/* With Cauchy's loss they do not pull at all, and all of them to one side may be a third. */
Test(fit_steps, cauchy_forgets_outliers) {
    ds_fit_steps cauchy = three;
    table t;
    ds_error err;
    double c[] = {0.5, 0.4, 40e-6}, loss;
    cauchy.cauchy = true;
    fill(&t);
    for (int i = 0; i < N_ROWS; i += 3) t.measured[i] *= 1.4 + 0.1 * (i % 4);
    cr_assert_eq(ds_fit_steps_run(&cauchy, residuals, &t, c, &loss, &err), DS_OK);
    expect_truth(c, 0.05);
}

/* What lies beyond a bound ends at it, and the others do what they can. */
Test(fit_steps, bounds_hold) {
    static const double lowest[] = {0.05, 0.05, 60e-6}, highest[] = {0.5, 1, 1e-3};
    ds_fit_steps bounded = three;
    table t;
    ds_error err;
    double c[] = {0.3, 0.8, 10e-6}, loss;
    bounded.low = lowest;
    bounded.high = highest;
    fill(&t);
    cr_assert_eq(ds_fit_steps_run(&bounded, residuals, &t, c, &loss, &err), DS_OK);
    cr_expect_float_eq(c[0], 0.5, 1e-9);
    cr_expect_float_eq(c[2], 60e-6, 1e-12);
}

Test(fit_steps, refuses) {
    static const double none[] = {0, 0.05, 1e-6};
    ds_fit_steps bad = three, empty = three;
    table t;
    ds_error err;
    double c[] = {0.3, 0.8, 10e-6}, loss;
    fill(&t);
    bad.low = none;
    empty.n_rows = 0;
    cr_expect_eq(ds_fit_steps_run(&bad, residuals, &t, c, &loss, &err), DS_ERR_VALUE);
    cr_expect_eq(ds_fit_steps_run(&empty, residuals, &t, c, &loss, &err), DS_ERR_VALUE);
}

/* sqrt(r² + c²) - c with c = 0.05: triangles of 5-12-13 and 3-4-5. */
Test(fit_steps, loss) {
    const double r[] = {0, 0.12, -0.0375};
    cr_expect_float_eq(ds_fit_steps_loss(r, 3), (0 + 0.08 + 0.0125) / 3, 1e-12);
}

/* Two constants of which only the product acts: rows say r of it, priors share it out. With rows
 * that agree and equal spreads both move by the same factor, the root of what they lack; with no
 * spread of the second the first alone. */
static ds_status product_residuals(void *context, const double *c, bool near, double *r,
                                   ds_error *err) {
    (void)context;
    (void)near;
    (void)err;
    for (int i = 0; i < N_ROWS; i++) r[i] = log(c[0] * c[1] / 0.18);
    return DS_OK;
}

Test(fit_steps, priors_decide_what_rows_do_not) {
    static const double prior[] = {0.4, 0.5}, narrow[] = {0.2, 1e-4}, equal[] = {0.2, 0.2};
    static const double lowest[] = {0.01, 0.01}, highest[] = {1, 1};
    ds_fit_steps two = {.n = 2,
                        .n_rows = N_ROWS,
                        .low = lowest,
                        .high = highest,
                        .prior = prior,
                        .spread = equal,
                        .max_iterations = 40};
    ds_error err;
    double c[] = {0.3, 0.9}, loss;
    cr_assert_eq(ds_fit_steps_run(&two, product_residuals, NULL, c, &loss, &err), DS_OK);
    cr_expect_float_eq(c[0], 0.4 * sqrt(0.9), 2e-3, "%g", c[0]);
    cr_expect_float_eq(c[1], 0.5 * sqrt(0.9), 2e-3, "%g", c[1]);
    two.spread = narrow;
    c[0] = 0.3, c[1] = 0.9;
    cr_assert_eq(ds_fit_steps_run(&two, product_residuals, NULL, c, &loss, &err), DS_OK);
    cr_expect_float_eq(c[0], 0.36, 2e-3, "%g", c[0]);
    cr_expect_float_eq(c[1], 0.5, 1e-3, "%g", c[1]);
}

/* A prior is worth a row: of n rows that say 0.3 and one that says 0.6, as far off for its spread
 * as a row is at the scale, the fit is where the slopes of the loss cancel, n f(x) = f(d - x) with
 * f(r) = r/sqrt(r^2 + c^2), here for n = 1 and equal widths in the middle. */
static ds_status one_residual(void *context, const double *c, bool near, double *r, ds_error *err) {
    (void)context;
    (void)near;
    (void)err;
    r[0] = log(c[0] / 0.3);
    return DS_OK;
}

Test(fit_steps, a_prior_counts_as_a_row) {
    static const double prior[] = {0.33}, spread[] = {DS_FIT_STEPS_SCALE}, none[] = {0};
    static const double lowest[] = {0.01}, highest[] = {1};
    ds_fit_steps one = {.n = 1,
                        .n_rows = 1,
                        .low = lowest,
                        .high = highest,
                        .prior = prior,
                        .spread = spread,
                        .max_iterations = 40};
    ds_error err;
    double c[] = {0.5}, loss;
    cr_assert_eq(ds_fit_steps_run(&one, one_residual, NULL, c, &loss, &err), DS_OK);
    cr_expect_float_eq(c[0], sqrt(0.3 * 0.33), 1e-3, "%g", c[0]);
    one.spread = none;
    cr_assert_eq(ds_fit_steps_run(&one, one_residual, NULL, c, &loss, &err), DS_OK);
    cr_expect_float_eq(c[0], 0.3, 1e-3, "%g", c[0]);
    one.spread = spread;
    one.prior = none;
    cr_expect_eq(ds_fit_steps_run(&one, one_residual, NULL, c, &loss, &err), DS_ERR_VALUE);
}
