/* On every device of every scenario: compute + exposed communication + idle = step time, and
 * folding equal devices changes nothing but the number of tasks. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>

static const char *const scenarios[] = {
    "scenarios/distir-mlp.dir",   "scenarios/pipeline-2x4.dir",  "scenarios/gpt3-layer-tp8.dir",
    "scenarios/mixed-box-dp.dir", "scenarios/out-of-memory.dir",
};

static void conserve(const sim_case *c, const char *name) {
    const ds_result *r = c->result;
    for (uint32_t i = 0; i < r->plan->n_classes; i++) {
        const ds_account *a = &r->accounts[i];
        cr_expect_eq(a->compute_ps + a->exposed_comm_ps + a->idle_ps, r->run.step_ps,
                     "%s, class %u", name, i);
        cr_expect(a->idle_ps >= 0 && a->exposed_comm_ps >= 0 && a->hidden_comm_ps >= 0);
        int64_t origins = 0;
        for (int o = 0; o < DS_COST_ORIGIN_COUNT; o++) origins += a->origin_ps[o];
        cr_expect_eq(origins, a->compute_ps, "%s: origins add up to the compute time", name);
    }
}

Test(conservation, holds_on_every_device_of_every_scenario) {
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        sim_case folded, unfolded;
        sim_run_file(&folded, scenarios[i], NULL, false);
        cr_assert_eq(folded.status, DS_OK, "%s: %s", scenarios[i], folded.err.message);
        conserve(&folded, scenarios[i]);
        sim_run_file(&unfolded, scenarios[i], NULL, true);
        cr_assert_eq(unfolded.status, DS_OK);
        conserve(&unfolded, scenarios[i]);
        const ds_result *f = folded.result, *u = unfolded.result;
        cr_expect_eq(f->run.step_ps, u->run.step_ps, "%s: folded and unfolded differ",
                     scenarios[i]);
        cr_expect_eq(f->op_instances, u->op_instances);
        cr_expect_eq(f->peak_bytes, u->peak_bytes);
        for (uint32_t d = 0; d < u->plan->n_devices; d++) {
            if (u->plan->class_of[d] == DS_NONE) continue;
            const ds_account *a = &u->accounts[u->plan->class_of[d]];
            const ds_account *b = &f->accounts[f->plan->class_of[d]];
            cr_expect_eq(a->compute_ps, b->compute_ps);
            cr_expect_eq(a->exposed_comm_ps, b->exposed_comm_ps);
            cr_expect_eq(a->idle_ps, b->idle_ps);
            cr_expect_eq(u->mem.classes[u->plan->class_of[d]].peak_bytes,
                         f->mem.classes[f->plan->class_of[d]].peak_bytes);
        }
        sim_free(&folded);
        sim_free(&unfolded);
    }
}

Test(conservation, the_slow_gpus_of_the_mixed_box_set_the_pace) {
    sim_case c;
    sim_run_file(&c, "scenarios/mixed-box-dp.dir", NULL, false);
    cr_assert_eq(c.status, DS_OK);
    const ds_result *r = c.result;
    /* fp32 peaks of the catalogue: V100 15.67, 1080Ti 11.34, P100 (PCIe) 9.526 TFLOP/s */
    const ds_account *v100 = &r->accounts[r->plan->class_of[0]];
    const ds_account *gtx = &r->accounts[r->plan->class_of[4]];
    const ds_account *p100 = &r->accounts[r->plan->class_of[12]];
    cr_expect_gt(v100->idle_ps, gtx->idle_ps);
    cr_expect_lt(v100->compute_ps, gtx->compute_ps);
    cr_expect_lt(gtx->compute_ps, p100->compute_ps);
    cr_expect_eq(r->plan->n_classes, 3);
    sim_free(&c);
}

Test(conservation, the_program_that_does_not_fit_says_so) {
    sim_case c;
    sim_run_file(&c, "scenarios/out-of-memory.dir", NULL, false);
    cr_assert_eq(c.status, DS_OK);
    cr_expect_not(c.result->fits);
    /* 40 weights of 16384² and, at the end, 40 kept inputs and the result of 2048 × 16384, fp32 */
    int64_t weights = 40LL * 16384 * 16384 * 4, kept = 41LL * 2048 * 16384 * 4;
    cr_expect_geq(c.result->peak_bytes, weights + kept);
    cr_expect_leq(c.result->peak_bytes, weights + kept + 2LL * 2048 * 16384 * 4);
    sim_free(&c);
}
