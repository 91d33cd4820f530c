/* A table of text rows as a new SQLite file: what a sweep's --db writes. It stands here because
 * SQLite is used in this folder alone. */
#ifndef DS_COST_TABLE_DB_H
#define DS_COST_TABLE_DB_H

#include "ir/base/error.h"

#include <stdbool.h>

typedef struct ds_table_db ds_table_db;

typedef struct ds_table_column {
    const char *name;
    bool is_text; /* else numbers are stored as numbers; an empty cell is NULL either way */
} ds_table_column;

/* Begins `path` anew, with one table, as ir/base/output.h has it; `replace`: although it exists.
 * Errors: DS_ERR_USAGE, DS_ERR_IO. */
ds_status ds_table_db_open(const char *path, bool replace, const char *table,
                           const ds_table_column *columns, uint32_t n, ds_table_db **out,
                           ds_error *err);
/* Is `path` a SQLite file whose only table is `table`, with `value` in this column of every row? */
bool ds_table_db_holds(const char *path, const char *table, const char *column, const char *value);
/* One row of n cells. O(cells). */
ds_status ds_table_db_put(ds_table_db *db, const char *const *cells, ds_error *err);
/* Puts the file in its place (`keep`), once its rows are counted and all there, or removes what was
 * written; frees db either way. */
ds_status ds_table_db_close(ds_table_db *db, bool keep, ds_error *err);

#endif
