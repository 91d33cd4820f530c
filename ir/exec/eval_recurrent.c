/* LSTM: x [b, s, i], input weights [i, 4h], recurrent weights [h, 4h], bias [4h], states [b, h].
 *
 * The four blocks of columns are, in order, the input, forget, candidate and output gate (the order
 * of cuDNN and PyTorch): i, f, o = sigmoid, g = tanh of z = x W + h R + b; c = f c + i g;
 * h = o tanh(c). Source: Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
 */
#include "ir/exec/internal.h"

#include <math.h>

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* Column j of z for one row: the input's and the state's product, and the bias. */
static double gate(const ds_eval *e, const double *x, const double *h, int64_t column) {
    const ds_tensor *w = &e->in[1]->t, *r = &e->in[2]->t;
    double z = e->op->n_in > 3 ? e->in[3]->t.at[column] : 0;
    for (int64_t i = 0; i < w->dims[0]; i++) z += x[i] * w->at[i * w->dims[1] + column];
    for (int64_t i = 0; i < r->dims[0]; i++) z += h[i] * r->at[i * r->dims[1] + column];
    return z;
}

static void one_step(const ds_eval *e, const double *x, const double *h, double *c, double *next,
                     int64_t units) {
    for (int64_t u = 0; u < units; u++) {
        double i = sigmoid(gate(e, x, h, u)), f = sigmoid(gate(e, x, h, units + u));
        double g = tanh(gate(e, x, h, 2 * units + u)), o = sigmoid(gate(e, x, h, 3 * units + u));
        c[u] = f * c[u] + i * g;
        next[u] = o * tanh(c[u]);
    }
}

ds_status ds_exec__eval_lstm(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    int64_t steps = x->dims[1], inputs = x->dims[2], units = e->in[2]->t.dims[0];
    ds_tensor state;
    int64_t dims[2] = {3, units};
    DS_TRY(ds_tensor_new(&e->run->memory, 2, dims, e->op->loc, &state, err));
    double *h = state.at, *c = h + units, *next = c + units;
    for (int64_t b = 0; b < x->dims[0]; b++) {
        for (int64_t u = 0; u < units; u++) {
            h[u] = e->op->n_in > 5 ? e->in[4]->t.at[b * units + u] : 0;
            c[u] = e->op->n_in > 5 ? e->in[5]->t.at[b * units + u] : 0;
        }
        for (int64_t s = 0; s < steps; s++) {
            one_step(e, x->at + (b * steps + s) * inputs, h, c, next, units);
            for (int64_t u = 0; u < units; u++)
                e->out[0]->t.at[(b * steps + s) * units + u] = h[u] = next[u];
        }
        for (int64_t u = 0; u < units; u++) {
            if (e->op->n_out > 1) e->out[1]->t.at[b * units + u] = h[u];
            if (e->op->n_out > 2) e->out[2]->t.at[b * units + u] = c[u];
        }
    }
    ds_tensor_drop(&state);
    return DS_OK;
}
