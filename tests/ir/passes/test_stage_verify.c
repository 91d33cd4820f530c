/* exec --verify=pipeline: the pipelined step against the sequential one, by name. A GPT of 4 layers
 * has 12 weights a layer, 3 single ones and the table, which the embedding and the head share. */
#include "tests/support/stage.h"

#include "ir/prove/check.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { WEIGHTS = 4 * 12 + 3 }; /* but for the table */

typedef struct verified {
    step_case c;
    ds_step_check check;
} verified;

static void verify(verified *v, const char *optimizer, const char *strategy) {
    char text[1024];
    ds_error err = {0};
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/gpt.dir\" with layers = 4, hidden = 8, heads = 2, seq = 4, "
             "vocab = 12, batch = 8\nimport \"topologies/dgx-a100.dir\"\n"
             "scenario {\n  model = @gpt\n  on = @dgx_a100\n  train { optimizer = %s }\n"
             "  strategy { %s }\n}\n",
             optimizer, strategy);
    step_make(&v->c, text, NULL, DS_PASS_LOWER);
    cr_assert_eq(v->c.status, DS_OK, "%s: %s", strategy, v->c.err.message);
    ds_step_check_options options = {.seed = 1, .passes = 1u << DS_PASS_PIPELINE};
    ds_status status = ds_model_step_check(&v->c.binding, &options, &v->check, &err);
    cr_assert_eq(status, DS_OK, "%s: %s", strategy, err.message);
    for (uint32_t i = 0; i < v->check.rows.n; i++)
        cr_expect(v->check.rows.at[i].equal, "%s: %s", strategy, v->check.rows.at[i].name);
    cr_expect(v->check.equal);
}

static void done(verified *v) {
    ds_step_check_deinit(&v->check);
    step_free(&v->c);
}

static uint32_t count(const verified *v, ds_check_kind kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->check.rows.n; i++) n += v->check.rows.at[i].kind == kind;
    return n;
}

static bool has(const verified *v, const char *name) {
    for (uint32_t i = 0; i < v->check.rows.n; i++)
        if (strcmp(v->check.rows.at[i].name, name) == 0) return v->check.rows.at[i].max_a > 0;
    return false;
}

static void expect_counts(const verified *v, uint32_t n, uint32_t n_states) {
    cr_expect_eq(count(v, DS_CHECK_RESULT), 1);
    cr_expect_eq(count(v, DS_CHECK_GRADIENT), n, "%u gradients", count(v, DS_CHECK_GRADIENT));
    cr_expect_eq(count(v, DS_CHECK_WEIGHT), n, "%u weights", count(v, DS_CHECK_WEIGHT));
    cr_expect_eq(count(v, DS_CHECK_STATE), n * n_states, "%u states", count(v, DS_CHECK_STATE));
}

/* Both copies of the table, with the masks of dropout and the states of Adam. */
Test(stage_verify, every_result_is_compared) {
    verified v;
    verify(&v, "adam", "pp = 2, microbatches = 2");
    expect_counts(&v, WEIGHTS + 2, 2);
    cr_expect(has(&v, "loss"));
    cr_expect(has(&v, "wte.c0.grad") && has(&v, "wte.c1.grad"));
    cr_expect(has(&v, "wte.c0.m.new") && has(&v, "wte.c1.v.new"));
    cr_expect(has(&v, "w_fc1.c1.new{3}") && !has(&v, "w_fc1.c0.new{3}"));
    done(&v);
}

Test(stage_verify, one_microbatch) {
    verified v;
    verify(&v, "sgd", "pp = 4, schedule = \"gpipe\"");
    expect_counts(&v, WEIGHTS + 2, 0);
    done(&v);
}

/* Every chunk is on both stages, and so is all that belongs to it. */
Test(stage_verify, two_copies_of_the_weights) {
    verified v;
    verify(&v, "momentum", "pp = 2, microbatches = 4, schedule = \"chimera\"");
    expect_counts(&v, 2 * (WEIGHTS + 2), 1);
    done(&v);
}

/* Gathered weights have other names in the program: %wpe.c0.new.whole. */
Test(stage_verify, names_that_passes_have_changed) {
    verified v;
    verify(&v, "sgd", "pp = 2, dp = 2, zero = 1, microbatches = 2");
    expect_counts(&v, WEIGHTS + 2, 0);
    cr_expect(has(&v, "wpe.c0.new"));
    done(&v);
}

/* A sequential step for a strategy that is refused with pp = 1. */
Test(stage_verify, knobs_of_pipelines) {
    verified v;
    verify(&v, "sgd",
           "pp = 2, virtual_stages = 2, schedule = \"interleaved\", microbatches = 2, "
           "stage_layers = [0, 1, 2, 1]");
    expect_counts(&v, WEIGHTS + 2, 0);
    cr_expect(has(&v, "wte.c3.new"));
    done(&v);
}
