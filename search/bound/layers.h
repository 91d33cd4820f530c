/* What a microbatch of a model is, layer by layer: from a small step of the same model.
 *
 * A model that is one loop over its layers, between what stands before it and what stands behind,
 * does the same in each turn of the loop. So the passes and the plan make the step of one with
 * three turns, of two microbatches of the wanted size, on tp·cp devices; of its instances those of
 * the turn in the middle stand for every layer. Durations are the ones that the whole step has: the
 * shapes are the same. Other models are taken as they are, as one piece. */
#ifndef DS_SEARCH_BOUND_LAYERS_H
#define DS_SEARCH_BOUND_LAYERS_H

#include "search/space/eval.h"

/* A run of operations that stand together on the compute stream: all layers before a loop, a turn
 * of it, … Between its operations a path goes along the stream and along data, transfers between
 * operations of the run included, each as long as it takes alone. */
typedef struct ds_bound_path {
    int64_t compute_ps; /* sum of its operations */
    int64_t span_ps;    /* longest path from the first operation's start to the last one's end */
    int64_t in_ps;      /* … from when what the run before has made is there to the last end */
    int64_t out_ps;     /* … from the first start to when what the next run needs is there */
    int64_t through_ps; /* … from the one to the other */
} ds_bound_path;

/* What stands before the loop, one turn of it, what stands behind it. */
typedef enum ds_bound_place { DS_BOUND_PRE, DS_BOUND_TURN, DS_BOUND_POST } ds_bound_place;
#define DS_BOUND_PLACES 3

typedef struct ds_bound_part {
    ds_bound_path forward;     /* POST: nothing, all is in `backward` */
    ds_bound_path backward[2]; /* of the first microbatch; of others, which add up gradients */
    int64_t weight_bytes, state_bytes;
    int64_t saved_bytes;    /* of a microbatch, from the forward pass to the backward pass */
    int64_t work_bytes;     /* what the backward pass needs beyond that at once, at its most */
    int64_t gradient_bytes; /* from one microbatch to the next */
    int64_t update_ps[2];   /* what comes behind one microbatch: optimizers; behind several */
} ds_bound_part;

/* A weight of a turn: its bytes on a device, and the sizes of its dims that tp leaves whole. */
typedef struct ds_bound_weight {
    int64_t bytes;
    uint32_t n_dims;
    int64_t dims[4];
} ds_bound_weight;

typedef struct ds_bound_layers {
    int64_t turns; /* of the model's loop; 0: it is none, and everything stands behind it (POST) */
    int64_t all_turns; /* of all loops, between which a pipeline is cut (ir/passes/stage/cut.c) */
    bool reads_parts;  /* of sequences: what is read is split over cp, so that gradients are partial
                        */
    bool has_states;   /* the optimizer keeps states or master copies */
    ds_bound_part part[DS_BOUND_PLACES];
    int64_t tied_bytes;    /* of weights that are read before the loop and behind it */
    int64_t carried_bytes; /* what one turn hands to the next one on a device; 0: not known */
    uint32_t n_weights;    /* of a turn; no more than there is room for */
    ds_bound_weight weights[24];
} ds_bound_layers;

/* The strategy of the small step, and how it is cut out of the whole one. */
typedef struct ds_bound_sibling {
    int64_t tp, cp;
    const char *device; /* the catalogue's name of all devices */
    bool sp;
    const char *recompute, *cp_type, *tp_overlap;
    const char *order; /* of the axes; NULL: the usual one */
    int64_t parts;     /* of the batch: replicas times microbatches */
    bool bytes;        /* times are not asked for */
    /* What transfers take that all its devices are part of; NULL: nothing. */
    int64_t (*transfer_ps)(void *context, ds_opcode op, int64_t bytes);
    void *context;
} ds_bound_sibling;

/* ---- small.c: how it is made ---- */

#define DS_BOUND_SMALL_TURNS        3
#define DS_BOUND_SMALL_MICROBATCHES 2

/* The small step after its passes. */
typedef struct ds_bound_small {
    ds_unit *unit; /* whose scenario runs it */
    ds_binding binding;
    const char *microbatch; /* the param that is the size of its microbatches, for layers to set to
                               `batch` over their parts; NULL: it has that of one sibling */
    int64_t batch;
    ds_bound_layers known; /* what is the same for all sizes: turns, weights, … */
    bool grows_evenly;     /* with `microbatch`: the bytes of each value are a line over its size */
    struct ds_bound_buffers *buffers; /* then, of all sizes, once they are asked for; else NULL */
} ds_bound_small;

/* Of the scenario of a verified unit under these settings, whose strategy block is set anew (the
 * caller restores it), on a switch of its own: what transfers take is the caller's to say. An open
 * one is the same for whichever `parts` it is made. NULL if the model is not of that kind, does not
 * train, or there is no such step. O(passes). */
ds_bound_small *ds_bound_small_new(ds_unit *unit, const ds_setting *settings, uint32_t n_settings,
                                   const ds_bound_sibling *sibling);
void ds_bound_small_free(ds_bound_small *small);

/* ---- layers.c: what it says ---- */

/* For the sibling's parts, which are those that it was made for unless it is open; if times are not
 * asked for there are none, and of most models one size costs no more than another. False if parts
 * do not divide the batch, or there is no such step. O(instances of the small step). */
bool ds_bound_layers_make(ds_bound_small *small, const ds_profiles *profiles,
                          ds_plan_ground *ground, const ds_bound_sibling *sibling,
                          ds_bound_layers *out);

#endif
