/* Workers on a ring of slots.
 *
 * Jobs are numbered 0, 1, 2 …; job k lies in slot k mod n_slots. The owner fills the slot, submits,
 * and later waits for the job in order; each worker takes the lowest job that nobody has, and with
 * it those behind it that go with it. Taking them is one atomic exchange, no lock. What a job does
 * must depend on its slot alone, so results do not depend on the number of workers. */
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
/* Hands the next job to the workers. At most n_slots jobs may be submitted and not waited for. With
 * `follows` the worker that has the job before does this one after it, if it was there to be taken
 * by then: the two have something in common that a worker makes once. Up to four go together. */
void ds_pool_submit(ds_pool *pool, bool follows);
/* Is the lowest job that was not waited for done? */
bool ds_pool_is_done(const ds_pool *pool);
/* Waits for it; its slot is free then. Returns the slot. */
uint32_t ds_pool_wait(ds_pool *pool);

/* ---- jobs that the owner has done elsewhere, while it waits ---- */

/* The lowest job that nobody has becomes the owner's; false if there is none. */
bool ds_pool_take(ds_pool *pool, uint64_t *job);
uint32_t ds_pool_slot(const ds_pool *pool, uint64_t job);
/* The owner's job is done: its slot holds what came of it. */
void ds_pool_finish(ds_pool *pool, uint64_t job);
/* Is this job, which was submitted and not waited for, done? */
bool ds_pool_has(const ds_pool *pool, uint64_t job);
/* Until some worker finishes a job, 100 microseconds at most; so long if pool is NULL. */
void ds_pool_nap(ds_pool *pool);

/* Jobs that nobody has begun are dropped; those that run are finished. */
void ds_pool_free(ds_pool *pool);

#endif
