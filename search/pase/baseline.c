/* Strategies to compare with, and what a given strategy costs. */
#include "search/pase/pase.h"

#include <stdlib.h>
#include <string.h>

/* ---- axes that run through the graph ---- */

/* What the edges to `v` make of the axes of the nodes before it; -1: nothing. */
static int8_t from_before(const ds_pase_graph *graph, const int8_t *axis, uint32_t v,
                          uint32_t *edge) {
    for (; *edge < graph->edges.n && graph->edges.at[*edge].to < v; ++*edge) {
    }
    int8_t found = -1;
    for (uint32_t e = *edge; e < graph->edges.n && graph->edges.at[e].to == v && found < 0; e++) {
        const ds_pase_edge *at = &graph->edges.at[e];
        if (at->tied) continue;
        for (uint32_t d = 0; d < at->rank && found < 0; d++)
            if (at->from_axis[d] >= 0 && at->from_axis[d] == axis[at->from]) found = at->to_axis[d];
    }
    return found;
}

/* By a node before it? */
static bool is_fed(const ds_pase_graph *graph, uint32_t v, uint32_t edge) {
    for (; edge < graph->edges.n && graph->edges.at[edge].to == v; edge++)
        if (graph->edges.at[edge].from < v && !graph->edges.at[edge].tied) return true;
    return false;
}

/* The first dim of the first operand that is no weight. */
static int8_t of_arguments(const ds_pase_node *node) {
    for (uint32_t i = 0; i < node->n_in; i++)
        if (!node->in_weight[i] && node->in[i].rank > 0) return node->in_axis[i][0];
    return -1;
}

int8_t *ds_pase_batch_axes(const ds_pase_graph *graph) {
    int8_t *axis = ds_xcalloc((size_t)graph->nodes.n + 1, 1);
    uint32_t edge = 0;
    memset(axis, -1, graph->nodes.n);
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        axis[v] = from_before(graph, axis, v, &edge);
        if (axis[v] < 0 && !is_fed(graph, v, edge)) axis[v] = of_arguments(&graph->nodes.at[v]);
    }
    return axis;
}

/* The largest divisor of the axis up to `most` that the limits allow. */
static uint16_t largest(const ds_pase_node *node, int8_t axis, const ds_pase_limits *limits,
                        int64_t most) {
    if (axis < 0 || (node->whole >> axis) & 1) return 1;
    int64_t cutoff = limits->cutoff > 1 ? limits->cutoff : 1;
    for (int64_t e = most; e > 1; e--) {
        bool divides = node->size[axis] % e == 0 && node->size[axis] / e >= cutoff;
        if (limits->by_rule && node->rule_size[axis] % e != 0) continue;
        if (limits->divides && most % e != 0) continue;
        if (divides) return (uint16_t)e;
    }
    return 1;
}

static void all_whole(const ds_pase_graph *graph, ds_pase_splits *strategy) {
    for (uint32_t v = 0; v < graph->nodes.n; v++)
        for (uint32_t a = 0; a < DS_PASE_MAX_AXES; a++) strategy[v].of[a] = 1;
}

static void split_batch(const ds_pase_graph *graph, const ds_pase_limits *limits, int64_t parts,
                        const int8_t *batch, ds_pase_splits *strategy) {
    all_whole(graph, strategy);
    for (uint32_t v = 0; v < graph->nodes.n; v++)
        if (batch[v] >= 0)
            strategy[v].of[batch[v]] = largest(&graph->nodes.at[v], batch[v], limits, parts);
}

void ds_pase_data_parallel(const ds_pase_graph *graph, const ds_pase_limits *limits,
                           ds_pase_splits *strategy) {
    int8_t *batch = ds_pase_batch_axes(graph);
    split_batch(graph, limits, limits->devices, batch, strategy);
    free(batch);
}

/* ---- experts ---- */

bool ds_pase_is_convolutional(const ds_pase_graph *graph) {
    for (uint32_t v = 0; v < graph->nodes.n; v++)
        if (graph->nodes.at[v].op && graph->nodes.at[v].op->code == DS_OP_CONV2D) return true;
    return false;
}

static bool is_connected_layer(const ds_pase_node *node) {
    return node->kind == DS_PASE_GEMM && node->op && node->op->code == DS_OP_MATMUL;
}

static void one_weird_trick(const ds_pase_graph *graph, const ds_pase_limits *limits,
                            ds_pase_splits *strategy) {
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        const ds_pase_node *node = &graph->nodes.at[v];
        uint32_t out = node->kind == DS_PASE_LOSS ? node->along : node->n;
        if (!is_connected_layer(node) && node->kind != DS_PASE_LOSS) continue;
        int8_t axis = (int8_t)__builtin_ctz(out);
        for (uint32_t a = 0; a < node->n_axes; a++) strategy[v].of[a] = 1;
        strategy[v].of[axis] = largest(node, axis, limits, limits->devices);
    }
}

/* Where a product begins to be split: its first output axis that can be; a table of words: words.
 */
static int8_t columns(const ds_pase_node *node, const ds_pase_limits *limits, int64_t tp) {
    if (node->kind != DS_PASE_GEMM) return -1;
    uint32_t axes = node->op && node->op->code == DS_OP_EMBEDDING ? node->k : node->n;
    for (int8_t a = 0; a < (int8_t)node->n_axes; a++)
        if ((axes >> a) & 1 && largest(node, a, limits, tp) == tp) return a;
    return -1;
}

static void megatron(const ds_pase_graph *graph, const ds_pase_limits *limits, int64_t tp,
                     const int8_t *batch, ds_pase_splits *strategy) {
    int8_t *axis = ds_xcalloc((size_t)graph->nodes.n + 1, 1);
    uint32_t edge = 0;
    memset(axis, -1, graph->nodes.n);
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        const ds_pase_node *node = &graph->nodes.at[v];
        int8_t from = from_before(graph, axis, v, &edge);
        axis[v] = from >= 0 ? from : columns(node, limits, tp);
        if (axis[v] < 0 || axis[v] == batch[v] || largest(node, axis[v], limits, tp) != tp)
            axis[v] = -1;
        else
            strategy[v].of[axis[v]] = (uint16_t)tp;
    }
    free(axis);
}

void ds_pase_expert(const ds_pase_graph *graph, const ds_pase_limits *limits, int64_t tp,
                    ds_pase_splits *strategy) {
    int8_t *batch = ds_pase_batch_axes(graph);
    bool images = ds_pase_is_convolutional(graph);
    split_batch(graph, limits, images ? limits->devices : limits->devices / tp, batch, strategy);
    if (images)
        one_weird_trick(graph, limits, strategy);
    else if (tp > 1)
        megatron(graph, limits, tp, batch, strategy);
    free(batch);
}

/* ---- the cost of a strategy ---- */

ds_status ds_pase_cost_of(const ds_pase_graph *graph, ds_pase_model *model,
                          const ds_pase_splits *strategy, double *cost, ds_error *err) {
    *cost = 0;
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        ds_pase_splits split = strategy[v];
        double one;
        ds_pase_configs set = {1, graph->nodes.at[v].n_axes, split.of};
        DS_TRY(model->node(model, &graph->nodes.at[v], &set, &one, err));
        *cost += one * graph->nodes.at[v].times;
    }
    for (uint32_t e = 0; e < graph->edges.n; e++) {
        const ds_pase_edge *edge = &graph->edges.at[e];
        ds_pase_splits from = strategy[edge->from], to = strategy[edge->to];
        double one;
        if (!ds_pase_counts(model, edge)) continue;
        ds_pase_configs a = {1, graph->nodes.at[edge->from].n_axes, from.of};
        ds_pase_configs b = {1, graph->nodes.at[edge->to].n_axes, to.of};
        DS_TRY(model->edge(model, edge, &a, &b, &one, err));
        *cost += one * edge->times;
    }
    return DS_OK;
}

ds_status ds_pase_memory_of(const ds_pase_graph *graph, ds_pase_model *model,
                            const ds_pase_splits *strategy, double *bytes, ds_error *err) {
    double begin = 0, late = 0;
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        const ds_pase_node *node = &graph->nodes.at[v];
        ds_pase_splits split = strategy[v];
        ds_pase_configs set = {1, node->n_axes, split.of};
        double one = 0, other = 0;
        if (model->memory) DS_TRY(model->memory(model, node, &set, &one, err));
        if (model->late_memory) DS_TRY(model->late_memory(model, node, &set, &other, err));
        begin += one * node->times;
        late += other * node->times;
    }
    *bytes = begin > late ? begin : late;
    return DS_OK;
}
