/* The computation graph that PaSE searches: layers with iteration spaces, tensors between them.
 *
 * It is read from a lowered model (ir/passes: calls inlined), loops unrolled. A node is an op of
 * the table; its axes are dims of its factor rule: those of the first result, then summed ones (of
 * a loss and of a mean: the dims of the operand). What is no node of its own:
 *   - bias, and elementwise ops of one operand (relu, gelu, dropout, scale, cast …) are part of the
 *     node that makes their operand. Those that compute are counted in `pointwise`, bias, scale
 *     and cast are not: they are done while a result is written.
 *   - a reshape that adds or drops dims of size 1 is another view of its operand.
 *   - a loop of nothing but an lstm over what it carries is one node with an axis `layer`.
 * Reads of arguments and weights are no edges.
 *
 * Source: Elango, "PaSE: Parallelization Strategies for Efficient DNN Training", IPDPS 2021,
 * section II, and its released cost model. */
#ifndef DS_PASE_GRAPH_H
#define DS_PASE_GRAPH_H

#include "ir/ops/ops.h"
#include "ir/passes/passes.h"

#define DS_PASE_MAX_AXES 8u
#define DS_PASE_NO_AXIS  (-1)

/* X(NAME, text): what the formulas tell apart. */
#define DS_PASE_KIND_MAP(X)                                                                        \
    X(GEMM, "gemm") /* axes are batch, m, n or k of a matrix product: conv2d and embedding too */  \
    X(ELEMENTWISE, "elementwise")                                                                  \
    X(NORM, "norm")       /* statistics along one axis */                                          \
    X(POOL, "pool")       /* axes of the result */                                                 \
    X(MEAN, "mean")       /* axes of the operand, some of them averaged */                         \
    X(SOFTMAX, "softmax") /* along one axis */                                                     \
    X(LOSS, "loss")       /* softmax and cross-entropy along the last axis */                      \
    X(LSTM, "lstm")       /* layer, sequence, batch, hidden, input */                              \
    X(LAYOUT, "layout")   /* concat, split, slice, transpose: nothing is computed */               \
    X(RESHAPE, "reshape") /* dims are merged or taken apart */                                     \
    X(OTHER, "other")     /* anything else that has a rule: attention, … */

typedef enum ds_pase_kind {
#define DS_X(name, text) DS_PASE_##name,
    DS_PASE_KIND_MAP(DS_X)
#undef DS_X
} ds_pase_kind;
const char *ds_pase_kind_text(ds_pase_kind kind);

/* Bytes of whole tensors that the axes split. */
#define DS_PASE_HELD 4u
typedef struct ds_pase_held {
    uint32_t axes;
    double bytes;
} ds_pase_held;

/* Sets of axes are bit masks. */
typedef struct ds_pase_node {
    ds_pase_kind kind;
    const char *path;    /* "encoder[2].self.fc1": the op's, with the turns of its loops */
    const char *pattern; /* the same with [*]: what an override is called */
    const ds_op *op;     /* in the step's function */
    double times;        /* how many operations it stands for: 1, but in a folded graph */
    double first;        /* of those, how many read nothing that an operation made */
    uint32_t n_axes;
    int64_t size[DS_PASE_MAX_AXES];
    const char *axis_name[DS_PASE_MAX_AXES]; /* the rule's factor: what overrides name */
    uint32_t whole; /* axes that no configuration splits: windows, steps of an LSTM, the dim
                       along which a concat joins */
    int64_t rule_size[DS_PASE_MAX_AXES]; /* what a split must divide by the op's rule, which
                            PaSE's formulas do not look at: the outermost factor; 1: never split */
    uint32_t data;                       /* the axis of the examples, if a mesh asks for it */
    uint32_t batch, m, n, k;             /* GEMM */
    uint32_t along;     /* NORM, SOFTMAX, LOSS: the one axis; MEAN: those averaged */
    uint32_t pointwise; /* elementwise ops that were put into the node */
    uint32_t light;     /* bias and scale, which PaSE's formulas take for free, as */
    uint32_t casts;     /* to another dtype; all of them, if there are several, as the last */
    ds_dtype cast_from, cast_to;
    int64_t in_size[DS_PASE_MAX_AXES]; /* POOL: the operand's dims, axis by axis */
    int64_t window[2];                 /* POOL: of the last two axes */
    uint8_t group[DS_PASE_MAX_AXES];   /* RESHAPE: axes that become or came from one dim share a
                                          number */
    double flop;                       /* of the op itself, forward; a multiply-add is 2 */
    /* The op's operands and results, whole: what distsim's costs are made from. Weights and
     * arguments are among the operands. axis[d] as in an edge. */
    uint32_t n_in, n_out;
    ds_shape in[DS_MAX_OPERANDS], out[DS_MAX_OPERANDS];
    int8_t in_axis[DS_MAX_OPERANDS][DS_MAX_RANK], out_axis[DS_MAX_OPERANDS][DS_MAX_RANK];
    bool in_weight[DS_MAX_OPERANDS], in_made[DS_MAX_OPERANDS]; /* neither: an argument */
    double made[DS_MAX_OPERANDS];    /* of `times`, how many read there what an operation made */
    int8_t in_data[DS_MAX_OPERANDS]; /* of an argument: the dim that the model splits over dp,
                                        which is where it lies; or DS_PASE_NO_AXIS */
    /* Memory, all turns together: tensors that are held where the step is fullest, with the axes
     * that split them; arguments that the node reads first, those that lie split over dp and
     * others. */
    ds_pase_held held[DS_PASE_HELD];
    double data_bytes, argument_bytes;
    /* How many go before the one at which the backward pass is fullest, how many behind it; that
     * one counts as both. */
    double before, behind;
    bool in_tied[DS_MAX_OPERANDS];   /* a weight that other ops read too, */
    bool in_reread[DS_MAX_OPERANDS]; /* and a later one among them */
} ds_pase_node;

/* A tensor that `to` reads from `from`: per dim the axis that splits it at either end, or
 * DS_PASE_NO_AXIS. */
typedef struct ds_pase_edge {
    uint32_t from, to; /* the same node: from one turn of a loop to the next, in a folded graph */
    double times;
    ds_dtype dtype;
    uint32_t rank;
    int64_t size[DS_MAX_RANK];
    int8_t from_axis[DS_MAX_RANK], to_axis[DS_MAX_RANK];
    bool shadowed; /* a later edge joins the same two nodes */
    bool again;    /* `to` reads it in its backward ops too */
    bool tied;     /* a weight that both ends read: `from` is the first reader, where it lives */
    uint32_t weight, ties; /* if it is tied: a number of the weight, and how many such edges it has
                              before any are folded */
} ds_pase_edge;

/* An op that is part of a node, a view of its result, or a reshape that is the node: where its
 * result's dims lie, and their factors in its own rule. */
typedef struct ds_pase_fused {
    const char *pattern;
    uint32_t node, rank;
    int8_t axis[DS_MAX_RANK];
    const char *factor[DS_MAX_RANK];
} ds_pase_fused;

typedef struct ds_pase_graph {
    ds_arena arena;
    int64_t all_devices;        /* of the scenario's topology; 0: it does not say `on` */
    DS_VEC(ds_pase_node) nodes; /* in the order of the program */
    DS_VEC(ds_pase_edge) edges; /* in the order of the program's reads */
    DS_VEC(ds_pase_fused) fused;
} ds_pase_graph;

/* The graph of a step on which only `lower` has run, which must outlive it. Errors:
 * DS_ERR_UNSUPPORTED for an op without a rule or of more than DS_PASE_MAX_AXES axes, DS_ERR_LIMIT
 * beyond DS_PASE_MAX_NODES. O(op instances). */
#define DS_PASE_MAX_NODES 100000u
ds_status ds_pase_graph_read(const ds_model_step *step, ds_pase_graph **out, ds_error *err);
/* The graph in which all turns of a loop are one: nodes of one pattern and shape, and the edges
 * between them, become one that counts `times`. A strategy of it splits every turn alike, as a
 * program that keeps its loops must; its best is the best of all such strategies of the whole
 * graph. Nodes' ops, paths and arena are those of `graph`, which must outlive it. O(nodes + edges).
 */
ds_pase_graph *ds_pase_graph_fold(const ds_pase_graph *graph);
/* An empty graph to which nodes and edges are pushed by hand. */
ds_pase_graph *ds_pase_graph_new(void);
void ds_pase_graph_free(ds_pase_graph *graph);

#endif
