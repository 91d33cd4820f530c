/* Finds runs of equal blocks.
 *
 * Nodes come in the order of the program, in which a block's nodes are next to each other. For a
 * period P the nodes whose local hash is that of the node P before make segments; in each, the
 * blocks may be cut at any of P offsets, and one more copy may be there in front of it that reads
 * from elsewhere. A cut is judged by a walk in step: edge k of every node of copy j is edge k of
 * the same node of copy 1, and comes from
 *
 *   the copy itself, the same offset;
 *   the copy before, the same offset: a node of the state;
 *   the same node before the run: a global one.
 *
 * Edges that leave the run start at the last copy's state, or are the same for all copies and end
 * at a global node. If another node of the last copy is read from outside, that copy is not part
 * of the run. */
#include "search/tap/internal.h"

#include "ir/base/map.h"
#include "search/pase/tables.h"

#include <stdlib.h>
#include <string.h>

typedef struct finder {
    const ds_pase_graph *graph;
    const ds_pase_model *model;
    ds_arena *arena;
    uint32_t n;
    uint32_t *alike;   /* per node: the first that is equal */
    double *n_configs; /* per node */
    uint64_t *local;   /* per node: its hash */
    ds_tap_edges in, out;
    bool *taken; /* per node: in a run */
} finder;

static const ds_pase_edge *edge_at(const finder *f, uint32_t e) {
    return &f->graph->edges.at[e];
}

static uint32_t n_in(const finder *f, uint32_t v) {
    return f->in.first[v + 1] - f->in.first[v];
}

static const ds_pase_edge *in_edge(const finder *f, uint32_t v, uint32_t k) {
    return edge_at(f, f->in.list[f->in.first[v] + k]);
}

/* ---- what is equal ---- */

/* Do two nodes have the same configurations, whatever the limits? */
static bool same_choices(const ds_pase_node *a, const ds_pase_node *b) {
    bool reshape = a->kind == DS_PASE_RESHAPE;
    return a->n_axes == b->n_axes && a->whole == b->whole && a->data == b->data &&
           reshape == (b->kind == DS_PASE_RESHAPE) &&
           memcmp(a->size, b->size, a->n_axes * sizeof *a->size) == 0 &&
           memcmp(a->rule_size, b->rule_size, a->n_axes * sizeof *a->rule_size) == 0 &&
           (!reshape || memcmp(a->group, b->group, a->n_axes) == 0);
}

static uint64_t local_hash(const finder *f, uint32_t v) {
    uint64_t hash = ds_hash_mix(f->alike[v], n_in(f, v));
    for (uint32_t k = 0; k < n_in(f, v); k++) {
        const ds_pase_edge *e = in_edge(f, v, k);
        hash = ds_hash_mix(hash, ds_hash_bytes(e->size, e->rank * sizeof *e->size));
        hash = ds_hash_mix(hash, ds_hash_bytes(e->from_axis, e->rank));
        hash = ds_hash_mix(hash, ds_hash_bytes(e->to_axis, e->rank));
        hash = ds_hash_mix(hash, f->alike[e->from]);
    }
    return hash;
}

ds_tap_edges ds_tap__edges_of(const ds_pase_graph *graph, const ds_pase_model *model,
                              bool by_reader, ds_arena *arena) {
    uint32_t n = graph->nodes.n;
    ds_tap_edges out = {DS_NEW_N(arena, uint32_t, n + 2),
                        DS_NEW_N(arena, uint32_t, graph->edges.n + 1)};
    uint32_t *next = DS_NEW_N(arena, uint32_t, n + 1);
    for (uint32_t e = 0; e < graph->edges.n; e++) {
        const ds_pase_edge *edge = &graph->edges.at[e];
        if (ds_pase_counts(model, edge)) out.first[(by_reader ? edge->to : edge->from) + 1]++;
    }
    for (uint32_t v = 0; v < n; v++) next[v] = out.first[v + 1] += out.first[v];
    for (uint32_t e = graph->edges.n; e-- > 0;) {
        const ds_pase_edge *edge = &graph->edges.at[e];
        if (ds_pase_counts(model, edge)) out.list[--next[by_reader ? edge->to : edge->from]] = e;
    }
    return out;
}

static ds_status look(finder *f, ds_error *err) {
    uint32_t n = f->n;
    f->alike = DS_NEW_N(f->arena, uint32_t, n + 1);
    f->n_configs = DS_NEW_N(f->arena, double, n + 1);
    f->local = DS_NEW_N(f->arena, uint64_t, n + 1);
    f->taken = DS_NEW_N(f->arena, bool, n + 1);
    f->in = ds_tap__edges_of(f->graph, f->model, true, f->arena);
    f->out = ds_tap__edges_of(f->graph, f->model, false, f->arena);
    ds_pase__find_alike(f->graph, f->model, f->alike);
    for (uint32_t v = 0; v < n; v++) {
        f->local[v] = local_hash(f, v);
        if (f->alike[v] != v) {
            f->n_configs[v] = f->n_configs[f->alike[v]];
            continue;
        }
        ds_pase_configs set;
        DS_TRY(ds_pase_enumerate(&f->graph->nodes.at[v], &f->model->limits, f->arena, &set, err));
        f->n_configs[v] = set.n;
    }
    return DS_OK;
}

/* ---- a walk in step ---- */

/* Is copy j of the blocks from s on equal to copy 1? j ≥ 2. */
static bool same_copy(const finder *f, uint32_t s, uint32_t period, uint32_t j) {
    uint32_t shift = (j - 1) * period;
    for (uint32_t w = s + period; w < s + 2 * period; w++) {
        uint32_t v = w + shift;
        if (f->taken[v] || f->alike[v] != f->alike[w] || n_in(f, v) != n_in(f, w)) return false;
        for (uint32_t k = 0; k < n_in(f, w); k++) {
            const ds_pase_edge *one = in_edge(f, w, k), *other = in_edge(f, v, k);
            uint32_t from = one->from < s ? one->from : one->from + shift;
            if (other->from != from || !ds_pase__same_tensor(one, other)) return false;
        }
    }
    return true;
}

static void insert(uint32_t *set, uint32_t *n, uint32_t item) {
    uint32_t at = 0;
    while (at < *n && set[at] < item) at++;
    if (at < *n && set[at] == item) return;
    memmove(&set[at + 1], &set[at], (*n - at) * sizeof *set);
    set[at] = item;
    ++*n;
}

static int64_t place_in_set(const uint32_t *set, uint32_t n, uint32_t item) {
    for (uint32_t i = 0; i < n; i++)
        if (set[i] == item) return i;
    return -1;
}

/* State and globals, from what copy 1 reads. False: a state node of copy 0 has other choices. */
static bool read_boundary(const finder *f, uint32_t s, ds_tap_run *run) {
    for (uint32_t w = s + run->period; w < s + 2 * run->period; w++) {
        if (f->taken[w]) return false;
        for (uint32_t k = 0; k < n_in(f, w); k++) {
            uint32_t from = in_edge(f, w, k)->from;
            if (from >= s + 2 * run->period) return false;
            if (from < s) insert(run->global, &run->n_global, from);
            if (from >= s && from < s + run->period) insert(run->state, &run->n_state, from - s);
        }
    }
    for (uint32_t i = 0; i < run->n_state; i++) {
        uint32_t v = s + run->state[i];
        if (f->taken[v] ||
            !same_choices(&f->graph->nodes.at[v], &f->graph->nodes.at[v + run->period]))
            return false;
    }
    return true;
}

/* Is copy 0 like copy 1, but for reading run->in instead of a copy before? Sets run->in. */
static bool has_first(const finder *f, uint32_t s, ds_tap_run *run) {
    const uint32_t none = UINT32_MAX, period = run->period;
    for (uint32_t i = 0; i < run->n_state; i++) run->in[i] = none;
    for (uint32_t v = s; v < s + period; v++) {
        uint32_t w = v + period;
        if (f->taken[v] || f->alike[v] != f->alike[w] || n_in(f, v) != n_in(f, w)) return false;
        for (uint32_t k = 0; k < n_in(f, v); k++) {
            const ds_pase_edge *mine = in_edge(f, v, k), *next = in_edge(f, w, k);
            if (!ds_pase__same_tensor(mine, next)) return false;
            bool state = next->from >= s && next->from < s + period;
            if (!state) {
                uint32_t from = next->from < s ? next->from : next->from - period;
                if (mine->from != from) return false;
                continue;
            }
            int64_t i = place_in_set(run->state, run->n_state, next->from - s);
            if (mine->from >= s || (run->in[i] != none && run->in[i] != mine->from)) return false;
            run->in[i] = mine->from;
        }
    }
    for (uint32_t i = 0; i < run->n_state; i++) {
        uint32_t in = run->in[i];
        if (place_in_set(run->in, i, in) >= 0 ||
            place_in_set(run->global, run->n_global, in) >= 0 ||
            !same_choices(&f->graph->nodes.at[in], &f->graph->nodes.at[s + run->state[i]]))
            return false;
    }
    return true;
}

/* ---- what leaves a run ---- */

/* The k-th edge of v to a node from `end` on; NULL: there are not so many. */
static const ds_pase_edge *exit_of(const finder *f, uint32_t v, uint32_t end, uint32_t k) {
    for (uint32_t i = f->out.first[v]; i < f->out.first[v + 1]; i++) {
        const ds_pase_edge *e = edge_at(f, f->out.list[i]);
        if (e->to >= end && k-- == 0) return e;
    }
    return NULL;
}

/* Have v and w the same exits, to the same nodes? */
static bool same_exits(const finder *f, uint32_t v, uint32_t w, uint32_t end) {
    for (uint32_t k = 0;; k++) {
        const ds_pase_edge *a = exit_of(f, v, end, k), *b = exit_of(f, w, end, k);
        if (!a && !b) return true;
        if (!a || !b || a->to != b->to || !ds_pase__same_tensor(a, b)) return false;
    }
}

typedef enum exits { EXITS_FINE, EXITS_OF_LAST, EXITS_OF_OTHERS } exits;

/* The last copy may have exits of its own, at state nodes; what all copies have is a global node's.
 * In between is nothing: an edge to a node that all copies reach, with one more from the last. */
static exits judge_exits(const finder *f, ds_tap_run *run) {
    uint32_t end = run->start + run->period * run->copies;
    for (uint32_t o = 0; o < run->period; o++) {
        uint32_t first = run->start + o, last = end - run->period + o;
        for (uint32_t v = first + run->period; v < last; v += run->period)
            if (!same_exits(f, first, v, end)) return EXITS_OF_OTHERS;
        bool alike = same_exits(f, first, last, end), any = exit_of(f, first, end, 0) != NULL;
        if (!alike && any) return EXITS_OF_LAST;
        if (!alike && place_in_set(run->state, run->n_state, o) < 0) return EXITS_OF_LAST;
    }
    return EXITS_FINE;
}

static bool add_sinks(const finder *f, ds_tap_run *run) {
    uint32_t end = run->start + run->period * run->copies;
    for (uint32_t o = 0; o < run->period; o++)
        for (uint32_t k = 0;; k++) {
            const ds_pase_edge *e = exit_of(f, run->start + o, end, k);
            if (!e) break;
            if (f->taken[e->to]) return false;
            insert(run->global, &run->n_global, e->to);
        }
    return true;
}

/* ---- runs ---- */

static uint32_t room_for(const finder *f, uint32_t s, uint32_t period) {
    uint32_t n = 0;
    for (uint32_t w = s; w < s + 2 * period; w++) n += n_in(f, w);
    for (uint32_t v = s; v < s + period; v++) n += f->out.first[v + 1] - f->out.first[v];
    return n + 1;
}

/* The longest run of blocks of this period that starts at s, or one block later. */
static bool run_at(const finder *f, uint32_t s, uint32_t period, ds_tap_run *run) {
    uint32_t room, copies = 2;
    if (s + 2 * period > f->n) return false;
    room = room_for(f, s, period);
    *run = (ds_tap_run){.start = s, .period = period};
    run->state = DS_NEW_N(f->arena, uint32_t, room);
    run->in = DS_NEW_N(f->arena, uint32_t, room);
    run->global = DS_NEW_N(f->arena, uint32_t, room);
    if (!read_boundary(f, s, run)) return false;
    while (s + (copies + 1) * period <= f->n && same_copy(f, s, period, copies)) copies++;
    if (!has_first(f, s, run)) {
        for (uint32_t i = 0; i < run->n_state; i++) run->in[i] = s + run->state[i];
        run->start += period;
        copies--;
    }
    for (run->copies = copies; run->copies >= 2; run->copies--) {
        exits found = judge_exits(f, run);
        if (found == EXITS_FINE) return add_sinks(f, run);
        if (found == EXITS_OF_OTHERS) return false;
    }
    return false;
}

/* Entries of the table of one block. */
static double table_of(const finder *f, const ds_tap_run *run) {
    double entries = 1;
    for (uint32_t i = 0; i < run->n_state; i++)
        entries *= f->n_configs[run->in[i]] * f->n_configs[run->in[i]];
    for (uint32_t i = 0; i < run->n_global; i++) entries *= f->n_configs[run->global[i]];
    return entries;
}

static uint32_t saved(const ds_tap_run *run) {
    return run->period * (run->copies - 1);
}

/* A smaller boundary first, as long as it does not cost half of the copies. */
static bool is_better(const finder *f, const ds_tap_run *a, const ds_tap_run *b) {
    if (b->copies == 0) return true;
    double x = table_of(f, a), y = table_of(f, b);
    if (a->period != b->period || saved(a) > 2 * saved(b) || saved(b) > 2 * saved(a))
        return saved(a) > saved(b);
    if (x != y) return x < y;
    return saved(a) > saved(b);
}

#define MOST_ENTRIES 6.7e7 /* 512 MB */

/* The best cut of one segment: from node `from` on, nodes are like those a period behind them. */
static void cut_segment(const finder *f, uint32_t from, uint32_t period, ds_tap_run *best) {
    uint32_t first = from > period ? from - period : 0;
    for (uint32_t s = first; s < from + period; s++) {
        ds_tap_run run;
        if (!run_at(f, s, period, &run) || table_of(f, &run) > MOST_ENTRIES) continue;
        if (is_better(f, &run, best)) *best = run;
    }
}

static void cut_period(const finder *f, uint32_t period, ds_tap_run *best) {
    for (uint32_t i = 0; i + period < f->n;) {
        uint32_t from = i;
        while (i + period < f->n && !f->taken[i] && f->local[i] == f->local[i + period]) i++;
        if (i - from >= period) cut_segment(f, from, period, best);
        if (i == from) i++;
    }
}

/* ---- periods ---- */

typedef struct candidate {
    uint32_t period, votes;
} candidate;

static int by_votes(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->votes != y->votes) return x->votes > y->votes ? -1 : 1;
    return x->period < y->period ? -1 : x->period > y->period;
}

/* How far it is from each node to the next ones with its hash, most frequent distances first. */
static uint32_t propose(const finder *f, candidate *list) {
    enum { AHEAD = 4 };
    uint32_t *votes = ds_xcalloc((size_t)f->n + 1, sizeof *votes), n = 0;
    uint32_t *next = ds_xcalloc((size_t)f->n + 1, sizeof *next);
    ds_map last;
    ds_map_init(&last);
    for (uint32_t v = f->n; v-- > 0;) {
        const uint64_t *found = ds_map_find(&last, f->local[v]);
        next[v] = found ? (uint32_t)*found : UINT32_MAX;
        ds_map_put(&last, f->local[v], v);
        uint32_t w = next[v];
        for (int i = 0; i < AHEAD && w != UINT32_MAX; i++, w = next[w]) votes[w - v]++;
    }
    for (uint32_t p = 1; p < f->n; p++)
        if (votes[p] >= p) list[n++] = (candidate){p, votes[p]};
    qsort(list, n, sizeof *list, by_votes);
    ds_map_deinit(&last);
    free(next);
    free(votes);
    return n < DS_TAP_MAX_PERIODS ? n : DS_TAP_MAX_PERIODS;
}

static uint32_t *kept(ds_tap_fold *fold, const uint32_t *list, uint32_t n) {
    return memcpy(ds_arena_alloc(&fold->arena, (n + 1) * sizeof *list), list, n * sizeof *list);
}

/* Its nodes, and global ones behind it, can be in no other run. */
static void take_run(finder *f, ds_tap_fold *fold, const ds_tap_run *run) {
    ds_tap_run one = *run;
    one.state = kept(fold, run->state, run->n_state);
    one.in = kept(fold, run->in, run->n_state);
    one.global = kept(fold, run->global, run->n_global);
    memset(&f->taken[run->start], 1, run->period * run->copies * sizeof *f->taken);
    for (uint32_t i = 0; i < run->n_global; i++)
        if (run->global[i] > run->start) f->taken[run->global[i]] = true;
    DS_PUSH(&fold->arena, &fold->runs, one);
    fold->n_unique -= saved(run);
}

static int by_start(const void *a, const void *b) {
    const ds_tap_run *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Always the run that folds most away, until none is left. */
static void find_runs(finder *f, ds_tap_fold *fold) {
    candidate *list = ds_xcalloc((size_t)f->n + 1, sizeof *list);
    uint32_t n = propose(f, list);
    for (;;) {
        ds_tap_run best = {0};
        for (uint32_t i = 0; i < n; i++) {
            ds_tap_run run = {0};
            cut_period(f, list[i].period, &run);
            if (run.copies && is_better(f, &run, &best)) best = run;
        }
        if (best.copies == 0) break;
        take_run(f, fold, &best);
    }
    if (fold->runs.n) qsort(fold->runs.at, fold->runs.n, sizeof *fold->runs.at, by_start);
    free(list);
}

ds_status ds_tap_fold_new(const ds_pase_graph *graph, const ds_pase_model *model, ds_tap_fold **out,
                          ds_error *err) {
    ds_tap_fold *fold = ds_xcalloc(1, sizeof *fold);
    ds_arena arena;
    ds_arena_init(&fold->arena);
    ds_arena_init(&arena);
    fold->graph = graph;
    fold->n_unique = graph->nodes.n;
    finder f = {.graph = graph, .model = model, .arena = &arena, .n = graph->nodes.n};
    ds_status status = look(&f, err);
    if (!status) {
        find_runs(&f, fold);
        fold->shortened = ds_tap__short_new(fold, model, f.alike);
    }
    ds_arena_deinit(&arena);
    *out = NULL;
    if (status)
        ds_tap_fold_free(fold);
    else
        *out = fold;
    return status;
}

void ds_tap_fold_free(ds_tap_fold *fold) {
    if (!fold) return;
    ds_tap__short_free(fold->shortened);
    ds_arena_deinit(&fold->arena);
    free(fold);
}
