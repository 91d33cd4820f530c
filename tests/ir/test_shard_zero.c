/* ZeRO: what each stage leaves of weights, gradients and states on a device, what it sends, and
 * that the step stays the same step.
 *
 * The formulas are those of Rajbhandari et al., ZeRO, arXiv:1910.02054: with P parameters in 16
 * bits, gradients in 16 bits, and K = 12 bytes of Adam's states in 32 bits (section 3.1), on n
 * replicas (figure 1, section 7.2). */
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include "ir/lang/scenario.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOX                                                                                        \
    "topology @box {\n"                                                                            \
    "  device gpu[16] : \"A100-SXM4-80GB\"\n"                                                      \
    "  switch sw\n"                                                                                \
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..16\n"                                        \
    "}\n"

#define STRATEGY                                                                                   \
    "  strategy { dp = dp, tp = tp, cp = 1, zero = zero, zero_group = group, microbatches = m,\n"  \
    "             prefetch = prefetch }\n"

#define KNOBS "dp = 4, tp = 1, zero = 0, group = dp, m = 1, prefetch = 1"

/* Layers of a residual block with a bias, in a loop. */
static const char mlp[] =
    "dir 1\nparam layers = 3, width = 8, batch = 48, " KNOBS "\n" BOX
    "func @mlp(%x: f32[batch@dp, width]) -> f32[batch@dp, width] {\n"
    "  %y = for l in 0..layers carry (%h: f32[batch@dp, width] = %x) {\n"
    "    weight %w1 : f32[width, 4 * width@tp]\n"
    "    weight %b1 : f32[4 * width@tp]\n"
    "    weight %w2 : f32[4 * width@tp, width]\n"
    "    %z = matmul(%h, %w1)\n"
    "    %s = add(%z, %b1)\n"
    "    %a = gelu(%s)\n"
    "    %b = matmul(%a, %w2)\n"
    "    %d = add(%b, %h)\n"
    "    yield %d\n"
    "  }\n"
    "  return %y\n"
    "}\n"
    "scenario {\n  model = @mlp\n  on = @box\n"
    "  train { loss = mse, optimizer = adam, dtype = f16, grad_dtype = f16 }\n" STRATEGY "}\n";

/* One table read twice, layers outside of loops, a bias of an odd size, a loop without weights. */
static const char odd[] =
    "dir 1\nparam width = 6, rows = 10, batch = 48, " KNOBS "\n" BOX
    "func @odd(%ids: i32[batch@dp]) -> f32[] {\n"
    "  weight %table : f32[rows, width]\n"
    "  weight %u : f32[width, 2 * width]\n"
    "  weight %c : f32[5]\n"
    "  weight %v : f32[2 * width, width]\n"
    "  %e = embedding(%ids, %table)\n"
    "  %p = matmul(%e, %u)\n"
    "  %q = tanh(%p)\n"
    "  %r = matmul(%q, %v)\n"
    "  %t = for l in 0..2 carry (%h = %r) {\n"
    "    %n = rms_norm(%h)\n"
    "    yield %n\n"
    "  }\n"
    "  %logits = einsum(%t, %table) {rule = \"b w, r w -> b r\"}\n"
    "  %ce = cross_entropy(%logits, %ids)\n"
    "  %cc = mul(%c, %c)\n"
    "  %c1 = reduce_mean(%cc)\n"
    "  %loss = add(%ce, %c1)\n"
    "  return %loss\n"
    "}\n"
    "scenario {\n  model = @odd\n  on = @box\n"
    "  train { loss = none, optimizer = adamw, keep_gradients = true }\n" STRATEGY "}\n";

/* ---- the same step ---- */

static void expect_equal(const char *text, const char *settings) {
    proof_options options = {.settings = settings, .seed = 1};
    proof result;
    prove(text, &options, &result);
    cr_expect_eq(result.verdict, PROOF_EQUAL, "%s: %s: %s", settings,
                 proof_verdict_name(result.verdict), result.what);
}

static const char *const strategies[] = {
    "dp=4",
    "dp=2 tp=2",
    "dp=4 tp=2",
    "dp=4 group=2",
    "dp=6 group=3",
    "dp=3",
    "dp=6 group=2 tp=2",
    "dp=4 m=2",
    "dp=2 tp=2 m=3",
    "dp=4 group=2 m=4",
    "dp=2 width=7",
    "dp=4 width=5",
    "dp=4 prefetch=0",
    "dp=4 prefetch=2 m=2",
    "dp=4 prefetch=9",
};

#define N_STRATEGIES (sizeof strategies / sizeof *strategies)

static void expect_all_equal(const char *text, int zero) {
    for (size_t i = 0; i < N_STRATEGIES; i++) {
        char settings[128];
        snprintf(settings, sizeof settings, "zero=%d %s", zero, strategies[i]);
        expect_equal(text, settings);
    }
}

Test(zero, stage_0_is_the_same_step) {
    expect_all_equal(mlp, 0);
    expect_all_equal(odd, 0);
}

Test(zero, stage_1_is_the_same_step) {
    expect_all_equal(mlp, 1);
    expect_all_equal(odd, 1);
}

Test(zero, stage_2_is_the_same_step) {
    expect_all_equal(mlp, 2);
    expect_all_equal(odd, 2);
}

Test(zero, stage_3_is_the_same_step) {
    expect_all_equal(mlp, 3);
    expect_all_equal(odd, 3);
}
