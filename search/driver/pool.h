/* Workers on a ring of slots.
 *
 * Jobs are numbered 0, 1, 2 …; job k lies in slot k mod n_slots. The owner fills the slot, submits,
 * and later waits for the job in order; each worker takes the lowest job that nobody has, together
 * with the jobs that follow. Taking jobs is one atomic exchange, no lock. A job's result must
 * depend on its slot alone, so that results do not depend on the number of workers. */
#ifndef DS_SEARCH_DRIVER_POOL_H
#define DS_SEARCH_DRIVER_POOL_H

#include "ir/base/error.h"

#include <stdbool.h>

typedef struct ds_pool ds_pool;

/* Does one job; called on any worker thread, 0 ≤ worker < n_workers. */
typedef void (*ds_pool_work)(void *context, uint32_t worker, uint32_t slot);

/* Errors: DS_ERR_LIMIT if the system gives no thread. */
ds_status ds_pool_new(uint32_t n_workers, uint32_t n_slots, ds_pool_work work, void *context,
                      ds_pool **out, ds_error *err);
/* Hands the next job to the workers. At most n_slots jobs may be submitted and not waited for.
 * `follows`: the worker that takes the job before takes this job, too, if submitted by then, since
 * both share work that a worker does once. Up to four jobs go together. */
void ds_pool_submit(ds_pool *pool, bool follows);
/* Is the lowest job that was not waited for done? */
bool ds_pool_is_done(const ds_pool *pool);
/* Waits for that job and returns its slot, which is free then. */
uint32_t ds_pool_wait(ds_pool *pool);

/* ---- jobs that other processes do for the owner ---- */

/* The lowest job that nobody has becomes the owner's; false: no such job. */
bool ds_pool_take(ds_pool *pool, uint64_t *job);
uint32_t ds_pool_slot(const ds_pool *pool, uint64_t job);
/* A job that was taken is done: its slot holds the result. */
void ds_pool_finish(ds_pool *pool, uint64_t job);
/* Is this job, which was submitted and not waited for, done? */
bool ds_pool_has(const ds_pool *pool, uint64_t job);
/* Waits until some worker finishes a job, at most 100 microseconds; if pool is NULL, so long. */
void ds_pool_nap(ds_pool *pool);

/* Drops jobs that nobody has begun, and waits for running jobs. */
void ds_pool_free(ds_pool *pool);

#endif
