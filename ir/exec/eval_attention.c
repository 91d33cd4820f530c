/* Attention, its gradient, and rotary embedding. Positions are those in the whole sequence, so a
 * sequence that is split over devices sees the same mask and the same angles.
 *
 * One head at a time, its rows strided in [b, s, h, d], by CBLAS: scores [s, t], then products. */
#include "ir/exec/internal.h"

#include <gsl/gsl_cblas.h>

#include <limits.h>
#include <math.h>

/* Stands for the logarithm of 0, of a query that sees no key: so small that it vanishes beside any
 * other, and finite so that differences of two are numbers. */
static const double log_zero = -1e30;

/* The rows of one head: element (i, j) at at[i * step + j]. */
typedef struct rows {
    double *at;
    int64_t n, width, step;
} rows;

static rows head_of(const ds_tensor *t, int64_t b, int64_t h) {
    int64_t width = t->dims[3];
    return (rows){t->at + (b * t->dims[1] * t->dims[2] + h) * width, t->dims[1], width,
                  t->dims[2] * width};
}

static rows matrix(double *at, int64_t n, int64_t width) {
    return (rows){at, n, width, width};
}

/* c += factor · op(a) · op(b); a' if ta, b' if tb. */
static void multiply_add(double factor, rows a, bool ta, rows b, bool tb, rows c) {
    int64_t inner = ta ? a.n : a.width;
    if (!c.n || !c.width || !inner) return;
    cblas_dgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                (int)c.n, (int)c.width, (int)inner, factor, a.at, (int)a.step, b.at, (int)b.step, 1,
                c.at, (int)c.step);
}

typedef struct heads {
    const ds_tensor *q, *k, *v;
    int64_t per_key_head; /* query heads served by one key head */
    double scale;
    bool causal;
    int64_t first;    /* causal: query i sees the first first + i keys */
    int64_t window;   /* causal: and of them the last so many */
    int64_t document; /* tokens of each of the documents in a sequence */
} heads;

/* Causal: the last query sees all keys, the one before it one less, and so on (FlashAttention 2.1's
 * alignment, which a growing key cache needs), unless q_start or k_start say where the block lies.
 */
static ds_status read_positions(const ds_eval *e, const ds_exec_part *q, const ds_exec_part *k,
                                heads *a, ds_error *err) {
    bool placed = ds_attr_find(e->op->attrs, e->op->n_attrs, "q_start") ||
                  ds_attr_find(e->op->attrs, e->op->n_attrs, "k_start");
    int64_t q_start = placed ? 0 : k->full[1] - q->full[1], k_start = 0;
    DS_TRY(ds_eval_int(e, "q_start", &q_start, err));
    DS_TRY(ds_eval_int(e, "k_start", &k_start, err));
    a->window = INT64_MAX;
    DS_TRY(ds_eval_int(e, "window", &a->window, err));
    if (a->window < 1)
        return ds_eval_fail(e, err, DS_ERR_VALUE, "a window of %lld keys", (long long)a->window);
    a->document = INT64_MAX;
    DS_TRY(ds_eval_int(e, "document", &a->document, err));
    if (a->document < 1)
        return ds_eval_fail(e, err, DS_ERR_VALUE, "a document of %lld tokens",
                            (long long)a->document);
    a->causal = ds_op_attr_bool(e->op, "causal");
    const int64_t far = INT64_C(1) << 60;
    if (q_start < -far || q_start > far || k_start < -far || k_start > far)
        return ds_eval_fail(e, err, DS_ERR_VALUE, "a block at query %lld and key %lld",
                            (long long)q_start, (long long)k_start);
    a->first = q_start + q->lo[1] - k_start - k->lo[1] + 1;
    return DS_OK;
}

/* `at`: which operand q is; k and v follow. */
static ds_status read_heads(const ds_eval *e, uint32_t at, heads *a, ds_error *err) {
    *a = (heads){.q = &e->in[at]->t, .k = &e->in[at + 1]->t, .v = &e->in[at + 2]->t};
    int64_t key_heads = a->k->dims[2];
    if (key_heads < 1 || a->q->dims[2] % key_heads)
        return ds_eval_fail(e, err, DS_ERR_SHAPE, "%lld key heads cannot serve %lld query heads",
                            (long long)key_heads, (long long)a->q->dims[2]);
    const ds_tensor *all[] = {a->q, a->k, a->v};
    for (int i = 0; i < 3; i++)
        if (all[i]->dims[1] > INT_MAX || all[i]->dims[2] * all[i]->dims[3] > INT_MAX)
            return ds_eval_fail(e, err, DS_ERR_LIMIT, "more than 2^31 positions or columns");
    a->per_key_head = a->q->dims[2] / key_heads;
    a->scale = 1 / sqrt((double)a->q->dims[3]);
    DS_TRY(ds_eval_real(e, "scale", &a->scale, err));
    return read_positions(e, e->in[at], e->in[at + 1], a, err);
}

/* Keys lo to hi (exclusive) are seen by a query. */
typedef struct keys {
    int64_t lo, hi;
} keys;

static keys visible(const heads *a, int64_t query) {
    int64_t n = a->k->dims[1], end = a->causal ? a->first + query : n;
    int64_t begin = a->causal && end > a->window ? end - a->window : 0;
    keys seen = {begin < n ? begin : n, end < 0 ? 0 : end < n ? end : n};
    if (a->document >= n) return seen;
    int64_t at = (a->first + query - 1) / a->document, first = at * a->document;
    if (seen.lo < first) seen.lo = first;
    if (seen.hi > first + a->document) seen.hi = first + a->document;
    return seen;
}

/* scale · q k' of one head, [s, t]. */
static rows scores_of(const heads *a, ds_tensor *room, int64_t b, int64_t h) {
    rows score = matrix(room->at, room->dims[0], room->dims[1]);
    for (int64_t i = 0; i < room->n; i++) room->at[i] = 0;
    multiply_add(a->scale, head_of(a->q, b, h), false, head_of(a->k, b, h / a->per_key_head), true,
                 score);
    return score;
}

static ds_status scores_new(const ds_eval *e, const heads *a, ds_tensor *out, ds_error *err) {
    int64_t dims[2] = {a->q->dims[1], a->k->dims[1]};
    return ds_tensor_new(&e->run->memory, 2, dims, e->op->loc, out, err);
}

/* A row of n scores becomes probabilities, 0 of the keys that are not seen. Returns log(sum(exp)).
 */
static double soften(double *row, keys seen, int64_t n) {
    double most = -INFINITY, sum = 0;
    for (int64_t t = 0; t < seen.lo; t++) row[t] = 0;
    for (int64_t t = seen.lo; t < seen.hi; t++) most = fmax(most, row[t]);
    for (int64_t t = seen.lo; t < seen.hi; t++) sum += row[t] = exp(row[t] - most);
    for (int64_t t = seen.lo; t < seen.hi; t++) row[t] /= sum;
    for (int64_t t = seen.hi; t < n; t++) row[t] = 0;
    return seen.lo < seen.hi ? most + log(sum) : log_zero;
}

/* The rows lo … hi - 1. */
static rows some_rows(rows all, keys part) {
    return (rows){all.at + part.lo * all.step, part.hi - part.lo, all.width, all.step};
}

/* The keys that some query sees: others are no numbers, perhaps, as in a block that is padded. */
static keys seen_of(const heads *a) {
    keys all = {a->k->dims[1], 0};
    for (int64_t s = 0; s < a->q->dims[1]; s++) {
        keys seen = visible(a, s);
        if (seen.lo < seen.hi && seen.lo < all.lo) all.lo = seen.lo;
        if (seen.lo < seen.hi && seen.hi > all.hi) all.hi = seen.hi;
    }
    return all.lo < all.hi ? all : (keys){0, 0};
}

ds_status ds_exec__eval_attention(const ds_eval *e, ds_error *err) {
    heads a;
    ds_tensor room;
    DS_TRY(read_heads(e, 0, &a, err));
    DS_TRY(scores_new(e, &a, &room, err));
    int64_t n_heads = a.q->dims[2];
    keys seen = seen_of(&a);
    for (int64_t b = 0; b < a.q->dims[0]; b++)
        for (int64_t h = 0; h < n_heads; h++) {
            rows p = scores_of(&a, &room, b, h);
            for (int64_t s = 0; s < p.n; s++) {
                double lse = soften(p.at + s * p.step, visible(&a, s), p.width);
                if (e->op->n_out > 1) e->out[1]->t.at[(b * p.n + s) * n_heads + h] = lse;
            }
            rows v = some_rows(head_of(a.v, b, h / a.per_key_head), seen);
            p = (rows){p.at + seen.lo, p.n, v.n, p.step};
            multiply_add(1, p, false, v, false, head_of(&e->out[0]->t, b, h));
        }
    ds_tensor_drop(&room);
    return DS_OK;
}

/* lse = log(exp(l1) + exp(l2)), o = exp(l1 - lse) o1 + exp(l2 - lse) o2. */
ds_status ds_exec__eval_attention_merge(const ds_eval *e, ds_error *err) {
    (void)err;
    const double *o1 = e->in[0]->t.at, *l1 = e->in[1]->t.at;
    const double *o2 = e->in[2]->t.at, *l2 = e->in[3]->t.at;
    int64_t width = e->in[0]->t.dims[3];
    for (int64_t row = 0; row < e->in[1]->t.n; row++) {
        double most = fmax(l1[row], l2[row]);
        double w1 = exp(l1[row] - most), w2 = exp(l2[row] - most), sum = w1 + w2;
        e->out[1]->t.at[row] = most + log(sum);
        for (int64_t i = row * width; i < (row + 1) * width; i++)
            e->out[0]->t.at[i] = w1 / sum * o1[i] + w2 / sum * o2[i];
    }
    return DS_OK;
}

/* The gradient by the scores, from probabilities p and dp = dy v', in place of dp:
 * ds = p (dp - sum(dy o)). The sum is that over all keys: o is attention over all of them. */
static void score_gradient(rows dp, rows p, rows dy, rows o) {
    for (int64_t s = 0; s < dp.n; s++) {
        double sum = 0;
        for (int64_t i = 0; i < dy.width; i++) sum += dy.at[s * dy.step + i] * o.at[s * o.step + i];
        for (int64_t t = 0; t < dp.width; t++) {
            double *x = &dp.at[s * dp.step + t];
            *x = p.at[s * p.step + t] * (*x - sum);
        }
    }
}

static void one_head_gradient(const ds_eval *e, const heads *a, ds_tensor *p_room,
                              ds_tensor *dp_room, int64_t b, int64_t h) {
    int64_t g = h / a->per_key_head, n_heads = a->q->dims[2];
    rows p = scores_of(a, p_room, b, h), dp = matrix(dp_room->at, p.n, p.width);
    rows dy = head_of(&e->in[0]->t, b, h), o = head_of(&e->in[4]->t, b, h);
    for (int64_t s = 0; s < p.n; s++) {
        double lse = e->in[5]->t.at[(b * p.n + s) * n_heads + h];
        keys seen = visible(a, s);
        for (int64_t t = 0; t < p.width; t++) {
            double *x = &p.at[s * p.step + t];
            *x = t >= seen.lo && t < seen.hi ? exp(*x - lse) : 0;
        }
    }
    for (int64_t i = 0; i < dp_room->n; i++) dp_room->at[i] = 0;
    multiply_add(1, dy, false, head_of(a->v, b, g), true, dp);
    multiply_add(1, p, true, dy, false, head_of(&e->out[2]->t, b, g));
    score_gradient(dp, p, dy, o);
    multiply_add(a->scale, dp, false, head_of(a->k, b, g), false, head_of(&e->out[0]->t, b, h));
    multiply_add(a->scale, dp, true, head_of(a->q, b, h), false, head_of(&e->out[1]->t, b, g));
}

/* Dao et al. 2022, "FlashAttention", algorithm 4: probabilities are exp(score - lse), so that a
 * block of keys gives its terms of the gradients by itself. Query heads of one key head add up. */
ds_status ds_exec__eval_attention_grad(const ds_eval *e, ds_error *err) {
    heads a;
    ds_tensor p, dp;
    DS_TRY(read_heads(e, 1, &a, err));
    DS_TRY(scores_new(e, &a, &p, err));
    ds_status status = scores_new(e, &a, &dp, err);
    for (int64_t b = 0; b < a.q->dims[0] && status == DS_OK; b++)
        for (int64_t h = 0; h < a.q->dims[2]; h++) one_head_gradient(e, &a, &p, &dp, b, h);
    ds_tensor_drop(&p);
    if (status == DS_OK) ds_tensor_drop(&dp);
    return status;
}

/* Pairs (x[2i], x[2i+1]) are turned by position · base^(-2i/d).
 * Source: Su et al. 2021, "RoFormer", equation 34. */
ds_status ds_exec__eval_rotary(const ds_eval *e, ds_error *err) {
    const ds_tensor *x = &e->in[0]->t;
    int64_t sequence = x->dims[1], n_heads = x->dims[2], d = x->dims[3];
    double base = 0, sense = ds_op_attr_bool(e->op, "inverse") ? -1 : 1;
    int64_t start = 0;
    DS_TRY(ds_eval_real(e, "base", &base, err));
    DS_TRY(ds_eval_int(e, "start", &start, err));
    if (d % 2)
        return ds_eval_fail(e, err, DS_ERR_SHAPE, "the head dim is %lld; pairs need an even one",
                            (long long)d);
    for (int64_t at = 0; at < x->n; at += 2) {
        int64_t i = at % d, position = e->in[0]->lo[1] + at / d / n_heads % sequence;
        double angle = sense * (double)(start + position) * pow(base, -(double)i / (double)d);
        double c = cos(angle), s = sin(angle), u = x->at[at], v = x->at[at + 1];
        e->out[0]->t.at[at] = u * c - v * s;
        e->out[0]->t.at[at + 1] = u * s + v * c;
    }
    return DS_OK;
}
