/* Where models are cut by layers and as they are told, and what is refused, with its place. */
#include "tests/support/stage.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_cut(const char *model, const char *settings, const char *strategy,
                       const char *turns) {
    step_case c;
    stage_make(&c, model, settings, strategy);
    cr_assert_eq(c.status, DS_OK, "%s: %s", strategy, c.err.message);
    char *got = stage_turns(&c);
    cr_expect_str_eq(got, turns, "%s, %s, %s: %s, not %s", model, settings, strategy, got, turns);
    free(got);
    step_free(&c);
}

/* n turns over C chunks: n / C each, what is left to the middle, first to its earlier half. */
Test(stage_cut, what_is_left_over_goes_to_the_middle) {
    static const struct {
        int layers, pp;
        const char *turns;
    } cases[] = {{4, 2, "0 0 1 1"},         {5, 2, "0 0 0 1 1"},      {7, 3, "0 0 1 1 1 2 2"},
                 {8, 3, "0 0 0 1 1 1 2 2"}, {4, 4, "0 1 2 3"},        {5, 4, "0 1 1 2 3"},
                 {6, 4, "0 1 1 2 2 3"},     {7, 4, "0 0 1 1 2 2 3"},  {6, 5, "0 1 2 2 3 4"},
                 {7, 5, "0 1 1 2 2 3 4"},   {8, 5, "0 1 1 2 2 3 3 4"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char settings[64], strategy[32];
        snprintf(settings, sizeof settings, "layers=%d width=2 batch=2", cases[i].layers);
        snprintf(strategy, sizeof strategy, "pp = %d", cases[i].pp);
        expect_cut("mlp", settings, strategy, cases[i].turns);
    }
}

static const char gpt[] = "layers=6 hidden=4 heads=1 seq=2 vocab=5 batch=2";

/* A first or last chunk without turns has the embedding, or the head. */
Test(stage_cut, as_told) {
    expect_cut("gpt", gpt, "pp = 2, stage_layers = [1, 5]", "0 1 1 1 1 1");
    expect_cut("gpt", gpt, "pp = 3, stage_layers = [3, 1, 2]", "0 0 0 1 2 2");
    expect_cut("gpt", gpt, "pp = 3, stage_layers = [0, 3, 3]", "1 1 1 2 2 2");
    expect_cut("gpt", gpt, "pp = 3, stage_layers = [3, 3, 0]", "0 0 0 1 1 1");
    expect_cut("gpt", gpt, "pp = 3, first_stage_less = 1, last_stage_less = 1", "0 0 1 1 1 2");
    expect_cut("gpt", gpt, "pp = 2, first_stage_less = 1, last_stage_less = 1", "0 0 0 1 1 1");
    expect_cut("gpt", gpt, "pp = 2, last_stage_less = 2", "0 0 0 0 1 1");
    expect_cut("gpt", gpt, "pp = 4, first_stage_less = 1, last_stage_less = 1", "0 1 1 2 2 3");
    expect_cut("gpt", gpt, "pp = 5, first_stage_less = 1, last_stage_less = 1", "0 1 1 2 2 3");
    expect_cut("gpt", gpt, "pp = 2, stage_layers = [6, 0], balance = flops", "0 0 0 0 0 0");
    expect_cut("gpt", gpt,
               "pp = 2, virtual_stages = 2, microbatches = 2, schedule = \"interleaved\", "
               "stage_layers = [0, 4, 1, 1]",
               "1 1 1 1 2 3");
}

/* What stands between two loops is with the one behind it, wherever that is. */
Test(stage_cut, between_two_loops) {
    static const char t5[] =
        "layers=2 hidden=4 heads=1 head_dim=4 ffn=4 seq=2 target_seq=2 vocab=5 batch=2";
    step_case c;
    expect_cut("t5", t5, "pp = 2, stage_layers = [3, 1]", "0 0 0 1");
    stage_make(&c, "t5", t5, "pp = 2, stage_layers = [2, 2]");
    cr_expect_not_null(stage_weight(&c, "norm.c1"));
    cr_expect_null(stage_weight(&c, "norm.c0"));
    step_free(&c);
    stage_make(&c, "t5", t5, "pp = 2, stage_layers = [3, 1]");
    cr_expect_not_null(stage_weight(&c, "norm.c0"));
    cr_expect_not_null(stage_weight(&c, "w_target_distance.c0"));
    cr_expect_not_null(stage_weight(&c, "target_norm.c1"));
    step_free(&c);
}

/* ---- refusals ---- */

static uint32_t line_of(const char *text, const char *part) {
    uint32_t line = 1;
    const char *at = strstr(text, part);
    cr_assert_not_null(at, "%s is not in %s", part, text);
    for (const char *p = text; p < at; p++) line += *p == '\n';
    return line;
}

/* The message has `part`; the error is in the line of `at`. */
static void expect_error(const char *text, const char *settings, ds_status status, const char *part,
                         const char *at) {
    step_case c;
    step_make(&c, text, settings, DS_PASS_STAGE);
    cr_expect_eq(c.status, status, "%s: %s", text, c.err.message);
    cr_expect(strstr(c.err.message, part), "%s: %s", text, c.err.message);
    cr_expect_eq(c.err.loc.line, line_of(text, at), "%s: line %u", c.err.message, c.err.loc.line);
    step_free(&c);
}

static void expect_refusal(const char *strategy, ds_status status, const char *part) {
    char *text = stage_text("gpt", "none", strategy);
    expect_error(text, gpt, status, part, strategy);
    free(text);
}

Test(stage_cut, numbers_that_do_not_fit_are_refused) {
    expect_refusal("pp = 8", DS_ERR_VALUE, "6 turns of loops are too few for the pipeline's 8");
    expect_refusal("pp = 8", DS_ERR_VALUE, "balance = flops");
    expect_refusal("pp = 8", DS_ERR_VALUE, "stage_layers = [...]");
    expect_refusal("pp = 2, stage_layers = [2, 2, 2]", DS_ERR_VALUE,
                   "stage_layers has 3 numbers, but the pipeline has 2 chunks");
    expect_refusal("pp = 2, stage_layers = [2, 5]", DS_ERR_VALUE,
                   "make 7, but @step has 6 turns of loops");
    expect_refusal("pp = 2, first_stage_less = 8", DS_ERR_VALUE,
                   "the embedding counts as 8 turns, more than a chunk has: 6 turns over 2 chunks");
    expect_refusal("pp = 3, stage_layers = [3, 0, 3]", DS_ERR_VALUE,
                   "chunk 1 of the pipeline's 3 would have no weight");
    expect_refusal("pp = 3, stage_layers = [0, 0, 6]", DS_ERR_VALUE, "chunk 1 of");
    expect_refusal("pp = 2, stage_layers = [9223372036854775807, 9223372036854775807]",
                   DS_ERR_VALUE, "it must be at most 2147483647");
}

Test(stage_cut, lists_are_of_integers) {
    expect_refusal("pp = 2, stage_layers = [7, -1]", DS_ERR_VALUE,
                   "'strategy.stage_layers' is -1; it must be at least 0");
    expect_refusal("pp = 2, stage_layers = [2, \"4\"]", DS_ERR_TYPE, "a list of integers");
    expect_refusal("pp = 2, stage_layers = [2.5, 3.5]", DS_ERR_TYPE, "integer");
    expect_refusal("pp = 2, stage_layers = 6", DS_ERR_TYPE, "a list of integers");
    expect_refusal("pp = 2, balance = layer", DS_ERR_VALUE, "it is one of layers, flops");
    expect_refusal("pp = 2, p2p = eager", DS_ERR_VALUE, "overlapped, batched, blocking");
    expect_refusal("pp = 2, scatter_gather = 2", DS_ERR_TYPE, "true or false");
}

/* A schedule's own conditions, at the knob that names it. */
Test(stage_cut, schedules_that_do_not_fit_are_refused) {
    expect_refusal("schedule = \"interleaved\", pp = 2", DS_ERR_VALUE, "microbatches (1)");
    expect_refusal("schedule = \"chimera\", pp = 3", DS_ERR_VALUE, "even");
    expect_refusal("schedule = \"1f1b\", pp = 2, virtual_stages = 2", DS_ERR_VALUE,
                   "virtual_stages = 2 does not fit");
    expect_refusal("schedule = \"zb-h\", pp = 2", DS_ERR_NAME, "did you mean \"zb-h1\"");
}

#define MLP(train, strategy)                                                                       \
    "dir 1\nimport \"models/mlp.dir\" with layers = 4, width = 2, batch = 2\n"                     \
    "schedule @s { chunks 2; place 0->0 1->1\n  rank 0: F0.0 B0.0\n  rank 1: F1.0 B1.0\n}\n"       \
    "schedule @forward { chunks 2; place 0->0 1->1\n  rank 0: F0.0\n  rank 1: F1.0\n}\n"           \
    "scenario {\n  model = @mlp\n  " train "\n  strategy { " strategy " }\n}\n"

Test(stage_cut, schedules_that_are_written_out) {
    step_case c;
    step_make(&c, MLP("train { loss = mse }", "pp = 2, schedule = @s"), NULL, DS_PASS_STAGE);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *turns = stage_turns(&c);
    cr_expect_str_eq(turns, "0 0 1 1");
    free(turns);
    step_free(&c);
    expect_error(MLP("train { loss = mse }", "pp = 2, schedule = @forward"), NULL, DS_ERR_VALUE,
                 "@forward has no backward passes", "schedule = @forward");
    expect_error(MLP("train { loss = mse }", "pp = 4, schedule = @s"), NULL, DS_ERR_VALUE,
                 "2 ranks, but the pipeline has 4 stages", "schedule = @s");
}

Test(stage_cut, pipelines_train) {
    expect_error(MLP("train = off", "pp = 2"), NULL, DS_ERR_UNSUPPORTED, "must train", "pp = 2");
    expect_error(MLP("name = \"x\"", "pp = 2"), NULL, DS_ERR_UNSUPPORTED, "must train", "pp = 2");
}

/* ---- kept values ---- */

#define KEEPS(result, strategy)                                                                    \
    "dir 1\n"                                                                                      \
    "func @net(%x: f32[2@dp, 3]) -> f32[2, 3] {\n"                                                 \
    "  %y, %k = for l in 0..2 carry (%h = %x) {\n"                                                 \
    "    weight %w : f32[3, 3]\n"                                                                  \
    "    %z = matmul(%h, %w)\n"                                                                    \
    "    yield %z keep %z\n"                                                                       \
    "  }\n"                                                                                        \
    "  %v = for l in 0..2 carry (%h = %y) {\n"                                                     \
    "    weight %u : f32[3, 3]\n"                                                                  \
    "    %z = matmul(%h, %u)\n"                                                                    \
    "    yield %z\n"                                                                               \
    "  }\n"                                                                                        \
    "  %s = add(%v, " result ")\n"                                                                 \
    "  return %s\n"                                                                                \
    "}\n"                                                                                          \
    "scenario { model = @net, train { loss = mse }\n  strategy { " strategy " } }\n"

/* A loop that is cut keeps its values in several places; one that is not may keep them. */
Test(stage_cut, kept_values) {
    step_case c;
    step_make(&c, KEEPS("%k{0}", "pp = 2"), NULL, DS_PASS_STAGE);
    cr_expect_eq(c.status, DS_OK, "%s", c.err.message);
    free(step_text(&c));
    step_free(&c);
    step_make(&c, KEEPS("%y", "pp = 4"), NULL, DS_PASS_STAGE);
    cr_expect_eq(c.status, DS_OK, "what nobody reads need not be kept: %s", c.err.message);
    free(step_text(&c));
    step_free(&c);
    expect_error(KEEPS("%k{0}", "pp = 4"), NULL, DS_ERR_UNSUPPORTED,
                 "the loop over l is cut by the pipeline, and the model reads %k", "%y, %k = for");
}
