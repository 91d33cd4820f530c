#include "search/tag/puct.h"

#include "ir/base/rng.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LEAVES = 64, MOST_WORKERS = 64 };
/* A quarter of a network's prior is uniform, so that no action is lost. Source: the share of noise at
 * the root, Silver et al. 2017; here in every node, and without noise. */
#define UNIFORM 0.25

typedef struct edge {
    uint32_t action, child;  /* child 0: none, for the root is no child */
    uint32_t visits, losses; /* losses: leaves of the round, each a visit of value -1 */
    double weight, sum;      /* c · P(a); the sum of values */
} edge;

typedef struct node {
    uint32_t depth, visits; /* visits: with leaves of the round */
    edge *edges;            /* in the order of the shuffle; NULL: all groups are decided */
    double value;
    int64_t us; /* as in a leaf */
    bool has_value, is_pending;
    bool is_closed;   /* every action leads to nothing new */
    int64_t bound_us; /* of all deployments below; 0: not known */
} node;

/* A leaf of the round. */
typedef struct leaf {
    uint32_t node;
    uint32_t *path, *passed; /* [depth]: places of edges, and the nodes that have them */
    ds_tag_action *action;
    bool is_new;          /* the node has no value yet */
    bool is_known;        /* nevertheless the value is known, and the makespan */
    double value, *prior; /* [n_actions]; NULL: uniform */
    int64_t us, bound_us; /* us: INT64_MAX if the deployment does not fit, or is not known */
    ds_status status;
    ds_error err;
    ds_arena scratch;
} leaf;

struct ds_tag_tree {
    ds_tag_tree_options options;
    ds_arena arena;
    uint32_t n_groups, n_actions;
    const ds_tag_action *actions;
    ds_tag_view *view; /* NULL: no prior */
    double exploration;
    int64_t *floors; /* [operation]; NULL: an evaluator without bounds */
    int64_t best_us; /* INT64_MAX: none fits, or an evaluator without bounds */
    DS_VEC(node) nodes;
    leaf leaves[MOST_LEAVES];
    uint32_t n_leaves;
    ds_tag_action *best;
    ds_tag_tree_result result;
};

/* ---- nodes ---- */

static uint32_t add_node(ds_tag_tree *t, uint32_t depth) {
    node added = {.depth = depth};
    uint32_t id = t->nodes.n;
    if (depth < t->n_groups) {
        ds_rng rng = {ds_rng_at(t->options.seed, id, 0, 0)};
        added.edges = DS_NEW_N(&t->arena, edge, t->n_actions);
        for (uint32_t i = 0; i < t->n_actions; i++) {
            uint32_t j = (uint32_t)ds_rng_below(&rng, i + 1);
            added.edges[i] = added.edges[j];
            added.edges[j] = (edge){.action = i, .weight = t->exploration / t->n_actions};
        }
    }
    DS_PUSH(&t->arena, &t->nodes, added);
    return id;
}

/* Nothing new or better is left below the node. */
static bool is_spent(const ds_tag_tree *t, uint32_t i) {
    const node *n = &t->nodes.at[i];
    if (n->has_value && n->bound_us >= t->best_us) return true;
    return n->edges ? n->is_closed : n->has_value;
}

/* The place of an edge; n_actions: every action is spent. */
static uint32_t choose(const ds_tag_tree *t, const node *at) {
    double pull = sqrt(at->visits), most = -INFINITY;
    uint32_t best = t->n_actions;
    for (uint32_t i = 0; i < t->n_actions; i++) {
        const edge *e = &at->edges[i];
        if (!t->options.revisits && e->child && is_spent(t, e->child)) continue;
        uint32_t n = e->visits + e->losses;
        double score = (n ? (e->sum - e->losses) / n : 0) + e->weight * pull / (1 + n);
        if (score <= most) continue;
        most = score;
        best = i;
    }
    return best;
}

/* ---- a leaf ---- */

static ds_tag_action stand_in(const ds_tag_tree *t, const leaf *l, uint32_t depth) {
    const ds_tag_problem *p = t->options.problem;
    if (depth > 0 && (p->quirks & DS_TAG_FIRST_ACTION)) return l->action[0];
    return (ds_tag_action){ds_tag_gpus_of(&p->cluster, UINT64_MAX), DS_TAG_ALL_REDUCE, NULL};
}

/* Did the last decision take the action that stood in for it? Then nothing has changed. */
static bool is_as_parent(const ds_tag_tree *t, const leaf *l, uint32_t depth) {
    ds_tag_action before = stand_in(t, l, depth - 1), now = l->action[depth - 1];
    return before.gpus == now.gpus && before.way == now.way && before.share == now.share;
}

/* Descends to a leaf; false if the leaf is one of this round, or nothing is left. */
static bool descend(ds_tag_tree *t, leaf *l) {
    uint32_t at = 0;
    memset(l->action, 0, t->n_groups * sizeof *l->action);
    while (t->nodes.at[at].has_value && t->nodes.at[at].edges) {
        uint32_t depth = t->nodes.at[at].depth, chosen = choose(t, &t->nodes.at[at]);
        if (chosen == t->n_actions) { /* once more, without this node */
            t->nodes.at[at].is_closed = true;
            if (at == 0) return false;
            at = 0;
            memset(l->action, 0, t->n_groups * sizeof *l->action);
            continue;
        }
        edge *e = &t->nodes.at[at].edges[chosen];
        l->path[depth] = chosen;
        l->passed[depth] = at;
        l->action[depth] = t->actions[e->action];
        if (e->child == 0) e->child = add_node(t, depth + 1);
        at = e->child;
    }
    node *found = &t->nodes.at[at];
    if (found->is_pending) return false;
    l->node = at;
    l->is_new = !found->has_value;
    l->is_known = found->has_value;
    l->value = found->value;
    l->us = found->us;
    l->bound_us = found->bound_us;
    bool is_seen = t->options.prior == NULL; /* a prior sees the simulation of each state */
    if (is_seen && !l->is_known && at != 0 && is_as_parent(t, l, found->depth)) {
        l->is_known = true;
        l->value = t->nodes.at[l->passed[found->depth - 1]].value;
        l->us = t->nodes.at[l->passed[found->depth - 1]].us;
    }
    found->is_pending = true;
    return true;
}

/* From the descent to the end of the round the leaf is a loss, then a value. */
static void take_along(ds_tag_tree *t, const leaf *l) {
    node *reached = &t->nodes.at[l->node];
    reached->visits++;
    for (uint32_t d = 0; d < reached->depth; d++) {
        node *n = &t->nodes.at[l->passed[d]];
        n->visits++;
        n->edges[l->path[d]].losses++;
    }
}

static void settle_along(ds_tag_tree *t, const leaf *l) {
    for (uint32_t d = 0; d < t->nodes.at[l->node].depth; d++) {
        edge *e = &t->nodes.at[l->passed[d]].edges[l->path[d]];
        e->losses--;
        e->visits++;
        e->sum += l->value;
    }
}

/* ---- evaluation ---- */

static ds_status evaluate_tag(const ds_tag_tree *t, leaf *l) {
    uint32_t depth = t->nodes.at[l->node].depth;
    ds_tag_outcome out;
    ds_status status = ds_tag_simulate(t->options.problem, l->action, &l->scratch, &out, &l->err);
    if (status == DS_ERR_DEADLOCK) { /* of a chain of collectives: it never ends */
        l->value = -1;
        l->us = INT64_MAX;
        for (uint32_t i = 0; l->prior && i < t->n_actions; i++) l->prior[i] = 1.0 / t->n_actions;
        return DS_OK;
    }
    DS_TRY(status);
    if (l->prior && depth < t->n_groups)
        ds_tag_prior_of(t->options.prior, &(ds_tag_state){t->view, l->action, depth, &out},
                        &l->scratch, l->prior);
    l->value = ds_tag_value(t->result.base_us, &out);
    l->us = out.fits ? out.makespan_us : INT64_MAX;
    return DS_OK;
}

static ds_status evaluate(const ds_tag_tree *t, leaf *l) {
    const ds_tag_tree_options *o = &t->options;
    if (t->floors)
        DS_TRY(ds_tag_bound(o->problem, l->action, t->floors, &l->scratch, &l->bound_us, &l->err));
    if (l->is_known) return DS_OK;
    if (o->evaluate == NULL) return evaluate_tag(t, l);
    l->us = INT64_MAX;
    return o->evaluate(o->context, l->action, &l->scratch, &l->value, &l->err);
}

typedef struct worker {
    ds_tag_tree *tree;
    uint32_t first;
} worker;

/* Every n-th of the new leaves. */
static void *work(void *argument) {
    const worker *w = argument;
    ds_tag_tree *t = w->tree;
    uint32_t n_new = 0;
    for (uint32_t i = 0; i < t->n_leaves; i++) {
        leaf *l = &t->leaves[i];
        if (!l->is_new || n_new++ % t->options.n_workers != w->first) continue;
        l->status = evaluate(t, l);
        ds_arena_deinit(&l->scratch);
    }
    return NULL;
}

/* A thread that cannot be started leaves its work to this one. */
static void evaluate_leaves(ds_tag_tree *t) {
    worker workers[MOST_WORKERS];
    pthread_t threads[MOST_WORKERS];
    bool runs[MOST_WORKERS] = {false};
    for (uint32_t i = 0; i < t->options.n_workers; i++) {
        workers[i] = (worker){t, i};
        if (i > 0 && i < t->n_leaves)
            runs[i] = pthread_create(&threads[i], NULL, work, &workers[i]) == 0;
    }
    for (uint32_t i = 0; i < t->options.n_workers; i++) {
        if (runs[i])
            pthread_join(threads[i], NULL);
        else
            work(&workers[i]);
    }
}

/* ---- rounds ---- */

static void settle(ds_tag_tree *t, leaf *l) {
    ds_tag_tree_result *r = &t->result;
    node *n = &t->nodes.at[l->node];
    n->value = l->value;
    n->us = l->us;
    n->bound_us = l->bound_us;
    for (uint32_t i = 0; l->prior && l->is_new && n->edges && i < t->n_actions; i++)
        n->edges[i].weight = t->exploration * ((1 - UNIFORM) * l->prior[n->edges[i].action] +
                                               UNIFORM / t->n_actions);
    n->has_value = true;
    n->is_pending = false;
    if (l->us < t->best_us) t->best_us = l->us;
    r->n_playouts++;
    r->n_evaluated += !l->is_known;
    if (l->value > 0 && r->first_better == 0) r->first_better = r->n_playouts;
    if (r->best == NULL || l->value > r->best_value) {
        ds_tag_action fill = stand_in(t, l, n->depth);
        for (uint32_t g = 0; g < t->n_groups; g++) t->best[g] = g < n->depth ? l->action[g] : fill;
        r->best = t->best;
        r->best_value = l->value;
    }
}

static ds_status run_round(ds_tag_tree *t, ds_error *err) {
    t->n_leaves = 0;
    while (t->n_leaves < t->options.n_leaves && descend(t, &t->leaves[t->n_leaves]))
        take_along(t, &t->leaves[t->n_leaves++]);
    evaluate_leaves(t);
    for (uint32_t i = 0; i < t->n_leaves; i++) {
        leaf *l = &t->leaves[i];
        if (l->is_new && l->status != DS_OK) {
            if (err) *err = l->err;
            return l->status;
        }
        settle_along(t, l);
        settle(t, l);
    }
    return DS_OK;
}

ds_status ds_tag_tree_run(ds_tag_tree *tree, uint64_t playouts, ds_error *err) {
    while (tree->result.n_playouts < playouts && (tree->options.revisits || !is_spent(tree, 0)))
        DS_TRY(run_round(tree, err));
    return DS_OK;
}

/* ---- the tree ---- */

static ds_status take_actions(ds_tag_tree *t, ds_error *err) {
    const ds_tag_problem *p = t->options.problem;
    ds_tag_action base, *made;
    ds_tag_outcome outcome;
    t->actions = t->options.actions;
    t->n_actions = t->options.n_actions;
    if (!t->actions) {
        DS_TRY(ds_tag_actions(p, &t->arena, &made, &t->n_actions, err));
        t->actions = made;
    }
    if (t->options.evaluate && t->options.actions) return DS_OK;
    DS_TRY(ds_tag_baseline(p, &t->arena, &base, &outcome, err));
    t->result.base_us = outcome.makespan_us;
    return DS_OK;
}

static ds_status init(ds_tag_tree *t, ds_error *err) {
    const ds_tag_problem *p = t->options.problem;
    DS_TRY(take_actions(t, err));
    if (t->n_actions == 0)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "no action is possible");
    t->result.n_actions = t->n_actions;
    t->exploration = ds_tag_exploration(t->n_actions);
    t->n_groups = p->graph.n_groups;
    t->best_us = INT64_MAX;
    if (t->options.evaluate == NULL) {
        t->floors = DS_NEW_N(&t->arena, int64_t, p->graph.n_ops);
        ds_tag_floors(p, t->actions, t->n_actions, t->floors);
    }
    if (t->options.prior) t->view = ds_tag_view_new(p, t->actions, t->n_actions, &t->arena);
    t->best = DS_NEW_N(&t->arena, ds_tag_action, t->n_groups);
    for (uint32_t i = 0; i < t->options.n_leaves; i++) {
        t->leaves[i].path = DS_NEW_N(&t->arena, uint32_t, t->n_groups);
        t->leaves[i].passed = DS_NEW_N(&t->arena, uint32_t, t->n_groups);
        t->leaves[i].action = DS_NEW_N(&t->arena, ds_tag_action, t->n_groups);
        if (t->view) t->leaves[i].prior = DS_NEW_N(&t->arena, double, t->n_actions);
    }
    add_node(t, 0);
    return DS_OK;
}

ds_status ds_tag_tree_new(const ds_tag_tree_options *options, ds_tag_tree **out, ds_error *err) {
    if (options->n_leaves < 1 || options->n_leaves > MOST_LEAVES || options->n_workers < 1 ||
        options->n_workers > MOST_WORKERS)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "%u leaves of a round, %u workers: 1 … %d and 1 … %d are possible",
                            options->n_leaves, options->n_workers, MOST_LEAVES, MOST_WORKERS);
    if (options->prior && options->evaluate)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "a prior reads TAG mode's simulation: leave the evaluator out");
    ds_tag_tree *tree = ds_xcalloc(1, sizeof *tree);
    tree->options = *options;
    ds_arena_init(&tree->arena);
    ds_status status = init(tree, err);
    if (status == DS_OK)
        *out = tree;
    else
        ds_tag_tree_free(tree);
    return status;
}

void ds_tag_tree_free(ds_tag_tree *tree) {
    if (tree == NULL) return;
    ds_arena_deinit(&tree->arena);
    free(tree);
}

ds_tag_tree_result ds_tag_tree_result_of(const ds_tag_tree *tree) {
    ds_tag_tree_result result = tree->result;
    result.n_nodes = tree->nodes.n;
    result.best_us = tree->best_us;
    return result;
}

void ds_tag_tree_each(const ds_tag_tree *tree, uint32_t visits, ds_tag_told tell, void *context) {
    uint32_t n = tree->nodes.n;
    uint32_t *parent = ds_xcalloc(n, sizeof *parent), *by = ds_xcalloc(n, sizeof *by);
    ds_tag_action *action = ds_xcalloc(tree->n_groups, sizeof *action);
    double *share = ds_xcalloc(tree->n_actions, sizeof *share);
    for (uint32_t i = 0; i < n; i++) {
        const node *at = &tree->nodes.at[i];
        for (uint32_t k = 0; at->edges && k < tree->n_actions; k++) {
            if (at->edges[k].child == 0) continue;
            parent[at->edges[k].child] = i;
            by[at->edges[k].child] = at->edges[k].action;
        }
        if (!at->edges || at->visits < visits) continue;
        for (uint32_t j = i; tree->nodes.at[j].depth > 0; j = parent[j])
            action[tree->nodes.at[j].depth - 1] = tree->actions[by[j]];
        double sum = 0;
        for (uint32_t k = 0; k < tree->n_actions; k++) sum += at->edges[k].visits;
        if (!(sum > 0)) continue;
        for (uint32_t k = 0; k < tree->n_actions; k++)
            share[at->edges[k].action] = at->edges[k].visits / sum;
        tell(context, action, at->depth, share);
    }
    free(parent);
    free(by);
    free(action);
    free(share);
}

ds_tag_tree_result ds_tag_tree_best_of(const ds_tag_tree *tree) {
    return tree->result;
}
