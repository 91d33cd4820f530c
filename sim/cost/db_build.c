/* CSV → SQLite, table by table, in one transaction.
 *
 * Each CSV file is described by an array of `column`s: its name in the file, its name in the table,
 * and how a cell is checked and converted. Decimal numbers with a unit in their column name
 * (time_us, memory_gib) are scaled to integers exactly, never through a double. */
#include "sim/cost/build.h"

#include "ir/base/csv.h"
#include "ir/base/file.h"
#include "ir/base/output.h"
#include "ir/base/units.h"
#include "ir/strategy/knobs.h"
#include "sim/cost/profiles_internal.h"
#include "sim/cost/sqlite_internal.h"
#include "sim/cost/tables_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct builder {
    sqlite3 *db;
    const char *dir;
    ds_arena arena;
    const char *table; /* that is being filled */
    int64_t profile;   /* row id of the profile whose folder is being read; 0: the catalogue */
    bool has_base;     /* that profile */
    bool any_base;     /* some profile so far */
    ds_error *err;
};

/* ---- SQLite ---- */

static ds_status sql_error(builder *b, const char *what) {
    return ds_error_set(b->err, DS_ERR_DATA, DS_NOWHERE, "%s: %s", what, ds_sqlite__why(b->db));
}

static ds_status run_sql(builder *b, const char *sql) {
    if (sqlite3_exec(b->db, sql, NULL, NULL, NULL) == SQLITE_OK) return DS_OK;
    return sql_error(b, "SQL");
}

/* The integer that a one-parameter query gives for `text`, or 0. */
static int64_t find_id(builder *b, const char *sql, const char *text) {
    sqlite3_stmt *stmt = NULL;
    int64_t id = 0;
    int rc = sqlite3_prepare_v2(b->db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_bind_text(stmt, 1, text, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK) rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        id = sqlite3_column_int64(stmt, 0);
    else if (rc != SQLITE_DONE)
        (void)ds_sqlite__why(b->db); /* nothing but memory can be missing, which ends here */
    sqlite3_finalize(stmt);
    return id;
}

static int64_t find_source(builder *b, const char *key) {
    return find_id(b, "SELECT id FROM source WHERE key = ?", key);
}

static int64_t find_device(builder *b, const char *name) {
    int64_t id = find_id(b, "SELECT id FROM device WHERE name = ?", name);
    return id ? id : find_id(b, "SELECT device FROM device_alias WHERE alias = ?", name);
}

/* ---- cells ---- */

/* text × scale as an exact integer: "12.5" × 1000 = 12500. False if text is not a plain decimal
 * number ≥ 0, if a fraction would be lost or if it overflows. */
static bool parse_scaled(const char *text, int64_t scale, int64_t *out) {
    int64_t digits = 0, power = 1; /* the number is digits / power */
    bool point = false;
    if (!isdigit((unsigned char)*text)) return false;
    for (const char *p = text; *p; p++) {
        if (*p == '.' && !point) {
            point = true;
            continue;
        }
        if (!isdigit((unsigned char)*p) || (point && !ds_mul_i64(power, 10, &power)) ||
            !ds_mul_i64(digits, 10, &digits) || !ds_add_i64(digits, *p - '0', &digits))
            return false;
    }
    ds_i128 scaled = (ds_i128)digits * scale;
    if (scaled % power != 0 || scaled / power > INT64_MAX) return false;
    *out = (int64_t)(scaled / power);
    return true;
}

static bool parse_real(const char *text, double *out) {
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    return *text && *end == '\0' && errno == 0 && isfinite(*out);
}

static ds_status bad_cell(builder *b, const ds_csv *csv, const ds_csv_row *row, const column *c,
                          const char *cell, const char *wanted) {
    return ds_csv_error(csv, row, b->err, "%s = '%s': %s", c->csv, cell, wanted);
}

/* In the range of its column in the table? Integers beyond 2^53 are far from any limit. */
static ds_status check_range(builder *b, const ds_csv *csv, const ds_csv_row *row, const column *c,
                             const char *cell, double value) {
    const ds_cost_range *range = ds_cost__range(b->table, c->table);
    if (!range || ds_cost__is_in(range, value)) return DS_OK;
    return ds_csv_error(csv, row, b->err, "%s = '%s': %s would be %g: it must be from %g to %g",
                        c->csv, cell, c->table, value, range->least, range->most);
}

static ds_status bind_source(builder *b, const ds_csv *csv, const ds_csv_row *row, const column *c,
                             const char *cell, sqlite3_stmt *stmt, int at) {
    if (!*cell) return ds_csv_error(csv, row, b->err, "a row without a source");
    int64_t id = find_source(b, cell);
    if (!id) return bad_cell(b, csv, row, c, cell, "no sources.csv read so far has this key");
    sqlite3_bind_int64(stmt, at, id);
    return DS_OK;
}

static ds_status bind_cell(builder *b, const ds_csv *csv, const ds_csv_row *row, const column *c,
                           const char *cell, sqlite3_stmt *stmt, int at) {
    int64_t i = 0;
    double d = 0;
    ds_dtype dtype;
    if (c->kind == CELL_SOURCE) return bind_source(b, csv, row, c, cell, stmt, at);
    bool has_empty = c->kind == CELL_INT || c->kind == CELL_BOOL || c->kind == CELL_TEXT;
    if (!*cell && c->optional && !has_empty) {
        sqlite3_bind_null(stmt, at);
        return DS_OK;
    }
    switch (c->kind) {
    case CELL_KEY:
        if (!*cell) return bad_cell(b, csv, row, c, cell, "may not be empty");
        sqlite3_bind_text(stmt, at, cell, -1, SQLITE_STATIC);
        break;
    case CELL_TEXT:
        sqlite3_bind_text(stmt, at, cell, -1, SQLITE_STATIC);
        break;
    case CELL_DTYPES:
    case CELL_DTYPE:
        if (!ds_dtype_parse(cell, &dtype) && !(c->kind == CELL_DTYPES && strcmp(cell, "*") == 0))
            return bad_cell(b, csv, row, c, cell, "not a dtype of the language");
        sqlite3_bind_text(stmt, at, cell, -1, SQLITE_STATIC);
        break;
    case CELL_INT:
        if (*cell && !parse_scaled(cell, 1, &i))
            return bad_cell(b, csv, row, c, cell, "not an integer ≥ 0");
        DS_TRY(check_range(b, csv, row, c, cell, (double)i));
        sqlite3_bind_int64(stmt, at, i);
        break;
    case CELL_SCALED:
        if (!parse_scaled(cell, c->scale, &i))
            return bad_cell(b, csv, row, c, cell, "not a decimal number ≥ 0 of that unit");
        DS_TRY(check_range(b, csv, row, c, cell, (double)i));
        sqlite3_bind_int64(stmt, at, i);
        break;
    case CELL_REAL:
        if (!parse_real(cell, &d)) return bad_cell(b, csv, row, c, cell, "not a finite number");
        DS_TRY(check_range(b, csv, row, c, cell, d));
        sqlite3_bind_double(stmt, at, d);
        break;
    case CELL_BOOL:
        if (strcmp(cell, "0") != 0 && strcmp(cell, "1") != 0 && *cell)
            return bad_cell(b, csv, row, c, cell, "must be 0 or 1");
        sqlite3_bind_int64(stmt, at, *cell == '1');
        break;
    case CELL_DEVICE:
        i = find_device(b, cell);
        if (!i) return bad_cell(b, csv, row, c, cell, "not in catalogue/devices.csv");
        sqlite3_bind_int64(stmt, at, i);
        break;
    case CELL_SOURCE:
        break; /* above */
    }
    return DS_OK;
}

/* ---- tables ---- */

/* A column of the file that the table does not have is a typing error or a fact that would be lost.
 */
static ds_status check_columns(builder *b, const ds_csv *csv, const table *t, uint32_t *index) {
    for (uint32_t c = 0; c < t->n_columns; c++) {
        index[c] = ds_csv_find(csv, t->columns[c].csv);
        if (index[c] == DS_CSV_NO_COLUMN && !t->columns[c].optional)
            DS_TRY(ds_csv_need(csv, t->columns[c].csv, &index[c], b->err));
    }
    for (uint32_t i = 0; i < csv->n_columns; i++) {
        bool known = strcmp(csv->columns[i], "note") == 0;
        for (uint32_t c = 0; c < t->n_columns && !known; c++) known = index[c] == i;
        if (!known)
            return ds_error_set(b->err, DS_ERR_DATA, DS_NOWHERE, "%s: unknown column '%s'",
                                csv->file, csv->columns[i]);
    }
    return DS_OK;
}

static ds_status prepare_insert(builder *b, const table *t, sqlite3_stmt **stmt) {
    ds_buf sql = {0};
    ds_buf_printf(&sql, "INSERT INTO %s (%s", t->name, t->of_profile ? "profile" : "");
    uint32_t n = 0;
    for (uint32_t c = 0; c < t->n_columns; c++)
        if (t->columns[c].table)
            ds_buf_printf(&sql, "%s%s", n++ || t->of_profile ? ", " : "", t->columns[c].table);
    ds_buf_put(&sql, ") VALUES (?");
    for (uint32_t i = 1; i < n + (t->of_profile ? 1 : 0); i++) ds_buf_put(&sql, ", ?");
    ds_buf_put(&sql, ")");
    int rc = sqlite3_prepare_v2(b->db, sql.text, -1, stmt, NULL);
    ds_buf_deinit(&sql);
    return rc == SQLITE_OK ? DS_OK : sql_error(b, t->name);
}

static ds_status insert_row(builder *b, const table *t, const ds_csv *csv, const uint32_t *index,
                            const ds_csv_row *row, sqlite3_stmt *stmt) {
    int at = 1;
    sqlite3_reset(stmt);
    if (t->of_profile) sqlite3_bind_int64(stmt, at++, b->profile);
    for (uint32_t c = 0; c < t->n_columns; c++) {
        if (!t->columns[c].table) continue;
        const char *cell = index[c] == DS_CSV_NO_COLUMN ? "" : row->cells[index[c]];
        DS_TRY(bind_cell(b, csv, row, &t->columns[c], cell, stmt, at++));
    }
    if (sqlite3_step(stmt) != SQLITE_DONE)
        return ds_csv_error(csv, row, b->err, "%s: %s", t->name, ds_sqlite__why(b->db));
    int64_t id = sqlite3_last_insert_rowid(b->db);
    return t->after ? t->after(b, csv, row, id) : DS_OK;
}

static ds_status import_rows(builder *b, const table *t, const ds_csv *csv) {
    uint32_t *index = DS_NEW_N(&b->arena, uint32_t, t->n_columns);
    sqlite3_stmt *stmt = NULL;
    DS_TRY(check_columns(b, csv, t, index));
    b->table = t->name;
    ds_status status = prepare_insert(b, t, &stmt);
    for (uint32_t r = 0; status == DS_OK && r < csv->rows.n; r++)
        status = insert_row(b, t, csv, index, &csv->rows.at[r], stmt);
    sqlite3_finalize(stmt);
    return status;
}

static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

static ds_status import(builder *b, const char *folder, const table *t, bool required) {
    const char *path = ds_arena_printf(&b->arena, "%s/%s/%s", b->dir, folder, t->file);
    if (!required && !exists(path)) return DS_OK;
    ds_csv csv;
    DS_TRY(ds_csv_read(path, &csv, b->err));
    ds_status status = import_rows(b, t, &csv);
    ds_csv_deinit(&csv);
    return status;
}

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

static const column source_columns[] = {
    {"key", "key", CELL_KEY, false, 0},         {"title", "title", CELL_KEY, false, 0},
    {"place", "place", CELL_KEY, false, 0},     {"revision", "revision", CELL_TEXT, false, 0},
    {"licence", "licence", CELL_KEY, false, 0},
};
static const table sources = {"sources.csv",         "source", false, source_columns,
                              COUNT(source_columns), NULL};

/* Peaks are one column a dtype in TFLOP/s; `aliases` is a list separated by spaces. */
static const struct {
    const char *column, *dtype;
} peaks[] = {
    {"f64_tflops", "f64"},   {"f32_tflops", "f32"},   {"tf32_tflops", "tf32"},
    {"bf16_tflops", "bf16"}, {"f16_tflops", "f16"},   {"f8_tflops", "f8e4m3"},
    {"f8_tflops", "f8e5m2"}, {"f4_tflops", "f4e2m1"}, {"i8_tops", "i8"},
};

static const column device_columns[] = {
    {"name", "name", CELL_KEY, false, 0},
    {"memory_gib", "memory_bytes", CELL_SCALED, false, INT64_C(1) << 30},
    {"memory_gb_per_s", "memory_bytes_per_s", CELL_SCALED, false, 1000000000},
    {"source", "source", CELL_SOURCE, false, 0},
    {"aliases", NULL, CELL_TEXT, true, 0},
    {"f64_tflops", NULL, CELL_REAL, true, 0},
    {"f32_tflops", NULL, CELL_REAL, true, 0},
    {"tf32_tflops", NULL, CELL_REAL, true, 0},
    {"bf16_tflops", NULL, CELL_REAL, true, 0},
    {"f16_tflops", NULL, CELL_REAL, true, 0},
    {"f8_tflops", NULL, CELL_REAL, true, 0},
    {"f4_tflops", NULL, CELL_REAL, true, 0},
    {"i8_tops", NULL, CELL_REAL, true, 0},
};

static ds_status insert_pair(builder *b, const ds_csv *csv, const ds_csv_row *row, const char *sql,
                             const char *text, int64_t number, int64_t device) {
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(b->db, sql, -1, &stmt, NULL) != SQLITE_OK) return sql_error(b, sql);
    sqlite3_bind_text(stmt, 1, text, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, device);
    if (sqlite3_bind_parameter_count(stmt) == 3) sqlite3_bind_int64(stmt, 3, number);
    ds_status status = DS_OK;
    if (sqlite3_step(stmt) != SQLITE_DONE)
        status = ds_csv_error(csv, row, b->err, "'%s': %s", text, ds_sqlite__why(b->db));
    sqlite3_finalize(stmt);
    return status;
}

static ds_status insert_aliases(builder *b, const ds_csv *csv, const ds_csv_row *row, int64_t id) {
    uint32_t at = ds_csv_find(csv, "aliases");
    if (at == DS_CSV_NO_COLUMN) return DS_OK;
    char *list = ds_arena_strdup(&b->arena, row->cells[at]), *rest = NULL;
    for (char *alias = strtok_r(list, " ", &rest); alias; alias = strtok_r(NULL, " ", &rest)) {
        if (find_device(b, alias))
            return ds_csv_error(csv, row, b->err, "alias '%s' already names a device", alias);
        DS_TRY(insert_pair(b, csv, row, "INSERT INTO device_alias VALUES (?, ?)", alias, 0, id));
    }
    return DS_OK;
}

static ds_status insert_device_parts(builder *b, const ds_csv *csv, const ds_csv_row *row,
                                     int64_t id) {
    const char *name = row->cells[ds_csv_find(csv, "name")];
    if (find_id(b, "SELECT device FROM device_alias WHERE alias = ?", name))
        return ds_csv_error(csv, row, b->err, "'%s' is already an alias of another device", name);
    for (uint32_t i = 0; i < COUNT(peaks); i++) {
        uint32_t at = ds_csv_find(csv, peaks[i].column);
        int64_t flop_per_s = 0;
        if (at == DS_CSV_NO_COLUMN || !*row->cells[at]) continue;
        if (!parse_scaled(row->cells[at], 1000000000000, &flop_per_s) ||
            !ds_cost__is_in(ds_cost__range("device_peak", "flop_per_s"), (double)flop_per_s))
            return ds_csv_error(csv, row, b->err, "%s = '%s': not a decimal number > 0, to 10^6",
                                peaks[i].column, row->cells[at]);
        DS_TRY(insert_pair(b, csv, row,
                           "INSERT INTO device_peak (dtype, device, flop_per_s) VALUES (?, ?, ?)",
                           peaks[i].dtype, flop_per_s, id));
    }
    return insert_aliases(b, csv, row, id);
}

static const table devices = {"devices.csv",         "device",           false, device_columns,
                              COUNT(device_columns), insert_device_parts};

static const column link_columns[] = {
    {"name", "name", CELL_KEY, false, 0},
    {"gb_per_s", "bytes_per_s", CELL_SCALED, false, 1000000000},
    {"latency_us", "latency_ps", CELL_SCALED, true, 1000000},
    {"source", "source", CELL_SOURCE, false, 0},
};
static const table links = {"links.csv",  "link_kind",         false,
                            link_columns, COUNT(link_columns), NULL};

static const column memory_columns[] = {
    {"device", "device", CELL_DEVICE, false, 0},
    {"what", "what", CELL_KEY, false, 0},
    {"mib", "bytes", CELL_SCALED, false, INT64_C(1) << 20},
    {"basis", "basis", CELL_KEY, false, 0},
    {"source", "source", CELL_SOURCE, false, 0},
};
static const table device_memory = {"memory.csv",   "device_memory",       false,
                                    memory_columns, COUNT(memory_columns), NULL};

static const column clock_columns[] = {
    {"device", "device", CELL_DEVICE, false, 0},
    {"power_w", "power_mw", CELL_SCALED, false, 1000},
    {"sustained", "sustained", CELL_REAL, false, 0},
    {"busy", "busy", CELL_REAL, false, 0},
    {"basis", "basis", CELL_KEY, false, 0},
    {"source", "source", CELL_SOURCE, false, 0},
};
static const table device_clock = {"clocks.csv",  "device_clock",       false,
                                   clock_columns, COUNT(clock_columns), NULL};

static const column relative_columns[] = {
    {"device", "device", CELL_DEVICE, false, 0},
    {"relative", "relative", CELL_DEVICE, false, 0},
    {"basis", "basis", CELL_KEY, false, 0},
    {"source", "source", CELL_SOURCE, false, 0},
};
static const table device_relative = {"relatives.csv",  "device_relative",       false,
                                      relative_columns, COUNT(relative_columns), NULL};

static const column part_columns[] = {
    {"part", "part", CELL_KEY, false, 0},    {"bias", "bias", CELL_REAL, false, 0},
    {"error", "error", CELL_REAL, false, 0}, {"n", "n", CELL_INT, false, 0},
    {"basis", "basis", CELL_KEY, false, 0},  {"source", "source", CELL_SOURCE, false, 0},
};
static const table part_errors = {"intervals.csv", "part_error",        false,
                                  part_columns,    COUNT(part_columns), NULL};

/* The row's cell; "": the file has no such column. */
static const char *cell_of(const ds_csv *csv, const ds_csv_row *row, const char *name) {
    uint32_t at = ds_csv_find(csv, name);
    return at == DS_CSV_NO_COLUMN ? "" : row->cells[at];
}

static ds_status check_framework(builder *b, const ds_csv *csv, const ds_csv_row *row) {
    const char *word = cell_of(csv, row, "framework");
    const char *words = ds_scenario_knob("", "framework")->choices;
    size_t n = strlen(word);
    for (const char *at = words; n && (at = strstr(at, word)); at++)
        if ((at == words || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return DS_OK;
    return n ? ds_csv_error(csv, row, b->err, "framework = '%s': none of %s", word, words) : DS_OK;
}

static ds_status check_steps(builder *b, const ds_csv *csv, const ds_csv_row *row) {
    bool some = atoll(cell_of(csv, row, "steps")) > 0;
    if (some == (*cell_of(csv, row, "step_error") != 0) &&
        some == (*cell_of(csv, row, "steps_split") != 0))
        return DS_OK;
    return ds_csv_error(csv, row, b->err,
                        "steps, step_error and steps_split are stated together, or none of them");
}

/* A device has at most one profile with a 1 in that column (default, generic). */
static ds_status check_only_one(builder *b, const ds_csv *csv, const ds_csv_row *row,
                                const char *word) {
    const char *device = cell_of(csv, row, "device");
    int64_t kind = find_device(b, device);
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM profile WHERE is_%s = ? AND device = %lld",
             word, (long long)kind);
    if (find_id(b, sql, "1") < 2) return DS_OK;
    return ds_csv_error(csv, row, b->err,
                        "%s = '1': a profile before this one is the %s of %s already", word, word,
                        device);
}

/* Words of `profile =` that name no single profile. */
static ds_status check_name(builder *b, const ds_csv *csv, const ds_csv_row *row) {
    const char *name = cell_of(csv, row, "name");
    if (strcasecmp(name, "ideal") == 0)
        return ds_csv_error(csv, row, b->err, "name = 'ideal': the word for no profile at all");
    if (ds_profiles_means_generic(name))
        return ds_csv_error(csv, row, b->err,
                            "name = 'generic': the word for the generic profile of each device");
    return DS_OK;
}

static ds_status end_profile(builder *b, const ds_csv *csv, const ds_csv_row *row, int64_t id) {
    if (b->profile) return ds_csv_error(csv, row, b->err, "one folder holds one profile");
    b->profile = id;
    b->has_base = *cell_of(csv, row, "base") != 0;
    b->any_base = b->any_base || b->has_base;
    DS_TRY(check_name(b, csv, row));
    DS_TRY(check_framework(b, csv, row));
    DS_TRY(check_steps(b, csv, row));
    DS_TRY(check_only_one(b, csv, row, "default"));
    return check_only_one(b, csv, row, "generic");
}

static const column profile_columns[] = {
    {"name", "name", CELL_KEY, false, 0},
    {"device", "device", CELL_DEVICE, false, 0},
    {"issue_us", "issue_ps", CELL_SCALED, false, 1000000},
    {"interference", "interference", CELL_REAL, true, 0},
    {"ratio_p05", "ratio_p05", CELL_REAL, true, 0},
    {"ratio_p95", "ratio_p95", CELL_REAL, true, 0},
    {"software", "software", CELL_KEY, false, 0},
    {"default", "is_default", CELL_BOOL, true, 0},
    {"generic", "is_generic", CELL_BOOL, true, 0},
    {"base", "base", CELL_TEXT, true, 0},
    {"compute_factor", "compute_factor", CELL_REAL, true, 0},
    {"communication_factor", "communication_factor", CELL_REAL, true, 0},
    {"host_factor", "host_factor", CELL_REAL, true, 0},
    {"framework", "framework", CELL_TEXT, true, 0},
    {"steps", "steps", CELL_INT, true, 0},
    {"step_error", "step_error", CELL_REAL, true, 0},
    {"steps_split", "steps_split", CELL_TEXT, true, 0},
    {"source", "source", CELL_SOURCE, false, 0},
};
static const table profiles = {"profile.csv",          "profile",  false, profile_columns,
                               COUNT(profile_columns), end_profile};

static const column op_columns[] = {
    {"class", "class", CELL_KEY, false, 0},
    {"op", "op", CELL_KEY, false, 0},
    {"dtype", "dtype", CELL_DTYPE, false, 0},
    {"batch", "batch", CELL_INT, true, 0},
    {"m", "m", CELL_INT, true, 0},
    {"n", "n", CELL_INT, true, 0},
    {"k", "k", CELL_INT, true, 0},
    {"heads", "heads", CELL_INT, true, 0},
    {"kv_heads", "kv_heads", CELL_INT, true, 0},
    {"seq_q", "seq_q", CELL_INT, true, 0},
    {"seq_kv", "seq_kv", CELL_INT, true, 0},
    {"head_dim", "head_dim", CELL_INT, true, 0},
    {"causal", "causal", CELL_BOOL, true, 0},
    {"tokens", "tokens", CELL_INT, true, 0},
    {"width", "width", CELL_INT, true, 0},
    {"time_us", "time_ps", CELL_SCALED, false, 1000000},
    {"source", "source", CELL_SOURCE, false, 0},
};
static const table ops = {"ops.csv", "op_profile", true, op_columns, COUNT(op_columns), NULL};

/* The residuals of a fit: quantiles of measured/predicted. */
#define RATIO_COLUMNS                                                                              \
    {"ratio_p05", "ratio_p05", CELL_REAL, true, 0},                                                \
        {"ratio_p25", "ratio_p25", CELL_REAL, true, 0},                                            \
        {"ratio_p50", "ratio_p50", CELL_REAL, true, 0},                                            \
        {"ratio_p75", "ratio_p75", CELL_REAL, true, 0}, {                                          \
        "ratio_p95", "ratio_p95", CELL_REAL, true, 0                                               \
    }

static const column efficiency_columns[] = {
    {"op", "op", CELL_KEY, false, 0},
    {"dtype", "dtype", CELL_DTYPES, false, 0},
    {"resource", "resource", CELL_KEY, false, 0},
    {"reference_giga_per_s", "reference_per_s", CELL_SCALED, false, 1000000000},
    {"e_max", "e_max", CELL_REAL, false, 0},
    {"w_half", "w_half", CELL_REAL, false, 0},
    {"w_min", "w_min", CELL_REAL, false, 0},
    {"w_max", "w_max", CELL_REAL, false, 0},
    {"kernels", "kernels", CELL_TEXT, true, 0},
    {"floor_us", "floor_ps", CELL_SCALED, true, 1000000},
    {"row_ns", "row_ps", CELL_SCALED, true, 1000},
    {"n", "n", CELL_INT, false, 0},
    {"median_error", "median_error", CELL_REAL, true, 0},
    {"p90_error", "p90_error", CELL_REAL, true, 0},
    RATIO_COLUMNS,
    {"basis", "basis", CELL_KEY, false, 0},
    {"source", "source", CELL_SOURCE, false, 0},
};
static const table efficiencies = {"efficiency.csv",   "efficiency_fit",          true,
                                   efficiency_columns, COUNT(efficiency_columns), NULL};

static const column gemm_columns[] = {
    {"dtype", "dtype", CELL_DTYPE, false, 0},
    {"processors", "processors", CELL_INT, false, 0},
    {"flop_giga_per_s", "flop_per_s", CELL_SCALED, false, 1000000000},
    {"memory_gb_per_s", "bytes_per_s", CELL_SCALED, false, 1000000000},
    {"e_max", "e_max", CELL_REAL, false, 0},
    {"tail", "tail", CELL_REAL, false, 0},
    {"prologue", "prologue", CELL_REAL, false, 0},
    {"port", "port", CELL_REAL, false, 0},
    {"e_memory", "e_memory", CELL_REAL, false, 0},
    {"overlap", "overlap", CELL_REAL, false, 0},
    {"launch_us", "launch_us", CELL_REAL, false, 0},
    {"format", "format", CELL_TEXT, true, 0},
    {"resident", "resident", CELL_INT, true, 0},
    {"lone", "lone", CELL_REAL, true, 0},
    {"cut_us", "cut_us", CELL_REAL, true, 0},
    {"sag", "sag", CELL_REAL, true, 0},
    {"sag_us", "sag_us", CELL_REAL, true, 0},
    {"convert_us", "convert_us", CELL_REAL, true, 0},
    {"convert_gb_per_s", "convert_gb_per_s", CELL_REAL, true, 0},
    {"w_min", "w_min", CELL_REAL, false, 0},
    {"w_max", "w_max", CELL_REAL, false, 0},
    {"n", "n", CELL_INT, false, 0},
    {"median_error", "median_error", CELL_REAL, true, 0},
    {"p90_error", "p90_error", CELL_REAL, true, 0},
    {"shape_median_error", "shape_median_error", CELL_REAL, true, 0},
    {"shape_p90_error", "shape_p90_error", CELL_REAL, true, 0},
    {"family_median_error", "family_median_error", CELL_REAL, true, 0},
    {"family_p90_error", "family_p90_error", CELL_REAL, true, 0},
    {"size_median_error", "size_median_error", CELL_REAL, true, 0},
    {"size_p90_error", "size_p90_error", CELL_REAL, true, 0},
    RATIO_COLUMNS,
    {"basis", "basis", CELL_KEY, false, 0},
    {"source", "source", CELL_SOURCE, false, 0},
};
static const table gemm_fits = {"gemm_fits.csv", "gemm_fit",          true,
                                gemm_columns,    COUNT(gemm_columns), NULL};

const table *const ds_cost__profile_tables[DS_COST_PROFILE_TABLES] = {&profiles,
                                                                      &ops,
                                                                      &efficiencies,
                                                                      &gemm_fits,
                                                                      &ds_cost__attention_fits,
                                                                      &ds_cost__collectives,
                                                                      &ds_cost__collective_fits,
                                                                      &ds_cost__protocols};
const table *const ds_cost__sources = &sources;

/* ---- the whole tree ---- */

static ds_status import_catalogue(builder *b) {
    DS_TRY(import(b, "catalogue", &sources, true));
    DS_TRY(import(b, "catalogue", &devices, true));
    DS_TRY(import(b, "catalogue", &device_memory, false));
    DS_TRY(import(b, "catalogue", &device_clock, false));
    DS_TRY(import(b, "catalogue", &device_relative, false));
    DS_TRY(import(b, "catalogue", &part_errors, false));
    return import(b, "catalogue", &links, true);
}

static ds_status import_profile(builder *b, const char *folder) {
    b->profile = 0;
    DS_TRY(import(b, folder, &sources, false));
    DS_TRY(import(b, folder, &profiles, true));
    if (!b->profile)
        return ds_error_set(b->err, DS_ERR_DATA, DS_NOWHERE, "%s/%s/profile.csv: no row", b->dir,
                            folder);
    for (uint32_t i = 1; i < DS_COST_PROFILE_TABLES; i++) {
        const char *file = ds_cost__profile_tables[i]->file;
        if (b->has_base && exists(ds_arena_printf(&b->arena, "%s/%s/%s", b->dir, folder, file)))
            return ds_error_set(b->err, DS_ERR_DATA, DS_NOWHERE,
                                "%s/%s: %s beside a profile with a base, whose rows count instead",
                                b->dir, folder, file);
        DS_TRY(import(b, folder, ds_cost__profile_tables[i], false));
    }
    return DS_OK;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name); /* alphasort would follow the locale */
}

static ds_status import_profiles(builder *b) {
    struct dirent **entries = NULL;
    int n = scandir(b->dir, &entries, NULL, by_name);
    if (n < 0)
        return ds_error_set(b->err, DS_ERR_IO, DS_NOWHERE, "cannot list %s: %s", b->dir,
                            strerror(errno));
    ds_status status = DS_OK;
    for (int i = 0; i < n; i++) {
        const char *path =
            ds_arena_printf(&b->arena, "%s/%s/profile.csv", b->dir, entries[i]->d_name);
        if (status == DS_OK && entries[i]->d_name[0] != '.' && exists(path))
            status = import_profile(b, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return status;
}

#define MAX_SCHEMA ((size_t)1 << 20)

static ds_status run_schema(builder *b) {
    const char *path = ds_arena_printf(&b->arena, "%s/schema.sql", b->dir);
    ds_buf sql = {0};
    ds_status status = ds_file_read(path, DS_NOWHERE, MAX_SCHEMA, &sql, b->err);
    if (status == DS_OK &&
        sqlite3_exec(b->db, sql.n ? sql.text : "", NULL, NULL, NULL) != SQLITE_OK)
        status = sql_error(b, path);
    ds_buf_deinit(&sql);
    return status;
}

static ds_status fill_tables(builder *b) {
    DS_TRY(run_sql(b, "PRAGMA journal_mode = DELETE; PRAGMA foreign_keys = ON; BEGIN"));
    DS_TRY(run_schema(b));
    DS_TRY(import_catalogue(b));
    DS_TRY(import_profiles(b));
    return run_sql(b, "COMMIT");
}

/* A base may be a profile that loading lends to a device. */
static ds_status check_bases(const char *path, ds_error *err) {
    ds_profiles *loaded;
    DS_TRY(ds_profiles_load(path, &loaded, err));
    ds_profiles_free(loaded);
    return DS_OK;
}

ds_status ds_profiles_build(const char *dir, const char *db_path, ds_error *err) {
    builder b = {.dir = dir, .err = err};
    ds_output out;
    DS_TRY(ds_output_open(&out, db_path, DS_OUTPUT_OVERWRITE | DS_OUTPUT_REGULAR, err));
    ds_arena_init(&b.arena);
    ds_status status = ds_sqlite__open_to_write(out.temporary, &b.db, err);
    if (status == DS_OK) status = fill_tables(&b);
    sqlite3_close(b.db);
    if (status == DS_OK && b.any_base) status = check_bases(out.temporary, err);
    if (status == DS_OK) status = ds_output_commit(&out, err);
    ds_status closed = ds_output_close(&out, status == DS_OK ? err : NULL);
    ds_arena_deinit(&b.arena);
    return status == DS_OK ? closed : status;
}
