#include "search/tap/power.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- products ---- */

/* to = a ⊗ b, n x n. The inner loop is a row of sums and minima. */
static void multiply_slice(const double *restrict a, const double *restrict b, uint32_t n,
                           double *restrict to) {
    for (uint32_t i = 0; i < n; i++) {
        double *restrict row = &to[(size_t)i * n];
        for (uint32_t j = 0; j < n; j++) row[j] = INFINITY;
        for (uint32_t m = 0; m < n; m++) {
            double first = a[(size_t)i * n + m];
            const double *restrict second = &b[(size_t)m * n];
            for (uint32_t j = 0; j < n; j++) {
                double sum = first + second[j];
                row[j] = sum < row[j] ? sum : row[j];
            }
        }
    }
}

static double *multiply(const ds_tap_power *p, const double *a, const double *b, ds_arena *arena) {
    size_t square = (size_t)p->n * p->n;
    double *to = DS_NEW_N(arena, double, p->slices *square);
    for (uint32_t s = 0; s < p->slices; s++)
        multiply_slice(a + s * square, b + s * square, p->n, to + s * square);
    return to;
}

/* later = earlier + c in every slice? */
static bool is_steady(const ds_tap_power *p, const double *earlier, const double *later,
                      double *rise) {
    size_t square = (size_t)p->n * p->n;
    for (uint32_t s = 0; s < p->slices; s++) {
        const double *a = earlier + s * square, *b = later + s * square;
        rise[s] = b[0] - a[0];
        for (size_t i = 1; i < square; i++)
            if (b[i] - a[i] != rise[s]) return false;
    }
    return true;
}

/* ---- the chain ---- */

static double *raised(const ds_tap_power *p, const double *table, double times, ds_arena *arena) {
    size_t square = (size_t)p->n * p->n;
    double *to = DS_NEW_N(arena, double, p->slices *square);
    for (uint32_t s = 0; s < p->slices; s++)
        for (size_t i = 0; i < square; i++)
            to[s * square + i] = table[s * square + i] + times * p->rise[s];
    return to;
}

static void add_part(ds_tap_power *p, uint32_t level, uint32_t times, ds_arena *arena) {
    uint32_t i = p->n_parts++;
    p->part_level[i] = level;
    p->times[i] = times;
    p->part[i] = times == 1 ? p->level[level] : raised(p, p->level[level], times - 1.0, arena);
    p->prefix[i] = i == 0 ? p->part[0] : multiply(p, p->prefix[i - 1], p->part[i], arena);
}

/* Squares up to the chain's length, or until nothing but the constant changes. */
static void make_levels(ds_tap_power *p, ds_arena *arena) {
    double *rise = DS_NEW_N(arena, double, p->slices);
    while (p->copies >> p->n_levels && !p->rise) {
        const double *last = p->level[p->n_levels - 1];
        double *square = multiply(p, last, last, arena);
        p->level[p->n_levels++] = square;
        if (is_steady(p, last, square, rise)) p->rise = rise;
    }
}

void ds_tap__power_init(ds_tap_power *power, const double *block, uint32_t slices, uint32_t n,
                        uint32_t copies, ds_arena *arena) {
    assert(copies >= 1);
    size_t bytes = (size_t)slices * n * n * sizeof *block;
    *power = (ds_tap_power){.slices = slices, .n = n, .copies = copies, .n_levels = 1};
    power->level[0] = memcpy(ds_arena_alloc(arena, bytes), block, bytes);
    make_levels(power, arena);
    uint32_t left = copies;
    if (power->rise) { /* c is what 2^top further blocks cost */
        uint32_t top = power->n_levels - 2;
        add_part(power, top, left >> top, arena);
        left &= (1u << top) - 1;
    }
    for (uint32_t l = power->n_levels; l-- > 0;)
        if ((left >> l) & 1) add_part(power, l, 1, arena);
}

/* ---- its states ---- */

static uint32_t middle(const ds_tap_power *p, const double *a, const double *b, uint32_t slice,
                       uint32_t in, uint32_t out) {
    size_t base = (size_t)slice * p->n * p->n;
    uint32_t best = 0;
    double least = INFINITY;
    for (uint32_t m = 0; m < p->n; m++) {
        double sum = a[base + (size_t)in * p->n + m] + b[base + (size_t)m * p->n + out];
        if (sum >= least) continue;
        least = sum;
        best = m;
    }
    return best;
}

/* The states behind each of 2^level blocks. */
static void expand(const ds_tap_power *p, uint32_t level, uint32_t slice, uint32_t in, uint32_t out,
                   uint32_t *state) {
    if (level == 0) {
        state[0] = out;
        return;
    }
    const double *half = p->level[level - 1];
    uint32_t mid = middle(p, half, half, slice, in, out);
    expand(p, level - 1, slice, in, mid, state);
    expand(p, level - 1, slice, mid, out, state + (1u << (level - 1)));
}

/* However many are left, they cost one more constant: the first takes what one alone would. */
static void expand_part(const ds_tap_power *p, uint32_t part, uint32_t slice, uint32_t in,
                        uint32_t out, uint32_t *state) {
    uint32_t level = p->part_level[part];
    const double *one = p->level[level];
    for (uint32_t t = p->times[part]; t > 1; t--) {
        uint32_t mid = middle(p, one, one, slice, in, out);
        expand(p, level, slice, in, mid, state);
        state += 1u << level;
        in = mid;
    }
    expand(p, level, slice, in, out, state);
}

void ds_tap__power_states(const ds_tap_power *power, uint32_t slice, uint32_t in, uint32_t out,
                          uint32_t *state) {
    uint32_t at = power->copies;
    state[0] = in;
    for (uint32_t i = power->n_parts; i-- > 0;) {
        uint32_t blocks = power->times[i] << power->part_level[i], from = in;
        if (i > 0) from = middle(power, power->prefix[i - 1], power->part[i], slice, in, out);
        at -= blocks;
        expand_part(power, i, slice, from, out, &state[at + 1]);
        out = from;
    }
}
