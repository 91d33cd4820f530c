/* The constants of products by tiles and waves.
 *
 * The minimum over tiles and the ceiling make the loss a surface with steps and kinks, so a simplex
 * searches. Variables are logarithms, and logits for the two shares, so that no constant leaves its
 * range; the loss of e_max above 1 is BEYOND. */
#include "sim/cost/fit/gemm.h"

#include "ir/base/arena.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { E_MAX, TAIL, PROLOGUE, PORT, E_MEMORY, OVERLAP, LAUNCH, N_VARIABLES };

/* A start of the right order for any GPU; the two shares are kept off 0 and 1. */
static const ds_gemm_model usual = {.e_max = 0.75,
                                    .tail = 0.5,
                                    .prologue = 64,
                                    .port = 0.3,
                                    .e_memory = 0.8,
                                    .overlap = 0.15,
                                    .launch_s = 4e-6};

static double logit(double share) {
    double v = fmin(fmax(share, 0.01), 0.99);
    return log(v / (1 - v));
}

static void to_variables(const ds_gemm_model *m, double *x) {
    x[E_MAX] = log(m->e_max);
    x[TAIL] = logit(m->tail);
    x[PROLOGUE] = log(fmax(m->prologue, 1));
    x[PORT] = log(fmax(m->port, 1e-3));
    x[E_MEMORY] = log(m->e_memory);
    x[OVERLAP] = logit(m->overlap);
    x[LAUNCH] = log(fmax(m->launch_s, 1e-8));
}

/* The rates and processors of m stay. */
static void from_variables(const double *x, ds_gemm_model *m) {
    m->e_max = exp(x[E_MAX]);
    m->tail = 1 / (1 + exp(-x[TAIL]));
    m->prologue = exp(x[PROLOGUE]);
    m->port = exp(x[PORT]);
    m->e_memory = exp(x[E_MEMORY]);
    m->overlap = 1 / (1 + exp(-x[OVERLAP]));
    m->launch_s = exp(x[LAUNCH]);
}

/* ---- one fit ---- */

typedef struct fitting {
    const ds_gemm_row *rows;
    uint32_t n;
    const uint32_t *fold; /* of each row */
    uint32_t left_out;    /* rows of this fold have no part; UINT32_MAX: all have */
    ds_gemm_model model;
} fitting;

double ds_gemm_loss(const ds_gemm_row *rows, uint32_t n, const ds_gemm_model *model) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += ds_fit_loss(ds_gemm_seconds(model, &rows[i].shape, NULL), rows[i].seconds);
    return sum / n;
}

#define BEYOND 1e3 /* the loss outside the range of a constant */

static ds_status loss_of(void *context, const double *x, double *value, ds_error *err) {
    fitting *f = context;
    uint32_t n = 0;
    (void)err;
    from_variables(x, &f->model);
    *value = BEYOND;
    if (f->model.e_max > 1 || !ds_gemm_model_is_valid(&f->model)) return DS_OK;
    *value = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->fold && f->fold[i] == f->left_out) continue;
        *value +=
            ds_fit_loss(ds_gemm_seconds(&f->model, &f->rows[i].shape, NULL), f->rows[i].seconds);
        n++;
    }
    *value /= n ? n : 1;
    return DS_OK;
}

/* Leaves the constants in f->model. */
static ds_status search_from_starts(fitting *f, const double *starts, uint32_t n_starts,
                                    double step, uint32_t iterations, double *loss, ds_error *err) {
    double best[N_VARIABLES];
    ds_fit_search how = {.n = N_VARIABLES,
                         .starts = starts,
                         .n_starts = n_starts,
                         .step = step,
                         .tolerance = 1e-3,
                         .max_iterations = iterations};
    DS_TRY(ds_fit_minimize(&how, loss_of, f, best, loss, err));
    from_variables(best, &f->model);
    return DS_OK;
}

/* ---- cross-validation ---- */

static uint32_t group_of(const ds_gemm_row *row, int what) {
    return what == 0 ? row->shape_group : what == 1 ? row->family : row->size;
}

static ds_status left_out_errors(const fitting *whole, int what, ds_fit_errors *out,
                                 ds_error *err) {
    fitting f = *whole;
    uint32_t most = 0, *fold = ds_xcalloc(f.n, sizeof *fold);
    double *predicted = ds_xcalloc(f.n, sizeof *predicted), start[N_VARIABLES], loss;
    double *measured = ds_xcalloc(f.n, sizeof *measured);
    for (uint32_t i = 0; i < f.n; i++) {
        uint32_t group = group_of(&f.rows[i], what);
        fold[i] = what == 1 ? group : group % DS_FIT_FOLDS;
        if (fold[i] > most) most = fold[i];
        measured[i] = f.rows[i].seconds;
    }
    f.fold = fold;
    to_variables(&whole->model, start);
    ds_status status = DS_OK;
    bool some = most > 0; /* of one fold nothing can be left out */
    for (f.left_out = 0; some && f.left_out <= most && status == DS_OK; f.left_out++) {
        f.model = whole->model;
        status = search_from_starts(&f, start, 1, 0.1, 100, &loss, err);
        for (uint32_t i = 0; i < f.n && status == DS_OK; i++)
            if (fold[i] == f.left_out)
                predicted[i] = ds_gemm_seconds(&f.model, &f.rows[i].shape, NULL);
    }
    if (some && status == DS_OK) *out = ds_fit_errors_of(predicted, measured, f.n);
    free(measured);
    free(predicted);
    free(fold);
    return status;
}

static void put_result(const fitting *f, ds_gemm_fit_result *out) {
    double *predicted = ds_xcalloc(f->n, sizeof *predicted);
    double *measured = ds_xcalloc(f->n, sizeof *measured);
    out->w_min = HUGE_VAL;
    for (uint32_t i = 0; i < f->n; i++) {
        const ds_gemm_shape *s = &f->rows[i].shape;
        double flop = 2 * (double)s->batch * (double)s->m * (double)s->n * (double)s->k;
        out->w_min = fmin(out->w_min, flop);
        out->w_max = fmax(out->w_max, flop);
        predicted[i] = ds_gemm_seconds(&f->model, s, NULL);
        measured[i] = f->rows[i].seconds;
    }
    out->seen = ds_fit_errors_of(predicted, measured, f->n);
    ds_fit_ratios(predicted, measured, f->n, out->ratios);
    free(measured);
    free(predicted);
}

/* ---- the whole ---- */

static ds_status check_products(const ds_gemm_row *rows, uint32_t n, const ds_gemm_model *start,
                                ds_error *err) {
    if (n < DS_FIT_ROWS_PER_CONSTANT * N_VARIABLES)
        return ds_error_set(
            err, DS_ERR_VALUE, DS_NOWHERE,
            "%u rows are too few to fit the %d constants of products: %d are needed", n,
            N_VARIABLES, DS_FIT_ROWS_PER_CONSTANT * N_VARIABLES);
    if (!ds_gemm_model_is_valid(start))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "a fit of products starts at a constant out of its range");
    for (uint32_t i = 0; i < n; i++) {
        const ds_gemm_shape *s = &rows[i].shape;
        if (s->batch < 1 || s->m < 1 || s->n < 1 || s->k < 1 || !(s->element_bytes > 0) ||
            !(rows[i].seconds > 0) || !isfinite(rows[i].seconds))
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                "row %u of a fit of products: %lld x (%lld x %lld x %lld) in %g s",
                                i, (long long)s->batch, (long long)s->m, (long long)s->n,
                                (long long)s->k, rows[i].seconds);
    }
    return DS_OK;
}

ds_status ds_fit_gemm(const ds_gemm_row *rows, uint32_t n, const ds_gemm_model *start,
                      bool validate, ds_gemm_fit_result *out, ds_error *err) {
    double starts[2 * N_VARIABLES];
    *out = (ds_gemm_fit_result){0};
    DS_TRY(check_products(rows, n, start, err));
    fitting f = {.rows = rows, .n = n, .left_out = UINT32_MAX, .model = *start};
    to_variables(start, starts);
    to_variables(&usual, starts + N_VARIABLES);
    /* Without `validate` known constants are checked: does a short search find better ones? */
    DS_TRY(search_from_starts(&f, starts, validate ? 2 : 1, validate ? 0.3 : 0.1,
                              validate ? 400 : 100, &out->loss, err));
    out->model = f.model;
    put_result(&f, out);
    ds_fit_errors *left_out[] = {&out->shape, &out->family, &out->size};
    for (int what = 0; validate && what < 3; what++)
        DS_TRY(left_out_errors(&f, what, left_out[what], err));
    return DS_OK;
}
