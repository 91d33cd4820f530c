/* With recomputation the step gives the numbers that it gives without: every value of the knob, on
 * models of every kind, sharded in every way. */
#include "tests/support/cases.h"
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* What a strategy does, and on how many devices. */
typedef struct plan {
    const char *knobs;
    int devices;
} plan;

static const plan plans[] = {
    {"dp = 2", 2},
    {"tp = 2", 2},
    {"dp = 2, tp = 2, sp = true", 4},
    {"dp = 2, zero = 1", 2},
    {"dp = 2, zero = 2, microbatches = 2", 2},
    {"dp = 2, tp = 2, zero = 3", 4},
    {"dp = 2, zero = 3, microbatches = 2, prefetch = 0", 2},
};

static void expect(const char *model, const char *with, const char *recompute, const plan *on,
                   bool texts) {
    char text[2048];
    proof found;
    proof_options options = {.seed = 1, .texts = texts};
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/%s.dir\" as m with %s\n"
             "topology @box {\n  device gpu[%d]\n  switch hub\n"
             "  link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..%d\n}\n"
             "scenario { model = @m.%s, on = @box, train { optimizer = adam, keep_gradients = true "
             "}, strategy { %s, recompute = %s } }\n",
             model, with, on->devices, on->devices, model, on->knobs, recompute);
    prove(text, &options, &found);
    cr_expect(found.verdict == PROOF_EQUAL, "%s, %s, recompute = %s: %s: %s", model, on->knobs,
              recompute, proof_verdict_name(found.verdict), found.what);
    cr_expect(found.verdict != PROOF_EQUAL || found.zeros * 4 < found.compared,
              "%s: %u of %u results are zeros", model, found.zeros, found.compared);
}

/* Every knob with every plan (every fourth in builds that take few cases); texts, which take
 * longest, for the first plan. */
static void check(const char *model, const char *with, const char *const *knobs) {
    for (; *knobs; knobs++)
        for (size_t p = 0; p < sizeof plans / sizeof *plans; p += FEW_CASES ? 4 : 1)
            expect(model, with, *knobs, &plans[p], p == 0);
}

#define SMALL "layers = 4, hidden = 8, heads = 4, seq = 4, vocab = 8, batch = 4"

Test(recompute_models, gpt) {
    const char *const knobs[] = {"none",
                                 "selective",
                                 "full",
                                 "\"every:1\"",
                                 "\"every:2\"",
                                 "\"every:4\"",
                                 "[\"layer[*].act\", \"ln?\"]",
                                 "[\"emb\", \"qkv*\", \"fc1_b\", \"mid\"]",
                                 "[\"layer[2].act\", \"layer[0].*\"]",
                                 NULL};
    check("gpt", SMALL, knobs);
}

Test(recompute_models, llama) {
    const char *const knobs[] = {"selective", "full", "\"every:2\"", "[\"*\"]", NULL};
    check("llama", SMALL ", kv_heads = 2, ffn = 16", knobs);
}

Test(recompute_models, mixtral) {
    const char *const knobs[] = {"selective", "full", "\"every:2\"", NULL};
    check("mixtral",
          "layers = 2, hidden = 8, heads = 4, kv_heads = 2, ffn = 8, experts = 4, "
          "chunks = 4, seq = 8, vocab = 8, batch = 4",
          knobs);
}

Test(recompute_models, bert) {
    const char *const knobs[] = {"selective", "full", "\"every:2\"", "[\"*\"]", NULL};
    check("bert", SMALL, knobs);
}

/* Two loops, what the encoder made read by every turn of the decoder, attention written out. */
Test(recompute_models, t5) {
    const char *const knobs[] = {"selective", "full", "\"every:2\"", "[\"layer.prob*\"]", NULL};
    check("t5",
          "layers = 2, hidden = 8, heads = 4, head_dim = 2, ffn = 8, seq = 4, "
          "target_seq = 4, vocab = 8, batch = 4, head_scale = 0.25",
          knobs);
}

/* Loops that begin at 1 between calls, statistics of batches. */
Test(recompute_models, resnet) {
    const char *const knobs[] = {"full", "\"every:1\"", "[\"*\"]", NULL};
    check("resnet",
          "batch = 4, image = 16, width = 2, classes = 4, blocks1 = 3, blocks2 = 1, "
          "blocks3 = 3, blocks4 = 1",
          knobs);
}

/* No loop: layers are calls. */
Test(recompute_models, vgg19) {
    const char *const knobs[] = {"full", "[\"*\"]", NULL};
    check("vgg19",
          "batch = 4, image = 32, width = 2, hidden = 4, classes = 4, convs1 = 1, "
          "convs2 = 2, convs3 = 1, convs4 = 1, convs5 = 1",
          knobs);
}

/* All that moves a sequence over cp runs again too. */
Test(recompute_models, split_sequences) {
    static const char *const types[] = {"ring", "ulysses", "all_gather"};
    static const char *const knobs[] = {"selective", "full", "\"every:2\"", "[\"core\", \"q\"]"};
    for (size_t t = 0; t < 3; t++)
        for (size_t k = 0; k < 4; k++) {
            char text[64];
            snprintf(text, sizeof text, "cp = 2, tp = 2, cp_type = %s", types[t]);
            expect("gpt", SMALL, knobs[k], &(plan){text, 4}, false);
            snprintf(text, sizeof text, "cp = 2, dp = 2, zero = 3, cp_type = %s", types[t]);
            expect("gpt", SMALL, knobs[k], &(plan){text, 4}, false);
        }
}

/* What an override says of an op holds for its copy: q lies on another view in both passes. */
static const char OVERRIDDEN[] =
    "dir 1\nparam width = 12, batch = 12\n"
    "topology @box {\n  device gpu[6]\n  switch hub\n"
    "  link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..6\n}\n"
    "mesh @base = [dp = 2, tp = 3] on @box\nmesh @v = view @base [cp = 6]\n"
    "func @net(%%x: f32[batch@dp, width]) -> f32[batch, width] {\n"
    "  %%y = for l in 0..2 carry (%%h = %%x) {\n"
    "    weight %%w : f32[width, width@tp]\n    weight %%u : f32[width, width@tp]\n"
    "    %%p = matmul(%%h, %%w)\n    %%a = tanh(%%p)\n    %%q = matmul(%%a, %%u)\n"
    "    %%n = tanh(%%q)\n    yield %%n\n  }\n  return %%y\n}\n"
    "scenario { model = @net, on = @box, train { loss = mse, optimizer = sgd }, strategy { dp = 2, "
    "tp = 3, microbatches = %d, recompute = full, ops { \"l[*].q\" = on @v [n: cp] } } }\n";

Test(recompute_models, overrides) {
    for (int m = 1; m <= 2; m++) {
        char text[2048];
        proof found;
        proof_options options = {.seed = 1, .texts = true};
        snprintf(text, sizeof text, OVERRIDDEN, m);
        prove(text, &options, &found);
        cr_expect_eq(found.verdict, PROOF_EQUAL, "%d: %s", m, found.what);
    }
}

Test(recompute_models, overrides_are_of_copies) {
    step_case c;
    char text[2048];
    snprintf(text, sizeof text, OVERRIDDEN, 1);
    step_make(&c, text, NULL, DS_PASS_SHARD);
    const ds_op *forward = step_find(&c, "q"), *again = step_find(&c, "q.again");
    cr_assert(forward && again, "%s", c.err.message);
    const ds_type *a = ds_value_at(c.step->func, forward->out[0])->type;
    const ds_type *b = ds_value_at(c.step->func, again->out[0])->type;
    cr_expect_eq(ds_type_equal(&c.step->unit->exprs, a, b), DS_YES);
    cr_expect_str_eq(b->on.name, "v");
    step_free(&c);
}

/* Loops in loops, skips that the model keeps itself, a range of a family, values from around a
 * loop, a loop that begins at 1. */
static const char LOOPS[] =
    "dir 1\nparam n = 4, w = 4, b = 4\n"
    "topology @box {\n  device gpu[2]\n  switch hub\n"
    "  link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..2\n}\n"
    "func @net(%%x: f32[b@dp, w]) -> f32[b@dp, w] {\n"
    "  %%z = tanh(%%x)\n"
    "  %%down, %%skip = for l in 0..n carry (%%h = %%z) {\n"
    "    weight %%u : f32[w, w]\n    %%a = matmul(%%h, %%u)\n    %%s = tanh(%%a)\n"
    "    %%t = for i in 1..3 carry (%%g = %%s) {\n"
    "      weight %%v : f32[w, w]\n      %%c = matmul(%%g, %%v)\n      %%d = tanh(%%c)\n"
    "      %%e = mul(%%d, %%z)\n      yield %%e\n    }\n"
    "    %%o = add(%%t, %%s)\n    yield %%o keep %%s\n  }\n"
    "  %%up = for l in 0..n carry (%%h = %%down) {\n"
    "    weight %%r : f32[w, w]\n    %%p = mul(%%h, %%skip{n - 1 - l})\n"
    "    %%q = matmul(%%p, %%r)\n    %%y = tanh(%%q)\n    yield %%y\n  }\n"
    "  %%first = mul(%%up, %%skip{0})\n  %%last = tanh(%%first)\n  return %%last\n}\n"
    "scenario { model = @net, on = @box, train { loss = mse, optimizer = adam, keep_gradients = "
    "true }, strategy { dp = 2, zero = %d, microbatches = %d, recompute = %s } }\n";

Test(recompute_models, loops_in_loops) {
    static const char *const knobs[] = {"full", "[\"*\"]", "[\"l[*].i[*].d\"]", "[\"s\", \"y\"]"};
    for (size_t k = 0; k < sizeof knobs / sizeof *knobs; k++)
        for (int zero = 0; zero <= 3; zero++) {
            char text[2048];
            proof found;
            proof_options options = {.seed = 1, .texts = true};
            snprintf(text, sizeof text, LOOPS, zero, 1 + zero % 2, knobs[k]);
            prove(text, &options, &found);
            cr_expect_eq(found.verdict, PROOF_EQUAL, "%s, zero = %d: %s", knobs[k], zero,
                         found.what);
        }
}
