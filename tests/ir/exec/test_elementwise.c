/* Elementwise ops and optimizers against their formulas. */
#include "tests/support/exec.h"

#include "ir/base/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define N 12

static double relu(double x) {
    return x < 0 ? 0 : x;
}
static double gelu(double x) {
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * pow(x, 3))));
}
static double silu(double x) {
    return x / (1 + exp(-x));
}
static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double minus(double x) {
    return -x;
}
static double tripled(double x) {
    return -3.5 * x;
}

Test(exec_elementwise, one_operand) {
    static const struct {
        const char *line;
        double (*f)(double);
    } ops[] = {{"relu(%x)", relu},       {"gelu(%x)", gelu},
               {"silu(%x)", silu},       {"tanh(%x)", tanh},
               {"sigmoid(%x)", sigmoid}, {"exp(%x)", exp},
               {"neg(%x)", minus},       {"scale(%x) {factor = -3.5}", tripled}};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        char line[64];
        snprintf(line, sizeof line, "%%y = %s\nreturn %%y", ops[k].line);
        exec_case c;
        exec_lines(&c, "%x: f32[12]", "f32[12]", line);
        double want[N];
        for (int i = 0; i < N; i++) want[i] = ops[k].f(exec_in(&c, "x")[i]);
        exec_expect(exec_out(&c, "y"), want, N, ops[k].line);
        exec_free(&c);
    }
}

Test(exec_elementwise, square_root) {
    exec_case c;
    exec_lines(&c, "%x: f32[12]", "f32[12]", "%s = mul(%x, %x)\n%y = sqrt(%s)\nreturn %y");
    double want[N];
    for (int i = 0; i < N; i++) want[i] = fabs(exec_in(&c, "x")[i]);
    exec_expect(exec_out(&c, "y"), want, N, "sqrt(x^2)");
    exec_free(&c);
}

Test(exec_elementwise, far_from_zero) {
    ds_exec_tensor x = {
        .name = "x", .rank = 1, .dims = {4}, .n = 4, .at = (double[]){-800, 800, -1e300, 0}};
    ds_exec_options options = {.inputs = &x, .n_inputs = 1};
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[4]) -> (f32[4], f32[4]) {\n"
              "%s = sigmoid(%x)\n%g = silu(%x)\nreturn %s, %g\n}\n",
              NULL, &options);
    exec_expect(exec_out(&c, "s"), (double[]){0, 1, 0, 0.5}, 4, "sigmoid");
    exec_expect(exec_out(&c, "g"), (double[]){0, 800, 0, 0}, 4, "silu");
    exec_free(&c);
}

Test(exec_elementwise, two_operands_and_repetition) {
    exec_case c;
    exec_lines(&c, "%a: f32[2, 3, 2], %b: f32[3, 2], %k: f32[3, 1], %v: f32[3]",
               "f32[2, 3, 2], f32[2, 3, 2], f32[2, 3, 2], f32[2, 3, 2], f32[2, 3, 2], f32[2, 3, 2]",
               "%p = add(%a, %b)\n%m = sub(%a, %b)\n%t = mul(%a, %k)\n%q = div(%a, %b)\n"
               "%s = bias(%a, %v) {dim = 1}\n%c = accumulate(%a, %a)\n"
               "return %p, %m, %t, %q, %s, %c");
    const double *a = exec_in(&c, "a"), *b = exec_in(&c, "b"), *k = exec_in(&c, "k");
    double want[6][N];
    for (int i = 0; i < N; i++) {
        want[0][i] = a[i] + b[i % 6];
        want[1][i] = a[i] - b[i % 6];
        want[2][i] = a[i] * k[i % 6 / 2];
        want[3][i] = a[i] / b[i % 6];
        want[4][i] = a[i] + exec_in(&c, "v")[i % 6 / 2];
        want[5][i] = 2 * a[i];
    }
    const char *names[] = {"p", "m", "t", "q", "s", "c"};
    for (int i = 0; i < 6; i++) exec_expect(exec_out(&c, names[i]), want[i], N, names[i]);
    exec_free(&c);
}

/* Central differences of the functions themselves. */
Test(exec_elementwise, gradients) {
    exec_case c;
    exec_lines(&c, "%dy: f32[12], %x: f32[12]", "f32[12], f32[12]",
               "%r = relu_grad(%dy, %x)\n%g = gelu_grad(%dy, %x)\nreturn %r, %g");
    const double *dy = exec_in(&c, "dy"), *x = exec_in(&c, "x"), h = 1e-6;
    for (int i = 0; i < N; i++) {
        double slope = (gelu(x[i] + h) - gelu(x[i] - h)) / (2 * h);
        cr_expect_float_eq(exec_out(&c, "g")[i], dy[i] * slope, 1e-8);
        cr_expect_eq(exec_out(&c, "r")[i], x[i] > 0 ? dy[i] : 0);
    }
    exec_free(&c);
}

Test(exec_elementwise, constants_and_casts) {
    ds_exec_tensor x = {
        .name = "x", .rank = 1, .dims = {5}, .n = 5, .at = (double[]){-1.75, 0, 2.9, 300, -1000}};
    ds_exec_options options = {.inputs = &x, .n_inputs = 1};
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[5]) -> (f32[2], f32[2], i32[5], i8[5], bool[5], f16[5]) {\n"
              "%z = zeros() : f32[2]\n%f = fill() {value = 2.5} : f32[2]\n"
              "%i = cast(%x) {dtype = i32}\n%b = cast(%x) {dtype = i8}\n"
              "%t = cast(%x) {dtype = bool}\n%h = cast(%x) : f16[5]\n"
              "return %z, %f, %i, %b, %t, %h\n}\n",
              NULL, &options);
    exec_expect(exec_out(&c, "z"), (double[]){0, 0}, 2, "zeros");
    exec_expect(exec_out(&c, "f"), (double[]){2.5, 2.5}, 2, "fill");
    exec_expect(exec_out(&c, "i"), (double[]){-1, 0, 2, 300, -1000}, 5, "toward zero");
    exec_expect(exec_out(&c, "b"), (double[]){-1, 0, 2, 127, -128}, 5, "saturated");
    exec_expect(exec_out(&c, "t"), (double[]){1, 0, 1, 1, 1}, 5, "not 0");
    exec_expect(exec_out(&c, "h"), x.at, 5, "exact without --emulate");
    exec_free(&c);
}

/* ---- dropout ---- */

static const char dropout_text[] =
    "dir 1\nparam p = 0.25\nfunc @f(%x: f32[4000]) -> (f32[4000], f32[4000]) {\n"
    "%a = dropout(%x) {p = p}\n%b = dropout(%x) {p = p}\nreturn %a, %b\n}\n";

Test(exec_elementwise, dropout_is_a_scaled_mask) {
    exec_case c;
    exec_text(&c, dropout_text, NULL, NULL);
    const double *x = exec_in(&c, "x"), *a = exec_out(&c, "a"), *b = exec_out(&c, "b");
    int dropped = 0, same = 0;
    for (int i = 0; i < 4000; i++) {
        cr_expect(a[i] == 0 || fabs(a[i] - x[i] / 0.75) < 1e-15);
        dropped += a[i] == 0;
        same += (a[i] == 0) == (b[i] == 0);
    }
    /* binomial(4000, 1/4): mean 1000, sigma 27.4; agreement of two masks 4000·(10/16) ± 31 */
    cr_expect(abs(dropped - 1000) < 140, "%d dropped", dropped);
    cr_expect(abs(same - 2500) < 160, "two ops agree on %d", same);
    exec_free(&c);
}

Test(exec_elementwise, dropout_depends_on_seed_and_step) {
    exec_case base, again, seed, step;
    ds_exec_options options = {.seed = 5};
    exec_text(&base, dropout_text, NULL, &options);
    exec_text(&again, dropout_text, NULL, &options);
    options.step = 1;
    exec_text(&step, dropout_text, NULL, &options);
    options = (ds_exec_options){.seed = 6};
    exec_text(&seed, dropout_text, NULL, &options);
    int by_step = 0, by_seed = 0;
    for (int i = 0; i < 4000; i++) {
        cr_assert_eq(exec_out(&base, "a")[i], exec_out(&again, "a")[i]);
        by_step += (exec_out(&base, "a")[i] == 0) != (exec_out(&step, "a")[i] == 0);
        by_seed += (exec_out(&base, "a")[i] == 0) != (exec_out(&seed, "a")[i] == 0);
    }
    cr_expect(by_step > 1000 && by_seed > 1000);
    exec_free(&base), exec_free(&again), exec_free(&seed), exec_free(&step);
}

/* An explicit seed names the mask: the backward pass of another function or loop finds it again. */
Test(exec_elementwise, dropout_with_a_seed_of_its_own) {
    exec_case c;
    exec_lines(&c, "%x: f32[100]", "f32[100], f32[100], f32[100]",
               "%a = dropout(%x) {p = 0.5, seed = 3}\n%b = dropout(%x) {p = 0.5, seed = 3}\n"
               "%c = dropout(%x) {p = 0.5, seed = 4}\nreturn %a, %b, %c");
    exec_expect(exec_out(&c, "a"), exec_out(&c, "b"), 100, "the same mask");
    cr_expect_neq(memcmp(exec_out(&c, "a"), exec_out(&c, "c"), 100 * sizeof(double)), 0);
    exec_free(&c);
}

/* ---- optimizers ---- */

Test(exec_optimizer, sgd_and_momentum) {
    exec_case c;
    exec_lines(&c, "%w: f32[3], %g: f32[3], %m: f32[3]", "f32[3], f32[3], f32[3]",
               "%a = sgd(%w, %g) {lr = 0.5}\n"
               "%b, %n = momentum(%w, %g, %m) {lr = 0.1, momentum = 0.8}\nreturn %a, %b, %n");
    const double *w = exec_in(&c, "w"), *g = exec_in(&c, "g"), *m = exec_in(&c, "m");
    double a[3], b[3], n[3];
    for (int i = 0; i < 3; i++) {
        a[i] = w[i] - 0.5 * g[i];
        n[i] = 0.8 * m[i] + g[i];
        b[i] = w[i] - 0.1 * n[i];
    }
    exec_expect(exec_out(&c, "a"), a, 3, "sgd");
    exec_expect(exec_out(&c, "b"), b, 3, "momentum's weight");
    exec_expect(exec_out(&c, "n"), n, 3, "momentum");
    exec_free(&c);
}

/* From zero moments, step 1: m^ = g and v^ = g^2, so the weight moves by lr g / (|g| + eps). */
Test(exec_optimizer, adam_first_step) {
    exec_case c;
    exec_lines(&c, "%w: f32[3], %g: f32[3]", "f32[3], f32[3]",
               "%z = zeros() : f32[3]\n%a, %m, %v = adam(%w, %g, %z, %z) {lr = 0.1, eps = 0.001}\n"
               "%b, %n, %u = adamw(%w, %g, %z, %z) {lr = 0.1, eps = 0.001, weight_decay = 0.2}\n"
               "return %a, %b");
    const double *w = exec_in(&c, "w"), *g = exec_in(&c, "g");
    double a[3], b[3];
    for (int i = 0; i < 3; i++) {
        a[i] = w[i] - 0.1 * g[i] / (fabs(g[i]) + 0.001);
        b[i] = a[i] - 0.1 * 0.2 * w[i];
    }
    exec_expect(exec_out(&c, "a"), a, 3, "adam");
    exec_expect(exec_out(&c, "b"), b, 3, "adamw");
    exec_free(&c);
}

/* A constant gradient: at any step m^ = g and v^ = g^2 again. */
Test(exec_optimizer, adam_after_many_steps) {
    exec_case c;
    exec_lines(&c, "%w: f32[3], %g: f32[3]", "f32[3]",
               "%z = zeros() : f32[3]\n"
               "%y, %m, %v = for t in 1..6 carry (%a = %w, %b = %z, %c = %z) {\n"
               "%d, %e, %f = adam(%a, %g, %b, %c) {lr = 0.1, step = t}\nyield %d, %e, %f\n}\n"
               "return %y");
    double want[3];
    for (int i = 0; i < 3; i++) {
        double g = exec_in(&c, "g")[i];
        want[i] = exec_in(&c, "w")[i] - 5 * 0.1 * g / (fabs(g) + 1e-8);
    }
    exec_expect(exec_out(&c, "y"), want, 3, "five steps");
    exec_free(&c);
}

/* With a master copy, that is what moves; the f16 weight is a copy of it. */
Test(exec_optimizer, master_weights) {
    exec_case c;
    exec_lines(&c, "%w: f16[3], %g: f16[3], %m: f32[3]", "f16[3], f32[3]",
               "%a, %b = sgd(%w, %g, %m) {lr = 0.5}\nreturn %a, %b");
    double want[3];
    for (int i = 0; i < 3; i++) want[i] = exec_in(&c, "m")[i] - 0.5 * exec_in(&c, "g")[i];
    exec_expect(exec_out(&c, "a"), want, 3, "weight");
    exec_expect(exec_out(&c, "b"), want, 3, "master");
    exec_free(&c);
}

/* The second moment of adam is drawn from 0..1: a negative one has no root. */
Test(exec_optimizer, second_moments_are_positive) {
    exec_case c;
    exec_lines(&c, "%w: f32[64], %g: f32[64], %m: f32[64], %v: f32[64]", "f32[64]",
               "%a, %b, %d = adam(%w, %g, %m, %v)\nreturn %a");
    for (int i = 0; i < 64; i++) {
        cr_expect(exec_in(&c, "v")[i] >= 0);
        cr_expect(isfinite(exec_out(&c, "a")[i]));
    }
    exec_free(&c);
}
