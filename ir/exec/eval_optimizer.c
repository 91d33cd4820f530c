/* Optimizers: operands weight, gradient, states, and where given a master copy of the weight, which
 * is then what is updated; the weight is a copy of it in its own dtype. Results: the weight, the
 * states, the master. */
#include "ir/exec/internal.h"

#include <math.h>

typedef struct rates {
    double lr, momentum, beta1, beta2, eps, weight_decay;
    int64_t step;
} rates;

static ds_status read_rates(const ds_eval *e, rates *r, ds_error *err) {
    *r = (rates){.step = 1};
    DS_TRY(ds_eval_real(e, "lr", &r->lr, err));
    DS_TRY(ds_eval_real(e, "momentum", &r->momentum, err));
    DS_TRY(ds_eval_real(e, "beta1", &r->beta1, err));
    DS_TRY(ds_eval_real(e, "beta2", &r->beta2, err));
    DS_TRY(ds_eval_real(e, "eps", &r->eps, err));
    DS_TRY(ds_eval_real(e, "weight_decay", &r->weight_decay, err));
    DS_TRY(ds_eval_int(e, "step", &r->step, err));
    if (r->step >= 1) return DS_OK;
    return ds_eval_fail(e, err, DS_ERR_VALUE, "step is %lld; steps count from 1",
                        (long long)r->step);
}

/* Kingma and Ba 2015, algorithm 1; with weight_decay Loshchilov and Hutter 2019, algorithm 2. */
static double adam(const rates *r, double w, double g, double *m, double *v) {
    *m = r->beta1 * *m + (1 - r->beta1) * g;
    *v = r->beta2 * *v + (1 - r->beta2) * g * g;
    double m_hat = *m / (1 - pow(r->beta1, (double)r->step));
    double v_hat = *v / (1 - pow(r->beta2, (double)r->step));
    return w - r->lr * (m_hat / (sqrt(v_hat) + r->eps) + r->weight_decay * w);
}

ds_status ds_exec__eval_optimizer(const ds_eval *e, ds_error *err) {
    ds_opcode code = e->op->code;
    uint32_t n_states = code == DS_OP_SGD ? 0 : code == DS_OP_MOMENTUM ? 1 : 2;
    bool has_master = e->op->n_in > 2 + n_states;
    rates r;
    DS_TRY(read_rates(e, &r, err));
    for (int64_t i = 0; i < e->in[0]->t.n; i++) {
        double w = e->in[has_master ? 2 + n_states : 0]->t.at[i], g = e->in[1]->t.at[i];
        double state[2] = {0};
        for (uint32_t s = 0; s < n_states; s++) state[s] = e->in[2 + s]->t.at[i];
        if (code == DS_OP_SGD) {
            w -= r.lr * g;
        } else if (code == DS_OP_MOMENTUM) {
            state[0] = r.momentum * state[0] + g;
            w -= r.lr * state[0];
        } else {
            w = adam(&r, w, g, &state[0], &state[1]);
        }
        e->out[0]->t.at[i] = w;
        for (uint32_t s = 0; s < n_states; s++) e->out[1 + s]->t.at[i] = state[s];
        if (has_master) e->out[1 + n_states]->t.at[i] = w;
    }
    return DS_OK;
}

/* ---- the norm of all gradients ---- */

ds_status ds_exec__eval_clip(const ds_eval *e, ds_error *err) {
    ds_tensor *y = &e->out[0]->t;
    if (e->op->code == DS_OP_SUM_SQUARES) {
        const ds_tensor *x = &e->in[0]->t;
        for (int64_t i = 0; i < x->n; i++) y->at[0] += x->at[i] * x->at[i];
        return DS_OK;
    }
    for (uint32_t k = 0; k < e->op->n_in; k++)
        for (int64_t i = 0; i < y->n; i++) y->at[i] += e->in[k]->t.at[i];
    if (e->op->code == DS_OP_TOTAL) return DS_OK;
    double max_norm = 0;
    DS_TRY(ds_eval_real(e, "max_norm", &max_norm, err));
    for (int64_t i = 0; i < y->n; i++) y->at[i] = fmin(1, max_norm / (sqrt(y->at[i]) + 1e-6));
    return DS_OK;
}
