/* TAG's tree search: a deployment is decided group by group, guided by values of partial ones.
 *
 * A node has decided the actions of the groups 0 … depth - 1; the groups after them have no action yet
 * (quirk FIRST_ACTION says which one stands in). A playout descends from the root by
 *
 *     PUCT(a) = Q(a) + c · P(a) · sqrt(N) / (1 + N(a)),   c = sqrt(actions / 10),
 *
 * P(a) = 1 / actions, or three quarters of a network's P (prior.h) and a quarter of that,
 *
 * Q the mean of the values below a (0 before the first), N the playouts through the node, N(a) those
 * through a, to a node that has no value yet or has decided everything; the node's deployment is
 * evaluated once, and the value is added up along the path. No random playout follows.
 *
 * Leaves are taken in rounds of a fixed number. A leaf counts as visited with value -1 until the end
 * of the round (virtual loss), so that the leaves of a round differ; a round ends early when the
 * descent comes to a leaf of the round. The leaves of a round are evaluated by any number of
 * workers and added up in the order of descents: the workers' number changes nothing.
 *
 * A descent leaves out actions below which everything has been evaluated, and, in TAG mode, actions
 * below which no deployment beats the best one (ds_tag_bound). With `revisits` the
 * descent takes such actions too; with rounds of one leaf besides, the search is TAG's.
 *
 * Source: Zhang et al., arXiv:2302.06126; PUCT: Silver et al., "Mastering the game of Go without
 * human knowledge", Nature 550, 2017. Virtual loss: Chaslot, Winands and van den Herik, "Parallel
 * Monte-Carlo tree search", CG 2008. */
#ifndef DS_SEARCH_TAG_PUCT_H
#define DS_SEARCH_TAG_PUCT_H

#include "search/tag/prior.h"

#define DS_TAG_ROUND 16 /* leaves of a round of `distsim search`, at most */

/* The value of a deployment; called from several threads. action[n_groups], of which the groups
 * after the decided ones have none. */
typedef ds_status (*ds_tag_evaluate)(const void *context, const ds_tag_action *action,
                                     ds_arena *arena, double *value, ds_error *err);

typedef struct ds_tag_tree_options {
    const ds_tag_problem *problem; /* checked; outlives the tree */
    uint32_t n_leaves;             /* of a round, 1 … 64 */
    uint32_t n_workers;            /* 1 … 64 */
    uint64_t seed;                 /* orders equal actions */
    bool revisits;                 /* TAG's: decided deployments are visited again */
    const ds_tag_prior *prior;     /* P(a), in TAG mode; NULL: 1 / actions */
    ds_tag_evaluate evaluate;      /* NULL: TAG mode, ds_tag_value */
    const void *context;
    const ds_tag_action *actions; /* with `evaluate`; outlive the tree. NULL: ds_tag_actions */
    uint32_t n_actions;
} ds_tag_tree_options;

typedef struct ds_tag_tree ds_tag_tree;

/* Errors: those of ds_tag_actions and ds_tag_baseline; VALUE if no action is possible. */
ds_status ds_tag_tree_new(const ds_tag_tree_options *options, ds_tag_tree **out, ds_error *err);
void ds_tag_tree_free(ds_tag_tree *tree);

/* Whole rounds until at least `playouts` playouts have been made, counted from the first call: 800
 * and then 2000 is 2000. Ends before if nothing
 * better is left. After an error the tree can only be freed.
 * O(playouts · (groups · actions + evaluation)). */
ds_status ds_tag_tree_run(ds_tag_tree *tree, uint64_t playouts, ds_error *err);

/* Of each node with at least so many playouts and an open group: the decided actions, and the share
 * of playouts of each action, which is what a prior learns. */
typedef void (*ds_tag_told)(void *context, const ds_tag_action *action, uint32_t depth,
                            const double *share);
void ds_tag_tree_each(const ds_tag_tree *tree, uint32_t visits, ds_tag_told tell, void *context);

typedef struct ds_tag_tree_result {
    uint64_t n_playouts, n_evaluated; /* the others had a known value */
    uint64_t first_better;            /* the playout that first had a value above 0; 0: none */
    uint32_t n_nodes, n_actions;
    int64_t base_us; /* of the baseline; 0: another evaluator */
    int64_t best_us; /* TAG mode: the least makespan found; INT64_MAX: no deployment fits */
    double best_value;
    const ds_tag_action *best; /* [n_groups], every group has an action; lives with the tree */
} ds_tag_tree_result;

ds_tag_tree_result ds_tag_tree_result_of(const ds_tag_tree *tree);
/* The same without the number of nodes. O(1). */
ds_tag_tree_result ds_tag_tree_best_of(const ds_tag_tree *tree);

/* Gathers the groups of a graph, which must stay whole (TAG: base groups), into at most `n_wanted`:
 * group_of[n_groups], numbered by falling time.
 *
 * Pairs of neighbours are merged by falling tensor (4-byte elements; 1000 if empty) as long as the
 * weight of a group, the sum of sqrt(mean us) cut to whole numbers, stays within 5 times the mean;
 * then the lightest groups are merged. TAG has METIS do it with the same weights and balance.
 * Returns the number of groups. O(E log E + groups²). */
uint32_t ds_tag_gather(const ds_tag_graph *graph, uint32_t n_wanted, ds_arena *arena,
                       uint32_t *group_of);

#endif
