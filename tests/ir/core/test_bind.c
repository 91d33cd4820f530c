/* Binding on modules built by hand. */
#include "ir/core/ir.h"

#include <criterion/criterion.h>
#include <string.h>

static const char *name(ds_unit *unit, const char *text) {
    return ds_intern(&unit->strings, text);
}

static ds_expr integer(ds_unit *unit, int64_t value) {
    return ds_expr_int(&unit->exprs, value);
}

static ds_expr real(ds_unit *unit, double value) {
    return ds_expr_make(&unit->exprs, (ds_expr_node){.kind = DS_EXPR_REAL, .r = value});
}

static ds_expr string(ds_unit *unit, const char *text) {
    return ds_expr_make(&unit->exprs,
                        (ds_expr_node){.kind = DS_EXPR_STR, .name = name(unit, text)});
}

static ds_expr param_expr(const ds_module *module, uint32_t index) {
    ds_expr_node node = {.kind = DS_EXPR_PARAM,
                         .name = module->params.at[index].name,
                         .i = (int64_t)((uint64_t)module->id << 32 | index)};
    return ds_expr_make(&module->unit->exprs, node);
}

static ds_expr times(ds_unit *unit, ds_expr a, ds_expr b) {
    return ds_expr_binary(&unit->exprs, DS_EXPR_MUL, a, b);
}

static void add_param(ds_module *module, const char *text, ds_expr init) {
    ds_param param = {.name = name(module->unit, text), .init = init};
    DS_PUSH(&module->unit->arena, &module->params, param);
}

static ds_import *add_import(ds_module *from, ds_module *to, const char *alias) {
    ds_import import = {.module = to, .alias = alias ? name(from->unit, alias) : NULL};
    DS_PUSH(&from->unit->arena, &from->imports, import);
    return &from->imports.at[from->imports.n - 1];
}

static void add_with(ds_unit *unit, ds_import *import, const char *text, ds_expr value) {
    ds_attr *grown = DS_NEW_N(&unit->arena, ds_attr, import->n_with + 1);
    if (import->n_with) memcpy(grown, import->with, import->n_with * sizeof *grown);
    grown[import->n_with] =
        (ds_attr){.name = name(unit, text),
                  .kind = DS_ATTR_EXPR,
                  .expr = value,
                  .loc = {.file = "root.dir", .line = 10 + import->n_with, .col = 1, .len = 1}};
    import->n_with++;
    import->with = grown;
}

/* param layers = 4, width = 8, lr = 0.5, schedule = "1f1b", cells = layers * width */
static ds_unit *simple_unit(void) {
    ds_unit *unit = ds_unit_new();
    ds_module *root = ds_unit_add_module(unit, "root.dir", "", 0);
    add_param(root, "layers", integer(unit, 4));
    add_param(root, "width", integer(unit, 8));
    add_param(root, "lr", real(unit, 0.5));
    add_param(root, "schedule", string(unit, "1f1b"));
    add_param(root, "cells", times(unit, param_expr(root, 0), param_expr(root, 1)));
    return unit;
}

static ds_status bind(ds_unit *unit, ds_binding *out, ds_error *err, uint32_t n,
                      const ds_setting *settings) {
    *err = (ds_error){0};
    return ds_bind(unit, settings, n, out, err);
}

#define BIND(unit, out, err, ...)                                                                  \
    bind((unit), (out), (err),                                                                     \
         (uint32_t)(sizeof((ds_setting[]){__VA_ARGS__}) / sizeof(ds_setting)),                     \
         (ds_setting[]){__VA_ARGS__})

Test(bind, initial_values_are_evaluated_in_order) {
    ds_unit *unit = simple_unit();
    ds_binding b;
    ds_error err;
    cr_assert_eq(bind(unit, &b, &err, 0, NULL), DS_OK, "%s", err.message);
    cr_assert_eq(b.params[0][0].i, 4);
    cr_assert_eq(b.params[0][2].r, 0.5);
    cr_assert_str_eq(b.params[0][3].s, "1f1b");
    cr_assert_eq(b.params[0][4].i, 32);
    ds_env env = ds_binding_env(&b, NULL);
    int64_t value;
    ds_expr e = times(unit, param_expr(unit->modules.at[0], 4), integer(unit, 2));
    cr_assert_eq(ds_expr_eval_int(&env, e, DS_NOWHERE, &value, &err), DS_OK);
    cr_assert_eq(value, 64);
    ds_unit_free(unit);
}

Test(bind, settings_replace_initial_values) {
    ds_unit *unit = simple_unit();
    ds_binding b;
    ds_error err;
    cr_assert_eq(BIND(unit, &b, &err, {"width", "1024"}, {"lr", "2"}, {"schedule", "gpipe"}), DS_OK,
                 "%s", err.message);
    cr_assert_eq(b.params[0][1].i, 1024);
    cr_assert_eq(b.params[0][2].kind, DS_NUM_REAL, "an integer may stand for a real");
    cr_assert_eq(b.params[0][2].r, 2.0);
    cr_assert_eq(b.params[0][3].s, name(unit, "gpipe"));
    cr_assert_eq(b.params[0][4].i, 4096, "what depends on it follows");
    ds_binding again;
    cr_assert_eq(BIND(unit, &again, &err, {"cells", "-7"}, {"width", "1"}, {"width", "+2"}), DS_OK);
    cr_assert_eq(again.params[0][4].i, -7, "a computed param can be set too");
    cr_assert_eq(again.params[0][1].i, 2, "the last one holds");
    cr_assert_eq(b.params[0][1].i, 1024, "bindings are independent");
    ds_unit_free(unit);
}

Test(bind, texts_are_integers_reals_or_strings) {
    static const struct {
        const char *text;
        ds_num_kind kind;
        int64_t i;
        double r;
        const char *s;
    } ROWS[] = {{"12", DS_NUM_INT, 12, 0, NULL},
                {"-3", DS_NUM_INT, -3, 0, NULL},
                {"9223372036854775807", DS_NUM_INT, INT64_MAX, 0, NULL},
                {"007", DS_NUM_INT, 7, 0, NULL},
                {"1.5", DS_NUM_REAL, 0, 1.5, NULL},
                {"-1e-3", DS_NUM_REAL, 0, -1e-3, NULL},
                {"1e6", DS_NUM_REAL, 0, 1e6, NULL},
                {"1f1b", DS_NUM_STR, 0, 0, "1f1b"},
                {"\"12\"", DS_NUM_STR, 0, 0, "12"},
                {"0x10", DS_NUM_STR, 0, 0, "0x10"},
                {"inf", DS_NUM_STR, 0, 0, "inf"},
                {"e", DS_NUM_STR, 0, 0, "e"},
                {"-", DS_NUM_STR, 0, 0, "-"},
                {"1-2", DS_NUM_STR, 0, 0, "1-2"},
                {" 1", DS_NUM_STR, 0, 0, " 1"},
                {"\"", DS_NUM_STR, 0, 0, "\""},
                {"", DS_NUM_STR, 0, 0, ""}};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        ds_unit *unit = ds_unit_new();
        ds_module *root = ds_unit_add_module(unit, "root.dir", "", 0);
        add_param(root, "x",
                  ROWS[i].kind == DS_NUM_INT    ? integer(unit, 1)
                  : ROWS[i].kind == DS_NUM_REAL ? real(unit, 1)
                                                : string(unit, "a"));
        ds_binding b;
        ds_error err;
        cr_assert_eq(BIND(unit, &b, &err, {"x", ROWS[i].text}), DS_OK, "%s", err.message);
        ds_num x = b.params[0][0];
        cr_assert_eq(x.kind, ROWS[i].kind, "%s", ROWS[i].text);
        if (x.kind == DS_NUM_INT) cr_assert_eq(x.i, ROWS[i].i);
        if (x.kind == DS_NUM_REAL) cr_assert_eq(x.r, ROWS[i].r);
        if (x.kind == DS_NUM_STR) cr_assert_str_eq(x.s, ROWS[i].s);
        ds_unit_free(unit);
    }
}

static void check_refused(ds_unit *unit, ds_setting setting, ds_status code, const char *message) {
    ds_binding b;
    ds_error err;
    cr_expect_eq(bind(unit, &b, &err, 1, &setting), code);
    cr_expect_str_eq(err.message, message);
}

Test(bind, settings_that_are_refused) {
    ds_unit *unit = simple_unit();
    check_refused(unit, (ds_setting){"widht", "2"}, DS_ERR_NAME,
                  "--set widht=2: there is no param 'widht'; did you mean 'width'?");
    check_refused(
        unit, (ds_setting){"zzz", "2"}, DS_ERR_NAME,
        "--set zzz=2: there is no param 'zzz'; the params are layers, width, lr, schedule, "
        "cells");
    check_refused(unit, (ds_setting){"width", "2.5"}, DS_ERR_TYPE,
                  "--set width: param 'width' is an integer (initially 8), and 2.5 is a real");
    check_refused(
        unit, (ds_setting){"width", "wide"}, DS_ERR_TYPE,
        "--set width: param 'width' is an integer (initially 8), and \"wide\" is a string");
    check_refused(unit, (ds_setting){"schedule", "1"}, DS_ERR_TYPE,
                  "--set schedule: param 'schedule' is a string (initially \"1f1b\"), and 1 is an "
                  "integer");
    check_refused(unit, (ds_setting){"width", "9223372036854775808"}, DS_ERR_OVERFLOW,
                  "--set width=9223372036854775808: the integer does not fit in 64 bits");
    check_refused(unit, (ds_setting){"lr", "1e999"}, DS_ERR_OVERFLOW,
                  "--set lr=1e999: the number is too large");
    ds_unit_free(unit);
    unit = ds_unit_new();
    ds_unit_add_module(unit, "root.dir", "", 0);
    check_refused(unit, (ds_setting){"dp", "2"}, DS_ERR_NAME,
                  "--set dp=2: there is no param 'dp'; there are no params");
    ds_unit_free(unit);
}

Test(bind, initial_values_that_are_refused) {
    ds_unit *unit = ds_unit_new();
    ds_module *root = ds_unit_add_module(unit, "root.dir", "", 0);
    add_param(root, "a", integer(unit, 1));
    add_param(root, "b", integer(unit, 1));
    root->params.at[0].init = times(unit, param_expr(root, 1), integer(unit, 2));
    ds_binding b;
    ds_error err;
    cr_assert_eq(bind(unit, &b, &err, 0, NULL), DS_ERR_NAME);
    cr_assert_str_eq(err.message, "param 'a' is made from 'b', which is not declared before it");
    root->params.at[0].init = param_expr(root, 0);
    cr_assert_eq(bind(unit, &b, &err, 0, NULL), DS_ERR_NAME);
    root->params.at[0].init =
        ds_expr_binary(&unit->exprs, DS_EXPR_DIV, integer(unit, 1), integer(unit, 0));
    root->params.at[0].loc = (ds_loc){"root.dir", 3, 7, 1};
    cr_assert_eq(bind(unit, &b, &err, 0, NULL), DS_ERR_VALUE);
    cr_assert_str_eq(err.message, "division by zero in `1 / 0` (the sides are 1 and 0)");
    cr_assert_eq(err.loc.line, 3);
    cr_assert_eq(BIND(unit, &b, &err, {"a", "5"}), DS_OK, "not needed once it is set");
    cr_assert_eq(b.params[0][0].i, 5);
    ds_unit_free(unit);
}

/* root: param dp = 4; import gpt as g with layers = dp * 24; import box; import lib
 * gpt: param layers = 12, width = layers * 64; import common
 * box: param gpus = 8, n = 1     lib: param n = 2     common: param seq = 128 */
typedef struct world {
    ds_unit *unit;
    ds_module *root, *gpt, *box, *lib, *common;
} world;

static world make_world(void) {
    world w = {.unit = ds_unit_new()};
    w.root = ds_unit_add_module(w.unit, "root.dir", "", 0);
    w.common = ds_unit_add_module(w.unit, "common.dir", "", 0);
    w.gpt = ds_unit_add_module(w.unit, "gpt.dir", "", 0);
    w.box = ds_unit_add_module(w.unit, "box.dir", "", 0);
    w.lib = ds_unit_add_module(w.unit, "lib.dir", "", 0);
    add_param(w.root, "dp", integer(w.unit, 4));
    add_param(w.gpt, "layers", integer(w.unit, 12));
    add_param(w.gpt, "width", times(w.unit, param_expr(w.gpt, 0), integer(w.unit, 64)));
    add_param(w.box, "gpus", integer(w.unit, 8));
    add_param(w.box, "n", integer(w.unit, 1));
    add_param(w.lib, "n", integer(w.unit, 2));
    add_param(w.common, "seq", integer(w.unit, 128));
    ds_import *gpt = add_import(w.root, w.gpt, "g");
    add_with(w.unit, gpt, "layers", times(w.unit, param_expr(w.root, 0), integer(w.unit, 24)));
    add_import(w.root, w.box, NULL);
    add_import(w.root, w.lib, NULL);
    add_import(w.gpt, w.common, NULL);
    return w;
}

Test(bind, imports_take_with_then_settings) {
    world w = make_world();
    ds_binding b;
    ds_error err;
    cr_assert_eq(bind(w.unit, &b, &err, 0, NULL), DS_OK, "%s", err.message);
    cr_assert_eq(b.params[w.gpt->id][0].i, 96);
    cr_assert_eq(b.params[w.gpt->id][1].i, 96 * 64);
    cr_assert_eq(BIND(w.unit, &b, &err, {"dp", "2"}, {"gpus", "16"}, {"g.seq", "64"}), DS_OK, "%s",
                 err.message);
    cr_assert_eq(b.params[w.gpt->id][0].i, 48, "`with` follows the importer's settings");
    cr_assert_eq(b.params[w.box->id][0].i, 16);
    cr_assert_eq(b.params[w.common->id][0].i, 64);
    cr_assert_eq(BIND(w.unit, &b, &err, {"g.layers", "1"}), DS_OK, "%s", err.message);
    cr_assert_eq(b.params[w.gpt->id][0].i, 1, "--set comes before `with`");
    ds_unit_free(w.unit);
}

Test(bind, settings_of_imports_that_are_refused) {
    world w = make_world();
    check_refused(w.unit, (ds_setting){"layers", "2"}, DS_ERR_NAME,
                  "--set layers=2: there is no param 'layers'; did you mean 'g.layers'?");
    check_refused(w.unit, (ds_setting){"g.laayers", "2"}, DS_ERR_NAME,
                  "--set g.laayers=2: there is no param 'g.laayers'; did you mean 'g.layers'?");
    check_refused(
        w.unit, (ds_setting){"n", "2"}, DS_ERR_NAME,
        "--set n=2: param 'n' is declared by both box.dir and lib.dir; import one of them "
        "with `as` and set it by that name");
    ds_unit_free(w.unit);
}

Test(bind, with_clauses_that_are_refused) {
    ds_binding b;
    ds_error err;
    world w = make_world();
    add_with(w.unit, &w.root->imports.at[0], "layrs", integer(w.unit, 1));
    cr_assert_eq(bind(w.unit, &b, &err, 0, NULL), DS_ERR_NAME);
    cr_assert_str_eq(err.message, "with: there is no param 'layrs'; did you mean 'layers'?");
    cr_assert_eq(err.loc.line, 11);
    ds_unit_free(w.unit);
    w = make_world();
    add_with(w.unit, &w.root->imports.at[0], "width", string(w.unit, "wide"));
    cr_assert_eq(bind(w.unit, &b, &err, 0, NULL), DS_ERR_TYPE);
    cr_assert_str_eq(err.message, "with width: param 'width' is an integer (initially 6144), and "
                                  "\"wide\" is a string");
    ds_unit_free(w.unit);
    w = make_world();
    add_with(w.unit, &w.root->imports.at[0], "width", integer(w.unit, 1));
    w.root->imports.at[0].with[1].kind = DS_ATTR_LIST;
    cr_assert_eq(bind(w.unit, &b, &err, 0, NULL), DS_ERR_TYPE);
    cr_assert_str_eq(err.message, "param 'width' takes a number, a string, true, false or an "
                                  "expression");
    ds_unit_free(w.unit);
}

Test(bind, imports_of_one_file_must_agree) {
    ds_binding b;
    ds_error err;
    world w = make_world();
    ds_import *second = add_import(w.box, w.gpt, "m");
    add_with(w.unit, second, "layers", integer(w.unit, 96));
    cr_assert_eq(bind(w.unit, &b, &err, 0, NULL), DS_OK, "%s", err.message);
    second->with[0].expr = integer(w.unit, 95);
    cr_assert_eq(bind(w.unit, &b, &err, 0, NULL), DS_ERR_VALUE);
    cr_assert_str_eq(err.message,
                     "param 'layers' of gpt.dir is set to 95 here and to 96 by another "
                     "import (root.dir:10)");
    cr_assert_eq(BIND(w.unit, &b, &err, {"g.layers", "7"}), DS_OK, "a setting decides");
    ds_unit_free(w.unit);
}

Test(bind, a_cycle_of_imports_is_refused) {
    ds_binding b;
    ds_error err;
    world w = make_world();
    add_import(w.common, w.gpt, "back");
    cr_assert_eq(bind(w.unit, &b, &err, 0, NULL), DS_ERR_NAME);
    cr_assert_str_eq(err.message, "the imports of root.dir form a cycle");
    ds_unit_free(w.unit);
}

Test(bind, an_empty_unit_binds) {
    ds_unit *unit = ds_unit_new();
    ds_binding b;
    ds_error err;
    cr_assert_eq(bind(unit, &b, &err, 0, NULL), DS_OK);
    ds_unit_free(unit);
}
