/* From structures to the winner: the best estimates are simulated whole, then changes of the best. */
#include "search/mixed/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHANGES = 64, AT_A_TIME = 4, CUT_AGAIN = 4, SEARCHES = 5 };
static const double for_estimates = 0.4; /* of the simulations; the others try changes */
static const double worth = 1.1; /* a change's estimate over the plan's; worse ones are left */

typedef struct searcher {
    const ds_mixed_problem *problem;
    ds_mixed_options options;
    ds_mixed_plan *tried;
    uint32_t n, most;
    struct searcher *all; /* what the searches for all goals simulated; NULL: this is it */
} searcher;

/* ---- simulated plans ---- */

static bool is_same(const ds_mixed_plan *a, const ds_mixed_plan *b) {
    if (a->side_by_side != b->side_by_side || a->n_stages != b->n_stages ||
        a->n_groups != b->n_groups || a->zero != b->zero || a->recompute != b->recompute ||
        a->eager != b->eager || a->microbatches != b->microbatches)
        return false;
    for (uint32_t s = 0; s < a->n_stages; s++) {
        const ds_mixed_stage *x = &a->stages[s], *y = &b->stages[s];
        if (x->kind != y->kind || x->dp != y->dp || x->tp != y->tp || x->layers != y->layers)
            return false;
    }
    for (uint32_t g = 0; g < a->n_groups; g++) {
        const ds_mixed_group *x = &a->groups[g], *y = &b->groups[g];
        if (x->kind != y->kind || x->replicas != y->replicas || x->share != y->share) return false;
    }
    return true;
}

static double value_of(const searcher *s, const ds_mixed_plan *plan) {
    const double step_s = (double)plan->step_ps * 1e-12, within_s = s->options.within_s;
    if (!plan->fits || (within_s > 0 && step_s > within_s)) return HUGE_VAL;
    return ds_mixed_value(s->problem, plan, s->options.goal, &s->options.faults, step_s);
}

/* The plan's place among the tried ones; s->n: it was not tried. */
static uint32_t find_tried(const searcher *s, const ds_mixed_plan *plan) {
    uint32_t i = 0;
    while (i < s->n && !is_same(&s->tried[i], plan)) i++;
    return i;
}

/* Tries those of the plans that were not, `most` at most, some at a time; *taken counts plans. What the
 * search for another goal simulated is not simulated again. */
static ds_status try_plans(searcher *s, const ds_mixed_plan *plans, uint32_t n, uint32_t most,
                           uint32_t *taken, ds_error *err) {
    searcher *all = s->all;
    uint32_t first = s->n, first_new = all->n;
    if (most > s->most - s->n) most = s->most - s->n;
    for (*taken = 0; *taken < n && s->n < first + most; ++*taken) {
        const ds_mixed_plan *plan = &plans[*taken];
        if (find_tried(s, plan) < s->n) continue;
        s->tried[s->n++] = *plan;
        if (find_tried(all, plan) == all->n) all->tried[all->n++] = *plan;
    }
    if (all->n > first_new)
        DS_TRY(s->options.simulate(s->options.context, all->tried + first_new, all->n - first_new,
                                   err));
    for (uint32_t i = first; i < s->n; i++) {
        double estimate_s = s->tried[i].estimate_s;
        s->tried[i] = all->tried[find_tried(all, &s->tried[i])];
        s->tried[i].estimate_s = estimate_s;
    }
    return DS_OK;
}

/* ---- changes of a plan ---- */

typedef struct changes {
    uint32_t n;
    ds_mixed_plan plans[CHANGES];
} changes;

static ds_mixed_plan *change(changes *all, const ds_mixed_plan *plan) {
    ds_mixed_plan *to = &all->plans[all->n < CHANGES ? all->n++ : CHANGES - 1];
    *to = *plan;
    return to;
}

static bool has_replicas(const ds_mixed_plan *plan) {
    bool any = plan->n_groups > 1 || (plan->n_groups && plan->groups[0].replicas > 1);
    for (uint32_t s = 0; s < plan->n_stages && !plan->side_by_side; s++)
        any = any || plan->stages[s].dp > 1;
    return any;
}

static void add_switches(const ds_mixed_problem *problem, changes *all, const ds_mixed_plan *plan) {
    if (has_replicas(plan)) change(all, plan)->zero = !plan->zero;
    if (!problem->recomputes) change(all, plan)->recompute = !plan->recompute;
    if (plan->n_stages > 1) change(all, plan)->eager = !plan->eager;
}

/* One or two layers go from a run of like stages to the next run, or back. */
static void add_moves(changes *all, const ds_mixed_plan *plan) {
    for (uint32_t s = 0; s + 1 < plan->n_stages; s++) {
        const ds_mixed_stage *a = &plan->stages[s], *b = a + 1;
        bool alike = a->layers == b->layers && a->kind == b->kind && s + 2 < plan->n_stages;
        for (uint32_t way = 0; way < 4 && !alike; way++) {
            uint32_t from = s + way % 2, to = s + 1 - way % 2;
            uint16_t by = (uint16_t)(1 + way / 2);
            if (plan->stages[from].layers <= by) continue;
            ds_mixed_plan *next = change(all, plan);
            next->stages[from].layers = (uint16_t)(next->stages[from].layers - by);
            next->stages[to].layers = (uint16_t)(next->stages[to].layers + by);
        }
    }
}

static bool takes_widths(const ds_mixed_problem *problem, const ds_mixed_plan *plan) {
    bool may = plan->n_stages > 1;
    for (uint32_t i = 0; i < plan->n_stages; i++)
        may = may && problem->batch / plan->microbatches % plan->stages[i].dp == 0;
    return may;
}

static void add_microbatches(const ds_mixed_problem *problem, changes *all,
                             const ds_mixed_plan *plan) {
    for (int way = 0; way < 2; way++) {
        ds_mixed_plan next = *plan;
        if (way ? next.microbatches % 2 : problem->batch / next.microbatches % 2) continue;
        next.microbatches = way ? next.microbatches / 2 : next.microbatches * 2;
        bool may = next.side_by_side || takes_widths(problem, &next);
        if (may && ds_mixed__complete(problem, &next)) *change(all, plan) = next;
    }
}

/* Two neighbours of one width become a stage twice as wide, or a stage becomes two of half the width. */
static void add_widths(const ds_mixed_problem *problem, changes *all, const ds_mixed_plan *plan) {
    for (uint32_t s = 0; s < plan->n_stages && !plan->side_by_side; s++)
        for (int joins = 0; joins < 2; joins++) {
            ds_mixed_plan next = *plan;
            ds_mixed_stage *a = &next.stages[s], *b = a + 1;
            uint32_t after = plan->n_stages - s - 1;
            if (joins ? !after || a->kind != b->kind || a->dp != b->dp || a->tp != b->tp
                      : a->dp % 2 || plan->n_stages == DS_MIXED_STAGES)
                continue;
            a->dp = (uint16_t)(joins ? a->dp * 2 : a->dp / 2);
            if (joins)
                memmove(b, b + 1, (after - 1) * sizeof *b);
            else
                memmove(b, plan->stages + s, (after + 1) * sizeof *b), *b = *a;
            next.n_stages = (uint8_t)(joins ? next.n_stages - 1 : next.n_stages + 1);
            if (takes_widths(problem, &next) && ds_mixed_cut(problem, NULL, &next))
                *change(all, plan) = next;
        }
}

/* A sample of each replica of the slower group goes to another group, and back. */
static void add_shares(changes *all, const ds_mixed_plan *plan) {
    for (uint32_t from = 0; from < plan->n_groups; from++)
        for (uint32_t to = 0; to < plan->n_groups; to++)
            for (int whole = 0; whole < 2 && from != to; whole++) {
                uint32_t by = plan->groups[whole ? from : to].replicas;
                if (plan->groups[from].share - by < plan->groups[from].replicas) continue;
                ds_mixed_plan *next = change(all, plan);
                next->groups[from].share -= by;
                next->groups[to].share += by;
            }
}

static uint32_t best_since(const searcher *s, uint32_t first, uint32_t best) {
    for (uint32_t i = first; i < s->n; i++)
        if (value_of(s, &s->tried[i]) < value_of(s, &s->tried[best])) best = i;
    return best;
}

/* Leaves the changes that the estimate calls worse. */
static void keep_worth(const ds_mixed_problem *problem, changes *all, const ds_mixed_plan *plan) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        ds_mixed_estimate(problem, &all->plans[i]);
        if (all->plans[i].estimate_s <= worth * plan->estimate_s) all->plans[n++] = all->plans[i];
    }
    all->n = n;
}

/* The plan's changes are simulated, AT_A_TIME of them, until none is better. A fixed number, so that
 * plans do not depend on the number of workers. */
static ds_status climb(searcher *s, uint32_t from, ds_error *err) {
    changes *all = malloc(sizeof *all);
    ds_status status = DS_OK;
    for (bool moved = true; moved && status == DS_OK;) {
        const ds_mixed_plan plan = s->tried[from];
        uint32_t best = from, first = 0, taken;
        all->n = 0;
        add_moves(all, &plan);
        add_shares(all, &plan);
        add_widths(s->problem, all, &plan);
        add_switches(s->problem, all, &plan);
        add_microbatches(s->problem, all, &plan);
        keep_worth(s->problem, all, &plan);
        for (uint32_t i = 0; i < all->n && best == from && s->n > first && status == DS_OK;
             i += taken) {
            first = s->n;
            status = try_plans(s, all->plans + i, all->n - i, AT_A_TIME, &taken, err);
            best = best_since(s, first, best);
        }
        moved = best != from;
        from = best;
    }
    free(all);
    return status;
}

/* The n-th best of the simulated plans; UINT32_MAX: there are fewer. */
static uint32_t nth_best(const searcher *s, uint32_t n) {
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t better = 0;
        double value = value_of(s, &s->tried[i]);
        if (value == HUGE_VAL) continue;
        for (uint32_t k = 0; k < s->n; k++) {
            double other = value_of(s, &s->tried[k]);
            better += other < value || (other == value && k < i);
        }
        if (better == n) return i;
    }
    return UINT32_MAX;
}

/* The best plans with stages are cut again, by the times of their stages as simulated. */
static ds_status cut_again(searcher *s, ds_error *err) {
    ds_mixed_plan plans[CUT_AGAIN];
    uint32_t n = 0, taken;
    for (uint32_t i = 0, at; n < CUT_AGAIN && (at = nth_best(s, i)) != UINT32_MAX; i++) {
        const ds_mixed_plan *plan = &s->tried[at];
        plans[n] = *plan;
        if (plan->side_by_side || !ds_mixed_cut(s->problem, plan, &plans[n])) continue;
        n++;
    }
    return try_plans(s, plans, n, n, &taken, err);
}

static void take_result(const searcher *s, ds_mixed_result *result) {
    result->n_simulated = s->n;
    result->plans = calloc(s->n + 1, sizeof *result->plans);
    for (uint32_t i = 0, at; (at = nth_best(s, i)) != UINT32_MAX; i++)
        result->plans[result->n_plans++] = s->tried[at];
}

/* The search for one goal; *n_estimated counts on. */
static ds_status search_goal(searcher *all, ds_mixed_goal goal, double within_s,
                             uint64_t *n_estimated, ds_error *err) {
    searcher s = *all;
    ds_mixed__pool *pool = calloc(1, sizeof *pool);
    uint32_t taken;
    s.all = all;
    s.n = 0;
    s.tried = calloc(s.most + 1, sizeof *s.tried);
    s.options.goal = goal;
    s.options.within_s = within_s;
    pool->problem = s.problem;
    pool->goal = goal;
    pool->faults = s.options.faults;
    pool->within_s = within_s;
    ds_mixed__list(pool);
    *n_estimated += pool->n_estimated;
    uint32_t runs = (uint32_t)(for_estimates * s.most) + 1;
    ds_status status = try_plans(&s, pool->plans, pool->n, runs, &taken, err);
    if (status == DS_OK) status = cut_again(&s, err);
    uint32_t best = nth_best(&s, 0), second = nth_best(&s, 1);
    if (status == DS_OK && best != UINT32_MAX) status = climb(&s, best, err);
    if (status == DS_OK && second != UINT32_MAX) status = climb(&s, second, err);
    if (status == DS_OK) status = try_plans(&s, pool->plans, pool->n, s.most, &taken, err);
    free(s.tried);
    free(pool);
    return status;
}

static double best_step_s(searcher s, ds_mixed_goal goal) {
    s.options.goal = goal;
    uint32_t best = nth_best(&s, 0);
    return best == UINT32_MAX ? 0 : (double)s.tried[best].step_ps * 1e-12;
}

/* The fastest plan, the cheapest, and the cheapest within times between both: the ratio parted into three. */
static ds_status search_front(searcher *s, uint64_t *n_estimated, ds_error *err) {
    const ds_mixed_options *options = &s->options;
    for (ds_mixed_goal goal = DS_MIXED_STEP_TIME; goal <= DS_MIXED_COST; goal++)
        if (goal != options->goal)
            DS_TRY(search_goal(s, goal, options->within_s, n_estimated, err));
    double fast_s = best_step_s(*s, DS_MIXED_STEP_TIME), cheap_s = best_step_s(*s, DS_MIXED_COST);
    for (int part = 1; part < 3 && fast_s < cheap_s; part++)
        DS_TRY(search_goal(s, DS_MIXED_COST, fast_s * pow(cheap_s / fast_s, part / 3.0),
                           n_estimated, err));
    return DS_OK;
}

ds_status ds_mixed_search(const ds_mixed_problem *problem, const ds_mixed_options *options,
                          ds_mixed_result *result, ds_error *err) {
    searcher s = {.problem = problem, .options = *options, .most = options->max_runs};
    *result = (ds_mixed_result){0};
    s.tried = calloc((options->front ? SEARCHES : 1) * (size_t)s.most + 1, sizeof *s.tried);
    ds_status status = search_goal(&s, options->goal, options->within_s, &result->n_estimated, err);
    if (status == DS_OK && options->front) status = search_front(&s, &result->n_estimated, err);
    if (status == DS_OK) take_result(&s, result);
    free(s.tried);
    return status;
}

void ds_mixed_result_deinit(ds_mixed_result *result) {
    free(result->plans);
    *result = (ds_mixed_result){0};
}
