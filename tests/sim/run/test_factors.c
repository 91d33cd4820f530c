/* Sufficient factors of models: the problem that is read off a simulated step, by its formula, and steps
 * with the choice against steps without. */
#include "ir/strategy/scenario.h"
#include "sim/run/factors.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TWO_V100                                                                                   \
    "topology @box {\n  device gpu[2] : \"V100-SXM2-32GB\"\n  switch net\n"                        \
    "  link gpu[i] -- net : 2810 MB/s, 1350 ns for i in 0..2\n}\n"                                 \
    "mesh @all = [dp = 2] on @box\n"

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
        cr_assert_eq(ds_factors_choose(c.result, DS_SFB_NICS, &arena, &f, &err), DS_OK, "%s",
                     err.message);
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
    cr_expect_eq(ds_factors_choose(c.result, DS_SFB_NICS, &arena, &f, NULL), DS_OK);
    cr_expect_eq(f.n_replicas, 0);
    cr_expect_eq(f.n, 0);
    ds_arena_deinit(&arena);
    sim_free(&c);
}
