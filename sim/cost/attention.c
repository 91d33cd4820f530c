/* Blocks and waves of attention; the formula is in attention.h. */
#include "sim/cost/attention.h"

#include <math.h>
#include <stddef.h>

#define PACKED_ROWS  16  /* rows of the smallest product of a tensor core */
#define PROLOGUE_DIM 256 /* d + e of a head of 128 dims */

static bool is_positive(double v) {
    return v > 0 && isfinite(v);
}

static bool is_share(double v) {
    return v >= 0 && v <= 1;
}

static bool is_amount(double v) {
    return v >= 0 && isfinite(v);
}

bool ds_attention_model_is_valid(const ds_attention_model *m) {
    return m->processors > 0 && m->block_rows > 0 && m->head_step > 0 &&
           is_positive(m->flop_per_s) && is_positive(m->bytes_per_s) && is_positive(m->e_max) &&
           is_positive(m->e_memory) && is_share(m->tail) && is_share(m->overlap) &&
           is_amount(m->score) && is_amount(m->prologue) && is_amount(m->launch_s) &&
           is_amount(m->token_s);
}

static double whole_up(double v) { /* v below 2^53 */
    double down = v < 9e15 ? (double)(int64_t)v : v;
    return down < v ? down + 1 : down;
}

static double least(double a, double b) {
    return a < b ? a : b;
}

static double most(double a, double b) {
    return a > b ? a : b;
}

/* Mean and most keys of a block of a head. */
typedef struct extent {
    double mean, most;
} extent;

/* The sum over i = 1 .. n of min(first + i step, end). */
static double sum_to(double first, double step, double n, double end) {
    double rising = least(most((double)(int64_t)((end - first) / step), 0), n);
    return rising * first + step * rising * (rising + 1) / 2 + (n - rising) * end;
}

static extent keys_of(const ds_attention_model *m, const ds_attention_shape *s, double n) {
    double t = (double)s->seq_kv, step = (double)m->block_rows;
    double before = most(t - (double)s->seq_q, 0), end = t;
    bool windowed = s->window > 0 && s->window < s->seq_kv && m->skips_window;
    if (windowed) end = least(t, (double)s->window + step);
    if (!s->causal) return (extent){end, end};
    return (extent){sum_to(before, step, n, end) / n, least(before + n * step, end)};
}

static double padded(const ds_attention_model *m, int64_t dim) {
    return (double)((dim - 1) / m->head_step + 1) * (double)m->head_step;
}

static double dims_of(const ds_attention_model *m, const ds_attention_shape *s) {
    double d = padded(m, s->head_dim), e = padded(m, s->value_dim);
    return (s->backward ? 3 * d + 2 * e : d + e) + m->score;
}

/* Of the processor that takes a block of so many rows. */
static double block_seconds(const ds_attention_model *m, const ds_attention_shape *s, double rows,
                            double keys) {
    double work = 2 * rows * (keys * dims_of(m, s) + PROLOGUE_DIM * m->prologue);
    return work * (double)m->processors / (m->flop_per_s * m->e_max);
}

/* Rows of a block that holds the queries of all query heads of a key head; 0: they do not fit. */
static double packed_rows(const ds_attention_model *m, const ds_attention_shape *s) {
    double shared = (double)(s->heads / s->kv_heads > 0 ? s->heads / s->kv_heads : 1);
    double rows = PACKED_ROWS * whole_up((double)s->seq_q * shared / PACKED_ROWS);
    return !s->backward && s->seq_q < PACKED_ROWS && rows <= (double)m->block_rows ? rows : 0;
}

static double compute_seconds(const ds_attention_model *m, const ds_attention_shape *s,
                              ds_attention_choice *choice) {
    double packed = packed_rows(m, s), processors = (double)m->processors;
    double n = packed > 0 ? 1 : (double)((s->seq_q - 1) / m->block_rows + 1);
    double heads = (double)(packed > 0 ? s->kv_heads : s->heads);
    double rows = packed > 0 ? packed : (double)m->block_rows;
    extent keys = keys_of(m, s, n);
    double blocks = (double)s->batch * heads * n, share = blocks / processors;
    if (choice) *choice = (ds_attention_choice){blocks, keys.mean, keys.most, false};
    double mean = block_seconds(m, s, rows, keys.mean);
    if (packed > 0) return share * mean;
    double longest = block_seconds(m, s, rows, keys.most);
    if (share <= 1) return longest;
    double idle = keys.most > keys.mean ? 1 : whole_up(share) - share;
    return most(longest, share * mean + m->tail * idle * longest);
}

double ds_attention_seconds(const ds_attention_model *m, const ds_attention_shape *s,
                            ds_attention_choice *choice) {
    double compute = compute_seconds(m, s, choice);
    double memory = s->bytes / (m->bytes_per_s * m->e_memory);
    if (choice) choice->memory_bound = memory > compute;
    return m->launch_s + most(compute, memory) + m->overlap * least(compute, memory) +
           m->token_s * (double)s->batch * (double)s->seq_kv;
}

double ds_attention_bytes(const ds_attention_shape *s, double element_bytes) {
    double queries = (double)s->batch * (double)s->seq_q * (double)s->heads;
    double keys = (double)s->batch * (double)s->seq_kv * (double)s->kv_heads;
    double dims = (double)(s->head_dim + s->value_dim);
    return (s->backward ? 2 : 1) * element_bytes * (queries + keys) * dims;
}
