/* Gradients of attention, experts, convolution, pooling and the LSTM against differences, and
 * attention by blocks against attention over all keys. */
#include "tests/support/exec.h"
#include "tests/support/gradient.h"

#include <criterion/criterion.h>
#include <math.h>

/* ---- attention ---- */

#define QKV(s, h, t, g)                                                                            \
    "%q: f64[2, " #s ", " #h ", 3], %k: f64[2, " #t ", " #g ", 3], %v: f64[2, " #t ", " #g         \
    ", 2], "                                                                                       \
    "%dy: f64[2, " #s ", " #h ", 2]"
#define FORTH_AND_BACK(attrs)                                                                      \
    "%y, %l = attention(%q, %k, %v) {" attrs "}\n"                                                 \
    "%dq, %dk, %dv = attention_grad(%dy, %q, %k, %v, %y, %l) {" attrs "}"

Test(exec_gradients, attention) {
    gradient_check(QKV(4, 2, 5, 2), FORTH_AND_BACK("scale = 0.7"), "q k v");
    gradient_check(QKV(3, 4, 5, 2), FORTH_AND_BACK("causal = true"), "q k v");
    gradient_check(QKV(3, 4, 4, 1), FORTH_AND_BACK("causal = true, q_start = 2"), "q k v");
}

/* Keys from 5 on and queries up to 6: the first queries see nothing. */
Test(exec_gradients, attention_of_a_block_partly_out_of_sight) {
    gradient_check(QKV(3, 2, 4, 2), FORTH_AND_BACK("causal = true, q_start = 4, k_start = 5"),
                   "q k v");
}

Test(exec_gradients, queries_without_a_key) {
    exec_case c;
    exec_lines(&c, "%q: f64[1, 2, 1, 3], %k: f64[1, 2, 1, 3], %dy: f64[1, 2, 1, 3]",
               "f64[1, 2, 1, 3], f32[1, 2, 1], f64[1, 2, 1, 3], f64[1, 2, 1, 3], f64[1, 2, 1, 3]",
               "%o, %l = attention(%q, %k, %k) {causal = true, k_start = 1}\n"
               "%dq, %dk, %dv = attention_grad(%dy, %q, %k, %k, %o, %l) {causal = true, k_start = "
               "1}\nreturn %o, %l, %dq, %dk, %dv");
    const double *k = exec_in(&c, "k"), *q = exec_in(&c, "q") + 3, *dy = exec_in(&c, "dy") + 3;
    double score = (q[0] * k[0] + q[1] * k[1] + q[2] * k[2]) / sqrt(3);
    /* Query 0 sees nothing; query 1 sees key 0 alone, whatever q and k are. */
    exec_expect(exec_out(&c, "o"), (double[]){0, 0, 0, k[0], k[1], k[2]}, 6, "o");
    exec_expect(exec_out(&c, "l"), (double[]){-1e30, score}, 2, "lse");
    exec_expect(exec_out(&c, "dv"), (double[]){dy[0], dy[1], dy[2], 0, 0, 0}, 6, "dv");
    exec_expect(exec_out(&c, "dq"), (double[6]){0}, 6, "dq");
    exec_expect(exec_out(&c, "dk"), (double[6]){0}, 6, "dk");
    exec_free(&c);
}

/* lse is log(sum(exp(score))); three blocks merged in another order, from nothing, are the whole.
 */
Test(exec_gradients, blocks_merge_to_the_whole) {
    exec_case c;
    exec_lines(
        &c, "%q: f64[1, 4, 2, 3], %k: f64[1, 6, 1, 3], %v: f64[1, 6, 1, 2]",
        "f64[1, 4, 2, 2], f32[1, 4, 2], f64[1, 4, 2, 2], f32[1, 4, 2]",
        "%o, %l = attention(%q, %k, %v) {causal = true}\n"
        "%k0, %k1, %k2 = split(%k) {dim = 1}\n%v0, %v1, %v2 = split(%v) {dim = 1}\n"
        "%a = zeros() : f64[1, 4, 2, 2]\n%z = fill() {value = -1e30} : f32[1, 4, 2]\n"
        "%o0, %l0 = attention(%q, %k0, %v0) {causal = true, q_start = 2, k_start = 0}\n"
        "%o1, %l1 = attention(%q, %k1, %v1) {causal = true, q_start = 2, k_start = 2}\n"
        "%o2, %l2 = attention(%q, %k2, %v2) {causal = true, q_start = 2, k_start = 4}\n"
        "%b, %y = attention_merge(%a, %z, %o2, %l2)\n%d, %x = attention_merge(%b, %y, %o0, %l0)\n"
        "%e, %w = attention_merge(%o1, %l1, %d, %x)\nreturn %o, %l, %e, %w");
    const double *q = exec_in(&c, "q"), *k = exec_in(&c, "k");
    double lse[8];
    for (int s = 0; s < 4; s++)
        for (int h = 0; h < 2; h++) {
            double sum = 0;
            for (int t = 0; t <= s + 2; t++) {
                double dot = 0;
                for (int i = 0; i < 3; i++) dot += q[(s * 2 + h) * 3 + i] * k[t * 3 + i];
                sum += exp(dot / sqrt(3));
            }
            lse[s * 2 + h] = log(sum);
        }
    exec_expect(exec_out(&c, "l"), lse, 8, "lse");
    exec_expect(exec_out(&c, "w"), lse, 8, "merged lse");
    exec_expect(exec_out(&c, "e"), exec_out(&c, "o"), 16, "merged");
    exec_free(&c);
}

/* Ring attention by hand: keys and values go round, and so do, backwards, the sums of their
 * gradients, which are back home after cp turns. */
#define RING                                                                                       \
    "dir 1\nparam cp = 4\ntopology @box { device g[4] : \"V100-PCIE-16GB\" }\n"                    \
    "mesh @all = [x = 4] on @box\naxis x\nmesh @m = pick 0..cp of @all [cp = cp]\n"                \
    "func @f(%q: f64[2, 12@cp, 4, 3] on @m, %k: f64[2, 12@cp, 2, 3] on @m, "                       \
    "%v: f64[2, 12@cp, 2, 3] on @m, %dy: f64[2, 12@cp, 4, 3] on @m) -> (f64[2, 12@cp, 4, 3] on "   \
    "@m, f32[2, 12@cp, 4] on @m, f64[2, 12@cp, 4, 3] on @m, f64[2, 12@cp, 2, 3] on @m, "           \
    "f64[2, 12@cp, 2, 3] on @m) {\n"                                                               \
    "%o, %l, %dq, %dk, %dv = local over (cp) (%q, %k, %v, %dy) -> (f64[2, 12@cp, 4, 3] on @m, "    \
    "f32[2, 12@cp, 4] on @m, f64[2, 12@cp, 4, 3] on @m, f64[2, 12@cp, 2, 3] on @m, "               \
    "f64[2, 12@cp, 2, 3] on @m) {\n"                                                               \
    "%z = zeros() : f64[2, 12 / cp, 4, 3] on @m\n"                                                 \
    "%n = fill() {value = -1e30} : f32[2, 12 / cp, 4] on @m\n"                                     \
    "%o, %l, %ke, %ve = for i in 0..cp carry (%a = %z, %b = %n, %kk = %k, %vv = %v) {\n"           \
    "%oi, %li = attention(%q, %kk, %vv) {causal = true, q_start = axis_index(cp) * (12 / cp), "    \
    "k_start = (axis_index(cp) - i + cp) % cp * (12 / cp)}\n"                                      \
    "%a1, %b1 = attention_merge(%a, %b, %oi, %li)\n"                                               \
    "%k1, %v1 = permute(%kk, %vv) over cp\nyield %a1, %b1, %k1, %v1\n}\n"                          \
    "%zk = zeros() : f64[2, 12 / cp, 2, 3] on @m\n"                                                \
    "%dq, %dk, %dv, %kf, %vf = for i in 0..cp carry (%dqa = %z, %dka = %zk, %dva = %zk, "          \
    "%kk = %k, %vv = %v) {\n"                                                                      \
    "%x, %y, %w = attention_grad(%dy, %q, %kk, %vv, %o, %l) {causal = true, "                      \
    "q_start = axis_index(cp) * (12 / cp), k_start = (axis_index(cp) - i + cp) % cp * (12 / "      \
    "cp)}\n"                                                                                       \
    "%dq1 = add(%dqa, %x)\n%dk0 = add(%dka, %y)\n%dv0 = add(%dva, %w)\n"                           \
    "%k1, %v1, %dk1, %dv1 = permute(%kk, %vv, %dk0, %dv0) over cp\n"                               \
    "yield %dq1, %dk1, %dv1, %k1, %v1\n}\nyield %o, %l, %dq, %dk, %dv\n}\n"                        \
    "return %o, %l, %dq, %dk, %dv\n}\nscenario { program = @f\n mesh = @m }\n"

Test(exec_gradients, ring_attention_forward_and_backward) {
    static const char *const settings[] = {"cp=1", "cp=2", "cp=3", "cp=4"};
    exec_case one, ring;
    exec_text(&one,
              "dir 1\nfunc @f(%q: f64[2, 12, 4, 3], %k: f64[2, 12, 2, 3], %v: f64[2, 12, 2, 3], "
              "%dy: f64[2, 12, 4, 3]) -> (f64[2, 12, 4, 3], f32[2, 12, 4], f64[2, 12, 4, 3], "
              "f64[2, 12, 2, 3], f64[2, 12, 2, 3]) {\n"
              "%o, %l = attention(%q, %k, %v) {causal = true}\n"
              "%dq, %dk, %dv = attention_grad(%dy, %q, %k, %v, %o, %l) {causal = true}\n"
              "return %o, %l, %dq, %dk, %dv\n}\n",
              NULL, NULL);
    for (int i = 0; i < 4; i++) {
        exec_text(&ring, RING, settings[i], NULL);
        exec_expect_same(&one, &ring, settings[i]);
        exec_free(&ring);
    }
    exec_free(&one);
}

/* Gathered keys and values: each device's queries start where its part of the sequence does. */
Test(exec_gradients, gathered_keys_in_a_region) {
    exec_case one, split;
    exec_text(&one,
              "dir 1\nfunc @f(%q: f64[2, 6, 2, 3], %k: f64[2, 6, 2, 3]) -> f64[2, 6, 2, 3] {\n"
              "%o = attention(%q, %k, %k) {causal = true}\nreturn %o\n}\n",
              NULL, NULL);
    exec_text(
        &split,
        "dir 1\ntopology @box { device g[3] : \"V100-PCIE-16GB\" }\nmesh @m = [cp = 3] on @box\n"
        "func @f(%q: f64[2, 6@cp, 2, 3] on @m, %k: f64[2, 6@cp, 2, 3] on @m) -> "
        "f64[2, 6@cp, 2, 3] on @m {\n"
        "%o = local over (cp) (%q, %k) -> f64[2, 6@cp, 2, 3] on @m {\n"
        "%all = all_gather(%k) over cp dim 1\n"
        "%o = attention(%q, %all, %all) {causal = true, q_start = 2 * axis_index(cp)}\n"
        "yield %o\n}\nreturn %o\n}\nscenario { program = @f\n mesh = @m }\n",
        NULL, NULL);
    exec_expect_same(&one, &split, "gathered keys");
    exec_free(&one), exec_free(&split);
}

/* ---- experts ---- */

/* The choices do not move for small steps; expert 1 overflows, so a token is dropped. */
#define CHOICES "%v, %i = topk(%r) {k = 2}\n"
#define ROUTED  "%r: f64[2, 5, 3], "

Test(exec_gradients, dispatch_and_combine) {
    gradient_check(ROUTED "%x: f64[2, 5, 4], %w: f64[2, 5, 2], %dy: f64[2, 3, 3, 4]",
                   CHOICES "%y = dispatch(%x, %i, %w) {experts = 3, capacity = 3}\n"
                           "%dx = combine(%dy, %i, %w)\n%dw = combine_grad(%x, %dy, %i)",
                   "x w");
    gradient_check(ROUTED "%b: f64[2, 3, 3, 4], %w: f64[2, 5, 2], %dy: f64[2, 5, 4]",
                   CHOICES "%y = combine(%b, %i, %w)\n%dw = combine_grad(%dy, %b, %i)\n"
                           "%db = dispatch(%dy, %i, %w) {experts = 3, capacity = 3}",
                   "b w");
}

Test(exec_gradients, experts_without_a_group_dim_and_with_two) {
    gradient_check("%r: f64[5, 3], %x: f64[5, 4], %dy: f64[3, 2, 4]",
                   CHOICES "%y = dispatch(%x, %i) {experts = 3, capacity = 2}\n"
                           "%dx = combine(%dy, %i)",
                   "x");
    gradient_check("%r: f64[2, 2, 5, 3], %x: f64[2, 2, 5, 4], %dy: f64[2, 2, 3, 2, 4]",
                   CHOICES "%y = dispatch(%x, %i) {experts = 3, capacity = 2}\n"
                           "%dx = combine(%dy, %i)",
                   "x");
}

Test(exec_gradients, topk) {
    gradient_check("%x: f64[3, 5], %dy: f64[3, 2]",
                   "%y, %i = topk(%x) {k = 2}\n%dx = topk_grad(%dy, %i) {size = 5}", "x");
}

/* ---- convolution and pooling ---- */

Test(exec_gradients, convolution) {
    static const char args[] = "%x: f64[2, 3, 5, 6], %w: f64[4, 3, 2, 3], %dy: f64[2, 4, 3, 4]";
    gradient_check(
        args,
        "%y = conv2d(%x, %w) {stride = [2, 1], pad = 1, dilation = 2}\n"
        "%dx = conv2d_grad_x(%dy, %w) {size = [5, 6], stride = [2, 1], pad = 1, dilation = 2}\n"
        "%dw = conv2d_grad_w(%x, %dy) {window = [2, 3], stride = [2, 1], pad = 1, dilation = 2}",
        "x w");
}

Test(exec_gradients, grouped_convolution_that_leaves_pixels_out) {
    gradient_check("%x: f64[2, 4, 6, 5], %w: f64[6, 2, 3, 3], %dy: f64[2, 6, 2, 2]",
                   "%y = conv2d(%x, %w) {stride = 2, groups = 2}\n"
                   "%dx = conv2d_grad_x(%dy, %w) {size = [6, 5], stride = 2, groups = 2}\n"
                   "%dw = conv2d_grad_w(%x, %dy) {window = 3, stride = 2, groups = 2}",
                   "x w");
}

Test(exec_gradients, pooling) {
    static const char args[] = "%x: f64[2, 2, 5, 6], %dy: f64[2, 2, 3, 3]";
    gradient_check(args,
                   "%y = max_pool(%x) {window = [3, 2], stride = 2, pad = [1, 0]}\n"
                   "%dx = max_pool_grad(%dy, %x) {window = [3, 2], stride = 2, pad = [1, 0]}",
                   "x");
    gradient_check(args,
                   "%y = avg_pool(%x) {window = [3, 2], stride = 2, pad = [1, 0]}\n"
                   "%dx = avg_pool_grad(%dy) {window = [3, 2], stride = 2, pad = [1, 0], "
                   "size = [5, 6]}",
                   "x");
}

/* Overlapping windows of equal pixels: the first one of each gets it all. */
Test(exec_gradients, ties_of_max_pool_go_to_the_first) {
    ds_exec_tensor given[] = {
        {.name = "x", .rank = 4, .dims = {1, 1, 2, 3}, .n = 6, .at = (double[]){1, 1, 1, 0, 1, 1}},
        {.name = "dy", .rank = 4, .dims = {1, 1, 1, 2}, .n = 2, .at = (double[]){3, 5}}};
    ds_exec_options options = {.inputs = given, .n_inputs = 2};
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[1, 1, 2, 3], %dy: f32[1, 1, 1, 2]) -> f32[1, 1, 2, 3] {\n"
              "%dx = max_pool_grad(%dy, %x) {window = 2, stride = 1}\nreturn %dx\n}\n",
              NULL, &options);
    exec_expect(exec_out(&c, "dx"), (double[]){3, 5, 0, 0, 0, 0}, 6, "dx");
    cr_expect_eq(c.result->margin, 0, "a tie decides nothing");
    exec_free(&c);
}

/* ---- lstm ---- */

Test(exec_gradients, lstm) {
    gradient_check("%x: f64[2, 4, 3], %w: f64[3, 8], %r: f64[2, 8], %b: f64[8], %h: f64[2, 2], "
                   "%c: f64[2, 2], %dy: f64[2, 4, 2]",
                   "%y = lstm(%x, %w, %r, %b, %h, %c)\n"
                   "%dx, %dw, %dr, %db, %dh, %dc = lstm_grad(%dy, %x, %w, %r, %b, %h, %c)",
                   "x w r b h c");
    gradient_check("%x: f64[3, 2, 2], %w: f64[2, 12], %r: f64[3, 12], %dy: f64[3, 2, 3]",
                   "%y = lstm(%x, %w, %r)\n%dx, %dw, %dr = lstm_grad(%dy, %x, %w, %r)", "x w r");
}
