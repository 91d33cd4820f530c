/* Layers that differ: which layers run again (recompute_layers) against the loops of three frameworks, written out here;
 * what is kept and what is done again against n times a layer; results against the whole step. */
#include "tests/support/step.h"

#include "ir/passes/build/count.h"
#include "ir/prove/check.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { S = 16, B = 4, H = 32, A = 8, LAYERS = 6 };
#define SBH (S * B * H)

static const char *gpt(const char *recompute, const char *layers, const char *more) {
    static char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/gpt.dir\" as g with layers = %d, hidden = %d, heads = %d, "
             "seq = %d, vocab = 64, batch = %d\n"
             "topology @box { device gpu[4] switch hub "
             "link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..4 }\n"
             "scenario { model = @g.gpt, on = @box, train { optimizer = adam, dtype = f16 }, "
             "strategy { recompute = %s, recompute_layers = \"%s\"%s } }\n",
             LAYERS, H, A, S, B, recompute, layers, more);
    return text;
}

/* ---- which layers ---- */

/* torchtitan, distributed/activation_checkpoint.py: count += 1; count % ac_freq == 0. */
static bool torchtitan(int64_t layer, int64_t k) {
    int64_t count = 0;
    for (int64_t i = 0; i <= layer; i++) count += 1;
    return count % k == 0;
}

/* fms-fsdp, policies/ac_handler.py: block_idx += 1; if block_idx * p >= cut_off: cut_off += 1. */
static bool fms(int64_t layer, double p) {
    double cut_off = 0.5;
    bool again = false;
    for (int64_t block = 1; block <= layer + 1; block++) {
        again = (double)block * p >= cut_off;
        if (again) cut_off += 1;
    }
    return again;
}

static ds_strategy strategy_of(const char *layers) {
    step_case c;
    step_make(&c, gpt("full", layers, ""), NULL, DS_PASS_LOWER);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    ds_strategy s = c.step->strategy;
    step_free(&c);
    return s;
}

Test(recompute_layers, are_those_of_the_frameworks) {
    static const struct {
        const char *text;
        double share;
    } shares[] = {{"share:1/2", 0.5},
                  {"share:0.25", 0.25},
                  {"share:3/4", 0.75},
                  {"share:1", 1},
                  {"share:0.375", 0.375}};
    ds_strategy first = strategy_of("first:3"), third = strategy_of("one_in:3");
    for (int64_t i = 0; i < 100; i++) {
        cr_expect_eq(ds_strategy_runs_again(&first, i), i < 3);
        cr_expect_eq(ds_strategy_runs_again(&third, i), torchtitan(i, 3), "%lld", (long long)i);
    }
    for (uint32_t k = 0; k < sizeof shares / sizeof *shares; k++) {
        ds_strategy s = strategy_of(shares[k].text);
        for (int64_t i = 0; i < 100; i++)
            cr_expect_eq(ds_strategy_runs_again(&s, i), fms(i, shares[k].share), "%s: %lld",
                         shares[k].text, (long long)i);
    }
    ds_strategy thirds = strategy_of("share:2/3"); /* ac_handler.py's own example */
    for (int64_t i = 0; i < 99; i++)
        cr_expect_eq(ds_strategy_runs_again(&thirds, i), i % 3 != 1, "%lld", (long long)i);
}

/* ---- what is kept, what is done again ---- */

static int64_t number(const step_case *c, ds_expr e) {
    int64_t n = 0;
    ds_env env = ds_binding_env(&c->step->binding, NULL);
    cr_assert_eq(ds_expr_eval_int(&env, e, DS_NOWHERE, &n, NULL), DS_OK);
    return n;
}

/* Bytes that the model's loops keep, over all turns. */
static int64_t kept(const char *text) {
    step_case c;
    int64_t sum = 0;
    step_make(&c, text, NULL, DS_PASS_RECOMPUTE);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    free(step_text(&c)); /* it parses, and prints as itself */
    const ds_func *func = c.step->func;
    const char *end = "loss";
    for (uint32_t i = 0; i < func->body.n_ops; i++) {
        const ds_op *op = func->body.ops[i];
        if (op->n_out && strcmp(ds_value_at(func, op->out[0])->name, end) == 0) break;
        for (uint32_t k = op->n_args; op->code == DS_OP_FOR && k < op->n_out; k++) {
            const ds_type *type = ds_value_at(func, op->out[k])->type;
            int64_t bytes = (int64_t)ds_dtype_bits(type->dtype) / 8;
            for (uint32_t d = 0; d < type->rank; d++) bytes *= number(&c, type->dims[d].size);
            sum += bytes * (number(&c, op->hi) - number(&c, op->lo));
        }
    }
    step_free(&c);
    return sum;
}

static int64_t flop(const char *text, const char *settings, ds_pass_id last) {
    step_case c;
    ds_model_counts n;
    step_make(&c, text, settings, last);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_assert_eq(ds_model_count(&c.step->binding, c.step->func, &n, NULL), DS_OK);
    step_free(&c);
    return (int64_t)n.flop;
}

/* A layer that runs again keeps 2 sbh bytes, another 32 sbh + 4 asb (recompute/README.md). */
Test(recompute_layers, n_layers_keep_their_input) {
    static const struct {
        const char *layers;
        int64_t n;
    } cases[] = {{"all", 6},       {"first:1", 1},   {"first:6", 6},    {"first:9", 6},
                 {"one_in:2", 3},  {"one_in:4", 1},  {"one_in:7", 0},   {"share:1/2", 3},
                 {"share:2/3", 4}, {"share:0.1", 1}, {"share:1/100", 0}};
    int64_t layer = flop(gpt("none", "all", ""), "g.layers=4", DS_PASS_LOWER) -
                    flop(gpt("none", "all", ""), "g.layers=3", DS_PASS_LOWER);
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n = cases[i].n, bytes;
        const char *text = gpt("full", cases[i].layers, "");
        bytes = kept(text);
        cr_expect_eq(bytes, n * 2 * SBH + (LAYERS - n) * (32 * SBH + 4 * A * S * B), "%s: %lld",
                     cases[i].layers, (long long)bytes);
        bytes = flop(text, NULL, DS_PASS_RECOMPUTE) - flop(text, NULL, DS_PASS_OPTIMIZER);
        cr_expect_eq(bytes, n * layer, "%s", cases[i].layers);
    }
}

/* Selective recomputation leaves 30 sbh a layer. */
Test(recompute_layers, also_of_a_part_of_the_layer) {
    int64_t bytes = kept(gpt("selective", "first:2", ""));
    cr_expect_eq(bytes, 2 * 30 * SBH + (LAYERS - 2) * (32 * SBH + 4 * A * S * B));
}

/* ---- the same results ---- */

/* Every gradient, weight and state has its partner in the step without pieces (check.h). */
static void expect_equal(const char *text) {
    step_case c;
    ds_step_check check;
    ds_error err = {0};
    step_make(&c, text, NULL, DS_PASS_LOWER);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    ds_status status =
        ds_model_step_check(&c.binding, &(ds_step_check_options){.seed = 1}, &check, &err);
    cr_assert_eq(status, DS_OK, "%s: %s", text, err.message);
    cr_expect(check.equal, "%s: %s differs", text, check.worst ? check.worst->name : "nothing");
    uint32_t gradients = 0; /* 12 weights a layer, 4 single ones */
    for (uint32_t i = 0; i < check.rows.n; i++)
        gradients += check.rows.at[i].kind == DS_CHECK_GRADIENT;
    cr_expect_geq(gradients, 12 * LAYERS + 4);
    ds_step_check_deinit(&check);
    step_free(&c);
}

Test(recompute_layers, results_are_those_of_the_whole_step) {
    static const char *const layers[] = {"first:1", "one_in:2", "share:2/3"};
    static const char *const more[] = {"", ", dp = 4, zero = 3", ", tp = 2, sp = true",
                                       ", dp = 2, microbatches = 2, zero = 2",
                                       ", pp = 2, microbatches = 4"};
    for (uint32_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (uint32_t k = 0; k < sizeof more / sizeof *more; k++)
            expect_equal(gpt("full", layers[i], more[k]));
    expect_equal(gpt("full", "first:2",
                     ", offload = [activations, optimizer], "
                     "offload_layers = 1, offload_fraction = 0.5"));
    expect_equal(gpt("none", "all",
                     ", dp = 2, pp = 2, microbatches = 2, zero = 1, "
                     "offload = [activations, optimizer], "
                     "offload_layers = 2, offload_fraction = 0.4"));
}

/* ---- refused ---- */

static void refuse(const char *text, const char *message) {
    step_case c;
    step_make(&c, text, NULL, DS_PASS_RECOMPUTE);
    cr_expect_neq(c.status, DS_OK, "%s", text);
    cr_expect(strstr(c.err.message, message), "%s", c.err.message);
    step_free(&c);
}

Test(recompute_layers, says_why_not) {
    static const char *const wrong[] = {"first:0",   "first:x",   "one_in:-1", "share:3/2",
                                        "share:1/0", "share:1.5", "second:2",  "first:2 "};
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(gpt("full", wrong[i], ""), "recompute_layers");
    refuse(gpt("\"every:2\"", "first:1", ""), "blocks of K layers");
}
