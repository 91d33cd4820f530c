/* Fits the eight constants of attention.h to measured kernels. */
#ifndef DS_COST_FIT_ATTENTION_H
#define DS_COST_FIT_ATTENTION_H

#include "sim/cost/attention.h"
#include "sim/cost/fit/fit.h"

typedef struct ds_attention_row {
    ds_attention_shape shape;
    double seconds;
    double other_s;        /* measured with it: the forward pass of a row of both; else 0 */
    uint32_t family, size; /* groups from 0: heads and head_dim; seq_q */
} ds_attention_row;

typedef struct ds_attention_fit_result {
    ds_attention_model model;
    double loss;          /* mean of ds_fit_loss over the rows, and the priors' */
    double w_min, w_max;  /* FLOP */
    ds_fit_errors seen;   /* of the rows by these constants */
    ds_fit_errors family; /* of rows by constants fitted without their heads and head_dim, */
    ds_fit_errors size;   /* without their seq_q; -1: there is one group only */
    double ratios[5];     /* ds_fit_ratios of the rows left out, by family and by size; without such
                             the rows' */
} ds_attention_fit_result;

/* Minimises the mean loss by a simplex search from `start`, whose processors, rates, blocks and
 * padding are kept. A `token_s` of 0 stays 0. Tables of some kernels have few rows: what the rows
 * leave open, a prior decides, which weighs as much as one row a constant (usual constants and their
 * spread over kernels and devices; attention.c). `validate` adds a search from the usual constants
 * and the fits without a family and without a size. Errors: DS_ERR_VALUE for fewer than
 * DS_ATTENTION_LEAST_ROWS rows, or a row or start that is not valid; those of ds_fit_minimize. */
#define DS_ATTENTION_LEAST_ROWS 6
ds_status ds_fit_attention(const ds_attention_row *rows, uint32_t n,
                           const ds_attention_model *start, bool validate,
                           ds_attention_fit_result *out, ds_error *err);

/* What ds_fit_attention minimises. */
double ds_attention_loss(const ds_attention_row *rows, uint32_t n, const ds_attention_model *model);

/* Multiply-adds of what the mask leaves, twice: the convention of the FlashAttention papers. */
double ds_attention_flop(const ds_attention_shape *shape);

#endif
