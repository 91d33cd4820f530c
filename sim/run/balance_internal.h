/* Shared by balance*.c; not a public header.
 *
 *   balance.c        the search: simulate, choose, simulate again; advice
 *   balance_times.c  what a simulated step says about the work of its chunks
 *   balance_cut.c    the best cut for such times */
#ifndef DS_RUN_BALANCE_INTERNAL_H
#define DS_RUN_BALANCE_INTERNAL_H

#include "sim/run/internal.h"

/* F, B, W, R as in ds_schedule_index. */
enum { DS_CUT_KINDS = 4 };

/* Compute and exposed communication of a device. */
typedef struct ds_cut_time {
    int64_t inside_ps; /* loops */
    int64_t beside_ps;
} ds_cut_time;

/* What a pipelined step takes. */
typedef struct ds_cut_times {
    const ds_schedule_index *schedule;
    const ds_step_cut *cut;
    ds_cut_time *items; /* [schedule->n_items] */
    ds_cut_time *ends;  /* [schedule->n_ranks]: what a stage does once, in the optimizer mostly */
    int64_t send_ps;    /* from one stage to another */
} ds_cut_times;

/* Of a result whose step is a pipeline's. In the arena. O(tasks log tasks). */
void ds_cut__measure(const ds_result *result, ds_arena *arena, ds_cut_times *out);

/* The work of each stage's items, [n_ranks]. */
void ds_cut__loads(const ds_cut_times *times, int64_t *out);

/* The turns of each chunk. First the cut whose busiest stage has least to do (exact over all cuts
 * with one chunk a stage, and with one loop), then, one turn moved at a time, that whose stages end
 * earliest by the schedule's timeline and what they do behind it. `least`: of the first and the
 * last chunk (0 or 1); others have 1 at least. Ties are broken by chunk numbers, so equal times
 * give equal cuts. */
ds_status ds_cut__choose(const ds_cut_times *times, int64_t least, ds_arena *arena, int64_t *out,
                         ds_error *err);

#endif
