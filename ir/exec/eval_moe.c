/* Mixture of experts: top-k, and expert buffers [..., e, c, d] of tokens [..., s, d].
 *
 * The leading dims are the groups. Within a group, choices are placed in order of token, then of
 * rank among the token's k; the choice that comes c-th or later to an expert is dropped. All ops
 * here count alike, so a token is fetched from where it was put. After Lepikhin et al. 2020,
 * "GShard", with the order of the op table. */
#include "ir/exec/internal.h"

#include <math.h>

/* The k largest of a row, in descending order; of equal ones the lower index first. */
static void largest_of_row(const ds_eval *e, const double *x, int64_t n, int64_t k, double *value,
                           double *index) {
    double most = 0, last = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    for (int64_t rank = 0; rank <= k && rank < n; rank++) { /* one more, for the margin */
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            bool taken = false;
            for (int64_t j = 0; j < rank && j < k && !taken; j++) taken = index[j] == (double)i;
            if (!taken && (best < 0 || x[i] > x[best])) best = i;
        }
        if (rank > 0 && most > 0) ds_eval_margin(e, (last - x[best]) / most);
        last = x[best];
        if (rank == k) return;
        value[rank] = x[best];
        index[rank] = (double)best;
    }
}

ds_status ds_exec__eval_topk(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    int64_t n = x->dims[x->rank - 1], k = e->out[0]->t.dims[x->rank - 1];
    if (k > n)
        return ds_eval_fail(e, err, DS_ERR_VALUE, "k is %lld, but there are %lld elements",
                            (long long)k, (long long)n);
    for (int64_t row = 0; row < x->n / n; row++)
        largest_of_row(e, x->at + row * n, n, k, e->out[0]->t.at + row * k,
                       e->out[1]->t.at + row * k);
    return DS_OK;
}

/* An index that is one of n. */
static ds_status read_index(const ds_eval *e, double index, int64_t n, const char *what,
                            int64_t *out, ds_error *err) {
    if (!(index >= 0 && index < (double)n && index == floor(index)))
        return ds_eval_fail(e, err, DS_ERR_VALUE, "%s %g is none of 0 .. %lld", what, index,
                            (long long)n - 1);
    *out = (int64_t)index;
    return DS_OK;
}

ds_status ds_exec__eval_topk_grad(const ds_eval *e, ds_error *err) {
    const ds_tensor *dv = &e->in[0]->t, *choices = &e->in[1]->t;
    ds_tensor *dx = &e->out[0]->t;
    int64_t k = dv->dims[dv->rank - 1], n = dx->dims[dx->rank - 1], index = 0;
    for (int64_t i = 0; i < dv->n; i++) {
        DS_TRY(read_index(e, choices->at[i], n, "index", &index, err));
        dx->at[i / k * n + index] += dv->at[i];
    }
    return DS_OK;
}

/* Calls `place` for every choice that has room: its element offsets in the buffers [..., e, c, d]
 * and in the tokens [..., s, d], and its index in the choices [..., s, k]. */
typedef void (*place_function)(const ds_eval *e, int64_t slot, int64_t token, int64_t choice,
                               int64_t width);

static ds_status walk_choices(const ds_eval *e, const ds_tensor *buffers, const ds_tensor *choices,
                              place_function place, ds_error *err) {
    const int64_t *dims = &buffers->dims[buffers->rank - 3];
    int64_t experts = dims[0], capacity = dims[1], width = dims[2];
    int64_t k = choices->dims[choices->rank - 1];
    int64_t per_group = choices->dims[choices->rank - 2] * k;
    ds_tensor filled;
    DS_TRY(ds_tensor_new(&e->run->memory, 1, &experts, e->op->loc, &filled, err));
    ds_status status = DS_OK;
    for (int64_t i = 0; i < choices->n && status == DS_OK; i++) {
        int64_t group = i / per_group, expert = 0;
        if (i % per_group == 0)
            for (int64_t x = 0; x < experts; x++) filled.at[x] = 0;
        status = read_index(e, choices->at[i], experts, "expert", &expert, err);
        if (status != DS_OK) break;
        int64_t at = (int64_t)filled.at[expert]++;
        if (at < capacity)
            place(e, ((group * experts + expert) * capacity + at) * width, i / k * width, i, width);
    }
    ds_tensor_drop(&filled);
    return status;
}

/* The weight of a choice: the third operand's, where there is one. */
static double weight_of(const ds_eval *e, int64_t choice) {
    return e->op->n_in > 2 ? e->in[2]->t.at[choice] : 1;
}

static void put_token(const ds_eval *e, int64_t slot, int64_t token, int64_t choice,
                      int64_t width) {
    double weight = weight_of(e, choice);
    for (int64_t i = 0; i < width; i++)
        e->out[0]->t.at[slot + i] = weight * e->in[0]->t.at[token + i];
}

static void fetch(const ds_eval *e, int64_t slot, int64_t token, int64_t choice, int64_t width) {
    double weight = weight_of(e, choice);
    for (int64_t i = 0; i < width; i++)
        e->out[0]->t.at[token + i] += weight * e->in[0]->t.at[slot + i];
}

static void multiply(const ds_eval *e, int64_t slot, int64_t token, int64_t choice, int64_t width) {
    double sum = 0;
    for (int64_t i = 0; i < width; i++) sum += e->in[0]->t.at[token + i] * e->in[1]->t.at[slot + i];
    e->out[0]->t.at[choice] = sum;
}

ds_status ds_exec__eval_dispatch(const ds_eval *e, ds_error *err) {
    return walk_choices(e, &e->out[0]->t, &e->in[1]->t, put_token, err);
}

ds_status ds_exec__eval_combine(const ds_eval *e, ds_error *err) {
    return walk_choices(e, &e->in[0]->t, &e->in[1]->t, fetch, err);
}

ds_status ds_exec__eval_combine_grad(const ds_eval *e, ds_error *err) {
    return walk_choices(e, &e->in[1]->t, &e->in[2]->t, multiply, err);
}
