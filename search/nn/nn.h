/* Small networks in f32: a tape of matrix operations, gradients by the tape backwards, Adam.
 *
 * A tape lives in an arena. Each operation computes its result at once and remembers its operands;
 * ds_nn_backward walks the operations backwards and adds gradients up. Parameters are ranges of one
 * flat array, so that an optimizer and a file see one vector.
 *
 * Deterministic: each sum runs in one order, products and sums are rounded one by one
 * (-ffp-contract=off), and exp is a polynomial of this room, so the same weights and inputs give
 * the same bits on any compiler. Vectors run along columns, whose sums are independent. */
#ifndef DS_SEARCH_NN_NN_H
#define DS_SEARCH_NN_NN_H

#include "ir/base/arena.h"
#include "ir/base/rng.h"

#include <stdbool.h>
#include <stdint.h>

/* exp(x) to 1e-15 of the value, by 2^k times a polynomial; 0 below -700, exp(700) above 700. */
double ds_nn_exp(double x);

/* ---- parameters ---- */

typedef struct ds_nn_params {
    uint32_t n, cap;
    float *value, *gradient;
    float *mean, *square; /* Adam's moments */
    uint64_t n_steps;
} ds_nn_params;

typedef struct ds_nn_param {
    uint32_t first, rows, cols; /* value[first + row · cols + col] */
} ds_nn_param;

void ds_nn_params_deinit(ds_nn_params *params);
/* A matrix of Glorot's uniform distribution, ±sqrt(6 / (rows + cols)); with rng NULL: zeros.
 * Source: Glorot and Bengio, AISTATS 2010. */
ds_nn_param ds_nn_param_new(ds_nn_params *params, uint32_t rows, uint32_t cols, ds_rng *rng);
/* Adam with gradients scaled to a norm of at most `most_norm`; gradients are 0 afterwards. β1 0.9,
 * β2 0.999, ε 1e-8. Source: Kingma and Ba, arXiv:1412.6980, algorithm 1. O(parameters). */
void ds_nn_adam(ds_nn_params *params, double rate, double most_norm);

/* ---- the tape ---- */

typedef struct ds_nn_tape ds_nn_tape;
/* A matrix of the tape. */
typedef struct ds_nn_var {
    uint32_t id;
} ds_nn_var;

/* A tape over `params`, in the arena. */
ds_nn_tape *ds_nn_tape_new(ds_nn_params *params, ds_arena *arena);
const float *ds_nn_value(const ds_nn_tape *tape, ds_nn_var x);
uint32_t ds_nn_rows(const ds_nn_tape *tape, ds_nn_var x);
uint32_t ds_nn_cols(const ds_nn_tape *tape, ds_nn_var x);

/* Constants; the array is copied. */
ds_nn_var ds_nn_input(ds_nn_tape *tape, uint32_t rows, uint32_t cols, const float *at);
ds_nn_var ds_nn_of(ds_nn_tape *tape, ds_nn_param param);
/* x[r, k] · w[k, c]. O(r k c), as backward. */
ds_nn_var ds_nn_matmul(ds_nn_tape *tape, ds_nn_var x, ds_nn_var w);
/* x + y; a y of one row is added to every row of x. */
ds_nn_var ds_nn_add(ds_nn_tape *tape, ds_nn_var x, ds_nn_var y);
ds_nn_var ds_nn_scale(ds_nn_tape *tape, ds_nn_var x, float factor);
ds_nn_var ds_nn_tanh(ds_nn_tape *tape, ds_nn_var x);
/* x where x > 0, else 0.2 x. */
ds_nn_var ds_nn_leaky(ds_nn_tape *tape, ds_nn_var x);
/* Columns of x, then columns of y. */
ds_nn_var ds_nn_concat(ds_nn_tape *tape, ds_nn_var x, ds_nn_var y);
/* Rows row[0 … n) of x. The array must outlive the tape. */
ds_nn_var ds_nn_gather(ds_nn_tape *tape, ds_nn_var x, const uint32_t *row, uint32_t n);
/* Softmax of each column among the rows of one segment. segment[rows] < n_segments outlives the
 * tape. */
ds_nn_var ds_nn_softmax(ds_nn_tape *tape, ds_nn_var x, const uint32_t *segment,
                        uint32_t n_segments);
/* Columns of x in as many blocks as `weight` has columns; block h of row r times weight[r, h]. */
ds_nn_var ds_nn_weigh(ds_nn_tape *tape, ds_nn_var x, ds_nn_var weight);
/* [n_segments, cols]: sums of the rows of each segment. */
ds_nn_var ds_nn_sum(ds_nn_tape *tape, ds_nn_var x, const uint32_t *segment, uint32_t n_segments);

/* -Σ target · log(p) of a column p of probabilities, whose gradient is put down. A probability
 * below 1e-12 counts as 1e-12. */
double ds_nn_cross_entropy(ds_nn_tape *tape, ds_nn_var p, const double *target);
/* Adds gradients of all parameters up, once a tape. O(the operations forward). */
void ds_nn_backward(ds_nn_tape *tape);

#endif
