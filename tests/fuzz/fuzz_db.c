/* Cost databases: the bytes of a SQLite file, and the cells of its tables.
 *
 * The first byte chooses. Bit 0 set: triples of page, offset and byte change the file's bytes. Else
 * SQL statements made by the bytes change cells, drop rows and tables, rename columns, and put
 * views in the places of tables. Then the database is listed, shown, compared, or a program runs on
 * it. */
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/report/report.h"
#include "tests/fuzz/support.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char program[] = "dir 1\n"
                              "func @mlp(%x: f16[64@dp, 64]) -> f16[64@dp, 64] {\n"
                              "  weight %w : f16[64, 64]\n"
                              "  %y = matmul(%x, %w) : f16[64@dp, 64]\n"
                              "  %z = relu(%y) : f16[64@dp, 64]\n"
                              "  return %z\n"
                              "}\n"
                              "topology @box {\n"
                              "  device gpu[2] : \"A100-SXM4-80GB\"\n"
                              "  switch sw\n"
                              "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..2\n"
                              "}\n"
                              "scenario {\n"
                              "  model = @mlp\n"
                              "  on = @box\n"
                              "  profile = \"A100-SXM4-80GB\"\n"
                              "  strategy { dp = 2 }\n"
                              "}\n";

/* A smaller database yet: a few rows of each table, so that the file has few pages. */
static const ds_buf *image(void) {
    static ds_buf bytes;
    if (bytes.n) return &bytes;
    fuzz_read(fuzz_profiles(), &bytes);
    return &bytes;
}

static const char *const tables[] = {"meta",
                                     "source",
                                     "device",
                                     "device_alias",
                                     "device_peak",
                                     "link_kind",
                                     "profile",
                                     "op_profile",
                                     "efficiency_fit",
                                     "gemm_fit",
                                     "attention_fit",
                                     "device_memory",
                                     "device_clock",
                                     "device_relative",
                                     "collective_fit",
                                     "collective_profile",
                                     "collective_protocol"};

static void put_literal(fuzz_bytes *bytes, ds_buf *sql) {
    ds_buf value = {0};
    uint8_t how = fuzz_byte(bytes) % 4;
    fuzz_value(bytes, &value);
    char *end = NULL;
    if (value.n) strtod(value.text, &end);
    bool number = value.n && !*end && !strpbrk(value.text, "nNxX ");
    if (how == 0)
        ds_buf_put(sql, "NULL");
    else if (how < 3 && number)
        ds_buf_put(sql, value.text);
    else {
        ds_buf_put(sql, how == 3 ? "x'" : "CAST(x'");
        for (size_t i = 0; i < value.n; i++) ds_buf_printf(sql, "%02x", (uint8_t)value.text[i]);
        ds_buf_put(sql, how == 3 ? "'" : "' AS TEXT)");
    }
    ds_buf_deinit(&value);
}

/* A column of the table, by its index. */
static void put_column(sqlite3 *db, const char *table, uint32_t index, ds_buf *sql) {
    sqlite3_stmt *query;
    char text[128];
    snprintf(text, sizeof text, "SELECT name FROM pragma_table_info('%s') LIMIT 1 OFFSET %u", table,
             index);
    if (sqlite3_prepare_v2(db, text, -1, &query, NULL) != SQLITE_OK) return;
    bool any = sqlite3_step(query) == SQLITE_ROW;
    ds_buf_put(sql, any ? (const char *)sqlite3_column_text(query, 0) : "rowid");
    sqlite3_finalize(query);
}

/* What SQLite refuses is passed over. */
static void change(sqlite3 *db, fuzz_bytes *bytes) {
    ds_buf sql = {0};
    uint8_t how = fuzz_byte(bytes) % 10;
    const char *table = tables[fuzz_below(bytes, FUZZ_COUNT(tables))];
    uint32_t column = fuzz_byte(bytes) % 32, row = fuzz_byte(bytes);
    if (how < 7) {
        ds_buf_printf(&sql, "UPDATE OR IGNORE %s SET ", table);
        put_column(db, table, column, &sql);
        ds_buf_put(&sql, " = ");
        put_literal(bytes, &sql);
        if (how < 5)
            ds_buf_printf(&sql, " WHERE rowid = (SELECT rowid FROM %s LIMIT 1 OFFSET %u)", table,
                          row % 16);
    } else if (how == 7) {
        ds_buf_printf(&sql, row % 2 ? "DELETE FROM %s" : "DROP TABLE %s", table);
    } else if (how == 8) {
        ds_buf_printf(&sql, "ALTER TABLE %s RENAME TO old_%s; CREATE VIEW %s AS SELECT * FROM ",
                      table, table, table);
        ds_buf_printf(&sql, "%s%s", row % 2 ? "old_" : "", table);
    } else {
        ds_buf_printf(&sql, "ALTER TABLE %s RENAME COLUMN ", table);
        put_column(db, table, column, &sql);
        ds_buf_put(&sql, " TO other");
    }
    sqlite3_exec(db, sql.text, NULL, NULL, NULL);
    ds_buf_deinit(&sql);
}

static const char *change_cells(fuzz_bytes *bytes) {
    const char *path = fuzz_write("changed.db", image()->text, image()->n);
    sqlite3 *db;
    if (sqlite3_open(path, &db) != SQLITE_OK) fuzz_fail("cannot open", path);
    sqlite3_exec(db,
                 "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF;"
                 "PRAGMA ignore_check_constraints = ON",
                 NULL, NULL, NULL);
    sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    for (int i = 0; i < 6 && bytes->n; i++) change(db, bytes);
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
    return path;
}

static const char *change_bytes(fuzz_bytes *bytes) {
    ds_buf copy = {0};
    ds_buf_put_n(&copy, image()->text, image()->n);
    if (fuzz_byte(bytes) % 8 == 7) copy.n = fuzz_below(bytes, 65536) % copy.n;
    for (int i = 0; i < 32 && bytes->n && copy.n; i++) {
        uint32_t page = fuzz_byte(bytes), at = fuzz_below(bytes, 4096);
        copy.text[(page * 4096 + at) % copy.n] = (char)fuzz_byte(bytes);
    }
    const char *path = fuzz_write("changed.db", copy.text, copy.n);
    ds_buf_deinit(&copy);
    return path;
}

/* One step on the database's profile, with its costs. */
static void simulate(const char *path, bool fitted) {
    ds_profiles *profiles;
    ds_error err = {0};
    if (ds_profiles_load(path, &profiles, &err) != DS_OK) return;
    ds_unit *unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(unit, "fuzz.dir", program, sizeof program - 1);
    ds_diags diags;
    ds_binding binding;
    ds_diags_init(&diags);
    ds_sim_options options = {.max_instances = 3000,
                              .cost_mode = fitted ? DS_COST_FITTED : DS_COST_MEASURED};
    ds_result *result;
    if (ds_parse(module, NULL) != DS_OK || ds_verify(unit, &diags) != DS_OK ||
        ds_bind(unit, NULL, 0, &binding, NULL) != DS_OK)
        fuzz_fail("the program is wrong", program);
    if (ds_verify_bound(unit, &binding, &diags) == DS_OK &&
        ds_simulate(&binding, profiles, &options, &result, &err) == DS_OK) {
        ds_buf text = {0};
        fuzz_check_result(result);
        ds_report_json(result, &text);
        ds_report_explain(result, "*", &text);
        ds_buf_deinit(&text);
        ds_result_free(result);
    }
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
    ds_profiles_free(profiles);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_bytes bytes = {data, size};
    uint8_t how = fuzz_byte(&bytes);
    const char *path = how & 1 ? change_bytes(&bytes) : change_cells(&bytes);
    const char *const list[] = {"list", "--database", path, NULL};
    const char *const show[] = {"show", "A100-SXM4-80GB", "--database", path, NULL};
    const char *const diff[] = {"diff", "A100-SXM4-80GB", "localhost", "--database", path, NULL};
    switch (how / 2 % 8) {
    case 0:
        fuzz_verb(cmd_profile, list);
        break;
    case 1:
        fuzz_verb(cmd_profile, show);
        break;
    case 2:
        fuzz_verb(cmd_profile, diff);
        break;
    default:
        simulate(path, how & 32);
    }
    return 0;
}
