/* Gradients of a rec that reads ranges, against differences of the loss. */
#include "ir/base/rng.h"
#include "tests/support/exec.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define HEAD "dir 1\nparam T = 6, w = 3, n = 2\n"
#define TAIL "scenario { model = @f, train { loss = none, optimizer = none } }\n"

/* %u{t} comes from %x{t}; %a{t} reads `range` of %u. */
static void expect(const char *range, const char *read, const char *settings) {
    char text[4096];
    snprintf(text, sizeof text,
             HEAD "func @f(%%x{t: 0..T}: f32[2, 4], %%y: f32[2, 4]) -> f32[] {\n"
                  "  weight %%w0 : f32[4, 4]\n  weight %%w1 : f32[4, 4]\n"
                  "  %%h = rec (t in 0..T) {\n    %%z = matmul(%%x{t}, %%w0)\n    %%u = tanh(%%z)\n"
                  "    %%r = %s(%%u{%s})%s\n    %%v = matmul(%%g, %%w1)\n    %%a = tanh(%%v)\n"
                  "    %%b = mul(%%a, %%u)\n    yield %%b\n  }\n"
                  "  %%s = reduce_sum(%%h{0:T}) {dims = [0]}\n  %%loss = mse(%%s, %%y)\n"
                  "  return %%loss\n}\n" TAIL,
             strchr(range, ':') ? "stack" : "neg", range, read);
    step_expect_gradients(text, settings);
}

#define LINEAR  " {dim = 1}\n    %g = reduce_sum(%r) {dims = [1]}"
#define PRODUCT " {dim = 1}\n    %q = mul(%r, %r)\n    %g = reduce_sum(%q) {dims = [1]}"

static const char *const ranges[] = {"0:T",
                                     "1:4",
                                     "0:t + 1",
                                     "t:T",
                                     "max(0, t - w + 1):t + 1",
                                     "t:min(t + w, T)",
                                     "max(0, t - n):min(t + w, T)",
                                     "0:t",
                                     "max(0, t - w):t"};
enum { N_RANGES = sizeof ranges / sizeof *ranges };

Test(grad_rec, identity) {
    expect("t", "\n    %g = mul(%r, %r)", NULL);
    expect("max(t - 2, 0)", "\n    %g = mul(%r, %r)", NULL);
    expect("min(t + 2, T - 1)", "\n    %g = mul(%r, %r)", NULL);
}

Test(grad_rec, linear) {
    for (size_t i = 0; i < N_RANGES; i++) {
        expect(ranges[i], LINEAR, NULL);
    }
}

Test(grad_rec, products) {
    for (size_t i = 0; i < N_RANGES; i++) expect(ranges[i], PRODUCT, NULL);
}

Test(grad_rec, attention_in_a_recurrence) {
    static const char *const past[] = {"0:t + 1", "max(0, t - w + 1):t + 1"};
    for (int i = 0; i < 2; i++) {
        char text[4096];
        snprintf(text, sizeof text,
                 "dir 1\nparam T = 4, w = 3, layers = 3, b = 2, heads = 2, d = 3\n"
                 "func @f(%%x{t: 0..T}: f32[b, heads, d], %%h0: f32[b, heads, d], %%y: f32[b, "
                 "heads, d]) -> f32[] {\n"
                 "  %%h = rec (t in 0..T, l in 0..layers) {\n"
                 "    weight %%wk{l} : f32[heads, d, heads, d]\n"
                 "    weight %%wv{l} : f32[heads, d, heads, d]\n"
                 "    %%s = case t == 0: %%h0, else: %%o{t - 1, layers - 1}\n"
                 "    %%e = add(%%s, %%x{t})\n"
                 "    %%i = case l == 0: %%e, else: %%o{t, l - 1}\n"
                 "    %%k = einsum(%%i, %%wk) {rule = \"b h d, h d n k -> b n k\"}\n"
                 "    %%v = einsum(%%i, %%wv) {rule = \"b h d, h d n k -> b n k\"}\n"
                 "    %%q = reshape(%%i) {shape = [b, 1, heads, d]}\n"
                 "    %%ks = stack(%%k{%s, l}) {dim = 1}\n"
                 "    %%vs = stack(%%v{%s, l}) {dim = 1}\n"
                 "    %%a = attention(%%q, %%ks, %%vs)\n"
                 "    %%a1 = reshape(%%a) {shape = [b, heads, d]}\n"
                 "    %%o1 = add(%%a1, %%i)\n    %%o = tanh(%%o1)\n"
                 "    yield %%o\n  }\n"
                 "  %%loss = mse(%%h{T - 1, layers - 1}, %%y)\n  return %%loss\n}\n" TAIL,
                 past[i], past[i]);
        step_expect_gradients(text, NULL);
    }
}

Test(grad_rec, returns) {
    static const char *const to[] = {"t:min(t + n, T)", "t:T", "0:T"};
    for (int i = 0; i < 3; i++) {
        char text[4096];
        snprintf(text, sizeof text,
                 HEAD "func @f(%%o0: f32[2, 4], %%env: f32[4, 4]) -> f32[] {\n"
                      "  weight %%w0 : f32[4, 4]\n  %%l = rec (t in 0..T) {\n"
                      "    %%o = case t == 0: %%o0, else: %%s{t - 1}\n"
                      "    %%z = matmul(%%o, %%w0)\n    %%a = tanh(%%z)\n"
                      "    %%m = matmul(%%a, %%env)\n    %%s = tanh(%%m)\n"
                      "    %%r = mul(%%s, %%a)\n"
                      "    %%g = reduce_sum(%%r{%s}) {dims = [0]}\n"
                      "    %%p = mul(%%a, %%g)\n"
                      "    %%one = reduce_sum(%%p)\n    %%sum = reduce_sum(%%one{0:T})\n"
                      "    yield %%sum\n  }\n  %%loss = scale(%%l) {factor = 0.5}\n"
                      "  return %%loss\n}\n" TAIL,
                 to[i]);
        step_expect_gradients(text, NULL);
    }
}

/* ---- gradient equations with inverted indices ---- */

/* Which readers read point t, for each range. */
static const char *const inverse[][2] = {
    {"0:T", "0:T"},
    {"1:4", "0:T * (t >= 1 and t < 4)"},
    {"0:t + 1", "t:T"},
    {"t:T", "0:t + 1"},
    {"max(0, t - w + 1):t + 1", "t:min(t + w, T)"},
    {"t:min(t + w, T)", "max(0, t - w + 1):t + 1"},
    {"max(0, t - n):min(t + w, T)", "max(0, t - w + 1):min(t + n + 1, T)"},
    {"t:t + 1", "t:t + 1"},
};

#define FORWARD                                                                                    \
    "dir 1\nparam T = 6, w = 3, n = 2\nfunc @f(%%x{t: 0..T}: f64[2, 4]) -> %s {\n"                 \
    "  weight %%w0 : f64[4, 4]\n  %s = rec (t in 0..T) {\n    %%z = matmul(%%x{t}, %%w0)\n"        \
    "    %%u = tanh(%%z)\n    %%q = mul(%%u, %%u)\n"                                               \
    "    %%g{t} = reduce_sum(%%q{%s}) {dims = [0]}\n"

/* loss = sum g^2 / 2, so that dg = g and dq{t} = the sum of dg over the readers of t. */
static void compare_with_equations(const char *range, const char *readers) {
    char text[4096];
    snprintf(text, sizeof text,
             FORWARD "    %%h = mul(%%g, %%g)\n    %%p = reduce_sum(%%h)\n"
                     "    %%s = reduce_sum(%%p{0:T})\n    yield %%s\n  }\n"
                     "  %%loss = scale(%%r) {factor = 0.5}\n  return %%loss\n}\n" TAIL,
             "f64[]", "%r", range);
    step_case step;
    step_make(&step, text, NULL, DS_PASS_GRAD);
    cr_assert_eq(step.status, DS_OK, "%s\n%s", step.err.message, text);
    ds_exec_result *made = step_run(&step, 1, NULL, 0);
    snprintf(text, sizeof text,
             FORWARD "    %%dq = reduce_sum(%%g{%s}) {dims = [0]}\n    %%qu = mul(%%dq, %%u)\n"
                     "    %%du = scale(%%qu) {factor = 2.0}\n    %%dz = tanh_grad(%%du, %%u)\n"
                     "    %%dw = einsum(%%x{t}, %%dz) {rule = \"b k, b n -> k n\"}\n"
                     "    %%s = reduce_sum(%%dw{0:T}) {dims = [0]}\n    yield %%s\n  }\n"
                     "  return %%dw0\n}\nscenario { model = @f }\n",
             "f64[4, 4]", "%dw0", range, readers);
    exec_case equations;
    exec_text(&equations, text, NULL, &(ds_exec_options){.seed = 1});
    cr_assert_eq(equations.status, DS_OK, "%s\n%s", equations.err.message, text);
    const ds_exec_tensor *want = &equations.result->outputs.at[0];
    const ds_exec_tensor *got = ds_exec_output(made, "w0.grad");
    cr_assert(got && got->n == want->n);
    for (int64_t i = 0; i < want->n; i++)
        cr_assert_float_eq(got->at[i], want->at[i], 1e-11, "%s: w0.grad[%lld] %.15g, not %.15g",
                           range, (long long)i, got->at[i], want->at[i]);
    exec_free(&equations);
    ds_exec_result_free(made);
    step_free(&step);
}

Test(grad_rec, equals_equations_of_the_inverted_index) {
    for (size_t i = 0; i < sizeof inverse / sizeof *inverse; i++)
        compare_with_equations(inverse[i][0], inverse[i][1]);
}

/* ---- random programs ---- */

typedef struct maker {
    ds_rng rng;
    ds_buf out;
    int n;
    bool layered[6];
} maker;

static int below(maker *m, int n) {
    return (int)ds_rng_below(&m->rng, (uint64_t)n);
}

static const char *some_range(maker *m) {
    return ranges[below(m, N_RANGES)];
}

/* %e2{<index>, l} of one of the equations before `self`. */
static void put_read(maker *m, int self, int source, const char *index) {
    const char *l = !m->layered[source] ? "" : m->layered[self] ? ", l" : ", 1";
    ds_buf_printf(&m->out, "%%e%d{%s%s}", source, index, l);
}

static void put_equation(maker *m, int e) {
    int a = below(m, e), b = below(m, e);
    switch (below(m, 5)) {
    case 0:
        ds_buf_printf(&m->out, "    %%r%d%s = stack(", e, m->layered[e] ? "{t, l}" : "{t}");
        put_read(m, e, a, some_range(m));
        ds_buf_printf(&m->out,
                      ") {dim = 1}\n    %%q%d = mul(%%r%d, %%r%d)\n"
                      "    %%e%d = reduce_sum(%%q%d) {dims = [1]}\n",
                      e, e, e, e, e);
        return;
    case 1:
        ds_buf_printf(&m->out, "    %%e%d%s = reduce_sum(", e, m->layered[e] ? "{t, l}" : "{t}");
        put_read(m, e, a, some_range(m));
        ds_buf_put(&m->out, ") {dims = [0]}\n");
        return;
    case 2: /* a recurrence, perhaps through a later equation */
        ds_buf_printf(&m->out, "    %%c%d%s = case t == 0: ", e, m->layered[e] ? "{t, l}" : "{t}");
        put_read(m, e, a, "t");
        ds_buf_put(&m->out, ", else: ");
        put_read(m, e, e + below(m, m->n - e), "t - 1");
        ds_buf_printf(&m->out, "\n    %%m%d = add(%%c%d, ", e, e);
        put_read(m, e, b, "t");
        ds_buf_printf(&m->out, ")\n    %%e%d = tanh(%%m%d)\n", e, e);
        return;
    default:
        ds_buf_printf(&m->out, "    %%e%d%s = %s(", e, m->layered[e] ? "{t, l}" : "{t}",
                      below(m, 2) ? "mul" : "add");
        put_read(m, e, a, below(m, 2) ? "max(t - 2, 0)" : "t");
        ds_buf_put(&m->out, ", ");
        put_read(m, e, b, "t");
        ds_buf_put(&m->out, ")\n");
    }
}

static void put_program(maker *m) {
    m->n = 3 + below(m, 4);
    for (int e = 1; e < m->n; e++) m->layered[e] = below(m, 2);
    m->layered[m->n - 1] = false;
    ds_buf_printf(&m->out,
                  "dir 1\nparam T = %d, w = 3, n = 2\n"
                  "func @f(%%x{t: 0..T}: f32[2, 3], %%y: f32[2, 3]) -> f32[] {\n"
                  "  weight %%w0 : f32[3, 3]\n  %%h = rec (t in 0..T, l in 0..3) {\n"
                  "    weight %%k{l} : f32[3, 3]\n    %%z = matmul(%%x{t}, %%w0)\n"
                  "    %%e0 = tanh(%%z) : f32[2, 3]\n",
                  4 + below(m, 2));
    for (int e = 1; e < m->n; e++) put_equation(m, e);
    ds_buf_printf(&m->out,
                  "    %%kept = matmul(%%e%d, %%k)\n    %%o = tanh(%%kept)\n    yield %%o\n  }\n"
                  "  %%s = reduce_sum(%%h{0:T, 2}) {dims = [0]}\n  %%loss = mse(%%s, %%y)\n"
                  "  return %%loss\n}\n" TAIL,
                  m->n - 1);
}

enum { PROGRAMS = 300 };

Test(grad_rec, random_programs) {
    int fine = 0, refused = 0;
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        maker m = {.rng = {seed}};
        put_program(&m);
        step_case step;
        step_make(&step, m.out.text, NULL, DS_PASS_GRAD);
        bool ok = step.status == DS_OK;
        if (!ok && !strstr(step.err.message, "depends on itself"))
            printf("%s\n%s\n", step.err.message, m.out.text);
        step_free(&step);
        if (ok) step_expect_some_gradients(m.out.text, NULL, 4);
        fine += ok;
        refused += !ok;
        ds_buf_deinit(&m.out);
    }
    printf("%d fine, %d refused\n", fine, refused);
    cr_expect_gt(fine, PROGRAMS / 2);
}
