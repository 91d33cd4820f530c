/* Priors: gradients of both networks against differences, what a trained network prefers, and the
 * tree with a prior. */
#include "ir/base/map.h"
#include "search/tag/puct.h"
#include "search/tag/view.h"
#include "tests/support/cases.h"
#include "tests/support/generate/random_tag.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
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

/* ---- the same network in the language ---- */

enum { HEADS = 4, N_GIVEN = 15, PLACE = DS_TAG_PLACE_WIDTH };

/* Inputs of gat.dir, in its order. */
typedef struct dense_view {
    double *group, *machine, *tensor, *tensor_mask, *tensor_back, *back_mask, *place, *place_mask,
        *place_back, *hold_mask, *link, *link_mask, *seen, *way, *target;
} dense_view;

static void widen(double *to, const float *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = (double)from[i];
}

/* One edge into row `at` of a dense matrix, and into its mask. */
static void put_edge(double *to, double *mask, size_t at, const float *numbers, size_t n) {
    widen(to + at * n, numbers, n);
    for (size_t h = 0; h < HEADS; h++) mask[at * HEADS + h] = 1;
}

static void see(const prior_case *c, const ds_tag_numbers *n, const dense_view *d) {
    const ds_tag_view *v = c->state.view;
    size_t groups = v->n_groups, machines = v->n_machines;
    widen(d->group, n->group, groups * DS_TAG_GROUP_WIDTH);
    widen(d->machine, n->machine, machines * DS_TAG_MACHINE_WIDTH);
    for (uint32_t i = 0; i < v->tensors.n; i++) {
        size_t from = v->tensors.from[i], to = v->tensors.to[i];
        put_edge(d->tensor, d->tensor_mask, to * groups + from, &v->tensor[i], 1);
        put_edge(d->tensor_back, d->back_mask, from * groups + to, &v->tensor[i], 1);
    }
    for (uint32_t i = 0; i < v->places.n; i++) {
        size_t m = v->places.from[i], g = v->places.to[i];
        const float *numbers = n->place + (size_t)i * PLACE;
        put_edge(d->place, d->place_mask, g * machines + m, numbers, PLACE);
        put_edge(d->place_back, d->hold_mask, m * groups + g, numbers, PLACE);
        for (size_t a = 0; g == c->state.depth && a < c->n_actions; a++) {
            double *to = d->seen + (a * machines + m) * (PLACE + 1);
            widen(to, numbers, PLACE);
            to[PLACE] = (c->actions[a].gpus & v->machine_gpus[m]) != 0;
        }
    }
    for (uint32_t i = 0; i < v->links.n; i++)
        put_edge(d->link, d->link_mask, v->links.to[i] * machines + v->links.from[i], &v->link[i],
                 1);
    for (size_t a = 0; a < c->n_actions; a++) {
        d->way[a * DS_TAG_N_WAYS + c->actions[a].way] = 1;
        d->target[a] = c->target[a];
    }
}

/* Puts the state and the parameters in place of generated inputs. */
static void give(const prior_case *c, const ds_nn_params *params, ds_exec_result *r) {
    double *given[N_GIVEN];
    dense_view dense;
    ds_tag_numbers numbers = ds_tag__numbers(&c->state, (ds_arena *)&c->arena);
    uint32_t at = 0;
    cr_assert_eq(r->inputs.n, 97);
    for (uint32_t i = 0; i < r->inputs.n; i++) {
        ds_exec_tensor *t = &r->inputs.at[i];
        if (i < N_GIVEN) {
            given[i] = t->at;
            memset(t->at, 0, (size_t)t->n * sizeof *t->at);
            continue;
        }
        widen(t->at, params->value + at, (size_t)t->n);
        at += (uint32_t)t->n;
    }
    cr_assert_eq(at, params->n);
    memcpy(&dense, given, sizeof dense);
    see(c, &numbers, &dense);
}

/* gat.dir in doubles has the loss and all gradients of the tape in f32: an f32 has 6e-8 of rounding,
 * and a gradient some hundred of them. False: a case without tensors between groups. */
static bool check_language(uint64_t seed) {
    static prior_case c;
    ds_arena scratch;
    step_case step;
    char text[400];
    make(&c, seed, 1);
    if (c.state.view->tensors.n == 0) {
        ds_arena_deinit(&c.arena);
        return false;
    }
    snprintf(text, sizeof text,
             "dir 1\nimport \"../tests/search/tag/gat.dir\" as m with groups = %u, machines = %u, "
             "actions = %u\nscenario { model = @m.gat, train { loss = none, optimizer = none, "
             "keep_gradients = true } }\n",
             c.state.view->n_groups, c.state.view->n_machines, c.n_actions);
    step_make(&step, text, NULL, DS_PASS_GRAD);
    ds_tag_prior *prior = ds_tag_prior_new(DS_TAG_GAT, seed + 1);
    const ds_nn_params *params = ds_tag_prior_params(prior);
    ds_exec_result *made = step_run(&step, 1, NULL, 0);
    give(&c, params, made);
    ds_exec_result *got = step_run(&step, 1, made->inputs.at, made->inputs.n);
    ds_arena_init(&scratch);
    double loss = ds_tag_prior_learn(prior, &c.state, c.target, &scratch), most = 0;
    cr_expect_float_eq(loss, got->outputs.at[0].at[0], 1e-6 * loss, "%.9g, not %.9g", loss,
                       got->outputs.at[0].at[0]);
    for (uint32_t i = 0; i < params->n; i++) most = fmax(most, fabs((double)params->gradient[i]));
    uint32_t at = 0;
    for (uint32_t i = 1; i < got->outputs.n; i++)
        for (int64_t k = 0; k < got->outputs.at[i].n; k++, at++)
            cr_assert_float_eq((double)params->gradient[at], got->outputs.at[i].at[k], 1e-5 * most,
                               "%s[%d] of %g: %g, not %g", got->outputs.at[i].name, (int)k, most,
                               (double)params->gradient[at], got->outputs.at[i].at[k]);
    cr_expect_eq(at, params->n);
    cr_expect_gt(most, 0.001);
    ds_exec_result_free(made);
    ds_exec_result_free(got);
    step_free(&step);
    ds_tag_prior_free(prior);
    ds_arena_deinit(&scratch);
    ds_arena_deinit(&c.arena);
    return true;
}

Test(tag_prior, is_the_network_of_the_language) {
    uint32_t n = 0;
    for (uint64_t seed = 0; n < (FEW_CASES ? 2 : 8); seed++) n += check_language(seed);
}

/* ---- learning, and the tree ---- */

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

/* The whole of two results, and what a prior would learn from both trees. */
typedef struct told_states {
    uint32_t n, n_actions;
    uint64_t hash;
} told_states;

static void tell(void *context, const ds_tag_action *action, uint32_t depth, const double *share) {
    told_states *told = context;
    told->n++;
    told->hash = ds_hash_mix(told->hash, ds_hash_bytes(share, told->n_actions * sizeof *share));
    for (uint32_t g = 0; g < depth; g++)
        told->hash = ds_hash_mix(told->hash, action[g].gpus * DS_TAG_N_WAYS + action[g].way);
}

static void expect_same(const ds_tag_tree *a, const ds_tag_tree *b, uint32_t n_groups) {
    ds_tag_tree_result x = ds_tag_tree_result_of(a), y = ds_tag_tree_result_of(b);
    told_states told[2] = {{.n_actions = x.n_actions}, {.n_actions = y.n_actions}};
    for (uint32_t g = 0; g < n_groups; g++)
        cr_expect(x.best[g].gpus == y.best[g].gpus && x.best[g].way == y.best[g].way);
    y.best = x.best;
    cr_expect(memcmp(&x, &y, sizeof x) == 0); /* a struct without padding */
    ds_tag_tree_each(a, 4, tell, &told[0]);
    ds_tag_tree_each(b, 4, tell, &told[1]);
    cr_expect_gt(told[0].n, 1);
    cr_expect_eq(told[0].n, told[1].n);
    cr_expect_eq(told[0].hash, told[1].hash);
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
    ds_tag_tree *trees[2];
    for (uint32_t i = 0; i < 2; i++) {
        ds_tag_tree_options options = {.problem = &c.r.problem,
                                       .n_leaves = 8,
                                       .n_workers = 1 + 2 * i,
                                       .prior = prior,
                                       .revisits = true};
        ds_error err;
        cr_assert_eq(ds_tag_tree_new(&options, &trees[i], &err), DS_OK, "%s", err.message);
        cr_assert_eq(ds_tag_tree_run(trees[i], 100, &err), DS_OK, "%s", err.message);
    }
    expect_same(trees[0], trees[1], c.r.problem.graph.n_groups);
    for (uint32_t i = 0; i < 2; i++) ds_tag_tree_free(trees[i]);
    ds_tag_prior_free(prior);
    ds_arena_deinit(&c.arena);
}
