/* A pipeline written in brief (ds_model_step.brief) is, in the end, the same text as one whose
 * every pass was verified: all schedules, and what stages, microbatches and passes can do to each
 * other. */
#include "tests/support/pipe.h"
#include "tests/support/step.h"

#include "ir/lang/lang.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The program's text, or the error's; *calls: how many operands the step's calls have before the
 * pipeline. Free it. */
static char *program(const pipe_case *c, bool brief, uint32_t *operands) {
    ds_buf text = {0}, out = {0};
    char *settings = pipe_settings(c);
    step_case s;
    pipe_text(c, &text);
    step_make(&s, text.text, settings, DS_PASS_LOWER);
    cr_assert_eq(s.status, DS_OK, "%s: %s", c->strategy, s.err.message);
    s.step->brief = brief;
    s.status = ds_model_step_run_to(s.step, DS_PASS_SHARD, NULL, NULL, &s.err);
    *operands = 0;
    for (uint32_t i = 0; s.status == DS_OK && i < s.step->func->body.n_ops; i++)
        if (s.step->func->body.ops[i]->code == DS_OP_CALL)
            *operands += s.step->func->body.ops[i]->n_in;
    if (s.status == DS_OK)
        s.status = ds_model_step_run_to(s.step, DS_PASS_OVERLAP, NULL, NULL, &s.err);
    if (s.status == DS_OK)
        ds_print_module(s.step->unit->modules.at[0], &out);
    else
        ds_buf_put(&out, s.err.message);
    step_free(&s);
    ds_buf_deinit(&text);
    free(settings);
    return out.text;
}

static void expect_same(const pipe_model *model, const char *set, const char *strategy) {
    pipe_case c = {.model = model, .strategy = strategy, .set = set};
    uint32_t full, brief;
    char *a = program(&c, false, &full), *b = program(&c, true, &brief);
    cr_expect(strstr(a, "func @step"), "%s, %s: %.300s", model->name, strategy, a);
    size_t same = 0;
    while (a[same] && a[same] == b[same]) same++;
    size_t line = same;
    while (line && a[line - 1] != '\n') line--;
    cr_expect(strcmp(a, b) == 0, "%s, %s: byte %zu:\n%.300s\nin brief\n%.300s", model->name,
              strategy, same, a + line, b + line);
    cr_expect(brief < full, "%s, %s: calls have %u operands, in brief %u", model->name, strategy,
              full, brief);
    free(a);
    free(b);
}

Test(passes_brief, schedules) {
    for (uint32_t i = 0; pipe_schedule(i); i++) {
        char strategy[256];
        snprintf(strategy, sizeof strategy, "pp = 2, microbatches = 8, schedule = \"%s\"",
                 pipe_schedule(i));
        expect_same(&pipe_gpt, NULL, strategy);
    }
}

Test(passes_brief, models) {
    const char *strategy = "pp = 2, microbatches = 8, dp = 1, tp = 2, schedule = \"interleaved\"";
    expect_same(&pipe_mlp, NULL, strategy);
    expect_same(&pipe_llama, NULL, strategy);
    expect_same(&pipe_t5, NULL, strategy);
    expect_same(&pipe_mixtral, NULL, strategy);
}

Test(passes_brief, knobs) {
    static const char *const knobs[] = {
        "dp = 2, zero = 1",          "dp = 2, zero = 2",  "dp = 2, zero = 3",
        "tp = 2, sp = true",         "recompute = full",  "recompute = selective, tp = 2",
        "offload = [\"optimizer\"]", "p2p = \"batched\"", "offload = [\"activations\"]",
        "offload = [\"weights\"]"};
    for (uint32_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        char strategy[256];
        snprintf(strategy, sizeof strategy, "pp = 2, microbatches = 8, schedule = \"%s\", %s",
                 i % 2 ? "zb-h1" : "1f1b", knobs[i]);
        expect_same(&pipe_gpt, "batch=16", strategy);
    }
}

/* What is refused is refused in brief, too, if with less to say. */
Test(passes_brief, refused) {
    pipe_case c = {.model = &pipe_gpt,
                   .strategy = "pp = 3, microbatches = 7, schedule = \"interleaved\"",
                   .set = "batch=21"};
    ds_buf text = {0};
    char *settings = pipe_settings(&c);
    step_case s;
    pipe_text(&c, &text);
    step_make(&s, text.text, settings, DS_PASS_LOWER);
    if (s.status == DS_OK) {
        s.step->brief = true;
        s.status = ds_model_step_run_to(s.step, DS_PASS_OVERLAP, NULL, NULL, &s.err);
    }
    cr_expect_neq(s.status, DS_OK);
    step_free(&s);
    ds_buf_deinit(&text);
    free(settings);
}
