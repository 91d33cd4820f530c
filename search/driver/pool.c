/* A ring: the semaphore `ready` counts jobs that were submitted and not taken, the condition
 * `finished` wakes the owner. A worker gets a unit of `ready` for each job and then takes the next
 * numbers. The owner reads done[slot], which a worker sets under the lock of `finished`, so no
 * wake-up is lost. `finished` waits by a clock that nobody sets back; a semaphore would not. */
#include "search/driver/pool.h"

#include "ir/base/arena.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAP_NS = 100000, MOST_TOGETHER = 4 };

typedef struct worker {
    ds_pool *pool;
    uint32_t index;
    pthread_t thread;
} worker;

struct ds_pool {
    ds_pool_work work;
    void *context;
    uint32_t n_slots, n_workers;
    worker *workers;
    atomic_uint_fast64_t *done; /* per slot: 1 + the number of the job last done there */
    atomic_bool *follows;       /* per slot */
    sem_t ready;
    pthread_mutex_t lock;
    pthread_cond_t finished; /* on CLOCK_MONOTONIC */
    atomic_uint_fast64_t next, submitted;
    atomic_bool stop;
    uint64_t waited;
};

static void wait_for(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0 && errno == EINTR) continue;
}

/* Is the job submitted, and to be done with the job before? */
static bool follows(const ds_pool *pool, uint64_t job) {
    return job < atomic_load(&pool->submitted) && atomic_load(&pool->follows[job % pool->n_slots]);
}

/* Takes the next job and the jobs that follow, *n in all. The caller has one unit of `ready`;
 * this function gets the units of the other jobs. */
static uint64_t take_jobs(ds_pool *pool, uint32_t *n) {
    uint_fast64_t job = atomic_load(&pool->next);
    uint32_t units = 1, wanted;
    do {
        for (wanted = 1; wanted < MOST_TOGETHER && wanted < pool->n_slots; wanted++) {
            if (!follows(pool, job + wanted)) break;
            if (wanted < units) continue;
            if (sem_trywait(&pool->ready) != 0) break;
            units++;
        }
    } while (!atomic_compare_exchange_weak(&pool->next, &job, job + wanted));
    for (uint32_t i = wanted; i < units; i++) sem_post(&pool->ready);
    *n = wanted;
    return job;
}

static void *run_worker(void *argument) {
    worker *w = argument;
    ds_pool *pool = w->pool;
    for (;;) {
        wait_for(&pool->ready);
        if (atomic_load(&pool->stop)) {
            sem_post(&pool->ready); /* for the next worker, whose unit `take_jobs` may have got */
            return NULL;
        }
        uint32_t n;
        uint64_t job = take_jobs(pool, &n);
        for (uint64_t end = job + n; job < end; job++) {
            pool->work(pool->context, w->index, (uint32_t)(job % pool->n_slots));
            ds_pool_finish(pool, job);
        }
    }
}

static void init_finished(ds_pool *pool) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->finished, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&pool->lock, NULL);
}

ds_status ds_pool_new(uint32_t n_workers, uint32_t n_slots, ds_pool_work work, void *context,
                      ds_pool **out, ds_error *err) {
    ds_pool *pool = ds_xcalloc(1, sizeof *pool);
    pool->work = work;
    pool->context = context;
    pool->n_slots = n_slots;
    pool->workers = ds_xcalloc(n_workers, sizeof *pool->workers);
    pool->done = ds_xcalloc(n_slots, sizeof *pool->done);
    pool->follows = ds_xcalloc(n_slots, sizeof *pool->follows);
    sem_init(&pool->ready, 0, 0);
    init_finished(pool);
    for (uint32_t i = 0; i < n_workers; i++) {
        pool->workers[i] = (worker){.pool = pool, .index = i};
        errno = 0; /* pthread_create says EAGAIN for too many threads and for too little memory */
        int rc = pthread_create(&pool->workers[i].thread, NULL, run_worker, &pool->workers[i]);
        if (rc != 0 && errno == ENOMEM) ds_out_of_memory(0);
        if (rc != 0) {
            *out = NULL;
            ds_pool_free(pool);
            return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "cannot start worker %u: %s", i,
                                strerror(rc));
        }
        pool->n_workers++;
    }
    *out = pool;
    return DS_OK;
}

void ds_pool_submit(ds_pool *pool, bool follows) {
    uint64_t job = atomic_load(&pool->submitted);
    atomic_store(&pool->follows[job % pool->n_slots], follows);
    atomic_store(&pool->submitted, job + 1);
    sem_post(&pool->ready);
}

bool ds_pool_is_done(const ds_pool *pool) {
    return ds_pool_has(pool, pool->waited);
}

uint32_t ds_pool_wait(ds_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    while (!ds_pool_is_done(pool)) pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return (uint32_t)(pool->waited++ % pool->n_slots);
}

bool ds_pool_take(ds_pool *pool, uint64_t *job) {
    if (sem_trywait(&pool->ready) != 0) return false;
    *job = atomic_fetch_add(&pool->next, 1);
    return true;
}

uint32_t ds_pool_slot(const ds_pool *pool, uint64_t job) {
    return (uint32_t)(job % pool->n_slots);
}

void ds_pool_finish(ds_pool *pool, uint64_t job) {
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->done[job % pool->n_slots], job + 1);
    pthread_cond_signal(&pool->finished);
    pthread_mutex_unlock(&pool->lock);
}

bool ds_pool_has(const ds_pool *pool, uint64_t job) {
    return atomic_load(&pool->done[job % pool->n_slots]) == job + 1;
}

void ds_pool_nap(ds_pool *pool) {
    struct timespec until = {0, NAP_NS};
    if (!pool) {
        nanosleep(&until, NULL);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += NAP_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_timedwait(&pool->finished, &pool->lock, &until);
    pthread_mutex_unlock(&pool->lock);
}

void ds_pool_free(ds_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->stop, true);
    for (uint32_t i = 0; i < pool->n_workers; i++) sem_post(&pool->ready);
    for (uint32_t i = 0; i < pool->n_workers; i++) pthread_join(pool->workers[i].thread, NULL);
    sem_destroy(&pool->ready);
    pthread_cond_destroy(&pool->finished);
    pthread_mutex_destroy(&pool->lock);
    free(pool->done);
    free(pool->follows);
    free(pool->workers);
    free(pool);
}
