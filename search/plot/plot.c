/* The gnuplot script, and running gnuplot. The script holds the data in "data blocks" ($name <<
 * END), so that the script is all that a picture needs. Colours are those of Okabe and Ito, which
 * colour-blind readers tell apart; the heat map has one hue from light to dark, which prints in
 * grey, too. */
#include "search/plot/plot.h"

#include "ir/base/output.h"
#include "ir/base/units.h"
#include "search/plot/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ROWS_OF_MAP = 30, MAX_COLUMNS_LABELLED = 10, HEIGHT = 640, LINE_HEIGHT = 38 };

#define BLUE   "#0072B2"
#define SKY    "#56B4E9"
#define ORANGE "#D55E00"
#define GREEN  "#009E73"
#define PURPLE "#CC79A7"
#define GREY   "#999999"

/* ---- text ---- */

/* Within single quotes, on one line. */
static void put_quoted(ds_buf *out, const char *text) {
    ds_buf_putc(out, '\'');
    for (; *text; text++) {
        if (*text == '\'') ds_buf_putc(out, '\'');
        ds_buf_putc(out, (unsigned char)*text < ' ' ? ' ' : *text);
    }
    ds_buf_putc(out, '\'');
}

/* "grid.svg" → "grid" and "svg". */
static const char *suffix(const char *out, size_t *stem) {
    const char *dot = strrchr(out, '.');
    if (!dot || dot == out || dot[-1] == '/') return "";
    *stem = (size_t)(dot - out);
    return dot + 1;
}

/* "grid-memory.svg" */
static void put_picture(const char *out, const char *which, ds_buf *name) {
    size_t stem = 0;
    const char *end = suffix(out, &stem);
    ds_buf_put_n(name, out, stem);
    ds_buf_printf(name, "-%s.%s", which, end);
}

/* Begins a picture, `height` pixels high. */
static void put_output(ds_buf *s, const char *out, const char *which, uint32_t height) {
    size_t stem;
    const char *end = suffix(out, &stem);
    ds_buf name = {0};
    put_picture(out, which, &name);
    ds_buf_printf(s, "\nset terminal %s size 960,%" PRIu32 " %s\nset output ",
                  strcmp(end, "png") == 0 ? "pngcairo" : "svg", height,
                  strcmp(end, "png") == 0 ? "font 'Sans,11'"
                                          : "font 'sans-serif,13' background '#ffffff'");
    put_quoted(s, name.text);
    ds_buf_putc(s, '\n');
    ds_buf_deinit(&name);
}

static void put_title(ds_buf *s, const ds_plot_rows *rows, const char *what) {
    ds_buf title = {0};
    ds_buf_printf(&title, "%s%s%s", rows->model ? rows->model : "", rows->model ? ": " : "", what);
    ds_buf_put(s, "set title ");
    put_quoted(s, title.text);
    ds_buf_put(s, " noenhanced\n");
    ds_buf_deinit(&title);
}

static void put_label(ds_buf *s, const ds_plot_rows *rows, char axis, ds_metric_id id) {
    if (id == DS_METRIC_COUNT) { /* names of knobs have no quotes */
        ds_buf_printf(s, "set %clabel '%s' noenhanced\n", axis,
                      axis == 'x' ? rows->axes.x_knob : rows->axes.y_knob);
        return;
    }
    const char *label = ds_metric_at(id)->axis;
    if (id == DS_METRIC_throughput_per_s && rows->steps) label = "steps a second";
    ds_buf_printf(s, "set %clabel '%s'%s\n", axis, label ? label : ds_metric_column(id),
                  label ? "" : " noenhanced");
}

static const char *name_of(ds_metric_id id, const char *knob) {
    if (id == DS_METRIC_COUNT) return knob;
    return ds_metric_at(id)->title ? ds_metric_at(id)->title : ds_metric_column(id);
}

ds_status ds_plot_read_axes(const char *text, ds_plot_axes *out, ds_error *err) {
    ds_metric_id *axes[] = {&out->x, &out->y};
    char *knobs[] = {out->x_knob, out->y_knob};
    const char *rest = text;
    for (int i = 0; i < 2; i++) {
        char *name = knobs[i];
        size_t n = strcspn(rest, ",");
        bool is_name = n > 0 && n < sizeof out->x_knob && strcspn(rest, "' \\\n") >= n;
        snprintf(name, sizeof out->x_knob, "%.*s", (int)n, rest);
        *axes[i] = ds_metric_by_column(name);
        if (*axes[i] == DS_METRIC_COUNT) *axes[i] = ds_metric_by_name(name);
        if (*axes[i] != DS_METRIC_COUNT && !ds_metric_column(*axes[i])) *axes[i] = DS_METRIC_COUNT;
        if (!is_name)
            return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                                "--plot-axes takes two columns, results or knobs of the sweep, as "
                                "in peak_memory,throughput or tp,pp; '%s' is none",
                                name);
        rest += n + (rest[n] != '\0');
    }
    if (!*rest) return DS_OK;
    return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE, "--plot-axes takes two columns, not '%s'",
                        text);
}

/* ---- one result against another ---- */

static void put_points(ds_buf *s, const char *name, const ds_plot_point *points, uint32_t n,
                       ds_plot_kind kind) {
    ds_buf_printf(s, "$%s << END\n", name);
    for (uint32_t i = 0; i < n; i++)
        if (points[i].kind == kind) ds_buf_printf(s, "%.9g %.9g\n", points[i].x, points[i].y);
    ds_buf_put(s, "END\n");
}

static bool has(const ds_plot_rows *rows, ds_plot_kind kind) {
    for (uint32_t i = 0; i < rows->points.n; i++)
        if (rows->points.at[i].kind == kind) return true;
    return false;
}

static double coordinate(const ds_plot_point *point, char axis) {
    return axis == 'x' ? point->x : point->y;
}

/* A logarithmic axis with ticks at 1, 2 and 5 times powers of ten. gnuplot's own ticks are at the
 * powers alone, and a short axis may have no power. */
static void put_log_axis(ds_buf *s, char axis, double least, double most) {
    static const int steps[] = {1, 2, 5};
    const char *comma = "";
    ds_buf_printf(s, "set logscale %c\nset %crange [%.6g:%.6g]\nset %ctics (", axis, axis, least,
                  most, axis);
    for (int power = (int)floor(log10(least)); power <= (int)floor(log10(most)); power++)
        for (int i = 0; i < 3; i++) {
            double at = steps[i] * pow(10, power);
            if (at < least || at > most) continue;
            ds_buf_printf(s, "%s%.6g", comma, at);
            comma = ", ";
        }
    ds_buf_put(s, ")\n");
}

static void put_plain_axes(ds_buf *s) {
    ds_buf_put(s, "\nunset logscale\nset autoscale xy\nset xtics auto\nset ytics auto\n");
}

/* The values of a knob side by side; every k-th has a label, so that labels do not overlap. */
static void put_values(ds_buf *s, const ds_plot_rows *rows, char axis) {
    uint32_t n = rows->labels[axis == 'y'].n, each = n / 24 + 1;
    ds_buf_printf(s, "set %ctics (", axis);
    for (uint32_t i = 0; i < n; i += each) {
        if (i) ds_buf_put(s, ", ");
        put_quoted(s, rows->labels[axis == 'y'].at[i]);
        ds_buf_printf(s, " %" PRIu32, i);
    }
    ds_buf_printf(s, ") noenhanced\nset %crange [-0.5:%" PRIu32 "-0.5]\n", axis, n);
}

/* An axis with room around all points; logarithmic where points lie far apart. */
static void put_range(ds_buf *s, const ds_plot_rows *rows, char axis) {
    if ((axis == 'x' ? rows->axes.x : rows->axes.y) == DS_METRIC_COUNT) {
        put_values(s, rows, axis);
        return;
    }
    double least = coordinate(&rows->points.at[0], axis), most = least;
    for (uint32_t i = 1; i < rows->points.n; i++) {
        double at = coordinate(&rows->points.at[i], axis);
        if (at < least) least = at;
        if (at > most) most = at;
    }
    bool limited = (axis == 'x' ? rows->axes.x : rows->axes.y) == DS_METRIC_peak_bytes;
    for (uint32_t i = 0; limited && i < rows->limits.n; i++)
        if (rows->limits.at[i] > most) most = rows->limits.at[i];
    if (least > 0 && most > 8 * least)
        put_log_axis(s, axis, least / 1.3, most * 1.3);
    else
        ds_buf_printf(s, "set %crange [0:%.6g]\n", axis, most > 0 ? most * 1.08 : 1);
}

/* Lines at the memory of the devices, across an axis of peak memory. */
static void put_limits(ds_buf *s, const ds_plot_rows *rows) {
    for (uint32_t i = 0; i < rows->limits.n; i++) {
        double gib = rows->limits.at[i];
        if (rows->axes.x == DS_METRIC_peak_bytes)
            ds_buf_printf(s, "set arrow from first %.9g,graph 0 to first %.9g,graph 1", gib, gib);
        else if (rows->axes.y == DS_METRIC_peak_bytes)
            ds_buf_printf(s, "set arrow from graph 0,first %.9g to graph 1,first %.9g", gib, gib);
        else
            return;
        ds_buf_put(s, " nohead dt 2 lw 2 lc rgb '" GREY "'\n");
    }
}

/* The pairs of which some candidate fits, or none. Returns how many there are. */
static uint32_t put_block(ds_buf *s, const ds_plot_rows *rows, const char *name, bool fits) {
    uint32_t n = 0;
    ds_buf_printf(s, "$%s << END\n", name);
    for (uint32_t i = 0; i < rows->pairs.n; i++) {
        const ds_plot_point *at = &rows->pairs.at[i];
        if ((at->kind == DS_PLOT_OK) != fits) continue;
        ds_buf rate = {0};
        ds_print_rate(at->per_s, "/s", &rate);
        ds_buf_printf(s, "%.9g %.9g %.9g \"%s\"\n", at->x, at->y, at->per_s, rate.text);
        ds_buf_deinit(&rate);
        n++;
    }
    ds_buf_put(s, "END\n");
    return n;
}

/* Two knobs: the best throughput of each pair of values, in colour and in numbers. */
static void put_pairs(ds_buf *s, const ds_plot_rows *rows) {
    bool fit = put_block(s, rows, "fit", true), others = put_block(s, rows, "others", false);
    ds_buf_put(s, "set palette defined (0 '#deebf7', 0.5 '#9ecae1', 1 '#4292c6')\n"
                  "set cblabel 'throughput'\nset format cb '%.1s%c'\nplot ");
    if (fit)
        ds_buf_put(s, "$fit using 1:2:(0.5):(0.5):3 with boxxyerror fs solid noborder palette "
                      "notitle, \\\n     $fit using 1:2:4 with labels notitle");
    if (others)
        ds_buf_printf(s, "%s$others using 1:2 with points pt 2 lc rgb '%s' title 'nothing fits'",
                      fit ? ", \\\n     " : "", ORANGE);
}

static void put_memory(ds_buf *s, const ds_plot_rows *rows, const char *out) {
    static const struct {
        const char *name, *title, *colour;
    } kinds[] = {[DS_PLOT_OK] = {"ok", "fits", BLUE},
                 [DS_PLOT_TOO_LARGE] = {"too_large", "does not fit", ORANGE},
                 [DS_PLOT_EXCLUDED] = {"excluded", "excluded by the sweep", GREY}};
    for (int k = 0; k < 3; k++)
        put_points(s, kinds[k].name, rows->points.at, rows->points.n, (ds_plot_kind)k);
    put_points(s, "front", rows->front.at, rows->front.n, DS_PLOT_OK);
    put_output(s, out, "memory", HEIGHT);
    char title[128];
    snprintf(title, sizeof title, "%s%s against %s", rows->pairs.n ? "best throughput, " : "",
             name_of(rows->axes.y, rows->axes.y_knob), name_of(rows->axes.x, rows->axes.x_knob));
    put_title(s, rows, title);
    put_label(s, rows, 'x', rows->axes.x);
    put_label(s, rows, 'y', rows->axes.y);
    ds_buf_put(s, "set key above\n");
    put_range(s, rows, 'x');
    put_range(s, rows, 'y');
    if (rows->pairs.n) {
        put_pairs(s, rows);
        put_plain_axes(s);
        return;
    }
    put_limits(s, rows);
    ds_buf_put(s, "plot ");
    const char *comma = "";
    for (int k = 2; k >= 0; k--) {
        if (!has(rows, (ds_plot_kind)k)) continue;
        ds_buf_printf(s, "%s$%s with points pt 7 ps 0.5 lc rgb '%s' title '%s'", comma,
                      kinds[k].name, kinds[k].colour, kinds[k].title);
        comma = ", \\\n     ";
    }
    if (rows->front.n)
        ds_buf_printf(s,
                      "%s$front with steps lw 2 lc rgb '" GREEN "' notitle, \\\n     $front with "
                      "points pt 6 ps 1.6 lw 2 lc rgb '" GREEN "' title 'Pareto front'",
                      comma);
    put_plain_axes(s);
    ds_buf_put(s, "unset arrow\n");
}

/* ---- the best by degrees ---- */

typedef struct map_row {
    int64_t tp, pp;
    double best; /* greatest share of a world's best */
} map_row;

typedef struct map {
    const ds_plot_rows *rows;
    bool by_world; /* columns are worlds and rows are pairs (tp, pp); else columns pp, rows tp */
    DS_VEC(int64_t) columns;
    DS_VEC(map_row) lines;
} map;

static double best_of(const ds_plot_rows *rows, int64_t world) {
    double best = 0;
    for (uint32_t i = 0; i < rows->cells.n; i++)
        if (rows->cells.at[i].world == world && rows->cells.at[i].per_s > best)
            best = rows->cells.at[i].per_s;
    return best;
}

static int by_best(const void *left, const void *right) {
    const map_row *a = left, *b = right;
    if (a->best > b->best || a->best < b->best) return a->best > b->best ? -1 : 1;
    if (a->tp != b->tp) return a->tp < b->tp ? -1 : 1;
    return (a->pp > b->pp) - (a->pp < b->pp);
}

static int by_tp_pp(const void *left, const void *right) {
    const map_row *a = left, *b = right;
    if (a->tp != b->tp) return a->tp < b->tp ? -1 : 1;
    return (a->pp > b->pp) - (a->pp < b->pp);
}

static int by_value(const void *left, const void *right) {
    const int64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static uint32_t column_of(const map *m, const ds_plot_cell *cell) {
    int64_t value = m->by_world ? cell->world : cell->pp;
    uint32_t i = 0;
    while (i < m->columns.n && m->columns.at[i] != value) i++;
    return i;
}

static uint32_t line_of(const map *m, const ds_plot_cell *cell) {
    uint32_t i = 0;
    while (i < m->lines.n &&
           (m->lines.at[i].tp != cell->tp || (m->by_world && m->lines.at[i].pp != cell->pp)))
        i++;
    return i;
}

/* Of more rows than a reader can read, the rows with the best shares. */
static map make_map(const ds_plot_rows *rows) {
    map m = {.rows = rows, .by_world = rows->worlds.n > 1};
    for (uint32_t i = 0; i < rows->cells.n; i++) {
        const ds_plot_cell *cell = &rows->cells.at[i];
        double share = cell->per_s / best_of(rows, cell->world);
        uint32_t line = line_of(&m, cell);
        if (column_of(&m, cell) == m.columns.n)
            DS_HPUSH(&m.columns, m.by_world ? cell->world : cell->pp);
        if (line == m.lines.n) DS_HPUSH(&m.lines, ((map_row){cell->tp, cell->pp, share}));
        if (share > m.lines.at[line].best) m.lines.at[line].best = share;
    }
    if (!m.lines.n) return m;
    qsort(m.columns.at, m.columns.n, sizeof *m.columns.at, by_value);
    qsort(m.lines.at, m.lines.n, sizeof *m.lines.at, by_best);
    if (m.lines.n > MAX_ROWS_OF_MAP) m.lines.n = MAX_ROWS_OF_MAP;
    qsort(m.lines.at, m.lines.n, sizeof *m.lines.at, by_tp_pp);
    return m;
}

static void put_ticks(ds_buf *s, const map *m) {
    ds_buf_put(s, "set xtics (");
    for (uint32_t i = 0; i < m->columns.n; i++)
        ds_buf_printf(s, "%s'%" PRId64 "' %" PRIu32, i ? ", " : "", m->columns.at[i], i);
    ds_buf_put(s, ") scale 0\nset ytics (");
    for (uint32_t i = 0; i < m->lines.n; i++) {
        ds_buf_printf(s, "%s'%" PRId64, i ? ", " : "", m->lines.at[i].tp);
        if (m->by_world) ds_buf_printf(s, " x %" PRId64, m->lines.at[i].pp);
        ds_buf_printf(s, "' %" PRIu32, i);
    }
    ds_buf_put(s, ") scale 0\n");
}

/* A cell's column, row, share and text; then an outline around the best cell of each world. */
static void put_cells(ds_buf *s, const map *m) {
    ds_buf_put(s, "$cells << END\n");
    ds_buf outlines = {0};
    ds_buf_put(&outlines, "");
    for (uint32_t i = 0; i < m->rows->cells.n; i++) {
        const ds_plot_cell *cell = &m->rows->cells.at[i];
        double share = cell->per_s / best_of(m->rows, cell->world);
        uint32_t x = column_of(m, cell), y = line_of(m, cell);
        if (y == m->lines.n) continue;
        ds_buf rate = {0};
        ds_print_rate(cell->per_s, "/s", &rate);
        ds_buf_printf(s, "%" PRIu32 " %" PRIu32 " %.6f \"%s\\ndp %" PRId64 ", %" PRId64 " mb\"\n",
                      x, y, share, rate.text, cell->dp, cell->microbatches);
        ds_buf_deinit(&rate);
        if (share >= 1)
            ds_buf_printf(&outlines,
                          "set object rectangle from %" PRIu32 "-0.5,%" PRIu32 "-0.5 to %" PRIu32
                          "+0.5,%" PRIu32 "+0.5 front fs empty border lc rgb '" ORANGE "' lw 3\n",
                          x, y, x, y);
    }
    ds_buf_put(s, "END\n");
    ds_buf_put(s, outlines.text);
    ds_buf_deinit(&outlines);
}

static void put_best(ds_buf *s, const ds_plot_rows *rows, const char *out) {
    map m = make_map(rows);
    uint32_t height = 100 + LINE_HEIGHT * m.lines.n; /* two lines of text in each */
    put_output(s, out, "best", height > HEIGHT ? height : HEIGHT);
    put_title(s, rows,
              m.by_world ? "best throughput by cluster size, as a share of the best of each size"
                         : "best throughput by tensor and pipeline degree");
    ds_buf_printf(s, "set xlabel '%s'\nset ylabel '%s'\n",
                  m.by_world ? "devices" : "pipeline degree",
                  m.by_world ? "tensor x pipeline degree" : "tensor degree");
    put_ticks(s, &m);
    put_cells(s, &m);
    ds_buf_printf(s,
                  "set xrange [-0.5:%" PRIu32 "-0.5]\nset yrange [-0.5:%" PRIu32 "-0.5]\n"
                  "set cbrange [0:1]\nset cblabel 'share of the best'\nunset grid\nunset key\n"
                  "set palette defined (0 '#f7fbff', 0.5 '#6baed6', 1 '#08306b')\n"
                  "plot $cells using 1:2:(0.5):(0.5):3 with boxxyerror fs solid noborder palette",
                  m.columns.n, m.lines.n);
    if (m.columns.n <= MAX_COLUMNS_LABELLED)
        ds_buf_put(s, ", \\\n     $cells using 1:2:4:($3 > 0.55 ? 0xffffff : 0x333333) with labels "
                      "offset 0,0.35 "
                      "font ',9' tc rgb variable");
    ds_buf_put(s, "\nunset object\nset autoscale xy\nset xtics auto scale 1\nset ytics auto scale "
                  "1\nset grid xtics ytics lt 1 lc rgb '#dddddd'\nset key\n");
    free(m.columns.at);
    free(m.lines.at);
}

/* ---- scaling ---- */

typedef enum use { ALL, DATA, TENSOR, PIPELINE, N_USES } use;

static const struct {
    const char *name, *title, *colour;
} uses[N_USES] = {{"all", "best of all", SKY},
                  {"data", "data parallel alone", ORANGE},
                  {"tensor", "tensor parallel alone", GREEN},
                  {"pipeline", "pipeline alone", PURPLE}};

static bool is_use(const ds_plot_cell *cell, use what) {
    int64_t degree = what == DATA ? cell->dp : what == TENSOR ? cell->tp : cell->pp;
    return what == ALL || degree == cell->world;
}

static double best_use(const ds_plot_rows *rows, int64_t world, use what) {
    double best = 0;
    for (uint32_t i = 0; i < rows->cells.n; i++) {
        const ds_plot_cell *cell = &rows->cells.at[i];
        if (cell->world == world && is_use(cell, what) && cell->per_s > best) best = cell->per_s;
    }
    return best;
}

static void put_bars(ds_buf *s, const ds_plot_rows *rows) {
    int64_t world = rows->worlds.at[0];
    ds_buf_put(s, "$bars << END\n");
    int n = 0;
    for (int u = 0; u < N_USES; u++) {
        double best = best_use(rows, world, (use)u);
        if (!(best > 0)) continue;
        ds_buf rate = {0};
        ds_print_rate(best, "/s", &rate);
        ds_buf_printf(s, "%d %.9g 0x%s \"%s\" \"%s\"\n", n++, best, uses[u].colour + 1,
                      uses[u].title, rate.text);
        ds_buf_deinit(&rate);
    }
    ds_buf_printf(s,
                  "END\nset xlabel 'on %" PRId64 " devices'\nunset key\nset yrange [0:*]\n"
                  "set xrange [-0.6:%d-0.4]\nset boxwidth 0.6\n"
                  "plot $bars using 1:2:3:xtic(4) with boxes fs solid lc rgb variable, \\\n"
                  "     $bars using 1:2:5 with labels offset 0,0.7\n",
                  world, n);
}

static void put_curves(ds_buf *s, const ds_plot_rows *rows) {
    bool drawn[N_USES] = {false};
    double least = best_of(rows, rows->worlds.at[0]), most = 0;
    for (int u = 0; u < N_USES; u++) {
        ds_buf_printf(s, "$%s << END\n", uses[u].name);
        for (uint32_t i = 0; i < rows->worlds.n; i++) {
            double best = best_use(rows, rows->worlds.at[i], (use)u);
            if (!(best > 0)) continue;
            ds_buf_printf(s, "%" PRId64 " %.9g\n", rows->worlds.at[i], best);
            drawn[u] = true;
            if (best < least) least = best;
            if (best > most) most = best;
        }
        ds_buf_put(s, "END\n");
    }
    int64_t first = rows->worlds.at[0], last = rows->worlds.at[rows->worlds.n - 1];
    double linear = best_of(rows, first) / (double)first;
    if (linear * (double)last > most) most = linear * (double)last;
    ds_buf_put(s, "set xlabel 'devices'\nset key above\n");
    put_log_axis(s, 'x', (double)first / 1.3, (double)last * 1.3);
    put_log_axis(s, 'y', least / 1.5, most * 1.5);
    ds_buf_put(s, "set xtics (");
    for (uint32_t i = 0; i < rows->worlds.n; i++)
        ds_buf_printf(s, "%s%" PRId64, i ? ", " : "", rows->worlds.at[i]);
    ds_buf_printf(s, ")\nplot x*%.9g with lines dt 2 lc rgb '" GREY "' title 'linear'", linear);
    for (int u = 0; u < N_USES; u++)
        if (drawn[u])
            ds_buf_printf(s, ", \\\n     $%s with linespoints lw %d pt 7 lc rgb '%s' title '%s'",
                          uses[u].name, u == ALL ? 6 : 2, uses[u].colour, uses[u].title);
    ds_buf_putc(s, '\n');
}

static void put_scaling(ds_buf *s, const ds_plot_rows *rows, const char *out) {
    put_output(s, out, "scaling", HEIGHT);
    put_title(s, rows,
              rows->worlds.n > 1 ? "best throughput by cluster size"
                                 : "best throughput by kind of parallelism");
    put_label(s, rows, 'y', DS_METRIC_throughput_per_s);
    if (rows->worlds.n > 1)
        put_curves(s, rows);
    else
        put_bars(s, rows);
}

/* ---- all of it ---- */

ds_status ds_plot_script(const char *csv, const char *out, ds_plot_axes axes, ds_buf *s,
                         ds_error *err) {
    ds_plot_rows rows;
    ds_status status = ds_plot_rows_read(csv, axes, &rows, err);
    if (status == DS_OK) {
        ds_buf_put(s, "# gnuplot script: draws the pictures beside it\n"
                      "set border 3\nset tics nomirror\n"
                      "set grid xtics ytics lt 1 lc rgb '#dddddd'\nset format y '%.1s%c'\n\n");
        put_memory(s, &rows, out);
        if (rows.cells.n) { /* some candidate is ok */
            put_best(s, &rows, out);
            put_scaling(s, &rows, out);
        }
    }
    ds_plot_rows_deinit(&rows);
    return status;
}

/* Runs gnuplot in `folder` with `script`, or with --version if `script` is NULL. Returns gnuplot's
 * exit status; 127: gnuplot does not run. */
static int run_gnuplot(const char *folder, const char *script) {
    pid_t child = fork();
    if (child < 0) return 127;
    if (child == 0) {
        int null = open("/dev/null", O_RDWR);
        if (!script && null >= 0) dup2(null, STDOUT_FILENO);
        if (folder && chdir(folder) != 0) _exit(126);
        execlp("gnuplot", "gnuplot", script ? script : "--version", (char *)NULL);
        _exit(127);
    }
    int state;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return 127;
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128;
}

static const char *const pictures[] = {"memory", "best", "scaling"};

/* gnuplot replaces any file, so files that must not be replaced are refused before. */
static ds_status check_files(const char *out, const char *script, unsigned flags, ds_error *err) {
    ds_status status = ds_output_check(script, flags | DS_OUTPUT_REGULAR, err);
    for (int i = 0; i < 3 && status == DS_OK; i++) {
        ds_buf name = {0};
        put_picture(out, pictures[i], &name);
        status = ds_output_check(name.text, flags | DS_OUTPUT_REGULAR, err);
        ds_buf_deinit(&name);
    }
    return status;
}

static void put_script(const char *out, ds_buf *path) {
    size_t stem = 0;
    suffix(out, &stem);
    ds_buf_put_n(path, out, stem);
    ds_buf_put(path, ".gp");
}

static unsigned flags_of(bool overwrite) {
    return overwrite ? DS_OUTPUT_OVERWRITE : DS_OUTPUT_NEW;
}

ds_status ds_plot_check(const char *out, bool overwrite, ds_error *err) {
    size_t stem;
    const char *end = suffix(out, &stem);
    if (strcmp(end, "svg") != 0 && strcmp(end, "png") != 0)
        return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                            "--plot takes a name that ends in .svg or .png, not '%s'", out);
    if (run_gnuplot(NULL, NULL) != 0)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "--plot needs gnuplot, which is not in the path (Debian: gnuplot-nox)");
    ds_buf script = {0};
    put_script(out, &script);
    ds_status status = check_files(out, script.text, flags_of(overwrite), err);
    ds_buf_deinit(&script);
    return status;
}

bool ds_plot_writes(const char *out, const char *path) {
    ds_buf name = {0};
    put_script(out, &name);
    bool same = ds_output_same(name.text, path);
    for (int i = 0; i < 3 && !same; i++) {
        name.n = 0;
        put_picture(out, pictures[i], &name);
        same = ds_output_same(name.text, path);
    }
    ds_buf_deinit(&name);
    return same;
}

ds_status ds_plot_draw(const char *csv, const char *out, ds_plot_axes axes, bool overwrite,
                       ds_error *err) {
    DS_TRY(ds_plot_check(out, overwrite, err));
    ds_buf script = {0}, path = {0}, folder = {0};
    const char *slash = strrchr(out, '/');
    const char *name = slash ? slash + 1 : out;
    put_script(out, &path);
    ds_buf_put_n(&folder, slash ? out : ".", slash ? (size_t)(slash - out) + 1 : 1);
    ds_status status = ds_plot_script(csv, name, axes, &script, err);
    if (status == DS_OK)
        status = ds_output_write(path.text, flags_of(overwrite), script.text, script.n, err);
    if (status == DS_OK && run_gnuplot(folder.text, path.text + (name - out)) != 0)
        status = ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "gnuplot could not draw %s", path.text);
    ds_buf_deinit(&script);
    ds_buf_deinit(&path);
    ds_buf_deinit(&folder);
    return status;
}
