/* Text rows into a SQLite file: one transaction in an output's temporary file. */
#include "sim/cost/table_db.h"

#include "ir/base/arena.h"
#include "ir/base/output.h"
#include "ir/base/str.h"
#include "sim/cost/sqlite_internal.h"

#include <sqlite3.h>
#include <stdlib.h>

struct ds_table_db {
    sqlite3 *db;
    sqlite3_stmt *insert;
    uint32_t n;
    const char *table;
    int64_t rows;
    ds_output out;
};

static ds_status fail(const ds_table_db *t, ds_error *err) {
    return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "%s: %s", t->out.path, ds_sqlite__why(t->db));
}

/* An identifier in quotes, those inside doubled. */
static void put_name(const char *name, ds_buf *out) {
    ds_buf_putc(out, '"');
    for (const char *at = name; *at; at++) {
        if (*at == '"') ds_buf_putc(out, '"');
        ds_buf_putc(out, *at);
    }
    ds_buf_putc(out, '"');
}

static bool run_sql(ds_table_db *t, const char *sql) {
    return sqlite3_exec(t->db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static bool make_table(ds_table_db *t, const ds_table_column *columns) {
    ds_buf create = {0}, insert = {0};
    ds_buf_put(&create, "CREATE TABLE ");
    put_name(t->table, &create);
    ds_buf_put(&insert, "INSERT INTO ");
    put_name(t->table, &insert);
    for (uint32_t i = 0; i < t->n; i++) {
        ds_buf_put(&create, i ? ", " : " (");
        put_name(columns[i].name, &create);
        ds_buf_put(&create, columns[i].is_text ? " TEXT" : " NUMERIC");
        ds_buf_put(&insert, i ? ", ?" : " VALUES (?");
    }
    ds_buf_put(&create, ")");
    ds_buf_put(&insert, ")");
    /* A temporary file needs no journal on disk: if anything fails the file is removed. */
    bool ok = run_sql(t, "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; BEGIN") &&
              run_sql(t, create.text) &&
              sqlite3_prepare_v2(t->db, insert.text, -1, &t->insert, NULL) == SQLITE_OK;
    ds_buf_deinit(&create);
    ds_buf_deinit(&insert);
    return ok;
}

ds_status ds_table_db_open(const char *path, bool replace, const char *table,
                           const ds_table_column *columns, uint32_t n, ds_table_db **out,
                           ds_error *err) {
    ds_table_db *t = ds_xcalloc(1, sizeof *t);
    unsigned flags = DS_OUTPUT_REGULAR | (replace ? DS_OUTPUT_OVERWRITE : DS_OUTPUT_NEW);
    *out = NULL;
    t->n = n;
    t->table = table;
    ds_status status = ds_output_open(&t->out, path, flags, err);
    if (status != DS_OK) {
        free(t);
        return status;
    }
    status = ds_sqlite__open_to_write(t->out.temporary, &t->db, err);
    if (status == DS_OK && !make_table(t, columns)) status = fail(t, err);
    if (status == DS_OK)
        *out = t;
    else
        ds_table_db_close(t, false, NULL);
    return status;
}

/* The query's only number; -1 if it has none. */
static int64_t ask(sqlite3 *db, const char *sql, const char *argument) {
    sqlite3_stmt *query = NULL;
    int64_t answer = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &query, NULL) == SQLITE_OK &&
        (!argument || sqlite3_bind_text(query, 1, argument, -1, SQLITE_STATIC) == SQLITE_OK) &&
        sqlite3_step(query) == SQLITE_ROW)
        answer = sqlite3_column_int64(query, 0);
    else
        (void)ds_sqlite__why(db); /* ends the process if memory is missing */
    sqlite3_finalize(query);
    return answer;
}

bool ds_table_db_holds(const char *path, const char *table, const char *column, const char *value) {
    sqlite3 *db;
    ds_buf others = {0};
    ds_buf_put(&others, "SELECT count(*) FROM ");
    put_name(table, &others);
    ds_buf_put(&others, " WHERE ");
    put_name(column, &others);
    ds_buf_put(&others, " IS NOT ?");
    bool holds = ds_sqlite__open(path, &db, NULL) == DS_OK &&
                 ask(db, "SELECT count(*) FROM sqlite_master WHERE name IS NOT ?", table) == 0 &&
                 ask(db, others.text, value) == 0;
    sqlite3_close(db);
    ds_buf_deinit(&others);
    return holds;
}

ds_status ds_table_db_put(ds_table_db *t, const char *const *cells, ds_error *err) {
    for (uint32_t i = 0; i < t->n; i++) {
        int rc = *cells[i] ? sqlite3_bind_text(t->insert, (int)i + 1, cells[i], -1, SQLITE_STATIC)
                           : sqlite3_bind_null(t->insert, (int)i + 1);
        if (rc != SQLITE_OK) return fail(t, err);
    }
    bool ok = sqlite3_step(t->insert) == SQLITE_DONE;
    sqlite3_reset(t->insert);
    t->rows += ok;
    return ok ? DS_OK : fail(t, err);
}

static ds_status check_rows(ds_table_db *t, ds_error *err) {
    ds_buf count = {0};
    ds_buf_put(&count, "SELECT count(*) FROM ");
    put_name(t->table, &count);
    int64_t rows = ask(t->db, count.text, NULL);
    ds_buf_deinit(&count);
    if (rows == t->rows) return DS_OK;
    return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "%s: %lld of %lld rows are in the database",
                        t->out.path, (long long)rows, (long long)t->rows);
}

ds_status ds_table_db_close(ds_table_db *t, bool keep, ds_error *err) {
    ds_status status = DS_OK;
    sqlite3_finalize(t->insert);
    if (keep && !run_sql(t, "COMMIT")) status = fail(t, err);
    if (keep && status == DS_OK) status = check_rows(t, err);
    sqlite3_close(t->db);
    if (keep && status == DS_OK) status = ds_output_commit(&t->out, err);
    ds_status closed = ds_output_close(&t->out, status == DS_OK ? err : NULL);
    free(t);
    return status == DS_OK ? closed : status;
}
