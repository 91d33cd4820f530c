/* The rows of a sweep, as far as pictures need the rows; internal to search. */
#ifndef DS_SEARCH_PLOT_INTERNAL_H
#define DS_SEARCH_PLOT_INTERNAL_H

#include "ir/base/arena.h"
#include "ir/base/map.h"
#include "search/plot/plot.h"

typedef enum ds_plot_kind { DS_PLOT_OK, DS_PLOT_TOO_LARGE, DS_PLOT_EXCLUDED } ds_plot_kind;

typedef struct ds_plot_point {
    double x, y; /* of the axes; bytes that have a label are in GiB, of a knob the value's number */
    ds_plot_kind kind;
    double per_s;
} ds_plot_point;

/* The best candidate of one world size, tensor and pipeline degree. */
typedef struct ds_plot_cell {
    int64_t world, dp, tp, pp, microbatches;
    double per_s;
} ds_plot_cell;

typedef struct ds_plot_rows {
    ds_plot_axes axes;
    char *model;                  /* owned */
    bool steps;                   /* rates are steps a second: the batch is not known */
    DS_VEC(ds_plot_point) points; /* every stride-th simulated row */
    DS_VEC(ds_plot_point) front;  /* of points that are ok: the best by x first */
    DS_VEC(ds_plot_cell) cells;   /* in order of world, tp, pp */
    DS_VEC(int64_t) worlds;       /* with a cell, ascending */
    DS_VEC(double) limits;        /* memory of devices in GiB, each once */
    DS_VEC(char *) labels[2];     /* of x and y: a knob's values, numbers ascending; owned */
    DS_VEC(ds_plot_point) pairs;  /* of two knobs: the best for each pair of values */
    uint64_t simulated, stride;
} ds_plot_rows;

/* Reads a table. Errors: as ds_plot_draw. */
ds_status ds_plot_rows_read(const char *csv, ds_plot_axes axes, ds_plot_rows *out, ds_error *err);
void ds_plot_rows_deinit(ds_plot_rows *rows);

#endif
