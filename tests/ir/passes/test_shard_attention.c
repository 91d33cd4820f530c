/* Context parallelism: attention over a sequence that is split is the same attention, forward and
 * backward, and communicates as often as the papers say. */
#include "tests/support/launches.h"
#include "tests/support/prove.h"

#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define BOX                                                                                        \
    "topology @box {\n"                                                                            \
    "  device gpu[16] : \"A100-SXM4-80GB\"\n"                                                      \
    "  switch sw\n"                                                                                \
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..16\n"                                        \
    "}\n"

#define HEAD                                                                                       \
    "dir 1\n"                                                                                      \
    "param layers = 2, b = 2, s = 12, t = 24, h = 4, g = 2, d = 4, width = 6\n"                    \
    "param dp = 1, tp = 1, cp = 1, ep = 1\n" BOX

/* %s: cp_type; sp */
#define TAIL(train)                                                                                \
    "scenario {\n  model = @f\n  on = @box\n  train " train                                        \
    "\n  strategy { dp = dp, tp = tp, cp = cp, ep = ep, cp_type = %s }\n}\n"
#define TRAINED TAIL("{ loss = mse, optimizer = none, keep_gradients = true }")
#define FORWARD TAIL("= off")

/* %s: attributes of attention */
#define LAYERS                                                                                     \
    "func @f(%%x: f32[b@dp, s@cp, width]) -> f32[b@dp, s@cp, width] {\n"                           \
    "  %%y = for l in 0..layers carry (%%c: f32[b@dp, s@cp, width] = %%x) {\n"                     \
    "    weight %%wq : f32[width, h@tp, d]\n"                                                      \
    "    weight %%wk : f32[width, g@tp, d]\n"                                                      \
    "    weight %%wv : f32[width, g@tp, d]\n"                                                      \
    "    weight %%wo : f32[h@tp, d, width]\n"                                                      \
    "    %%q = einsum(%%c, %%wq) {rule = \"b s w, w h d -> b s h d\"}\n"                           \
    "    %%k = einsum(%%c, %%wk) {rule = \"b s w, w h d -> b s h d\"}\n"                           \
    "    %%v = einsum(%%c, %%wv) {rule = \"b s w, w h d -> b s h d\"}\n"                           \
    "    %%o = attention(%%q, %%k, %%v) {%s}\n"                                                    \
    "    %%p = einsum(%%o, %%wo) {rule = \"b s h d, h d w -> b s w\"}\n"                           \
    "    %%r = add(%%c, %%p)\n"                                                                    \
    "    yield %%r\n"                                                                              \
    "  }\n"                                                                                        \
    "  return %%y\n"                                                                               \
    "}\n"

/* Queries of one sequence, keys of another one; no loop. */
#define CROSS                                                                                      \
    "func @f(%%x: f32[b@dp, s@cp, width], %%z: f32[b@dp, t@cp, width]) -> "                        \
    "f32[b@dp, s@cp, width] {\n"                                                                   \
    "  weight %%wq : f32[width, h@tp, d]\n"                                                        \
    "  weight %%wk : f32[width, g@tp, d]\n"                                                        \
    "  weight %%wv : f32[width, g@tp, d]\n"                                                        \
    "  weight %%wo : f32[h@tp, d, width]\n"                                                        \
    "  %%q = einsum(%%x, %%wq) {rule = \"b s w, w h d -> b s h d\"}\n"                             \
    "  %%k = einsum(%%z, %%wk) {rule = \"b s w, w h d -> b s h d\"}\n"                             \
    "  %%v = einsum(%%z, %%wv) {rule = \"b s w, w h d -> b s h d\"}\n"                             \
    "  %%o = attention(%%q, %%k, %%v) {%s}\n"                                                      \
    "  %%p = einsum(%%o, %%wo) {rule = \"b s h d, h d w -> b s w\"}\n"                             \
    "  return %%p\n"                                                                               \
    "}\n"

/* One value is queries, keys and values. */
#define ONE                                                                                        \
    "func @f(%%x: f32[b@dp, s@cp, width]) -> f32[b@dp, s@cp, h, d] {\n"                            \
    "  weight %%w : f32[width, h@tp, d]\n"                                                         \
    "  %%q = einsum(%%x, %%w) {rule = \"b s w, w h d -> b s h d\"}\n"                              \
    "  %%o = attention(%%q, %%q, %%q) {%s}\n"                                                      \
    "  return %%o\n"                                                                               \
    "}\n"

static const char *const types[] = {"ring", "ulysses", "all_gather"};
static const char *const masks[] = {"causal = false", "causal = true"};

typedef char text[4096];

#define MAKE(out, model, mask, type) snprintf(out, sizeof out, HEAD model, mask, type)

static void expect_equal(const char *model, const char *settings, const char *what) {
    proof_options options = {.settings = settings, .seed = 1, .texts = true};
    proof result;
    prove(model, &options, &result);
    cr_expect_eq(result.verdict, PROOF_EQUAL, "%s, %s: %s: %s", what, settings,
                 proof_verdict_name(result.verdict), result.what);
}

/* Each type and mask with each of the settings; the last one is NULL. */
#define EXPECT_EQUAL(model, ...)                                                                   \
    do {                                                                                           \
        static const char *const list_[] = {__VA_ARGS__, NULL};                                    \
        for (int type_ = 0; type_ < 3; type_++)                                                    \
            for (int mask_ = 0; mask_ < 2; mask_++)                                                \
                for (int i_ = 0; list_[i_]; i_++) {                                                \
                    text text_;                                                                    \
                    MAKE(text_, model, masks[mask_], types[type_]);                                \
                    expect_equal(text_, list_[i_], types[type_]);                                  \
                }                                                                                  \
    } while (0)

/* ---- the same attention ---- */

Test(shard_attention, layers) {
    EXPECT_EQUAL(LAYERS TRAINED, "cp=2", "cp=2 tp=2 g=4", "cp=2 dp=2", "cp=3 h=6 g=3",
                 "cp=4 h=8 g=4", "cp=2 tp=2 dp=2 g=4 s=8");
}

/* Turns in the middle of the ring, and one more of them. */
Test(shard_attention, longer_rings) {
    EXPECT_EQUAL(LAYERS TRAINED, "cp=6 h=12 g=6", "cp=12 h=12 g=12");
}

Test(shard_attention, forward_alone) {
    EXPECT_EQUAL(LAYERS FORWARD, "cp=2", "cp=3 h=6 g=3", "cp=4 h=8 g=4");
}

/* Causal with more keys than queries: the last query sees all keys, on every device. */
Test(shard_attention, keys_of_another_length) {
    EXPECT_EQUAL(CROSS TRAINED, "cp=2", "cp=3 h=3 g=3", "cp=4 h=4 g=4", "cp=2 s=24 t=12",
                 "cp=2 tp=2 h=8 g=4", "cp=4 s=12 t=4 h=4 g=4");
}

Test(shard_attention, operands_that_are_one_value) {
    EXPECT_EQUAL(ONE TRAINED, "cp=2", "cp=4", "cp=2 tp=2");
}

/* One key head serves all query heads; ulysses has nothing to split then. */
Test(shard_attention, one_key_head) {
    static const char model[] = HEAD
        "func @f(%x: f32[b@dp, s@cp, width]) -> f32[b@dp, s@cp, h, d] {\n"
        "  weight %wq : f32[width, h@tp, d]\n"
        "  weight %wk : f32[width, 1, d]\n"
        "  %q = einsum(%x, %wq) {rule = \"b s w, w h d -> b s h d\"}\n"
        "  %k = einsum(%x, %wk) {rule = \"b s w, w h d -> b s h d\"}\n"
        "  %o = attention(%q, %k, %k) {causal = true}\n"
        "  return %o\n"
        "}\n"
        "scenario {\n  model = @f\n  on = @box\n  train { loss = mse, optimizer = none, "
        "keep_gradients = true }\n  strategy { dp = dp, tp = tp, cp = cp, cp_type = ring } }\n";
    expect_equal(model, "cp=2", "one key head");
    expect_equal(model, "cp=3", "one key head");
}

/* ep takes a part of cp: the sequence is split over two axes. */
Test(shard_attention, a_sequence_over_two_axes) {
    EXPECT_EQUAL(LAYERS TRAINED, "cp=4 ep=2 h=4 g=4", "cp=6 ep=3 h=6 g=6",
                 "cp=4 dp=2 ep=4 h=8 g=8");
}

/* Rotary positions are global ones; sequence parallelism beside. */
Test(shard_attention, models) {
    static const char llama[] =
        "dir 1\nimport \"models/llama.dir\" as g with layers = 2, hidden = 16, heads = 8, "
        "kv_heads = 4, ffn = 32, seq = 12, vocab = 24, batch = 2\n"
        "param dp = 1, tp = 1, cp = 1\n" BOX
        "scenario {\n  model = @g.llama\n  on = @box\n  train { loss = none, optimizer = sgd, "
        "keep_gradients = true }\n"
        "  strategy { dp = dp, tp = tp, cp = cp, cp_type = %s, sp = %s } }\n";
    static const char *const sp[] = {"false", "true"};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            text model;
            snprintf(model, sizeof model, llama, types[i], sp[k]);
            expect_equal(model, "cp=2 tp=2", types[i]);
            expect_equal(model, i == 1 ? "cp=4" : "cp=3", types[i]);
        }
}

/* ---- how often a layer communicates over cp ---- */

static void expect_launches(const char *type, const char *settings, launches forward,
                            launches backward) {
    text plain, trained;
    MAKE(plain, LAYERS FORWARD, "causal = true", type);
    MAKE(trained, LAYERS TRAINED, "causal = true", type);
    launches f = launches_a_layer(plain, settings, "cp");
    launches b = launches_minus(launches_a_layer(trained, settings, "cp"), f);
    const launches *got[] = {&f, &b}, *want[] = {&forward, &backward};
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(got[i]->permute, want[i]->permute, "%s %d: permute %lld", type, i,
                     (long long)got[i]->permute);
        cr_expect_eq(got[i]->all_to_all, want[i]->all_to_all, "%s %d: all_to_all %lld", type, i,
                     (long long)got[i]->all_to_all);
        cr_expect_eq(got[i]->all_gather, want[i]->all_gather, "%s %d: all_gather %lld", type, i,
                     (long long)got[i]->all_gather);
        cr_expect_eq(got[i]->reduce_scatter, want[i]->reduce_scatter, "%s %d: reduce_scatter %lld",
                     type, i, (long long)got[i]->reduce_scatter);
        cr_expect_eq(got[i]->all_reduce, want[i]->all_reduce, "%s %d: all_reduce %lld", type, i,
                     (long long)got[i]->all_reduce);
        cr_expect_eq(got[i]->other, 0);
    }
}

/* A block of keys and values visits the n − 1 other devices; in the backward pass its gradients
 * follow and go home. Weights' gradients are one all_reduce, a bucket. */
Test(shard_attention, ring_passes_on) {
    const launches forward[] = {{.permute = 1}, {.permute = 2}, {.permute = 3}};
    const launches backward[] = {{.permute = 1 + 2, .all_reduce = 1},
                                 {.permute = 2 + 3, .all_reduce = 1},
                                 {.permute = 3 + 4, .all_reduce = 1}};
    expect_launches("ring", "cp=2", forward[0], backward[0]);
    expect_launches("ring", "cp=3", forward[1], backward[1]);
    expect_launches("ring", "cp=4", forward[2], backward[2]);
    expect_launches("ring", "cp=4 tp=2 dp=2", forward[2], (launches){.permute = 3 + 4});
}

/* Jacobs et al. 2023, section 3.1: q, k and v there, the result back; gradients the other way. */
Test(shard_attention, ulysses_four_there_four_back) {
    const launches forward = {.all_to_all = 4}, backward = {.all_to_all = 4, .all_reduce = 1};
    expect_launches("ulysses", "cp=2", forward, backward);
    expect_launches("ulysses", "cp=3 h=3 g=3", forward, backward);
    expect_launches("ulysses", "cp=4 h=4 g=4", forward, backward);
}

Test(shard_attention, gathered_keys_and_scattered_gradients) {
    expect_launches("all_gather", "cp=4", (launches){.all_gather = 2},
                    (launches){.all_gather = 2, .reduce_scatter = 2, .all_reduce = 1});
}

/* The block on the diagonal is causal by itself, so that its work counts half; it alone. */
Test(shard_attention, only_the_own_block_is_on_the_diagonal) {
    text model;
    step_case c;
    MAKE(model, LAYERS FORWARD, "causal = true", "ring");
    step_make(&c, model, "cp=3", DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    static const char *const names[] = {"block", "block_2", "block_3"};
    for (int i = 0; i < 3; i++) {
        const ds_op *op = step_find(&c, names[i]);
        cr_assert(op && op->code == DS_OP_ATTENTION, "%s", names[i]);
        cr_expect_eq(ds_attr_find(op->attrs, op->n_attrs, "q_start") != NULL, i > 0);
        cr_expect_eq(ds_attr_find(op->attrs, op->n_attrs, "k_start") != NULL, i > 0);
        cr_expect(ds_op_attr_bool(op, "causal"));
    }
    step_free(&c);
}

/* ---- refusals ---- */

static void expect_refused(const char *model, const char *settings, const char *part) {
    proof_options options = {.settings = settings, .seed = 1};
    proof result;
    prove(model, &options, &result);
    cr_expect_eq(result.verdict, PROOF_REFUSED, "%s: %s: %s", settings,
                 proof_verdict_name(result.verdict), result.what);
    cr_expect(strstr(result.what, part), "%s: %s", settings, result.what);
}

Test(shard_attention, heads_that_do_not_divide_are_refused) {
    text model;
    MAKE(model, LAYERS TRAINED, "causal = true", "ulysses");
    expect_refused(model, "cp=4",
                   "tp · cp = 1 · 4 = 4 devices, but there are 4 query and 2 key heads");
    expect_refused(model, "cp=2 tp=2",
                   "tp · cp = 2 · 2 = 4 devices, but there are 4 query and 2 key heads");
    expect_refused(model, "cp=3",
                   "tp · cp = 1 · 3 = 3 devices, but there are 4 query and 2 key heads");
}

Test(shard_attention, a_sequence_that_does_not_divide_is_refused) {
    for (int i = 0; i < 3; i++) {
        text model;
        MAKE(model, LAYERS TRAINED, "causal = true", types[i]);
        expect_refused(model, "cp=5", "dim 1 of size 12 is split over cp, but 5 parts");
    }
}
