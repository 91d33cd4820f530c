/* Scratch of ops, against sums worked out by hand from the allocations in the code that scratch.c
 * names. */
#include "tests/support/op_text.h"

#include <criterion/criterion.h>

static void expect(const char *args, const char *line, int64_t want) {
    op_text t;
    op_text_init(&t, NULL, args, line, OP_TEXT_BOUND);
    cr_assert_eq(t.err.code, DS_OK, "%s: %s", line, t.err.message);
    int64_t got = op_text_scratch(&t);
    cr_expect_eq(got, want, "%s\n  over %s\n  want %lld\n  got  %lld", line, args, (long long)want,
                 (long long)got);
    op_text_deinit(&t);
}

#define GRAD "%dq, %dk, %dv = attention_grad(%dy, %q, %k, %v, %o, %l)"
#define QKV(T, S, H, G, D)                                                                         \
    "%dy: " T "[2, " S ", " H ", " D "], %q: " T "[2, " S ", " H ", " D "], %k: " T "[2, " S       \
    ", " G ", " D "], %v: " T "[2, " S ", " G ", " D "], %o: " T "[2, " S ", " H ", " D            \
    "], %l: f32[2, " S ", " H "]"

/* softmax_d [b, h, s'] and dq_accum [b, s', h, d'] in f32, s' and d' in whole 128 and 32. */
Test(ops_scratch, flash_attention) {
    expect(QKV("bf16", "2048", "16", "16", "128"), GRAD,
           4 * 2 * 16 * 2048 + INT64_C(4) * 2 * 2048 * 16 * 128);
    expect(QKV("f16", "130", "3", "3", "80"), GRAD, 4 * 2 * 3 * 256 + 4 * 2 * 256 * 3 * 96);
    expect(QKV("f16", "128", "3", "3", "200"), GRAD, 4 * 2 * 3 * 128 + 4 * 2 * 128 * 3 * 256);
    /* dk and dv for all 8 query heads, bf16. */
    expect(QKV("bf16", "256", "8", "2", "64"), GRAD,
           4 * 2 * 8 * 256 + 4 * 2 * 256 * 8 * 64 + 2 * 2 * (2 * 256 * 8 * 64));
    /* Not FlashAttention's: f32, and heads above 256. */
    expect(QKV("f32", "256", "8", "8", "64"), GRAD, 0);
    expect(QKV("bf16", "256", "8", "8", "512"), GRAD, 0);
}

/* The logarithm of each softmax's denominator, f32, if nothing else holds it. */
Test(ops_scratch, attention) {
    const char *args = "%q: bf16[2, 100, 16, 64], %k: bf16[2, 100, 16, 64], "
                       "%v: bf16[2, 100, 16, 64]";
    expect(args, "%y = attention(%q, %k, %v)", 4 * 2 * 100 * 16);
    expect(args, "%y, %l = attention(%q, %k, %v)", 0);
}

Test(ops_scratch, losses) {
    const char *args = "%x: bf16[2, 100, 1000], %l: i32[2, 100], %e: f32[2, 100]";
    expect(args, "%y = cross_entropy(%x, %l)", 2 * 2 * 100 * 1000);
    expect(args, "%y = cross_entropy_grad(%x, %l, %e)", 2 * (2 * 2 * 100 * 1000));
    expect(args, "%y = cross_entropy_grad(%x, %l, %e) {start = 1000}", 0);
    /* A shard of the rows; a part of each row. */
    const char *rows = "%x: f32[4@dp, 100, 800] on @m, %l: i32[4@dp, 100] on @m, "
                       "%e: f32[4@dp, 100] on @m";
    expect(rows, "%y = cross_entropy_grad(%x, %l, %e)", 2 * (4 * 100 * 800));
    const char *parts = "%x: f32[4, 100, 800@tp] on @m, %l: i32[4, 100] on @m, "
                        "%e: f32[4, 100] on @m";
    expect(parts, "%y = cross_entropy_grad(%x, %l, %e)", 0);
    expect("%x: f32[8, 10], %t: f32[8, 10]", "%y = mse(%x, %t)", 320);
    expect("%x: f32[8, 10], %t: f32[8, 10]", "%y = mse(%x, %t) {reduction = none}", 0);
}

/* n = 4096 indices into 50,000 rows: 3 n + 2 n + 4505 integers and 4505 = 409 + 4096 rows of f32;
 * into 1,000: 3 n + 2,000 + 1,409 and 1,409 rows. */
Test(ops_scratch, embedding) {
    const char *args = "%dy: bf16[2, 2048, 64], %i: i64[2, 2048]";
    expect(args, "%dw = embedding_grad(%dy, %i) {rows = 50000}",
           8 * (5 * 4096 + 4505) + 4 * 4505 * 64);
    expect(args, "%dw = embedding_grad(%dy, %i) {rows = 1000}",
           8 * (3 * 4096 + 2 * 1000 + 1409) + 4 * 1409 * 64);
    expect("%dy: bf16[3072, 64], %i: i32[3072]", "%dw = embedding_grad(%dy, %i) {rows = 50000}", 0);
    expect("%dy: f64[3073, 64], %i: i32[3073]", "%dw = embedding_grad(%dy, %i) {rows = 10}",
           4 * (3 * 3073 + 2 * 10 + 317) + 8 * 317 * 64);
}

/* The root of the second moment; nothing for what is updated in place. */
Test(ops_scratch, optimizers) {
    const char *args = "%w: bf16[10, 10], %g: bf16[10, 10], %m: f32[10, 10], %v: f32[10, 10]";
    expect(args, "%w1, %m1, %v1 = adam(%w, %g, %m, %v)", 400);
    expect(args, "%w1, %m1, %v1 = adamw(%w, %g, %m, %v)", 400);
    expect(args, "%w1, %m1 = momentum(%w, %g, %m)", 0);
    expect(args, "%w1 = sgd(%w, %g)", 0);
}

Test(ops_scratch, none_without_a_source) {
    expect("%a: f32[8, 8], %b: f32[8, 8]", "%y = matmul(%a, %b)", 0);
    expect("%d: f32[8, 8], %x: f32[8, 8]", "%y = layer_norm_grad(%d, %x)", 0);
}
