/* On every device of every scenario: computing, exposed and hidden communication and idleness are
 * what a sweep over the spans of its tasks finds instant by instant, and so add up to the step;
 * folding equal devices changes nothing but the number of tasks. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static const char *const scenarios[] = {
    "scenarios/distir-mlp.dir",   "scenarios/pipeline-2x4.dir",  "scenarios/gpt3-layer-tp8.dir",
    "scenarios/mixed-box-dp.dir", "scenarios/out-of-memory.dir", "scenarios/mlp-forward.dir",
    "scenarios/mlp-training.dir", "scenarios/gpt2-dp4.dir",
};

typedef struct span {
    int64_t start, end;
    bool is_comm;
} span;

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The times of one class by definition: no task starts or ends inside an interval between two
 * neighbouring instants, so one look at its beginning tells what all of it is. O(n²). */
static ds_account sweep(const ds_result *r, uint32_t cls) {
    const ds_plan *plan = r->plan;
    span *spans = ds_xcalloc(plan->n_tasks + 1, sizeof *spans);
    int64_t *instants = ds_xcalloc(2 * (size_t)plan->n_tasks + 2, sizeof *instants);
    uint32_t n = 0;
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        if (plan->task_class[t] != cls) continue;
        spans[n] = (span){r->run.start_ps[t], r->run.end_ps[t], plan->task_activity[t] != DS_NONE};
        instants[2 * n] = spans[n].start;
        instants[2 * n + 1] = spans[n].end;
        n++;
    }
    uint32_t n_instants = 2 * n + 2;
    instants[n_instants - 1] = r->run.step_ps; /* and 0 stands before it */
    qsort(instants, n_instants, sizeof *instants, ascending);
    ds_account sum = {0};
    for (uint32_t i = 0; i + 1 < n_instants; i++) {
        int64_t at = instants[i], length = instants[i + 1] - at;
        bool computing = false, transferring = false;
        for (uint32_t k = 0; k < n; k++) {
            if (at < spans[k].start || at >= spans[k].end) continue;
            computing |= !spans[k].is_comm;
            transferring |= spans[k].is_comm;
        }
        if (computing && transferring) sum.hidden_comm_ps += length;
        if (computing)
            sum.compute_ps += length;
        else if (transferring)
            sum.exposed_comm_ps += length;
        else
            sum.idle_ps += length;
    }
    cr_expect(instants[0] == 0 && instants[n_instants - 1] == r->run.step_ps,
              "no task outside the step");
    free(instants);
    free(spans);
    return sum;
}

static void conserve(const sim_case *c, const char *name) {
    const ds_result *r = c->result;
    for (uint32_t i = 0; i < r->plan->n_classes; i++) {
        const ds_account *a = &r->accounts[i];
        ds_account by_hand = sweep(r, i);
        cr_expect_eq(a->compute_ps, by_hand.compute_ps, "%s, class %u: compute", name, i);
        cr_expect_eq(a->exposed_comm_ps, by_hand.exposed_comm_ps, "%s, class %u: exposed", name, i);
        cr_expect_eq(a->hidden_comm_ps, by_hand.hidden_comm_ps, "%s, class %u: hidden", name, i);
        cr_expect_eq(a->idle_ps, by_hand.idle_ps, "%s, class %u: idle", name, i);
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
        cr_expect_eq(f->metrics.op_instances, u->metrics.op_instances);
        cr_expect_eq(f->metrics.peak_bytes, u->metrics.peak_bytes);
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
    cr_expect_not(c.result->metrics.fits);
    /* 40 weights of 16384² and, at the end, 40 kept inputs and the result of 2048 × 16384, fp32 */
    int64_t weights = 40LL * 16384 * 16384 * 4, kept = 41LL * 2048 * 16384 * 4;
    cr_expect_geq(c.result->metrics.peak_bytes, weights + kept);
    cr_expect_leq(c.result->metrics.peak_bytes, weights + kept + 2LL * 2048 * 16384 * 4);
    sim_free(&c);
}
