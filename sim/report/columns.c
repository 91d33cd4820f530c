/* Several runs side by side: a column a run, a row a cause of time or a category of memory. */
#include "sim/report/internal.h"

#include <stdlib.h>
#include <string.h>

/* A cause or category, and its cost in every run. */
typedef struct row {
    ds_time_kind kind;
    const char *what;
    int64_t *values; /* a run */
} row;

typedef struct table {
    const ds_result *const *results;
    const char *const *titles;
    uint32_t n;
    ds_arena arena;
    ds_strtab names;
    DS_VEC(row) time;
    DS_VEC(row) memory;
} table;

static int64_t total(const table *t, const row *r) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < t->n; i++) sum += r->values[i];
    return sum;
}

static row *time_row(table *t, const ds_cause *cause) {
    for (uint32_t i = 0; i < t->time.n; i++)
        if (t->time.at[i].kind == cause->kind && strcmp(t->time.at[i].what, cause->what) == 0)
            return &t->time.at[i];
    row fresh = {cause->kind, ds_intern(&t->names, cause->what),
                 DS_NEW_N(&t->arena, int64_t, t->n)};
    DS_PUSH(&t->arena, &t->time, fresh);
    return &t->time.at[t->time.n - 1];
}

static void fill_time(table *t) {
    for (uint32_t i = 0; i < t->n; i++) {
        ds_causes causes;
        ds_causes_of_class(t->results[i], t->results[i]->critical, &causes);
        for (uint32_t k = 0; k < causes.rows.n; k++)
            time_row(t, &causes.rows.at[k])->values[i] = causes.rows.at[k].ps;
        ds_causes_deinit(&causes);
    }
}

static void fill_memory(table *t) {
    for (int k = 0; k < DS_MEM_CATEGORY_COUNT; k++) {
        row r = {.what = ds_mem_category_name(k), .values = DS_NEW_N(&t->arena, int64_t, t->n)};
        for (uint32_t i = 0; i < t->n; i++) {
            const ds_result *result = t->results[i];
            r.values[i] = result->mem.classes[result->fullest].peak_by_category[k];
        }
        if (total(t, &r)) DS_PUSH(&t->arena, &t->memory, r);
    }
}

/* Most expensive rows first; equal ones stay in the order in which the runs have them. */
static void sort_rows(const table *t, row *rows, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        row moved = rows[i];
        uint32_t k = i;
        for (; k && total(t, &rows[k - 1]) < total(t, &moved); k--) rows[k] = rows[k - 1];
        rows[k] = moved;
    }
}

static void make(const ds_result *const *results, const char *const *names, uint32_t n, table *t) {
    *t = (table){.results = results, .titles = names, .n = n};
    ds_arena_init(&t->arena);
    ds_strtab_init(&t->names);
    fill_time(t);
    fill_memory(t);
    sort_rows(t, t->time.at, t->time.n);
    sort_rows(t, t->memory.at, t->memory.n);
}

static void discard(table *t) {
    ds_strtab_deinit(&t->names);
    ds_arena_deinit(&t->arena);
}

/* ---- text ---- */

enum { LABEL = 28, CELL = 11 };

/* A cell is as wide as its column's name, if the name is long. */
static void put_cell(const table *t, uint32_t i, const char *text, ds_buf *out) {
    size_t n = strlen(t->titles[i]);
    ds_buf_printf(out, "  %*s", n > CELL ? (int)n : CELL, text);
}

static void put_cells(const table *t, const int64_t *values, ds_text (*print)(int64_t),
                      ds_buf *out) {
    for (uint32_t i = 0; i < t->n; i++) put_cell(t, i, print(values[i]).s, out);
    ds_buf_putc(out, '\n');
}

static void put_rows(const table *t, const row *rows, uint32_t n, ds_text (*print)(int64_t),
                     ds_buf *out) {
    int64_t *sums = ds_xcalloc(t->n, sizeof *sums);
    for (uint32_t i = 0; i < n; i++) {
        ds_buf what = {0};
        if (print == ds_report__ps)
            ds_report__cause(rows[i].kind, rows[i].what, &what);
        else
            ds_buf_put(&what, rows[i].what);
        ds_buf_printf(out, "  %-*s", LABEL, what.text);
        put_cells(t, rows[i].values, print, out);
        for (uint32_t k = 0; k < t->n; k++) sums[k] += rows[i].values[k];
        ds_buf_deinit(&what);
    }
    ds_buf_printf(out, "  %-*s", LABEL, "in all");
    put_cells(t, sums, print, out);
    free(sums);
}

static void put_titles(const table *t, const char *title, ds_buf *out) {
    ds_buf_printf(out, "%-*s", LABEL + 2, title);
    for (uint32_t i = 0; i < t->n; i++) put_cell(t, i, t->titles[i], out);
    ds_buf_putc(out, '\n');
}

/* The figures of tokens, if every run has some. */
static void put_tokens(const table *t, ds_buf *out) {
    bool any = false;
    for (uint32_t i = 0; i < t->n; i++)
        if (!ds_metric_is_known(&t->results[i]->metrics, DS_METRIC_first_token_ps)) return;
    for (int k = 0; k < DS_METRIC_COUNT; k++) {
        if (ds_metric_at((ds_metric_id)k)->place != DS_AMONG_TOKENS) continue;
        if (!any) {
            ds_buf_putc(out, '\n');
            put_titles(t, "Tokens", out);
        }
        any = true;
        ds_buf_printf(out, "  %-*s", LABEL, ds_metric_at((ds_metric_id)k)->title);
        for (uint32_t i = 0; i < t->n; i++) {
            ds_buf cell = {0};
            ds_metric_print(&t->results[i]->metrics, (ds_metric_id)k, &cell);
            put_cell(t, i, cell.text, out);
            ds_buf_deinit(&cell);
        }
        ds_buf_putc(out, '\n');
    }
}

static void put_verdicts(const table *t, ds_buf *out) {
    ds_buf_printf(out, "  %-*s", LABEL, "fits");
    for (uint32_t i = 0; i < t->n; i++)
        put_cell(t, i, t->results[i]->metrics.fits ? "yes" : "no", out);
    ds_buf_putc(out, '\n');
}

void ds_report_columns(const ds_result *const *results, const char *const *names, uint32_t n,
                       ds_buf *out) {
    table t;
    make(results, names, n, &t);
    put_titles(&t, "Step time by cause", out);
    put_rows(&t, t.time.at, t.time.n, ds_report__ps, out);
    ds_buf_putc(out, '\n');
    put_titles(&t, "Peak memory by category", out);
    put_rows(&t, t.memory.at, t.memory.n, ds_report__bytes, out);
    put_verdicts(&t, out);
    put_tokens(&t, out);
    discard(&t);
}

/* ---- JSON ---- */

static void json_runs(ds_json *json, const ds_result *const *results, const char *const *names,
                      uint32_t n) {
    ds_json_key(json, "runs");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n; i++) {
        ds_json_begin_object(json);
        ds_json_key_string(json, "setting", names[i]);
        for (int k = 0; k < DS_METRIC_COUNT; k++)
            if (ds_metric_at((ds_metric_id)k)->compared &&
                ds_metric_is_known(&results[i]->metrics, (ds_metric_id)k))
                ds_metric_put_json(&results[i]->metrics, (ds_metric_id)k, json);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}

static void json_rows(ds_json *json, const table *t, bool time) {
    const row *rows = time ? t->time.at : t->memory.at;
    ds_json_key(json, time ? "time" : "memory");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < (time ? t->time.n : t->memory.n); i++) {
        ds_json_begin_object(json);
        if (time) ds_json_key_string(json, "kind", ds_time_kind_name(rows[i].kind));
        ds_json_key_string(json, time ? "what" : "category", rows[i].what);
        ds_json_key(json, time ? "ps" : "bytes");
        ds_json_begin_array(json);
        for (uint32_t k = 0; k < t->n; k++) ds_json_int(json, rows[i].values[k]);
        ds_json_end_array(json);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}

void ds_report_columns_json(const ds_result *const *results, const char *const *names, uint32_t n,
                            ds_buf *out) {
    table t;
    ds_json json;
    make(results, names, n, &t);
    ds_json_init(&json, out, 2);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "version", DS_VERSION);
    json_runs(&json, results, names, n);
    json_rows(&json, &t, true);
    json_rows(&json, &t, false);
    ds_json_end_object(&json);
    ds_buf_putc(out, '\n');
    discard(&t);
}
