/* Shared by balance*.c; not a public header.
 *
 *   balance.c        the search: simulate, choose, simulate again; advice
 *   balance_times.c  the work of chunks, from a simulated step
 *   balance_cut.c    the best cut for such times */
#ifndef DS_RUN_BALANCE_INTERNAL_H
#define DS_RUN_BALANCE_INTERNAL_H

#include "sim/run/internal.h"

/* F, B, W, R as in ds_schedule_index. */
enum { DS_CUT_KINDS = 4 };

/* Compute and exposed communication of a device. */
typedef struct ds_cut_time {
    int64_t inside_ps; /* in loops */
    int64_t beside_ps;
} ds_cut_time;

/* Times of a pipelined step. */
typedef struct ds_cut_times {
    const ds_schedule_index *schedule;
    const ds_step_cut *cut;
    ds_cut_time *items; /* [schedule->n_items] */
    ds_cut_time *ends;  /* [schedule->n_ranks]: work outside all items, mostly the optimizer */
    int64_t send_ps;    /* from one stage to another */
} ds_cut_times;

/* Measures a result whose step is a pipeline; arrays lie in the arena. O(tasks log tasks). */
void ds_cut__measure(const ds_result *result, ds_arena *arena, ds_cut_times *out);

/* The work of each stage's items, [n_ranks]. */
void ds_cut__loads(const ds_cut_times *times, int64_t *out);

/* Sets out[n_chunks] to the turns of each chunk. The search begins with the cut whose busiest stage
 * has least work, which is exact for one chunk a stage and for one loop. Then single turns move
 * while the last stage ends earlier, by the schedule's timeline and the work after the timeline.
 * `least` (0 or 1): turns that the first and the last chunk need; other chunks need 1. Lower chunk
 * numbers win ties, so equal times give equal cuts. */
ds_status ds_cut__choose(const ds_cut_times *times, int64_t least, ds_arena *arena, int64_t *out,
                         ds_error *err);

#endif
