/* Fits of few constants to whole simulated steps. Every residual is a simulation, so derivatives
 * are differences. A row with an effect that no constant describes must not pull. */
#ifndef DS_COST_FIT_STEPS_H
#define DS_COST_FIT_STEPS_H

#include "ir/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* r[i] = log(predicted/measured) of each row with the n positive constants c. `near`: c is close to
 * the c of the last call with near = false, so choices made for that call may be kept. */
typedef ds_status (*ds_fit_residuals)(void *context, const double *c, bool near, double *r,
                                      ds_error *err);

typedef struct ds_fit_steps {
    uint32_t n, n_rows;       /* constants, rows */
    const double *low, *high; /* by constant: 0 < low <= high */
    /* Knowledge of a constant besides the rows: its likely value, and the likely error of that
     * value as a share. A prior counts as a row with the residual DS_FIT_STEPS_SCALE
     * log(c/prior)/spread. spread 0: no prior for that constant; NULL: no priors. */
    const double *prior, *spread;
    /* The loss of a row: that of ds_fit_steps_loss, which bounds the pull of rows far off, or
     * Cauchy's c/2 log(1 + r²/c²), by which a row pulls less the farther off the row is, for
     * measurements of which some were held up by something else. */
    bool cauchy;
    uint32_t max_iterations;
    /* Called after each accepted step; NULL: not wanted. */
    void (*progress)(void *context, uint32_t iteration, double loss);
} ds_fit_steps;

/* Residuals beyond this weigh ever less. */
#define DS_FIT_STEPS_SCALE 0.05

/* The mean over n of sqrt(r² + c²) - c, c = DS_FIT_STEPS_SCALE: near 0 half of r²/c, far away
 * |r| - c. */
double ds_fit_steps_loss(const double *r, uint32_t n);

/* Minimises the loss by damped Gauss-Newton in the logarithms of the constants. Rows weigh
 * 1/sqrt(r² + c²), which gives the gradient of the loss. Derivatives are differences of 8 %, so
 * large that roundings of the simulated schedule do not show. Starts from c, in place; the result
 * lies in [low, high]. Ends when a step gains less than 0.1 % of the loss. Deterministic. Errors:
 * DS_ERR_VALUE for bounds without 0 < low <= high and for priors that are not positive; those of
 * the residuals; DS_ERR_DATA if the equations cannot be solved. Cost: n + 1 calls of `residuals` an
 * iteration, or more. */
ds_status ds_fit_steps_run(const ds_fit_steps *fit, ds_fit_residuals residuals, void *context,
                           double *c, double *loss, ds_error *err);

#endif
