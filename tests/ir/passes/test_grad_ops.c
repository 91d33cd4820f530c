/* The gradient of every op family: as the pass writes it, against differences of the loss. */
#include "tests/support/elementwise.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* A model of these arguments with these lines; the last line makes %y, whose elements are weighted
 * (so that no gradient is 1 by chance) and summed: `shape` is %y's. */
static void expect(const char *args, const char *lines, const char *shape) {
    char text[4096];
    snprintf(text, sizeof text,
             "dir 1\nparam n = 2\nfunc @f(%s%s%%r: f32[%s]) -> f32[] {\n%s\n"
             "  %%yr = mul(%%y, %%r)\n  %%loss = reduce_sum(%%yr)\n  return %%loss\n}\n"
             "scenario { model = @f, train { loss = none, optimizer = none } }\n",
             args, args[0] ? ", " : "", shape, lines);
    step_expect_gradients(text, NULL);
}

static void expect_loss(const char *args, const char *lines) {
    char text[4096];
    snprintf(text, sizeof text,
             "dir 1\nparam n = 2\nfunc @f(%s) -> f32[] {\n%s\n  return %%loss\n}\n"
             "scenario { model = @f, train { loss = none, optimizer = none } }\n",
             args, lines);
    step_expect_gradients(text, NULL);
}

Test(grad_ops, products) {
    expect("%x: f32[3, 4]", "weight %w : f32[4, 5]\n%y = matmul(%x, %w)", "3, 5");
    expect("%x: f32[2, 3, 4]", "weight %w : f32[4, 5]\n%y = matmul(%x, %w)", "2, 3, 5");
    expect("", "weight %a : f32[3, 4]\nweight %b : f32[4, 5]\n%y = matmul(%a, %b)", "3, 5");
    expect("",
           "weight %a : f32[4, 3]\nweight %b : f32[5, 4]\n"
           "%y = matmul(%a, %b) {transpose_a = true, transpose_b = true}",
           "3, 5");
    expect("", "weight %a : f32[2, 3, 4]\nweight %b : f32[2, 4, 5]\n%y = matmul(%a, %b)",
           "2, 3, 5");
    expect("",
           "weight %a : f32[2, 3, 4]\nweight %b : f32[2, 5, 4]\n"
           "%y = matmul(%a, %b) {transpose_b = true}",
           "2, 3, 5");
    expect("",
           "weight %a : f32[2, 3, 4]\nweight %b : f32[5, 4]\nweight %c : f32[2, 5]\n"
           "%y = einsum(%a, %b, %c) {rule = \"b s k, n k, b n -> b n s\"}",
           "2, 5, 3");
    expect("",
           "weight %a : f32[2, 3, 4]\nweight %b : f32[3]\n"
           "%y = einsum(%a, %b) {rule = \"b s k, s -> s b\"}",
           "3, 2");
    expect("", "weight %a : f32[3, 4]\n%y = einsum(%a) {rule = \"b k -> k\"}", "4");
    expect("", "weight %a : f32[3, 4]\n%y = matmul(%a, %a) {transpose_b = true}", "3, 3");
}

Test(grad_ops, sums_and_products_with_broadcasting) {
    const char *const ops[] = {"add", "sub", "mul", "div"};
    for (int i = 0; i < 4; i++) {
        char lines[512];
        snprintf(lines, sizeof lines,
                 "weight %%a : f32[2, 3, 4]\nweight %%b : f32[2, 3, 4]\nweight %%c : f32[4]\n"
                 "weight %%d : f32[3, 1]\nweight %%e : f32[]\n%%c2 = exp(%%c)\n%%d2 = exp(%%d)\n"
                 "%%b2 = exp(%%b)\n%%e2 = exp(%%e)\n"
                 "%%p = %s(%%a, %%b2)\n%%q = %s(%%p, %%c2)\n%%s = %s(%%q, %%d2)\n"
                 "%%y = %s(%%s, %%e2)",
                 ops[i], ops[i], ops[i], ops[i]);
        expect("", lines, "2, 3, 4");
    }
    expect("", "weight %a : f32[2, 3]\n%s = add(%a, %a)\n%y = mul(%s, %s)", "2, 3");
    expect("", "weight %a : f32[2, 3]\nweight %b : f32[3]\n%y = bias(%a, %b)", "2, 3");
    expect("", "weight %a : f32[2, 3, 4, 2]\nweight %b : f32[3]\n%y = bias(%a, %b) {dim = 1}",
           "2, 3, 4, 2");
}

/* Plain elementwise ops at numbers of both signs and at positive ones: log and sqrt have no others.
 */
Test(grad_ops, functions_of_one_operand) {
    uint32_t n = 0;
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        const ds_op_desc *desc = ds_op_desc_of(code);
        if (!desc->vjp || plain_operands(desc) != 1) continue;
        char lines[256];
        snprintf(lines, sizeof lines,
                 "weight %%w : f32[3, 4]\n%%e = exp(%%w)\n%%f = add(%%e, %%e)\n%%y = %s(%%f)",
                 desc->name);
        expect("", lines, "3, 4");
        n++;
        if (code == DS_OP_LOG || code == DS_OP_SQRT) continue;
        snprintf(lines, sizeof lines, "weight %%w : f32[3, 4]\n%%y = %s(%%w)", desc->name);
        expect("", lines, "3, 4");
    }
    cr_expect_geq(n, 10);
    expect("", "weight %w : f32[3, 4]\n%y = scale(%w) {factor = n + 0.5}", "3, 4");
    expect("", "weight %w : f32[3, 4]\n%y = dropout(%w) {p = 0.4}", "3, 4");
    expect("",
           "weight %w : f32[3, 4]\n%h = cast(%w) {dtype = f64}\n%t = tanh(%h)\n"
           "%y = cast(%t) {dtype = f32}",
           "3, 4");
    expect("%z: f32[3, 4]", "weight %w : f32[3, 4]\n%y = after(%w, %z)", "3, 4");
    expect("", "weight %w : f32[3, 4]\nweight %u : f32[3, 4]\n%y = accumulate(%w, %u)", "3, 4");
}

Test(grad_ops, normalisation) {
    expect("", "weight %w : f32[3, 4]\n%y = softmax(%w)", "3, 4");
    expect("", "weight %w : f32[3, 4]\n%y = softmax(%w) {dim = 0}", "3, 4");
    expect("",
           "weight %x : f32[2, 3, 4]\nweight %s : f32[4]\nweight %t : f32[4]\n"
           "%y = layer_norm(%x, %s, %t)",
           "2, 3, 4");
    expect("", "weight %x : f32[3, 4]\nweight %s : f32[4]\n%y = layer_norm(%x, %s)", "3, 4");
    expect("", "weight %x : f32[3, 4]\n%y = layer_norm(%x) {eps = 0.1}", "3, 4");
    expect("%x: f32[3, 4]", "weight %s : f32[4]\nweight %t : f32[4]\n%y = layer_norm(%x, %s, %t)",
           "3, 4");
    expect("", "weight %x : f32[3, 4]\nweight %s : f32[4]\n%y = rms_norm(%x, %s)", "3, 4");
    expect("", "weight %x : f32[3, 4]\n%y = rms_norm(%x)", "3, 4");
    expect("",
           "weight %x : f32[4, 3, 2, 2]\nweight %s : f32[3]\nweight %t : f32[3]\n"
           "%y = batch_norm(%x, %s, %t) {groups = 2}",
           "4, 3, 2, 2");
}

Test(grad_ops, look_up_and_losses) {
    expect("%i: i32[2, 3]", "weight %t : f32[5, 4]\n%y = embedding(%i, %t)", "2, 3, 4");
    expect("%i: i32[2, 3]", "weight %x : f32[2, 3, 5]\n%y = pick(%x, %i)", "2, 3");
    expect("%i: i32[2, 3]",
           "weight %x : f32[2, 3, 5]\n%y = cross_entropy(%x, %i) {reduction = none}", "2, 3");
    expect("%t: f32[2, 3]", "weight %x : f32[2, 3]\n%y = mse(%x, %t) {reduction = none}", "2, 3");
    expect_loss("%i: i32[2, 3]", "weight %x : f32[2, 3, 5]\n%loss = cross_entropy(%x, %i)");
    expect_loss("%i: i32[4]",
                "weight %x : f32[4, 5]\n%l = cross_entropy(%x, %i) {reduction = sum}\n"
                "%loss = scale(%l) {factor = 0.3}");
    expect_loss("%i: i32[4]", "weight %x : f32[4, 5]\n%l = cross_entropy(%x, %i)\n"
                              "%s = mul(%l, %l)\n%loss = add(%s, %l)");
    expect_loss("", "weight %x : f32[4, 5]\nweight %t : f32[4, 5]\n%l = mse(%x, %t)\n"
                    "%m = mse(%x, %x)\n%loss = sub(%l, %m)");
}

Test(grad_ops, convolution_and_pooling) {
    expect("",
           "weight %x : f32[2, 3, 5, 6]\nweight %w : f32[4, 3, 3, 2]\n"
           "%y = conv2d(%x, %w) {stride = 2, pad = [1, 0]}",
           "2, 4, 3, 3");
    expect("",
           "weight %x : f32[1, 4, 5, 5]\nweight %w : f32[6, 2, 2, 2]\n"
           "%y = conv2d(%x, %w) {groups = 2, dilation = 2}",
           "1, 6, 3, 3");
    expect("",
           "weight %x : f32[2, 2, 5, 5]\n"
           "%y = max_pool(%x) {window = 3, stride = 2, pad = 1}",
           "2, 2, 3, 3");
    expect("", "weight %x : f32[2, 2, 4, 4]\n%y = avg_pool(%x) {window = 2}", "2, 2, 2, 2");
}

Test(grad_ops, attention_and_recurrence) {
    expect("",
           "weight %q : f32[1, 3, 4, 2]\nweight %k : f32[1, 5, 2, 2]\n"
           "weight %v : f32[1, 5, 2, 3]\n%y = attention(%q, %k, %v) {causal = true}",
           "1, 3, 4, 3");
    expect("",
           "weight %q : f32[2, 3, 2, 2]\nweight %k : f32[2, 3, 2, 2]\n"
           "weight %v : f32[2, 3, 2, 2]\n%y = attention(%q, %k, %v) {scale = 0.4}",
           "2, 3, 2, 2");
    expect("",
           "weight %x : f32[1, 3, 2, 4]\n%u = rotary(%x)\n%t = tanh(%u)\n"
           "%y = rotary(%t) {inverse = true, base = 100.0}",
           "1, 3, 2, 4");
    expect("",
           "weight %x : f32[2, 3, 4]\nweight %wx : f32[4, 12]\nweight %wh : f32[3, 12]\n"
           "weight %b : f32[12]\nweight %h0 : f32[2, 3]\nweight %c0 : f32[2, 3]\n"
           "%s, %h = lstm(%x, %wx, %wh, %b, %h0, %c0)\n%m = reduce_mean(%s) {dims = 1}\n"
           "%y = mul(%m, %h)",
           "2, 3");
    expect("%x: f32[2, 3, 4]",
           "weight %wx : f32[4, 12]\nweight %wh : f32[3, 12]\n"
           "%s, %y = lstm(%x, %wx, %wh)",
           "2, 3");
}

Test(grad_ops, layout) {
    expect("", "weight %x : f32[2, 12]\n%y = reshape(%x) {shape = [2, 3, 4]}", "2, 3, 4");
    expect("", "weight %x : f32[2, 3, 4]\n%y = transpose(%x) {perm = [2, 0, 1]}", "4, 2, 3");
    expect("", "weight %x : f32[2, 3, 4]\n%y = transpose(%x)", "2, 4, 3");
    expect("", "weight %x : f32[2, 3, 4]\n%y = stack(%x) {dim = 1}", "3, 2, 4");
    expect("", "weight %x : f32[2, 3, 4]\n%y = stack(%x) {dim = 2}", "3, 4, 2");
    expect("", "weight %c : f32[2, 8]\nweight %x : f32[2, 3]\n%y = put(%c, %x) {dim = 1, at = 4}",
           "2, 8");
    expect("",
           "weight %a : f32[2, 3]\nweight %b : f32[2, 1]\nweight %c : f32[2, 4]\n"
           "%y = concat(%a, %b, %c) {dim = -1}",
           "2, 8");
    expect("",
           "weight %x : f32[2, 8]\n%a, %b, %c = split(%x) {dim = 1, sizes = [3, 3, 2]}\n"
           "%y = mul(%a, %b)",
           "2, 3");
    expect("", "weight %x : f32[5, 3]\n%y = slice(%x) {lo = 1, hi = n + 1}", "2, 3");
    expect("", "weight %x : f32[2, 3]\n%y = pad(%x) {dim = -1, lo = 1, hi = 2}", "2, 6");
    expect("", "weight %x : f32[2, 3]\n%y = expand(%x) {dims = [0, 2], sizes = [4, n]}",
           "4, 2, 2, 3");
}

Test(grad_ops, reductions) {
    expect("", "weight %x : f32[2, 3, 4]\n%y = reduce_sum(%x) {dims = [0, -1]}", "3");
    expect("", "weight %x : f32[2, 3, 4]\n%y = reduce_sum(%x) {dims = 1, keep = true}", "2, 1, 4");
    expect("", "weight %x : f32[2, 3, 4]\n%y = reduce_mean(%x) {dims = [1, 2]}", "2");
    expect("", "weight %x : f32[2, 3, 4]\n%y = reduce_mean(%x) {dims = -1, keep = true}",
           "2, 3, 1");
    expect("", "weight %x : f32[2, 3]\n%y = reduce_mean(%x)", "");
    expect("", "weight %x : f32[2, 3]\n%y = reduce_mean(%x) {keep = true}", "1, 1");
    expect("", "weight %x : f32[2, 3, 4]\n%y = reduce_max(%x) {dims = 1}", "2, 4");
}

Test(grad_ops, mixture_of_experts) {
    expect("", "weight %x : f32[2, 5, 6]\n%y, %i = topk(%x) {k = 2}", "2, 5, 2");
    expect("%x: f32[2, 4, 3]",
           "weight %g : f32[3, 4]\nweight %w : f32[4, 3, 3]\n%s = matmul(%x, %g)\n"
           "%v, %i = topk(%s) {k = 2}\n%p = softmax(%v)\n"
           "%b = dispatch(%x, %i) {experts = 4, capacity = 3}\n"
           "%h = einsum(%b, %w) {rule = \"g e c d, e d f -> g e c f\"}\n%a = tanh(%h)\n"
           "%y = combine(%a, %i, %p)",
           "2, 4, 3");
    expect("%i: i32[2, 4, 2] {range = 3}",
           "weight %x : f32[2, 4, 3]\nweight %p : f32[2, 4, 2]\n"
           "%b = dispatch(%x, %i, %p) {experts = 3, capacity = 4}\n%a = tanh(%b)\n"
           "%y = combine(%a, %i)",
           "2, 4, 3");
}

/* What has no gradient is named, and only if a gradient is needed through it. */
Test(grad_ops, refusals) {
    step_case c;
    step_make(&c,
              "dir 1\nfunc @f(%x: f32[2, 3, 4]) -> f32[] {\n  weight %wx : f32[4, 12]\n"
              "  weight %wh : f32[3, 12]\n  %s, %h, %last = lstm(%x, %wx, %wh)\n"
              "  %loss = reduce_sum(%last)\n  return %loss\n}\n"
              "scenario { model = @f, train { loss = none, optimizer = none } }\n",
              NULL, DS_PASS_GRAD);
    cr_assert_eq(c.status, DS_ERR_UNSUPPORTED);
    cr_assert(strstr(c.err.message, "last"), "%s", c.err.message);
    step_free(&c);
    step_make(&c,
              "dir 1\nfunc @f(%x: f32[2, 3]) -> f32[2, 3] {\n  weight %w : f32[3, 3]\n"
              "  %y = matmul(%x, %w)\n  return %y\n}\n"
              "scenario { model = @f, train { loss = none, optimizer = none } }\n",
              NULL, DS_PASS_GRAD);
    cr_assert_neq(c.status, DS_OK);
    cr_assert(strstr(c.err.message, "scalar"), "%s", c.err.message);
    step_free(&c);
}
