/* A short sorted list and a front by pairwise comparison. */
#include "search/driver/best.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_best_init(ds_best *best, const ds_space *space) {
    *best = (ds_best){0};
    const ds_objective *objectives = ds_space_objectives(space, &best->n_objectives);
    best->objectives = ds_xcalloc(best->n_objectives, sizeof *objectives);
    memcpy(best->objectives, objectives, best->n_objectives * sizeof *objectives);
}

static void free_row(ds_best_row *row) {
    free(row->values);
    free(row->pairs);
}

void ds_best_deinit(ds_best *best) {
    for (uint32_t i = 0; i < best->top.n; i++) free_row(&best->top.at[i]);
    for (uint32_t i = 0; i < best->front.n; i++) free_row(&best->front.at[i]);
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

static char *pairs_text(const ds_space *space, const ds_candidate *candidate) {
    ds_buf text = {0};
    ds_buf_put(&text, "");
    for (uint32_t i = 0; i < ds_space_n_dims(space); i++) {
        ds_buf_put(&text, ds_space_dim_name(space, i));
        ds_buf_putc(&text, '\0');
        ds_space_put_value(space, candidate, i, &text);
        ds_buf_putc(&text, '\0');
    }
    return text.text;
}

static ds_best_row make_row(const ds_space *space, const ds_candidate *c, const ds_outcome *o) {
    return (ds_best_row){.number = c->number,
                         .hash = o->hash,
                         .metrics = o->metrics,
                         .values = values_text(space, c),
                         .pairs = pairs_text(space, c),
                         .n_pairs = ds_space_n_dims(space)};
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
        free_row(&best->top.at[best->top.n - 1]);
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
            free_row(&best->front.at[i]);
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

/* Has the run figures of the place? Prices and tokens are of some sweeps alone. */
static bool has_place(const ds_best_row *row, ds_metric_place place) {
    if (place == DS_AMONG_PRICES) return row && row->metrics.cost_per_hour > 0;
    if (place == DS_AMONG_TOKENS)
        return row && ds_metric_is_known(&row->metrics, DS_METRIC_first_token_ps);
    return true;
}

/* assumed: wide enough for what ds_metric_print says of the kind. */
static int width_of(ds_metric_kind kind) {
    return kind == DS_METRIC_IS_RATE ? 14 : kind == DS_METRIC_IS_SHARE ? 7 : 12;
}

void ds_best_put_line(const ds_best_row *row, const ds_best_row *shown, ds_buf *out) {
    static const ds_metric_place places[] = {DS_AMONG_FIRST, DS_AMONG_TOKENS, DS_AMONG_RESULTS,
                                             DS_AMONG_PRICES};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (int i = 0; i < DS_METRIC_COUNT && has_place(shown, places[p]); i++) {
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
    const ds_best_row *first = n ? &rows[0] : NULL;
    ds_buf_printf(out, "\n%s\n", title);
    ds_best_put_line(NULL, first, out);
    if (hashes) ds_buf_printf(out, "  %-16s", "hash");
    ds_buf_put(out, "  candidate\n");
    for (uint32_t i = 0; i < n; i++) {
        ds_best_put_line(&rows[i], first, out);
        if (hashes) ds_buf_printf(out, "  %016" PRIx64, rows[i].hash);
        ds_buf_printf(out, "  %s\n", rows[i].values);
    }
}

/* ---- JSON ---- */

static void put_row(const ds_best_row *row, ds_json *json) {
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, row->hash);
    ds_json_begin_object(json);
    ds_json_key_string(json, "hash", hash);
    ds_json_key_int(json, "candidate", (int64_t)row->number);
    ds_json_key(json, "values");
    ds_json_begin_object(json);
    const char *at = row->pairs;
    for (uint32_t i = 0; i < row->n_pairs; i++) {
        const char *value = at + strlen(at) + 1;
        ds_json_key_string(json, at, value);
        at = value + strlen(value) + 1;
    }
    ds_json_end_object(json);
    for (int i = 0; i < DS_METRIC_COUNT; i++) {
        const ds_metric *metric = ds_metric_at((ds_metric_id)i);
        if (metric->column && metric->of == (ds_metric_id)i && has_place(row, metric->place))
            ds_metric_put_json(&row->metrics, (ds_metric_id)i, json);
    }
    ds_json_end_object(json);
}

static void put_rows(const char *key, const ds_best_row *rows, uint32_t n, ds_json *json) {
    ds_json_key(json, key);
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n; i++) put_row(&rows[i], json);
    ds_json_end_array(json);
}

void ds_best_put_json(const ds_best *best, ds_json *json) {
    put_rows("best", best->top.at, best->top.n, json);
    if (best->n_objectives > 1) put_rows("front", best->front.at, best->front.n, json);
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
