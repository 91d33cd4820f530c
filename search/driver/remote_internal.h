/* Candidates evaluated on other ranks; internal to search.
 *
 * Rank 0 runs the sweep: rank 0 walks the space, writes the rows, and has workers like any sweep.
 * Between times its main thread hands jobs of the same ring to other ranks, a few more than each
 * rank has workers, and puts the outcomes into the jobs' slots. A rank that is done gets the next
 * job, so faster ranks do more; rows do not depend on the rank that did a job. */
#ifndef DS_SEARCH_DRIVER_REMOTE_INTERNAL_H
#define DS_SEARCH_DRIVER_REMOTE_INTERNAL_H

#include "search/driver/pool.h"
#include "search/driver/ranks.h"
#include "search/space/eval.h"

/* The candidate and the outcome of a slot; job k has slot k mod n_slots. */
typedef struct ds_remote_slots {
    void *context;
    ds_candidate *(*candidate)(void *context, uint32_t slot);
    ds_outcome *(*outcome)(void *context, uint32_t slot);
} ds_remote_slots;

typedef struct ds_remote ds_remote;

/* At rank 0; to be freed even if a later call fails. */
ds_remote *ds_remote_new(ds_ranks *ranks);
/* Waits for every rank's greeting, which must have the same `identity`. Errors: a rank's own error,
 * with the number of the rank; DS_ERR_DATA for a rank that reads another sweep. */
ds_status ds_remote_hear(ds_remote *remote, const char *identity, uint32_t n_dims, ds_error *err);
/* Workers of all other ranks together. */
uint32_t ds_remote_workers(const ds_remote *remote);
/* Takes in outcomes that have arrived and hands out jobs; false: there was nothing to do. */
bool ds_remote_exchange(ds_remote *remote, ds_pool *pool, const ds_remote_slots *slots);
/* Tells the ranks that no job follows, and waits until all ranks have finished their jobs. */
void ds_remote_free(ds_remote *remote);

/* At another rank: greets, with the error of its set-up if there was one. */
void ds_remote_greet(ds_ranks *ranks, uint32_t n_workers, const char *identity,
                     const ds_error *failed);
/* Slots that a rank should have: more than its jobs at a time, because a slow job keeps the slots
 * of later jobs occupied. */
uint32_t ds_remote_slots_wanted(uint32_t n_workers);
/* After the greeting: does jobs until rank 0 says that no job follows. pool is NULL if the set-up
 * failed; no job comes then. */
void ds_remote_serve(ds_ranks *ranks, ds_pool *pool, uint32_t n_slots, uint32_t n_dims,
                     const ds_remote_slots *slots);

#endif
