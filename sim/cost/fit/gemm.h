/* Fits the constants of gemm.h to measured products. */
#ifndef DS_COST_FIT_GEMM_H
#define DS_COST_FIT_GEMM_H

#include "sim/cost/fit/fit.h"
#include "sim/cost/gemm.h"

typedef struct ds_gemm_row {
    ds_gemm_shape shape;
    double converted_bytes; /* moved by conversions of operands that the time holds; 0: none */
    double seconds;
    /* Numbers of groups, from 0, for the cross-validation: rows whose shapes differ in m alone;
     * families of shapes, such as a model's; rows with the same m. */
    uint32_t shape_group, family, size;
} ds_gemm_row;

/* Conversions before a product take seconds + bytes / bytes_per_s; all 0: none. */
typedef struct ds_gemm_conversion {
    double seconds, bytes_per_s;
} ds_gemm_conversion;

typedef struct ds_gemm_fit_start {
    ds_gemm_model model;           /* `resident` > 0: all constants of that form are fitted */
    ds_gemm_conversion conversion; /* fitted if bytes_per_s > 0 */
    bool keeps_launch;             /* the launch is that of another dtype */
    bool validate;                 /* see ds_fit_gemm */
} ds_gemm_fit_start;

typedef struct ds_gemm_fit_result {
    ds_gemm_model model;
    ds_gemm_conversion conversion;
    double loss;          /* mean of ds_fit_loss over the rows */
    double w_min, w_max;  /* FLOP */
    ds_fit_errors seen;   /* of the rows by these constants */
    ds_fit_errors shape;  /* of rows by constants fitted without a fifth of the shape groups, */
    ds_fit_errors family; /* without their family, */
    ds_fit_errors size;   /* without a fifth of the sizes */
    double ratios[5];     /* ds_fit_ratios of the rows; with `resident` by constants fitted
                             without a fifth of the shape groups */
} ds_gemm_fit_result;

/* Minimises the mean loss by a simplex search from the constants of `start`, whose processors,
 * rates and `resident` are kept. `validate` adds a search from a usual set of constants, and the
 * fits for the errors of shape, family and size, which begin at the constants found; without
 * `validate`, or with one group only, these errors are 0. Errors: DS_ERR_VALUE for too few rows
 * (DS_FIT_ROWS_PER_CONSTANT a constant), a row or a start that is not valid; those of
 * ds_fit_minimize. O(searches x iterations x rows): seconds for 2,000 rows, with `validate` a
 * minute. */
ds_status ds_fit_gemm(const ds_gemm_row *rows, uint32_t n, const ds_gemm_fit_start *start,
                      ds_gemm_fit_result *out, ds_error *err);

/* What the constants say of a row. */
double ds_gemm_row_seconds(const ds_gemm_row *row, const ds_gemm_model *model,
                           const ds_gemm_conversion *conversion);

/* Mean of ds_fit_loss over the rows by the constants. */
double ds_gemm_loss(const ds_gemm_row *rows, uint32_t n, const ds_gemm_model *model,
                    const ds_gemm_conversion *conversion);

#endif
