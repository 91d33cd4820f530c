/* FlashFlex (HexiScale): the devices are parted into pipelines, and each pipeline into stages with a tp of
 * their own; a stage has devices of one machine; layers go by speed within memory; all devices take part.
 * Here the pipelines are alike: each has the same part of every kind. */
#include "search/mixed/peers/peers.h"

typedef struct walk {
    const ds_mixed_problem *problem;
    ds_mixed_peer_plans *out;
    uint8_t order[DS_MIXED_KINDS];
    uint32_t pipelines;
} walk;

static void try_stages(const walk *w, const ds_mixed_plan *stages) {
    const ds_mixed_problem *problem = w->problem;
    for (int64_t m = 1; m <= problem->batch; m++) {
        ds_mixed_plan plan = *stages;
        plan.microbatches = m;
        if (problem->batch % m || problem->batch / m % w->pipelines) continue;
        if (ds_mixed_peer_proportional(problem, &plan) && ds_mixed_fits(problem, &plan))
            ds_mixed_peer_keep(w->out, &plan, ds_mixed_peer_cost(problem, &plan));
    }
}

/* The pipeline's devices of kind `at` of the order, as stages of one tp. */
static void split(const walk *w, ds_mixed_plan *plan, uint32_t at) {
    const ds_mixed_problem *problem = w->problem;
    uint32_t before = plan->n_stages;
    uint32_t most = problem->layers < DS_MIXED_STAGES ? problem->layers : DS_MIXED_STAGES;
    if (at == problem->n_kinds) {
        if (before > 1) try_stages(w, plan);
        return;
    }
    const ds_mixed_kind *kind = &problem->kinds[w->order[at]];
    uint32_t part = kind->n_devices / w->pipelines;
    for (uint32_t t = 0; t < DS_MIXED_TPS; t++) {
        uint32_t n = part >> t;
        if (!kind->pieces[t].known || n << t != part || before + n > most) continue;
        for (uint32_t i = 0; i < n; i++)
            plan->stages[before + i] =
                (ds_mixed_stage){w->order[at], (uint16_t)w->pipelines, (uint16_t)(1u << t), 0};
        plan->n_stages = (uint8_t)(before + n);
        split(w, plan, at + 1);
    }
    plan->n_stages = (uint8_t)before;
}

void ds_mixed_peer_flashflex(const ds_mixed_problem *problem, ds_mixed_peer_plans *out) {
    walk w = {.problem = problem, .out = out};
    for (uint32_t k = 0; k < problem->n_kinds; k++) w.order[k] = (uint8_t)k;
    do {
        for (w.pipelines = 1; w.pipelines <= problem->kinds[0].n_devices; w.pipelines++) {
            bool divides = problem->cuts && problem->batch % w.pipelines == 0;
            for (uint32_t k = 0; k < problem->n_kinds; k++)
                divides = divides && problem->kinds[k].n_devices % w.pipelines == 0;
            ds_mixed_plan plan = {0};
            if (divides) split(&w, &plan, 0);
        }
    } while (ds_mixed_peer_next_order(w.order, problem->n_kinds));
}
