/* The search: costs as tables, an order, the programme, and the strategy that it finds. */
#include "search/pase/eliminate.h"
#include "search/pase/pareto.h"
#include "search/pase/price.h"
#include "search/pase/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct search {
    ds_pase_pricer pricer; /* first */
    const ds_pase_graph *graph;
    ds_pase_model *model;
    const ds_pase_tables *tables;
    const uint32_t *order, *goes;
    double max_bytes;
    ds_pase_result *result;
    uint32_t *choice;
    const double *const *priced; /* per node: the bytes that have a price */
    const uint32_t *prefer;      /* per node: what it takes of equally good ones */
} search;

/* ---- the programme ---- */

/* Costs of a node, with the price of its bytes. */
static const double *priced(const search *x, uint32_t v, double price, ds_arena *arena) {
    uint32_t n = x->tables->set[v]->n;
    if (price <= 0) return x->tables->cost[v];
    double *cost = DS_NEW_N(arena, double, n);
    for (uint32_t c = 0; c < n; c++) cost[c] = x->tables->cost[v][c] + price * x->priced[v][c];
    return cost;
}

static void add_terms(const search *x, double price, ds_pase_elimination *e) {
    for (uint32_t v = 0; v < x->graph->nodes.n; v++)
        ds_pase__add_term(e, priced(x, v, price, &e->arena), &v, 1, 0);
    for (uint32_t i = 0; i < x->graph->edges.n; i++) {
        const ds_pase_edge *edge = &x->graph->edges.at[i];
        if (!x->tables->edge[i]) continue;
        bool from_first = x->goes[edge->from] < x->goes[edge->to];
        uint32_t node[2] = {from_first ? edge->to : edge->from, from_first ? edge->from : edge->to};
        ds_pase__add_term(e, x->tables->edge[i], node, 2, 0);
    }
}

static double sum_of(const search *x, const double *const *bytes, const uint32_t *choice) {
    double sum = 0;
    for (uint32_t v = 0; bytes && v < x->graph->nodes.n; v++) sum += bytes[v][choice[v]];
    return sum;
}

/* At the fuller moment. */
static double memory_of(const search *x, const uint32_t *choice) {
    return fmax(sum_of(x, x->tables->memory, choice), sum_of(x, x->tables->late, choice));
}

static ds_status solve_priced(ds_pase_pricer *pricer, double price, uint32_t *choice, double *total,
                              double *bytes, ds_error *err) {
    search *x = (search *)pricer;
    uint32_t n = x->graph->nodes.n;
    ds_pase_elimination e;
    ds_pase__elimination_init(&e, x->graph, x->tables->set, x->goes, x->tables->bytes,
                              x->max_bytes);
    e.prefer = x->prefer;
    add_terms(x, price, &e);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < n && !status; i++)
        status = ds_pase__eliminate(&e, x->order[i], 0, err);
    for (uint32_t i = n; i-- > 0 && !status;) ds_pase__choose(&e, x->order[i], choice);
    if (!status) *bytes = sum_of(x, x->priced, choice);
    *total = e.total;
    x->result->sizes = e.sizes;
    ds_pase__elimination_deinit(&e);
    return status;
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

/* ---- the limit ---- */

/* The better of what is there and one more; both bounds hold. */
static void take_better(search *x, const ds_pase_result *other, const uint32_t *choice) {
    ds_pase_result *r = x->result;
    double bytes = memory_of(x, choice);
    bool fits = bytes <= x->model->memory_limit;
    r->bound = fmax(r->bound, other->bound);
    bool better = fits != r->fits ? fits : fits ? other->cost < r->cost : bytes < r->memory_bytes;
    if (!better) return;
    memcpy(x->choice, choice, x->graph->nodes.n * sizeof *choice);
    r->cost = other->cost;
    r->memory_bytes = bytes;
    r->fits = fits;
}

/* Bytes at another moment, or half of both, with a price. */
static ds_status price_otherwise(search *x, const double *const *priced, ds_error *err) {
    ds_pase_result other = {0};
    uint32_t *choice = ds_xcalloc((size_t)x->graph->nodes.n + 1, sizeof *choice);
    x->priced = priced;
    ds_status status = ds_pase__keep_limit(&x->pricer, x->model->memory_limit, x->graph->nodes.n,
                                           choice, &other, err);
    if (!status) take_better(x, &other, choice);
    free(choice);
    return status;
}

static const double *const *half_of_both(search *x) {
    ds_arena *arena = &x->result->arena;
    const double **half = DS_NEW_N(arena, const double *, x->graph->nodes.n + 1);
    for (uint32_t v = 0; v < x->graph->nodes.n; v++) {
        uint32_t n = x->tables->set[v]->n;
        double *bytes = DS_NEW_N(arena, double, n);
        for (uint32_t c = 0; c < n; c++)
            bytes[c] = (x->tables->memory[v][c] + x->tables->late[v][c]) / 2;
        half[v] = bytes;
    }
    return half;
}

/* What prices leave open, the exact programme closes, if its lists stay short enough. */
static void close_gap(search *x) {
    ds_pase_result *r = x->result;
    double cost, below = r->fits ? r->cost : INFINITY;
    uint32_t *choice = ds_xcalloc((size_t)x->graph->nodes.n + 1, sizeof *choice);
    const ds_pareto_problem problem = {.graph = x->graph,
                                       .tables = x->tables,
                                       .order = x->order,
                                       .goes = x->goes,
                                       .limit = x->model->memory_limit,
                                       .below = below};
    ds_pareto_verdict verdict = ds_pase__pareto(&problem, choice, &cost);
    if (verdict == DS_PARETO_FOUND) {
        memcpy(x->choice, choice, x->graph->nodes.n * sizeof *choice);
        r->cost = r->bound = cost;
        r->memory_bytes = memory_of(x, choice);
        r->fits = true;
    }
    r->exact = verdict != DS_PARETO_TOO_LARGE;
    free(choice);
}

static ds_status keep_limit(search *x, ds_error *err) {
    ds_pase_result *r = x->result;
    double limit = x->model->memory_limit;
    x->priced = x->tables->memory;
    DS_TRY(ds_pase__keep_limit(&x->pricer, limit, x->graph->nodes.n, x->choice, r, err));
    r->memory_bytes = memory_of(x, x->choice);
    r->fits = limit <= 0 || r->memory_bytes <= limit;
    r->exact = true;
    if (limit <= 0 || !x->tables->memory) return DS_OK;
    if (!r->fits && x->tables->late) DS_TRY(price_otherwise(x, x->tables->late, err));
    if (!r->fits && x->tables->late) DS_TRY(price_otherwise(x, half_of_both(x), err));
    if (!r->fits || r->bound < r->cost - 1e-12 * fabs(r->cost)) close_gap(x);
    return DS_OK;
}

static ds_status solve_within_limit(search *x, ds_error *err) {
    DS_TRY(keep_limit(x, err));
    keep_strategy(x);
    ds_pase_result *r = x->result;
    bool closed = r->bound >= r->cost - 1e-12 * fabs(r->cost);
    r->cost = r->node_cost + r->edge_cost;
    if (closed) r->bound = r->cost;
    return DS_OK;
}

/* Per node its number of data parallelism's configuration; UINT32_MAX where it is none. */
static uint32_t *data_parallel(const ds_pase_graph *graph, const ds_pase_model *model,
                               const ds_pase_tables *tables, ds_arena *arena) {
    uint32_t *out = DS_NEW_N(arena, uint32_t, graph->nodes.n + 1);
    ds_pase_splits *splits = DS_NEW_N(arena, ds_pase_splits, graph->nodes.n + 1);
    ds_pase_data_parallel(graph, &model->limits, splits);
    for (uint32_t v = 0; v < graph->nodes.n; v++)
        out[v] = ds_pase_config_number(tables->set[v], &splits[v]);
    return out;
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
    if (!status) status = ds_pase__tables_new(graph, model, goes, NULL, max_bytes, &tables, err);
    if (!status) {
        search x = {.pricer = {solve_priced},
                    .graph = graph,
                    .model = model,
                    .tables = tables,
                    .order = order,
                    .goes = goes,
                    .max_bytes = max_bytes,
                    .result = r,
                    .choice = DS_NEW_N(&r->arena, uint32_t, n + 1),
                    .prefer = model->prefers_data ? data_parallel(graph, model, tables, &r->arena)
                                                  : NULL};
        status = solve_within_limit(&x, err);
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
