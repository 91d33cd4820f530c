/* Priors: gradients of both networks against differences, what a trained network prefers, and the
 * tree with a prior. */
#include "search/tag/puct.h"
#include "tests/support/cases.h"
#include "tests/support/generate/random_tag.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* A partial deployment of a random problem, with its simulation. */
typedef struct prior_case {
    random_tag r;
    ds_arena arena;
    ds_tag_action *actions;
    uint32_t n_actions;
    ds_tag_outcome outcome;
    ds_tag_state state;
    double *target;
} prior_case;

/* The batch of 24 is divided by all numbers of GPUs up to four and by eight. */
static void make(prior_case *c, uint64_t seed, uint32_t depth) {
    ds_error err;
    for (;; seed += 1000) {
        random_tag_make(&c->r, seed, true);
        c->r.problem.batch = 24;
        c->r.problem.quirks = DS_TAG_RELEASED & ~(uint32_t)DS_TAG_COLLECTIVE_CHAIN;
        memset(c->r.action, 0, sizeof c->r.action);
        ds_arena_init(&c->arena);
        cr_assert_eq(ds_tag_actions(&c->r.problem, &c->arena, &c->actions, &c->n_actions, &err),
                     DS_OK);
        if (c->r.problem.graph.n_groups > depth && c->n_actions > 2) break;
        ds_arena_deinit(&c->arena);
    }
    ds_rng rng = {seed};
    for (uint32_t g = 0; g < depth; g++)
        c->r.action[g] = c->actions[ds_rng_below(&rng, c->n_actions)];
    cr_assert_eq(ds_tag_simulate(&c->r.problem, c->r.action, &c->arena, &c->outcome, &err), DS_OK,
                 "%s", err.message);
    c->state = (ds_tag_state){ds_tag_view_new(&c->r.problem, c->actions, c->n_actions, &c->arena),
                              c->r.action, depth, &c->outcome};
    c->target = DS_NEW_N(&c->arena, double, c->n_actions);
    for (uint32_t a = 0; a < c->n_actions; a++) c->target[a] = 1.0 / c->n_actions;
    c->target[0] += 0.5 / c->n_actions;
    c->target[1] -= 0.5 / c->n_actions;
}

static double loss_of(const ds_tag_prior *prior, prior_case *c) {
    ds_arena scratch;
    double p[200], loss = 0;
    ds_arena_init(&scratch);
    ds_tag_prior_of(prior, &c->state, &scratch, p);
    for (uint32_t a = 0; a < c->n_actions; a++) loss -= c->target[a] * log(p[a]);
    ds_arena_deinit(&scratch);
    return loss;
}

/* Every 197th parameter, by central differences; f32 leaves about 1e-4 of a step of 1e-2. */
static void check_gradient(ds_tag_prior_kind kind, uint64_t seed) {
    static prior_case c;
    ds_arena scratch;
    make(&c, seed, 1);
    ds_tag_prior *prior = ds_tag_prior_new(kind, seed);
    ds_nn_params *params = ds_tag_prior_params(prior);
    ds_arena_init(&scratch);
    double loss = ds_tag_prior_learn(prior, &c.state, c.target, &scratch), most = 0;
    cr_expect_float_eq(loss, loss_of(prior, &c), 1e-6);
    for (uint32_t i = (uint32_t)seed; i < params->n; i += 197) {
        float kept = params->value[i], step = 1e-2F;
        params->value[i] = kept + step;
        double above = loss_of(prior, &c);
        params->value[i] = kept - step;
        double difference = (above - loss_of(prior, &c)) / (2 * (double)step);
        params->value[i] = kept;
        cr_expect_float_eq((double)params->gradient[i], difference, 5e-4 + 0.02 * fabs(difference),
                           "kind %d, case %d, parameter %u: %g, not %g", (int)kind, (int)seed, i,
                           (double)params->gradient[i], difference);
        most = fmax(most, fabs(difference));
    }
    cr_expect_gt(most, 0.001);
    ds_tag_prior_free(prior);
    ds_arena_deinit(&scratch);
    ds_arena_deinit(&c.arena);
}

Test(tag_prior, gradients_are_differences) {
    for (uint64_t seed = 0; seed < (FEW_CASES ? 1 : 3); seed++) {
        check_gradient(DS_TAG_MLP, seed);
        check_gradient(DS_TAG_GAT, seed);
    }
}

/* Both networks learn one state by heart: the loss falls to the target's own entropy. */
Test(tag_prior, learns_a_state) {
    static prior_case c;
    make(&c, 3, 1);
    double entropy = 0;
    for (uint32_t a = 0; a < c.n_actions; a++) {
        c.target[a] = a == 1 ? 0.9 : 0.1 / (c.n_actions - 1);
        entropy -= c.target[a] * log(c.target[a]);
    }
    for (int kind = 0; kind < 2; kind++) {
        ds_tag_prior *prior = ds_tag_prior_new((ds_tag_prior_kind)kind, 1);
        for (int i = 0; i < 200; i++) {
            ds_arena scratch;
            ds_arena_init(&scratch);
            ds_tag_prior_learn(prior, &c.state, c.target, &scratch);
            ds_nn_adam(ds_tag_prior_params(prior), 5e-3, 5);
            ds_arena_deinit(&scratch);
        }
        cr_expect_lt(loss_of(prior, &c), entropy + 0.02, "kind %d", kind);
        ds_tag_prior_free(prior);
    }
    ds_arena_deinit(&c.arena);
}

/* A prior that has learnt one action by heart sends the first playouts there; any number of workers
 * finds the same; an evaluator beside a prior is refused. */
Test(tag_prior, guides_the_tree) {
    static prior_case c;
    make(&c, 5, 0);
    ds_tag_prior *prior = ds_tag_prior_new(DS_TAG_MLP, 1);
    for (uint32_t a = 0; a < c.n_actions; a++) c.target[a] = a == 2;
    for (int i = 0; i < 300; i++) {
        ds_arena scratch;
        ds_arena_init(&scratch);
        ds_tag_prior_learn(prior, &c.state, c.target, &scratch);
        ds_nn_adam(ds_tag_prior_params(prior), 5e-3, 5);
        ds_arena_deinit(&scratch);
    }
    double values[2];
    for (uint32_t workers = 1; workers <= 3; workers += 2) {
        ds_tag_tree_options options = {.problem = &c.r.problem,
                                       .n_leaves = 8,
                                       .n_workers = workers,
                                       .prior = prior,
                                       .revisits = true};
        ds_tag_tree *tree;
        ds_error err;
        cr_assert_eq(ds_tag_tree_new(&options, &tree, &err), DS_OK, "%s", err.message);
        cr_assert_eq(ds_tag_tree_run(tree, 100, &err), DS_OK, "%s", err.message);
        values[workers / 2] = ds_tag_tree_best_of(tree).best_value;
        ds_tag_tree_free(tree);
    }
    cr_expect_float_eq(values[0], values[1], 0);
    ds_tag_prior_free(prior);
    ds_arena_deinit(&c.arena);
}
