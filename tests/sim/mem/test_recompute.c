/* Recomputation simulated: the memory of activations by the formulas, to the byte; time spent once
 * more; model FLOPs that stay what they were. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { S = 64, B = 2, H = 32, A = 4 };
#define SBH (INT64_C(1) * S * B * H)

/* The logits are by far the largest values, so that memory peaks between forward and backward pass
 * whatever is kept. Sizes are multiples of the allocator's blocks. */
static void run(sim_case *c, const char *recompute, int layers) {
    char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/gpt.dir\" as g with layers = %d, hidden = %d, heads = %d, "
             "seq = %d, vocab = 16384, batch = %d\n"
             "topology @box { device d : \"A100-SXM4-80GB\" }\n"
             "scenario { model = @g.gpt, on = @box, train { optimizer = adam, dtype = bf16 }, "
             "strategy { recompute = %s } }\n",
             layers, H, A, S, B, recompute);
    sim_run_text(c, text, NULL, false);
    cr_assert_eq(c->status, DS_OK, "%s: %s", recompute, c->err.message);
}

static int64_t peak(const char *recompute, int layers) {
    sim_case c;
    run(&c, recompute, layers);
    int64_t bytes = c.result->metrics.peak_bytes;
    sim_free(&c);
    return bytes;
}

/* What two more layers add; weights and states add the same with every knob. */
static int64_t two_layers(const char *recompute) {
    return peak(recompute, 6) - peak(recompute, 4);
}

Test(recompute, activations_of_a_layer) {
    int64_t none = two_layers("none"), lse = none - two_layers("[\"core\"]") - 2 * 2 * SBH;
    cr_expect_eq(lse, 2 * 4 * A * S * B, "a number in f32 a row and head");
    cr_expect_eq(none - two_layers("full"), 2 * 30 * SBH + lse, "32 s b h, and 2 s b h");
    cr_expect_eq(none - two_layers("selective"), 2 * 2 * SBH + lse);
    cr_expect_eq(none - two_layers("\"every:2\""), 2 * 31 * SBH + lse, "one input for two layers");
}

Test(recompute, time_is_spent_twice_and_model_flop_counts_once) {
    const char *const knobs[] = {"selective", "full", "\"every:2\""};
    sim_case none;
    run(&none, "none", 4);
    const ds_result *a = none.result;
    double model = a->metrics.mfu * (double)a->run.step_ps;
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        sim_case again;
        run(&again, knobs[i], 4);
        const ds_result *b = again.result;
        cr_expect_gt(b->run.step_ps, a->run.step_ps, "%s", knobs[i]);
        cr_expect_float_eq(b->metrics.mfu * (double)b->run.step_ps, model, 1e-9 * model, "%s",
                           knobs[i]);
        sim_free(&again);
    }
    sim_free(&none);
}
