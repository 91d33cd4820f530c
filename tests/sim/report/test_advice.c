/* What would make a model fit: each change must be what a run with that strategy says. */
#include "ir/strategy/scenario.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* GPT-2 with 256 sequences on four V100s of 16 GiB. */
static void run(sim_case *c, const char *strategy, int batch) {
    char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nimport \"topologies/pcie-4xv100.dir\"\n"
             "import \"models/gpt.dir\" as gpt with batch = %d\n"
             "scenario { model = @gpt.gpt, on = @box, train { optimizer = adam, dtype = f16 }, "
             "strategy { %s } }\n",
             batch, strategy);
    sim_run_text(c, text, NULL, false);
    cr_assert_eq(c->status, DS_OK, "%s: %s", strategy, c->err.message);
}

static const ds_advice *advice_of(const ds_result *r, const char *change) {
    for (uint32_t i = 0; i < r->n_advice; i++)
        if (strcmp(r->advice[i].change, change) == 0) return &r->advice[i];
    cr_assert(false, "no advice '%s'", change);
    return NULL;
}

Test(advice, is_what_a_run_with_the_change_says) {
    static const struct {
        const char *change, *strategy;
        int batch;
    } changes[] = {
        {"zero = 1", "dp = 4, microbatches = 2, zero = 1", 256},
        {"zero = 3", "dp = 4, microbatches = 2, zero = 3", 256},
        {"recompute = selective", "dp = 4, microbatches = 2, recompute = selective", 256},
        {"recompute = full", "dp = 4, microbatches = 2, recompute = full", 256},
        {"microbatches = 4", "dp = 4, microbatches = 4", 256},
        {"gpt.batch = 128", "dp = 4, microbatches = 2", 128},
    };
    sim_case c;
    run(&c, "dp = 4, microbatches = 2", 256);
    cr_assert_not(c.result->metrics.fits);
    ds_scenario before = *ds_unit_scenario(c.unit);
    ds_sim_options options = {0};
    ds_advise(c.result, c.profiles, &options, NULL, 0);
    cr_expect_eq(memcmp(&before, ds_unit_scenario(c.unit), sizeof before), 0,
                 "the scenario is as it was");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const ds_advice *d = advice_of(c.result, changes[i].change);
        sim_case other;
        run(&other, changes[i].strategy, changes[i].batch);
        cr_expect(d->runs);
        cr_expect_eq(d->metrics.step_ps, other.result->run.step_ps, "%s", changes[i].change);
        cr_expect_eq(d->metrics.peak_bytes, other.result->metrics.peak_bytes, "%s",
                     changes[i].change);
        cr_expect_eq(d->metrics.fits, other.result->metrics.fits, "%s", changes[i].change);
        sim_free(&other);
    }
    cr_expect_not(advice_of(c.result, "tp = 2, dp = 2")->runs, "2 does not divide 50257");
    sim_free(&c);
}

Test(advice, combines_what_does_not_suffice_alone) {
    sim_case c;
    run(&c, "dp = 4, zero = 1", 512);
    ds_sim_options options = {0};
    ds_advise(c.result, c.profiles, &options, NULL, 0);
    const ds_advice *last = &c.result->advice[c.result->n_advice - 1];
    for (uint32_t i = 0; i + 1 < c.result->n_advice; i++)
        cr_expect_not(c.result->advice[i].metrics.fits);
    cr_expect_not_null(strchr(strchr(last->change, '=') + 1, '='), "%s", last->change);
    cr_expect(last->metrics.fits, "%s: %lld", last->change, (long long)last->metrics.peak_bytes);
    sim_free(&c);
}

Test(advice, is_for_models_that_do_not_fit) {
    sim_case c;
    run(&c, "dp = 4, microbatches = 2", 32);
    ds_sim_options options = {0};
    ds_advise(c.result, c.profiles, &options, NULL, 0);
    cr_expect_null(c.result->advice);
    sim_free(&c);
    sim_run_file(&c, "scenarios/out-of-memory.dir", NULL, false);
    ds_advise(c.result, c.profiles, &options, NULL, 0);
    cr_expect_null(c.result->advice, "a program is as it is written");
    sim_free(&c);
}
