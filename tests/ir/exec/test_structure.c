/* Loops, families, calls, weights, and programs with one body a rank. */
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BOX                                                                                        \
    "topology @box {\n device gpu[4] : \"V100-PCIE-16GB\"\n switch sw\n"                           \
    " link gpu[i] -- sw : 10 GB/s, 1 us for i in 0..4\n}\n"

/* ---- loops and families ---- */

Test(exec_structure, loops_carry_and_keep) {
    exec_case c;
    exec_lines(&c, "%x: f32[2], %w{l: 0..3}: f32[2]", "f32[2], {l: 0..3} f32[2], f32[2]",
               "%y, %k = for l in 0..3 carry (%h = %x) {\n%a = add(%h, %w{l})\n"
               "yield %a keep %h\n}\n%last = scale(%k{2}) {factor = 2.0}\nreturn %y, %k, %last");
    const double *x = exec_in(&c, "x");
    double h[4][2];
    for (int i = 0; i < 2; i++) {
        const char *names[] = {"w{0}", "w{1}", "w{2}"};
        h[0][i] = x[i];
        for (int l = 0; l < 3; l++) h[l + 1][i] = h[l][i] + exec_in(&c, names[l])[i];
    }
    exec_expect(exec_out(&c, "y"), h[3], 2, "carried");
    exec_expect(exec_out(&c, "k{0}"), h[0], 2, "kept 0");
    exec_expect(exec_out(&c, "k2"), h[2], 2, "kept 2");
    exec_expect(exec_out(&c, "last"), (double[]){2 * h[2][0], 2 * h[2][1]}, 2, "read");
    exec_free(&c);
}

Test(exec_structure, a_loop_without_turns) {
    exec_case c;
    exec_lines(&c, "%x: f32[2]", "f32[2]",
               "%y = for l in 3..3 carry (%h = %x) {\n%a = neg(%h)\nyield %a\n}\nreturn %y");
    exec_expect(exec_out(&c, "y"), exec_in(&c, "x"), 2, "what it started with");
    exec_free(&c);
}

/* The carry grows by a row a turn, as a key cache does. */
Test(exec_structure, shapes_that_mention_the_index) {
    exec_case c;
    exec_lines(&c, "%x: f32[1, 2]", "f32[4, 2]",
               "%y = for t in 0..3 carry (%h: f32[t + 1, 2] = %x) {\n"
               "%n = scale(%x) {factor = t + 2}\n%a = concat(%h, %n)\nyield %a\n}\nreturn %y");
    double want[8];
    for (int i = 0; i < 8; i++) want[i] = (i / 2 + 1) * exec_in(&c, "x")[i % 2];
    exec_expect(exec_out(&c, "y"), want, 8, "rows 1x .. 4x");
    exec_free(&c);
}

Test(exec_structure, ranges_stack) {
    exec_case c;
    exec_lines(&c, "%w{l: 0..4}: f32[3]", "f32[2, 3]",
               "%s = reshape(%w{1:3}) {shape = [2, 3]}\nreturn %s");
    exec_expect(exec_out(&c, "s"), exec_in(&c, "w{1}"), 3, "first row");
    exec_expect(exec_out(&c, "s") + 3, exec_in(&c, "w{2}"), 3, "second row");
    exec_free(&c);
}

/* A carry that is a family: each turn writes one place of each of two caches, and a nested loop
 * keeps what becomes the next turn's family. */
Test(exec_structure, carried_families) {
    exec_case c;
    exec_lines(&c, "%x: f32[1], %c0{l: 0..2}: f32[3, 1]", "f32[1], {l: 0..2} f32[3, 1]",
               "%y, %c = for t in 0..3 carry (%h = %x, %k = %c0) {\n"
               "%o, %n = for l in 0..2 carry (%i = %h) {\n"
               "%s = scale(%i) {factor = t + l + 1}\n%r = reshape(%s) {shape = [1, 1]}\n%p = "
               "put(%k{l}, %r) {at = t}\n"
               "yield %s keep %p\n}\nyield %o, %n\n}\nreturn %y, %c");
    double h = exec_in(&c, "x")[0], want[2][3];
    for (int t = 0; t < 3; t++)
        for (int l = 0; l < 2; l++) want[l][t] = h *= t + l + 1;
    exec_expect(exec_out(&c, "y"), &h, 1, "carried value");
    exec_expect(exec_out(&c, "c{0}"), want[0], 3, "first cache");
    exec_expect(exec_out(&c, "c{1}"), want[1], 3, "second cache");
    exec_free(&c);
}

/* Turn t reads what the turns before have kept; nothing at first. */
Test(exec_structure, a_loop_reads_the_family_that_it_keeps) {
    exec_case c;
    exec_lines(&c, "%x: f32[2]", "{t: 0..4} f32[2]",
               "%k = for t in 0..4 {\n%s = reduce_sum(%k{0:t}) {dims = [0]}\n"
               "%a = add(%s, %x)\nyield keep %a\n} : f32[2]\nreturn %k");
    for (int t = 0; t < 4; t++) {
        char name[8];
        snprintf(name, sizeof name, "k{%d}", t);
        double want[2] = {(1 << t) * exec_in(&c, "x")[0], (1 << t) * exec_in(&c, "x")[1]};
        exec_expect(exec_out(&c, name), want, 2, name);
    }
    exec_free(&c);
}

/* Two indices, the second's range depending on the first: an element in a nested loop. */
Test(exec_structure, ragged_families) {
    exec_case c;
    exec_lines(&c, "%w{l: 0..3, k: 0..l + 1}: f32[k + 1]", "{l: 0..3} f32[1], f32[3]",
               "%s = for l in 0..3 {\n%h = slice(%w{l, l}) {lo = l, hi = l + 1}\nyield keep %h\n}\n"
               "%t = neg(%w{2, 2})\nreturn %s, %t");
    cr_expect_eq(c.result->inputs.n, 6);
    cr_expect_eq(exec_out(&c, "s{0}")[0], exec_in(&c, "w{0,0}")[0]);
    cr_expect_eq(exec_out(&c, "s{2}")[0], exec_in(&c, "w{2,2}")[2]);
    cr_expect_eq(exec_out(&c, "t")[1], -exec_in(&c, "w{2,2}")[1]);
    exec_free(&c);
}

Test(exec_structure, families_of_families) {
    exec_case c;
    exec_lines(&c, "%x: f32[1]", "f32[1], {l: 0..2, k: 0..3} f32[1]",
               "%f = for l in 0..2 {\n%g = for k in 0..3 {\n"
               "%h = scale(%x) {factor = 10 * l + k}\nyield keep %h\n}\nyield keep %g\n}\n"
               "%y = neg(%f{1, 2})\nreturn %y, %f");
    double x = exec_in(&c, "x")[0];
    cr_expect_float_eq(exec_out(&c, "y")[0], -12 * x, 1e-15);
    cr_expect_float_eq(exec_out(&c, "f{1,1}")[0], 11 * x, 1e-15);
    exec_free(&c);
}

/* ---- calls ---- */

static const char stages[] =
    "dir 1\n" BOX "mesh @m = [pp = 2, tp = 2] on @box\n"
    "func @stage<mesh @s>(%x: f32[4, 4@tp] on @s, %w: f32[4@tp, 4] on @s) -> f32[4, 4@tp] on @s {\n"
    "%p = matmul(%x, %w)\n%y = reduce_scatter(%p) over tp dim 1\nreturn %y\n}\n"
    "func @step(%x: f32[4, 4@tp] on @m{pp=0}, %w0: f32[4@tp, 4] on @m{pp=0}, "
    "%w1: f32[4@tp, 4] on @m{pp=1}) -> f32[4, 4@tp] on @m{pp=1} {\n"
    "%a = call @stage<@m{pp=0}>(%x, %w0)\n%b = send(%a) to @m{pp=1}\n"
    "%c = call @stage<@m{pp=1}>(%b, %w1)\nreturn %c\n}\nscenario { program = @step\n mesh = @m }\n";

Test(exec_structure, stages_on_slices) {
    exec_case c;
    exec_text(&c, stages, NULL, NULL);
    const double *x = exec_in(&c, "x");
    double a[16] = {0}, want[16] = {0};
    for (int i = 0; i < 64; i++)
        a[i / 16 * 4 + i % 4] +=
            x[i / 16 * 4 + i / 4 % 4] * exec_in(&c, "w0")[i / 4 % 4 * 4 + i % 4];
    for (int i = 0; i < 64; i++)
        want[i / 16 * 4 + i % 4] +=
            a[i / 16 * 4 + i / 4 % 4] * exec_in(&c, "w1")[i / 4 % 4 * 4 + i % 4];
    exec_expect(exec_out(&c, "c"), want, 16, "x w0 w1");
    cr_expect_eq(c.result->n_devices, 4);
    exec_free(&c);
}

/* A call's index is the function's own: in ranges, attributes, and reads of families. */
Test(exec_structure, calls_with_an_index) {
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @two<index at>(%x: f32[1], %s{l: at..at + 2}: f32[1]) -> "
              "(f32[1], {l: at..at + 2} f32[1]) {\n"
              "%y, %k = for l in at..at + 2 carry (%h = %x) {\n"
              "%g = scale(%s{l}) {factor = l + 1}\n%z = mul(%h, %g)\nyield %z keep %g\n}\n"
              "return %y, %k\n}\n"
              "func @f(%x: f32[1], %a{l: 0..2}: f32[1], %b{l: 2..4}: f32[1]) -> "
              "(f32[1], f32[1]) {\n"
              "%y, %_k = call @two<0>(%x, %a)\n%z, %k = call @two<1 + 1>(%y, %b)\n"
              "%v = neg(%k{3})\nreturn %z, %v\n}\nscenario { program = @f }\n",
              NULL, NULL);
    const double *a0 = exec_in(&c, "a{0}"), *a1 = exec_in(&c, "a{1}");
    const double *b2 = exec_in(&c, "b{2}"), *b3 = exec_in(&c, "b{3}");
    double want = 24 * exec_in(&c, "x")[0] * a0[0] * a1[0] * b2[0] * b3[0], kept = -4 * b3[0];
    exec_expect(exec_out(&c, "z"), &want, 1, "1 2 3 4 x a0 a1 b2 b3");
    exec_expect(exec_out(&c, "v"), &kept, 1, "-4 b3");
    exec_free(&c);
}

/* Families pass through calls as they are. */
Test(exec_structure, families_through_calls) {
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @g(%s{l: 0..2}: f32[2]) -> {l: 0..2} f32[2] {\n"
              "%t = for l in 0..2 {\n%u = neg(%s{l})\nyield keep %u\n}\nreturn %t\n}\n"
              "func @f(%w{l: 0..2}: f32[2]) -> f32[2] {\n"
              "%t = call @g(%w)\n%y = add(%t{0}, %t{1})\nreturn %y\n}\nscenario { program = @f }\n",
              NULL, NULL);
    double want[2];
    for (int i = 0; i < 2; i++) want[i] = -exec_in(&c, "w{0}")[i] - exec_in(&c, "w{1}")[i];
    exec_expect(exec_out(&c, "y"), want, 2, "-(w0 + w1)");
    exec_free(&c);
}

/* A model's weights are inputs, named by their calls and turns; one outside a loop is shared. */
Test(exec_structure, weights_of_a_model) {
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @layer(%x: f32[2, 3]) -> f32[2, 3] {\nweight %w : f32[3, 3]\n"
              "%y = matmul(%x, %w)\nreturn %y\n}\n"
              "func @net(%x: f32[2, 3]) -> f32[2, 3] {\nweight %tied : f32[3]\n"
              "%y = for l in 0..2 carry (%h = %x) {\n%a = call @layer(%h) {name = \"fc\"}\n"
              "%b = bias(%a, %tied)\nyield %b\n}\nreturn %y\n}\n"
              "scenario { model = @net\n train = off }\n",
              NULL, NULL);
    cr_assert_eq(c.status, DS_OK);
    cr_expect_eq(c.result->inputs.n, 4);
    const double *w[2] = {exec_in(&c, "fc.w{0}"), exec_in(&c, "fc.w{1}")};
    double h[6], next[6];
    memcpy(h, exec_in(&c, "x"), sizeof h);
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < 6; i++) {
            next[i] = exec_in(&c, "tied")[i % 3];
            for (int k = 0; k < 3; k++) next[i] += h[i / 3 * 3 + k] * w[l][k * 3 + i % 3];
        }
        memcpy(h, next, sizeof h);
    }
    exec_expect(exec_out(&c, "y"), h, 6, "two layers");
    exec_free(&c);
}

Test(exec_structure, what_runs) {
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[2]) -> f32[2] {\nreturn %x\n}\n"
              "func @g(%x: f32[2]) -> f32[2] {\nreturn %x\n}\n",
              NULL, NULL);
    cr_expect_eq(c.status, DS_ERR_VALUE);
    cr_expect(strstr(c.err.message, "2 functions"), "%s", c.err.message);
    exec_free(&c);
    exec_text(&c, "dir 1\nfunc @f(%x: f32[2]) -> f32[2] {\nreturn %x\n}\nscenario { }\n", NULL,
              NULL);
    cr_expect(strstr(c.err.message, "nothing to run"), "%s", c.err.message);
    exec_free(&c);
}

/* ---- one body a rank ---- */

#define RANKS(body)                                                                                \
    "dir 1\n" BOX "program @p {\n" body "\n}\nscenario { program = @p\n on = @box }\n"

/* Rank 1 receives in another order than rank 0 sends: tags tell messages apart, equal tags are
 * first in, first out. */
Test(exec_ranks, messages_by_tag_and_order) {
    exec_case c;
    exec_text(&c,
              RANKS("rank 0 (%x: f32[2], %y: f32[2], %z: f32[2]) {\nsend(%x) to 1 tag 7\n"
                    "send(%y) to 1 tag 8\nsend(%z) to 1 tag 7\n}\n"
                    "rank 1 -> (f32[2], f32[2], f32[2]) {\n%b = recv tag 8 from 0 : f32[2]\n"
                    "%a = recv tag 7 from 0 : f32[2]\n%c = recv tag 7 from 0 : f32[2]\n"
                    "return %a, %b, %c\n}"),
              NULL, NULL);
    exec_expect(exec_out(&c, "rank1.a"), exec_in(&c, "rank0.x"), 2, "first of tag 7");
    exec_expect(exec_out(&c, "rank1.b"), exec_in(&c, "rank0.y"), 2, "tag 8");
    exec_expect(exec_out(&c, "rank1.c"), exec_in(&c, "rank0.z"), 2, "second of tag 7");
    exec_free(&c);
}

Test(exec_ranks, ranks_wait_for_what_they_read) {
    exec_case c;
    exec_text(&c,
              RANKS("rank 0 (%x: f32[2]) -> f32[2] {\n%b = recv tag 1 from 1 : f32[2]\n"
                    "send(%x) to 1 tag 2\n%y = neg(%b)\nreturn %y\n}\n"
                    "rank 1 {\n%a = recv tag 2 from 0 : f32[2]\n%d = scale(%a) {factor = 3.0}\n"
                    "send(%d) to 0 tag 1\n}"),
              NULL, NULL);
    double want[2] = {-3 * exec_in(&c, "rank0.x")[0], -3 * exec_in(&c, "rank0.x")[1]};
    exec_expect(exec_out(&c, "rank0.y"), want, 2, "there and back");
    exec_free(&c);
}

Test(exec_ranks, collectives_of_groups) {
    exec_case c;
    exec_text(&c,
              RANKS("rank 0 (%x: f32[2]) -> (f32[2], f32[4], f32[1]) {\n"
                    "%a = all_reduce(%x) group (0, 1)\n%g = all_gather(%x) group (0, 1) dim 0\n"
                    "%r = reduce_scatter(%x) group (0, 1) dim 0\nreturn %a, %g, %r\n}\n"
                    "rank 1 (%x: f32[2]) -> (f32[2], f32[4], f32[1]) {\n"
                    "%a = all_reduce(%x) group (0, 1)\n%g = all_gather(%x) group (0, 1) dim 0\n"
                    "%r = reduce_scatter(%x) group (0, 1) dim 0\nreturn %a, %g, %r\n}"),
              NULL, NULL);
    const double *x = exec_in(&c, "rank0.x"), *y = exec_in(&c, "rank1.x");
    double sum[2] = {x[0] + y[0], x[1] + y[1]}, all[4] = {x[0], x[1], y[0], y[1]};
    exec_expect(exec_out(&c, "rank0.a"), sum, 2, "all_reduce");
    exec_expect(exec_out(&c, "rank1.a"), sum, 2, "all_reduce");
    exec_expect(exec_out(&c, "rank1.g"), all, 4, "all_gather");
    exec_expect(exec_out(&c, "rank0.r"), &sum[0], 1, "reduce_scatter");
    exec_expect(exec_out(&c, "rank1.r"), &sum[1], 1, "reduce_scatter");
    exec_free(&c);
}

static void expect_deadlock(const char *text, const char *part) {
    exec_case c;
    exec_text(&c, text, NULL, NULL);
    cr_expect_eq(c.status, DS_ERR_DEADLOCK);
    cr_expect(strstr(c.err.message, part), "%s", c.err.message);
    exec_free(&c);
}

Test(exec_ranks, deadlocks_are_named) {
    expect_deadlock(RANKS("rank 0 {\n%a = recv tag 1 from 1 : f32[2]\n%b = neg(%a)\n"
                          "send(%b) to 1 tag 1\n}\n"
                          "rank 1 {\n%a = recv tag 1 from 0 : f32[2]\n%b = neg(%a)\n"
                          "send(%b) to 0 tag 1\n}"),
                    "no rank can go on: rank 0/b waits for a message from rank 1 with tag 1; "
                    "rank 1/b waits for a message from rank 0 with tag 1");
    expect_deadlock(RANKS("rank 0 (%x: f32[2]) {\nsend(%x) to 1 tag 1\n}\nrank 1 {\n"
                          "%z = zeros() : f32[2]\n%y = neg(%z)\n}"),
                    "rank 0 sends to rank 1 with tag 1, which no one receives");
    expect_deadlock(RANKS("rank 0 (%x: f32[2]) -> f32[2] {\n%a = all_reduce(%x) group (0, 1)\n"
                          "%b = neg(%a)\nreturn %b\n}\nrank 1 {\n%z = zeros() : f32[2]\n"
                          "%y = neg(%z)\n}"),
                    "rank 0/b waits for rank 1 in all_reduce");
}

Test(exec_ranks, members_that_disagree) {
    exec_case c;
    exec_text(&c,
              RANKS("rank 0 (%x: f32[2]) {\n%a = all_reduce(%x) group (0, 1)\n}\n"
                    "rank 1 (%x: f32[2]) {\n%a = all_gather(%x) group (0, 1) dim 0\n}"),
              NULL, NULL);
    cr_expect_eq(c.status, DS_ERR_VALUE);
    cr_expect(strstr(c.err.message, "rank 1 calls all_gather of 1 where rank 0 calls all_reduce"),
              "%s", c.err.message);
    exec_free(&c);
    exec_text(&c,
              RANKS("rank 0 (%x: f32[2]) {\nsend(%x) to 1 tag 1\n}\n"
                    "rank 1 {\n%a = recv tag 1 from 0 : f32[3]\n}"),
              NULL, NULL);
    cr_expect_eq(c.status, DS_ERR_SHAPE);
    cr_expect(strstr(c.err.message, "[2] is sent to where a f32 of [3] is received"), "%s",
              c.err.message);
    exec_free(&c);
}
