/* The constants of products by tiles and waves.
 *
 * The minimum over tiles and the ceiling make the loss a surface with steps and kinks, so a simplex
 * searches. Variables are logarithms, and logits for the two shares, so that no constant leaves its
 * range; the loss of shares of a peak above 1, and of constants that mean nothing, is BEYOND. */
#include "sim/cost/fit/gemm.h"

#include "ir/base/arena.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    E_MAX,
    TAIL,
    PROLOGUE,
    PORT,
    E_MEMORY,
    OVERLAP,
    LAUNCH,
    N_OLDER,
    LONE = N_OLDER, /* from here on with `resident` alone */
    CUT,
    SAG,
    SAG_S,
    CONVERT, /* from here on with conversions alone */
    CONVERT_RATE,
    MOST_VARIABLES
};

typedef struct constants {
    ds_gemm_model model;
    ds_gemm_conversion conversion;
} constants;

/* A start of the right order for any GPU; the two shares are kept off 0 and 1. */
static const ds_gemm_model usual = {.e_max = 0.75,
                                    .tail = 0.5,
                                    .prologue = 64,
                                    .port = 0.3,
                                    .e_memory = 0.8,
                                    .overlap = 0.15,
                                    .launch_s = 4e-6,
                                    .lone = 1,
                                    .cut_s = 1e-6,
                                    .sag = 0.05,
                                    .sag_s = 2e-3};
#define USUAL_CONVERT_S 5e-6
#define USUAL_CONVERT_E 0.6 /* of the memory bandwidth */

static double logit(double share) {
    double v = fmin(fmax(share, 0.01), 0.99);
    return log(v / (1 - v));
}

static void to_variables(const constants *c, double *x) {
    const ds_gemm_model *m = &c->model;
    x[E_MAX] = log(m->e_max);
    x[TAIL] = logit(m->tail);
    x[PROLOGUE] = log(fmax(m->prologue, 1));
    x[PORT] = log(fmax(m->port, 1e-3));
    x[E_MEMORY] = log(m->e_memory);
    x[OVERLAP] = logit(m->overlap);
    x[LAUNCH] = log(fmax(m->launch_s, 1e-8));
    x[LONE] = log(fmax(m->lone, 1e-3));
    x[CUT] = log(fmax(m->cut_s, 1e-8));
    x[SAG] = log(fmax(m->sag, 1e-3));
    x[SAG_S] = log(fmax(m->sag_s, 1e-6));
    x[CONVERT] = log(fmax(c->conversion.seconds, 1e-8));
    x[CONVERT_RATE] = log(fmax(c->conversion.bytes_per_s, 1));
}

/* ---- one fit ---- */

typedef struct fitting {
    const ds_gemm_row *rows;
    uint32_t n;
    const uint32_t *fold; /* of each row */
    uint32_t left_out;    /* rows of this fold have no part; UINT32_MAX: all have */
    uint32_t variables[MOST_VARIABLES], n_variables;
    constants at;
} fitting;

static void set_variable(constants *c, uint32_t variable, double x) {
    ds_gemm_model *m = &c->model;
    double *const to[] = {[E_MAX] = &m->e_max,
                          [TAIL] = &m->tail,
                          [PROLOGUE] = &m->prologue,
                          [PORT] = &m->port,
                          [E_MEMORY] = &m->e_memory,
                          [OVERLAP] = &m->overlap,
                          [LAUNCH] = &m->launch_s,
                          [LONE] = &m->lone,
                          [CUT] = &m->cut_s,
                          [SAG] = &m->sag,
                          [SAG_S] = &m->sag_s,
                          [CONVERT] = &c->conversion.seconds,
                          [CONVERT_RATE] = &c->conversion.bytes_per_s};
    bool is_share = variable == TAIL || variable == OVERLAP;
    *to[variable] = is_share ? 1 / (1 + exp(-x)) : exp(x);
}

/* What the search moves; the rates and processors stay. */
static void choose_variables(fitting *f, const ds_gemm_fit_start *start) {
    for (uint32_t v = 0; v < MOST_VARIABLES; v++) {
        if (v == LAUNCH && start->keeps_launch) continue;
        if (v >= LONE && v < CONVERT && !start->model.resident) continue;
        if (v >= CONVERT && !(start->conversion.bytes_per_s > 0)) continue;
        f->variables[f->n_variables++] = v;
    }
}

static void put_variables(const fitting *f, const constants *c, double *x) {
    double all[MOST_VARIABLES];
    to_variables(c, all);
    for (uint32_t i = 0; i < f->n_variables; i++) x[i] = all[f->variables[i]];
}

double ds_gemm_row_seconds(const ds_gemm_row *row, const ds_gemm_model *model,
                           const ds_gemm_conversion *conversion) {
    double seconds = ds_gemm_seconds(model, &row->shape, NULL);
    if (!(row->converted_bytes > 0) || !(conversion->bytes_per_s > 0)) return seconds;
    return seconds + conversion->seconds + row->converted_bytes / conversion->bytes_per_s;
}

static double seconds_of(const fitting *f, uint32_t row) {
    return ds_gemm_row_seconds(&f->rows[row], &f->at.model, &f->at.conversion);
}

double ds_gemm_loss(const ds_gemm_row *rows, uint32_t n, const ds_gemm_model *model,
                    const ds_gemm_conversion *conversion) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += ds_fit_loss(ds_gemm_row_seconds(&rows[i], model, conversion), rows[i].seconds);
    return sum / n;
}

#define BEYOND   1e3 /* the loss outside the range of a constant */
#define MOST_SAG 0.5 /* a clock below two thirds of the boost is another device */
#define MOST     1e3 /* of what is a number of the order of 1 */

static bool is_in_range(const constants *c) {
    const ds_gemm_model *m = &c->model;
    if (m->e_max > 1 || !ds_gemm_model_is_valid(m)) return false;
    if (!m->resident) return true;
    return m->e_memory <= 1 && m->sag <= MOST_SAG && m->sag_s <= 1 && m->lone < MOST &&
           m->port < MOST && c->conversion.bytes_per_s <= 2 * m->bytes_per_s;
}

static ds_status loss_of(void *context, const double *x, double *value, ds_error *err) {
    fitting *f = context;
    uint32_t n = 0;
    (void)err;
    for (uint32_t i = 0; i < f->n_variables; i++) set_variable(&f->at, f->variables[i], x[i]);
    *value = BEYOND;
    if (!is_in_range(&f->at)) return DS_OK;
    *value = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->fold && f->fold[i] == f->left_out) continue;
        *value += ds_fit_loss(seconds_of(f, i), f->rows[i].seconds);
        n++;
    }
    *value /= n ? n : 1;
    return DS_OK;
}

/* Leaves the constants in f->at. */
static ds_status search_from_starts(fitting *f, const double *starts, uint32_t n_starts,
                                    double step, uint32_t iterations, double *loss, ds_error *err) {
    double best[MOST_VARIABLES];
    ds_fit_search how = {.n = f->n_variables,
                         .starts = starts,
                         .n_starts = n_starts,
                         .step = step,
                         .tolerance = 1e-3,
                         .max_iterations = iterations};
    DS_TRY(ds_fit_minimize(&how, loss_of, f, best, loss, err));
    for (uint32_t i = 0; i < f->n_variables; i++) set_variable(&f->at, f->variables[i], best[i]);
    return DS_OK;
}

/* ---- cross-validation ---- */

enum { BY_SHAPE, BY_FAMILY, BY_SIZE, N_WAYS };

static uint32_t group_of(const ds_gemm_row *row, int what) {
    return what == BY_SHAPE ? row->shape_group : what == BY_FAMILY ? row->family : row->size;
}

static void put_errors(const fitting *f, int what, const double *predicted,
                       ds_gemm_fit_result *out) {
    ds_fit_errors *of[] = {&out->shape, &out->family, &out->size};
    double *measured = ds_xcalloc(f->n, sizeof *measured);
    for (uint32_t i = 0; i < f->n; i++) measured[i] = f->rows[i].seconds;
    *of[what] = ds_fit_errors_of(predicted, measured, f->n);
    if (what == BY_SHAPE && f->at.model.resident)
        ds_fit_ratios(predicted, measured, f->n, out->ratios);
    free(measured);
}

static ds_status left_out_errors(const fitting *whole, int what, ds_gemm_fit_result *out,
                                 ds_error *err) {
    fitting f = *whole;
    uint32_t most = 0, *fold = ds_xcalloc(f.n, sizeof *fold);
    double *predicted = ds_xcalloc(f.n, sizeof *predicted), start[MOST_VARIABLES], loss;
    for (uint32_t i = 0; i < f.n; i++) {
        uint32_t group = group_of(&f.rows[i], what);
        fold[i] = what == BY_FAMILY ? group : group % DS_FIT_FOLDS;
        if (fold[i] > most) most = fold[i];
    }
    f.fold = fold;
    put_variables(whole, &whole->at, start);
    ds_status status = DS_OK;
    bool some = most > 0; /* of one fold nothing can be left out */
    for (f.left_out = 0; some && f.left_out <= most && status == DS_OK; f.left_out++) {
        f.at = whole->at;
        status = search_from_starts(&f, start, 1, 0.1, 100, &loss, err);
        for (uint32_t i = 0; i < f.n && status == DS_OK; i++)
            if (fold[i] == f.left_out) predicted[i] = seconds_of(&f, i);
    }
    if (some && status == DS_OK) put_errors(whole, what, predicted, out);
    free(predicted);
    free(fold);
    return status;
}

static void put_result(const fitting *f, ds_gemm_fit_result *out) {
    double *predicted = ds_xcalloc(f->n, sizeof *predicted);
    double *measured = ds_xcalloc(f->n, sizeof *measured);
    out->model = f->at.model;
    out->conversion = f->at.conversion;
    out->w_min = HUGE_VAL;
    for (uint32_t i = 0; i < f->n; i++) {
        const ds_gemm_shape *s = &f->rows[i].shape;
        double flop = 2 * (double)s->batch * (double)s->m * (double)s->n * (double)s->k;
        out->w_min = fmin(out->w_min, flop);
        out->w_max = fmax(out->w_max, flop);
        predicted[i] = seconds_of(f, i);
        measured[i] = f->rows[i].seconds;
    }
    out->seen = ds_fit_errors_of(predicted, measured, f->n);
    ds_fit_ratios(predicted, measured, f->n, out->ratios);
    free(measured);
    free(predicted);
}

/* ---- the whole ---- */

static ds_status check_products(const fitting *f, ds_error *err) {
    if (f->n < DS_FIT_ROWS_PER_CONSTANT * f->n_variables)
        return ds_error_set(
            err, DS_ERR_VALUE, DS_NOWHERE,
            "%u rows are too few to fit the %u constants of products: %u are needed", f->n,
            f->n_variables, DS_FIT_ROWS_PER_CONSTANT * f->n_variables);
    if (!ds_gemm_model_is_valid(&f->at.model))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "a fit of products starts at a constant out of its range");
    for (uint32_t i = 0; i < f->n; i++) {
        const ds_gemm_row *row = &f->rows[i];
        const ds_gemm_shape *s = &row->shape;
        if (s->batch < 1 || s->m < 1 || s->n < 1 || s->k < 1 || !(s->element_bytes > 0) ||
            !(s->result_bytes > 0) || !(row->converted_bytes >= 0) || !(row->seconds > 0) ||
            !isfinite(row->seconds))
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                "row %u of a fit of products: %lld x (%lld x %lld x %lld) in %g s",
                                i, (long long)s->batch, (long long)s->m, (long long)s->n,
                                (long long)s->k, row->seconds);
    }
    return DS_OK;
}

/* The usual constants with the processors and rates of the start, and what it keeps. */
static constants usual_constants(const ds_gemm_fit_start *start) {
    constants c = {.model = usual,
                   .conversion = {USUAL_CONVERT_S, USUAL_CONVERT_E * start->model.bytes_per_s}};
    c.model.launch_s = start->keeps_launch ? start->model.launch_s : usual.launch_s;
    return c;
}

ds_status ds_fit_gemm(const ds_gemm_row *rows, uint32_t n, const ds_gemm_fit_start *start,
                      ds_gemm_fit_result *out, ds_error *err) {
    double starts[2 * MOST_VARIABLES];
    *out = (ds_gemm_fit_result){0};
    fitting f = {.rows = rows,
                 .n = n,
                 .left_out = UINT32_MAX,
                 .at = {.model = start->model, .conversion = start->conversion}};
    choose_variables(&f, start);
    DS_TRY(check_products(&f, err));
    constants other = usual_constants(start);
    put_variables(&f, &f.at, starts);
    put_variables(&f, &other, starts + f.n_variables);
    /* Without `validate` known constants are checked: does a short search find better ones? */
    uint32_t iterations = start->model.resident ? 1500 : 400;
    DS_TRY(search_from_starts(&f, starts, start->validate ? 2 : 1, start->validate ? 0.3 : 0.1,
                              start->validate ? iterations : 100, &out->loss, err));
    put_result(&f, out);
    for (int what = 0; start->validate && what < N_WAYS; what++)
        DS_TRY(left_out_errors(&f, what, out, err));
    return DS_OK;
}
