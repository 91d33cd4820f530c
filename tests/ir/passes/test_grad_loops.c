/* Gradients through loops and families: against differences of the loss, and the text they become.
 */
#include "tests/support/step.h"

#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCENARIO "scenario { model = @f, train { loss = none, optimizer = none } }\n"

static void expect(const char *params, const char *args, const char *lines) {
    char text[4096];
    snprintf(text, sizeof text, "dir 1\n%s\nfunc @f(%s) -> f32[] {\n%s\n  return %%loss\n}\n%s",
             params, args, lines, SCENARIO);
    step_expect_gradients(text, NULL);
}

#define LAYERS "param layers = 3"

Test(grad_loops, a_weight_a_turn) {
    expect(LAYERS, "%x: f32[2, 4], %t: f32[2, 4]",
           "%y = for l in 0..layers carry (%h = %x) {\n  weight %w : f32[4, 4]\n"
           "  weight %b : f32[4]\n  %z = matmul(%h, %w)\n  %c = bias(%z, %b)\n  %a = tanh(%c)\n"
           "  yield %a\n}\n%loss = mse(%y, %t)");
    expect(LAYERS, "%x: f32[2, 4], %t: f32[2, 4]", /* a range that does not start at 0 */
           "%y = for l in 1..layers carry (%h = %x) {\n  weight %w : f32[4, 4]\n"
           "  %z = matmul(%h, %w)\n  %s = scale(%z) {factor = 1.0 / l}\n  %a = tanh(%s)\n"
           "  yield %a\n}\n%loss = mse(%y, %t)");
}

Test(grad_loops, tied_weights) {
    expect(LAYERS, "%x: f32[2, 4], %t: f32[2, 4]", /* in the loop alone */
           "weight %w : f32[4, 4]\n%y = for l in 0..layers carry (%h = %x) {\n"
           "  %z = matmul(%h, %w)\n  %a = tanh(%z)\n  yield %a\n}\n%loss = mse(%y, %t)");
    expect(LAYERS, "%x: f32[2, 4], %t: f32[2, 4]", /* before, in and after it */
           "weight %w : f32[4, 4]\n%i = matmul(%x, %w)\n%y = for l in 0..layers carry (%h = %i) {\n"
           "  %z = matmul(%h, %w)\n  %a = tanh(%z)\n  yield %a\n}\n%o = matmul(%y, %w)\n"
           "%loss = mse(%o, %t)");
    expect("", "%i: i32[3]", /* the table of words, read both ways */
           "weight %e : f32[5, 4]\n%x = embedding(%i, %e)\n%h = tanh(%x)\n"
           "%y = matmul(%h, %e) {transpose_b = true}\n%loss = cross_entropy(%y, %i)");
}

Test(grad_loops, nested) {
    expect("param layers = 2, inner = 3", "%x: f32[2, 4], %t: f32[2, 4]",
           "weight %all : f32[4]\n%y = for l in 0..layers carry (%h = %x) {\n"
           "  weight %once : f32[4, 4]\n  %g = for m in 0..inner carry (%k = %h) {\n"
           "    weight %w : f32[4, 4]\n    %z = matmul(%k, %w)\n    %q = matmul(%z, %once)\n"
           "    %p = bias(%q, %all)\n    %a = tanh(%p)\n    yield %a\n  }\n"
           "  %s = add(%g, %h)\n  yield %s\n}\n%loss = mse(%y, %t)");
    expect("param layers = 3", "%x: f32[2, 4], %t: f32[2, 4]", /* inner bounds that move */
           "%y = for l in 0..layers carry (%h = %x) {\n"
           "  %g = for m in l..layers carry (%k = %h) {\n    weight %w : f32[4, 4]\n"
           "    %z = matmul(%k, %w)\n    %a = tanh(%z)\n    yield %a\n  }\n  yield %g\n}\n"
           "%loss = mse(%y, %t)");
}

Test(grad_loops, several_carries_and_a_loss_that_is_carried) {
    expect(LAYERS, "%x: f32[2, 4], %t: f32[2, 4]",
           "weight %s : f32[2, 4]\n%z0 = zeros() : f32[]\n"
           "%y, %u, %aux = for l in 0..layers carry (%h = %x, %k = %s, %sum = %z0) {\n"
           "  weight %w : f32[4, 4]\n  %z = matmul(%h, %w)\n  %a = add(%z, %k)\n"
           "  %b = tanh(%a)\n  %q = mul(%b, %b)\n  %m = reduce_mean(%q)\n"
           "  %n = add(%sum, %m)\n  yield %b, %h, %n\n}\n%v = add(%y, %u)\n%e = mse(%v, %t)\n"
           "%g = scale(%aux) {factor = 0.1}\n%loss = add(%e, %g)");
}

Test(grad_loops, types_that_move_with_the_index) {
    expect(LAYERS, "%x: f32[2, 1], %t: f32[2, 4]",
           "%y = for l in 0..layers carry (%h: f32[2, l + 1] = %x) {\n"
           "  weight %w : f32[l + 1, l + 2]\n  %z = matmul(%h, %w)\n  %a = tanh(%z)\n"
           "  yield %a\n}\n%loss = mse(%y, %t)");
}

/* Families that the model keeps and reads again. */
#define KEEPS                                                                                      \
    "%y, %s = for l in 0..layers carry (%h = %x) {\n  weight %w : f32[4, 4]\n"                     \
    "  %z = matmul(%h, %w)\n  %a = tanh(%z)\n  yield %a keep %a\n}\n"

Test(grad_loops, kept_families) {
    const char *const args = "%x: f32[2, 4], %t: f32[2, 4]";
    expect(LAYERS, args, KEEPS "%loss = mse(%s{layers - 1}, %t)");
    expect(LAYERS, args, KEEPS "%p = mul(%s{0}, %s{1})\n%q = add(%p, %y)\n%loss = mse(%q, %t)");
    expect(LAYERS, args, /* skips, from the inside out */
           KEEPS "%u = for l in 0..layers carry (%h = %y) {\n  weight %v : f32[4, 4]\n"
                 "  %z = matmul(%h, %v)\n  %b = add(%z, %s{layers - 1 - l})\n  %a = tanh(%b)\n"
                 "  yield %a\n}\n%loss = mse(%u, %t)");
    expect(LAYERS, args, /* some of them, shifted */
           KEEPS "%u = for i in 0..layers - 1 carry (%h = %y) {\n"
                 "  %b = mul(%h, %s{i + 1})\n  yield %b\n}\n%loss = mse(%u, %t)");
    expect(LAYERS, "%x: f32[2, 4], %t: f32[6, 4]",
           KEEPS "%c = reshape(%s{0:layers}) {shape = [6, 4]}\n%loss = mse(%c, %t)");
    expect(LAYERS, "%x: f32[2, 4], %t: f32[2, 4]",
           KEEPS "%c = reduce_sum(%s{1:layers}) {dims = 0}\n%loss = mse(%c, %t)");
}

Test(grad_loops, families_of_families) {
    expect("param layers = 2, inner = 3", "%x: f32[2, 4], %t: f32[2, 4]",
           "%y, %s = for l in 0..layers carry (%h = %x) {\n"
           "  %g, %k = for m in 0..inner carry (%i = %h) {\n    weight %w : f32[4, 4]\n"
           "    %z = matmul(%i, %w)\n    %a = tanh(%z)\n    yield %a keep %a\n  }\n"
           "  yield %g keep %k\n}\n"
           "%u = for l in 0..layers carry (%h = %y) {\n"
           "  %g = for m in 0..inner carry (%i = %h) {\n"
           "    %z = mul(%i, %s{l, inner - 1 - m})\n    yield %z\n  }\n  yield %g\n}\n"
           "%v = add(%u, %s{1, 0})\n%loss = mse(%v, %t)");
}

/* Calls in loops, as models are written. */
Test(grad_loops, calls) {
    step_expect_gradients(
        "dir 1\nparam layers = 2\n"
        "func @block(%x: f32[2, 3, 4]) -> f32[2, 3, 4] {\n  weight %g : f32[4]\n"
        "  weight %w1 : f32[4, 6]\n  weight %w2 : f32[6, 4]\n  %n = rms_norm(%x, %g)\n"
        "  %h = matmul(%n, %w1)\n  %a = silu(%h)\n  %o = matmul(%a, %w2)\n"
        "  %d = dropout(%o) {p = 0.3}\n  %y = add(%x, %d)\n  return %y\n}\n"
        "func @f(%i: i32[2, 3]) -> f32[] {\n  weight %e : f32[5, 4]\n  %x = embedding(%i, %e)\n"
        "  %y = for l in 0..layers carry (%h = %x) {\n    %a = call @block(%h)\n"
        "    %b = call @block(%a)\n    yield %b\n  }\n"
        "  %z = matmul(%y, %e) {transpose_b = true}\n  %loss = cross_entropy(%z, %i)\n"
        "  return %loss\n}\n" SCENARIO,
        NULL);
}

/* What does not reach a weight, or the loss, has no backward. */
Test(grad_loops, only_what_is_needed) {
    step_case c;
    step_make(&c,
              "dir 1\nfunc @f(%x: f32[2, 4], %t: f32[2, 4]) -> (f32[], f32[2, 4]) {\n"
              "  weight %w : f32[4, 4]\n  weight %idle : f32[4]\n  %g = gelu(%x)\n"
              "  %z = matmul(%g, %w)\n  %side = sigmoid(%z)\n  %loss = mse(%z, %t)\n"
              "  return %loss, %side\n}\n" SCENARIO,
              NULL, DS_PASS_GRAD);
    cr_assert_eq(c.status, DS_OK);
    cr_assert_null(step_find(&c, "g.dx"));
    cr_assert_null(step_find(&c, "side.dx"));
    cr_assert_null(step_find(&c, "z.dx"), "x needs no gradient");
    cr_assert_eq(c.step->func->n_results, 4);
    cr_assert_eq(c.step->weights.at[0].grad_result, 2);
    ds_exec_result *result = step_run(&c, 1, NULL, 0);
    const ds_exec_tensor *idle = ds_exec_output(result, "idle.grad");
    for (int i = 0; i < 4; i++) cr_assert_eq(idle->at[i], 0, "no use, no gradient");
    ds_exec_result_free(result);
    step_free(&c);
}

/* Factor letters, names, hints, and the one op a weight that is marked. */
Test(grad_loops, text) {
    step_case c;
    step_make(&c,
              "dir 1\nparam layers = 3\n"
              "func @f(%x: f32[8@dp, 4], %t: f32[8@dp, 4]) -> f32[] {\n"
              "  %y = for l in 0..layers carry (%h = %x) {\n    weight %w : f32[4, 4@tp]\n"
              "    %z = matmul(%h, %w) {name = \"fc1\"}\n    %a = relu(%z)\n    yield %a\n  }\n"
              "  %loss = mse(%y, %t)\n  return %loss\n}\n" SCENARIO,
              NULL, DS_PASS_GRAD);
    cr_assert_eq(c.status, DS_OK);
    char *text = step_text(&c);
    cr_assert(strstr(text, "%w.grad = for l in 0..layers {\n    yield keep %w.grad.rev{layers - 1 "
                           "- l}"),
              "%s", text);
    cr_assert(strstr(text, "k n -> "), "%s", text);
    free(text);
    const ds_op *dw = step_find(&c, "z.dw");
    const ds_attr *role = ds_attr_find(dw->attrs, dw->n_attrs, "role");
    const ds_attr *name = ds_attr_find(dw->attrs, dw->n_attrs, "name");
    cr_assert_str_eq(ds_attr_text(&c.step->unit->exprs, role), "gradient");
    cr_assert_str_eq(ds_attr_text(&c.step->unit->exprs, name), "fc1.dw");
    const ds_type *type = ds_value_at(c.step->func, dw->out[0])->type;
    cr_assert_eq(type->dims[1].n_splits, 1, "the weight's hint");
    cr_assert_null(
        ds_attr_find(step_find(&c, "z.dx")->attrs, step_find(&c, "z.dx")->n_attrs, "role"));
    step_free(&c);
}
