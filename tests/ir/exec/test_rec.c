/* Regions `rec` by definition: four programs against numbers of a restatement in numpy, small ones
 * against closed forms. Random programs are in test_rec_random.c. */
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the four programs ----
 *
 * The numbers are those of a restatement as plain loops in numpy, with inputs by the rule of
 * ds_exec_generated, seed 1. */

typedef struct tokens {
    int t;
    double at[4];
} tokens;

static void check_tokens(const exec_case *c, const tokens *want, int n, double sum, double places) {
    double found_sum = 0, found_places = 0;
    for (int t = 0; t < 64; t++) {
        char name[16];
        snprintf(name, sizeof name, "tok{%d}", t);
        const double *at = exec_out(c, name);
        for (int b = 0; b < 4; b++) {
            found_sum += at[b];
            found_places += (t + 1) * at[b];
        }
        for (int i = 0; i < n; i++)
            if (want[i].t == t) exec_expect(at, want[i].at, 4, name);
    }
    cr_expect_eq(found_sum, sum, "sum of all tokens: %g", found_sum);
    cr_expect_eq(found_places, places, "sum of t + 1 times the tokens: %g", found_places);
}

Test(exec_rec, causal_decode) {
    static const tokens want[] = {{0, {95, 250, 69, 110}}, {7, {161, 170, 0, 63}},
                                  {8, {9, 48, 5, 129}},    {9, {9, 128, 9, 129}},
                                  {30, {3, 48, 145, 49}},  {63, {3, 48, 135, 49}}};
    exec_case c;
    exec_file(&c, "tests/data/rec/decode.dir", NULL);
    check_tokens(&c, want, 6, 22949, 709008);
    exec_free(&c);
}

Test(exec_rec, window_decode) {
    static const tokens want[] = {
        {8, {9, 48, 5, 129}}, {30, {0, 103, 99, 51}}, {63, {55, 198, 210, 28}}};
    exec_case c;
    exec_file(&c, "tests/data/rec/window.dir", NULL);
    check_tokens(&c, want, 3, 28931, 963919);
    exec_free(&c);
}

Test(exec_rec, n_step_return) {
    exec_case c;
    exec_file(&c, "tests/data/rec/n-step.dir", NULL);
    const double *w = exec_out(&c, "w{2}");
    double sum = 0, squares = 0;
    for (int i = 0; i < 64; i++) {
        sum += w[i];
        squares += w[i] * w[i];
    }
    const double got[] = {w[0], w[9], w[63], sum, sqrt(squares)};
    const double want[] = {0.10182432113409014, -0.09186200146515026, -0.014919749408075417,
                           0.11395034551059013, 3.4935075539782154};
    exec_expect(got, want, 5, "weights after three iterations");
    exec_free(&c);
}

Test(exec_rec, rnn) {
    exec_case c;
    exec_file(&c, "tests/data/rec/rnn.dir", NULL);
    exec_expect(exec_out(&c, "loss"), (double[]){0.3377349051218947}, 1, "loss");
    exec_free(&c);
}

/* The same RNN as a loop that carries the state: the same inputs, the same loss. */
Test(exec_rec, rnn_equals_the_loop) {
    exec_case a, b;
    exec_file(&a, "tests/data/rec/rnn.dir", NULL);
    exec_text(&b,
              "dir 1\nparam T = 6, b = 2, d = 8\n"
              "func @rnn(%x{t: 0..T}: f32[b, d], %y: f32[b, d], %h0: f32[b, d]) -> f32[] {\n"
              "weight %wx : f32[d, d]\nweight %wh : f32[d, d]\n"
              "%h = for t in 0..T carry (%s = %h0) {\n%p = matmul(%x{t}, %wx)\n"
              "%q = matmul(%s, %wh)\n%z = add(%p, %q)\n%u = tanh(%z)\nyield %u\n}\n"
              "%loss = mse(%h, %y)\nreturn %loss\n}\nscenario { model = @rnn }\n",
              NULL, NULL);
    exec_expect_same(&a, &b, "rec and loop");
    exec_free(&a);
    exec_free(&b);
}

/* ---- order, need, memory ---- */

/* s[t] = t == 0 ? x : s[t-1] + b[t], the equation of s after its use. */
Test(exec_rec, equations_in_any_order) {
    exec_case c;
    exec_lines(&c, "%x: f32[2], %b{t: 0..5}: f32[2]", "{t: 0..5} f32[2]",
               "%h = rec (t in 0..5) {\n%s = case t == 0: %x, else: %n\n"
               "%n = add(%s{t - 1}, %b{t})\nyield %s\n}\nreturn %h");
    cr_expect_neq(c.status, DS_OK, "at t = 0 the sum reads s[-1], needed or not");
    exec_free(&c);
    exec_lines(&c, "%x: f32[2], %b{t: 0..5}: f32[2]", "{t: 0..5} f32[2]",
               "%h = rec (t in 0..5) {\n%n = add(%p, %b{t})\n"
               "%s = case t == 0: %x, else: %n\n%p = case t == 0: %x, else: %s{t - 1}\n"
               "yield %s\n}\nreturn %h");
    double want[2] = {exec_in(&c, "x")[0], exec_in(&c, "x")[1]};
    for (int t = 0; t < 5; t++) {
        char name[16];
        snprintf(name, sizeof name, "b{%d}", t);
        for (int i = 0; i < 2 && t > 0; i++) want[i] += exec_in(&c, name)[i];
        snprintf(name, sizeof name, "h%d", t);
        exec_expect(exec_out(&c, name), want, 2, name);
    }
    exec_free(&c);
}

/* Backwards in time: a return is the sum of the rewards to come. */
Test(exec_rec, future_first) {
    exec_case c;
    exec_lines(&c, "%r{t: 0..4}: f32[1]", "{t: 0..4} f32[1], {t: 0..4} f32[1]",
               "%g, %all = rec (t in 0..4) {\n%next = case t == 3: %zero, else: %s{t + 1}\n"
               "%zero = fill() {value = 0.0} : f32[1]\n%s = add(%r{t}, %next)\n"
               "%sum = reduce_sum(%r{t:4}) {dims = [0]}\nyield %s, %sum\n}\nreturn %g, %all");
    double sum = 0;
    for (int t = 3; t >= 0; t--) {
        char name[16];
        snprintf(name, sizeof name, "r{%d}", t);
        sum += exec_in(&c, name)[0];
        snprintf(name, sizeof name, "g%d", t);
        exec_expect(exec_out(&c, name), &sum, 1, name);
        snprintf(name, sizeof name, "all%d", t);
        exec_expect(exec_out(&c, name), &sum, 1, name);
    }
    exec_free(&c);
}

/* A thousand turns need no thousand frames of C's stack, and each value is computed once: without
 * memory the Fibonacci numbers take 2^1000 sums. */
Test(exec_rec, remembers) {
    exec_case c;
    exec_lines(&c, "%x: f64[1]", "f64[1]",
               "%f = rec (t in 0..1000) {\n%a = case t < 1: %x, else: %h{t - 1}\n"
               "%b = case t < 2: %x, else: %h{t - 2}\n%s = add(%a, %b)\n"
               "%h = scale(%s) {factor = 0.5}\nyield %h\n}\nreturn %f{999}");
    exec_expect(exec_out(&c, "f{999}"), exec_in(&c, "x"), 1, "a mean of equal numbers");
    exec_free(&c);
}

/* ---- dims ---- */

/* Dims from an attribute, from a range's bound, from the statement on the left; a value without
 * dims exists once. */
Test(exec_rec, dims_of_results) {
    exec_case c;
    exec_lines(&c, "%x: f32[1]",
               "{t: 0..3} f32[1], {t: 0..3, l: 0..2} f32[1], {l: 0..2} f32[1], f32[1]",
               "%a, %b, %c, %d = rec (t in 0..3, l in 0..2) {\n"
               "%u = scale(%x) {factor = t + 1}\n%v = scale(%u) {factor = l + 1}\n"
               "%w{l} = neg(%x)\n%z = neg(%x)\nyield %u, %v, %w, %z\n}\nreturn %a, %b, %c, %d");
    double x = exec_in(&c, "x")[0];
    exec_expect(exec_out(&c, "a{2}"), (double[]){3 * x}, 1, "a");
    exec_expect(exec_out(&c, "b{2,1}"), (double[]){6 * x}, 1, "b");
    exec_expect(exec_out(&c, "c{1}"), (double[]){-x}, 1, "c");
    exec_expect(exec_out(&c, "d"), (double[]){-x}, 1, "d");
    exec_free(&c);
}

/* stack: a range's dim goes where `dim` says; shapes depend on the point. */
Test(exec_rec, stack) {
    exec_case c;
    exec_lines(&c, "%k{t: 0..3}: f32[2, 2]", "f32[2, 3, 2], f32[2, 2, 1]",
               "%s, %u = rec (t in 0..3) {\n%a = stack(%k{0:t + 1}) {dim = 1}\n"
               "%b = stack(%k{t:t + 1}) {dim = -1}\nyield %a{2}, %b{1}\n}\nreturn %s, %u");
    double want[12];
    for (int t = 0; t < 3; t++) {
        char name[16];
        snprintf(name, sizeof name, "k{%d}", t);
        const double *k = exec_in(&c, name);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++) want[i * 6 + t * 2 + j] = k[i * 2 + j];
    }
    exec_expect(exec_out(&c, "s"), want, 12, "dim 1");
    exec_expect(exec_out(&c, "u"), exec_in(&c, "k{1}"), 4, "the last dim");
    exec_free(&c);
}

/* ---- empty ranges ---- */

Test(exec_rec, empty_ranges) {
    exec_case c;
    exec_lines(&c, "%r{t: 0..3}: f32[2], %q: f32[1, 1, 1, 2], %k{t: 0..3}: f32[1, 1, 2]",
               "{t: 0..3} f32[2], {t: 0..3} f32[1, 1, 1, 2]",
               "%g, %o = rec (t in 0..3) {\n%s = reduce_sum(%r{0:t}) {dims = [0]}\n"
               "%ks = stack(%k{0:t}) {dim = 1}\n%a = attention(%q, %ks, %ks)\nyield %s, %a\n}\n"
               "return %g, %o");
    const double zeros[2] = {0};
    exec_expect(exec_out(&c, "g{0}"), zeros, 2, "a sum over nothing");
    exec_expect(exec_out(&c, "g{1}"), exec_in(&c, "r{0}"), 2, "a sum over one");
    exec_expect(exec_out(&c, "o{0}"), zeros, 2, "attention to nothing");
    exec_expect(exec_out(&c, "o{1}"), exec_in(&c, "k{0}"), 2, "attention to one key");
    exec_free(&c);
}

Test(exec_rec, nothing_has_no_maximum) {
    static const char *const ops[] = {"reduce_max", "reduce_mean"};
    for (int i = 0; i < 2; i++) {
        exec_case c;
        char lines[256];
        snprintf(lines, sizeof lines,
                 "%%g = rec (t in 0..3) {\n%%s = %s(%%r{0:t}) {dims = [0]}\nyield %%s\n}\n"
                 "return %%g{2}",
                 ops[i]);
        exec_lines(&c, "%r{t: 0..3}: f32[2]", "f32[2]", lines);
        cr_expect_eq(c.status, DS_ERR_SHAPE, "%s", ops[i]);
        cr_expect(strstr(c.err.message, "of no element"), "%s", c.err.message);
        exec_free(&c);
    }
}

/* ---- weights, calls, loops ---- */

/* A weight with a dim is one for each index, a weight without exists once, in a callee as the call
 * says; names are those of loops. */
Test(exec_rec, weights) {
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[2]) -> f32[2] {\n%h = rec (t in 0..3, l in 0..2) {\n"
              "weight %w{l} : f32[2]\nweight %v : f32[2]\n"
              "%i = case t == 0 and l == 0: %x, l == 0: %o{t - 1, 1}, else: %o{t, l - 1}\n"
              "%a = mul(%i, %w)\n%b = mul(%a, %v)\n%c = call @g(%b) {weights = [l]}\n"
              "%o = call @g(%c) {name = \"once\"}\nyield %o{2, 1}\n}\nreturn %h\n}\n"
              "func @g(%x: f32[2]) -> f32[2] {\nweight %u : f32[2]\n%y = add(%x, %u)\n"
              "return %y\n}\nscenario { model = @f }\n",
              NULL, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect_eq(c.result->inputs.n, 7, "x, w of two layers, v, u of two layers and once: %u",
                 c.result->inputs.n);
    for (int i = 0; i < 2; i++) {
        double h = exec_in(&c, "x")[i];
        for (int t = 0; t < 3; t++)
            for (int l = 0; l < 2; l++) {
                h = h * exec_in(&c, l ? "w{1}" : "w{0}")[i] * exec_in(&c, "v")[i];
                h += exec_in(&c, l ? "c.u{1}" : "c.u{0}")[i] + exec_in(&c, "once.u")[i];
            }
        exec_expect(&exec_out(&c, "h")[i], &h, 1, "h");
    }
    exec_free(&c);
}

/* A loop in a rec is one op, which reads points that mention its own index; a rec in a loop and in
 * a function that is called twice begins anew. */
Test(exec_rec, loops_in_and_around) {
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[1]) -> f32[1] {\n"
              "%y = for i in 0..2 carry (%c = %x) {\n%a = call @g(%c)\n%b = call @g(%a)\n"
              "yield %b\n}\nreturn %y\n}\n"
              "func @g(%x: f32[1]) -> f32[1] {\n%h = rec (t in 0..3) {\n"
              "%s = case t == 0: %x, else: %u{t - 1}\n"
              "%z = scale(%x) {factor = t + 1}\n"
              "%u = for j in 0..t + 1 carry (%k = %s) {\n%p = add(%k, %z{j})\nyield %p\n}\n"
              "yield %u\n}\nreturn %h{2}\n}\nscenario { model = @f }\n",
              NULL, NULL);
    /* u[0] = x + x; u[1] = u[0] + x + 2x; u[2] = u[1] + x + 2x + 3x = 11x; four times */
    double want = 11 * 11 * 11 * 11 * exec_in(&c, "x")[0];
    exec_expect(exec_out(&c, "y"), &want, 1, "y");
    exec_free(&c);
}

/* Dropout has a mask of its own at each point, and the same in a loop of that index. */
Test(exec_rec, masks_of_points) {
    exec_case a, b;
    exec_lines(&a, "%x: f32[64]", "{t: 0..2} f32[64]",
               "%h = rec (t in 0..2) {\n%d{t} = dropout(%x) {p = 0.5}\nyield %d\n}\nreturn %h");
    exec_lines(&b, "%x: f32[64]", "{t: 0..2} f32[64]",
               "%h = for t in 0..2 {\n%d = dropout(%x) {p = 0.5}\nyield keep %d\n}\nreturn %h");
    exec_expect_same(&a, &b, "rec and loop");
    cr_expect(memcmp(exec_out(&a, "h{0}"), exec_out(&a, "h{1}"), 64 * sizeof(double)) != 0);
    exec_free(&a);
    exec_free(&b);
}

/* ---- limits ---- */

Test(exec_rec, too_many_points) {
    exec_case c;
    exec_lines(&c, "%x: f32[1]", "f32[1]",
               "%h = rec (t in 0..100000000) {\n%s = case t == 0: %x, else: %u{t - 1}\n"
               "%u = tanh(%s)\nyield %u{0}\n}\nreturn %h");
    cr_expect_eq(c.status, DS_ERR_LIMIT);
    exec_free(&c);
}

/* ---- decoding equals the forward pass ---- */

/* A Llama of two layers: norms, rotary positions, grouped heads, a gated feed-forward layer. The
 * forward pass sees T tokens at once under a causal mask; the rec sees one a turn, and the keys and
 * values of those before. Weights have the same names, and so the same numbers. */
#define LLAMA                                                                                      \
    "dir 1\nparam T = 7, L = 2, B = 2, H = 4, G = 2, D = 8, V = 32, F = 24\n"                      \
    "param W = H * D\n"
#define LLAMA_WEIGHTS(dims)                                                                        \
    "weight %n1" dims " : f32[W]\nweight %wq" dims " : f32[W, H, D]\n"                             \
    "weight %wk" dims " : f32[W, G, D]\nweight %wv" dims " : f32[W, G, D]\n"                       \
    "weight %wo" dims " : f32[H, D, W]\nweight %n2" dims " : f32[W]\n"                             \
    "weight %wg" dims " : f32[W, F]\nweight %wu" dims " : f32[W, F]\n"                             \
    "weight %wd" dims " : f32[F, W]\n"
#define LLAMA_REST                                                                                 \
    "%z1 = add(%x, %o)\n%h2 = rms_norm(%z1, %n2)\n%g = matmul(%h2, %wg)\n%gs = silu(%g)\n"         \
    "%u = matmul(%h2, %wu)\n%gu = mul(%gs, %u)\n%dn = matmul(%gu, %wd)\n%y = add(%z1, %dn)\n"

static const char forward_pass[] = LLAMA
    "func @f(%ids: i32[B, T]) -> f32[B, T, V] {\nweight %emb : f32[V, W]\n"
    "%e = embedding(%ids, %emb)\n%last = for l in 0..L carry (%x = %e) {\n" LLAMA_WEIGHTS(
        "") "%h = rms_norm(%x, %n1)\n%q = einsum(%h, %wq) {rule = \"b s w, w h d -> b s h d\"}\n"
            "%k = einsum(%h, %wk) {rule = \"b s w, w h d -> b s h d\"}\n"
            "%v = einsum(%h, %wv) {rule = \"b s w, w h d -> b s h d\"}\n"
            "%qr = rotary(%q)\n%kr = rotary(%k)\n%a = attention(%qr, %kr, %v) {causal = true}\n"
            "%o = einsum(%a, %wo) {rule = \"b s h d, h d w -> b s w\"}\n" LLAMA_REST
            "yield %y\n}\n%logits = einsum(%last, %emb) {rule = \"b s w, v w -> b s v\"}\n"
            "return %logits\n}\nscenario { model = @f }\n";

static const char decoding[] = LLAMA
    "func @f(%ids{t: 0..T}: i32[B, 1]) -> {t: 0..T} f32[B, 1, V] {\nweight %emb : f32[V, W]\n"
    "%all = rec (t in 0..T, l in 0..L) {\n" LLAMA_WEIGHTS(
        "{l}") "%logits = einsum(%y{t, L - 1}, %emb) {rule = \"b s w, v w -> b s v\"}\n"
               "%e = embedding(%ids{t}, %emb)\n%x = case l == 0: %e, else: %y{t, l - 1}\n"
               "%h = rms_norm(%x, %n1)\n%q = einsum(%h, %wq) {rule = \"b s w, w h d -> b s h d\"}\n"
               "%k = einsum(%h, %wk) {rule = \"b s w, w h d -> b s h d\"}\n"
               "%v = einsum(%h, %wv) {rule = \"b s w, w h d -> b h d\"}\n"
               "%qr = rotary(%q) {start = t}\n%kr = rotary(%k) {start = t}\n"
               "%kp = reshape(%kr) {shape = [B, G, D]}\n"
               "%ks = stack(%kp{0:t + 1, l}) {dim = 1}\n%vs = stack(%v{0:t + 1, l}) {dim = 1}\n"
               "%a = attention(%qr, %ks, %vs)\n"
               "%o = einsum(%a, %wo) {rule = \"b s h d, h d w -> b s w\"}\n" LLAMA_REST
               "yield %logits\n}\nreturn %all\n}\nscenario { model = @f }\n";

Test(exec_rec, decoding_equals_the_forward_pass) {
    enum { T = 7, B = 2, V = 32 };
    double ids[B][T], column[T][B];
    ds_exec_tensor whole = {
        .name = "ids", .dtype = DS_I32, .rank = 2, .dims = {B, T}, .n = B * T, .at = &ids[0][0]};
    ds_exec_tensor parts[T];
    char names[T][16];
    for (int t = 0; t < T; t++) {
        for (int b = 0; b < B; b++) column[t][b] = ids[b][t] = (5 * t + 11 * b + 3) % V;
        snprintf(names[t], sizeof names[t], "ids{%d}", t);
        parts[t] = (ds_exec_tensor){
            .name = names[t], .dtype = DS_I32, .rank = 2, .dims = {B, 1}, .n = B, .at = column[t]};
    }
    exec_case a, b;
    exec_text(&a, forward_pass, NULL,
              &(ds_exec_options){.seed = 1, .inputs = &whole, .n_inputs = 1});
    exec_text(&b, decoding, NULL, &(ds_exec_options){.seed = 1, .inputs = parts, .n_inputs = T});
    const double *logits = exec_out(&a, "logits");
    for (int t = 0; t < T; t++) {
        char name[16];
        snprintf(name, sizeof name, "all{%d}", t);
        for (int i = 0; i < B; i++)
            exec_expect(exec_out(&b, name) + i * V, logits + (i * T + t) * V, V, name);
    }
    exec_free(&a);
    exec_free(&b);
}
