/* measure-cpu: what this machine's cores, BLAS and MPI take for the operations of a data-parallel
 * MLP, and for whole training steps of it. See README.md in this folder. */
#ifndef DS_TOOLS_MEASURE_H
#define DS_TOOLS_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Times of one thing, in the order in which they were taken. */
typedef struct ms_series {
    double *seconds; /* heap */
    uint32_t n, room;
} ms_series;

void ms_add(ms_series *series, double seconds);
/* Linear between order statistics, q from 0 to 1; n >= 1. */
double ms_quantile(const ms_series *series, double q);
void ms_free(ms_series *series);

/* malloc that does not return NULL, aligned to a cache line. */
void *ms_alloc(size_t bytes);

/* ---- kernels.c: the operations, in f32, one thread. Matrices are row after row. ---- */

void ms_matmul(const float *a, const float *b, float *c, int m, int n, int k);      /* a . b */
void ms_matmul_dx(const float *dz, const float *w, float *dx, int m, int n, int k); /* dz . w^T */
void ms_matmul_dw(const float *x, const float *dz, float *dw, int m, int n, int k); /* x^T . dz */
void ms_relu(const float *x, float *y, size_t n);
void ms_relu_grad(const float *dy, const float *y, float *dx, size_t n);
float ms_mse(const float *y, const float *target, size_t n); /* the sum of squares */
void ms_mse_grad(const float *y, const float *target, float *dy, float factor, size_t n);
void ms_sgd(float *w, const float *gradient, float rate, size_t n);

/* One calibrated operation: a row of ops.csv or collectives.csv. */
typedef enum ms_kind {
    MS_PRODUCT,        /* the mean of a . b and dz . w^T: one key in ops.csv, both once a layer */
    MS_WEIGHT_PRODUCT, /* x^T . dz */
    MS_RELU,
    MS_RELU_GRAD,
    MS_MSE,
    MS_MSE_GRAD,
    MS_SGD,
    MS_ALL_REDUCE
} ms_kind;

typedef struct ms_job {
    ms_kind kind;
    int rows, width; /* of an all_reduce: rows x width floats */
    uint32_t repeats;
    ms_series series; /* of one execution */
} ms_job;

/* All jobs of the calibration; heap. None has the shape of a configuration (mlp.c). */
ms_job *ms_jobs(uint32_t *n);
const char *ms_kind_name(ms_kind kind);
/* Runs the job on all ranks at once, and adds the mean of one execution on this rank. */
void ms_job_run(ms_job *job);
void ms_jobs_free(ms_job *jobs, uint32_t n);

/* ---- mlp.c: the training step that is predicted ---- */

typedef struct ms_configuration {
    int layers, width, batch; /* batch: of all ranks together */
} ms_configuration;

extern const ms_configuration ms_configurations[];
extern const uint32_t ms_n_configurations;

typedef struct ms_mlp ms_mlp;
/* Weights and batch are functions of their indices alone, so that ranks have equal weights, and
 * any number of ranks the same batch together. */
ms_mlp *ms_mlp_new(ms_configuration configuration, int rank, int ranks);
void ms_mlp_free(ms_mlp *mlp);
/* One step of gradient descent; returns the loss before it, the mean over the whole batch. */
double ms_mlp_step(ms_mlp *mlp);

/* ---- table.c ---- */

/* Writes the profile NAME of what was measured to `folder`: ops.csv, collectives.csv, and the files
 * around them that fit-profiles fills. Returns false after a message. */
bool ms_write_profile(const char *folder, const ms_job *jobs, uint32_t n, int ranks);
/* steps.csv: layers, width, batch, the quartiles of a step, and how many there were. */
bool ms_write_steps(const char *folder, const ms_series *steps);

#endif
