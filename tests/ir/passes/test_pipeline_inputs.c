/* What is made of inputs alone belongs to no chunk: stages that read it make it each, so its inputs
 * are on all of them. */
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char model[] =
    "dir 1\nparam layers = 4, width = 8, batch = 8, pp = 2, dp = 1\n"
    "topology @box {\n  device gpu[8] : \"A100-SXM4-80GB\"\n  switch sw\n"
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..8\n}\n"
    "func @net(%x: f32[batch@dp, width], %mask: f32[batch@dp, width]) -> f32[batch, width] {\n"
    "  %b = tanh(%mask)\n"
    "  %c = relu(%b)\n"
    "  %y = for l in 0..layers carry (%h = %x) {\n"
    "    weight %w : f32[width, width]\n"
    "    %z = matmul(%h, %w)\n"
    "    %a = mul(%z, %c)\n"
    "    yield %a\n"
    "  }\n"
    "  return %y\n"
    "}\n"
    "scenario {\n  model = @net\n  on = @box\n  train { loss = mse, optimizer = sgd }\n"
    "  strategy { pp = pp, dp = dp, microbatches = 2 }\n}\n";

Test(pipeline_inputs, the_step_stays_the_same) {
    static const char *const settings[] = {"pp=2", "pp=4", "pp=2 dp=2"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        proof result;
        proof_options options = {.settings = settings[i], .seed = 1, .ranks = true};
        prove(model, &options, &result);
        cr_expect_eq(result.verdict, PROOF_EQUAL, "%s: %s %s", settings[i],
                     proof_verdict_name(result.verdict), result.what);
    }
}

Test(pipeline_inputs, each_stage_has_the_input) {
    step_case c;
    step_make(&c, model, "pp=4", DS_PASS_PIPELINE);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *text = step_text(&c), argument[32];
    for (int s = 0; s < 4; s++) {
        snprintf(argument, sizeof argument, "%%mask.s%d{m: 0..2}", s);
        cr_expect_not_null(strstr(text, argument), "%s", text);
    }
    free(text);
    step_free(&c);
}
