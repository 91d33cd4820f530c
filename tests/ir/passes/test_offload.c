/* The offload pass: which values go to the host and come back, and that the numbers stay. */
#include "ir/ops/ops.h"
#include "tests/support/cases.h"
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- proof ---- */

static const char *const choices[] = {"activations", "optimizer", "weights",
                                      "[activations, optimizer, weights]"};

typedef struct plan {
    const char *knobs;
    int devices;
} plan;

static const plan plans[] = {
    {"dp = 1", 1},
    {"dp = 2, tp = 2, sp = true, prefetch = 0", 4},
    {"dp = 2, zero = 1, microbatches = 2", 2},
    {"dp = 2, zero = 2, microbatches = 3, prefetch = 2", 2},
    {"dp = 2, tp = 2, zero = 3, microbatches = 2", 4},
    {"dp = 2, zero = 3, prefetch = 0, bucket_size = 100 B", 2},
    {"dp = 2, recompute = full", 2},
    {"tp = 2, recompute = \"every:2\", microbatches = 2", 2},
    {"tp = 2, recompute = selective, prefetch = 3", 2},
};

static void expect(const char *model, const char *with, const char *train, const char *offload,
                   const plan *on, bool texts) {
    char text[2048];
    proof found;
    proof_options options = {.seed = 1, .texts = texts, .ranks = texts};
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/%s.dir\" as m with %s\n"
             "topology @box {\n  device gpu[%d]\n  switch hub\n"
             "  link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..%d\n}\n"
             "scenario { model = @m.%s, on = @box, train { %s, keep_gradients = true "
             "}, strategy { %s, offload = %s } }\n",
             model, with, on->devices, on->devices, model, train, on->knobs, offload);
    prove(text, &options, &found);
    cr_expect(found.verdict == PROOF_EQUAL, "%s, %s, offload = %s: %s: %s", model, on->knobs,
              offload, proof_verdict_name(found.verdict), found.what);
    cr_expect(found.verdict != PROOF_EQUAL || found.zeros * 4 < found.compared,
              "%s: %u of %u results are zeros", model, found.zeros, found.compared);
}

/* Every `step`-th plan for each choice (every 4 · step-th in builds that take few cases), texts and
 * ranks with some. */
static void check(const char *model, const char *with, const char *train, size_t step) {
    if (FEW_CASES) step *= 4;
    for (size_t c = 0; c < sizeof choices / sizeof *choices; c++)
        for (size_t p = c % step; p < sizeof plans / sizeof *plans; p += step)
            expect(model, with, train, choices[c], &plans[p], p % 3 == 1);
}

#define SMALL "layers = 4, hidden = 8, heads = 4, seq = 4, vocab = 8, batch = 12"

Test(offload, gpt_gives_the_same_numbers) {
    check("gpt", SMALL, "optimizer = adam, dtype = bf16", 1);
}

Test(offload, llama_gives_the_same_numbers) {
    check("llama", SMALL ", kv_heads = 2, ffn = 16", "optimizer = momentum", 2);
}

/* Two loops, what the encoder made read by every turn of the decoder. */
Test(offload, t5_gives_the_same_numbers) {
    check("t5",
          "layers = 2, hidden = 8, heads = 4, head_dim = 2, ffn = 8, seq = 4, "
          "target_seq = 4, vocab = 8, batch = 12, head_scale = 0.25",
          "optimizer = adamw", 2);
}

/* What shard makes for attention over a split sequence is offloaded as it is read. */
Test(offload, split_sequences_give_the_same_numbers) {
    static const char *const types[] = {"ring", "ulysses", "all_gather"};
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof choices / sizeof *choices; c++) {
            char text[64];
            snprintf(text, sizeof text, "cp = 2, tp = 2, cp_type = %s", types[t]);
            expect("gpt", SMALL, "optimizer = adam", choices[c], &(plan){text, 4}, t == 0);
        }
}

/* ---- what goes where ---- */

/* A layer keeps %a, %b and its input; %s is read by the model itself, later. */
static const char mlp[] = "dir 1\n"
                          "param layers = 4, width = 8, batch = 8, dp = 2, zero = 0\n"
                          "topology @box {\n  device gpu[2]\n  host cpu\n"
                          "  link gpu[i] -- cpu : 16 GB/s, 1 us for i in 0..2\n}\n"
                          "func @mlp(%x: f32[batch@dp, width]) -> f32[batch, width] {\n"
                          "  %y, %s = for l in 0..layers carry (%h = %x) {\n"
                          "    weight %u : f32[width, width]\n"
                          "    weight %v : f32[width, width]\n"
                          "    %a = matmul(%h, %u)\n"
                          "    %b = gelu(%a)\n"
                          "    %c = matmul(%b, %v)\n"
                          "    yield %c keep %c\n"
                          "  }\n"
                          "  %z = add(%y, %s{1})\n"
                          "  return %z\n"
                          "}\n"
                          "scenario {\n  model = @mlp\n  on = @box\n"
                          "  train { loss = mse, optimizer = adam, dtype = bf16 }\n"
                          "  strategy { dp = dp, zero = zero, offload = OFFLOAD }\n}\n";

static void make(step_case *c, const char *offload, const char *settings, ds_pass_id last) {
    char text[2048];
    const char *at = strstr(mlp, "OFFLOAD");
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - mlp), mlp, offload, at + 7);
    step_make(c, text, settings, last);
}

static uint32_t count(const ds_block *block, ds_opcode code) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->n_ops; i++) {
        n += block->ops[i]->code == code;
        if (block->ops[i]->body) n += count(block->ops[i]->body, code);
    }
    return n;
}

static void expect_moves(const char *offload, const char *settings, uint32_t offloads,
                         uint32_t reloads) {
    step_case c;
    make(&c, offload, settings, DS_PASS_OFFLOAD);
    cr_assert_eq(c.status, DS_OK, "%s: %s", offload, c.err.message);
    cr_expect_eq(count(&c.step->func->body, DS_OP_OFFLOAD), offloads, "%s: %u offloads", offload,
                 count(&c.step->func->body, DS_OP_OFFLOAD));
    cr_expect_eq(count(&c.step->func->body, DS_OP_RELOAD), reloads, "%s: %u reloads", offload,
                 count(&c.step->func->body, DS_OP_RELOAD));
    free(step_text(&c));
    step_free(&c);
}

Test(offload, each_value_goes_once_and_comes_back_once) {
    /* h, a, b of a turn; %s stays: the model reads it */
    expect_moves("activations", "", 3, 3);
    /* m, v and master of u and v in a turn of updates */
    expect_moves("optimizer", "", 6, 6);
    /* u and v: forward, backward, update; and back once */
    expect_moves("weights", "", 2, 6);
    expect_moves("[activations, weights]", "", 5, 9);
    expect_moves("optimizer", "zero=1", 6, 6);
    expect_moves("weights", "zero=3", 2, 6);
    expect_moves("none", "", 0, 0);
}

Test(offload, arguments_and_results_are_on_the_host) {
    step_case c;
    make(&c, "[optimizer]", "", DS_PASS_OFFLOAD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    const ds_func *f = c.step->func;
    uint32_t args = 0, results = 0;
    for (uint32_t i = 0; i < f->n_args; i++) args += ds_value_at(f, f->args[i])->type->host;
    for (uint32_t i = 0; i < f->n_results; i++) results += f->results[i]->host;
    cr_expect_eq(args, 6, "m, v and master of two weights");
    cr_expect_eq(results, 6);
    step_free(&c);
}

/* ---- refusals ---- */

static void expect_refusal(const char *text, const char *settings, ds_status status,
                           const char *why) {
    step_case c;
    step_make(&c, text, settings, DS_PASS_OFFLOAD);
    cr_expect_eq(c.status, status, "%s: %s", text, c.err.message);
    cr_expect(strstr(c.err.message, why) != NULL, "%s", c.err.message);
    step_free(&c);
}

#define FLAT(train, strategy)                                                                      \
    "dir 1\ntopology @box { device gpu[2] }\n"                                                     \
    "func @f(%x: f32[8@dp, 8]) -> f32[8, 8] {\n  weight %w : f32[8, 8]\n"                          \
    "  %y = matmul(%x, %w)\n  %z = gelu(%y)\n  return %z\n}\n"                                     \
    "scenario { model = @f, on = @box, " train ", strategy { " strategy " } }\n"

Test(offload, what_cannot_be_is_refused_with_a_reason) {
    expect_refusal(FLAT("train { loss = mse, optimizer = adam }", "dp = 2, offload = activations"),
                   "", DS_ERR_UNSUPPORTED, "no loop of the model keeps anything");
    expect_refusal(FLAT("train { loss = mse, optimizer = sgd }", "dp = 2, offload = optimizer"), "",
                   DS_ERR_UNSUPPORTED, "neither states nor master copies");
    expect_refusal(FLAT("train { loss = mse, optimizer = none }", "dp = 2, offload = optimizer"),
                   "", DS_ERR_UNSUPPORTED, "without an optimizer");
    expect_refusal(FLAT("train = off", "dp = 2, offload = activations"), "", DS_ERR_UNSUPPORTED,
                   "without training");
    expect_refusal(FLAT("train { loss = mse, optimizer = adam }", "dp = 2, offload = gradients"),
                   "", DS_ERR_VALUE, "gradients");
}

/* Weights without training: the forward pass alone reloads them. */
Test(offload, the_forward_pass_alone_can_have_its_weights_on_the_host) {
    step_case c;
    step_make(&c, FLAT("train = off", "dp = 2, offload = weights"), "", DS_PASS_OVERLAP);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect_eq(count(&c.step->func->body, DS_OP_RELOAD), 1);
    cr_expect_eq(count(&c.step->func->body, DS_OP_OFFLOAD), 0);
    step_free(&c);
}

/* ---- types ---- */

static void expect_error(const char *body, const char *why) {
    char text[512];
    step_case c;
    snprintf(text, sizeof text,
             "dir 1\nfunc @f(%%x: f32[8], %%h: f32[8] host) -> f32[8] {\n  %s\n}\n"
             "scenario { program = @f }\n",
             body);
    step_make(&c, text, "", DS_PASS_LOWER);
    cr_expect_neq(c.status, DS_OK, "%s", body);
    cr_expect(strstr(c.err.message, why) != NULL, "%s: %s", body, c.err.message);
    step_free(&c);
}

Test(offload, what_is_on_the_host_is_reloaded_first) {
    expect_error("%y = relu(%h)\n  return %y", "in the host's memory; reload it first");
    expect_error("%y = add(%x, %h)\n  return %y", "reload it first");
    expect_error("%y = offload(%h)\n  return %x", "reload it first");
    expect_error("%y = reload(%x)\n  return %y", "in the device's own memory");
    expect_error("return %h", "host");
}
