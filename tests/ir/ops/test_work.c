/* FLOPs and bytes of one device, against numbers worked out by hand or published. */
#include "ir/base/rng.h"
#include "tests/support/op_text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define MI INT64_C(1048576)

static void expect(const char *args, const char *line, int64_t flop, int64_t read,
                   int64_t written) {
    ds_work w = op_text_work_of(args, line);
    cr_expect(w.flop == flop && w.bytes_read == read && w.bytes_written == written,
              "%s\n  over %s\n  want %lld FLOPs, %lld read, %lld written\n  got  %lld, %lld, %lld",
              line, args, (long long)flop, (long long)read, (long long)written, (long long)w.flop,
              (long long)w.bytes_read, (long long)w.bytes_written);
}

/* 2·m·n·k. GPT-3 175B (width 12288): the four matrices of a layer for 2048 tokens are
 * 2·2048·12·12288² = 7,421,703,487,488 FLOPs (Brown et al. 2020, table 2.1 for the sizes). */
Test(ops_work, matmul) {
    expect("%a: f32[32, 64], %b: f32[64, 16]", "%y = matmul(%a, %b)", 65536, 12288, 2048);
    int64_t qkv =
        op_text_work_of("%x: bf16[2048, 12288], %w: bf16[12288, 36864]", "%y = matmul(%x, %w)")
            .flop;
    int64_t out =
        op_text_work_of("%x: bf16[2048, 12288], %w: bf16[12288, 12288]", "%y = matmul(%x, %w)")
            .flop;
    int64_t up =
        op_text_work_of("%x: bf16[2048, 12288], %w: bf16[12288, 49152]", "%y = matmul(%x, %w)")
            .flop;
    int64_t down =
        op_text_work_of("%x: bf16[2048, 49152], %w: bf16[49152, 12288]", "%y = matmul(%x, %w)")
            .flop;
    cr_expect_eq(qkv + out + up + down, INT64_C(7421703487488));
}

Test(ops_work, gemm_dims) {
    ds_work w = op_text_work_of("%x: bf16[3, 5, 8, 64], %w: bf16[3, 5, 16, 64]",
                                "%y = matmul(%x, %w) {transpose_b = true}");
    cr_expect_eq(w.kind, DS_WORK_GEMM);
    cr_expect(w.batch == 15 && w.m == 8 && w.n == 16 && w.k == 64 && w.dtype == DS_BF16);
    w = op_text_work_of("%x: bf16[3, 5, 64], %w: bf16[64, 16]", "%y = matmul(%x, %w)");
    cr_expect(w.batch == 1 && w.m == 15 && w.n == 16 && w.k == 64);
    w = op_text_work_of("%x: f32[32, 8], %dz: f32[32, 5]",
                        "%y = einsum(%x, %dz) {rule = \"b k, b n -> k n\"}");
    cr_expect(w.m == 8 && w.n == 5 && w.k == 32 && w.flop == 2 * 8 * 5 * 32);
    /* An outer product has no additions, a sum of one operand no multiplications. */
    cr_expect_eq(
        op_text_work_of("%x: f32[6], %y: f32[7]", "%z = einsum(%x, %y) {rule = \"a, b -> a b\"}")
            .flop,
        42);
    cr_expect_eq(op_text_work_of("%x: f32[6, 7]", "%z = einsum(%x) {rule = \"a b -> b\"}").flop,
                 42);
}

/* On a shard of the operands: an eighth each way. */
Test(ops_work, shards) {
    expect("%x: bf16[4096, 1024] on @m, %w: bf16[1024, 4096@tp] on @m", "%y = matmul(%x, %w)",
           2LL * 4096 * 1024 * 512, 2 * (4096 * 1024 + 1024 * 512), 2 * 4096 * 512);
    expect("%x: bf16[4096, 1024@tp] on @m, %w: bf16[1024@tp, 4096] on @m", "%y = matmul(%x, %w)",
           2LL * 4096 * 128 * 4096, 2 * (4096 * 128 + 128 * 4096), 2 * 4096 * 4096);
    expect("%x: f32[4@dp, 8] on @m, %y: f32[4@dp, 8] on @m", "%z = mse(%x, %y)", 24, 64, 4);
}

Test(ops_work, elementwise) {
    expect("%a: f32[4, 8], %b: f32[8]", "%y = add(%a, %b)", 32, 160, 128);
    expect("%a: f32[4, 8], %b: f32[8]", "%y = bias(%a, %b)", 32, 160, 128);
    expect("%a: bf16[4, 8]", "%y = relu(%a)", 32, 64, 64);
    expect("%a: bf16[4, 8]", "%y = gelu(%a)", 288, 64, 64);
    expect("%a: f32[4, 8]", "%y = silu(%a)", 128, 128, 128);
    expect("%a: f32[4, 8]", "%y = cast(%a) {dtype = bf16}", 0, 128, 64);
    expect("%a: f32[4, 8], %g: bf16[4, 8]", "%y = accumulate(%a, %g)", 32, 192, 128);
    expect("%a: f32[4]", "%y = zeros() : f32[10, 10]", 0, 0, 400);
    expect("%a: f4e2m1[3, 3]", "%y = neg(%a)", 9, 5, 5); /* 36 bits in 5 bytes */
}

Test(ops_work, normalisation_and_loss) {
    expect("%x: f32[4, 8]", "%y = softmax(%x)", 160, 128, 128);
    expect("%d: f32[4, 8], %y: f32[4, 8]", "%z = softmax_grad(%d, %y)", 128, 256, 128);
    expect("%x: f32[4, 8], %g: f32[8], %b: f32[8]", "%y = layer_norm(%x, %g, %b)", 224, 192, 128);
    expect("%x: f32[4, 8]", "%y = layer_norm(%x)", 160, 128, 128);
    expect("%x: f32[4, 8], %g: f32[8]", "%y = rms_norm(%x, %g)", 128, 160, 128);
    expect("%x: f32[2, 3, 4, 4], %g: f32[3], %b: f32[3]", "%y = batch_norm(%x, %g, %b)", 96 * 7,
           96 * 4 + 24, 96 * 4);
    expect("%x: f32[2, 5, 100], %l: i32[2, 5]", "%y = cross_entropy(%x, %l)", 4000, 4040, 4);
    expect("%x: f32[2, 5], %y: f32[2, 5]", "%z = mse(%x, %y)", 30, 80, 4);
    expect("%x: f32[2, 5], %y: f32[2, 5]", "%z = mse_grad(%x, %y)", 20, 80, 40);
    /* Ten rows of 16 bf16 each and ten indices, not the table of 50,000 rows. */
    expect("%i: i64[2, 5], %t: bf16[50000, 16]", "%y = embedding(%i, %t)", 0, 80 + 320, 320);
}

/* ResNet-50 conv1: 118,013,952 multiply-adds an image (He et al. 2016); its pool: 9 per output. */
Test(ops_work, convolution) {
    ds_work w = op_text_work_of("%x: f32[1, 3, 224, 224], %w: f32[64, 3, 7, 7]",
                                "%y = conv2d(%x, %w) {stride = 2, pad = 3}");
    cr_expect_eq(w.flop, 2 * INT64_C(118013952));
    cr_expect(w.kind == DS_WORK_CONV && w.m == 112 * 112 && w.n == 64 && w.k == 147);
    cr_expect(w.bytes_read == 4 * (3 * 224 * 224 + 64 * 147) &&
              w.bytes_written == 4 * 64 * 112 * 112);
    w = op_text_work_of("%x: f32[1, 64, 112, 112]",
                        "%y = max_pool(%x) {window = 3, stride = 2, pad = 1}");
    cr_expect_eq(w.flop, 9 * 64 * 56 * 56);
    /* MobileNet's depthwise 3×3 at 112×112×32: 3,612,672 multiply-adds (Howard et al. 2017, table
     * 1: 3·3·32·112·112). */
    w = op_text_work_of("%x: f32[1, 32, 112, 112], %w: f32[32, 1, 3, 3]",
                        "%y = conv2d(%x, %w) {groups = 32, pad = 1}");
    cr_expect_eq(w.flop, 2 * INT64_C(3612672));
}

/* Both gradients take the forward pass's FLOPs, as GEMMs of other shapes. */
Test(ops_work, convolution_backward) {
    const char *args = "%x: f32[8, 3, 224, 224], %w: f32[64, 3, 7, 7], %y: f32[8, 64, 112, 112]";
    int64_t flop = 2LL * 8 * 64 * 112 * 112 * 3 * 49, x = 4LL * 8 * 3 * 224 * 224;
    int64_t w = 4LL * 64 * 3 * 49, y = 4LL * 8 * 64 * 112 * 112;
    const char *by_x = "%d = conv2d_grad_x(%y, %w) {size = 224, stride = 2, pad = 3}";
    const char *by_w = "%d = conv2d_grad_w(%x, %y) {window = 7, stride = 2, pad = 3}";
    expect("%w: f32[64, 3, 7, 7], %y: f32[8, 64, 112, 112]", by_x, flop, y + w, x);
    expect("%x: f32[8, 3, 224, 224], %y: f32[8, 64, 112, 112]", by_w, flop, x + y, w);
    ds_work a = op_text_work_of(args, by_x), b = op_text_work_of(args, by_w);
    cr_expect(a.kind == DS_WORK_CONV && a.m == 8 * 112 * 112 && a.n == 147 && a.k == 64);
    cr_expect(b.kind == DS_WORK_CONV && b.m == 64 && b.n == 147 && b.k == 8 * 112 * 112);
    expect("%x: f32[1, 32, 112, 112], %y: f32[1, 32, 112, 112]",
           "%d = conv2d_grad_w(%x, %y) {groups = 32, pad = 1, window = 3}", 2 * INT64_C(3612672),
           2 * 4LL * 32 * 112 * 112, 4 * 32 * 9);
    expect("%y: f32[2, 3, 4, 4], %x: f32[2, 3, 8, 8]", "%d = max_pool_grad(%y, %x) {window = 2}",
           96 * 4, 4 * (96 + 384), 4 * 384);
    expect("%y: f32[2, 3, 4, 4]", "%d = avg_pool_grad(%y) {window = 2, size = 8}", 96 * 4, 4 * 96,
           4 * 384);
}

/* 4·b·h·s·t·d, half of it if causal; without flash the scores and probabilities cross memory. */
Test(ops_work, attention) {
    const char *args =
        "%q: bf16[2, 1024, 16, 64], %k: bf16[2, 1024, 4, 64], %v: bf16[2, 1024, 4, 64]";
    int64_t q = 2LL * 2 * 1024 * 16 * 64, kv = q / 4, scores = 2LL * 2 * 16 * 1024 * 1024;
    expect(args, "%y = attention(%q, %k, %v)", 4LL * 2 * 16 * 1024 * 1024 * 64, q + 2 * kv, q);
    expect(args, "%y = attention(%q, %k, %v) {causal = true}", 2LL * 2 * 16 * 1024 * 1024 * 64,
           q + 2 * kv, q);
    expect(args, "%y = attention(%q, %k, %v) {flash = false}", 4LL * 2 * 16 * 1024 * 1024 * 64,
           q + 2 * kv + 2 * scores, q + 2 * scores);
    ds_work w = op_text_work_of(args, "%y = attention(%q, %k, %v) {causal = true}");
    cr_expect(w.kind == DS_WORK_ATTENTION && w.batch == 2 && w.heads == 16 && w.kv_heads == 4);
    cr_expect(w.seq_q == 1024 && w.seq_kv == 1024 && w.head_dim == 64 && w.causal);
    expect("%x: f32[2, 3, 4, 8]", "%y = rotary(%x)", 3 * 192, 768, 768);
    int64_t lse = 4LL * 2 * 1024 * 16;
    expect(args, "%y, %l = attention(%q, %k, %v)", 4LL * 2 * 16 * 1024 * 1024 * 64, q + 2 * kv,
           q + lse);
    expect(args, "%y = attention(%q, %k, %v) {causal = true, q_start = 0}",
           4LL * 2 * 16 * 1024 * 1024 * 64, q + 2 * kv, q);
}

/* A causal sequence of t tokens in chunks of c, each with the keys so far, has the pairs of the
 * whole: t²/2, of w keys t w - w²/2. */
Test(ops_work, chunks_of_a_causal_attention) {
    const int64_t t = 1024, c = 128, head = 64;
    const int64_t windows[] = {0, 32, 200, 500};
    for (int k = 0; k < 4; k++) {
        int64_t sum = 0, w = windows[k];
        for (int64_t end = c; end <= t; end += c) {
            char args[200], line[100];
            snprintf(args, sizeof args,
                     "%%q: bf16[1, %d, 1, 64], %%k: bf16[1, %d, 1, 64], %%v: bf16[1, %d, 1, 64]",
                     (int)c, (int)end, (int)end);
            snprintf(line, sizeof line, "%%y = attention(%%q, %%k, %%v) {causal = true%s%.0d}",
                     w ? ", window = " : "", (int)w);
            sum += op_text_work_of(args, line).flop;
        }
        cr_expect_eq(sum, 2 * head * (w ? 2 * t * w - w * w : t * t), "window %d", (int)w);
    }
}

/* Five products for the forward pass's two. */
Test(ops_work, attention_grad) {
    const char *args = "%q: bf16[2, 1024, 16, 64], %k: bf16[2, 1024, 4, 64], %l: f32[2, 1024, 16]";
    int64_t q = 2LL * 2 * 1024 * 16 * 64, kv = q / 4, lse = 4LL * 2 * 1024 * 16;
    const char *line = "%a, %b, %c = attention_grad(%q, %q, %k, %k, %q, %l)";
    expect(args, line, 10LL * 2 * 16 * 1024 * 1024 * 64, 3 * q + 2 * kv + lse, q + 2 * kv);
    expect(args, "%a, %b, %c = attention_grad(%q, %q, %k, %k, %q, %l) {causal = true}",
           5LL * 2 * 16 * 1024 * 1024 * 64, 3 * q + 2 * kv + lse, q + 2 * kv);
    expect(args, "%a, %b, %c = attention_grad(%q, %q, %k, %k, %q, %l) {causal = true, k_start = 8}",
           10LL * 2 * 16 * 1024 * 1024 * 64, 3 * q + 2 * kv + lse, q + 2 * kv);
    ds_work w = op_text_work_of(args, line);
    cr_expect(w.kind == DS_WORK_ATTENTION && w.batch == 2 && w.heads == 16 && w.kv_heads == 4);
    cr_expect(w.seq_q == 1024 && w.seq_kv == 1024 && w.head_dim == 64 && !w.causal);
    expect("%o: bf16[2, 8, 4, 16], %l: f32[2, 8, 4]", "%a, %b = attention_merge(%o, %l, %o, %l)",
           3 * 1024, 2 * (2 * 1024 + 4 * 64), 2 * 1024 + 4 * 64);
}

Test(ops_work, lstm) {
    const char *args =
        "%x: f32[16, 50, 512], %wx: f32[512, 4096], %wh: f32[1024, 4096], %b: f32[4096]";
    int64_t steps = 16 * 50, in = 4LL * (steps * 512 + 512 * 4096 + 1024 * 4096);
    expect(args, "%y = lstm(%x, %wx, %wh)", steps * (2LL * 4096 * 1536 + 18 * 1024), in,
           4 * steps * 1024);
    expect(args, "%y = lstm(%x, %wx, %wh, %b)", steps * (2LL * 4096 * 1536 + 22 * 1024),
           in + 4 * 4096, 4 * steps * 1024);
    ds_work w = op_text_work_of(args, "%y = lstm(%x, %wx, %wh)");
    cr_expect(w.kind == DS_WORK_RECURRENT && w.batch == 50 && w.m == 16 && w.n == 4096 &&
              w.k == 1536);
    const char *back = "%y: f32[16, 50, 1024], %x: f32[16, 50, 512], %wx: f32[512, 4096], "
                       "%wh: f32[1024, 4096], %b: f32[4096]";
    const char *line = "%a, %d, %e = lstm_grad(%y, %x, %wx, %wh)";
    int64_t dy = 4 * steps * 1024;
    expect(back, line, steps * (6LL * 4096 * 1536 + 41 * 1024), dy + in, in);
    expect(back, "%a, %d, %e, %f = lstm_grad(%y, %x, %wx, %wh, %b)",
           steps * (6LL * 4096 * 1536 + 49 * 1024), dy + in + 4 * 4096, in + 4 * 4096);
    w = op_text_work_of(back, line);
    cr_expect(w.kind == DS_WORK_RECURRENT && w.batch == 50 && w.m == 16 && w.n == 4096 &&
              w.k == 1536);
}

Test(ops_work, layout_and_reductions) {
    expect("%x: f32[4, 6]", "%y = reshape(%x) : f32[24]", 0, 0, 0);
    expect("%x: f32[4, 6]", "%a, %b = split(%x)", 0, 0, 0);
    expect("%x: f32[4, 6]", "%y = transpose(%x)", 0, 96, 96);
    expect("%x: f32[4, 6], %y: f32[4, 6]", "%z = concat(%x, %y)", 0, 192, 192);
    expect("%x: f32[4, 6]", "%y = pad(%x) {hi = 1}", 0, 96, 120);
    expect("%x: f32[4, 6]", "%y = reduce_sum(%x) {dims = [0]}", 24, 96, 24);
    expect("%x: f32[4, 6]", "%y = reduce_max(%x)", 24, 96, 4);
    cr_expect_eq(op_text_work_of("%x: f32[4, 6]", "%y = reshape(%x) : f32[24]").kind, DS_WORK_NONE);
}

Test(ops_work, experts) {
    expect("%x: f32[8, 64, 16]", "%v, %i = topk(%x) {k = 2}", 8 * 64 * 16 * 2, 8 * 64 * 64,
           8 * 64 * 2 * 8);
    expect("%x: bf16[8, 64, 32], %i: i32[8, 64, 2]",
           "%y = dispatch(%x, %i) {experts = 16, capacity = 10}", 0, 8 * 64 * (64 + 8),
           16 * 8 * 10 * 64);
    expect("%y: bf16[8, 16, 10, 32], %i: i32[8, 64, 2], %w: f32[8, 64, 2]",
           "%z = combine(%y, %i, %w)", 2 * 8 * 64 * 2 * 32, 8 * 64 * 2 * (64 + 4 + 4), 8 * 64 * 64);
    expect("%x: bf16[8, 64, 32], %i: i32[8, 64, 2], %w: f32[8, 64, 2]",
           "%y = dispatch(%x, %i, %w) {experts = 16, capacity = 10}", 8 * 64 * 2 * 32,
           8 * 64 * (64 + 8 + 8), 16 * 8 * 10 * 64);
    expect("%x: bf16[8, 64, 32], %y: bf16[8, 16, 10, 32], %i: i32[8, 64, 2]",
           "%w = combine_grad(%x, %y, %i)", 2 * 8 * 64 * 2 * 32,
           8 * 64 * 64 + 8 * 64 * 2 * (64 + 4), 8 * 64 * 2 * 2);
    expect("%d: f32[8, 64, 2], %i: i32[8, 64, 2]", "%r = topk_grad(%d, %i) {size = 16}", 0,
           8 * 64 * 2 * 8, 8 * 64 * 16 * 4);
}

Test(ops_work, optimizers) {
    const char *args = "%w: f32[8, 4], %g: f32[8, 4], %m: f32[8, 4], %v: f32[8, 4]";
    expect(args, "%a = sgd(%w, %g)", 64, 256, 128);
    expect(args, "%a, %b = momentum(%w, %g, %m)", 128, 384, 256);
    expect(args, "%a, %b, %c = adam(%w, %g, %m, %v)", 14 * 32, 512, 384);
    expect(args, "%a, %b, %c = adamw(%w, %g, %m, %v)", 16 * 32, 512, 384);
}

Test(ops_work, collectives_are_the_networks_time) {
    ds_work w = op_text_work_of("%x: f32[1024] partial(dp) on @m", "%y = all_reduce(%x) over dp");
    cr_expect(w.kind == DS_WORK_NONE && w.flop == 0 && w.bytes_read == 4096 &&
              w.bytes_written == 4096);
    w = op_text_work_of("%x: f32[1024@tp] on @m", "%y = all_gather(%x) over tp dim 0");
    cr_expect(w.bytes_read == 512 && w.bytes_written == 4096);
}

Test(ops_work, overflow_is_an_error) {
    op_text t;
    op_text_init(&t, NULL, "%a: f32[4000000000, 4000000000], %b: f32[4000000000, 4000000000]",
                 "%y = matmul(%a, %b)", OP_TEXT_BOUND);
    cr_assert_eq(t.err.code, DS_OK);
    op_text_work(&t);
    cr_expect_eq(t.err.code, DS_ERR_OVERFLOW);
    op_text_deinit(&t);
}

/* ---- brute force: count the points of a random rule's iteration space one by one ---- */

#define MAX_FACTORS 5

typedef struct random_rule {
    uint32_t n, size[MAX_FACTORS];
    uint32_t in[2], out; /* bit f: the term has factor f */
} random_rule;

static void write_term(ds_buf *text, const random_rule *r, uint32_t term, bool sizes) {
    const char *gap = "";
    for (uint32_t f = 0; f < r->n; f++) {
        if (!(term & (1u << f))) continue;
        if (sizes)
            ds_buf_printf(text, "%s%u", gap, r->size[f]);
        else
            ds_buf_printf(text, "%s%c", gap, (char)('p' + f));
        gap = sizes ? ", " : " ";
    }
}

/* What a naive interpreter does: for each result element start from the first product, then add. */
static int64_t count_flops(const random_rule *r) {
    int64_t points = 0, results = 1;
    uint32_t at[MAX_FACTORS] = {0};
    for (;;) {
        points++;
        uint32_t f = 0;
        while (f < r->n && ++at[f] == r->size[f]) at[f++] = 0;
        if (f == r->n) break;
    }
    for (uint32_t f = 0; f < r->n; f++)
        if (r->out & (1u << f)) results *= r->size[f];
    /* An accumulator that starts at zero makes an addition of every point, if there is a sum. */
    return points + (results < points || (r->out != (1u << r->n) - 1) ? points : 0);
}

Test(ops_work, brute_force) {
    ds_rng rng = {7};
    for (int round = 0; round < 200; round++) {
        random_rule r = {.n = 1 + (uint32_t)ds_rng_below(&rng, MAX_FACTORS)};
        for (uint32_t f = 0; f < r.n; f++) {
            r.size[f] = 1 + (uint32_t)ds_rng_below(&rng, 4);
            uint32_t where = 1 + (uint32_t)ds_rng_below(&rng, 3);
            for (uint32_t i = 0; i < 2; i++)
                if (where & (1u << i)) r.in[i] |= 1u << f;
            if (ds_rng_below(&rng, 2)) r.out |= 1u << f;
        }
        ds_buf args = {0}, line = {0};
        ds_buf_put(&args, "%x: f32[");
        write_term(&args, &r, r.in[0], true);
        ds_buf_put(&args, "], %y: f32[");
        write_term(&args, &r, r.in[1], true);
        ds_buf_put(&args, "]");
        ds_buf_put(&line, "%z = einsum(%x, %y) {rule = \"");
        write_term(&line, &r, r.in[0], false);
        ds_buf_put(&line, ", ");
        write_term(&line, &r, r.in[1], false);
        ds_buf_put(&line, " -> ");
        write_term(&line, &r, r.out, false);
        ds_buf_put(&line, "\"}");
        ds_work w = op_text_work_of(args.text, line.text);
        cr_expect_eq(w.flop, count_flops(&r), "%s over %s: %lld", line.text, args.text,
                     (long long)w.flop);
        ds_buf_deinit(&args);
        ds_buf_deinit(&line);
    }
}
