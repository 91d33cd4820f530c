/* causal_conv and ssd_scan: values against the dual form and by hand, gradients against
 * differences, shards against the whole, work against closed forms; rms_norm over groups; and the
 * hybrid model that is made of them. */
#include "tests/support/exec.h"
#include "tests/support/gradient.h"
#include "tests/support/op_text.h"
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

static double softplus(double x) {
    return log(1 + exp(x));
}

/* ---- convolution ---- */

Test(state_space, convolution_by_hand) {
    exec_case c;
    exec_lines(&c, "%x: f64[1, 3, 2], %w: f64[2, 2], %b: f64[2]", "f64[1, 3, 2], f64[1, 3, 2]",
               "%y = causal_conv(%x, %w, %b)\n%z = causal_conv(%x, %w) {silu = true}\n"
               "return %y, %z");
    const double *x = exec_in(&c, "x"), *w = exec_in(&c, "w"), *b = exec_in(&c, "b");
    double y[6], z[6];
    for (int s = 0; s < 3; s++)
        for (int k = 0; k < 2; k++) {
            double sum = w[2 * k + 1] * x[2 * s + k];
            if (s > 0) sum += w[2 * k] * x[2 * (s - 1) + k];
            y[2 * s + k] = sum + b[k];
            z[2 * s + k] = sum / (1 + exp(-sum));
        }
    exec_expect(exec_out(&c, "y"), y, 6, "convolved");
    exec_expect(exec_out(&c, "z"), z, 6, "silu of it");
    exec_free(&c);
}

Test(state_space, convolution_gradients) {
    gradient_check("%x: f64[2, 5, 3], %w: f64[3, 4], %b: f64[3], %dy: f64[2, 5, 3]",
                   "%y = causal_conv(%x, %w, %b) {silu = true}\n"
                   "%dx, %dw, %db = causal_conv_grad(%dy, %x, %w, %b) {silu = true}",
                   "x w b");
    gradient_check("%x: f64[1, 3, 2], %w: f64[2, 2], %dy: f64[1, 3, 2]",
                   "%y = causal_conv(%x, %w)\n%dx, %dw = causal_conv_grad(%dy, %x, %w)", "x w");
}

/* ---- scan ---- */

/* The other side of the duality (Dao and Gu 2024, section 3): y = (L o C B') (t x) + d x with
 * L[i, j] = exp(a (t_{j+1} + … + t_i)), a masked attention without a softmax. */
Test(state_space, scan_is_its_dual) {
    enum { S = 6, H = 4, P = 3, G = 2, N = 2 };
    exec_case c;
    exec_lines(&c,
               "%x: f64[1, 6, 4, 3], %dt: f64[1, 6, 4], %b: f64[1, 6, 2, 2], %c: f64[1, 6, 2, 2], "
               "%a: f64[4], %d: f64[4], %e: f64[4]",
               "f64[1, 6, 4, 3], f64[1, 6, 4, 3]",
               "%y = ssd_scan(%x, %dt, %b, %c, %a, %d, %e)\n"
               "%z = ssd_scan(%x, %dt, %b, %c, %a, %d, %e) {chunk = 2}\nreturn %y, %z");
    const double *x = exec_in(&c, "x"), *dt = exec_in(&c, "dt"), *b = exec_in(&c, "b");
    const double *cc = exec_in(&c, "c"), *a = exec_in(&c, "a"), *d = exec_in(&c, "d");
    const double *e = exec_in(&c, "e");
    double y[S * H * P];
    for (int i = 0; i < S; i++)
        for (int h = 0; h < H; h++)
            for (int p = 0; p < P; p++) {
                double sum = d[h] * x[(i * H + h) * P + p], decay = 0;
                for (int j = i; j >= 0; j--) {
                    double t = softplus(dt[j * H + h] + e[h]), score = 0;
                    for (int n = 0; n < N; n++)
                        score += cc[(i * G + h / 2) * N + n] * b[(j * G + h / 2) * N + n];
                    sum += exp(-exp(a[h]) * decay) * score * t * x[(j * H + h) * P + p];
                    decay += t;
                }
                y[(i * H + h) * P + p] = sum;
            }
    exec_expect(exec_out(&c, "y"), y, S * H * P, "the dual");
    exec_expect(exec_out(&c, "z"), y, S * H * P, "blocks change nothing");
    exec_free(&c);
}

Test(state_space, scan_gradients) {
    gradient_check("%x: f64[2, 4, 4, 2], %dt: f64[2, 4, 4], %b: f64[2, 4, 2, 3], "
                   "%c: f64[2, 4, 2, 3], %a: f64[4], %d: f64[4], %e: f64[4], "
                   "%dy: f64[2, 4, 4, 2]",
                   "%y = ssd_scan(%x, %dt, %b, %c, %a, %d, %e)\n"
                   "%dx, %ddt, %db, %dc, %da, %dd, %de = "
                   "ssd_scan_grad(%dy, %x, %dt, %b, %c, %a, %d, %e)",
                   "x dt b c a d e");
}

/* ---- groups of rms_norm ---- */

Test(state_space, norm_of_groups) {
    exec_case c;
    exec_lines(&c, "%x: f64[2, 2, 3], %w: f64[2, 3]", "f64[2, 2, 3]",
               "%y = rms_norm(%x, %w) {eps = 0.5}\nreturn %y");
    const double *x = exec_in(&c, "x"), *w = exec_in(&c, "w");
    double y[12];
    for (int row = 0; row < 4; row++) {
        double square = 0;
        for (int i = 0; i < 3; i++) square += x[3 * row + i] * x[3 * row + i] / 3;
        for (int i = 0; i < 3; i++)
            y[3 * row + i] = x[3 * row + i] / sqrt(square + 0.5) * w[row % 2 * 3 + i];
    }
    exec_expect(exec_out(&c, "y"), y, 12, "each group has its scales");
    exec_free(&c);
    gradient_check("%x: f64[2, 2, 3], %w: f64[2, 3], %dy: f64[2, 2, 3]",
                   "%y = rms_norm(%x, %w)\n%dx, %dw = rms_norm_grad(%dy, %x, %w)", "x w");
}

/* ---- work ---- */

/* Nemotron 3 Nano's scan of 8,192 tokens, in bf16. */
#define SCAN                                                                                       \
    "%x: bf16[1, 8192, 64, 64], %dt: bf16[1, 8192, 64], %b: bf16[1, 8192, 8, 128], "               \
    "%c: bf16[1, 8192, 8, 128], %a: f32[64], %d: f32[64], %e: f32[64]"

Test(state_space, work_of_a_scan) {
    const int64_t s = 8192, q = 128, hp = 64 * 64, gn = 8 * 128, n = 128;
    const int64_t states = s / q * hp * n, scores = s * q * 8;
    const int64_t operands = 2 * s * (hp + 64 + 2 * gn) + 3 * 4 * 64;
    ds_work w = op_text_work_of(SCAN, "%y = ssd_scan(%x, %dt, %b, %c, %a, %d, %e)");
    cr_expect_eq(w.kind, DS_WORK_RECURRENT);
    cr_expect_eq(w.flop, 2 * s * q * (gn + hp) + 4 * s * hp * n);
    cr_expect_eq(w.bytes_read, operands + 6 * states + 4 * scores);
    cr_expect_eq(w.bytes_written, 2 * s * hp + 6 * states + 4 * scores);
    w = op_text_work_of("%dy: bf16[1, 8192, 64, 64], " SCAN,
                        "%i, %j, %k, %l, %m, %n, %o = "
                        "ssd_scan_grad(%dy, %x, %dt, %b, %c, %a, %d, %e)");
    cr_expect_eq(w.flop, 6 * s * q * (gn + hp) + 10 * s * hp * n);
    cr_expect_eq(w.bytes_read, operands + 2 * s * hp + 18 * states + 16 * scores);
    cr_expect_eq(w.bytes_written, operands + 16 * states + 8 * scores);
}

/* A block longer than the sequence is the sequence. */
Test(state_space, work_of_a_short_scan) {
    const char *args = "%x: f32[2, 8, 4, 2], %dt: f32[2, 8, 4], %b: f32[2, 8, 2, 3], "
                       "%c: f32[2, 8, 2, 3], %a: f32[4], %d: f32[4], %e: f32[4]";
    ds_work w = op_text_work_of(args, "%y = ssd_scan(%x, %dt, %b, %c, %a, %d, %e)");
    cr_expect_eq(w.flop, 2 * 2 * 8 * 8 * (2 * 3 + 4 * 2) + 4 * 2 * 8 * 4 * 2 * 3);
    w = op_text_work_of("%x: f32[2, 8, 6], %w: f32[6, 4], %b: f32[6]",
                        "%y = causal_conv(%x, %w, %b) {silu = true}");
    cr_expect_eq(w.flop, 2 * 8 * 6 * (2 * 4 + 1 + 4));
    w = op_text_work_of("%dy: f32[2, 8, 6], %x: f32[2, 8, 6], %w: f32[6, 4]",
                        "%dx, %dw = causal_conv_grad(%dy, %x, %w)");
    cr_expect_eq(w.flop, 2 * 8 * 6 * 4 * 4);
}

/* ---- the model ---- */

#define SMALL                                                                                      \
    "repeats = 1, runs_1 = 1, pairs_1 = 1, runs_2 = 0, tail = 1, hidden = 8, heads = 4, "          \
    "kv_heads = 2, head_dim = 2, ssm_heads = 4, ssm_groups = 2, ssm_dim = 2, ssm_state = 2, "      \
    "ffn = 4, shared_ffn = 4, latent = 4, experts = 4, top = 2, seq = 4, vocab = 12, batch = 4"

Test(state_space, gradients_of_the_model) {
    step_expect_some_gradients("dir 1\nimport \"models/nemotron.dir\" as m with " SMALL "\n"
                               "scenario { model = @m.nemotron, train { loss = none, "
                               "optimizer = none } }\n",
                               "", 2);
}

/* Sharded, the step is the same step. */
static void expect_same(const char *model, const char *with, const char *strategy) {
    char text[1024];
    proof p;
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/nemotron.dir\" as m with " SMALL "%s\ntopology @box {\n"
             "  device d[4]\n  switch s\n  link d[i] -- s : 1 GB/s, 1 us for i in 0..4\n}\n"
             "scenario { model = @m.%s, on = @box, train { loss = none, optimizer = adam }, "
             "strategy { %s } }\n",
             with, model, strategy);
    prove(text, &(proof_options){.seed = 1}, &p);
    cr_expect_eq(p.verdict, PROOF_EQUAL, "%s, %s: %s, %s", model, strategy,
                 proof_verdict_name(p.verdict), p.what);
}

Test(state_space, sharded_models) {
    expect_same("nemotron", "", "dp = 2, tp = 2, sp = true");
    expect_same("nemotron", "", "dp = 2, microbatches = 2, pp = 2");
    expect_same("nemotron_latent_mtp", "", "dp = 4, ep = 4, zero = 2");
    expect_same("nemotron_latent_mtp", "", "dp = 2, ep = 2, tp = 2, sp = true");
    expect_same("nemotron_mixed_mtp", "", "dp = 2, zero = 3");
}

/* Experts over the devices of tp too: each has half a sequence, and two experts of four. */
Test(state_space, experts_across_tp) {
    expect_same("nemotron_latent", ", chunks = 2", "dp = 2, ep = 4, tp = 2, sp = true");
    expect_same("nemotron_latent", "", "dp = 2, ep = 4, tp = 2, sp = true, microbatches = 2");
}
