/* Pipeline schedules as data: generators, a check, and their exact timeline.
 *
 * A ds_schedule (ir/core/ir.h) has chunks 0 … n−1 (the model's parts, in order), and for each rank
 * (= stage of the pipeline) the order of its items KIND chunk.microbatch:
 *
 *     F  forward
 *     B  backward. Where W of the same chunk and microbatch is listed, B is the gradient of the
 *        input alone; where it is not, B is the whole backward, W included
 *     W  gradient of the weights
 *     R  recomputation of the forward, before B
 *
 * `&` between two items: they are issued together, F of one microbatch beside B of another.
 *
 * **Placement, and copies of the weights.** `place` maps chunks to stages. A schedule that keeps
 * two copies of the weights (Chimera, DualPipe) places every chunk twice: the k-th place of a chunk
 * belongs to copy k, `place 0->0 1->1 0->1 1->0`. A microbatch runs on one copy, the one on whose
 * stages its items are listed; nothing else says which. Gradients of the copies are then summed.
 *
 * Times are integers, picoseconds or any other unit. All memory is the unit's, or the given
 * arena's. */
#ifndef DS_SCHEDULE_SCHEDULE_H
#define DS_SCHEDULE_SCHEDULE_H

#include "ir/core/ir.h"

/* ---- generators ---- */

typedef struct ds_schedule_options {
    const char *name;         /* "1f1b", …; "file:PATH" or "@s": a schedule that is written out */
    int64_t stages;           /* p, ranks of the pipeline */
    int64_t microbatches;     /* m, of one step */
    int64_t virtual_stages;   /* chunks on a stage; 0: what the form has by default. Forms with a
                                 fixed number take 1 for that too */
    int64_t f_ps, b_ps, w_ps; /* one chunk's F, B (input gradient), W: only v-half and v-min use
                                 them, to fill gaps with W; all 0: 1, 1, 1 */
} ds_schedule_options;

/* What a generator is, for tables and documentation. */
typedef struct ds_schedule_form {
    const char *name;
    const char *bubble; /* span bubble per stage, F B W of a stage, B the input gradient */
    const char *range;  /* where the form holds; "-": none is known */
    const char *memory; /* microbatches (of a whole stage) in flight at most */
    const char *kind;   /* "explicit": the published order; else how it is found */
    const char *source;
} ds_schedule_form;

/* The i-th form, in the order of the documentation; NULL after the last. */
const ds_schedule_form *ds_schedule_form_at(uint32_t i);

/* The chunks on a stage with which the form `name` can be made where `asked` are wanted: that many
 * if it takes them and they are more than one (Hanayo's waves take an even number), else its usual
 * number. `asked` for a name that is no form's. */
int64_t ds_schedule_virtual_stages(const char *name, int64_t asked);

/* Makes the schedule `options->name`, or finds it: "@s" among the unit's root module's names,
 * "file:PATH" in a .dir file that holds exactly one schedule (it becomes a module of the unit; PATH
 * is taken as it is). Such a schedule must have as many ranks and microbatches as the options say,
 * where they are not 0, and is checked. A made one has its place spelled out and every rank listed,
 * and is deterministic. Errors: DS_ERR_NAME with a suggestion, DS_ERR_VALUE for parameters that the
 * form does not take, with its condition and the values, DS_ERR_LIMIT beyond 2^24 items.
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
    const uint32_t *copy;    /* [n_microbatches]: the copy on which it runs */
    const uint32_t *item[4]; /* F, B, W, R: [n_microbatches × n_chunks], microbatch · n_chunks +
                                chunk → item number, or DS_NO_ITEM */
} ds_schedule_index;

#define DS_NO_ITEM UINT32_MAX

/* The item with this number, and its rank. O(log ranks). */
const ds_schedule_item *ds_schedule_item_at(const ds_schedule_index *index, uint32_t number,
                                            uint32_t *rank);

/* Checks what needs no times: ranks 0 … n−1 each once; microbatches 0 … m−1, each with every
 * chunk's F exactly once and, if the schedule trains, B exactly once; all items of a microbatch on
 * the stages of one copy; nothing issued together with what it waits for. Errors: DS_ERR_VALUE with
 * the item. O(items + microbatches · copies · chunks). */
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
                     the other, as if there were no & */
    int64_t comm; /* between items on different ranks; loads nothing */
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

/* The earliest times of all items: each rank works off its list in order, F of a chunk waits for F
 * of the chunk before it, B for B of the chunk after it and its own F (or R), W for its B. Exact.
 * Errors: DS_ERR_DEADLOCK naming the cycle, DS_ERR_OVERFLOW, DS_ERR_VALUE for a negative duration.
 * O(items). */
ds_status ds_schedule_time(const ds_schedule_index *index, const ds_schedule_costs *costs,
                           ds_arena *arena, ds_schedule_timing *out, ds_error *err);

/* The same for items that take `durations`, [n_items], each; pairs one after the other. Their sum
 * with n_items times `comm` must be a 64-bit time. */
ds_status ds_schedule_time_items(const ds_schedule_index *index, const int64_t *durations,
                                 int64_t comm, ds_arena *arena, ds_schedule_timing *out,
                                 ds_error *err);

#endif
