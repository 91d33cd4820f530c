/* The vocabulary-parallel loss: what becomes of cross_entropy where the logits' vocabulary is
 * split. It equals the op, needs three numbers a row from the other devices, and the backward pass
 * needs none. Embeddings whose rows are split are beside it. */
#include "tests/support/launches.h"
#include "tests/support/prove.h"

#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HEAD                                                                                       \
    "dir 1\n"                                                                                      \
    "param b = 4, s = 6, v = 24, width = 8, dp = 1, tp = 1, cp = 1, size = 1.0\n"                  \
    "topology @box {\n"                                                                            \
    "  device gpu[16] : \"A100-SXM4-80GB\"\n"                                                      \
    "  switch sw\n"                                                                                \
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..16\n"                                        \
    "}\n"

/* %s: how the vocabulary is split; the reduction; what is made of the loss. */
#define MODEL                                                                                      \
    "func @f(%%ids: i32[b@dp, s@cp], %%labels: i32[b@dp, s@cp]) -> f32[] {\n"                      \
    "  weight %%table : f32[v%s, width]\n"                                                         \
    "  weight %%head : f32[width, v%s]\n"                                                          \
    "  %%x = embedding(%%ids, %%table)\n"                                                          \
    "  %%y = tanh(%%x)\n"                                                                          \
    "  %%small = matmul(%%y, %%head)\n"                                                            \
    "  %%logits = scale(%%small) {factor = size}\n"                                                \
    "  %%loss = cross_entropy(%%logits, %%labels) {reduction = %s}\n"                              \
    "%s}\n"                                                                                        \
    "scenario {\n  model = @f\n  on = @box\n"                                                      \
    "  train %s\n  strategy { dp = dp, tp = tp, cp = cp, sp = %s }\n}\n"

#define TRAINED "{ loss = none, optimizer = none, keep_gradients = true }"
#define RETURN  "  return %loss\n"

/* The rows' losses have weights of their own, so that each row's gradient is seen. */
#define ROWS "  %square = mul(%loss, %loss)\n  %mean = reduce_mean(%square)\n  return %mean\n"

typedef char text[4096];

static void make(text out, const char *split, const char *reduction, const char *train,
                 const char *sp) {
    const char *end = strcmp(reduction, "none") == 0 ? ROWS : RETURN;
    snprintf(out, sizeof(text), HEAD MODEL, split, split, reduction, end, train, sp);
}

static void expect_equal(const char *model, const char *settings) {
    proof_options options = {.settings = settings, .seed = 3, .texts = true};
    proof result;
    prove(model, &options, &result);
    cr_expect_eq(result.verdict, PROOF_EQUAL, "%s: %s: %s", settings,
                 proof_verdict_name(result.verdict), result.what);
}

static const char *const reductions[] = {"mean", "sum", "none"};
static const char *const strategies[] = {"tp=2", "tp=3",      "tp=4 dp=2",      "tp=2 cp=2",
                                         "tp=6", "dp=2 cp=3", "dp=2 cp=2 tp=2", "tp=8"};

#define N_STRATEGIES (sizeof strategies / sizeof *strategies)

Test(shard_loss, loss_and_gradients_are_the_same) {
    for (int r = 0; r < 3; r++)
        for (size_t i = 0; i < N_STRATEGIES; i++) {
            text model;
            /* the derivative of the loss by each row is that for an upstream gradient of 1 */
            make(model, "@tp", reductions[r], r == 2 ? "= off" : TRAINED, "false");
            expect_equal(model, strategies[i]);
        }
}

Test(shard_loss, with_sequence_parallelism) {
    static const char *const with_tp[] = {"tp=2", "tp=3", "tp=2 cp=3", "dp=2 tp=2 cp=3"};
    for (int i = 0; i < 4; i++) {
        text model;
        make(model, "@tp", "mean", TRAINED, "true");
        expect_equal(model, with_tp[i]);
    }
}

Test(shard_loss, half_precision) {
    text model;
    make(model, "@tp", "mean",
         "{ loss = none, optimizer = adam, dtype = bf16, keep_gradients = true }", "false");
    expect_equal(model, "tp=2");
    expect_equal(model, "tp=2 dp=2 cp=2");
}

/* exp of such logits alone would overflow; within 1e-12 they are the op's numbers. */
Test(shard_loss, large_logits) {
    static const char *const sizes[] = {"1.0", "100.0", "100000.0"};
    for (int i = 0; i < 3; i++)
        for (int r = 0; r < 2; r++) {
            text model;
            char settings[64];
            step_case plain, sharded;
            make(model, "@tp", reductions[r], "= off", "false");
            snprintf(settings, sizeof settings, "tp=4 dp=2 size=%s", sizes[i]);
            step_make(&plain, model, settings, DS_PASS_LOWER);
            step_make(&sharded, model, settings, DS_PASS_SHARD);
            ds_exec_result *a = step_run(&plain, 5, NULL, 0), *b = step_run(&sharded, 5, NULL, 0);
            double want = a->outputs.at[0].at[0], got = b->outputs.at[0].at[0];
            cr_expect(isfinite(got) && fabs(got - want) <= 1e-12 * fabs(want), "%s: %.17g %.17g",
                      settings, got, want);
            ds_exec_result_free(a), ds_exec_result_free(b);
            step_free(&plain), step_free(&sharded);
        }
}

/* ---- communication ---- */

typedef struct reduced {
    int rows;  /* all_reduces over tp of one number a row */
    int other; /* over tp, of anything else */
} reduced;

static reduced reduced_of(const step_case *c) {
    const ds_func *func = c->step->func;
    reduced n = {0};
    for (uint32_t i = 0; i < func->body.n_ops; i++) {
        const ds_op *op = func->body.ops[i];
        if (op->code != DS_OP_ALL_REDUCE || op->n_over != 1 || strcmp(op->over[0], "tp") != 0)
            continue;
        if (ds_value_at(func, op->out[0])->type->rank == 2)
            n.rows++;
        else
            n.other++;
    }
    return n;
}

/* Megatron-LM: the largest logit, the sum of exponentials, the label's logit. The other two are
 * the embedding's rows forward, and backward what the head's columns send back. */
Test(shard_loss, three_numbers_a_row) {
    static const char *const train[] = {"= off", TRAINED};
    for (int trained = 0; trained < 2; trained++)
        for (int r = 0; r < 3 - trained; r++) {
            text model;
            step_case c;
            make(model, "@tp", reductions[r], train[trained], "false");
            step_make(&c, model, "tp=4", DS_PASS_SHARD);
            cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
            reduced n = reduced_of(&c);
            launches all = launches_of(&c, NULL);
            cr_expect_eq(n.rows, 3, "%s: %d", reductions[r], n.rows);
            cr_expect_eq(n.other, 1 + trained, "%s: %d", reductions[r], n.other);
            cr_expect_eq(all.all_reduce, 4 + trained);
            cr_expect_eq(all.all_gather + all.reduce_scatter + all.all_to_all + all.other, 0);
            step_free(&c);
        }
}

static const char *axis_of(const step_case *c, const char *name, uint32_t dim) {
    const ds_op *op = step_find(c, name);
    cr_assert(op, "there is no %%%s", name);
    for (uint32_t i = 0; i < op->n_out; i++) {
        const ds_value_info *info = ds_value_at(c->step->func, op->out[i]);
        if (strcmp(info->name, name) == 0)
            return info->type->dims[dim].n_splits ? info->type->dims[dim].splits[0].axis : "";
    }
    return "";
}

/* The backward op reads the logits where they are; gradients of both weights lie as these do. */
Test(shard_loss, backward_moves_nothing) {
    text model;
    step_case c;
    make(model, "@tp", "mean", TRAINED, "false");
    step_make(&c, model, "tp=4", DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    const ds_op *back = step_find(&c, "loss.dx"), *logits = step_find(&c, "logits");
    cr_assert(back && back->code == DS_OP_CROSS_ENTROPY_GRAD && logits);
    cr_expect_eq(back->in[0].value.i, logits->out[0].i, "the logits as they were made");
    cr_expect_str_eq(axis_of(&c, "logits", 2), "tp");
    cr_expect_str_eq(axis_of(&c, "loss.dx", 2), "tp");
    const ds_func *func = c.step->func;
    for (uint32_t w = 0; w < c.step->weights.n; w++) {
        const ds_step_weight *weight = &c.step->weights.at[w];
        const ds_type *grad = func->results[weight->grad_result];
        uint32_t vocabulary = strcmp(weight->name, "table") == 0 ? 0 : 1;
        cr_assert_eq(grad->dims[vocabulary].n_splits, 1, "%s", weight->name);
        cr_expect_str_eq(grad->dims[vocabulary].splits[0].axis, "tp");
        cr_expect_eq(grad->n_partials, 0);
    }
    step_free(&c);
}

/* Where nothing splits the vocabulary the op is the op. */
Test(shard_loss, whole_rows_stay_one_op) {
    static const char *const settings[] = {"tp=2", "dp=4", "dp=2 cp=2 tp=2"};
    for (int i = 0; i < 3; i++) {
        text model;
        step_case c;
        make(model, i == 1 ? "@tp" : "", "mean", TRAINED, "false");
        step_make(&c, model, settings[i], DS_PASS_SHARD);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        const ds_op *loss = step_find(&c, "loss");
        cr_expect(loss && loss->code == DS_OP_CROSS_ENTROPY, "%s", settings[i]);
        step_free(&c);
        expect_equal(model, settings[i]);
    }
}

Test(shard_loss, a_vocabulary_that_does_not_divide_is_refused) {
    text model;
    proof_options options = {.settings = "tp=5", .seed = 1};
    proof result;
    make(model, "@tp", "mean", TRAINED, "false");
    prove(model, &options, &result);
    cr_expect_eq(result.verdict, PROOF_REFUSED, "%s", result.what);
    cr_expect(strstr(result.what, "of size 24 is split over tp, but 5 parts do not divide it"),
              "%s", result.what);
}
