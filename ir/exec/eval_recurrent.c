/* LSTM: x [b, s, i], input weights [i, 4h], recurrent weights [h, 4h], bias [4h], states [b, h].
 *
 * The four blocks of columns are, in order, the input, forget, candidate and output gate (the order
 * of cuDNN and PyTorch): i, f, o = sigmoid, g = tanh of z = x W + h R + b; c = f c + i g;
 * h = o tanh(c). Source: Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
 *
 * One row of the batch at a time: its gates and states of all steps are kept, which is what the
 * gradient, back-propagation through time, needs. */
#include "ir/exec/internal.h"

#include <math.h>

/* The forward op's operands, and one row's run. Step s makes states s + 1 from states s. */
typedef struct lstm {
    const ds_tensor *x, *w, *r;
    const ds_tensor *bias, *h0, *c0; /* NULL: not given */
    int64_t steps, inputs, units;
    ds_tensor room;
    double *gates; /* [steps, 4, units]: i, f, g, o */
    double *h, *c; /* [steps + 1, units] */
} lstm;

/* `at`: which operand x is; the others follow. */
static ds_status lstm_init(const ds_eval *e, uint32_t at, lstm *l, ds_error *err) {
    const ds_tensor *in[6] = {NULL};
    for (uint32_t i = 0; i < 6 && at + i < e->op->n_in; i++) in[i] = &e->in[at + i]->t;
    *l = (lstm){.x = in[0], .w = in[1], .r = in[2], .bias = in[3], .h0 = in[4], .c0 = in[5]};
    l->steps = l->x->dims[1];
    l->inputs = l->x->dims[2];
    l->units = l->r->dims[0];
    int64_t dims[2] = {6 * l->steps + 2, l->units};
    DS_TRY(ds_tensor_new(&e->run->memory, 2, dims, e->op->loc, &l->room, err));
    l->gates = l->room.at;
    l->h = l->gates + 4 * l->steps * l->units;
    l->c = l->h + (l->steps + 1) * l->units;
    return DS_OK;
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* z += v M for a row v of M's height; M is [n, 4 units]. */
static void add_product(const double *v, const ds_tensor *m, double *z) {
    for (int64_t i = 0; i < m->dims[0]; i++)
        for (int64_t j = 0; j < m->dims[1]; j++) z[j] += v[i] * m->at[i * m->dims[1] + j];
}

static void forward_step(const lstm *l, int64_t b, int64_t s) {
    int64_t n = l->units;
    double *z = l->gates + s * 4 * n, *h = l->h + s * n, *c = l->c + s * n;
    for (int64_t j = 0; j < 4 * n; j++) z[j] = l->bias ? l->bias->at[j] : 0;
    add_product(l->x->at + (b * l->steps + s) * l->inputs, l->w, z);
    add_product(h, l->r, z);
    for (int64_t u = 0; u < n; u++) {
        double i = sigmoid(z[u]), f = sigmoid(z[n + u]);
        double g = tanh(z[2 * n + u]), o = sigmoid(z[3 * n + u]);
        z[u] = i, z[n + u] = f, z[2 * n + u] = g, z[3 * n + u] = o;
        c[n + u] = f * c[u] + i * g;
        h[n + u] = o * tanh(c[n + u]);
    }
}

static void forward(const lstm *l, int64_t b) {
    for (int64_t u = 0; u < l->units; u++) {
        l->h[u] = l->h0 && l->c0 ? l->h0->at[b * l->units + u] : 0;
        l->c[u] = l->h0 && l->c0 ? l->c0->at[b * l->units + u] : 0;
    }
    for (int64_t s = 0; s < l->steps; s++) forward_step(l, b, s);
}

ds_status ds_exec__eval_lstm(const ds_eval *e, ds_error *err) {
    lstm l;
    DS_TRY(lstm_init(e, 0, &l, err));
    int64_t n = l.units;
    for (int64_t b = 0; b < l.x->dims[0]; b++) {
        forward(&l, b);
        for (int64_t i = 0; i < l.steps * n; i++) e->out[0]->t.at[b * l.steps * n + i] = l.h[n + i];
        for (int64_t u = 0; u < n; u++) {
            if (e->op->n_out > 1) e->out[1]->t.at[b * n + u] = l.h[l.steps * n + u];
            if (e->op->n_out > 2) e->out[2]->t.at[b * n + u] = l.c[l.steps * n + u];
        }
    }
    ds_tensor_drop(&l.room);
    return DS_OK;
}

/* ---- gradient ---- */

/* What flows back along one row: gradients of the states after a step, and of its z. */
typedef struct flow {
    double *dh, *dc, *dz;
} flow;

/* dz from dh and dc, and dc of the step before. */
static void gates_back(const lstm *l, int64_t s, const flow *d) {
    int64_t n = l->units;
    const double *gates = l->gates + s * 4 * n, *c = l->c + s * n;
    for (int64_t u = 0; u < n; u++) {
        double i = gates[u], f = gates[n + u], g = gates[2 * n + u], o = gates[3 * n + u];
        double t = tanh(c[n + u]), dc = d->dc[u] + d->dh[u] * o * (1 - t * t);
        d->dz[u] = dc * g * i * (1 - i);
        d->dz[n + u] = dc * c[u] * f * (1 - f);
        d->dz[2 * n + u] = dc * i * (1 - g * g);
        d->dz[3 * n + u] = d->dh[u] * t * o * (1 - o);
        d->dc[u] = dc * f;
    }
}

/* dv += dz M' and dM += v' dz, of a product v M in z. */
static void product_back(const double *v, const ds_tensor *m, const double *dz, double *dv,
                         ds_tensor *dm) {
    int64_t columns = m->dims[1];
    for (int64_t i = 0; i < m->dims[0]; i++)
        for (int64_t j = 0; j < columns; j++) {
            dv[i] += dz[j] * m->at[i * columns + j];
            dm->at[i * columns + j] += v[i] * dz[j];
        }
}

static void backward(const ds_eval *e, const lstm *l, int64_t b, const flow *d) {
    int64_t n = l->units;
    for (int64_t u = 0; u < n; u++) d->dh[u] = d->dc[u] = 0;
    for (int64_t s = l->steps; s-- > 0;) {
        int64_t row = b * l->steps + s;
        for (int64_t u = 0; u < n; u++) d->dh[u] += e->in[0]->t.at[row * n + u];
        gates_back(l, s, d);
        for (int64_t u = 0; u < n; u++) d->dh[u] = 0;
        product_back(l->x->at + row * l->inputs, l->w, d->dz, e->out[0]->t.at + row * l->inputs,
                     &e->out[1]->t);
        product_back(l->h + s * n, l->r, d->dz, d->dh, &e->out[2]->t);
        for (int64_t j = 0; j < 4 * n && e->op->n_out > 3; j++) e->out[3]->t.at[j] += d->dz[j];
    }
    for (int64_t u = 0; u < n && e->op->n_out > 5; u++) {
        e->out[4]->t.at[b * n + u] = d->dh[u];
        e->out[5]->t.at[b * n + u] = d->dc[u];
    }
}

ds_status ds_exec__eval_lstm_grad(const ds_eval *e, ds_error *err) {
    lstm l;
    ds_tensor room;
    DS_TRY(lstm_init(e, 1, &l, err));
    int64_t dims[2] = {6, l.units};
    ds_status status = ds_tensor_new(&e->run->memory, 2, dims, e->op->loc, &room, err);
    if (status == DS_OK) {
        flow d = {room.at, room.at + l.units, room.at + 2 * l.units};
        for (int64_t b = 0; b < l.x->dims[0]; b++) {
            forward(&l, b);
            backward(e, &l, b, &d);
        }
        ds_tensor_drop(&room);
    }
    ds_tensor_drop(&l.room);
    return status;
}
