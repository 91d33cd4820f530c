/* Efficiency curves by GSL's non-linear least squares, and a simplex search for the rest.
 *
 * The variables are log e_max and log w_half of each curve: both stay positive, and a step means
 * the same at any magnitude. GSL minimises sums of squares only, so a residual r goes in as s(r) =
 * sign(r) sqrt(rho(r)): the sum of s² is the robust loss itself, and no weights have to be
 * iterated. Only the two variables of the larger side of the maximum have a derivative. */
#include "sim/cost/fit/fit.h"

#include "ir/base/arena.h"

#include <gsl/gsl_blas.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <gsl/gsl_multimin.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void switch_handler_off(void) {
    gsl_set_error_handler_off();
}

void ds_fit__prepare_gsl(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, switch_handler_off);
}

static ds_status gsl_failed(int code, const char *what, ds_error *err) {
    if (code == GSL_ENOMEM) ds_out_of_memory(0);
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s: %s", what, gsl_strerror(code));
}

/* ---- errors ---- */

ds_fit_errors ds_fit_errors_of(const double *predicted, const double *measured, uint32_t n) {
    double *error = ds_xcalloc(n, sizeof *error);
    for (uint32_t i = 0; i < n; i++) error[i] = fabs(predicted[i] / measured[i] - 1);
    gsl_sort(error, 1, n);
    ds_fit_errors e = {.mean = gsl_stats_mean(error, 1, n),
                       .median = gsl_stats_median_from_sorted_data(error, 1, n),
                       .p90 = gsl_stats_quantile_from_sorted_data(error, 1, n, 0.9)};
    free(error);
    return e;
}

void ds_fit_ratios(const double *predicted, const double *measured, uint32_t n, double ratios[5]) {
    static const double quantiles[5] = {0.05, 0.25, 0.5, 0.75, 0.95};
    double *ratio = ds_xcalloc(n, sizeof *ratio);
    for (uint32_t i = 0; i < n; i++) ratio[i] = measured[i] / predicted[i];
    gsl_sort(ratio, 1, n);
    for (int q = 0; q < 5; q++)
        ratios[q] = gsl_stats_quantile_from_sorted_data(ratio, 1, n, quantiles[q]);
    free(ratio);
}

/* ---- the model ---- */

/* The curves of a fit with their places among the variables. */
typedef struct model {
    double rate[2];    /* reference of flop and bytes; 0: not fitted */
    uint32_t first[2]; /* index of log e_max; log w_half follows */
    uint32_t n_variables;
} model;

typedef struct problem {
    const model *model;
    const ds_fit_row *const *rows;
    uint32_t n;
} problem;

static model model_of(double flop_per_s, double bytes_per_s) {
    model m = {.rate = {flop_per_s, bytes_per_s}};
    for (int c = 0; c < 2; c++) {
        m.first[c] = m.n_variables;
        if (m.rate[c] > 0) m.n_variables += 2;
    }
    return m;
}

static double work_of(const ds_fit_row *row, int curve) {
    return curve == 0 ? row->flop : row->bytes;
}

/* log of the predicted time; *curve is the larger side of the maximum. */
static double log_time(const model *m, const gsl_vector *x, const ds_fit_row *row, int *curve) {
    double best = -HUGE_VAL;
    for (int c = 0; c < 2; c++) {
        if (!(m->rate[c] > 0)) continue;
        double log_e = gsl_vector_get(x, m->first[c]);
        double w_half = exp(gsl_vector_get(x, m->first[c] + 1));
        double t = log((work_of(row, c) + w_half) / m->rate[c]) - log_e;
        if (t <= best) continue;
        best = t;
        *curve = c;
    }
    return best;
}

static double residual(const problem *p, const gsl_vector *x, uint32_t i, int *curve) {
    return log_time(p->model, x, p->rows[i], curve) - log(p->rows[i]->seconds);
}

static double loss_of(double r) {
    double q = r / DS_FIT_SCALE;
    return DS_FIT_SCALE * DS_FIT_SCALE * log1p(q * q);
}

double ds_fit_loss(double predicted, double measured) {
    return loss_of(log(predicted / measured));
}

/* s(r) = sign(r) sqrt(loss(r)), and ds/dr = r / (s (1 + (r/c)²)), 1 at 0. */
static double softened(double r, double *slope) {
    double q = r / DS_FIT_SCALE, s = copysign(sqrt(loss_of(r)), r);
    if (slope) *slope = fabs(q) < 1e-8 ? 1 : r / (s * (1 + q * q));
    return s;
}

static int residuals(const gsl_vector *x, void *context, gsl_vector *f) {
    const problem *p = context;
    int curve = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        double s = softened(residual(p, x, i, &curve), NULL);
        if (!isfinite(s)) return GSL_EDOM;
        gsl_vector_set(f, i, s);
    }
    return GSL_SUCCESS;
}

/* d log t / d log e_max = −1, d log t / d log w_half = w_half/(w + w_half). */
static int derivatives(const gsl_vector *x, void *context, gsl_matrix *jacobian) {
    const problem *p = context;
    gsl_matrix_set_zero(jacobian);
    for (uint32_t i = 0; i < p->n; i++) {
        int c = 0;
        double slope;
        softened(residual(p, x, i, &c), &slope);
        uint32_t at = p->model->first[c];
        double w_half = exp(gsl_vector_get(x, at + 1));
        gsl_matrix_set(jacobian, i, at, -slope);
        gsl_matrix_set(jacobian, i, at + 1, slope * w_half / (work_of(p->rows[i], c) + w_half));
    }
    return GSL_SUCCESS;
}

/* ---- one fit ---- */

/* Starts of a search: e_max of the best row (the 90th percentile, against outliers), and the fixed
 * time of the shortest row, or a tenth of that time. Two curves: all four combinations. */
#define MAX_STARTS 4

static double efficiency_90(const problem *p, int curve) {
    double *e = ds_xcalloc(p->n, sizeof *e);
    for (uint32_t i = 0; i < p->n; i++)
        e[i] = work_of(p->rows[i], curve) / (p->model->rate[curve] * p->rows[i]->seconds);
    gsl_sort(e, 1, p->n);
    double q = gsl_stats_quantile_from_sorted_data(e, 1, p->n, 0.9);
    free(e);
    return q;
}

static void set_start(const problem *p, uint32_t start, gsl_vector *x) {
    double shortest = HUGE_VAL;
    for (uint32_t i = 0; i < p->n; i++) shortest = fmin(shortest, p->rows[i]->seconds);
    uint32_t bits = start;
    for (int c = 0; c < 2; c++) {
        if (!(p->model->rate[c] > 0)) continue;
        double e = efficiency_90(p, c), fixed = shortest * (bits & 1 ? 0.1 : 1);
        gsl_vector_set(x, p->model->first[c], log(e));
        gsl_vector_set(x, p->model->first[c] + 1, log(fixed * p->model->rate[c] * e));
        bits >>= 1;
    }
}

#define MAX_ITERATIONS 500
#define SETTLED        1e-6 /* of the loss: a change over MAX_ITERATIONS that counts as none */

static int loss_at(const gsl_multifit_nlinear_workspace *w, double *loss) {
    gsl_vector *f = gsl_multifit_nlinear_residual(w);
    return gsl_blas_ddot(f, f, loss);
}

/* Descends from one start; *loss is the sum of squares at the end. GSL_ENOPROG: no step makes the
 * loss smaller, which is how a minimum at a kink of the maximum looks. GSL_EMAXITER: a constant
 * that the rows do not determine runs away (a fixed time that no row shows goes to zero, its
 * logarithm to −∞); the end is a minimum, too, if the loss has settled. */
static int descend(gsl_multifit_nlinear_workspace *w, gsl_multifit_nlinear_fdf *fdf,
                   const gsl_vector *start, double *loss) {
    int info = 0, rounds = 0;
    double before = HUGE_VAL;
    int code = gsl_multifit_nlinear_init(start, fdf, w);
    while (code == GSL_SUCCESS && rounds++ < 2) {
        code = gsl_multifit_nlinear_driver(MAX_ITERATIONS, 1e-10, 1e-10, 0, NULL, NULL, &info, w);
        if (code != GSL_EMAXITER) break;
        code = loss_at(w, loss);
        if (code != GSL_SUCCESS || before - *loss < SETTLED * *loss) return code;
        before = *loss;
    }
    if (rounds > 2) return GSL_EMAXITER;
    if (code != GSL_SUCCESS && code != GSL_ENOPROG) return code;
    return loss_at(w, loss);
}

/* Leaves the best of all starts in x. */
static int best_of_starts(problem *p, gsl_vector *x) {
    gsl_multifit_nlinear_parameters parameters = gsl_multifit_nlinear_default_parameters();
    gsl_multifit_nlinear_fdf fdf = {
        .f = residuals, .df = derivatives, .n = p->n, .p = p->model->n_variables, .params = p};
    gsl_multifit_nlinear_workspace *w = gsl_multifit_nlinear_alloc(
        gsl_multifit_nlinear_trust, &parameters, p->n, p->model->n_variables);
    gsl_vector *start = gsl_vector_alloc(p->model->n_variables);
    double best = HUGE_VAL, loss;
    int code = w && start ? GSL_SUCCESS : GSL_ENOMEM;
    uint32_t n_starts = p->model->n_variables == MAX_STARTS ? MAX_STARTS : 2;
    for (uint32_t s = 0; code == GSL_SUCCESS && s < n_starts; s++) {
        set_start(p, s, start);
        code = descend(w, &fdf, start, &loss);
        if (code != GSL_SUCCESS || !(loss < best)) continue;
        best = loss;
        gsl_vector_memcpy(x, gsl_multifit_nlinear_position(w));
    }
    gsl_vector_free(start);
    gsl_multifit_nlinear_free(w);
    return code;
}

/* Sets x to the constants that fit the rows of p. */
static ds_status fit(problem *p, gsl_vector *x, ds_error *err) {
    int code = best_of_starts(p, x);
    return code == GSL_SUCCESS ? DS_OK : gsl_failed(code, "efficiency fit", err);
}

/* ---- checks ---- */

static bool positive(double v) {
    return v > 0 && isfinite(v);
}

static ds_status check_row(const model *m, const ds_fit_row *row, uint32_t i, ds_error *err) {
    if (positive(row->seconds) && (!(m->rate[0] > 0) || positive(row->flop)) &&
        (!(m->rate[1] > 0) || positive(row->bytes)))
        return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                        "row %u of a fit: %g FLOP, %g bytes, %g s; each must be positive", i,
                        row->flop, row->bytes, row->seconds);
}

static ds_status check_rows(const model *m, const ds_fit_row *rows, uint32_t n, ds_error *err) {
    uint32_t need = DS_FIT_ROWS_PER_CONSTANT * m->n_variables;
    if (!need)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "a fit of no curve: no reference rate");
    if (n < need)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "%u rows are too few to fit %u constants: %u are needed", n,
                            m->n_variables, need);
    for (uint32_t i = 0; i < n; i++) DS_TRY(check_row(m, &rows[i], i, err));
    return DS_OK;
}

static ds_status set_range(const ds_fit_row *rows, uint32_t n, int curve, ds_fit_curve *out,
                           ds_error *err) {
    out->w_min = HUGE_VAL;
    for (uint32_t i = 0; i < n; i++) {
        out->w_min = fmin(out->w_min, work_of(&rows[i], curve));
        out->w_max = fmax(out->w_max, work_of(&rows[i], curve));
    }
    if (out->w_min < out->w_max) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                        "all %u rows have %g %s: one size does not make a curve", n, out->w_min,
                        curve == 0 ? "FLOP" : "bytes");
}

/* ---- folds ---- */

static int by_number(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Sets fold[i] of every row; returns the number of folds, 1 for a single group. */
static uint32_t deal(const ds_fit_row *rows, uint32_t n, uint32_t *fold) {
    uint32_t *groups = ds_xcalloc(n, sizeof *groups), n_groups = 0;
    for (uint32_t i = 0; i < n; i++) groups[i] = rows[i].group;
    qsort(groups, n, sizeof *groups, by_number);
    for (uint32_t i = 0; i < n; i++)
        if (!n_groups || groups[n_groups - 1] != groups[i]) groups[n_groups++] = groups[i];
    uint32_t n_folds = n_groups < DS_FIT_FOLDS ? n_groups : DS_FIT_FOLDS;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *at = bsearch(&rows[i].group, groups, n_groups, sizeof *groups, by_number);
        fold[i] = (uint32_t)(at - groups) % n_folds;
    }
    free(groups);
    return n_folds;
}

/* A fit in progress: rows, their folds and predictions. */
typedef struct work {
    const ds_fit_row *rows;
    uint32_t n, n_folds, *fold;
    const ds_fit_row **chosen;
    double *predicted, *measured;
    gsl_vector *x;
} work;

static void predict_fold(const work *w, const model *m, uint32_t fold) {
    for (uint32_t i = 0; i < w->n; i++) {
        int curve;
        if (fold != UINT32_MAX && w->fold[i] != fold) continue;
        w->predicted[i] = exp(log_time(m, w->x, &w->rows[i], &curve));
    }
}

/* Fits to the rows of other folds and predicts the rows of `fold`; UINT32_MAX: all rows, both. */
static ds_status fit_without(const work *w, const model *m, uint32_t fold, ds_error *err) {
    problem p = {.model = m, .rows = w->chosen};
    for (uint32_t i = 0; i < w->n; i++)
        if (w->fold[i] != fold) w->chosen[p.n++] = &w->rows[i];
    if (p.n < m->n_variables)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "only %u of %u rows are left without fold %u: groups are too uneven",
                            p.n, w->n, fold);
    DS_TRY(fit(&p, w->x, err));
    predict_fold(w, m, fold);
    return DS_OK;
}

static ds_status fit_all(work *w, const model *m, ds_fit_roofline *out, ds_error *err) {
    if (w->n_folds < 2)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "%u rows of one group: nothing can be left out of a fit", w->n);
    for (uint32_t k = 0; k < w->n_folds; k++) DS_TRY(fit_without(w, m, k, err));
    out->unseen = ds_fit_errors_of(w->predicted, w->measured, w->n);
    DS_TRY(fit_without(w, m, UINT32_MAX, err));
    out->seen = ds_fit_errors_of(w->predicted, w->measured, w->n);
    ds_fit_ratios(w->predicted, w->measured, w->n, out->ratios);
    return DS_OK;
}

ds_status ds_fit_efficiency(const ds_fit_row *rows, uint32_t n, double flop_per_s,
                            double bytes_per_s, ds_fit_roofline *out, ds_error *err) {
    ds_fit__prepare_gsl();
    model m = model_of(flop_per_s, bytes_per_s);
    *out = (ds_fit_roofline){.n_rows = n};
    ds_fit_curve *curves[] = {&out->flop, &out->bytes};
    DS_TRY(check_rows(&m, rows, n, err));
    for (int c = 0; c < 2; c++)
        if (m.rate[c] > 0) DS_TRY(set_range(rows, n, c, curves[c], err));
    work w = {.rows = rows, .n = n};
    w.fold = ds_xcalloc(n, sizeof *w.fold);
    w.chosen = ds_xcalloc(n, sizeof *w.chosen);
    w.predicted = ds_xcalloc(n, sizeof *w.predicted);
    w.measured = ds_xcalloc(n, sizeof *w.measured);
    for (uint32_t i = 0; i < n; i++) w.measured[i] = rows[i].seconds;
    w.n_folds = out->n_folds = deal(rows, n, w.fold);
    w.x = gsl_vector_alloc(m.n_variables);
    ds_status status =
        w.x ? fit_all(&w, &m, out, err) : gsl_failed(GSL_ENOMEM, "efficiency fit", err);
    for (int c = 0; status == DS_OK && c < 2; c++) {
        if (!(m.rate[c] > 0)) continue;
        curves[c]->reference_per_s = m.rate[c];
        curves[c]->e_max = exp(gsl_vector_get(w.x, m.first[c]));
        curves[c]->w_half = exp(gsl_vector_get(w.x, m.first[c] + 1));
    }
    gsl_vector_free(w.x);
    free(w.measured);
    free(w.predicted);
    free(w.chosen);
    free(w.fold);
    return status;
}

/* ---- simplex search ---- */

typedef struct target {
    ds_fit_objective objective;
    void *context;
    ds_status status; /* first error of the objective */
    ds_error *err;
} target;

static double evaluate(const gsl_vector *x, void *context) {
    target *t = context;
    double value = GSL_NAN;
    if (t->status == DS_OK)
        t->status = t->objective(t->context, gsl_vector_const_ptr(x, 0), &value, t->err);
    return t->status == DS_OK ? value : GSL_NAN;
}

typedef struct simplex {
    gsl_multimin_fminimizer *minimizer;
    gsl_multimin_function function;
    gsl_vector *x, *step;
    target *target;
} simplex;

/* One simplex from s->x; leaves the best point in s->x. */
static ds_status contract(simplex *s, const ds_fit_search *search, ds_error *err) {
    gsl_vector_set_all(s->step, search->step);
    int code = gsl_multimin_fminimizer_set(s->minimizer, &s->function, s->x, s->step);
    for (uint32_t i = 0; code == GSL_SUCCESS && i < search->max_iterations; i++) {
        code = gsl_multimin_fminimizer_iterate(s->minimizer);
        if (gsl_multimin_fminimizer_size(s->minimizer) < search->tolerance) break;
    }
    DS_TRY(s->target->status);
    if (code != GSL_SUCCESS) return gsl_failed(code, "simplex search", err);
    gsl_vector_memcpy(s->x, gsl_multimin_fminimizer_x(s->minimizer));
    return DS_OK;
}

/* Fresh simplices until one gains less than a ten-thousandth: a simplex can flatten and stop short.
 */
static ds_status descend_simplex(simplex *s, const ds_fit_search *search, const double *start,
                                 double *value, ds_error *err) {
    double before;
    *value = HUGE_VAL;
    for (uint32_t i = 0; i < search->n; i++) gsl_vector_set(s->x, i, start[i]);
    do {
        before = *value;
        DS_TRY(contract(s, search, err));
        *value = gsl_multimin_fminimizer_minimum(s->minimizer);
    } while (before - *value > 1e-4 * fabs(*value));
    return DS_OK;
}

static ds_status search_all(simplex *s, const ds_fit_search *search, double *best, double *value,
                            ds_error *err) {
    *value = HUGE_VAL;
    for (uint32_t k = 0; k < search->n_starts; k++) {
        double found;
        DS_TRY(descend_simplex(s, search, &search->starts[(size_t)k * search->n], &found, err));
        if (!(found < *value)) continue;
        *value = found;
        for (uint32_t i = 0; i < search->n; i++) best[i] = gsl_vector_get(s->x, i);
    }
    return DS_OK;
}

ds_status ds_fit_minimize(const ds_fit_search *search, ds_fit_objective objective, void *context,
                          double *best, double *value, ds_error *err) {
    ds_fit__prepare_gsl();
    if (!search->n || !search->n_starts || !positive(search->step) || !positive(search->tolerance))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "a search over %u variables from %u starts with step %g to size %g",
                            search->n, search->n_starts, search->step, search->tolerance);
    target t = {.objective = objective, .context = context, .err = err};
    simplex s = {.function = {.f = evaluate, .n = search->n, .params = &t}, .target = &t};
    s.minimizer = gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, search->n);
    s.x = gsl_vector_alloc(search->n);
    s.step = gsl_vector_alloc(search->n);
    ds_status status = s.minimizer && s.x && s.step ? search_all(&s, search, best, value, err)
                                                    : gsl_failed(GSL_ENOMEM, "simplex search", err);
    gsl_vector_free(s.step);
    gsl_vector_free(s.x);
    gsl_multimin_fminimizer_free(s.minimizer);
    return status;
}
