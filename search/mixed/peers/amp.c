/* AMP: one dp, tp and pp for the whole cluster, all devices; ranks are placed in the order of the kinds, tp
 * innermost, stages outermost; the layers are cut by a dynamic programme under AMP's cost. */
#include "search/mixed/peers/peers.h"

#include <math.h>
#include <string.h>

enum { MOST_LAYERS = 128 };

/* The kind of the slowest device of each stage, of so many devices each. */
static bool place(const ds_mixed_problem *problem, ds_mixed_plan *plan) {
    uint32_t at = 0, left = problem->kinds[plan->order[0]].n_devices;
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        ds_mixed_stage *stage = &plan->stages[s];
        double slowest = -1;
        for (uint32_t need = (uint32_t)stage->dp * stage->tp; need > 0;) {
            uint32_t part = need < left ? need : left;
            ds_mixed_stage one = *stage;
            one.kind = plan->order[at];
            one.layers = 1;
            if (part % stage->tp) return false; /* tp over two kinds */
            uint32_t t = 0;
            while (1u << t < stage->tp) t++;
            if (!problem->kinds[one.kind].pieces[t].known) return false;
            double time = ds_mixed_stage_s(problem, &one, 1, false, false);
            if (time > slowest) slowest = time, stage->kind = one.kind;
            need -= part;
            left -= part;
            if (!left && ++at < problem->n_kinds) left = problem->kinds[plan->order[at]].n_devices;
        }
    }
    return true;
}

/* Least Σ t_s with each t_s at most `bound`; the cut into `layers`. HUGE_VAL: none. */
static double cut_within(const ds_mixed_problem *problem, const ds_mixed_plan *plan,
                         const double *each, double ends, double bound, uint16_t *layers) {
    static const double none = HUGE_VAL;
    double best[DS_MIXED_STAGES + 1][MOST_LAYERS + 1];
    uint16_t took[DS_MIXED_STAGES + 1][MOST_LAYERS + 1];
    uint32_t n = plan->n_stages, all = problem->layers;
    for (uint32_t l = 0; l <= all; l++) best[0][l] = l ? none : 0;
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t l = 0; l <= all; l++) {
            best[s + 1][l] = none;
            for (uint16_t k = 1; k <= l; k++) {
                double time = k * each[s] + (s + 1 == n ? ends : 0);
                if (time > bound) break;
                if (best[s][l - k] + time >= best[s + 1][l]) continue;
                best[s + 1][l] = best[s][l - k] + time;
                took[s + 1][l] = k;
            }
        }
    if (best[n][all] == none) return none;
    for (uint32_t s = n, l = all; s > 0; s--) {
        layers[s - 1] = took[s][l];
        l -= took[s][l];
    }
    return best[n][all];
}

/* AMP's programme: (m - 1) max t_s + Σ t_s over all bounds that a stage's time can be. */
static bool cut(const ds_mixed_problem *problem, ds_mixed_plan *plan) {
    double each[DS_MIXED_STAGES], least = HUGE_VAL;
    uint16_t layers[DS_MIXED_STAGES];
    uint32_t n = plan->n_stages;
    if (n > problem->layers || problem->layers > MOST_LAYERS) return false;
    for (uint32_t s = 0; s < n; s++) each[s] = ds_mixed_peer_layer_s(problem, plan, s);
    ds_mixed_stage last = plan->stages[n - 1];
    last.layers = 1;
    double samples = (double)problem->batch / (double)plan->microbatches / last.dp;
    double ends = ds_mixed_stage_s(problem, &last, samples, true, false) - each[n - 1];
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t l = 1; l + n <= problem->layers + 1; l++) {
            bool seen = s + 1 < n && s > 0 && each[s] == each[s - 1];
            double bound = (l * each[s] + (s + 1 == n ? ends : 0)) * (1 + 1e-12);
            if (seen || (double)(plan->microbatches - 1) * bound >= least) continue;
            double sum = cut_within(problem, plan, each, ends, bound, layers);
            double cost = (double)(plan->microbatches - 1) * bound + sum;
            if (cost >= least) continue;
            least = cost;
            for (uint32_t i = 0; i < n; i++) plan->stages[i].layers = layers[i];
        }
    return least < HUGE_VAL;
}

/* One stage: equal parts over all kinds. */
static void try_one_stage(const ds_mixed_problem *problem, const ds_mixed_plan *plan,
                          ds_mixed_peer_plans *out) {
    ds_mixed_plan one = *plan;
    double slowest = 0;
    int64_t microbatch = problem->batch / plan->microbatches;
    one.in_order = false;
    one.side_by_side = true;
    one.stages[0].layers = (uint16_t)problem->layers;
    for (uint32_t i = 0; i < problem->n_kinds; i++) {
        uint16_t replicas =
            (uint16_t)(problem->kinds[plan->order[i]].n_devices / plan->stages[0].tp);
        one.groups[one.n_groups++] =
            (ds_mixed_group){plan->order[i], replicas, microbatch / plan->stages[0].dp * replicas};
        ds_mixed_stage stage = one.stages[0];
        stage.kind = plan->order[i];
        slowest =
            fmax(slowest, ds_mixed_stage_s(problem, &stage, (double)microbatch / plan->stages[0].dp,
                                           true, false));
    }
    double sum = 2 * problem->mixed_sync_s_per_byte[0] *
                 (problem->layers * problem->layer_params + problem->ends_params);
    if (ds_mixed_fits(problem, &one))
        ds_mixed_peer_keep(out, &one, (double)plan->microbatches * slowest + sum);
}

static void try_degrees(const ds_mixed_problem *problem, ds_mixed_plan *plan,
                        ds_mixed_peer_plans *out) {
    uint32_t dp = plan->stages[0].dp;
    for (int64_t m = 1; m <= problem->batch; m++) {
        plan->microbatches = m;
        if (problem->batch % m || problem->batch / m % dp) continue;
        if (!place(problem, plan)) return;
        if (plan->n_stages == 1) {
            try_one_stage(problem, plan, out);
        } else if (cut(problem, plan) && ds_mixed_fits(problem, plan)) {
            ds_mixed_peer_keep(out, plan, ds_mixed_peer_cost(problem, plan));
        }
    }
}

void ds_mixed_peer_amp(const ds_mixed_problem *problem, ds_mixed_peer_plans *out) {
    uint32_t all = 0, most = problem->cuts ? problem->layers : 1;
    ds_mixed_plan plan = {.in_order = true};
    for (uint32_t k = 0; k < problem->n_kinds; k++) {
        all += problem->kinds[k].n_devices;
        plan.order[k] = (uint8_t)k;
    }
    do {
        for (uint32_t tp = 1; tp <= 1u << (DS_MIXED_TPS - 1); tp *= 2)
            for (uint32_t pp = 1; pp <= most && pp <= DS_MIXED_STAGES; pp++) {
                if (all % (tp * pp)) continue;
                plan.n_stages = (uint8_t)pp;
                for (uint32_t s = 0; s < pp; s++)
                    plan.stages[s] =
                        (ds_mixed_stage){0, (uint16_t)(all / tp / pp), (uint16_t)tp, 0};
                try_degrees(problem, &plan, out);
            }
    } while (ds_mixed_peer_next_order(plan.order, problem->n_kinds));
}
