/* Types, shardings and work of the backward ops of losses, norms and reductions, and of expand,
 * pick and after (OPS.generated.md). */
#include "tests/support/op_text.h"

#include <criterion/criterion.h>

#define OK(args, line, want)        op_text_expect(args, line, want)
#define BAD(args, line, code, part) op_text_expect_error(args, line, DS_ERR_##code, part)

static void work(const char *args, const char *line, int64_t flop, int64_t read, int64_t written) {
    ds_work w = op_text_work_of(args, line);
    cr_expect(w.flop == flop && w.bytes_read == read && w.bytes_written == written,
              "%s\n  over %s\n  want %lld FLOPs, %lld read, %lld written\n  got  %lld, %lld, %lld",
              line, args, (long long)flop, (long long)read, (long long)written, (long long)w.flop,
              (long long)w.bytes_read, (long long)w.bytes_written);
}

/* ---- expand ---- */

Test(ops_backward, expand) {
    OK("%x: f32[4, 8]", "%y = expand(%x) {dims = [1], sizes = [16]}", "f32[4, 16, 8]");
    OK("%x: bf16[]", "%y = expand(%x) {dims = 0, sizes = 5}", "bf16[5]");
    OK("%x: i32[4]", "%y = expand(%x) {dims = [-1, 0], sizes = [5, 6]}", "i32[6, 4, 5]");
    OK("%x: f32[4@dp, 8] on @m", "%y = expand(%x) {dims = [1], sizes = [16]} : f32[4@dp, 16@tp, 8]",
       "f32[4@dp, 16@tp, 8] on @m");
    OK("%x: f32[4@dp, 8] on @m", "%y = expand(%x) {dims = [1], sizes = [16]}",
       "f32[4@dp, 16, 8] on @m");
    OK("%x: f32[4, 8@tp] partial(dp) on @m", "%y = expand(%x) {dims = [0], sizes = [2]}",
       "f32[2, 4, 8@tp] partial(dp) on @m");
    /* The written type splits new dims alone. */
    OK("%x: f32[4, 8] on @m", "%y = expand(%x) {dims = [0], sizes = [2]} : f32[2, 4@dp, 8]",
       "f32[2, 4, 8] on @m");
    BAD("%x: f32[4@dp, 8] on @m", "%y = expand(%x) {dims = [1], sizes = [16]} : f32[4, 16@dp, 8]",
        SHARDING, "uses axis dp twice");
    BAD("%x: f32[4@dp, 8] on @m", "%y = expand(%x) {dims = [1], sizes = [12]} : f32[4, 12@tp, 8]",
        SHAPE, "does not divide into 8 (tp) parts");
    BAD("%x: f32[4]", "%y = expand(%x) {dims = [2], sizes = [3]}", VALUE, "'dims' is 2");
    BAD("%x: f32[4]", "%y = expand(%x) {dims = [0, 0], sizes = [3, 3]}", VALUE, "twice");
    BAD("%x: f32[4]", "%y = expand(%x) {dims = [0, 1], sizes = [3]}", TYPE,
        "1 sizes are given for 2 new dims");
    BAD("%x: f32[4]", "%y = expand(%x) {dims = [0], sizes = [0]}", SHAPE, "dim 0 has size 0");
    BAD("%x: f32[4]", "%y = expand(%x) {dims = [0], sizes = [-1]}", VALUE, "at least 0");
    BAD("%x: f32[4]", "%y = expand(%x) {dims = [0]}", TYPE, "needs the attribute 'sizes'");
    BAD("%x: f32[1, 1, 1, 1, 1, 1, 1, 1]", "%y = expand(%x) {dims = [0], sizes = [2]}", LIMIT,
        "more than 8 dims");
    work("%x: f32[4, 8]", "%y = expand(%x) {dims = [1], sizes = [16]}", 0, 128, 2048);
}

/* ---- after ---- */

Test(ops_backward, after) {
    OK("%x: f32[4@dp, 8] partial(tp) on @m, %y: i32[7] on @m, %z: bf16[4] partial(dp) on @m",
       "%a = after(%x, %y, %z)", "f32[4@dp, 8] partial(tp) on @m");
    OK("%x: f32[4] partial(tp, max) on @m", "%a = after(%x)", "f32[4] partial(tp, max) on @m");
    BAD("%x: f32[4] on @m, %y: f32[4] on @n", "%a = after(%x, %y)", SHARDING, "never moves data");
    cr_expect_eq(op_text_work_of("%x: f32[4], %y: f32[4]", "%a = after(%x, %y)").kind,
                 DS_WORK_NONE);
}

/* ---- look-up ---- */

Test(ops_backward, pick) {
    OK("%x: f32[4@dp, 6, 96] on @m, %l: i32[4@dp, 6] on @m", "%y = pick(%x, %l)",
       "f32[4@dp, 6] on @m");
    OK("%x: f32[4@dp, 96@tp] on @m, %l: i64[4@dp] on @m", "%y = pick(%x, %l)",
       "f32[4@dp] partial(tp) on @m");
    OK("%x: f32[4, 96] partial(tp) on @m, %l: i32[4] on @m", "%y = pick(%x, %l)",
       "f32[4] partial(tp) on @m");
    BAD("%x: f32[4@dp, 96] on @m, %l: i32[4] on @m", "%y = pick(%x, %l)", SHARDING,
        "belong together");
    BAD("%x: f32[4, 96], %l: f32[4]", "%y = pick(%x, %l)", TYPE, "an integer dtype is needed");
    BAD("%x: f32[4, 96], %l: i32[5]", "%y = pick(%x, %l)", SHAPE, "must be equal");
    work("%x: bf16[4, 6, 50000], %l: i32[4, 6]", "%y = pick(%x, %l)", 0, 96 + 48, 48);
}

Test(ops_backward, embedding_grad) {
    OK("%d: f32[4@dp, 6, 16] on @m, %i: i32[4@dp, 6] on @m",
       "%t = embedding_grad(%d, %i) {rows = 64}", "f32[64, 16] partial(dp) on @m");
    OK("%d: f32[4@dp, 6, 16] on @m, %i: i32[4@dp, 6] on @m",
       "%t = embedding_grad(%d, %i) {rows = 64} : f32[64@tp, 16] partial(dp)",
       "f32[64@tp, 16] partial(dp) on @m");
    OK("%d: f32[4, 6, 16@tp] on @m, %i: i32[4, 6] on @m", "%t = embedding_grad(%d, %i) {rows = 64}",
       "f32[64, 16@tp] on @m");
    OK("%d: f32[24, 16] partial(tp) on @m, %i: i32[24] on @m",
       "%t = embedding_grad(%d, %i) {rows = 64}", "f32[64, 16] partial(tp) on @m");
    BAD("%d: f32[4@dp, 6, 16] on @m, %i: i32[4@dp, 6] on @m",
        "%t = embedding_grad(%d, %i) {rows = 64} : f32[64@dp, 16]", SHARDING, "axis dp twice");
    BAD("%d: f32[24, 16], %i: i32[24]", "%t = embedding_grad(%d, %i)", TYPE, "'rows'");
    BAD("%d: f32[24, 16], %i: i32[24]", "%t = embedding_grad(%d, %i) {rows = 0}", VALUE,
        "at least 1");
    /* 24 rows of 16 are added up, the whole table is written. */
    work("%d: bf16[4, 6, 16], %i: i32[4, 6]", "%t = embedding_grad(%d, %i) {rows = 1000}", 384,
         768 + 96, 32000);
}

/* ---- losses ---- */

Test(ops_backward, cross_entropy) {
    OK("%x: bf16[4@dp, 6, 96] on @m, %l: i32[4@dp, 6] on @m", "%y, %s = cross_entropy(%x, %l)",
       "bf16[] partial(dp) on @m; f32[4@dp, 6] on @m");
    OK("%x: bf16[4@dp, 6, 96] on @m, %l: i32[4@dp, 6] on @m",
       "%y, %s = cross_entropy(%x, %l) {reduction = none}",
       "bf16[4@dp, 6] on @m; f32[4@dp, 6] on @m");
    OK("%x: bf16[4@dp, 6, 96@tp] on @m, %l: i32[4@dp, 6] on @m, %s: f32[4@dp, 6] on @m",
       "%d = cross_entropy_grad(%x, %l, %s)", "bf16[4@dp, 6, 96@tp] on @m");
    BAD("%x: bf16[4, 96@tp] on @m, %l: i32[4] on @m, %s: f32[4] partial(tp) on @m",
        "%d = cross_entropy_grad(%x, %l, %s)", SHARDING, "not linear");
    BAD("%x: f32[4, 96], %l: i32[4], %s: i32[4]", "%d = cross_entropy_grad(%x, %l, %s)", TYPE,
        "operand 2 is i32, but a float dtype is needed");
    work("%x: f32[2, 5, 100], %l: i32[2, 5]", "%y, %s = cross_entropy(%x, %l)", 4000, 4040, 44);
    work("%x: f32[2, 5, 100], %l: i32[2, 5], %s: f32[2, 5]", "%d = cross_entropy_grad(%x, %l, %s)",
         3000, 4080, 4000);
}

/* ---- norms ---- */

Test(ops_backward, norms) {
    OK("%d: bf16[4@dp, 8] on @m, %x: bf16[4@dp, 8] on @m, %g: f32[8] on @m",
       "%dx, %dg, %db = layer_norm_grad(%d, %x, %g)",
       "bf16[4@dp, 8] on @m; f32[8] partial(dp) on @m; f32[8] partial(dp) on @m");
    OK("%d: bf16[4@dp, 8] partial(tp) on @m, %x: bf16[4@dp, 8] on @m, %g: f32[8] on @m",
       "%dx, %dg = rms_norm_grad(%d, %x, %g)",
       "bf16[4@dp, 8] partial(tp) on @m; f32[8] partial(tp, dp) on @m");
    OK("%d: bf16[4@dp, 8] on @m, %x: bf16[4@dp, 8] on @m", "%dx = layer_norm_grad(%d, %x)",
       "bf16[4@dp, 8] on @m");
    OK("%d: f32[32@dp, 16@tp, 7, 7] on @m, %x: f32[32@dp, 16@tp, 7, 7] on @m, %g: f32[16@tp] on @m",
       "%dx, %dg, %db = batch_norm_grad(%d, %x, %g) {groups = 4}",
       "f32[32@dp, 16@tp, 7, 7] on @m; f32[16@tp] partial(dp) on @m; f32[16@tp] partial(dp) on @m");
    BAD("%d: f32[32@dp, 16] on @m, %x: f32[32@dp, 16] on @m",
        "%dx = batch_norm_grad(%d, %x) {groups = 2}", SHAPE, "does not divide 2");
    BAD("%d: f32[4, 8@tp] on @m, %x: f32[4, 8@tp] on @m", "%dx = layer_norm_grad(%d, %x)", SHARDING,
        "needs all of it");
    BAD("%d: f32[4], %x: f32[4]", "%dx = batch_norm_grad(%d, %x)", SHAPE,
        "batch_norm_grad: operand 0 has 1 dims");
    BAD("%d: f32[4], %x: f32[4], %g: f32[4]", "%dx, %dg, %db, %e = layer_norm_grad(%d, %x, %g)",
        TYPE, "1 to 3 results");
    /* 12 per element; a scale 1, its gradient 2, the shift's 1: 16 in all */
    work("%d: f32[4, 8], %x: f32[4, 8], %g: f32[8]", "%dx, %dg, %db = layer_norm_grad(%d, %x, %g)",
         32 * 16, 288, 192);
    work("%d: f32[4, 8], %x: f32[4, 8]", "%dx = layer_norm_grad(%d, %x)", 32 * 12, 256, 128);
    work("%d: f32[4, 8], %x: f32[4, 8], %g: f32[8]", "%dx, %dg = rms_norm_grad(%d, %x, %g)",
         32 * 11, 288, 160);
    work("%d: f32[2, 3, 4], %x: f32[2, 3, 4], %g: f32[3]",
         "%dx, %dg, %db = batch_norm_grad(%d, %x, %g)", 24 * 16, 204, 120);
}

/* ---- elementwise and reductions ---- */

Test(ops_backward, elementwise) {
    OK("%d: f32[4@dp, 8] partial(tp) on @m, %x: f32[4@dp, 8] on @m", "%y = silu_grad(%d, %x)",
       "f32[4@dp, 8] partial(tp) on @m");
    BAD("%d: i32[4], %x: i32[4]", "%y = tanh_grad(%d, %x)", TYPE, "float");
    work("%d: f32[4, 8], %x: f32[4, 8]", "%y = silu_grad(%d, %x)", 288, 256, 128);
    work("%d: f32[4, 8], %x: f32[4, 8]", "%y = tanh_grad(%d, %x)", 96, 256, 128);
    work("%d: f32[4, 8], %x: f32[4, 8]", "%y = sigmoid_grad(%d, %x)", 96, 256, 128);
    work("%x: f32[4, 8]", "%y = log(%x)", 32, 128, 128);
    BAD("%x: f32[4] partial(dp) on @m", "%y = log(%x)", SHARDING, "not linear");
}

Test(ops_backward, reduce_max_grad) {
    OK("%d: f32[4@dp] on @m, %x: f32[4@dp, 8] on @m", "%y = reduce_max_grad(%d, %x) {dims = [1]}",
       "f32[4@dp, 8] on @m");
    OK("%d: f32[4@dp, 1] partial(tp) on @m, %x: f32[4@dp, 8] on @m",
       "%y = reduce_max_grad(%d, %x) {dims = [-1], keep = true}", "f32[4@dp, 8] partial(tp) on @m");
    OK("%d: f32[], %x: f32[4, 8]", "%y = reduce_max_grad(%d, %x)", "f32[4, 8]");
    BAD("%d: f32[4] on @m, %x: f32[4, 8@tp] on @m", "%y = reduce_max_grad(%d, %x) {dims = [1]}",
        SHARDING, "needs all of it");
    BAD("%d: f32[8], %x: f32[4, 8]", "%y = reduce_max_grad(%d, %x) {dims = [1]}", SHAPE,
        "must be equal");
    BAD("%d: f32[4], %x: f32[4, 8]", "%y = reduce_max_grad(%d, %x)", SHAPE,
        "operand 0 has 1 dim, but 0");
    work("%d: f32[4], %x: f32[4, 8]", "%y = reduce_max_grad(%d, %x) {dims = [1]}", 32, 144, 128);
}
