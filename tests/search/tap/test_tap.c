/* Folding and composition against brute force and against the unfolded programme, on random graphs
 * of repeated blocks; (min,+) powers against products one by one. */
#include "ir/base/rng.h"
#include "search/tap/power.h"
#include "search/tap/tap.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPHS = 300, MOST_STRATEGIES = 300000, MOST_NODES = 64 };

static uint32_t draw(ds_rng *rng, uint32_t below) {
    return (uint32_t)(ds_rng_next(rng) % below);
}

/* ---- powers ---- */

static void times_one(const double *a, const double *b, uint32_t n, double *to) {
    for (uint32_t i = 0; i < n * n; i++) {
        to[i] = INFINITY;
        for (uint32_t m = 0; m < n; m++) to[i] = fmin(to[i], a[i / n * n + m] + b[m * n + i % n]);
    }
}

/* The states' own sum is what the power says, for all ends. */
static void expect_states(const ds_tap_power *p, const double *block) {
    uint32_t state[200], n = p->n;
    const double *all = p->table;
    for (uint32_t in = 0; in < n; in++)
        for (uint32_t out = 0; out < n; out++) {
            double sum = 0;
            ds_tap__power_states(p, in, out, state);
            cr_assert_eq(state[0], in);
            cr_assert_eq(state[p->copies], out);
            for (uint32_t c = 0; c < p->copies; c++) sum += block[state[c] * n + state[c + 1]];
            cr_expect_eq(sum, all[in * n + out], "%u copies: %g and not %g", p->copies, sum,
                         all[in * n + out]);
        }
}

Test(tap, powers) {
    int steady = 0, led = 0;
    for (uint32_t seed = 0; seed < 100; seed++) {
        ds_rng rng = {seed};
        uint32_t n = 1 + draw(&rng, 6), copies = 1 + draw(&rng, 120);
        /* few values: many ties, and chains that take long to become steady */
        uint32_t values = draw(&rng, 2) ? 4 : 1000000;
        double block[36], sum[36], next[36];
        for (uint32_t i = 0; i < n * n; i++) block[i] = draw(&rng, values);
        ds_arena arena;
        ds_arena_init(&arena);
        ds_tap_power p;
        ds_tap__power_init(&p, block, n, copies, &arena);
        memcpy(sum, block, n * n * sizeof *sum);
        for (uint32_t c = 1; c < copies; c++) {
            times_one(sum, block, n, next);
            memcpy(sum, next, n * n * sizeof *sum);
        }
        cr_expect_arr_eq(p.table, sum, n * n * sizeof *sum, "seed %u", seed);
        expect_states(&p, block);
        steady += p.is_steady || p.n_lead > 0;
        led += p.n_lead > 0;
        ds_arena_deinit(&arena);
    }
    /* all ways to put a chain together are taken */
    cr_expect(steady > 30 && steady < 98 && led > 10 && led < steady,
              "%d of 100 chains become steady, %d block by block", steady, led);
}

/* ---- random graphs of repeated blocks ---- */

static void random_node(ds_rng *rng, ds_pase_node *node) {
    static const int64_t sizes[] = {1, 2, 3, 4, 6};
    *node = (ds_pase_node){.kind = DS_PASE_OTHER, .path = "op", .pattern = "op", .times = 1};
    node->n_axes = 1 + draw(rng, 2);
    for (uint32_t a = 0; a < node->n_axes; a++) {
        node->size[a] = node->rule_size[a] = sizes[draw(rng, 5)];
        node->axis_name[a] = "a";
    }
    node->flop = draw(rng, 1000000); /* tells nodes apart */
}

static void add_edge(ds_pase_graph *graph, uint32_t from, uint32_t to, int64_t size) {
    ds_pase_edge edge = {
        .from = from, .to = to, .times = 1, .dtype = DS_F32, .rank = 1, .size = {size}};
    DS_PUSH(&graph->arena, &graph->edges, edge);
}

typedef struct shape {
    uint32_t head, period, copies, tail, second; /* copies of a second run; 0: there is none */
} shape;

/* One block: its nodes, and its edges from and to offsets; from ≥ period: of the copy before;
 * ≥ 100: a node before the run. */
typedef struct plan {
    uint32_t period;
    ds_pase_node node[8];
    uint32_t n, from[64], to[64];
    int64_t size[64];
} plan;

static void plan_edge(ds_rng *rng, plan *p, uint32_t from, uint32_t to) {
    p->from[p->n] = from;
    p->to[p->n] = to;
    p->size[p->n++] = 1 + draw(rng, 4);
}

static void draw_plan(ds_rng *rng, uint32_t period, uint32_t before, plan *p) {
    uint32_t states = draw(rng, 3), globals = draw(rng, 3);
    *p = (plan){.period = period};
    for (uint32_t o = 0; o < period; o++) {
        random_node(rng, &p->node[o]);
        if (o && draw(rng, 3) == 0) p->node[o] = p->node[o - 1];
    }
    for (uint32_t to = 0; to < period; to++)
        for (uint32_t from = 0; from < to; from++)
            if (draw(rng, 2) || from + 1 == to) plan_edge(rng, p, from, to);
    for (uint32_t i = 0; i < states; i++)
        plan_edge(rng, p, period + draw(rng, period), draw(rng, period));
    for (uint32_t i = 0; i < globals; i++)
        plan_edge(rng, p, 100 + draw(rng, before), draw(rng, period));
}

/* Now and then one copy has another tensor, or the first reads a state from several nodes. */
static void add_run(ds_rng *rng, ds_pase_graph *graph, const plan *p, uint32_t copies) {
    uint32_t odd = draw(rng, 4) ? UINT32_MAX : draw(rng, copies), scatter = draw(rng, 2);
    uint32_t start = graph->nodes.n, first = draw(rng, start);
    for (uint32_t v = start; v < start + copies * p->period; v++) {
        uint32_t o = (v - start) % p->period, c = (v - start) / p->period, base = v - o;
        DS_PUSH(&graph->arena, &graph->nodes, p->node[o]);
        for (uint32_t e = 0; e < p->n; e++) {
            uint32_t from = p->from[e];
            if (p->to[e] != o) continue;
            if (from >= 100)
                from -= 100;
            else if (from >= p->period)
                from = c ? base + from - 2 * p->period : (first + scatter * e) % start;
            else
                from += base;
            add_edge(graph, from, v, p->size[e] + (c == odd && e == 0));
        }
    }
}

/* Nodes in front of a run, some of them like its own. */
static void add_head(ds_rng *rng, ds_pase_graph *graph, const plan *p, uint32_t n) {
    for (uint32_t v = 0; v < n; v++) {
        ds_pase_node node = p->node[draw(rng, p->period)];
        if (draw(rng, 2)) random_node(rng, &node);
        DS_PUSH(&graph->arena, &graph->nodes, node);
        if (v) add_edge(graph, draw(rng, v), v, 1 + draw(rng, 4));
    }
}

/* Behind it, some of them read by all copies. */
static void add_tail(ds_rng *rng, ds_pase_graph *graph, const shape *s) {
    uint32_t end = graph->nodes.n, special = draw(rng, s->period);
    bool sink = draw(rng, 3) == 0;
    for (uint32_t t = 0; t < s->tail; t++) {
        ds_pase_node node;
        random_node(rng, &node);
        DS_PUSH(&graph->arena, &graph->nodes, node);
        for (uint32_t c = 0; sink && t == 0 && c < s->copies; c++)
            add_edge(graph, s->head + c * s->period + special, end, 3);
        add_edge(graph, end + t - 1 - draw(rng, t ? 1 : s->period), end + t, 1 + draw(rng, 4));
        if (draw(rng, 2)) add_edge(graph, draw(rng, s->head), end + t, 2);
    }
}

/* A second run reads anything before it, or one node of every copy of the first. */
static void add_second(ds_rng *rng, ds_pase_graph *graph, const shape *s) {
    plan p;
    uint32_t offset = draw(rng, s->period), to = draw(rng, s->period);
    bool all = draw(rng, 3) == 0 && s->copies < 6;
    if (s->second == 0) return;
    draw_plan(rng, s->period, graph->nodes.n, &p);
    for (uint32_t c = 0; all && c < s->copies; c++)
        plan_edge(rng, &p, 100 + s->head + c * s->period + offset, to);
    add_run(rng, graph, &p, s->second);
}

static ds_pase_graph *repeated_graph(ds_rng *rng, const shape *s) {
    ds_pase_graph *graph = ds_pase_graph_new();
    plan p;
    draw_plan(rng, s->period, s->head, &p);
    add_head(rng, graph, &p, s->head);
    add_run(rng, graph, &p, s->copies);
    add_tail(rng, graph, s);
    add_second(rng, graph, s);
    return graph;
}

/* ---- costs: whole numbers out of a hash ---- */

typedef struct random_model {
    ds_pase_model base;
    uint64_t seed;
} random_model;

static double hashed(uint64_t seed, const void *a, size_t n, const void *b, size_t m) {
    uint64_t hash = seed * 0x9E3779B97F4A7C15u + 1469598103934665603u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const uint8_t *)a)[i]) * 1099511628211u;
    for (size_t i = 0; i < m; i++) hash = (hash ^ ((const uint8_t *)b)[i]) * 1099511628211u;
    return (double)((hash ^ hash >> 29) >> 44);
}

static ds_status random_nodes(ds_pase_model *model, const ds_pase_node *node,
                              const ds_pase_configs *set, double *cost, ds_error *err) {
    (void)err;
    for (uint32_t c = 0; c < set->n; c++)
        cost[c] = hashed(((random_model *)model)->seed, &node->flop, sizeof node->flop,
                         ds_pase_config(set, c), set->n_axes * sizeof(uint16_t));
    return DS_OK;
}

static ds_status random_edges(ds_pase_model *model, const ds_pase_edge *edge,
                              const ds_pase_configs *from, const ds_pase_configs *to, double *cost,
                              ds_error *err) {
    (void)err;
    uint64_t seed = ((random_model *)model)->seed + (uint64_t)edge->size[0];
    for (uint32_t a = 0; a < from->n; a++)
        for (uint32_t b = 0; b < to->n; b++)
            cost[a * to->n + b] =
                hashed(seed, ds_pase_config(from, a), from->n_axes * sizeof(uint16_t),
                       ds_pase_config(to, b), to->n_axes * sizeof(uint16_t));
    return DS_OK;
}

static ds_status random_memory(ds_pase_model *model, const ds_pase_node *node,
                               const ds_pase_configs *set, double *bytes, ds_error *err) {
    (void)model, (void)err;
    for (uint32_t c = 0; c < set->n; c++) {
        bytes[c] = 1;
        for (uint32_t a = 0; a < set->n_axes; a++)
            bytes[c] *= (double)node->size[a] / ds_pase_config(set, c)[a];
    }
    return DS_OK;
}

static random_model model_of(int64_t devices, uint64_t seed) {
    return (random_model){.base = {.name = "random",
                                   .unit = "",
                                   .limits = {.devices = devices, .cutoff = 1},
                                   .node = random_nodes,
                                   .edge = random_edges},
                          .seed = seed};
}

/* ---- brute force ---- */

typedef struct brute {
    const ds_pase_graph *graph;
    ds_pase_configs sets[MOST_NODES];
    double *nodes[MOST_NODES], *edges[8 * MOST_NODES], *memory[MOST_NODES];
    uint32_t at[MOST_NODES];
    double limit, bytes; /* of memory; of the nodes so far */
    double least;
} brute;

/* Costs of node v under at[v], and of its edges to nodes before it. */
static double step_cost(const brute *b, uint32_t v) {
    double cost = b->nodes[v][b->at[v]];
    for (uint32_t e = 0; e < b->graph->edges.n; e++) {
        const ds_pase_edge *edge = &b->graph->edges.at[e];
        if (edge->to == v) cost += b->edges[e][b->at[edge->from] * b->sets[v].n + b->at[v]];
    }
    return cost;
}

static void try_all(brute *b, uint32_t v, double cost) {
    if (v == b->graph->nodes.n) {
        if (cost < b->least) b->least = cost;
        return;
    }
    for (b->at[v] = 0; b->at[v] < b->sets[v].n; b->at[v]++) {
        double bytes = b->memory[v] ? b->memory[v][b->at[v]] : 0;
        b->bytes += bytes;
        if (b->bytes <= b->limit + 1e-9) try_all(b, v + 1, cost + step_cost(b, v));
        b->bytes -= bytes;
    }
}

/* False: too many strategies. */
static bool brute_force(const ds_pase_graph *graph, ds_pase_model *model, double *least) {
    ds_arena arena;
    ds_arena_init(&arena);
    brute b = {.graph = graph, .least = INFINITY, .limit = INFINITY};
    if (model->memory) b.limit = model->memory_limit;
    double strategies = 1;
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        ds_pase_enumerate(&graph->nodes.at[v], &model->limits, &arena, &b.sets[v], NULL);
        b.nodes[v] = DS_NEW_N(&arena, double, b.sets[v].n);
        model->node(model, &graph->nodes.at[v], &b.sets[v], b.nodes[v], NULL);
        strategies *= b.sets[v].n;
        if (!model->memory) continue;
        b.memory[v] = DS_NEW_N(&arena, double, b.sets[v].n);
        model->memory(model, &graph->nodes.at[v], &b.sets[v], b.memory[v], NULL);
    }
    for (uint32_t e = 0; e < graph->edges.n; e++) {
        const ds_pase_edge *edge = &graph->edges.at[e];
        const ds_pase_configs *from = &b.sets[edge->from], *to = &b.sets[edge->to];
        b.edges[e] = DS_NEW_N(&arena, double, from->n * to->n);
        model->edge(model, edge, from, to, b.edges[e], NULL);
    }
    if (strategies <= MOST_STRATEGIES) try_all(&b, 0, 0);
    *least = b.least;
    ds_arena_deinit(&arena);
    return strategies <= MOST_STRATEGIES;
}

/* ---- the search ---- */

/* Its cost, which is that of its strategy, and how many nodes were left of the graph. */
static double tap_cost(const ds_pase_graph *graph, ds_pase_model *model, uint32_t *n_unique) {
    ds_tap_fold *fold = NULL;
    ds_pase_result *result = NULL;
    double again;
    cr_assert_eq(ds_tap_fold_new(graph, model, &fold, NULL), DS_OK);
    cr_assert_eq(ds_tap_search(fold, model, &(ds_pase_options){0}, &result, NULL), DS_OK);
    cr_assert_eq(ds_pase_cost_of(graph, model, result->strategy, &again, NULL), DS_OK);
    cr_expect_eq(again, result->cost, "the strategy costs %.17g, not %.17g", again, result->cost);
    *n_unique = fold->n_unique;
    double cost = result->cost;
    ds_pase_result_free(result);
    ds_tap_fold_free(fold);
    return cost;
}

static double pase_cost(const ds_pase_graph *graph, ds_pase_model *model) {
    ds_pase_result *result = NULL;
    cr_assert_eq(ds_pase_search(graph, model, &(ds_pase_options){0}, &result, NULL), DS_OK);
    double cost = result->cost;
    ds_pase_result_free(result);
    return cost;
}

Test(tap, brute_force) {
    int done = 0, folded = 0;
    for (uint64_t seed = 0; done < GRAPHS; seed++) {
        ds_rng rng = {seed};
        random_model model = model_of(2 + draw(&rng, 2), seed);
        shape s = {.head = 1 + draw(&rng, 3),
                   .period = 1 + draw(&rng, 3),
                   .copies = 2 + draw(&rng, 4),
                   .tail = draw(&rng, 3),
                   .second = draw(&rng, 4)};
        ds_pase_graph *graph = repeated_graph(&rng, &s);
        double least;
        uint32_t unique;
        if (graph->nodes.n < 16 && brute_force(graph, &model.base, &least)) {
            done++;
            double cost = tap_cost(graph, &model.base, &unique);
            cr_expect_eq(cost, least, "graph %d: %.17g and not %.17g", (int)seed, cost, least);
            folded += unique < graph->nodes.n;
        }
        ds_pase_graph_free(graph);
    }
    cr_expect_gt(folded, GRAPHS / 3, "only %d graphs were folded", folded);
}

/* Longer chains, more devices: the programme on the whole graph finds the same. */
Test(tap, unfolded) {
    int folded = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        ds_rng rng = {1000 + seed};
        random_model model = model_of(4, seed);
        shape s = {.head = 1 + draw(&rng, 4),
                   .period = 1 + draw(&rng, 5),
                   .copies = 2 + draw(&rng, 40),
                   .tail = draw(&rng, 4),
                   .second = draw(&rng, 8)};
        ds_pase_graph *graph = repeated_graph(&rng, &s);
        uint32_t unique;
        double cost = tap_cost(graph, &model.base, &unique), all = pase_cost(graph, &model.base);
        cr_expect_eq(cost, all, "graph %d: %.17g and not %.17g", (int)seed, cost, all);
        folded += unique < graph->nodes.n;
        ds_pase_graph_free(graph);
    }
    cr_expect_gt(folded, GRAPHS / 3, "only %d graphs were folded", folded);
}

/* Under a memory limit: never beyond it, the bound below the true optimum, the cost above it. */
Test(tap, memory_limit) {
    int done = 0, exact = 0, limited = 0;
    for (uint64_t seed = 5000; done < GRAPHS / 3; seed++) {
        ds_rng rng = {seed};
        random_model model = model_of(2 + draw(&rng, 2), seed);
        shape s = {.head = 1, .period = 1 + draw(&rng, 2), .copies = 3 + draw(&rng, 3), .tail = 1};
        ds_pase_graph *graph = repeated_graph(&rng, &s);
        double least = INFINITY, whole = 0;
        bool small = graph->nodes.n < 12 && brute_force(graph, &model.base, &least);
        double unlimited = least;
        for (uint32_t v = 0; v < graph->nodes.n; v++) {
            const ds_pase_node *node = &graph->nodes.at[v];
            whole += (double)node->size[0] * (double)(node->n_axes > 1 ? node->size[1] : 1);
        }
        model.base.memory = random_memory;
        model.base.memory_limit = whole * 0.6;
        if (small && brute_force(graph, &model.base, &least) && isfinite(least)) {
            ds_tap_fold *fold = NULL;
            ds_pase_result *r = NULL;
            done++;
            cr_assert_eq(ds_tap_fold_new(graph, &model.base, &fold, NULL), DS_OK);
            cr_assert_eq(ds_tap_search(fold, &model.base, &(ds_pase_options){0}, &r, NULL), DS_OK);
            cr_expect(r->fits, "graph %d", (int)seed);
            cr_expect_leq(r->memory_bytes, model.base.memory_limit + 1e-9);
            cr_expect_leq(r->bound, least + 1e-6);
            cr_expect_geq(r->cost, least - 1e-6);
            exact += r->cost <= least + 1e-6;
            limited += least > unlimited;
            ds_pase_result_free(r);
            ds_tap_fold_free(fold);
        }
        ds_pase_graph_free(graph);
    }
    cr_expect_gt(limited, 20, "the limit was in the way of %d graphs alone", limited);
    cr_expect_gt(exact, GRAPHS / 6, "%d of %d are optimal", exact, GRAPHS / 3);
}
