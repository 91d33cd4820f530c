/* Metis: groups of devices of unequal size, a power of two each, one group a stage; data parallelism in a
 * group unless memory asks for tp; layers in proportion to the groups' speeds; all devices take part. In one
 * group of all kinds the batch is shared by speed. */
#include "search/mixed/peers/peers.h"

#include <math.h>

typedef struct walk {
    const ds_mixed_problem *problem;
    ds_mixed_peer_plans *out;
    uint8_t order[DS_MIXED_KINDS];
} walk;

/* Data parallelism first: tp doubles in all stages that do not fit. */
static bool fit(const ds_mixed_problem *problem, ds_mixed_plan *plan) {
    for (uint32_t t = 0; t < DS_MIXED_TPS; t++) {
        if (ds_mixed_peer_proportional(problem, plan) && ds_mixed_fits(problem, plan)) return true;
        for (uint32_t s = 0; s < plan->n_stages; s++) {
            const ds_mixed_kind *kind = &problem->kinds[plan->stages[s].kind];
            if (plan->stages[s].dp % 2 || t + 1 == DS_MIXED_TPS || !kind->pieces[t + 1].known)
                return false;
            plan->stages[s].dp /= 2;
            plan->stages[s].tp = (uint16_t)(2u << t);
        }
    }
    return false;
}

static void try_groups(const walk *w, const ds_mixed_plan *groups) {
    const ds_mixed_problem *problem = w->problem;
    for (int64_t m = 1; m <= problem->batch; m++) {
        ds_mixed_plan plan = *groups;
        bool may = problem->batch % m == 0;
        plan.microbatches = m;
        for (uint32_t s = 0; s < plan.n_stages && may; s++)
            may = problem->batch / m % plan.stages[s].dp == 0;
        if (may && fit(problem, &plan))
            ds_mixed_peer_keep(w->out, &plan, ds_mixed_peer_cost(problem, &plan));
    }
}

/* Splits the devices of kind `at` of the order into groups of `size` and of twice the size, the larger
 * first: Metis prunes sizes that differ more. */
static void split(const walk *w, ds_mixed_plan *plan, uint32_t at) {
    const ds_mixed_problem *problem = w->problem;
    uint32_t before = plan->n_stages;
    uint32_t most = problem->layers < DS_MIXED_STAGES ? problem->layers : DS_MIXED_STAGES;
    if (at == problem->n_kinds) {
        if (before > 1) try_groups(w, plan);
        return;
    }
    uint32_t n = problem->kinds[w->order[at]].n_devices;
    for (uint32_t size = 1; size <= n; size *= 2)
        for (uint32_t large = 0; 2 * size * large <= n; large++) {
            uint32_t small = (n - 2 * size * large) / size;
            if (n % size || small == 0 || before + large + small > most) continue;
            for (uint32_t i = 0; i < large + small; i++)
                plan->stages[before + i] =
                    (ds_mixed_stage){w->order[at], (uint16_t)(i < large ? 2 * size : size), 1, 0};
            plan->n_stages = (uint8_t)(before + large + small);
            split(w, plan, at + 1);
        }
    plan->n_stages = (uint8_t)before;
}

static void try_one_group(const walk *w) {
    const ds_mixed_problem *problem = w->problem;
    for (int64_t m = 1; m <= problem->batch; m++) {
        ds_mixed_plan plan = {.side_by_side = true, .n_stages = 1, .microbatches = m};
        double slowest = 0;
        plan.stages[0] = (ds_mixed_stage){0, 0, 1, (uint16_t)problem->layers};
        for (uint32_t k = 0; k < problem->n_kinds; k++)
            plan.groups[plan.n_groups++] =
                (ds_mixed_group){(uint8_t)k, (uint16_t)problem->kinds[k].n_devices, 0};
        if (problem->batch % m || !ds_mixed_share(problem, &plan) || !ds_mixed_fits(problem, &plan))
            continue;
        for (uint32_t k = 0; k < problem->n_kinds; k++) {
            ds_mixed_stage stage = plan.stages[0];
            stage.kind = (uint8_t)k;
            double samples = ceil((double)plan.groups[k].share / plan.groups[k].replicas);
            slowest = fmax(slowest, ds_mixed_stage_s(problem, &stage, samples, true, false));
        }
        double sum = 2 * problem->mixed_sync_s_per_byte[0] *
                     (problem->layers * problem->layer_params + problem->ends_params);
        ds_mixed_peer_keep(w->out, &plan, (double)m * slowest + sum);
    }
}

void ds_mixed_peer_metis(const ds_mixed_problem *problem, ds_mixed_peer_plans *out) {
    walk w = {.problem = problem, .out = out};
    for (uint32_t k = 0; k < problem->n_kinds; k++) w.order[k] = (uint8_t)k;
    try_one_group(&w);
    do {
        ds_mixed_plan plan = {0};
        if (problem->cuts) split(&w, &plan, 0);
    } while (ds_mixed_peer_next_order(w.order, problem->n_kinds));
}
