/* Shared by layers.c and bytes.c; not a public header.
 *
 * Which instances of a small step's plan belong together: those of a microbatch are in nine runs,
 * before the loop, its turns, what stands between the loops of the forward and the backward pass,
 * the turns backwards, what is left. */
#ifndef DS_SEARCH_BOUND_RUNS_H
#define DS_SEARCH_BOUND_RUNS_H

#include "search/bound/layers.h"
#include "sim/plan/plan.h"

enum { TURNS = DS_BOUND_SMALL_TURNS, MIDDLE = 1, MICROBATCHES = DS_BOUND_SMALL_MICROBATCHES };
/* Runs: PRE_F, three turns, BETWEEN, three turns, PRE_B; then those behind the microbatches. */
enum {
    PRE_F,
    TURN_F,
    BETWEEN = TURN_F + TURNS,
    TURN_B,
    PRE_B = TURN_B + TURNS,
    N_RUNS,
    NO_RUN = 99
};

typedef struct ds_bound_run {
    uint8_t run; /* NO_RUN: behind the microbatches, or an input */
    uint8_t microbatch;
    bool middle;  /* behind the microbatches: in a loop's middle turn */
    bool outside; /* … and in no loop */
} ds_bound_run;

/* ---- bytes.c ---- */

/* Which buffers the instances of a plan make and read, and of how many bytes. It outlives plan and
 * unit, and is of all sizes of microbatches once these are known. */
typedef struct ds_bound_buffers ds_bound_buffers;

ds_bound_buffers *ds_bound_buffers_new(const ds_plan *plan, const ds_bound_run *runs);
void ds_bound_buffers_free(ds_bound_buffers *buffers);

/* Makes buffers of microbatches of one sample those of any size: `two` is the plan for two samples
 * of the same unit. False if they are not of the same instances. O(instances). */
bool ds_bound_buffers_grow(ds_bound_buffers *one, const ds_plan *two);
/* Weights, states, gradients and what is saved, in out->part, for microbatches of that many
 * samples (1 if the buffers are of one size). False: more than 2^63 bytes. O(instances). */
bool ds_bound_buffers_read(const ds_bound_buffers *buffers, int64_t samples, ds_bound_layers *out);

#endif
