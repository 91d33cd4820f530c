/* The step that distsim predicts: scenarios/models/mlp.dir under mean squared error and plain
 * gradient descent, data parallel over the ranks, operation by operation as `distsim opt
 * scenarios/localhost-mlp.dir` prints it. A layer's gradient is summed over the ranks as soon as it
 * is there, by a call that returns when that is done: nothing overlaps. */
#include "tools/measure/measure.h"

#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

/* Depth, width and batch each vary, so that products, elementwise work and communication each rule
 * some step. No shape is one of the calibration's (kernels.c). */
const ms_configuration ms_configurations[] = {
    {2, 96, 64},   {4, 96, 256},  {8, 96, 128}, {2, 192, 96}, {4, 192, 64},  {6, 192, 192},
    {2, 320, 128}, {4, 320, 256}, {3, 320, 64}, {2, 448, 64}, {3, 448, 192}, {12, 128, 64}};
const uint32_t ms_n_configurations = sizeof ms_configurations / sizeof *ms_configurations;

#define RATE 1e-3F

struct ms_mlp {
    ms_configuration shape;
    int rows; /* of the batch, on this rank */
    float *x, *target;
    float **w, **in, **out, **gradient; /* per layer; in[0] is x, in[l + 1] is out[l] */
    float *z, *d, *dz;
};

/* From -1 to 1, the same everywhere: a hash of the index (Knuth's multiplicative one). */
static float value_at(uint64_t index) {
    uint64_t h = index * 0x9e3779b97f4a7c15u;
    h ^= h >> 31;
    return (float)(h >> 40) / (float)(1 << 23) - 1;
}

static float *made(size_t n, uint64_t first, float factor) {
    float *at = ms_alloc(n * sizeof *at);
    for (size_t i = 0; i < n; i++) at[i] = factor * value_at(first + i);
    return at;
}

ms_mlp *ms_mlp_new(ms_configuration c, int rank, int ranks) {
    ms_mlp *mlp = calloc(1, sizeof *mlp);
    size_t layers = (size_t)c.layers, width = (size_t)c.width, square = width * width;
    if (!mlp) abort();
    *mlp = (ms_mlp){.shape = c, .rows = c.batch / ranks};
    size_t n = (size_t)mlp->rows * width, batch = (size_t)c.batch * width;
    mlp->x = made(n, (size_t)rank * n, 1);
    mlp->target = made(n, batch + (size_t)rank * n, 1);
    mlp->z = made(n, 0, 0);
    mlp->d = made(n, 0, 0);
    mlp->dz = made(n, 0, 0);
    float ***lists[] = {&mlp->w, &mlp->in, &mlp->out, &mlp->gradient};
    for (int i = 0; i < 4; i++)
        if (!(*lists[i] = calloc(layers + 1, sizeof(float *)))) abort();
    mlp->in[0] = mlp->x;
    for (size_t l = 0; l < layers; l++) {
        /* sqrt(6 / width): the variance stays the same from layer to layer (He et al. 2015). */
        mlp->w[l] = made(square, 2 * batch + l * square, sqrtf(6 / (float)width));
        mlp->gradient[l] = made(square, 0, 0);
        mlp->out[l] = mlp->in[l + 1] = made(n, 0, 0);
    }
    return mlp;
}

void ms_mlp_free(ms_mlp *mlp) {
    for (int l = 0; l < mlp->shape.layers; l++) {
        free(mlp->w[l]);
        free(mlp->gradient[l]);
        free(mlp->out[l]);
    }
    float *const blocks[] = {mlp->x, mlp->target, mlp->z, mlp->d, mlp->dz};
    for (int i = 0; i < 5; i++) free(blocks[i]);
    free(mlp->w);
    free(mlp->in);
    free(mlp->out);
    free(mlp->gradient);
    free(mlp);
}

static void sum_over_ranks(float *at, size_t n) {
    MPI_Allreduce(MPI_IN_PLACE, at, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void forward(ms_mlp *mlp, size_t n) {
    for (int l = 0; l < mlp->shape.layers; l++) {
        ms_matmul(mlp->in[l], mlp->w[l], mlp->z, mlp->rows, mlp->shape.width, mlp->shape.width);
        ms_relu(mlp->z, mlp->out[l], n);
    }
}

static void backward(ms_mlp *mlp, size_t n) {
    int width = mlp->shape.width;
    for (int l = mlp->shape.layers - 1; l >= 0; l--) {
        ms_relu_grad(mlp->d, mlp->out[l], mlp->dz, n);
        ms_matmul_dx(mlp->dz, mlp->w[l], mlp->d, mlp->rows, width, width);
        ms_matmul_dw(mlp->in[l], mlp->dz, mlp->gradient[l], mlp->rows, width, width);
        sum_over_ranks(mlp->gradient[l], (size_t)width * (size_t)width);
    }
}

double ms_mlp_step(ms_mlp *mlp) {
    size_t width = (size_t)mlp->shape.width, n = (size_t)mlp->rows * width;
    float count = (float)mlp->shape.batch * (float)width;
    forward(mlp, n);
    const float *y = mlp->in[mlp->shape.layers];
    float loss = ms_mse(y, mlp->target, n) / count;
    ms_mse_grad(y, mlp->target, mlp->d, 2 / count, n);
    backward(mlp, n);
    float rate = RATE * count; /* of gradients of the sum: those of a mean over so much are tiny */
    for (int l = 0; l < mlp->shape.layers; l++)
        ms_sgd(mlp->w[l], mlp->gradient[l], rate, width * width);
    sum_over_ranks(&loss, 1);
    return loss;
}
