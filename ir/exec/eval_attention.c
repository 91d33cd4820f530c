/* Attention and rotary embedding. Positions are those in the whole sequence, so a sequence that is
 * split over devices sees the same mask and the same angles. */
#include "ir/exec/internal.h"

#include <math.h>

typedef struct heads {
    const ds_tensor *q, *k, *v;
    int64_t per_key_head; /* query heads served by one key head */
    double scale;
} heads;

static const double *row(const ds_tensor *t, int64_t b, int64_t s, int64_t h) {
    return t->at + ((b * t->dims[1] + s) * t->dims[2] + h) * t->dims[3];
}

/* One query row against the first `visible` keys; `score` has room for them. */
static void attend(const heads *a, int64_t b, int64_t s, int64_t h, int64_t visible, double *score,
                   double *out) {
    int64_t g = h / a->per_key_head, d = a->q->dims[3], width = a->v->dims[3];
    const double *q = row(a->q, b, s, h);
    double most = -INFINITY, sum = 0;
    for (int64_t t = 0; t < visible; t++) {
        const double *k = row(a->k, b, t, g);
        score[t] = 0;
        for (int64_t i = 0; i < d; i++) score[t] += q[i] * k[i];
        score[t] *= a->scale;
        most = fmax(most, score[t]);
    }
    for (int64_t t = 0; t < visible; t++) sum += score[t] = exp(score[t] - most);
    for (int64_t t = 0; t < visible; t++) {
        const double *v = row(a->v, b, t, g);
        for (int64_t i = 0; i < width; i++) out[i] += score[t] / sum * v[i];
    }
}

/* Causal: the last query sees all keys, the one before it one less, and so on (FlashAttention 2.1's
 * alignment, which a growing key cache needs). A query that sees no key gives 0. */
ds_status ds_exec__eval_attention(const ds_eval *e, ds_error *err) {
    heads a = {.q = &e->in[0]->t, .k = &e->in[1]->t, .v = &e->in[2]->t};
    int64_t keys = a.k->dims[1], key_heads = a.k->dims[2];
    bool causal = ds_op_attr_bool(e->op, "causal");
    if (key_heads < 1 || a.q->dims[2] % key_heads)
        return ds_eval_fail(e, err, DS_ERR_SHAPE, "%lld key heads cannot serve %lld query heads",
                            (long long)key_heads, (long long)a.q->dims[2]);
    a.per_key_head = a.q->dims[2] / key_heads;
    a.scale = 1 / sqrt((double)a.q->dims[3]);
    DS_TRY(ds_eval_real(e, "scale", &a.scale, err));
    ds_tensor score;
    DS_TRY(ds_tensor_new(&e->run->memory, 1, &keys, e->op->loc, &score, err));
    int64_t ahead = keys - e->in[0]->full[1]; /* keys before the first query's own */
    double *out = e->out[0]->t.at;
    for (int64_t b = 0; b < a.q->dims[0]; b++)
        for (int64_t s = 0; s < a.q->dims[1]; s++) {
            int64_t visible = causal ? e->in[0]->lo[1] + s + 1 + ahead : keys;
            if (visible > keys) visible = keys;
            for (int64_t h = 0; h < a.q->dims[2]; h++, out += a.v->dims[3])
                attend(&a, b, s, h, visible, score.at, out);
        }
    ds_tensor_drop(&score);
    return DS_OK;
}

/* Pairs (x[2i], x[2i+1]) are turned by position · base^(-2i/d).
 * Source: Su et al. 2021, "RoFormer", equation 34. */
ds_status ds_exec__eval_rotary(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    int64_t sequence = x->dims[1], n_heads = x->dims[2], d = x->dims[3];
    double base = 0;
    DS_TRY(ds_eval_real(e, "base", &base, err));
    if (d % 2)
        return ds_eval_fail(e, err, DS_ERR_SHAPE, "the head dim is %lld; pairs need an even one",
                            (long long)d);
    for (int64_t at = 0; at < x->n; at += 2) {
        int64_t i = at % d, position = e->in[0]->lo[1] + at / d / n_heads % sequence;
        double angle = (double)position * pow(base, -(double)i / (double)d);
        double c = cos(angle), s = sin(angle), u = x->at[at], v = x->at[at + 1];
        e->out[0]->t.at[at] = u * c - v * s;
        e->out[0]->t.at[at + 1] = u * s + v * c;
    }
    return DS_OK;
}
