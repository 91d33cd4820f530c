/* Other machines and left-out terms: closed forms, timelines by hand, and the critical path's
 * derivatives against runs with 1 % more. */
#include "tests/support/sim.h"

#include "sim/report/analysis.h"
#include "tests/support/cases.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define US INT64_C(1000000)

/* Four devices on a switch: 10 GB/s and 1 us a link; the data sheet's peaks, 125 TFLOP/s in f16 and
 * 897 GB/s (cost_profiles/catalogue). */
#define HEAD                                                                                       \
    "dir 1\n"                                                                                      \
    "topology @t {\n"                                                                              \
    "  device d[4] : \"V100-SXM2-16GB\"\n"                                                         \
    "  switch s\n  switch far\n"                                                                   \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..4\n"                                             \
    "  link s -- far : 1 GB/s, 1 us\n"                                                             \
    "}\n"                                                                                          \
    "mesh @m = [dp = 4] on @t\n"

static int64_t step(const char *body, const char *scenario) {
    sim_case c;
    ds_buf text = {0};
    ds_buf_printf(&text, HEAD "func @f(%s\nscenario { program = @f, profile = \"ideal\"%s }\n",
                  body, scenario);
    sim_run_text(&c, text.text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s: %s", scenario, c.err.message);
    int64_t ps = c.result->run.step_ps;
    sim_free(&c);
    ds_buf_deinit(&text);
    return ps;
}

static void refused(const char *scenario) {
    sim_case c;
    ds_buf text = {0};
    ds_buf_printf(&text,
                  HEAD "func @f(%%x: f32[8] on @m) {\n  return\n}\nscenario { program = @f%s }\n",
                  scenario);
    sim_run_text(&c, text.text, NULL, false);
    cr_expect_neq(c.status, DS_OK, "%s", scenario);
    sim_free(&c);
    ds_buf_deinit(&text);
}

/* 2 * 5000^3 FLOP at 125 TFLOP/s: 2 ms. */
#define PRODUCT                                                                                    \
    "%x: f16[5000, 5000] on @t.d[0], %w: f16[5000, 5000] on @t.d[0]) {\n"                          \
    "  %y = matmul(%x, %w)\n  return\n}"
/* 2 * 897,000,000 bytes at 897 GB/s: 2 ms. */
#define COPY "%x: f32[224250000] on @t.d[0]) {\n  %y = relu(%x)\n  return\n}"
/* A ring of four, 40 MB: 6 us and 2 * 3/4 * 40 MB at 10 GB/s, 6 ms; a route has two links. */
#define REDUCE                                                                                     \
    "%x: f32[10000000] partial(dp) on @m) {\n"                                                     \
    "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n  return\n}"

Test(ladder, other_machines_by_closed_forms) {
    cr_expect_eq(step(PRODUCT, ""), 2000 * US);
    cr_expect_eq(step(PRODUCT, ", what_if = \"compute * 1.6\""), 1250 * US);
    cr_expect_eq(step(PRODUCT, ", what_if = [\"compute * 2\", \"compute * 2\"]"), 500 * US);
    cr_expect_eq(step(PRODUCT, ", what_if = [\"memory * 2\", \"link * 2\", \"host * 2\"]"),
                 2000 * US);
    cr_expect_eq(step(COPY, ""), 2000 * US);
    cr_expect_eq(step(COPY, ", what_if = \"memory * 0.5\""), 4000 * US);
    cr_expect_eq(step(COPY, ", what_if = \"compute * 2\""), 2000 * US);
    /* 150 MB moved beside 2 ms of FLOPs: 0.167224 us; at a 20th of the rate
     * 3.34448 ms. */
    cr_expect_eq(step(PRODUCT, ", what_if = \"memory * 0.1\""), 2000 * US);
    int64_t by_memory = step(PRODUCT, ", what_if = \"memory * 0.05\"");
    cr_expect_leq(llabs(by_memory - 3344481605), 2, "sides are compared in 2^-32");
}

Test(ladder, other_links_by_closed_forms) {
    cr_expect_eq(step(REDUCE, ""), 6012 * US);
    cr_expect_eq(step(REDUCE, ", what_if = \"link * 2\""), 3012 * US);
    cr_expect_eq(step(REDUCE, ", what_if = \"link d * 2\""), 3012 * US);
    cr_expect_eq(step(REDUCE, ", what_if = \"link s--d * 0.5\""), 12012 * US);
    cr_expect_eq(step(REDUCE, ", what_if = \"link far * 10\""), 6012 * US);
    cr_expect_eq(step(REDUCE, ", what_if = [\"link d * 2\", \"link s * 2\", \"latency * 0.5\"]"),
                 1506 * US);
    cr_expect_eq(step(REDUCE, ", without = bandwidth"), 12 * US);
    cr_expect_eq(step(REDUCE, ", without = [bandwidth, transfers]"), 0);
    refused(", what_if = \"link e * 2\"");
    refused(", what_if = \"link d--far * 2\"");
    refused(", what_if = \"compute * 0\"");
    refused(", what_if = \"compute 2\"");
    refused(", what_if = \"power * 2\"");
    refused(", what_if = \"compute * nan\"");
    refused(", without = waits, network = stepwise");
}

/* matmul 4, its result's permute 6, of which relu hides 2, then relu 1. */
#define BESIDE                                                                                     \
    "%x: f32[8, 8] on @m, %w: f32[8, 8] on @m) {\n"                                                \
    "  %y = matmul(%x, %w) {cost = 4 us}\n  %p = permute(%y) over dp {cost = 6 us}\n"              \
    "  %r = relu(%y) {cost = 2 us}\n  %s = relu(%p) {cost = 1 us}\n  return\n}"
/* d[0] computes 4 and sends 6, then d[1] computes 2. */
#define CHAIN                                                                                      \
    "%x: f32[8, 8] on @t.d[0]) {\n"                                                                \
    "  %y = relu(%x) {cost = 4 us}\n  %p = send(%y) to @t.d[1] {cost = 6 us}\n"                    \
    "  %s = relu(%p) {cost = 2 us}\n  return\n}"

Test(ladder, terms_by_hand) {
    cr_expect_eq(step(BESIDE, ""), 11 * US);
    cr_expect_eq(step(BESIDE, ", overlap = off"), 13 * US);
    cr_expect_eq(step(BESIDE, ", without = overlap"), 13 * US);
    cr_expect_eq(step(BESIDE, ", overlap = on"), 11 * US);
    cr_expect_eq(step(BESIDE, ", without = transfers"), 7 * US);
    cr_expect_eq(step(CHAIN, ""), 12 * US);
    cr_expect_eq(step(CHAIN, ", without = waits"), 10 * US);
    cr_expect_eq(step(CHAIN, ", without = [transfers, waits]"), 4 * US);
}

/* ---- sensitivity ---- */

/* A small GPT on two nodes: tensor, data and pipeline parallel. */
static const char model[] =
    "dir 1\n"
    "import \"models/gpt.dir\" as model with layers = 4, hidden = %d, heads = 8, seq = 256, vocab "
    "= 1024,"
    " batch = 16\n"
    "import \"topologies/dgx-h100-x2.dir\"\n"
    "scenario {\n  model = @model.gpt\n  on = @two\n  profile = \"%s\"%s\n"
    "  train { loss = none, optimizer = adam, dtype = bf16 }\n"
    "  strategy { dp = %d, tp = %d, pp = %d, microbatches = %d, zero = %d }\n}\n";

typedef struct shape {
    int hidden, dp, tp, pp, micro, zero;
    const char *profile;
} shape;

static void run(sim_case *c, const shape *s, const char *more) {
    ds_buf text = {0};
    ds_buf_printf(&text, model, s->hidden, s->profile, more, s->dp, s->tp, s->pp, s->micro,
                  s->zero);
    sim_run_text(c, text.text, NULL, false);
    cr_assert_eq(c->status, DS_OK, "%s: %s", text.text, c->err.message);
    ds_buf_deinit(&text);
}

Test(ladder, derivatives_of_the_path_are_those_of_runs) {
    static const shape shapes[] = {
        {512, 16, 1, 1, 1, 0, "generic"},         {1024, 2, 8, 1, 1, 1, "generic"},
        {1024, 4, 2, 2, 4, 0, "H100-SXM5-80GB"},  {2048, 2, 4, 2, 2, 1, "ideal"},
        {2048, 16, 1, 1, 1, 3, "H100-SXM5-80GB"}, {256, 1, 4, 4, 4, 0, "generic"},
    };
    static const char *const resources[] = {
        "compute", "memory", "link gpu--nvswitch", "link gpu--nic", "link nic--network",
        "latency", "host"};
    uint32_t same = 0, moved = 0;
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (uint32_t k = 0; k < sizeof resources / sizeof *resources; k++) {
            sim_case base, changed;
            char more[80];
            snprintf(more, sizeof more, ", what_if = \"%s * 1\"", resources[k]);
            run(&base, &shapes[i], more);
            snprintf(more, sizeof more, ", what_if = \"%s * 1.01\"", resources[k]);
            run(&changed, &shapes[i], more);
            ds_sensitivity s = ds_sensitivity_of(base.result, changed.result, resources[k]);
            cr_expect_eq(s.run_ps, changed.result->run.step_ps - base.result->run.step_ps);
            bool more_is_slower = k == 5;
            cr_expect(more_is_slower ? s.path_ps >= 0 : s.path_ps <= 0, "%s", resources[k]);
            if (s.path == DS_PATH_SAME) {
                same++;
                moved += s.run_ps != 0;
                cr_expect(llabs(s.path_ps - s.run_ps) * 10 <= llabs(s.run_ps), "%u, %s: %lld, %lld",
                          i, resources[k], (long long)s.path_ps, (long long)s.run_ps);
            }
            sim_free(&changed);
            sim_free(&base);
        }
    }
    cr_expect_geq(same, 20);
    cr_expect_geq(moved, 10);
}
