/* Pictures of a sweep's table, drawn by gnuplot.
 *
 * For `grid.svg` (or .png) three pictures are written, and grid.gp, the gnuplot script with the
 * data, which draws the pictures again and may be changed by hand:
 *
 *   grid-memory.svg    throughput against peak memory of every simulated candidate, the memory of
 *                      the devices and the Pareto front; or two other results against each other,
 *                      a result against a knob of the sweep, or the best throughput by two knobs
 *   grid-best.svg      the best throughput of every tensor and pipeline degree: by cluster size, as
 *                      a share of the best of that size; with one size, tensor against pipeline
 *   grid-scaling.svg   the best throughput against the cluster size, of all candidates, and with
 *                      data, tensor or pipeline parallelism alone; bars with one size */
#ifndef DS_SEARCH_PLOT_PLOT_H
#define DS_SEARCH_PLOT_PLOT_H

#include "ir/base/error.h"
#include "ir/strategy/metrics.h"

/* Of the first picture: results with a column, or knobs and params that the sweep varies. */
typedef struct ds_plot_axes {
    ds_metric_id x, y; /* DS_METRIC_COUNT: x_knob, y_knob */
    char x_knob[48], y_knob[48];
} ds_plot_axes;
#define DS_PLOT_AXES ((ds_plot_axes){.x = DS_METRIC_peak_bytes, .y = DS_METRIC_throughput_per_s})

/* "peak_memory,throughput": names of columns or of results in sweeps; any other name is a knob,
 * "tp" or "strategy.tp". DS_ERR_USAGE unless there are two. */
ds_status ds_plot_read_axes(const char *text, ds_plot_axes *out, ds_error *err);
/* Is `column`, as "strategy.zero", the column of the knob, as "strategy.zero" or "zero"? */
bool ds_plot_is_knob(const char *column, const char *knob);

/* Can `out` be drawn? Errors: DS_ERR_USAGE unless `out` ends in .svg or .png, and for files that
 * exist unless `overwrite`; DS_ERR_UNSUPPORTED without gnuplot. */
ds_status ds_plot_check(const char *out, bool overwrite, ds_error *err);
/* Is `path` one of the files that are written for `out`? */
bool ds_plot_writes(const char *out, const char *path);
/* Draws the rows of the table in `csv`. Errors: DS_ERR_DATA for a table that is no sweep's or has
 * no simulated row; DS_ERR_IO for files, and for a gnuplot that fails. O(rows); memory for at most
 * 20,000 rows, and for one row of each world size and degrees. */
ds_status ds_plot_draw(const char *csv, const char *out, ds_plot_axes axes, bool overwrite,
                       ds_error *err);
/* The script alone, for tests and for other uses. `out` as above, without its folder. */
ds_status ds_plot_script(const char *csv, const char *out, ds_plot_axes axes, ds_buf *script,
                         ds_error *err);

#endif
