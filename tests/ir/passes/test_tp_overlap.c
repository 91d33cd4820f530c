/* Tensor parallelism's communication in chunks under products (tp_overlap): the step stays what it
 * was, loss, gradients, updated weights and states (exec --verify), and what a layer launches is
 * what Transformer Engine's user buffers do by default: gathers in front of qkv and fc1, and of the
 * gradients of proj's and fc2's inputs, are rings of tp - 1 exchanges; scatters behind proj and fc2
 * are rings or have 4 parts; what the gradients of qkv's and fc1's inputs scatter is one launch, in
 * front of their weights' gradients (transformer_engine/pytorch/module/base.py, initialize_ub). */
#include "tests/support/cases.h"
#include "tests/support/launches.h"
#include "tests/support/pipe.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define STRIDE (FEW_CASES ? 5u : 1u)

static const char *const OVERLAPS[] = {"bulk", "ring", "pipe"};
static const char *const LAYOUTS[] = {
    "tp = 2",
    "tp = 2, dp = 2, microbatches = 2",
    "tp = 4",
    "tp = 4, pp = 2, microbatches = 2",
    "tp = 2, pp = 2, microbatches = 4, schedule = \"zb-h1\"",
    "tp = 2, dp = 2, zero = 1, recompute = full",
    "tp = 2, dp = 2, zero = 3, recompute = selective",
    "tp = 2, cp = 2",
    "tp = 2, cp = 2, cp_type = all_gather, recompute = full",
    "tp = 2, dp = 2, offload = [activations, weights]",
};
enum { N_OVERLAPS = 3, N_LAYOUTS = sizeof LAYOUTS / sizeof *LAYOUTS };

static void prove(const pipe_model *model, const char *set, uint32_t first) {
    for (uint32_t i = first; i < N_OVERLAPS * N_LAYOUTS; i += STRIDE) {
        char strategy[256];
        snprintf(strategy, sizeof strategy, "%s, sp = true, tp_overlap = %s",
                 LAYOUTS[i / N_OVERLAPS], OVERLAPS[i % N_OVERLAPS]);
        pipe_expect_equal(&(pipe_case){.model = model, .strategy = strategy, .set = set});
    }
}

Test(tp_overlap, gpt_stays_the_same) {
    prove(&pipe_gpt, "layers=2 heads=4", 0);
}

Test(tp_overlap, llama_stays_the_same) {
    prove(&pipe_llama, "layers=2 kv_heads=4", 2);
}

/* Experts, whose sums are scattered by groups of tokens, and two loops with attention across. */
Test(tp_overlap, others_stay_the_same) {
    static const char *const layouts[] = {"tp = 2, dp = 2, ep = 2", "tp = 2"};
    const pipe_model *const models[] = {&pipe_mixtral, &pipe_t5};
    for (uint32_t i = 0; i < 2 * N_OVERLAPS; i++) {
        char strategy[256];
        snprintf(strategy, sizeof strategy, "%s, sp = true, tp_overlap = %s",
                 layouts[i / N_OVERLAPS], OVERLAPS[i % N_OVERLAPS]);
        pipe_expect_equal(&(pipe_case){.model = models[i / N_OVERLAPS], .strategy = strategy});
    }
}

/* ---- what a layer launches ---- */

static launches a_layer(const char *model, const char *train, const char *overlap) {
    char text[1024];
    snprintf(
        text, sizeof text,
        "dir 1\nparam layers = 4\nimport \"models/%s.dir\" as m with layers = layers, hidden = "
        "32, heads = 4, seq = 8, vocab = 64, batch = 2%s\n"
        "import \"topologies/pod-128x8.dir\"\n"
        "scenario { model = @m.%s, on = @pod, train %s\n"
        "  strategy { tp = 4, sp = true, tp_overlap = %s } }\n",
        model, strcmp(model, "llama") ? "" : ", kv_heads = 4, ffn = 32", model, train, overlap);
    step_case a, b;
    step_make(&a, text, "layers=2", DS_PASS_OVERLAP);
    step_make(&b, text, "layers=3", DS_PASS_OVERLAP);
    cr_assert(a.step && b.step, "%s%s", a.err.message, b.err.message);
    launches more = launches_minus(launches_of(&b, "tp"), launches_of(&a, "tp"));
    step_free(&a);
    step_free(&b);
    return more;
}

typedef struct expected {
    const char *overlap;
    int64_t all_gather, reduce_scatter, permute;
} expected;

static void expect(const char *model, const char *train, const expected *e) {
    launches l = a_layer(model, train, e->overlap);
    cr_expect_eq(l.all_gather, e->all_gather, "%s %s: %d", model, e->overlap, (int)l.all_gather);
    cr_expect_eq(l.reduce_scatter, e->reduce_scatter, "%s %s: %d", model, e->overlap,
                 (int)l.reduce_scatter);
    cr_expect_eq(l.permute, e->permute, "%s %s: %d", model, e->overlap, (int)l.permute);
}

/* Four devices: a ring is three exchanges. */
Test(tp_overlap, launches_of_a_layer) {
    static const char *const models[] = {"gpt", "llama"};
    static const char step[] = "{ loss = none, optimizer = adam }";
    for (size_t i = 0; i < 2; i++) {
        expect(models[i], "= off", &(expected){"bulk", 2, 2, 0});
        expect(models[i], "= off", &(expected){"ring", 0, 0, 2 * 3 + 2 * 3});
        expect(models[i], "= off", &(expected){"pipe", 0, 2 * 4, 2 * 3});
        /* backward: two gathers in front of gradients of inputs, two again for those of weights */
        expect(models[i], step, &(expected){"bulk", 2 + 4, 2 + 2, 0});
        expect(models[i], step, &(expected){"ring", 2, 2, 2 * 3 + 2 * 3 + 2 * 3});
        expect(models[i], step, &(expected){"pipe", 2, 2 * 4 + 2, 2 * 3 + 2 * 3});
    }
}

/* ---- what stands where ---- */

static size_t place(const char *text, const char *what) {
    const char *at = strstr(text, what);
    cr_assert(at, "no %s in %s", what, text);
    return (size_t)(at - text);
}

static char *text_of(const char *overlap, const char *more) {
    char text[1024];
    step_case c;
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/llama.dir\" as m with layers = 2, hidden = 32, heads = 4, "
             "kv_heads = 4, ffn = 32, seq = 8, vocab = 64, batch = 4\n"
             "import \"topologies/pod-128x8.dir\"\n"
             "scenario { model = @m.llama, on = @pod, train { loss = none, optimizer = adam }\n"
             "  strategy { tp = 4, sp = true, tp_overlap = %s%s } }\n",
             overlap, more);
    step_make(&c, text, NULL, DS_PASS_OVERLAP);
    cr_assert(c.step, "%s", c.err.message);
    char *out = step_text(&c);
    step_free(&c);
    return out;
}

/* Weights' gradients, with what adds them up, stand behind the scatter of the input's; those of the
 * products before do not. */
Test(tp_overlap, weights_gradients_make_way) {
    static const char *const more[] = {"", ", microbatches = 2", ", dp = 2, recompute = full"};
    for (size_t i = 0; i < 3; i++) {
        char *before = text_of("none", more[i]), *text = text_of("bulk", more[i]);
        const char *const late[] = {" %up.dw =", " %gate.dw ="}, *part = " %n2.grad.part =";
        for (size_t k = 0; k < 2; k++) {
            cr_expect_lt(place(before, late[k]), place(before, part));
            cr_expect_gt(place(text, late[k]), place(text, part));
        }
        cr_expect_lt(place(text, " %down.dw ="), place(text, part));
        free(before);
        free(text);
    }
}

/* The head's product, outside of loops, is done at once. */
Test(tp_overlap, head_stays_whole) {
    char *text = text_of("ring", "");
    cr_expect(strstr(text, "%logits = matmul(%n.whole, %w_head)"));
    free(text);
}

/* ---- refusals ---- */

static void refuse(const char *strategy, const char *reason) {
    pipe_expect_refused(&(pipe_case){.model = &pipe_gpt, .strategy = strategy},
                        (const char *const[]){"tp_overlap", reason, NULL});
}

Test(tp_overlap, refusals) {
    refuse("tp = 2, tp_overlap = ring", "sp = true");
    refuse("dp = 2, sp = true, tp_overlap = pipe", "tp > 1");
    refuse("stage_tp = [2, 4], microbatches = 2, sp = true, tp_overlap = ring", "equally wide");
    refuse("tp = 2, sp = true, tp_overlap = rings", "rings");
}
