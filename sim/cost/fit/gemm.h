/* Fits the seven constants of gemm.h to measured products. */
#ifndef DS_COST_FIT_GEMM_H
#define DS_COST_FIT_GEMM_H

#include "sim/cost/fit/fit.h"
#include "sim/cost/gemm.h"

typedef struct ds_gemm_row {
    ds_gemm_shape shape;
    double seconds;
    /* Numbers of groups, from 0, for the cross-validation: rows whose shapes differ in m alone;
     * families of shapes, such as a model's; rows with the same m. */
    uint32_t shape_group, family, size;
} ds_gemm_row;

typedef struct ds_gemm_fit_result {
    ds_gemm_model model;
    double loss;          /* mean of ds_fit_loss over the rows */
    double w_min, w_max;  /* FLOP */
    ds_fit_errors seen;   /* of the rows by these constants */
    ds_fit_errors shape;  /* of rows by constants fitted without a fifth of the shape groups, */
    ds_fit_errors family; /* without their family, */
    ds_fit_errors size;   /* without a fifth of the sizes */
    double ratios[5];     /* ds_fit_ratios of the rows */
} ds_gemm_fit_result;

/* Minimises the mean loss by a simplex search from the constants of `start`, whose processors and
 * rates are kept. `validate` adds a search from a usual set of constants, and the fits for the
 * errors of shape, family and size, which begin at the constants found; without `validate`, or with
 * one group only, these errors are 0. Errors: DS_ERR_VALUE for too few rows
 * (DS_FIT_ROWS_PER_CONSTANT a constant), a row or a start that is not valid; those of
 * ds_fit_minimize. O(searches x iterations x rows): seconds for 2,000 rows, with `validate` a
 * minute. */
ds_status ds_fit_gemm(const ds_gemm_row *rows, uint32_t n, const ds_gemm_model *start,
                      bool validate, ds_gemm_fit_result *out, ds_error *err);

/* Mean of ds_fit_loss over the rows by a model. */
double ds_gemm_loss(const ds_gemm_row *rows, uint32_t n, const ds_gemm_model *model);

#endif
