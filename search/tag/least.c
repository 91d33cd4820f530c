/* The least computation of any deployment under distsim's own semantics.
 *
 * The first GPU of a machine is in every action that takes the machine, and computes for no longer
 * than the step takes. So for any weights of machines that add up to 1
 *
 *     step >= sum over machines m of w(m) · load(m)
 *          >= sum over groups g of the least, over actions a, of sum over m of w(m) · load(g, a, m),
 *
 * which is the Lagrangian bound of the best balance. Weights rise where the loads of the least actions
 * are above the mean. Source: Held and Karp, "The traveling-salesman problem and minimum spanning
 * trees: part II", Mathematical Programming 1, 1971. */
#include "search/tag/plan.h"

#include <math.h>

enum { ROUNDS = 400, MOST_MACHINES = 8 };

typedef struct loads {
    uint32_t n_groups, n_actions, n_machines;
    double *us; /* [group][action][machine] */
} loads;

/* Samples of the machine's first GPU in the action; 0: none is in it. */
static int64_t samples_of(const ds_tag_problem *p, const ds_tag_action *a, uint32_t machine) {
    uint64_t here = ds_tag_gpus_of(&p->cluster, UINT64_C(1) << machine) & a->gpus;
    if (!here) return 0;
    uint64_t before = a->gpus & ((here & -here) - 1);
    uint32_t n = (uint32_t)__builtin_popcountll(a->gpus);
    if (a->share) return a->share[__builtin_popcountll(before)];
    return p->batch / n;
}

static double op_us(const ds_tag_choices *c, uint32_t op, uint32_t action, uint32_t machine) {
    const ds_tag_problem *p = &c->model->problem;
    const ds_tag_action *a = &c->action[action];
    uint32_t kind = p->cluster.machine[machine].kind;
    int64_t samples = samples_of(p, a, machine);
    if (!(ds_tag_gpus_of(&p->cluster, UINT64_C(1) << machine) & a->gpus)) return 0;
    if (ds_tag_choices_columns(c, c->model->base_of[op], action))
        return ds_tag_op_us(&p->graph, op, kind, p->batch) / __builtin_popcountll(a->gpus);
    bool is_cut = a->way == DS_TAG_ALL_REDUCE && p->graph.op[op].result != DS_TAG_WHOLE;
    return ds_tag_op_us(&p->graph, op, kind, is_cut ? samples : p->batch);
}

static void find_loads(const ds_tag_choices *c, ds_arena *arena, loads *l) {
    const ds_tag_graph *g = &c->model->problem.graph;
    *l = (loads){g->n_groups, c->n, c->model->problem.cluster.n_machines, NULL};
    l->us = DS_NEW_N(arena, double, (size_t)l->n_groups * l->n_actions * l->n_machines);
    for (uint32_t op = 0; op < g->n_ops; op++)
        for (uint32_t a = 0; a < c->n && g->op[op].n_parents > 0; a++)
            for (uint32_t m = 0; m < l->n_machines; m++)
                l->us[((size_t)g->op[op].group * c->n + a) * l->n_machines + m] +=
                    op_us(c, op, a, m);
}

/* The bound of these weights; load[machine]: of the actions that it took. */
static double bound_of(const loads *l, const double *weight, double *load) {
    double sum = 0;
    for (uint32_t m = 0; m < l->n_machines; m++) load[m] = 0;
    for (uint32_t g = 0; g < l->n_groups; g++) {
        const double *best = NULL;
        double least = INFINITY;
        for (uint32_t a = 0; a < l->n_actions; a++) {
            const double *us = &l->us[((size_t)g * l->n_actions + a) * l->n_machines];
            double weighed = 0;
            for (uint32_t m = 0; m < l->n_machines; m++) weighed += weight[m] * us[m];
            if (weighed >= least) continue;
            least = weighed;
            best = us;
        }
        for (uint32_t m = 0; m < l->n_machines; m++) load[m] += best[m];
        sum += least;
    }
    return sum;
}

double ds_tag_least_us(const ds_tag_choices *choices) {
    double weight[MOST_MACHINES], load[MOST_MACHINES], most = 0;
    ds_arena arena;
    loads l;
    ds_arena_init(&arena);
    find_loads(choices, &arena, &l);
    for (uint32_t m = 0; m < l.n_machines; m++) weight[m] = 1.0 / l.n_machines;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        double us = bound_of(&l, weight, load), sum = 0, highest = 0;
        if (us > most) most = us;
        for (uint32_t m = 0; m < l.n_machines; m++) highest = fmax(highest, load[m]);
        for (uint32_t m = 0; m < l.n_machines && highest > 0; m++)
            weight[m] *= 1 + (load[m] / highest - 0.5) / sqrt(round);
        for (uint32_t m = 0; m < l.n_machines; m++) sum += weight[m];
        for (uint32_t m = 0; m < l.n_machines; m++) weight[m] /= sum;
    }
    ds_arena_deinit(&arena);
    return most;
}
