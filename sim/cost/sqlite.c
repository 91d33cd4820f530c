#include "sim/cost/sqlite_internal.h"

#include "ir/base/file.h"
#include "ir/base/str.h"

#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>

/* The longest text of the committed profiles has 191 bytes. */
#define MAX_CELL_BYTES (1 << 20)

/* Assumed: the longest query over the committed profiles takes 1.7 million instructions, so this is
 * room for sixty times as many rows; it is reached in a few seconds. */
#define MAX_STEPS 100000000

static int stop(void *context) {
    (void)context;
    return 1;
}

const char *ds_sqlite__why(sqlite3 *db) {
    if (!db || sqlite3_errcode(db) == SQLITE_NOMEM ||
        sqlite3_extended_errcode(db) == SQLITE_IOERR_NOMEM)
        ds_out_of_memory(0);
    if (sqlite3_errcode(db) == SQLITE_INTERRUPT) return "a query runs too long";
    return sqlite3_errmsg(db);
}

const char *ds_sqlite__text(sqlite3_stmt *row, int column) {
    const char *text = (const char *)sqlite3_column_text(row, column);
    if (!text && sqlite3_errcode(sqlite3_db_handle(row)) == SQLITE_NOMEM) ds_out_of_memory(0);
    return text;
}

/* "file:PATH?mode=ro&immutable=1" with the characters that mean something in a URI escaped. */
static void put_uri(const char *path, ds_buf *uri) {
    ds_buf_put(uri, "file:");
    for (const char *p = path; *p; p++) {
        if (strchr("%?# ", *p))
            ds_buf_printf(uri, "%%%02X", (unsigned)(unsigned char)*p);
        else
            ds_buf_putc(uri, *p);
    }
    ds_buf_put(uri, "?mode=ro&immutable=1");
}

static int open_defensively(const char *path, int flags, sqlite3 **db) {
    int rc = sqlite3_open_v2(path, db, flags, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_db_config(*db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_db_config(*db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    return rc == SQLITE_OK ? sqlite3_exec(*db, "PRAGMA temp_store = MEMORY", NULL, NULL, NULL) : rc;
}

/* Virtual tables have the type 'table', too. */
static ds_status expect_tables(sqlite3 *db, const char *path, ds_error *err) {
    static const char query[] =
        "SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index') OR"
        " NOT (sql IS NULL OR sql LIKE 'CREATE TABLE %' OR sql LIKE 'CREATE INDEX %'"
        " OR sql LIKE 'CREATE UNIQUE INDEX %')";
    sqlite3_stmt *row = NULL;
    ds_status status = DS_OK;
    int rc = sqlite3_prepare_v2(db, query, -1, &row, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(row);
    if (rc == SQLITE_ROW) {
        const char *type = ds_sqlite__text(row, 0), *name = ds_sqlite__text(row, 1);
        status =
            ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                         "%s: %s '%s': a database of profiles has tables and their indexes alone",
                         path, type ? type : "", name ? name : "");
    } else if (rc != SQLITE_DONE) {
        status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s: %s", path, ds_sqlite__why(db));
    }
    sqlite3_finalize(row);
    return status;
}

ds_status ds_sqlite__open(const char *path, sqlite3 **db, ds_error *err) {
    struct stat info;
    *db = NULL;
    DS_TRY(ds_file_check(path, err)); /* SQLite would wait for the writer of a FIFO */
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "%s is no regular file", path);
    ds_buf uri = {0};
    put_uri(path, &uri);
    int rc = open_defensively(uri.text, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, db);
    ds_buf_deinit(&uri);
    ds_status status = DS_OK;
    if (rc == SQLITE_OK) {
        sqlite3_limit(*db, SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES);
        sqlite3_progress_handler(*db, MAX_STEPS, stop, NULL);
        status = expect_tables(*db, path, err);
    } else {
        status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s: %s", path, ds_sqlite__why(*db));
    }
    if (status == DS_OK) return DS_OK;
    sqlite3_close(*db);
    *db = NULL;
    return status;
}

ds_status ds_sqlite__open_to_write(const char *path, sqlite3 **db, ds_error *err) {
    if (open_defensively(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, db) == SQLITE_OK)
        return DS_OK;
    ds_status status =
        ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot create %s: %s", path, ds_sqlite__why(*db));
    sqlite3_close(*db);
    *db = NULL;
    return status;
}
