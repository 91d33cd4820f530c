/* The constants of attention by blocks and waves: a simplex search, as of products (gemm.c), with a
 * prior for each constant. */
#include "sim/cost/fit/attention.h"

#include "ir/base/arena.h"

#include <math.h>
#include <stdlib.h>

enum { E_MAX, SCORE, PROLOGUE, TAIL, E_MEMORY, OVERLAP, LAUNCH, TOKEN, N_VARIABLES };

/* The prior: medians over the kernels of tests/data/ops/attention.csv that have over 100 rows, and
 * how far the kernels lie apart, as a standard deviation of the logarithm (of the shares: of the
 * logit). */
static const ds_attention_model usual = {.e_max = 0.7,
                                         .score = 60,
                                         .prologue = 200,
                                         .tail = 0.35,
                                         .e_memory = 0.6,
                                         .overlap = 0.4,
                                         .launch_s = 5e-6,
                                         .token_s = 3e-10};
static const double apart[N_VARIABLES] = {0.4, 1, 1, 1.5, 0.7, 1.5, 0.7, 1};

static double logit(double share) {
    double v = fmin(fmax(share, 0.01), 0.99);
    return log(v / (1 - v));
}

static void to_variables(const ds_attention_model *m, double *x) {
    x[E_MAX] = log(m->e_max);
    x[SCORE] = log(fmax(m->score, 1));
    x[PROLOGUE] = log(fmax(m->prologue, 1));
    x[TAIL] = logit(m->tail);
    x[E_MEMORY] = log(m->e_memory);
    x[OVERLAP] = logit(m->overlap);
    x[LAUNCH] = log(fmax(m->launch_s, 1e-8));
    x[TOKEN] = log(fmax(m->token_s, 1e-12));
}

/* The rates and blocks of m stay. */
static void from_variables(const double *x, bool token, ds_attention_model *m) {
    m->e_max = exp(x[E_MAX]);
    m->score = exp(x[SCORE]);
    m->prologue = exp(x[PROLOGUE]);
    m->tail = 1 / (1 + exp(-x[TAIL]));
    m->e_memory = exp(x[E_MEMORY]);
    m->overlap = 1 / (1 + exp(-x[OVERLAP]));
    m->launch_s = exp(x[LAUNCH]);
    m->token_s = token ? exp(x[TOKEN]) : 0;
}

/* ---- one fit ---- */

typedef struct fitting {
    const ds_attention_row *rows;
    uint32_t n;
    const uint32_t *fold; /* of each row; NULL: nothing is left out */
    uint32_t left_out;
    bool token; /* is the last constant fitted? */
    ds_attention_model model;
} fitting;

static uint32_t n_variables(const fitting *f) {
    return f->token ? N_VARIABLES : TOKEN;
}

static double prior_of(const double *x, uint32_t n) {
    double at[N_VARIABLES], sum = 0;
    to_variables(&usual, at);
    for (uint32_t i = 0; i < n; i++) {
        double z = (x[i] - at[i]) / apart[i];
        sum += DS_FIT_SCALE * DS_FIT_SCALE * z * z;
    }
    return sum;
}

static double seconds_of(const ds_attention_row *row, const ds_attention_model *m) {
    return ds_attention_seconds(m, &row->shape, NULL) + row->other_s;
}

static double loss_at(const fitting *f, const ds_attention_model *m, const double *x) {
    double sum = prior_of(x, n_variables(f));
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->fold && f->fold[i] == f->left_out) continue;
        sum += ds_fit_loss(seconds_of(&f->rows[i], m), f->rows[i].seconds);
        n++;
    }
    return sum / (n ? n : 1);
}

double ds_attention_loss(const ds_attention_row *rows, uint32_t n, const ds_attention_model *m) {
    fitting f = {.rows = rows, .n = n, .token = m->token_s > 0};
    double x[N_VARIABLES];
    to_variables(m, x);
    return loss_at(&f, m, x);
}

#define BEYOND 1e3 /* the loss outside the range of a constant */

static ds_status loss_of(void *context, const double *x, double *value, ds_error *err) {
    fitting *f = context;
    (void)err;
    from_variables(x, f->token, &f->model);
    bool valid =
        f->model.e_max <= 1 && f->model.e_memory <= 1 && ds_attention_model_is_valid(&f->model);
    *value = valid ? loss_at(f, &f->model, x) : BEYOND;
    return DS_OK;
}

/* Leaves the constants in f->model. */
static ds_status search(fitting *f, const double *starts, uint32_t n_starts, double step,
                        uint32_t iterations, double *loss, ds_error *err) {
    double best[N_VARIABLES];
    ds_fit_search how = {.n = n_variables(f),
                         .starts = starts,
                         .n_starts = n_starts,
                         .step = step,
                         .tolerance = 1e-3,
                         .max_iterations = iterations};
    DS_TRY(ds_fit_minimize(&how, loss_of, f, best, loss, err));
    from_variables(best, f->token, &f->model);
    return DS_OK;
}

/* ---- cross-validation ---- */

/* Puts predictions of the rows by constants found without their group where there is more than one
 * group; returns whether there is. */
static ds_status leave_out(const fitting *whole, bool by_size, double *predicted, bool *any,
                           ds_error *err) {
    fitting f = *whole;
    uint32_t most = 0, *fold = ds_xcalloc(f.n, sizeof *fold);
    double start[N_VARIABLES], loss;
    for (uint32_t i = 0; i < f.n; i++) {
        fold[i] = by_size ? f.rows[i].size : f.rows[i].family;
        if (fold[i] > most) most = fold[i];
    }
    f.fold = fold;
    to_variables(&whole->model, start);
    ds_status status = DS_OK;
    *any = most > 0;
    for (f.left_out = 0; *any && f.left_out <= most && status == DS_OK; f.left_out++) {
        f.model = whole->model;
        status = search(&f, start, 1, 0.1, 300, &loss, err);
        for (uint32_t i = 0; i < f.n && status == DS_OK; i++)
            if (fold[i] == f.left_out) predicted[i] = seconds_of(&f.rows[i], &f.model);
    }
    free(fold);
    return status;
}

/* The errors of rows left out, and the ratios of both kinds together. */
static ds_status validate_fit(const fitting *f, const double *measured,
                              ds_attention_fit_result *out, ds_error *err) {
    double *predicted = ds_xcalloc(2 * (size_t)f->n, sizeof *predicted);
    double *twice = ds_xcalloc(2 * (size_t)f->n, sizeof *twice);
    ds_status status = DS_OK;
    uint32_t n = 0;
    for (int by_size = 0; by_size < 2 && status == DS_OK; by_size++) {
        bool any;
        status = leave_out(f, by_size, predicted + n, &any, err);
        if (status != DS_OK || !any) continue;
        *(by_size ? &out->size : &out->family) = ds_fit_errors_of(predicted + n, measured, f->n);
        for (uint32_t i = 0; i < f->n; i++) twice[n + i] = measured[i];
        n += f->n;
    }
    if (status == DS_OK && n) ds_fit_ratios(predicted, twice, n, out->ratios);
    free(twice);
    free(predicted);
    return status;
}

double ds_attention_flop(const ds_attention_shape *s) {
    double q = (double)s->seq_q, t = (double)s->seq_kv, w = (double)s->window, pairs = q * t;
    if (s->causal) pairs = t >= q ? q * (t - q) + q * q / 2 : t * t / 2;
    if (s->window && w < t && s->causal) pairs = q >= w ? q * w - w * w / 2 : q * w;
    double dims =
        (double)(s->backward ? 3 * s->head_dim + 2 * s->value_dim : s->head_dim + s->value_dim);
    return 2 * (double)s->batch * (double)s->heads * pairs * dims;
}

static ds_status put_result(const fitting *f, bool validate, ds_attention_fit_result *out,
                            ds_error *err) {
    double *predicted = ds_xcalloc(f->n, sizeof *predicted);
    double *measured = ds_xcalloc(f->n, sizeof *measured);
    out->model = f->model;
    out->w_min = HUGE_VAL;
    for (uint32_t i = 0; i < f->n; i++) {
        double flop = ds_attention_flop(&f->rows[i].shape);
        out->w_min = fmin(out->w_min, flop);
        out->w_max = fmax(out->w_max, flop);
        predicted[i] = seconds_of(&f->rows[i], &f->model);
        measured[i] = f->rows[i].seconds;
    }
    out->seen = ds_fit_errors_of(predicted, measured, f->n);
    ds_fit_ratios(predicted, measured, f->n, out->ratios);
    ds_status status = validate ? validate_fit(f, measured, out, err) : DS_OK;
    free(measured);
    free(predicted);
    return status;
}

/* ---- the whole ---- */

static bool is_shape(const ds_attention_shape *s) {
    return s->batch > 0 && s->heads > 0 && s->kv_heads > 0 && s->seq_q > 0 && s->seq_kv > 0 &&
           s->head_dim > 0 && s->value_dim > 0 && s->window >= 0 && s->bytes > 0 &&
           isfinite(s->bytes);
}

static ds_status check_rows(const ds_attention_row *rows, uint32_t n,
                            const ds_attention_model *start, ds_error *err) {
    if (n < DS_ATTENTION_LEAST_ROWS)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "%u rows are too few to fit the constants of attention: %d are needed",
                            n, DS_ATTENTION_LEAST_ROWS);
    if (!ds_attention_model_is_valid(start))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "a fit of attention starts at a constant out of its range");
    for (uint32_t i = 0; i < n; i++)
        if (!is_shape(&rows[i].shape) || !(rows[i].seconds > 0) || !isfinite(rows[i].seconds) ||
            !(rows[i].other_s >= 0))
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                "row %u of a fit of attention: a shape or a time out of range", i);
    return DS_OK;
}

ds_status ds_fit_attention(const ds_attention_row *rows, uint32_t n,
                           const ds_attention_model *start, bool validate,
                           ds_attention_fit_result *out, ds_error *err) {
    double starts[2 * N_VARIABLES];
    *out = (ds_attention_fit_result){.family = {-1, -1, -1}, .size = {-1, -1, -1}};
    DS_TRY(check_rows(rows, n, start, err));
    fitting f = {.rows = rows, .n = n, .token = start->token_s > 0, .model = *start};
    to_variables(start, starts);
    to_variables(&usual, starts + n_variables(&f));
    /* Without `validate` known constants are checked: does a short search find better ones? */
    DS_TRY(search(&f, starts, validate ? 2 : 1, validate ? 0.3 : 0.1, validate ? 1500 : 300,
                  &out->loss, err));
    return put_result(&f, validate, out, err);
}
