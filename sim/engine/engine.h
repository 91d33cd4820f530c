/* The discrete-event engine: replays a plan's tasks and says when each starts and ends.
 *
 * Rules: every stream runs its tasks one at a time, in issue order. A compute
 * task starts when it heads its stream, its dependences have ended and the host has issued it. A
 * communication starts when all its members head their streams so; until then they block those
 * streams and load no link. Time is int64 picoseconds; at equal times compute ends before
 * transfers do, each in the order in which they were started, so a result depends on nothing but
 * the plan. */
#ifndef DS_ENGINE_ENGINE_H
#define DS_ENGINE_ENGINE_H

#include "sim/plan/plan.h"

typedef struct ds_run {
    int64_t *start_ps; /* per task */
    int64_t *end_ps;
    int64_t *pause_ps; /* per pause of a host: its end; -1: not known yet */
    uint32_t *order;   /* the tasks as they ended; those of one transfer stand together */
    int64_t step_ps;   /* the last end, and the plan's overhead_ps */
    int64_t *turn_ps;  /* per repeat of the plan: what a turn of it takes; NULL without */
    uint32_t refused;  /* a repeat of the plan that does not hold, for its turns overlap or take
                          unequal time; nothing else is valid then. DS_NONE: all hold */
    uint64_t n_events;
} ds_run;

/* Told about every 2^16 completed tasks, for progress bars; may be NULL. */
typedef void (*ds_progress)(void *context, uint32_t done, uint32_t total);

/* Runs the plan. Times of a task in a repeat are those of its first execution. DS_ERR_DEADLOCK when
 * tasks are left that nothing can start: the message holds the wait-for cycle (or the partner that
 * never comes) with devices or ranks, and ops.
 * DS_ERR_OVERFLOW when time leaves int64. Allocates before the event loop, not inside.
 * O((tasks + dependences) · log streams). */
ds_status ds_engine_run(const ds_plan *plan, ds_progress progress, void *context, ds_run *out,
                        ds_error *err);
/* The end of the last execution that `from` stands for, as a task outside of its repeats, or inside
 * of some, sees it. O(nested repeats). */
int64_t ds_run_end_ps(const ds_run *run, const ds_plan *plan, uint32_t from, uint32_t task);
/* When the host had issued the task. */
int64_t ds_run_issue_ps(const ds_run *run, const ds_plan *plan, uint32_t task);
void ds_run_deinit(ds_run *run);

#endif
