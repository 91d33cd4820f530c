/* Bytes that a layer of Llama and one with experts keep for the backward pass, by framework stack.
 *
 * A layer as written keeps, of T tokens of 16 bits: both norms' inputs and results, q, k, v and the
 * core of attention with a number (f32) a row and head, gate, up, silu(gate) and their product.
 * torch.compile and Megatron make silu(gate) again; Transformer Engine keeps the inputs of products
 * of 8 bits in 8 bits, a byte an element, beside what others keep in 16: attention its own result.
 * The loss in between holds no logits of 32 bits. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { S = 256, B = 2, T = S * B, H = 512, A = 8, KV = 2, D = H / A, F = 1408, V = 65536 };
enum { EXPERTS = 4, TOP = 2, EF = 256 };

typedef struct tested {
    const char *model, *stack, *train, *strategy;
    int layers;
} tested;

static int64_t most_in(const tested *t, ds_mem_mode mode, int category) {
    char text[2048];
    sim_case c;
    ds_mem mem = {0};
    bool moe = strstr(t->model, "moe") != NULL;
    int n = snprintf(text, sizeof text,
                     "dir 1\nimport \"models/%s.dir\" as m with layers = %d, hidden = %d, heads = "
                     "%d, kv_heads = %d, ffn = %d, seq = %d, vocab = %d, batch = %d",
                     moe ? "moe" : "llama", t->layers, H, A, KV, moe ? EF : F, S, V, B);
    if (moe)
        n += snprintf(text + n, sizeof text - (size_t)n, ", head_dim = %d, experts = %d, top = %d",
                      D, EXPERTS, TOP);
    snprintf(text + n, sizeof text - (size_t)n,
             "\ntopology @box {\n  device d[8] : \"H100-SXM5-80GB\"\n  switch s\n"
             "  link d[i] -- s : 300 GB/s, 1 us for i in 0..8\n}\n"
             "scenario { model = @m.%s, on = @box, kernels = %s, train { optimizer = adam, dtype = "
             "bf16%s }, strategy { %s } }\n",
             moe ? "qwen3_moe" : "llama", t->stack, t->train, t->strategy);
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text);
    ds_mem_options options = {.mode = mode};
    cr_assert_eq(ds_mem_compute(c.result->plan, &c.result->run, &options, &mem, NULL), DS_OK);
    int64_t bytes = mem.classes[0].most_by_category[category];
    ds_mem_deinit(&mem);
    sim_free(&c);
    return bytes;
}

static int64_t most(const tested *t, ds_category category) {
    return most_in(t, DS_MEM_EXACT, (int)category);
}

/* What two more layers keep, halved. */
static int64_t layer(const char *model, const char *stack, const char *train,
                     const char *strategy) {
    const tested few = {model, stack, train, strategy, 4},
                 more = {model, stack, train, strategy, 6};
    int64_t two = most(&more, DS_CAT_ACTIVATION) - most(&few, DS_CAT_ACTIVATION);
    cr_expect_eq(two % 2, 0);
    return two / 2;
}

static const char narrow[] = ", product_dtype = f8e4m3";
#define ATTENTION (2 * T * (2 * H + 2 * KV * D) + 4 * T * A) /* q, core, k, v; the sums */

Test(mem_stacks, llama) {
    int64_t norms = 4 * 2 * T * H, ops = norms + ATTENTION + 4 * 2 * T * F;
    cr_expect_eq(layer("llama", "ops", "", "dp = 1"), ops);
    /* PyTorch's rms_norm: of both norms x in f32 too, and the value that the scale multiplies */
    cr_expect_eq(layer("llama", "eager", "", "dp = 1"), ops + 2 * (4 + 2) * T * H);
    cr_expect_eq(layer("llama", "eager, norm_kernels = fused", "", "dp = 1"), ops);
    cr_expect_eq(layer("llama", "compiled", "", "dp = 1"), ops - 2 * T * F);
    cr_expect_eq(layer("llama", "fused", "", "dp = 1"), ops - 2 * T * F);
    cr_expect_eq(layer("llama", "fused, without = kernels", "", "dp = 1"), ops - 2 * T * F,
                 "a term of times");
    cr_expect_eq(layer("llama", "compiled", narrow, "dp = 1"), ops - 2 * T * F);
    /* two norms' results and silu(gate) · up in a byte; a byte of the core beside it */
    cr_expect_eq(layer("llama", "fused", narrow, "dp = 1"), ops - 3 * T * F - 2 * T * H + T * H);
}

/* torchtitan's list of ops: of the products q, k, v, o, gate, up, down every second one is kept, and
 * attention; beside the layer's input a compiler keeps q, v, the core and gate, eager mode down as
 * well. Norms run again, so that neither their copies in f32 nor their results stay. */
Test(mem_stacks, llama_by_ops) {
    const char *by_ops = "dp = 1, recompute = selective_op";
    int64_t kept = 2 * T * (H + H + KV * D + H + F) + 4 * T * A;
    cr_expect_eq(layer("llama", "compiled", "", by_ops), kept);
    cr_expect_eq(layer("llama", "eager", "", by_ops), kept + 2 * T * H);
}

/* With sequence parallelism a device keeps its part of what is gathered, in a byte as well. */
Test(mem_stacks, llama_in_shards) {
    int64_t ops = 4 * 2 * T * H / 2 + ATTENTION / 2 + 4 * 2 * T * F / 2;
    cr_expect_eq(layer("llama", "ops", narrow, "tp = 2, sp = on"), ops);
    cr_expect_eq(layer("llama", "fused", narrow, "tp = 2, sp = on"),
                 ops - 3 * T * F / 2 - 2 * T * H / 2 + T * H / 2);
}

/* Tokens come in `top` buffers of experts: the dispatched tokens, gate and up in one tensor,
 * silu(gate), the product, and the result for the gradient by the shares. */
Test(mem_stacks, experts) {
    int64_t rows = T * TOP;
    int64_t sent = 2 * rows * H, act = 2 * rows * EF;
    int64_t gone = layer("moe", "ops", "", "dp = 1") - layer("moe", "fused", "", "dp = 1");
    cr_expect_eq(gone, act + sent, "%lld", (long long)gone);
    gone = layer("moe", "ops", "", "dp = 1") - layer("moe", "compiled", "", "dp = 1");
    cr_expect_eq(gone, act);
    gone = layer("moe", "ops", narrow, "dp = 1") - layer("moe", "fused", narrow, "dp = 1");
    /* beside: half of the dispatched tokens, of the product and of the first norm; the second norm's
     * result stays for the router, in 16 bits; a byte more of attention's core */
    cr_expect_eq(gone, act + sent + sent / 2 + act / 2 + T * H - T * H, "%lld", (long long)gone);
}

/* Logits of 16 bits, and a gradient: two tensors as compiled, one where the gradient takes the
 * place; as ops the gradient of 32 bits, too. Vocabularies of two sizes leave the rest out. */
static int64_t loss_bytes(const char *stack) {
    const tested t = {"llama", stack, "", "dp = 1", 1};
    return most(&t, DS_CAT_ACTIVATION) / (INT64_C(2) * T * V);
}

Test(mem_stacks, the_loss_holds_no_wide_logits) {
    cr_expect_geq(loss_bytes("ops"), 3);
    cr_expect_eq(loss_bytes("compiled"), 2);
    cr_expect_geq(loss_bytes("compiled, loss_kernels = eager"), 3);
    cr_expect_eq(loss_bytes("eager, loss_kernels = compiled"), 2);
    cr_expect_eq(loss_bytes("fused"), 1);
}

/* The gradient of PyTorch's loss takes two tensors of the logits' size in f32 beside the result, and
 * three where each device has a part of the vocabulary. cuBLAS has 32 MiB for each of two handles,
 * and the smaller scratch of other ops may come on top. */
Test(mem_stacks, scratch_of_the_loss) {
    static const struct {
        const char *stack, *strategy;
        int64_t tensors;
    } cases[] = {{"eager", "dp = 1", 2},
                 {"eager", "tp = 2, sp = on", 3},
                 {"compiled, loss_kernels = eager", "tp = 2, sp = on", 3}};
    const int64_t blas = INT64_C(64) << 20, others = INT64_C(16) << 20;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tested t = {"llama", cases[i].stack, "", cases[i].strategy, 1};
        int64_t logits = INT64_C(4) * T * V / (cases[i].strategy[0] == 't' ? 2 : 1);
        int64_t bytes = most_in(&t, DS_MEM_ALLOCATOR, DS_MEM_WORKSPACE);
        cr_expect_geq(bytes, cases[i].tensors * logits + blas, "%s", cases[i].stack);
        cr_expect_leq(bytes, cases[i].tensors * logits + blas + others, "%s", cases[i].stack);
    }
}
