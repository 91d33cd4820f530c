/* A short sorted list and a front by pairwise comparison. */
#include "search/driver/best.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void ds_best_init(ds_best *best, const ds_space *space) {
    *best = (ds_best){0};
    const ds_objective *objectives = ds_space_objectives(space, &best->n_objectives);
    best->objectives = ds_xcalloc(best->n_objectives, sizeof *objectives);
    memcpy(best->objectives, objectives, best->n_objectives * sizeof *objectives);
}

void ds_best_deinit(ds_best *best) {
    for (uint32_t i = 0; i < best->top.n; i++) free(best->top.at[i].values);
    for (uint32_t i = 0; i < best->front.n; i++) free(best->front.at[i].values);
    free(best->top.at);
    free(best->front.at);
    free(best->objectives);
    *best = (ds_best){0};
}

/* < 0: a is better by this objective. */
static int compare_measures(const ds_objective *objective, const ds_metrics *a,
                            const ds_metrics *b) {
    double x = ds_metric_measure(a, objective->what), y = ds_metric_measure(b, objective->what);
    int order = (x > y) - (x < y);
    return objective->maximize ? -order : order;
}

static char *values_text(const ds_space *space, const ds_candidate *candidate) {
    ds_buf text = {0};
    ds_buf_put(&text, "");
    for (uint32_t i = 0; i < ds_space_n_dims(space); i++) {
        ds_buf_printf(&text, "%s%s=", i ? " " : "", ds_space_dim_name(space, i));
        ds_space_put_value(space, candidate, i, &text);
    }
    return text.text;
}

static ds_best_row make_row(const ds_space *space, const ds_candidate *c, const ds_outcome *o) {
    return (ds_best_row){c->number, o->hash, o->metrics, values_text(space, c)};
}

static void add_top(ds_best *best, const ds_space *space, const ds_candidate *c,
                    const ds_outcome *o) {
    uint32_t at = best->top.n;
    while (at &&
           compare_measures(&best->objectives[0], &o->metrics, &best->top.at[at - 1].metrics) < 0)
        at--;
    if (at >= DS_BEST_KEPT) return;
    ds_best_row row = make_row(space, c, o);
    if (best->top.n < DS_BEST_KEPT)
        DS_HPUSH(&best->top, row);
    else
        free(best->top.at[best->top.n - 1].values);
    memmove(best->top.at + at + 1, best->top.at + at,
            (best->top.n - 1 - at) * sizeof *best->top.at);
    best->top.at[at] = row;
}

/* Is a at least as good as b by all objectives? Equal ones count, so the first of equals stays. */
static bool covers(const ds_best *best, const ds_metrics *a, const ds_metrics *b) {
    for (uint32_t i = 0; i < best->n_objectives; i++)
        if (compare_measures(&best->objectives[i], a, b) > 0) return false;
    return true;
}

static void add_front(ds_best *best, const ds_space *space, const ds_candidate *c,
                      const ds_outcome *o) {
    for (uint32_t i = 0; i < best->front.n; i++)
        if (covers(best, &best->front.at[i].metrics, &o->metrics)) return;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < best->front.n; i++) {
        if (covers(best, &o->metrics, &best->front.at[i].metrics))
            free(best->front.at[i].values);
        else
            best->front.at[kept++] = best->front.at[i];
    }
    best->front.n = kept;
    DS_HPUSH(&best->front, make_row(space, c, o));
}

void ds_best_add(ds_best *best, const ds_space *space, const ds_candidate *candidate,
                 const ds_outcome *outcome) {
    add_top(best, space, candidate, outcome);
    if (best->n_objectives > 1) add_front(best, space, candidate, outcome);
}

/* ---- tables ---- */

/* assumed: wide enough for what ds_metric_print says of the kind. */
static int width_of(ds_metric_kind kind) {
    return kind == DS_METRIC_IS_RATE ? 14 : kind == DS_METRIC_IS_SHARE ? 7 : 12;
}

void ds_best_put_line(const ds_best_row *row, bool priced, ds_buf *out) {
    static const ds_metric_place places[] = {DS_AMONG_FIRST, DS_AMONG_RESULTS, DS_AMONG_PRICES};
    for (int p = 0; p < 2 + priced; p++)
        for (int i = 0; i < DS_METRIC_COUNT; i++) {
            const ds_metric *metric = ds_metric_at((ds_metric_id)i);
            if (!metric->title || metric->place != places[p]) continue;
            ds_buf cell = {0};
            if (row)
                ds_metric_print(&row->metrics, (ds_metric_id)i, &cell);
            else
                ds_buf_put(&cell, metric->title);
            ds_buf_printf(out, "  %*s", width_of(metric->kind), cell.text);
            ds_buf_deinit(&cell);
        }
}

static void put_table(const char *title, const ds_best_row *rows, uint32_t n, bool hashes,
                      ds_buf *out) {
    bool priced = n && rows[0].metrics.cost_per_hour > 0;
    ds_buf_printf(out, "\n%s\n", title);
    ds_best_put_line(NULL, priced, out);
    if (hashes) ds_buf_printf(out, "  %-16s", "hash");
    ds_buf_put(out, "  candidate\n");
    for (uint32_t i = 0; i < n; i++) {
        ds_best_put_line(&rows[i], priced, out);
        if (hashes) ds_buf_printf(out, "  %016" PRIx64, rows[i].hash);
        ds_buf_printf(out, "  %s\n", rows[i].values);
    }
}

void ds_best_print(const ds_best *best, bool hashes, ds_buf *out) {
    if (!best->top.n) {
        ds_buf_put(out, "\nno candidate fits and holds the conditions\n");
        return;
    }
    ds_buf title = {0};
    ds_buf_printf(&title, "best by %s %s", best->objectives[0].maximize ? "greatest" : "least",
                  ds_metric_at(best->objectives[0].what)->sweep);
    put_table(title.text, best->top.at, best->top.n, hashes, out);
    title.n = 0;
    ds_buf_put(&title, "Pareto front:");
    for (uint32_t i = 0; i < best->n_objectives; i++)
        ds_buf_printf(&title, "%s %s %s", i ? "," : "",
                      best->objectives[i].maximize ? "greatest" : "least",
                      ds_metric_at(best->objectives[i].what)->sweep);
    if (best->front.n) put_table(title.text, best->front.at, best->front.n, hashes, out);
    ds_buf_deinit(&title);
}
