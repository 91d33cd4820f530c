/* All use of MPI. Sends copy the message and do not block, so that two ranks that send to each
 * other at once never wait for each other; receives probe for a message first. */
#include "search/driver/ranks.h"

#include "ir/base/arena.h"

#include <stdlib.h>

static uint32_t number(const char *name) {
    const char *text = getenv(name);
    long value = text ? strtol(text, NULL, 10) : 0;
    return value > 1 ? (uint32_t)value : 1;
}

uint32_t ds_ranks_expected(void) {
    uint32_t n = number("OMPI_COMM_WORLD_SIZE");                   /* Open MPI's mpirun */
    if (n == 1) n = number("PMI_SIZE");                            /* Hydra; srun --mpi=pmi2 */
    if (n == 1 && getenv("PMIX_RANK")) n = number("SLURM_NTASKS"); /* srun --mpi=pmix */
    return n;
}

#ifndef DS_HAVE_MPI

ds_status ds_ranks_start(ds_ranks **out, ds_error *err) {
    *out = NULL;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "this distsim was built without MPI (Debian: libopenmpi-dev); --shard and "
                        "`distsim merge` share a sweep without it");
}

void ds_ranks_end(ds_ranks *ranks) {
    (void)ranks;
}

uint32_t ds_ranks_self(const ds_ranks *ranks) {
    (void)ranks;
    return 0;
}

uint32_t ds_ranks_count(const ds_ranks *ranks) {
    (void)ranks;
    return 1;
}

int ds_ranks_share(ds_ranks *ranks, int value) {
    (void)ranks;
    return value;
}

int ds_ranks_worst(ds_ranks *ranks, int value) {
    (void)ranks;
    return value;
}

void ds_ranks_send(ds_ranks *ranks, uint32_t to, const void *data, size_t n) {
    (void)ranks;
    (void)to;
    (void)data;
    (void)n;
}

bool ds_ranks_receive(ds_ranks *ranks, uint32_t *from, ds_buf *message) {
    (void)ranks;
    (void)from;
    (void)message;
    return false;
}

#else

#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { EXIT_DEAD_RANK = 3 };

typedef struct outgoing {
    MPI_Request request;
    char *data;
} outgoing;

struct ds_ranks {
    int self, count;
    DS_VEC(outgoing) sent; /* not known to have left */
};

/* ---- the watcher ---- */

/* Exits as the child exits; reports a killed child, unless the job is being ended. */
static void watch(pid_t child) {
    int state = 0;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) _exit(EXIT_DEAD_RANK);
    if (WIFEXITED(state)) _exit(WEXITSTATUS(state));
    int killer = WTERMSIG(state);
    if (killer != SIGTERM && killer != SIGINT)
        fprintf(stderr,
                "distsim: error: a rank (process %ld) was killed by signal %d (%s)%s; what it "
                "wrote stays, and --resume goes on with it\n",
                (long)child, killer, strsignal(killer),
                killer == SIGKILL ? ", as by a lack of memory" : "");
    _exit(EXIT_DEAD_RANK);
}

/* Signals that end a job reach parent and child (one group); the parent ignores these signals, so
 * that the parent can exit as the child does. */
static ds_status fork_watched(ds_error *err) {
    pid_t parent = getpid();
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "cannot fork: %s", strerror(errno));
    if (child > 0) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        watch(child);
    }
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent) _exit(EXIT_DEAD_RANK); /* the parent died before prctl */
    return DS_OK;
}

/* ---- the job ---- */

ds_status ds_ranks_start(ds_ranks **out, ds_error *err) {
    int given;
    *out = NULL;
    DS_TRY(fork_watched(err));
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given) != MPI_SUCCESS ||
        given < MPI_THREAD_FUNNELED)
        return ds_error_set(err, DS_ERR_INTERNAL, DS_NOWHERE,
                            "MPI does not start with threads beside the one that calls it");
    ds_ranks *ranks = ds_xcalloc(1, sizeof *ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks->self);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks->count);
    *out = ranks;
    return DS_OK;
}

static void drop_sent(ds_ranks *ranks, bool wait) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ranks->sent.n; i++) {
        outgoing *o = &ranks->sent.at[i];
        int done = 1;
        if (wait)
            MPI_Wait(&o->request, MPI_STATUS_IGNORE);
        else
            MPI_Test(&o->request, &done, MPI_STATUS_IGNORE);
        if (done)
            free(o->data);
        else
            ranks->sent.at[kept++] = *o;
    }
    ranks->sent.n = kept;
}

void ds_ranks_end(ds_ranks *ranks) {
    if (!ranks) return;
    drop_sent(ranks, true);
    MPI_Finalize();
    free(ranks->sent.at);
    free(ranks);
}

uint32_t ds_ranks_self(const ds_ranks *ranks) {
    return ranks ? (uint32_t)ranks->self : 0;
}

uint32_t ds_ranks_count(const ds_ranks *ranks) {
    return ranks ? (uint32_t)ranks->count : 1;
}

int ds_ranks_share(ds_ranks *ranks, int value) {
    if (ranks) MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return value;
}

int ds_ranks_worst(ds_ranks *ranks, int value) {
    if (ranks) MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return value;
}

/* ---- messages ---- */

void ds_ranks_send(ds_ranks *ranks, uint32_t to, const void *data, size_t n) {
    outgoing o = {.data = ds_xcalloc(n ? n : 1, 1)};
    memcpy(o.data, data, n);
    MPI_Isend(o.data, (int)n, MPI_BYTE, (int)to, 0, MPI_COMM_WORLD, &o.request);
    DS_HPUSH(&ranks->sent, o);
    drop_sent(ranks, false);
}

bool ds_ranks_receive(ds_ranks *ranks, uint32_t *from, ds_buf *message) {
    int there = 0, n = 0;
    MPI_Status status;
    MPI_Message handle;
    if (ranks->sent.n) drop_sent(ranks, false);
    MPI_Improbe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, &handle, &status);
    if (!there) return false;
    MPI_Get_count(&status, MPI_BYTE, &n);
    char *data = ds_xcalloc((size_t)n + 1, 1);
    MPI_Mrecv(data, n, MPI_BYTE, &handle, MPI_STATUS_IGNORE);
    message->n = 0;
    ds_buf_put_n(message, data, (size_t)n);
    free(data);
    *from = (uint32_t)status.MPI_SOURCE;
    return true;
}

#endif
