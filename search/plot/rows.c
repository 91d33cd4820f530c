/* A sweep's table, read for pictures. Beyond MAX_POINTS points every second point is dropped, again
 * and again; the front and the cells are exact. */
#include "search/plot/internal.h"

#include "ir/base/csv.h"
#include "ir/base/units.h"
#include "search/driver/rows.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_POINTS = 20000 };

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
    uint32_t x, y;
} columns;

typedef struct reading {
    ds_plot_rows *rows;
    ds_map seen; /* hash of (world, tp, pp) → cell */
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

static ds_status find_axis(const reading *r, const char *path, ds_metric_id id, uint32_t *column,
                           ds_error *err) {
    if (find_column(r, ds_metric_column(id), column)) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s has no column '%s'", path,
                        ds_metric_column(id));
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

static double coordinate(const reading *r, ds_metric_id id, uint32_t column, double per_s) {
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
    ds_plot_point point = {coordinate(r, rows->axes.x, r->at.x, per_s),
                           coordinate(r, rows->axes.y, r->at.y, per_s),
                           strcmp(status, "ok") == 0         ? DS_PLOT_OK
                           : strcmp(status, "excluded") == 0 ? DS_PLOT_EXCLUDED
                                                             : DS_PLOT_TOO_LARGE};
    add_point(rows, point);
    if (point.kind != DS_PLOT_OK) return;
    add_front(rows, point);
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
    r->rows->model = strcpy(ds_xmalloc(strlen(model) + 1), model);
}

static ds_status read_table(reading *r, ds_csv_stream *table, ds_error *err) {
    bool found;
    DS_TRY(ds_csv_next(table, &found, err));
    r->n = table->n;
    r->cells = table->cells;
    if (!find_columns(r))
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s is no file of a sweep", table->path);
    DS_TRY(find_axis(r, table->path, r->rows->axes.x, &r->at.x, err));
    DS_TRY(find_axis(r, table->path, r->rows->axes.y, &r->at.y, err));
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
    ds_status status = read_table(&r, &table, err);
    ds_map_deinit(&r.seen);
    ds_csv_close(&table);
    sort(out);
    return status;
}

void ds_plot_rows_deinit(ds_plot_rows *rows) {
    free(rows->model);
    free(rows->points.at);
    free(rows->front.at);
    free(rows->cells.at);
    free(rows->worlds.at);
    *rows = (ds_plot_rows){0};
}
