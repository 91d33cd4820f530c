/* Metis: groups of devices of unequal size, a power of two each, one group a stage; data parallelism in a
 * group unless memory asks for tp; layers in proportion to the groups' speeds; all devices take part. In one
 * group of all kinds the batch is shared by speed. */
#include "search/mixed/peers/peers.h"

#include <math.h>

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

/* Splits the devices of a kind into groups of `size` and of twice the size, the larger first: Metis prunes
 * sizes that differ more. */
static void part(const ds_mixed_peer_walk *w, ds_mixed_plan *plan, uint32_t at) {
    uint32_t n = w->problem->kinds[w->order[at]].n_devices;
    for (uint32_t size = 1; size <= n; size *= 2)
        for (uint32_t large = 0; 2 * size * large < n && n % size == 0; large++) {
            const ds_mixed_stage stage = {0, (uint16_t)size, 1, 0};
            ds_mixed_peer_append(w, plan, at, &stage, (uint32_t[]){large, n / size - 2 * large});
        }
}

static void try_one_group(const ds_mixed_problem *problem, ds_mixed_peer_plans *out) {
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
        ds_mixed_peer_keep(out, &plan, (double)m * slowest + sum);
    }
}

void ds_mixed_peer_metis(const ds_mixed_problem *problem, ds_mixed_peer_plans *out) {
    ds_mixed_peer_walk w = {.problem = problem, .out = out, .part = part, .fit = fit};
    try_one_group(problem, out);
    ds_mixed_peer_walk_all(&w);
}
