/* Lower bounds on what any candidate of a region can come to (SEMANTICS R1).
 *
 * A region is a prefix of the odometer: the first dimensions are set, the others free. What is
 * known of its strategy is a ds_bound_region; once that is enough to say what a microbatch is,
 * bounds rest on the layers of the model (layers.h) and the place of the mesh
 * (mesh.h). They are of these alone, so that whoever checks them can compute them for
 * himself. Before they are 0. */
#ifndef DS_SEARCH_BOUND_BOUNDS_H
#define DS_SEARCH_BOUND_BOUNDS_H

#include "search/bound/layers.h"
#include "search/bound/mesh.h"

/* The order of a pipeline's items, as far as it is known. */
typedef enum ds_bound_form {
    DS_BOUND_ANY,         /* nothing is known */
    DS_BOUND_1F1B,        /* chunk c on stage c mod pp, whole backwards */
    DS_BOUND_EAGER,       /* … twice as many forwards first */
    DS_BOUND_GPIPE,       /* … all of them */
    DS_BOUND_DEPTH_FIRST, /* interleaved */
    DS_BOUND_BREADTH_FIRST,
    DS_BOUND_ZB_H1, /* as 1F1B, gradients of weights apart: stage s does them s items late */
    DS_BOUND_ZB_H2  /* as eager, 2·s items late */
} ds_bound_form;

/* What a region's candidates have in common. 0: not known yet. */
typedef struct ds_bound_region {
    const ds_bound_layers *layers; /* NULL: dp, tp, pp, cp, m, sp, recomputation or what the model
                                      depends on is not known, or they are of a kind that is not */
    ds_bound_machine *machine;     /* NULL: the topology is not known, or not uniform */
    int64_t capacity_bytes;        /* of a device; 0: not known */
    int64_t dp, tp, pp, cp, microbatches;
    int64_t zero;     /* -1: not known */
    uint32_t offload; /* bits of ds_strategy.offload that may be set … */
    bool offloads;    /* … and are */
    /* with layers */
    ds_bound_form form;
    int64_t chunks;    /* of a stage */
    bool named;        /* `chunks` is that of a schedule which is known */
    bool even;         /* chunks have the turns that balance = layers gives them */
    const char *order; /* of the mesh; NULL: not known */
    bool parts;        /* stages send parts (scatter_gather) */
    bool blocking;     /* sends stand on the compute stream … */
    bool batched;      /* … or all of a device's on one of their own */
    bool late;         /* gradients are reduced after the last backward item */
    int64_t prefetch;  /* turns ahead; -1: not known */
    bool uneven;       /* ZeRO shares out weights that it cannot divide, too */
} ds_bound_region;

/* No candidate of the region has a step_time_ps below that. With m microbatches, F and B the
 * longest path through a chunk's forward and backward item (layers.h) and C = pp·chunks, it
 * is the largest over the stages s of
 *
 *   items   Σ_{c<s}(F_c + send) + Σ_{c on s}(m·F_c + B_c' + (m−1)·B_c) + end: one item follows the
 *           other on a stage. F_c and B_c of chunks before are from what comes in to what goes out.
 *           `end` is the largest of its updates (with ZeRO of 1/dp), of what comes behind all items
 *           over dp (late reductions; zero = 1 and 2: weights that are gathered), of what the host
 *           sends back (states), of Σ_{c<s}(B_c + send) and the same of stage 0. There it is the
 *           gradients of what stands before the loop, too, which are complete last: to the last
 *           stage if it reads the same weight, and over dp.
 *           With p2p = blocking all but the first send of each kind stand between the items.
 *           Where gradients of weights are apart, B is the sum of its computation, and nothing is
 *           known of what follows the last input gradient.
 *   chain   the other forward (or backward) items of chunk 0, then one microbatch forwards through
 *           all C chunks, one after the other, and back, with the sends between them; then the end
 *           of stage 0. Not where gradients of weights are apart.
 *   sends   the items and sends before; m·chunks sends to it, one after the other; from when the
 *           last has come in to the end, as with `items`
 *   reduce  the items before the last backward one, then the gradients over dp (one chunk a stage)
 *   shards  with zero = 3 the gathering of weights, twice, with zero ≥ 2 the scattering of
 *           gradients, m times
 *   host    what is offloaded, and back: weights 2m times, activations m times, states once; behind
 *           what items get back, `end`
 *   p2p     of batched sends, all that it sends and receives
 *
 * and, of orders and cuts that are not known too, the sum of all computation over pp. Rounded down.
 * O(C). */
int64_t ds_bound_step_ps(const ds_bound_region *region);

/* No candidate's fullest device holds less, that is the largest over the stages of what its turns
 * have for good (weights, states, with ZeRO over dp) and the largest of
 *
 *   saved · forward items before the first backward one, and what that needs at once to work
 *   gradients with zero = 0, before the first update; with zero = 1, where the second reduction
 *       waits for that, all but those of a chunk (of one chunk: of a turn and before the loop)
 *   saved · items in flight, gradients, and what a backward item needs at once to work: at the
 *       second backward item, of interleaved ones once each chunk has had one, and at the last one
 *       (m > 1; gradients with zero ≥ 2: over dp); where gradients of weights are apart, at the
 *       backward item behind the first of them
 *
 * or, of orders and cuts that are not known, the average of weights and states; without what may be
 * offloaded. Each rounded down. O(C). */
int64_t ds_bound_peak_bytes(const ds_bound_region *region);

/* Does a pass refuse all of its candidates? That is so if balance = layers has more chunks than
 * turns of loops (pp·chunks, ir/passes/stage/cut.c), if interleaved microbatches come in other
 * groups than of one a stage (pp does not divide m, ir/schedule/order.c), or if states are
 * offloaded that there are none of (ir/passes/offload/offload.c). O(1). */
bool ds_bound_is_illegal(const ds_bound_region *region);

/* ---- stage.c: what a stage does and holds ---- */

typedef struct ds_bound_stage {
    int64_t items_ps;       /* all its items, one after the other */
    int64_t last_ps;        /* one backward item of each chunk */
    int64_t forward_ps;     /* an item of its first chunk, from what comes in to what goes out; but
                               for the first turns, all that it gets from the host or sends there */
    int64_t backward_ps;    /* likewise backwards */
    int64_t there_ps;       /* sends of one item to it from the first stage … */
    int64_t back_ps;        /* … and back to that */
    int64_t sent_ps;        /* from when the first item leaves the stage before until the last has
                               come in, with the sends before that stage */
    int64_t return_ps;      /* from when an item comes in to when its backward item goes out */
    int64_t chain_ps;       /* stage 0: the last microbatch through all chunks and back */
    int64_t early_ps;       /* of its items, what may be done before anything has come in … */
    int64_t late_ps;        /* … and after the last has gone out */
    double end_s;           /* after all items: the update, or the gathering of weights */
    double reduce_s;        /* the gradients over dp, once */
    double shards_s;        /* traffic over dp that comes with each microbatch: all of it */
    double reload_s;        /* what its items get from the host: all of it */
    int64_t held_bytes;     /* throughout */
    int64_t saved_bytes;    /* by a forward item of its smallest chunk for the backward item */
    int64_t work_bytes;     /* beside what is saved, in some backward item (one chunk a stage) */
    int64_t summed_bytes;   /* of gradients that are there when the last item has ended */
    int64_t gradient_bytes; /* from microbatch to microbatch */
} ds_bound_stage;

/* With layers. Where it is not known what is on which stage, held_bytes is the average, and all
 * else 0. O(chunks of the stage), but for what the mesh is asked for the first time. */
void ds_bound_stage_of(const ds_bound_region *region, int64_t stage, ds_bound_stage *out);
/* The bytes alone, all else 0. */
void ds_bound_stage_bytes(const ds_bound_region *region, int64_t stage, ds_bound_stage *out);
bool ds_bound_is_placed(const ds_bound_region *region);
/* How many backward items later stage s does their gradients of weights; −1: at once. */
int64_t ds_bound_delay(const ds_bound_region *region, int64_t stage);
/* Of all stages, without transfers. */
int64_t ds_bound_computation_ps(const ds_bound_region *region);

/* ---- region.c: from prefixes to regions ---- */

typedef struct ds_bounds ds_bounds;

/* Of the space of `source`; all must outlive the bounds. If there are no bounds of such a sweep at
 * all, *why says the reason; bounds are 0 then. */
ds_status ds_bounds_new(const ds_eval_source *source, ds_space *space, ds_bounds **out,
                        const char **why, ds_error *err);
void ds_bounds_free(ds_bounds *bounds);
/* What is known once the first `depth` dimensions have these values. Layers are made where
 * they are asked for the first time. Errors: evaluation of knobs. */
ds_status ds_bounds_region(ds_bounds *bounds, const ds_choice *prefix, uint32_t depth,
                           ds_bound_region *out, ds_error *err);
/* The same for ds_bound_peak_bytes and ds_bound_is_illegal, which need no times: cheaper, since
 * layers are the same wherever the mesh lies. */
ds_status ds_bounds_memory(ds_bounds *bounds, const ds_choice *prefix, uint32_t depth,
                           ds_bound_region *out, ds_error *err);

#endif
