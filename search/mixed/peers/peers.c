/* What the planners share: their list, the cost of a pipeline, cuts by speed. */
#include "search/mixed/peers/peers.h"

#include <math.h>

static const ds_mixed_peer peers[] = {
    {"AMP", "Li et al., NeurIPS 2022, arXiv:2210.07297", ds_mixed_peer_amp},
    {"Metis", "Um et al., USENIX ATC 2024", ds_mixed_peer_metis},
    {"FlashFlex", "Yan et al. 2024, arXiv:2409.01143", ds_mixed_peer_flashflex},
    {"Sailor", "Strati et al., SOSP 2025, arXiv:2504.17096", ds_mixed_peer_sailor},
};

const ds_mixed_peer *ds_mixed_peers(uint32_t *n) {
    *n = sizeof peers / sizeof *peers;
    return peers;
}

void ds_mixed_peer_keep(ds_mixed_peer_plans *out, const ds_mixed_plan *plan, double cost) {
    uint32_t at = out->n;
    while (at > 0 && cost < out->costs[at - 1]) at--;
    if (at == DS_MIXED_PEER_PLANS) return;
    if (out->n < DS_MIXED_PEER_PLANS) out->n++;
    for (uint32_t i = out->n - 1; i > at; i--) {
        out->costs[i] = out->costs[i - 1];
        out->plans[i] = out->plans[i - 1];
    }
    out->costs[at] = cost;
    out->plans[at] = *plan;
}

static double samples(const ds_mixed_problem *problem, const ds_mixed_plan *plan, uint32_t s) {
    return (double)problem->batch / (double)plan->microbatches / plan->stages[s].dp;
}

double ds_mixed_peer_cost(const ds_mixed_problem *problem, const ds_mixed_plan *plan) {
    double sum = 0, busiest = 0, gradients = 0;
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        double time = ds_mixed_stage_s(problem, &plan->stages[s], samples(problem, plan, s),
                                       s + 1 == plan->n_stages, false);
        sum += time + 2 * ds_mixed_send_s(problem, plan, s);
        busiest = fmax(busiest, time);
        gradients = fmax(gradients, ds_mixed_sum_s(problem, plan, s));
    }
    return (double)(plan->microbatches - 1) * busiest + sum + gradients;
}

double ds_mixed_peer_layer_s(const ds_mixed_problem *problem, const ds_mixed_plan *plan,
                             uint32_t s) {
    ds_mixed_stage one = plan->stages[s];
    one.layers = 1;
    return ds_mixed_stage_s(problem, &one, samples(problem, plan, s), false, false);
}

bool ds_mixed_peer_proportional(const ds_mixed_problem *problem, ds_mixed_plan *plan) {
    double speed[DS_MIXED_STAGES], all = 0;
    uint32_t given = 0;
    if (plan->n_stages > problem->layers) return false;
    for (uint32_t s = 0; s < plan->n_stages; s++)
        all += speed[s] = 1 / ds_mixed_peer_layer_s(problem, plan, s);
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        double share = problem->layers * speed[s] / all;
        plan->stages[s].layers = share < 1 ? 1 : (uint16_t)share;
        given += plan->stages[s].layers;
    }
    while (given != problem->layers) {
        uint32_t at = 0;
        double best = -HUGE_VAL, sign = given < problem->layers ? 1 : -1;
        for (uint32_t s = 0; s < plan->n_stages; s++) {
            double lacks = sign * (problem->layers * speed[s] / all - plan->stages[s].layers);
            if (lacks > best && (sign > 0 || plan->stages[s].layers > 1)) best = lacks, at = s;
        }
        plan->stages[at].layers = (uint16_t)(plan->stages[at].layers + (int)sign);
        given = given < problem->layers ? given + 1 : given - 1;
    }
    return true;
}

bool ds_mixed_peer_next_order(uint8_t *order, uint32_t n) {
    uint32_t i = n;
    while (i > 1 && order[i - 2] > order[i - 1]) i--;
    if (i <= 1) return false;
    uint32_t k = n;
    while (order[k - 1] < order[i - 2]) k--;
    uint8_t kept = order[i - 2];
    order[i - 2] = order[k - 1];
    order[k - 1] = kept;
    for (uint32_t a = i - 1, b = n - 1; a < b; a++, b--) {
        kept = order[a];
        order[a] = order[b];
        order[b] = kept;
    }
    return true;
}

/* ---- walks ---- */

static void try_microbatches(const ds_mixed_peer_walk *w, const ds_mixed_plan *stages) {
    const ds_mixed_problem *problem = w->problem;
    for (int64_t m = 1; m <= problem->batch; m++) {
        ds_mixed_plan plan = *stages;
        bool may = problem->batch % m == 0;
        plan.microbatches = m;
        for (uint32_t s = 0; s < plan.n_stages && may; s++)
            may = problem->batch / m % plan.stages[s].dp == 0;
        if (may && w->fit(problem, &plan))
            ds_mixed_peer_keep(w->out, &plan, ds_mixed_peer_cost(problem, &plan));
    }
}

static void go_on(const ds_mixed_peer_walk *w, ds_mixed_plan *plan, uint32_t at) {
    if (at < w->problem->n_kinds)
        w->part(w, plan, at);
    else if (plan->n_stages > 1)
        try_microbatches(w, plan);
}

void ds_mixed_peer_append(const ds_mixed_peer_walk *walk, ds_mixed_plan *plan, uint32_t at,
                          const ds_mixed_stage *stage, const uint32_t n[2]) {
    uint32_t before = plan->n_stages, layers = walk->problem->layers;
    if (before + n[0] + n[1] > (layers < DS_MIXED_STAGES ? layers : DS_MIXED_STAGES)) return;
    for (uint32_t i = 0; i < n[0] + n[1]; i++) {
        ds_mixed_stage *to = &plan->stages[plan->n_stages++];
        *to = *stage;
        to->kind = walk->order[at];
        if (i < n[0]) to->dp = (uint16_t)(2 * stage->dp);
    }
    go_on(walk, plan, at + 1);
    plan->n_stages = (uint8_t)before;
}

void ds_mixed_peer_walk_all(ds_mixed_peer_walk *walk) {
    for (uint32_t k = 0; k < walk->problem->n_kinds; k++) walk->order[k] = (uint8_t)k;
    do {
        ds_mixed_plan plan = {0};
        if (walk->problem->cuts) go_on(walk, &plan, 0);
    } while (ds_mixed_peer_next_order(walk->order, walk->problem->n_kinds));
}
