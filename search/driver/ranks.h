/* Processes of one job, started together by mpirun or srun: MPI ranks that pass messages.
 *
 * The only door to MPI: mpi.h is included by ranks.c alone, and a build without MPI has the same
 * functions, of which ds_ranks_start says so. All calls are made by the thread that started it
 * (MPI_THREAD_FUNNELED).
 *
 * Every rank is watched: what mpirun started forks, the child does the work, and the parent tells
 * of a child that was killed and exits with 3. mpirun then ends the other ranks, and its own exit
 * code is 3 as well; without the parent it would be 128 + the signal. */
#ifndef DS_SEARCH_DRIVER_RANKS_H
#define DS_SEARCH_DRIVER_RANKS_H

#include "ir/base/error.h"
#include "ir/base/str.h"

typedef struct ds_ranks ds_ranks;

/* How many processes the environment says were started together (Open MPI's mpirun, Hydra, or srun
 * with --mpi=pmi2); 1 if nothing started this one so. */
uint32_t ds_ranks_expected(void);

/* Forks and joins the job. To be called before any thread is made and before anything is written;
 * in the parent it does not return. Errors: DS_ERR_UNSUPPORTED without MPI in the build;
 * DS_ERR_LIMIT if no process can be forked; DS_ERR_INTERNAL if MPI refuses. */
ds_status ds_ranks_start(ds_ranks **out, ds_error *err);
/* Leaves the job; NULL is nothing. Every rank must come here, with no message under way. */
void ds_ranks_end(ds_ranks *ranks);

/* 0 and 1 for NULL. */
uint32_t ds_ranks_self(const ds_ranks *ranks);
uint32_t ds_ranks_count(const ds_ranks *ranks);

/* Rank 0's `value` at every rank; the greatest of all ranks' values. All must call. */
int ds_ranks_share(ds_ranks *ranks, int value);
int ds_ranks_worst(ds_ranks *ranks, int value);

/* Hands over a message; does not wait until it has arrived. Messages from one rank to another
 * arrive in order. O(n). */
void ds_ranks_send(ds_ranks *ranks, uint32_t to, const void *data, size_t n);
/* The next message that has arrived, in place of what `message` held; false: there is none now. */
bool ds_ranks_receive(ds_ranks *ranks, uint32_t *from, ds_buf *message);

#endif
