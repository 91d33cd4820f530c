/* Damped Gauss-Newton with reweighted rows. The damping is Levenberg's with Marquardt's scale: the
 * diagonal of the equations grows by a factor until a step makes the loss smaller. */
#include "sim/cost/fit/steps.h"

#include "ir/base/arena.h"
#include "sim/cost/fit/fit.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_linalg.h>
#include <math.h>
#include <string.h>

#define DIFFERENCE    0.08 /* of a constant, for derivatives */
#define LONGEST       0.4  /* step, in logarithms */
#define LEAST_GAIN    1e-3 /* of the loss */
#define MOST_DAMPINGS 5    /* tried for one step */
#define FLOOR         1e-9 /* of the diagonal: a constant that no row depends on stays */

typedef struct state {
    const ds_fit_steps *fit;
    ds_fit_residuals residuals;
    void *context;
    double *x;        /* logarithms of the constants */
    double *c;        /* scratch: constants */
    double *r;        /* residuals at x */
    double *trial;    /* residuals elsewhere */
    double *jacobian; /* m x n */
    uint32_t m;       /* rows, plus n with priors */
    double *at;       /* scratch: logarithms */
    double loss, damping;
} state;

double ds_fit_steps_loss(const double *r, uint32_t n) {
    double sum = 0, c = DS_FIT_STEPS_SCALE;
    for (uint32_t i = 0; i < n; i++) sum += sqrt(r[i] * r[i] + c * c) - c;
    return n ? sum / n : 0;
}

static double within(const ds_fit_steps *fit, uint32_t k, double x) {
    double low = log(fit->low[k]), high = log(fit->high[k]);
    return x < low ? low : x > high ? high : x;
}

/* The residual of the prior of constant k. */
static double prior_residual(const ds_fit_steps *fit, uint32_t k, double x) {
    if (!(fit->spread[k] > 0)) return 0;
    return DS_FIT_STEPS_SCALE * (x - log(fit->prior[k])) / fit->spread[k];
}

static ds_status evaluate(state *s, const double *x, bool near, double *r, ds_error *err) {
    for (uint32_t k = 0; k < s->fit->n; k++) s->c[k] = exp(x[k]);
    for (uint32_t i = s->fit->n_rows; i < s->m; i++)
        r[i] = prior_residual(s->fit, i - s->fit->n_rows, x[i - s->fit->n_rows]);
    return s->residuals(s->context, s->c, near, r, err);
}

static double loss_of(const state *s, const double *r) {
    double sum = 0, c = DS_FIT_STEPS_SCALE;
    uint32_t n = s->fit->n_rows;
    if (!s->fit->cauchy) return ds_fit_steps_loss(r, s->m) * s->m / n;
    for (uint32_t i = 0; i < n; i++) sum += c / 2 * log1p(r[i] * r[i] / (c * c));
    return (sum + ds_fit_steps_loss(r + n, s->m - n) * (s->m - n)) / n;
}

/* The slope of a residual's loss, over the residual. */
static double weight_of(const state *s, uint32_t i) {
    double r = s->r[i], c = DS_FIT_STEPS_SCALE;
    if (s->fit->cauchy && i < s->fit->n_rows) return c / (r * r + c * c);
    return 1 / sqrt(r * r + c * c);
}

/* The Jacobian by differences, towards the side on which the bounds leave room. */
static ds_status differentiate(state *s, ds_error *err) {
    const ds_fit_steps *fit = s->fit;
    for (uint32_t k = 0; k < fit->n; k++) {
        double step = log1p(DIFFERENCE);
        memcpy(s->at, s->x, fit->n * sizeof *s->at);
        if (within(fit, k, s->x[k] + step) < s->x[k] + step) step = -step;
        s->at[k] = s->x[k] + step;
        DS_TRY(evaluate(s, s->at, true, s->trial, err));
        for (uint32_t i = 0; i < s->m; i++)
            s->jacobian[i * fit->n + k] = (s->trial[i] - s->r[i]) / step;
    }
    return DS_OK;
}

/* (J'WJ + damping diag) d = -J'Wr; s->at = x + d, within the bounds. */
static ds_status propose(state *s, gsl_matrix *a, gsl_vector *b, gsl_vector *d, ds_error *err) {
    const ds_fit_steps *fit = s->fit;
    gsl_matrix_set_zero(a);
    gsl_vector_set_zero(b);
    for (uint32_t i = 0; i < s->m; i++) {
        const double *row = &s->jacobian[i * fit->n];
        double r = s->r[i], w = weight_of(s, i);
        for (uint32_t k = 0; k < fit->n; k++) {
            *gsl_vector_ptr(b, k) -= w * row[k] * r;
            for (uint32_t l = 0; l < fit->n; l++) *gsl_matrix_ptr(a, k, l) += w * row[k] * row[l];
        }
    }
    for (uint32_t k = 0; k < fit->n; k++) {
        double *diagonal = gsl_matrix_ptr(a, k, k);
        *diagonal = *diagonal * (1 + s->damping) + FLOOR;
    }
    int failed = gsl_linalg_cholesky_decomp1(a);
    if (!failed) failed = gsl_linalg_cholesky_solve(a, b, d);
    if (failed)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the fit's equations: %s",
                            gsl_strerror(failed));
    for (uint32_t k = 0; k < fit->n; k++) {
        double step = gsl_vector_get(d, k);
        if (fabs(step) > LONGEST) step = copysign(LONGEST, step);
        s->at[k] = within(fit, k, s->x[k] + step);
    }
    return DS_OK;
}

/* One step; *gain is how much the loss fell, 0 if no damping made the loss smaller. */
static ds_status step(state *s, gsl_matrix *a, gsl_vector *b, gsl_vector *d, double *gain,
                      ds_error *err) {
    *gain = 0;
    DS_TRY(differentiate(s, err));
    for (int tries = 0; tries < MOST_DAMPINGS; tries++) {
        DS_TRY(propose(s, a, b, d, err));
        DS_TRY(evaluate(s, s->at, false, s->trial, err));
        double loss = loss_of(s, s->trial);
        if (loss < s->loss) {
            *gain = s->loss - loss;
            s->loss = loss;
            s->damping /= 4;
            memcpy(s->x, s->at, s->fit->n * sizeof *s->x);
            memcpy(s->r, s->trial, s->m * sizeof *s->r);
            return DS_OK;
        }
        s->damping *= 8;
    }
    return DS_OK;
}

static ds_status iterate(state *s, gsl_matrix *a, gsl_vector *b, gsl_vector *d, ds_error *err) {
    DS_TRY(evaluate(s, s->x, false, s->r, err));
    s->loss = loss_of(s, s->r);
    for (uint32_t i = 0; i < s->fit->max_iterations; i++) {
        double gain, before = s->loss;
        DS_TRY(step(s, a, b, d, &gain, err));
        if (gain > 0 && s->fit->progress) s->fit->progress(s->context, i, s->loss);
        if (gain <= LEAST_GAIN * before) break;
    }
    return DS_OK;
}

static ds_status check_fit(const ds_fit_steps *fit, ds_error *err) {
    if (!fit->n || !fit->n_rows)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%u constants and %u rows: no fit",
                            fit->n, fit->n_rows);
    for (uint32_t k = 0; k < fit->n; k++) {
        if (!(fit->low[k] > 0) || !(fit->low[k] <= fit->high[k]) || !isfinite(fit->high[k]))
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "from %g to %g: no bounds",
                                fit->low[k], fit->high[k]);
        if (fit->spread && fit->spread[k] > 0 && !(fit->prior[k] > 0))
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                "%g: no prior of a positive constant", fit->prior[k]);
    }
    return DS_OK;
}

ds_status ds_fit_steps_run(const ds_fit_steps *fit, ds_fit_residuals residuals, void *context,
                           double *c, double *loss, ds_error *err) {
    DS_TRY(check_fit(fit, err));
    ds_fit__prepare_gsl();
    state s = {.fit = fit, .residuals = residuals, .context = context, .damping = 1e-2};
    s.m = fit->n_rows + (fit->spread ? fit->n : 0);
    size_t n = fit->n, m = s.m;
    s.x = ds_xcalloc(3 * n + 2 * m + n * m, sizeof *s.x);
    s.c = s.x + n;
    s.at = s.c + n;
    s.r = s.at + n;
    s.trial = s.r + m;
    s.jacobian = s.trial + m;
    for (uint32_t k = 0; k < fit->n; k++) s.x[k] = within(fit, k, log(c[k]));
    gsl_matrix *a = gsl_matrix_alloc(n, n);
    gsl_vector *b = gsl_vector_alloc(n), *d = gsl_vector_alloc(n);
    if (!a || !b || !d) ds_out_of_memory(n * n * sizeof(double));
    ds_status status = iterate(&s, a, b, d, err);
    for (uint32_t k = 0; k < fit->n && status == DS_OK; k++) c[k] = exp(s.x[k]);
    *loss = s.loss;
    gsl_vector_free(d);
    gsl_vector_free(b);
    gsl_matrix_free(a);
    free(s.x);
    return status;
}
