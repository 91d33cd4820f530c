/* How all SQLite files are opened: a file runs no code of its author.
 *
 * Anybody may have made the database that --database names. A file is read only if its schema holds
 * ordinary tables and indexes alone: a view or a virtual table in a table's place would run for as
 * long as its author likes. The schema may call no function that does more than compute, no
 * cell is longer than MAX_CELL_BYTES, and a query ends after MAX_STEPS instructions of SQLite's
 * virtual machine. Lack of memory ends the process as everywhere (ds_out_of_memory). */
#ifndef DS_COST_SQLITE_INTERNAL_H
#define DS_COST_SQLITE_INTERNAL_H

#include "ir/base/error.h"

struct sqlite3;
struct sqlite3_stmt;

/* Opens a file for reading: immutable, so no locks, no journal, any number of readers. *db is NULL
 * on errors. Errors: DS_ERR_IO, not a file; DS_ERR_DATA, no database of tables alone. */
ds_status ds_sqlite__open(const char *path, struct sqlite3 **db, ds_error *err);
/* Opens a file for writing, a new one if there is none. */
ds_status ds_sqlite__open_to_write(const char *path, struct sqlite3 **db, ds_error *err);
/* Why the last call failed. */
const char *ds_sqlite__why(struct sqlite3 *db);
/* A cell as text; NULL where it is NULL. */
const char *ds_sqlite__text(struct sqlite3_stmt *row, int column);

#endif
