/* Fits of few constants to whole simulated steps: every residual is a simulation, so derivatives
 * are differences, and a row in which something happened that no constant says must not pull. */
#ifndef DS_COST_FIT_STEPS_H
#define DS_COST_FIT_STEPS_H

#include "ir/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* r[i] = log(predicted/measured) of each row with the n positive constants c. `near`: c is close to
 * those of the last call with near = false, so that what was chosen for those may be kept. */
typedef ds_status (*ds_fit_residuals)(void *context, const double *c, bool near, double *r,
                                      ds_error *err);

typedef struct ds_fit_steps {
    uint32_t n, n_rows;       /* constants, rows */
    const double *low, *high; /* by constant: 0 < low <= high */
    /* What is known of a constant besides the rows: its value, and about how far off that may be,
     * as a share of it. One such is worth a row: the residual DS_FIT_STEPS_SCALE
     * log(c/prior)/spread is added to those of the rows. spread 0: nothing is known of that one;
     * NULL: of none. */
    const double *prior, *spread;
    /* Rows far off hardly pull (the loss below), or ever less the farther off they are: Cauchy's
     * c/2 log(1 + r²/c²), for measurements of which some were held up by something else. */
    bool cauchy;
    uint32_t max_iterations;
    /* After each step that was accepted; NULL: not wanted. */
    void (*progress)(void *context, uint32_t iteration, double loss);
} ds_fit_steps;

/* Residuals beyond this weigh ever less. */
#define DS_FIT_STEPS_SCALE 0.05

/* The mean over n of sqrt(r² + c²) - c, c = DS_FIT_STEPS_SCALE: near 0 half of r²/c, far away
 * |r| - c. */
double ds_fit_steps_loss(const double *r, uint32_t n);

/* Makes the loss small by damped Gauss-Newton in the logarithms of the constants, with rows weighed
 * by 1/sqrt(r² + c²), which is the gradient of the loss, and derivatives by differences of 8 %: as
 * large as what is to be found, so that roundings of the simulated schedule do not show. From c, in
 * place; the result lies in [low, high]. Ends when a step gains less than 0.1 % of the loss.
 * Deterministic. Errors: DS_ERR_VALUE for bounds that are none and priors that are not positive;
 * those of the residuals; DS_ERR_DATA if the equations cannot be solved. Cost: n + 1 calls of
 * `residuals` an iteration, or more. */
ds_status ds_fit_steps_run(const ds_fit_steps *fit, ds_fit_residuals residuals, void *context,
                           double *c, double *loss, ds_error *err);

#endif
