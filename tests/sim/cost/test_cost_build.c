/* profiles.db from CSV: what is refused, with which message; damaged databases; determinism. */
#include "tests/support/generate/cost_tree.h"

#include "sim/cost/db_text.h"

#include <criterion/criterion.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static cost_tree tree;
static void set_up(void) {
    cost_tree_init(&tree);
}
static void tear_down(void) {
    cost_tree_deinit(&tree);
}
TestSuite(cost_build, .init = set_up, .fini = tear_down);

#define OPS "class,op,dtype,m,n,k,tokens,width,time_us,source\n"

Test(cost_build, a_row_without_a_source_is_refused) {
    cost_tree_put(&tree, "p/ops.csv", OPS "gemm,gemm,f16,1,2,3,,,5,s\ngemm,gemm,f16,1,2,3,,,5,\n");
    cost_tree_refused(&tree, "DIR/p/ops.csv:3: a row without a source");
    cost_tree_put(&tree, "p/ops.csv", OPS "gemm,gemm,f16,1,2,3,,,5,nowhere\n");
    cost_tree_refused(&tree, "DIR/p/ops.csv:2: source = 'nowhere': no sources.csv read so far has "
                             "this key");
    cost_tree_put(&tree, "p/ops.csv", "class,op,dtype,m,n,k,time_us\ngemm,gemm,f16,1,2,3,5\n");
    cost_tree_refused(&tree, "DIR/p/ops.csv:1: no column 'source'");
}

Test(cost_build, a_source_says_what_where_and_under_which_licence) {
    cost_tree_put(&tree, "p/sources.csv", "key,title,place,revision,licence\nt,T,x,,\n");
    cost_tree_refused(&tree, "DIR/p/sources.csv:2: licence = '': may not be empty");
    cost_tree_put(&tree, "p/sources.csv", "key,title,place,revision,licence\ns,T,x,,MIT\n");
    cost_tree_refused(&tree, "DIR/p/sources.csv:2: source: UNIQUE constraint failed: source.key");
}

Test(cost_build, every_cell_is_checked) {
    cost_tree_put(&tree, "p/ops.csv", OPS "gemm,gemm,f17,1,2,3,,,5,s\n");
    cost_tree_refused(&tree, "DIR/p/ops.csv:2: dtype = 'f17': not a dtype of the language");
    cost_tree_put(&tree, "p/ops.csv", OPS "gemm,gemm,f16,-1,2,3,,,5,s\n");
    cost_tree_refused(&tree, "DIR/p/ops.csv:2: m = '-1': not an integer ≥ 0");
    cost_tree_put(&tree, "p/ops.csv", OPS "gemm,gemm,f16,1,99999999999999999999,3,,,5,s\n");
    cost_tree_refused(&tree, "DIR/p/ops.csv:2: n = '99999999999999999999': not an integer ≥ 0");
    cost_tree_put(&tree, "p/ops.csv", OPS "gemm,gemm,f16,1,2,3,,,0.0000001,s\n");
    cost_tree_refused(&tree, "DIR/p/ops.csv:2: time_us = '0.0000001': not a decimal number ≥ 0 of "
                             "that unit");
    cost_tree_put(&tree, "p/ops.csv", OPS "gemm,gemm,f16,1,2,3,,,1e3,s\n");
    cost_tree_refused(&tree, "DIR/p/ops.csv:2: time_us = '1e3': not a decimal number ≥ 0 of that "
                             "unit");
    cost_tree_put(&tree, "p/ops.csv", OPS "gemm,gemm,f16,1,2,3,,,0,s\n");
    cost_tree_refused(&tree,
                      "DIR/p/ops.csv:2: time_us = '0': time_ps would be 0: it must be from 1 to "
                      "1e+18");
    cost_tree_put(&tree, "p/ops.csv", "klass,op,dtype,time_us,source\n");
    cost_tree_refused(&tree, "DIR/p/ops.csv:1: no column 'class' (is 'klass' meant to be it?)");
    cost_tree_put(&tree, "p/ops.csv", "class,op,dtype,time_us,source,mm\n");
    cost_tree_refused(&tree, "DIR/p/ops.csv: unknown column 'mm'");
}

Test(cost_build, devices_and_profiles) {
    cost_tree_put(&tree, "p/profile.csv", "name,device,issue_us,software,source\nP,Bux,1,x,s\n");
    cost_tree_refused(&tree, "DIR/p/profile.csv:2: device = 'Bux': not in catalogue/devices.csv");
    cost_tree_put(&tree, "p/profile.csv", "name,device,issue_us,software,source\n");
    cost_tree_refused(&tree, "DIR/p/profile.csv: no row");
    cost_tree_put(&tree, "p/profile.csv",
                  "name,device,issue_us,software,source\nP,b1,1,x,s\nQ,b1,1,x,s\n");
    cost_tree_refused(&tree, "DIR/p/profile.csv:3: one folder holds one profile");
    cost_tree_put(&tree, "catalogue/devices.csv",
                  "name,aliases,memory_gib,memory_gb_per_s,source\nA,x,1,1,s\nB,X,1,1,s\n");
    cost_tree_refused(&tree, "DIR/catalogue/devices.csv:3: alias 'X' already names a device");
    cost_tree_put(&tree, "catalogue/devices.csv",
                  "name,aliases,memory_gib,memory_gb_per_s,source\nA,,0.3,1,s\n");
    cost_tree_refused(&tree,
                      "DIR/catalogue/devices.csv:2: memory_gib = '0.3': not a decimal number "
                      "≥ 0 of that unit");
}

Test(cost_build, a_missing_tree_is_an_io_error) {
    ds_error err = {0};
    cr_assert_eq(ds_profiles_build("/nonexistent", tree.db, &err), DS_ERR_IO);
    cr_assert_eq(ds_profiles_build(tree.dir, "/nonexistent/x.db", &err), DS_ERR_IO);
}

static size_t read_all(const char *path, char *text, size_t size) {
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f);
    size_t n = fread(text, 1, size, f);
    fclose(f);
    return n;
}

Test(cost_build, the_same_csvs_give_the_same_bytes) {
    static char first[1 << 20], second[1 << 20];
    ds_error err = {0};
    cost_tree_put(&tree, "p/ops.csv", OPS "gemm,gemm,f16,1,2,3,,,5,s\n");
    cr_assert_eq(ds_profiles_build(tree.dir, tree.db, &err), DS_OK);
    size_t n = read_all(tree.db, first, sizeof first);
    cr_assert_eq(ds_profiles_build(tree.dir, tree.db, &err), DS_OK, "over an older one");
    cr_assert_eq(read_all(tree.db, second, sizeof second), n);
    cr_assert_eq(memcmp(first, second, n), 0);
}

static void expect_load_error(ds_status status, const char *part) {
    ds_profiles *profiles;
    ds_error err = {0};
    cr_assert_eq(ds_profiles_load(tree.db, &profiles, &err), status);
    cr_assert_null(profiles);
    cr_assert_not_null(strstr(err.message, part), "%s", err.message);
}

static void sql(const char *text) {
    sqlite3 *db;
    char *message = NULL;
    cr_assert_eq(sqlite3_open(tree.db, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, text, NULL, NULL, &message), SQLITE_OK, "%s", message);
    sqlite3_close(db);
}

Test(cost_build, databases_of_another_kind_are_refused) {
    ds_error err = {0};
    expect_load_error(DS_ERR_IO, "cannot read the cost database");
    cr_assert_eq(ds_profiles_build(tree.dir, tree.db, &err), DS_OK);
    sql("UPDATE meta SET value = '99'");
    expect_load_error(DS_ERR_DATA, "schema version '99'");
    sql("DELETE FROM meta");
    expect_load_error(DS_ERR_DATA, "schema version ''");
    sql("DROP TABLE meta");
    expect_load_error(DS_ERR_DATA, "no such table: meta");
}

/* What stands in a file runs nothing: a view in a table's place might never come to an end. */
Test(cost_build, only_tables_and_indexes_are_read) {
    static const char endless[] =
        "CREATE VIEW op_profile AS WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r)"
        " SELECT i AS profile FROM r;";
    static const struct {
        const char *change, *message;
    } cases[] = {
        {endless, "view 'op_profile'"},
        {"CREATE TRIGGER t AFTER INSERT ON source BEGIN DELETE FROM source; END", "trigger 't'"},
        {"CREATE VIRTUAL TABLE v USING fts5(a)", "table 'v'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ds_error err = {0};
        cr_assert_eq(ds_profiles_build(tree.dir, tree.db, &err), DS_OK);
        if (!i) sql("ALTER TABLE op_profile RENAME TO op_profile_once");
        sql(cases[i].change);
        expect_load_error(DS_ERR_DATA, cases[i].message);
        ds_buf out = {0};
        cr_assert_eq(ds_profile_list_text(tree.db, &out, &err), DS_ERR_DATA);
        ds_buf_deinit(&out);
    }
}

Test(cost_build, a_pipe_is_no_database) {
    cr_assert_eq(mkfifo(tree.db, 0600), 0);
    expect_load_error(DS_ERR_IO, "is a FIFO");
}

Test(cost_build, a_row_whose_source_is_gone_is_refused) {
    ds_error err = {0};
    cost_tree_put(&tree, "p/ops.csv", OPS "gemm,gemm,f16,1,2,3,,,5,s\n");
    cr_assert_eq(ds_profiles_build(tree.dir, tree.db, &err), DS_OK);
    sql("UPDATE op_profile SET source = 7");
    expect_load_error(DS_ERR_DATA, "a row refers to source 7, which does not exist");
}

/* Any byte of the file may be wrong, and any tail may be missing: an error or a database that
 * loads, never a crash. */
Test(cost_build, damaged_databases_do_no_harm) {
    static char text[1 << 20];
    ds_error err = {0};
    cost_tree_put(&tree, "p/ops.csv", OPS "gemm,gemm,f16,1,2,3,,,5,s\n");
    cr_assert_eq(ds_profiles_build(tree.dir, tree.db, &err), DS_OK);
    size_t n = read_all(tree.db, text, sizeof text);
    cr_assert_lt(n, sizeof text);
    uint32_t seed = 7;
    for (int round = 0; round < 300; round++) {
        size_t length = n;
        seed = seed * 1664525u + 1013904223u;
        size_t at = (seed >> 4) % n;
        char old = text[at];
        if (round % 3 == 0) length = at;
        text[at] = (char)(seed >> 20);
        FILE *f = fopen(tree.db, "wb");
        cr_assert_eq(fwrite(text, 1, length, f), length);
        fclose(f);
        text[at] = old;
        ds_profiles *profiles;
        if (ds_profiles_load(tree.db, &profiles, &err) == DS_OK) ds_profiles_free(profiles);
    }
}

Test(cost_build, paths_with_special_characters_open) {
    char odd[160];
    ds_error err = {0};
    ds_profiles *profiles;
    snprintf(odd, sizeof odd, "%s/a %%41?b#c.db", tree.dir);
    cr_assert_eq(ds_profiles_build(tree.dir, odd, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_profiles_load(odd, &profiles, &err), DS_OK, "%s", err.message);
    ds_profiles_free(profiles);
    unlink(odd);
}

Test(cost_build, memory_beside_tensors) {
    uint32_t kind;
    cost_tree_put(&tree, "catalogue/memory.csv",
                  "device,what,mib,basis,source\nb1,context,1.5,measured: here,s\n"
                  "Box-1,group,7,assumed: why not,s\n");
    ds_profiles *profiles = cost_tree_load(&tree);
    cr_assert_eq(ds_profiles_find_kind(profiles, "Box-1", DS_NOWHERE, &kind, NULL), DS_OK);
    const ds_reserved_memory *m = &ds_profiles_kind(profiles, kind)->reserved;
    cr_expect_eq(m->context_bytes, 1572864);
    cr_expect_eq(m->group_bytes, 7340032);
    cr_expect_eq(m->driver_bytes + m->pair_bytes, 0, "not known");
    ds_profiles_free(profiles);
}

Test(cost_build, refuses_memory_for_nothing_known) {
    cost_tree_put(&tree, "catalogue/memory.csv",
                  "device,what,mib,basis,source\nBox-1,kernels,7,measured: here,s\n");
    cost_tree_refused(&tree, "DIR/catalogue/memory.csv:2: device_memory: CHECK constraint failed: "
                             "what IN ('driver', 'context', 'modules', 'pair', 'group', 'blas', "
                             "'blaslt')");
}
