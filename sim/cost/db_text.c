/* Tables of the database back into CSV: db_build.c the other way round, by the same descriptions of
 * columns. Integers that were scaled become exact decimals again. */
#include "sim/cost/db_text.h"

#include "ir/base/json.h"
#include "sim/cost/cost.h"
#include "sim/cost/sqlite_internal.h"
#include "sim/cost/tables_internal.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const ds_profile_files[] = {"profile.csv",
                                        "ops.csv",
                                        "efficiency.csv",
                                        "gemm_fits.csv",
                                        "attention_fits.csv",
                                        "collectives.csv",
                                        "collective_fits.csv",
                                        "collective_protocols.csv",
                                        NULL};

typedef struct reader {
    sqlite3 *db;
    ds_buf path;
    ds_error *err;
} reader;

static ds_status fail(reader *r) {
    return ds_error_set(r->err, DS_ERR_DATA, DS_NOWHERE, "%s: %s", r->path.text,
                        ds_sqlite__why(r->db));
}

/* By ds_profiles_load, which says what is wrong with a file that is no such database. */
static ds_status open_reader(reader *r, const char *path, ds_error *err) {
    *r = (reader){.err = err};
    ds_profiles *profiles;
    DS_TRY(ds_profiles_load(path, &profiles, err));
    ds_profiles_free(profiles);
    if (path)
        ds_buf_put(&r->path, path);
    else
        ds_profiles_default_path(&r->path);
    return ds_sqlite__open(r->path.text, &r->db, err);
}

static void close_reader(reader *r) {
    sqlite3_close(r->db);
    ds_buf_deinit(&r->path);
}

static ds_status prepare_query(reader *r, const char *sql, sqlite3_stmt **stmt) {
    return sqlite3_prepare_v2(r->db, sql, -1, stmt, NULL) == SQLITE_OK ? DS_OK : fail(r);
}

/* ---- cells ---- */

static void put_text(ds_buf *out, const char *text) {
    if (!*text) return;
    ds_buf record = {0};
    ds_csv_put_row(&record, &text, 1);
    ds_buf_put_n(out, record.text, record.n - 1); /* without its newline */
    ds_buf_deinit(&record);
}

/* value / scale: a power of ten, so there is an end. */
static void put_scaled(ds_buf *out, int64_t value, int64_t scale) {
    int64_t fraction = value % scale;
    ds_buf_printf(out, "%" PRId64, value / scale);
    if (!fraction) return;
    ds_buf_putc(out, '.');
    while (fraction) {
        scale /= 10;
        ds_buf_putc(out, (char)('0' + fraction / scale));
        fraction %= scale;
    }
}

static void put_real(ds_buf *out, double value) {
    ds_json json;
    ds_json_init(&json, out, 0);
    ds_json_double(&json, value);
}

static void put_cell(ds_buf *out, const column *c, sqlite3_stmt *row, int at) {
    if (sqlite3_column_type(row, at) == SQLITE_NULL) return;
    switch (c->kind) {
    case CELL_INT:
    case CELL_BOOL:
        ds_buf_printf(out, "%" PRId64, (int64_t)sqlite3_column_int64(row, at));
        return;
    case CELL_SCALED:
        put_scaled(out, sqlite3_column_int64(row, at), c->scale);
        return;
    case CELL_REAL:
        put_real(out, sqlite3_column_double(row, at));
        return;
    default:
        put_text(out, ds_sqlite__text(row, at));
    }
}

/* ---- tables ---- */

static void put_query(ds_buf *sql, const table *t) {
    ds_buf_put(sql, "SELECT ");
    for (uint32_t i = 0; i < t->n_columns; i++) {
        const column *c = &t->columns[i];
        const char *format = c->kind == CELL_SOURCE ? "%s(SELECT key FROM source WHERE id = t.%s)"
                             : c->kind == CELL_DEVICE
                                 ? "%s(SELECT name FROM device WHERE id = t.%s)"
                                 : "%st.%s";
        ds_buf_printf(sql, format, i ? ", " : "", c->table);
    }
    ds_buf_printf(sql, " FROM %s t WHERE t.%s = ?", t->name, t->of_profile ? "profile" : "id");
    ds_buf_put(sql, " ORDER BY 1, 2, 3, t.rowid"); /* of ops and collectives, one after the other */
}

static ds_status put_rows(reader *r, const table *t, sqlite3_stmt *stmt, ds_buf *out) {
    int code;
    size_t before = out->n;
    for (uint32_t i = 0; i < t->n_columns; i++)
        ds_buf_printf(out, "%s%s", i ? "," : "", t->columns[i].csv);
    ds_buf_putc(out, '\n');
    uint32_t n = 0;
    for (; (code = sqlite3_step(stmt)) == SQLITE_ROW; n++) {
        for (uint32_t i = 0; i < t->n_columns; i++) {
            if (i) ds_buf_putc(out, ',');
            put_cell(out, &t->columns[i], stmt, (int)i);
        }
        ds_buf_putc(out, '\n');
    }
    if (!n) {
        out->n = before;
        if (out->text) out->text[before] = 0;
    }
    return code == SQLITE_DONE ? DS_OK : fail(r);
}

static ds_status put_table(reader *r, const table *t, int64_t profile, ds_buf *out) {
    ds_buf sql = {0};
    sqlite3_stmt *stmt = NULL;
    put_query(&sql, t);
    ds_status status = prepare_query(r, sql.text, &stmt);
    if (status == DS_OK) {
        sqlite3_bind_int64(stmt, 1, profile);
        status = put_rows(r, t, stmt, out);
    }
    sqlite3_finalize(stmt);
    ds_buf_deinit(&sql);
    return status;
}

/* Those that some row of the profile names. */
static ds_status put_sources(reader *r, int64_t profile, ds_buf *out) {
    ds_buf sql = {0};
    sqlite3_stmt *stmt = NULL;
    ds_buf_put(&sql, "SELECT key, title, place, revision, licence FROM source WHERE id IN (");
    for (uint32_t i = 0; i < DS_COST_PROFILE_TABLES; i++) {
        const table *t = ds_cost__profile_tables[i];
        ds_buf_printf(&sql, "%sSELECT source FROM %s WHERE %s = ?1", i ? " UNION " : "", t->name,
                      t->of_profile ? "profile" : "id");
    }
    ds_buf_put(&sql, ") ORDER BY id");
    ds_status status = prepare_query(r, sql.text, &stmt);
    if (status == DS_OK) {
        sqlite3_bind_int64(stmt, 1, profile);
        status = put_rows(r, ds_cost__sources, stmt, out);
    }
    sqlite3_finalize(stmt);
    ds_buf_deinit(&sql);
    return status;
}

static ds_status find_profile(reader *r, const char *name, int64_t *id) {
    sqlite3_stmt *stmt = NULL;
    *id = 0;
    DS_TRY(prepare_query(r, "SELECT id FROM profile WHERE name = ? COLLATE NOCASE", &stmt));
    int rc = sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK) rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) *id = sqlite3_column_int64(stmt, 0);
    ds_status status = rc == SQLITE_ROW || rc == SQLITE_DONE ? DS_OK : fail(r);
    sqlite3_finalize(stmt);
    return status;
}

/* The message, with its suggestions, is ds_profiles_find_profile's. */
static ds_status no_such_profile(reader *r, const char *name) {
    ds_profiles *profiles;
    uint32_t ignored;
    DS_TRY(ds_profiles_load(r->path.text, &profiles, r->err));
    ds_status status = ds_profiles_find_profile(profiles, name, DS_NOWHERE, &ignored, r->err);
    ds_profiles_free(profiles);
    if (status != DS_OK) return status;
    return ds_error_set(r->err, DS_ERR_NAME, DS_NOWHERE, "profile '%s' has no rows", name);
}

static ds_status put_file(reader *r, const char *profile, const char *file, ds_buf *out) {
    int64_t id;
    DS_TRY(find_profile(r, profile, &id));
    if (!id) return no_such_profile(r, profile);
    if (strcmp(file, ds_cost__sources->file) == 0) return put_sources(r, id, out);
    for (uint32_t i = 0; i < DS_COST_PROFILE_TABLES; i++)
        if (strcmp(ds_cost__profile_tables[i]->file, file) == 0)
            return put_table(r, ds_cost__profile_tables[i], id, out);
    return ds_error_set(r->err, DS_ERR_NAME, DS_NOWHERE, "'%s' is no file of a profile", file);
}

ds_status ds_profile_text(const char *db_path, const char *profile, const char *file, ds_buf *out,
                          ds_error *err) {
    reader r;
    ds_status status = open_reader(&r, db_path, err);
    if (status == DS_OK) status = put_file(&r, profile, file, out);
    close_reader(&r);
    return status;
}

static const char list_query[] =
    "SELECT p.name, (SELECT name FROM device WHERE id = p.device),"
    " (SELECT count(*) FROM op_profile WHERE profile = p.id),"
    " (SELECT count(*) FROM efficiency_fit WHERE profile = p.id),"
    " (SELECT count(*) FROM gemm_fit WHERE profile = p.id),"
    " (SELECT count(*) FROM collective_profile WHERE profile = p.id),"
    " (SELECT count(*) FROM collective_fit WHERE profile = p.id),"
    " (SELECT count(*) FROM collective_protocol WHERE profile = p.id), p.software,"
    " p.is_default, p.is_generic, p.framework, p.steps, p.step_error, p.steps_split"
    " FROM profile p ORDER BY 2 COLLATE NOCASE, p.is_default DESC, p.name COLLATE NOCASE";

static const column list_columns[] = {
    {"profile", "", CELL_TEXT, false, 0},     {"device", "", CELL_TEXT, false, 0},
    {"ops", "", CELL_INT, false, 0},          {"curves", "", CELL_INT, false, 0},
    {"gemm_fits", "", CELL_INT, false, 0},    {"collectives", "", CELL_INT, false, 0},
    {"fits", "", CELL_INT, false, 0},         {"protocols", "", CELL_INT, false, 0},
    {"software", "", CELL_TEXT, false, 0},    {"default", "", CELL_BOOL, false, 0},
    {"generic", "", CELL_BOOL, false, 0},     {"framework", "", CELL_TEXT, false, 0},
    {"steps", "", CELL_INT, false, 0},        {"step_error", "", CELL_REAL, true, 0},
    {"steps_split", "", CELL_TEXT, false, 0},
};

ds_status ds_profile_list_text(const char *db_path, ds_buf *out, ds_error *err) {
    static const table list = {
        "", "", false, list_columns, sizeof list_columns / sizeof *list_columns, NULL};
    reader r;
    sqlite3_stmt *stmt = NULL;
    ds_status status = open_reader(&r, db_path, err);
    if (status == DS_OK) status = prepare_query(&r, list_query, &stmt);
    if (status == DS_OK) status = put_rows(&r, &list, stmt, out);
    sqlite3_finalize(stmt);
    close_reader(&r);
    return status;
}
