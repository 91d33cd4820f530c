/* Random durations: quantiles against their formulas, Monte-Carlo runs against the distributions of
 * sums and maxima, and runs that repeat whatever the threads. */
#include "sim/run/montecarlo.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define US INT64_C(1000000)

/* ---- distributions ---- */

static double quantile(ds_random r, double u) {
    return (double)ds_random_quantile_q32(&r, u) * 0x1p-32;
}

#define Z975 1.959963984540054 /* Φ⁻¹(0.975): Abramowitz and Stegun, table 26.1 */

Test(jitter, quantiles_are_those_of_the_formulas) {
    ds_random r = {.kind = DS_RANDOM_NORMAL, .mean = 1, .sigma = 0.05};
    cr_expect_float_eq(quantile(r, 0.975), 1 + 0.05 * Z975, 1e-9);
    cr_expect_float_eq(quantile(r, 0.5), 1, 1e-9);
    r = (ds_random){.kind = DS_RANDOM_LOGNORMAL, .mean = 1, .sigma = 0.3};
    cr_expect_float_eq(quantile(r, 0.025), exp(-0.3 * Z975 - 0.045), 1e-9);
    cr_expect_float_eq(quantile(r, 0.5), exp(-0.045), 1e-9);
    r = (ds_random){.kind = DS_RANDOM_EXPONENTIAL, .mean = 1, .min = 0.9};
    cr_expect_float_eq(quantile(r, 0.99), 0.9 + 0.1 * log(100), 1e-9);
    r = (ds_random){.kind = DS_RANDOM_GAMMA, .mean = 1, .shape = 1};
    cr_expect_float_eq(quantile(r, 0.99), log(100), 1e-8);
    r = (ds_random){.kind = DS_RANDOM_WEIBULL, .mean = 2, .shape = 2};
    cr_expect_float_eq(quantile(r, 0.75), 2 * sqrt(log(4)) / (sqrt(acos(-1)) / 2), 1e-9);
    r = (ds_random){.kind = DS_RANDOM_PARETO, .mean = 1, .shape = 4};
    cr_expect_float_eq(quantile(r, 0.9375), 0.75 * 2, 1e-9); /* (1/16)^(-1/4) */
    r = (ds_random){.kind = DS_RANDOM_UNIFORM, .mean = 1, .min = 0.8};
    cr_expect_float_eq(quantile(r, 0.25), 0.9, 1e-9);
    r = (ds_random){.kind = DS_RANDOM_BERNOULLI, .mean = 1, .probability = 0.1, .factor = 3};
    cr_expect_eq(quantile(r, 0.0999), 3);
    cr_expect_eq(quantile(r, 0.1001), 1);
    cr_expect_eq(quantile((ds_random){.kind = DS_RANDOM_NONE}, 0.3), 1);
}

/* 0.999 · (1 - u)^(-1/1.001): no tail is cut off below 2^31, and none is taken for less beyond. */
Test(jitter, long_tails_are_kept_or_never_end) {
    ds_random r = {.kind = DS_RANDOM_PARETO, .mean = 1000, .shape = 1.001};
    double at = 1e-8, want = 1000 * (0.001 / 1.001) * pow(at, -1 / 1.001);
    cr_expect_gt(want, 0x1p20);
    cr_expect_float_eq(quantile(r, 1 - at) / want, 1, 1e-6);
    cr_expect_eq(ds_random_quantile_q32(&r, 1 - 1e-12), UINT64_MAX);
}

Test(jitter, means_are_one_unless_said) {
    static const ds_random all[] = {
        {.kind = DS_RANDOM_NORMAL, .mean = 1, .sigma = 0.2},
        {.kind = DS_RANDOM_LOGNORMAL, .mean = 1, .sigma = 0.5},
        {.kind = DS_RANDOM_GAMMA, .mean = 1, .shape = 0.5},
        {.kind = DS_RANDOM_GAMMA, .mean = 1, .shape = 200},
        {.kind = DS_RANDOM_EXPONENTIAL, .mean = 1, .min = 0.5},
        {.kind = DS_RANDOM_WEIBULL, .mean = 1, .shape = 0.8},
        {.kind = DS_RANDOM_PARETO, .mean = 1, .shape = 3},
        {.kind = DS_RANDOM_UNIFORM, .mean = 1.25, .min = 1},
    };
    enum { PARTS = 20000 };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        double sum = 0;
        for (int i = 0; i < PARTS; i++) sum += quantile(all[k], (i + 0.5) / PARTS);
        cr_expect_float_eq(sum / PARTS, all[k].mean, 2e-3, "distribution %zu: %g", k, sum / PARTS);
    }
    /* Half of a normal around 0.1 that is cut off at 0.1: the mean is √(2/π) σ above. */
    ds_random half = {.kind = DS_RANDOM_NORMAL, .mean = 0.1, .min = 0.1, .sigma = 0.5};
    double sum = 0;
    for (int i = 0; i < PARTS; i++) sum += quantile(half, (i + 0.5) / PARTS);
    cr_expect_float_eq(sum / PARTS, 0.1 + 0.5 * sqrt(2 / acos(-1)), 1e-3);
}

/* ---- runs ---- */

/* `n` devices, each with `layers` ops of 100 us, then a barrier of 10 us. */
static void load(sim_case *c, uint32_t n, uint32_t layers, const char *jitter, bool unfold) {
    char text[2048];
    snprintf(text, sizeof text,
             "dir 1\ntopology @box {\n  device gpu[%u] : \"A100-SXM4-80GB\"\n  switch s\n"
             "  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..%u\n}\nmesh @m = [dp = %u] on @box\n"
             "func @step(%%x: f32[8] partial(dp)) -> f32[8] {\n"
             "  %%y = for l in 0..%u carry (%%h = %%x) {\n"
             "    %%i = scale(%%h) {factor = 2.0, cost = 100 us}\n    yield %%i\n  }\n"
             "  %%r = all_reduce(%%y) over dp {cost = 10 us}\n  return %%r\n}\n"
             "scenario {\n  program = @step\n  seed = 11\n  jitter { %s }\n}\n",
             n, n, n, layers, jitter);
    sim_run_text(c, text, NULL, unfold);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
}

static ds_monte_carlo runs_of(const sim_case *c, uint32_t threads) {
    ds_jitter jitter;
    ds_monte_carlo mc;
    ds_error err;
    cr_assert_eq(ds_jitter_read(&c->binding, &jitter, &err), DS_OK, "%s", err.message);
    ds_status status =
        ds_monte_carlo_run(c->result->plan, &jitter, c->result->run.step_ps, threads, &mc, &err);
    cr_assert_eq(status, DS_OK, "%s", err.message);
    return mc;
}

static ds_monte_carlo runs(uint32_t n, uint32_t layers, const char *jitter, uint32_t threads) {
    sim_case c;
    load(&c, n, layers, jitter, true);
    ds_monte_carlo mc = runs_of(&c, threads);
    sim_free(&c);
    return mc;
}

Test(jitter, factors_of_one_are_the_plain_run) {
    sim_case folded;
    load(&folded, 4, 3, "device = normal(sigma = 0), runs = 5", false);
    static const char *const ones[] = {
        "compute = normal(sigma = 0), runs = 5",
        "compute = normal(sigma = 0), network = lognormal(sigma = 0), runs = 5",
        "device = uniform(min = 1), straggler = bernoulli(probability = 0, factor = 9), runs = 5"};
    for (int k = 0; k < 3; k++) {
        ds_monte_carlo mc = runs(4, 3, ones[k], 2);
        cr_expect_eq(mc.nominal_ps, folded.result->run.step_ps);
        for (uint32_t i = 0; i < mc.n_runs; i++)
            cr_expect_eq(mc.step_ps[i], 310 * US, "%s", ones[k]);
        cr_expect_eq(mc.sd_ps, 0);
        ds_monte_carlo_deinit(&mc);
    }
    sim_free(&folded);
}

/* A step waits for the slowest of n: mean + σ E[max of n standard normals]; E is 1.7659913930 for
 * n = 16 (Harter, Biometrika 48, 1961), with a standard deviation of 0.5429. */
Test(jitter, the_slowest_of_sixteen) {
    ds_monte_carlo mc = runs(16, 1, "compute = normal(sigma = 0.05), runs = 4000", 2);
    double mean = (double)(mc.mean_ps - 10 * US) / (100.0 * US);
    cr_expect_float_eq(mean, 1 + 0.05 * 1.765991, 5 * 0.05 * 0.5429 / sqrt(4000), "%g", mean);
    cr_expect_float_eq(mc.sd_ps / (100.0 * US), 0.05 * 0.5429, 0.002);
    /* each device is as often the slowest as any other: 250 ± 15.3 of 4,000 */
    uint32_t count[16] = {0};
    for (uint32_t i = 0; i < mc.n_runs; i++) count[mc.busiest[i]]++;
    for (int d = 0; d < 16; d++) cr_expect(count[d] > 180 && count[d] < 320, "%u", count[d]);
    ds_monte_carlo_deinit(&mc);
}

/* 400 ops on one device: the sum has 400 times the variance, e^(σ²) - 1 of a lognormal. */
Test(jitter, the_sum_of_many_ops) {
    ds_monte_carlo mc = runs(1, 400, "compute = lognormal(sigma = 0.2), runs = 2000", 2);
    double unit = 100.0 * US, sd = sqrt(400 * (exp(0.04) - 1));
    cr_expect_float_eq((double)mc.mean_ps / unit, 400, 5 * sd / sqrt(2000));
    cr_expect_float_eq(mc.sd_ps / unit, sd, 0.08 * sd);
    /* nearly normal: its 95th percentile lies 1.645 deviations above */
    cr_expect_float_eq((double)mc.percentile_ps[3] / unit, 400 + 1.645 * sd, 0.15 * sd);
    ds_monte_carlo_deinit(&mc);
}

/* One factor for all ops of a device leaves its whole spread in the sum. */
Test(jitter, a_device_keeps_its_factor_in_a_run) {
    ds_monte_carlo mc = runs(1, 400, "device = normal(sigma = 0.1), runs = 2000", 2);
    cr_expect_float_eq(mc.sd_ps / (400.0 * 100 * US), 0.1, 0.008);
    ds_monte_carlo_deinit(&mc);
}

/* A step is slow unless none of n devices is a straggler: 1 - (1 - p)^n. */
Test(jitter, one_straggler_is_enough) {
    ds_monte_carlo mc =
        runs(64, 2, "straggler = bernoulli(probability = 0.01, factor = 2), runs = 2000", 2);
    uint32_t slow = 0;
    for (uint32_t i = 0; i < mc.n_runs; i++) {
        cr_expect(mc.step_ps[i] == 210 * US || mc.step_ps[i] == 410 * US);
        slow += mc.step_ps[i] == 410 * US;
    }
    double p = 1 - pow(0.99, 64);
    cr_expect_float_eq(slow / 2000.0, p, 5 * sqrt(p * (1 - p) / 2000), "%u", slow);
    ds_monte_carlo_deinit(&mc);
}

Test(jitter, seeds_repeat_and_threads_do_not_matter) {
    static const char text[] =
        "compute = gamma(shape = 20), network = lognormal(sigma = 0.3), runs = 60";
    ds_monte_carlo one = runs(8, 4, text, 1), five = runs(8, 4, text, 5);
    cr_assert_eq(one.n_runs, five.n_runs);
    for (uint32_t i = 0; i < one.n_runs; i++) {
        cr_expect_eq(one.step_ps[i], five.step_ps[i]);
        cr_expect_eq(one.busiest[i], five.busiest[i]);
    }
    cr_expect_eq(memcmp(one.percentile_ps, five.percentile_ps, sizeof one.percentile_ps), 0);
    /* a run is what it is, however many there are */
    ds_monte_carlo few =
        runs(8, 4, "compute = gamma(shape = 20), network = lognormal(sigma = 0.3), runs = 7", 2);
    for (uint32_t i = 0; i < few.n_runs; i++) cr_expect_eq(few.step_ps[i], one.step_ps[i]);
    /* another seed, other runs */
    sim_case c;
    load(&c, 8, 4, text, true);
    ds_jitter jitter;
    ds_monte_carlo other;
    ds_error err;
    cr_assert_eq(ds_jitter_read(&c.binding, &jitter, &err), DS_OK);
    cr_expect_eq(jitter.seed, 11);
    jitter.seed = 12;
    cr_assert_eq(ds_monte_carlo_run(c.result->plan, &jitter, 0, 2, &other, &err), DS_OK);
    uint32_t equal = 0;
    for (uint32_t i = 0; i < one.n_runs; i++) equal += one.step_ps[i] == other.step_ps[i];
    cr_expect_eq(equal, 0);
    sim_free(&c);
    ds_monte_carlo_deinit(&one);
    ds_monte_carlo_deinit(&five);
    ds_monte_carlo_deinit(&few);
    ds_monte_carlo_deinit(&other);
}

/* Percentiles are order statistics: of 20 runs the 5th is the least, the 95th the last but one. */
Test(jitter, percentiles_are_runs) {
    ds_monte_carlo mc = runs(2, 2, "compute = uniform(min = 0.5), runs = 20", 2);
    uint32_t below = 0;
    for (uint32_t i = 0; i < 20; i++) below += mc.step_ps[i] <= mc.percentile_ps[1];
    cr_expect_eq(below, 10);
    cr_expect_eq(mc.percentile_ps[0], mc.least_ps);
    cr_expect_lt(mc.percentile_ps[3], mc.most_ps);
    cr_expect_eq(mc.percentile_ps[4], mc.most_ps);
    ds_monte_carlo_deinit(&mc);
}

/* Two transfers share a link; all that they do takes twice as long, in waits and in bytes. */
#define SHARED                                                                                     \
    "dir 1\ntopology @box {\n  device a[2] : \"A100-SXM4-80GB\", b[2] : \"A100-SXM4-80GB\"\n"      \
    "  switch l, r\n  link a[i] -- l : 100 GB/s, 1 us for i in 0..2\n"                             \
    "  link b[i] -- r : 100 GB/s, 1 us for i in 0..2\n  link l -- r : 10 GB/s, 2 us\n}\n"          \
    "func @f(%x: f32[1000000] on @box.a[0], %y: f32[2000000] on @box.a[1]) ->"                     \
    " (f32[1000000] on @box.b[0], f32[2000000] on @box.b[1]) {\n"                                  \
    "  %u = send(%x) to @box.b[0]\n  %v = send(%y) to @box.b[1]\n  return %u, %v\n}\n"             \
    "scenario {\n  program = @f\n  jitter { network = "

Test(jitter, transfers_that_share_links_take_longer_in_all_they_do) {
    sim_case c;
    sim_run_text(&c, SHARED "bernoulli(probability = 1, factor = 2), runs = 2 }\n}\n", NULL, true);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    /* 12 MB at 10 GB/s behind 4 us */
    cr_assert_eq(c.result->run.step_ps, 1204 * US);
    ds_monte_carlo mc = runs_of(&c, 1);
    cr_expect_eq(mc.step_ps[0], 2408 * US);
    cr_expect_eq(mc.step_ps[1], 2408 * US);
    ds_monte_carlo_deinit(&mc);
    sim_free(&c);
    sim_run_text(&c, SHARED "uniform(min = 0.9), runs = 50 }\n}\n", NULL, true);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    mc = runs_of(&c, 2);
    for (uint32_t i = 0; i < mc.n_runs; i++)
        cr_expect(mc.step_ps[i] >= 1083 * US && mc.step_ps[i] <= 1325 * US);
    cr_expect_neq(mc.step_ps[0], mc.step_ps[1]);
    ds_monte_carlo_deinit(&mc);
    sim_free(&c);
}

Test(jitter, one_cannot_stand_for_several) {
    sim_case c;
    load(&c, 4, 1, "compute = normal(sigma = 0.1)", false);
    ds_jitter jitter;
    ds_monte_carlo mc;
    ds_error err;
    cr_assert_eq(ds_jitter_read(&c.binding, &jitter, &err), DS_OK);
    cr_expect_eq(jitter.runs, 100);
    cr_assert_eq(ds_monte_carlo_run(c.result->plan, &jitter, 0, 1, &mc, &err), DS_ERR_UNSUPPORTED);
    cr_expect_not_null(strstr(err.message, "one stands for 4"), "%s", err.message);
    sim_free(&c);
}
