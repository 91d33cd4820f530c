/* Sufficient factors of models: the problem that is read off a simulated step, by its formula, and steps
 * with the choice against steps without. That the step stays the same: test_property_groups.c. */
#include "ir/strategy/scenario.h"
#include "sim/run/factors.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TWO_V100                                                                                   \
    "topology @box {\n  device gpu[2] : \"V100-SXM2-32GB\"\n  switch net\n"                        \
    "  link gpu[i] -- net : 2810 MB/s, 1350 ns for i in 0..2\n}\n"

static const char *const all_ops[] = {"**"};
static const ds_op_group all = {.name = "all", .ops = (const char **)all_ops, .n_ops = 1};

/* One product of 4096 x 2048 weights. The gradient of %x is not asked for. */
static const char product[] =
    "dir 1\nparam batch = 16\n" TWO_V100
    "func @net(%x: f32[batch@dp, 4096]) -> f32[batch, 2048] {\n"
    "  weight %w : f32[4096, 2048]\n  %a = matmul(%x, %w)\n  return %a\n}\n"
    "scenario { model = @net, on = @box, profile = ideal\n"
    "  train { loss = mse, optimizer = sgd }, strategy { dp = 2 } }\n";

static double task_us(const sim_case *c, const char *path) {
    uint32_t task = sim_task(c, NULL, path);
    cr_assert_neq(task, UINT32_MAX);
    return (double)(c->result->run.end_ps[task] - c->result->run.start_ps[task]) / 1e6;
}

/* T + 1 us, x and dy of one replica gathered, 2 (M - 1) / M of the gradient not reduced. */
Test(factors, the_problem_of_one_product) {
    for (int batch = 16; batch <= 4096; batch *= 4) {
        char settings[32];
        sim_case c;
        ds_arena arena = {0};
        ds_factors f;
        ds_error err;
        snprintf(settings, sizeof settings, "batch=%d", batch);
        sim_run_text(&c, product, settings, false);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        double time = round(task_us(&c, "a.dw")), gathered = batch / 2 * (4096 + 2048) * 4.0;
        double wanted = time + 1 + gathered / 2810 - 4096.0 * 2048 * 4 / 2810;
        cr_assert_eq(ds_factors_choose(c.result, &all, &arena, &f, &err), DS_OK, "%s", err.message);
        cr_expect_eq(f.n_replicas, 2);
        cr_expect_eq(f.mb_per_s, 2810);
        cr_expect_eq(f.n, wanted < 0, "%d samples: %.2f us", batch, wanted);
        cr_expect(f.n == 0 || strcmp(f.op[0], "a.dw") == 0);
        cr_expect(fabs(f.choice.cost_us - (wanted < 0 ? wanted : 0)) < 0.01, "%.3f us, not %.3f",
                  f.choice.cost_us, wanted);
        ds_arena_deinit(&arena);
        sim_free(&c);
    }
}

/* A step with one device has nothing to reduce. */
Test(factors, no_replicas) {
    static const char text[] =
        "dir 1\nimport \"models/mlp.dir\" as m with layers = 1, width = 64, batch = 8\n"
        "topology @t { device gpu[1] : \"V100-SXM2-32GB\" }\n"
        "scenario { model = @m.mlp, on = @t, profile = ideal\n"
        "  train { loss = mse, optimizer = sgd }, strategy { dp = 1 } }\n";
    sim_case c;
    ds_arena arena = {0};
    ds_factors f;
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect_eq(ds_factors_choose(c.result, &all, &arena, &f, NULL), DS_OK);
    cr_expect_eq(f.n_replicas, 0);
    cr_expect_eq(f.n, 0);
    ds_arena_deinit(&arena);
    sim_free(&c);
}

/* ---- models, with and without ---- */

/* The step on two V100s at 2810 MB/s, in ms; `n` gets the operations that are whole. */
static double step_ms(const char *model, const char *with, int batch, const char *strategy,
                      uint32_t *n) {
    char text[1024], settings[32];
    sim_case c;
    snprintf(text, sizeof text,
             "dir 1\nparam batch = 6\n" TWO_V100
             "mesh @all = [dp = 2] on @box\nimport \"models/%s.dir\" as m with batch = batch%s\n"
             "scenario { model = @m.%s, on = @box, profile = ideal\n"
             "  train { loss = none, optimizer = sgd }, strategy { dp = 2\n %s } }\n",
             model, with, model, strategy);
    snprintf(settings, sizeof settings, "batch=%d", batch);
    sim_run_text(&c, text, settings, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    double ms = (double)c.result->run.step_ps / 1e9;
    const ds_attr *groups = ds_strategy_groups(c.unit);
    *n = 0;
    for (uint32_t i = 0; groups && i < groups->n_items; i++)
        if (strcmp(groups->items[i].name, "all factors") == 0)
            *n = ds_attr_find(groups->items[i].items, groups->items[i].n_items, "ops")->n_items;
    sim_free(&c);
    return ms;
}

#define SFB "group \"all\" { ops = [\"**\"], by = sfb }"
static const char duplicated[] = "ops { \"head.fc?\" = on @all [] }";

/* Whole layers of the head on both GPUs are 5.46 times as fast as plain data parallelism at batch 6, 1.16
 * times at batch 60 and slower at batch 600. Sufficient factors are faster at 6 and 60; at 600 the
 * reductions hide under compute, and no operation is whole. */
Test(factors, vgg19) {
    static const int batches[] = {6, 60, 600};
    for (int i = 0; i < 3; i++) {
        uint32_t n;
        double plain = step_ms("vgg19", "", batches[i], "", &n);
        double whole = step_ms("vgg19", "", batches[i], duplicated, &n);
        double factors = step_ms("vgg19", "", batches[i], SFB, &n);
        if (i == 2) {
            cr_expect_gt(whole, plain);
            cr_expect_eq(factors, plain);
            cr_expect_eq(n, 0);
            continue;
        }
        cr_expect_lt(factors, whole, "batch %d: %.2f ms, %.2f ms", batches[i], factors, whole);
        cr_expect_lt(factors, plain / (i ? 1.16 : 6.98), "batch %d: %.2f ms of %.2f", batches[i],
                     factors, plain);
        cr_expect_eq(n, i ? 6 : 12);
    }
}

/* The 63 million weights of the Transformer and few words: 2.25 times as fast. A batch of eight times
 * as many words is better reduced. */
Test(factors, transformer) {
    uint32_t n;
    double plain = step_ms("transformer", "", 6, "", &n);
    cr_expect_lt(step_ms("transformer", "", 6, SFB, &n), plain / 2.25);
    cr_expect_eq(n, 17);
    plain = step_ms("transformer", "", 48, "", &n);
    cr_expect_eq(step_ms("transformer", "", 48, SFB, &n), plain);
    cr_expect_eq(n, 0);
}

/* Gradients are summed over microbatches before they are reduced, factors are gathered in each. */
Test(factors, microbatches) {
    uint32_t n;
    double plain = step_ms("vgg19", "", 12, "microbatches = 2", &n);
    double whole =
        step_ms("vgg19", "", 12, "microbatches = 2\nops { \"head.fc?\" = on @all [] }", &n);
    double factors = step_ms("vgg19", "", 12, "microbatches = 2\n" SFB, &n);
    cr_expect_lt(factors, whole, "%.2f ms, %.2f ms", factors, whole);
    cr_expect_lt(factors, plain / 4, "%.2f ms of %.2f", factors, plain);
    cr_expect_gt(n, 0);
}

/* A group of one layer leaves the others as they are; the cost of one bottleneck gathers less. */
Test(factors, the_group_and_its_cost) {
    uint32_t n;
    step_ms("vgg19", "", 6, "group \"all\" { ops = [\"head.fc2\"], by = sfb }", &n);
    cr_expect_eq(n, 1);
    step_ms("vgg19", "", 6, "group \"all\" { ops = [\"**\"], by = sfb, sfb_cost = serial }", &n);
    cr_expect_eq(n, 5);
}

/* Another group has a backward operation: it is not chosen. */
Test(factors, an_operation_of_another_group) {
    uint32_t n;
    step_ms("vgg19", "", 6,
            "group \"all\" { ops = [\"head.fc?\"], by = sfb }\n"
            "group \"own\" { ops = [\"head.fc2.dw\"], by = duplicate }",
            &n);
    cr_expect_eq(n, 2);
}
