/* Which stage of a pipeline computes which value of a step without a backward pass.
 *
 * Weights say where their readers run. An op that reads none runs on the last stage of its operands
 * that this turn makes; where these are carried values alone, on theirs; where these are inputs
 * alone, on the first stage that reads the result. The answer decides what is sent, and never what
 * is computed. */
#ifndef DS_PASSES_BUILD_FLOW_H
#define DS_PASSES_BUILD_FLOW_H

#include "ir/core/ir.h"

#define DS_FLOW_NONE UINT32_MAX /* of a use: no weight. Of a value: on every stage that reads it */
#define DS_FLOW_ANY  (UINT32_MAX - 1) /* of a use: a weight that each stage may have */

/* An open loop; `up`: the loop around. */
typedef struct ds_flow_loop {
    const ds_op *op;
    const struct ds_flow_loop *up;
} ds_flow_loop;

/* The stage of a weight that is read inside of these loops. */
typedef ds_status ds_flow_weight(void *context, const ds_use *use, const ds_flow_loop *loops,
                                 uint32_t *stage, ds_error *err);

/* The stage of every value of the function, in the arena. Arguments and results of ops without
 * operands have DS_FLOW_NONE. Errors: of `weight`. O(ops x passes over the text). */
ds_status ds_flow_find(ds_arena *arena, const ds_func *func, ds_flow_weight *weight, void *context,
                       const uint32_t **out, ds_error *err);

#endif
