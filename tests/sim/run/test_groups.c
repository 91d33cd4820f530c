/* Groups of operations in time: what they come to where that is known otherwise, and the figures of
 * the scenario that shows them. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define VGG(strategy)                                                                              \
    "dir 1\nimport \"models/vgg19.dir\" as v with batch = 48, image = 64\n"                        \
    "import \"topologies/mixed-box.dir\"\nmesh @all = [dp = 16] on @mixed\n"                       \
    "mesh @v100s = pick 0..4 of @all [dp = 4]\nmesh @one = pick 0..1 of @all [dp = 1]\n"           \
    "scenario { model = @v.vgg19, on = @mixed, profile = ideal\n"                                  \
    "  train { loss = none, optimizer = adam }\n  strategy { " strategy " } }\n"

static int64_t step_ps(const char *text) {
    sim_case c;
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    int64_t ps = c.result->run.step_ps;
    sim_free(&c);
    return ps;
}

/* All operations in one group are the strategy of its devices alone, to the picosecond. */
Test(groups, of_everything) {
    cr_expect_eq(step_ps(VGG("dp = 16\ngroup \"g\" { ops = [\"**\"], on = @v100s }")),
                 step_ps(VGG("dp = 4")));
    cr_expect_eq(step_ps(VGG("dp = 16\ngroup \"g\" { ops = [\"**\"], on = @one, by = split }")),
                 step_ps(VGG("dp = 1")));
    cr_expect_eq(
        step_ps(VGG("dp = 16\ngroup \"g\" { ops = [\"**\"], on = @all, by = all_reduce }")),
        step_ps(VGG("dp = 16")));
}

/* Two groups with the same devices are as one. */
Test(groups, in_two) {
    cr_expect_eq(step_ps(VGG("dp = 16\n"
                             "group \"g\" { ops = [\"head.**\"], on = @v100s }\n"
                             "group \"h\" { ops = [\"stage1.**\", \"stage2.**\", \"stage3.**\", "
                             "\"stage4.**\", \"stage5.**\", \"flat\"], on = @v100s }")),
                 step_ps(VGG("dp = 4")));
}

/* The figures of scenarios/mixed-box-vgg.dir, in units of 0.1 ms. */
Test(groups, figures_of_the_scenario) {
    static const struct {
        const char *settings;
        int64_t tenths;
    } figures[] = {{NULL, 628}, {"stage5=16", 687}, {"stage5=16 head=all_reduce", 1287}};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        sim_case c;
        sim_run_file(&c, "scenarios/mixed-box-vgg.dir", figures[i].settings, false);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        cr_expect_eq((c.result->run.step_ps + 50000000) / 100000000, figures[i].tenths, "%s: %lld",
                     figures[i].settings ? figures[i].settings : "",
                     (long long)c.result->run.step_ps);
        sim_free(&c);
    }
}
