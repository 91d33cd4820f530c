/* Where collectives move data: every form on 2 to 4 devices, worked out by hand. */
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BOX                                                                                        \
    "dir 1\ntopology @box {\n device gpu[4] : \"V100-PCIE-16GB\"\n switch sw\n"                    \
    " link gpu[i] -- sw : 10 GB/s, 1 us for i in 0..4\n}\n"                                        \
    "mesh @m = [dp = 2, tp = 2] on @box\nmesh @f = [tp = 4] on @box\n"

static void expect_out(const exec_case *c, const char *name, const double *want, int64_t n) {
    cr_assert_eq(exec_output(c, name)->n, n, "%s has %lld elements", name,
                 (long long)exec_output(c, name)->n);
    exec_expect(exec_out(c, name), want, n, name);
}

/* ---- over axes, on tensors 0, 1, 2, … ---- */

static double count_up[64];

static void counting(exec_case *c, const char *text, uint32_t rank, int64_t d0, int64_t d1) {
    for (int i = 0; i < 64; i++) count_up[i] = i;
    ds_exec_tensor x = {.name = "x", .rank = rank, .dims = {d0, d1}, .at = count_up};
    x.n = rank == 1 ? d0 : d0 * d1;
    ds_exec_options options = {.inputs = &x, .n_inputs = 1};
    exec_text(c, text, NULL, &options);
}

/* A local region shows what each device holds: the result keeps one copy of every device's tensor.
 */
Test(exec_collectives, what_devices_hold_after_all_gather) {
    exec_case c;
    counting(&c,
             BOX
             "func @s(%x: f32[4@tp] on @f) -> (f32[4], f32[16@tp]) {\n"
             "%g = all_gather(%x) over tp dim 0\n"
             "%h = local over (tp) (%g) -> (f32[16@tp] on @f) {\n%i = scale(%g) {factor = 1.0}\n"
             "yield %i\n}\nreturn %g, %h\n}\nscenario { program = @s\n mesh = @f }\n",
             1, 4, 0);
    expect_out(&c, "g", (double[]){0, 1, 2, 3}, 4);
    expect_out(&c, "h", (double[]){0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, 16);
    exec_free(&c);
}

/* Device i multiplies by i + 1, so the sum of its terms is 1+2+3+4 = 10 times x. */
#define TERMS                                                                                      \
    "%t = local over (tp) (%x) -> (f32[4] partial(tp) on @f) {\n"                                  \
    "%s0 = scale(%x) {factor = axis_index(tp) + 1}\nyield %s0\n}\n"

Test(exec_collectives, sums_of_terms) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[4] on @f) -> (f32[4], f32[4@tp], f32[4] on @f{tp=2}, "
                 "f32[4] partial(tp)) {\n" TERMS "%a = all_reduce(%t) over tp\n"
                 "%b = reduce_scatter(%t) over tp dim 0\n%c = reduce(%t) over tp {root = 2}\n"
                 "return %a, %b, %c, %t\n}\nscenario { program = @s\n mesh = @f }\n",
             1, 4, 0);
    for (int i = 0; i < 4; i++)
        expect_out(&c, (const char *[]){"a", "b", "c", "t"}[i], (double[]){0, 10, 20, 30}, 4);
    exec_free(&c);
}

Test(exec_collectives, maximum) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[2, 4@tp] on @f) -> (f32[2], f32[2]) {\n"
                 "%p = reduce_max(%x) {dims = [1]}\n%y = all_reduce(%p) over tp {op = max}\n"
                 "return %y, %p\n}\nscenario { program = @s\n mesh = @f }\n",
             2, 2, 4);
    cr_expect_eq(c.status, DS_ERR_TYPE, "the type of %%p must be said as partial");
    exec_free(&c);
    counting(&c,
             BOX "func @s(%x: f32[2, 4@tp] on @f) -> (f32[2], f32[2] partial(tp, max)) {\n"
                 "%p = reduce_max(%x) {dims = [1]}\n%y = all_reduce(%p) over tp {op = max}\n"
                 "return %y, %p\n}\nscenario { program = @s\n mesh = @f }\n",
             2, 2, 4);
    expect_out(&c, "y", (double[]){3, 7}, 2);
    expect_out(&c, "p", (double[]){3, 7}, 2);
    exec_free(&c);
}

/* [4@dp, 4@tp]: gathering the minor of two axes, then the major one. */
Test(exec_collectives, two_axes) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[8@(dp, tp)] on @m) -> (f32[8@dp], f32[8], f32[8]) {\n"
                 "%a = all_gather(%x) over tp dim 0\n%b = all_gather(%a) over dp dim 0\n"
                 "%c = all_gather(%x) over (dp, tp) dim 0\nreturn %a, %b, %c\n}\n"
                 "scenario { program = @s\n mesh = @m }\n",
             1, 8, 0);
    for (int i = 0; i < 3; i++) expect_out(&c, (const char *[]){"a", "b", "c"}[i], count_up, 8);
    exec_free(&c);
}

Test(exec_collectives, all_to_all_moves_the_split) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[4@tp, 8] on @f) -> (f32[4, 8@tp], f32[16@tp, 2]) {\n"
                 "%y = all_to_all(%x) over tp dim 0 -> 1\n"
                 "%l = local over (tp) (%y) -> (f32[16@tp, 2] on @f) {\n"
                 "%i = scale(%y) {factor = 1.0}\nyield %i\n}\nreturn %y, %l\n}\n"
                 "scenario { program = @s\n mesh = @f }\n",
             2, 4, 8);
    expect_out(&c, "y", count_up, 32);
    double want[32]; /* device r holds columns 2r, 2r+1 of all rows */
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 2; j++) want[(r * 4 + i) * 2 + j] = i * 8 + 2 * r + j;
    expect_out(&c, "l", want, 32);
    exec_free(&c);
}

Test(exec_collectives, roots_over_an_axis) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[4] on @f{tp=1}) -> (f32[4] on @f, f32[4@tp] on @f, "
                 "f32[4] on @f{tp=3}) {\n"
                 "%a = broadcast(%x) over tp\n%b = scatter(%x) over tp dim 0\n"
                 "%c = gather(%b) over tp dim 0 {root = 3}\nreturn %a, %b, %c\n}\n"
                 "scenario { program = @s\n mesh = @f }\n",
             1, 4, 0);
    for (int i = 0; i < 3; i++) expect_out(&c, (const char *[]){"a", "b", "c"}[i], count_up, 4);
    exec_free(&c);
}

Test(exec_collectives, permute_shifts_shards) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[4@tp] on @f) -> (f32[4@tp], f32[4@tp], f32[4@tp]) {\n"
                 "%a = permute(%x) over tp\n%b = permute(%x) over tp {shift = -1}\n"
                 "%c = permute(%x) over tp {shift = 6}\nreturn %a, %b, %c\n}\n"
                 "scenario { program = @s\n mesh = @f }\n",
             1, 4, 0);
    expect_out(&c, "a", (double[]){3, 0, 1, 2}, 4);
    expect_out(&c, "b", (double[]){1, 2, 3, 0}, 4);
    expect_out(&c, "c", (double[]){2, 3, 0, 1}, 4);
    exec_free(&c);
}

Test(exec_collectives, uneven_shards) {
    exec_case c;
    counting(&c,
             BOX
             "func @s(%x: f32[10@tp[4, 1, 0, 5]] on @f) -> (f32[10], f32[10@tp[1, 2, 3, 4]]) {\n"
             "%a = all_gather(%x) over tp dim 0\n"
             "%b = reshard(%x) : f32[10@tp[1, 2, 3, 4]] on @f\nreturn %a, %b\n}\n"
             "scenario { program = @s\n mesh = @f }\n",
             1, 10, 0);
    expect_out(&c, "a", count_up, 10);
    expect_out(&c, "b", count_up, 10);
    exec_free(&c);
}

Test(exec_collectives, a_bucket_is_several_at_once) {
    exec_case c;
    exec_text(&c,
              BOX "func @s(%x: f32[4@tp, 2] on @f, %y: f32[8@tp] on @f) -> (f32[4, 2], f32[8]) {\n"
                  "%a, %b = all_gather(%x, %y) over tp dim 0\nreturn %a, %b\n}\n"
                  "scenario { program = @s\n mesh = @f }\n",
              NULL, NULL);
    expect_out(&c, "a", exec_in(&c, "x"), 8);
    expect_out(&c, "b", exec_in(&c, "y"), 8);
    exec_free(&c);
}

/* ---- reshard and send ---- */

Test(exec_collectives, reshard_to_anything) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[4@dp, 8@tp] on @m) -> (f32[4@tp, 8@dp] on @m, f32[4, 8] on @m, "
                 "f32[4, 8@tp] on @f, f32[4@(tp, dp), 8] on @m, f32[4, 8] on @box.gpu[3]) {\n"
                 "%a = reshard(%x) : f32[4@tp, 8@dp] on @m\n%b = reshard(%a) : f32[4, 8] on @m\n"
                 "%c = reshard(%a) : f32[4, 8@tp] on @f\n"
                 "%d = reshard(%c) : f32[4@(tp, dp), 8] on @m\n"
                 "%e = reshard(%d) : f32[4, 8] on @box.gpu[3]\nreturn %a, %b, %c, %d, %e\n}\n"
                 "scenario { program = @s\n mesh = @m }\n",
             2, 4, 8);
    for (int i = 0; i < 5; i++)
        expect_out(&c, (const char *[]){"a", "b", "c", "d", "e"}[i], count_up, 32);
    exec_free(&c);
}

/* Summed where the result is not partial, kept apart where it is. */
Test(exec_collectives, reshard_of_terms) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[2, 4@tp] on @m) -> (f32[2], f32[2] partial(tp), f32[2@dp]) {\n"
                 "%p = reduce_sum(%x) {dims = [1]}\n%a = reshard(%p) : f32[2] on @m\n"
                 "%b = reshard(%p) : f32[2] partial(tp) on @m\n"
                 "%c = reshard(%b) : f32[2@dp] on @m\nreturn %a, %b, %c\n}\n"
                 "scenario { program = @s\n mesh = @m }\n",
             2, 2, 4);
    for (int i = 0; i < 3; i++)
        expect_out(&c, (const char *[]){"a", "b", "c"}[i], (double[]){6, 22}, 2);
    exec_free(&c);
}

Test(exec_collectives, send_between_slices) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[4@tp] on @m{dp=0}) -> (f32[4@tp] on @m{dp=1}, "
                 "f32[4] on @m{dp=1}) {\n"
                 "%a = send(%x) to @m{dp=1}\n%b = all_gather(%a) over tp dim 0\nreturn %a, %b\n}\n"
                 "scenario { program = @s\n mesh = @m }\n",
             1, 4, 0);
    expect_out(&c, "a", count_up, 4);
    expect_out(&c, "b", count_up, 4);
    exec_free(&c);
}

/* ---- across: one value a device ---- */

#define G(i) "on @box.gpu[" #i "]"

Test(exec_collectives, across_devices) {
    exec_case c;
    exec_text(
        &c,
        BOX "func @s(%x: f32[3] " G(0) ", %y: f32[3] " G(1) ", %z: f32[3] " G(
            3) ") -> "
               "(f32[3] " G(0) ", f32[3] " G(1) ", f32[3] " G(3) ", f32[9] " G(1) ", f32[1] " G(
                   3) ", f32[3] " G(0) ", f32[3] " G(2) ", f32[9] " G(2) ", f32[1] " G(1) ") {\n"
                                                                                          "%a, %b, "
                                                                                          "%c = "
                                                                                          "all_"
                                                                                          "reduce(%"
                                                                                          "x, %y, "
                                                                                          "%z) "
                                                                                          "across\n"
                                                                                          "%d, %e, "
                                                                                          "%f = "
                                                                                          "all_"
                                                                                          "gather(%"
                                                                                          "x, %y, "
                                                                                          "%z) "
                                                                                          "across "
                                                                                          "dim 0\n"
                                                                                          "%g, %h, "
                                                                                          "%i = "
                                                                                          "reduce_"
                                                                                          "scatter("
                                                                                          "%x, %y, "
                                                                                          "%z) "
                                                                                          "across "
                                                                                          "dim 0\n"
                                                                                          "%j, %k, "
                                                                                          "%l = "
                                                                                          "permute("
                                                                                          "%x, %y, "
                                                                                          "%z) "
                                                                                          "across\n"
                                                                                          "%m = "
                                                                                          "reduce(%"
                                                                                          "x, %y, "
                                                                                          "%z) "
                                                                                          "across "
                                                                                          "to "
                                                                                          "@box."
                                                                                          "gpu[2]\n"
                                                                                          "%n = "
                                                                                          "gather(%"
                                                                                          "x, %y, "
                                                                                          "%z) "
                                                                                          "across "
                                                                                          "dim 0 "
                                                                                          "to "
                                                                                          "@box."
                                                                                          "gpu[2]\n"
                                                                                          "%o, %p, "
                                                                                          "%q = "
                                                                                          "scatter("
                                                                                          "%x) "
                                                                                          "across "
                                                                                          "dim 0 "
                                                                                          "to "
                                                                                          "(@box."
                                                                                          "gpu[0], "
                                                                                          "@box."
                                                                                          "gpu[1], "
                                                                                          "@box."
                                                                                          "gpu[2])"
                                                                                          "\n"
                                                                                          "return "
                                                                                          "%a, %b, "
                                                                                          "%c, %e, "
                                                                                          "%i, %j, "
                                                                                          "%m, %n, "
                                                                                          "%p\n}"
                                                                                          "\nscenar"
                                                                                          "io { "
                                                                                          "program "
                                                                                          "= @s "
                                                                                          "}\n",
        NULL, NULL);
    const double *x = exec_in(&c, "x"), *y = exec_in(&c, "y"), *z = exec_in(&c, "z");
    double sum[3], all[9];
    for (int i = 0; i < 3; i++) {
        sum[i] = x[i] + y[i] + z[i];
        all[i] = x[i], all[3 + i] = y[i], all[6 + i] = z[i];
    }
    for (int i = 0; i < 4; i++) expect_out(&c, (const char *[]){"a", "b", "c", "m"}[i], sum, 3);
    expect_out(&c, "e", all, 9);
    expect_out(&c, "n", all, 9);
    expect_out(&c, "i", &sum[2], 1);
    expect_out(&c, "j", z, 3); /* the first gets what the last had */
    expect_out(&c, "p", &x[1], 1);
    exec_free(&c);
}

Test(exec_collectives, across_broadcast_and_all_to_all) {
    exec_case c;
    exec_text(&c,
              BOX "func @s(%x: f32[1, 2] " G(0) ", %y: f32[1, 2] " G(1) ") -> (f32[2, 1] " G(
                  0) ", f32[2, 1] " G(1) ", f32[1, 2] " G(3) ") {\n"
                                                             "%a, %b = all_to_all(%x, %y) across "
                                                             "dim 0 -> 1\n"
                                                             "%c, %d = broadcast(%y) across to "
                                                             "(@box.gpu[2], @box.gpu[3])\n"
                                                             "return %a, %b, %d\n}\nscenario { "
                                                             "program = @s }\n",
              NULL, NULL);
    const double *x = exec_in(&c, "x"), *y = exec_in(&c, "y");
    expect_out(&c, "a", (double[]){x[0], y[0]}, 2);
    expect_out(&c, "b", (double[]){x[1], y[1]}, 2);
    expect_out(&c, "d", y, 2);
    exec_free(&c);
}

/* ---- inside a local region ---- */

Test(exec_collectives, manual_forms) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[8@tp] on @f) -> (f32[8@tp], f32[32@tp], f32[8@tp], f32[8@tp], "
                 "f32[8@tp]) {\n"
                 "%a, %b, %c, %d, %e = local over (tp) (%x) -> (f32[8@tp] on @f, f32[32@tp] on @f, "
                 "f32[8@tp] on @f, f32[8@tp] on @f, f32[8@tp] on @f) {\n"
                 "%p = permute(%x) over tp\n%g = all_gather(%x) over tp dim 0\n"
                 "%r = all_reduce(%x) over tp\n%q = reduce_scatter(%g) over tp dim 0\n"
                 "%b0 = broadcast(%x) over tp {root = 2}\n"
                 "yield %p, %g, %r, %q, %b0\n}\nreturn %a, %b, %c, %d, %e\n}\n"
                 "scenario { program = @s\n mesh = @f }\n",
             1, 8, 0);
    double all[32], sum[8], four[8], root[8];
    for (int i = 0; i < 32; i++) all[i] = i % 8;
    for (int i = 0; i < 8; i++) {
        sum[i] = i % 2 ? 1 + 3 + 5 + 7 : 0 + 2 + 4 + 6;
        four[i] = 4 * i;
        root[i] = 4 + i % 2;
    }
    expect_out(&c, "a", (double[]){6, 7, 0, 1, 2, 3, 4, 5}, 8);
    expect_out(&c, "b", all, 32);
    expect_out(&c, "c", sum, 8);
    expect_out(&c, "d", four, 8);
    expect_out(&c, "e", root, 8);
    exec_free(&c);
}

/* Each device of dp keeps its own rows while tp is manual. */
Test(exec_collectives, other_axes_stay_global) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[4@dp, 4@tp] on @m) -> f32[4@dp, 4@tp] {\n"
                 "%y = local over (tp) (%x) -> (f32[4@dp, 4@tp] on @m) {\n"
                 "%p = permute(%x) over tp\nyield %p\n}\nreturn %y\n}\n"
                 "scenario { program = @s\n mesh = @m }\n",
             2, 4, 4);
    expect_out(&c, "y", (double[]){2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13}, 16);
    exec_free(&c);
}

/* What a gather leaves on devices that are no root is not a number, so its use is seen. */
Test(exec_collectives, others_than_the_root_get_no_number) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[4@tp] on @f) -> f32[16@tp] {\n"
                 "%y = local over (tp) (%x) -> (f32[16@tp] on @f) {\n"
                 "%p = gather(%x) over tp dim 0 {root = 1}\nyield %p\n}\nreturn %y\n}\n"
                 "scenario { program = @s\n mesh = @f }\n",
             1, 4, 0);
    for (int i = 0; i < 16; i++) {
        double y = exec_out(&c, "y")[i];
        cr_expect(i / 4 == 1 ? y == i % 4 : isnan(y), "element %d is %g", i, y);
    }
    exec_free(&c);
}

/* Vocabulary-parallel look-up by hand: ids shifted by where the device's rows begin. */
Test(exec_collectives, axis_index) {
    exec_case c;
    exec_text(&c,
              BOX "func @s(%x: f32[8, 2] on @f) -> (f32[8@tp, 2], f32[8, 2]) {\n"
                  "%y = local over (tp) (%x) -> (f32[8@tp, 2] on @f) {\n"
                  "%s = slice(%x) {lo = 2 * axis_index(tp), hi = 2 * axis_index(tp) + 2}\n"
                  "yield %s\n}\n"
                  "%z = local over (tp) (%y) -> (f32[8, 2] partial(tp) on @f) {\n"
                  "%p = pad(%y) {lo = 2 * axis_index(tp), hi = 6 - 2 * axis_index(tp)}\n"
                  "yield %p\n}\n%r = all_reduce(%z) over tp\nreturn %y, %r\n}\n"
                  "scenario { program = @s\n mesh = @f }\n",
              NULL, NULL);
    expect_out(&c, "y", exec_in(&c, "x"), 16);
    expect_out(&c, "r", exec_in(&c, "x"), 16);
    exec_free(&c);
}

/* ---- what is called replicated and is not ---- */

Test(exec_collectives, a_local_result_that_is_not_replicated) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[4] on @m) -> f32[4] {\n"
                 "%y = local over (tp) (%x) -> (f32[4] on @m) {\n"
                 "%i = scale(%x) {factor = axis_index(tp) + 1}\nyield %i\n}\nreturn %y\n}\n"
                 "scenario { program = @s\n mesh = @m }\n",
             1, 4, 0);
    cr_expect_eq(c.status, DS_ERR_VALUE);
    const char *want = "s/y should be the same on device 0 (dp=0, tp=0) and device 1 (dp=0, tp=1), "
                       "but element [1] is 1 there and 2 here";
    cr_expect(strstr(c.err.message, want), "%s", c.err.message);
    cr_expect_eq(c.err.loc.line, 10);
    exec_free(&c);
}

/* permute by one too few: a ring sum that misses a term is another on each device. */
Test(exec_collectives, an_unfinished_ring) {
    exec_case c;
    counting(&c,
             BOX "func @s(%x: f32[4@tp] on @f) -> f32[1] {\n"
                 "%y = local over (tp) (%x) -> (f32[1] on @f) {\n"
                 "%s, %l = for k in 0..2 carry (%a = %x, %b = %x) {\n"
                 "%n = permute(%b) over tp\n%t = add(%a, %n)\nyield %t, %n\n}\nyield %s\n}\n"
                 "return %y\n}\nscenario { program = @s\n mesh = @f }\n",
             1, 4, 0);
    cr_expect_eq(c.status, DS_ERR_VALUE, "%s", c.err.message);
    exec_free(&c);
}
