/* Clipping by the norm of all gradients: the sequential step against the formula, and sharded steps
 * against the sequential one. */
#include "ir/ops/ops.h"
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A table of both ends of a pipeline (tied), loops, a bias that nothing splits, weights of tp. */
static const char model[] =
    "dir 1\nparam layers = 4, width = 8, rows = 12, batch = 24, dp = 1, tp = 1, pp = 1, cp = 1,\n"
    "  zero = 0, m = 1, clip = 0.05, group = dp, late = 0, chunks = 1, schedule = \"1f1b\"\n"
    "topology @box {\n  device gpu[16] : \"A100-SXM4-80GB\"\n  switch sw\n"
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..16\n}\n"
    "func @net(%ids: i32[batch@dp], %t: i32[batch@dp]) -> f32[] {\n"
    "  weight %table : f32[rows, width]\n"
    "  weight %c : f32[5]\n"
    "  %e = embedding(%ids, %table)\n"
    "  %y = for l in 0..layers carry (%h: f32[batch@dp, width] = %e) {\n"
    "    weight %w1 : f32[width, 4 * width@tp]\n"
    "    weight %b1 : f32[4 * width@tp]\n"
    "    weight %w2 : f32[4 * width@tp, width]\n"
    "    weight %b2 : f32[width]\n"
    "    %z = matmul(%h, %w1)\n"
    "    %s = bias(%z, %b1)\n"
    "    %a = gelu(%s)\n"
    "    %b = matmul(%a, %w2)\n"
    "    %r = bias(%b, %b2)\n"
    "    %d = add(%r, %h)\n"
    "    yield %d\n"
    "  }\n"
    "  %logits = matmul(%y, %table) {transpose_b = true}\n"
    "  %rows = cross_entropy(%logits, %t)\n"
    "  %mean = reduce_mean(%rows)\n"
    "  %q = mul(%c, %c)\n"
    "  %p = reduce_mean(%q)\n"
    "  %loss = add(%mean, %p)\n"
    "  return %loss\n"
    "}\n";

static const char scenario[] =
    "scenario {\n  model = @net\n  on = @box\n"
    "  train { loss = none, optimizer = %s, clip_norm = clip%s }\n"
    "  strategy { dp = dp, tp = tp, pp = pp, zero = zero, zero_group = group, microbatches = m,\n"
    "    schedule = schedule, virtual_stages = chunks%s }\n}\n";

static void write_text(char *out, size_t n, const char *optimizer, const char *train,
                       const char *strategy) {
    size_t at = (size_t)snprintf(out, n, "%s", model);
    snprintf(out + at, n - at, scenario, optimizer, train, strategy);
}

static const double *output(const ds_exec_result *r, const char *name, int64_t *n) {
    const ds_exec_tensor *t = ds_exec_output(r, name);
    cr_assert_not_null(t, "no result %s", name);
    *n = t->n;
    return t->at;
}

static const double *input(const ds_exec_result *r, const char *name) {
    for (uint32_t i = 0; i < r->inputs.n; i++)
        if (strcmp(r->inputs.at[i].name, name) == 0) return r->inputs.at[i].at;
    cr_assert(false, "no input %s", name);
    return NULL;
}

static const char *const weights[] = {"table", "c",     "w1{0}", "w1{1}", "w1{2}", "w1{3}",
                                      "b1{0}", "b1{1}", "b1{2}", "b1{3}", "w2{0}", "w2{1}",
                                      "w2{2}", "w2{3}", "b2{0}", "b2{1}", "b2{2}", "b2{3}"};
enum { N_WEIGHTS = sizeof weights / sizeof *weights };

static const char *part(const char *weight, const char *suffix, char *name, size_t n) {
    const char *brace = strchr(weight, '{');
    int base = brace ? (int)(brace - weight) : (int)strlen(weight);
    snprintf(name, n, "%.*s%s%s", base, weight, suffix, brace ? brace : "");
    return name;
}

/* w - lr g min(1, clip / (n + 1e-6)), n² the sum of the squares of all gradients. */
static void expect_clipped(const char *settings, double clip) {
    char whole[4096], name[32];
    step_case c;
    int64_t n;
    write_text(whole, sizeof whole, "sgd, lr = 0.5", ", keep_gradients = true", "");
    step_make(&c, whole, settings, DS_PASS_OPTIMIZER);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    free(step_text(&c));
    ds_exec_result *r = step_run(&c, 3, NULL, 0);
    double square = 0;
    for (uint32_t w = 0; w < N_WEIGHTS; w++) {
        const double *g = output(r, part(weights[w], ".grad", name, sizeof name), &n);
        for (int64_t i = 0; i < n; i++) square += g[i] * g[i];
    }
    double factor = fmin(1, clip / (sqrt(square) + 1e-6));
    cr_expect(clip > 10 ? factor == 1 : factor < 0.9, "%g", factor);
    for (uint32_t w = 0; w < N_WEIGHTS; w++) {
        const double *g = output(r, part(weights[w], ".grad", name, sizeof name), &n);
        const double *after = output(r, part(weights[w], ".new", name, sizeof name), &n);
        const double *before = input(r, part(weights[w], "", name, sizeof name));
        for (int64_t i = 0; i < n; i++)
            cr_assert_float_eq(after[i], before[i] - 0.5 * factor * g[i], 1e-12, "%s[%lld]",
                               weights[w], (long long)i);
    }
    ds_exec_result_free(r);
    step_free(&c);
}

Test(clip, is_the_formula) {
    expect_clipped("clip=0.05", 0.05);
    expect_clipped("clip=100", 100);
}

/* ---- sharded ---- */

static void expect_same(const char *settings, const char *strategy, uint32_t devices) {
    char whole[4096];
    proof result;
    proof_options options = {.settings = settings, .seed = 7, .ranks = true};
    write_text(whole, sizeof whole, "adam", ", keep_gradients = false", strategy);
    prove(whole, &options, &result);
    cr_expect_eq(result.verdict, PROOF_EQUAL, "%s%s: %s %s", settings, strategy,
                 proof_verdict_name(result.verdict), result.what);
    cr_expect_eq(result.devices, devices, "%s", settings);
}

Test(clip, of_replicas_and_shards) {
    expect_same("dp=2 tp=2", "", 4);
    expect_same("dp=2 tp=2", ", late_reduce = true", 4);
    expect_same("dp=2 tp=2 zero=1", "", 4);
    expect_same("dp=4 tp=2 zero=2 group=2", "", 8);
    expect_same("dp=2 tp=2 zero=3 m=2", "", 4);
    expect_same("dp=3 zero=1", ", zero_uneven = true", 3);
}

Test(clip, of_pipelines) {
    expect_same("pp=2 m=2", "", 2);
    expect_same("dp=2 tp=2 pp=2 m=4 zero=1", "", 8);
    expect_same("pp=2 m=4 schedule=\"interleaved\" chunks=2 dp=2", "", 4);
    expect_same("pp=2 m=4 schedule=\"zb-h1\"", "", 2);
    expect_same("pp=2 m=2 dp=2", ", offload = optimizer", 4);
}

/* A tied table counts once, in the chunk of its first reader: one sum of squares a weight of the model,
 * and each is read. */
Test(clip, a_tied_table_has_one_sum_of_squares) {
    char whole[4096];
    step_case c;
    write_text(whole, sizeof whole, "adam", "", "");
    step_make(&c, whole, "pp=2 m=2 clip=1", DS_PASS_OPTIMIZER);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    uint32_t n = 0, n_tables = 0;
    const ds_func *func = c.step->func;
    for (uint32_t i = 0; i < func->body.n_ops; i++) {
        const ds_op *op = func->body.ops[i];
        if (op->code != DS_OP_SUM_SQUARES) continue;
        n++;
        n_tables += strncmp(ds_value_at(func, op->out[0])->name, "table", 5) == 0;
    }
    cr_expect_eq(n_tables, 1, "%u of %u", n_tables, n);
    step_free(&c);
}

Test(clip, what_is_refused) {
    static const struct {
        const char *settings, *strategy, *message;
    } cases[] = {
        {"pp=2 m=4 schedule=\"dualpipe\"", "", "two copies of the weights"},
        {"pp=2 m=2", ", stage_dp = [2, 1], stage_tp = [1, 2]", "stages of several widths"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char whole[4096];
        proof result;
        proof_options options = {.settings = cases[i].settings};
        write_text(whole, sizeof whole, "adam", "", cases[i].strategy);
        prove(whole, &options, &result);
        cr_expect_eq(result.verdict, PROOF_REFUSED, "%s", proof_verdict_name(result.verdict));
        cr_expect(strstr(result.what, cases[i].message), "%s", result.what);
    }
}

/* How many all_reduces a step has; the norm's are those of one number. */
static uint32_t n_all_reduces(const ds_block *block) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->n_ops; i++) {
        if (block->ops[i]->body) n += n_all_reduces(block->ops[i]->body);
        n += block->ops[i]->code == DS_OP_ALL_REDUCE;
    }
    return n;
}

/* One over tp for the weights that tp splits; with ZeRO one more, over dp. None without shards. */
Test(clip, takes_as_few_all_reduces_as_there_are_kinds) {
    static const struct {
        const char *settings;
        uint32_t more;
    } cases[] = {{"dp=2", 0}, {"tp=2", 1}, {"dp=2 tp=2", 1}, {"dp=2 tp=2 zero=1", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t n[2];
        for (int on = 0; on < 2; on++) {
            char whole[4096], settings[64];
            step_case c;
            write_text(whole, sizeof whole, "adam", "", "");
            snprintf(settings, sizeof settings, "%s clip=%d", cases[i].settings, on);
            step_make(&c, whole, settings, DS_PASS_SHARD);
            cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
            n[on] = n_all_reduces(&c.step->func->body);
            step_free(&c);
        }
        cr_expect_eq(n[1], n[0] + cases[i].more, "%s: %u, %u", cases[i].settings, n[0], n[1]);
    }
}

/* Axes of the all_reduces of the sum of squares, in order: "tp dp ". */
static void axes_of_total(const ds_func *func, char *out, size_t n) {
    const ds_block *body = &func->body;
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
        if (op->code != DS_OP_ALL_REDUCE || !strstr(ds_value_at(func, op->out[0])->name, "square"))
            continue;
        for (uint32_t a = 0; a < op->n_over; a++)
            at += (size_t)snprintf(out + at, n - at, "%s%s", a ? "+" : "", op->over[a]);
        at += (size_t)snprintf(out + at, n - at, " ");
    }
}

/* Terms over dp and tp become terms over dp by a sum over tp alone: a group
 * of tp, not all devices, wait for each other before the other terms over dp join. */
Test(clip, sums_over_the_axes_that_the_next_kind_has_not) {
    static const struct {
        const char *settings, *axes;
    } cases[] = {{"dp=2", ""}, {"tp=2", "tp "}, {"dp=2 tp=2 zero=1", "tp dp "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char whole[4096], axes[256];
        step_case c;
        write_text(whole, sizeof whole, "adam", "", "");
        step_make(&c, whole, cases[i].settings, DS_PASS_SHARD);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        axes_of_total(c.step->func, axes, sizeof axes);
        cr_expect_str_eq(axes, cases[i].axes, "%s: %s", cases[i].settings, axes);
        step_free(&c);
    }
}
