/* Other planners' methods: what their rules promise, and AMP's programme against enumeration. */
#include "search/mixed/peers/peers.h"
#include "tests/search/mixed/two_kinds.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static void check_plan(const ds_mixed_problem *problem, const ds_mixed_plan *plan, const char *by) {
    uint32_t layers = 0, devices[8], n = ds_mixed_devices(problem, plan, devices), all = 0;
    for (uint32_t s = 0; s < plan->n_stages; s++) layers += plan->stages[s].layers;
    cr_assert_eq(layers, LAYERS, "%s: %u layers", by, layers);
    cr_assert(n > 0 && n <= 8, "%s: %u devices", by, n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++) cr_assert_neq(devices[i], devices[k], "%s", by);
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t used = ds_mixed_used(problem, plan, k);
        cr_assert_leq(used, 4, "%s: %u of kind %u", by, used, k);
        all += used;
    }
    cr_assert_eq(all, n, "%s", by);
    for (uint32_t s = 0; s < plan->n_stages && !plan->side_by_side; s++)
        cr_assert_eq(problem->batch / plan->microbatches % plan->stages[s].dp, 0, "%s", by);
}

Test(peers, plans_are_legal) {
    const ds_mixed_problem problem = two_kinds(4, 2);
    uint32_t n;
    const ds_mixed_peer *peers = ds_mixed_peers(&n);
    cr_assert_eq(n, 4);
    for (uint32_t i = 0; i < n; i++) {
        ds_mixed_peer_plans plans = {0};
        peers[i].plan(&problem, &plans);
        cr_assert_eq(plans.n, DS_MIXED_PEER_PLANS, "%s: %u plans", peers[i].name, plans.n);
        for (uint32_t k = 0; k < plans.n; k++) {
            check_plan(&problem, &plans.plans[k], peers[i].name);
            cr_assert(!k || plans.costs[k - 1] <= plans.costs[k]);
            uint32_t all = ds_mixed_used(&problem, &plans.plans[k], 0) +
                           ds_mixed_used(&problem, &plans.plans[k], 1);
            if (strcmp(peers[i].name, "Sailor") != 0) cr_assert_eq(all, 8, "%s", peers[i].name);
        }
    }
}

/* On a kind a hundred times slower Sailor's plan puts nothing. */
Test(peers, sailor_leaves_slow_devices_idle) {
    const ds_mixed_problem problem = two_kinds(4, 100);
    ds_mixed_peer_plans plans = {0};
    ds_mixed_peer_sailor(&problem, &plans);
    cr_assert_eq(ds_mixed_used(&problem, &plans.plans[0], 1), 0);
    for (uint32_t s = 0; s < plans.plans[0].n_stages; s++)
        cr_assert_eq(plans.plans[0].stages[s].tp, 1, "the least that fits");
}

/* Two stages, the second half as fast: 4 and 2 of 6 layers. However slow, a stage has a layer. */
Test(peers, layers_by_speed) {
    ds_mixed_problem problem = two_kinds(4, 2);
    ds_mixed_plan plan = {.n_stages = 2, .microbatches = 4};
    plan.stages[0] = (ds_mixed_stage){0, 4, 1, 0};
    plan.stages[1] = (ds_mixed_stage){1, 4, 1, 0};
    cr_assert(ds_mixed_peer_proportional(&problem, &plan));
    cr_assert_eq(plan.stages[0].layers, 4);
    cr_assert_eq(plan.stages[1].layers, 2);
    problem = two_kinds(4, 50);
    cr_assert(ds_mixed_peer_proportional(&problem, &plan));
    cr_assert_eq(plan.stages[1].layers, 1);
}

/* The best cut by the cost of a pipeline, of all cuts. */
static double least_cost(const ds_mixed_problem *problem, ds_mixed_plan plan, uint32_t stage,
                         uint32_t left) {
    double least = HUGE_VAL;
    if (stage + 1 == plan.n_stages) {
        double sum = 0;
        plan.stages[stage].layers = (uint16_t)left;
        for (uint32_t s = 0; s < plan.n_stages; s++)
            sum = fmax(sum, ds_mixed_sum_s(problem, &plan, s));
        return ds_mixed_peer_cost(problem, &plan) - sum;
    }
    for (uint16_t l = 1; l + plan.n_stages - stage - 1 <= left; l++) {
        plan.stages[stage].layers = l;
        least = fmin(least, least_cost(problem, plan, stage + 1, left - l));
    }
    return least;
}

Test(peers, amp_cuts_best) {
    for (int factor = 1; factor <= 5; factor++) {
        const ds_mixed_problem problem = two_kinds(4, factor);
        ds_mixed_peer_plans plans = {0};
        ds_mixed_peer_amp(&problem, &plans);
        for (uint32_t i = 0; i < plans.n; i++) {
            const ds_mixed_plan *plan = &plans.plans[i];
            if (plan->side_by_side) continue;
            double sum = 0;
            for (uint32_t s = 0; s < plan->n_stages; s++)
                sum = fmax(sum, ds_mixed_sum_s(&problem, plan, s));
            cr_assert_float_eq(plans.costs[i] - sum, least_cost(&problem, *plan, 0, LAYERS), 1e-9);
        }
    }
}
