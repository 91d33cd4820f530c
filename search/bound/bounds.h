/* Lower bounds on the step time and the memory of every candidate of a region.
 *
 * A region is a prefix of the odometer: the first dimensions are set, the others free. A
 * ds_bound_region holds what is known of the region's strategy. Once that tells the size of a
 * microbatch, bounds follow from the layers of the model (layers.h) and the place of the mesh
 * (mesh.h) alone, so that a checker can compute every bound again. Until then bounds are 0. */
#ifndef DS_SEARCH_BOUND_BOUNDS_H
#define DS_SEARCH_BOUND_BOUNDS_H

#include "search/bound/layers.h"
#include "search/bound/mesh.h"

/* The order of a pipeline's items, as far as known. */
typedef enum ds_bound_form {
    DS_BOUND_ANY,         /* nothing is known */
    DS_BOUND_1F1B,        /* chunk c on stage c mod pp, whole backwards */
    DS_BOUND_EAGER,       /* … twice as many forwards first */
    DS_BOUND_GPIPE,       /* … all forwards first */
    DS_BOUND_DEPTH_FIRST, /* interleaved */
    DS_BOUND_BREADTH_FIRST,
    DS_BOUND_ZB_H1, /* as 1F1B, gradients of weights apart: s items later on stage s */
    DS_BOUND_ZB_H2  /* as eager, 2·s items later */
} ds_bound_form;

/* What a region's candidates have in common. 0: not known yet. */
typedef struct ds_bound_region {
    const ds_bound_layers *layers; /* NULL: dp, tp, pp, cp, ep, m, sp, recomputation or a value that
                                      shapes the model is not known, or has no bounds: ep > 1 that
                                      does not divide dp, or with cp > 1 */
    ds_bound_machine *machine;     /* NULL: the topology is not known, or not uniform */
    int64_t capacity_bytes;        /* of a device; 0: not known */
    int64_t process_bytes; /* … that no tensor gets, as far as memory counts these bytes */
    int64_t dp, tp, pp, cp, ep, microbatches;
    int64_t zero;     /* -1: not known */
    uint32_t offload; /* bits of ds_strategy.offload that may be set … */
    bool offloads;    /* … and are set */
    /* with layers */
    ds_bound_form form;
    int64_t chunks;     /* of a stage */
    bool named;         /* `chunks` is of a known schedule */
    bool even;          /* chunks have the turns that balance = layers gives */
    const char *order;  /* of the mesh; NULL: not known */
    bool parts;         /* stages send parts (scatter_gather) */
    bool blocking;      /* sends run on the compute stream … */
    bool batched;       /* … or all sends of a device on one stream of their own */
    bool late;          /* gradients are reduced after the last backward item */
    bool keeps_weights; /* with zero = 3: gathered weights may stay for the whole step */
    bool no_sync;       /* with zero = 2 and 3: the last microbatch alone may scatter */
    int64_t prefetch;   /* turns ahead; -1: not known */
    bool uneven;        /* ZeRO shards weights that dp does not divide, too */
} ds_bound_region;

/* No candidate of the region has a step_time_ps below this bound. With m microbatches, F and B the
 * longest path through a chunk's forward and backward item (layers.h) and C = pp·chunks, the bound
 * is the largest over the stages s of
 *
 *   items   Σ_{c<s}(F_c + send) + Σ_{c on s}(m·F_c + B_c' + (m−1)·B_c) + end: one item follows the
 *           other on a stage. F_c and B_c of chunks c < s run from the chunk's input to its output.
 *           `end` is the largest of the stage's updates (with ZeRO 1/dp of them), the traffic over
 *           dp after all items (late reductions; zero = 1 and 2: gathering weights), the states
 *           that the host sends back, and Σ_{c<s}(B_c + send) plus the `end` of stage 0. The `end`
 *           of stage 0 also has the gradients of operations before the loop, which are complete
 *           last: to the last stage if that stage reads the same weight, and over dp.
 *           With p2p = blocking all sends but the first of each kind run between the items.
 *           Where gradients of weights are apart, B is the sum of its computation, and nothing is
 *           known of the time after the last input gradient.
 *   chain   the other forward (or backward) items of chunk 0, then one microbatch forwards through
 *           all C chunks and back, with the sends between chunks; then the `end` of stage 0. Not
 *           where gradients of weights are apart.
 *   sends   the items and sends of stages before; m·chunks sends to the stage, one after the other;
 *           from the last arrival to the end, as with `items`
 *   reduce  the items before the last backward item, then the gradients over dp (one chunk a stage)
 * *   shards  with zero = 3 gathering weights, twice, with zero ≥ 2 scattering gradients, m times;
 *           once each where weights may stay gathered, or no_sync may hold
 *   host    offloads and reloads: weights 2m times, activations m times, states once; after the
 *           reloads for items, `end`
 *   p2p     with batched sends, all sends and receives of the stage
 *
 * and, for unknown orders and cuts, too, the sum of all computation over pp. Rounded down. O(C). */
int64_t ds_bound_step_ps(const ds_bound_region *region);

/* No candidate's fullest device holds less than this bound: the largest over the stages of the
 * bytes that a stage holds throughout (weights, states, with ZeRO over dp; with memory = allocator
 * the driver and the process) plus the largest of
 *
 *   saved · forward items before the first backward item, plus the work bytes of that item
 *   gradients with zero = 0, before the first update; with zero = 1, where the second reduction
 *       waits for the first update (late_reduce), all gradients but those of a chunk (of one chunk:
 *       but those of a turn and of operations before the loop)
 *   saved · items in flight, gradients, and the work bytes of a backward item: at the second
 *       backward item (interleaved: once each chunk has had a backward item), and at the last
 *       backward item (m > 1; gradients with zero ≥ 2, and with zero = 1 where no item has all of
 *       them whole: over dp); where gradients of weights are
 *       apart, at the backward item after the first of these gradients
 *
 * or, for unknown orders and cuts, the average of weights and states; all without bytes that may be
 * offloaded. Each rounded down. O(C). */
int64_t ds_bound_peak_bytes(const ds_bound_region *region);

/* Does a pass refuse every candidate of the region? True if balance = layers has more chunks than
 * turns of loops (pp·chunks, ir/passes/stage/cut.c), if interleaved microbatches do not come in
 * groups of pp (pp does not divide m, ir/schedule/order.c), or if an optimizer without states is to
 * offload states (ir/passes/offload/offload.c). O(1). */
bool ds_bound_is_illegal(const ds_bound_region *region);

/* ---- stage.c: the work and the memory of a stage ---- */

typedef struct ds_bound_stage {
    int64_t items_ps;       /* all items of the stage, one after the other */
    int64_t last_ps;        /* one backward item of each chunk */
    int64_t forward_ps;     /* an item of the first chunk, from input to output; at least all
                               transfers to and from the host, but for those of the first turns */
    int64_t backward_ps;    /* likewise backwards */
    int64_t there_ps;       /* sends of one item from the first stage to this stage … */
    int64_t back_ps;        /* … and back */
    int64_t sent_ps;        /* sends of one item to the stage before, then all sends from there to
                               this stage, one after the other */
    int64_t return_ps;      /* from the arrival of an item to the departure of its backward item */
    int64_t chain_ps;       /* stage 0: the last microbatch through all chunks and back */
    int64_t early_ps;       /* work of items that may run before any input has arrived … */
    int64_t late_ps;        /* … and after the last output has left */
    double end_s;           /* after all items: the update, or gathering weights */
    double reduce_s;        /* the gradients over dp, once */
    double shards_s;        /* all traffic over dp that each microbatch repeats; batched sends */
    double reload_s;        /* all that items get from the host */
    int64_t held_bytes;     /* throughout the step */
    int64_t saved_bytes;    /* by a forward item of the smallest chunk for the backward item */
    int64_t work_bytes;     /* besides saved_bytes, in some backward item (one chunk a stage) */
    int64_t summed_bytes;   /* gradients held after the last item */
    int64_t gradient_bytes; /* gradients held from microbatch to microbatch */
} ds_bound_stage;

/* For a region with layers. Unless ds_bound_is_placed, held_bytes is the average over the stages,
 * and all else 0. O(chunks of the stage), plus answers that the mesh does not keep yet. */
void ds_bound_stage_of(const ds_bound_region *region, int64_t stage, ds_bound_stage *out);
/* The bytes alone, all else 0. */
void ds_bound_stage_bytes(const ds_bound_region *region, int64_t stage, ds_bound_stage *out);
/* Are the turns of every stage known? */
bool ds_bound_is_placed(const ds_bound_region *region);
/* Backward items by which the stage delays gradients of weights; −1: not apart, so no delay. */
int64_t ds_bound_delay(const ds_bound_region *region, int64_t stage);
/* The computation of all stages, without transfers. */
int64_t ds_bound_computation_ps(const ds_bound_region *region);

/* ---- region.c: from prefixes to regions ---- */

typedef struct ds_bounds ds_bounds;

/* The bounds of a space of `source`; both must outlive the bounds. For a sweep without bounds *why
 * is the reason, and all bounds are 0. */
ds_status ds_bounds_new(const ds_eval_source *source, ds_space *space, ds_bounds **out,
                        const char **why, ds_error *err);
/* Why a sweep of the space has no bounds; NULL: the sweep has bounds. */
const char *ds_bounds_refusal(const ds_space *space, ds_arena *arena);
void ds_bounds_free(ds_bounds *bounds);
/* The region whose first `depth` dimensions have the values of `prefix`. Makes layers that are not
 * kept yet. Errors: evaluation of knobs. */
ds_status ds_bounds_region(ds_bounds *bounds, const ds_choice *prefix, uint32_t depth,
                           ds_bound_region *out, ds_error *err);
/* The same for ds_bound_peak_bytes and ds_bound_is_illegal, which need no times: cheaper, since
 * layers are the same wherever the mesh lies. */
ds_status ds_bounds_memory(ds_bounds *bounds, const ds_choice *prefix, uint32_t depth,
                           ds_bound_region *out, ds_error *err);

#endif
