/* Elimination with lists in the place of numbers. */
#include "search/pase/pareto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOMENTS = 2, MOST_DIMS = 16 };

typedef struct point {
    double cost, bytes[MOMENTS];
} point;

typedef struct list {
    point *at;
    uint32_t n;
} list;

/* What a node leaves when it goes: a list for each assignment of the nodes it depends on. */
typedef struct message {
    uint32_t owner, n_dims, node[MOST_DIMS];
    size_t stride[MOST_DIMS];
    point least; /* below everything of the nodes that have gone into it */
    list *lists;
} message;

typedef struct solver {
    ds_pareto_problem of;
    ds_arena arena;
    struct {
        DS_VEC(message *) messages; /* that mention it, and no node that goes before it */
        DS_VEC(uint32_t) edges;     /* to nodes that go later */
    } * nodes;
    message **left;                     /* per node: its own message */
    point *least;                       /* per node: a bound below its costs and bytes */
    point all;                          /* the sum of them */
    uint32_t *at;                       /* per node: the assignment that is looked at */
    DS_VEC(point) scratch, sum, merged; /* heap */
    double work;
    size_t points;
    bool gave_up;
} solver;

/* ---- points ---- */

static point add_points(point a, point b) {
    a.cost += b.cost;
    for (int k = 0; k < MOMENTS; k++) a.bytes[k] += b.bytes[k];
    return a;
}

static point own_point(const solver *x, uint32_t v, uint32_t c) {
    const ds_pase_tables *t = x->of.tables;
    point p = {.cost = t->cost[v][c]};
    p.bytes[0] = t->memory[v][c];
    p.bytes[1] = t->late ? t->late[v][c] : 0;
    return p;
}

static int by_cost(const void *a, const void *b) {
    const point *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
    for (int k = 0; k < MOMENTS; k++)
        if (x->bytes[k] != y->bytes[k]) return x->bytes[k] < y->bytes[k] ? -1 : 1;
    return 0;
}

static bool covers(const point *a, const point *b) {
    for (int k = 0; k < MOMENTS; k++)
        if (a->bytes[k] > b->bytes[k]) return false;
    return true;
}

/* Keeps of points in the order of their costs those that none before them covers. */
static uint32_t prune(solver *x, point *at, uint32_t n) {
    uint32_t kept = 0;
    if (n > 1) qsort(at, n, sizeof *at, by_cost);
    for (uint32_t i = 0; i < n; i++) {
        bool covered = false;
        uint32_t k = kept;
        while (k > 0 && !covered) covered = covers(&at[--k], &at[i]);
        x->work += kept - k + 1;
        if (!covered) at[kept++] = at[i];
    }
    return kept;
}

/* Can a strategy with this part, and at least `rest` beside it, be what is looked for? The slack is
 * for sums in another order. */
static bool is_open(const solver *x, const point *p, const point *rest) {
    for (int k = 0; k < MOMENTS; k++)
        if (p->bytes[k] + rest->bytes[k] > x->of.limit * (1 + 1e-12)) return false;
    return p->cost + rest->cost <= x->of.below + 1e-9 * fabs(x->of.below);
}

/* ---- one node ---- */

static size_t index_in(const solver *x, const message *m) {
    size_t index = 0;
    for (uint32_t d = 0; d < m->n_dims; d++) index += m->stride[d] * x->at[m->node[d]];
    return index;
}

/* What v itself and its edges cost under the assignment. */
static point base_of(const solver *x, uint32_t v) {
    point p = own_point(x, v, x->at[v]);
    for (uint32_t i = 0; i < x->nodes[v].edges.n; i++) {
        uint32_t e = x->nodes[v].edges.at[i];
        const ds_pase_edge *edge = &x->of.graph->edges.at[e];
        uint32_t later = edge->from == v ? edge->to : edge->from;
        p.cost += x->of.tables->edge[e][(size_t)x->at[later] * x->of.tables->set[v]->n + x->at[v]];
    }
    return p;
}

/* x->sum: v under its configuration, with all that has gone into it. */
static void sum_up(solver *x, uint32_t v, const point *rest) {
    x->sum.n = 0;
    point base = base_of(x, v);
    DS_HPUSH(&x->sum, base);
    for (uint32_t i = 0; i < x->nodes[v].messages.n && !x->gave_up; i++) {
        const message *m = x->nodes[v].messages.at[i];
        const list *l = &m->lists[index_in(x, m)];
        x->scratch.n = 0;
        x->work += (double)x->sum.n * l->n;
        x->gave_up |= x->work > DS_PARETO_MAX_WORK;
        for (uint32_t a = 0; a < x->sum.n && !x->gave_up; a++)
            for (uint32_t b = 0; b < l->n; b++) {
                point p = add_points(x->sum.at[a], l->at[b]);
                DS_HPUSH(&x->scratch, p);
            }
        x->sum.n = 0;
        uint32_t n = prune(x, x->scratch.at, x->scratch.n);
        for (uint32_t a = 0; a < n; a++) DS_HPUSH(&x->sum, x->scratch.at[a]);
    }
    uint32_t kept = 0;
    for (uint32_t a = 0; a < x->sum.n; a++)
        if (is_open(x, &x->sum.at[a], rest)) x->sum.at[kept++] = x->sum.at[a];
    x->sum.n = kept;
}

static void fill_list(solver *x, uint32_t v, const point *rest, list *out) {
    x->merged.n = 0;
    for (uint32_t c = 0; c < x->of.tables->set[v]->n && !x->gave_up; c++) {
        x->at[v] = c;
        sum_up(x, v, rest);
        for (uint32_t a = 0; a < x->sum.n; a++) DS_HPUSH(&x->merged, x->sum.at[a]);
    }
    x->work += x->merged.n;
    out->n = prune(x, x->merged.at, x->merged.n);
    x->points += out->n;
    x->gave_up |= x->points > DS_PARETO_MAX_POINTS || x->work > DS_PARETO_MAX_WORK;
    out->at = DS_NEW_N(&x->arena, point, out->n + 1);
    if (out->n) memcpy(out->at, x->merged.at, out->n * sizeof *out->at);
}

static void add_dim(solver *x, message *m, uint32_t w) {
    if (w == m->owner) return;
    for (uint32_t d = 0; d < m->n_dims; d++)
        if (m->node[d] == w) return;
    if (m->n_dims == MOST_DIMS)
        x->gave_up = true;
    else
        m->node[m->n_dims++] = w;
}

static message *dims_of(solver *x, uint32_t v, size_t *entries) {
    message *m = DS_NEW(&x->arena, message);
    m->owner = v;
    m->least = x->least[v];
    for (uint32_t i = 0; i < x->nodes[v].edges.n; i++) {
        const ds_pase_edge *edge = &x->of.graph->edges.at[x->nodes[v].edges.at[i]];
        add_dim(x, m, edge->from == v ? edge->to : edge->from);
    }
    for (uint32_t i = 0; i < x->nodes[v].messages.n; i++) {
        const message *in = x->nodes[v].messages.at[i];
        m->least = add_points(m->least, in->least);
        for (uint32_t d = 0; d < in->n_dims; d++) add_dim(x, m, in->node[d]);
    }
    double n = 1;
    for (uint32_t d = 0; d < m->n_dims; d++) n *= x->of.tables->set[m->node[d]]->n;
    x->gave_up |= n * x->of.tables->set[v]->n > DS_PARETO_MAX_WORK;
    *entries = x->gave_up ? 0 : 1;
    for (uint32_t d = 0; d < m->n_dims; d++) {
        m->stride[d] = *entries;
        *entries *= x->of.tables->set[m->node[d]]->n;
    }
    return m;
}

/* To the node that goes next of those that it mentions; if it mentions none, to the next at all. */
static void send(solver *x, message *m, uint32_t position) {
    uint32_t to =
        position + 1 < x->of.graph->nodes.n ? x->of.order[position + 1] : DS_PASE_MAX_NODES;
    for (uint32_t d = 0; d < m->n_dims; d++)
        if (d == 0 || x->of.goes[m->node[d]] < x->of.goes[to]) to = m->node[d];
    if (to != DS_PASE_MAX_NODES) DS_PUSH(&x->arena, &x->nodes[to].messages, m);
}

static void eliminate(solver *x, uint32_t position) {
    uint32_t v = x->of.order[position];
    size_t entries;
    message *m = dims_of(x, v, &entries);
    point rest = x->all;
    rest.cost -= m->least.cost;
    for (int k = 0; k < MOMENTS; k++) rest.bytes[k] -= m->least.bytes[k];
    m->lists = DS_NEW_N(&x->arena, list, entries + 1);
    for (size_t i = 0; i < entries && !x->gave_up; i++) {
        for (uint32_t d = 0; d < m->n_dims; d++)
            x->at[m->node[d]] = (uint32_t)(i / m->stride[d] % x->of.tables->set[m->node[d]]->n);
        fill_list(x, v, &rest, &m->lists[i]);
    }
    x->left[v] = m;
    send(x, m, position);
}

/* ---- the way back ---- */

/* Which entries of the messages from the i-th on add up to the wanted point? */
static bool find_parts(solver *x, uint32_t v, uint32_t i, point sum, const point *wanted,
                       point *parts) {
    if (i == x->nodes[v].messages.n) return by_cost(&sum, wanted) == 0;
    const message *m = x->nodes[v].messages.at[i];
    const list *l = &m->lists[index_in(x, m)];
    for (uint32_t k = 0; k < l->n; k++) {
        point next = add_points(sum, l->at[k]);
        if (!covers(&next, wanted)) continue;
        parts[i] = l->at[k];
        if (find_parts(x, v, i + 1, next, wanted, parts)) return true;
    }
    return false;
}

/* wanted[v]: the point of v's message. All nodes that go later are set. */
static void choose_config(solver *x, uint32_t v, point *wanted) {
    uint32_t n = x->nodes[v].messages.n;
    point *parts = DS_NEW_N(&x->arena, point, n + 1);
    for (uint32_t c = 0; c < x->of.tables->set[v]->n; c++) {
        x->at[v] = c;
        if (!find_parts(x, v, 0, base_of(x, v), &wanted[v], parts)) continue;
        for (uint32_t i = 0; i < n; i++) wanted[x->nodes[v].messages.at[i]->owner] = parts[i];
        return;
    }
}

/* ---- all ---- */

static double least_of(const double *table, size_t n) {
    double least = table[0];
    for (size_t i = 1; i < n; i++) least = table[i] < least ? table[i] : least;
    return least;
}

static void list_neighbours(solver *x) {
    const ds_pase_tables *t = x->of.tables;
    uint32_t n = x->of.graph->nodes.n;
    x->nodes = ds_arena_calloc(&x->arena, n + 1, sizeof *x->nodes);
    x->left = DS_NEW_N(&x->arena, message *, n + 1);
    x->least = DS_NEW_N(&x->arena, point, n + 1);
    x->at = DS_NEW_N(&x->arena, uint32_t, n + 1);
    for (uint32_t v = 0; v < n; v++) {
        x->least[v] = (point){.cost = least_of(t->cost[v], t->set[v]->n)};
        x->least[v].bytes[0] = least_of(t->memory[v], t->set[v]->n);
        if (t->late) x->least[v].bytes[1] = least_of(t->late[v], t->set[v]->n);
    }
    for (uint32_t e = 0; e < x->of.graph->edges.n; e++) {
        const ds_pase_edge *edge = &x->of.graph->edges.at[e];
        if (!t->edge[e]) continue;
        uint32_t first = x->of.goes[edge->from] < x->of.goes[edge->to] ? edge->from : edge->to;
        DS_PUSH(&x->arena, &x->nodes[first].edges, e);
        size_t entries = (size_t)t->set[edge->from]->n * t->set[edge->to]->n;
        x->least[first].cost += least_of(t->edge[e], entries);
    }
    for (uint32_t v = 0; v < n; v++) x->all = add_points(x->all, x->least[v]);
}

ds_pareto_verdict ds_pase__pareto(const ds_pareto_problem *problem, uint32_t *choice,
                                  double *cost) {
    solver x = {.of = *problem};
    const uint32_t *order = problem->order;
    uint32_t n = problem->graph->nodes.n;
    ds_pareto_verdict verdict = DS_PARETO_TOO_LARGE;
    ds_arena_init(&x.arena);
    list_neighbours(&x);
    for (uint32_t i = 0; i < n && !x.gave_up; i++) eliminate(&x, i);
    const list *last = n && !x.gave_up ? x.left[order[n - 1]]->lists : NULL;
    if (last) verdict = last->n ? DS_PARETO_FOUND : DS_PARETO_NONE;
    if (verdict == DS_PARETO_FOUND) {
        point *wanted = DS_NEW_N(&x.arena, point, n + 1);
        wanted[order[n - 1]] = last->at[0];
        *cost = last->at[0].cost;
        for (uint32_t i = n; i-- > 0;) choose_config(&x, order[i], wanted);
        memcpy(choice, x.at, n * sizeof *choice);
    }
    free(x.scratch.at);
    free(x.sum.at);
    free(x.merged.at);
    ds_arena_deinit(&x.arena);
    return verdict;
}
