/* Local improvement under TAG's rules: changes of one group, then of two groups at once, and new
 * starts near the best deployment. */
#include "search/tag/puct.h"

#include "ir/base/rng.h"

#include <string.h>

typedef struct improver {
    const ds_tag_problem *problem;
    const ds_tag_action *actions;
    uint32_t n_actions, n_groups;
    uint64_t n, most; /* simulations */
    ds_tag_action *at;
    int64_t at_us;
} improver;

/* INT64_MAX: it does not fit, or its collectives wait for each other. */
static int64_t simulate(improver *x, const ds_tag_action *action) {
    ds_arena arena;
    ds_tag_outcome out;
    ds_arena_init(&arena);
    x->n++;
    bool runs = ds_tag_simulate(x->problem, action, &arena, &out, NULL) == DS_OK && out.fits;
    int64_t us = runs ? out.makespan_us : INT64_MAX;
    ds_arena_deinit(&arena);
    return us;
}

/* Tries one change; keeps it if it is better. */
static bool try_actions(improver *x, uint32_t g, uint32_t a, uint32_t h, uint32_t b) {
    ds_tag_action was_g = x->at[g], was_h = x->at[h];
    if (x->n >= x->most) return false;
    x->at[g] = x->actions[a];
    if (h != g) x->at[h] = x->actions[b];
    int64_t us = simulate(x, x->at);
    if (us < x->at_us) {
        x->at_us = us;
        return true;
    }
    x->at[h] = was_h;
    x->at[g] = was_g;
    return false;
}

static bool improve_singles(improver *x) {
    bool better = false;
    for (uint32_t g = 0; g < x->n_groups; g++)
        for (uint32_t a = 0; a < x->n_actions; a++) better |= try_actions(x, g, a, g, a);
    return better;
}

/* The first better pair, since single changes may follow. */
static bool improve_pairs(improver *x) {
    for (uint32_t g = 0; g < x->n_groups; g++)
        for (uint32_t h = g + 1; h < x->n_groups; h++)
            for (uint32_t a = 0; a < x->n_actions; a++)
                for (uint32_t b = 0; b < x->n_actions; b++)
                    if (try_actions(x, g, a, h, b)) return true;
    return false;
}

static void descend(improver *x) {
    do
        while (improve_singles(x)) {
        }
    while (improve_pairs(x));
}

void ds_tag_improve(const ds_tag_improvement *what, ds_tag_action *action, int64_t *us,
                    uint64_t *n_simulations) {
    ds_arena arena;
    ds_arena_init(&arena);
    ds_rng rng = {ds_rng_at(what->seed, 0, 0, 0)};
    uint32_t n_groups = what->problem->graph.n_groups;
    size_t bytes = n_groups * sizeof *action;
    improver x = {.problem = what->problem,
                  .actions = what->actions,
                  .n_actions = what->n_actions,
                  .n_groups = n_groups,
                  .most = what->n_simulations};
    x.at = DS_NEW_N(&arena, ds_tag_action, n_groups + 1);
    memcpy(x.at, action, bytes);
    *us = x.at_us = simulate(&x, x.at);
    for (;;) {
        descend(&x);
        if (x.at_us < *us) {
            *us = x.at_us;
            memcpy(action, x.at, bytes);
        }
        if (x.n >= x.most) break;
        memcpy(x.at, action, bytes); /* away from the best, by half of the groups at least */
        for (uint32_t k = 0; k < n_groups / 2 + 1; k++)
            x.at[ds_rng_below(&rng, n_groups)] = x.actions[ds_rng_below(&rng, x.n_actions)];
        x.at_us = simulate(&x, x.at);
    }
    *n_simulations = x.n;
    ds_arena_deinit(&arena);
}
