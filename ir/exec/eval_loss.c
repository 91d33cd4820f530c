/* Look-up and losses. A mean divides by the count of the whole tensor, so that a split batch gives
 * each device its term of the mean. */
#include "ir/exec/internal.h"

#include <math.h>
#include <string.h>

/* mean: 1 / count; sum: 1. */
static double weight_of(const ds_eval *e, double count) {
    const char *reduction = ds_eval_text(e, "reduction");
    return reduction && strcmp(reduction, "mean") != 0 ? 1 : 1 / count;
}

static bool keeps_rows(const ds_eval *e) {
    const char *reduction = ds_eval_text(e, "reduction");
    return reduction && strcmp(reduction, "none") == 0;
}

static double whole_count(const ds_exec_part *part, uint32_t n_dims) {
    double count = 1;
    for (uint32_t d = 0; d < n_dims; d++) count *= (double)part->full[d];
    return count;
}

/* An index that must be an integer in 0 .. n-1. */
static ds_status check_index(const ds_eval *e, double index, int64_t n, const char *what,
                             ds_error *err) {
    if (index >= 0 && index < (double)n && index == floor(index)) return DS_OK;
    return ds_eval_fail(e, err, DS_ERR_VALUE, "%s %g is none of 0 .. %lld", what, index,
                        (long long)n - 1);
}

/* Rows that another device holds count as 0: the result is a term of a sum. */
ds_status ds_exec__eval_embedding(const ds_eval *e, ds_error *err) {
    const ds_exec_part *table = e->in[1];
    const ds_tensor *ids = &e->in[0]->t;
    int64_t width = table->t.dims[1];
    for (int64_t i = 0; i < ids->n; i++) {
        if (!e->shard_view) DS_TRY(check_index(e, ids->at[i], table->full[0], "row", err));
        double row = ids->at[i] - (double)table->lo[0];
        if (!(row >= 0 && row < (double)table->t.dims[0])) continue;
        memcpy(e->out[0]->t.at + i * width, table->t.at + (int64_t)row * width,
               (size_t)width * sizeof(double));
    }
    return DS_OK;
}

/* log(sum(exp(x))) - x[label] */
static double row_loss(const double *x, int64_t n, int64_t label) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - most);
    return log(sum) + most - x[label];
}

ds_status ds_exec__eval_cross_entropy(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t, *labels = &e->in[1]->t;
    int64_t n = x->dims[x->rank - 1];
    double weight = weight_of(e, whole_count(e->in[0], x->rank - 1)), *out = e->out[0]->t.at;
    bool rows = keeps_rows(e);
    for (int64_t row = 0; row < labels->n; row++) {
        DS_TRY(check_index(e, labels->at[row], n, "label", err));
        double loss = row_loss(x->at + row * n, n, (int64_t)labels->at[row]);
        if (rows)
            out[row] = loss;
        else
            out[0] += loss * weight;
    }
    return DS_OK;
}

/* mse and mse_grad. */
ds_status ds_exec__eval_mse(const ds_eval *e, ds_error *err) {
    (void)err;
    const ds_tensor *x = &e->in[0]->t, *y = &e->in[1]->t;
    double weight = weight_of(e, whole_count(e->in[0], x->rank)), *out = e->out[0]->t.at;
    bool rows = keeps_rows(e);
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
