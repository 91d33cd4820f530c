/* Gradients of weights that are one (a table that embedding and head read) and of two copies of the
 * weights: one all_reduce across the stages that hold them, sums in place where one stage holds
 * several, and no gradient is sent. That the numbers are the sequential step's is asked for every
 * schedule with zero = 2 and 3 here, with 0 and 1 in test_pipeline_verify.c. */
#include "ir/ops/ops.h"
#include "tests/support/cases.h"
#include "tests/support/pipe.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEDULES = 14 };

#define STRIDE (FEW_CASES ? 7u : 1u)

/* ---- numbers ---- */

static void prove(const pipe_model *model, uint32_t schedule, const char *more, const char *set,
                  const char *train) {
    char strategy[256];
    snprintf(strategy, sizeof strategy, "schedule = \"%s\", %s", pipe_schedule(schedule), more);
    pipe_expect_equal(
        &(pipe_case){.model = model, .strategy = strategy, .set = set, .train = train});
}

Test(tied, every_schedule_with_scattered_gradients) {
    for (uint32_t i = 0; i < SCHEDULES; i += STRIDE) {
        prove(&pipe_gpt, i, "pp = 2, microbatches = 4, dp = 2, zero = 2", NULL, NULL);
        prove(&pipe_gpt, i, "pp = 2, microbatches = 4, dp = 2, zero = 3", NULL, NULL);
    }
}

/* T5's table is read by the encoder, the decoder and the head: three chunks, of which two are on
 * one stage where chunks go down and up again. */
Test(tied, three_readers) {
    for (uint32_t i = 0; i < SCHEDULES; i += STRIDE)
        prove(&pipe_t5, i, "pp = 4, microbatches = 8", "layers=4", NULL);
    /* ZeRO gathers weights: what is made of a weight alone is where the weight is */
    prove(&pipe_t5, 0, "pp = 2, microbatches = 4, dp = 2, zero = 3", NULL, NULL);
}

/* The step returns the gradients themselves. */
Test(tied, gradients_are_results) {
    for (uint32_t i = 0; i < SCHEDULES; i += STRIDE)
        prove(&pipe_gpt, i, "pp = 2, microbatches = 4, dp = 2, zero = 1", NULL, "optimizer = none");
}

Test(tied, copies_of_weights_in_loops) {
    for (uint32_t i = 0; i < SCHEDULES; i++)
        if (strcmp(pipe_schedule(i), "chimera") == 0 || strcmp(pipe_schedule(i), "dualpipe") == 0)
            for (int zero = 0; zero < 4; zero++) {
                char more[64];
                snprintf(more, sizeof more, "pp = 4, microbatches = 8, dp = 2, zero = %d", zero);
                prove(&pipe_llama, i, more, "batch=16", NULL);
            }
}

/* ---- texts ---- */

/* What the step has behind its microbatches: by opcode and place. */
typedef struct sums {
    uint32_t n_across, n_members; /* all_reduces across, and operands of all of them */
    uint32_t n_add_ups;           /* accumulates of the step itself */
    uint32_t n_sent;              /* sends of gradients of weights */
} sums;

static bool is_gradient_of_weight(const step_case *c, const char *name) {
    for (uint32_t w = 0; w < c->step->weights.n; w++) {
        const char *weight = c->step->weights.at[w].name;
        size_t n = strlen(weight);
        if (strncmp(name, weight, n) == 0 && strncmp(name + n, ".grad", 5) == 0) return true;
    }
    return false;
}

static void count(const step_case *c, const ds_block *block, sums *out) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->body) count(c, op->body, out);
        if (op->code == DS_OP_ALL_REDUCE && op->across) {
            out->n_across++;
            out->n_members += op->n_in;
        }
        out->n_add_ups += op->code == DS_OP_ACCUMULATE;
        if (op->code == DS_OP_SEND)
            out->n_sent +=
                is_gradient_of_weight(c, ds_value_at(c->step->func, op->in[0].value)->name);
    }
}

static sums sums_of(const pipe_model *model, const char *strategy) {
    ds_buf text = {0};
    step_case c;
    sums out = {0};
    pipe_text(&(pipe_case){.model = model, .strategy = strategy}, &text);
    step_make(&c, text.text, NULL, DS_PASS_PIPELINE);
    cr_assert_eq(c.status, DS_OK, "%s: %s", strategy, c.err.message);
    count(&c, &c.step->func->body, &out);
    step_free(&c);
    ds_buf_deinit(&text);
    return out;
}

static void expect(const pipe_model *model, const char *strategy, sums want) {
    sums got = sums_of(model, strategy);
    cr_expect_eq(got.n_across, want.n_across, "%s: %u across", strategy, got.n_across);
    cr_expect_eq(got.n_members, want.n_members, "%s: %u members", strategy, got.n_members);
    cr_expect_eq(got.n_add_ups, want.n_add_ups, "%s: %u add ups", strategy, got.n_add_ups);
    cr_expect_eq(got.n_sent, want.n_sent, "%s: %u sent", strategy, got.n_sent);
}

Test(tied, one_all_reduce_for_a_table) {
    expect(&pipe_gpt, "pp = 2, microbatches = 4", (sums){1, 2, 0, 0});
    expect(&pipe_gpt, "pp = 4, microbatches = 4", (sums){1, 2, 0, 0});
    expect(&pipe_gpt, "pp = 2, dp = 2, zero = 2, microbatches = 4", (sums){1, 2, 0, 0});
    expect(&pipe_gpt, "pp = 2, microbatches = 1", (sums){1, 2, 0, 0});
    expect(&pipe_gpt, "pp = 2, tp = 2, microbatches = 4, scatter_gather = on", (sums){1, 2, 0, 0});
    expect(&pipe_llama, "pp = 2, microbatches = 4", (sums){0, 0, 0, 0}); /* a head of its own */
}

/* The first and the last chunk on stage 0. */
Test(tied, one_stage_adds_up_alone) {
    expect(&pipe_gpt, "pp = 2, microbatches = 4, schedule = \"zb-v\"", (sums){0, 0, 1, 0});
    expect(&pipe_gpt, "pp = 2, microbatches = 4, schedule = \"hanayo\"", (sums){0, 0, 1, 0});
}

/* T5 on 4 stages of one chunk: encoder, decoder and head in chunks 0, 2 and 3 (two loops of two
 * turns, a chunk a turn). In a V of 2 stages chunks 0 and 3 are on stage 0: one add, then two meet.
 */
Test(tied, stages_add_up_what_they_have_before_they_meet) {
    expect(&pipe_t5, "pp = 4, microbatches = 4", (sums){1, 3, 0, 0});
    expect(&pipe_t5, "pp = 2, microbatches = 4, schedule = \"zb-v\"", (sums){1, 2, 1, 0});
}

/* Both copies of an MLP's 4 layers of one weight: 2 families of 2 turns each, a loop each. */
Test(tied, copies_meet_element_by_element) {
    expect(&pipe_mlp, "pp = 2, microbatches = 4, schedule = \"dualpipe\"", (sums){2, 4, 0, 0});
    expect(&pipe_mlp, "pp = 4, microbatches = 4, schedule = \"chimera\"", (sums){4, 8, 0, 0});
}

/* Copies of a table: stage 0 has chunk 0 of one copy and chunk 1 of the other, stage 1 likewise.
 * Each adds its two up; then all four are one sum. */
Test(tied, copies_of_a_table_are_one_sum) {
    sums table = sums_of(&pipe_gpt, "pp = 2, microbatches = 4, schedule = \"dualpipe\"");
    sums rest = sums_of(&pipe_llama, "pp = 2, microbatches = 4, schedule = \"dualpipe\"");
    cr_expect_eq(table.n_add_ups, 2u);
    cr_expect_eq(table.n_members, 2 * table.n_across);
    cr_expect_eq(table.n_sent, 0u);
    cr_expect_eq(rest.n_add_ups, 0u);
    cr_expect_eq(rest.n_members, 2 * rest.n_across);
    cr_expect_eq(rest.n_sent, 0u);
}

/* Names: the sum is called what the weight's gradient was called. */
Test(tied, sums_keep_the_gradients_names) {
    ds_buf text = {0};
    step_case c;
    pipe_text(&(pipe_case){.model = &pipe_gpt, .strategy = "pp = 2, microbatches = 4"}, &text);
    step_make(&c, text.text, NULL, DS_PASS_PIPELINE);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    const ds_op *a = step_find(&c, "wte.c0.grad"), *b = step_find(&c, "wte.c1.grad");
    cr_assert_not_null(a);
    cr_expect_eq(a, b);
    cr_expect_eq(a->code, DS_OP_ALL_REDUCE);
    cr_expect_str_eq(ds_value_at(c.step->func, a->in[0].value)->name, "wte.c0.grad.own");
    cr_expect_str_eq(ds_value_at(c.step->func, a->in[1].value)->name, "wte.c1.grad.own");
    step_free(&c);
    ds_buf_deinit(&text);
}

/* Where one stage adds up alone its sum has that name. */
Test(tied, a_stages_own_sum_keeps_the_gradients_name) {
    static const char *const schedules[] = {"zb-v", "hanayo"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        char strategy[64];
        ds_buf text = {0};
        step_case c;
        snprintf(strategy, sizeof strategy, "pp = 2, microbatches = 4, schedule = \"%s\"",
                 schedules[i]);
        pipe_text(&(pipe_case){.model = &pipe_gpt, .strategy = strategy}, &text);
        step_make(&c, text.text, NULL, DS_PASS_PIPELINE);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        const ds_op *sum = step_find(&c, "wte.c0.grad");
        cr_assert_not_null(sum, "%s", schedules[i]);
        cr_expect_eq(sum->code, DS_OP_ACCUMULATE);
        step_free(&c);
        ds_buf_deinit(&text);
    }
}

/* Loops in loops: elements of two indices are summed nowhere yet. */
Test(tied, copies_of_weights_of_two_indices_are_refused) {
    static const char text[] =
        "dir 1\nparam batch = 8\ntopology @box {\n  device gpu[2] : \"A100-SXM4-80GB\"\n"
        "  link gpu[0] -- gpu[1] : 300 GB/s, 1 us\n}\n"
        "func @net(%x: f32[batch@dp, 4]) -> f32[batch@dp, 4] {\n"
        "  %y = for l in 0..2 carry (%h = %x) {\n    %z = for k in 0..2 carry (%g = %h) {\n"
        "      weight %w : f32[4, 4]\n      %a = matmul(%g, %w)\n      yield %a\n    }\n"
        "    yield %z\n  }\n  return %y\n}\n"
        "scenario {\n  model = @net\n  on = @box\n  train { loss = mse, optimizer = sgd }\n"
        "  strategy { pp = 2, microbatches = 4, schedule = \"chimera\" }\n}\n";
    step_case c;
    step_make(&c, text, NULL, DS_PASS_PIPELINE);
    cr_expect_eq(c.status, DS_ERR_UNSUPPORTED, "%s", ds_status_name(c.status));
    cr_expect(strstr(c.err.message, "%w.c0.grad.own is a family over 2 indices"), "%s",
              c.err.message);
    step_free(&c);
}
