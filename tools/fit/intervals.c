/* fit-profiles intervals: how far measured steps lie from predictions, of each profile that was fitted
 * to steps and of generic profiles.
 *
 * Rows are those of `distsim validate --out`, split calib. Of a profile fitted to n steps the residuals
 * are smaller than those of new steps, since p constants went after them, and n residuals hold less
 * than nine in ten of new ones. A prior is worth a row (steps.h), so the rows determine p n/(n + p)
 * constants, and the interval is that of a new measurement by a linear fit:
 *
 *     mean ± t(0.95, n - q) s sqrt(1 + q/n),  s² = Σ (r - mean)²/(n - q),  q = p n/(n + p)
 *
 * of r = log(measured/predicted).
 *
 * Generic profiles were fitted to no step. r of a step with the shares x of parts (sim/cost/interval.c)
 * is taken as Student's t with the scale sqrt(Σ (x spread)²) around the bias of the step's operations,
 * Σ x (bias of the step + bias of the part). Each testbed weighs as much as another. Biases are held to
 * 0, spreads to known errors of single operations, each with the weight of a testbed. What biases and spreads of the other testbeds say of a testbed is then compared
 * with its rows: spreads are widened until nine in ten of these lie within. */
#include "ir/base/map.h"
#include "sim/cost/cost.h"
#include "sim/cost/fit/fit.h"
#include "tools/fit/fit.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS ((uint32_t)DS_PART_LENT) /* parts with an estimate: all before LENT */
#define TAILS 4.0                      /* degrees of freedom; assumed */
#define LEVEL 0.9

/* Standard deviations of log(measured/predicted) before any testbed. Of products, attention and
 * routing: p90 of `profile check` with families left out over 1.645, and of the whole what remained of
 * calibrated testbeds; of collectives: half the logarithm of 3 (rows left out, FITTING.md); of the
 * host: half the logarithm of 2, assumed. */
static const double usual[PARTS] = {0.08, 0.08, 0.10, 0.15, 0.25, 0.5, 0.85};
/* Standard deviations of biases before any testbed: of the step, the bias of all operations, and of the
 * parts, which few testbeds have (0.02, 0.05, 0.1 and 0.3 were tried; with 0.1 the intervals of testbeds
 * left out were narrowest). */
#define STEP_BIAS  1.0
#define USUAL_BIAS 0.1
#define LOOSE      0.7 /* of a spread's logarithm; assumed */

typedef struct step {
    uint32_t set, profile;
    double r, x[DS_PART_COUNT];
} step;

typedef struct intervals {
    fit_groups sets, profiles; /* of generic rows; of rows by profiles of their own */
    DS_VEC(step) generic, own;
    double *weights; /* of a set's row: 1 over its rows */
    double bias[PARTS], spread[PARTS], widened;
    uint32_t skipped; /* the set that is left out; UINT32_MAX: none */
} intervals;

/* ---- rows ---- */

static ds_status read_share(const ds_csv *csv, uint32_t row, const char *column, double *out,
                            ds_error *err) {
    DS_TRY(fit_number(csv, row, column, out, err));
    if (*out >= 0 && *out <= 1) return DS_OK;
    return ds_csv_error(csv, &csv->rows.at[row], err, "%s = %g: a share is from 0 to 1", column,
                        *out);
}

/* A step put together from parts has no shares; a row without a prediction no time. */
static ds_status read_row(intervals *v, const ds_csv *csv, uint32_t row, ds_error *err) {
    const char *split, *predicted, *profile, *set, *host;
    double measured, seconds;
    step s = {.x = {[DS_PART_STEP] = 1}};
    DS_TRY(fit_cell(csv, row, "split", &split, err));
    DS_TRY(fit_cell(csv, row, "predicted_s", &predicted, err));
    DS_TRY(fit_cell(csv, row, "profile", &profile, err));
    DS_TRY(fit_cell(csv, row, "set", &set, err));
    DS_TRY(fit_cell(csv, row, "host", &host, err));
    if (strcmp(split, "calib") != 0 || !*predicted || !*profile) return DS_OK;
    DS_TRY(fit_number(csv, row, "measured_s", &measured, err));
    DS_TRY(fit_number(csv, row, "predicted_s", &seconds, err));
    if (!(measured > 0 && seconds > 0))
        return ds_csv_error(csv, &csv->rows.at[row], err, "a time that is not above 0");
    s.r = log(measured / seconds);
    if (strcmp(profile, "generic") != 0) {
        s.profile = fit_group(&v->profiles, profile);
        DS_HPUSH(&v->own, s);
        return DS_OK;
    }
    if (!*host) return DS_OK;
    for (uint32_t k = DS_PART_COMPUTE; k < PARTS; k++)
        DS_TRY(read_share(csv, row, ds_step_part_name(k), &s.x[k], err));
    s.set = fit_group(&v->sets, set);
    DS_HPUSH(&v->generic, s);
    return DS_OK;
}

static ds_status read_rows(intervals *v, const char *path, ds_error *err) {
    ds_csv csv;
    ds_status status = DS_OK;
    DS_TRY(ds_csv_read(path, &csv, err));
    for (uint32_t i = 0; i < csv.rows.n && status == DS_OK; i++) status = read_row(v, &csv, i, err);
    ds_csv_deinit(&csv);
    return status;
}

/* ---- profiles that were fitted to steps ---- */

#define USUAL_CONSTANTS 4 /* of a profile without calibration.csv: assumed, as of the others */

static ds_status count_constants(const char *folder, double *out, ds_error *err) {
    ds_csv csv;
    ds_error unsaid;
    ds_status status = DS_OK;
    fit_groups variables = {0};
    *out = USUAL_CONSTANTS;
    if (fit_read_in(folder, "calibration.csv", &csv, &unsaid) != DS_OK) return DS_OK;
    ds_strtab_init(&variables.names);
    for (uint32_t i = 0; i < csv.rows.n && status == DS_OK; i++) {
        const char *name;
        status = fit_cell(&csv, i, "variable", &name, err);
        if (status == DS_OK) fit_group(&variables, name);
    }
    *out = variables.seen.n;
    fit_groups_deinit(&variables);
    ds_csv_deinit(&csv);
    return status;
}

/* 1 lies within: half of the measurements or more may lie to one side. */
void fit_step_interval(const double *r, uint32_t n, double constants, double ratio[2]) {
    double mean = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++) mean += r[i] / n;
    for (uint32_t i = 0; i < n; i++) squares += (r[i] - mean) * (r[i] - mean);
    double q = constants * n / (n + constants), freedom = n - q > 1 ? n - q : 1;
    double half = gsl_cdf_tdist_Pinv(1 - (1 - LEVEL) / 2, freedom) * sqrt(squares / freedom) *
                  sqrt(1 + q / n);
    ratio[0] = fmin(1, exp(mean - half));
    ratio[1] = fmax(1, exp(mean + half));
}

static uint32_t residuals_of(const intervals *v, uint32_t profile, double *r) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->own.n; i++)
        if (v->own.at[i].profile == profile) r[n++] = v->own.at[i].r;
    return n;
}

static ds_status put_interval(const char *folder, const double ratio[2], fit_mode mode, bool *same,
                              ds_error *err) {
    static const char *const columns[] = {"ratio_p05", "ratio_p95"};
    ds_csv csv;
    ds_status status = DS_OK;
    DS_TRY(fit_read_in(folder, "profile.csv", &csv, err));
    for (int k = 0; k < 2 && status == DS_OK; k++) {
        const char *was = "";
        status = fit_cell(&csv, 0, columns[k], &was, err);
        if (status == DS_OK && fabs(strtod(was, NULL) - ratio[k]) > 0.01) *same = false;
        if (status == DS_OK) status = fit_set(&csv, 0, columns[k], "%.3f", ratio[k], err);
    }
    if (status == DS_OK && mode == FIT_WRITE) status = fit_write(&csv, false, err);
    ds_csv_deinit(&csv);
    return status;
}

#define LEAST_STEPS 3

static ds_status take_profiles(const intervals *v, const char *root, fit_mode mode, bool *same,
                               ds_error *err) {
    ds_status status = DS_OK;
    double *r = ds_xcalloc(v->own.n + 1, sizeof *r);
    puts("profile                     steps  constants  nine in ten of measured/predicted");
    for (uint32_t p = 0; p < v->profiles.seen.n && status == DS_OK; p++) {
        ds_buf folder = {0};
        double constants, ratio[2];
        uint32_t n = residuals_of(v, p, r);
        ds_buf_printf(&folder, "%s/%s", root, v->profiles.seen.at[p]);
        status = count_constants(folder.text, &constants, err);
        if (status == DS_OK && n >= LEAST_STEPS) {
            fit_step_interval(r, n, constants, ratio);
            printf("%-26s  %5u  %9.0f  %.3f .. %.3f\n", v->profiles.seen.at[p], n, constants,
                   ratio[0], ratio[1]);
            status = put_interval(folder.text, ratio, mode, same, err);
        }
        ds_buf_deinit(&folder);
    }
    free(r);
    return status;
}

/* ---- generic profiles ---- */

/* The time that a part's bias moves: operations alone have one, and the step's is of all of them. */
static double moved(const step *s, uint32_t part) {
    const double *x = s->x;
    if (part == DS_PART_STEP) return x[DS_PART_COMPUTE] + x[DS_PART_ATTENTION] + x[DS_PART_NARROW];
    return part <= DS_PART_NARROW ? x[part] : 0;
}

static double middle(const intervals *v, const step *s) {
    double sum = 0;
    for (uint32_t k = 0; k < PARTS; k++) sum += moved(s, k) * v->bias[k];
    return sum;
}

static double deviation(const double *spread, const step *s) {
    double sum = 0;
    for (uint32_t k = 0; k < PARTS; k++) sum += s->x[k] * spread[k] * s->x[k] * spread[k];
    return sqrt(sum);
}

static bool counts(const intervals *v, const step *s) {
    return s->set != v->skipped;
}

/* Solves a x = b for a symmetric positive definite a, in place. */
static void solve(double a[PARTS][PARTS], double b[PARTS]) {
    for (uint32_t k = 0; k < PARTS; k++)
        for (uint32_t i = k + 1; i < PARTS; i++) {
            double by = a[i][k] / a[k][k];
            for (uint32_t j = k; j < PARTS; j++) a[i][j] -= by * a[k][j];
            b[i] -= by * b[k];
        }
    for (uint32_t k = PARTS; k-- > 0;) {
        for (uint32_t j = k + 1; j < PARTS; j++) b[k] -= a[k][j] * b[j];
        b[k] /= a[k][k];
    }
}

static void find_biases(intervals *v) {
    double a[PARTS][PARTS] = {{0}}, b[PARTS] = {0};
    for (uint32_t k = 0; k < PARTS; k++) a[k][k] = 1 / (USUAL_BIAS * USUAL_BIAS);
    a[DS_PART_STEP][DS_PART_STEP] = 1 / (STEP_BIAS * STEP_BIAS);
    for (uint32_t i = 0; i < v->generic.n; i++) {
        const step *s = &v->generic.at[i];
        if (!counts(v, s)) continue;
        double sd = deviation(v->spread, s), off = (s->r - middle(v, s)) / sd;
        double weight = v->weights[s->set] * (TAILS + 1) / (TAILS + off * off) / (sd * sd);
        for (uint32_t k = 0; k < PARTS; k++) {
            for (uint32_t j = 0; j < PARTS; j++) a[k][j] += weight * moved(s, k) * moved(s, j);
            b[k] += weight * moved(s, k) * s->r;
        }
    }
    solve(a, b);
    memcpy(v->bias, b, sizeof b);
}

static ds_status unlikely(void *context, const double *x, double *value, ds_error *err) {
    const intervals *v = context;
    double spread[PARTS], sum = 0;
    (void)err;
    for (uint32_t k = 0; k < PARTS; k++) {
        spread[k] = usual[k] * exp(x[k]);
        sum += 0.5 * x[k] * x[k] / (LOOSE * LOOSE);
    }
    for (uint32_t i = 0; i < v->generic.n; i++) {
        const step *s = &v->generic.at[i];
        if (!counts(v, s)) continue;
        double sd = deviation(spread, s), off = (s->r - middle(v, s)) / sd;
        sum += v->weights[s->set] * (log(sd) + (TAILS + 1) / 2 * log1p(off * off / TAILS));
    }
    *value = sum;
    return DS_OK;
}

#define TURNS 6 /* of biases and spreads; they settle within a few */

static ds_status estimate(intervals *v, uint32_t skipped, ds_error *err) {
    double start[PARTS] = {0}, best[PARTS], value;
    ds_fit_search search = {.n = PARTS,
                            .starts = start,
                            .n_starts = 1,
                            .step = 0.3,
                            .tolerance = 1e-3,
                            .max_iterations = 2000};
    v->skipped = skipped;
    memset(v->bias, 0, sizeof v->bias);
    memcpy(v->spread, usual, sizeof usual);
    for (int turn = 0; turn < TURNS; turn++) {
        find_biases(v);
        DS_TRY(ds_fit_minimize(&search, unlikely, v, best, &value, err));
        for (uint32_t k = 0; k < PARTS; k++) v->spread[k] = usual[k] * exp(best[k]);
        memcpy(start, best, sizeof start);
    }
    return DS_OK;
}

typedef struct distance {
    uint32_t set;
    double off, sd, middle, r;
} distance;

static int by_off(const void *a, const void *b) {
    double x = ((const distance *)a)->off, y = ((const distance *)b)->off;
    return (x > y) - (x < y);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Each testbed by the others. */
static ds_status leave_out(intervals *v, distance *out, ds_error *err) {
    uint32_t n = 0;
    for (uint32_t set = 0; set < v->sets.seen.n; set++) {
        DS_TRY(estimate(v, set, err));
        for (uint32_t i = 0; i < v->generic.n; i++) {
            const step *s = &v->generic.at[i];
            if (s->set != set) continue;
            double sd = deviation(v->spread, s), m = middle(v, s);
            out[n++] = (distance){set, fabs(s->r - m) / sd, sd, m, s->r};
        }
    }
    return DS_OK;
}

/* Spreads that hold so much of each testbed, on the average, lie `widened` deviations out. */
static void widen(intervals *v, distance *all) {
    double sum = 0;
    qsort(all, v->generic.n, sizeof *all, by_off);
    for (uint32_t i = 0; i < v->generic.n; i++) {
        sum += v->weights[all[i].set] / v->sets.seen.n;
        v->widened = all[i].off;
        if (sum >= LEVEL) return;
    }
}

static void print_left_out(const intervals *v, const distance *all) {
    double *halves = ds_xcalloc(v->generic.n + 1, sizeof *halves), covered = 0, widths = 0;
    puts("\ntestbed left out     steps  in interval  median half width  mean bias");
    for (uint32_t set = 0; set < v->sets.seen.n; set++) {
        uint32_t n = 0, within = 0;
        double bias = 0;
        for (uint32_t i = 0; i < v->generic.n; i++) {
            const distance *d = &all[i];
            if (d->set != set) continue;
            double far = v->widened * d->sd;
            within += d->off <= v->widened;
            bias += d->r - d->middle;
            halves[n++] = 50 * exp(d->middle) * (exp(far) - exp(-far));
        }
        qsort(halves, n, sizeof *halves, by_value);
        printf("%-20s %5u  %9.0f %%  %15.1f %%  %+9.3f\n", v->sets.seen.at[set], n,
               100.0 * within / n, halves[n / 2], bias / n);
        covered += 100.0 * within / n / v->sets.seen.n;
        widths += halves[n / 2] / v->sets.seen.n;
    }
    printf("mean over testbeds          %9.0f %%  %15.1f %%\n", covered, widths);
    printf("nine in ten lie within %.2f deviations\n", v->widened);
    free(halves);
}

/* Testbeds of whose steps that part is a twentieth or more. */
static uint32_t count_testbeds(const intervals *v, uint32_t part) {
    uint32_t n = 0;
    for (uint32_t set = 0; set < v->sets.seen.n; set++) {
        double sum = 0;
        for (uint32_t i = 0; i < v->generic.n; i++)
            if (v->generic.at[i].set == set) sum += v->generic.at[i].x[part] * v->weights[set];
        n += sum >= 0.05;
    }
    return n;
}

static ds_status put_parts(const intervals *v, const char *root, fit_mode mode, bool *same,
                           ds_error *err) {
    ds_csv csv;
    ds_status status = DS_OK;
    DS_TRY(fit_read_in(root, "catalogue/intervals.csv", &csv, err));
    puts("\npart             testbeds    bias  error");
    for (uint32_t i = 0; i < csv.rows.n && status == DS_OK; i++) {
        const char *name;
        uint32_t k = 0;
        double was = 0;
        status = fit_cell(&csv, i, "part", &name, err);
        while (status == DS_OK && k < PARTS && strcmp(name, ds_step_part_name(k)) != 0) k++;
        if (status != DS_OK || k == PARTS) continue; /* lent: of devices left out */
        double error = v->widened * v->spread[k];
        printf("%-15s  %8u  %+.3f  %.3f\n", name, count_testbeds(v, k), v->bias[k], error);
        status = fit_number(&csv, i, "error", &was, err);
        if (fabs(was - error) > 0.02) *same = false;
        if (status == DS_OK) status = fit_set(&csv, i, "bias", "%.3f", v->bias[k], err);
        if (status == DS_OK) status = fit_set(&csv, i, "error", "%.3f", error, err);
        if (status == DS_OK) status = fit_set(&csv, i, "n", "%.0f", count_testbeds(v, k), err);
    }
    if (status == DS_OK && mode == FIT_WRITE) status = fit_write(&csv, false, err);
    ds_csv_deinit(&csv);
    return status;
}

static ds_status take_generic(intervals *v, const char *root, fit_mode mode, bool *same,
                              ds_error *err) {
    if (v->sets.seen.n < 3)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "rows by generic profiles are of %u testbeds: 3 at least",
                            v->sets.seen.n);
    distance *all = ds_xcalloc(v->generic.n + 1, sizeof *all);
    v->weights = ds_xcalloc(v->sets.seen.n + 1, sizeof *v->weights);
    for (uint32_t i = 0; i < v->generic.n; i++) v->weights[v->generic.at[i].set]++;
    for (uint32_t s = 0; s < v->sets.seen.n; s++) v->weights[s] = 1 / v->weights[s];
    ds_status status = leave_out(v, all, err);
    if (status == DS_OK) {
        widen(v, all);
        print_left_out(v, all);
        status = estimate(v, UINT32_MAX, err);
    }
    if (status == DS_OK) status = put_parts(v, root, mode, same, err);
    free(v->weights);
    free(all);
    return status;
}

ds_status fit_intervals(const char *root, const char *const *files, uint32_t n, fit_mode mode,
                        ds_error *err) {
    intervals v = {0};
    bool same = true;
    ds_status status = DS_OK;
    ds_strtab_init(&v.sets.names);
    ds_strtab_init(&v.profiles.names);
    for (uint32_t i = 0; i < n && status == DS_OK; i++) status = read_rows(&v, files[i], err);
    if (status == DS_OK && v.own.n) status = take_profiles(&v, root, mode, &same, err);
    if (status == DS_OK && v.generic.n) status = take_generic(&v, root, mode, &same, err);
    if (status == DS_OK && mode == FIT_CHECK && !same)
        status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                              "the files have other intervals: --write puts these into them");
    free(v.generic.at);
    free(v.own.at);
    fit_groups_deinit(&v.sets);
    fit_groups_deinit(&v.profiles);
    return status;
}
