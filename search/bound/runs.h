/* Shared by layers.c and bytes.c; not a public header.
 *
 * Runs group the instances of a small step's plan. A microbatch has nine runs: before the loop,
 * three turns, between the loops of the forward and the backward pass, three turns backwards, and
 * the rest. */
#ifndef DS_SEARCH_BOUND_RUNS_H
#define DS_SEARCH_BOUND_RUNS_H

#include "search/bound/layers.h"
#include "sim/plan/plan.h"

enum { TURNS = DS_BOUND_SMALL_TURNS, MIDDLE = 1, MICROBATCHES = DS_BOUND_SMALL_MICROBATCHES };
/* Runs of a microbatch in order: PRE_F, three turns, BETWEEN, three turns, PRE_B. */
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
    uint8_t run; /* NO_RUN: after the microbatches, or an input */
    uint8_t microbatch;
    bool middle;  /* after the microbatches: in a loop's middle turn */
    bool outside; /* … and in no loop */
} ds_bound_run;

/* ---- bytes.c ---- */

/* The buffers that the instances of a plan make and read, with their bytes. Outlives plan and unit;
 * serves all sizes of microbatches after ds_bound_buffers_grow. */
typedef struct ds_bound_buffers ds_bound_buffers;

ds_bound_buffers *ds_bound_buffers_new(const ds_plan *plan, const ds_bound_run *runs);
void ds_bound_buffers_free(ds_bound_buffers *buffers);

/* Extends the buffers of microbatches of one sample to any size: `two` is the same unit's plan for
 * two samples. False if the instances or buffers of both plans do not match. O(instances). */
bool ds_bound_buffers_grow(ds_bound_buffers *one, const ds_plan *two);
/* Bytes of weights, states, gradients and saved values, in out->part, for microbatches of `samples`
 * (1 if the buffers have one size). False: 2^60 bytes or more in all. O(instances). */
bool ds_bound_buffers_read(const ds_bound_buffers *buffers, int64_t samples, ds_bound_layers *out);

#endif
