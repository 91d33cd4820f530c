/* Experts on devices of their own: a layer sends tokens there by one all_to_all and gets them back
 * by another one, twice more in the backward pass, and is the same layer. */
#include "tests/support/launches.h"
#include "tests/support/prove.h"

#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* %s: train; cp_type; sp */
#define MODEL                                                                                      \
    "dir 1\n"                                                                                      \
    "param layers = 2, experts = 4, dp = 1, tp = 1, cp = 1, ep = 1, zero = 0\n"                    \
    "import \"models/mixtral.dir\" as g with layers = layers, hidden = 16, heads = 8, "            \
    "kv_heads = 4, ffn = 24, experts = experts, chunks = 4, seq = 16, vocab = 24, batch = 4\n"     \
    "topology @box {\n"                                                                            \
    "  device gpu[16] : \"A100-SXM4-80GB\"\n"                                                      \
    "  switch sw\n"                                                                                \
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..16\n"                                        \
    "}\n"                                                                                          \
    "scenario {\n  model = @g.mixtral\n  on = @box\n  train %s\n"                                  \
    "  strategy { dp = dp, tp = tp, cp = cp, ep = ep, zero = zero, cp_type = %s, sp = %s }\n}\n"

#define TRAINED "{ loss = none, optimizer = none, keep_gradients = true }"

typedef char text[2048];

static void expect_equal(const char *cp_type, const char *sp, const char *settings) {
    text model;
    proof_options options = {.settings = settings, .seed = 1};
    proof result;
    snprintf(model, sizeof model, MODEL, TRAINED, cp_type, sp);
    prove(model, &options, &result);
    cr_expect_eq(result.verdict, PROOF_EQUAL, "%s, sp %s, %s: %s: %s", cp_type, sp, settings,
                 proof_verdict_name(result.verdict), result.what);
}

static const char *const settings[] = {
    "dp=2 ep=2",           "dp=4 ep=4",           "dp=4 ep=2",        "dp=2 ep=2 tp=2",
    "dp=2 cp=2 ep=2",      "dp=2 cp=2 ep=4",      "cp=4 ep=2",        "cp=4 ep=4",
    "dp=2 ep=2 experts=6", "dp=2 cp=2 ep=4 tp=2", "dp=4 ep=2 zero=1", "dp=4 ep=2 tp=2 zero=2",
    "dp=4 ep=4 zero=3",    "dp=4 ep=2 cp=2 tp=2",
};

#define N_SETTINGS (sizeof settings / sizeof *settings)

Test(shard_moe, loss_and_gradients_are_the_same) {
    for (size_t i = 0; i < N_SETTINGS; i++) expect_equal("ring", "false", settings[i]);
}

Test(shard_moe, with_sequence_parallelism) {
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (strstr(settings[i], "tp=2")) expect_equal("ring", "true", settings[i]);
}

Test(shard_moe, with_other_context_parallelism) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (!strstr(settings[i], "cp=")) continue;
        if (!strstr(settings[i], "tp=")) expect_equal("ulysses", "false", settings[i]);
        expect_equal("all_gather", "false", settings[i]);
    }
}

/* ---- communication of a layer ---- */

static void a_layer(const char *sp, const char *knobs, const char *over, launches *forward,
                    launches *backward) {
    text plain, trained;
    snprintf(plain, sizeof plain, MODEL, "= off", "ring", sp);
    snprintf(trained, sizeof trained, MODEL, TRAINED, "ring", sp);
    *forward = launches_a_layer(plain, knobs, over);
    *backward = launches_minus(launches_a_layer(trained, knobs, over), *forward);
}

/* Experts over ep: there and back (Lepikhin et al. 2020, arXiv:2006.16668, section 3.2), and the
 * same for the gradients. */
Test(shard_moe, two_forward_two_backward) {
    static const char *const knobs[] = {"dp=2 ep=2",      "dp=4 ep=4",           "dp=4 ep=2",
                                        "dp=2 ep=2 tp=2", "dp=2 cp=2 ep=2",      "dp=4 ep=2 tp=2",
                                        "dp=4 ep=4 tp=2", "dp=2 cp=2 ep=2 tp=2", NULL};
    static const char *const sp[] = {"false", "true"};
    for (int i = 0; knobs[i]; i++)
        for (int k = 0; k < 2; k++) {
            launches f, b;
            a_layer(sp[k], knobs[i], "ep", &f, &b);
            cr_expect_eq(f.all_to_all, 2, "%s: %lld", knobs[i], (long long)f.all_to_all);
            cr_expect_eq(b.all_to_all, 2, "%s: %lld", knobs[i], (long long)b.all_to_all);
            cr_expect_eq(f.all_gather + f.reduce_scatter + f.all_reduce + f.other, 0);
            cr_expect_eq(b.all_gather + b.reduce_scatter + b.other, 0);
            cr_expect_leq(b.all_reduce, 1, "of gradients, where dp = ep");
        }
}

/* With dp = ep there is nothing else: router, top-k and softmax are local. Gradients: the experts'
 * are whole, all others' are one bucket. */
Test(shard_moe, the_router_is_local) {
    launches f, b;
    a_layer("false", "dp=4 ep=4", NULL, &f, &b);
    cr_expect_eq(f.all_to_all, 2);
    cr_expect_eq(f.all_reduce + f.all_gather + f.reduce_scatter + f.permute + f.other, 0);
    cr_expect_eq(b.all_to_all, 2);
    cr_expect_eq(b.all_reduce, 1);
    cr_expect_eq(b.all_gather + b.reduce_scatter + b.permute + b.other, 0);
}

/* ep made of a part of dp and one of cp: buffers are exchanged over one after the other. */
Test(shard_moe, experts_over_two_axes) {
    launches f, b;
    a_layer("false", "dp=2 cp=2 ep=4", NULL, &f, &b);
    cr_expect_eq(f.all_to_all, 4);
    cr_expect_eq(b.all_to_all, 4);
}

/* ---- gradients ---- */

static void collect(const ds_block *block, const ds_func *func, const char *weight, char *over,
                    size_t room) {
    char name[64];
    snprintf(name, sizeof name, "%s.dw", weight);
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->body) collect(op->body, func, weight, over, room);
        for (uint32_t k = 0; op->code == DS_OP_ALL_REDUCE && k < op->n_in; k++)
            if (strcmp(ds_value_at(func, op->in[k].value)->name, name) == 0)
                for (uint32_t a = 0; a < op->n_over; a++) {
                    size_t n = strlen(over);
                    snprintf(over + n, room - n, "%s ", op->over[a]);
                }
    }
}

/* An expert's gradient is summed over those who hold the same expert. */
Test(shard_moe, gradients_are_summed_over_their_own_replicas) {
    static const struct {
        const char *op, *over;
    } want[] = {{"down", "dp "}, {"gate", "dp "}, {"up", "dp "}, {"router", "dp ep "}};
    text model;
    step_case c;
    snprintf(model, sizeof model, MODEL, TRAINED, "ring", "false");
    step_make(&c, model, "dp=4 ep=2", DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    for (int i = 0; i < 4; i++) {
        char over[64] = "";
        collect(&c.step->func->body, c.step->func, want[i].op, over, sizeof over);
        cr_expect_str_eq(over, want[i].over, "%s: %s", want[i].op, over);
    }
    step_free(&c);
}

Test(shard_moe, experts_that_do_not_divide_are_refused) {
    text model;
    proof_options options = {.settings = "dp=4 ep=4 experts=6", .seed = 1};
    proof result;
    snprintf(model, sizeof model, MODEL, TRAINED, "ring", "false");
    prove(model, &options, &result);
    cr_expect_eq(result.verdict, PROOF_REFUSED, "%s", result.what);
    cr_expect(strstr(result.what, "of size 6 is split over ep, but 4 parts do not divide it"), "%s",
              result.what);
}
