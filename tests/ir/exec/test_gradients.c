/* Gradients of losses, look-up, normalisation, activations and layout against central differences,
 * on random shapes; and what differences cannot show. */
#include "tests/support/exec.h"
#include "tests/support/gradient.h"

#include "ir/base/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

enum { ROUNDS = 3 };

/* low .. high, a function of the round and which number it is. */
static int pick(int round, int which, int low, int high) {
    double u = ds_rng_uniform_at(7, (uint64_t)round, (uint64_t)which, 0);
    return low + (int)(u * (high - low + 1));
}

/* [a, b, c] with 1 or 2 leading dims before the last, which is at least 3: two numbers normalised
 * are nearly a sign, and too crooked for differences. */
static void shape(int round, char rows[32], char whole[32], int *last) {
    int a = pick(round, 0, 1, 3), b = pick(round, 1, 1, 4);
    *last = pick(round, 2, 3, 7);
    if (round % 2)
        snprintf(rows, 32, "%d, %d", a, b);
    else
        snprintf(rows, 32, "%d", a * b);
    snprintf(whole, 32, "%s, %d", rows, *last);
}

static void check_elementwise(const char *lines) {
    for (int round = 0; round < ROUNDS; round++) {
        char rows[32], whole[32], args[128];
        int last;
        shape(round, rows, whole, &last);
        snprintf(args, sizeof args, "%%x: f64[%s], %%dy: f64[%s]", whole, whole);
        gradient_check(args, lines, "x");
    }
}

Test(exec_gradients, activations) {
    check_elementwise("%y = silu(%x)\n%dx = silu_grad(%dy, %x)");
    check_elementwise("%y = tanh(%x)\n%dx = tanh_grad(%dy, %y)");
    check_elementwise("%y = sigmoid(%x)\n%dx = sigmoid_grad(%dy, %y)");
    check_elementwise("%y = gelu(%x)\n%dx = gelu_grad(%dy, %x)");
    check_elementwise("%y = softmax(%x)\n%dx = softmax_grad(%dy, %y)");
}

/* What the table says is made of other ops. */
Test(exec_gradients, composed) {
    check_elementwise("%y = exp(%x)\n%dx = mul(%dy, %y)");
    check_elementwise("%e = exp(%x)\n%y = log(%e)\n%de = div(%dy, %e)\n%dx = mul(%de, %e)");
    check_elementwise("%e = exp(%x)\n%y = sqrt(%e)\n%h = scale(%dy) {factor = 0.5}\n"
                      "%de = div(%h, %y)\n%dx = mul(%de, %e)");
    check_elementwise("%y = dropout(%x) {p = 0.4}\n%dx = dropout(%dy) {p = 0.4, key = y}");
    check_elementwise("%n = neg(%x)\n%y = after(%x, %n)\n%dx = after(%dy, %n)");
    gradient_check("%x: f64[2, 3, 4, 6], %dy: f64[2, 3, 4, 6]",
                   "%y = rotary(%x) {start = 5, base = 100.0}\n"
                   "%dx = rotary(%dy) {start = 5, base = 100.0, inverse = true}",
                   "x");
    gradient_check("%x: f64[4, 3], %dy: f64[2, 4, 5, 3]",
                   "%y = expand(%x) {dims = [0, 2], sizes = [2, 5]}\n"
                   "%dx = reduce_sum(%dy) {dims = [0, 2]}",
                   "x");
    gradient_check("%x: f64[2, 4, 5, 3], %dy: f64[4, 3]",
                   "%y = reduce_mean(%x) {dims = [0, 2]}\n%e = expand(%dy) {dims = [0, 2], "
                   "sizes = [2, 5]}\n%dx = scale(%e) {factor = 1 / 10.0}",
                   "x");
    gradient_check("%x: f64[3, 4], %l: i32[3], %dy: f64[3]",
                   "%y = pick(%x, %l)\n%d1 = reshape(%dy) {shape = [3, 1]}\n"
                   "%l1 = reshape(%l) {shape = [3, 1]}\n%dx = topk_grad(%d1, %l1) {size = 4}",
                   "x");
}

Test(exec_gradients, norms) {
    for (int round = 0; round < ROUNDS; round++) {
        char rows[32], whole[32], args[256];
        int last;
        shape(round, rows, whole, &last);
        snprintf(args, sizeof args, "%%x: f64[%s], %%g: f64[%d], %%b: f64[%d], %%dy: f64[%s]",
                 whole, last, last, whole);
        gradient_check(args,
                       "%y = layer_norm(%x, %g, %b)\n"
                       "%dx, %dg, %db = layer_norm_grad(%dy, %x, %g)",
                       "x g b");
        gradient_check(args,
                       "%y = layer_norm(%x) {eps = 0.1}\n"
                       "%dx = layer_norm_grad(%dy, %x) {eps = 0.1}",
                       "x");
        gradient_check(args,
                       "%y = rms_norm(%x, %g) {eps = 0.1}\n"
                       "%dx, %dg = rms_norm_grad(%dy, %x, %g) {eps = 0.1}",
                       "x g");
        gradient_check(args, "%y = rms_norm(%x)\n%dx = rms_norm_grad(%dy, %x)", "x");
    }
}

Test(exec_gradients, batch_norm) {
    static const char *const spatial[] = {"", ", 5", ", 2, 3"};
    for (int round = 0; round < 3; round++) {
        char args[256];
        int n = 2 * pick(round, 3, 2, 3), c = pick(round, 4, 1, 3);
        snprintf(args, sizeof args,
                 "%%x: f64[%d, %d%s], %%g: f64[%d], %%b: f64[%d], %%dy: f64[%d, %d%s]", n, c,
                 spatial[round], c, c, n, c, spatial[round]);
        gradient_check(args,
                       "%y = batch_norm(%x, %g, %b) {groups = 2}\n"
                       "%dx, %dg, %db = batch_norm_grad(%dy, %x, %g) {groups = 2}",
                       "x g b");
        gradient_check(args,
                       "%y = batch_norm(%x) {eps = 0.1}\n"
                       "%dx = batch_norm_grad(%dy, %x) {eps = 0.1}",
                       "x");
    }
}

Test(exec_gradients, look_up) {
    gradient_check("%i: i32[3, 4], %t: f64[5, 2], %dy: f64[3, 4, 2]",
                   "%y = embedding(%i, %t)\n%dt = embedding_grad(%dy, %i) {rows = 5}", "t");
    gradient_check("%i: i32[6] {range = 7}, %t: f64[5, 2], %dy: f64[6, 2]",
                   "%y = embedding(%i, %t) {start = 1}\n"
                   "%dt = embedding_grad(%dy, %i) {rows = 5, start = 1}",
                   "t");
}

/* A loss's gradient is that for an upstream gradient of 1. */
Test(exec_gradients, cross_entropy) {
    for (int round = 0; round < ROUNDS; round++) {
        char rows[32], whole[32], args[128];
        int last;
        shape(round, rows, whole, &last);
        snprintf(args, sizeof args, "%%x: f64[%s], %%l: i32[%s], %%dy: f64[]", whole, rows);
        gradient_check(args,
                       "%y, %s = cross_entropy(%x, %l)\n"
                       "%g = cross_entropy_grad(%x, %l, %s)\n%dx = mul(%g, %dy)",
                       "x");
        gradient_check(args,
                       "%y, %s = cross_entropy(%x, %l) {reduction = sum}\n"
                       "%g = cross_entropy_grad(%x, %l, %s) {reduction = sum}\n"
                       "%dx = mul(%g, %dy)",
                       "x");
    }
    gradient_check("%x: f64[4, 5], %l: i32[4], %dy: f64[4]",
                   "%y, %s = cross_entropy(%x, %l) {reduction = none}\n"
                   "%g = cross_entropy_grad(%x, %l, %s) {reduction = none}\n"
                   "%e = expand(%dy) {dims = 1, sizes = 5}\n%dx = mul(%g, %e)",
                   "x");
}

/* The gradient of the second result is softmax: lse = log(sum(exp(x))). */
Test(exec_gradients, log_sum_exp) {
    exec_case c;
    exec_lines(&c, "%x: f64[2, 3], %l: i32[2]", "f64[], f32[2]",
               "%y, %s = cross_entropy(%x, %l)\nreturn %y, %s");
    const double *x = exec_in(&c, "x"), *l = exec_in(&c, "l");
    double want[2], loss = 0;
    for (int r = 0; r < 2; r++) {
        want[r] = log(exp(x[3 * r]) + exp(x[3 * r + 1]) + exp(x[3 * r + 2]));
        loss += (want[r] - x[3 * r + (int)l[r]]) / 2;
    }
    exec_expect(exec_out(&c, "s"), want, 2, "lse");
    exec_expect(exec_out(&c, "y"), &loss, 1, "the mean of lse - x[label]");
    exec_free(&c);
}

Test(exec_gradients, maximum) {
    gradient_check("%x: f64[3, 4, 2], %dy: f64[3, 2]",
                   "%y = reduce_max(%x) {dims = [1]}\n%dx = reduce_max_grad(%dy, %x) {dims = [1]}",
                   "x");
    gradient_check("%x: f64[3, 4, 2], %dy: f64[1, 4, 1]",
                   "%y = reduce_max(%x) {dims = [0, -1], keep = true}\n"
                   "%dx = reduce_max_grad(%dy, %x) {dims = [0, -1], keep = true}",
                   "x");
    gradient_check("%x: f64[7], %dy: f64[]", "%y = reduce_max(%x)\n%dx = reduce_max_grad(%dy, %x)",
                   "x");
}

/* Of equal elements the first has the gradient; the margin says how close it was. */
Test(exec_gradients, ties_go_to_the_lowest_index) {
    ds_exec_tensor x = {
        .name = "x", .rank = 2, .dims = {2, 3}, .n = 6, .at = (double[]){1, 4, 4, 2, 2, 2}};
    ds_exec_options options = {.inputs = &x, .n_inputs = 1};
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[2, 3], %dy: f32[2]) -> f32[2, 3] {\n"
              "%g = reduce_max_grad(%dy, %x) {dims = [1]}\nreturn %g\n}\n",
              NULL, &options);
    const double *dy = exec_in(&c, "dy");
    exec_expect(exec_out(&c, "g"), (double[]){0, dy[0], 0, dy[1], 0, 0}, 6, "ties");
    cr_expect_eq(c.result->margin, 0);
    exec_free(&c);
    x.at = (double[]){1, 4, 3, 0, 2, -2};
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[2, 3], %dy: f32[2]) -> f32[2, 3] {\n"
              "%g = reduce_max_grad(%dy, %x) {dims = [1]}\nreturn %g\n}\n",
              NULL, &options);
    cr_expect_eq(exec_out(&c, "g")[1], exec_in(&c, "dy")[0]);
    cr_expect_float_eq(c.result->margin, 0.25, 1e-15, "(4 - 3) / 4");
    exec_free(&c);
}

/* Far from 0, where exp alone overflows. */
Test(exec_gradients, large_arguments) {
    ds_exec_tensor x = {
        .name = "x", .rank = 2, .dims = {1, 3}, .n = 3, .at = (double[]){-800, 800, 0}};
    ds_exec_options options = {.inputs = &x, .n_inputs = 1};
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[1, 3]) -> (f32[1, 3], f32[1, 3]) {\n"
              "%one = fill() {value = 1.0} : f32[1, 3]\n%l = fill() {value = 0} : i32[1]\n"
              "%g = silu_grad(%one, %x)\n%y, %s = cross_entropy(%x, %l)\n"
              "%d = cross_entropy_grad(%x, %l, %s)\nreturn %g, %d\n}\n",
              NULL, &options);
    exec_expect(exec_out(&c, "g"), (double[]){0, 1, 0.5}, 3, "silu's slope");
    exec_expect(exec_out(&c, "d"), (double[]){-1, 1, 0}, 3, "softmax - onehot");
    exec_free(&c);
}
