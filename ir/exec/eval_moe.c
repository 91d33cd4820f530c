/* Mixture of experts: top-k, and expert buffers [e, g, c, d] of tokens [g, s, d].
 *
 * Within a group, choices are placed in order of token, then of rank among the token's k; the
 * choice that comes c-th or later to an expert is dropped. Dispatch and combine count alike, so a
 * token is fetched from where it was put. After Lepikhin et al. 2020, "GShard", with the order of
 * the op table. */
#include "ir/exec/internal.h"

#include <math.h>

/* The k largest of a row, in descending order; of equal ones the lower index first. */
static void choose(const ds_eval *e, const double *x, int64_t n, int64_t k, double *value,
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
        choose(e, x->at + row * n, n, k, e->out[0]->t.at + row * k, e->out[1]->t.at + row * k);
    return DS_OK;
}

/* Calls `place` for every choice that has room: its element offsets in the buffer [e, g, c, d] and
 * in the tokens [g, s, d], and its index in the choices [g, s, k]. */
typedef void (*place_function)(const ds_eval *e, int64_t slot, int64_t token, int64_t choice,
                               int64_t width);

static ds_status walk_choices(const ds_eval *e, const ds_tensor *buffers, const ds_tensor *choices,
                              place_function place, ds_error *err) {
    int64_t experts = buffers->dims[0], groups = choices->dims[0], tokens = choices->dims[1];
    int64_t k = choices->dims[2], capacity = buffers->dims[2], width = buffers->dims[3];
    ds_tensor filled;
    DS_TRY(ds_tensor_new(&e->run->memory, 1, &experts, e->op->loc, &filled, err));
    ds_status status = DS_OK;
    for (int64_t g = 0; g < groups && status == DS_OK; g++) {
        for (int64_t x = 0; x < experts; x++) filled.at[x] = 0;
        for (int64_t i = 0; i < tokens * k && status == DS_OK; i++) {
            int64_t choice = g * tokens * k + i;
            double expert = choices->at[choice];
            if (!(expert >= 0 && expert < (double)experts && expert == floor(expert))) {
                status = ds_eval_fail(e, err, DS_ERR_VALUE, "expert %g is none of 0 .. %lld",
                                      expert, (long long)experts - 1);
                break;
            }
            int64_t x = (int64_t)expert, at = (int64_t)filled.at[x]++;
            if (at >= capacity) continue;
            place(e, ((x * groups + g) * capacity + at) * width, (g * tokens + i / k) * width,
                  choice, width);
        }
    }
    ds_tensor_drop(&filled);
    return status;
}

static void put(const ds_eval *e, int64_t slot, int64_t token, int64_t choice, int64_t width) {
    (void)choice;
    for (int64_t i = 0; i < width; i++) e->out[0]->t.at[slot + i] = e->in[0]->t.at[token + i];
}

static void fetch(const ds_eval *e, int64_t slot, int64_t token, int64_t choice, int64_t width) {
    double weight = e->op->n_in > 2 ? e->in[2]->t.at[choice] : 1;
    for (int64_t i = 0; i < width; i++)
        e->out[0]->t.at[token + i] += weight * e->in[0]->t.at[slot + i];
}

ds_status ds_exec__eval_dispatch(const ds_eval *e, ds_error *err) {
    return walk_choices(e, &e->out[0]->t, &e->in[1]->t, put, err);
}

ds_status ds_exec__eval_combine(const ds_eval *e, ds_error *err) {
    return walk_choices(e, &e->in[0]->t, &e->in[1]->t, fetch, err);
}
