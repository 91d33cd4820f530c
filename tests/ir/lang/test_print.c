/* The canonical text: the design's examples, layout, comments, and what fmt leaves alone. */
#include "ir/lang/lang.h"
#include "ir/ops/ops.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <string.h>

static char *format(const char *text) {
    ds_unit *unit = ds_unit_new();
    ds_error err = {0};
    ds_buf out = {0};
    ds_module *module = ds_unit_add_module(unit, "t.dir", text, strlen(text));
    ds_status status = ds_parse(module, &err);
    cr_assert_eq(status, DS_OK, "%u:%u: %s\n%s", err.loc.line, err.loc.col, err.message, text);
    ds_print_module(module, &out);
    ds_unit_free(unit);
    return out.text;
}

static void check(const char *text, const char *expected) {
    char *once = format(text), *twice = format(once);
    cr_assert_str_eq(once, expected, "got:\n%s\nwanted:\n%s", once, expected);
    cr_assert_str_eq(twice, once, "fmt of fmt is not the identity");
    free(once);
    free(twice);
}

static void check_kept(const char *text) {
    check(text, text);
}

/* The examples of the design, as they stand there. */
Test(print, a_model) {
    check("dir 1                                                  // language version, first line\n"
          "import \"topologies/pcie-4xv100.dir\"                    // topology @box\n"
          "param layers = 16, width = 2048, batch = 4096, dp = 4  // integers\n"
          "mesh @gpus = [dp = dp] on @box                         // named axes\n"
          "\n"
          "func @mlp(%x: f32[batch@dp, width]) -> f32[batch@dp, width] {\n"
          "  %y = for l in 0..layers carry (%h = %x) {            // structured loop\n"
          "    weight %w : f32[width, width]                      // a parameter\n"
          "    %z = matmul(%h, %w)                                // result types\n"
          "    %a = relu(%z)\n"
          "    yield %a\n"
          "  }\n"
          "  return %y\n"
          "}\n"
          "scenario {\n"
          "  model = @mlp                                         // or program\n"
          "  train { loss = mse, optimizer = sgd }\n"
          "  strategy { dp = dp, tp = 1, schedule = \"1f1b\", zero = 0, recompute = \"none\" }\n"
          "  profile = \"V100-PCIE-16GB\"\n"
          "}\n",
          "dir 1  // language version, first line\n"
          "import \"topologies/pcie-4xv100.dir\"  // topology @box\n"
          "param layers = 16, width = 2048, batch = 4096, dp = 4  // integers\n"
          "mesh @gpus = [dp = dp] on @box  // named axes\n"
          "\n"
          "func @mlp(%x: f32[batch@dp, width]) -> f32[batch@dp, width] {\n"
          "  %y = for l in 0..layers carry (%h = %x) {  // structured loop\n"
          "    weight %w : f32[width, width]  // a parameter\n"
          "    %z = matmul(%h, %w)  // result types\n"
          "    %a = relu(%z)\n"
          "    yield %a\n"
          "  }\n"
          "  return %y\n"
          "}\n"
          "scenario {\n"
          "  model = @mlp  // or program\n"
          "  train { loss = mse, optimizer = sgd }\n"
          "  strategy { dp = dp, tp = 1, schedule = \"1f1b\", zero = 0, recompute = \"none\" }\n"
          "  profile = \"V100-PCIE-16GB\"\n"
          "}\n");
}

Test(print, a_pod) {
    check("dir 1\n"
          "topology @dgx {\n"
          "  device gpu[8] : \"A100-SXM4-80GB\"\n"
          "  switch nvswitch\n"
          "  nic    nic[8]\n"
          "  link gpu[i] -- nvswitch : 300 GB/s, 1.2 us for i in 0..8      // `--` full duplex\n"
          "  link gpu[i] -- nic[i] : 24 GB/s, 1 us for i in 0..8\n"
          "}\n"
          "topology @pod {\n"
          "  node n[128] : @dgx\n"
          "  switch leaf[16], spine[8]\n"
          "  link n[i].nic[j] -- leaf[i / 8] : 25 GB/s, 2 us for i in 0..128, j in 0..8\n"
          "  link leaf[i] -- spine[j] : 200 GB/s, 2 us for i in 0..16, j in 0..8\n"
          "}\n"
          "mesh @m = [pp = 16, dp = 8, tp = 8] on @pod                     // outer to inner\n",
          "dir 1\n"
          "topology @dgx {\n"
          "  device gpu[8] : \"A100-SXM4-80GB\"\n"
          "  switch nvswitch\n"
          "  nic nic[8]\n"
          "  link gpu[i] -- nvswitch : 300 GB/s, 1.2 us for i in 0..8  // `--` full duplex\n"
          "  link gpu[i] -- nic[i] : 24 GB/s, 1 us for i in 0..8\n"
          "}\n"
          "topology @pod {\n"
          "  node n[128] : @dgx\n"
          "  switch leaf[16], spine[8]\n"
          "  link n[i].nic[j] -- leaf[i / 8] : 25 GB/s, 2 us for i in 0..128, j in 0..8\n"
          "  link leaf[i] -- spine[j] : 200 GB/s, 2 us for i in 0..16, j in 0..8\n"
          "}\n"
          "mesh @m = [pp = 16, dp = 8, tp = 8] on @pod  // outer to inner\n");
}

Test(print, a_distributed_program) {
    check_kept(
        "dir 1\n"
        "func @main<mesh @m>(%x0: f32[4], %w0: f32[4], %dw: f32[8] partial(dp), %y: f32[2]) {\n"
        "  %a0 = matmul(%x0, %w0) : f32[16, 1024] on @box.gpu[0]\n"
        "  %a1 = send(%a0) to @box.gpu[1]\n"
        "  %g = all_reduce(%dw) over dp {algorithm = \"ring\"}  // partial(dp)\n"
        "  %h = all_gather(%w0) over tp dim 1\n"
        "  %z = call @stage<@m{pp=1}>(%y, %w0)\n"
        "  %g0, %g1 = all_reduce(%a0, %a1) across\n"
        "  %t = all_to_all(%h) over (dp, tp) dim 0 -> 1\n"
        "  return\n"
        "}\n");
}

Test(print, families_and_local_regions) {
    check_kept("dir 1\n"
               "param layers = 4\n"
               "func @f(%s{l: 0..layers}: f32[l + 1], %q: f32[2]) -> {l: 0..layers} f32[2] {\n"
               "  %h, %zs = for l in 0..layers carry (%c: f32[2] = %q) {\n"
               "    %a = add(%c, %s{layers - 1 - l})\n"
               "    yield %a keep %a\n"
               "  } {name = \"loop\"} : f32[2], f32[2]\n"
               "  %k = concat(%zs{0:layers})\n"
               "  %o = local over (cp) (%h, %k) -> f32[2] {\n"
               "    %r = slice(%h) dim axis_index(cp)\n"
               "    yield %r\n"
               "  }\n"
               "  %b, %d = local over (cp, tp) (%o) -> (f32[2], f32[2]) {\n"
               "    yield %o, %o\n"
               "  }\n"
               "  %ps = for m in 0..2 {\n"
               "    %t = relu(%b)\n"
               "    yield keep %t\n"
               "  }\n"
               "  return %zs\n"
               "}\n");
}

Test(print, recs) {
    check_kept("dir 1\n"
               "param T = 4\n"
               "func @f(%x: f32[2]) -> {t: 0..T} f32[2] {\n"
               "  %r, %s = rec (t in 0..T, l in 1..3) {name = \"r\"} {\n"
               "    // what comes before\n"
               "    %a = case t == 0 and l < 2: %x, else: %b{max(0, t - 1):t + 1, l} : f32[2]\n"
               "    weight %w{l} : f32[2]\n"
               "    %c{t, l}, %d{t, l} = split(%b) {dim = 0} : f32[1], f32[1]\n"
               "    %b = mul(%a, %w)\n"
               "    yield %b{t, 1}, %c\n"
               "  } : f32[2], f32[1]\n"
               "  return %r\n"
               "}\n");
}

Test(print, per_rank_programs_and_schedules) {
    check_kept("dir 1\n"
               "program @p {\n"
               "  rank 0 (%x: f32[4]) {\n"
               "    send(%x) to 1 tag 7\n"
               "    %g = all_reduce(%x) group (0, 1, 2, 3)\n"
               "  }\n"
               "\n"
               "  // the other one\n"
               "  rank 1 {\n"
               "    %y = recv from 0 tag 7 : f32[4]\n"
               "    return %y\n"
               "  }\n"
               "}\n"
               "schedule @s {\n"
               "  chunks 8\n"
               "  place 0->0 1->1 2->1 3->0\n"
               "  rank 0: F0.0 F0.1 B7.0 W7.0 F0.3&B7.1\n"
               "  rank 1:\n"
               "}\n");
}

Test(print, meshes_and_imports) {
    check_kept("dir 1\n"
               "import \"m.dir\" as g with layers = 96, width = 10\n"
               "axis x\n"
               "mesh @t = [dp = 4] on @box order (0, 2, 1, 3)\n"
               "mesh @v = view @g.m [x = 4, y = 8]\n"
               "mesh @s = pick 0..27 of @t [x = 3, y = 9]\n");
}

Test(print, comments_inside_an_op_move_before_it) {
    check("dir 1\nfunc @f(%x: f32[2], // arg\n  %y: f32[2]) { // open\n"
          "  // first\n\n\n  %z = add(%x, // left\n    %y // right\n  )\n  : f32[2] // tail\n"
          "  // last\n} // end\n// file\n",
          "dir 1\n// arg\nfunc @f(%x: f32[2], %y: f32[2]) {  // open\n"
          "  // first\n\n  // left\n  // right\n  %z = add(%x, %y) : f32[2]  // tail\n"
          "  // last\n}  // end\n// file\n");
}

Test(print, blank_lines) {
    check("\n\n// a\n\n\n\n// b\n\ndir 1\n\n\n\nparam a = 1\nparam b = 2\n\n//\n//   \n\nparam c = "
          "3\n\n\n",
          "// a\n\n// b\n\ndir 1\n\nparam a = 1\nparam b = 2\n\n//\n//\n\nparam c = 3\n");
    check("dir 1\nfunc @f() {\n\n\n  return\n\n\n}\nfunc @g() {\n\n}\nfunc @h() {\n\n  // c\n\n}\n",
          "dir 1\nfunc @f() {\n  return\n}\nfunc @g() {\n}\nfunc @h() {\n  // c\n}\n");
}

Test(print, blocks_keep_their_layout) {
    check("dir 1\nscenario {\n  a { b = 1\n c = 2 }\n  d {\n    e = 1, f = 2 }\n  g { }\n  h { i = "
          "1 // x\n }\n"
          "  j = [1,2,[ ] ] , k = {l = {m = 1}}\n}\n",
          "dir 1\nscenario {\n  a { b = 1, c = 2 }\n  d {\n    e = 1\n    f = 2\n  }\n  g {}\n"
          "  h {\n    i = 1  // x\n  }\n  j = [1, 2, []]\n  k { l { m = 1 } }\n}\n");
}

Test(print, line_ends_and_tabs) {
    check("dir 1\r\nparam\ta\t=\t1 // x \t\r\n\r\n\t// y\r\nparam b = \"\\t\\n\\\"\\\\\"\r\n",
          "dir 1\nparam a = 1  // x\n\n// y\nparam b = \"\\t\\n\\\"\\\\\"\n");
}

Test(print, expressions_with_the_fewest_parentheses) {
    check(
        "dir 1\nparam a = 1, b = ((a)) + (2 * (3)), c = (a + 2) * 3, d = a - (2 - 3), e = (a - 2) "
        "- 3\n"
        "param f = -(a), g = -(a + 1), h = not (a == 1) and (a < 2 or a > 3), i = a%3, j = 1.50\n",
        "dir 1\nparam a = 1, b = a + 2 * 3, c = (a + 2) * 3, d = a - (2 - 3), e = a - 2 - 3\n"
        "param f = -a, g = -(a + 1), h = not (a == 1) and (a < 2 or a > 3), i = a % 3, j = 1.50\n");
}

Test(print, op_heads_are_short) {
    static const char text[] = "dir 1\nfunc @f(%x: f32[2]) {\n  // c\n  %y = all_reduce(%x) over "
                               "dp {name = \"a\"} : f32[2]\n"
                               "  %z = for l in 0..2 carry (%h: f32[2] = %y) { yield %h }\n}\n";
    ds_unit *unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(unit, "t.dir", text, strlen(text));
    cr_assert_eq(ds_parse(module, NULL), DS_OK);
    const ds_func *f = module->funcs.at[0];
    ds_buf out = {0};
    ds_print_op_head(f, f->body.ops[0], &out);
    ds_buf_put(&out, "\n");
    ds_print_op_head(f, f->body.ops[1], &out);
    cr_assert_str_eq(out.text, "%y = all_reduce(%x) over dp\n%z = for l in 0..2 carry (%h = %y)");
    ds_buf_deinit(&out);
    ds_unit_free(unit);
}

/* ---- modules that no text was read for ---- */

typedef struct maker {
    ds_unit *unit;
    ds_module *module;
    ds_func *func;
} maker;

static const char *intern(maker *m, const char *text) {
    return ds_intern(&m->unit->strings, text);
}

static ds_expr number(maker *m, int64_t value) {
    return ds_expr_int(&m->unit->exprs, value);
}

static void add_item(maker *m, ds_item_kind kind, uint32_t index) {
    DS_PUSH(&m->unit->arena, &m->module->items, ((ds_item){kind, index}));
}

static ds_value add_value(maker *m, ds_value_info info, const char *name) {
    info.name = intern(m, name);
    DS_PUSH(&m->unit->arena, &m->func->values, info);
    return (ds_value){m->func->values.n - 1};
}

/* f32[size] or f32[size@axis] */
static ds_type *vector(maker *m, ds_expr size, const char *axis) {
    ds_type *type = DS_NEW(&m->unit->arena, ds_type);
    *type = (ds_type){.dtype = DS_F32, .rank = 1, .dims = DS_NEW(&m->unit->arena, ds_dim)};
    *type->dims = (ds_dim){.size = size};
    if (!axis) return type;
    type->dims->splits = DS_NEW(&m->unit->arena, ds_split);
    *type->dims->splits = (ds_split){.axis = intern(m, axis)};
    type->dims->n_splits = 1;
    return type;
}

static ds_op *make_op(maker *m, ds_block *block, ds_opcode code, const ds_use *in, uint32_t n_in,
                      const ds_value *out, uint32_t n_out) {
    ds_arena *arena = &m->unit->arena;
    ds_op *op = DS_NEW(arena, ds_op);
    *op = (ds_op){.code = code, .n_in = n_in, .n_out = n_out};
    op->in = DS_NEW_N(arena, ds_use, n_in + 1);
    op->out = DS_NEW_N(arena, ds_value, n_out + 1);
    for (uint32_t i = 0; i < n_in; i++) op->in[i] = in[i];
    for (uint32_t i = 0; i < n_out; i++) op->out[i] = out[i];
    ds_op **ops = DS_NEW_N(arena, ds_op *, block->n_ops + 1);
    for (uint32_t i = 0; i < block->n_ops; i++) ops[i] = block->ops[i];
    ops[block->n_ops++] = op;
    block->ops = ops;
    return op;
}

/* %v{index} */
static ds_use element(maker *m, ds_value value, ds_expr index) {
    ds_use use = {.value = value, .index = DS_NEW(&m->unit->arena, ds_expr), .n_index = 1};
    *use.index = index;
    return use;
}

static ds_attr word(maker *m, const char *name, const char *text) {
    return (ds_attr){.name = intern(m, name), .kind = DS_ATTR_WORD, .word = intern(m, text)};
}

static void make_declarations(maker *m) {
    ds_arena *arena = &m->unit->arena;
    DS_PUSH(arena, &m->module->params,
            ((ds_param){.name = intern(m, "weight"), .init = number(m, 4), .group = 1}));
    DS_PUSH(arena, &m->module->params,
            ((ds_param){.name = intern(m, "shift"), .init = number(m, -3), .group = 2}));
    add_item(m, DS_ITEM_PARAMS, 0);
    add_item(m, DS_ITEM_PARAMS, 1);
}

/* A block and a list are among its entries. */
static void make_scenario(maker *m) {
    ds_arena *arena = &m->unit->arena;
    ds_attr *entries = DS_NEW_N(arena, ds_attr, 4);
    entries[0] = (ds_attr){.name = intern(m, "model"), .kind = DS_ATTR_PLACE};
    entries[0].place = (ds_place){.kind = DS_PLACE_MESH, .name = intern(m, "step")};
    entries[1] = (ds_attr){.name = intern(m, "train"), .kind = DS_ATTR_BLOCK, .n_items = 2};
    entries[1].items = DS_NEW_N(arena, ds_attr, 2);
    entries[1].items[0] = word(m, "loss", "mse");
    entries[1].items[1] = (ds_attr){.name = intern(m, "lr"), .kind = DS_ATTR_EXPR};
    entries[1].items[1].expr =
        ds_expr_make(&m->unit->exprs, (ds_expr_node){.kind = DS_EXPR_REAL, .r = 1e-3});
    entries[2] = (ds_attr){.name = intern(m, "profiles"), .kind = DS_ATTR_LIST, .n_items = 2};
    entries[2].items = DS_NEW_N(arena, ds_attr, 2);
    entries[2].items[0] = word(m, "", "a");
    entries[2].items[1] = word(m, "", "weight");
    entries[2].items[0].name = entries[2].items[1].name = NULL;
    entries[3] = (ds_attr){.name = intern(m, "batch"), .kind = DS_ATTR_EXPR, .expr = number(m, 8)};
    DS_PUSH(arena, &m->module->scenarios, ((ds_scenario){.entries = entries, .n_entries = 4}));
    add_item(m, DS_ITEM_SCENARIO, 0);
}

/* A loop over a family of weights that keeps its carries, and a value without a type. */
static void make_step(maker *m) {
    ds_arena *arena = &m->unit->arena;
    ds_func *func = m->func = DS_NEW(arena, ds_func);
    *func = (ds_func){.name = intern(m, "step"), .module = m->module, .rank = -1};
    ds_expr width = number(m, 6), layers = number(m, 4);
    ds_binder *binder = DS_NEW(arena, ds_binder);
    *binder = (ds_binder){.name = intern(m, "l"), .lo = number(m, 0), .hi = layers};
    ds_attr *role = DS_NEW(arena, ds_attr);
    *role = word(m, "role", "weight");
    ds_value x = add_value(
        m, (ds_value_info){.type = vector(m, width, "dp"), .type_written = true, .is_arg = true},
        "x");
    ds_value w = add_value(m,
                           (ds_value_info){.type = vector(m, width, NULL),
                                           .type_written = true,
                                           .is_arg = true,
                                           .binders = binder,
                                           .n_binders = 1,
                                           .attrs = role,
                                           .n_attrs = 1},
                           "net.w");
    func->args = DS_NEW_N(arena, ds_value, 2);
    func->args[0] = x;
    func->args[1] = w;
    func->n_args = 2;
    ds_value h = add_value(m, (ds_value_info){.is_arg = true}, "h");
    ds_value y = add_value(m, (ds_value_info){0}, "y");
    ds_value kept = add_value(m, (ds_value_info){0}, "h.kept");
    ds_value s = add_value(m, (ds_value_info){0}, "s"), z = add_value(m, (ds_value_info){0}, "z");
    ds_use initial = {.value = x};
    ds_op *loop = make_op(m, &func->body, DS_OP_FOR, &initial, 1, (ds_value[]){y, kept}, 2);
    loop->index = binder->name;
    loop->lo = binder->lo;
    loop->hi = binder->hi;
    loop->args = DS_NEW(arena, ds_value);
    *loop->args = h;
    loop->n_args = 1;
    loop->body = DS_NEW(arena, ds_block);
    *loop->body = (ds_block){0};
    ds_expr at = ds_expr_index(&m->unit->exprs, binder->name);
    ds_use terms[2] = {{.value = h}, element(m, w, at)};
    ds_op *add = make_op(m, loop->body, DS_OP_ADD, terms, 2, &s, 1);
    add->attrs = role;
    add->n_attrs = 1;
    ds_use yielded[2] = {{.value = s}, {.value = h}};
    make_op(m, loop->body, DS_OP_YIELD, yielded, 2, NULL, 0)->n_keep = 1;
    ds_expr last = number(m, 3);
    ds_use sum[2] = {{.value = y}, element(m, kept, last)};
    make_op(m, &func->body, DS_OP_ADD, sum, 2, &z, 1);
    ds_use result = {.value = z};
    make_op(m, &func->body, DS_OP_RETURN, &result, 1, NULL, 0);
    func->results = DS_NEW(arena, ds_type *);
    *func->results = vector(m, width, NULL);
    func->n_results = 1;
    DS_PUSH(arena, &m->module->funcs, func);
    add_item(m, DS_ITEM_FUNC, 0);
}

/* Nothing in it has a place in a text, and the role's word is a param's name. */
Test(print, a_module_made_in_memory) {
    maker m = {.unit = ds_unit_new()};
    m.module = ds_unit_add_module(m.unit, "made", NULL, 0);
    m.module->version = 1;
    make_declarations(&m);
    make_step(&m);
    make_scenario(&m);
    ds_buf untyped = {0}, typed = {0};
    ds_print_module(m.module, &untyped);
    check_kept(untyped.text);
    ds_diags diags;
    ds_diags_init(&diags);
    cr_assert_eq(ds_verify(m.unit, &diags), DS_OK, "%s",
                 diags.all.n ? diags.all.at[0].message : "");
    ds_print_module(m.module, &typed);
    check(typed.text,
          "dir 1\n"
          "param weight = 4\n"
          "param shift = -3\n"
          "func @step(%x: f32[6@dp], %net.w{l: 0..4}: f32[6] {role = \"weight\"}) -> f32[6] {\n"
          "  %y, %h.kept = for l in 0..4 carry (%h: f32[6] = %x) {\n"
          "    %s = add(%h, %net.w{l}) {role = \"weight\"} : f32[6]\n"
          "    yield %s keep %h\n"
          "  } : f32[6], f32[6]\n"
          "  %z = add(%y, %h.kept{3}) : f32[6]\n"
          "  return %z\n"
          "}\n"
          "scenario {\n"
          "  model = @step\n"
          "  train { loss = mse, lr = 0.001 }\n"
          "  profiles = [a, \"weight\"]\n"
          "  batch = 8\n"
          "}\n");
    ds_diags_deinit(&diags);
    ds_buf_deinit(&untyped);
    ds_buf_deinit(&typed);
    ds_unit_free(m.unit);
}

/* A wrong module without text: its findings print, whatever line they claim. */
Test(print, diagnostics_without_text) {
    maker m = {.unit = ds_unit_new()};
    m.module = ds_unit_add_module(m.unit, "made", "", 0);
    m.module->version = 1;
    make_step(&m);
    make_scenario(&m);
    *m.module->funcs.at[0]->results = vector(&m, number(&m, 7), NULL);
    m.module->funcs.at[0]->body.ops[2]->in[0].loc = (ds_loc){m.module->path, 7, 3, 2};
    ds_diags diags;
    ds_diags_init(&diags);
    cr_assert_eq(ds_verify(m.unit, &diags), DS_ERR_TYPE);
    ds_buf out = {0};
    for (uint32_t i = 0; i < diags.all.n; i++) ds_diag_print(m.unit, &diags.all.at[i], &out);
    cr_assert_str_eq(out.text, "made:7:3: error: %z is f32[6], but @step declares f32[7]\n");
    out.n = 0;
    m.module->text = NULL;
    ds_error err;
    ds_error_set(&err, DS_ERR_TYPE, (ds_loc){m.module->path, 1, 1, 1}, "wrong");
    ds_error_print(m.unit, &err, &out);
    cr_assert_str_eq(out.text, "made:1:1: error: wrong\n");
    ds_diags_deinit(&diags);
    ds_buf_deinit(&out);
    ds_unit_free(m.unit);
}
