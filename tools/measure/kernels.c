/* The operations of the step, and how each is timed by itself.
 *
 * BLAS is Fortran's, by columns: a matrix that lies row after row is its transpose there, so
 * C = A . B is asked for as C^T = B^T . A^T. Everything else is a plain loop, as a compiler makes
 * it, over as many bytes as the operation of the same name moves in the simulator.
 *
 * All ranks run a job at the same time, after a barrier: two cores share memory bandwidth, caches
 * and perhaps a clock, and in a training step both are busy. A job is repeated until it takes long
 * enough for the clock, and walks through several sets of operands, since those of a step come from
 * memory as often as from a cache. */
#include "tools/measure/measure.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

/* ---- operations ---- */

void sgemm_(const char *trans_a, const char *trans_b, const int *m, const int *n, const int *k,
            const float *alpha, const float *a, const int *lda, const float *b, const int *ldb,
            const float *beta, float *c, const int *ldc);

/* c (m x n) = a (m x k) . b (k x n). */
void ms_matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    const float one = 1, zero = 0;
    sgemm_("N", "N", &n, &m, &k, &one, b, &n, a, &k, &zero, c, &n);
}

/* dx (m x k) = dz (m x n) . w^T, w (k x n). */
void ms_matmul_dx(const float *dz, const float *w, float *dx, int m, int n, int k) {
    const float one = 1, zero = 0;
    sgemm_("T", "N", &k, &m, &n, &one, w, &n, dz, &n, &zero, dx, &k);
}

/* dw (k x n) = x^T . dz, x (m x k), dz (m x n). */
void ms_matmul_dw(const float *x, const float *dz, float *dw, int m, int n, int k) {
    const float one = 1, zero = 0;
    sgemm_("N", "T", &n, &k, &m, &one, dz, &n, x, &k, &zero, dw, &n);
}

void ms_relu(const float *x, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
}

void ms_relu_grad(const float *dy, const float *y, float *dx, size_t n) {
    for (size_t i = 0; i < n; i++) dx[i] = y[i] > 0 ? dy[i] : 0;
}

float ms_mse(const float *y, const float *target, size_t n) {
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += (y[i] - target[i]) * (y[i] - target[i]);
    return sum;
}

void ms_mse_grad(const float *y, const float *target, float *dy, float factor, size_t n) {
    for (size_t i = 0; i < n; i++) dy[i] = factor * (y[i] - target[i]);
}

void ms_sgd(float *w, const float *gradient, float rate, size_t n) {
    for (size_t i = 0; i < n; i++) w[i] -= rate * gradient[i];
}

/* ---- jobs ---- */

/* Between and around the shapes of the configurations, and none of them. */
static const int widths[] = {64, 112, 176, 240, 304, 400, 480};
static const int batches[] = {24, 56, 88, 152, 208};
static const int element_rows[] = {16, 48, 96, 224};
static const size_t reduced[] = {1,     256,   1024,  4096,   8192,   16384,
                                 32768, 65536, 98304, 131072, 196608, 262144};
#define COUNT(array) (sizeof(array) / sizeof *(array))

ms_job *ms_jobs(uint32_t *n) {
    size_t most = COUNT(widths) * (2 * COUNT(batches) + 5 * COUNT(element_rows)) + COUNT(reduced);
    ms_job *jobs = calloc(most, sizeof *jobs);
    if (!jobs) abort();
    *n = 0;
    for (size_t w = 0; w < COUNT(widths); w++)
        for (size_t b = 0; b < COUNT(batches); b++)
            for (ms_kind kind = MS_PRODUCT; kind <= MS_WEIGHT_PRODUCT; kind++)
                jobs[(*n)++] = (ms_job){.kind = kind, .rows = batches[b], .width = widths[w]};
    for (size_t w = 1; w < COUNT(widths); w += 2)
        for (size_t r = 0; r < COUNT(element_rows); r++)
            for (ms_kind kind = MS_RELU; kind <= MS_SGD; kind++)
                jobs[(*n)++] = (ms_job){.kind = kind, .rows = element_rows[r], .width = widths[w]};
    for (size_t i = 0; i < COUNT(reduced); i++)
        jobs[(*n)++] = (ms_job){.kind = MS_ALL_REDUCE, .rows = 1, .width = (int)reduced[i]};
    return jobs;
}

void ms_jobs_free(ms_job *jobs, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) ms_free(&jobs[i].series);
    free(jobs);
}

const char *ms_kind_name(ms_kind kind) {
    static const char *const names[] = {"gemm", "gemm",     "relu", "relu_grad",
                                        "mse",  "mse_grad", "sgd",  "all_reduce"};
    return names[kind];
}

/* ---- timing ---- */

#define SHORTEST_S 2e-4 /* of one timing: a thousand times what the clock resolves */
#define SETS       4    /* of operands */

typedef struct operands {
    float *a, *b, *c;
    size_t stride; /* from one set to the next */
} operands;

static void execute(const ms_job *job, const operands *o, uint32_t turn) {
    size_t at = (turn % SETS) * o->stride, n = (size_t)job->rows * (size_t)job->width;
    float *a = o->a + at, *b = o->b + at, *c = o->c + at;
    int m = job->rows, w = job->width;
    switch (job->kind) {
    case MS_PRODUCT:
        if (turn % 2)
            ms_matmul_dx(a, b, c, m, w, w);
        else
            ms_matmul(a, b, c, m, w, w);
        break;
    case MS_WEIGHT_PRODUCT:
        ms_matmul_dw(a, b, c, m, w, w);
        break;
    case MS_RELU:
        ms_relu(a, c, n);
        break;
    case MS_RELU_GRAD:
        ms_relu_grad(a, b, c, n);
        break;
    case MS_MSE:
        c[0] += ms_mse(a, b, n);
        break;
    case MS_MSE_GRAD:
        ms_mse_grad(a, b, c, 0.5F, n);
        break;
    case MS_SGD:
        ms_sgd(a, b, 1e-9F, n);
        break;
    case MS_ALL_REDUCE:
        MPI_Allreduce(MPI_IN_PLACE, c, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    }
}

static double time_once(const ms_job *job, const operands *o, uint32_t repeats) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (uint32_t i = 0; i < repeats; i++) execute(job, o, i);
    return MPI_Wtime() - start;
}

/* The same number on all ranks, even, so that both forms of a product count alike. */
static uint32_t find_repeats(const ms_job *job, const operands *o) {
    uint32_t repeats = 2;
    for (;;) {
        double seconds = time_once(job, o, repeats);
        MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
        if (seconds >= SHORTEST_S) return repeats;
        repeats *= 2;
    }
}

static float *filled(size_t n) {
    float *at = ms_alloc(n * sizeof *at);
    for (size_t i = 0; i < n; i++) at[i] = (float)(i % 7) * 0.25F - 0.75F;
    return at;
}

void ms_job_run(ms_job *job) {
    size_t side = (size_t)(job->rows > job->width ? job->rows : job->width);
    size_t stride = job->kind == MS_ALL_REDUCE ? side : side * (size_t)job->width;
    operands o = {filled(SETS * stride), filled(SETS * stride), filled(SETS * stride), stride};
    if (!job->repeats) job->repeats = find_repeats(job, &o);
    time_once(job, &o, 2); /* the operands come into the caches that hold them */
    ms_add(&job->series, time_once(job, &o, job->repeats) / job->repeats);
    free(o.a);
    free(o.b);
    free(o.c);
}
