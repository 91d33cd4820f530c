/* The tape: a row of the table below says how an operation computes and how gradients flow back. */
#include "search/nn/nn.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef enum op_code {
    INPUT,
    PARAM,
    MATMUL,
    ADD,
    SCALE,
    TANH,
    LEAKY,
    CONCAT,
    GATHER,
    SOFTMAX,
    WEIGH,
    SUM
} op_code;

typedef struct entry {
    op_code code;
    uint32_t rows, cols, x, y;
    float *value, *gradient;
    const uint32_t *index; /* rows or segments */
    float factor;
    uint32_t first; /* of a parameter */
} entry;

struct ds_nn_tape {
    ds_nn_params *params;
    ds_arena *arena;
    DS_VEC(entry) entries;
};

ds_nn_tape *ds_nn_tape_new(ds_nn_params *params, ds_arena *arena) {
    ds_nn_tape *tape = DS_NEW(arena, ds_nn_tape);
    tape->params = params;
    tape->arena = arena;
    return tape;
}

static entry *at(const ds_nn_tape *tape, ds_nn_var x) {
    assert(x.id < tape->entries.n);
    return &tape->entries.at[x.id];
}

const float *ds_nn_value(const ds_nn_tape *tape, ds_nn_var x) {
    return at(tape, x)->value;
}

uint32_t ds_nn_rows(const ds_nn_tape *tape, ds_nn_var x) {
    return at(tape, x)->rows;
}

uint32_t ds_nn_cols(const ds_nn_tape *tape, ds_nn_var x) {
    return at(tape, x)->cols;
}

/* The values are 0. Entries may move: callers read operands afterwards. */
static entry *push(ds_nn_tape *tape, entry e, ds_nn_var *out) {
    size_t n = (size_t)e.rows * e.cols;
    e.value = DS_NEW_N(tape->arena, float, n + 1);
    e.gradient = DS_NEW_N(tape->arena, float, n + 1);
    DS_PUSH(tape->arena, &tape->entries, e);
    *out = (ds_nn_var){tape->entries.n - 1};
    return &tape->entries.at[tape->entries.n - 1];
}

static size_t n_of(const entry *e) {
    return (size_t)e->rows * e->cols;
}

/* ---- operations ---- */

ds_nn_var ds_nn_input(ds_nn_tape *tape, uint32_t rows, uint32_t cols, const float *values) {
    ds_nn_var out;
    entry *e = push(tape, (entry){.code = INPUT, .rows = rows, .cols = cols}, &out);
    if (n_of(e)) memcpy(e->value, values, n_of(e) * sizeof *values);
    return out;
}

ds_nn_var ds_nn_of(ds_nn_tape *tape, ds_nn_param p) {
    ds_nn_var out;
    entry *e =
        push(tape, (entry){.code = PARAM, .rows = p.rows, .cols = p.cols, .first = p.first}, &out);
    memcpy(e->value, tape->params->value + p.first, n_of(e) * sizeof *e->value);
    return out;
}

/* out[r, c] += x[r, k] · w[k, c], k rising. */
static void multiply(const float *x, const float *w, float *out, uint32_t rows, uint32_t inner,
                     uint32_t cols) {
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < inner; k++) {
            float f = x[(size_t)r * inner + k];
            const float *from = w + (size_t)k * cols;
            float *to = out + (size_t)r * cols;
            for (uint32_t c = 0; c < cols; c++) to[c] += f * from[c];
        }
}

ds_nn_var ds_nn_matmul(ds_nn_tape *tape, ds_nn_var x, ds_nn_var w) {
    ds_nn_var out;
    uint32_t rows = at(tape, x)->rows, inner = at(tape, x)->cols, cols = at(tape, w)->cols;
    assert(at(tape, w)->rows == inner);
    entry *e =
        push(tape, (entry){.code = MATMUL, .rows = rows, .cols = cols, .x = x.id, .y = w.id}, &out);
    multiply(at(tape, x)->value, at(tape, w)->value, e->value, rows, inner, cols);
    return out;
}

ds_nn_var ds_nn_add(ds_nn_tape *tape, ds_nn_var x, ds_nn_var y) {
    ds_nn_var out;
    uint32_t rows = at(tape, x)->rows, cols = at(tape, x)->cols;
    bool is_row = at(tape, y)->rows == 1;
    assert(at(tape, y)->cols == cols && (is_row || at(tape, y)->rows == rows));
    entry *e =
        push(tape, (entry){.code = ADD, .rows = rows, .cols = cols, .x = x.id, .y = y.id}, &out);
    const float *a = at(tape, x)->value, *b = at(tape, y)->value;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < cols; c++) {
            size_t i = (size_t)r * cols + c;
            e->value[i] = a[i] + b[is_row ? c : i];
        }
    return out;
}

/* An operation of each element. */
static ds_nn_var pointwise(ds_nn_tape *tape, op_code code, ds_nn_var x, float factor) {
    ds_nn_var out;
    uint32_t rows = at(tape, x)->rows, cols = at(tape, x)->cols;
    entry *e = push(
        tape, (entry){.code = code, .rows = rows, .cols = cols, .x = x.id, .factor = factor}, &out);
    const float *a = at(tape, x)->value;
    for (size_t i = 0; i < n_of(e); i++) {
        if (code == SCALE) e->value[i] = factor * a[i];
        if (code == TANH) e->value[i] = (float)(1 - 2 / (ds_nn_exp(2 * (double)a[i]) + 1));
        if (code == LEAKY) e->value[i] = a[i] > 0 ? a[i] : factor * a[i];
    }
    return out;
}

ds_nn_var ds_nn_scale(ds_nn_tape *tape, ds_nn_var x, float factor) {
    return pointwise(tape, SCALE, x, factor);
}

ds_nn_var ds_nn_tanh(ds_nn_tape *tape, ds_nn_var x) {
    return pointwise(tape, TANH, x, 0);
}

ds_nn_var ds_nn_leaky(ds_nn_tape *tape, ds_nn_var x) {
    return pointwise(tape, LEAKY, x, 0.2F);
}

ds_nn_var ds_nn_concat(ds_nn_tape *tape, ds_nn_var x, ds_nn_var y) {
    ds_nn_var out;
    uint32_t rows = at(tape, x)->rows, a = at(tape, x)->cols, b = at(tape, y)->cols;
    assert(at(tape, y)->rows == rows);
    entry *e = push(
        tape, (entry){.code = CONCAT, .rows = rows, .cols = a + b, .x = x.id, .y = y.id}, &out);
    for (uint32_t r = 0; r < rows; r++) {
        float *to = e->value + (size_t)r * (a + b);
        memcpy(to, at(tape, x)->value + (size_t)r * a, a * sizeof *to);
        memcpy(to + a, at(tape, y)->value + (size_t)r * b, b * sizeof *to);
    }
    return out;
}

ds_nn_var ds_nn_gather(ds_nn_tape *tape, ds_nn_var x, const uint32_t *row, uint32_t n) {
    ds_nn_var out;
    uint32_t cols = at(tape, x)->cols;
    entry *e =
        push(tape, (entry){.code = GATHER, .rows = n, .cols = cols, .x = x.id, .index = row}, &out);
    for (uint32_t r = 0; r < n; r++)
        memcpy(e->value + (size_t)r * cols, at(tape, x)->value + (size_t)row[r] * cols,
               cols * sizeof *e->value);
    return out;
}

ds_nn_var ds_nn_softmax(ds_nn_tape *tape, ds_nn_var x, const uint32_t *segment,
                        uint32_t n_segments) {
    ds_nn_var out;
    uint32_t rows = at(tape, x)->rows, cols = at(tape, x)->cols;
    entry *e = push(tape,
                    (entry){.code = SOFTMAX,
                            .rows = rows,
                            .cols = cols,
                            .x = x.id,
                            .index = segment,
                            .first = n_segments},
                    &out);
    const float *a = at(tape, x)->value;
    size_t n = (size_t)n_segments * cols;
    float *most = DS_NEW_N(tape->arena, float, n + 1);
    double *sum = DS_NEW_N(tape->arena, double, n + 1);
    for (size_t i = 0; i < n; i++) most[i] = -INFINITY;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < cols; c++) {
            float *to = &most[(size_t)segment[r] * cols + c];
            *to = fmaxf(*to, a[(size_t)r * cols + c]);
        }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < cols; c++) {
            size_t i = (size_t)r * cols + c, s = (size_t)segment[r] * cols + c;
            e->value[i] = (float)ds_nn_exp((double)a[i] - (double)most[s]);
            sum[s] += (double)e->value[i];
        }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < cols; c++) {
            size_t i = (size_t)r * cols + c;
            e->value[i] = (float)((double)e->value[i] / sum[(size_t)segment[r] * cols + c]);
        }
    return out;
}

ds_nn_var ds_nn_weigh(ds_nn_tape *tape, ds_nn_var x, ds_nn_var weight) {
    ds_nn_var out;
    uint32_t rows = at(tape, x)->rows, cols = at(tape, x)->cols, heads = at(tape, weight)->cols;
    assert(cols % heads == 0 && at(tape, weight)->rows == rows);
    entry *e = push(
        tape, (entry){.code = WEIGH, .rows = rows, .cols = cols, .x = x.id, .y = weight.id}, &out);
    const float *a = at(tape, x)->value, *w = at(tape, weight)->value;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < cols; c++)
            e->value[(size_t)r * cols + c] =
                a[(size_t)r * cols + c] * w[(size_t)r * heads + c / (cols / heads)];
    return out;
}

ds_nn_var ds_nn_sum(ds_nn_tape *tape, ds_nn_var x, const uint32_t *segment, uint32_t n_segments) {
    ds_nn_var out;
    uint32_t rows = at(tape, x)->rows, cols = at(tape, x)->cols;
    entry *e = push(
        tape, (entry){.code = SUM, .rows = n_segments, .cols = cols, .x = x.id, .index = segment},
        &out);
    const float *a = at(tape, x)->value;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < cols; c++)
            e->value[(size_t)segment[r] * cols + c] += a[(size_t)r * cols + c];
    return out;
}

double ds_nn_cross_entropy(ds_nn_tape *tape, ds_nn_var p, const double *target) {
    entry *e = at(tape, p);
    double loss = 0;
    assert(e->cols == 1);
    for (uint32_t r = 0; r < e->rows; r++) {
        double value = fmax((double)e->value[r], 1e-12);
        loss -= target[r] * log(value);
        e->gradient[r] -= (float)(target[r] / value);
    }
    return loss;
}

/* ---- backwards ---- */

static void matmul_back(const entry *e, entry *x, entry *w) {
    for (uint32_t r = 0; r < e->rows; r++)
        for (uint32_t k = 0; k < x->cols; k++) {
            const float *from = w->value + (size_t)k * w->cols,
                        *d = e->gradient + (size_t)r * e->cols;
            float *to = w->gradient + (size_t)k * w->cols;
            float value = x->value[(size_t)r * x->cols + k], sum = 0;
            for (uint32_t c = 0; c < e->cols; c++) to[c] += value * d[c];
            for (uint32_t c = 0; c < e->cols; c++) sum += from[c] * d[c];
            x->gradient[(size_t)r * x->cols + k] += sum;
        }
}

static void add_back(const entry *e, entry *x, entry *y) {
    for (uint32_t r = 0; r < e->rows; r++)
        for (uint32_t c = 0; c < e->cols; c++) {
            size_t i = (size_t)r * e->cols + c;
            x->gradient[i] += e->gradient[i];
            y->gradient[y->rows == 1 ? c : i] += e->gradient[i];
        }
}

static void pointwise_back(const entry *e, entry *x) {
    for (size_t i = 0; i < n_of(e); i++) {
        float slope = e->factor;
        if (e->code == TANH) slope = 1 - e->value[i] * e->value[i];
        if (e->code == LEAKY && x->value[i] > 0) slope = 1;
        x->gradient[i] += slope * e->gradient[i];
    }
}

static void concat_back(const entry *e, entry *x, entry *y) {
    for (uint32_t r = 0; r < e->rows; r++) {
        const float *d = e->gradient + (size_t)r * e->cols;
        for (uint32_t c = 0; c < x->cols; c++) x->gradient[(size_t)r * x->cols + c] += d[c];
        for (uint32_t c = 0; c < y->cols; c++)
            y->gradient[(size_t)r * y->cols + c] += d[x->cols + c];
    }
}

static void rows_back(const entry *e, entry *x) {
    bool gathers = e->code == GATHER;
    uint32_t n = gathers ? e->rows : x->rows;
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t c = 0; c < e->cols; c++) {
            size_t own = (size_t)r * e->cols + c, other = (size_t)e->index[r] * e->cols + c;
            x->gradient[gathers ? other : own] += e->gradient[gathers ? own : other];
        }
}

/* dx = y (dy - Σ y dy) over the segment. */
static void softmax_back(ds_arena *arena, const entry *e, entry *x) {
    double *sum = DS_NEW_N(arena, double, (size_t)e->first * e->cols + 1);
    for (uint32_t r = 0; r < e->rows; r++)
        for (uint32_t c = 0; c < e->cols; c++) {
            size_t i = (size_t)r * e->cols + c;
            sum[(size_t)e->index[r] * e->cols + c] += (double)(e->value[i] * e->gradient[i]);
        }
    for (uint32_t r = 0; r < e->rows; r++)
        for (uint32_t c = 0; c < e->cols; c++) {
            size_t i = (size_t)r * e->cols + c;
            x->gradient[i] +=
                e->value[i] * (e->gradient[i] - (float)sum[(size_t)e->index[r] * e->cols + c]);
        }
}

static void weigh_back(const entry *e, entry *x, entry *w) {
    uint32_t width = e->cols / w->cols;
    for (uint32_t r = 0; r < e->rows; r++)
        for (uint32_t c = 0; c < e->cols; c++) {
            size_t i = (size_t)r * e->cols + c, h = (size_t)r * w->cols + c / width;
            x->gradient[i] += w->value[h] * e->gradient[i];
            w->gradient[h] += x->value[i] * e->gradient[i];
        }
}

void ds_nn_backward(ds_nn_tape *tape) {
    for (uint32_t i = tape->entries.n; i-- > 0;) {
        entry *e = &tape->entries.at[i], *x = &tape->entries.at[e->x], *y = &tape->entries.at[e->y];
        switch (e->code) {
        case INPUT:
            break;
        case PARAM:
            for (size_t k = 0; k < n_of(e); k++)
                tape->params->gradient[e->first + k] += e->gradient[k];
            break;
        case MATMUL:
            matmul_back(e, x, y);
            break;
        case ADD:
            add_back(e, x, y);
            break;
        case SCALE:
        case TANH:
        case LEAKY:
            pointwise_back(e, x);
            break;
        case CONCAT:
            concat_back(e, x, y);
            break;
        case GATHER:
        case SUM:
            rows_back(e, x);
            break;
        case SOFTMAX:
            softmax_back(tape->arena, e, x);
            break;
        case WEIGH:
            weigh_back(e, x, y);
            break;
        }
    }
}
