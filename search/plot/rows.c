/* A sweep's table, read for pictures. Beyond MAX_POINTS points every second point is dropped, again
 * and again; the front and the cells are exact. */
#include "search/plot/internal.h"

#include "ir/base/csv.h"
#include "ir/base/units.h"
#include "search/driver/rows.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_POINTS = 20000, MAX_LIMITS = 8 };

/* X(column of the table). */
#define COLUMNS(X)                                                                                 \
    X(model_size)                                                                                  \
    X(world_size)                                                                                  \
    X(dp_degree)                                                                                   \
    X(hp_degree)                                                                                   \
    X(pp_degree)                                                                                   \
    X(num_microbatches)                                                                            \
    X(latency)                                                                                     \
    X(throughput)                                                                                  \
    X(status)

typedef struct columns {
#define DS_X(name) uint32_t name;
    COLUMNS(DS_X)
#undef DS_X
    uint32_t memory_capacity; /* the number of columns: a table without it */
    uint32_t x, y;
} columns;

typedef struct reading {
    ds_plot_rows *rows;
    ds_map seen;  /* hash of (world, tp, pp) → cell */
    ds_map pairs; /* hash of two knobs' values → pair */
    const char *const *cells;
    uint32_t n;
    columns at;
} reading;

static bool find_column(const reading *r, const char *name, uint32_t *column) {
    for (*column = 0; *column < r->n; ++*column)
        if (strcmp(r->cells[*column], name) == 0) return true;
    return false;
}

static bool find_columns(reading *r) {
    bool all = r->n > 0;
#define DS_X(name) all = all && find_column(r, #name, &r->at.name);
    COLUMNS(DS_X)
#undef DS_X
    return all;
}

bool ds_plot_is_knob(const char *column, const char *knob) {
    const char *dot = strrchr(column, '.');
    return strcmp(column, knob) == 0 || (dot && strcmp(dot + 1, knob) == 0);
}

static ds_status find_axis(const reading *r, const char *path, ds_metric_id id, const char *knob,
                           uint32_t *column, ds_error *err) {
    const char *name = id == DS_METRIC_COUNT ? knob : ds_metric_column(id);
    if (find_column(r, name, column)) return DS_OK;
    for (*column = 0; id == DS_METRIC_COUNT && *column < r->n; ++*column)
        if (ds_plot_is_knob(r->cells[*column], knob)) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s has no column '%s'", path, name);
}

static double real(const reading *r, uint32_t column) {
    return strtod(r->cells[column], NULL);
}

/* A degree; 1 where the table is blank, as for a program without a strategy. */
static int64_t degree(const reading *r, uint32_t column) {
    int64_t value = strtoll(r->cells[column], NULL, 10);
    return value > 0 ? value : 1;
}

static void add_point(ds_plot_rows *rows, ds_plot_point point) {
    if (rows->simulated++ % rows->stride) return;
    if (rows->points.n == MAX_POINTS) {
        for (uint32_t i = 0; i < MAX_POINTS / 2; i++) rows->points.at[i] = rows->points.at[2 * i];
        rows->points.n = MAX_POINTS / 2;
        rows->stride *= 2;
    }
    DS_HPUSH(&rows->points, point);
}

/* Is a no worse than b by x, or by y? */
static bool leads_x(const ds_plot_rows *rows, const ds_plot_point *a, const ds_plot_point *b) {
    return ds_metric_at(rows->axes.x)->more ? a->x >= b->x : a->x <= b->x;
}

static bool leads_y(const ds_plot_rows *rows, const ds_plot_point *a, const ds_plot_point *b) {
    return ds_metric_at(rows->axes.y)->more ? a->y >= b->y : a->y <= b->y;
}

/* Keeps the front in order: each point is better by y than all points that are better by x. */
static void add_front(ds_plot_rows *rows, ds_plot_point point) {
    const ds_plot_point *front = rows->front.at;
    uint32_t at = 0, kept;
    while (at < rows->front.n && leads_x(rows, &front[at], &point)) at++;
    if (at && leads_y(rows, &front[at - 1], &point)) return;
    uint32_t end = at;
    while (at && leads_x(rows, &point, &front[at - 1])) at--; /* as good by x, worse by y */
    while (end < rows->front.n && leads_y(rows, &point, &front[end])) end++;
    kept = rows->front.n - end;
    DS_HPUSH(&rows->front, point); /* room for one more */
    memmove(rows->front.at + at + 1, rows->front.at + end, kept * sizeof point);
    rows->front.at[at] = point;
    rows->front.n = at + 1 + kept;
}

static void add_cell(reading *r, ds_plot_cell cell) {
    uint64_t key = ds_hash_mix(ds_hash_mix(ds_hash_mix(0, (uint64_t)cell.world), (uint64_t)cell.tp),
                               (uint64_t)cell.pp);
    uint64_t *known = ds_map_find(&r->seen, key);
    if (!known) {
        ds_map_put(&r->seen, key, r->rows->cells.n);
        DS_HPUSH(&r->rows->cells, cell);
    } else if (cell.per_s > r->rows->cells.at[*known].per_s) {
        r->rows->cells.at[*known] = cell;
    }
}

/* ---- knobs ---- */

static char *copy_text(const char *text) {
    return strcpy(ds_xmalloc(strlen(text) + 1), text);
}

/* The number of a knob's value, by its first row. */
static double label_of(ds_plot_rows *rows, int axis, const char *text) {
    uint32_t i = 0;
    while (i < rows->labels[axis].n && strcmp(rows->labels[axis].at[i], text) != 0) i++;
    if (i == rows->labels[axis].n) DS_HPUSH(&rows->labels[axis], copy_text(text));
    return i;
}

static bool is_before(const char *a, const char *b) {
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    return !*end_a && !*end_b && x < y;
}

/* Orders labels that are numbers, and numbers the points anew. */
static void order_labels(ds_plot_rows *rows, int axis) {
    uint32_t n = rows->labels[axis].n, *place = ds_xcalloc(n + 1, sizeof *place);
    char **sorted = ds_xcalloc(n + 1, sizeof *sorted);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++) {
            bool less = is_before(rows->labels[axis].at[k], rows->labels[axis].at[i]),
                 more = is_before(rows->labels[axis].at[i], rows->labels[axis].at[k]);
            place[i] += less || (!more && k < i);
        }
    for (uint32_t i = 0; i < n; i++) sorted[place[i]] = rows->labels[axis].at[i];
    for (uint32_t i = 0; i < n; i++) rows->labels[axis].at[i] = sorted[i];
    for (int v = 0; v < 2 && n; v++) {
        ds_plot_point *at = v ? rows->pairs.at : rows->points.at;
        for (uint32_t i = 0; i < (v ? rows->pairs.n : rows->points.n); i++) {
            double *value = axis ? &at[i].y : &at[i].x;
            *value = place[(uint32_t)*value];
        }
    }
    free(place);
    free(sorted);
}

static void add_pair(reading *r, ds_plot_point point) {
    uint64_t key = ds_hash_mix(ds_hash_mix(0, (uint64_t)point.x), (uint64_t)point.y);
    uint64_t *known = ds_map_find(&r->pairs, key);
    if (!known) {
        ds_map_put(&r->pairs, key, r->rows->pairs.n);
        DS_HPUSH(&r->rows->pairs, point);
        return;
    }
    ds_plot_point *best = &r->rows->pairs.at[*known];
    bool fits = point.kind == DS_PLOT_OK, did = best->kind == DS_PLOT_OK;
    if (fits > did || (fits == did && point.per_s > best->per_s)) *best = point;
}

static void add_limit(reading *r) {
    if (r->at.memory_capacity == r->n) return;
    double gib = real(r, r->at.memory_capacity) / (1 << 30);
    for (uint32_t i = 0; i < r->rows->limits.n; i++)
        if (r->rows->limits.at[i] == gib) return;
    if (gib > 0 && r->rows->limits.n < MAX_LIMITS) DS_HPUSH(&r->rows->limits, gib);
}

static double coordinate(const reading *r, int axis, double per_s) {
    ds_metric_id id = axis ? r->rows->axes.y : r->rows->axes.x;
    uint32_t column = axis ? r->at.y : r->at.x;
    if (id == DS_METRIC_COUNT) return label_of(r->rows, axis, r->cells[column]);
    const ds_metric *metric = ds_metric_at(id);
    if (id == DS_METRIC_throughput_per_s) return per_s;
    return real(r, column) / (metric->kind == DS_METRIC_IS_BYTES && metric->axis ? 1 << 30 : 1);
}

static void add_row(reading *r) {
    ds_plot_rows *rows = r->rows;
    const char *status = r->cells[r->at.status];
    double latency_s = real(r, r->at.latency), per_s = real(r, r->at.throughput);
    if (!(latency_s > 0)) return; /* not simulated */
    if (!(per_s > 0)) {
        per_s = 1 / latency_s;
        rows->steps = true;
    }
    ds_plot_point point = {coordinate(r, 0, per_s), coordinate(r, 1, per_s),
                           strcmp(status, "ok") == 0         ? DS_PLOT_OK
                           : strcmp(status, "excluded") == 0 ? DS_PLOT_EXCLUDED
                                                             : DS_PLOT_TOO_LARGE,
                           per_s};
    int knobs = (rows->axes.x == DS_METRIC_COUNT) + (rows->axes.y == DS_METRIC_COUNT);
    add_point(rows, point);
    add_limit(r);
    if (knobs == 2) add_pair(r, point);
    if (point.kind != DS_PLOT_OK) return;
    if (knobs == 0) add_front(rows, point); /* a knob's values are not better or worse */
    add_cell(r, (ds_plot_cell){degree(r, r->at.world_size), degree(r, r->at.dp_degree),
                               degree(r, r->at.hp_degree), degree(r, r->at.pp_degree),
                               degree(r, r->at.num_microbatches), per_s});
}

static int by_degrees(const void *left, const void *right) {
    const ds_plot_cell *a = left, *b = right;
    if (a->world != b->world) return a->world < b->world ? -1 : 1;
    if (a->tp != b->tp) return a->tp < b->tp ? -1 : 1;
    return (a->pp > b->pp) - (a->pp < b->pp);
}

static void sort(ds_plot_rows *rows) {
    if (!rows->cells.n) return;
    qsort(rows->cells.at, rows->cells.n, sizeof *rows->cells.at, by_degrees);
    for (uint32_t i = 0; i < rows->cells.n; i++)
        if (!i || rows->cells.at[i].world != rows->cells.at[i - 1].world)
            DS_HPUSH(&rows->worlds, rows->cells.at[i].world);
}

static void keep_model(reading *r, const ds_csv_stream *table, bool plain) {
    const char *model = table->cells[r->at.model_size];
    if (plain) model = ds_rows_plain(model);
    r->rows->model = copy_text(model);
}

static ds_status read_table(reading *r, ds_csv_stream *table, ds_error *err) {
    bool found;
    DS_TRY(ds_csv_next(table, &found, err));
    r->n = table->n;
    r->cells = table->cells;
    if (!find_columns(r))
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s is no file of a sweep", table->path);
    find_column(r, "memory_capacity", &r->at.memory_capacity);
    const ds_plot_axes *axes = &r->rows->axes;
    DS_TRY(find_axis(r, table->path, axes->x, axes->x_knob, &r->at.x, err));
    DS_TRY(find_axis(r, table->path, axes->y, axes->y_knob, &r->at.y, err));
    bool plain = strcmp(table->cells[table->n - 1], DS_ROWS_SPREADSHEET) == 0;
    while (true) {
        DS_TRY(ds_csv_next(table, &found, err));
        if (!found) break;
        if (table->n != r->n) continue; /* half a row */
        r->cells = table->cells;
        if (!r->rows->model) keep_model(r, table, plain);
        add_row(r);
    }
    if (r->rows->simulated) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "%s has no candidate that was simulated: nothing to draw", table->path);
}

ds_status ds_plot_rows_read(const char *csv, ds_plot_axes axes, ds_plot_rows *out, ds_error *err) {
    *out = (ds_plot_rows){.axes = axes, .stride = 1};
    reading r = {.rows = out};
    ds_csv_stream table;
    DS_TRY(ds_csv_open(&table, csv, err));
    ds_map_init(&r.seen);
    ds_map_init(&r.pairs);
    ds_status status = read_table(&r, &table, err);
    ds_map_deinit(&r.seen);
    ds_map_deinit(&r.pairs);
    ds_csv_close(&table);
    sort(out);
    for (int axis = 0; axis < 2; axis++) order_labels(out, axis);
    return status;
}

void ds_plot_rows_deinit(ds_plot_rows *rows) {
    free(rows->model);
    free(rows->points.at);
    free(rows->front.at);
    free(rows->cells.at);
    free(rows->worlds.at);
    free(rows->limits.at);
    free(rows->pairs.at);
    for (int axis = 0; axis < 2; axis++) {
        for (uint32_t i = 0; i < rows->labels[axis].n; i++) free(rows->labels[axis].at[i]);
        free(rows->labels[axis].at);
    }
    *rows = (ds_plot_rows){0};
}
