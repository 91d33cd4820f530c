/* The table that sweeps write: one row a candidate, comma-separated.
 *
 * Columns: DistIR's ten (model_size, the sizes, and the results that are -1 where nothing was
 * simulated, as DistIR writes failures), every dimension under its name, the other results, with a
 * price the prices, then status, reason, hash, candidate (its number), sweep (which one made the
 * row), source and settings (what `distsim replay` reads). Sizes, results and prices are lines of
 * ir/strategy/metrics.def. A dimension that is named like another column is "sweep.NAME".
 *
 * Nothing depends on time, place or the number of workers. Times are exact decimals of integer
 * picoseconds, other reals the shortest text that reads back as the same double. Cells are quoted
 * as ir/base/csv.h does it; a text may hold anything.
 *
 * A spreadsheet evaluates a cell that begins with one of = + - @. Tables are exact
 * (search/driver/README.md). With `spreadsheet` an apostrophe precedes a text that begins with one of
 * these characters, a tab, a line end or an apostrophe, and a last column `spreadsheet` tells
 * readers to take the apostrophe away (ds_rows_plain). */
#ifndef DS_SEARCH_DRIVER_ROWS_H
#define DS_SEARCH_DRIVER_ROWS_H

#include "search/space/eval.h"

typedef struct ds_rows_column {
    const char *name;
    bool is_text;
    ds_metric_id metric; /* DS_METRIC_COUNT: a text, or a dimension */
} ds_rows_column;

typedef struct ds_rows {
    ds_arena arena;
    const ds_space *space;
    DS_VEC(ds_rows_column) columns;
    uint32_t first_dim, first_result, status, hash, candidate, sweep, source, settings;
    bool has_price, spreadsheet;
    const char *model, *sweep_id, *source_text, *settings_text; /* cells alike in all rows */
} ds_rows;

/* `binding` is the sweep's without a candidate; `settings` is as ds_rows_put_settings writes it;
 * `method` goes into the sweep's identity. */
void ds_rows_init(ds_rows *rows, const ds_space *space, const ds_binding *binding,
                  const ds_eval_source *source, const char *settings, const char *method,
                  bool spreadsheet);
void ds_rows_deinit(ds_rows *rows);

void ds_rows_put_header(const ds_rows *rows, ds_buf *out);
/* The row of a judged candidate. */
void ds_rows_put(const ds_rows *rows, const ds_candidate *candidate, const ds_outcome *outcome,
                 ds_buf *out);

/* The cell without the apostrophe of a table for spreadsheets. */
const char *ds_rows_plain(const char *cell);
#define DS_ROWS_SPREADSHEET "spreadsheet" /* the column that only such tables have */

/* "a=1;b=2", with \ before a ; or \ of a value, and back. Texts are in the arena. DS_ERR_DATA for a
 * text that is no such list. */
void ds_rows_put_settings(const ds_setting *settings, uint32_t n, ds_buf *out);
typedef DS_VEC(ds_setting) ds_settings;
ds_status ds_rows_read_settings(const char *text, ds_arena *arena, ds_settings *out, ds_error *err);

/* What ds_rows_put was given, from its cells; false if they are no such row, or two of them
 * contradict each other. */
bool ds_rows_read(const ds_rows *rows, const char *const *cells, ds_outcome *outcome,
                  uint64_t *number);

/* ---- a row against another simulation ---- */

struct ds_sweep_row; /* search/driver/sweep.h */

/* Appends "NAME is A in the row and B now" for every figure of the row that is not the outcome's.
 * Integers and texts must be equal, reals to 1e-9: the order of a sum's parts may differ. */
void ds_rows_compare(const struct ds_sweep_row *row, const ds_outcome *now, ds_buf *out);
/* The same for two outcomes that nothing has judged. Figures of different verdicts are not
 * compared. */
void ds_outcome_compare(const ds_outcome *row, const ds_outcome *now, ds_buf *out);

#endif
