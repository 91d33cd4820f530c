/* The programme against brute force: on hundreds of small random graphs no strategy is cheaper, in
 * either order, and its cost is that of its strategy. */
#include "ir/base/rng.h"
#include "search/pase/costs.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPHS = 500, MOST_STRATEGIES = 200000 };

static int64_t draw(ds_rng *rng, int64_t below) {
    return (int64_t)(ds_rng_next(rng) % (uint64_t)below);
}

/* ---- random graphs ---- */

static const int64_t sizes[] = {2, 3, 4, 6, 8, 12};

static void random_node(ds_rng *rng, ds_pase_node *node) {
    static const ds_pase_kind kinds[] = {DS_PASE_GEMM,    DS_PASE_ELEMENTWISE, DS_PASE_NORM,
                                         DS_PASE_SOFTMAX, DS_PASE_LAYOUT,      DS_PASE_LOSS};
    *node = (ds_pase_node){.kind = kinds[draw(rng, 6)], .path = "op", .pattern = "op", .times = 1};
    node->n_axes = (uint32_t)(node->kind == DS_PASE_GEMM ? 3 : 2 + draw(rng, 2));
    for (uint32_t a = 0; a < node->n_axes; a++) {
        node->size[a] = sizes[draw(rng, 6)];
        node->rule_size[a] = node->size[a];
        node->axis_name[a] = &"abc"[a];
    }
    node->pointwise = (uint32_t)draw(rng, 3);
    if (node->kind == DS_PASE_GEMM)
        node->m = 1, node->n = 2, node->k = 4;
    else
        node->along = 1u << (node->kind == DS_PASE_LOSS ? node->n_axes - 1
                                                        : (uint32_t)draw(rng, node->n_axes));
    if (draw(rng, 4) == 0) node->whole = 1u << draw(rng, node->n_axes);
}

static void random_edge(ds_rng *rng, ds_pase_graph *graph, uint32_t from, uint32_t to) {
    const ds_pase_node *a = &graph->nodes.at[from], *b = &graph->nodes.at[to];
    ds_pase_edge edge = {.from = from, .to = to, .times = 1, .dtype = DS_F32, .rank = 2};
    for (uint32_t d = 0; d < 2; d++) {
        edge.from_axis[d] = (int8_t)d;
        edge.to_axis[d] =
            (int8_t)(draw(rng, 5) == 0 ? DS_PASE_NO_AXIS : (int)b->n_axes - 1 - (int)d);
        edge.size[d] = a->size[d];
    }
    for (uint32_t e = 0; e < graph->edges.n; e++)
        if (graph->edges.at[e].from == from && graph->edges.at[e].to == to)
            graph->edges.at[e].shadowed = true;
    DS_PUSH(&graph->arena, &graph->edges, edge);
}

static ds_pase_graph *random_graph(ds_rng *rng) {
    ds_pase_graph *graph = ds_pase_graph_new();
    uint32_t n = 2 + (uint32_t)draw(rng, 5);
    for (uint32_t v = 0; v < n; v++) {
        ds_pase_node node;
        random_node(rng, &node);
        DS_PUSH(&graph->arena, &graph->nodes, node);
        for (uint32_t u = 0; u < v; u++)
            if (draw(rng, 5) < 2 || u + 1 == v) random_edge(rng, graph, u, v);
        if (v > 1 && draw(rng, 4) == 0) random_edge(rng, graph, 0, v);
    }
    return graph;
}

/* ---- costs that are tables of random numbers ---- */

typedef struct random_model {
    ds_pase_model base;
    uint64_t seed;
} random_model;

static double hashed(uint64_t seed, const void *a, size_t n, const void *b, size_t m) {
    uint64_t hash = seed;
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const uint8_t *)a)[i]) * 1099511628211u;
    for (size_t i = 0; i < m; i++) hash = (hash ^ ((const uint8_t *)b)[i]) * 1099511628211u;
    return (double)(hash >> 44);
}

static ds_status random_nodes(ds_pase_model *model, const ds_pase_node *node,
                              const ds_pase_configs *set, double *cost, ds_error *err) {
    (void)err;
    uint64_t seed = ((random_model *)model)->seed;
    for (uint32_t c = 0; c < set->n; c++)
        cost[c] = hashed(seed, node->size, sizeof node->size, ds_pase_config(set, c),
                         set->n_axes * sizeof(uint16_t));
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

/* At a second moment: anything. */
static ds_status random_late(ds_pase_model *model, const ds_pase_node *node,
                             const ds_pase_configs *set, double *bytes, ds_error *err) {
    (void)err;
    double whole = 1;
    for (uint32_t a = 0; a < node->n_axes; a++) whole *= (double)node->size[a];
    for (uint32_t c = 0; c < set->n; c++)
        bytes[c] = 1 + fmod(hashed(((random_model *)model)->seed + 7, node->size, sizeof node->size,
                                   ds_pase_config(set, c), set->n_axes * sizeof(uint16_t)),
                            whole / 2);
    return DS_OK;
}

/* ---- brute force ---- */

typedef struct brute {
    const ds_pase_graph *graph;
    ds_pase_model *model;
    ds_pase_configs *sets;
    double *nodes[8], *edges[40], *memory[8], *late[8];
    double least;       /* of those within the limit */
    double bound_least; /* of all */
    double least_bytes;
    uint32_t at[8];
} brute;

static void judge(brute *b) {
    double cost = 0, bytes = 0, late = 0;
    for (uint32_t v = 0; v < b->graph->nodes.n; v++) {
        cost += b->nodes[v][b->at[v]];
        if (b->memory[v]) bytes += b->memory[v][b->at[v]];
        if (b->late[v]) late += b->late[v][b->at[v]];
    }
    for (uint32_t e = 0; e < b->graph->edges.n; e++) {
        const ds_pase_edge *edge = &b->graph->edges.at[e];
        if (b->edges[e])
            cost += b->edges[e][b->at[edge->from] * b->sets[edge->to].n + b->at[edge->to]];
    }
    if (cost < b->bound_least) b->bound_least = cost;
    bool fits = b->model->memory_limit <= 0 || fmax(bytes, late) <= b->model->memory_limit;
    if (fmax(bytes, late) < b->least_bytes) b->least_bytes = fmax(bytes, late);
    if (fits && cost < b->least) b->least = cost;
}

static void try_all(brute *b, uint32_t v) {
    if (v == b->graph->nodes.n) {
        judge(b);
        return;
    }
    for (b->at[v] = 0; b->at[v] < b->sets[v].n; b->at[v]++) try_all(b, v + 1);
}

/* False: too many strategies. */
static bool brute_force(const ds_pase_graph *graph, ds_pase_model *model, brute *b) {
    ds_arena arena;
    ds_arena_init(&arena);
    *b = (brute){.graph = graph,
                 .model = model,
                 .least = INFINITY,
                 .bound_least = INFINITY,
                 .least_bytes = INFINITY};
    b->sets = DS_NEW_N(&arena, ds_pase_configs, graph->nodes.n);
    double strategies = 1;
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        const ds_pase_node *node = &graph->nodes.at[v];
        cr_assert_eq(ds_pase_enumerate(node, &model->limits, &arena, &b->sets[v], NULL), DS_OK);
        b->nodes[v] = DS_NEW_N(&arena, double, b->sets[v].n);
        model->node(model, node, &b->sets[v], b->nodes[v], NULL);
        if (model->memory) {
            b->memory[v] = DS_NEW_N(&arena, double, b->sets[v].n);
            model->memory(model, node, &b->sets[v], b->memory[v], NULL);
        }
        if (model->late_memory) {
            b->late[v] = DS_NEW_N(&arena, double, b->sets[v].n);
            model->late_memory(model, node, &b->sets[v], b->late[v], NULL);
        }
        strategies *= b->sets[v].n;
    }
    for (uint32_t e = 0; e < graph->edges.n; e++) {
        const ds_pase_edge *edge = &graph->edges.at[e];
        if (!ds_pase_counts(model, edge)) continue;
        const ds_pase_configs *from = &b->sets[edge->from], *to = &b->sets[edge->to];
        b->edges[e] = DS_NEW_N(&arena, double, (size_t)from->n * to->n);
        model->edge(model, edge, from, to, b->edges[e], NULL);
    }
    if (strategies <= MOST_STRATEGIES) try_all(b, 0);
    ds_arena_deinit(&arena);
    return strategies <= MOST_STRATEGIES;
}

static void expect_optimal(const ds_pase_graph *graph, ds_pase_model *model, double least,
                           ds_pase_order order) {
    ds_pase_result *result = NULL;
    ds_pase_options options = {.order = order};
    double again = 0;
    cr_assert_eq(ds_pase_search(graph, model, &options, &result, NULL), DS_OK);
    cr_assert_eq(ds_pase_cost_of(graph, model, result->strategy, &again, NULL), DS_OK);
    cr_expect_float_eq(result->cost, least, 1e-12 * least + 1e-9, "%s: %.17g and not %.17g",
                       model->name, result->cost, least);
    cr_expect_float_eq(again, least, 1e-12 * least + 1e-9);
    cr_expect(result->fits);
    ds_pase_result_free(result);
}

static void expect_least(ds_pase_model *model, uint64_t seed, int wanted) {
    int done = 0;
    for (uint64_t i = 0; done < wanted; i++) {
        ds_rng rng = {seed + i};
        ds_pase_graph *graph = random_graph(&rng);
        brute b;
        if (brute_force(graph, model, &b)) {
            done++;
            expect_optimal(graph, model, b.least, DS_PASE_GENERATE_SEQ);
            expect_optimal(graph, model, b.least, DS_PASE_BREADTH_FIRST);
        }
        ds_pase_graph_free(graph);
    }
}

Test(pase_optimal, published_formulas) {
    ds_pase_model *model = ds_pase_formulas_new(4, 1, DS_PASE_FLOP_PER_S, DS_PASE_BYTES_PER_S);
    expect_least(model, 1, GRAPHS);
    model->free(model);
}

Test(pase_optimal, random_tables) {
    random_model model = {.base = {.name = "random",
                                   .unit = "",
                                   .limits = {.devices = 4, .cutoff = 1},
                                   .node = random_nodes,
                                   .edge = random_edges},
                          .seed = 7};
    expect_least(&model.base, 1000, GRAPHS);
}

/* ---- distsim's costs: random models, read from text ---- */

/* Matmuls, sums and softmaxes over [b, d], each of values made before it. */
static void random_text(ds_rng *rng, char *text, size_t size) {
    int64_t dims[8] = {0}, n = 3 + draw(rng, 3);
    dims[0] = sizes[2 + draw(rng, 4)];
    size_t at = (size_t)snprintf(
        text, size,
        "dir 1\ntopology @box {\n  device gpu[4] : \"A100-SXM4-80GB\"\n  switch s\n"
        "  link gpu[i] -- s : 25 GB/s, 1 us for i in 0..4\n}\n"
        "func @net(%%v0: f32[%d, %d]) -> f32[] {\n",
        (int)sizes[2 + draw(rng, 4)] * 64, (int)dims[0] * 64);
    for (int64_t v = 1; v <= n; v++) {
        int64_t from = v == 1 ? 0 : draw(rng, v), kind = draw(rng, 4), other = -1;
        for (int64_t u = 0; u < v; u++)
            if (u != from && dims[u] == dims[from]) other = u;
        dims[v] = dims[from];
        if (kind == 0 && other >= 0) {
            at += (size_t)snprintf(text + at, size - at, "  %%v%d = add(%%v%d, %%v%d)\n", (int)v,
                                   (int)from, (int)other);
        } else if (kind == 1) {
            at += (size_t)snprintf(text + at, size - at, "  %%v%d = softmax(%%v%d)\n", (int)v,
                                   (int)from);
        } else {
            dims[v] = sizes[2 + draw(rng, 4)];
            at += (size_t)snprintf(text + at, size - at,
                                   "  weight %%w%d : f32[%d, %d]\n"
                                   "  %%v%d = matmul(%%v%d, %%w%d)\n",
                                   (int)v, (int)dims[from] * 64, (int)dims[v] * 64, (int)v,
                                   (int)from, (int)v);
        }
    }
    snprintf(text + at, size - at,
             "  %%l = reduce_sum(%%v%d)\n  return %%l\n}\n"
             "scenario { model = @net, on = @box, train { optimizer = sgd } }\n",
             (int)n);
}

Test(pase_optimal, simulated_costs) {
    ds_profiles *profiles = NULL;
    ds_error err = {0};
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &profiles, &err), DS_OK, "%s", err.message);
    int done = 0;
    for (uint64_t i = 0; done < GRAPHS; i++) {
        char text[4096];
        step_case c;
        ds_pase_graph *graph = NULL;
        ds_pase_model *model = NULL;
        ds_rng rng = {77000 + i};
        random_text(&rng, text, sizeof text);
        step_make(&c, text, NULL, DS_PASS_LOWER);
        cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text);
        cr_assert_eq(ds_pase_graph_read(c.step, &graph, &err), DS_OK, "%s", err.message);
        cr_assert_eq(ds_pase_costs_new(&c.binding, c.step, profiles, 4, 1, &model, &err), DS_OK,
                     "%s", err.message);
        brute b;
        if (graph->nodes.n <= 8 && brute_force(graph, model, &b)) {
            done++;
            expect_optimal(graph, model, b.least, DS_PASE_GENERATE_SEQ);
            expect_optimal(graph, model, b.least, DS_PASE_BREADTH_FIRST);
        }
        model->free(model);
        ds_pase_graph_free(graph);
        step_free(&c);
    }
    ds_profiles_free(profiles);
}

static double elements_of(const ds_pase_graph *graph) {
    double whole = 0;
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        double one = 1;
        for (uint32_t a = 0; a < graph->nodes.at[v].n_axes; a++)
            one *= (double)graph->nodes.at[v].size[a];
        whole += one;
    }
    return whole;
}

/* Under a memory limit the cheapest strategy that keeps it, at one moment or at two; or none, if
 * there is none. The limits are such that it is in the way of many. */
static void expect_limited(bool two_moments) {
    random_model model = {.base = {.name = "random",
                                   .unit = "",
                                   .limits = {.devices = 4, .cutoff = 1},
                                   .node = random_nodes,
                                   .edge = random_edges,
                                   .memory = random_memory,
                                   .late_memory = two_moments ? random_late : NULL},
                          .seed = 11};
    int limited = 0, none = 0;
    for (uint64_t i = 0; i < 250; i++) {
        ds_rng rng = {5000 + i};
        ds_pase_graph *graph = random_graph(&rng);
        brute b;
        ds_pase_result *r = NULL;
        double share = i % 5 == 0 ? 6 : two_moments ? 2.5 : 3.5;
        model.base.memory_limit = elements_of(graph) / share;
        if (brute_force(graph, &model.base, &b)) {
            bool any = isfinite(b.least);
            cr_assert_eq(ds_pase_search(graph, &model.base, &(ds_pase_options){0}, &r, NULL),
                         DS_OK);
            cr_expect_eq(r->fits, any, "graph %d", (int)i);
            cr_expect(r->exact, "graph %d", (int)i);
            if (any) {
                cr_expect_leq(r->memory_bytes, model.base.memory_limit);
                cr_expect_float_eq(r->cost, b.least, 1e-6, "graph %d: %.17g and not %.17g", (int)i,
                                   r->cost, b.least);
                cr_expect_eq(r->bound, r->cost);
            } else {
                cr_expect_geq(r->memory_bytes, b.least_bytes);
                cr_expect_leq(r->memory_bytes, 1.5 * b.least_bytes, "graph %d: %g and not %g",
                              (int)i, r->memory_bytes, b.least_bytes);
            }
            none += !any;
            limited += any && b.least > b.bound_least;
            ds_pase_result_free(r);
        }
        ds_pase_graph_free(graph);
    }
    cr_expect_gt(limited, 40, "the limit was in the way of %d graphs alone", limited);
    cr_expect_gt(none, 10, "%d graphs have no strategy", none);
}

Test(pase_optimal, memory_limit) {
    expect_limited(false);
}

Test(pase_optimal, memory_limit_at_two_moments) {
    expect_limited(true);
}
