/* Tree and improvement, both of whole simulations.
 *
 * Improvement climbs. In the order of the program a deployment is a row of segments of one action. A set
 * of groups gets another action: at first beginnings and ends of the program, and all readers of one
 * weight; then runs of half of the program, a quarter … one group. Of all sets of one kind the best
 * change holds: a single group in the middle of others pays for the ways there and back, so that wide
 * sets come first. After each such change segments get other actions, and their ends move, where that
 * is faster at once. */
#include "search/tag/plan.h"

#include "ir/base/map.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_EVERY = 256 };

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
    bool *is_usable;            /* [action]: passes take it beside others */
    DS_VEC(set_of_groups) sets; /* wide ones: readers of a weight, beginnings, ends; then runs */
    uint32_t n_wide;
    uint32_t *order; /* groups as they begin in the program */
    ds_arena arena;
    pthread_mutex_t lock; /* of n_checked */
} searcher;

/* ---- simulations ---- */

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

/* The text says the same. */
static ds_status check(searcher *s, const uint32_t *choice, ds_error *err) {
    ds_tag_simulated a = ds_tag_whole_simulate(s->plan->whole, choice, NULL);
    ds_tag_simulated b = ds_tag_whole_replay(s->plan->whole, choice, NULL);
    if (a.step_ps == b.step_ps && a.peak_bytes == b.peak_bytes && a.fits == b.fits) return DS_OK;
    return ds_error_set(err, DS_ERR_INTERNAL, DS_NOWHERE,
                        "a deployment takes %lld ps and %lld bytes in the search, and %lld ps and "
                        "%lld bytes as a text",
                        (long long)a.step_ps, (long long)a.peak_bytes, (long long)b.step_ps,
                        (long long)b.peak_bytes);
}

/* ---- the tree ---- */

static double value_of(const searcher *s, const ds_tag_simulated *r) {
    if (r->status || !r->fits) return -1;
    double v = (double)s->plan->baseline[DS_TAG_ALL].step_ps / (double)r->step_ps - 1;
    return v > 1 ? sqrt(sqrt(v)) : v;
}

static ds_status evaluate(const void *context, const ds_tag_action *action, ds_arena *arena,
                          double *value, ds_error *err) {
    searcher *s = (searcher *)(uintptr_t)context;
    uint32_t *choice = DS_NEW_N(arena, uint32_t, s->n_groups + 1);
    for (uint32_t g = 0; g < s->n_groups && action[0].gpus; g++)
        choice[g] =
            ds_tag_choices_number(s->plan->choices, action[g].gpus ? &action[g] : &action[0]);
    ds_tag_simulated r = ds_tag_whole_simulate(s->plan->whole, choice, NULL);
    *value = value_of(s, &r);
    if (ds_hash_bytes(choice, s->n_groups * sizeof *choice) % CHECK_EVERY) return DS_OK;
    pthread_mutex_lock(&s->lock);
    s->plan->n_checked++;
    pthread_mutex_unlock(&s->lock);
    return check(s, choice, err);
}

/* ---- runs of groups ---- */

static void add_run(searcher *s, uint32_t first, uint32_t n) {
    set_of_groups run = {&s->order[first], n};
    DS_PUSH(&s->arena, &s->sets, run);
}

/* Runs of half of the program, a quarter … one group; of each length they overlap by halves. */
static void add_runs(searcher *s) {
    for (uint32_t n = s->n_groups / 2; n > 0; n /= 2)
        for (uint32_t first = 0; first + n <= s->n_groups; first += n / 2 + (n == 1))
            add_run(s, first, n);
}

/* The groups that read a weight, if there are several, and with `tail` all after the last of them. */
static void add_family(searcher *s, uint32_t weight, bool tail) {
    const ds_tag_graph *g = &s->plan->model->problem.graph;
    bool *reads = DS_NEW_N(&s->arena, bool, s->n_groups + 1);
    uint32_t *group = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1), n = 0, last = 0,
             n_readers = 0;
    for (uint32_t op = 0; op < g->n_ops; op++)
        for (uint32_t k = 0; k < g->op[op].n_parents; k++)
            reads[g->op[op].group] |= g->op[op].parent[k] == weight;
    for (uint32_t i = 0; i < s->n_groups; i++) {
        if (!reads[s->order[i]]) continue;
        last = i;
        n_readers++;
    }
    for (uint32_t i = 0; i < s->n_groups; i++)
        if (reads[s->order[i]] || (tail && i > last)) group[n++] = s->order[i];
    set_of_groups family = {group, n};
    if (n_readers > 1) DS_PUSH(&s->arena, &s->sets, family);
}

/* What changes together: readers of one weight, beginnings and ends of the program, runs. */
static void find_sets(searcher *s) {
    const ds_tag_graph *g = &s->plan->model->problem.graph;
    for (uint32_t op = 0; op < g->n_ops; op++) {
        bool is_weight = g->op[op].n_parents == 0 && g->op[op].result == DS_TAG_WHOLE;
        if (is_weight && g->op[op].result_bytes > (1 << 20)) {
            add_family(s, op, false);
            add_family(s, op, true);
        }
    }
    uint32_t step = s->n_groups / 8 + 1;
    for (uint32_t n = step; n < s->n_groups; n += step) {
        add_run(s, 0, n);
        add_run(s, n, s->n_groups - n);
    }
    s->n_wide = s->sets.n;
    add_runs(s);
}

/* ---- baselines ---- */

static ds_tag_baseline_id baseline_of(const searcher *s, uint32_t action) {
    const ds_tag_action *a = &s->actions[action];
    if (a->gpus != s->actions[0].gpus) return DS_TAG_SUBSET;
    return action == 0 ? DS_TAG_ALL : DS_TAG_SHARES;
}

static ds_status try_uniform(searcher *s, ds_error *err) {
    ds_tag_plan *p = s->plan;
    uint32_t *choice = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    const ds_tag_simulated none = {.step_ps = INT64_MAX, .status = DS_ERR_VALUE};
    ds_error why;
    p->best = none;
    for (uint32_t i = 0; i < DS_TAG_N_BASELINES; i++) p->baseline[i] = none;
    for (uint32_t a = 0; a < s->n_actions; a++) {
        if (s->actions[a].way != DS_TAG_ALL_REDUCE) continue;
        for (uint32_t g = 0; g < s->n_groups; g++) choice[g] = a;
        ds_tag_simulated r = ds_tag_whole_simulate(p->whole, choice, &why);
        if (a == 0 && r.status) {
            if (err) *err = why;
            return r.status;
        }
        ds_tag_simulated *b = &p->baseline[baseline_of(s, a)];
        if (is_better(&r, b)) *b = r;
        take(s, choice);
    }
    return DS_OK;
}

ds_tag_baseline_id ds_tag_plan_rival(const ds_tag_plan *p) {
    uint32_t best = DS_TAG_N_BASELINES;
    for (uint32_t i = 0; i < DS_TAG_N_BASELINES; i++)
        if (!p->baseline[i].status && p->baseline[i].fits &&
            (best == DS_TAG_N_BASELINES || is_better(&p->baseline[i], &p->baseline[best])))
            best = i;
    return (ds_tag_baseline_id)best;
}

/* ---- improvement ---- */

typedef struct climb {
    searcher *s;
    uint32_t *now, *best, *trial; /* [group] */
    ds_tag_simulated now_is, best_is;
    uint64_t end; /* deployments that may be simulated by then */
} climb;

static bool is_spent(const climb *c) {
    return ds_tag_whole_count(c->s->plan->whole) >= c->end;
}

/* With another action of the groups; the best one is kept. */
static void attempt(climb *c, const uint32_t *group, uint32_t n, uint32_t action) {
    size_t bytes = c->s->n_groups * sizeof *c->now;
    memcpy(c->trial, c->now, bytes);
    for (uint32_t i = 0; i < n; i++) c->trial[group[i]] = action;
    if (is_spent(c) || !c->s->is_usable[action] || memcmp(c->trial, c->now, bytes) == 0) return;
    ds_tag_simulated r = ds_tag_whole_simulate(c->s->plan->whole, c->trial, NULL);
    if (!is_better(&r, &c->best_is)) return;
    c->best_is = r;
    memcpy(c->best, c->trial, bytes);
}

/* Is the best one better than the present one? Then it becomes that. */
static bool move_on(climb *c) {
    if (!is_better(&c->best_is, &c->now_is)) return false;
    c->now_is = c->best_is;
    memcpy(c->now, c->best, c->s->n_groups * sizeof *c->now);
    return true;
}

static uint32_t end_of_segment(const climb *c, uint32_t first) {
    const searcher *s = c->s;
    uint32_t end = first + 1;
    while (end < s->n_groups && c->now[s->order[end]] == c->now[s->order[first]]) end++;
    return end;
}

/* The end between two segments moves by up to 8 groups. */
static bool shift(climb *c, uint32_t end) {
    const uint32_t *order = c->s->order, n = c->s->n_groups;
    for (uint32_t d = 8; d > 0; d /= 2) {
        uint32_t before = c->now[order[end - 1]], behind = c->now[order[end]];
        if (d <= end) attempt(c, &order[end - d], d, behind);
        if (end + d <= n) attempt(c, &order[end], d, before);
        if (move_on(c)) return true;
    }
    return false;
}

/* One change for the better of a segment. */
static bool polish_once(climb *c) {
    const searcher *s = c->s;
    for (uint32_t first = 0, end; first < s->n_groups; first = end) {
        end = end_of_segment(c, first);
        bool is_all = end - first == s->n_groups; /* one action for all has been tried */
        for (uint32_t a = 0; a < s->n_actions && !is_all; a++)
            attempt(c, &s->order[first], end - first, a);
        if (move_on(c) || (end < s->n_groups && shift(c, end))) return true;
    }
    return false;
}

/* From `now` to a deployment that no change makes better. */
static void climb_up(climb *c) {
    const searcher *s = c->s;
    uint32_t first = 0, end;
    while (polish_once(c)) continue;
    for (uint32_t idle = 0; idle < s->sets.n && !is_spent(c); first = end % s->sets.n) {
        for (end = first; end < s->sets.n; end++) { /* wide ones, or runs of one length */
            bool is_wide = first < s->n_wide;
            if (is_wide ? end == s->n_wide : s->sets.at[end].n != s->sets.at[first].n) break;
            for (uint32_t a = 0; a < s->n_actions; a++)
                attempt(c, s->sets.at[end].group, s->sets.at[end].n, a);
        }
        bool moves = move_on(c);
        idle = moves ? 0 : idle + end - first;
        while (moves && polish_once(c)) continue;
    }
}

static void improve(searcher *s, const uint32_t *from, uint64_t end) {
    climb c = {.s = s, .end = end};
    c.now = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    c.best = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    c.trial = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    memcpy(c.now, from, s->n_groups * sizeof *from);
    c.now_is = c.best_is = ds_tag_whole_simulate(s->plan->whole, from, NULL);
    climb_up(&c);
    take(s, c.now);
}

/* From the best so far with half of the simulations, then from all devices. */
static void improve_starts(searcher *s) {
    uint32_t *choice = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    uint64_t made = ds_tag_whole_count(s->plan->whole), n = s->options->n_whole;
    improve(s, s->plan->choice, made + n / 2);
    improve(s, choice, made + n);
}

/* The scenario's own groups are a deployment. */
static ds_status try_start(searcher *s, ds_error *err) {
    uint32_t *choice = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    bool is_given;
    DS_TRY(ds_tag_whole_start(s->plan->whole, choice, &is_given, err));
    if (is_given) take(s, choice);
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

/* The tree decides the groups by falling time. */
static ds_status search_tree(searcher *s, ds_error *err) {
    ds_tag_plan *p = s->plan;
    ds_tag_action *actions = DS_NEW_N(&s->arena, ds_tag_action, s->n_actions + 1);
    uint32_t n_actions = 0, *choice = DS_NEW_N(&s->arena, uint32_t, s->n_groups + 1);
    for (uint32_t a = 0; a < s->n_actions; a++)
        if (s->is_usable[a]) actions[n_actions++] = s->actions[a];
    ds_tag_tree *tree;
    ds_tag_problem problem = p->model->problem;
    problem.quirks |= DS_TAG_FIRST_ACTION;
    ds_tag_tree_options options = {.problem = &problem,
                                   .n_leaves = DS_TAG_ROUND,
                                   .n_workers = s->options->n_workers,
                                   .seed = s->options->seed,
                                   .evaluate = evaluate,
                                   .context = s,
                                   .actions = actions,
                                   .n_actions = n_actions};
    DS_TRY(ds_tag_tree_new(&options, &tree, err));
    ds_status status = ds_tag_tree_run(tree, s->options->n_playouts, err);
    ds_tag_tree_result r = ds_tag_tree_best_of(tree);
    p->n_playouts = r.n_playouts;
    p->n_evaluated = r.n_evaluated;
    for (uint32_t g = 0; r.best && g < s->n_groups; g++)
        choice[g] = ds_tag_choices_number(p->choices, &r.best[g]);
    if (r.best) take(s, choice);
    ds_tag_tree_free(tree);
    return status;
}

static ds_status make(searcher *s, const ds_pase_source *source, const ds_profiles *profiles,
                      ds_error *err) {
    ds_tag_plan *p = s->plan;
    DS_TRY(ds_tag_model_read(source, profiles, &p->model, err));
    ds_tag_model_gather(p->model, s->options->n_groups);
    DS_TRY(ds_tag_choices_new(p->model, &p->choices, err));
    p->least_us = ds_tag_least_us(p->choices);
    DS_TRY(ds_tag_whole_new(source, profiles, p->choices, &p->whole, err));
    s->n_groups = p->model->problem.graph.n_groups;
    s->actions = p->choices->action;
    s->n_actions = p->choices->n;
    p->choice = DS_NEW_N(&p->model->arena, uint32_t, s->n_groups + 1);
    find_order(s);
    find_sets(s);
    DS_TRY(try_uniform(s, err));
    DS_TRY(try_start(s, err));
    find_usable(s);
    DS_TRY(search_tree(s, err));
    improve_starts(s);
    p->n_simulated = ds_tag_whole_count(p->whole);
    return check(s, p->choice, err);
}

ds_status ds_tag_plan_new(const ds_pase_source *source, const ds_profiles *profiles,
                          const ds_tag_plan_options *options, ds_tag_plan **out, ds_error *err) {
    searcher s = {.options = options, .plan = ds_xcalloc(1, sizeof(ds_tag_plan))};
    ds_arena_init(&s.arena);
    pthread_mutex_init(&s.lock, NULL);
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
    ds_tag_choices_free(plan->choices);
    ds_tag_model_free(plan->model);
    free(plan);
}
