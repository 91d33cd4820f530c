/* Stages of several widths, simulated: what they send each other, in closed form; folded as
 * unfolded; and the order that overlaps the sends better. */
#include "sim/report/analysis.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define FILE_NAME "scenarios/gpt3-13b-two-kinds.dir"
#define SMALL     "layers=8 first=5 gpt.hidden=512 gpt.heads=8 gpt.seq=256 gpt.vocab=1024 "

static ds_stages simulate(sim_case *c, const char *settings, bool unfold) {
    ds_stages stages;
    sim_run_file(c, FILE_NAME, settings, unfold);
    cr_assert_eq(c->status, DS_OK, "%s: %s", settings, c->err.message);
    ds_stages_find(c->result, &stages);
    return stages;
}

/* A microbatch's activations, 4 x seq x hidden in 16 bits, go one way and their gradients the
 * other; the table, which is embedding and head, has its gradient sent each way once, in f32. */
Test(widths, sends) {
    const int64_t activation = INT64_C(4) * 2048 * 5120 * 2, table = INT64_C(51200) * 5120 * 4;
    sim_case c;
    ds_stages stages = simulate(&c, "microbatches=8", false);
    cr_assert_eq(stages.n, 2u);
    cr_expect(!stages.by_class);
    cr_expect_eq(stages.at[0].n_devices, 8u);
    cr_expect_eq(stages.at[1].n_devices, 16u);
    for (uint32_t s = 0; s < 2; s++)
        cr_expect_eq(stages.at[s].sent_bytes, 8 * activation + table, "stage %u sends %lld", s,
                     (long long)stages.at[s].sent_bytes);
    ds_stages_deinit(&stages);
    sim_free(&c);
}

static void expect_folds(const char *settings) {
    char text[256];
    sim_case folded, unfolded;
    snprintf(text, sizeof text, SMALL "%s", settings);
    ds_stages a = simulate(&folded, text, false), b = simulate(&unfolded, text, true);
    cr_expect_eq(folded.result->run.step_ps, unfolded.result->run.step_ps, "%s", settings);
    cr_expect_lt(folded.result->plan->n_classes, unfolded.result->plan->n_classes);
    cr_assert_eq(a.n, b.n);
    for (uint32_t s = 0; s < a.n; s++) {
        cr_expect_eq(a.at[s].peak_bytes, b.at[s].peak_bytes, "%s: stage %u", settings, s);
        cr_expect_eq(a.at[s].compute_ps, b.at[s].compute_ps, "%s: stage %u", settings, s);
        cr_expect_eq(a.at[s].sent_bytes, b.at[s].sent_bytes, "%s: stage %u", settings, s);
    }
    ds_stages_deinit(&a);
    ds_stages_deinit(&b);
    sim_free(&folded);
    sim_free(&unfolded);
}

Test(widths, folded_is_unfolded) {
    expect_folds("microbatches=4");
    expect_folds("microbatches=4 tp1=8 schedule=eager-1f1b");
    expect_folds("microbatches=4 tp0=8 tp1=4 schedule=zb-h1");
}

/* With a slow network 1F1B waits for a reshard each way in every turn; one more microbatch in
 * flight hides it (arXiv:2211.05322, section 4). */
Test(widths, eager_hides_reshards) {
    static const char *const settings[] = {"microbatches=16 first=23 gbit=10 schedule=1f1b",
                                           "microbatches=16 first=23 gbit=10 schedule=eager-1f1b"};
    int64_t step[2];
    for (uint32_t i = 0; i < 2; i++) {
        sim_case c;
        ds_stages stages = simulate(&c, settings[i], false);
        step[i] = c.result->run.step_ps;
        ds_stages_deinit(&stages);
        sim_free(&c);
    }
    cr_expect_lt((double)step[1], 0.97 * (double)step[0], "%lld, %lld", (long long)step[0],
                 (long long)step[1]);
}
