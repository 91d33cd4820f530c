/* FlashFlex (HexiScale): the devices are parted into pipelines, and each pipeline into stages with a tp of
 * their own; a stage has devices of one machine; layers go by speed within memory; all devices take part.
 * Here the pipelines are alike: each has the same part of every kind. */
#include "search/mixed/peers/peers.h"

static bool fit(const ds_mixed_problem *problem, ds_mixed_plan *plan) {
    return ds_mixed_peer_proportional(problem, plan) && ds_mixed_fits(problem, plan);
}

/* The pipeline's devices of a kind are stages of one tp. */
static void part(const ds_mixed_peer_walk *w, ds_mixed_plan *plan, uint32_t at) {
    const ds_mixed_kind *kind = &w->problem->kinds[w->order[at]];
    uint32_t devices = kind->n_devices / w->pipelines;
    for (uint32_t t = 0; t < DS_MIXED_TPS; t++) {
        const ds_mixed_stage stage = {0, (uint16_t)w->pipelines, (uint16_t)(1u << t), 0};
        if (kind->pieces[t].known && devices % (1u << t) == 0)
            ds_mixed_peer_append(w, plan, at, &stage, (uint32_t[]){0, devices >> t});
    }
}

void ds_mixed_peer_flashflex(const ds_mixed_problem *problem, ds_mixed_peer_plans *out) {
    ds_mixed_peer_walk w = {.problem = problem, .out = out, .part = part, .fit = fit};
    for (w.pipelines = 1; w.pipelines <= problem->kinds[0].n_devices; w.pipelines++) {
        bool divides = problem->batch % w.pipelines == 0;
        for (uint32_t k = 0; k < problem->n_kinds; k++)
            divides = divides && problem->kinds[k].n_devices % w.pipelines == 0;
        if (divides) ds_mixed_peer_walk_all(&w);
    }
}
