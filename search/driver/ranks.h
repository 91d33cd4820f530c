/* Processes of one job, started together by mpirun or srun: MPI ranks that pass messages.
 *
 * The only door to MPI: ranks.c alone includes mpi.h. A build without MPI has the same functions,
 * where ds_ranks_start refuses. Only the thread that called ds_ranks_start may call the other
 * functions (MPI_THREAD_FUNNELED).
 *
 * Every rank is watched: the process that mpirun starts forks, the child does the work, and the
 * parent reports a killed child and exits with 3. mpirun then ends the other ranks and exits with 3
 * as well; without the parent mpirun would exit with 128 + the signal. */
#ifndef DS_SEARCH_DRIVER_RANKS_H
#define DS_SEARCH_DRIVER_RANKS_H

#include "ir/base/error.h"
#include "ir/base/str.h"

typedef struct ds_ranks ds_ranks;

/* The number of processes that were started together, by the environment (Open MPI's mpirun, Hydra,
 * or srun with --mpi=pmi2 or pmix); 1: this process was started by itself. */
uint32_t ds_ranks_expected(void);

/* Forks and joins the job. Call before any thread is made and before anything is written; does not
 * return in the parent. Errors: DS_ERR_UNSUPPORTED without MPI in the build; DS_ERR_LIMIT if no
 * process can be forked; DS_ERR_INTERNAL if MPI refuses. */
ds_status ds_ranks_start(ds_ranks **out, ds_error *err);
/* Leaves the job; NULL does nothing. Every rank must call this, with no message under way. */
void ds_ranks_end(ds_ranks *ranks);

/* 0 and 1 for NULL. */
uint32_t ds_ranks_self(const ds_ranks *ranks);
uint32_t ds_ranks_count(const ds_ranks *ranks);

/* Rank 0's `value` at every rank; the greatest `value` of all ranks. Every rank must call. */
int ds_ranks_share(ds_ranks *ranks, int value);
int ds_ranks_worst(ds_ranks *ranks, int value);

/* Hands over a message; does not wait for the arrival. Messages from one rank to another arrive in
 * order. O(n). */
void ds_ranks_send(ds_ranks *ranks, uint32_t to, const void *data, size_t n);
/* Replaces `message` by the next message that has arrived; false: no message has arrived. */
bool ds_ranks_receive(ds_ranks *ranks, uint32_t *from, ds_buf *message);

#endif
