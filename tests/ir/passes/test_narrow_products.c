/* train.product_dtype, attention over a window of keys, and the models that need them: work against
 * numbers worked out by hand, numbers against loops, parameters against the released weights. */
#include "tests/support/exec.h"
#include "tests/support/gradient.h"
#include "tests/support/op_text.h"
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include "ir/passes/build/count.h"
#include "ir/strategy/scenario.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a narrow product moves ---- */

/* Operands of 32·64 and 64·16 elements, of a byte each; the result stays bf16. The activation is
 * read in 2 bytes and written twice in one: 32·64·(2 + 2·1). */
Test(narrow_products, bytes_of_eight_bits) {
    const char *args = "%x: bf16[32, 64], %w: bf16[64, 16]";
    ds_work w = op_text_work_of(args, "%y = matmul(%x, %w) {products = f8e4m3, converts = 0}");
    cr_expect_eq(w.dtype, DS_F8E4M3);
    cr_expect_eq(w.flop, 2 * 32 * 64 * 16);
    cr_expect_eq(w.bytes_read, 32 * 64 + 64 * 16);
    cr_expect_eq(w.bytes_written, 2 * 32 * 16);
    cr_expect_eq(w.bytes_converted, 32 * 64 * 4);
    w = op_text_work_of(args, "%y = matmul(%x, %w)");
    cr_expect(w.dtype == DS_BF16 && w.bytes_converted == 0);
}

/* Four bits: half a byte an element. Both operands: 2 + 2·1/2 bytes each. */
Test(narrow_products, bytes_of_four_bits) {
    ds_work w = op_text_work_of("%x: bf16[32, 64], %w: bf16[64, 16]",
                                "%y = einsum(%x, %w) {rule = \"m k, k n -> m n\", "
                                "products = f4e2m1, converts = [0, 1]}");
    cr_expect_eq(w.bytes_read, (32 * 64 + 64 * 16) / 2);
    cr_expect_eq(w.bytes_converted, 3 * (32 * 64 + 64 * 16));
}

#define LAYERS                                                                                     \
    "dir 1\n"                                                                                      \
    "func @f(%x: f32[4@dp, 8]) -> f32[4@dp, 6] {\n"                                                \
    "  weight %w_out : f32[8, 6]\n"                                                                \
    "  %y = for l in 0..2 carry (%h = %x) {\n"                                                     \
    "    weight %w : f32[8, 8]\n"                                                                  \
    "    weight %r : f32[8, 8]\n"                                                                  \
    "    %a = matmul(%h, %w) : f32[4, 8]\n"                                                        \
    "    %b = matmul(%a, %r) {products = bf16} : f32[4, 8]\n"                                      \
    "    %s = einsum(%a, %b) {rule = \"m k, n k -> m n\"} : f32[4, 4]\n"                           \
    "    %c = matmul(%s, %b) : f32[4, 8]\n"                                                        \
    "    yield %c\n"                                                                               \
    "  }\n"                                                                                        \
    "  %z = matmul(%y, %w_out) : f32[4, 6]\n"                                                      \
    "  return %z\n"                                                                                \
    "}\n"

static const char *text_attr(const ds_op *op, const char *name) {
    const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, name);
    return attr ? attr->kind == DS_ATTR_WORD ? attr->word : "a number" : "none";
}

/* Products with a weight inside a loop, and both of their gradients; dy is converted once. */
Test(narrow_products, which_products_are_narrow) {
    const struct {
        const char *result, *products, *converts;
    } want[] = {{"a", "f8e4m3", "a number"}, {"a.dx", "f8e4m3", "a number"},
                {"a.dw", "f8e4m3", "none"},  {"b", "bf16", "none"},
                {"b.dw", "bf16", "none"},    {"s", "none", "none"},
                {"c", "none", "none"},       {"z", "none", "none"}};
    step_case c;
    step_make(&c,
              LAYERS "scenario { model = @f, train { loss = mse, dtype = bf16, "
                     "product_dtype = f8e4m3 } }\n",
              NULL, DS_PASS_GRAD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const ds_op *op = step_find(&c, want[i].result);
        cr_assert(op, "no %%%s", want[i].result);
        cr_expect_str_eq(text_attr(op, "products"), want[i].products, "%s", want[i].result);
        cr_expect_str_eq(text_attr(op, "converts"), want[i].converts, "%s", want[i].result);
    }
    free(step_text(&c));
    step_free(&c);
}

Test(narrow_products, what_is_no_operand_is_an_error) {
    op_text t;
    ds_work work;
    op_text_init(&t, NULL, "%x: bf16[4, 8], %w: bf16[8, 8]",
                 "%y = matmul(%x, %w) {products = f8e4m3, converts = 2}", OP_TEXT_BOUND);
    ds_shape in[] = {{.dtype = DS_BF16, .rank = 2, .dims = {4, 8}},
                     {.dtype = DS_BF16, .rank = 2, .dims = {8, 8}}};
    ds_shape out = {.dtype = DS_BF16, .rank = 2, .dims = {4, 8}};
    ds_error err = {0};
    cr_expect_eq(ds_op_work(op_text_last(&t), &t.env, in, &out, &work, &err), DS_ERR_VALUE);
    cr_expect(strstr(err.message, "'converts' has 2, but there are 2 operands"), "%s", err.message);
    op_text_deinit(&t);
}

/* ---- attention over a window ---- */

/* Query i of 1,024 sees min(i + 1, 128) keys; the half of the diagonal is ignored on both sides:
 * 1,024·128 − 128²/2 pairs, each 2·(64 + 64) FLOPs. A window of all keys is none. */
Test(window, flops) {
    const char *args =
        "%q: bf16[2, 1024, 16, 64], %k: bf16[2, 1024, 4, 64], %v: bf16[2, 1024, 4, 64]";
    int64_t pairs = 1024 * 128 - 128 * 128 / 2, whole = INT64_C(1024) * 1024 / 2;
    ds_work w = op_text_work_of(args, "%y = attention(%q, %k, %v) {causal = true, window = 128}");
    cr_expect_eq(w.flop, 2 * 16 * pairs * 2 * 128);
    cr_expect_gt(w.window, 0);
    w = op_text_work_of(args, "%y = attention(%q, %k, %v) {causal = true, window = 1024}");
    cr_expect_eq(w.flop, 2 * 16 * whole * 2 * 128);
    cr_expect_eq(w.window, 0);
    op_text_expect_error(args, "%y = attention(%q, %k, %v) {window = 128}", DS_ERR_VALUE,
                         "a window of keys is for causal attention");
}

/* Query i sees keys i - 1 and i, by softmax of two scores. */
Test(window, two_keys) {
    exec_case c;
    exec_lines(&c, "%q: f32[1, 4, 1, 2], %k: f32[1, 4, 1, 2], %v: f32[1, 4, 1, 1]",
               "f32[1, 4, 1, 1]",
               "%y = attention(%q, %k, %v) {causal = true, window = 2}\nreturn %y");
    const double *q = exec_in(&c, "q"), *k = exec_in(&c, "k"), *v = exec_in(&c, "v");
    double want[4] = {v[0]};
    for (int i = 1; i < 4; i++) {
        double score[2];
        for (int t = 0; t < 2; t++)
            score[t] =
                (q[2 * i] * k[2 * (i - 1 + t)] + q[2 * i + 1] * k[2 * (i - 1 + t) + 1]) / sqrt(2);
        double share = 1 / (1 + exp(score[1] - score[0]));
        want[i] = share * v[i - 1] + (1 - share) * v[i];
    }
    exec_expect(exec_out(&c, "y"), want, 4, "window");
    exec_free(&c);
}

Test(window, gradients) {
    gradient_check("%q: f64[2, 5, 4, 3], %k: f64[2, 5, 2, 3], %v: f64[2, 5, 2, 2], "
                   "%dy: f64[2, 5, 4, 2]",
                   "%y, %l = attention(%q, %k, %v) {causal = true, window = 3}\n"
                   "%dq, %dk, %dv = attention_grad(%dy, %q, %k, %v, %y, %l) "
                   "{causal = true, window = 3}",
                   "q k v");
}

/* ---- models ---- */

#define SMALL                                                                                      \
    "import \"models/moe.dir\" as moe with layers = 4, hidden = 16, heads = 4, kv_heads = 2, "     \
    "head_dim = 4, ffn = 8, experts = 4, top = 2, seq = 8, vocab = 64, batch = 8, window = 3, "    \
    "dense = 1, dense_ffn = 24, shared_ffn = 8, q_rank = 8, kv_rank = 8, nope_dim = 4, "           \
    "rope_dim = 2, v_dim = 4, chunks = 2\n"

static void prove_small(const char *model, const char *strategy) {
    char text[2048];
    snprintf(text, sizeof text,
             "dir 1\n" SMALL "topology @box {\n device gpu[8] : \"A100\"\n switch s\n"
             " link gpu[i] -- s : 300 GB/s, 1 us for i in 0..8\n}\n"
             "scenario {\n model = @moe.%s\n on = @box\n train { optimizer = adam }\n"
             " strategy { %s }\n}\n",
             model, strategy);
    proof p;
    proof_options options = {.seed = 3};
    prove(text, &options, &p);
    cr_expect_eq(p.verdict, PROOF_EQUAL, "%s, %s: %s", model, strategy, p.what);
}

Test(moe_models, sharded_as_unsharded) {
    prove_small("qwen3_moe", "dp = 2, ep = 2, tp = 2, sp = true, pp = 2, microbatches = 2");
    prove_small("gpt_oss", "dp = 2, ep = 2, cp = 2, pp = 2, microbatches = 2");
    prove_small("deepseek_v3", "dp = 4, ep = 2, tp = 2, zero = 1");
    prove_small("deepseek_v3_mtp",
                "dp = 2, ep = 2, tp = 2, sp = true, pp = 2, microbatches = 2, "
                "schedule = \"interleaved\", virtual_stages = 2, stage_layers = [2, 1, 1, 1]");
}

static ds_model_counts count(const char *entry, const char *with) {
    char text[1024];
    step_case c;
    ds_model_counts counts;
    ds_error err;
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/moe.dir\" as moe with %s\nscenario { model = @moe.%s }\n",
             with, entry);
    step_make(&c, text, NULL, DS_PASS_LOWER);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_assert_eq(ds_model_count(&c.binding, ds_scenario_model(c.source), &counts, &err), DS_OK,
                 "%s", err.message);
    step_free(&c);
    return counts;
}

/* Elements of the released weights: Qwen/Qwen3-30B-A3B 30,532,122,624, Qwen3-235B-A22B
 * 235,093,634,560. gpt-oss-120b has 116.83 billion (arXiv:2508.10925, table 1), of which its biases
 * and sinks, which the model here lacks, are 0.05 %. DeepSeek-V3: 671.0 billion, and 11.5 billion
 * more for the layer that predicts the token after the next (README_WEIGHTS.md). */
Test(moe_models, parameters_as_released) {
    cr_expect_eq(count("qwen3_moe", "layers = 48").parameters, INT64_C(30532122624));
    cr_expect_eq(
        count("qwen3_moe", "layers = 94, hidden = 4096, heads = 64, ffn = 1536").parameters,
        INT64_C(235093634560));
    int64_t oss = count("gpt_oss", "layers = 36, hidden = 2880, heads = 64, kv_heads = 8, "
                                   "head_dim = 64, ffn = 2880, top = 4, vocab = 201088")
                      .parameters;
    cr_expect_lt(fabs((double)oss / 116.83e9 - 1), 1e-3, "%lld", (long long)oss);
#define DEEPSEEK                                                                                   \
    "layers = 61, hidden = 7168, heads = 128, kv_heads = 128, head_dim = 192, ffn = 2048, "        \
    "experts = 256, vocab = 129280"
    int64_t v3 = count("deepseek_v3", DEEPSEEK).parameters;
    cr_expect_lt(fabs((double)v3 / 671.03e9 - 1), 1e-4, "%lld", (long long)v3);
    int64_t more = count("deepseek_v3_mtp", DEEPSEEK).parameters - v3;
    int64_t h = 7168, attention = h * (1536 + 512 + 64) + 1536 * 128 * 192 + 512 * 128 * 256 +
                                  128 * 128 * h + 1536 + 512;
    cr_expect_eq(more, attention + 257 * 3 * h * 2048 + 256 * h + 2 * h * h + 5 * h);
    cr_expect_lt(fabs((double)more / 11.5e9 - 1), 1e-2);
}
