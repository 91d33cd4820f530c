/* The loop over a model's layers, and what devices are made from. */
#include "ir/lang/lang.h"
#include "ir/lang/mentions.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const char tail[] = "topology @box { device gpu[n] : \"A100-SXM4-80GB\"\n switch s\n"
                           " link gpu[i] -- s : speed GB/s, 1 us for i in 0..n where i >= low }\n"
                           "mesh @m = [dp = half] on @box\n"
                           "degrade gpu[0] compute = share\n"
                           "scenario { model = @f, on = @box, strategy { pp = layers / 2 } }\n";
static const char head[] = "dir 1\nparam layers = 4, k = 8, n = 2, half = n, speed = 100, low = 0, "
                           "share = 0.5, spare = layers * n, real = 4.0\n";

static ds_unit *open(const char *funcs, ds_binding *binding) {
    char text[2000];
    ds_unit *unit;
    ds_error err;
    ds_diags diags;
    snprintf(text, sizeof text, "%s%s%s", head, funcs, tail);
    ds_diags_init(&diags);
    cr_assert_eq(ds_load_text("test.dir", text, strlen(text), NULL, &unit, &err), DS_OK, "%s",
                 err.message);
    cr_assert_eq(ds_verify(unit, &diags), DS_OK, "%s\n%s", funcs,
                 diags.all.n ? diags.all.at[0].message : "");
    ds_diags_deinit(&diags);
    cr_assert_eq(ds_bind(unit, NULL, 0, binding, &err), DS_OK, "%s", err.message);
    return unit;
}

/* 0: none; 1: found; 2: found, and its index is used. */
static int find(const char *funcs) {
    ds_binding binding;
    ds_layer_loop loop;
    ds_unit *unit = open(funcs, &binding);
    bool found = ds_find_layer_loop(&binding, ds_scenario_model(unit), &loop);
    int result = !found ? 0 : loop.uses_index ? 2 : 1;
    if (found) cr_expect_str_eq(loop.module->params.at[loop.param].name, "layers");
    ds_unit_free(unit);
    return result;
}

#define FUNC(name, type, loop)                                                                     \
    "func @" name "(%x: " type ") -> " type " {\n  %y = for " loop                                 \
    " carry (%h = %x) {\n    %z = relu(%h)\n    yield %z\n  }\n  return %y\n}\n"

Test(mentions, loop_over_layers) {
    cr_expect_eq(find(FUNC("f", "f32[k]", "l in 0..layers")), 1);
    cr_expect_eq(find(FUNC("f", "f32[k]", "l in 1..layers")), 0);
    cr_expect_eq(find(FUNC("f", "f32[k]", "l in 0..layers + 1")), 0);
    cr_expect_eq(find(FUNC("f", "f32[layers]", "l in 0..layers")), 0, "its size is a dim, too");
    cr_expect_eq(find("func @f(%x: f32[k]) -> f32[k] {\n  %y = relu(%x)\n  return %y\n}\n"), 0);
    /* another function's mention is no harm, unless the model calls the function */
    cr_expect_eq(find(FUNC("g", "f32[k]", "l in 0..layers") FUNC("f", "f32[k]", "l in 0..layers")),
                 1);
    cr_expect_eq(
        find(FUNC("g", "f32[k]", "l in 0..layers + 1") FUNC("f", "f32[k]", "l in 0..layers")), 1);
    cr_expect_eq(find(FUNC("g", "f32[layers]", "l in 0..k") FUNC("f", "f32[k]", "l in 0..layers")),
                 1);
    cr_expect_eq(find(FUNC("g", "f32[k]", "l in 0..layers") "func @f(%x: f32[k]) -> f32[k] {\n"
                                                            "  %y = for l in 0..layers carry (%h = "
                                                            "%x) {\n    %z = call @g(%h)\n"
                                                            "    yield %z\n  }\n  return %y\n}\n"),
                 0);
    /* the index */
    cr_expect_eq(find("func @f(%x: f32[k]) -> f32[k] {\n"
                      "  %y = for l in 0..layers carry (%h = %x) {\n"
                      "    %z = scale(%h) {factor = l}\n    yield %z\n  }\n  return %y\n}\n"),
                 2);
    /* two loops */
    cr_expect_eq(find("func @f(%x: f32[k]) -> f32[k] {\n"
                      "  %y = for l in 0..layers carry (%h = %x) {\n    %z = relu(%h)\n"
                      "    yield %z\n  }\n"
                      "  %v = for l in 0..layers carry (%h = %y) {\n    %z = relu(%h)\n"
                      "    yield %z\n  }\n  return %v\n}\n"),
                 0);
}

static void put_name(void *context, const ds_expr_node *leaf) {
    ds_buf *out = context;
    if (leaf->kind == DS_EXPR_PARAM) ds_buf_printf(out, "%s ", leaf->name);
}

Test(mentions, devices) {
    ds_binding binding;
    ds_buf names = {0};
    ds_unit *unit = open(FUNC("f", "f32[k]", "l in 0..layers"), &binding);
    ds_mentions_devices(unit->modules.at[0], put_name, &names);
    cr_expect_str_eq(names.text, "n speed n low half share ");
    names.n = 0;
    ds_mentions_func(ds_scenario_model(unit), put_name, &names);
    cr_expect_null(strstr(names.text, "spare"));
    cr_expect_not_null(strstr(names.text, "layers"));
    cr_expect_not_null(strstr(names.text, "k "));
    ds_buf_deinit(&names);
    ds_unit_free(unit);
}
