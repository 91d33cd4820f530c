/* The dynamic programme: nodes are eliminated one after the other.
 *
 * When node v goes, its dependent nodes D(v) are those still there that it, or what went before and
 * hung together with it, has edges with. Its message is a table over D(v): for each assignment the
 * least sum of v's terms (its costs, the tables of edges to D(v), messages of earlier nodes that
 * mention v) over the configurations of v. The dims of a message are in the order in which the
 * nodes go, the last to go slowest, so that in every term v's own dim is contiguous. The
 * assignments are walked like nested loops; each level keeps the sum of the terms that are decided
 * there, and the innermost one is a few additions of rows and a minimum.
 *
 * No choice is stored: afterwards nodes are taken in the opposite order, and each looks once
 * through its terms under what is chosen already. */
#include "search/pase/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEPENDENT 64u

/* A table over some nodes, of which `own` is the one that goes. */
typedef struct term {
    const double *table;
    uint32_t n; /* nodes but for its own */
    uint32_t node[MOST_DEPENDENT];
    size_t stride[MOST_DEPENDENT];
} term;

typedef struct stage {
    uint32_t own;
    DS_VEC(term *) terms;
    uint32_t n_dependent;
    uint32_t *dependent; /* the last to go first */
    double *message;
} stage;

typedef struct solver {
    const ds_pase_graph *graph;
    const ds_pase_tables *tables;
    const uint32_t *order, *goes;
    ds_arena arena;
    stage *stages; /* per node */
    double lambda; /* price of a byte */
    double max_bytes, bytes;
    double total;
    ds_pase_sizes sizes;
} solver;

static uint32_t configs_of(const solver *s, uint32_t v) {
    return s->tables->set[v]->n;
}

/* ---- what each node depends on ---- */

static void add_dependent(const solver *s, stage *st, uint32_t *list, uint32_t *n, uint32_t w) {
    if (w == st->own) return;
    uint32_t at = 0;
    while (at < *n && s->goes[list[at]] > s->goes[w]) at++;
    if (at < *n && list[at] == w) return;
    memmove(&list[at + 1], &list[at], (*n - at) * sizeof *list);
    list[at] = w;
    ++*n;
}

static ds_status too_wide(const solver *s, const stage *st, uint32_t n, double combinations,
                          ds_error *err) {
    return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                        "'%s' depends on %u nodes when it goes: %.3g combinations are beyond the "
                        "limit of %.0f MB of tables",
                        s->graph->nodes.at[st->own].path ? s->graph->nodes.at[st->own].path : "?",
                        n, combinations, s->max_bytes / 1e6);
}

static ds_status find_dependent(solver *s, stage *st, ds_error *err) {
    uint32_t list[2 * MOST_DEPENDENT + 1], n = 0;
    for (uint32_t i = 0; i < st->terms.n; i++) {
        for (uint32_t k = 0; k < st->terms.at[i]->n; k++)
            add_dependent(s, st, list, &n, st->terms.at[i]->node[k]);
        if (n >= MOST_DEPENDENT) return too_wide(s, st, n, INFINITY, err);
    }
    st->dependent = DS_NEW_N(&s->arena, uint32_t, n + 1);
    memcpy(st->dependent, list, n * sizeof *list);
    st->n_dependent = n;
    double entries = 1;
    for (uint32_t i = 0; i < n; i++) entries *= configs_of(s, list[i]);
    double combinations = entries * configs_of(s, st->own);
    s->bytes += 8 * entries;
    if (s->bytes > s->max_bytes || combinations > 1e13)
        return too_wide(s, st, n, combinations, err);
    ds_pase_sizes *sizes = &s->sizes;
    if (n > sizes->most_dependent) sizes->most_dependent = n;
    sizes->combinations += combinations;
    if (combinations > sizes->most_combinations) sizes->most_combinations = combinations;
    st->message = DS_NEW_N(&s->arena, double, (size_t)entries);
    return DS_OK;
}

/* ---- terms ---- */

static void add_edge_terms(solver *s) {
    for (uint32_t e = 0; e < s->graph->edges.n; e++) {
        const ds_pase_edge *edge = &s->graph->edges.at[e];
        if (!s->tables->edge[e]) continue;
        bool from_first = s->goes[edge->from] < s->goes[edge->to];
        uint32_t first = from_first ? edge->from : edge->to;
        term *t = DS_NEW(&s->arena, term);
        t->table = s->tables->edge[e];
        t->n = 1;
        t->node[0] = from_first ? edge->to : edge->from;
        t->stride[0] = configs_of(s, first);
        DS_PUSH(&s->arena, &s->stages[first].terms, t);
    }
}

/* To the node of D(v) that goes next, whose dim is the message's fastest. */
static void send_message(solver *s, const stage *st) {
    if (st->n_dependent == 0) {
        s->total += st->message[0];
        return;
    }
    term *t = DS_NEW(&s->arena, term);
    t->table = st->message;
    t->n = st->n_dependent - 1;
    size_t stride = 1;
    for (uint32_t i = st->n_dependent; i-- > 0;) {
        uint32_t w = st->dependent[i];
        if (i < t->n) {
            t->node[i] = w;
            t->stride[i] = stride;
        }
        stride *= configs_of(s, w);
    }
    DS_PUSH(&s->arena, &s->stages[st->dependent[t->n]].terms, t);
}

static void own_costs(const solver *s, uint32_t v, double *out) {
    uint32_t n = configs_of(s, v);
    memcpy(out, s->tables->cost[v], n * sizeof *out);
    for (uint32_t c = 0; s->lambda > 0 && c < n; c++) out[c] += s->lambda * s->tables->memory[v][c];
}

/* ---- the innermost loops ---- */

enum { LANES = 4 };

static double least_of(const double *lanes) {
    double least = lanes[0];
    for (int l = 1; l < LANES; l++) least = lanes[l] < least ? lanes[l] : least;
    return least;
}

/* min over c of a[c] + b[c]; four minima side by side, which is what processors do well. */
static double least_sum(const double *restrict a, const double *restrict b, uint32_t n) {
    double lanes[LANES] = {INFINITY, INFINITY, INFINITY, INFINITY};
    uint32_t c = 0;
    for (; c + LANES <= n; c += LANES)
        for (uint32_t l = 0; l < LANES; l++) {
            double x = a[c + l] + b[c + l];
            lanes[l] = x < lanes[l] ? x : lanes[l];
        }
    for (; c < n; c++) {
        double x = a[c] + b[c];
        lanes[0] = x < lanes[0] ? x : lanes[0];
    }
    return least_of(lanes);
}

static double least_value(const double *a, uint32_t n) {
    double least = INFINITY;
    for (uint32_t c = 0; c < n; c++) least = a[c] < least ? a[c] : least;
    return least;
}

static void add_row(double *restrict to, const double *restrict row, uint32_t n) {
    for (uint32_t c = 0; c < n; c++) to[c] += row[c];
}

/* ---- one node ---- */

/* The assignment of D(v) being walked, and per level which terms it decides. */
typedef struct walk {
    const solver *s;
    const stage *st;
    uint32_t at[MOST_DEPENDENT];
    uint32_t level_n[MOST_DEPENDENT + 1];
    const term **level[MOST_DEPENDENT + 1];
    size_t (*stride)[MOST_DEPENDENT]; /* per term, per level */
    double *sums;                     /* [levels + 1][configurations of v] */
    double *out;
} walk;

static const double *row_of(const walk *w, const term *t) {
    size_t offset = 0;
    for (uint32_t k = 0; k < t->n; k++)
        for (uint32_t i = 0; i < w->st->n_dependent; i++)
            if (w->st->dependent[i] == t->node[k]) offset += t->stride[k] * w->at[i];
    return t->table + offset;
}

/* The level behind which all nodes of the term are set. */
static uint32_t level_of(const stage *st, const term *t) {
    uint32_t level = 0;
    for (uint32_t k = 0; k < t->n; k++)
        for (uint32_t i = 0; i < st->n_dependent; i++)
            if (st->dependent[i] == t->node[k] && i + 1 > level) level = i + 1;
    return level;
}

static void descend(walk *w, uint32_t level) {
    uint32_t n = configs_of(w->s, w->st->own);
    const double *sum = &w->sums[(size_t)level * n];
    if (level == w->st->n_dependent) {
        *w->out++ = least_value(sum, n);
        return;
    }
    uint32_t choices = configs_of(w->s, w->st->dependent[level]);
    double *next = &w->sums[(size_t)(level + 1) * n];
    for (uint32_t c = 0; c < choices; c++) {
        w->at[level] = c;
        uint32_t terms = w->level_n[level + 1];
        if (level + 1 == w->st->n_dependent && terms == 1) {
            *w->out++ = least_sum(sum, row_of(w, w->level[level + 1][0]), n);
            continue;
        }
        memcpy(next, sum, n * sizeof *next);
        if (level + 1 == w->st->n_dependent && terms > 1) {
            for (uint32_t t = 0; t + 1 < terms; t++)
                add_row(next, row_of(w, w->level[level + 1][t]), n);
            *w->out++ = least_sum(next, row_of(w, w->level[level + 1][terms - 1]), n);
            continue;
        }
        for (uint32_t t = 0; t < terms; t++) add_row(next, row_of(w, w->level[level + 1][t]), n);
        descend(w, level + 1);
    }
}

static void eliminate(solver *s, stage *st) {
    walk w = {.s = s, .st = st, .out = st->message};
    uint32_t n = configs_of(s, st->own);
    w.sums = ds_xcalloc((size_t)(st->n_dependent + 1) * n, sizeof *w.sums);
    own_costs(s, st->own, w.sums);
    for (uint32_t l = 0; l <= st->n_dependent; l++)
        w.level[l] = ds_xcalloc((size_t)st->terms.n + 1, sizeof **w.level);
    for (uint32_t i = 0; i < st->terms.n; i++) {
        uint32_t level = level_of(st, st->terms.at[i]);
        w.level[level][w.level_n[level]++] = st->terms.at[i];
    }
    for (uint32_t t = 0; t < w.level_n[0]; t++) add_row(w.sums, row_of(&w, w.level[0][t]), n);
    descend(&w, 0);
    for (uint32_t l = 0; l <= st->n_dependent; l++) free(w.level[l]);
    free(w.sums);
}

static void choose(const solver *s, const stage *st, uint32_t *choice) {
    walk w = {.s = s, .st = st};
    uint32_t n = configs_of(s, st->own), best = 0;
    double *sum = ds_xcalloc(n, sizeof *sum);
    own_costs(s, st->own, sum);
    for (uint32_t i = 0; i < st->n_dependent; i++) w.at[i] = choice[st->dependent[i]];
    for (uint32_t t = 0; t < st->terms.n; t++) add_row(sum, row_of(&w, st->terms.at[t]), n);
    for (uint32_t c = 1; c < n; c++)
        if (sum[c] < sum[best]) best = c;
    choice[st->own] = best;
    free(sum);
}

/* ---- all nodes ---- */

static ds_status solve(const ds_pase_graph *graph, const ds_pase_tables *tables,
                       const uint32_t *order, const uint32_t *goes, double max_bytes, double lambda,
                       double *total, uint32_t *choice, ds_pase_sizes *sizes, ds_error *err) {
    uint32_t n = graph->nodes.n;
    solver s = {.graph = graph,
                .tables = tables,
                .order = order,
                .goes = goes,
                .lambda = lambda,
                .max_bytes = max_bytes,
                .bytes = tables->bytes};
    ds_arena_init(&s.arena);
    s.stages = DS_NEW_N(&s.arena, stage, n + 1);
    for (uint32_t v = 0; v < n; v++) {
        s.stages[v].own = v;
        if (configs_of(&s, v) > s.sizes.most_configs) s.sizes.most_configs = configs_of(&s, v);
    }
    add_edge_terms(&s);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < n && !status; i++) {
        stage *st = &s.stages[order[i]];
        status = find_dependent(&s, st, err);
        if (status) break;
        eliminate(&s, st);
        send_message(&s, st);
    }
    for (uint32_t i = n; i-- > 0 && !status;) choose(&s, &s.stages[order[i]], choice);
    *total = s.total;
    s.sizes.table_bytes = s.bytes;
    *sizes = s.sizes;
    ds_arena_deinit(&s.arena);
    return status;
}

/* ---- the memory limit ---- */

static double memory_of(const ds_pase_graph *graph, const ds_pase_tables *tables,
                        const uint32_t *choice) {
    double sum = 0;
    for (uint32_t v = 0; tables->memory && v < graph->nodes.n; v++)
        sum += tables->memory[v][choice[v]];
    return sum;
}

typedef struct search {
    const ds_pase_graph *graph;
    ds_pase_model *model;
    const ds_pase_tables *tables;
    const uint32_t *order, *goes;
    double max_bytes;
    ds_pase_result *result;
    uint32_t *trial, *choice; /* of the last price, and the best so far */
} search;

static ds_status try_price(search *x, double lambda, ds_error *err) {
    ds_pase_result *r = x->result;
    double total, limit = x->model->memory_limit;
    DS_TRY(solve(x->graph, x->tables, x->order, x->goes, x->max_bytes, lambda, &total, x->trial,
                 &r->sizes, err));
    double bytes = memory_of(x->graph, x->tables, x->trial);
    double bound = total - lambda * limit;
    if (lambda == 0 || bound > r->bound) r->bound = bound;
    bool fits = limit <= 0 || bytes <= limit;
    double cost = total - lambda * bytes;
    bool better = lambda == 0 || (fits && !r->fits) ||
                  (fits == r->fits && fits && cost < r->cost) ||
                  (!fits && !r->fits && bytes < r->memory_bytes);
    if (!better) return DS_OK;
    memcpy(x->choice, x->trial, x->graph->nodes.n * sizeof *x->trial);
    r->cost = cost;
    r->memory_bytes = bytes;
    r->fits = fits;
    return DS_OK;
}

/* A byte gets a price, which is raised until the strategy fits and then narrowed down (bisection):
 * each price gives a lower bound too, min (cost + price·bytes) - price·limit. */
static ds_status price_memory(search *x, ds_error *err) {
    ds_pase_result *r = x->result;
    double low = 0, high = r->cost / (r->memory_bytes > 0 ? r->memory_bytes : 1);
    for (int i = 0; i < 40 && !r->fits; i++) {
        DS_TRY(try_price(x, high, err));
        if (r->fits) break;
        low = high;
        high *= 4;
    }
    for (int i = 0; i < 12 && r->fits && r->bound < r->cost; i++) {
        double middle = (low + high) / 2;
        DS_TRY(try_price(x, middle, err));
        if (memory_of(x->graph, x->tables, x->trial) <= x->model->memory_limit)
            high = middle;
        else
            low = middle;
    }
    return DS_OK;
}

/* ---- results ---- */

static void keep_strategy(search *x) {
    ds_pase_result *r = x->result;
    for (uint32_t v = 0; v < x->graph->nodes.n; v++) {
        const ds_pase_configs *set = x->tables->set[v];
        memcpy(r->strategy[v].of, ds_pase_config(set, x->choice[v]),
               set->n_axes * sizeof *r->strategy[v].of);
        r->node_cost += x->tables->cost[v][x->choice[v]];
    }
    for (uint32_t e = 0; e < x->graph->edges.n; e++) {
        const ds_pase_edge *edge = &x->graph->edges.at[e];
        if (!x->tables->edge[e]) continue;
        bool flipped = x->goes[edge->from] < x->goes[edge->to];
        uint32_t row = flipped ? edge->to : edge->from, column = flipped ? edge->from : edge->to;
        r->sizes.edges++;
        r->edge_cost +=
            x->tables
                ->edge[e][(size_t)x->choice[row] * x->tables->set[column]->n + x->choice[column]];
    }
    r->sizes.edge_tables = x->tables->n_edge_tables;
}

static ds_status run(search *x, ds_error *err) {
    DS_TRY(try_price(x, 0, err));
    if (!x->result->fits) DS_TRY(price_memory(x, err));
    keep_strategy(x);
    return DS_OK;
}

ds_status ds_pase_search(const ds_pase_graph *graph, ds_pase_model *model,
                         const ds_pase_options *options, ds_pase_result **out, ds_error *err) {
    uint32_t n = graph->nodes.n;
    double max_bytes = options->max_table_bytes > 0 ? options->max_table_bytes : 4294967296.0;
    ds_pase_result *r = ds_xcalloc(1, sizeof *r);
    ds_arena_init(&r->arena);
    r->graph = graph;
    r->strategy = DS_NEW_N(&r->arena, ds_pase_splits, n + 1);
    uint32_t *order = DS_NEW_N(&r->arena, uint32_t, n + 1);
    uint32_t *goes = DS_NEW_N(&r->arena, uint32_t, n + 1);
    ds_pase_tables *tables = NULL;
    ds_status status = ds_pase_order_of(graph, options->order, order, err);
    for (uint32_t i = 0; i < n && !status; i++) goes[order[i]] = i;
    if (!status) status = ds_pase__tables_new(graph, model, goes, max_bytes, &tables, err);
    if (!status) {
        search x = {graph,
                    model,
                    tables,
                    order,
                    goes,
                    max_bytes,
                    r,
                    DS_NEW_N(&r->arena, uint32_t, n + 1),
                    DS_NEW_N(&r->arena, uint32_t, n + 1)};
        status = run(&x, err);
    }
    ds_pase__tables_free(tables);
    *out = NULL;
    if (status)
        ds_pase_result_free(r);
    else
        *out = r;
    return status;
}

void ds_pase_result_free(ds_pase_result *result) {
    if (!result) return;
    ds_arena_deinit(&result->arena);
    free(result);
}
