/* The best strategy for each layer, exactly: PaSE's dynamic programme.
 *
 * A configuration of a node says into how many parts each of its axes is split, (c_1 … c_d) with
 * Π c_i ≤ p. A strategy gives every node one; its cost is
 *
 *     F = Σ over nodes cost(node, C) + Σ over edges cost(edge, C_from, C_to)
 *
 * and the least F over all strategies is found by eliminating one node after the other: for every
 * assignment of its neighbours that are left, the node takes the configuration that costs least
 * (min-sum bucket elimination). What that takes is decided by the order, which GenerateSeq
 * makes by least degree. O(Σ over nodes Π of the configurations of the node and its neighbours).
 *
 * Source: Elango, "PaSE: Parallelization Strategies for Efficient DNN Training", IPDPS 2021,
 * figures 3 and 4. */
#ifndef DS_PASE_PASE_H
#define DS_PASE_PASE_H

#include "search/pase/graph.h"

/* ---- configurations ---- */

typedef struct ds_pase_configs {
    uint32_t n, n_axes;
    uint16_t *split; /* [n][n_axes]; the last axis turns fastest */
} ds_pase_configs;

/* Of one node, all its axes. */
typedef struct ds_pase_splits {
    uint16_t of[DS_PASE_MAX_AXES];
} ds_pase_splits;

static inline const uint16_t *ds_pase_config(const ds_pase_configs *set, uint32_t c) {
    return &set->split[(size_t)c * set->n_axes];
}

/* What may be split, beside what a node forbids. */
typedef struct ds_pase_limits {
    int64_t devices; /* p, 1 … DS_PASE_MAX_DEVICES */
    int64_t cutoff;  /* a part of an axis keeps this many elements at least; 1 or more */
    bool by_rule;    /* only what the op table's rules let a program split */
    bool divides;    /* Π c_i divides p, so that a mesh of all devices has such axes */
    int64_t mesh[2]; /* above 0, dp and tp: examples (a node's `data`) are split by dp, tp or both,
                        other axes by tp, one of them */
} ds_pase_limits;
#define DS_PASE_MAX_DEVICES 4096

/* All configurations of a node: per axis the divisors e of its size with size/e ≥ cutoff ({1} if
 * there are none), products up to p. A reshape's only as far as each device keeps a contiguous
 * part: before a split axis of a group all axes are split completely, behind it none is. */
ds_status ds_pase_enumerate(const ds_pase_node *node, const ds_pase_limits *limits, ds_arena *arena,
                            ds_pase_configs *out, ds_error *err);

/* The number of the configuration that splits so; UINT32_MAX: there is none. O(n). */
uint32_t ds_pase_config_number(const ds_pase_configs *set, const ds_pase_splits *split);

/* ---- cost models ---- */

/* Costs of all configurations at once. Tables are asked for once for all nodes, or edges, that are
 * equal but for their places in the graph. */
typedef struct ds_pase_model ds_pase_model;
struct ds_pase_model {
    const char *name, *unit;
    ds_pase_limits limits;
    bool last_edge_only; /* of several edges between two nodes only the last costs anything */
    bool no_tied_edges;  /* a weight that is read twice need not be in one place */
    /* cost[set->n] */
    ds_status (*node)(ds_pase_model *model, const ds_pase_node *node, const ds_pase_configs *set,
                      double *cost, ds_error *err);
    /* cost[from->n][to->n] */
    ds_status (*edge)(ds_pase_model *model, const ds_pase_edge *edge, const ds_pase_configs *from,
                      const ds_pase_configs *to, double *cost, ds_error *err);
    /* bytes[set->n] of a device's memory where a step is fullest; NULL: not looked at. There may be
     * a second moment at which it can be: the larger sum over nodes is what a strategy takes. */
    ds_status (*memory)(ds_pase_model *model, const ds_pase_node *node, const ds_pase_configs *set,
                        double *bytes, ds_error *err);
    ds_status (*late_memory)(ds_pase_model *model, const ds_pase_node *node,
                             const ds_pase_configs *set, double *bytes, ds_error *err);
    double memory_limit; /* bytes; 0: none */
    bool prefers_data;   /* of equally good configurations data parallelism's, not the first */
    void (*free)(ds_pase_model *model);
};

/* PaSE's own formulas (formulas.c), quirk for quirk, in FLOPs: a word that goes over a link costs
 * r = flop_per_s / (bytes_per_s / 8) of them. Its defaults are 10 TFLOP/s and 16 GB/s. */
#define DS_PASE_FLOP_PER_S  10e12
#define DS_PASE_BYTES_PER_S 16e9
ds_pase_model *ds_pase_formulas_new(int64_t devices, int64_t cutoff, double flop_per_s,
                                    double bytes_per_s);

/* ---- the search ---- */

typedef enum ds_pase_order { DS_PASE_GENERATE_SEQ, DS_PASE_BREADTH_FIRST } ds_pase_order;

typedef struct ds_pase_options {
    ds_pase_order order;
    double max_table_bytes; /* DS_ERR_LIMIT beyond; 0: 4 GiB */
} ds_pase_options;

typedef struct ds_pase_sizes {
    uint32_t most_configs;       /* K: of one node */
    uint32_t most_dependent;     /* M: neighbours left when a node goes, |D(i)| */
    double combinations;         /* Σ over nodes of Π configurations of the node and D(i) */
    double most_combinations;    /* of one node */
    uint32_t edge_tables, edges; /* different tables, and edges that have one */
    double table_bytes;
} ds_pase_sizes;

typedef struct ds_pase_result {
    ds_arena arena;
    const ds_pase_graph *graph;
    ds_pase_splits *strategy;          /* per node */
    double cost, node_cost, edge_cost; /* sums in the order of nodes, of edges; cost: of both */
    /* Under a memory limit: what the strategy takes, and a bound below the cost of all strategies
     * that keep the limit; equal to cost where no limit is in the way, and where the limit is part
     * of the state (pareto.h). Where that would take too much, the bound is Lagrangian, and `exact`
     * is false. `fits`: it keeps the limit. If not, none was found that does (`exact`: none does),
     * and the strategy is the one found that takes least. */
    double memory_bytes, bound;
    bool fits, exact;
    ds_pase_sizes sizes;
} ds_pase_result;

/* The best strategy. Errors: DS_ERR_LIMIT for tables beyond the limit, with their sizes; the
 * model's. Deterministic; of equally good configurations of a node the first. */
ds_status ds_pase_search(const ds_pase_graph *graph, ds_pase_model *model,
                         const ds_pase_options *options, ds_pase_result **out, ds_error *err);
void ds_pase_result_free(ds_pase_result *result);

/* The cost of a given strategy: per node the splits of its axes. O(nodes + edges). */
ds_status ds_pase_cost_of(const ds_pase_graph *graph, ds_pase_model *model,
                          const ds_pase_splits *strategy, double *cost, ds_error *err);

/* Bytes of a device under a strategy, at the fuller moment; 0 if the model does not look at memory.
 * O(nodes). */
ds_status ds_pase_memory_of(const ds_pase_graph *graph, ds_pase_model *model,
                            const ds_pase_splits *strategy, double *bytes, ds_error *err);

/* Strategies to compare with, as far as the limits let a node take them.
 * Data parallel: the batch, which is the first dim of the model's arguments and what it becomes
 * along the edges, by its largest divisor up to p.
 * Expert: for graphs with convolutions Krizhevsky's one weird trick (arXiv:1404.5997): fully
 * connected layers and the loss by their outputs, all else by batch. For others Megatron's pattern
 * (Shoeybi et al., arXiv:1909.08053) over `tp` devices, the batch over the p/tp others: products by
 * columns where their operand is whole, and what follows by the axis that this split becomes, up
 * to the product that sums over it; tables of words by words. O(nodes + edges). */
void ds_pase_data_parallel(const ds_pase_graph *graph, const ds_pase_limits *limits,
                           ds_pase_splits *strategy);
void ds_pase_expert(const ds_pase_graph *graph, const ds_pase_limits *limits, int64_t tp,
                    ds_pase_splits *strategy);
/* Per node the axis of the examples, which is what data parallelism splits; -1: it has none. Free
 * it. O(nodes + edges). */
int8_t *ds_pase_batch_axes(const ds_pase_graph *graph);
/* Does it have a convolution? */
bool ds_pase_is_convolutional(const ds_pase_graph *graph);

/* Does the edge count under the model? */
static inline bool ds_pase_counts(const ds_pase_model *model, const ds_pase_edge *edge) {
    return !(model->last_edge_only && edge->shadowed) && !(model->no_tied_edges && edge->tied);
}

/* The elimination order: order[i] is the node that goes i-th. O(nodes² + fill). */
ds_status ds_pase_order_of(const ds_pase_graph *graph, ds_pase_order order, uint32_t *out,
                           ds_error *err);
/* The largest frontier |D_B(i)| = |N(V≤i) ∩ V>i| of an order: what the breadth-first programme
 * tabulates, and its combinations (log10) with the given numbers of configurations (NULL: not
 * asked for). */
void ds_pase_frontier(const ds_pase_graph *graph, const uint32_t *order, const uint32_t *n_configs,
                      uint32_t *most, double *log10_combinations);

#endif
