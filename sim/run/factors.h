/* Sufficient factors of a step: the backward operations that every replica computes whole.
 *
 * The problem of sfb.h is read off a simulated step with plain data parallelism. The time of an
 * operation is the sum over all turns and microbatches, on the slowest replica. The bytes of a tensor are
 * the part of one replica that another operation reads. The bytes of a gradient are what one replica puts
 * into reductions (half of the bytes for a reduce_scatter, which is half of a reduction). Operations that pass terms of a
 * sum on (a sum of a tied weight's gradients) are whole if and only if the makers of the terms are. B is
 * the least bandwidth of a link on the routes from each replica to the next, in the order of the
 * reduction's ring.
 *
 * The choice knows no overlap. So the step with the choice is simulated beside the step without, and the
 * faster one is kept.
 *
 * A pass cannot simulate, so the caller of the passes finds the choice of a group with by = sfb before
 * the passes run, as it finds a cut by time (balance.h). The group gets by = all_reduce, and the chosen
 * operations become a group of their own with by = duplicate: "NAME factors". */
#ifndef DS_RUN_FACTORS_H
#define DS_RUN_FACTORS_H

#include "ir/strategy/group.h"
#include "sim/run/run.h"
#include "sim/run/sfb.h"

typedef struct ds_factors {
    uint32_t
        n_replicas; /* 0: the step has no reduction of the group's gradients by devices that all
                          * have a part of the batch */
    int64_t mb_per_s;
    const char **op; /* that are whole: names of backward operations, "head.fc1.dw" */
    uint32_t n;
    ds_sfb_choice choice; /* its bytes and cost */
} ds_factors;

/* The best choice among the backward operations of a group, for the step of `result`, simulated turn by
 * turn. Memory lives in `arena`. Errors: those of ds_sfb_choose, of routes. */
ds_status ds_factors_choose(const ds_result *result, const ds_op_group *group, ds_arena *arena,
                            ds_factors *out, ds_error *err);

/* Has the scenario of a verified, bound unit a group with by = sfb?
 *
 * The choice for each such group is written into the scenario of source->unit. The groups' choices are
 * tried in their order: a choice with which the step is slower, or does not fit where it fits
 * without, is dropped. 1 simulation and 1 more a group. Errors: those of ds_simulate and of
 * ds_factors_choose. */
bool ds_factors_wanted(const ds_binding *source);

#endif
