/* A sweep's table as columns of JSON, about 100 bytes a row.
 *
 * Each column is an object {name, kind, more, …} with one of
 *     same: value            in all rows
 *     as: name               equal to that column, row by row
 *     values: [v, …]         up to 64 different values, and codes: a character of CODES a row
 *     numbers: [n, …]        a number a row, null where the cell is empty
 *     texts: [t, …]          else
 * `kind` is the metric's (ir/strategy/metrics.def), "knob" or "text". Of tables of more than EXACT_ROWS
 * rows reals keep six digits; integers are exact always. */
#include "ir/base/csv.h"
#include "ir/base/map.h"
#include "ir/strategy/metrics.h"
#include "tools/report/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CODES "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-"
enum { MOST_CODES = 64, EXACT_ROWS = 20000 };

typedef struct column {
    const char *name;
    ds_metric_id metric; /* DS_METRIC_COUNT: a text or a knob */
    DS_VEC(const char *) cells;
    uint64_t hash; /* of all cells in order */
    const char *values[MOST_CODES];
    uint32_t n_values; /* MOST_CODES + 1: more */
    bool is_number;
} column;

typedef struct table {
    ds_strtab texts;
    column *columns;
    uint32_t n, n_rows;
} table;

/* ---- reading ---- */

/* Does JSON have the cell as a number? Empty cells are null. */
static bool is_number(const char *cell) {
    const char *p = cell + (*cell == '-');
    size_t digits = strspn(p, "0123456789");
    if (!*cell) return true;
    if (!digits || (digits > 1 && *p == '0')) return false;
    p += digits;
    if (*p == '.') {
        if (!(digits = strspn(p + 1, "0123456789"))) return false;
        p += 1 + digits;
    }
    if (*p == 'e' || *p == 'E') {
        p += 1 + (p[1] == '-' || p[1] == '+');
        if (!(digits = strspn(p, "0123456789"))) return false;
        p += digits;
    }
    return !*p;
}

static void add_cell(table *t, column *c, const char *text) {
    const char *cell = ds_intern(&t->texts, text);
    uint32_t i = 0;
    c->hash = ds_hash_mix(c->hash, DS_KEY(cell));
    c->is_number = c->is_number && is_number(cell);
    DS_HPUSH(&c->cells, cell);
    if (c->n_values > MOST_CODES) return;
    while (i < c->n_values && c->values[i] != cell) i++;
    if (i < c->n_values) return;
    if (c->n_values < MOST_CODES) c->values[i] = cell;
    c->n_values++;
}

static ds_status read_table(table *t, const char *path, ds_error *err) {
    ds_csv_stream stream = {.file = NULL};
    bool found = false;
    ds_status status = ds_csv_open(&stream, path, err);
    if (status == DS_OK) status = ds_csv_next(&stream, &found, err);
    t->n = found ? stream.n : 0;
    t->columns = ds_xcalloc(t->n, sizeof *t->columns);
    for (uint32_t i = 0; i < t->n; i++)
        t->columns[i] = (column){.name = ds_intern(&t->texts, stream.cells[i]),
                                 .metric = ds_metric_by_column(stream.cells[i]),
                                 .is_number = true};
    while (status == DS_OK && (status = ds_csv_next(&stream, &found, err)) == DS_OK && found) {
        for (uint32_t i = 0; i < t->n && i < stream.n; i++)
            add_cell(t, &t->columns[i], stream.cells[i]);
        t->n_rows++;
    }
    ds_csv_close(&stream);
    return status;
}

/* ---- as JSON ---- */

static void put_value(const table *t, const column *c, const char *cell, ds_json *json) {
    bool real = c->is_number && strpbrk(cell, ".eE");
    if (!c->is_number) {
        ds_json_string(json, cell);
    } else if (!*cell) {
        ds_json_null(json);
    } else if (real && t->n_rows > EXACT_ROWS) {
        char text[32];
        snprintf(text, sizeof text, "%.6g", strtod(cell, NULL));
        ds_json_raw(json, text);
    } else {
        ds_json_raw(json, cell);
    }
}

static void put_codes(const table *t, const column *c, ds_json *json) {
    ds_json_key(json, "values");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < c->n_values; i++) put_value(t, c, c->values[i], json);
    ds_json_end_array(json);
    char *codes = ds_xmalloc(t->n_rows + 1);
    for (uint32_t r = 0; r < t->n_rows; r++) {
        uint32_t i = 0;
        while (c->values[i] != c->cells.at[r]) i++;
        codes[r] = CODES[i];
    }
    codes[t->n_rows] = '\0';
    ds_json_key_string(json, "codes", codes);
    free(codes);
}

static void put_cells(const table *t, const column *c, ds_json *json) {
    ds_json_key(json, c->is_number ? "numbers" : "texts");
    ds_json_begin_array(json);
    for (uint32_t r = 0; r < t->n_rows; r++) put_value(t, c, c->cells.at[r], json);
    ds_json_end_array(json);
}

/* The column before that has the same cells; NULL: none. */
static const column *same_as(const table *t, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (t->columns[k].hash == t->columns[i].hash) return &t->columns[k];
    return NULL;
}

static const char *kind_of(const column *c) {
    static const char *const names[] = {
#define DS_X(kind, type) #kind,
        DS_METRIC_KINDS(DS_X)
#undef DS_X
    };
    static const char *const texts[] = {"model_size", "status", "reason", "hash",
                                        "candidate",  "sweep",  "source", "settings"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(c->name, texts[i]) == 0) return "text";
    return c->metric == DS_METRIC_COUNT ? "knob" : names[ds_metric_at(c->metric)->kind];
}

static void put_column(const table *t, uint32_t i, ds_json *json) {
    const column *c = &t->columns[i], *same = same_as(t, i);
    ds_json_begin_object(json);
    ds_json_key_string(json, "name", c->name);
    ds_json_key_string(json, "kind", kind_of(c));
    if (c->metric != DS_METRIC_COUNT && ds_metric_at(c->metric)->more)
        ds_json_key_bool(json, "more", true);
    if (c->n_values == 1) {
        ds_json_key(json, "same");
        put_value(t, c, c->values[0], json);
    } else if (same && c->n_values) {
        ds_json_key_string(json, "as", same->name);
    } else if (c->n_values <= MOST_CODES) {
        put_codes(t, c, json);
    } else {
        put_cells(t, c, json);
    }
    ds_json_end_object(json);
}

/* The latency is step_time_ps in seconds, and a candidate's number that of its row, mostly. */
static bool is_left_out(const table *t, uint32_t i) {
    const column *c = &t->columns[i];
    if (strcmp(c->name, "latency") == 0) return true;
    if (strcmp(c->name, "candidate") != 0) return false;
    for (uint32_t r = 0; r < t->n_rows; r++)
        if (strtoull(c->cells.at[r], NULL, 10) != r) return false;
    return true;
}

ds_status report_put_table(const char *path, ds_json *json, ds_error *err) {
    table t = {.n = 0};
    ds_strtab_init(&t.texts);
    ds_status status = read_table(&t, path, err);
    if (status == DS_OK) {
        ds_json_key_int(json, "rows", t.n_rows);
        ds_json_key_bool(json, "exact", t.n_rows <= EXACT_ROWS);
        ds_json_key(json, "columns");
        ds_json_begin_array(json);
        for (uint32_t i = 0; i < t.n; i++)
            if (!is_left_out(&t, i)) put_column(&t, i, json);
        ds_json_end_array(json);
    }
    for (uint32_t i = 0; i < t.n; i++) free(t.columns[i].cells.at);
    free(t.columns);
    ds_strtab_deinit(&t.texts);
    return status;
}

ds_status report_plan_page(const char *plan, const char *path, bool keeps, ds_buf *out,
                           ds_error *err) {
    ds_json json;
    ds_buf text = {0};
    report_begin(&json, &text, "plan");
    ds_json_key(&json, "plan");
    ds_json_raw(&json, plan);
    ds_json_key_string(&json, "table", keeps ? path : "");
    ds_status status = report_put_table(path, &json, err);
    if (status == DS_OK)
        report_end(&json, &text, out);
    else
        ds_buf_deinit(&text);
    return status;
}

ds_status report_sweep_page(const char *path, const char *file, ds_buf *out, ds_error *err) {
    ds_json json;
    ds_buf text = {0};
    report_begin(&json, &text, "sweep");
    ds_json_key_string(&json, "table", path);
    ds_json_key_string(&json, "file", file);
    ds_status status = report_put_table(path, &json, err);
    if (status == DS_OK)
        report_end(&json, &text, out);
    else
        ds_buf_deinit(&text);
    return status;
}
