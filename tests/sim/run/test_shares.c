/* Unequal parts of a batch over unequal devices: the slowest part sets the pace, and dp_shares =
 * time finds the parts with which it is fastest. */
#include "ir/base/rng.h"
#include "sim/run/shares.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Two A100s (19.5 TFLOP/s in f32, 2,039 GB/s) and two V100s (15.67 TFLOP/s, 897 GB/s) by NVIDIA's
 * data sheets. The forward pass of one layer sends nothing. */
#define MIXED(strategy)                                                                            \
    "dir 1\nparam a = 1, b = 1, samples = 192\n"                                                   \
    "import \"models/mlp.dir\" as m with layers = 1, width = 4096, batch = samples\n"              \
    "topology @t {\n  device fast[2] : \"A100-SXM4-80GB\", slow[2] : \"V100-SXM2-32GB\"\n"         \
    "  switch s\n  link fast[i] -- s : 100 GB/s, 1 us for i in 0..2\n"                             \
    "  link slow[i] -- s : 100 GB/s, 1 us for i in 0..2\n}\n"                                      \
    "scenario { model = @m.mlp, on = @t, train = off\n  strategy { " strategy " } }\n"

static void run(sim_case *c, const char *text, const char *settings, bool unfold) {
    sim_run_text(c, text, settings, unfold);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
}

/* A product, the larger of its FLOPs and of its bytes; then relu's bytes, read and written. */
static double layer_s(double samples, double flop_per_s, double bytes_per_s) {
    double w = 4096, product = 2 * samples * w * w / flop_per_s;
    double bytes = (w * w + 2 * samples * w) * 4 / bytes_per_s;
    return (product > bytes ? product : bytes) + 2 * samples * w * 4 / bytes_per_s;
}

static double fast_s(double samples) {
    return layer_s(samples, 19.5e12, 2039e9);
}

static double slow_s(double samples) {
    return layer_s(samples, 15.67e12, 897e9);
}

Test(shares, the_slowest_part_sets_the_pace) {
    static const int shares[][2] = {{1, 1}, {2, 1}, {1, 2}, {3, 1}, {5, 3}};
    for (uint32_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        char settings[64];
        sim_case c;
        int a = shares[i][0], b = shares[i][1], samples = 96 * 2 * (a + b);
        snprintf(settings, sizeof settings, "a=%d b=%d samples=%d", a, b, samples);
        run(&c, MIXED("dp = 4, dp_shares = [a, a, b, b]"), settings, false);
        double fast = fast_s(96.0 * a), slow = slow_s(96.0 * b);
        double want = 1e12 * (fast > slow ? fast : slow);
        cr_expect(fabs((double)c.result->run.step_ps - want) < 4, "%s: %lld ps, not %.0f", settings,
                  (long long)c.result->run.step_ps, want);
        cr_expect_eq(c.result->plan->n_classes, 2, "equal devices with equal parts are alike");
        sim_free(&c);
    }
}

/* All that can be had with parts of 24 samples each, two of a kind: 12 - n for the slow ones. */
Test(shares, time_finds_the_fastest) {
    int64_t best = INT64_MAX;
    sim_case c;
    for (int n = 1; n < 12; n++) {
        char settings[64];
        snprintf(settings, sizeof settings, "a=%d b=%d samples=24", n, 12 - n);
        run(&c, MIXED("dp = 4, dp_shares = [a, a, b, b]"), settings, false);
        if (c.result->run.step_ps < best) best = c.result->run.step_ps;
        sim_free(&c);
    }
    run(&c, MIXED("dp = 4, dp_shares = time"), "samples=24", false);
    cr_expect_leq(c.result->run.step_ps, best);
    cr_expect(c.result->step->strategy.dp_shares_by_time);
    cr_expect_not(ds_shares_wanted(&c.binding), "they have been found");
    sim_free(&c);
    run(&c, MIXED("dp = 4, dp_shares = time"), "samples=1920", false);
    double even = 1e12 * slow_s(480), bound = 1e12 * slow_s(1920 * 15.67 / (15.67 + 19.5) / 2);
    cr_expect((double)c.result->run.step_ps < 0.93 * even);
    cr_expect((double)c.result->run.step_ps < 1.02 * bound, "%lld, %f",
              (long long)c.result->run.step_ps, bound);
    sim_free(&c);
}

/* No worse than the best of parts in steps of 30 samples. */
Test(shares, time_of_groups) {
#define GROUPS(shares)                                                                             \
    "dir 1\nparam a = 1, b = 1\n"                                                                  \
    "import \"models/mlp.dir\" as m with layers = 1, width = 4096, batch = 1800\n"                 \
    "topology @t {\n  device f : \"A100-SXM4-80GB\", s : \"V100-SXM2-32GB\"\n"                     \
    "  link f -- s : 100 GB/s, 1 us\n}\nmesh @all = [dp = 2] on @t\n"                              \
    "scenario { model = @m.mlp, on = @t, train = off\n"                                            \
    "  strategy { group \"g\" { ops = [\"**\"], on = @all, shares = " shares " } } }\n"
    int64_t best = INT64_MAX;
    sim_case c;
    for (int n = 900; n < 1800; n += 30) {
        char settings[64];
        snprintf(settings, sizeof settings, "a=%d b=%d", n, 1800 - n);
        run(&c, GROUPS("[a, b]"), settings, false);
        if (c.result->run.step_ps < best) best = c.result->run.step_ps;
        sim_free(&c);
    }
    run(&c, GROUPS("time"), NULL, false);
    cr_expect_leq(c.result->run.step_ps, best);
    cr_expect_not(ds_shares_wanted(&c.binding), "they have been found");
    sim_free(&c);
}

/* Adam comes after the replicas have met: parts with which all that they compute is as long (4541
 * of 6000 samples) are not the fastest, nor those proportional to speed (4257). All parts of 50
 * samples around them are simulated. */
Test(shares, what_comes_after_the_meeting_does_not_count) {
#define TRAINED(shares)                                                                            \
    "dir 1\nparam a = 1, b = 1\n"                                                                  \
    "import \"models/mlp.dir\" as m with layers = 4, width = 4096, batch = 6000\n"                 \
    "topology @t {\n  device f : \"A100-SXM4-80GB\", s : \"V100-SXM2-32GB\"\n"                     \
    "  link f -- s : 100 GB/s, 2 us\n}\n"                                                          \
    "scenario { model = @m.mlp, on = @t, train { loss = mse, optimizer = adam, dtype = f16 }\n"    \
    "  strategy { dp = 2, dp_shares = " shares " } }\n"
    int64_t best = INT64_MAX, at = 0;
    sim_case c;
    for (int n = 4100; n <= 4700; n += 50) {
        char settings[64];
        snprintf(settings, sizeof settings, "a=%d b=%d", n, 6000 - n);
        run(&c, TRAINED("[a, b]"), settings, false);
        if (c.result->run.step_ps < best) {
            best = c.result->run.step_ps;
            at = n;
        }
        sim_free(&c);
    }
    run(&c, TRAINED("time"), NULL, false);
    cr_expect_leq(c.result->run.step_ps, best, "%lld ps, but %lld with %lld samples",
                  (long long)c.result->run.step_ps, (long long)best, (long long)at);
    sim_free(&c);
}

Test(shares, too_few_samples) {
    sim_case c;
    sim_run_text(&c, MIXED("dp = 4, dp_shares = time"), "samples=3", false);
    cr_assert_eq(c.status, DS_ERR_VALUE);
    cr_expect(strstr(c.err.message, "3 samples for 4 replicas") != NULL, "%s", c.err.message);
    sim_free(&c);
}

Test(shares, a_part_beyond_what_is_counted) {
    sim_case c;
    sim_run_text(&c, MIXED("dp = 4, dp_shares = [9223372036854775807, 1, 1, 1]"), NULL, false);
    cr_assert_eq(c.status, DS_ERR_VALUE);
    cr_expect(strstr(c.err.message, "it must be at most 2147483647") != NULL, "%s", c.err.message);
    sim_free(&c);
}

/* Trained, with what is sent: folded and unfolded agree. */
Test(shares, folded_is_unfolded) {
    static const char *const strategies[] = {
        "dp = 4, dp_shares = [3, 3, 1, 1], zero = 1", "dp = 4, dp_shares = [1, 3, 3, 1], zero = 3",
        "dp = 2, tp = 2, dp_shares = [3, 1], microbatches = 2",
        "pp = 2, dp = 2, dp_shares = [1, 3], microbatches = 2"};
    for (uint32_t i = 0; i < 4; i++) {
        char text[2048];
        sim_case folded, unfolded;
        snprintf(text, sizeof text,
                 "dir 1\nimport \"models/gpt.dir\" as g with layers = 2, hidden = 64, heads = 4, "
                 "vocab = 128, seq = 32, batch = 16\n"
                 "topology @t {\n  device fast[2] : \"A100-SXM4-80GB\", slow[2] : "
                 "\"V100-SXM2-32GB\"\n  switch s\n"
                 "  link fast[i] -- s : 100 GB/s, 1 us for i in 0..2\n"
                 "  link slow[i] -- s : 100 GB/s, 1 us for i in 0..2\n}\n"
                 "scenario { model = @g.gpt, on = @t, train { optimizer = adam }\n"
                 "  strategy { %s } }\n",
                 strategies[i]);
        run(&folded, text, NULL, false);
        run(&unfolded, text, NULL, true);
        cr_expect_eq(folded.result->run.step_ps, unfolded.result->run.step_ps, "%s", strategies[i]);
        cr_expect_eq(folded.result->metrics.peak_bytes, unfolded.result->metrics.peak_bytes, "%s",
                     strategies[i]);
        sim_free(&folded);
        sim_free(&unfolded);
    }
}

/* The longest part, 600 rows, sends three quarters of its 2.4 MB at 10 GB/s; the route takes 2 us.
 */
Test(shares, unequal_parts_change_dims) {
    static const char *const ops[] = {"all_to_all(%x) over dp dim 0 -> 1",
                                      "reshard(%x) : f32[1600, 1000@dp]",
                                      "all_to_all(%x) over dp dim 0 -> 1 {algorithm = \"pxn\"}"};
    for (uint32_t i = 0; i < 3; i++) {
        char text[1024];
        sim_case c;
        snprintf(text, sizeof text,
                 "dir 1\ntopology @t {\n  device d[4] : \"A100-SXM4-80GB\"\n  switch s\n"
                 "  link d[i] -- s : 10 GB/s, 1 us for i in 0..4\n}\nmesh @m = [dp = 4] on @t\n"
                 "func @f(%%x: f32[1600@dp[600, 600, 200, 200], 1000]) -> f32[1600, 1000@dp] {\n"
                 "  %%y = %s\n  return %%y\n}\nscenario { program = @f }\n",
                 ops[i]);
        sim_run_text(&c, text, NULL, i == 1);
        cr_expect_eq(c.status, i < 2 ? DS_OK : DS_ERR_UNSUPPORTED, "%s", c.err.message);
        if (i < 2) cr_expect_eq(c.result->run.step_ps, INT64_C(182000000), "%s", ops[i]);
        sim_free(&c);
    }
}

/* ---- the choice of parts ---- */

/* The least maximum over all parts of `left` samples for the replicas from i on. */
static double least_maximum(const double *fixed, const double *each, uint32_t i, uint32_t n,
                            int64_t left) {
    if (i + 1 == n) return fixed[i] + each[i] * (double)left;
    double best = INFINITY;
    for (int64_t part = 1; part <= left - (int64_t)(n - 1 - i); part++) {
        double own = fixed[i] + each[i] * (double)part;
        double rest = least_maximum(fixed, each, i + 1, n, left - part);
        double most = own > rest ? own : rest;
        if (most < best) best = most;
    }
    return best;
}

Test(shares, parts_against_all_parts) {
    ds_rng rng = {11};
    for (int k = 0; k < 300; k++) {
        uint32_t n = 2 + (uint32_t)ds_rng_below(&rng, 3);
        int64_t samples = (int64_t)n + (int64_t)ds_rng_below(&rng, 20), parts[4], sum = 0;
        double fixed[4], each[4], most = 0;
        for (uint32_t i = 0; i < n; i++) {
            fixed[i] = 10 * ds_rng_uniform(&rng);
            each[i] = 0.1 + ds_rng_uniform(&rng);
        }
        ds_shares_choose(fixed, each, n, samples, parts);
        for (uint32_t i = 0; i < n; i++) {
            double time = fixed[i] + each[i] * (double)parts[i];
            if (time > most) most = time;
            sum += parts[i];
            cr_assert_geq(parts[i], 1);
        }
        cr_assert_eq(sum, samples);
        double best = least_maximum(fixed, each, 0, n, samples);
        cr_assert(most <= best * (1 + 1e-12), "case %d: %g, not %g", k, most, best);
    }
}
