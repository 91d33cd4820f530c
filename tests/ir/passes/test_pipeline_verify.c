/* Every schedule under every kind of parallelism: the pipelined step is the sequential one in all
 * that it returns, loss, gradients, updated weights and states (exec --verify).
 *
 * mlp and gpt (a table that is embedding and head, dropout) run all combinations; models with other
 * things to cut (llama's head of its own, t5's two loops, mixtral's experts, a convnet without any
 * loop) run every schedule with the kinds in turn. Runs that take few cases run every seventh. */
#include "tests/support/cases.h"
#include "tests/support/pipe.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define STRIDE (FEW_CASES ? 7u : 1u)

enum { SCHEDULES = 14, KINDS = 4 };

static const char *const kinds[KINDS] = {"tp = 2", "dp = 2", "dp = 2, zero = 1", "tp = 1"};

static void prove(const pipe_model *model, uint32_t schedule, uint32_t kind, const char *more) {
    char strategy[256];
    snprintf(strategy, sizeof strategy, "pp = 2, microbatches = 4, schedule = \"%s\", %s%s",
             pipe_schedule(schedule), kinds[kind], more);
    pipe_expect_equal(&(pipe_case){.model = model, .strategy = strategy});
}

static void prove_all(const pipe_model *model) {
    for (uint32_t i = 0; i < SCHEDULES * KINDS; i += STRIDE) prove(model, i / KINDS, i % KINDS, "");
}

static void prove_in_turn(const pipe_model *model, uint32_t first, const char *more) {
    for (uint32_t i = 0; i < SCHEDULES; i += STRIDE) prove(model, i, (first + i) % 3, more);
}

Test(pipeline_verify, there_are_14_schedules) {
    cr_expect_not_null(pipe_schedule(SCHEDULES - 1));
    cr_expect_null(pipe_schedule(SCHEDULES));
}

Test(pipeline_verify, mlp) {
    prove_all(&pipe_mlp);
}

Test(pipeline_verify, gpt) {
    prove_all(&pipe_gpt);
}

Test(pipeline_verify, llama) {
    prove_in_turn(&pipe_llama, 0, "");
}

Test(pipeline_verify, two_loops) {
    prove_in_turn(&pipe_t5, 1, "");
}

Test(pipeline_verify, experts) {
    prove_in_turn(&pipe_mixtral, 2, "");
}

Test(pipeline_verify, no_loop) {
    prove_in_turn(&pipe_alexnet, 0, ", balance = flops");
}
