/* Fits: from measurements to the constants of cost_profiles/, by tools/fit. No run and no build
 * fits anything; the fitted constants are committed as numbers.
 *
 * GSL's default error handler ends the process. The first fit switches that handler off, once, for
 * the whole process; every failure of GSL then is a ds_error. Several threads may call all
 * functions at once. The same rows in the same order give the same constants. */
#ifndef DS_COST_FIT_FIT_H
#define DS_COST_FIT_FIT_H

#include "ir/base/error.h"

#include <stdint.h>

/* One measured op. */
typedef struct ds_fit_row {
    double flop;    /* > 0 if the compute curve is fitted */
    double bytes;   /* > 0 if the memory curve is fitted; read + written */
    double seconds; /* > 0 */
    uint32_t group; /* rows of one group are left out together in the cross-validation */
} ds_fit_row;

/* e(w) = e_max w/(w + w_half), as sim/cost/lookup.c and efficiency.csv have it. */
typedef struct ds_fit_curve {
    double reference_per_s; /* FLOP/s or bytes/s where e = 1; 0: the curve is not part of the fit */
    double e_max;
    double w_half;       /* FLOP or bytes */
    double w_min, w_max; /* range of the rows */
} ds_fit_curve;

/* Of |predicted / measured − 1|. */
typedef struct ds_fit_errors {
    double mean, median, p90;
} ds_fit_errors;

typedef struct ds_fit_roofline {
    ds_fit_curve flop, bytes;
    uint32_t n_rows;
    uint32_t n_folds;
    ds_fit_errors seen;   /* of the rows by the constants above */
    ds_fit_errors unseen; /* of each row by constants fitted without its fold */
    double ratios[5];     /* ds_fit_ratios of the rows by the constants above */
} ds_fit_roofline;

/* The least number of rows for each constant of a fit. */
#define DS_FIT_ROWS_PER_CONSTANT 4
#define DS_FIT_FOLDS             5

/* Cauchy's loss c² log(1 + (r/c)²), with r = log(predicted/measured) and c = DS_FIT_SCALE. Every
 * fit here minimises the sum over its rows. Residuals are relative, since times span five decades,
 * and logarithmic, since |predicted/measured − 1| punishes too slow more than too fast. The loss
 * grows ever more slowly, since a few rows are off by a factor of ten, and times of a few
 * microseconds are rounded to whole microseconds. c is a tenth, about the error of a good curve;
 * 0.05 and 0.2 predict left-out GEMM shapes of the A100, A40 and H100 equally well. */
#define DS_FIT_SCALE 0.1
double ds_fit_loss(double predicted, double measured);

/* Fits the curves whose reference rate is not 0, both together if there are two:
 *
 *   t = max((w_f + h_f)/(F e_f), (w_b + h_b)/(B e_b)),  h = w_half, e = e_max
 *
 * which is max(w_f/(F e(w_f)), w_b/(B e(w_b))), by Levenberg-Marquardt. Then the rows' groups are
 * dealt into DS_FIT_FOLDS folds (at most one a group), and a fit to the other folds predicts each
 * fold.
 *
 * Errors: DS_ERR_VALUE if there are fewer than DS_FIT_ROWS_PER_CONSTANT rows a constant or less
 * than two groups, if a row is not positive and finite, or if all rows have the same size (no
 * curve); DS_ERR_DATA if the fit does not converge. O(folds · iterations · rows). */
ds_status ds_fit_efficiency(const ds_fit_row *rows, uint32_t n, double flop_per_s,
                            double bytes_per_s, ds_fit_roofline *out, ds_error *err);

/* Mean, median and 90th percentile (linear between order statistics) of |predicted/measured − 1|.
 * n ≥ 1, measured > 0. O(n log n). */
ds_fit_errors ds_fit_errors_of(const double *predicted, const double *measured, uint32_t n);

/* The 5th, 25th, 50th, 75th and 95th percentile of measured/predicted; n >= 1. O(n log n). */
void ds_fit_ratios(const double *predicted, const double *measured, uint32_t n, double ratios[5]);

/* A function of n variables to minimise; an error of the function ends the search. */
typedef ds_status (*ds_fit_objective)(void *context, const double *x, double *value, ds_error *err);

typedef struct ds_fit_search {
    uint32_t n;           /* variables */
    const double *starts; /* n_starts × n */
    uint32_t n_starts;
    double step;             /* size of the first simplex along each variable */
    double tolerance;        /* the search ends when the simplex is smaller */
    uint32_t max_iterations; /* for each start */
} ds_fit_search;

/* Nelder and Mead's simplex (GSL's nmsimplex2, no random numbers) from each start. Where a search
 * ends, a fresh simplex begins at the best point, until a fresh simplex gains nothing. For
 * objectives without derivatives, such as a simulation. Sets best[n] and *value to the lowest
 * found. Errors: DS_ERR_VALUE, those of the objective, DS_ERR_DATA of GSL. */
ds_status ds_fit_minimize(const ds_fit_search *search, ds_fit_objective objective, void *context,
                          double *best, double *value, ds_error *err);

/* Switches GSL's handler off, for fits in other files. */
void ds_fit__prepare_gsl(void);

#endif
