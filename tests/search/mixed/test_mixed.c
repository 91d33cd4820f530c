/* Plans for mixed clusters: cuts against enumeration, the price of preemptions against a sum over failures,
 * texts, and the search against all plans of a small space, under the estimate as the simulator. */
#include "ir/base/rng.h"
#include "tests/search/mixed/two_kinds.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static ds_mixed_plan three_stages(void) {
    ds_mixed_plan plan = {.n_stages = 3, .microbatches = 4};
    plan.stages[0] = (ds_mixed_stage){0, 2, 1, 3};
    plan.stages[1] = (ds_mixed_stage){1, 1, 1, 2};
    plan.stages[2] = (ds_mixed_stage){1, 1, 1, 1};
    return plan;
}

Test(mixed, texts) {
    const ds_mixed_problem problem = two_kinds(2, 2);
    ds_mixed_plan plan = three_stages();
    ds_buf text = {0};
    ds_mixed_put_mesh(&problem, &plan, "@c", &text);
    ds_mixed_put_strategy(&problem, &plan, &text);
    cr_assert_str_eq(text.text,
                     "mesh @all = [dp = 4] on @c\nmesh @plan = pick 0..4 of @all [dp = 4]\n"
                     "stage_dp = [2, 1, 1], stage_tp = [1, 1, 1], stage_layers = [3, 2, 1], "
                     "schedule = \"1f1b\", zero = 0, microbatches = 4, recompute = none");
    plan = (ds_mixed_plan){.side_by_side = true, .n_stages = 1, .n_groups = 2, .microbatches = 1};
    plan.stages[0].tp = 1;
    plan.groups[0] = (ds_mixed_group){1, 2, 3};
    plan.groups[1] = (ds_mixed_group){0, 1, 5};
    text.n = 0;
    ds_mixed_put_mesh(&problem, &plan, "@c", &text);
    ds_mixed_put_strategy(&problem, &plan, &text);
    cr_assert_str_eq(text.text, "mesh @all = [dp = 4] on @c order (2, 3, 0, 1)\n"
                                "mesh @plan = pick 0..3 of @all [dp = 3]\n"
                                "dp = 3, dp_shares = [2, 1, 5], zero = 0, microbatches = 1, "
                                "recompute = none");
    ds_buf_deinit(&text);
}

/* 2 fast at 3 $ and 2 slow at 1 $ for 10 ms: 8 / 3600 $ a second over 800 tokens. */
Test(mixed, objectives) {
    const ds_mixed_problem problem = two_kinds(2, 2);
    const ds_mixed_plan plan = three_stages();
    const ds_mixed_faults faults = {60, 300};
    cr_assert_eq(ds_mixed_used(&problem, &plan, 0), 2);
    cr_assert_eq(ds_mixed_used(&problem, &plan, 1), 2);
    cr_assert_float_eq(ds_mixed_value(&problem, &plan, DS_MIXED_COST, &faults, 0.01),
                       8.0 / 3600 * 0.01 / 800 * 1e6, 1e-12);
    cr_assert_float_eq(ds_mixed_value(&problem, &plan, DS_MIXED_ENERGY, &faults, 0.01),
                       1000 * 0.01 / 800, 1e-12);
}

/* The mean of random tries: a segment of work and its checkpoint starts again after a failure and a
 * restart, in which failures count too. */
static double tries(double mean_s, const ds_mixed_faults *faults, double interval_s) {
    ds_rng rng = {7};
    double sum = 0, n = 200000;
    for (int i = 0; i < (int)n; i++) {
        double need = interval_s + faults->checkpoint_s;
        for (;;) {
            double failure = -mean_s * log(1 - ds_rng_uniform(&rng));
            if (failure >= need) break;
            sum += failure;
            need = faults->restart_s + interval_s + faults->checkpoint_s;
        }
        sum += need;
    }
    return sum / n / interval_s;
}

Test(mixed, preemptions) {
    const ds_mixed_faults faults = {60, 0};
    double best;
    cr_assert_eq(ds_mixed_stretch(0, &faults, 0, NULL), 1);
    /* without a restart the renewal formula is exact */
    cr_assert_float_eq(ds_mixed_stretch(1.0 / 3600, &faults, 900, NULL), tries(3600, &faults, 900),
                       0.01);
    /* rare failures: Young's interval, the root of 2 · checkpoint · mean time */
    ds_mixed_stretch(1e-8, &faults, 0, &best);
    cr_assert_float_eq(best / sqrt(2 * 60 * 1e8), 1, 1e-3);
    /* no interval of a grid is better than the best */
    const ds_mixed_faults slow_start = {60, 300};
    double least = ds_mixed_stretch(1.0 / 3600, &slow_start, 0, NULL);
    for (double tau = 10; tau < 1e4; tau *= 1.1)
        cr_assert_geq(ds_mixed_stretch(1.0 / 3600, &slow_start, tau, NULL), least);
}

/* The busiest stage's work for a microbatch, with the end's part. */
static double busiest(const ds_mixed_problem *problem, const ds_mixed_plan *plan) {
    double most = 0;
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        double samples = (double)problem->batch / (double)plan->microbatches / plan->stages[s].dp;
        double work = ds_mixed_stage_s(problem, &plan->stages[s], samples, s + 1 == plan->n_stages,
                                       plan->recompute);
        double rate = plan->stages[s].dp > 1 ? problem->kinds[0].sync_s_per_byte[0][0] : 0;
        bool end = s == 0 || s + 1 == plan->n_stages;
        work +=
            2 * rate *
            (plan->stages[s].layers * problem->layer_params + (end ? problem->ends_params : 0)) /
            (double)plan->microbatches;
        most = fmax(most, work);
    }
    return most;
}

Test(mixed, cut_is_the_best_of_all) {
    ds_mixed_problem problem = two_kinds(2, 2);
    ds_rng rng = {7};
    for (int round = 0; round < 200; round++) {
        ds_mixed_plan plan = three_stages(), one = plan;
        for (uint32_t k = 0; k < 2; k++)
            for (uint32_t i = 0; i < DS_MIXED_SAMPLES; i++) {
                problem.kinds[k].pieces[0].layer_s[i] = 1e-3 * (1 + 9 * ds_rng_uniform(&rng));
                problem.kinds[k].pieces[0].ends_s[i] = 1e-2 * ds_rng_uniform(&rng);
            }
        cr_assert(ds_mixed_cut(&problem, NULL, &plan));
        double least = HUGE_VAL;
        for (uint16_t a = 1; a < LAYERS - 1; a++)
            for (uint16_t b = 1; a + b < LAYERS; b++) {
                one.stages[0].layers = a;
                one.stages[1].layers = b;
                one.stages[2].layers = (uint16_t)(LAYERS - a - b);
                least = fmin(least, busiest(&problem, &one));
            }
        cr_assert_float_eq(busiest(&problem, &plan), least, 1e-12, "round %d", round);
    }
}

Test(mixed, cut_keeps_to_memory) {
    ds_mixed_problem problem = two_kinds(2, 2);
    ds_mixed_plan plan = three_stages();
    problem.kinds[0].capacity_bytes = 4e7 + 2 * (2e7 + 3 * 1e6) + 1; /* the ends and two layers */
    cr_assert(ds_mixed_cut(&problem, NULL, &plan));
    cr_assert_eq(plan.stages[0].layers, 2);
    problem.kinds[0].capacity_bytes = 4e7;
    cr_assert_not(ds_mixed_cut(&problem, NULL, &plan));
}

/* ---- the search, with the estimate in place of a simulator ---- */

static ds_status by_estimate(void *context, ds_mixed_plan *plans, uint32_t n, ds_error *err) {
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        ds_mixed_estimate(context, &plans[i]);
        plans[i].fits = true;
        plans[i].step_ps = (int64_t)(plans[i].estimate_s * 1e12);
    }
    return DS_OK;
}

static double search_best(ds_mixed_problem *problem, ds_mixed_goal goal) {
    const ds_mixed_options options = {
        .goal = goal, .max_runs = 200, .simulate = by_estimate, .context = problem};
    ds_mixed_result result;
    ds_error err;
    cr_assert_eq(ds_mixed_search(problem, &options, &result, &err), DS_OK);
    cr_assert(result.n_plans > 0 && result.n_simulated <= 200);
    double best = ds_mixed_value(problem, &result.plans[0], goal, &options.faults,
                                 (double)result.plans[0].step_ps * 1e-12);
    ds_mixed_result_deinit(&result);
    return best;
}

/* All pairs of a stage on each kind, and a kind alone, with all cuts, widths and microbatches. */
static double best_of_two_stages(const ds_mixed_problem *problem, ds_mixed_goal goal) {
    const ds_mixed_faults none = {0, 0};
    double least = HUGE_VAL;
    for (int order = 0; order < 2; order++)
        for (int code = 0; code < 9; code++)
            for (uint16_t layers = 1; layers < LAYERS; layers++)
                for (int64_t m = 1; m <= 4; m *= 2)
                    for (int eager = 0; eager < 2; eager++) {
                        const uint16_t dp[] = {1, 2, 1}, tp[] = {1, 1, 2};
                        ds_mixed_plan plan = {.n_stages = 2, .microbatches = m, .eager = eager};
                        plan.stages[0] =
                            (ds_mixed_stage){(uint8_t)order, dp[code % 3], tp[code % 3], layers};
                        plan.stages[1] =
                            (ds_mixed_stage){(uint8_t)!order, dp[code / 3], tp[code / 3],
                                             (uint16_t)(LAYERS - layers)};
                        ds_mixed_estimate(problem, &plan);
                        least = fmin(least,
                                     ds_mixed_value(problem, &plan, goal, &none, plan.estimate_s));
                    }
    return least;
}

Test(mixed, search_is_no_worse_than_two_stages) {
    ds_mixed_problem problem = two_kinds(2, 2);
    for (int goal = 0; goal < DS_MIXED_EXPECTED; goal++)
        cr_assert_leq(search_best(&problem, (ds_mixed_goal)goal),
                      best_of_two_stages(&problem, (ds_mixed_goal)goal) * (1 + 1e-9));
}

/* A slow machine that costs more than it gives stays out. */
Test(mixed, leaves_slow_machines_out) {
    ds_mixed_problem problem = two_kinds(2, 2);
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t i = 0; i < DS_MIXED_SAMPLES; i++) {
            problem.kinds[1].pieces[t].layer_s[i] *= 1000;
            problem.kinds[1].pieces[t].ends_s[i] *= 1000;
        }
    const ds_mixed_options options = {.max_runs = 60, .simulate = by_estimate, .context = &problem};
    ds_mixed_result result;
    ds_error err;
    cr_assert_eq(ds_mixed_search(&problem, &options, &result, &err), DS_OK);
    cr_assert_eq(ds_mixed_used(&problem, &result.plans[0], 1), 0);
    cr_assert_eq(ds_mixed_used(&problem, &result.plans[0], 0), 2);
    ds_mixed_result_deinit(&result);
}

static double cost_of(const ds_mixed_problem *problem, const ds_mixed_plan *plan) {
    return ds_mixed_value(problem, plan, DS_MIXED_COST, &(ds_mixed_faults){0},
                          (double)plan->step_ps * 1e-12);
}

/* Whatever the goal, the plans with a front have the winners of the searches for time, for cost, and
 * for cost within times between, or better ones. */
Test(mixed, front_has_the_winners_of_time_and_cost) {
    ds_mixed_problem problem = two_kinds(8, 2);
    for (int goal = 0; goal < DS_MIXED_EXPECTED; goal++) {
        ds_mixed_options options = {.goal = (ds_mixed_goal)goal,
                                    .max_runs = 28,
                                    .front = true,
                                    .simulate = by_estimate,
                                    .context = &problem};
        ds_mixed_result all;
        ds_error err;
        cr_assert_eq(ds_mixed_search(&problem, &options, &all, &err), DS_OK);
        cr_assert(all.n_simulated == all.n_plans && all.n_simulated <= 5 * 28);
        int64_t fast = INT64_MAX, cheap = 0;
        double least = HUGE_VAL;
        for (uint32_t i = 0; i < all.n_plans; i++) {
            if (all.plans[i].step_ps < fast) fast = all.plans[i].step_ps;
            if (cost_of(&problem, &all.plans[i]) < least)
                least = cost_of(&problem, &all.plans[i]), cheap = all.plans[i].step_ps;
        }
        for (int winner = 0; winner < DS_MIXED_ENERGY; winner++) {
            ds_mixed_result one;
            options.front = false;
            options.goal = (ds_mixed_goal)winner;
            cr_assert_eq(ds_mixed_search(&problem, &options, &one, &err), DS_OK);
            cr_assert_leq(winner ? least : (double)fast,
                          winner ? cost_of(&problem, one.plans) : (double)one.plans->step_ps);
            ds_mixed_result_deinit(&one);
        }
        cr_assert_lt(fast, cheap);
        options.goal = DS_MIXED_COST;
        for (int part = 1; part < 3; part++) {
            ds_mixed_result one;
            double within = (double)fast * pow((double)cheap / (double)fast, part / 3.0);
            options.within_s = within * 1e-12;
            cr_assert_eq(ds_mixed_search(&problem, &options, &one, &err), DS_OK);
            double best = HUGE_VAL;
            for (uint32_t i = 0; i < all.n_plans; i++)
                if ((double)all.plans[i].step_ps <= within)
                    best = fmin(best, cost_of(&problem, &all.plans[i]));
            cr_assert_leq(best, cost_of(&problem, one.plans), "goal %d, part %d", goal, part);
            ds_mixed_result_deinit(&one);
        }
        ds_mixed_result_deinit(&all);
    }
}
