/* Factors of a cluster from few of its steps. */
#include "tools/validate/calibrate.h"

#include "sim/cost/constant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a factor, for slopes: the size of a usual correction. */
#define CAL_AWAY 1.15
/* Rows have the tails of Student's t with so many degrees of freedom: a run that something else held
 * up pulls little. Assumed: between Cauchy's 1 and the normal's infinity. */
#define TAILS 4.0
#define TURNS 12 /* of weights and estimates; they settle within a few */

/* Of a catalogue without the table; assumed. */
static const cal_prior usual = {.spread = {0.20, 0.50, 0.70}, .noise = 0.12};
#define LEAST_SPREAD 1e-3 /* a factor that nothing moves needs no inverse of 0 */

cal_prior cal_prior_of(const ds_profiles *profiles) {
    static const ds_step_part parts[CAL_FACTORS] = {DS_PART_COMPUTE, DS_PART_COMMUNICATION,
                                                    DS_PART_HOST};
    cal_prior prior = {.noise =
                           ds_profiles_part_error(profiles, DS_PART_STEP).error / CAL_NINE_IN_TEN};
    if (!(prior.noise > 0)) return usual;
    for (int a = 0; a < CAL_FACTORS; a++) {
        ds_part_error part = ds_profiles_part_error(profiles, parts[a]);
        double scale = part.error / CAL_NINE_IN_TEN;
        prior.spread[a] = sqrt(scale * scale + part.bias * part.bias);
        if (!(prior.spread[a] > LEAST_SPREAD)) prior.spread[a] = LEAST_SPREAD;
    }
    return prior;
}

/* ---- the estimate ---- */

double cal_shift(const cal_estimate *e, const cal_row *row) {
    double sum = 0;
    for (int a = 0; a < CAL_FACTORS; a++) sum += row->slope[a] * e->mean[a];
    return sum;
}

/* Inverts a symmetric positive definite matrix in place, by Gauss and Jordan without pivots. */
static void invert(double a[CAL_FACTORS][CAL_FACTORS]) {
    for (int k = 0; k < CAL_FACTORS; k++) {
        double pivot = 1 / a[k][k];
        for (int j = 0; j < CAL_FACTORS; j++) a[k][j] = j == k ? pivot : a[k][j] * pivot;
        for (int i = 0; i < CAL_FACTORS; i++) {
            if (i == k) continue;
            double by = a[i][k];
            for (int j = 0; j < CAL_FACTORS; j++)
                a[i][j] = j == k ? -by * pivot : a[i][j] - by * a[k][j];
        }
    }
}

/* A row far from `before` weighs less. */
static double weight_of(const cal_row *row, const cal_estimate *before, const cal_prior *prior) {
    double off = (row->ratio - cal_shift(before, row)) / prior->noise;
    return (TAILS + 1) / (TAILS + off * off) / (prior->noise * prior->noise);
}

static void estimate_once(const cal_row *rows, const uint32_t *chosen, uint32_t n,
                          const cal_prior *prior, const cal_estimate *before, cal_estimate *out) {
    double right[CAL_FACTORS] = {0};
    *out = (cal_estimate){0};
    for (int a = 0; a < CAL_FACTORS; a++)
        out->covariance[a][a] = 1 / (prior->spread[a] * prior->spread[a]);
    for (uint32_t i = 0; i < n; i++) {
        const cal_row *row = &rows[chosen[i]];
        double weight = weight_of(row, before, prior);
        for (int a = 0; a < CAL_FACTORS; a++) {
            right[a] += weight * row->slope[a] * row->ratio;
            for (int b = 0; b < CAL_FACTORS; b++)
                out->covariance[a][b] += weight * row->slope[a] * row->slope[b];
        }
    }
    invert(out->covariance);
    for (int a = 0; a < CAL_FACTORS; a++)
        for (int b = 0; b < CAL_FACTORS; b++) out->mean[a] += out->covariance[a][b] * right[b];
}

void cal_estimate_from(const cal_row *rows, const uint32_t *chosen, uint32_t n,
                       const cal_prior *prior, cal_estimate *out) {
    *out = (cal_estimate){0};
    for (int i = 0; i < TURNS; i++) {
        cal_estimate before = *out;
        estimate_once(rows, chosen, n, prior, &before, out);
    }
}

double cal_deviation(const cal_estimate *e, const cal_row *row, const cal_prior *prior) {
    double sum = prior->noise * prior->noise;
    for (int a = 0; a < CAL_FACTORS; a++)
        for (int b = 0; b < CAL_FACTORS; b++)
            sum += row->slope[a] * e->covariance[a][b] * row->slope[b];
    return sqrt(sum);
}

/* ---- choices of k rows ---- */

/* n over k, or `most` where it is more. */
static uint32_t count_choices(uint32_t n, uint32_t k, uint32_t most) {
    double count = 1;
    for (uint32_t i = 0; i < k && count < 1e9; i++) count = count * (n - i) / (i + 1);
    return count + 0.5 < most ? (uint32_t)(count + 0.5) : most;
}

/* The next choice in lexicographic order. */
static void next_choice(uint32_t *chosen, uint32_t k, uint32_t n) {
    uint32_t i = k;
    while (i > 0 && chosen[i - 1] == n - k + i - 1) i--;
    if (!i) return;
    chosen[i - 1]++;
    for (; i < k; i++) chosen[i] = chosen[i - 1] + 1;
}

/* SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The first k of a shuffled order. */
static void draw_choice(uint64_t *state, uint32_t *order, uint32_t k, uint32_t n) {
    for (uint32_t i = 0; i < k; i++) {
        uint32_t other = i + (uint32_t)(draw(state) % (n - i)), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

/* ---- errors of the other rows ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, uint32_t n, double q) {
    qsort(values, n, sizeof *values, by_value);
    double at = q * (double)(n - 1);
    uint32_t i = (uint32_t)at;
    return i + 1 < n ? values[i] + (at - i) * (values[i + 1] - values[i]) : values[n - 1];
}

typedef struct tally {
    double *errors, *halves, *draws; /* of rows and draws; of draws */
    uint32_t n, n_draws, within;
    double bias;
} tally;

static void count_others(const cal_row *rows, uint32_t n, const uint32_t *order, uint32_t k,
                         const cal_prior *prior, tally *t) {
    cal_estimate e;
    double sum = 0;
    cal_estimate_from(rows, order, k, prior, &e);
    for (uint32_t i = k; i < n; i++) {
        const cal_row *row = &rows[order[i]];
        double shift = cal_shift(&e, row), far = CAL_NINE_IN_TEN * cal_deviation(&e, row, prior);
        double error = 100 * (exp(shift - row->ratio) - 1);
        t->within += fabs(row->ratio - shift) <= far;
        t->halves[t->n] = 50 * (exp(far) - exp(-far));
        t->errors[t->n++] = fabs(error);
        t->bias += error;
        sum += fabs(error);
    }
    t->draws[t->n_draws++] = sum / (n - k);
}

/* Rows that are not among chosen[0 .. k), behind them. */
static void put_others(uint32_t *order, uint32_t k, uint32_t n) {
    uint32_t at = k;
    for (uint32_t row = 0, next = 0; row < n; row++) {
        if (next < k && order[next] == row)
            next++;
        else
            order[at++] = row;
    }
}

void cal_errors_of(const cal_row *rows, uint32_t n, uint32_t k, const cal_prior *prior,
                   cal_errors *out) {
    *out = (cal_errors){.k = k};
    if (n <= k) return;
    bool all = count_choices(n, k, CAL_DRAWS + 1) <= CAL_DRAWS;
    uint64_t state = k;
    tally t = {0};
    out->draws = all ? count_choices(n, k, CAL_DRAWS) : CAL_DRAWS;
    t.errors = ds_xcalloc(2 * (size_t)out->draws * (n - k) + out->draws, sizeof *t.errors);
    t.halves = t.errors + (size_t)out->draws * (n - k);
    t.draws = t.halves + (size_t)out->draws * (n - k);
    uint32_t *order = ds_xcalloc(n, sizeof *order);
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t d = 0; d < out->draws; d++) {
        if (all && d) next_choice(order, k, n);
        if (all) put_others(order, k, n);
        if (!all) draw_choice(&state, order, k, n);
        count_others(rows, n, order, k, prior, &t);
    }
    for (uint32_t i = 0; i < t.n; i++) out->mean += t.errors[i] / t.n;
    out->bias = t.bias / t.n;
    out->covered = 100.0 * t.within / t.n;
    out->median = quantile(t.errors, t.n, 0.5);
    out->half_width = quantile(t.halves, t.n, 0.5);
    out->p90_draws = quantile(t.draws, t.n_draws, 0.9);
    free(order);
    free(t.errors);
}

/* ---- predictions ---- */

ds_status cal_predict(const val_job *job, const char *db_path, const double factors[CAL_FACTORS],
                      val_prediction *rows, uint32_t n, ds_error *err) {
    ds_profiles *profiles;
    val_job near = *job;
    DS_TRY(ds_profiles_load(db_path, &profiles, err));
    ds_profiles_set_generic_factors(profiles,
                                    (ds_cost_factors){factors[0], factors[1], factors[2]});
    near.profiles = profiles;
    near.zero_shot = true;
    ds_status status = val_predict(&near, rows, n, err);
    ds_profiles_free(profiles);
    return status;
}

ds_status cal_look(const val_job *job, const char *db_path, val_prediction *rows, uint32_t n,
                   cal_row *near, uint32_t *n_near, ds_error *err) {
    val_prediction *slower = ds_xcalloc((size_t)n * CAL_FACTORS + 1, sizeof *slower);
    double factors[CAL_FACTORS] = {1, 1, 1};
    ds_status status = DS_OK;
    for (uint32_t a = 0; a < CAL_FACTORS && status == DS_OK; a++) {
        memcpy(slower + (size_t)a * n, rows, n * sizeof *rows);
        factors[a] = CAL_AWAY;
        status = cal_predict(job, db_path, factors, slower + (size_t)a * n, n, err);
        factors[a] = 1;
    }
    if (status == DS_OK) status = cal_predict(job, db_path, factors, rows, n, err);
    *n_near = 0;
    for (uint32_t i = 0; i < n && status == DS_OK; i++) {
        bool predicted = !rows[i].refused;
        for (uint32_t a = 0; a < CAL_FACTORS; a++)
            predicted = predicted && !slower[(size_t)a * n + i].refused;
        if (!predicted) continue;
        cal_row row = {.ratio = log(rows[i].row.seconds / rows[i].seconds), .of = i};
        for (uint32_t a = 0; a < CAL_FACTORS; a++)
            row.slope[a] = log(slower[(size_t)a * n + i].seconds / rows[i].seconds) / log(CAL_AWAY);
        near[(*n_near)++] = row;
    }
    free(slower);
    return status;
}
