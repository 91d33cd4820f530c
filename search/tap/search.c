/* The search: the short graph is eliminated block by block.
 *
 * First all nodes of a run's block but those of its boundary go: before the block (`in`), behind it
 * (the state), global ones. What is left of the block's terms is a table over them, A[global][in]
 * [state], and the run is its power: one term, in place of all copies. Then everything else goes.
 * Afterwards the boundary's configurations give the states between copies, and those the
 * configurations within each. */
#include "search/pase/eliminate.h"
#include "search/pase/price.h"
#include "search/pase/tables.h"
#include "search/tap/internal.h"
#include "search/tap/power.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A run, in the short graph. */
typedef struct block {
    const ds_tap_run *run;
    uint32_t n_scope, *scope; /* global, in, state */
    uint32_t *in, *state;     /* parts of scope */
    uint32_t n_inner, *inner; /* in the order in which they go */
    uint32_t slices, n;       /* of the table: n x n states for each assignment of global nodes */
    ds_tap_power *power;      /* of each slice */
} block;

typedef struct search {
    ds_pase_pricer pricer; /* first */
    const ds_tap_fold *fold;
    const ds_tap_short *s;
    ds_pase_model *model;
    ds_arena arena;
    uint32_t n;             /* nodes of the short graph */
    uint32_t *order, *goes; /* of them */
    uint32_t *short_choice; /* likewise */
    block *blocks;
    ds_pase_tables *tables;
    double max_bytes;
    ds_pase_result *result;
    uint32_t *choice; /* per node of the whole graph */
    uint32_t *prefer; /* per node of the short graph: what it takes of equally good ones; or NULL */
    /* What the last strategy that was added up costs. */
    uint32_t *summed;
    double nodes, edges, bytes;
} search;

static uint32_t configs_of(const search *x, uint32_t v) {
    return x->tables->set[v]->n;
}

/* ---- the order ---- */

static void find_scope(search *x, block *b) {
    const ds_tap_run *run = b->run;
    b->n_scope = run->n_global + 2 * run->n_state;
    b->scope = DS_NEW_N(&x->arena, uint32_t, b->n_scope + 1);
    b->in = b->scope + run->n_global;
    b->state = b->in + run->n_state;
    for (uint32_t i = 0; i < run->n_global; i++) b->scope[i] = x->s->node[run->global[i]];
    for (uint32_t i = 0; i < run->n_state; i++) {
        b->in[i] = x->s->node[run->in[i]];
        b->state[i] = x->s->node[run->start + run->state[i]];
    }
}

static void find_order(search *x) {
    uint32_t n_runs = x->fold->runs.n;
    uint32_t *stage = DS_NEW_N(&x->arena, uint32_t, x->n + 1);
    ds_pase_clique *cliques = DS_NEW_N(&x->arena, ds_pase_clique, n_runs + 1);
    x->blocks = DS_NEW_N(&x->arena, block, n_runs + 1);
    for (uint32_t v = 0; v < x->n; v++)
        stage[v] = x->s->node_run[v] ? x->s->node_run[v] - 1 : n_runs;
    for (uint32_t r = 0; r < n_runs; r++) {
        block *b = &x->blocks[r];
        b->run = &x->fold->runs.at[r];
        find_scope(x, b);
        for (uint32_t i = 0; i < b->run->n_state; i++) stage[b->state[i]] = n_runs;
        cliques[r] = (ds_pase_clique){b->n_scope, b->scope};
    }
    ds_pase__order_in_stages(x->s->graph, stage, cliques, n_runs, x->order);
    uint32_t at = 0;
    for (uint32_t r = 0; r < n_runs; r++) {
        block *b = &x->blocks[r];
        b->inner = &x->order[at];
        while (at < x->n && stage[x->order[at]] == r) at++;
        b->n_inner = (uint32_t)(&x->order[at] - b->inner);
    }
    for (uint32_t i = 0; i < x->n; i++) x->goes[x->order[i]] = i;
}

/* ---- costs as whole numbers ---- */

static double copies_of(const search *x, uint32_t run) {
    return run ? x->fold->runs.at[run - 1].copies : 1;
}

static double largest(const double *table, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if (fabs(table[i]) > most) most = fabs(table[i]);
    return most;
}

static size_t edge_entries(const search *x, uint32_t e) {
    const ds_pase_edge *edge = &x->s->graph->edges.at[e];
    return (size_t)configs_of(x, edge->from) * configs_of(x, edge->to);
}

/* The largest power of two by which all costs can be multiplied such that no sum of them reaches
 * 2^53: sums of whole numbers are exact then. */
static double scale_of(const search *x, double price) {
    double bound = 0;
    for (uint32_t v = 0; v < x->n; v++) {
        double most = largest(x->tables->cost[v], configs_of(x, v));
        if (price > 0) most += price * largest(x->tables->memory[v], configs_of(x, v));
        bound += most * copies_of(x, x->s->node_run[v]);
    }
    for (uint32_t e = 0; e < x->s->graph->edges.n; e++)
        if (x->tables->edge[e])
            bound +=
                largest(x->tables->edge[e], edge_entries(x, e)) * copies_of(x, x->s->edge_run[e]);
    if (!(bound > 0) || !isfinite(bound)) return 1;
    int exponent;
    frexp(bound, &exponent);
    return ldexp(1, 52 - exponent);
}

static const double *scaled(const double *table, size_t n, double scale, ds_arena *arena) {
    double *out = DS_NEW_N(arena, double, n);
    for (size_t i = 0; i < n; i++) out[i] = rint(table[i] * scale);
    return out;
}

static void add_nodes(const search *x, double price, double scale, ds_pase_elimination *e) {
    for (uint32_t v = 0; v < x->n; v++) {
        uint32_t n = configs_of(x, v);
        double *sum = DS_NEW_N(&e->arena, double, n);
        for (uint32_t c = 0; c < n; c++)
            sum[c] = x->tables->cost[v][c] + (price > 0 ? price * x->tables->memory[v][c] : 0);
        ds_pase__add_term(e, scaled(sum, n, scale, &e->arena), &v, 1, x->s->node_run[v]);
    }
}

/* Tables that several edges share are scaled once. */
static void add_edges(const search *x, double scale, ds_pase_elimination *e) {
    const ds_pase_graph *graph = x->s->graph;
    const double **known = DS_NEW_N(&e->arena, const double *, graph->edges.n + 1);
    for (uint32_t i = 0; i < graph->edges.n; i++) {
        const double *table = x->tables->edge[i];
        if (!table) continue;
        for (uint32_t k = 0; k < i && !known[i]; k++)
            if (x->tables->edge[k] == table) known[i] = known[k];
        if (!known[i]) known[i] = scaled(table, edge_entries(x, i), scale, &e->arena);
        const ds_pase_edge *edge = &graph->edges.at[i];
        bool from_first = x->goes[edge->from] < x->goes[edge->to];
        uint32_t node[2] = {from_first ? edge->to : edge->from, from_first ? edge->from : edge->to};
        ds_pase__add_term(e, known[i], node, 2, x->s->edge_run[i]);
    }
}

/* ---- runs ---- */

static ds_status size_table(const search *x, block *b, ds_pase_elimination *e, ds_error *err) {
    double slices = 1, n = 1;
    for (uint32_t i = 0; i < b->run->n_global; i++) slices *= configs_of(x, b->scope[i]);
    for (uint32_t i = 0; i < b->run->n_state; i++) n *= configs_of(x, b->in[i]);
    double levels = 2; /* squares, and products of those that make up the chain */
    for (uint32_t left = b->run->copies; left > 1; left /= 2) levels++;
    e->sizes.table_bytes += 8 * slices * n * n * levels;
    e->sizes.combinations += slices * n * n * n * levels;
    if (e->sizes.table_bytes > x->max_bytes)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "a block of %u operations, %u times, has %.0f assignments of its "
                            "boundary: more than the limit of %.0f MB of tables",
                            b->run->period, b->run->copies, slices * n * n, x->max_bytes / 1e6);
    b->slices = (uint32_t)slices;
    b->n = (uint32_t)n;
    return DS_OK;
}

/* The power as a term: its dims in the order in which nodes go, the last first. */
static void add_power(const search *x, const block *b, ds_pase_elimination *e) {
    uint32_t n = b->n_scope;
    size_t slice = (size_t)b->n * b->n, entries = b->slices * slice;
    if (n == 0) return; /* it hangs together with nothing */
    uint32_t *node = DS_NEW_N(&e->arena, uint32_t, n), *at = DS_NEW_N(&e->arena, uint32_t, n);
    size_t *stride = DS_NEW_N(&e->arena, size_t, n);
    double *sorted = DS_NEW_N(&e->arena, double, entries);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        for (; k > 0 && x->goes[node[k - 1]] < x->goes[b->scope[i]]; k--) node[k] = node[k - 1];
        node[k] = b->scope[i];
    }
    for (uint32_t i = 0; i < n; i++) { /* where the scope's i-th dim is in the term */
        uint32_t k = n - 1;
        stride[i] = 1;
        for (; node[k] != b->scope[i]; k--) stride[i] *= configs_of(x, node[k]);
    }
    for (size_t i = 0; i < entries; i++) {
        size_t to = 0;
        for (uint32_t d = 0; d < n; d++) to += at[d] * stride[d];
        sorted[to] = b->power[i / slice].table[i % slice];
        for (uint32_t d = n; d-- > 0;) {
            if (++at[d] < configs_of(x, b->scope[d])) break;
            at[d] = 0;
        }
    }
    ds_pase__add_term(e, sorted, node, n, 0);
}

static ds_status eliminate_block(const search *x, uint32_t r, ds_pase_elimination *e,
                                 ds_error *err) {
    block *b = &x->blocks[r];
    DS_TRY(size_table(x, b, e, err));
    for (uint32_t i = 0; i < b->n_inner; i++)
        DS_TRY(ds_pase__eliminate(e, b->inner[i], r + 1, err));
    size_t entries = (size_t)b->slices * b->n * b->n;
    double *table = DS_NEW_N(&e->arena, double, entries);
    ds_pase__gather(e, r + 1, b->scope, b->n_scope, table);
    b->power = DS_NEW_N(&e->arena, ds_tap_power, b->slices);
    for (uint32_t i = 0; i < b->slices; i++)
        ds_tap__power_init(&b->power[i], table + i * ((size_t)b->n * b->n), b->n, b->run->copies,
                           &e->arena);
    add_power(x, b, e);
    return DS_OK;
}

/* ---- choices ---- */

/* The number of an assignment of `n` nodes, and back. */
static uint32_t number_of(const search *x, const uint32_t *node, uint32_t n) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) at = at * configs_of(x, node[i]) + x->short_choice[node[i]];
    return at;
}

static void set_number(const search *x, const uint32_t *node, uint32_t n, uint32_t at) {
    for (uint32_t i = n; i-- > 0; at /= configs_of(x, node[i]))
        x->short_choice[node[i]] = at % configs_of(x, node[i]);
}

/* Copies with the same states at both ends are alike. */
static const uint32_t *known_copy(const block *b, const uint32_t *state, uint32_t j,
                                  const uint32_t *choice) {
    for (uint32_t k = 0; k < j; k++)
        if (state[k] == state[j] && state[k + 1] == state[j + 1])
            return &choice[b->run->start + k * b->run->period];
    return NULL;
}

static void choose_copy(const search *x, const block *b, const ds_pase_elimination *e,
                        uint32_t *out) {
    for (uint32_t i = b->n_inner; i-- > 0;) ds_pase__choose(e, b->inner[i], x->short_choice);
    for (uint32_t o = 0; o < b->run->period; o++)
        out[o] = x->short_choice[x->s->node[b->run->start + o]];
}

static void choose_run(const search *x, const block *b, const ds_pase_elimination *e,
                       uint32_t *choice) {
    const ds_tap_run *run = b->run;
    uint32_t in = number_of(x, b->in, run->n_state), last = number_of(x, b->state, run->n_state);
    uint32_t *state = ds_xcalloc((size_t)run->copies + 1, sizeof *state);
    const ds_tap_power *power = &b->power[number_of(x, b->scope, run->n_global)];
    ds_tap__power_states(power, in, last, state);
    for (uint32_t j = 0; j < run->copies; j++) {
        uint32_t *out = &choice[run->start + j * run->period];
        const uint32_t *same = known_copy(b, state, j, choice);
        if (same) {
            memcpy(out, same, run->period * sizeof *out);
            continue;
        }
        set_number(x, b->in, run->n_state, state[j]);
        set_number(x, b->state, run->n_state, state[j + 1]);
        choose_copy(x, b, e, out);
    }
    set_number(x, b->in, run->n_state, in);
    set_number(x, b->state, run->n_state, last);
    free(state);
}

static void choose_all(const search *x, uint32_t first, const ds_pase_elimination *e,
                       uint32_t *choice) {
    for (uint32_t i = x->n; i-- > first;) ds_pase__choose(e, x->order[i], x->short_choice);
    for (uint32_t v = 0; v < x->fold->graph->nodes.n; v++)
        choice[v] = x->short_choice[x->s->node[v]];
    for (uint32_t r = 0; r < x->fold->runs.n; r++) choose_run(x, &x->blocks[r], e, choice);
}

/* ---- what a strategy costs ---- */

static double edge_cost(const search *x, uint32_t e, const uint32_t *choice) {
    uint32_t kept = x->s->edge[e];
    if (kept == DS_TAP_NO_EDGE || !x->tables->edge[kept]) return 0;
    const ds_pase_edge *edge = &x->s->graph->edges.at[kept], *whole = &x->fold->graph->edges.at[e];
    bool flipped = x->goes[edge->from] < x->goes[edge->to];
    uint32_t row = choice[flipped ? whole->to : whole->from];
    uint32_t column = choice[flipped ? whole->from : whole->to];
    return x->tables
        ->edge[kept][(size_t)row * configs_of(x, flipped ? edge->from : edge->to) + column];
}

/* In the order in which ds_pase_search adds them up. */
static void add_up(search *x, const uint32_t *choice) {
    const ds_pase_graph *graph = x->fold->graph;
    x->nodes = x->edges = x->bytes = 0;
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        x->nodes += x->tables->cost[x->s->node[v]][choice[v]];
        if (x->tables->memory) x->bytes += x->tables->memory[x->s->node[v]][choice[v]];
    }
    for (uint32_t e = 0; e < graph->edges.n; e++) x->edges += edge_cost(x, e, choice);
    memcpy(x->summed, choice, graph->nodes.n * sizeof *choice);
}

static ds_status solve_priced(ds_pase_pricer *pricer, double price, uint32_t *choice, double *total,
                              double *bytes, ds_error *err) {
    search *x = (search *)pricer;
    uint32_t n_runs = x->fold->runs.n, first = 0;
    ds_pase_elimination e;
    double scale = scale_of(x, price);
    ds_pase__elimination_init(&e, x->s->graph, x->tables->set, x->goes, x->tables->bytes,
                              x->max_bytes);
    e.prefer = x->prefer;
    add_nodes(x, price, scale, &e);
    add_edges(x, scale, &e);
    ds_status status = DS_OK;
    for (uint32_t r = 0; r < n_runs && !status; r++) {
        status = eliminate_block(x, r, &e, err);
        first += x->blocks[r].n_inner;
    }
    for (uint32_t i = first; i < x->n && !status; i++)
        status = ds_pase__eliminate(&e, x->order[i], 0, err);
    if (!status) {
        choose_all(x, first, &e, choice);
        add_up(x, choice);
        *bytes = x->bytes;
        *total = x->nodes + x->edges + price * *bytes;
    }
    x->result->sizes = e.sizes;
    ds_pase__elimination_deinit(&e);
    return status;
}

/* ---- all ---- */

static void keep_strategy(search *x) {
    ds_pase_result *r = x->result;
    for (uint32_t v = 0; v < x->fold->graph->nodes.n; v++) {
        const ds_pase_configs *set = x->tables->set[x->s->node[v]];
        memcpy(r->strategy[v].of, ds_pase_config(set, x->choice[v]),
               set->n_axes * sizeof *r->strategy[v].of);
    }
    size_t n = x->fold->graph->nodes.n * sizeof *x->choice;
    if (memcmp(x->summed, x->choice, n) != 0) add_up(x, x->choice);
    r->node_cost = x->nodes;
    r->edge_cost = x->edges;
    for (uint32_t e = 0; e < x->fold->graph->edges.n; e++)
        r->sizes.edges += x->s->edge[e] != DS_TAP_NO_EDGE;
    r->sizes.edge_tables = x->tables->n_edge_tables;
}

/* Prices were those of one moment; memory has to suffice at the other one too. */
static void check_limit(const search *x) {
    ds_pase_result *r = x->result;
    double late = 0, limit = x->model->memory_limit;
    bool closed = r->bound >= r->cost - 1e-12 * fabs(r->cost);
    for (uint32_t v = 0; x->tables->late && v < x->fold->graph->nodes.n; v++)
        late += x->tables->late[x->s->node[v]][x->choice[v]];
    r->memory_bytes = fmax(r->memory_bytes, late);
    r->fits = limit <= 0 || r->memory_bytes <= limit;
    r->cost = r->node_cost + r->edge_cost;
    if (closed) r->bound = r->cost;
    r->exact = closed && r->fits;
}

/* What a node of the short graph takes if all it stands for go by examples. */
static void prefer_data(search *x) {
    const ds_pase_graph *graph = x->fold->graph;
    ds_pase_splits *splits = ds_xcalloc((size_t)graph->nodes.n + 1, sizeof *splits);
    ds_pase_data_parallel(graph, &x->model->limits, splits);
    x->prefer = DS_NEW_N(&x->arena, uint32_t, x->n + 1);
    for (uint32_t v = graph->nodes.n; v-- > 0;) {
        uint32_t node = x->s->node[v];
        x->prefer[node] = ds_pase_config_number(x->tables->set[node], &splits[v]);
    }
    free(splits);
}

static ds_status run_search(search *x, ds_error *err) {
    find_order(x);
    DS_TRY(ds_pase__tables_new(x->s->graph, x->model, x->goes, x->s->alike, x->max_bytes,
                               &x->tables, err));
    if (x->model->prefers_data) prefer_data(x);
    DS_TRY(ds_pase__keep_limit(&x->pricer, x->model->memory_limit, x->fold->graph->nodes.n,
                               x->choice, x->result, err));
    keep_strategy(x);
    check_limit(x);
    return DS_OK;
}

ds_status ds_tap_search(const ds_tap_fold *fold, ds_pase_model *model,
                        const ds_pase_options *options, ds_pase_result **out, ds_error *err) {
    uint32_t n = fold->graph->nodes.n, n_short = fold->shortened->graph->nodes.n;
    ds_pase_result *r = ds_xcalloc(1, sizeof *r);
    search x = {.pricer = {solve_priced},
                .fold = fold,
                .s = fold->shortened,
                .model = model,
                .n = n_short,
                .max_bytes = options->max_table_bytes > 0 ? options->max_table_bytes : 4294967296.0,
                .result = r};
    ds_arena_init(&x.arena);
    ds_arena_init(&r->arena);
    r->graph = fold->graph;
    r->strategy = DS_NEW_N(&r->arena, ds_pase_splits, n + 1);
    x.choice = DS_NEW_N(&x.arena, uint32_t, n + 1);
    x.summed = DS_NEW_N(&x.arena, uint32_t, n + 1);
    x.order = DS_NEW_N(&x.arena, uint32_t, n_short + 1);
    x.goes = DS_NEW_N(&x.arena, uint32_t, n_short + 1);
    x.short_choice = DS_NEW_N(&x.arena, uint32_t, n_short + 1);
    ds_status status = run_search(&x, err);
    ds_pase__tables_free(x.tables);
    ds_arena_deinit(&x.arena);
    *out = NULL;
    if (status)
        ds_pase_result_free(r);
    else
        *out = r;
    return status;
}
