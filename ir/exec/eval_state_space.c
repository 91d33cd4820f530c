/* causal_conv and ssd_scan, step by step.
 *
 * causal_conv: z[s] = bias + sum over j of w[j] x[s + j - (k - 1)], x = 0 before the first token;
 * y = z, or silu(z).
 *
 * ssd_scan, for a head of decay a = -exp(a_log), weight d and bias of the time step: with
 * t = softplus(dt + bias) and e = exp(t a), the state H [p, n] goes to e H + t x B', and
 * y = H C + d x (Dao and Gu 2024, arXiv:2405.21060, equations 1 and 2, discretised as in Gu and Dao
 * 2023, arXiv:2312.00752, section 2: A by its exponential, B by t B). This is the recurrence; that
 * implementations do it by blocks changes rounding only.
 *
 * Backward, dH is what flows back into the state after a step:
 *
 *   dH += dy C',  dC = H' dy,  dd = sum(dy x)
 *   dx = d dy + t dH B,  dB = t dH' x,  dt' = x' dH B + a e sum(dH H_before)
 *   da_log = t a e sum(dH H_before), as da/da_log = a;  ddt = dbias = dt' sigmoid(dt + bias)
 *   dH = e dH for the step before */
#include "ir/exec/internal.h"

#include <math.h>

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* log(1 + exp(x)), without overflow. */
static double softplus(double x) {
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* ---- convolution ---- */

/* Operands from x on. */
typedef struct conv {
    const double *x, *w, *bias; /* bias may be NULL */
    int64_t rows, steps, channels, taps;
    bool silu;
} conv;

static conv conv_of(const ds_eval *e, uint32_t at) {
    const ds_tensor *x = &e->in[at]->t, *w = &e->in[at + 1]->t;
    return (conv){.x = x->at,
                  .w = w->at,
                  .bias = e->op->n_in > at + 2 ? e->in[at + 2]->t.at : NULL,
                  .rows = x->dims[0],
                  .steps = x->dims[1],
                  .channels = x->dims[2],
                  .taps = w->dims[1],
                  .silu = ds_op_attr_bool(e->op, "silu")};
}

/* The first tap that is on a token, for step s. */
static int64_t first_tap(const conv *c, int64_t s) {
    return s + 1 < c->taps ? c->taps - 1 - s : 0;
}

/* Which element of x tap j of element `at`, of step s, is on. */
static int64_t under(const conv *c, int64_t at, int64_t j) {
    return at + (j - (c->taps - 1)) * c->channels;
}

static double convolved(const conv *c, int64_t s, int64_t channel, int64_t at) {
    double z = c->bias ? c->bias[channel] : 0;
    for (int64_t j = first_tap(c, s); j < c->taps; j++)
        z += c->w[channel * c->taps + j] * c->x[under(c, at, j)];
    return z;
}

ds_status ds_exec__eval_causal_conv(const ds_eval *e, ds_error *err) {
    (void)err;
    conv c = conv_of(e, 0);
    for (int64_t at = 0; at < e->out[0]->t.n; at++) {
        double z = convolved(&c, at / c.channels % c.steps, at % c.channels, at);
        e->out[0]->t.at[at] = c.silu ? z * sigmoid(z) : z;
    }
    return DS_OK;
}

ds_status ds_exec__eval_causal_conv_grad(const ds_eval *e, ds_error *err) {
    (void)err;
    conv c = conv_of(e, 1);
    for (int64_t at = 0; at < e->in[0]->t.n; at++) {
        int64_t s = at / c.channels % c.steps, channel = at % c.channels;
        double dz = e->in[0]->t.at[at];
        if (c.silu) {
            double z = convolved(&c, s, channel, at), half = sigmoid(z);
            dz *= half * (1 + z * (1 - half));
        }
        for (int64_t j = first_tap(&c, s); j < c.taps; j++) {
            e->out[0]->t.at[under(&c, at, j)] += dz * c.w[channel * c.taps + j];
            e->out[1]->t.at[channel * c.taps + j] += dz * c.x[under(&c, at, j)];
        }
        if (e->op->n_out > 2) e->out[2]->t.at[channel] += dz;
    }
    return DS_OK;
}

/* ---- scan ---- */

/* The forward op's operands, and the states of one head of one row: `states` [steps + 1, p, n], the
 * last of a step at s + 1. */
typedef struct scan {
    const ds_tensor *x, *dt, *b, *c, *a_log, *d, *bias;
    int64_t steps, heads, dims, groups, state;
    ds_tensor states;
} scan;

static ds_status scan_of(const ds_eval *e, uint32_t at, scan *out, ds_error *err) {
    const ds_tensor *in[7];
    for (uint32_t i = 0; i < 7; i++) in[i] = &e->in[at + i]->t;
    *out = (scan){.x = in[0],
                  .dt = in[1],
                  .b = in[2],
                  .c = in[3],
                  .a_log = in[4],
                  .d = in[5],
                  .bias = in[6],
                  .steps = in[0]->dims[1],
                  .heads = in[0]->dims[2],
                  .dims = in[0]->dims[3],
                  .groups = in[2]->dims[2],
                  .state = in[2]->dims[3]};
    int64_t dims[3] = {out->steps + 1, out->dims, out->state};
    return ds_tensor_new(&e->run->memory, 3, dims, e->op->loc, &out->states, err);
}

/* One step of one head of one row: where its elements are, and its numbers. */
typedef struct step {
    int64_t head, token; /* element [b, s, h] of dt */
    int64_t x, group;    /* first elements in x, and in B and C */
    double raw, t, a, e; /* dt + bias; softplus of it; decay; exp(t a) */
    double *before, *after;
} step;

static step step_of(const scan *s, int64_t row, int64_t head, int64_t at) {
    int64_t token = (row * s->steps + at) * s->heads + head, size = s->dims * s->state;
    int64_t group = head / (s->heads / s->groups);
    step p = {.head = head,
              .token = token,
              .x = token * s->dims,
              .group = ((row * s->steps + at) * s->groups + group) * s->state,
              .raw = s->dt->at[token] + s->bias->at[head],
              .a = -exp(s->a_log->at[head]),
              .before = s->states.at + at * size,
              .after = s->states.at + (at + 1) * size};
    p.t = softplus(p.raw);
    p.e = exp(p.t * p.a);
    return p;
}

/* The states of a head; y where it is given. */
static void scan_forward(const scan *s, int64_t row, int64_t head, double *y) {
    for (int64_t at = 0; at < s->steps; at++) {
        step p = step_of(s, row, head, at);
        const double *x = s->x->at + p.x, *b = s->b->at + p.group, *c = s->c->at + p.group;
        for (int64_t i = 0; i < s->dims; i++) {
            double sum = s->d->at[head] * x[i];
            for (int64_t j = 0, k = i * s->state; j < s->state; j++, k++) {
                p.after[k] = p.e * p.before[k] + p.t * x[i] * b[j];
                sum += p.after[k] * c[j];
            }
            if (y) y[p.x + i] = sum;
        }
    }
}

ds_status ds_exec__eval_ssd_scan(const ds_eval *e, ds_error *err) {
    scan s;
    DS_TRY(scan_of(e, 0, &s, err));
    for (int64_t row = 0; row < s.x->dims[0]; row++)
        for (int64_t head = 0; head < s.heads; head++) scan_forward(&s, row, head, e->out[0]->t.at);
    ds_tensor_drop(&s.states);
    return DS_OK;
}

/* One step back: dh is the gradient of the state after it, then of the one before it. */
static void step_back(const ds_eval *e, const scan *s, const step *p, double *dh) {
    const double *dy = e->in[0]->t.at + p->x, *x = s->x->at + p->x;
    const double *b = s->b->at + p->group, *c = s->c->at + p->group;
    double *dx = e->out[0]->t.at + p->x, *db = e->out[2]->t.at + p->group;
    double *dc = e->out[3]->t.at + p->group, into = 0, kept = 0;
    for (int64_t i = 0; i < s->dims; i++) {
        dx[i] = s->d->at[p->head] * dy[i];
        e->out[5]->t.at[p->head] += dy[i] * x[i];
        for (int64_t j = 0, k = i * s->state; j < s->state; j++, k++) {
            dc[j] += dy[i] * p->after[k];
            dh[k] += dy[i] * c[j];
            dx[i] += p->t * dh[k] * b[j];
            db[j] += p->t * dh[k] * x[i];
            into += dh[k] * x[i] * b[j];
            kept += dh[k] * p->before[k];
            dh[k] *= p->e;
        }
    }
    double ddt = (into + p->a * p->e * kept) * sigmoid(p->raw);
    e->out[1]->t.at[p->token] = ddt;
    e->out[4]->t.at[p->head] += p->t * p->a * p->e * kept;
    e->out[6]->t.at[p->head] += ddt;
}

ds_status ds_exec__eval_ssd_scan_grad(const ds_eval *e, ds_error *err) {
    scan s;
    ds_tensor dh;
    DS_TRY(scan_of(e, 1, &s, err));
    int64_t dims[2] = {s.dims, s.state};
    ds_status status = ds_tensor_new(&e->run->memory, 2, dims, e->op->loc, &dh, err);
    for (int64_t i = 0; status == DS_OK && i < s.x->dims[0] * s.heads; i++) {
        int64_t row = i / s.heads, head = i % s.heads;
        scan_forward(&s, row, head, NULL);
        for (int64_t k = 0; k < dh.n; k++) dh.at[k] = 0;
        for (int64_t at = s.steps; at-- > 0;) {
            step p = step_of(&s, row, head, at);
            step_back(e, &s, &p, dh.at);
        }
    }
    if (status == DS_OK) ds_tensor_drop(&dh);
    ds_tensor_drop(&s.states);
    return status;
}
