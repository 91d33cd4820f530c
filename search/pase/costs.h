/* distsim's cost model for the search over splits: what the simulator would charge, op by op. */
#ifndef DS_PASE_COSTS_H
#define DS_PASE_COSTS_H

#include "search/pase/pase.h"
#include "sim/cost/cost.h"
#include "sim/topo/topo.h"

/* Microseconds of a training step (of a forward pass, if the scenario does not train) on the first
 * `devices` devices of the scenario's topology, which must be of one kind.
 *
 * An operation under (c_1 …) lies on a mesh [c_1, c_2, …, rest] of consecutive devices, first axis
 * outermost. It costs
 *   the op and its backward ops on local shapes (ds_cost_op, fitted), fused elementwise ops with
 *   them, and the update of its weights
 * + an all_reduce of its result over the axes that are summed, and of the gradient of every operand
 *   over those axes that the operand lacks, in all groups at once, on routed links; of a product's
 *   first operand only as far as it takes longer than the product for the second, which comes next;
 *   a weight's only as far as it takes longer than the op's own backward ops (it runs beside those
 * of the layer below, which are taken to last as long: assumed, so that the sum stays one over
 * operations; an operation that reads nothing but arguments has none below). That of a weight that
 * several operations read waits for the last of them, and is one where their terms lie alike; where
 * they do not, the weight moves between them. A tensor costs, forward and back
 * (ds_pase_costs_expose: again for backward), an all_gather where dims become whole and nothing
 * else changes; otherwise an all_to_all of the bytes that a device lacks among the fewest
 * consecutive devices that together have them. Memory, for each operation: weights,
 * gradients, states, and, in training, its result.
 *
 * What a split of a batch_norm, softmax … by the op table's rule cannot be is no configuration.
 * `profiles` and `step` must outlive the model. Errors: no topology, fewer devices, kinds without a
 * cost. Its own errors name operation and shape. */
ds_status ds_pase_costs_new(const ds_binding *source, const ds_model_step *step,
                            const ds_profiles *profiles, int64_t devices, int64_t cutoff,
                            ds_pase_model **out, ds_error *err);
/* How much of a weight's reduction that does not fit beside its own op's backward ops counts, and
 * how much of what is moved again for backward ops, which nothing but memory keeps from being moved
 * early: 1 and 0 at first. What is hidden beside other operations is no sum over operations, so no
 * shares are right for all models; 0 is a bound from below for these terms. Searching under several
 * and simulating what they find is the way (contest.h). `model` is of ds_pase_costs_new. */
void ds_pase_costs_expose(ds_pase_model *model, double reductions, double moved_again);

#endif
