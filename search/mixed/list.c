/* All structures of plans: kinds in every order, stages, widths, microbatches.
 *
 * Widths: dp divides the batch, tp is a power of two inside of a machine, stages of one kind are alike.
 * Numbers of stages are all of the small ones, and halves and three quarters of the largest. */
#include "search/mixed/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SAMPLES = 64, EVERY_NUMBER = 8, LATE = 1000 };

typedef struct lister {
    const ds_mixed_problem *problem;
    ds_mixed__pool *pool;
    int64_t divisors[512];
    uint32_t n_divisors;
    /* Layers of a sample that a stage of one replica does in a second at most, and a device. */
    double stage_rate[DS_MIXED_KINDS][DS_MIXED_TPS], device_rate[DS_MIXED_KINDS];
} lister;

/* ---- the pool ---- */

/* Stages of the same widths, or replicas on the same kinds and of the same pipelines. */
static bool has_same_shape(const ds_mixed_plan *a, const ds_mixed_plan *b) {
    if (a->side_by_side != b->side_by_side || a->n_stages != b->n_stages ||
        a->n_groups != b->n_groups)
        return false;
    for (uint32_t s = 0; s < a->n_stages; s++)
        if (a->stages[s].kind != b->stages[s].kind || a->stages[s].dp != b->stages[s].dp ||
            a->stages[s].tp != b->stages[s].tp)
            return false;
    for (uint32_t g = 0; g < a->n_groups; g++)
        if (a->groups[g].kind != b->groups[g].kind) return false;
    return true;
}

static void drop(ds_mixed__pool *pool, uint32_t i) {
    pool->n--;
    memmove(pool->plans + i, pool->plans + i + 1, (pool->n - i) * sizeof *pool->plans);
    memmove(pool->values + i, pool->values + i + 1, (pool->n - i) * sizeof *pool->values);
}

static double value_of(const ds_mixed__pool *pool, const ds_mixed_plan *plan) {
    const double s = plan->estimate_s;
    double goal = ds_mixed_value(pool->problem, plan, pool->goal, &pool->faults, s);
    if (pool->within_s > 0 && s > pool->within_s) goal *= LATE * s / pool->within_s;
    return goal;
}

static void offer(ds_mixed__pool *pool, const ds_mixed_plan *plan) {
    double value = value_of(pool, plan);
    uint32_t alike = 0, last = 0, at = 0;
    pool->n_estimated++;
    if (pool->n == DS_MIXED__POOL && value >= pool->values[pool->n - 1]) return;
    for (uint32_t i = 0; i < pool->n; i++)
        if (has_same_shape(&pool->plans[i], plan)) alike++, last = i;
    if (alike == DS_MIXED__ALIKE) {
        if (value >= pool->values[last]) return;
        drop(pool, last);
    } else if (pool->n == DS_MIXED__POOL) {
        drop(pool, pool->n - 1);
    }
    while (at < pool->n && pool->values[at] <= value) at++;
    memmove(pool->plans + at + 1, pool->plans + at, (pool->n - at) * sizeof *pool->plans);
    memmove(pool->values + at + 1, pool->values + at, (pool->n - at) * sizeof *pool->values);
    pool->plans[at] = *plan;
    pool->values[at] = value;
    pool->n++;
}

/* Times lie on lines between the measured numbers of samples, and on the last line beyond. */
static void find_rates(lister *l) {
    for (uint32_t k = 0; k < l->problem->n_kinds; k++)
        for (uint32_t t = 0; t < DS_MIXED_TPS; t++) {
            const ds_mixed_piece *piece = &l->problem->kinds[k].pieces[t];
            const double *s = piece->layer_s, last = s[DS_MIXED_SAMPLES - 1];
            double rate = (1 << (DS_MIXED_SAMPLES - 2)) / (last - s[DS_MIXED_SAMPLES - 2]);
            if (!piece->known) continue;
            if (!(rate > 0)) rate = HUGE_VAL;
            for (uint32_t i = 0; i < DS_MIXED_SAMPLES; i++) rate = fmax(rate, (1 << i) / s[i]);
            l->stage_rate[k][t] = rate;
            l->device_rate[k] = fmax(l->device_rate[k], rate / (1 << t));
        }
}

/* Would the pool take the plan? */
static bool is_offer(const lister *l, const ds_mixed_plan *plan) {
    return l->pool->n < DS_MIXED__POOL ||
           value_of(l->pool, plan) < l->pool->values[DS_MIXED__POOL - 1];
}

/* Can a plan with these stages or groups, whose layers are done at most at `rate`, come into the pool? The layers
 * of all samples take their time on whatever devices. Devices that join later add to prices. */
static bool may_enter(const lister *l, ds_mixed_plan *plan, double rate) {
    plan->estimate_s = (double)l->problem->batch * l->problem->layers / rate;
    return is_offer(l, plan);
}

static bool scatters_faster(const ds_mixed_problem *problem) {
    bool any = problem->mixed_sync_s_per_byte[1] < problem->mixed_sync_s_per_byte[0];
    for (uint32_t k = 0; k < problem->n_kinds; k++)
        for (uint32_t i = 0; i < DS_MIXED_SPANS; i++)
            any = any ||
                  problem->kinds[k].sync_s_per_byte[1][i] < problem->kinds[k].sync_s_per_byte[0][i];
    return any;
}

bool ds_mixed__complete(const ds_mixed_problem *problem, ds_mixed_plan *plan) {
    ds_mixed_plan best = {.estimate_s = HUGE_VAL};
    for (int recompute = problem->recomputes; recompute < 2 && best.estimate_s == HUGE_VAL;
         recompute++) {
        plan->recompute = recompute;
        if (plan->side_by_side && !ds_mixed_share(problem, plan)) return false;
        for (uint8_t zero = 0; zero < 2; zero++) {
            if (zero && best.estimate_s < HUGE_VAL && !scatters_faster(problem)) break;
            plan->zero = zero;
            if (!ds_mixed_cut(problem, NULL, plan)) continue;
            ds_mixed_estimate(problem, plan);
            if (plan->estimate_s < best.estimate_s) best = *plan;
        }
    }
    *plan = best;
    return best.estimate_s < HUGE_VAL;
}

static void complete(lister *l, const ds_mixed_plan *plan) {
    ds_mixed_plan whole = *plan;
    whole.eager = plan->n_groups == 0 && plan->n_stages > 1;
    if (ds_mixed__complete(l->problem, &whole)) offer(l->pool, &whole);
}

/* ---- one after the other ---- */

/* The same for stages and microbatches: (m - 1) times the busiest stage, if layers could be cut anywhere, and each
 * layer once. */
static bool may_enter_cut(const lister *l, ds_mixed_plan *plan) {
    double layers = l->problem->layers, done = 0, least = HUGE_VAL;
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        ds_mixed_stage one = plan->stages[s];
        double samples = (double)l->problem->batch / (double)plan->microbatches / one.dp;
        one.layers = 1;
        double each = ds_mixed_stage_s(l->problem, &one, samples, false, false);
        done += 1 / each;
        least = fmin(least, each);
        if (s + 1 < plan->n_stages) continue;
        double ends = ds_mixed_stage_s(l->problem, &one, samples, true, false) - each;
        layers += ends / each;
    }
    double busiest = layers / done;
    plan->estimate_s =
        (double)(plan->microbatches - 1) * busiest + fmax(busiest, l->problem->layers * least);
    return is_offer(l, plan);
}

static void try_microbatches(lister *l, ds_mixed_plan *plan) {
    for (uint32_t i = 0; i < l->n_divisors; i++) {
        int64_t m = l->divisors[i], microbatch = l->problem->batch / m;
        bool may = true;
        for (uint32_t s = 0; s < plan->n_stages && may; s++)
            may = microbatch % plan->stages[s].dp == 0 &&
                  microbatch / plan->stages[s].dp <= MOST_SAMPLES;
        plan->microbatches = m;
        if (may && 2 * m >= plan->n_stages && may_enter_cut(l, plan)) complete(l, plan);
    }
}

static uint32_t next_number(uint32_t n, uint32_t most) {
    if (n < EVERY_NUMBER) return n + 1;
    for (uint32_t part = 8; part > 1; part /= 2) {
        if (n < most / part) return most / part;
        if (part == 2 && n < most / 4 * 3) return most / 4 * 3;
    }
    return n < most / 4 * 3 ? most / 4 * 3 : n < most ? most : most + 1;
}

/* The plan has stages on the kinds in `taken`; one more kind follows, or none. */
static void add_kind(lister *l, ds_mixed_plan *plan, unsigned taken, double rate) {
    const ds_mixed_problem *problem = l->problem;
    uint32_t before = plan->n_stages;
    uint32_t most_stages = problem->layers < DS_MIXED_STAGES ? problem->layers : DS_MIXED_STAGES;
    double others = 0;
    for (uint32_t k = 0; k < problem->n_kinds; k++)
        if (!(taken >> k & 1)) others += problem->kinds[k].n_devices * l->device_rate[k];
    if (before && !may_enter(l, plan, rate + others)) return;
    if (before > 1 && may_enter(l, plan, rate)) try_microbatches(l, plan);
    for (uint32_t k = 0; k < problem->n_kinds; k++) {
        const ds_mixed_kind *kind = &problem->kinds[k];
        if (taken >> k & 1) continue;
        for (uint32_t t = 0; t < DS_MIXED_TPS; t++)
            for (uint32_t d = 0; d < l->n_divisors && kind->pieces[t].known; d++) {
                uint64_t width = (uint64_t)l->divisors[d] << t;
                if (width > kind->n_devices) break;
                uint32_t most = (uint32_t)(kind->n_devices / width);
                if (most > most_stages - before) most = most_stages - before;
                for (uint32_t n = 1; n <= most; n = next_number(n, most)) {
                    /* of four kinds each has more than half of its devices at work, or none */
                    if (problem->n_kinds > 3 && 2 * width * n <= kind->n_devices) continue;
                    for (uint32_t s = before; s < before + n; s++)
                        plan->stages[s] = (ds_mixed_stage){(uint8_t)k, (uint16_t)l->divisors[d],
                                                           (uint16_t)(1u << t), 0};
                    plan->n_stages = (uint8_t)(before + n);
                    add_kind(l, plan, taken | 1u << k,
                             rate + (double)n * (double)l->divisors[d] * l->stage_rate[k][t]);
                }
                plan->n_stages = (uint8_t)before;
            }
    }
}

/* ---- side by side ---- */

static void try_shares(lister *l, ds_mixed_plan *plan) {
    uint32_t n = 0, t = 0;
    double rate = 0;
    while (1u << t < plan->stages[0].tp) t++;
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        n += plan->groups[g].replicas;
        rate += plan->groups[g].replicas * l->stage_rate[plan->groups[g].kind][t];
    }
    if (!may_enter(l, plan, rate * plan->n_stages)) return;
    for (uint32_t i = 0; i < l->n_divisors; i++) {
        int64_t microbatch = l->problem->batch / l->divisors[i];
        plan->microbatches = l->divisors[i];
        if (microbatch < n || microbatch / n > MOST_SAMPLES ||
            2 * plan->microbatches < plan->n_stages)
            continue;
        complete(l, plan);
    }
}

/* All replicas that a kind has room for, and powers of two. */
static void add_group(lister *l, ds_mixed_plan *plan, uint32_t k) {
    const ds_mixed_problem *problem = l->problem;
    uint32_t pipeline = (uint32_t)plan->n_stages * plan->stages[0].tp, tp = 0;
    if (k == problem->n_kinds) {
        if (plan->n_groups) try_shares(l, plan);
        return;
    }
    add_group(l, plan, k + 1);
    while (1u << tp < plan->stages[0].tp) tp++;
    uint32_t most = problem->kinds[k].n_devices / pipeline;
    if (!problem->kinds[k].pieces[tp].known) return;
    plan->n_groups++;
    for (uint32_t n = 1; n <= most; n = n < EVERY_NUMBER || n == most ? n + 1
                                        : 2 * n < most                ? 2 * n
                                                                      : most) {
        plan->groups[plan->n_groups - 1] = (ds_mixed_group){(uint8_t)k, (uint16_t)n, 0};
        add_group(l, plan, k + 1);
    }
    plan->n_groups--;
}

static void add_pipelines(lister *l, ds_mixed_plan *plan) {
    uint32_t most = 1;
    for (uint32_t k = 0; k < l->problem->n_kinds && l->problem->cuts; k++)
        if (l->problem->kinds[k].n_devices > most) most = l->problem->kinds[k].n_devices;
    if (most > l->problem->layers) most = l->problem->layers;
    if (most > DS_MIXED_STAGES) most = DS_MIXED_STAGES;
    for (uint32_t t = 0; t < DS_MIXED_TPS; t++)
        for (uint32_t n = 1; n <= most; n = next_number(n, most)) {
            for (uint32_t s = 0; s < n; s++)
                plan->stages[s] = (ds_mixed_stage){0, 0, (uint16_t)(1u << t), 0};
            plan->n_stages = (uint8_t)n;
            add_group(l, plan, 0);
        }
}

/* ---- the whole ---- */

/* The cut of the busiest stage need not be that of the shortest step: layers move from stage to stage
 * while the estimate falls. */
static void settle(const ds_mixed_problem *problem, ds_mixed_plan *plan) {
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t s = 0; s < 2u * plan->n_stages - 2u && !moved; s++) {
            ds_mixed_plan next = *plan;
            uint32_t from = s / 2 + s % 2, to = s / 2 + 1 - s % 2;
            if (next.stages[from].layers < 2) continue;
            next.stages[from].layers--;
            next.stages[to].layers++;
            ds_mixed_estimate(problem, &next);
            moved = next.estimate_s < plan->estimate_s;
            if (moved) *plan = next;
        }
    }
}

/* Offers the settled plans again. */
static void settle_pool(ds_mixed__pool *pool) {
    ds_mixed__pool *old = malloc(sizeof *old);
    *old = *pool;
    pool->n = 0;
    for (uint32_t i = 0; i < old->n; i++) {
        settle(pool->problem, &old->plans[i]);
        offer(pool, &old->plans[i]);
    }
    pool->n_estimated = old->n_estimated;
    free(old);
}

void ds_mixed__list(ds_mixed__pool *pool) {
    const ds_mixed_problem *problem = pool->problem;
    lister l = {.problem = problem, .pool = pool};
    const uint32_t most = sizeof l.divisors / sizeof *l.divisors;
    for (int64_t d = 1; d <= problem->batch && l.n_divisors < most; d++)
        if (problem->batch % d == 0) l.divisors[l.n_divisors++] = d;
    find_rates(&l);
    ds_mixed_plan plan = {0};
    if (problem->cuts) add_kind(&l, &plan, 0, 0);
    plan = (ds_mixed_plan){.side_by_side = true};
    add_pipelines(&l, &plan);
    settle_pool(pool);
}
