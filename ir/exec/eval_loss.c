/* Look-up and losses. A mean divides by the count of the whole tensor, so that a split batch gives
 * each device its term of the mean. */
#include "ir/exec/internal.h"

#include <math.h>
#include <string.h>

/* mean: 1 / count; sum: 1. `n_dims`: the dims of x that are averaged over. */
static ds_status weight_of(const ds_eval *e, uint32_t n_dims, double *weight, ds_error *err) {
    const char *reduction = ds_eval_text(e, "reduction");
    double count = 1;
    for (uint32_t d = 0; d < n_dims; d++) count *= (double)e->in[0]->full[d];
    DS_TRY(ds_eval_count(e, &count, err));
    *weight = reduction && strcmp(reduction, "mean") != 0 ? 1 : 1 / count;
    return DS_OK;
}

static bool keeps_rows(const ds_eval *e) {
    const char *reduction = ds_eval_text(e, "reduction");
    return reduction && strcmp(reduction, "none") == 0;
}

/* An index that must be an integer in 0 .. n-1. */
static ds_status check_index(const ds_eval *e, double index, int64_t n, const char *what,
                             ds_error *err) {
    if (index >= 0 && index < (double)n && index == floor(index)) return DS_OK;
    return ds_eval_fail(e, err, DS_ERR_VALUE, "%s %g is none of 0 .. %lld", what, index,
                        (long long)n - 1);
}

/* Dim `dim` of a part, as the range of indices that it holds of what labels count. */
typedef struct held {
    int64_t first, n, all;
    bool whole; /* the value is the whole, not a shard seen in a local region or by a rank */
} held;

static ds_status held_of(const ds_eval *e, const ds_exec_part *part, uint32_t dim, held *out,
                         ds_error *err) {
    int64_t start = 0;
    DS_TRY(ds_eval_int(e, "start", &start, err));
    *out = (held){.first = start + part->lo[dim], .n = part->t.dims[dim], .all = part->full[dim]};
    out->whole = !e->shard_view && !ds_attr_find(e->op->attrs, e->op->n_attrs, "start");
    return DS_OK;
}

/* *at is the place of an index on this device, -1 if another device holds it. */
static ds_status place_of(const ds_eval *e, const held *h, double index, const char *what,
                          int64_t *at, ds_error *err) {
    if (h->whole) DS_TRY(check_index(e, index, h->all, what, err));
    double local = index - (double)h->first;
    bool here = local >= 0 && local < (double)h->n && local == floor(local);
    *at = here ? (int64_t)local : -1;
    return DS_OK;
}

/* Rows that another device holds count as 0: the result is a term of a sum. */
ds_status ds_exec__eval_embedding(const ds_eval *e, ds_error *err) {
    const ds_tensor *ids = &e->in[0]->t, *table = &e->in[1]->t;
    int64_t width = table->dims[1], row;
    held rows;
    DS_TRY(held_of(e, e->in[1], 0, &rows, err));
    for (int64_t i = 0; i < ids->n; i++) {
        DS_TRY(place_of(e, &rows, ids->at[i], "row", &row, err));
        if (row < 0) continue;
        memcpy(e->out[0]->t.at + i * width, table->at + row * width,
               (size_t)width * sizeof(double));
    }
    return DS_OK;
}

/* Each device adds up the rows that are its part of the result. */
ds_status ds_exec__eval_embedding_grad(const ds_eval *e, ds_error *err) {
    const ds_tensor *dy = &e->in[0]->t, *ids = &e->in[1]->t;
    int64_t width = dy->dims[dy->rank - 1], row;
    held rows;
    DS_TRY(held_of(e, e->out[0], 0, &rows, err));
    for (int64_t i = 0; i < ids->n; i++) {
        DS_TRY(place_of(e, &rows, ids->at[i], "row", &row, err));
        for (int64_t k = 0; k < width && row >= 0; k++)
            e->out[0]->t.at[row * width + k] += dy->at[i * width + k];
    }
    return DS_OK;
}

ds_status ds_exec__eval_pick(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t, *labels = &e->in[1]->t;
    int64_t at;
    held columns;
    DS_TRY(held_of(e, e->in[0], x->rank - 1, &columns, err));
    for (int64_t row = 0; row < labels->n; row++) {
        DS_TRY(place_of(e, &columns, labels->at[row], "label", &at, err));
        if (at >= 0) e->out[0]->t.at[row] = x->at[row * columns.n + at];
    }
    return DS_OK;
}

static double log_sum_exp(const double *x, int64_t n) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - most);
    return log(sum) + most;
}

ds_status ds_exec__eval_cross_entropy(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t, *labels = &e->in[1]->t;
    int64_t n = x->dims[x->rank - 1];
    double weight, *out = e->out[0]->t.at;
    bool rows = keeps_rows(e);
    DS_TRY(weight_of(e, x->rank - 1, &weight, err));
    for (int64_t row = 0; row < labels->n; row++) {
        DS_TRY(check_index(e, labels->at[row], n, "label", err));
        double lse = log_sum_exp(x->at + row * n, n);
        double loss = lse - x->at[row * n + (int64_t)labels->at[row]];
        if (e->op->n_out > 1) e->out[1]->t.at[row] = lse;
        if (rows)
            out[row] = loss;
        else
            out[0] += loss * weight;
    }
    return DS_OK;
}

/* (exp(x - lse) - onehot(label)) / count; a device that lacks the label's column has no onehot. */
ds_status ds_exec__eval_cross_entropy_grad(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t, *labels = &e->in[1]->t, *lse = &e->in[2]->t;
    double weight;
    int64_t at;
    held columns;
    DS_TRY(weight_of(e, x->rank - 1, &weight, err));
    DS_TRY(held_of(e, e->in[0], x->rank - 1, &columns, err));
    for (int64_t row = 0; row < labels->n; row++) {
        double *dx = e->out[0]->t.at + row * columns.n;
        DS_TRY(place_of(e, &columns, labels->at[row], "label", &at, err));
        for (int64_t i = 0; i < columns.n; i++)
            dx[i] = (exp(x->at[row * columns.n + i] - lse->at[row]) - (i == at)) * weight;
    }
    return DS_OK;
}

/* mse and mse_grad. */
ds_status ds_exec__eval_mse(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t, *y = &e->in[1]->t;
    double weight, *out = e->out[0]->t.at;
    bool rows = keeps_rows(e);
    DS_TRY(weight_of(e, x->rank, &weight, err));
    for (int64_t i = 0; i < x->n; i++) {
        double difference = x->at[i] - y->at[i];
        if (e->op->code == DS_OP_MSE_GRAD)
            out[i] = 2 * difference * weight;
        else if (rows)
            out[i] = difference * difference;
        else
            out[0] += difference * difference * weight;
    }
    return DS_OK;
}
