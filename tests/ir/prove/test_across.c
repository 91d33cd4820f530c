/* Collectives across mesh slices: the i-th devices of all slices are a group. On real numbers, as
 * one body per rank, and what is refused. What they do to types is in test_ops_collectives.c; time
 * and memory are in tests/sim/run/test_across.c. */
#include "tests/support/exec.h"
#include "tests/support/project.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* pp = 0 is devices 0 to 3, pp = 1 devices 4 to 7; dp is major. */
#define BOX                                                                                        \
    "dir 1\naxis x\ntopology @box {\n  device gpu[8] : \"A100-SXM4-80GB\"\n  switch sw\n"          \
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..8\n}\n"                                      \
    "mesh @m = [pp = 2, dp = 2, tp = 2] on @box\nmesh @q = [pp = 4, tp = 2] on @box\n"
#define RUN "scenario { program = @f\n  mesh = @m }\n"

static void expect(const exec_case *c, const char *name, const double *want, int64_t n) {
    cr_assert_eq(exec_output(c, name)->n, n, "%s", name);
    exec_expect(exec_out(c, name), want, n, name);
}

static void execute(exec_case *c, const char *text) {
    exec_text(c, text, NULL, NULL);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
}

/* ---- on real numbers ---- */

/* The same parts of the same terms meet: splits and partials stay. `local` gives the devices of the
 * second slice other terms than those of the first. */
#define TERMS(value, slice, from)                                                                  \
    "%" value "t = local over (tp) (%" value ") -> (f32[4@dp] partial(tp) on @m{pp=" slice         \
    "}) {\n"                                                                                       \
    "  %" value "s = scale(%" value ") {factor = axis_index(tp) + " from "}\n"                     \
    "  yield %" value "s\n}\n"

Test(across, sums_parts_and_terms) {
    exec_case c;
    execute(
        &c, BOX
        "func @f(%a: f32[4@dp] on @m{pp=0}, %b: f32[4@dp] on @m{pp=1}) -> (f32[4@dp] "
        "partial(tp) on @m{pp=0}, f32[4@dp] partial(tp) on @m{pp=1}, f32[4] on @m{pp=1}) {\n" TERMS(
            "a", "0", "1") TERMS("b", "1", "3") "%x, %y = all_reduce(%at, %bt) across\n"
                                                "%r = all_reduce(%y) over tp\n%z = all_gather(%r) "
                                                "over dp dim 0\nreturn %x, %y, %z\n}\n" RUN);
    const double *a = exec_in(&c, "a"), *b = exec_in(&c, "b");
    double sum[4]; /* over tp: 1 + 2 times a, 3 + 4 times b */
    for (int i = 0; i < 4; i++) sum[i] = 3 * a[i] + 7 * b[i];
    expect(&c, "x", sum, 4);
    expect(&c, "y", sum, 4);
    expect(&c, "z", sum, 4);
    exec_free(&c);
}

Test(across, four_slices) {
    exec_case c;
    execute(&c, BOX
            "func @f(%a: f32[3] on @q{pp=0}, %b: f32[3] on @q{pp=1}, %c: f32[3] on @q{pp=2}, "
            "%d: f32[3] on @q{pp=3}) -> (f32[3] on @q{pp=0}, f32[3] on @q{pp=3}, f32[3] on "
            "@q{pp=2}) {\n%x, %u, %v, %y = all_reduce(%a, %b, %c, %d) across\n"
            "%m, %n, %o = all_reduce(%d, %a, %c) across {op = max}\nreturn %x, %y, %o\n}\n" RUN);
    const double *a = exec_in(&c, "a"), *b = exec_in(&c, "b"), *e = exec_in(&c, "c"),
                 *d = exec_in(&c, "d");
    double sum[3], max[3];
    for (int i = 0; i < 3; i++) {
        sum[i] = a[i] + b[i] + e[i] + d[i];
        max[i] = a[i] > e[i] ? a[i] : e[i];
        if (d[i] > max[i]) max[i] = d[i];
    }
    expect(&c, "x", sum, 3);
    expect(&c, "y", sum, 3);
    expect(&c, "o", max, 3);
    exec_free(&c);
}

/* What else has operands or results on slices. */
#define OTHERS                                                                                     \
    "func @f(%a: f32[2, 4@dp] on @m{pp=0}, %b: f32[2, 4@dp] on @m{pp=1}) -> (f32[4, 4@dp] on "     \
    "@m{pp=1}, f32[1, 4@dp] on @m{pp=0}, f32[1, 4@dp] on @m{pp=1}, f32[2, 4@dp] on @m{pp=0}, "     \
    "f32[2, 4@dp] on @m{pp=1}, f32[4, 4@dp] on @m{pp=0}, f32[2, 4@dp] on @m{pp=1}) {\n"            \
    "%g, %h = all_gather(%a, %b) across dim 0\n"                                                   \
    "%i, %j = reduce_scatter(%a, %b) across dim 0\n"                                               \
    "%k, %l = permute(%a, %b) across\n"                                                            \
    "%n = broadcast(%a) across to @m{pp=1}\n"                                                      \
    "%o = gather(%a, %b) across dim 0 to @m{pp=0}\n"                                               \
    "%p = reduce(%a, %b) across to @m{pp=1}\n"                                                     \
    "return %h, %i, %j, %k, %n, %o, %p\n}\n"

Test(across, other_collectives) {
    exec_case c;
    execute(&c, BOX OTHERS RUN);
    const double *a = exec_in(&c, "a"), *b = exec_in(&c, "b");
    double sum[8], both[16];
    for (int i = 0; i < 8; i++) {
        sum[i] = a[i] + b[i];
        both[i] = a[i];
        both[8 + i] = b[i];
    }
    expect(&c, "h", both, 16);
    expect(&c, "i", sum, 4);
    expect(&c, "j", sum + 4, 4);
    expect(&c, "k", b, 8);
    expect(&c, "n", a, 8);
    expect(&c, "o", both, 16);
    expect(&c, "p", sum, 8);
    exec_free(&c);
}

/* Families, element by element. */
#define FAMILY                                                                                     \
    "func @f(%a{l: 0..3}: f32[4@dp] on @m{pp=0}, %b{l: 0..3}: f32[4@dp] on @m{pp=1}) -> "          \
    "({l: 0..3} f32[4@dp] on @m{pp=0}, {l: 0..3} f32[4@dp] on @m{pp=1}) {\n"                       \
    "%x, %y = for l in 0..3 {\n%s, %t = all_reduce(%a{l}, %b{l}) across\nyield keep %s, %t\n}\n"   \
    "return %x, %y\n}\n"

/* A call on each stage: places that depend on a mesh parameter. */
#define PARAMS                                                                                     \
    "func @sum<mesh @s, mesh @t>(%a: f32[4@dp] on @s, %b: f32[4@dp] on @t) -> (f32[4@dp] on @s, "  \
    "f32[4@dp] on @t) {\n%x, %y = all_reduce(%a, %b) across\nreturn %x, %y\n}\n"                   \
    "func @f(%a: f32[4@dp] on @m{pp=0}, %b: f32[4@dp] on @m{pp=1}) -> (f32[4@dp] on @m{pp=0}, "    \
    "f32[4@dp] on @m{pp=1}) {\n%x, %y = call @sum<@m{pp=0}, @m{pp=1}>(%a, %b)\nreturn %x, %y\n}\n"

Test(across, mesh_parameters) {
    exec_case c;
    execute(&c, BOX PARAMS RUN);
    double sum[4];
    for (int i = 0; i < 4; i++) sum[i] = exec_in(&c, "a")[i] + exec_in(&c, "b")[i];
    expect(&c, "x", sum, 4);
    expect(&c, "y", sum, 4);
    exec_free(&c);
}

/* ---- one body per rank ---- */

#define SUM                                                                                        \
    "func @f(%a: f32[4@dp] on @m{pp=0}, %b: f32[4@dp] on @m{pp=1}) -> (f32[4@dp] on @m{pp=0}, "    \
    "f32[4@dp] on @m{pp=1}) {\n%x, %y = all_reduce(%a, %b) across\nreturn %x, %y\n}\n"

Test(across, ranks_do_the_same_and_take_as_long) {
    project_expect_same(BOX SUM RUN, NULL, true);
    project_expect_same(BOX FAMILY RUN, NULL, true);
    project_expect_same(BOX PARAMS RUN, NULL, true);
    project_expect_same(BOX OTHERS RUN, NULL, false); /* roots: members without operands */
}

/* Rank 5 is pp = 1, dp = 0, tp = 1: it meets rank 1. */
Test(across, becomes_a_group) {
    char *text = project_text(BOX SUM RUN, NULL);
    for (int r = 0; r < 4; r++) {
        char want[64];
        snprintf(want, sizeof want, "group (%d, %d)", r, r + 4);
        const char *first = strstr(text, want);
        cr_assert_not_null(first, "no %s in\n%s", want, text);
        cr_expect_not_null(strstr(first + 1, want), "one %s in\n%s", want, text);
    }
    cr_expect_null(strstr(text, "across"));
    free(text);
}

/* ---- refusals ---- */

static void refused(const char *text, const char *part) {
    exec_case c;
    exec_text(&c, text, NULL, NULL);
    cr_expect_eq(c.status, DS_ERR_SHARDING, "%s: %s", ds_status_name(c.status), c.err.message);
    cr_expect(strstr(c.err.message, part), "no \"%s\" in: %s", part, c.err.message);
    exec_free(&c);
}

#define TWO(a, b)                                                                                  \
    "func @f(%a: f32[4] on " a ", %b: f32[4] on " b ") -> (f32[4] on " a ", f32[4] on " b ") {\n"  \
    "%x, %y = all_reduce(%a, %b) across\nreturn %x, %y\n}\n"
#define CALL(a, b)                                                                                 \
    "func @s<mesh @u, mesh @v>(%a: f32[4] on @u, %b: f32[4] on @v) -> (f32[4] on @u, f32[4] on "   \
    "@v) {\n%x, %y = all_reduce(%a, %b) across\nreturn %x, %y\n}\n"                                \
    "func @f(%a: f32[4] on " a ", %b: f32[4] on " b ") -> (f32[4] on " a ", f32[4] on " b ") {\n"  \
    "%x, %y = call @s<" a ", " b ">(%a, %b)\nreturn %x, %y\n}\n"

/* Of the second slice @q{pp=1} has devices 2 and 3, as the first has. */
Test(across, refuses_a_device_twice) {
    refused(BOX TWO("@m{pp=0, dp=1}", "@q{pp=1}") RUN, "all_reduce across: device 2 (tp=0) is in "
                                                       "two of the slices");
    refused(BOX TWO("@m{pp=0}", "@m{pp=0}") RUN, "are on one device or slice");
    refused(BOX CALL("@m{pp=0}", "@m{pp=0}") RUN, "device 0 (dp=0, tp=0) is in two of the slices");
}

Test(across, refuses_slices_of_other_shapes) {
    refused(BOX TWO("@m{pp=0}", "@q{pp=3}") RUN,
            "is on a slice [dp = 2, tp = 2], but @q{pp=3} is a slice [tp = 2]");
    refused(BOX CALL("@m{pp=0}", "@q{pp=3}") RUN, "[dp = 2, tp = 2] and [tp = 2]");
    refused(BOX CALL("@m{pp=0, dp=0}", "@m{pp=1, tp=1}") RUN, "[tp = 2] and [dp = 2]");
}

/* An axis may have size 1, which only a binding says. */
#define SIZED                                                                                      \
    "dir 1\nparam d = 1\ntopology @box {\n  device gpu[4] : \"A100-SXM4-80GB\"\n  switch sw\n"     \
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..4\n}\n"                                      \
    "mesh @m = [pp = 2, dp = d, tp = 2 / d] on @box\n" TWO("@m{pp=0, tp=0}", "@box.gpu[3]") RUN

Test(across, sizes_decide_when_they_are_known) {
    exec_case c;
    exec_text(&c, SIZED, NULL, NULL);
    cr_expect_eq(c.status, DS_OK, "%s", c.err.message);
    exec_free(&c);
    exec_text(&c, SIZED, "d=2", NULL);
    cr_expect_eq(c.status, DS_ERR_SHARDING);
    cr_expect(strstr(c.err.message, "is on a slice [dp = 2], but @box.gpu[3] is a slice []"), "%s",
              c.err.message);
    exec_free(&c);
}
