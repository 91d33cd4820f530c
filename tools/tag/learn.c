#include "tools/tag/learn.h"

#include "ir/base/map.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { LEAST_VISITS = 12, BATCH = 8 };

/* A state of a game, and what the search made of it. */
typedef struct lesson {
    ds_tag_state state;
    double *share; /* [n_actions] */
} lesson;

typedef struct learner {
    ds_arena arena;
    DS_VEC(lesson) lessons;
    const ds_tag_problem *problem; /* of the game that is told */
    const ds_tag_view *view;
    uint64_t hash;
    ds_status status;
    ds_error *err;
} learner;

/* ---- games ---- */

static int64_t *copy(ds_arena *arena, const int64_t *from, size_t n) {
    int64_t *made = DS_NEW_N(arena, int64_t, n + 1);
    if (n) memcpy(made, from, n * sizeof *made);
    return made;
}

/* Keeps what a prior reads of a simulation. */
static ds_status keep_outcome(learner *l, const ds_tag_action *action, ds_tag_outcome **out) {
    uint32_t n_gpus = ds_tag_n_gpus(&l->problem->cluster), n_ops = l->problem->graph.n_ops;
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_tag_outcome *kept = DS_NEW(&l->arena, ds_tag_outcome);
    ds_status status = ds_tag_simulate(l->problem, action, &scratch, kept, l->err);
    if (status == DS_OK) {
        kept->peak_bytes = copy(&l->arena, kept->peak_bytes, n_gpus);
        kept->busy_us = copy(&l->arena, kept->busy_us, n_gpus);
        kept->op_us = copy(&l->arena, kept->op_us, n_ops);
        kept->op_idle_us = copy(&l->arena, kept->op_idle_us, n_ops);
        kept->utilisation = NULL;
    }
    ds_arena_deinit(&scratch);
    *out = kept;
    return status;
}

static void take(void *context, const ds_tag_action *action, uint32_t depth, const double *share) {
    learner *l = context;
    ds_tag_outcome *outcome;
    if (l->status != DS_OK) return;
    uint32_t n_groups = l->problem->graph.n_groups, n_actions = ds_tag_view_n_actions(l->view);
    ds_tag_action *kept = DS_NEW_N(&l->arena, ds_tag_action, n_groups);
    memcpy(kept, action, depth * sizeof *kept);
    l->status = keep_outcome(l, kept, &outcome);
    lesson made = {{l->view, kept, depth, outcome}, DS_NEW_N(&l->arena, double, n_actions)};
    memcpy(made.share, share, n_actions * sizeof *share);
    l->hash = ds_hash_mix(l->hash, ds_hash_bytes(share, n_actions * sizeof *share));
    l->hash = ds_hash_mix(l->hash, (uint64_t)outcome->makespan_us);
    DS_PUSH(&l->arena, &l->lessons, made);
}

static ds_status play(learner *l, const play_models *models, const learn_options *o,
                      uint32_t number, ds_error *err) {
    play_game *game = DS_NEW(&l->arena, play_game);
    ds_tag_action *actions;
    ds_tag_tree *tree;
    uint32_t n_actions;
    play_game_draw(models, &o->left, o->seed, number, false, game);
    DS_TRY(ds_tag_actions(&game->problem, &l->arena, &actions, &n_actions, err));
    l->problem = &game->problem;
    l->view = ds_tag_view_new(&game->problem, actions, n_actions, &l->arena);
    DS_TRY(play_tree(game, NULL, &tree, err));
    ds_status status = ds_tag_tree_run(tree, o->playouts, err);
    if (status == DS_OK) ds_tag_tree_each(tree, LEAST_VISITS, take, l);
    ds_tag_tree_free(tree);
    return status == DS_OK ? l->status : status;
}

/* ---- learning ---- */

static double entropy_of(const double *share, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (share[i] > 0) sum -= share[i] * log(share[i]);
    return sum;
}

/* Epochs of as many states as there are, drawn with repetition; the mean loss of the last. */
static double learn(const learner *l, const learn_options *o, ds_tag_prior *prior) {
    ds_rng rng = {o->seed};
    double loss = 0;
    for (uint32_t i = 0; i < o->epochs * l->lessons.n; i++) {
        const lesson *at = &l->lessons.at[ds_rng_below(&rng, l->lessons.n)];
        ds_arena scratch;
        if (i % l->lessons.n == 0) loss = 0;
        ds_arena_init(&scratch);
        loss += ds_tag_prior_learn(prior, &at->state, at->share, &scratch) / l->lessons.n;
        ds_arena_deinit(&scratch);
        if (i % BATCH == BATCH - 1) ds_nn_adam(ds_tag_prior_params(prior), 1e-3, 5);
    }
    return loss;
}

ds_status learn_priors(const play_models *models, const learn_options *o,
                       ds_tag_prior *out[DS_TAG_N_PRIORS], learn_report *report, ds_error *err) {
    learner l = {.err = err};
    ds_status status = DS_OK;
    ds_arena_init(&l.arena);
    for (uint32_t i = 0; i < o->games && status == DS_OK; i++) status = play(&l, models, o, i, err);
    *report = (learn_report){.n_states = l.lessons.n, .data_hash = l.hash};
    for (uint32_t i = 0; i < l.lessons.n; i++) {
        uint32_t n_actions = ds_tag_view_n_actions(l.lessons.at[i].state.view);
        report->entropy += entropy_of(l.lessons.at[i].share, n_actions) / l.lessons.n;
        report->uniform_loss += log(n_actions) / l.lessons.n;
    }
    for (uint32_t k = 0; k < DS_TAG_N_PRIORS && status == DS_OK; k++) {
        clock_t start = clock();
        out[k] = ds_tag_prior_new((ds_tag_prior_kind)k, o->seed);
        report->loss[k] = learn(&l, o, out[k]);
        report->cpu_s[k] = (double)(clock() - start) / CLOCKS_PER_SEC;
    }
    ds_arena_deinit(&l.arena);
    return status;
}
