/* Pipeline schedules as data: generators, a check, and their exact timeline.
 *
 * A ds_schedule (ir/core/ir.h) has chunks 0 … n−1 (the model's parts, in order), and for each rank
 * (= stage of the pipeline) the order of its items KIND chunk.microbatch:
 *
 *     F  forward
 *     B  backward. If W of the same chunk and microbatch is listed, B is the gradient of the
 *       input alone; without W, B is the whole backward, W included
 *     W  gradient of the weights
 *     R  recomputation of the forward, before B
 *
 * `&` between two items: both are issued together, F of one microbatch beside B of another.
 *
 * **Placement, and copies of the weights.** `place` maps chunks to stages. A schedule that keeps
 * two copies of the weights (Chimera, DualPipe) places every chunk twice: the k-th place of a chunk
 * belongs to copy k, `place 0->0 1->1 0->1 1->0`. A microbatch runs on one copy: the copy on whose
 * stages its items are listed. The step sums the gradients of the copies.
 *
 * Times are integers, picoseconds or any other unit. The unit, or the given arena, owns all
 * memory. */
#ifndef DS_SCHEDULE_SCHEDULE_H
#define DS_SCHEDULE_SCHEDULE_H

#include "ir/core/ir.h"

/* ---- generators ---- */

typedef struct ds_schedule_options {
    const char *name;         /* "1f1b", …; "file:PATH" or "@s": a written schedule */
    int64_t stages;           /* p, ranks of the pipeline */
    int64_t microbatches;     /* m, of one step */
    int64_t virtual_stages;   /* chunks on a stage; 0: the form's default. Forms with a fixed number
                                 also take 1 for this number */
    int64_t f_ps, b_ps, w_ps; /* one chunk's F, B (input gradient), W: only v-half and v-min use
                                 durations, to fill gaps with W; all 0: 1, 1, 1 */
} ds_schedule_options;

/* A generator's properties, for tables and documentation. */
typedef struct ds_schedule_form {
    const char *name;
    const char *bubble; /* span bubble per stage, F B W of a stage, B the input gradient */
    const char *range;  /* the range in which `bubble` holds; "-": unknown */
    const char *memory; /* microbatches (of a whole stage) in flight at most */
    const char *kind;   /* "explicit": the published order; else the way to find the order */
    const char *source;
} ds_schedule_form;

/* The i-th form, in the order of the documentation; NULL after the last. */
const ds_schedule_form *ds_schedule_form_at(uint32_t i);

/* The chunks on a stage that the form `name` makes when a caller asks for `asked`: `asked`, if the
 * form takes this number and it is above one (Hanayo's waves take an even number), else the form's
 * usual number. For a name that is no form's: `asked`. */
int64_t ds_schedule_virtual_stages(const char *name, int64_t asked);

/* Makes the schedule `options->name`, or finds a written schedule: "@s" among the names of the
 * unit's root module, "file:PATH" in a .dir file that holds exactly one schedule (the file becomes
 * a module of the unit; PATH is used unchanged). A written schedule is checked, and must have the
 * options' numbers of ranks and microbatches, if these are not 0. A made schedule spells out its
 * places, lists every rank, and is deterministic. Errors: DS_ERR_NAME with a suggestion,
 * DS_ERR_VALUE for parameters that the form does not take, with its condition and the values,
 * DS_ERR_LIMIT beyond 2^24 items.
 * O(items); v-half and v-min O(items × stages), hanayo O(items × stages). */
ds_status ds_schedule_make(ds_unit *unit, const ds_schedule_options *options,
                           const ds_schedule **out, ds_error *err);

/* ---- check ---- */

/* A checked schedule, indexed. Items are numbered rank by rank in the order of their lists. */
typedef struct ds_schedule_index {
    const ds_schedule *schedule;
    uint32_t n_ranks, n_chunks, n_microbatches, n_copies, n_items;
    bool trains;             /* false: forward items alone */
    const uint32_t *list;    /* [n_ranks]: rank number → index into schedule->ranks */
    const uint32_t *first;   /* [n_ranks + 1]: rank number → number of its first item */
    const uint32_t *stage;   /* [n_copies × n_chunks]: copy · n_chunks + chunk → rank number */
    const uint32_t *copy;    /* [n_microbatches]: the copy on which the microbatch runs */
    const uint32_t *item[4]; /* F, B, W, R: [n_microbatches × n_chunks], microbatch · n_chunks +
                                chunk → item number, or DS_NO_ITEM */
} ds_schedule_index;

#define DS_NO_ITEM UINT32_MAX

/* The item with this number, and its rank. O(log ranks). */
const ds_schedule_item *ds_schedule_item_at(const ds_schedule_index *index, uint32_t number,
                                            uint32_t *rank);

/* Checks everything that needs no times: ranks 0 … n−1 each once; microbatches 0 … m−1, each with
 * every chunk's F exactly once and, if the schedule trains, B exactly once; all items of a
 * microbatch on the stages of one copy; no item issued together with an item for which it waits.
 * Errors: DS_ERR_VALUE with the item. O(items + microbatches · copies · chunks). */
ds_status ds_schedule_check(const ds_schedule *schedule, ds_arena *arena, ds_schedule_index *out,
                            ds_error *err);

/* ---- timeline ---- */

typedef struct ds_schedule_durations {
    int64_t f, b, w, r; /* b: the input gradient; the whole backward takes b + w */
} ds_schedule_durations;

typedef struct ds_schedule_costs {
    const ds_schedule_durations *chunks; /* one for each chunk, or */
    uint32_t n_chunks;                   /* … 1: all chunks alike */
    int64_t pair; /* duration of F&B issued together, both from its start to its end; 0: one after
                     the other, as without & */
    int64_t comm; /* between items on different ranks; occupies no rank */
} ds_schedule_costs;

typedef struct ds_schedule_rank_time {
    int64_t start, end, busy; /* first start, last end, sum of durations; span bubble: end − start −
                                 busy */
    uint32_t peak; /* chunks in flight at most: from the start of F to the end of W (or of B) */
} ds_schedule_rank_time;

typedef struct ds_schedule_timing {
    const int64_t *start, *end; /* [n_items] */
    const ds_schedule_rank_time *ranks;
    int64_t makespan;
    int64_t bubble; /* the largest span bubble of a rank */
    uint32_t peak;  /* the largest peak of a rank, in chunks */
} ds_schedule_timing;

/* The earliest times of all items: each rank runs its list in order, F of a chunk waits for F of
 * the chunk before it, B for B of the chunk after it and its own F (or R), W for its B. Exact.
 * Errors: DS_ERR_DEADLOCK naming the cycle, DS_ERR_OVERFLOW, DS_ERR_VALUE for a negative duration.
 * O(items). */
ds_status ds_schedule_time(const ds_schedule_index *index, const ds_schedule_costs *costs,
                           ds_arena *arena, ds_schedule_timing *out, ds_error *err);

/* The earliest times, with durations[n_items] for the items; pairs run one after the other. The sum
 * of durations and n_items · comm must fit into int64. */
ds_status ds_schedule_time_items(const ds_schedule_index *index, const int64_t *durations,
                                 int64_t comm, ds_arena *arena, ds_schedule_timing *out,
                                 ds_error *err);

#endif
