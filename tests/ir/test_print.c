/* The canonical text: the design's examples, layout, comments, and what fmt leaves alone. */
#include "ir/lang/lang.h"

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
