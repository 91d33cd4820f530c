/* Layout ops, reductions and mixture of experts against index arithmetic written out. */
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(exec_layout, reshape_and_transpose) {
    exec_case c;
    exec_lines(&c, "%x: f32[2, 3, 4]", "f32[6, 4], f32[2, 4, 3], f32[4, 2, 3]",
               "%r = reshape(%x) {shape = [6, 4]}\n%t = transpose(%x)\n"
               "%p = transpose(%x) {perm = [2, 0, 1]}\nreturn %r, %t, %p");
    const double *x = exec_in(&c, "x");
    double t[24], p[24];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++) {
                t[i * 12 + k * 3 + j] = x[i * 12 + j * 4 + k];
                p[k * 6 + i * 3 + j] = x[i * 12 + j * 4 + k];
            }
    exec_expect(exec_out(&c, "r"), x, 24, "reshape");
    exec_expect(exec_out(&c, "t"), t, 24, "last two");
    exec_expect(exec_out(&c, "p"), p, 24, "perm");
    exec_free(&c);
}

Test(exec_layout, concat_split_slice_pad) {
    exec_case c;
    exec_lines(&c, "%x: f32[2, 5], %y: f32[2, 2]",
               "f32[2, 7], f32[2, 1], f32[2, 4], f32[2, 2], f32[2, 8], f32[2, 5]",
               "%c = concat(%x, %y) {dim = 1}\n%a, %b = split(%x) {dim = -1, sizes = [1, 4]}\n"
               "%s = slice(%x) {dim = 1, lo = 2, hi = 4}\n%p = pad(%x) {dim = 1, lo = 1, hi = 2}\n"
               "%j = concat(%a, %b) {dim = 1}\nreturn %c, %a, %b, %s, %p, %j");
    const double *x = exec_in(&c, "x"), *y = exec_in(&c, "y");
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 7; j++)
            cr_expect_eq(exec_out(&c, "c")[i * 7 + j], j < 5 ? x[i * 5 + j] : y[i * 2 + j - 5]);
        for (int j = 0; j < 8; j++)
            cr_expect_eq(exec_out(&c, "p")[i * 8 + j], j < 1 || j > 5 ? 0 : x[i * 5 + j - 1]);
        for (int j = 0; j < 4; j++) cr_expect_eq(exec_out(&c, "b")[i * 4 + j], x[i * 5 + j + 1]);
        for (int j = 0; j < 2; j++) cr_expect_eq(exec_out(&c, "s")[i * 2 + j], x[i * 5 + j + 2]);
        cr_expect_eq(exec_out(&c, "a")[i], x[i * 5]);
    }
    exec_expect(exec_out(&c, "j"), x, 10, "split, then concat");
    exec_free(&c);
}

Test(exec_layout, put_takes_the_place_of_a_slice) {
    exec_case c;
    exec_lines(&c, "%x: f32[2, 5], %y: f32[2, 2]", "f32[2, 5]",
               "%p = put(%x, %y) {dim = 1, at = 2}\nreturn %p");
    const double *x = exec_in(&c, "x"), *y = exec_in(&c, "y");
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 5; j++)
            cr_expect_eq(exec_out(&c, "p")[i * 5 + j],
                         j == 2 || j == 3 ? y[i * 2 + j - 2] : x[i * 5 + j]);
    exec_free(&c);
}

Test(exec_layout, equal_parts) {
    exec_case c;
    exec_lines(&c, "%x: f32[6]", "f32[2], f32[2], f32[2]",
               "%a, %b, %c = split(%x)\nreturn %a, %b, %c");
    exec_expect(exec_out(&c, "a"), exec_in(&c, "x"), 2, "first");
    exec_expect(exec_out(&c, "c"), exec_in(&c, "x") + 4, 2, "last");
    exec_free(&c);
}

Test(exec_layout, reductions) {
    exec_case c;
    exec_lines(&c, "%x: f32[2, 3, 4]", "f32[], f32[3], f32[2, 1, 4], f32[2, 3], f32[]",
               "%s = reduce_sum(%x)\n%t = reduce_sum(%x) {dims = [0, -1]}\n"
               "%m = reduce_mean(%x) {dims = 1, keep = true}\n%h = reduce_max(%x) {dims = [2]}\n"
               "%g = reduce_max(%x)\nreturn %s, %t, %m, %h, %g");
    const double *x = exec_in(&c, "x");
    double s = 0, t[3] = {0}, m[8] = {0}, h[6], g = -INFINITY;
    for (int i = 0; i < 6; i++) h[i] = -INFINITY;
    for (int i = 0; i < 24; i++) {
        s += x[i];
        t[i / 4 % 3] += x[i];
        m[i / 12 * 4 + i % 4] += x[i] / 3;
        h[i / 4] = fmax(h[i / 4], x[i]);
        g = fmax(g, x[i]);
    }
    exec_expect(exec_out(&c, "s"), &s, 1, "sum of all");
    exec_expect(exec_out(&c, "t"), t, 3, "sum of two dims");
    exec_expect(exec_out(&c, "m"), m, 8, "mean");
    exec_expect(exec_out(&c, "h"), h, 6, "max of rows");
    exec_expect(exec_out(&c, "g"), &g, 1, "max of all");
    exec_free(&c);
}

/* ---- mixture of experts ---- */

Test(exec_moe, topk_order_and_ties) {
    ds_exec_tensor x = {.name = "x",
                        .rank = 2,
                        .dims = {2, 5},
                        .n = 10,
                        .at = (double[]){1, 3, 3, 2, 0, -1, -1, -1, -1, -1}};
    ds_exec_options options = {.inputs = &x, .n_inputs = 1};
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[2, 5]) -> (f32[2, 3], i32[2, 3]) {\n"
              "%v, %i = topk(%x) {k = 3}\nreturn %v, %i\n}\n",
              NULL, &options);
    exec_expect(exec_out(&c, "v"), (double[]){3, 3, 2, -1, -1, -1}, 6, "values");
    exec_expect(exec_out(&c, "i"), (double[]){1, 2, 3, 0, 1, 2}, 6, "lower index first");
    cr_expect_eq(c.result->margin, 0, "ties decide nothing reliably");
    exec_free(&c);
}

/* 3 and 2 are the last chosen and the first left out: 1 of the largest, 4. */
Test(exec_moe, margin) {
    ds_exec_tensor x = {
        .name = "x", .rank = 1, .dims = {4}, .n = 4, .at = (double[]){1.5, 4, 3, 2}};
    ds_exec_options options = {.inputs = &x, .n_inputs = 1};
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[4]) -> f32[2] {\n%v, %i = topk(%x) {k = 2}\nreturn %v\n}\n",
              NULL, &options);
    exec_output(&c, "v");
    cr_expect_float_eq(c.result->margin, 0.25, 1e-15);
    exec_free(&c);
}

/* 4 tokens of one group, 2 choices each, 3 experts with room for 2. In token order, expert 0 gets
 * tokens 0 and 1 and drops token 3, expert 2 tokens 1 and 2 and drops token 3 too:
 *   token 0: 0, 1   token 1: 2, 0   token 2: 1, 2   token 3: 2, 0
 *   expert 0: 0, 1, (3)   expert 1: 0, 2   expert 2: 1, 2, (3) */
static const char moe_text[] =
    "dir 1\nfunc @f(%x: f32[1, 4, 2], %i: i32[1, 4, 2], %w: f32[1, 4, 2]) -> "
    "(f32[1, 3, 2, 2], f32[1, 4, 2], f32[1, 4, 2]) {\n"
    "%b = dispatch(%x, %i) {experts = 3, capacity = 2}\n"
    "%y = combine(%b, %i)\n%z = combine(%b, %i, %w)\nreturn %b, %y, %z\n}\n";

Test(exec_moe, dispatch_and_combine_with_capacity) {
    ds_exec_tensor given[] = {{.name = "x",
                               .rank = 3,
                               .dims = {1, 4, 2},
                               .n = 8,
                               .at = (double[]){1, 2, 3, 4, 5, 6, 7, 8}},
                              {.name = "i",
                               .rank = 3,
                               .dims = {1, 4, 2},
                               .n = 8,
                               .at = (double[]){0, 1, 2, 0, 1, 2, 2, 0}},
                              {.name = "w",
                               .rank = 3,
                               .dims = {1, 4, 2},
                               .n = 8,
                               .at = (double[]){0.5, 0.25, 2, 1, 10, 20, 5, 5}}};
    ds_exec_options options = {.inputs = given, .n_inputs = 3};
    exec_case c;
    exec_text(&c, moe_text, NULL, &options);
    exec_expect(exec_out(&c, "b"), (double[]){1, 2, 3, 4, 1, 2, 5, 6, 3, 4, 5, 6}, 12, "buffers");
    exec_expect(exec_out(&c, "y"), (double[]){2, 4, 6, 8, 10, 12, 0, 0}, 8,
                "each token once a choice; the last one has none");
    exec_expect(exec_out(&c, "z"), (double[]){0.75, 1.5, 9, 12, 150, 180, 0, 0}, 8, "weighted");
    exec_free(&c);
}

Test(exec_moe, an_expert_that_is_none) {
    ds_exec_tensor i = {.name = "i",
                        .rank = 3,
                        .dims = {1, 4, 2},
                        .n = 8,
                        .at = (double[]){0, 1, 2, 0, 1, 3, 2, 0}};
    ds_exec_options options = {.inputs = &i, .n_inputs = 1};
    exec_case c;
    exec_text(&c, moe_text, NULL, &options);
    cr_expect_eq(c.status, DS_ERR_VALUE);
    cr_expect(strstr(c.err.message, "expert 3 is none of 0 .. 2"), "%s", c.err.message);
    exec_free(&c);
}

/* Routed to all experts with room for all, combine adds up k copies: k times the tokens. */
Test(exec_moe, enough_room_loses_nothing) {
    exec_case c;
    exec_lines(&c, "%x: f32[2, 6, 3], %r: f32[2, 6, 4]", "f32[2, 6, 3]",
               "%v, %i = topk(%r) {k = 4}\n%b = dispatch(%x, %i) {experts = 4, capacity = 6}\n"
               "%y = combine(%b, %i)\nreturn %y");
    double want[36];
    for (int i = 0; i < 36; i++) want[i] = 4 * exec_in(&c, "x")[i];
    exec_expect(exec_out(&c, "y"), want, 36, "4 x");
    exec_free(&c);
}
