/* What the parser makes of a text, and what it says about a wrong one. */
#include "ir/lang/lang.h"
#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <string.h>

static ds_unit *parse(const char *text) {
    ds_unit *unit = ds_unit_new();
    ds_error err = {0};
    ds_module *module = ds_unit_add_module(unit, "t.dir", text, strlen(text));
    cr_assert_eq(ds_parse(module, &err), DS_OK, "%u:%u: %s\n%s", err.loc.line, err.loc.col,
                 err.message, text);
    return unit;
}

static int64_t int_of(const ds_unit *unit, ds_expr e) {
    int64_t value = INT64_MIN;
    ds_env env = {.exprs = &unit->exprs};
    cr_assert_eq(ds_expr_eval_int(&env, e, DS_NOWHERE, &value, NULL), DS_OK);
    return value;
}

/* ---- what is read ---- */

Test(parse, precedence) {
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"1 + 2 * 3", 7},     {"(1 + 2) * 3", 9},
                 {"7 - 2 - 1", 4},     {"7 % 4 * 2", 6},
                 {"-7 / 2", -4},       {"-7 % 4", 1},
                 {"7%4", 3},           {"min(3, max(1, 2))", 2},
                 {"ceildiv(7, 2)", 4}, {"1 + 1 == 2 and 3 > 2", 1},
                 {"not 1 == 2", 1},    {"not 0 and 0", 0},
                 {"0 or 1 and 0", 0},  {"- -3", 3},
                 {"2 * -3", -6},       {"9223372036854775807", INT64_MAX}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        ds_buf text = {0};
        ds_buf_printf(&text, "dir 1\nparam a = %s\n", cases[k].text);
        ds_unit *unit = parse(text.text);
        ds_expr init = unit->modules.at[0]->params.at[0].init;
        cr_assert_eq(int_of(unit, init), cases[k].value, "%s", cases[k].text);
        ds_unit_free(unit);
        ds_buf_deinit(&text);
    }
}

Test(parse, names_are_indices_then_params_then_words) {
    ds_unit *unit =
        parse("dir 1\nparam l = 3, sgd_rate = 1\n"
              "func @f(%x: f32[l]) {\n"
              "  for l in 0..l { %y = relu(%x) {a = l, b = adam, c = sgd_rate} yield }\n"
              "  return\n}\n");
    const ds_func *f = unit->modules.at[0]->funcs.at[0];
    const ds_type *type = ds_value_at(f, f->args[0])->type;
    cr_assert_eq(ds_expr_at(&unit->exprs, type->dims[0].size)->kind, DS_EXPR_PARAM);
    const ds_op *loop = f->body.ops[0];
    cr_assert_eq(ds_expr_at(&unit->exprs, loop->hi)->kind, DS_EXPR_PARAM);
    const ds_attr *attrs = loop->body->ops[0]->attrs;
    cr_assert_eq(ds_expr_at(&unit->exprs, attrs[0].expr)->kind, DS_EXPR_INDEX);
    cr_assert_eq(attrs[1].kind, DS_ATTR_WORD);
    cr_assert_str_eq(attrs[1].word, "adam");
    cr_assert_eq(ds_expr_at(&unit->exprs, attrs[2].expr)->kind, DS_EXPR_PARAM);
    ds_unit_free(unit);
}

Test(parse, types) {
    ds_unit *unit = parse("dir 1\nfunc @f(%x: bf16[8@(dp,tp), 16@cp[6, 6, 4], 3] on @m{pp=1}"
                          " partial(ep) partial(x, y, max)) {\n}\n");
    const ds_func *f = unit->modules.at[0]->funcs.at[0];
    const ds_type *type = ds_value_at(f, f->args[0])->type;
    cr_assert_eq(type->dtype, DS_BF16);
    cr_assert_eq(type->rank, 3);
    cr_assert_eq(type->dims[0].n_splits, 2);
    cr_assert_str_eq(type->dims[0].splits[1].axis, "tp");
    cr_assert_eq(type->dims[1].splits[0].n_sizes, 3);
    cr_assert_eq(int_of(unit, type->dims[1].splits[0].sizes[2]), 4);
    cr_assert_eq(type->dims[2].n_splits, 0);
    cr_assert_eq(type->n_partials, 3);
    cr_assert_eq(type->partials[0].reduction, DS_RED_SUM);
    cr_assert_eq(type->partials[2].reduction, DS_RED_MAX);
    cr_assert_eq(type->on.kind, DS_PLACE_MESH);
    cr_assert_str_eq(type->on.coords[0].axis, "pp");
    ds_unit_free(unit);
}

Test(parse, a_dot_makes_a_device) {
    ds_unit *unit = parse("dir 1\nfunc @f(%x: f32[] on @box.n[1].gpu[0], %y: f32[] on @m) {\n}\n");
    const ds_func *f = unit->modules.at[0]->funcs.at[0];
    const ds_place *x = &ds_value_at(f, f->args[0])->type->on;
    cr_assert_eq(x->kind, DS_PLACE_DEVICE);
    cr_assert_eq(x->n_steps, 2);
    cr_assert_str_eq(x->steps[1].name, "gpu");
    cr_assert_eq(ds_value_at(f, f->args[1])->type->on.kind, DS_PLACE_MESH);
    ds_unit_free(unit);
}

Test(parse, an_alias_qualifies_a_place) {
    ds_unit *unit = parse("dir 1\nimport \"m.dir\" as g\n"
                          "func @f(%x: f32[] on @g.m{pp=1}, %y: f32[] on @g.box.gpu[0]) {\n"
                          "  %z = call @g.h(%x)\n}\nscenario { model = @g.mlp }\n");
    const ds_module *module = unit->modules.at[0];
    const ds_func *f = module->funcs.at[0];
    const ds_place *x = &ds_value_at(f, f->args[0])->type->on;
    const ds_place *y = &ds_value_at(f, f->args[1])->type->on;
    cr_assert_eq(x->kind, DS_PLACE_MESH);
    cr_assert_str_eq(x->name, "g.m");
    cr_assert_eq(x->n_coords, 1);
    cr_assert_eq(y->kind, DS_PLACE_DEVICE);
    cr_assert_str_eq(y->name, "g.box");
    cr_assert_eq(y->n_steps, 1);
    cr_assert_str_eq(f->body.ops[0]->callee_name, "g.h");
    cr_assert_str_eq(module->scenarios.at[0].entries[0].place.name, "g.mlp");
    ds_unit_free(unit);
}

Test(parse, loops_make_families) {
    ds_unit *unit = parse("dir 1\nfunc @f(%x: f32[2]) {\n"
                          "  %y, %zs = for l in 0..4 carry (%h: f32[2] = %x) {\n"
                          "    %w = for m in 0..l { %q = relu(%h) yield keep %q }\n"
                          "    yield %h keep %w\n"
                          "  } : f32[2], f32[l + m]\n"
                          "  %r = add(%zs{3, 0}, %zs{0:2, 1})\n"
                          "  return %zs\n}\n");
    const ds_func *f = unit->modules.at[0]->funcs.at[0];
    const ds_op *loop = f->body.ops[0];
    cr_assert_eq(loop->code, DS_OP_FOR);
    cr_assert_eq(loop->n_args, 1);
    cr_assert_eq(ds_value_at(f, loop->out[0])->n_binders, 0);
    const ds_value_info *zs = ds_value_at(f, loop->out[1]);
    cr_assert_eq(zs->n_binders, 2, "its own index and that of the inner family");
    cr_assert_str_eq(zs->binders[0].name, "l");
    cr_assert_str_eq(zs->binders[1].name, "m");
    const ds_op *add = f->body.ops[1];
    cr_assert_eq(add->in[0].n_index, 2);
    cr_assert_null(add->in[0].index_hi);
    cr_assert(DS_HAS_EXPR(add->in[1].index_hi[0]));
    cr_assert_not(DS_HAS_EXPR(add->in[1].index_hi[1]));
    cr_assert_eq(f->body.ops[2]->in[0].n_index, 0);
    ds_unit_free(unit);
}

/* A use makes the value, the equation below takes the value over; a loop in the rec sees both. */
Test(parse, equations_in_any_order) {
    ds_unit *unit =
        parse("dir 1\nfunc @f(%x: f32[2]) {\n"
              "  %r, %k = rec (t in 0..4, l in 1..3) {name = \"r\"} {\n"
              "    %s = case t == 0 and l < 2: %x, l == 1: %u{t - 1, 2}, else: %u{t, l - 1}\n"
              "    %v{l} = for i in 0..2 carry (%c = %w) { %q = add(%c, %u{0:t, i}) yield %q }\n"
              "    %u = relu(%s)\n"
              "    weight %w{l} : f32[2]\n"
              "    yield %u, %v\n"
              "  } : f32[t + l], f32[2]\n"
              "  return %r\n}\n");
    const ds_func *f = unit->modules.at[0]->funcs.at[0];
    const ds_op *rec = f->body.ops[0], *first = rec->body->ops[0], *loop = rec->body->ops[1];
    cr_assert_eq(rec->code, DS_OP_REC);
    cr_assert_eq(rec->n_dims, 2);
    cr_assert_eq(rec->n_attrs, 1);
    cr_assert_str_eq(rec->dims[1].name, "l");
    cr_assert_eq(first->code, DS_OP_CASE);
    cr_assert_eq(first->n_conds, 2);
    cr_assert_eq(first->n_in, 3);
    ds_value u = rec->body->ops[2]->out[0];
    cr_assert_eq(first->in[1].value.i, u.i);
    cr_assert_eq(first->in[2].value.i, u.i);
    cr_assert_eq(loop->body->ops[0]->in[1].value.i, u.i);
    cr_assert_eq(loop->n_dims, 1);
    cr_assert_eq(loop->in[0].value.i, rec->body->ops[3]->out[0].i, "the weight below");
    cr_assert(ds_value_at(f, u)->in_rec);
    cr_assert_eq(ds_value_at(f, u)->loc.line, 6, "a value lies where its equation does");
    cr_assert_not(ds_value_at(f, rec->out[0])->in_rec);
    ds_unit_free(unit);
}

Test(parse, clauses_in_any_order) {
    ds_unit *unit = parse("dir 1\nfunc @f(%x: f32[8]) {\n"
                          "  %a = all_to_all(%x) dim 1 -> 2 over (dp, tp)\n"
                          "  %b, %c = all_reduce(%x, %a) across\n"
                          "  %d = broadcast(%b) to (@m{pp=0}, @box.gpu[1])\n"
                          "  send(%c) tag 7 to 1\n"
                          "  %e = recv from 0 tag 7 : f32[8]\n"
                          "  %g = all_reduce(%e) group (0, 1, 2)\n"
                          "  return\n}\n");
    ds_op **ops = unit->modules.at[0]->funcs.at[0]->body.ops;
    cr_assert_eq(ops[0]->n_over, 2);
    cr_assert_eq(int_of(unit, ops[0]->dim), 1);
    cr_assert_eq(int_of(unit, ops[0]->dim_to), 2);
    cr_assert(ops[1]->across);
    cr_assert_eq(ops[2]->n_to, 2);
    cr_assert_eq(ops[2]->to[1].kind, DS_PLACE_DEVICE);
    cr_assert_eq(int_of(unit, ops[3]->to_rank), 1);
    cr_assert_eq(ops[3]->n_out, 0);
    cr_assert_eq(int_of(unit, ops[4]->from_rank), 0);
    cr_assert_eq(int_of(unit, ops[4]->tag), 7);
    cr_assert(ops[5]->has_group);
    cr_assert_eq(ops[5]->n_group, 3);
    ds_unit_free(unit);
}

Test(parse, words_of_the_language_are_names_elsewhere) {
    ds_unit *unit =
        parse("dir 1\n"
              "param dim = 1, over = 2, to = 3, for = 4, func = 5, yield = 6, param = 7\n"
              "func @func(%for: f32[dim, over], %over: f32[to]) {\n"
              "  %to = reduce_sum(%for) dim dim over over tag to {dim = dim, to = to}\n"
              "  return %to\n}\n"
              "scenario { scenario = scenario, on = @on, func = func }\n");
    ds_unit_free(unit);
}

Test(parse, a_space_decides_about_braces) {
    ds_unit *unit =
        parse("dir 1\nfunc @f(%x: f32[2] on @m {role = weight}) -> f32[2] on @m{pp=1} {\n"
              "  %y = send(%x) to @m {cost = 3 us}\n"
              "  return %y\n}\n");
    const ds_func *f = unit->modules.at[0]->funcs.at[0];
    cr_assert_eq(ds_value_at(f, f->args[0])->n_attrs, 1);
    cr_assert_eq(f->results[0]->on.n_coords, 1);
    cr_assert_eq(f->body.ops[0]->n_attrs, 1);
    cr_assert_eq(f->body.ops[0]->attrs[0].unit, DS_UNIT_US);
    ds_unit_free(unit);
}

Test(parse, links_see_the_indices_that_follow) {
    ds_unit *unit =
        parse("dir 1\nparam n = 8\ntopology @t {\n"
              "  device a[n], b : \"V100\"\n"
              "  link a[i].p -> b : n GB/s, (n * 2) ns for i in 0..n, j in i..n where i < j\n"
              "}\n");
    const ds_topology *t = unit->modules.at[0]->topologies.at[0];
    cr_assert_str_eq(t->nodes.at[0].type_name, "V100");
    const ds_link_decl *link = &t->links.at[0];
    cr_assert_not(link->duplex);
    cr_assert_eq(link->n_loops, 2);
    cr_assert(DS_HAS_EXPR(link->where));
    cr_assert_eq(ds_expr_at(&unit->exprs, link->a[0].index)->kind, DS_EXPR_INDEX);
    cr_assert_eq(link->bandwidth.unit, DS_UNIT_GBPS);
    cr_assert_eq(link->latency.unit, DS_UNIT_NS);
    ds_unit_free(unit);
}

Test(parse, schedules) {
    ds_unit *unit =
        parse("dir 1\nschedule @s { chunks 8; place 0->0 7->1; rank 0: F0.3&B7.12 W7.1\n"
              "rank 3: R1.0 }\n");
    const ds_schedule *s = unit->modules.at[0]->schedules.at[0];
    cr_assert_eq(s->chunks, 8);
    cr_assert_eq(s->place_chunk[1], 7);
    cr_assert_eq(s->place_stage[1], 1);
    cr_assert_eq(s->ranks[0].n_items, 3);
    cr_assert(s->ranks[0].items[0].with_next);
    cr_assert_eq(s->ranks[0].items[1].kind, 'B');
    cr_assert_eq(s->ranks[0].items[1].chunk, 7);
    cr_assert_eq(s->ranks[0].items[1].microbatch, 12);
    cr_assert_eq(s->ranks[1].rank, 3);
    ds_unit_free(unit);
}

Test(parse, sibling_regions_reuse_names) {
    ds_unit *unit = parse("dir 1\nfunc @f(%x: f32[2]) {\n"
                          "  for l in 0..2 { %y = relu(%x) yield }\n"
                          "  for l in 0..2 { %y = relu(%x) yield }\n"
                          "  %o = local over (cp) (%x) -> f32[2] { %y = relu(%x) yield %y }\n"
                          "  %y = relu(%o)\n  return %y\n}\n"
                          "func @g(%x: f32[2]) { return %x }\n");
    ds_unit_free(unit);
}

Test(parse, many_values_in_linear_time) {
    ds_buf text = {0};
    ds_buf_put(&text, "dir 1\nfunc @f(%v0: f32[2]) {\n");
    const uint32_t n = 50000;
    for (uint32_t k = 1; k <= n; k++)
        ds_buf_printf(&text, "%%v%u = relu(%%v%u) // %u\n", k, k - 1, k);
    ds_buf_put(&text, "}\n");
    ds_unit *unit = parse(text.text);
    cr_assert_eq(unit->modules.at[0]->funcs.at[0]->body.n_ops, n);
    ds_unit_free(unit);
    ds_buf_deinit(&text);
}

/* ---- limits ---- */

static ds_status status_of(const char *text, size_t n, ds_error *err) {
    ds_unit *unit = ds_unit_new();
    ds_status status = ds_parse(ds_unit_add_module(unit, "t.dir", text, n), err);
    ds_unit_free(unit);
    return status;
}

static ds_status nested(const char *head, const char *open, const char *inner, const char *close,
                        uint32_t n, ds_error *err) {
    ds_buf text = {0};
    ds_buf_put(&text, head);
    for (uint32_t k = 0; k < n; k++) ds_buf_printf(&text, open, k);
    ds_buf_put(&text, inner);
    for (uint32_t k = 0; k < n; k++) ds_buf_put(&text, close);
    ds_status status = status_of(text.text, text.n, err);
    ds_buf_deinit(&text);
    return status;
}

Test(parse, nesting_has_a_limit) {
    ds_error err;
    cr_assert_eq(nested("dir 1\nparam a = ", "(", "1", ")", 190, &err), DS_OK);
    cr_assert_eq(nested("dir 1\nparam a = ", "(", "1", ")", 100000, &err), DS_ERR_LIMIT);
    cr_assert_eq(nested("dir 1\nparam a = ", "-", "1", "", 100000, &err), DS_ERR_SYNTAX); /* -- */
    cr_assert_eq(nested("dir 1\nparam a = ", "- ", "1", "", 100000, &err), DS_ERR_LIMIT);
    cr_assert_eq(nested("dir 1\nparam a = ", "not ", "1", "", 100000, &err), DS_ERR_LIMIT);
    cr_assert_eq(nested("dir 1\nscenario { a = ", "[", "1", "]", 100000, &err), DS_ERR_LIMIT);
    cr_assert_eq(nested("dir 1\nscenario { ", "a {", "", "}", 100000, &err), DS_ERR_LIMIT);
    cr_assert_eq(nested("dir 1\nfunc @f() {", "for i%u in 0..2 {", "yield", "}", 100000, &err),
                 DS_ERR_LIMIT);
    cr_assert_eq(nested("dir 1\nparam a = 1", " + 1", "", "", 100000, &err), DS_ERR_LIMIT);
    cr_assert_eq(nested("dir 1\nparam a = 1", " + 1", "", "", 1000, &err), DS_OK);
}

Test(parse, any_prefix_of_a_text_is_refused_or_read) {
    static const char text[] =
        "dir 1 // c\nparam a = 1, b = min(a, 2)\ntopology @t { device d[2] : \"x\" link d[i] -- "
        "d[1] : 3 GB/s, 1 us for i in 0..1 }\nmesh @m = [dp = 2] on @t\nfunc @f(%x: f32[a@dp]) -> "
        "f32[a] {\n %y, %z = for l in 0..2 carry (%h = %x) { yield %h keep %h } %o = local over "
        "(cp) (%x) -> f32[1] { yield %x } return %y }\nschedule @s { rank 0: F0.1&B1.2 }\nscenario "
        "{ a = 1, b { c = on @m [n: x] } }\n";
    for (size_t n = 0; n < sizeof text; n++) {
        ds_error err = {0};
        ds_status status = status_of(text, n, &err);
        cr_assert(status == DS_OK || err.loc.line > 0, "%zu bytes", n);
    }
}

/* ---- what is refused ---- */

static const struct {
    const char *text; /* after "dir 1\n" */
    const char *expected;
} refused[] = {
    {"funk @f() {}", "2:1: unknown declaration 'funk'; did you mean 'func'?"},
    {"42", "2:1: expected import, param, axis, topology, mesh, func, program, schedule, scenario, "
           "degrade or sweep, found '42'"},
    {"degrade gpu[0]",
     "2:15: expected a name of a share: compute, memory, bandwidth or latency, found the "
     "end of the file"},
    {"degrade a -- b compute 0.5", "2:24: expected '=' before the factor, found '0.5'"},
    {"degrade a -- compute = 1", "2:22: expected a name of a share: compute, memory, "
                                 "bandwidth or latency, found '='"},
    {"degrade a[i] compute = 1 for j in 0..2",
     "2:11: unknown name 'i': neither an index of this link's `for` nor a param"},
    {"scenario { a = f(b = 1, b = 2) }", "2:25: 'b' is given twice"},
    {"scenario { a = f(1) }", "2:18: expected a name or a quoted pattern before '=', found '1'"},
    {"func @f(%x: f32[2]) { %r = rec t in 0..2 { yield %x } }",
     "2:32: expected '(' before the dims, as in 'rec (t in 0..T)', found 't'"},
    {"func @f(%x: f32[2]) { %r = rec (a in 0..1, b in 0..1, c in 0..1, d in 0..1, e in 0..1, "
     "f in 0..1, g in 0..1, h in 0..1, i in 0..1) { yield %x } }",
     "2:121: a rec has at most 8 dims"},
    {"func @f(%x: f32[2]) { %r = rec (t in 0..2) { %a, %b = case t < 1: %x, else: %x yield %a } }",
     "2:55: 'case' has one result, as in %x = case …"},
    {"func @f(%x: f32[2]) { %r = rec (t in 0..2) { %a = case t < 1: %x yield %a } }",
     "2:66: expected ',' and 'else: %…' after the branch, found 'yield'"},
    {"func @f(%x: f32[2]) { %r = rec (t in 0..2, l in 0..2) { %a{t}, %b{l} = split(%x) yield %a } "
     "}",
     "2:67: the results of one op have the same dims"},
    {"param a 1", "2:9: expected '=' before the param's value, found '1'"},
    {"param a = ", "2:11: expected an expression, found the end of the file"},
    {"param a = 1, a = 2", "2:14: param 'a' is already declared on line 2"},
    {"param min = 1", "2:7: 'min' is a word of the language and cannot be declared"},
    {"param width = 1, b = widht + 1", "2:22: unknown name 'widht'; did you mean 'width'?"},
    {"param b = c", "2:11: unknown name 'c': neither a loop index nor a param declared above"},
    {"param a = 1 < 2 < 3", "2:17: comparisons do not chain; write a < b and b < c"},
    {"param a = (1 + 2", "2:17: expected ')' to close the parenthesis, found the end of the file"},
    {"param a = 9223372036854775808", "2:11: this integer is beyond 64 bits (at most 2^63 - 1)"},
    {"param a = 1e999", "2:11: this number is beyond the range of a double"},
    {"param a = \"abc\nparam b = 1", "2:11: this string has no closing '\"' on its line"},
    {"param a = \"a\\q\"", "2:11: unknown escape in a string: \\\\, \\\", \\n and \\t are known"},
    {"param a = 3 $ 4", "2:13: a param is written without '$'"},
    {"param \xc3\xa9 = 1", "2:7: unexpected byte 0xc3"},
    {"param a = 1, b = 2 %a",
     "2:20: expected an operator, found the value '%a'; for the remainder write a % a"},
    {"param a = min(1)", "2:16: expected ',' between the two arguments, found ')'"},
    {"param a = 1--2", "2:12: '--' connects the ends of a link; a double minus is written a - -b"},
    {"import pcie",
     "2:8: expected a string with the path of the import, found 'pcie'; write \"pcie\""},
    {"axis", "2:5: expected a name for the mesh axis, found the end of the file"},
    {"mesh @m = dp",
     "2:11: expected `[axis = size, …] on @topology`, `view` or `pick`, found 'dp'"},
    {"mesh m = [dp = 4] on @t",
     "2:6: expected a name like @main for the mesh, found 'm'; write @m"},
    {"mesh @m = [dp 4] on @t", "2:15: expected '=' before the axis's size, found '4'"},
    {"mesh @m = [dp = 4] @t",
     "2:20: expected 'on' and a topology after the mesh's axes, found '@t'"},
    {"topology @t { gpu[8] }",
     "2:15: expected device, switch, nic, host, node or link, found 'gpu'; devices are written "
     "device gpu[8] : \"A100-SXM4-80GB\""},
    {"topology @t { node n[2] }", "2:20: a node says which topology it is: node n : @name"},
    {"topology @t { link a -- b : 300 GBps, 1 us }",
     "2:33: unknown unit 'GBps'; did you mean 'GB/s'?"},
    {"topology @t { link a -- b : 300, 1 us }",
     "2:32: expected a unit like GB/s after the bandwidth, found ','"},
    {"topology @t { link a -- b : 300 GB/s for i in 0..8 }",
     "2:38: expected ',' before the link's latency, found 'for'"},
    {"topology @t { link a[j] -- b : 3 GB/s, 1 us for i in 0..8 }",
     "2:22: unknown name 'j': neither an index of this link's `for` nor a param"},
    {"param i = 1 topology @t { link a[i] -- b : 3 GB/s, 1 us for i in 0..8 }",
     "2:34: 'i' is a param and an index of this link; rename the index"},
    {"topology @t { link a = b : 300 GB/s, 1 us }",
     "2:22: expected '--' (both ways) or '->' (one way) between the ends of the link, found '='"},
    {"func @f(%x: f33[4]) {}", "2:13: unknown element type 'f33'; did you mean 'f32'?"},
    {"func @f(%x: f32) {}", "2:16: expected '[' before the dims of the type, found ')'; a type is "
                            "written f32[batch, width]"},
    {"func @f(x: f32[4]) {}", "2:9: expected a value like %x as an argument, found 'x'; write %x"},
    {"func @f(%x: f32[4) {}", "2:18: expected ']' after the dims of the type, found ')'"},
    {"func @f(%x: f32[1,1,1,1,1,1,1,1,1]) {}", "2:33: a type has at most 8 dims"},
    {"func @f(%x: f32[4@]) {}", "2:19: expected '(' or an axis after '@', found ']'"},
    {"func @f(%x: f32[4], %x: f32[4]) {}",
     "2:21: %x is already defined on line 2; values are defined once"},
    {"func @f(%x: f32[4] on @m on @n) { }", "2:26: a type has one `on`"},
    {"func @f(%x: f32[4] partial(dp, max, tp)) { }",
     "2:32: expected a mesh axis (the kind of reduction comes last), found 'max'"},
    {"func @f<@s>() { }",
     "2:9: expected 'mesh' or 'index' before the name of a parameter, found '@s'"},
    {"func @f(%x: f32[4]) { %y = rleu(%x) }", "2:28: unknown op 'rleu'; did you mean 'relu'?"},
    {"func @f(%x: f32[4]) { %y = relu(%xx) }", "2:33: %xx is not defined here; did you mean %x?"},
    {"func @f(%x: f32[4]) { %x = relu(%x) }",
     "2:23: %x is already defined on line 2; values are defined once"},
    {"func @f(%x: f32[4]) { %y = relu(%x) over dp over tp }", "2:50: 'over' is given twice"},
    {"func @f(%x: f32[4]) { %y = relu(%x) {a = 1, a = 2} }", "2:45: 'a' is given twice"},
    {"func @f(%x: f32[4]) { %y = return %x }", "2:28: 'return' has no results on its left"},
    {"func @f(%x: f32[4]) { %a, %b = add(%x, %x) : f32[4] }",
     "2:53: expected ',' before the type of the next result, found '}'"},
    {"func @f(%x: f32[4]) { for l in 0..3 { for l in 0..3 { yield } yield } }",
     "2:43: index 'l' is already in scope; take another name"},
    {"func @f(%x: f32[4]) { for l in 0..3 { %b = relu(%x) yield } %c = relu(%b) }",
     "2:71: %b is defined inside a region, on line 2, and ends with it; yield or keep it there"},
    {"func @f(%x: f32[4]) { for l = 0..3 { } }",
     "2:29: expected 'in' after the loop's index, found '='; a loop is written for l in 0..8"},
    {"func @f(%x: f32[4]) { for l in 3 { } }",
     "2:34: expected '..' between the ends of the range, found '{'; a range is written 0..8"},
    {"func @f(%x: f32[4]) { %o = local over cp (%x) { yield %x } }",
     "2:47: a local region gives the type of each result after '->': 1 results, 0 types"},
    {"func @f(%x: f32[4], %y: f32[4]) { %o = local over cp (%x) -> f32[4] { %z = relu(%y) } }",
     "2:81: %y is defined outside, on line 2; a local region sees only the operands that it lists"},
    {"func @f(%x: f32[4]) { %y = recv from @m : f32[4] }",
     "2:38: 'from' takes a rank; a value knows the place it comes from"},
    {"func @f(%x: f32[4]) { return %x",
     "2:21: this '{' has no '}' before the end of the file: add '}'"},
    {"program @p { func @f() { } }", "2:14: expected 'rank' or '}' in the program, found 'func'"},
    {"schedule @s { rank 0: X0.0 }",
     "2:23: expected a schedule item like F0.1 (F, B, W or R, chunk, microbatch), found 'X0'"},
    {"schedule @s { steps 4 }",
     "2:15: expected chunks, place, rank or '}' in the schedule, found 'steps'"},
    {"scenario { model @mlp }", "2:18: expected '=' before the value, found '@mlp'"},
    {"scenario { dp = 2 tp = 3 }",
     "2:19: expected ',' or a new line before the next entry, found 'tp'"},
    {"scenario { lr = widht * 2 }",
     "2:17: unknown name 'widht': neither a loop index nor a param declared above"},
    {"sweep { dp in 4 }",
     "2:17: expected '..' of the domain, found '}'; a domain is [1, 2, 4], 1..9, divisors(n) or "
     "powers_of_two(1, 8)"},
    {"sweep { dp = [1] }", "2:12: expected 'in' between the dimension and its domain, found '='; a "
                           "dimension is written dp in [1, 2, 4]"},
    {"sweep { dp in [] }", "2:15: 'dp' has no values to take"},
    {"sweep { dp in divisors(16) tp in [1] }",
     "2:28: expected ',' or a new line before the next entry, found 'tp'"},
    {"sweep { dp in divisors(wrold) }", "2:24: unknown name 'wrold'; did you mean 'world'?"},
    {"sweep { tp in [1] where tpp == 1 }", "2:25: unknown name 'tpp'; did you mean 'tp'?"},
    {"sweep { dp in [1] where fits GiB }",
     "2:19: a unit ends a comparison, as in peak_memory <= 30 GiB"},
    {"sweep { dp in powers_of_two(8) }",
     "2:30: expected ',' between the least and the greatest, found ')'"},
    {"sweep { dp in [1], subject fits }", "2:28: expected 'to' after `subject`, found 'fits'"},
};

Test(parse, refuses_with_place_and_reason) {
    for (size_t k = 0; k < sizeof refused / sizeof refused[0]; k++) {
        ds_buf text = {0}, found = {0};
        ds_error err = {0};
        ds_buf_printf(&text, "dir 1\n%s", refused[k].text);
        ds_status status = status_of(text.text, text.n, &err);
        ds_buf_printf(&found, "%u:%u: %s", err.loc.line, err.loc.col, err.message);
        cr_assert_neq(status, DS_OK, "%s", text.text);
        cr_expect_str_eq(found.text, refused[k].expected, "%s\n%s\n%s", text.text, found.text,
                         refused[k].expected);
        ds_buf_deinit(&text);
        ds_buf_deinit(&found);
    }
}

Test(parse, the_version_comes_first) {
    ds_error err;
    cr_assert_eq(status_of("", 0, &err), DS_ERR_SYNTAX);
    cr_assert_eq(status_of("// x\n\ndir 1", 11, &err), DS_OK);
    cr_assert_eq(status_of("dir 2", 5, &err), DS_ERR_UNSUPPORTED);
    cr_assert_str_eq(err.message, "language version 2 is unknown; this distsim reads version 1");
    cr_assert_eq(status_of("func @f() {}", 12, &err), DS_ERR_SYNTAX);
    cr_assert_eq(status_of("dir 1\na\0b", 9, &err), DS_ERR_SYNTAX);
    cr_assert_eq(err.loc.line, 2);
    cr_assert_eq(err.loc.col, 2);
}
