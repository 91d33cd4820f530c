/* Units of measure, quantities, names through imports. */
#include "ir/core/ir.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- quantities ---- */

static ds_expr real_expr(ds_unit *unit, const char *text) {
    return ds_expr_make(&unit->exprs, (ds_expr_node){.kind = DS_EXPR_REAL,
                                                     .r = strtod(text, NULL),
                                                     .name = ds_intern(&unit->strings, text)});
}

static ds_status quantity(ds_unit *unit, const char *number, const char *unit_text, char dimension,
                          double per_base, int64_t *out, ds_error *err) {
    ds_quantity q = {.value = strpbrk(number, ".e") ? real_expr(unit, number)
                                                    : ds_expr_int(&unit->exprs, atoll(number))};
    if (*unit_text) cr_assert(ds_unit_parse(unit_text, strlen(unit_text), &q.unit));
    ds_env env = {.exprs = &unit->exprs};
    return ds_quantity_eval(&env, q, dimension, per_base, DS_NOWHERE, out, err);
}

Test(ir, quantities_are_exact) {
    static const struct {
        const char *number, *unit;
        char dimension;
        double per_base;
        int64_t expected;
    } ROWS[] = {
        {"1", "ps", 'T', 1e12, 1},
        {"500", "ns", 'T', 1e12, 500000},
        {"0.1", "ns", 'T', 1e12, 100},
        {"0.7", "ns", 'T', 1e12, 700},
        {"1.2", "us", 'T', 1e12, 1200000},
        {"3", "us", 'T', 1e12, 3000000},
        {"8.3", "ms", 'T', 1e12, INT64_C(8300000000)},
        {"2", "s", 'T', 1e12, INT64_C(2000000000000)},
        {"9223372", "s", 'T', 1e12, INT64_C(9223372000000000000)},
        {"9007199254741", "ns", 'T', 1e12, INT64_C(9007199254741000)}, /* 1e-9 * 1e12 is not 1000 */
        {"0.4", "ps", 'T', 1e12, 0},
        {"0.5", "ps", 'T', 1e12, 1},
        {"5", "us", 'T', 1e6, 5},
        {"250", "ns", 'T', 1e6, 0},
        {"7", "B", 'B', 1, 7},
        {"1", "KB", 'B', 1, 1000},
        {"1", "MB", 'B', 1, 1000000},
        {"80", "GB", 'B', 1, INT64_C(80000000000)},
        {"1.5", "TB", 'B', 1, INT64_C(1500000000000)},
        {"1", "KiB", 'B', 1, 1024},
        {"1", "MiB", 'B', 1, 1048576},
        {"80", "GiB", 'B', 1, INT64_C(85899345920)},
        {"1", "TiB", 'B', 1, INT64_C(1099511627776)},
        {"53.6870912", "GB/s", 'R', 1, INT64_C(53687091200)},
        {"300", "GB/s", 'R', 1, INT64_C(300000000000)},
        {"25", "Gb/s", 'R', 1, INT64_C(3125000000)},
        {"25", "GiB/s", 'R', 1, INT64_C(26843545600)},
        {"1", "B/s", 'R', 1, 1},
        {"1", "KB/s", 'R', 1, 1000},
        {"1", "MB/s", 'R', 1, 1000000},
        {"3.35", "TB/s", 'R', 1, INT64_C(3350000000000)},
        {"1", "MiB/s", 'R', 1, 1048576},
        {"1", "TiB/s", 'R', 1, INT64_C(1099511627776)},
        {"1", "Kb/s", 'R', 1, 125},
        {"1", "Mb/s", 'R', 1, 125000},
        {"1", "Tb/s", 'R', 1, INT64_C(125000000000)},
        {"1.5", "GFLOP/s", 'F', 1, INT64_C(1500000000)},
        {"312", "TFLOP/s", 'F', 1, INT64_C(312000000000000)},
        {"9007199254740993", "B", 'B', 1, INT64_C(9007199254740993)}, /* 2^53 + 1 */
    };
    ds_unit *unit = ds_unit_new();
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        int64_t value = -1;
        ds_status status = quantity(unit, ROWS[i].number, ROWS[i].unit, ROWS[i].dimension,
                                    ROWS[i].per_base, &value, NULL);
        cr_expect_eq(status, DS_OK);
        cr_expect_eq(value, ROWS[i].expected, "%s %s is %lld", ROWS[i].number, ROWS[i].unit,
                     (long long)value);
    }
    ds_unit_free(unit);
}

Test(ir, every_time_from_1_to_10000_thousandths_is_exact) {
    static const struct {
        const char *unit;
        int64_t ps;
    } UNITS[] = {{"ns", 1000}, {"us", 1000000}, {"ms", 1000000000}};
    ds_unit *unit = ds_unit_new();
    for (size_t u = 0; u < 3; u++)
        for (int64_t i = 1; i <= 10000; i++) {
            char number[32];
            int64_t value;
            snprintf(number, sizeof number, "%d.%03d", (int)(i / 1000), (int)(i % 1000));
            cr_assert_eq(quantity(unit, number, UNITS[u].unit, 'T', 1e12, &value, NULL), DS_OK);
            cr_assert_eq(value, i * UNITS[u].ps / 1000, "%s %s", number, UNITS[u].unit);
        }
    ds_unit_free(unit);
}

static void check_refused(ds_unit *unit, const char *number, const char *unit_text, char dimension,
                          ds_status code, const char *message) {
    ds_error err = {0};
    int64_t value;
    cr_expect_eq(quantity(unit, number, unit_text, dimension, 1e12, &value, &err), code);
    cr_expect_str_eq(err.message, message);
}

Test(ir, quantities_that_are_refused) {
    ds_unit *unit = ds_unit_new();
    check_refused(unit, "300", "GB/s", 'T', DS_ERR_TYPE,
                  "a time (ps, ns, us, ms, s) is needed here, not 300 GB/s");
    check_refused(unit, "3", "", 'T', DS_ERR_TYPE,
                  "a time (ps, ns, us, ms, s) is needed here, not 3 without a unit");
    check_refused(unit, "-2", "us", 'T', DS_ERR_VALUE, "-2 us is negative");
    check_refused(unit, "1e9", "s", 'T', DS_ERR_OVERFLOW,
                  "1000000000 s is beyond the largest value that can be simulated");
    check_refused(unit, "10000000", "s", 'T', DS_ERR_OVERFLOW,
                  "10000000 s is beyond the largest value that can be simulated");
    ds_unit_free(unit);
}

Test(ir, unit_names) {
    ds_unit_id id = DS_UNIT_NONE;
    cr_assert(ds_unit_parse("GB/s, 500", 4, &id));
    cr_assert_eq(id, DS_UNIT_GBPS);
    cr_assert(ds_unit_parse("Gb/s", 4, &id));
    cr_assert_eq(id, DS_UNIT_GBITPS);
    cr_assert_not(ds_unit_parse("gb/s", 4, &id));
    cr_assert_not(ds_unit_parse("GB/", 3, &id));
    cr_assert_not(ds_unit_parse("", 0, &id));
    cr_assert_str_eq(ds_unit_text(DS_UNIT_NONE), "");
    cr_assert_str_eq(ds_unit_text(DS_UNIT_TFLOPS), "TFLOP/s");
    cr_assert_eq(ds_unit_dimension(DS_UNIT_GIB), 'B');
    cr_assert_eq(ds_unit_scale(DS_UNIT_KBITPS), 125.0);
}

/* ---- names ---- */

static ds_func *add_func(ds_module *module, const char *name) {
    ds_func *func = DS_NEW(&module->unit->arena, ds_func);
    func->name = ds_intern(&module->unit->strings, name);
    func->module = module;
    DS_PUSH(&module->unit->arena, &module->funcs, func);
    return func;
}

static void add_import(ds_module *from, ds_module *to, const char *alias) {
    ds_import import = {.module = to};
    if (alias) import.alias = ds_intern(&from->unit->strings, alias);
    DS_PUSH(&from->unit->arena, &from->imports, import);
}

/* root ─→ a ─→ c,  root ─as g→ b ─→ c,  b ─as h→ d */
Test(ir, names_are_found_through_imports) {
    ds_unit *unit = ds_unit_new();
    ds_module *m[5];
    static const char *const PATHS[] = {"root", "a", "b", "c", "d"};
    for (int i = 0; i < 5; i++) m[i] = ds_unit_add_module(unit, PATHS[i], "", 0);
    add_import(m[0], m[1], NULL);
    add_import(m[0], m[2], "g");
    add_import(m[1], m[3], NULL);
    add_import(m[2], m[3], NULL);
    add_import(m[2], m[4], "h");
    ds_func *root_f = add_func(m[0], "f"), *a_f = add_func(m[1], "f"), *a_x = add_func(m[1], "x");
    ds_func *b_f = add_func(m[2], "f"), *c_x = add_func(m[3], "x"), *c_y = add_func(m[3], "y");
    ds_func *d_z = add_func(m[4], "z");
    cr_assert_eq(ds_find_func(m[0], "f"), root_f);
    cr_assert_eq(ds_find_func(m[1], "f"), a_f);
    cr_assert_eq(ds_find_func(m[0], "x"), a_x, "the nearest holds");
    cr_assert_eq(ds_find_func(m[0], "y"), c_y);
    cr_assert_eq(ds_find_func(m[0], "g.f"), b_f);
    cr_assert_eq(ds_find_func(m[0], "g.x"), c_x);
    cr_assert_eq(ds_find_func(m[0], "g.h.z"), d_z);
    cr_assert_eq(ds_find_func(m[2], "h.z"), d_z);
    cr_assert_null(ds_find_func(m[0], "z"));
    cr_assert_null(ds_find_func(m[0], "h.z"), "an alias belongs to its file");
    cr_assert_null(ds_find_func(m[0], "g.z"));
    cr_assert_null(ds_find_func(m[0], "k.f"));
    cr_assert_null(ds_find_func(m[0], ""));
    cr_assert_null(ds_find_func(m[0], "g."));
    cr_assert_null(ds_find_mesh(m[0], "f"), "kinds are apart");
    ds_unit_free(unit);
}

Test(ir, a_cycle_of_imports_ends) {
    ds_unit *unit = ds_unit_new();
    ds_module *a = ds_unit_add_module(unit, "a", "", 0), *b = ds_unit_add_module(unit, "b", "", 0);
    add_import(a, b, NULL);
    add_import(b, a, NULL);
    add_import(b, a, "a");
    add_import(a, b, "b");
    cr_assert_null(ds_find_func(a, "b.a.b.a.f"));
    ds_unit_free(unit);
}

Test(ir, a_unit_owns_its_sources) {
    ds_unit *unit = ds_unit_new();
    char text[] = "dir 1\n\0junk", path[] = "x.dir";
    ds_module *module = ds_unit_add_module(unit, path, text, sizeof text);
    memset(text, '?', sizeof text);
    memset(path, '?', sizeof path);
    cr_assert_eq(module->text_n, sizeof text);
    cr_assert_arr_eq(module->text, "dir 1\n\0junk", sizeof text);
    cr_assert_str_eq(module->path, "x.dir");
    cr_assert_eq(unit->modules.at[0], module);
    cr_assert_eq(module->id, 0);
    ds_unit_free(unit);
    ds_unit_free(NULL);
}

Test(ir, attributes_are_found_by_name) {
    ds_attr attrs[3] = {{.name = NULL}, {.name = "cost"}, {.name = "name"}};
    cr_assert_eq(ds_attr_find(attrs, 3, "name"), &attrs[2]);
    cr_assert_null(ds_attr_find(attrs, 3, "nam"));
    cr_assert_null(ds_attr_find(NULL, 0, "name"));
}
