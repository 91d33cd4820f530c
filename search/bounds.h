/* Lower bounds on what any candidate of a region can come to (SEMANTICS R1).
 *
 * A region is a prefix of the odometer: the first dimensions are set, the others free. What is
 * known of its strategy is a ds_bound_region; what the model's operations are is a ds_bound_table,
 * made once for all candidates that have the model, the training, and the topology in common, from
 * the step on one device with one microbatch. The bounds are of these two alone, so that whoever
 * checks them can compute them for himself.
 *
 * A bound that knows nothing is 0. */
#ifndef DS_SEARCH_BOUNDS_H
#define DS_SEARCH_BOUNDS_H

#include "search/eval.h"

/* Operations of a step that are alike: n of them, each with this work over the whole batch. */
typedef struct ds_bound_op {
    const char *op;
    ds_work work; /* flop and bytes_read (all bytes) alone */
    int64_t n;
} ds_bound_op;

typedef DS_VEC(ds_bound_op) ds_bound_ops;

typedef struct ds_bound_table {
    const ds_profiles *profiles;
    uint32_t kind, profile; /* of all devices */
    ds_bound_ops products;  /* matrix products, convolutions, attention, recurrences: their
                                      work is proportional to the batch */
    ds_bound_ops forward;   /* of them: the forward pass */
    ds_bound_ops chain;     /* of them: a path, each needs the one before */
    ds_bound_ops memory;    /* everything else */
    int64_t weight_bytes, state_bytes; /* of the whole model: weights, optimizer states */
    int64_t saved_bytes;        /* beside them, when the backward pass of the whole batch begins */
    int64_t gradient_bytes;     /* of the weights that are updated, in the narrower of both types */
    int64_t capacity_bytes;     /* of a device; 0: not known */
    int64_t egress_bytes_per_s; /* most that leaves any device at once; 0: not known */
    int64_t sent_bytes;         /* what collectives over tp make a device send */
    int64_t n_devices;          /* of the topology; with tp, groups of tp devices */
    bool reduces;               /* some switch adds up what it is sent */
} ds_bound_table;

/* What a region's candidates have in common. 0: not known yet. */
typedef struct ds_bound_region {
    const ds_bound_table
        *table; /* NULL: the model is not known yet, or there are no bounds of it */
    int64_t dp, tp, pp, cp, microbatches; /* tp: beyond the table's, so 1 where it is known */
    int64_t zero;                         /* -1: not known */
    int64_t
        tp_bytes;  /* what the whole batch's collectives over tp make a device send, on tp devices
                      with one stage; with several groups of tp devices each has its part */
    bool experts;  /* ep is not known to be 1 */
    bool saves;    /* the table's saved_bytes are those of the region's recomputation */
    bool at_once;  /* known to be so: all microbatches go forwards before one goes backwards (gpipe)
                    */
    bool in_order; /* known to be so: one chunk a stage, in which no work is put off to a later item
                      of the schedule (1f1b, gpipe) */
} ds_bound_region;

/* No candidate of the region has a step_time_ps below that. With D = dp·tp·cp, m microbatches, and
 * t_o(k) the seconds of operation o on one device at 1/k of its work (the roofline: it grows with
 * the work, while its rate falls with less of it), T(k) the sum of t_o(k) over all products, M(k)
 * over all other operations, it is the largest of
 *   work    (m·T(D·m) + M(D)) / pp: the devices of some stage have the average at least. Without M
 *           where cp, or tp beyond the table's, may put other operations in their place
 *   chain   the sum of t_o(D·m) over the products of one path through the program, each of which
 *           needs the result of the one before: a microbatch's time
 *   reduce  (m−1)·T(D·m)/pp (m = 1: the forward pass) comes before the last backward, whose
 *           gradients then leave the device: 2(n−1)/n of them, n = dp·cp, or with ZeRO (n−1)/n of
 *           them and of the weights, over all that leaves a device at once
 *   wires   what collectives over tp and the reduction make a device send, on the average over
 *           stages, over all that leaves a device at once
 * Where a degree is not known, D·pp is the number of devices of the topology at most; where m is
 * not, it is 1; chain and reduce need both. Rounded down. O(operations). */
int64_t ds_bound_step_ps(const ds_bound_region *region);

/* No candidate's fullest device holds less, that is the average over stages at least, while one
 * microbatch turns from forwards to backwards there (at_once: all of them):
 *   weights / (tp·pp)        zero = 3: over all devices
 *   + states / (tp·pp)       zero > 0: over all devices
 *   + saved / (dp·cp·pp·m)   at_once: not over m; if degrees, m or recomputation are not known, 0
 * Each rounded down. O(1). */
int64_t ds_bound_peak_bytes(const ds_bound_region *region);

/* ---- bounds_table.c: from prefixes to regions ---- */

typedef struct ds_bounds ds_bounds;

/* Of the space of `source`, which must not have been walked yet; all must outlive the bounds. If
 * there are no bounds of such a sweep at all, *why says the reason; bounds are 0 then. */
ds_status ds_bounds_new(const ds_eval_source *source, ds_space *space, ds_bounds **out,
                        const char **why, ds_error *err);
void ds_bounds_free(ds_bounds *bounds);
/* What is known once the first `depth` dimensions have these values. A table is made where a model
 * is seen for the first time. Errors: evaluation of knobs. */
ds_status ds_bounds_region(ds_bounds *bounds, const ds_choice *prefix, uint32_t depth,
                           ds_bound_region *out, ds_error *err);

#endif
