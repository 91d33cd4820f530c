/* What the verifier finds in programs that are right: types, families, callees, uses.
 *
 * The expected types are worked out by hand from the rules of the language; counts of devices are
 * compared with the graph that sim/topo builds. What is wrong is in tests/golden/diagnostics. */
#include "ir/core/devices.h"
#include "ir/lang/lang.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "sim/topo/topo.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOX                                                                                        \
    "topology @box {\n"                                                                            \
    "  device gpu[4] : \"A100-SXM4-80GB\"\n"                                                       \
    "  switch hub\n"                                                                               \
    "  link gpu[i] -- hub : 300 GB/s, 1 us for i in 0..4\n"                                        \
    "}\n"

/* ---- helpers ---- */

typedef struct verified {
    ds_unit *unit;
    ds_diags diags;
    ds_binding binding;
    ds_status status; /* of the first step that failed */
} verified;

static void report(const verified *v) {
    ds_buf buf = {0};
    for (uint32_t i = 0; i < v->diags.all.n; i++) ds_diag_print(v->unit, &v->diags.all.at[i], &buf);
    fprintf(stderr, "%s", buf.text ? buf.text : "");
    ds_buf_deinit(&buf);
}

static verified try_verify(const char *text) {
    verified v = {0};
    ds_error err = {0};
    ds_diags_init(&v.diags);
    if (ds_load_text("test.dir", text, strlen(text), NULL, &v.unit, &err) != DS_OK)
        cr_assert_fail("%u:%u: %s", err.loc.line, err.loc.col, err.message);
    v.status = ds_verify(v.unit, &v.diags);
    if (v.status == DS_OK) v.status = ds_bind(v.unit, NULL, 0, &v.binding, NULL);
    if (v.status == DS_OK) v.status = ds_verify_bound(v.unit, &v.binding, &v.diags);
    return v;
}

static verified verify(const char *text) {
    verified v = try_verify(text);
    if (v.status != DS_OK) report(&v);
    cr_assert_eq(v.status, DS_OK);
    return v;
}

static void finish(verified *v) {
    ds_diags_deinit(&v->diags);
    ds_unit_free(v->unit);
}

static const ds_value_info *find_value(const verified *v, const char *func, const char *name) {
    const ds_func *f = ds_find_func(v->unit->modules.at[0], ds_intern(&v->unit->strings, func));
    cr_assert_not_null(f);
    for (uint32_t i = 0; i < f->values.n; i++)
        if (strcmp(f->values.at[i].name, name) == 0) return &f->values.at[i];
    cr_assert_fail("no %%%s in @%s", name, func);
    return NULL;
}

static void expect_type(const verified *v, const char *func, const char *name, const char *want) {
    const ds_value_info *info = find_value(v, func, name);
    cr_assert_not_null(info->type, "%%%s has no type", name);
    ds_buf buf = {0};
    ds_type_print(&v->unit->exprs, info->type, &buf);
    cr_expect_str_eq(buf.text, want, "%%%s is %s, not %s", name, buf.text, want);
    ds_buf_deinit(&buf);
}

static void expect_model(const verified *v, const char *name, bool is_model) {
    const ds_func *func = ds_find_func(v->unit->modules.at[0], ds_intern(&v->unit->strings, name));
    cr_assert_not_null(func);
    cr_expect_eq(func->is_model, is_model, "@%s", name);
}

/* ---- inference ---- */

Test(verify, megatron_column_then_row) {
    verified v = verify("dir 1\nparam b = 8, d = 16\n" BOX "mesh @m = [tp = 4] on @box\n"
                        "func @mlp(%x: f32[b, d] on @m, %w1: f32[d, 4 * d@tp] on @m,\n"
                        "          %w2: f32[4 * d@tp, d] on @m) -> f32[b, d] on @m {\n"
                        "  %h = matmul(%x, %w1)\n"
                        "  %a = gelu(%h)\n"
                        "  %p = matmul(%a, %w2)\n"
                        "  %y = all_reduce(%p) over tp\n"
                        "  return %y\n"
                        "}\n");
    expect_type(&v, "mlp", "h", "f32[b, 4 * d@tp] on @m");
    expect_type(&v, "mlp", "a", "f32[b, 4 * d@tp] on @m");
    expect_type(&v, "mlp", "p", "f32[b, d] partial(tp) on @m");
    expect_type(&v, "mlp", "y", "f32[b, d] on @m");
    cr_expect_eq(v.diags.all.n, 0);
    finish(&v);
}

/* Megatron's block again, as a model: what matmul sees has no splits, so that nothing is partial;
 * what was written stays, a loop's families and a call's results included. */
Test(verify, hints_of_a_model_are_no_types) {
    verified v = verify("dir 1\nparam b = 8, d = 16\n"
                        "func @mlp(%x: f32[b@dp, d]) -> f32[b@(dp, cp), d@tp] {\n"
                        "  weight %w1 : f32[d, 4 * d@tp]\n"
                        "  weight %w2 : f32[4 * d@tp, d]\n"
                        "  %h = matmul(%x, %w1)\n"
                        "  %a = gelu(%h) : f32[b@dp, 4 * d@tp]\n"
                        "  %y = matmul(%a, %w2)\n"
                        "  %r = reshape(%y) : f32[b * d@tp]\n"
                        "  %s = reshape(%r) {shape = [b, d]}\n"
                        "  return %s\n"
                        "}\n"
                        "func @net(%x: f32[b@dp, d]) -> f32[b, d] {\n"
                        "  %y, %k = for l in 0..3 carry (%c: f32[b@cp, d@tp] = %x) {\n"
                        "    %n = call @mlp(%c)\n"
                        "    yield %n keep %c\n"
                        "  }\n"
                        "  %z = relu(%k{2})\n"
                        "  %t = call @act(%z)\n"
                        "  %u = add(%y, %t)\n"
                        "  return %u\n"
                        "}\n"
                        "func @act(%x: f32[b@dp, d]) -> f32[b, d@tp] {\n"
                        "  %y = relu(%x)\n"
                        "  return %y\n"
                        "}\n"
                        "func @other(%x: f32[b@dp, d]) -> f32[b@dp, d] {\n"
                        "  %y = relu(%x)\n"
                        "  return %y\n"
                        "}\n");
    expect_type(&v, "mlp", "x", "f32[b@dp, d]");
    expect_type(&v, "mlp", "w2", "f32[4 * d@tp, d]");
    expect_type(&v, "mlp", "h", "f32[b, 4 * d]");
    expect_type(&v, "mlp", "a", "f32[b@dp, 4 * d@tp]");
    expect_type(&v, "mlp", "y", "f32[b, d]");
    expect_type(&v, "mlp", "r", "f32[b * d@tp]");
    expect_type(&v, "mlp", "s", "f32[b, d]");
    expect_type(&v, "net", "c", "f32[b@cp, d@tp]");
    expect_type(&v, "net", "n", "f32[b, d]");
    expect_type(&v, "net", "k", "f32[b, d]");
    expect_type(&v, "net", "t", "f32[b, d]");
    expect_type(&v, "act", "y", "f32[b, d]");
    expect_type(&v, "other", "y", "f32[b@dp, d]");
    expect_model(&v, "mlp", true);
    expect_model(&v, "net", true);
    expect_model(&v, "act", true);
    expect_model(&v, "other", false);
    finish(&v);
}

/* Without a weight, `model =` makes a model, and of what it calls; functions that have no
 * annotations may serve a program as well. */
Test(verify, models_by_scenario_and_shared_functions) {
    verified v =
        verify("dir 1\n" BOX "mesh @m = [dp = 4] on @box\n"
               "func @plain(%x: f32[8, 3]) -> f32[8, 3] {\n"
               "  %y = relu(%x)\n  return %y\n}\n"
               "func @inner(%x: f32[8, 3@tp]) -> f32[8, 3] {\n"
               "  %y = call @plain(%x)\n  return %y\n}\n"
               "func @step(%x: f32[8@dp, 3], %w: f32[3@tp, 5] {role = weight}) -> f32[8, 5] {\n"
               "  %y = call @inner(%x)\n"
               "  %z = matmul(%y, %w)\n  return %z\n}\n"
               "func @program(%x: f32[8, 3]) -> f32[8, 3] {\n"
               "  %y = call @plain(%x)\n  return %y\n}\n"
               "scenario { model = @step\n on = @box\n strategy { dp = 2, tp = 2 } }\n");
    expect_model(&v, "plain", true);
    expect_model(&v, "inner", true);
    expect_model(&v, "step", true);
    expect_model(&v, "program", false);
    expect_type(&v, "step", "z", "f32[8, 5]");
    /* 3 is not divisible by tp = 2: that is for the strategy to decide. */
    cr_expect_eq(v.diags.n_errors, 0);
    finish(&v);
}

Test(verify, loop_keeps_families) {
    verified v = verify("dir 1\nparam n = 6, d = 16\n"
                        "func @f(%x: f32[d, d], %w{l: 0..n}: f32[d, d]) -> f32[d, d] {\n"
                        "  %y, %ins = for l in 0..n carry (%h = %x) {\n"
                        "    %z = matmul(%h, %w{l})\n"
                        "    yield %z keep %h\n"
                        "  }\n"
                        "  %g = for l in 0..n carry (%dy = %y) {\n"
                        "    %dz = add(%dy, %ins{n - 1 - l})\n"
                        "    yield %dz\n"
                        "  }\n"
                        "  return %g\n"
                        "}\n");
    expect_type(&v, "f", "h", "f32[d, d]");
    expect_type(&v, "f", "ins", "f32[d, d]");
    const ds_value_info *ins = find_value(&v, "f", "ins");
    cr_assert_eq(ins->n_binders, 1);
    cr_expect_str_eq(ins->binders[0].name, "l");
    cr_expect_eq(ins->n_uses, 1);
    cr_expect_eq(find_value(&v, "f", "h")->n_uses, 2);
    finish(&v);
}

Test(verify, carry_type_follows_the_index) {
    verified v = verify("dir 1\nparam n = 5\n"
                        "func @f(%x: f32[1, 8]) -> f32[n, 8] {\n"
                        "  %y, %k = for t in 1..n carry (%h: f32[t, 8] = %x) {\n"
                        "    %a = pad(%h) {dim = 0, hi = 1}\n"
                        "    yield %a keep %h\n"
                        "  }\n"
                        "  %s = relu(%k{n - 1})\n"
                        "  %_ = relu(%s)\n"
                        "  return %y\n"
                        "}\n");
    expect_type(&v, "f", "a", "f32[t + 1, 8]");
    expect_type(&v, "f", "y", "f32[n, 8]");
    expect_type(&v, "f", "k", "f32[t, 8]");
    expect_type(&v, "f", "s", "f32[n - 1, 8]");
    cr_expect_eq(v.diags.all.n, 0, "a result named _ may stay unused");
    finish(&v);
}

Test(verify, range_reads_stack) {
    verified v = verify("dir 1\n"
                        "func @f(%k{i: 0..3, j: 0..4}: f32[8, 2]) -> f32[3, 2, 8, 2] {\n"
                        "  %y = relu(%k{0:3, 1:3})\n"
                        "  %z = relu(%k{1, 0:4})\n"
                        "  %_ = relu(%z)\n"
                        "  return %y\n"
                        "}\n");
    expect_type(&v, "f", "y", "f32[3, 2, 8, 2]");
    expect_type(&v, "f", "z", "f32[4, 8, 2]");
    finish(&v);
}

/* Indices are put in all at once: {j, i} swaps them, it does not make both the same. */
Test(verify, indices_are_simultaneous) {
    verified v = verify("dir 1\n"
                        "func @f(%k{i: 1..3, j: 1..3}: f32[i, 10 * j]) -> f32[8] {\n"
                        "  %o = fill() {value = 0.0} : f32[8]\n"
                        "  %y = for i in 1..3 carry (%a = %o) {\n"
                        "    %b = for j in 1..3 carry (%c = %a) {\n"
                        "      %t = relu(%k{j, i})\n"
                        "      %_ = relu(%t)\n"
                        "      yield %c\n"
                        "    }\n"
                        "    yield %b\n"
                        "  }\n"
                        "  return %y\n"
                        "}\n");
    expect_type(&v, "f", "t", "f32[j, 10 * i]");
    finish(&v);
}

Test(verify, written_type_without_place_takes_it) {
    verified v = verify("dir 1\n" BOX "mesh @m = [dp = 4] on @box\n"
                        "func @f(%x: f32[8@dp] on @m) -> f32[8@dp] {\n"
                        "  %y = relu(%x) : f32[8@dp]\n"
                        "  return %y\n"
                        "}\n");
    expect_type(&v, "f", "y", "f32[8@dp] on @m");
    finish(&v);
}

/* ---- calls ---- */

#define STAGE                                                                                      \
    "func @stage<mesh @s>(%x: f32[8@dp, 16] on @s, %w{l: 0..2}: f32[16, 16] on @s) ->"             \
    " (f32[8@dp, 16] on @s, {l: 0..2} f32[8@dp, 16] on @s) {\n"                                    \
    "  %y, %k = for l in 0..2 carry (%h = %x) {\n"                                                 \
    "    %z = matmul(%h, %w{l})\n"                                                                 \
    "    yield %z keep %h\n"                                                                       \
    "  }\n"                                                                                        \
    "  return %y, %k\n"                                                                            \
    "}\n"

Test(verify, stage_called_on_mesh_slices) {
    verified v = verify("dir 1\n" BOX "mesh @m = [pp = 2, dp = 2] on @box\n" STAGE
                        "func @step(%x: f32[8@dp, 16] on @m{pp=0},\n"
                        "           %w0{l: 0..2}: f32[16, 16] on @m{pp=0},\n"
                        "           %w1{i: 0..2}: f32[16, 16] on @m{pp=1}) ->"
                        " (f32[8@dp, 16] on @m{pp=1}, {l: 0..2} f32[8@dp, 16] on @m{pp=0}) {\n"
                        "  %a, %k = call @stage<@m{pp=0}>(%x, %w0)\n"
                        "  %b = send(%a) to @m{pp=1}\n"
                        "  %c, %_ = call @stage<@m{pp=1}>(%b, %w1)\n"
                        "  return %c, %k\n"
                        "}\n");
    expect_type(&v, "stage", "z", "f32[8@dp, 16] on @s");
    expect_type(&v, "step", "a", "f32[8@dp, 16] on @m{pp=0}");
    expect_type(&v, "step", "k", "f32[8@dp, 16] on @m{pp=0}");
    expect_type(&v, "step", "b", "f32[8@dp, 16] on @m{pp=1}");
    expect_type(&v, "step", "c", "f32[8@dp, 16] on @m{pp=1}");
    cr_expect_eq(find_value(&v, "step", "k")->n_binders, 1);
    const ds_op *call = find_value(&v, "step", "a")->def;
    cr_expect_str_eq(call->callee->name, "stage");
    finish(&v);
}

Test(verify, mesh_arguments_nest) {
    verified v = verify("dir 1\n" BOX "mesh @m = [pp = 2, tp = 2] on @box\n"
                        "func @one<mesh @t>(%x: f32[8] on @t) -> f32[8] on @t {\n"
                        "  %y = relu(%x)\n"
                        "  return %y\n"
                        "}\n"
                        "func @half<mesh @s>(%x: f32[8] on @s{tp=1}) -> f32[8] on @s{tp=1} {\n"
                        "  %y = call @one<@s{tp=1}>(%x)\n"
                        "  return %y\n"
                        "}\n"
                        "func @all(%x: f32[8] on @m{pp=1, tp=1}, %z: f32[8] on @box.gpu[2]) ->"
                        " (f32[8] on @m{tp=1, pp=1}, f32[8] on @box.gpu[2]) {\n"
                        "  %y = call @half<@m{pp=1}>(%x)\n"
                        "  %u = call @one<@box.gpu[2]>(%z)\n"
                        "  return %y, %u\n"
                        "}\n");
    expect_type(&v, "half", "y", "f32[8] on @s{tp=1}");
    expect_type(&v, "all", "y", "f32[8] on @m{pp=1, tp=1}");
    expect_type(&v, "all", "u", "f32[8] on @box.gpu[2]");
    finish(&v);
}

/* An axis that the mesh lacks has size 1: the annotated function runs there all the same. */
Test(verify, missing_axes_have_size_one) {
    verified v = verify("dir 1\n" BOX "mesh @m = [dp = 4] on @box\n"
                        "func @layer<mesh @s>(%x: f32[8@dp, 16@tp] on @s) -> f32[8@dp, 16@tp] on @s"
                        " {\n"
                        "  %y = relu(%x)\n"
                        "  return %y\n"
                        "}\n"
                        "func @f(%x: f32[8@dp, 16] on @m) -> f32[8@dp, 16] on @m {\n"
                        "  %y = call @layer<@m>(%x)\n"
                        "  return %y\n"
                        "}\n");
    expect_type(&v, "f", "y", "f32[8@dp, 16] on @m");
    finish(&v);
}

/* ---- local regions ---- */

Test(verify, local_regions_see_shards) {
    verified v = verify("dir 1\nparam n = 4, s = 32\n" BOX "mesh @m = [cp = n] on @box\n"
                        "func @f(%q: f32[2, s@cp, 8] on @m, %b: f32[8] partial(cp) on @m) ->"
                        " f32[2, s@cp, 8] on @m {\n"
                        "  %o = local over (cp) (%q, %b) -> (f32[2, s@cp, 8] on @m) {\n"
                        "    %c = bias(%q, %b)\n"
                        "    yield %c\n"
                        "  }\n"
                        "  return %o\n"
                        "}\n");
    expect_type(&v, "f", "c", "f32[2, s / n, 8] on @m");
    expect_type(&v, "f", "o", "f32[2, s@cp, 8] on @m");
    finish(&v);
}

/* ---- printing and verifying again ---- */

static char *print(const ds_unit *unit) {
    ds_buf buf = {0};
    ds_print_module(unit->modules.at[0], &buf);
    return buf.text;
}

Test(verify, is_idempotent_and_prints_what_it_found) {
    const char *text =
        "dir 1\n" BOX "mesh @m = [pp = 2, dp = 2] on @box\n" STAGE
        "func @g(%x: f32[8@dp, 16] on @m{pp=0},\n"
        "        %w{l: 0..2}: f32[16, 16] on @m{pp=0}) -> f32[8@dp, 16] on @m{pp=0} {\n"
        "  %a, %k = call @stage<@m{pp=0}>(%x, %w)\n"
        "  %b = add(%a, %k{1})\n"
        "  %unused = relu(%b)\n"
        "  return %b\n"
        "}\n";
    verified v = verify(text);
    char *once = print(v.unit);
    cr_assert_eq(v.diags.all.n, 1, "the warning about %%unused");
    ds_diags again;
    ds_diags_init(&again);
    cr_expect_eq(ds_verify(v.unit, &again), DS_OK);
    cr_assert_eq(again.all.n, 1);
    cr_expect_str_eq(again.all.at[0].message, v.diags.all.at[0].message);
    cr_expect_eq(find_value(&v, "g", "b")->n_uses, 2);
    char *twice = print(v.unit);
    cr_expect_str_eq(once, twice);
    verified w = verify(once);
    char *thrice = print(w.unit);
    cr_expect_str_eq(once, thrice);
    free(once);
    free(twice);
    free(thrice);
    ds_diags_deinit(&again);
    finish(&v);
    finish(&w);
}

/* ---- with numbers ---- */

Test(verify, divisibility_is_that_of_integers) {
    for (int n = 1; n <= 40; n++) {
        char text[600];
        snprintf(text, sizeof text,
                 "dir 1\nparam n = %d\n" BOX "mesh @m = [dp = 4] on @box\n"
                 "func @f(%%x: f32[n@dp] on @m) -> f32[n@dp] on @m {\n"
                 "  %%y = relu(%%x)\n  return %%y\n}\n",
                 n);
        verified v = try_verify(text);
        cr_expect_eq(v.status == DS_OK, n % 4 == 0, "n = %d", n);
        cr_expect_eq(v.diags.all.n, n % 4 == 0 ? 0 : 1);
        finish(&v);
    }
}

/* The read %w{a*l + b} stays in 0..8 for every l of 0..4 iff both ends do. */
Test(verify, every_turn_is_checked) {
    for (int a = -3; a <= 3; a++)
        for (int b = -1; b <= 9; b++) {
            char text[600];
            snprintf(text, sizeof text,
                     "dir 1\nfunc @f(%%x: f32[4], %%w{i: 0..8}: f32[4]) -> f32[4] {\n"
                     "  %%y = for l in 0..4 carry (%%h = %%x) {\n"
                     "    %%z = add(%%h, %%w{%d * l + %d})\n    yield %%z\n  }\n  return %%y\n}\n",
                     a, b);
            bool inside = true;
            for (int l = 0; l < 4; l++) inside = inside && a * l + b >= 0 && a * l + b < 8;
            verified v = try_verify(text);
            cr_expect_eq(v.status == DS_OK, inside, "%d * l + %d", a, b);
            cr_expect_eq(v.diags.all.n, inside ? 0 : 1, "one report a cause");
            finish(&v);
        }
}

/* An op is checked in the turns of the loops on which it depends, be it by the range of a family
 * that it reads alone: of 5 - t elements the index 1 is none when t is 4. */
Test(verify, ops_are_checked_in_turns_they_depend_on) {
    static const struct {
        const char *inner, *read, *message;
    } cases[] = {{"5 - t", "%k{1}", "reads index 1"},
                 {"5 - t", "%k{t}", "reads index 3"},
                 {"5 - t", "%k{0}", NULL},
                 {"5", "%w{t + 4}", "reads index 8"},
                 {"5", "%w{t + 3}", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        snprintf(text, sizeof text,
                 "dir 1\nfunc @f(%%x: f32[4], %%w{i: 0..8}: f32[4]) -> f32[4] {\n"
                 "  %%y = for t in 0..5 carry (%%h = %%x) {\n"
                 "    %%k = for j in 0..%s {\n      %%n = neg(%%x)\n      yield keep %%n\n    }\n"
                 "    %%a = for j in 0..9 carry (%%b = %%h) {\n"
                 "      %%z = add(%%b, %s)\n      yield %%z\n    }\n"
                 "    yield %%a\n  }\n  return %%y\n}\n",
                 cases[i].inner, cases[i].read);
        verified v = try_verify(text);
        cr_expect_eq(v.status == DS_OK, !cases[i].message, "%s of %s", cases[i].read,
                     cases[i].inner);
        bool said = false;
        for (uint32_t k = 0; k < v.diags.all.n && cases[i].message; k++)
            said = said || strstr(v.diags.all.at[k].message, cases[i].message);
        cr_expect_eq(said, cases[i].message != NULL, "%s of %s", cases[i].read, cases[i].inner);
        finish(&v);
    }
}

Test(verify, long_loops_are_sampled_at_their_ends) {
    verified v = try_verify("dir 1\nparam n = 1000000000000\n"
                            "func @f(%x: f32[4], %w{i: 0..n}: f32[4]) -> f32[4] {\n"
                            "  %y = for l in 0..n carry (%h = %x) {\n"
                            "    %z = add(%h, %w{l + 1})\n    yield %z\n  }\n  return %y\n}\n");
    cr_assert_eq(v.status, DS_ERR_VALUE);
    cr_expect_not_null(strstr(v.diags.all.at[0].message, "reads index 1000000000000"));
    finish(&v);
}

/* ---- devices ---- */

static void compare_count(const char *path) {
    ds_unit *unit = NULL;
    ds_error err = {0};
    ds_binding binding;
    cr_assert_eq(ds_load_file(path, NULL, &unit, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_bind(unit, NULL, 0, &binding, &err), DS_OK, "%s", err.message);
    const ds_module *module = unit->modules.at[0];
    for (uint32_t i = 0; i < module->topologies.n; i++) {
        ds_topo *topo = NULL;
        int64_t n = 0;
        cr_assert_eq(ds_topo_build(&binding, module->topologies.at[i], &topo, &err), DS_OK);
        cr_assert_eq(ds_topology_count_devices(&binding, module->topologies.at[i], &n, &err),
                     DS_OK);
        cr_expect_eq(n, ds_topo_n_devices(topo), "%s: %lld", path, (long long)n);
        ds_topo_free(topo);
    }
    ds_unit_free(unit);
}

Test(verify, device_counts_are_those_of_the_graph) {
    static const char *const names[] = {"dgx1-v100", "dgx2",        "dgx-a100",
                                        "dgx-h100",  "pcie-4xv100", "mixed-box",
                                        "torus",     "pod-128x8",   "fat-tree"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        snprintf(path, sizeof path, DS_SOURCE_DIR "/scenarios/topologies/%s.dir", names[i]);
        compare_count(path);
    }
}

Test(verify, device_counts_that_overflow) {
    const char *text = "dir 1\ntopology @a {\n  device d[4000000000] : \"A100-SXM4-80GB\"\n}\n"
                       "topology @b {\n  node n[4000000000] : @a\n}\n";
    ds_unit *unit = NULL;
    ds_error err = {0};
    ds_binding binding;
    int64_t n = 0;
    cr_assert_eq(ds_load_text("t.dir", text, strlen(text), NULL, &unit, &err), DS_OK);
    cr_assert_eq(ds_bind(unit, NULL, 0, &binding, &err), DS_OK);
    const ds_module *module = unit->modules.at[0];
    cr_expect_eq(ds_topology_count_devices(&binding, module->topologies.at[0], &n, &err), DS_OK);
    cr_expect_eq(n, INT64_C(4000000000));
    cr_expect_eq(ds_topology_count_devices(&binding, module->topologies.at[1], &n, &err),
                 DS_ERR_OVERFLOW);
    ds_unit_free(unit);
}

Test(verify, mesh_sizes) {
    verified v =
        verify("dir 1\nparam k = 2\naxis x\n" BOX "mesh @m = [pp = k, dp = 4 / k] on @box\n"
               "mesh @v = view @m [x = 4]\nmesh @p = pick 1..4 of @m [x = 3]\n");
    const ds_module *module = v.unit->modules.at[0];
    static const int64_t devices[] = {4, 4, 3}, first[] = {2, 4, 3};
    for (uint32_t i = 0; i < 3; i++) {
        int64_t sizes[2], n;
        cr_assert_eq(ds_mesh_axis_sizes(&v.binding, module->meshes.at[i], sizes, NULL), DS_OK);
        cr_expect_eq(sizes[0], first[i]);
        cr_assert_eq(ds_mesh_count_devices(&v.binding, module->meshes.at[i], &n, NULL), DS_OK);
        cr_expect_eq(n, devices[i]);
    }
    cr_expect(ds_axis_is_declared(module, ds_intern(&v.unit->strings, "x")));
    cr_expect(ds_axis_is_declared(module, ds_intern(&v.unit->strings, "ep")));
    cr_expect_not(ds_axis_is_declared(module, ds_intern(&v.unit->strings, "y")));
    finish(&v);
}

/* ---- the scenario ---- */

Test(verify, scenario_readers) {
    verified v = verify(
        "dir 1\nparam k = 3, tag = \"adam\"\n" BOX "mesh @m = [dp = 4] on @box\n"
        "func @f(%x: f32[4] on @m) -> f32[4] on @m {\n"
        "  %y = relu(%x)\n  return %y\n}\n"
        "scenario {\n  program = @f\n  on = @box\n  profiles = [\"a\", \"b\"]\n"
        "  batch = 2 * k\n  train { optimizer = tag, lr = 0.5 }\n"
        "  strategy { sp = on, bucket_size = 25 MiB, schedule = \"1f1b\",\n"
        "    cp_type = all_gather, prefetch = 0, zero_group = 1, order = \"tp cp dp pp\" }\n}\n");
    int64_t i = 0;
    double r = 0;
    bool b = false;
    const char *text = NULL;
    cr_expect_eq(ds_scenario_int(&v.binding, "", "batch", &i, NULL), DS_OK);
    cr_expect_eq(i, 6);
    cr_expect_eq(ds_scenario_int(&v.binding, "strategy", "bucket_size", &i, NULL), DS_OK);
    cr_expect_eq(i, 25 * 1024 * 1024);
    i = 7;
    cr_expect_eq(ds_scenario_int(&v.binding, "strategy", "tp", &i, NULL), DS_OK);
    cr_expect_eq(i, 7, "an absent entry leaves the value");
    cr_expect_eq(ds_scenario_real(&v.binding, "train", "lr", &r, NULL), DS_OK);
    cr_expect_eq(r, 0.5);
    cr_expect_eq(ds_scenario_bool(&v.binding, "strategy", "sp", &b, NULL), DS_OK);
    cr_expect(b);
    cr_expect_eq(ds_scenario_text(&v.binding, "train", "optimizer", &text, NULL), DS_OK);
    cr_expect_str_eq(text, "adam");
    cr_expect_eq(ds_scenario_text_count(v.unit, "", "profiles"), 2);
    cr_expect_eq(ds_scenario_text_at(&v.binding, "", "profiles", 1, &text, NULL), DS_OK);
    cr_expect_str_eq(text, "b");
    cr_expect_eq(ds_scenario_text(&v.binding, "strategy", "cp_type", &text, NULL), DS_OK);
    cr_expect_str_eq(text, "all_gather");
    cr_expect_eq(ds_scenario_int(&v.binding, "strategy", "prefetch", &i, NULL), DS_OK);
    cr_expect_eq(i, 0);
    cr_expect_str_eq(ds_scenario_program_func(v.unit)->name, "f");
    cr_expect_null(ds_scenario_model(v.unit));
    cr_expect_null(ds_scenario_ranks(v.unit));
    cr_expect_str_eq(ds_scenario_mesh(v.unit)->name, "m", "the only mesh there is");
    cr_expect_str_eq(ds_scenario_topology(v.unit)->name, "box");
    finish(&v);
}
