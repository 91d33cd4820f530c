/* Pipelines as one body per rank: each rank returns its boxes of what the program returns, and a
 * step takes as long to the picosecond, as every send stands where it stood. */
#include "tests/support/pipe.h"
#include "tests/support/project.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static void expect_same(const pipe_model *model, const char *set, const char *strategy) {
    pipe_case c = {.model = model,
                   .strategy = strategy,
                   .set = set,
                   .train = "optimizer = adam, keep_gradients = true"};
    ds_buf text = {0};
    char *settings = pipe_settings(&c);
    pipe_text(&c, &text);
    project_expect_same(text.text, settings, true);
    free(settings);
    ds_buf_deinit(&text);
}

Test(pipeline_project, every_schedule) {
    static const char *const kinds[] = {"tp = 2", "dp = 2", "dp = 2, zero = 1"};
    char strategy[256];
    for (uint32_t i = 0; pipe_schedule(i); i++) {
        snprintf(strategy, sizeof strategy, "pp = 2, microbatches = 4, schedule = \"%s\", %s",
                 pipe_schedule(i), kinds[i % 3]);
        expect_same(i % 2 ? &pipe_mlp : &pipe_gpt, NULL, strategy);
    }
}

Test(pipeline_project, more_stages) {
    expect_same(&pipe_mlp, "layers=8 batch=16 width=8",
                "pp = 4, microbatches = 8, schedule = \"interleaved\"");
    expect_same(&pipe_mlp, "layers=8 batch=16 width=8",
                "pp = 8, dp = 2, microbatches = 8, schedule = \"zb-h1\"");
    expect_same(&pipe_llama, "layers=3", "pp = 3, tp = 2, sp = true, microbatches = 2");
    expect_same(&pipe_gpt, NULL,
                "pp = 4, dp = 2, tp = 2, microbatches = 4, order = \"tp dp pp cp\"");
}

Test(pipeline_project, all_that_a_strategy_brings_in) {
    expect_same(&pipe_t5, NULL, "pp = 2, tp = 2, microbatches = 4, schedule = \"zb-v\"");
    expect_same(&pipe_mixtral, NULL, "pp = 2, dp = 2, ep = 2, microbatches = 2");
    expect_same(&pipe_gpt, NULL, "pp = 2, cp = 2, microbatches = 2, recompute = full");
    expect_same(&pipe_gpt, NULL, "pp = 2, dp = 2, zero = 3, microbatches = 2");
    expect_same(&pipe_alexnet, NULL, "pp = 2, dp = 2, microbatches = 2, balance = flops");
}

Test(pipeline_project, sends) {
    expect_same(&pipe_gpt, NULL, "pp = 2, microbatches = 4, p2p = batched");
    expect_same(&pipe_gpt, NULL, "pp = 2, microbatches = 4, p2p = blocking");
    expect_same(&pipe_gpt, NULL, "pp = 2, tp = 2, microbatches = 4, scatter_gather = true");
}
