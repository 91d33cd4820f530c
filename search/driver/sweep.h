/* A sweep: candidates in the order of a method, evaluated by workers, written as rows.
 *
 * The file that is written is the same for any number of workers: rows are in the order of
 * candidates and hold nothing that depends on time. A row is written as soon as it and all before
 * it are done, so a killed sweep has lost only what was not finished; `resume` goes on where it
 * stopped, and ends with the file that an undisturbed sweep would have written. */
#ifndef DS_SEARCH_DRIVER_SWEEP_H
#define DS_SEARCH_DRIVER_SWEEP_H

#include "search/driver/best.h"
#include "search/driver/check.h"
#include "search/driver/ranks.h"
#include "search/methods/method.h"

typedef struct ds_sweep_progress {
    uint64_t rows;   /* in the file */
    uint64_t here;   /* of these, evaluated by this process */
    double seconds;  /* since it began */
    double share;    /* of all candidates, 0 … 1 */
    int64_t best_ps; /* step time of the best candidate so far; 0: none */
} ds_sweep_progress;

typedef struct ds_sweep_options {
    const char *path;        /* "-": stdout */
    const char *db;          /* SQLite file with the same rows, made at the end; NULL: none. An
                              * existing file is replaced with `overwrite`, or with `resume` if the
                              * file holds this sweep's rows and nothing else; else DS_ERR_USAGE */
    const char *method;      /* grid, random, bound, beam, anneal, mcmc; NULL: grid */
    uint64_t seed;           /* of random, beam, anneal, mcmc */
    uint32_t width;          /* of beam; 0: 16 */
    const char *certificate; /* of bound: written there once it is proved; NULL: none */
    uint32_t n_workers;      /* 0: one a processor; one if there are ranks */
    uint64_t max_rows;       /* of the file; 0: no limit, for random, anneal, mcmc 1000. With it
                              * grid also ends after DS_SWEEP_MOST_REJECTED values */
    double max_seconds;      /* a candidate that is not done by then has no row; `resume`
                              * evaluates the candidate; 0: no limit */
    uint32_t shard;          /* candidates whose number is `shard` mod `n_shards` */
    uint32_t n_shards;       /* 0: all of them */
    bool resume;             /* go on with the file; one that is not there is begun */
    bool overwrite;          /* existing outputs are replaced; DS_ERR_USAGE without `resume` and
                              * `overwrite`. With both, the rows are kept and resumed */
    uint64_t check;          /* a row in so many is simulated again (search/driver/check.h); 0: one
                              * row of the sweep at least, DS_CHECK_NONE: none */
    bool spreadsheet;        /* a table for spreadsheets (search/driver/rows.h) */
    void (*progress)(void *context, const ds_sweep_progress *progress);
    void *progress_context;
    ds_ranks *ranks; /* NULL: this process alone. Else all of them call with the same options; the
                      * first writes rows and has the result, the others evaluate for it */
} ds_sweep_options;

/* With max_rows, a grid ends after so many values in a row that conditions reject: assumed, about a
 * second. */
#define DS_SWEEP_MOST_REJECTED 10000000

typedef enum ds_sweep_end {
    DS_SWEEP_END_SPACE,   /* the space has no more candidates */
    DS_SWEEP_END_ROWS,    /* max_rows */
    DS_SWEEP_END_TIME,    /* max_seconds */
    DS_SWEEP_END_REJECTED /* DS_SWEEP_MOST_REJECTED */
} ds_sweep_end;

typedef struct ds_sweep_result {
    uint64_t n[DS_VERDICT_COUNT]; /* rows of the file by what became of them */
    uint64_t rows, here;
    uint64_t checked, unfolded; /* rows that were simulated again; of these device by device */
    uint64_t beyond;            /* that would have been checked, but are too large, or the sweep's
                                 * file has changed */
    double seconds;
    bool complete;    /* no limit ended it */
    ds_sweep_end end; /* why it ended */
    ds_best best;
} ds_sweep_result;

/* What is explored: the sweep of a verified and bound unit. `text` is the file's where it does not
 * come from `path`. */
typedef struct ds_sweep_subject {
    const ds_binding *binding;
    const ds_setting *settings;
    uint32_t n_settings;
    const char *path;
    const char *text;
    size_t text_n;
    ds_load_options load;
    const char *job; /* as in ds_eval_source */
    const ds_profiles *profiles;
} ds_sweep_subject;

/* Runs it. Errors: those of ds_space_new and of its conditions; a file that is another sweep's
 * (DS_ERR_DATA); a row that a check has found wrong (DS_ERR_INTERNAL); files that cannot be
 * written; outputs that are each other or the sweep's file (DS_ERR_USAGE). What was written before
 * an error stays. Free the result either way. O(candidates). */
ds_status ds_sweep_run(const ds_sweep_subject *subject, const ds_sweep_options *options,
                       ds_sweep_result *out, ds_error *err);
void ds_sweep_result_deinit(ds_sweep_result *result);
/* How many rows have which verdict, as the members "candidates" and "verdicts"; whether the whole
 * space was explored; the best. */
void ds_sweep_put_json(const ds_sweep_result *result, ds_json *json);

/* Puts the rows of shards together, in the order of candidates, as the whole sweep would have
 * written them; `count` is how many it has (ds_sweep_count). The output is written beside itself
 * and renamed: it is what it was, or whole. Errors: files of different sweeps, a candidate twice,
 * numbers that are missing below `count` (DS_ERR_DATA); an output that is one of the inputs
 * (DS_ERR_USAGE), or exists without `overwrite` (DS_ERR_USAGE). O(rows), constant memory. */
ds_status ds_sweep_merge(const char *const *paths, uint32_t n, const char *out_path, bool overwrite,
                         uint64_t count, uint64_t *n_rows, ds_error *err);
/* How many candidates the sweep by grid has that wrote `sweep_id` into its rows' column `sweep`.
 * DS_ERR_DATA if the subject is not, or no more, that sweep. Walks the space. */
ds_status ds_sweep_count(const ds_sweep_subject *subject, const char *sweep_id, uint64_t *count,
                         ds_error *err);

/* A row of a sweep's file by its hash, or by the beginning of one, 4 digits at least. */
typedef struct ds_sweep_row {
    uint32_t n; /* cells */
    const char **columns, **cells;
} ds_sweep_row;
/* Texts are in the arena. Errors: DS_ERR_IO; DS_ERR_DATA for a file that is no sweep's; DS_ERR_NAME
 * if no row has the hash, or several that differ begin so. O(rows). */
ds_status ds_sweep_find_row(const char *path, const char *hash, ds_arena *arena, ds_sweep_row *out,
                            ds_error *err);
/* The first row of the first of these files that has any; `cells` is NULL if none has one. Errors
 * as those of ds_sweep_find_row. O(files). */
ds_status ds_sweep_first_row(const char *const *paths, uint32_t n, ds_arena *arena,
                             ds_sweep_row *out, ds_error *err);
/* A cell by its column; NULL if there is no such column. */
const char *ds_sweep_cell(const ds_sweep_row *row, const char *column);

#endif
