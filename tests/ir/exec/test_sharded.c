/* Programs sharded by hand against the plain program that they shard: the proof that exec is for.
 * And wrong ones, which it must catch. */
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define BOX(n)                                                                                     \
    "topology @box { device g[" #n "] : \"V100-PCIE-16GB\" }\n"                                    \
    "mesh @all = [x = " #n "] on @box\naxis x\n"

static void expect_equal(const char *sharded, const char *settings, const char *plain) {
    exec_case a, b;
    exec_text(&a, plain, NULL, NULL);
    exec_text(&b, sharded, settings, NULL);
    exec_expect_same(&a, &b, settings ? settings : "sharded");
    exec_free(&a), exec_free(&b);
}

static void expect_different(const char *sharded, const char *settings, const char *plain) {
    exec_case a, b;
    ds_exec_comparison c = {0};
    exec_text(&a, plain, NULL, NULL);
    exec_text(&b, sharded, settings, NULL);
    cr_assert(a.result && b.result);
    ds_exec_compare(a.result, b.result, DS_EXEC_BOUND, &c);
    cr_expect(!c.equal, "the fault was not seen");
    ds_exec_comparison_deinit(&c);
    exec_free(&a), exec_free(&b);
}

/* ---- Megatron's block: column- then row-parallel ---- */

static const char block[] =
    "dir 1\nfunc @block(%x: f32[2, 8, 16], %g0: f32[16], %b0: f32[16], %wq: f32[16, 16], "
    "%wk: f32[16, 16], %wv: f32[16, 16], %wo: f32[16, 16], %g1: f32[16], %b1: f32[16], "
    "%w1: f32[16, 32], %c1: f32[32], %w2: f32[32, 16], %c2: f32[16]) -> f32[2, 8, 16] {\n"
    "%n = layer_norm(%x, %g0, %b0)\n"
    "%q0 = matmul(%n, %wq)\n%k0 = matmul(%n, %wk)\n%v0 = matmul(%n, %wv)\n"
    "%q = reshape(%q0) {shape = [2, 8, 4, 4]}\n%k = reshape(%k0) {shape = [2, 8, 4, 4]}\n"
    "%v = reshape(%v0) {shape = [2, 8, 4, 4]}\n"
    "%a = attention(%q, %k, %v) {causal = true}\n%a0 = reshape(%a) {shape = [2, 8, 16]}\n"
    "%o = matmul(%a0, %wo)\n%d = dropout(%o) {p = 0.2}\n%r = add(%x, %d)\n"
    "%m = layer_norm(%r, %g1, %b1)\n%h = matmul(%m, %w1)\n%hb = bias(%h, %c1)\n%u = gelu(%hb)\n"
    "%z = matmul(%u, %w2)\n%zb = bias(%z, %c2)\n%y = add(%r, %zb)\nreturn %y\n}\n";

#define BLOCK_TP(reduce0, reduce1, dropped)                                                        \
    "dir 1\nparam tp = 2\n" BOX(                                                                   \
        4) "mesh @m = pick 0..tp of @all [tp = tp]\n"                                              \
           "func @block(%x: f32[2, 8, 16] on @m, %g0: f32[16] on @m, %b0: f32[16] on @m, "         \
           "%wq: f32[16, 16@tp] on @m, %wk: f32[16, 16@tp] on @m, %wv: f32[16, 16@tp] on @m, "     \
           "%wo: f32[16@tp, 16] on @m, %g1: f32[16] on @m, %b1: f32[16] on @m, "                   \
           "%w1: f32[16, 32@tp] on @m, %c1: f32[32@tp] on @m, %w2: f32[32@tp, 16] on @m, "         \
           "%c2: f32[16] on @m) -> f32[2, 8, 16] on @m {\n"                                        \
           "%n = layer_norm(%x, %g0, %b0)\n"                                                       \
           "%q0 = matmul(%n, %wq)\n%k0 = matmul(%n, %wk)\n%v0 = matmul(%n, %wv)\n"                 \
           "%q = reshape(%q0) {shape = [2, 8, 4, 4]}\n%k = reshape(%k0) {shape = [2, 8, 4, 4]}\n"  \
           "%v = reshape(%v0) {shape = [2, 8, 4, 4]}\n"                                            \
           "%a = attention(%q, %k, %v) {causal = true}\n%a0 = reshape(%a) {shape = [2, 8, 16]}\n"  \
           "%op = matmul(%a0, %wo)\n" reduce0 "%d = " dropped "\n%r = add(%x, %d)\n"               \
           "%m = layer_norm(%r, %g1, %b1)\n%h = matmul(%m, %w1)\n%hb = bias(%h, %c1)\n%u = "       \
           "gelu(%hb)\n"                                                                           \
           "%zp = matmul(%u, %w2)\n" reduce1                                                       \
           "%zb = bias(%z, %c2)\n%y = add(%r, %zb)\nreturn %y\n}\n"                                \
           "scenario { program = @block\n mesh = @m }\n"

#define REDUCE(from, to) "%" to " = all_reduce(%" from ") over tp\n"
#define DROP             "dropout(%o) {p = 0.2}"

Test(exec_sharded, megatron_block) {
    static const char text[] = BLOCK_TP(REDUCE("op", "o"), REDUCE("zp", "z"), DROP);
    expect_equal(text, "tp=1", block);
    expect_equal(text, "tp=2", block);
    expect_equal(text, "tp=4", block);
}

/* The same devices hold other heads if the reduction is left out in a region that hides it. */
#define UNREDUCED(from, to)                                                                        \
    "%" to " = local over (tp) (%" from ") -> (f32[2, 8, 16] on @m) {\n%i = scale(%" from          \
    ") {factor = 1.0}\nyield %i\n}\n"
#define SCALED(from, to) REDUCE(from, to "s") "%" to " = scale(%" to "s) {factor = 0.5}\n"

Test(exec_sharded, faults_in_the_block_are_caught) {
    exec_case c;
    exec_text(&c, BLOCK_TP(UNREDUCED("op", "o"), REDUCE("zp", "z"), DROP), "tp=2", NULL);
    cr_expect_eq(c.status, DS_ERR_VALUE, "a missing sum: devices differ");
    cr_expect(strstr(c.err.message, "block/o should be the same on device 0 (tp=0) and"), "%s",
              c.err.message);
    exec_free(&c);
    exec_text(&c, BLOCK_TP("%o = neg(%op)\n", REDUCE("zp", "z"), DROP), "tp=2", NULL);
    cr_expect_eq(c.status, DS_ERR_SHARDING, "not reduced at all: the verifier sees it");
    exec_free(&c);
    expect_different(BLOCK_TP(SCALED("op", "o"), REDUCE("zp", "z"), DROP), "tp=2", block);
    expect_different(BLOCK_TP(REDUCE("op", "o"), SCALED("zp", "z"), DROP), "tp=2", block);
    /* dropout of the terms by another name is another mask */
    expect_different(
        BLOCK_TP(REDUCE("op", "o"), REDUCE("zp", "z"), "dropout(%o) {p = 0.2, name = e}"), "tp=2",
        block);
}

/* ---- data parallel: DistIR's MLP ---- */

static const char mlp[] =
    "dir 1\nparam layers = 3, batch = 12, width = 8\n"
    "func @step(%x: f32[batch, width], %target: f32[batch, width], "
    "%w{l: 0..layers}: f32[width, width]) -> (f32[], f32[width, width], "
    "{r: 0..layers - 1} f32[width, width]) {\n"
    "%y, %ins, %outs = for l in 0..layers carry (%h = %x) {\n%z = matmul(%h, %w{l})\n"
    "%a = relu(%z)\nyield %a keep %h, %a\n}\n%loss = mse(%y, %target)\n"
    "%dy = mse_grad(%y, %target)\n"
    "%d1, %late = for r in 0..layers - 1 carry (%d = %dy) {\n"
    "%dz = relu_grad(%d, %outs{layers - 1 - r})\n"
    "%g = einsum(%ins{layers - 1 - r}, %dz) {rule = \"b k, b n -> k n\"}\n"
    "%dh = matmul(%dz, %w{layers - 1 - r}) {transpose_b = true}\nyield %dh keep %g\n}\n"
    "%dz0 = relu_grad(%d1, %outs{0})\n%g0 = einsum(%ins{0}, %dz0) {rule = \"b k, b n -> k n\"}\n"
    "return %loss, %g0, %late\n}\n";

Test(exec_sharded, data_parallel_mlp) {
    static const char *const worlds[] = {
        "world=1 layers=3 batch=12 width=8", "world=2 layers=3 batch=12 width=8",
        "world=3 layers=3 batch=12 width=8", "world=4 layers=3 batch=12 width=8"};
    exec_case plain, sharded;
    exec_text(&plain, mlp, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        exec_file(&sharded, "scenarios/distir-mlp.dir", worlds[i]);
        exec_expect_same(&plain, &sharded, worlds[i]);
        exec_free(&sharded);
    }
    exec_free(&plain);
}

/* ---- pipeline: DistIR's explicit style, two stages and four microbatches ---- */

static const char sequential[] =
    "dir 1\nfunc @step(%x{m: 0..4}: f32[4, 8], %t{m: 0..4}: f32[4, 8], %w0: f32[8, 8], "
    "%w1: f32[8, 8]) -> (f32[8, 8], f32[8, 8]) {\n%zero = zeros() : f32[8, 8]\n"
    "%g0, %g1 = for m in 0..4 carry (%s0 = %zero, %s1 = %zero) {\n"
    "%z = matmul(%x{m}, %w0)\n%a = relu(%z)\n%y = matmul(%a, %w1)\n%dy = mse_grad(%y, %t{m})\n"
    "%da = matmul(%dy, %w1) {transpose_b = true}\n"
    "%d1 = einsum(%a, %dy) {rule = \"b k, b n -> k n\"}\n%dz = relu_grad(%da, %a)\n"
    "%d0 = einsum(%x{m}, %dz) {rule = \"b k, b n -> k n\"}\n"
    "%n0 = add(%s0, %d0)\n%n1 = add(%s1, %d1)\nyield %n0, %n1\n}\nreturn %g0, %g1\n}\n";

Test(exec_sharded, pipeline) {
    exec_case plain, pipeline;
    exec_text(&plain, sequential, NULL, NULL);
    exec_file(&pipeline, "scenarios/pipeline-2x4.dir", "batch=16 width=8");
    exec_expect_same(&plain, &pipeline, "pipeline-2x4");
    cr_expect_eq(pipeline.result->n_devices, 2);
    exec_free(&plain), exec_free(&pipeline);
}

/* ---- sequence parallel, ZeRO, context parallel, experts ---- */

static const char mlp_plain[] =
    "dir 1\nfunc @f(%x: f32[8, 6], %w1: f32[6, 12], %w2: f32[12, 6]) -> f32[8, 6] {\n"
    "%n = rms_norm(%x)\n%h = matmul(%n, %w1)\n%u = silu(%h)\n%y = matmul(%u, %w2)\nreturn %y\n}\n";

Test(exec_sharded, sequence_parallel) {
    expect_equal(
        "dir 1\nparam tp = 2\n" BOX(
            4) "mesh @m = pick 0..tp of @all [tp = tp]\n"
               "func @f(%x: f32[8@tp, 6] on @m, %w1: f32[6, 12@tp] on @m, %w2: f32[12@tp, 6] on "
               "@m) -> f32[8@tp, 6] on @m {\n"
               "%n = rms_norm(%x)\n%all = all_gather(%n) over tp dim 0\n%h = matmul(%all, %w1)\n"
               "%u = silu(%h)\n%p = matmul(%u, %w2)\n%y = reduce_scatter(%p) over tp dim 0\n"
               "return %y\n}\nscenario { program = @f\n mesh = @m }\n",
        "tp=4", mlp_plain);
}

/* Weights in shards, gathered before use: on a 2x2 mesh with tensor parallelism beside. */
Test(exec_sharded, weights_gathered_before_use) {
    expect_equal(
        "dir 1\n" BOX(
            4) "mesh @m = view @all [dp = 2, tp = 2]\n"
               "func @f(%x: f32[8@dp, 6] on @m, %w1: f32[6@dp, 12@tp] on @m, "
               "%w2: f32[12@(tp, dp), 6] on @m) -> f32[8@dp, 6] on @m {\n"
               "%n = rms_norm(%x)\n%a1 = all_gather(%w1) over dp dim 0\n%h = matmul(%n, %a1)\n"
               "%u = silu(%h)\n%a2 = all_gather(%w2) over dp dim 0\n%p = matmul(%u, %a2)\n"
               "%y = all_reduce(%p) over tp\nreturn %y\n}\nscenario { program = @f\n mesh = @m }\n",
        NULL, mlp_plain);
}

/* Ring attention without a mask: every turn adds one block's exp(q k') v and exp(q k') and passes
 * the block on; the quotient is softmax(q k') v. */
Test(exec_sharded, ring_attention) {
    expect_equal(
        "dir 1\nparam cp = 3\n" BOX(
            4) "mesh @m = pick 0..cp of @all [cp = cp]\n"
               "func @f(%q: f32[2, 12@cp, 4] on @m, %k: f32[2, 12@cp, 4] on @m, %v: f32[2, 12@cp, "
               "4] on @m)"
               " -> f32[2, 12@cp, 4] on @m {\n"
               "%o = local over (cp) (%q, %k, %v) -> (f32[2, 12@cp, 4] on @m) {\n"
               "%z = zeros() : f32[2, 12 / cp, 4] on @m\n%e = zeros() : f32[2, 12 / cp, 1] on @m\n"
               "%num, %den, %kn, %vn = for i in 0..cp carry (%a = %z, %b = %e, %kk = %k, %vv = %v) "
               "{\n"
               "%s = einsum(%q, %kk) {rule = \"b s d, b t d -> b s t\"}\n%x = exp(%s)\n"
               "%n = matmul(%x, %vv)\n%r = reduce_sum(%x) {dims = [2], keep = true}\n"
               "%a1 = add(%a, %n)\n%b1 = add(%b, %r)\n%k1, %v1 = permute(%kk, %vv) over cp\n"
               "yield %a1, %b1, %k1, %v1\n}\n%y = div(%num, %den)\nyield %y\n}\nreturn %o\n}\n"
               "scenario { program = @f\n mesh = @m }\n",
        "cp=3",
        "dir 1\nfunc @f(%q: f32[2, 12, 4], %k: f32[2, 12, 4], %v: f32[2, 12, 4]) -> f32[2, 12, 4] "
        "{\n"
        "%s = einsum(%q, %k) {rule = \"b s d, b t d -> b s t\"}\n%p = softmax(%s)\n"
        "%o = matmul(%p, %v)\nreturn %o\n}\n");
}

/* Experts on devices: buffers go to their experts by one all_to_all and come back by another. */
#define MOE(dims_g, dims_e, there, back)                                                           \
    "%v, %i = topk(%r) {k = 2}\n%b = dispatch(%x, %i) {experts = 4, capacity = 3}\n" there         \
    "%h = einsum(%b1, %w) {rule = \"g e c d, e d f -> g e c f\"}\n%u = relu(%h)\n" back            \
    "%y = combine(%u1, %i, %v)\nreturn %y\n}\n"

Test(exec_sharded, experts) {
    expect_equal("dir 1\nparam ep = 2\n" BOX(
                     4) "mesh @m = pick 0..ep of @all [ep = ep]\n"
                        "func @f(%x: f32[4@ep, 6, 3] on @m, %r: f32[4@ep, 6, 4] on @m, "
                        "%w: f32[4@ep, 3, 3] on @m) -> f32[4@ep, 6, 3] on @m {\n" MOE(
                            , , "%b1 = all_to_all(%b) over ep dim 0 -> 1\n",
                            "%u1 = all_to_all(%u) over ep dim 1 -> 0\n") "scenario { program = "
                                                                         "@f\n mesh = @m }\n",
                 "ep=4",
                 "dir 1\nfunc @f(%x: f32[4, 6, 3], %r: f32[4, 6, 4], %w: f32[4, 3, 3]) -> "
                 "f32[4, 6, 3] {\n" MOE(, , "%b1 = scale(%b) {factor = 1.0}\n",
                                        "%u1 = scale(%u) {factor = 1.0}\n"));
}

/* Sizes that do not divide: uneven shards of 7 rows over 3 devices. */
Test(exec_sharded, uneven_rows) {
    expect_equal(
        "dir 1\n" BOX(
            3) "mesh @m = view @all [dp = 3]\n"
               "func @f(%x: f32[7@dp[3, 2, 2], 4] on @m, %w: f32[4, 5] on @m) -> (f32[7, 5] on @m, "
               "f32[4, 5] on @m) {\n%z = matmul(%x, %w)\n%y = all_gather(%z) over dp dim 0\n"
               "%p = einsum(%x, %z) {rule = \"b k, b n -> k n\"}\n%g = all_reduce(%p) over dp\n"
               "return %y, %g\n}\nscenario { program = @f\n mesh = @m }\n",
        NULL,
        "dir 1\nfunc @f(%x: f32[7, 4], %w: f32[4, 5]) -> (f32[7, 5], f32[4, 5]) {\n"
        "%y = matmul(%x, %w)\n%g = einsum(%x, %y) {rule = \"b k, b n -> k n\"}\n"
        "return %y, %g\n}\n");
}

/* A root that is not the one meant: the number is wrong. */
Test(exec_sharded, the_wrong_root) {
    static const char plain[] =
        "dir 1\nfunc @f(%x: f32[4]) -> f32[4] {\n%y = neg(%x)\nreturn %y\n}\n";
    static const char text[] = "dir 1\nparam root = 0\n" BOX(
        4) "mesh @m = view @all [tp = 4]\n"
           "func @f(%x: f32[4] on @m) -> f32[4] on @m {\n"
           "%y = local over (tp) (%x) -> (f32[4] on @m) {\n"
           "%s = scale(%x) {factor = axis_index(tp) - 1}\n%b = broadcast(%s) over tp {root = "
           "root}\n"
           "yield %b\n}\nreturn %y\n}\nscenario { program = @f\n mesh = @m }\n";
    expect_equal(text, "root=0", plain);
    expect_different(text, "root=3", plain);
}
