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
    int8_t axis[DS_MAX_RANK];
} ds_pase_tensor;

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
