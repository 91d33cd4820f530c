/* Shared by the files of search/pase. */
#ifndef DS_PASE_INTERNAL_H
#define DS_PASE_INTERNAL_H

#include "search/pase/pase.h"

/* What a value is while the program is walked: made by a node, whose axes split its dims, or an
 * argument. */
typedef struct ds_pase_tensor {
    bool is_made;
    uint32_t node;
    bool is_weight, is_read; /* a weight: `node` and `axis` are of its first reader */
    uint32_t last_node, last_operand;
    const ds_value_info *argument; /* of the step, if it is one */
    uint32_t buffer;               /* if it is made: with all its views */
    int8_t axis[DS_MAX_RANK];
} ds_pase_tensor;

/* Memory of one tensor and its views (kept.c): who made it, from when it is there, when it is read
 * last, and whether backward ops will read it. */
typedef struct ds_pase_buffer {
    uint32_t node, axes, made, read;
    double bytes;
    bool kept;
} ds_pase_buffer;

typedef struct ds_pase_buffers {
    DS_VEC(ds_pase_buffer) all; /* heap */
    uint32_t time;              /* operations so far */
} ds_pase_buffers;

/* A buffer that is made now, as the node's axes split its dims. */
uint32_t ds_pase__new_buffer(ds_pase_buffers *buffers, uint32_t node, const ds_shape *shape,
                             const int8_t *axis);
/* An op reads its operands, and has made `out` (NULL: a view); time goes on. */
void ds_pase__use_operands(ds_pase_buffers *buffers, ds_opcode code,
                           const ds_pase_tensor *const *in, uint32_t n_in,
                           const ds_pase_tensor *out);
/* Tensors that are split by the same axes are one entry; beyond the last, one that is split less.
 */
void ds_pase__hold(ds_pase_node *node, uint32_t axes, double bytes);
/* Sets the nodes' held[] and before: of a training step what is kept for the backward pass, else
 * what is there when most is. `widened`: when the first gradients of weights are made, the logits
 * in f32 are gone. */
void ds_pase__hold_buffers(ds_pase_graph *graph, const ds_pase_buffers *buffers,
                           const ds_train *train, bool widened);
/* Of a gradient, whole. */
double ds_pase__gradient_bytes(const ds_train *train, const ds_shape *weight);

/* One op with its numbers: concrete shapes of what it reads and makes. */
typedef struct ds_pase_instance {
    ds_unit *unit;
    const ds_func *func;
    const ds_op *op;
    ds_env env;
    const ds_type **in_type; /* per operand, all of them */
    ds_shape *in, *out;
} ds_pase_instance;

/* Kind, axes and maps of an op that becomes a node, but for its paths; `maps` has the axis of each
 * dim of every operand, then of every result (axes.c). */
ds_status ds_pase__node_of(const ds_pase_instance *at, ds_pase_node *node,
                           int8_t (*maps)[DS_MAX_RANK], ds_error *err);
/* The node of a loop of `layers` LSTMs. */
void ds_pase__lstm_layers(ds_pase_node *node, int64_t layers);
/* The outermost factor of each dim of the op's first result, interned; "-": none. */
ds_status ds_pase__factors(const ds_pase_instance *at, const char **factor, ds_error *err);
/* Is the reshape only a view with other dims of size 1? Then the operand's dim for each dim of the
 * result, or -1. */
bool ds_pase__is_unit_reshape(const ds_shape *in, const ds_shape *out, int8_t *from);

#endif
