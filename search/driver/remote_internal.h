/* Candidates evaluated on other ranks; internal to search.
 *
 * Rank 0 runs the sweep: it walks the space, writes the rows, and its workers evaluate like those
 * of any sweep. Between times its main thread hands jobs of the same ring to other ranks, a few
 * more than each has workers, and puts their outcomes into the jobs' slots. Who is done takes the
 * next, so faster ranks do more; rows do not depend on who did what. */
#ifndef DS_SEARCH_DRIVER_REMOTE_INTERNAL_H
#define DS_SEARCH_DRIVER_REMOTE_INTERNAL_H

#include "search/driver/pool.h"
#include "search/driver/ranks.h"
#include "search/space/eval.h"

/* Where job k's candidate and outcome are: those of slot k mod n_slots. */
typedef struct ds_remote_slots {
    void *context;
    ds_candidate *(*candidate)(void *context, uint32_t slot);
    ds_outcome *(*outcome)(void *context, uint32_t slot);
} ds_remote_slots;

typedef struct ds_remote ds_remote;

/* At rank 0; to be freed whatever happens then. */
ds_remote *ds_remote_new(ds_ranks *ranks);
/* Waits for every rank's greeting; `identity` must be that of all of them. Errors: a rank's own
 * error, by its number; DS_ERR_DATA for one that reads another sweep. */
ds_status ds_remote_hear(ds_remote *remote, const char *identity, uint32_t n_dims, ds_error *err);
/* Workers of all other ranks together. */
uint32_t ds_remote_workers(const ds_remote *remote);
/* Takes in what has arrived and hands out what may be begun; false: there was nothing to do. */
bool ds_remote_exchange(ds_remote *remote, ds_pool *pool, const ds_remote_slots *slots);
/* Tells the ranks that this was all, and waits until they have finished what they had begun. */
void ds_remote_free(ds_remote *remote);

/* At another rank: greets, with the error of its set-up if there was one. */
void ds_remote_greet(ds_ranks *ranks, uint32_t n_workers, const char *identity,
                     const ds_error *failed);
/* Slots that a rank should have: more than jobs are given to it, because a slow one keeps the slots
 * behind it. */
uint32_t ds_remote_slots_wanted(uint32_t n_workers);
/* Then does jobs until rank 0 says that there are no more. If the set-up failed there is no pool
 * (NULL), and no job comes. */
void ds_remote_serve(ds_ranks *ranks, ds_pool *pool, uint32_t n_slots, uint32_t n_dims,
                     const ds_remote_slots *slots);

#endif
