#include "search/tap/power.h"

#include <assert.h>
#include <math.h>

/* ---- products ---- */

/* to[0 … width - 1] = min over m of a[m] + b[m][…]: a few columns at a time stay in registers. */
enum { WIDTH = 4 };
static inline void multiply_columns(const double *a, const double *b, uint32_t n, uint32_t width,
                                    double *to) {
    double least[WIDTH] = {INFINITY, INFINITY, INFINITY, INFINITY};
    for (uint32_t m = 0; m < n; m++, b += n)
        for (uint32_t j = 0; j < width; j++) {
            double sum = a[m] + b[j];
            least[j] = sum < least[j] ? sum : least[j];
        }
    for (uint32_t j = 0; j < width; j++) to[j] = least[j];
}

/* A row of a ⊗ b: a's row with all of b. */
static void multiply_row(const double *row, const double *b, uint32_t n, double *to) {
    uint32_t whole = n / WIDTH * WIDTH;
    for (uint32_t j = 0; j < whole; j += WIDTH) multiply_columns(row, &b[j], n, WIDTH, &to[j]);
    if (whole < n) multiply_columns(row, &b[whole], n, n - whole, &to[whole]);
}

/* a ⊗ b */
static const double *multiply(const double *a, const double *b, uint32_t n, ds_arena *arena) {
    double *to = DS_NEW_N(arena, double, (size_t)n *n);
    for (size_t i = 0; i < n; i++) multiply_row(&a[i * n], b, n, &to[i * n]);
    return to;
}

/* Is a ⊗ b = a + c? Most often the first rows tell that it is not. */
static bool is_raised_by(const double *a, const double *b, uint32_t n, double *row, double *c) {
    for (size_t i = 0; i < n; i++) {
        multiply_row(&a[i * n], b, n, row);
        if (i == 0) *c = row[0] - a[0];
        for (uint32_t j = 0; j < n; j++)
            if (row[j] - a[i * n + j] != *c) return false;
    }
    return true;
}

/* Is b = a + c? */
static bool is_raised(const double *a, const double *b, uint32_t n, double *c) {
    *c = b[0] - a[0];
    for (size_t i = 1; i < (size_t)n * n; i++)
        if (b[i] - a[i] != *c) return false;
    return true;
}

static const double *raised(const double *a, uint32_t n, double c, ds_arena *arena) {
    double *to = DS_NEW_N(arena, double, (size_t)n *n);
    for (size_t i = 0; i < (size_t)n * n; i++) to[i] = a[i] + c;
    return to;
}

/* ---- the chain ---- */

static void add_part(ds_tap_power *p, uint32_t level, uint32_t times, ds_arena *arena) {
    uint32_t i = p->n_parts++;
    const double *one = p->level[level];
    p->part_level[i] = level;
    p->times[i] = times;
    p->part[i] = times == 1 ? one : raised(one, p->n, (times - 1.0) * p->rise, arena);
    p->prefix[i] = i == 0 ? p->part[0] : multiply(p->prefix[i - 1], p->part[i], p->n, arena);
}

/* Squares up to the chain's length, or until nothing but a constant changes: with every block
 * (n_lead, then), or at least with as many blocks as the last square has. */
static void make_levels(ds_tap_power *p, ds_arena *arena) {
    double *row = DS_NEW_N(arena, double, p->n);
    for (;;) {
        const double *last = p->level[p->n_levels - 1];
        uint32_t blocks = 1u << (p->n_levels - 1);
        if (p->copies > blocks && is_raised_by(last, p->level[0], p->n, row, &p->rise)) {
            p->n_lead = p->copies - blocks;
            return;
        }
        if (p->copies >> p->n_levels == 0) return;
        const double *square = multiply(last, last, p->n, arena);
        p->level[p->n_levels++] = square;
        p->is_steady = is_raised(last, square, p->n, &p->rise);
        if (p->is_steady) return;
    }
}

void ds_tap__power_init(ds_tap_power *power, const double *block, uint32_t n, uint32_t copies,
                        ds_arena *arena) {
    assert(copies >= 1);
    *power = (ds_tap_power){.n = n, .copies = copies, .n_levels = 1, .level = {block}};
    make_levels(power, arena);
    uint32_t left = copies - power->n_lead;
    if (power->is_steady) { /* the constant is for 2^top more blocks */
        uint32_t top = power->n_levels - 2;
        add_part(power, top, left >> top, arena);
        left &= (1u << top) - 1;
    }
    for (uint32_t l = power->n_levels; l-- > 0;)
        if ((left >> l) & 1) add_part(power, l, 1, arena);
    power->table = power->prefix[power->n_parts - 1];
    if (power->n_lead) power->table = raised(power->table, n, power->n_lead * power->rise, arena);
}

/* ---- its states ---- */

static uint32_t middle(const double *a, const double *b, uint32_t n, uint32_t in, uint32_t out) {
    uint32_t best = 0;
    double least = INFINITY;
    for (uint32_t m = 0; m < n; m++) {
        double sum = a[(size_t)in * n + m] + b[(size_t)m * n + out];
        if (sum >= least) continue;
        least = sum;
        best = m;
    }
    return best;
}

/* The states behind each of 2^level blocks. */
static void expand(const ds_tap_power *p, uint32_t level, uint32_t in, uint32_t out,
                   uint32_t *state) {
    if (level == 0) {
        state[0] = out;
        return;
    }
    const double *half = p->level[level - 1];
    uint32_t mid = middle(half, half, p->n, in, out);
    expand(p, level - 1, in, mid, state);
    expand(p, level - 1, mid, out, state + (1u << (level - 1)));
}

/* However many are left, they cost one more constant: the first takes what one alone would. */
static void expand_part(const ds_tap_power *p, uint32_t part, uint32_t in, uint32_t out,
                        uint32_t *state) {
    uint32_t level = p->part_level[part];
    const double *one = p->level[level];
    for (uint32_t t = p->times[part]; t > 1; t--) {
        uint32_t mid = middle(one, one, p->n, in, out);
        expand(p, level, in, mid, state);
        state += 1u << level;
        in = mid;
    }
    expand(p, level, in, out, state);
}

void ds_tap__power_states(const ds_tap_power *power, uint32_t in, uint32_t out, uint32_t *state) {
    uint32_t at = power->copies;
    state[0] = in;
    for (uint32_t i = 0; i < power->n_lead; i++) {
        in = middle(power->level[0], power->level[power->part_level[0]], power->n, in, out);
        state[i + 1] = in;
    }
    for (uint32_t i = power->n_parts; i-- > 0;) {
        uint32_t blocks = power->times[i] << power->part_level[i], from = in;
        if (i > 0) from = middle(power->prefix[i - 1], power->part[i], power->n, in, out);
        at -= blocks;
        expand_part(power, i, from, out, &state[at + 1]);
        out = from;
    }
}
