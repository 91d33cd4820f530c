/* dp_shares: replicas with unequal parts of a batch. The sharded step is the whole one, to the last
 * state, under everything that a batch goes through; what cannot be split so is refused with the
 * numbers. */
#include "tests/support/pipe.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void prove(const pipe_model *model, const char *set, const char *strategy) {
    pipe_expect_equal(&(pipe_case){.model = model, .strategy = strategy, .set = set});
}

static void refuse(const pipe_model *model, const char *set, const char *strategy, const char *a,
                   const char *b) {
    const char *parts[] = {a, b, NULL};
    pipe_expect_refused(&(pipe_case){.model = model, .strategy = strategy, .set = set}, parts);
}

/* ---- equal to the whole ---- */

Test(shard_shares, zero) {
    prove(&pipe_mlp, NULL, "dp = 2, dp_shares = [3, 1]");
    prove(&pipe_mlp, NULL, "dp = 2, dp_shares = [3, 1], zero = 1");
    prove(&pipe_mlp, NULL, "dp = 2, dp_shares = [3, 1], zero = 2, microbatches = 2");
    prove(&pipe_mlp, NULL, "dp = 2, dp_shares = [1, 3], zero = 3, microbatches = 2");
    prove(&pipe_gpt, NULL, "dp = 2, dp_shares = [3, 1], zero = 2");
    prove(&pipe_gpt, NULL, "dp = 2, dp_shares = [1, 3], zero = 3");
    prove(&pipe_alexnet, NULL, "dp = 2, dp_shares = [3, 1], zero = 1");
}

/* Statistics of groups of images, as many as the parts are made of: nothing is gathered. */
Test(shard_shares, groups_of_a_batch) {
    static const pipe_model resnet = {"resnet50",
                                      "image = 32, width = 2, classes = 4, blocks1 = 1, blocks2 = "
                                      "1, blocks3 = 1, blocks4 = 1, batch = 8, bn_groups = 4",
                                      ""};
    prove(&resnet, NULL, "dp = 2, dp_shares = [3, 1], zero = 1");
    prove(&resnet, "bn_groups=8", "dp = 3, dp_shares = [2, 1, 1]");
    prove(&pipe_mixtral, NULL, "dp = 2, dp_shares = [3, 1], tp = 2");
}

Test(shard_shares, microbatches) {
    prove(&pipe_gpt, "batch=24", "dp = 3, dp_shares = [3, 2, 1], microbatches = 4, zero = 1");
    prove(&pipe_mlp, "batch=24", "dp = 4, dp_shares = [1, 2, 1, 2], microbatches = 2");
}

Test(shard_shares, beside_other_axes) {
    prove(&pipe_gpt, NULL, "dp = 2, dp_shares = [3, 1], tp = 2");
    prove(&pipe_gpt, NULL, "dp = 2, dp_shares = [3, 1], tp = 2, sp = true, recompute = full");
    prove(&pipe_gpt, NULL, "dp = 2, dp_shares = [1, 3], cp = 2, zero = 3");
    prove(&pipe_gpt, NULL, "dp = 2, dp_shares = [1, 3], cp = 2, cp_type = ulysses");
    prove(&pipe_llama, NULL, "dp = 2, dp_shares = [3, 1], tp = 2, order = \"tp cp dp pp\"");
    prove(&pipe_t5, NULL, "dp = 2, dp_shares = [3, 1], tp = 2, zero = 2");
}

Test(shard_shares, stages) {
    prove(&pipe_mlp, NULL, "pp = 2, dp = 2, dp_shares = [3, 1], microbatches = 2");
    prove(&pipe_gpt, NULL, "pp = 2, dp = 2, dp_shares = [1, 3], microbatches = 2, zero = 1");
    prove(&pipe_gpt, NULL,
          "pp = 2, tp = 2, dp = 2, dp_shares = [3, 1], microbatches = 2, scatter_gather = true, "
          "schedule = \"zb-h1\"");
    prove(&pipe_gpt, NULL,
          "pp = 2, dp = 2, dp_shares = [3, 1], microbatches = 2, virtual_stages = 2, "
          "schedule = \"interleaved\", zero = 3");
}

/* Common divisors and equal parts say nothing. */
Test(shard_shares, only_the_proportion_counts) {
    step_case a, b, c, d;
    const char *head = "dir 1\nimport \"models/mlp.dir\" as m with layers = 1, width = 4, "
                       "batch = 8\nparam x = 3, y = 1\n"
                       "topology @t { device d[2] : \"A100-SXM4-80GB\"\n switch s\n"
                       " link d[i] -- s : 1 GB/s, 1 us for i in 0..2 }\n"
                       "scenario { model = @m.mlp, on = @t, train { loss = mse, optimizer = sgd }\n"
                       " strategy { dp = 2, dp_shares = [x, y] } }\n";
    step_make(&a, head, NULL, DS_PASS_SHARD);
    step_make(&b, head, "x=6 y=2", DS_PASS_SHARD);
    step_make(&c, head, "x=5 y=5", DS_PASS_SHARD);
    step_make(&d, head, "x=1 y=7", DS_PASS_SHARD);
    char *text_a = step_text(&a), *text_b = step_text(&b);
    char *text_c = step_text(&c), *text_d = step_text(&d);
    cr_expect(strstr(text_a, "%x: f32[batch@dp[6,2], width]") != NULL, "%s", text_a);
    cr_expect_str_eq(text_a, text_b);
    cr_expect(strstr(text_c, "%x: f32[batch@dp, width]") != NULL, "%s", text_c);
    cr_expect(strstr(text_d, "%x: f32[batch@dp[1,7], width]") != NULL, "%s", text_d);
    free(text_a);
    free(text_b);
    free(text_c);
    free(text_d);
    step_free(&a);
    step_free(&b);
    step_free(&c);
    step_free(&d);
}

/* ---- refused ---- */

Test(shard_shares, refusals) {
    refuse(&pipe_mlp, NULL, "dp = 2, dp_shares = [2, 1]", "of size 8", "their sum, 3");
    refuse(&pipe_mlp, NULL, "dp = 2, dp_shares = [7, 1], microbatches = 2", "of size 4",
           "their sum, 8");
    refuse(&pipe_mlp, NULL, "dp = 2, dp_shares = [1, 1, 2]", "has 3 numbers", "dp = 2");
    refuse(&pipe_mlp, NULL, "dp_shares = [1, 2]", "has 2 numbers", "dp = 1");
    refuse(&pipe_mixtral, NULL, "dp = 2, ep = 2, dp_shares = [3, 1]", "experts", "ep = 1");
    refuse(&pipe_mlp, NULL, "dp = 2, dp_shares = [3, 1], zero = 1, zero_uneven = true",
           "zero_uneven", "dp_shares");
    refuse(&pipe_mlp, "batch=16", "dp = 4, dp_shares = [3, 3, 1, 1], zero = 1, zero_group = 2",
           "zero_group", "");
    refuse(&pipe_mlp, NULL, "stage_dp = [2, 1], stage_tp = [2, 1], dp_shares = [3, 1]",
           "unlike numbers", "stage_dp");
    refuse(&pipe_mlp, NULL, "stage_dp = [2, 2], stage_tp = [2, 1], dp_shares = time", "time",
           "stages of one width");
}
