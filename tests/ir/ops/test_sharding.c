/* What the factor rules say about shardings, partials and places (types.md and common.md, Types and
 * Operations). */
#include "tests/support/op_text.h"

#include <criterion/criterion.h>

#define OK(args, line, want)        op_text_expect(args, line, want)
#define BAD(args, line, code, part) op_text_expect_error(args, line, DS_ERR_##code, part)

/* Megatron's column and row parallel products, and the data parallel gradient. */
Test(ops_sharding, matmul) {
    OK("%x: f32[32, 64] on @m, %w: f32[64, 16@tp] on @m", "%y = matmul(%x, %w)",
       "f32[32, 16@tp] on @m");
    OK("%x: f32[32, 64@tp] on @m, %w: f32[64@tp, 16] on @m", "%y = matmul(%x, %w)",
       "f32[32, 16] partial(tp) on @m");
    OK("%x: f32[32@dp, 64] on @m, %dz: f32[32@dp, 16] on @m",
       "%y = einsum(%x, %dz) {rule = \"b k, b n -> k n\"}", "f32[64, 16] partial(dp) on @m");
    OK("%x: f32[32@dp, 8, 64] on @m, %w: f32[64, 16@tp] on @m", "%y = matmul(%x, %w)",
       "f32[32@dp, 8, 16@tp] on @m");
    OK("%x: f32[32@(dp, cp), 64] on @m, %w: f32[64, 16@tp] on @m", "%y = matmul(%x, %w)",
       "f32[32@(dp,cp), 16@tp] on @m");
    OK("%x: f32[32, 64@(dp, tp)] on @m, %w: f32[64@(dp, tp), 16] on @m", "%y = matmul(%x, %w)",
       "f32[32, 16] partial(dp, tp) on @m");
    BAD("%x: f32[32, 64] on @m, %w: f32[64@tp, 16] on @m", "%y = matmul(%x, %w)", SHARDING,
        "dim 1 of operand 0 (f32[32, 64] on @m) and dim 0 of operand 1 (f32[64@tp, 16] on @m) "
        "belong together but are split differently; all_gather operand 1 over tp dim 0, or split "
        "operand 0 alike");
    BAD("%x: f32[32, 64@dp] on @m, %w: f32[64@tp, 16] on @m", "%y = matmul(%x, %w)", SHARDING,
        "reshard one of them");
    BAD("%x: f32[32, 64@(dp,tp)] on @m, %w: f32[64@(tp,dp), 16] on @m", "%y = matmul(%x, %w)",
        SHARDING, "reshard one of them");
    BAD("%x: f32[32@tp, 64] on @m, %w: f32[64, 16@tp] on @m", "%y = matmul(%x, %w)", SHARDING,
        "uses axis tp twice");
    BAD("%x: f32[32@tp, 64@dp] on @m, %w: f32[64@dp, 16@dp] on @m", "%y = matmul(%x, %w)", SHARDING,
        "uses axis dp twice");
}

Test(ops_sharding, uneven) {
    OK("%x: f32[16@dp[6, 6, 2, 2], 8] on @m, %y: f32[16@dp[6, 6, 2, 2], 8] on @m",
       "%z = add(%x, %y)", "f32[16@dp[6,6,2,2], 8] on @m");
    BAD("%x: f32[16@dp[6, 6, 2, 2], 8] on @m, %y: f32[16@dp[6, 2, 6, 2], 8] on @m",
        "%z = add(%x, %y)", SHARDING, "split differently");
    BAD("%x: f32[16@dp[6, 6, 2, 3], 8] on @m", "%z = relu(%x)", SHAPE, "add up to 17, not 16");
    BAD("%x: f32[16@dp[6, 8, 2], 8] on @m", "%z = relu(%x)", SHAPE, "3 uneven sizes");
    BAD("%x: f32[18@dp, 8] on @m", "%z = relu(%x)", SHAPE, "whose size 4 does not divide 18");
    BAD("%x: f32[16@(dp, tp), 8] on @m", "%z = relu(%x)", SHAPE,
        "over tp, whose size 8 does not divide 4");
    OK("%x: f32[32@(dp, tp), 8] on @m", "%z = relu(%x)", "f32[32@(dp,tp), 8] on @m");
}

/* A dim made of a split one and others, and back: sizes are those of whole blocks. */
Test(ops_sharding, uneven_products) {
    OK("%x: f32[16@dp[6, 6, 2, 2], 8] on @m", "%z = reshape(%x) {shape = [128]}",
       "f32[128@dp[48,48,16,16]] on @m");
    OK("%x: f32[128@dp[48, 48, 16, 16]] on @m", "%z = reshape(%x) {shape = [16, 8]}",
       "f32[16@dp[6,6,2,2], 8] on @m");
    OK("%x: f32[128@dp[48, 48, 16, 16], 3] on @m", "%z = reshape(%x) {shape = [16, 2, 4, 3]}",
       "f32[16@dp[6,6,2,2], 2, 4, 3] on @m");
    OK("%x: f32[8@dp[4, 2, 1, 1], 4, 2, 2] on @m, %s: f32[4] on @m, %b: f32[4] on @m",
       "%z = batch_norm(%x, %s, %b) {groups = 8}", "f32[8@dp[4,2,1,1], 4, 2, 2] on @m");
    OK("%x: f32[8@dp[4, 2, 2, 0], 4, 2, 2] on @m, %s: f32[4] on @m, %b: f32[4] on @m",
       "%z = batch_norm(%x, %s, %b) {groups = 4}", "f32[8@dp[4,2,2,0], 4, 2, 2] on @m");
    BAD("%x: f32[128@dp[52, 44, 16, 16]] on @m", "%z = reshape(%x) {shape = [16, 8]}", SHAPE,
        "not whole numbers of the inner part");
    BAD("%x: f32[8@dp[3, 3, 1, 1], 4, 2, 2] on @m, %s: f32[4] on @m, %b: f32[4] on @m",
        "%z = batch_norm(%x, %s, %b) {groups = 4}", SHAPE, "whose outer factor is 4");
}

Test(ops_sharding, whole_dims) {
    OK("%x: f32[32@dp, 64] on @m", "%y = softmax(%x)", "f32[32@dp, 64] on @m");
    BAD("%x: f32[32, 64@tp] on @m", "%y = softmax(%x)", SHARDING,
        "dim 1 of operand 0 (f32[32, 64@tp] on @m) is split over tp, but the op needs all of it on "
        "each device; all_gather it over tp dim 1 first");
    OK("%x: f32[32, 64@tp] on @m", "%y = softmax(%x) {dim = 0}", "f32[32, 64@tp] on @m");
    BAD("%x: f32[32, 64@tp] on @m", "%y = layer_norm(%x)", SHARDING, "all_gather it over tp dim 1");
    BAD("%x: f32[32, 64@tp] on @m, %l: i32[32] on @m", "%y = cross_entropy(%x, %l)", SHARDING,
        "needs all of it");
    BAD("%x: f32[8, 3, 32@tp, 32] on @m, %w: f32[4, 3, 3, 3] on @m", "%y = conv2d(%x, %w)",
        SHARDING, "windows reach over the borders");
    OK("%x: f32[8@dp, 16, 32, 32] on @m, %w: f32[8@tp, 16, 3, 3] on @m", "%y = conv2d(%x, %w)",
       "f32[8@dp, 8@tp, 30, 30] on @m");
    OK("%x: f32[8, 16@tp, 32, 32] on @m, %w: f32[4, 16@tp, 3, 3] on @m", "%y = conv2d(%x, %w)",
       "f32[8, 4, 30, 30] partial(tp) on @m");
    OK("%x: f32[8, 16@tp, 8, 8] on @m, %w: f32[16@tp, 1, 3, 3] on @m",
       "%y = conv2d(%x, %w) {groups = 16}", "f32[8, 16@tp, 6, 6] on @m");
    BAD("%x: f32[8, 16@tp, 8, 8] on @m, %w: f32[16@tp, 4, 3, 3] on @m",
        "%y = conv2d(%x, %w) {groups = 4}", SHAPE, "size 8 does not divide 4");
    OK("%y: f32[8@dp, 8@tp, 30, 30] on @m, %w: f32[8@tp, 16, 3, 3] on @m",
       "%x = conv2d_grad_x(%y, %w) {size = 32}", "f32[8@dp, 16, 32, 32] partial(tp) on @m");
    OK("%y: f32[8@dp, 8, 30, 30] on @m, %w: f32[8, 16@tp, 3, 3] on @m",
       "%x = conv2d_grad_x(%y, %w) {size = 32}", "f32[8@dp, 16@tp, 32, 32] on @m");
    OK("%y: f32[8@dp, 16@tp, 6, 6] on @m, %w: f32[16@tp, 1, 3, 3] on @m",
       "%x = conv2d_grad_x(%y, %w) {size = 8, groups = 16}", "f32[8@dp, 16@tp, 8, 8] on @m");
    OK("%x: f32[8@dp, 16@cp, 32, 32] on @m, %y: f32[8@dp, 8@tp, 30, 30] on @m",
       "%w = conv2d_grad_w(%x, %y) {window = 3}", "f32[8@tp, 16@cp, 3, 3] partial(dp) on @m");
    OK("%x: f32[8@dp, 16@tp, 8, 8] on @m, %y: f32[8@dp, 16@tp, 6, 6] on @m",
       "%w = conv2d_grad_w(%x, %y) {window = 3, groups = 16}",
       "f32[16@tp, 1, 3, 3] partial(dp) on @m");
    BAD("%x: f32[8, 16, 32@tp, 32] on @m, %y: f32[8, 8, 30, 30] on @m",
        "%w = conv2d_grad_w(%x, %y) {window = 3}", SHARDING, "windows reach over the borders");
    BAD("%y: f32[8, 8, 32@tp, 32] on @m, %w: f32[8, 16, 1, 1] on @m",
        "%x = conv2d_grad_x(%y, %w) {size = 32}", SHARDING, "windows reach over the borders");
    OK("%y: f32[8@dp, 16@tp, 4, 4] partial(cp) on @m, %x: f32[8@dp, 16@tp, 8, 8] on @m",
       "%d = max_pool_grad(%y, %x) {window = 2}", "f32[8@dp, 16@tp, 8, 8] partial(cp) on @m");
    OK("%y: f32[8@dp, 16@tp, 4, 4] partial(cp) on @m",
       "%d = avg_pool_grad(%y) {window = 2, size = 8}", "f32[8@dp, 16@tp, 8, 8] partial(cp) on @m");
    OK("%y: f32[16@dp, 48, 4] on @m, %x: f32[16@dp, 48, 8] on @m, %i: f32[8, 16] on @m, "
       "%h: f32[4, 16] on @m, %b: f32[16] on @m",
       "%dx, %di, %dh, %db = lstm_grad(%y, %x, %i, %h, %b)",
       "f32[16@dp, 48, 8] on @m; f32[8, 16] partial(dp) on @m; f32[4, 16] partial(dp) on @m; "
       "f32[16] partial(dp) on @m");
    BAD("%x: f32[16, 48@dp, 8] on @m, %i: f32[8, 16] on @m, %h: f32[4, 16] on @m",
        "%y = lstm(%x, %i, %h)", SHARDING, "its steps depend on each other");
    OK("%x: f32[16@dp, 48, 8] on @m, %i: f32[8, 16] on @m, %h: f32[4, 16] on @m",
       "%y, %hn, %cn = lstm(%x, %i, %h)",
       "f32[16@dp, 48, 4] on @m; f32[16@dp, 4] on @m; f32[16@dp, 4] on @m");
    BAD("%x: f32[32, 64@tp] on @m", "%a, %b = split(%x) {dim = 1}", SHARDING, "needs all of it");
    OK("%x: f32[32, 64@tp] on @m", "%a, %b = split(%x)",
       "f32[16, 64@tp] on @m; f32[16, 64@tp] on @m");
    OK("%x: f32[32, 64@tp] on @m, %y: f32[8, 64@tp] on @m", "%a = concat(%x, %y)",
       "f32[40, 64@tp] on @m");
}

/* batch_norm's statistics are per group, so the batch may be split as far as there are groups. */
Test(ops_sharding, batch_norm_groups) {
    OK("%x: f32[32@dp, 4, 7, 7] on @m", "%y = batch_norm(%x) {groups = 4}",
       "f32[32@dp, 4, 7, 7] on @m");
    OK("%x: f32[32@dp, 4, 7, 7] on @m", "%y = batch_norm(%x) {groups = 8}",
       "f32[32@dp, 4, 7, 7] on @m");
    BAD("%x: f32[32@dp, 4, 7, 7] on @m", "%y = batch_norm(%x) {groups = 2}", SHAPE,
        "split over dp, whose size 4 does not divide 2, the outer factor");
    BAD("%x: f32[32@dp, 4, 7, 7] on @m", "%y = batch_norm(%x)", SHAPE, "does not divide 1");
}

Test(ops_sharding, attention) {
    OK("%q: f32[4@dp, 16, 32@tp, 8] on @m, %k: f32[4@dp, 16, 8@tp, 8] on @m",
       "%y = attention(%q, %k, %k)", "f32[4@dp, 16, 32@tp, 8] on @m");
    BAD("%q: f32[4, 16, 32@tp, 8] on @m, %k: f32[4, 16, 4@tp, 8] on @m",
        "%y = attention(%q, %k, %k)", SHAPE, "does not divide");
    BAD("%q: f32[4, 16, 32@tp, 8] on @m, %k: f32[4, 16, 8, 8] on @m", "%y = attention(%q, %k, %k)",
        SHARDING, "belong together");
    OK("%q: f32[4, 16, 32@tp, 8] on @m, %k: f32[4, 16, 1, 8] on @m", "%y = attention(%q, %k, %k)",
       "f32[4, 16, 32@tp, 8] on @m");
    OK("%q: f32[4, 16@cp, 32, 8] on @m, %k: f32[4, 16, 8, 8] on @m", "%y = attention(%q, %k, %k)",
       "f32[4, 16@cp, 32, 8] on @m");
    BAD("%q: f32[4, 16@cp, 32, 8] on @m, %k: f32[4, 16@cp, 8, 8] on @m",
        "%y = attention(%q, %k, %k)", SHARDING, "all_gather it over cp dim 1 first, or work on");
    OK("%q: bf16[4@dp, 16@cp, 32@tp, 8] on @m, %k: bf16[4@dp, 16, 8@tp, 8] on @m",
       "%y, %l = attention(%q, %k, %k)",
       "bf16[4@dp, 16@cp, 32@tp, 8] on @m; f32[4@dp, 16@cp, 32@tp] on @m");
}

Test(ops_sharding, attention_grad) {
    const char *back = "%a, %b, %c = attention_grad(%y, %q, %k, %v, %y, %l)";
    OK("%y: bf16[4@dp, 16@cp, 32@tp, 6] on @m, %l: f32[4@dp, 16@cp, 32@tp] on @m, "
       "%q: bf16[4@dp, 16@cp, 32@tp, 8] on @m, %k: bf16[4@dp, 16, 8@tp, 8] on @m, "
       "%v: bf16[4@dp, 16, 8@tp, 6] on @m",
       back,
       "bf16[4@dp, 16@cp, 32@tp, 8] on @m; bf16[4@dp, 16, 8@tp, 8] partial(cp) on @m; "
       "bf16[4@dp, 16, 8@tp, 6] partial(cp) on @m");
    OK("%y: f32[4, 16, 32@tp, 8] on @m, %l: f32[4, 16, 32@tp] on @m, "
       "%q: f32[4, 16, 32@tp, 8] on @m, %k: f32[4, 16, 1, 8] on @m, %v: f32[4, 16, 1, 8] on @m",
       back,
       "f32[4, 16, 32@tp, 8] on @m; f32[4, 16, 1, 8] partial(tp) on @m; "
       "f32[4, 16, 1, 8] partial(tp) on @m");
    BAD("%y: f32[4, 16, 32, 8] on @m, %l: f32[4, 16, 32] on @m, "
        "%q: f32[4, 16, 32, 8] on @m, %k: f32[4, 16@cp, 8, 8] on @m, %v: f32[4, 16@cp, 8, 8] on @m",
        back, SHARDING, "all_gather it over cp dim 1 first, or work on");
    OK("%o: f32[4@dp, 16@cp, 32@tp, 8] on @m, %l: f32[4@dp, 16@cp, 32@tp] on @m",
       "%a, %b = attention_merge(%o, %l, %o, %l)",
       "f32[4@dp, 16@cp, 32@tp, 8] on @m; f32[4@dp, 16@cp, 32@tp] on @m");
    /* A part of e is fine for o; lse does not have it, and is no sum over it. */
    const char *args = "%q: f32[4, 16, 32, 8] on @m, %v: f32[4, 16, 32, 8@tp] on @m, "
                       "%l: f32[4, 16, 32] on @m";
    OK(args, "%o = attention(%q, %q, %v)", "f32[4, 16, 32, 8@tp] on @m");
    BAD(args, "%o, %z = attention(%q, %q, %v)", SHARDING, "needs all of it");
    BAD(args, "%o, %z = attention_merge(%v, %l, %v, %l)", SHARDING, "needs all of it");
}

Test(ops_sharding, reshape_and_transpose) {
    OK("%x: f32[4, 6, 40@tp] on @m", "%y = reshape(%x) {shape = [4, 6, 8, 5]}",
       "f32[4, 6, 8@tp, 5] on @m");
    OK("%x: f32[4, 6, 8@tp, 5] on @m", "%y = reshape(%x) {shape = [4, 6, 40]}",
       "f32[4, 6, 40@tp] on @m");
    OK("%x: f32[4@dp, 6, 40@tp] on @m", "%y = reshape(%x) {shape = [24, 40]}",
       "f32[24@dp, 40@tp] on @m");
    BAD("%x: f32[4, 6, 40@tp] on @m", "%y = reshape(%x) {shape = [4, 6, 4, 10]}", SHAPE,
        "does not divide 4");
    BAD("%x: f32[4, 6, 5, 8@tp] on @m", "%y = reshape(%x) {shape = [4, 6, 40]}", SHARDING,
        "becomes an inner part of result dim 2");
    BAD("%x: f32[8@tp, 9] on @m", "%y = reshape(%x) {shape = [6, 12]}", SHARDING,
        "needs all of it");
    OK("%x: f32[4@dp, 6, 8@tp] on @m", "%y = transpose(%x) {perm = [2, 0, 1]}",
       "f32[8@tp, 4@dp, 6] on @m");
}

Test(ops_sharding, reductions_and_losses) {
    OK("%x: f32[4@dp, 8] on @m", "%y = reduce_sum(%x) {dims = [0]}", "f32[8] partial(dp) on @m");
    OK("%x: f32[4@dp, 8@tp] on @m", "%y = reduce_mean(%x)", "f32[] partial(dp, tp) on @m");
    OK("%x: f32[4@dp, 8] on @m", "%y = reduce_max(%x) {dims = [0]}",
       "f32[8] partial(dp, max) on @m");
    OK("%x: f32[4@dp, 8] on @m, %y: f32[4@dp, 8] on @m", "%z = mse(%x, %y)",
       "f32[] partial(dp) on @m");
    OK("%x: f32[4@dp, 8] on @m, %y: f32[4@dp, 8] on @m", "%z = mse_grad(%x, %y)",
       "f32[4@dp, 8] on @m");
    OK("%x: f32[4@dp, 6, 8] on @m, %l: i32[4@dp, 6] on @m", "%z = cross_entropy(%x, %l)",
       "f32[] partial(dp) on @m");
    OK("%i: i32[4@dp, 6] on @m, %t: f32[64, 16] on @m", "%y = embedding(%i, %t)",
       "f32[4@dp, 6, 16] on @m");
    OK("%i: i32[4, 6] on @m, %t: f32[64@tp, 16] on @m", "%y = embedding(%i, %t)",
       "f32[4, 6, 16] partial(tp) on @m");
    OK("%i: i32[4, 6] on @m, %t: f32[64, 16@tp] on @m", "%y = embedding(%i, %t)",
       "f32[4, 6, 16@tp] on @m");
}

Test(ops_sharding, partials) {
    const char *p2 = "%x: f32[4, 8] partial(dp) on @m, %y: f32[4, 8] partial(dp) on @m";
    const char *p1 = "%x: f32[4, 8] partial(dp) on @m, %y: f32[4, 8] on @m";
    OK(p2, "%z = add(%x, %y)", "f32[4, 8] partial(dp) on @m");
    BAD(p1, "%z = add(%x, %y)", SHARDING,
        "operand 0 is f32[4, 8] partial(dp) on @m but operand 1 is f32[4, 8] on @m, which would "
        "enter the sum once per device of dp; all_reduce operand 0 over dp first");
    OK(p1, "%z = mul(%x, %y)", "f32[4, 8] partial(dp) on @m");
    BAD(p2, "%z = mul(%x, %y)", SHARDING, "a product takes only one such");
    OK(p1, "%z = div(%x, %y)", "f32[4, 8] partial(dp) on @m");
    BAD(p1, "%z = div(%y, %x)", SHARDING, "linear in operand 0 only");
    BAD(p1, "%z = relu(%x)", SHARDING, "the op is not linear in it; all_reduce it over dp first");
    OK(p1, "%z = relu_grad(%x, %y)", "f32[4, 8] partial(dp) on @m");
    OK(p1, "%z = scale(%x) {factor = 2}", "f32[4, 8] partial(dp) on @m");
    OK(p1, "%z = transpose(%x)", "f32[8, 4] partial(dp) on @m");
    OK(p1, "%z = cast(%x) {dtype = bf16}", "bf16[4, 8] partial(dp) on @m");
    OK(p2, "%z = accumulate(%x, %y)", "f32[4, 8] partial(dp) on @m");
    OK("%x: f32[4, 8] partial(dp) on @m, %w: f32[8, 16@tp] on @m", "%z = matmul(%x, %w)",
       "f32[4, 16@tp] partial(dp) on @m");
    OK("%x: f32[4, 8@tp] partial(dp) on @m, %w: f32[8@tp, 16] on @m", "%z = matmul(%x, %w)",
       "f32[4, 16] partial(dp, tp) on @m");
    BAD("%x: f32[4, 8] partial(tp) on @m, %w: f32[8, 16@tp] on @m", "%z = matmul(%x, %w)", SHARDING,
        "uses axis tp twice");
    BAD("%x: f32[4, 8] partial(tp) on @m, %w: f32[4, 8] on @m", "%z = sgd(%w, %x)", SHARDING,
        "not linear");
    BAD("%x: f32[4, 8] partial(dp, max) on @m", "%z = scale(%x) {factor = 2}", SHARDING,
        "a maximum passes through views only");
    OK("%x: f32[4, 8] partial(dp, max) on @m", "%z = reshape(%x) : f32[32]",
       "f32[32] partial(dp, max) on @m");
}

Test(ops_sharding, places) {
    OK("%x: f32[4] on @m{pp=1}, %y: f32[4] on @m{pp=1}", "%z = add(%x, %y)", "f32[4] on @m{pp=1}");
    BAD("%x: f32[4] on @m{pp=1}, %y: f32[4] on @m{pp=2}", "%z = add(%x, %y)", SHARDING,
        "operand 0 is on @m{pp=1}, operand 1 on @m{pp=2}; an op never moves data: use send or "
        "reshard");
    BAD("%x: f32[4] on @m, %y: f32[4] on @n", "%z = add(%x, %y)", SHARDING, "never moves data");
    BAD("%x: f32[4] on @box.gpu[0], %y: f32[4] on @box.gpu[1]", "%z = add(%x, %y)", SHARDING,
        "on @box.gpu[0], operand 1 on @box.gpu[1]");
    OK("%x: f32[4] on @box.gpu[0], %y: f32[4] on @box.gpu[1 - 1]", "%z = add(%x, %y)",
       "f32[4] on @box.gpu[0]");
    OK("%x: f32[4], %y: f32[4]", "%z = add(%x, %y)", "f32[4]");
}

/* The three layouts of mixture of experts: groups split, experts split, and between them. */
Test(ops_sharding, experts) {
    OK("%x: f32[8@ep, 64, 32] on @m, %i: i32[8@ep, 64, 2] on @m",
       "%b = dispatch(%x, %i) {experts = 16, capacity = 10}\n"
       "%c = all_to_all(%b) over ep dim 0 -> 1",
       "f32[8, 16@ep, 10, 32] on @m");
    OK("%c: f32[8, 16@ep, 10, 32] on @m, %w: f32[16@ep, 32, 64] on @m, %i: i32[8@ep, 64, 2] on @m",
       "%y = einsum(%c, %w) {rule = \"g e c d, e d f -> g e c f\"}\n"
       "%b = all_to_all(%y) over ep dim 1 -> 0\n"
       "%z = combine(%b, %i)",
       "f32[8@ep, 64, 64] on @m");
    BAD("%x: f32[8, 64@tp, 32] on @m, %i: i32[8, 64@tp, 2] on @m",
        "%b = dispatch(%x, %i) {experts = 16, capacity = 10}", SHARDING, "needs all of it");
    OK("%x: f32[8@dp, 4@ep, 64, 32@tp] on @m, %i: i32[8@dp, 4@ep, 64, 2] on @m, "
       "%w: f32[8@dp, 4@ep, 64, 2] on @m",
       "%b = dispatch(%x, %i, %w) {experts = 16, capacity = 10}",
       "f32[8@dp, 4@ep, 16, 10, 32@tp] on @m");
    OK("%x: f32[8@ep, 64, 32@tp] on @m, %b: f32[8@ep, 16, 10, 32@tp] on @m, "
       "%i: i32[8@ep, 64, 2] on @m",
       "%w = combine_grad(%x, %b, %i)", "f32[8@ep, 64, 2] partial(tp) on @m");
    BAD("%x: f32[8, 64, 32] on @m, %b: f32[8, 16@ep, 10, 32] on @m, %i: i32[8, 64, 2] on @m",
        "%w = combine_grad(%x, %b, %i)", SHARDING, "needs all of it");
    OK("%d: f32[8@ep, 64@cp, 2] partial(tp) on @m, %i: i32[8@ep, 64@cp, 2] on @m",
       "%r = topk_grad(%d, %i) {size = 16}", "f32[8@ep, 64@cp, 16] partial(tp) on @m");
}

/* One Megatron layer's MLP with sequence parallelism, start to end. */
Test(ops_sharding, megatron_mlp) {
    OK("%x: f32[16@tp, 4@dp, 64] on @m, %a: f32[64, 256@tp] on @m, %b: f32[256@tp, 64] on @m",
       "%g = all_gather(%x) over tp dim 0\n"
       "%h = matmul(%g, %a)\n"
       "%r = gelu(%h)\n"
       "%z = matmul(%r, %b)\n"
       "%y = reduce_scatter(%z) over tp dim 0\n"
       "%o = add(%y, %x)",
       "f32[16@tp, 4@dp, 64] on @m");
}

/* ds_op_rule gives a search the rule with `...` spelled out. */
Test(ops_sharding, rule_of_an_op) {
    op_text t;
    op_text_init(&t, NULL, "%x: f32[2, 3, 64], %w: f32[64, 16]", "%y = matmul(%x, %w)",
                 OP_TEXT_SYMBOLIC);
    const ds_op *op = op_text_last(&t);
    const ds_type *in[2];
    for (uint32_t i = 0; i < 2; i++) in[i] = ds_value_at(t.func, op->in[i].value)->type;
    ds_type *out[1] = {NULL};
    ds_infer ctx = {.unit = t.unit, .func = t.func, .op = op, .in = in, .out = out};
    ds_rule rule;
    cr_assert_eq(ds_op_rule(&ctx, &rule, NULL), DS_OK);
    ds_buf text = {0};
    ds_rule_print(&rule, &text);
    cr_expect_str_eq(text.text, "_0 _1 k, k n -> _0 _1 n; k: sum");
    ds_buf_deinit(&text);
    op_text_deinit(&t);
}
