/* The tree search against enumeration and against PUCT's formula; gathering by hand. */
#include "search/tag/branch.h"
#include "search/tag/puct.h"
#include "tests/support/cases.h"
#include "tests/support/generate/random_tag.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GROUPS = 2, ACTIONS = 21 };

static ds_tag_tree *search(const ds_tag_tree_options *options, uint64_t playouts) {
    ds_tag_tree *tree;
    ds_error err;
    cr_assert_eq(ds_tag_check(options->problem, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_tag_tree_new(options, &tree, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_tag_tree_run(tree, playouts, &err), DS_OK, "%s", err.message);
    return tree;
}

static int64_t makespan_of(const ds_tag_problem *p, const ds_tag_action *action) {
    ds_arena arena = {0};
    ds_error err;
    ds_tag_outcome out;
    cr_assert_eq(ds_tag_simulate(p, action, &arena, &out, &err), DS_OK, "%s", err.message);
    ds_arena_deinit(&arena);
    return out.fits ? out.makespan_us : INT64_MAX;
}

static int64_t least_makespan(const ds_tag_problem *p) {
    ds_arena arena = {0};
    ds_error err;
    ds_tag_action *actions, chosen[MOST_GROUPS];
    uint32_t n, digit[MOST_GROUPS] = {0}, g = 0;
    int64_t least = INT64_MAX;
    cr_assert_eq(ds_tag_actions(p, &arena, &actions, &n, &err), DS_OK);
    cr_assert_eq(n, ACTIONS);
    while (g < p->graph.n_groups) {
        for (g = 0; g < p->graph.n_groups; g++) chosen[g] = actions[digit[g]];
        int64_t us = makespan_of(p, chosen);
        if (us < least) least = us;
        for (g = 0; g < p->graph.n_groups && ++digit[g] == n; g++) digit[g] = 0;
    }
    ds_arena_deinit(&arena);
    return least;
}

/* 441 deployments of two groups. The search ends with the optimum. */
Test(tag_tree, finds_the_optimum) {
    static random_tag r;
    for (uint64_t seed = 0; seed < (FEW_CASES ? 4 : 20); seed++) {
        random_tag_instance(&r, seed, 2);
        ds_tag_tree_options options = {
            .problem = &r.problem, .n_leaves = 8, .n_workers = 1, .seed = seed};
        ds_tag_tree *tree = search(&options, UINT64_MAX);
        ds_tag_tree_result result = ds_tag_tree_result_of(tree);
        int64_t least = least_makespan(&r.problem);
        cr_expect_eq(makespan_of(&r.problem, result.best), least, "instance %lu", seed);
        cr_expect_eq(result.best_us, least);
        cr_expect_leq(result.n_playouts, 1 + 21 + 441); /* no node is evaluated twice */
        ds_tag_tree_free(tree);
    }
}

static uint64_t number_of(const char *variable, uint64_t usual) {
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : usual;
}

/* Four groups: a tree of 300 playouts and 20,000 steps of improvement against the optimum that branch
 * and bound proves. DISTSIM_TAG_INSTANCES, _GROUPS and _STEPS take others, of which a proof ends
 * after a million steps. */
Test(tag_tree, improvement_comes_near_the_optimum) {
    static random_tag r;
    uint64_t n = number_of("DISTSIM_TAG_INSTANCES", FEW_CASES ? 4 : 20), near = 0, n_known = 0;
    uint32_t n_groups = (uint32_t)number_of("DISTSIM_TAG_GROUPS", 4);
    uint64_t n_steps = number_of("DISTSIM_TAG_STEPS", 20000);
    for (uint64_t seed = 0; seed < n; seed++) {
        ds_arena arena = {0};
        ds_tag_action *actions, best[RANDOM_TAG_GROUPS], optimal[RANDOM_TAG_GROUPS];
        ds_tag_branched found, optimum;
        random_tag_instance(&r, seed, n_groups);
        ds_tag_tree_options options = {
            .problem = &r.problem, .n_leaves = 8, .n_workers = 1, .seed = seed};
        ds_tag_tree *tree = search(&options, 300);
        ds_tag_branching what = {.problem = &r.problem, .n_steps = n_steps, .seed = seed};
        memcpy(best, ds_tag_tree_result_of(tree).best, n_groups * sizeof *best);
        cr_assert_eq(ds_tag_actions(&r.problem, &arena, &actions, &what.n_actions, NULL), DS_OK);
        what.actions = actions;
        ds_tag_improve(&what, best, &found);
        memcpy(optimal, best, sizeof best);
        what.n_steps = 1000000;
        ds_tag_prove(&what, optimal, NULL, &optimum);
        cr_expect_leq(found.us, ds_tag_tree_result_of(tree).best_us);
        cr_expect_geq(found.us, optimum.us);
        cr_expect_eq(found.us, makespan_of(&r.problem, best));
        cr_expect_leq(found.n_simulations + found.n_bounds, n_steps + 21);
        cr_expect(n_groups > 4 || optimum.lower_us == optimum.us, "instance %lu", seed);
        if (n > 20)
            printf("%lu: found %ld, best %ld, lower %ld\n", seed, found.us, optimum.us,
                   optimum.lower_us);
        n_known += optimum.us < INT64_MAX;
        near += optimum.us < INT64_MAX && found.us <= optimum.us + optimum.us / 100;
        ds_tag_tree_free(tree);
        ds_arena_deinit(&arena);
    }
    cr_expect_geq(100 * near, 95 * n_known, "%lu of %lu within 1 %%", near, n_known);
}

/* Whatever the quirks, a random deployment that fits takes no less than the bound of each part of it,
 * and bounds rise with the parts. */
Test(tag_tree, bounds_of_parts) {
    static random_tag r;
    uint64_t n_tight = 0, n_done = 0;
    for (uint64_t seed = 0; n_done < (FEW_CASES ? 30 : 300); seed++) {
        ds_arena arena = {0};
        ds_tag_outcome out;
        ds_error err;
        int64_t floors[RANDOM_TAG_OPS], bound, before = 0;
        random_tag_make(&r, seed, true);
        uint32_t n = r.problem.graph.n_groups;
        for (uint32_t m = 0; m < 4 && seed % 2 == 0; m++) r.machine[m].memory_bytes = INT64_MAX;
        for (uint32_t g = 0; g < n; g++)
            if (r.action[g].gpus == 0) r.action[g].gpus = 1;
        ds_tag_action part[RANDOM_TAG_GROUPS] = {{0}};
        if (ds_tag_simulate(&r.problem, r.action, &arena, &out, &err) == DS_OK) {
            ds_tag_floors(&r.problem, r.action, 1, floors);
            for (uint32_t g = 1; g < n; g++) { /* the least over the groups' own actions */
                int64_t more[RANDOM_TAG_OPS];
                ds_tag_floors(&r.problem, &r.action[g], 1, more);
                for (uint32_t op = 0; op < r.problem.graph.n_ops; op++)
                    if (more[op] < floors[op]) floors[op] = more[op];
            }
            int64_t us = out.fits ? out.makespan_us : INT64_MAX;
            for (uint32_t g = 0; g <= n; g++) {
                cr_assert_eq(ds_tag_bound(&r.problem, part, floors, &arena, &bound, &err), DS_OK);
                cr_expect_leq(bound, us, "seed %lu, %u groups", seed, g);
                cr_expect_geq(bound, before, "seed %lu, %u groups", seed, g);
                before = bound;
                if (g < n) part[g] = r.action[g];
            }
            n_tight += bound == us;
            n_done++;
        }
        ds_arena_deinit(&arena);
    }
    cr_expect_gt(n_tight, n_done / 10, "%lu of %lu bounds are makespans", n_tight, n_done);
}

/* 10 us and a microsecond a sample; batch 24. A half takes 22 us, and an update needs all: 34. */
Test(tag_tree, floors_by_hand) {
    static random_tag r;
    static const int64_t batch[] = {1, 2};
    static const double us[] = {11, 12, 11, 12};
    const ds_tag_op op[] = {{.result = DS_TAG_SAMPLES, .us = us},
                            {.result = DS_TAG_WHOLE, .us = us}};
    random_tag_instance(&r, 0, 1);
    r.problem.graph = (ds_tag_graph){2, 1, 2, 2, op, batch};
    const ds_tag_action actions[] = {
        {3, DS_TAG_SPLIT, NULL}, {3, DS_TAG_PS, NULL}, {255, DS_TAG_DUPLICATE, NULL}};
    int64_t floors[2];
    ds_tag_floors(&r.problem, actions, 3, floors);
    cr_expect_eq(floors[0], 22);
    cr_expect_eq(floors[1], 34);
    ds_tag_floors(&r.problem, actions, 1, floors);
    cr_expect_eq(floors[0], 34);
}

/* ---- nothing depends on workers, nor on stops ---- */

static void expect_equal(const ds_tag_tree *a, const ds_tag_tree *b, uint32_t n_groups) {
    ds_tag_tree_result x = ds_tag_tree_result_of(a), y = ds_tag_tree_result_of(b);
    cr_expect_eq(x.n_playouts, y.n_playouts);
    cr_expect_eq(x.n_evaluated, y.n_evaluated);
    cr_expect_eq(x.first_better, y.first_better);
    cr_expect_eq(x.n_nodes, y.n_nodes);
    cr_expect_eq(x.best_value, y.best_value);
    for (uint32_t g = 0; g < n_groups; g++) {
        cr_expect_eq(x.best[g].gpus, y.best[g].gpus);
        cr_expect_eq(x.best[g].way, y.best[g].way);
    }
}

Test(tag_tree, the_same_for_any_workers) {
    static random_tag r;
    random_tag_instance(&r, 3, 6);
    ds_tag_tree_options options = {
        .problem = &r.problem, .n_leaves = 8, .n_workers = 1, .seed = 7, .evaluate = NULL};
    ds_tag_tree *one = search(&options, 1000);
    options.n_workers = 5;
    ds_tag_tree *five = search(&options, 1000), *stopped = search(&options, 333);
    expect_equal(one, five, 6);
    cr_assert_eq(ds_tag_tree_run(stopped, 1000, NULL), DS_OK);
    expect_equal(one, stopped, 6);
    ds_tag_tree_free(one);
    ds_tag_tree_free(five);
    ds_tag_tree_free(stopped);
}

/* ---- PUCT ---- */

/* Every deployment is worth 0.5, the one without decisions 0. */
static ds_status half(const void *context, const ds_tag_action *action, ds_arena *arena,
                      double *value, ds_error *err) {
    (void)context, (void)arena, (void)err;
    *value = action[0].gpus ? 0.5 : 0;
    return DS_OK;
}

/* One group. The first action keeps its lead with Q = 0.5 until the second one's bound is beyond it:
 * c / 21 · sqrt(N) > 0.5 + c / 21 · sqrt(N) / (1 + N(a)), where N(a) = N - 1: all playouts but the
 * root's. */
Test(tag_tree, follows_the_formula) {
    static random_tag r;
    random_tag_instance(&r, 0, 1);
    ds_tag_tree_options options = {.problem = &r.problem,
                                   .n_leaves = 1,
                                   .n_workers = 1,
                                   .seed = 0,
                                   .revisits = true,
                                   .evaluate = half};
    double c = sqrt(21 / 10.), n = 2;
    while (c / 21 * sqrt(n) <= 0.5 + c / 21 * sqrt(n) / n) n++;
    cr_assert_eq(n, 55); /* (0.5 · 21 / c)^2 = 52.5, and 2.5 for the last term */
    /* After n playouts the second action comes: two nodes below the root, not one. The action that
     * equals the one that stood in for it has the root's value, and is led by no other. */
    ds_tag_tree *tree = search(&options, 1);
    cr_expect_eq(ds_tag_tree_result_of(tree).n_nodes, 1);
    ds_error err;
    uint64_t second = 0, first = 0;
    for (uint64_t i = 2; i < 200 && second == 0; i++) {
        cr_assert_eq(ds_tag_tree_run(tree, i, &err), DS_OK);
        ds_tag_tree_result result = ds_tag_tree_result_of(tree);
        if (first == 0 && result.best_value > 0) first = i;
        if (first == 2 && result.n_nodes == 3) second = i;
    }
    cr_expect_eq(first, 2);
    cr_expect_eq(second, (uint64_t)n + 1);
    cr_expect_eq(ds_tag_tree_result_of(tree).first_better, 2);
    ds_tag_tree_free(tree);
}

/* A round of 8 leaves has 8 different ones: virtual losses push descents apart. */
Test(tag_tree, leaves_of_a_round_differ) {
    static random_tag r;
    random_tag_instance(&r, 0, 1);
    ds_tag_tree_options options = {.problem = &r.problem,
                                   .n_leaves = 8,
                                   .n_workers = 3,
                                   .seed = 0,
                                   .revisits = true,
                                   .evaluate = half};
    ds_tag_tree *tree = search(&options, 1); /* the root alone: every other leaf is below it */
    cr_expect_eq(ds_tag_tree_result_of(tree).n_playouts, 1);
    cr_assert_eq(ds_tag_tree_run(tree, 2, NULL), DS_OK);
    cr_expect_eq(ds_tag_tree_result_of(tree).n_playouts, 9);
    cr_expect_eq(ds_tag_tree_result_of(tree).n_nodes, 9);
    ds_tag_tree_free(tree);
}

/* The V100s of the first machine with all_reduce are worth 0.5, all else -0.5. */
static ds_status pair(const void *context, const ds_tag_action *action, ds_arena *arena,
                      double *value, ds_error *err) {
    (void)context, (void)arena, (void)err;
    *value = action[0].gpus == 3 && action[0].way == DS_TAG_ALL_REDUCE ? 0.5 : -0.5;
    return DS_OK;
}

/* Rounds of two. Once the good action has been visited, the first descent takes the good action. The
 * loss leaves (0.5 - 1) / 2 < 0, so the second descent takes an action without visits. */
Test(tag_tree, a_leaf_of_the_round_counts_as_a_loss) {
    static random_tag r;
    random_tag_instance(&r, 0, 1);
    ds_tag_tree_options options = {
        .problem = &r.problem, .n_leaves = 2, .n_workers = 1, .revisits = true, .evaluate = pair};
    ds_tag_tree *tree = search(&options, 1);
    ds_tag_tree_result before = ds_tag_tree_result_of(tree);
    while (before.best_value < 0.5) {
        cr_assert_eq(ds_tag_tree_run(tree, before.n_playouts + 1, NULL), DS_OK);
        before = ds_tag_tree_result_of(tree);
    }
    cr_assert_lt(before.n_nodes, 22); /* some actions have no visits */
    cr_assert_eq(ds_tag_tree_run(tree, before.n_playouts + 1, NULL), DS_OK);
    cr_expect_eq(ds_tag_tree_result_of(tree).n_playouts, before.n_playouts + 2);
    cr_expect_eq(ds_tag_tree_result_of(tree).n_nodes, before.n_nodes + 1);
    ds_tag_tree_free(tree);
}

static ds_status refuse(const void *context, const ds_tag_action *action, ds_arena *arena,
                        double *value, ds_error *err) {
    (void)context, (void)action, (void)arena, (void)value;
    return ds_error_set(err, DS_ERR_COST, DS_NOWHERE, "no cost");
}

Test(tag_tree, errors) {
    static random_tag r;
    ds_tag_tree *tree;
    ds_error err;
    random_tag_instance(&r, 0, 1);
    ds_tag_tree_options options = {
        .problem = &r.problem, .n_leaves = 0, .n_workers = 1, .seed = 0, .evaluate = refuse};
    cr_expect_eq(ds_tag_tree_new(&options, &tree, &err), DS_ERR_VALUE);
    cr_expect(strstr(err.message, "0 leaves of a round"), "%s", err.message);
    options.n_leaves = 4;
    cr_assert_eq(ds_tag_tree_new(&options, &tree, &err), DS_OK);
    cr_expect_eq(ds_tag_tree_run(tree, 10, &err), DS_ERR_COST);
    cr_expect_str_eq(err.message, "no cost");
    ds_tag_tree_free(tree);
}

/* ---- gathering ---- */

/* A chain of six with tensors of 4, 40, 4, 400 and 4 elements and times of 1, 4, 9, 16, 25, 36 us, of
 * which the square roots weigh the groups: 1 … 6, in all 21. */
Test(tag_tree, gathers_by_hand) {
    static const int64_t batch[] = {1}, bytes[] = {16, 160, 16, 1600, 16, 0};
    static const double us[] = {1, 4, 9, 16, 25, 36};
    static const uint32_t parents[] = {0, 0, 1, 2, 3, 4};
    ds_tag_op op[6];
    for (uint32_t i = 0; i < 6; i++)
        op[i] = (ds_tag_op){.result_bytes = bytes[i],
                            .us = &us[i],
                            .parent = &parents[i],
                            .n_parents = i > 0,
                            .group = i};
    ds_tag_graph g = {6, 6, 1, 1, op, batch};
    ds_arena arena = {0};
    uint32_t group_of[6];
    cr_assert_eq(ds_tag_gather(&g, 4, &arena, group_of), 4);
    /* 3 and 4 (41 us), 5 (36), 1 and 2 (13), 0 (1) */
    const uint32_t four[] = {3, 2, 2, 0, 0, 1};
    for (int i = 0; i < 6; i++) cr_expect_eq(group_of[i], four[i], "%d: %u", i, group_of[i]);
    cr_assert_eq(ds_tag_gather(&g, 6, &arena, group_of), 6);
    for (uint32_t i = 0; i < 6; i++) cr_expect_eq(group_of[i], 5 - i);
    cr_assert_eq(ds_tag_gather(&g, 1, &arena, group_of), 1);
    /* Without edges the lightest are merged: 0 and 1 (weight 3), these and 2 (6), 3 and 4 (9). */
    for (uint32_t i = 0; i < 6; i++) op[i].n_parents = 0;
    cr_assert_eq(ds_tag_gather(&g, 3, &arena, group_of), 3);
    const uint32_t three[] = {2, 2, 2, 0, 0, 1};
    for (int i = 0; i < 6; i++) cr_expect_eq(group_of[i], three[i], "%d: %u", i, group_of[i]);
    ds_arena_deinit(&arena);
}

/* A chain of twelve. The first two are heavy (weights 10 and 10 of 30), with the largest tensor between
 * them; the tensor after the seventh is empty, and counts as 1000 elements. */
Test(tag_tree, gathers_within_the_balance) {
    static const int64_t batch[] = {1};
    static const double heavy = 100, light = 1;
    static const uint32_t parents[] = {0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    ds_tag_op op[12];
    for (uint32_t i = 0; i < 12; i++)
        op[i] = (ds_tag_op){.result_bytes = i == 0   ? 40000
                                            : i == 7 ? 0
                                                     : 3996,
                            .us = i < 2 ? &heavy : &light,
                            .parent = &parents[i],
                            .n_parents = i > 0,
                            .group = i};
    ds_tag_graph g = {12, 12, 1, 1, op, batch};
    ds_arena arena = {0};
    uint32_t group_of[12];
    cr_assert_eq(ds_tag_gather(&g, 11, &arena, group_of), 11); /* 20 > 5 · 30 / 11 */
    cr_expect_neq(group_of[0], group_of[1]);
    cr_expect_eq(group_of[7], group_of[8]);
    cr_assert_eq(ds_tag_gather(&g, 7, &arena, group_of), 7); /* 20 < 5 · 30 / 7 */
    cr_expect_eq(group_of[0], group_of[1]);
    ds_arena_deinit(&arena);
}
