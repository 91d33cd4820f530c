/* Documents of several lengths in a sequence: attention stays in a document, whose work is a sum of
 * squares; the span of drawn documents against E[l^2] / E[l] and the order statistics of replicas. */
#include "tests/support/step.h"

#include "ir/lang/lang.h"
#include "ir/passes/build/count.h"
#include "ir/passes/lower/internal.h"
#include "ir/prove/check.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, H = 16, HEADS = 4, S = 24, B = 8, VOCAB = 32 };

static const char *gpt(const char *train, const char *strategy) {
    static char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/gpt.dir\" as g with layers = %d, hidden = %d, heads = %d, "
             "seq = %d, vocab = %d, batch = %d, dropout = 0.0\n"
             "topology @box { device gpu[4] switch hub "
             "link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..4 }\n"
             "scenario { model = @g.gpt, on = @box, train { optimizer = sgd%s }, "
             "strategy { bucket_size = 25 MB%s } }\n",
             LAYERS, H, HEADS, S, VOCAB, B, train, strategy);
    return text;
}

static int64_t products(const char *text, ds_pass_id last) {
    step_case c;
    ds_model_counts n;
    step_make(&c, text, NULL, last);
    cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text);
    free(step_text(&c)); /* it parses, and prints as itself */
    cr_assert_eq(ds_model_count(&c.step->binding, c.step->func, &n, NULL), DS_OK);
    step_free(&c);
    return (int64_t)n.matmul_flop;
}

/* 24 tokens are pieces of l: causal attention does 2 h l^2 FLOPs of each piece forward, 2.5 times
 * that backward. */
Test(documents, cost_the_sum_of_squares) {
    static const struct {
        const char *lengths;
        int64_t squares;
    } cases[] = {{"24", 24 * 24}, {"100", 24 * 24},          {"8", 3 * 64},
                 {"1", 24},       {"10", 14 * 14 + 10 * 10}, {"12:5", 2 * 144}};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char train[64];
        snprintf(train, sizeof train, ", lengths = [\"%s\"]", cases[i].lengths);
        for (int grad = 0; grad < 2; grad++) {
            ds_pass_id last = grad ? DS_PASS_GRAD : DS_PASS_LOWER;
            int64_t less = products(gpt("", ""), last) - products(gpt(train, ""), last);
            int64_t squares = cases[i].squares;
            if (strcmp(cases[i].lengths, "10") == 0) /* 10, 10 and 4: a span of 9, so 9, 9 and 6 */
                squares = 9 * 9 + 9 * 9 + 6 * 6;
            cr_expect_eq(less, LAYERS * B * (24 * 24 - squares) * 2 * H * (grad ? 7 : 2) / 2, "%s",
                         cases[i].lengths);
        }
    }
}

/* ---- numbers ---- */

/* The first result of a program on one device. */
static ds_exec_result *run(const char *body) {
    char text[1024];
    ds_error err = {0};
    ds_unit *unit;
    ds_diags diags;
    ds_binding binding;
    ds_exec_result *out = NULL;
    snprintf(
        text, sizeof text,
        "dir 1\nfunc @f(%%q: f32[2, 12, 4, 3], %%k: f32[2, 12, 2, 3], %%v: f32[2, 12, 2, 3]) -> "
        "f32[2, 12, 4, 3] {\n%s}\n",
        body);
    cr_assert_eq(ds_load_text("t", text, strlen(text), NULL, &unit, &err), DS_OK, "%s",
                 err.message);
    ds_diags_init(&diags);
    cr_assert_eq(ds_verify(unit, &diags), DS_OK, "%s", text);
    cr_assert_eq(ds_bind(unit, NULL, 0, &binding, &err), DS_OK);
    ds_exec_options options = {.seed = 3};
    cr_assert_eq(ds_exec_run(&binding, &options, &out, &err), DS_OK, "%s", err.message);
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
    return out;
}

/* Three documents of 4 tokens are three sequences of 4 tokens. */
Test(documents, see_themselves_alone) {
    for (int causal = 0; causal < 2; causal++) {
        char packed[256], apart[768];
        const char *word = causal ? "true" : "false";
        snprintf(packed, sizeof packed,
                 "  %%o = attention(%%q, %%k, %%v) {causal = %s, document = 4}\n  return %%o\n",
                 word);
        snprintf(apart, sizeof apart,
                 "  %%a = reshape(%%q) : f32[6, 4, 4, 3]\n  %%b = reshape(%%k) : f32[6, 4, 2, 3]\n"
                 "  %%c = reshape(%%v) : f32[6, 4, 2, 3]\n"
                 "  %%d = attention(%%a, %%b, %%c) {causal = %s}\n"
                 "  %%o = reshape(%%d) : f32[2, 12, 4, 3]\n  return %%o\n",
                 word);
        ds_exec_result *a = run(packed), *b = run(apart);
        cr_assert_eq(a->outputs.at[0].n, b->outputs.at[0].n);
        for (int64_t i = 0; i < a->outputs.at[0].n; i++)
            cr_expect_float_eq(a->outputs.at[0].at[i], b->outputs.at[0].at[i], 1e-12);
        ds_exec_result_free(a);
        ds_exec_result_free(b);
    }
}

/* Gradients stay in a document too, and every pass agrees. */
Test(documents, train) {
    static const char *const strategies[] = {"", ", tp = 2", ", dp = 2, zero = 3",
                                             ", pp = 2, microbatches = 2", ", recompute = full"};
    step_expect_some_gradients(gpt(", lengths = [\"5\"]", ""), NULL, 4);
    for (uint32_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        step_case c;
        ds_step_check check;
        ds_error err = {0};
        step_make(&c, gpt(", lengths = [\"5\", \"9\"]", strategies[i]), NULL, DS_PASS_LOWER);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        cr_assert_eq(
            ds_model_step_check(&c.binding, &(ds_step_check_options){.seed = 1}, &check, &err),
            DS_OK, "%s", err.message);
        cr_expect(check.equal, "%s", strategies[i]);
        ds_step_check_deinit(&check);
        step_free(&c);
    }
}

/* ---- spans ---- */

static const ds_length TWO[] = {{512, 0.8}, {8192, 0.2}};
static const ds_train TRAIN = {.documents = TWO, .n_documents = 2};

/* Of long sequences E[l^2] / E[l]; a sequence of s tokens cuts its last document. */
Test(documents, span_is_that_of_the_lengths) {
    double mean = 0.8 * 512 + 0.2 * 8192, squares = 0.8 * 512 * 512 + 0.2 * 8192.0 * 8192,
           span = ds_lower__span(&TRAIN, 1, 0, 1 << 24, 16);
    cr_expect_float_eq(span, squares / mean, 0.01 * squares / mean, "%g, not %g", span,
                       squares / mean);
    const ds_length one[] = {{1024, 1}};
    const ds_train same = {.documents = one, .n_documents = 1};
    cr_expect_float_eq(ds_lower__span(&same, 1, 0, 8192, 3), 1024, 0);
    cr_expect_float_eq(ds_lower__span(&same, 1, 0, 2560, 3), (2 * 1024. * 1024 + 512 * 512) / 2560,
                       1e-9);
}

/* Replicas of n sequences have spans around the mean with a deviation of 1 / sqrt(n); the largest of
 * k is some 1.54 deviations above for k = 10 (the expected maximum of 10 normal numbers, Harter
 * 1961), and grows with k. */
Test(documents, the_largest_of_replicas) {
    enum { REPLICAS = 400, GROUP = 10, N = 64, LENGTH = 32768 };
    double span[REPLICAS], mean = 0, square = 0, largest = 0;
    for (int i = 0; i < REPLICAS; i++) {
        span[i] = ds_lower__span(&TRAIN, 7, (uint64_t)i, LENGTH, N);
        mean += span[i] / REPLICAS;
    }
    for (int i = 0; i < REPLICAS; i++) square += (span[i] - mean) * (span[i] - mean) / REPLICAS;
    for (int g = 0; g < REPLICAS / GROUP; g++) {
        double most = 0;
        for (int i = 0; i < GROUP; i++) most = fmax(most, span[g * GROUP + i]);
        largest += most * GROUP / REPLICAS;
    }
    double deviations = (largest - mean) / sqrt(square);
    cr_expect_float_eq(deviations, 1.539, 0.2, "%g deviations", deviations);
}

/* ---- refused ---- */

Test(documents, says_why_not) {
    static const char *const wrong[] = {", lengths = [\"0\"]", ", lengths = [\"8:\"]",
                                        ", lengths = [\"8:-1\"]", ", lengths = [\"x\"]"};
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        step_case c;
        step_make(&c, gpt(wrong[i], ""), NULL, DS_PASS_LOWER);
        cr_expect(c.status != DS_OK && strstr(c.err.message, "lengths"), "%s", c.err.message);
        step_free(&c);
    }
    step_case c;
    step_make(&c, gpt(", lengths = [\"8\"]", ", cp = 2"), NULL, DS_PASS_LOWER);
    cr_expect(c.status != DS_OK && strstr(c.err.message, "cp"), "%s", c.err.message);
    step_free(&c);
}
