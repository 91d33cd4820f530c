/* Stages that send parts (scatter_gather): a stage gathers them when it wants them. Gathered as
 * soon as they are sent, they would hold up what the stage has still to run before, and a pipeline
 * that is balanced would stand still half of the time. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* Four stages of two devices; links so fast that what is sent takes next to no time. */
static const char format[] =
    "dir 1\nparam schedule = \"1f1b\"\n"
    "import \"models/gpt.dir\" as model with layers = 8, hidden = 1024, heads = 8, seq = 1024, "
    "vocab = 1024, batch = 16\n"
    "topology @box { device gpu[8] : \"A100-SXM4-80GB\"\n  switch s\n"
    "  link gpu[i] -- s : 1000000 GB/s, 1 ns for i in 0..8 }\n"
    "scenario { model = @model.gpt, on = @box\n"
    "  train { loss = none, optimizer = adam, dtype = f16 }\n"
    "  strategy { pp = 4, tp = 2, microbatches = 16, recompute = full, schedule = schedule,\n"
    "    scatter_gather = %s } }\n";

static double step_of(const char *schedule, bool parts) {
    char text[2048], settings[64];
    sim_case c;
    snprintf(text, sizeof text, format, parts ? "on" : "off");
    snprintf(settings, sizeof settings, "schedule=%s", schedule);
    sim_run_text(&c, text, settings, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    double step = (double)c.result->run.step_ps;
    sim_free(&c);
    return step;
}

/* Moving data takes nothing, so in parts or as a whole a step takes the same. */
Test(parts, hold_up_nothing) {
    static const char *const schedules[] = {"1f1b", "gpipe", "interleaved", "zb-h1"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        double ratio = step_of(schedules[i], true) / step_of(schedules[i], false);
        cr_expect_float_eq(ratio, 1, 0.005, "%s: %g", schedules[i], ratio);
    }
}
