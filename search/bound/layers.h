/* The times and bytes of a microbatch, layer by layer, from a small step of the same model.
 *
 * A model with one loop over its layers does the same in each turn of the loop. So passes and plan
 * make a small step: three turns, two microbatches of the wanted size, ep·tp·cp devices. The
 * instances of the middle turn represent every layer. Durations are those of the whole step, since
 * the shapes are the same. A model without such a loop is taken as one piece. */
#ifndef DS_SEARCH_BOUND_LAYERS_H
#define DS_SEARCH_BOUND_LAYERS_H

#include "search/space/eval.h"

/* A run of operations that follow each other on the compute stream: all operations before a loop, a
 * turn of the loop, … A path goes along the stream and along data. Transfers between operations of
 * the run count, each with the time that the transfer takes alone. */
typedef struct ds_bound_path {
    int64_t compute_ps; /* sum of the operations */
    int64_t span_ps;    /* longest path from the first operation's start to the last one's end */
    int64_t in_ps;      /* … from the output of the run before to the last end */
    int64_t out_ps;     /* … from the first start to the output that the next run needs */
    int64_t through_ps; /* … from the output of the run before to that output */
} ds_bound_path;

/* The operations before the loop, one turn of the loop, the operations after the loop. */
typedef enum ds_bound_place { DS_BOUND_PRE, DS_BOUND_TURN, DS_BOUND_POST } ds_bound_place;
#define DS_BOUND_PLACES 3

typedef struct ds_bound_part {
    ds_bound_path forward;     /* POST: 0, since `backward` has everything */
    ds_bound_path backward[2]; /* of the first microbatch; of others, which add up gradients */
    int64_t weight_bytes, state_bytes;
    int64_t expert_weight_bytes, expert_state_bytes; /* of these, split over ep */
    int64_t saved_bytes;    /* of a microbatch, from the forward pass to the backward pass */
    int64_t work_bytes;     /* the peak of the backward pass beyond saved_bytes */
    int64_t gradient_bytes; /* from one microbatch to the next */
    int64_t update_ps[2];   /* work after one microbatch: optimizers; work after several */
} ds_bound_part;

/* A weight of a turn: its bytes on a device, and the sizes of its dims that tp leaves whole. Weights
 * that are split over ep are left out. */
typedef struct ds_bound_weight {
    int64_t bytes;
    uint32_t n_dims;
    int64_t dims[4];
} ds_bound_weight;

typedef struct ds_bound_layers {
    int64_t turns;     /* of the model's loop; 0: no loop, and POST has everything */
    int64_t all_turns; /* of all loops, between which a pipeline is cut (ir/passes/stage/cut.c) */
    bool reads_parts;  /* inputs are split over cp, so that gradients are partial sums */
    bool has_states;   /* the optimizer keeps states or master copies */
    ds_bound_part part[DS_BOUND_PLACES];
    int64_t tied_bytes;    /* of weights that are read before and after the loop */
    int64_t carried_bytes; /* from one turn to the next, on a device; 0: not known */
    uint32_t n_weights;    /* of a turn; more than the array holds are left out */
    ds_bound_weight weights[24];
} ds_bound_layers;

/* The strategy of the small step, and its share of the whole step. */
typedef struct ds_bound_sibling {
    int64_t tp, cp, ep; /* ep > 1: ep replicas, which hold different experts, and cp = 1 */
    const char *device; /* the catalogue's name of all devices */
    bool sp;
    const char *recompute, *cp_type, *tp_overlap;
    const char *order; /* of the axes; NULL: the usual one */
    int64_t parts;     /* of the batch: replicas times microbatches */
    bool bytes;        /* times are not wanted */
    /* The time of a transfer between all devices of a replica; NULL: 0. */
    int64_t (*transfer_ps)(void *context, ds_opcode op, int64_t bytes);
    void *context;
} ds_bound_sibling;

/* ---- small.c: making a small step ---- */

#define DS_BOUND_SMALL_TURNS        3
#define DS_BOUND_SMALL_MICROBATCHES 2

/* The small step after its passes. */
typedef struct ds_bound_small {
    ds_unit *unit; /* whose scenario runs the step */
    ds_binding binding;
    const char *microbatch; /* an open step: the param of the microbatches' size, which
                               ds_bound_layers_make sets; NULL: the step has one sibling's size */
    int64_t batch;
    ds_bound_layers known; /* the same for all sizes: turns, weights, … */
    bool grows_evenly;     /* open, and the bytes of each value are a line over that size */
    struct ds_bound_buffers *buffers; /* if so, for all sizes, once asked for; else NULL */
} ds_bound_small;

/* The small step of the scenario of a verified unit under these settings. Overwrites the strategy
 * block, which the caller restores. One switch connects the devices: sibling->transfer_ps gives the
 * times of transfers. An open step is the same for all `parts`. NULL if the model has no such step,
 * does not train, or a pass refuses the step. O(passes). */
ds_bound_small *ds_bound_small_new(ds_unit *unit, const ds_setting *settings, uint32_t n_settings,
                                   const ds_bound_sibling *sibling);
void ds_bound_small_free(ds_bound_small *small);

/* ---- layers.c: reading a small step ---- */

/* The layers for the sibling's parts; a step that is not open must have been made for these parts.
 * With sibling->bytes times are not set, and for most models no size needs a new plan. False if
 * parts do not divide the batch, or the step has no plan. O(instances of the small step). */
bool ds_bound_layers_make(ds_bound_small *small, const ds_profiles *profiles,
                          ds_plan_ground *ground, const ds_bound_sibling *sibling,
                          ds_bound_layers *out);

#endif
