/* Sufficient factors of a step: the backward operations that every replica computes whole.
 *
 * The problem of sfb.h is read off a simulated step with plain data parallelism. An operation's time is
 * the time of all its turns and microbatches on the slowest replica, a tensor's bytes are those that one
 * replica has and another operation reads, a gradient's those that one replica puts into reductions (of
 * a reduce_scatter half, since the other half of a reduction is none). Operations that pass terms of a
 * sum on (a sum of a tied weight's gradients) are whole if and only if the makers of the terms are. B is
 * the least bandwidth of a link on the routes from each replica to the next, in the order of the
 * reduction's ring.
 *
 * The choice knows no overlap. So it is simulated beside the plain step, and the faster one is kept. */
#ifndef DS_RUN_FACTORS_H
#define DS_RUN_FACTORS_H

#include "sim/run/run.h"
#include "sim/run/sfb.h"

typedef struct ds_factors {
    uint32_t n_replicas; /* 0: the step has no reduction of gradients over replicas alone */
    int64_t mb_per_s;
    const char **op; /* that are whole: names of backward operations, "head.fc1.dw" */
    uint32_t n;
    ds_sfb_choice choice; /* its bytes and cost */
} ds_factors;

/* The best choice for the step of `result`, simulated turn by turn. Memory lives in `arena`. Errors:
 * those of ds_sfb_choose, of routes. */
ds_status ds_factors_choose(const ds_result *result, ds_sfb_gather gather, ds_arena *arena,
                            ds_factors *out, ds_error *err);
/* Adds to the scenario's `ops` that the chosen operations are whole on `on`. */
void ds_factors_write(ds_unit *unit, const ds_factors *factors, const ds_place *on);

#endif
