/* Statistics of predictions by set and split. */
#include "tools/validate/errors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double val_error(const val_prediction *p) {
    return 100 * (p->seconds / p->row.seconds - 1);
}

bool val_is_unfit(const val_prediction *p) {
    return !p->refused && p->capacity_gib > 0 && p->peak_gib > p->capacity_gib;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The q-quantile of sorted values, linear between neighbours. */
static double quantile(const double *sorted, uint32_t n, double q) {
    double at = q * (double)(n - 1);
    uint32_t i = (uint32_t)at;
    if (i + 1 >= n) return sorted[n - 1];
    return sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]);
}

/* Rank of each value, from 1; equal values share the mean of their ranks. */
static void rank(const double *values, uint32_t n, double *ranks) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t below = 0, equal = 0;
        for (uint32_t k = 0; k < n; k++) {
            below += values[k] < values[i];
            equal += values[k] == values[i];
        }
        ranks[i] = below + (equal + 1) / 2.0;
    }
}

static double correlation(const double *x, const double *y, uint32_t n) {
    double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
    for (uint32_t i = 0; i < n; i++) mx += x[i] / n, my += y[i] / n;
    for (uint32_t i = 0; i < n; i++) {
        xx += (x[i] - mx) * (x[i] - mx);
        yy += (y[i] - my) * (y[i] - my);
        xy += (x[i] - mx) * (y[i] - my);
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : -2;
}

/* ---- one set and split ---- */

typedef struct group {
    const val_prediction **at; /* those that are predicted */
    uint32_t n;
} group;

static void fill_errors(const group *g, val_errors *e) {
    double *errors = ds_xcalloc(g->n + 1, sizeof *errors);
    for (uint32_t i = 0; i < g->n; i++) {
        double error = val_error(g->at[i]);
        errors[i] = fabs(error);
        e->mape += errors[i] / g->n;
        e->bias += error / g->n;
    }
    qsort(errors, g->n, sizeof *errors, by_value);
    e->median = quantile(errors, g->n, 0.5);
    e->p90 = quantile(errors, g->n, 0.9);
    e->max = errors[g->n - 1];
    free(errors);
}

static double spearman(const group *g) {
    if (g->n < 3) return -2;
    double *room = ds_xcalloc(4 * (size_t)g->n, sizeof *room);
    double *x = room, *y = x + g->n, *rx = y + g->n, *ry = rx + g->n;
    for (uint32_t i = 0; i < g->n; i++) {
        x[i] = g->at[i]->seconds;
        y[i] = g->at[i]->row.seconds;
    }
    rank(x, g->n, rx);
    rank(y, g->n, ry);
    double rho = correlation(rx, ry, g->n);
    free(room);
    return rho;
}

static double rate_of(const val_prediction *p) {
    return val_row_flop(&p->row) / ((double)p->row.gpus * p->row.seconds);
}

/* The constant rate of a set: the median of its calib rows, or of all where there are none. */
static double constant_rate(const val_prediction *rows, uint32_t n, const char *set, bool *calib) {
    double *rates = ds_xcalloc(n + 1, sizeof *rates), rate = 0;
    for (int any = 0; any < 2 && !(rate > 0); any++) {
        uint32_t m = 0;
        for (uint32_t i = 0; i < n; i++) {
            const val_prediction *p = &rows[i];
            if (p->refused || p->ran_out || strcmp(p->set, set) != 0) continue;
            if (!any && strcmp(p->row.split, "calib") != 0) continue;
            double r = rate_of(p);
            if (r > 0) rates[m++] = r;
        }
        *calib = !any;
        if (!m) continue;
        qsort(rates, m, sizeof *rates, by_value);
        rate = quantile(rates, m, 0.5);
    }
    free(rates);
    return rate;
}

static void fill_baseline(const group *g, double rate, val_errors *e) {
    e->baseline_mape = rate > 0 ? 0 : -1;
    for (uint32_t i = 0; rate > 0 && i < g->n; i++)
        e->baseline_mape += 100 * fabs(rate_of(g->at[i]) / rate - 1) / g->n;
}

static bool same_question(const val_row *a, const val_row *b) {
    return a->layers == b->layers && a->hidden == b->hidden && a->heads == b->heads &&
           a->seq == b->seq && a->gpus == b->gpus && a->gbs == b->gbs &&
           strcmp(a->gpu, b->gpu) == 0 && strcmp(a->source_id, b->source_id) == 0 &&
           strcmp(a->model, b->model) == 0 && strcmp(a->precision, b->precision) == 0;
}

static void fill_regret(const group *g, val_errors *e) {
    uint32_t good = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const val_prediction *chosen = g->at[i], *best = g->at[i];
        bool first = true;
        uint32_t n = 0;
        for (uint32_t k = 0; k < g->n; k++) {
            const val_prediction *p = g->at[k];
            if (!same_question(&p->row, &g->at[i]->row)) continue;
            if (k < i) first = false;
            n++;
            if (p->seconds < chosen->seconds) chosen = p;
            if (p->row.seconds < best->row.seconds) best = p;
        }
        if (!first || n < 2) continue;
        double regret = 100 * (chosen->row.seconds / best->row.seconds - 1);
        e->groups++;
        good += regret <= 2;
        if (regret > e->worst_regret) e->worst_regret = regret;
    }
    e->regret_within_2pct = e->groups ? 100.0 * good / e->groups : -1;
}

static void fill_intervals(const group *g, val_errors *e) {
    uint32_t known = 0, within = 0;
    double *halves = ds_xcalloc(g->n + 1, sizeof *halves);
    for (uint32_t i = 0; i < g->n; i++) {
        const val_prediction *p = g->at[i];
        if (!(p->high > 0)) continue;
        halves[known++] = 100 * (p->high - p->low) / (2 * p->seconds);
        within += p->row.seconds >= p->low && p->row.seconds <= p->high;
    }
    qsort(halves, known, sizeof *halves, by_value);
    e->covered = known ? 100.0 * within / known : -1;
    e->half_width = known ? quantile(halves, known, 0.5) : -1;
    free(halves);
}

static val_errors errors_of(const val_prediction *rows, uint32_t n, const val_prediction *like) {
    val_errors e = {.set = like->set, .split = like->row.split, .spearman = -2};
    group g = {.at = ds_xcalloc(n, sizeof *g.at)};
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(rows[i].set, like->set) || strcmp(rows[i].row.split, like->row.split)) continue;
        if (rows[i].refused) {
            e.refused++;
            continue;
        }
        if (rows[i].ran_out) {
            e.ran_out++;
            e.let_run += !val_is_unfit(&rows[i]);
            continue;
        }
        e.unfit += val_is_unfit(&rows[i]);
        g.at[g.n++] = &rows[i];
    }
    e.n = g.n;
    if (g.n) {
        fill_errors(&g, &e);
        e.spearman = spearman(&g);
        fill_baseline(&g, constant_rate(rows, n, like->set, &e.baseline_from_calib), &e);
        fill_regret(&g, &e);
        fill_intervals(&g, &e);
    } else {
        e.mape = e.median = e.p90 = e.max = e.baseline_mape = e.regret_within_2pct = e.covered =
            e.half_width = -1;
    }
    free(g.at);
    return e;
}

uint32_t val_errors_of(const val_prediction *rows, uint32_t n, val_errors **out) {
    uint32_t count = 0;
    *out = ds_xcalloc(n + 1, sizeof **out);
    for (uint32_t i = 0; i < n; i++) {
        bool known = false;
        for (uint32_t k = 0; k < count && !known; k++)
            known =
                !strcmp((*out)[k].set, rows[i].set) && !strcmp((*out)[k].split, rows[i].row.split);
        if (!known) (*out)[count++] = errors_of(rows, n, &rows[i]);
    }
    return count;
}
