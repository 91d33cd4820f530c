/* Sailor: for each number of stages, replicas and samples a dynamic programme gives each stage a kind; all
 * replicas of a stage are of one kind, with the least tp that fits; layers are dealt out evenly; devices may
 * stay idle. */
#include "search/mixed/peers/peers.h"

#include <math.h>
#include <string.h>

/* The least tp with which the stage fits; false: none does. */
static bool least_tp(const ds_mixed_problem *problem, const ds_mixed_plan *plan, uint32_t s,
                     ds_mixed_stage *stage) {
    ds_mixed_plan one = *plan;
    for (uint32_t t = 0; t < DS_MIXED_TPS; t++) {
        if (!problem->kinds[stage->kind].pieces[t].known) continue;
        stage->tp = (uint16_t)(1u << t);
        for (uint32_t i = 0; i < one.n_stages; i++) { /* the others do not count */
            one.stages[i] = *stage;
            if (i != s) one.stages[i].layers = 0;
        }
        if (ds_mixed_fits(problem, &one)) return true;
    }
    return false;
}

/* The kinds of stages s, s + 1 … with what is left of each kind: the least (m - 1) max + Σ, where the
 * maximum so far is `busiest`. Stages of one kind come together. */
static double assign(const ds_mixed_problem *problem, ds_mixed_plan *plan, uint32_t s,
                     const uint32_t *left, double busiest) {
    double m = (double)plan->microbatches, least = HUGE_VAL;
    if (s == plan->n_stages) return (m - 1) * busiest;
    ds_mixed_plan best = *plan;
    for (uint32_t k = 0; k < problem->n_kinds; k++) {
        uint32_t now[DS_MIXED_KINDS];
        bool left_before = false;
        for (uint32_t i = 0; i < s; i++)
            left_before =
                left_before || (plan->stages[i].kind == k && plan->stages[s - 1].kind != k);
        if (left_before) continue;
        ds_mixed_stage stage = {(uint8_t)k, plan->stages[s].dp, 1, plan->stages[s].layers};
        if (!least_tp(problem, plan, s, &stage)) continue;
        uint32_t need = (uint32_t)stage.dp * stage.tp;
        if (need > left[k]) continue;
        memcpy(now, left, sizeof now);
        now[k] -= need;
        double samples = (double)problem->batch / m / stage.dp;
        double time = ds_mixed_stage_s(problem, &stage, samples, s + 1 == plan->n_stages, false);
        ds_mixed_plan next = *plan;
        next.stages[s] = stage;
        double rest = assign(problem, &next, s + 1, now, fmax(busiest, time));
        if (time + rest < least) {
            least = time + rest;
            best = next;
        }
    }
    *plan = best;
    return least;
}

static void try_plan(const ds_mixed_problem *problem, ds_mixed_plan *plan,
                     ds_mixed_peer_plans *out) {
    uint32_t left[DS_MIXED_KINDS];
    for (uint32_t k = 0; k < DS_MIXED_KINDS; k++) left[k] = problem->kinds[k].n_devices;
    for (uint32_t s = 0; s < plan->n_stages; s++)
        plan->stages[s].layers =
            (uint16_t)(problem->layers / plan->n_stages + (s < problem->layers % plan->n_stages));
    if (assign(problem, plan, 0, left, 0) == HUGE_VAL) return;
    double cost = ds_mixed_peer_cost(problem, plan);
    if (plan->n_stages == 1) {
        ds_mixed_stage *stage = &plan->stages[0];
        plan->side_by_side = true;
        plan->groups[0] =
            (ds_mixed_group){stage->kind, stage->dp, problem->batch / plan->microbatches};
        plan->n_groups = 1;
    }
    ds_mixed_peer_keep(out, plan, cost);
}

void ds_mixed_peer_sailor(const ds_mixed_problem *problem, ds_mixed_peer_plans *out) {
    uint32_t most = 0, stages = problem->cuts ? problem->layers : 1;
    for (uint32_t k = 0; k < problem->n_kinds; k++)
        if (problem->kinds[k].n_devices > most) most = problem->kinds[k].n_devices;
    for (uint32_t n = 1; n <= stages && n <= DS_MIXED_STAGES; n++)
        for (uint32_t dp = 1; dp <= most; dp++)
            for (int64_t b = 1; b <= 32 && problem->batch % (dp * b) == 0; b *= 2) {
                ds_mixed_plan plan = {.n_stages = (uint8_t)n,
                                      .microbatches = problem->batch / dp / b};
                for (uint32_t s = 0; s < n; s++)
                    plan.stages[s] = (ds_mixed_stage){0, (uint16_t)dp, 1, 0};
                if ((uint64_t)n * dp <= problem->n_devices) try_plan(problem, &plan, out);
            }
}
