/* Tree, improvement, whole simulations.
 *
 * The tree's leaves go to a list of the best distinct ones, and one in 256, by a hash of its actions,
 * to a list of checks: both lists depend on the leaves alone, so on no order of workers.
 *
 * Improvement changes the action of a run of groups, in the order of the program, of 1, 2, 4 …
 * groups: a single group in the middle of others pays for the ways there and back. The first change
 * for the better holds, until none is left. Under whole simulations changes are tried in the order
 * of their estimates. */
#include "search/tag/plan.h"

#include "ir/base/map.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHECKS = 64, CHECK_EVERY = 256, MOST_BEST = 64 };

typedef struct entry {
    double us;
    uint32_t *choice;
} entry;

typedef struct list {
    entry at[MOST_BEST];
    uint32_t n, most;
} list;

/* Groups that change together. */
typedef struct set_of_groups {
    const uint32_t *group;
    uint32_t n;
} set_of_groups;

typedef struct searcher {
    ds_tag_plan *plan;
    const ds_tag_plan_options *options;
    uint32_t n_groups, n_actions;
    const ds_tag_action *actions;
    bool *is_usable; /* [action]: passes take it beside others */
    DS_VEC(set_of_groups) sets;
    uint32_t *order; /* groups as they begin in the program */
    ds_arena arena;
    pthread_mutex_t lock;
    list best, checks;
    uint64_t check_from; /* hashes of the checks: the least ones stay */
    uint64_t n_estimates;
} searcher;

/* ---- lists ---- */

static int compare(const searcher *s, const entry *a, const entry *b) {
    if (a->us < b->us) return -1;
    if (a->us > b->us) return 1;
    return memcmp(a->choice, b->choice, s->n_groups * sizeof *a->choice);
}

/* Keeps the least ones, each once. */
static void keep(searcher *s, list *l, double us, const uint32_t *choice) {
    entry e = {us, (uint32_t *)choice};
    uint32_t i = l->n;
    while (i > 0 && compare(s, &e, &l->at[i - 1]) < 0) i--;
    if (i > 0 && compare(s, &e, &l->at[i - 1]) == 0) return;
    if (i == l->most) return;
    uint32_t last = l->n < l->most ? l->n++ : l->n - 1;
    e.choice = l->at[last].choice;
    if (!e.choice) e.choice = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    memmove(&l->at[i + 1], &l->at[i], (last - i) * sizeof *l->at);
    memcpy(e.choice, choice, s->n_groups * sizeof *choice);
    l->at[i] = e;
}

/* ---- estimates ---- */

/* Microseconds; of a deployment that does not fit a thousand times as many. */
static ds_status estimate(searcher *s, const uint32_t *choice, double *us, ds_error *err) {
    ds_arena arena;
    ds_tag_estimate e;
    ds_arena_init(&arena);
    ds_status status = ds_tag_fast_estimate(s->plan->fast, choice, &arena, &e, err);
    *us = e.fits ? e.us : 1000 * e.us;
    s->n_estimates++;
    ds_arena_deinit(&arena);
    return status;
}

static ds_status evaluate(const void *context, const ds_tag_action *action, ds_arena *arena,
                          double *value, ds_error *err) {
    searcher *s = (searcher *)(uintptr_t)context;
    const ds_tag_fast *f = s->plan->fast;
    uint32_t *choice = DS_NEW_N(arena, uint32_t, s->n_groups + 1);
    ds_tag_estimate e;
    double base_us;
    for (uint32_t g = 0; g < s->n_groups; g++)
        choice[g] = ds_tag_fast_number(f, action[g].gpus ? &action[g] : &action[0]);
    if (!action[0].gpus) memset(choice, 0, s->n_groups * sizeof *choice);
    DS_TRY(ds_tag_fast_estimate(f, choice, arena, &e, err));
    ds_tag_fast_base(f, &base_us);
    *value = ds_tag_fast_value(base_us, &e);
    uint64_t hash = ds_hash_bytes(choice, s->n_groups * sizeof *choice);
    pthread_mutex_lock(&s->lock);
    keep(s, &s->best, e.fits ? e.us : 1000 * e.us, choice);
    if (hash % CHECK_EVERY == 0) keep(s, &s->checks, (double)(hash >> 11), choice);
    pthread_mutex_unlock(&s->lock);
    return DS_OK;
}

/* ---- runs of groups ---- */

typedef struct change {
    uint32_t set, action;
    double us;
} change;

static bool apply(const searcher *s, const change *c, uint32_t *choice) {
    bool changes = false;
    const set_of_groups *set = &s->sets.at[c->set];
    for (uint32_t i = 0; i < set->n; i++) {
        changes |= choice[set->group[i]] != c->action;
        choice[set->group[i]] = c->action;
    }
    return changes;
}

static void add_run(searcher *s, uint32_t first, uint32_t n) {
    set_of_groups run = {&s->order[first], n};
    DS_PUSH(&s->arena, &s->sets, run);
}

/* Runs of 1, 2, 4 … groups, and all that begin or end with the program. */
static void add_runs(searcher *s) {
    uint32_t n_groups = s->n_groups;
    for (uint32_t n = 1; n < n_groups; n *= 2)
        for (uint32_t first = 0; first + n <= n_groups; first++) add_run(s, first, n);
    for (uint32_t n = 3; n <= n_groups; n++) {
        if ((n & (n - 1)) == 0 && n < n_groups) continue;
        add_run(s, 0, n);
        if (n < n_groups) add_run(s, n_groups - n, n);
    }
}

/* The groups that read a weight, and with `tail` all after the last of them. */
static void add_family(searcher *s, uint32_t weight, bool tail) {
    const ds_tag_graph *g = &s->plan->model->problem.graph;
    bool *reads = DS_NEW_N(&s->arena, bool, s->n_groups + 1);
    uint32_t *group = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1), n = 0, last = 0;
    for (uint32_t op = 0; op < g->n_ops; op++)
        for (uint32_t k = 0; k < g->op[op].n_parents; k++)
            reads[g->op[op].group] |= g->op[op].parent[k] == weight;
    for (uint32_t i = 0; i < s->n_groups; i++)
        if (reads[s->order[i]]) last = i;
    for (uint32_t i = 0; i < s->n_groups; i++)
        if (reads[s->order[i]] || (tail && i > last)) group[n++] = s->order[i];
    set_of_groups family = {group, n};
    if (n > 1) DS_PUSH(&s->arena, &s->sets, family);
}

/* What changes together: neighbours in the program, and readers of one weight. */
static void find_sets(searcher *s) {
    const ds_tag_graph *g = &s->plan->model->problem.graph;
    add_runs(s);
    for (uint32_t op = 0; op < g->n_ops; op++) {
        bool is_weight = g->op[op].n_parents == 0 && g->op[op].result == DS_TAG_WHOLE;
        if (is_weight && g->op[op].result_bytes > (1 << 20)) {
            add_family(s, op, false);
            add_family(s, op, true);
        }
    }
}

/* *better: a change was found and made. */
static ds_status improve_once(searcher *s, uint32_t *choice, double *us, bool *better,
                              ds_error *err) {
    uint32_t *trial = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    *better = false;
    for (uint32_t r = 0; r < s->sets.n; r++)
        for (uint32_t a = 0; a < s->n_actions; a++) {
            change c = {r, a, 0};
            memcpy(trial, choice, s->n_groups * sizeof *trial);
            if (!s->is_usable[a] || !apply(s, &c, trial)) continue;
            DS_TRY(estimate(s, trial, &c.us, err));
            if (c.us >= *us * (1 - 1e-9)) continue;
            *us = c.us;
            memcpy(choice, trial, s->n_groups * sizeof *trial);
            *better = true;
        }
    return DS_OK;
}

static ds_status improve(searcher *s, uint32_t *choice, double *us, ds_error *err) {
    bool better = true;
    for (int sweep = 0; better && sweep < 8; sweep++)
        DS_TRY(improve_once(s, choice, us, &better, err));
    return DS_OK;
}

/* ---- whole simulations ---- */

static bool is_better(const ds_tag_simulated *a, const ds_tag_simulated *b) {
    if (a->status || a->fits != b->fits) return !a->status && a->fits;
    return a->step_ps < b->step_ps;
}

static bool take(searcher *s, const uint32_t *choice) {
    ds_tag_simulated r = ds_tag_whole_simulate(s->plan->whole, choice, NULL);
    if (!is_better(&r, &s->plan->best)) return false;
    s->plan->best = r;
    memcpy(s->plan->choice, choice, s->n_groups * sizeof *choice);
    return true;
}

static int by_estimate(const void *a, const void *b) {
    const change *x = a, *y = b;
    if (x->us != y->us) return x->us < y->us ? -1 : 1;
    if (x->set != y->set) return x->set < y->set ? -1 : 1;
    return x->action < y->action ? -1 : x->action > y->action;
}

/* All changes of the best deployment, in the order of their estimates. */
static ds_status list_changes(searcher *s, change *list_, uint32_t *n_out, ds_error *err) {
    uint32_t *trial = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1), n_list = 0;
    for (uint32_t r = 0; r < s->sets.n; r++)
        for (uint32_t a = 0; a < s->n_actions; a++) {
            change c = {r, a, 0};
            memcpy(trial, s->plan->choice, s->n_groups * sizeof *trial);
            if (!s->is_usable[a] || !apply(s, &c, trial)) continue;
            DS_TRY(estimate(s, trial, &c.us, err));
            list_[n_list++] = c;
        }
    qsort(list_, n_list, sizeof *list_, by_estimate);
    *n_out = n_list;
    return DS_OK;
}

static ds_status improve_whole(searcher *s, ds_error *err) {
    uint32_t most = s->sets.n * s->n_actions, n;
    uint64_t end = ds_tag_whole_count(s->plan->whole) + s->options->n_whole;
    change *changes = DS_NEW_N(&s->arena, change, most);
    uint32_t *trial = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    for (bool better = true; better;) {
        double us;
        better = false;
        DS_TRY(list_changes(s, changes, &n, err));
        DS_TRY(estimate(s, s->plan->choice, &us, err));
        for (uint32_t i = 0; i < n && !better; i++) {
            if (ds_tag_whole_count(s->plan->whole) >= end) return DS_OK;
            if (s->options->within > 0 && changes[i].us > us * s->options->within) break;
            memcpy(trial, s->plan->choice, s->n_groups * sizeof *trial);
            apply(s, &changes[i], trial);
            better = take(s, trial);
        }
    }
    return DS_OK;
}

/* ---- checks of leaves ---- */

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static ds_status check_leaves(searcher *s, ds_error *err) {
    double error[MOST_BEST];
    ds_tag_check_of_leaves *c = &s->plan->check;
    for (uint32_t i = 0; i < s->checks.n; i++) {
        ds_arena arena;
        ds_tag_estimate e;
        ds_tag_simulated r = ds_tag_whole_simulate(s->plan->whole, s->checks.at[i].choice, NULL);
        if (r.status) continue;
        ds_arena_init(&arena);
        ds_status status =
            ds_tag_fast_estimate(s->plan->fast, s->checks.at[i].choice, &arena, &e, err);
        ds_arena_deinit(&arena);
        DS_TRY(status);
        error[c->n] = fabs(e.us / ((double)r.step_ps * 1e-6) - 1);
        c->n_exact += error[c->n] <= 1e-6;
        c->n_near += error[c->n] <= 0.01;
        c->n++;
    }
    if (c->n == 0) return DS_OK;
    qsort(error, c->n, sizeof *error, by_size);
    c->median = error[c->n / 2];
    c->worst = error[c->n - 1];
    return DS_OK;
}

/* ---- the search ---- */

static void find_order(searcher *s) {
    const ds_tag_graph *g = &s->plan->model->problem.graph;
    bool *seen = DS_NEW_N(&s->arena, bool, s->n_groups + 1);
    uint32_t n = 0;
    s->order = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    for (uint32_t i = 0; i < g->n_ops; i++) {
        uint32_t group = g->op[i].group;
        if (g->op[i].n_parents == 0 || seen[group]) continue;
        seen[group] = true;
        s->order[n++] = group;
    }
    for (uint32_t group = 0; group < s->n_groups; group++)
        if (!seen[group]) s->order[n++] = group;
}

/* What passes refuse beside other actions is of no use: of each way with shares, and without, one is
 * tried in the first half of the program. */
static void find_usable(searcher *s) {
    uint32_t *choice = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    bool is_known[2][DS_TAG_COLUMNS + 1] = {0}, takes[2][DS_TAG_COLUMNS + 1];
    s->is_usable = DS_NEW_N(&s->arena, bool, s->n_actions + 1);
    for (uint32_t a = 0; a < s->n_actions; a++) {
        bool shares = s->actions[a].share != NULL, *takes_it = &takes[shares][s->actions[a].way];
        if (!is_known[shares][s->actions[a].way]) {
            for (uint32_t i = 0; i < s->n_groups; i++)
                choice[s->order[i]] = i < s->n_groups / 2 ? a : 0;
            is_known[shares][s->actions[a].way] = true;
            *takes_it = ds_tag_whole_simulate(s->plan->whole, choice, NULL).status == DS_OK;
        }
        s->is_usable[a] = *takes_it || a == 0;
    }
}

static ds_status search_tree(searcher *s, ds_error *err) {
    ds_tag_plan *p = s->plan;
    ds_tag_action *actions = DS_NEW_N(&s->arena, ds_tag_action, s->n_actions + 1);
    uint32_t n_actions = 0;
    for (uint32_t a = 0; a < s->n_actions; a++)
        if (s->is_usable[a]) actions[n_actions++] = s->actions[a];
    ds_tag_tree *tree;
    ds_tag_problem problem = p->model->problem;
    problem.quirks |= DS_TAG_FIRST_ACTION;
    ds_tag_tree_options options = {.problem = &problem,
                                   .n_leaves = 16,
                                   .n_workers = s->options->n_workers,
                                   .seed = s->options->seed,
                                   .evaluate = evaluate,
                                   .context = s,
                                   .actions = actions,
                                   .n_actions = n_actions};
    DS_TRY(ds_tag_tree_new(&options, &tree, err));
    ds_status status = ds_tag_tree_run(tree, s->options->n_playouts, err);
    ds_tag_tree_result r = ds_tag_tree_result_of(tree);
    p->n_playouts = r.n_playouts;
    p->n_evaluated = r.n_evaluated;
    ds_tag_tree_free(tree);
    return status;
}

/* Every action for all groups: data parallelism among them. */
static ds_status try_uniform(searcher *s, ds_error *err) {
    ds_tag_plan *p = s->plan;
    uint32_t *choice = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    ds_error why;
    p->best = p->subset = (ds_tag_simulated){.status = DS_ERR_VALUE};
    for (uint32_t a = 0; a < s->n_actions; a++) {
        for (uint32_t g = 0; g < s->n_groups; g++) choice[g] = a;
        if (s->actions[a].way != DS_TAG_ALL_REDUCE) continue;
        ds_tag_simulated r = ds_tag_whole_simulate(p->whole, choice, &why);
        if (a == 0) p->base = r;
        if (a == 0 && r.status) {
            if (err) *err = why;
            return r.status;
        }
        double us;
        DS_TRY(estimate(s, choice, &us, err));
        keep(s, &s->best, us, choice);
        take(s, choice);
        bool is_all = s->actions[a].gpus == s->actions[0].gpus;
        if (is_all || !is_better(&r, &p->subset)) continue;
        p->subset = r;
        p->subset_action = a;
    }
    return DS_OK;
}

/* From the best of all: leaves of the tree, and one action for all groups. */
static ds_status improve_starts(searcher *s, ds_error *err) {
    enum { STARTS = 5 };
    list starts = {.most = STARTS};
    uint32_t *choice = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    for (uint32_t i = 0; i < 2 && i < s->best.n; i++)
        keep(s, &starts, s->best.at[i].us, s->best.at[i].choice);
    for (uint32_t a = 0; a < s->n_actions; a++) {
        double us;
        if (!s->is_usable[a] || s->actions[a].share || s->actions[a].way != DS_TAG_ALL_REDUCE)
            continue;
        for (uint32_t g = 0; g < s->n_groups; g++) choice[g] = a;
        DS_TRY(estimate(s, choice, &us, err));
        keep(s, &starts, a == 0 ? 0 : us, choice); /* all devices in any case */
    }
    for (uint32_t i = 0; i < starts.n; i++) {
        entry *e = &starts.at[i];
        DS_TRY(estimate(s, e->choice, &e->us, err));
        DS_TRY(improve(s, e->choice, &e->us, err));
        keep(s, &s->best, e->us, e->choice);
    }
    return DS_OK;
}

static ds_status search_all(searcher *s, ds_error *err) {
    ds_tag_plan *p = s->plan;
    DS_TRY(try_uniform(s, err));
    find_usable(s);
    DS_TRY(search_tree(s, err));
    p->tree_us = s->best.at[0].us;
    DS_TRY(improve_starts(s, err));
    p->improved_us = s->best.at[0].us;
    for (uint32_t i = 0; i < s->best.n; i++) take(s, s->best.at[i].choice);
    DS_TRY(improve_whole(s, err));
    DS_TRY(check_leaves(s, err));
    return estimate(s, p->choice, &p->best_estimate_us, err);
}

static ds_status make(searcher *s, const ds_pase_source *source, const ds_profiles *profiles,
                      ds_error *err) {
    ds_tag_plan *p = s->plan;
    DS_TRY(ds_tag_model_read(source, profiles, &p->model, err));
    ds_tag_model_gather(p->model, s->options->n_groups);
    DS_TRY(ds_tag_fast_new(p->model, &p->fast, err));
    p->whole = ds_tag_whole_new(source, profiles, p->model, p->fast);
    s->n_groups = p->model->problem.graph.n_groups;
    s->actions = ds_tag_fast_actions(p->fast, &s->n_actions);
    p->choice = DS_NEW_N(&p->model->arena, uint32_t, s->n_groups + 1);
    find_order(s);
    find_sets(s);
    DS_TRY(search_all(s, err));
    p->n_estimates = s->n_estimates + p->n_evaluated;
    p->n_simulated = ds_tag_whole_count(p->whole);
    return DS_OK;
}

ds_status ds_tag_plan_new(const ds_pase_source *source, const ds_profiles *profiles,
                          const ds_tag_plan_options *options, ds_tag_plan **out, ds_error *err) {
    searcher s = {.options = options, .plan = ds_xcalloc(1, sizeof(ds_tag_plan))};
    ds_arena_init(&s.arena);
    pthread_mutex_init(&s.lock, NULL);
    s.best.most = options->n_best < MOST_BEST ? options->n_best : MOST_BEST;
    if (s.best.most == 0) s.best.most = 1;
    s.checks.most = MOST_CHECKS;
    ds_status status = make(&s, source, profiles, err);
    pthread_mutex_destroy(&s.lock);
    ds_arena_deinit(&s.arena);
    *out = s.plan;
    if (status) {
        ds_tag_plan_free(s.plan);
        *out = NULL;
    }
    return status;
}

void ds_tag_plan_free(ds_tag_plan *plan) {
    if (!plan) return;
    ds_tag_whole_free(plan->whole);
    ds_tag_fast_free(plan->fast);
    ds_tag_model_free(plan->model);
    free(plan);
}
