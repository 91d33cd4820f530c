/* How large a model is: its parameters, and the FLOPs of one pass through it. */
#ifndef DS_PASSES_BUILD_COUNT_H
#define DS_PASSES_BUILD_COUNT_H

#include "ir/base/units.h"
#include "ir/core/ir.h"

typedef struct ds_model_counts {
    int64_t weights;     /* weight tensors */
    int64_t parameters;  /* their elements */
    ds_i128 flop;        /* of all ops; a multiply-add is 2. Batches of a million devices have more
                             than 2^63 */
    ds_i128 matmul_flop; /* of flop: matrix products, convolutions, attention, LSTM cells, as
                             papers count. Causal attention is half of full attention */
    ds_i128 attention_flop; /* of matmul_flop: the op `attention`, which has no weights */
    ds_i128 padding_flop;   /* of matmul_flop: on rows of experts' buffers that no token uses */
} ds_model_counts;

/* Counts the parameters of `model`, and the FLOPs of one run: for a model, one forward pass over
 * one batch. Weights are the model's `weight` statements, one a turn of the loops around them and
 * one a call, and the model's own arguments with {role = weight}. A weight that is used twice
 * counts once. Work counts whole tensors, without regard to splits, by ds_op_work.
 *
 *     parameters = Σ over weights of Π dims
 *     flop       = Σ over ops of turns · calls · flop(op)
 *     padding    = Σ over products on experts' buffers of flop(op) · (1 − used / rows)
 *
 * Of the e · c rows of a group's buffers (`dispatch`) tokens use min(s · k, e · c): tokens are
 * assumed to choose experts evenly, and an expert drops tokens beyond its room.
 *
 * An equation of a rec counts at every point of its dims, needed or not; its weights, once a point of
 * their own dims.
 *
 * `binding`'s unit must be verified, ds_verify_bound included.
 * Errors: DS_ERR_UNSUPPORTED for rank-local regions, whose shapes are one device's; DS_ERR_LIMIT
 * beyond DS_COUNT_MAX_STEPS ops and turns, DS_ERR_OVERFLOW for parameters, or FLOPs of one op,
 * beyond int64, evaluation. O(ops · turns; each function once, however often it is called, and once
 * more for each share of padding of its arguments). */
ds_status ds_model_count(const ds_binding *binding, const ds_func *model, ds_model_counts *out,
                         ds_error *err);

/* The limit on walking: shapes may depend on the turn, so every turn of a loop is walked. */
#define DS_COUNT_MAX_STEPS (INT64_C(1) << 22)

#endif
