/* What a run results in: its figures (metrics.def), and their names wherever they are shown. */
#ifndef DS_STRATEGY_METRICS_H
#define DS_STRATEGY_METRICS_H

#include "ir/base/json.h"

#include <stddef.h>

/* X(kind, type of the member); metrics.def says what each is in which format. */
#define DS_METRIC_KINDS(X)                                                                         \
    X(COUNT, int64_t)                                                                              \
    X(PS, int64_t)                                                                                 \
    X(SECONDS, int64_t)                                                                            \
    X(BYTES, int64_t)                                                                              \
    X(RATE, double)                                                                                \
    X(SHARE, double)                                                                               \
    X(PRICE, double)                                                                               \
    X(FLAG, bool)

typedef enum ds_metric_kind {
#define DS_X(kind, type) DS_METRIC_IS_##kind,
    DS_METRIC_KINDS(DS_X)
#undef DS_X
} ds_metric_kind;

#define DS_X(kind, type) typedef type ds_metric_##kind;
DS_METRIC_KINDS(DS_X)
#undef DS_X

/* The figures of one run; 0 where one is not known. */
typedef struct ds_metrics {
#define METRIC(id, kind, ...)   ds_metric_##kind id;
#define VIEW(id, of, kind, ...) /* no member of its own */
#include "ir/strategy/metrics.def"
#undef METRIC
#undef VIEW
} ds_metrics;

typedef enum ds_metric_id {
#define METRIC(id, kind, ...)   DS_METRIC_##id,
#define VIEW(id, of, kind, ...) DS_METRIC_##id,
#include "ir/strategy/metrics.def"
#undef METRIC
#undef VIEW
    DS_METRIC_COUNT
} ds_metric_id;

/* Where a column of sweeps stands; the dimensions are between FIRST and RESULTS. */
typedef enum ds_metric_place {
    DS_AMONG_RESULTS,  /* empty where nothing was simulated */
    DS_AMONG_SIZES,    /* of the candidate, simulated or not */
    DS_AMONG_FIRST,    /* DistIR's results: -1 where nothing was simulated */
    DS_AMONG_VERDICTS, /* after the results */
    DS_AMONG_TOKENS,   /* of scenarios with `tokens` alone */
    DS_AMONG_PRICES    /* of sweeps with a price alone */
} ds_metric_place;

typedef struct ds_metric {
    const char *json, *column, *sweep, *title, *axis, *doc;
    ds_metric_kind kind;
    ds_metric_place place;
    bool compared, known, more, blank;
    ds_metric_id of; /* whose member it shows: its own unless it is a view */
    size_t at;       /* of the member in ds_metrics */
} ds_metric;

const ds_metric *ds_metric_at(ds_metric_id id);
/* By the name in sweeps, by the name of the column; DS_METRIC_COUNT if there is none. */
ds_metric_id ds_metric_by_name(const char *sweep);
ds_metric_id ds_metric_by_column(const char *column);
bool ds_metric_is_objective(ds_metric_id id);
/* The column, of a view without one that of its member; NULL: none. */
const char *ds_metric_column(ds_metric_id id);

/* Has the run such a figure? Of tokens only the run of a scenario that counts tokens. */
bool ds_metric_is_known(const ds_metrics *m, ds_metric_id id);

/* As expressions of a sweep see it: times in seconds. */
double ds_metric_measure(const ds_metrics *m, ds_metric_id id);

/* A member of a JSON object: the .json name, without one the column, and the value. */
void ds_metric_put_json(const ds_metrics *m, ds_metric_id id, ds_json *json);
/* b - a, as "step_time_difference_ps", the unit staying last; nothing of a flag. */
void ds_metric_put_difference(const ds_metrics *a, const ds_metrics *b, ds_metric_id id,
                              ds_json *json);
/* "107 /s": for people. */
void ds_metric_print(const ds_metrics *m, ds_metric_id id, ds_buf *out);

/* A cell of a row. Reading is false for what is no such cell, a negative or an infinite figure. */
void ds_metric_put_cell(const ds_metrics *m, ds_metric_id id, ds_buf *out);
bool ds_metric_read_cell(const char *cell, ds_metric_id id, ds_metrics *m);
/* Does the cell hold this figure? Integers and flags exactly, reals to 1e-9 of their size, since of
 * a sum the order of its parts may differ. If not, `now` is the figure with all its digits. */
bool ds_metric_agrees(const char *cell, const ds_metrics *m, ds_metric_id id, ds_buf *now);

#endif
