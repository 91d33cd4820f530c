/* Ops whose meaning depends on the place in the whole tensor: in local regions and ranks, where
 * values are shards, `start` (for a mask `full` too) says where a shard begins. And masks by name.
 */
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define BOX                                                                                        \
    "topology @box { device g[4] : \"V100-PCIE-16GB\" }\n"                                         \
    "mesh @all = [tp = 4] on @box\nmesh @m = pick 0..tp of @all [tp = tp]\n"

/* The plain program, and the same sharded over tp = 2 and 4. */
static void expect_equal(const char *plain, const char *sharded) {
    exec_case a, b;
    exec_text(&a, plain, NULL, NULL);
    ds_buf text = {0};
    ds_buf_printf(&text, "dir 1\nparam tp = 2\n" BOX "%sscenario { program = @f\n mesh = @m }\n",
                  sharded);
    static const char *const settings[] = {"tp=2", "tp=4"};
    for (int i = 0; i < 2; i++) {
        exec_text(&b, text.text, settings[i], NULL);
        exec_expect_same(&a, &b, settings[i]);
        exec_free(&b);
    }
    ds_buf_deinit(&text);
    exec_free(&a);
}

/* ---- local regions ---- */

Test(exec_starts, rows_of_a_table) {
    expect_equal("dir 1\nfunc @f(%i: i32[6], %t: f32[8, 3]) -> f32[6, 3] {\n"
                 "%y = embedding(%i, %t)\nreturn %y\n}\n",
                 "func @f(%i: i32[6] on @m {range = 8}, %t: f32[8@tp, 3] on @m) -> f32[6, 3] on @m "
                 "{\n%y = local over (tp) (%i, %t) -> (f32[6, 3] on @m) {\n"
                 "%e = embedding(%i, %t) {start = 8 / tp * axis_index(tp)}\n"
                 "%s = all_reduce(%e) over tp\nyield %s\n}\nreturn %y\n}\n");
    expect_equal("dir 1\nfunc @f(%i: i32[6], %d: f32[6, 3]) -> f32[8, 3] {\n"
                 "%y = embedding_grad(%d, %i) {rows = 8}\nreturn %y\n}\n",
                 "func @f(%i: i32[6] on @m {range = 8}, %d: f32[6, 3] on @m) -> f32[8@tp, 3] on @m "
                 "{\n%y = local over (tp) (%i, %d) -> (f32[8@tp, 3] on @m) {\n"
                 "%g = embedding_grad(%d, %i) {rows = 8 / tp, start = 8 / tp * axis_index(tp)}\n"
                 "yield %g\n}\nreturn %y\n}\n");
}

static const char loss_plain[] =
    "dir 1\nfunc @f(%x: f32[6, 8], %l: i32[6]) -> (f32[], f32[6], f32[6, 8]) {\n"
    "%y, %s = cross_entropy(%x, %l)\n%d = cross_entropy_grad(%x, %l, %s)\n"
    "return %y, %s, %d\n}\n";

/* A loss over a vocabulary that is split: three small all_reduces forward, none backward. */
#define LSE                                                                                        \
    "%mp = reduce_max(%x) {dims = [1]}\n%mx = all_reduce(%mp) over tp {op = max}\n"                \
    "%me = expand(%mx) {dims = [1], sizes = [8]} : f32[6, 8@tp] on @m\n"                           \
    "%c = sub(%x, %me)\n%e = exp(%c)\n%zp = reduce_sum(%e) {dims = [1]}\n"                         \
    "%z = all_reduce(%zp) over tp\n%o = log(%z)\n%s = add(%o, %mx)\n"

Test(exec_starts, loss_over_a_split_vocabulary) {
    expect_equal(loss_plain,
                 "func @f(%x: f32[6, 8@tp] on @m, %l: i32[6] on @m) -> (f32[] on @m, f32[6] on @m, "
                 "f32[6, 8@tp] on @m) {\n" LSE
                 "%pp = pick(%x, %l)\n%p = all_reduce(%pp) over tp\n%r = sub(%s, %p)\n"
                 "%y = reduce_mean(%r)\n%d = cross_entropy_grad(%x, %l, %s)\n"
                 "return %y, %s, %d\n}\n");
}

Test(exec_starts, and_in_a_region) {
    expect_equal(loss_plain,
                 "func @f(%x: f32[6, 8@tp] on @m, %l: i32[6] on @m {range = 8}) -> (f32[] on @m, "
                 "f32[6] on @m, f32[6, 8@tp] on @m) {\n" LSE
                 "%p, %d = local over (tp) (%x, %l, %s) -> (f32[6] on @m, f32[6, 8@tp] on @m) {\n"
                 "%pp = pick(%x, %l) {start = 8 / tp * axis_index(tp)}\n"
                 "%p = all_reduce(%pp) over tp\n"
                 "%d = cross_entropy_grad(%x, %l, %s) {start = 8 / tp * axis_index(tp)}\n"
                 "yield %p, %d\n}\n%r = sub(%s, %p)\n%y = reduce_mean(%r)\n"
                 "return %y, %s, %d\n}\n");
}

Test(exec_starts, positions_and_masks) {
    expect_equal("dir 1\nfunc @f(%x: f32[2, 8, 3, 4]) -> (f32[2, 8, 3, 4], f32[2, 8, 3, 4]) {\n"
                 "%y = rotary(%x)\n%z = dropout(%x) {p = 0.5}\nreturn %y, %z\n}\n",
                 "func @f(%x: f32[2, 8@tp, 3, 4] on @m) -> (f32[2, 8@tp, 3, 4] on @m, f32[2, "
                 "8@tp, 3, 4] on @m) {\n"
                 "%y, %z = local over (tp) (%x) -> (f32[2, 8@tp, 3, 4] on @m, f32[2, 8@tp, 3, 4] "
                 "on @m) {\n%u = rotary(%x) {start = 8 / tp * axis_index(tp)}\n"
                 "%v = dropout(%x) {p = 0.5, key = z, full = [2, 8, 3, 4], start = [0, 8 / tp * "
                 "axis_index(tp), 0, 0]}\nyield %u, %v\n}\nreturn %y, %z\n}\n");
}

/* A start counts from where the box of a split value begins: both together are the place. */
Test(exec_starts, add_to_a_splits_own) {
    expect_equal("dir 1\nfunc @f(%x: f32[1, 12, 1, 4]) -> (f32[1, 8, 1, 4], f32[1, 8, 1, 4]) {\n"
                 "%a = rotary(%x)\n%b = dropout(%x) {p = 0.5, key = k}\n"
                 "%y = slice(%a) {dim = 1, lo = 4, hi = 12}\n"
                 "%z = slice(%b) {dim = 1, lo = 4, hi = 12}\nreturn %y, %z\n}\n",
                 "func @f(%x: f32[1, 12, 1, 4] on @m) -> (f32[1, 8@tp, 1, 4] on @m, f32[1, 8@tp, "
                 "1, 4] on @m) {\n%t = slice(%x) {dim = 1, lo = 4, hi = 12}\n"
                 "%s = reshard(%t) : f32[1, 8@tp, 1, 4] on @m\n%y = rotary(%s) {start = 4}\n"
                 "%z = dropout(%s) {p = 0.5, key = k, full = [1, 12, 1, 4], start = [0, 4, 0, 0]}\n"
                 "return %y, %z\n}\n");
}

/* ---- ranks ---- */

/* Rank r holds columns 4 r .. 4 r + 4 of the logits, and row r of a sequence of 2. */
#define RANK(r, from)                                                                              \
    "rank " #r " (%x: f32[3, 4] {input = x, of = [3, 8], at = [0, " #from                          \
    "]}, %l: i32[3] {input = l, range = 8, of = [3], at = [0]}, %s: f32[3] {input = s, of = [3], " \
    "at = [0]}, %q: f32[1, 1, 1, 4] {input = q, of = [1, 2, 1, 4], at = [0, " #r                   \
    ", 0, 0]}) -> (f32[3, 4], f32[1, 1, 1, 4], f32[1, 1, 1, 4]) {\n"                               \
    "%d = cross_entropy_grad(%x, %l, %s) {start = " #from "}\n%r = rotary(%q) {start = " #r        \
    "}\n%z = dropout(%q) {p = 0.5, key = z, full = [1, 2, 1, 4], start = [0, " #r                  \
    ", 0, 0]}\nreturn %d, %r, %z\n}\n"

Test(exec_starts, ranks) {
    exec_case a, b;
    exec_text(&a,
              "dir 1\nfunc @f(%x: f32[3, 8], %l: i32[3], %s: f32[3], %q: f32[1, 2, 1, 4]) -> "
              "(f32[3, 8], f32[1, 2, 1, 4], f32[1, 2, 1, 4]) {\n"
              "%d = cross_entropy_grad(%x, %l, %s)\n%r = rotary(%q)\n"
              "%z = dropout(%q) {p = 0.5}\nreturn %d, %r, %z\n}\n",
              NULL, NULL);
    exec_text(&b,
              "dir 1\ntopology @box { device g[2] : \"V100-PCIE-16GB\" }\nmesh @m = [tp = 2] on "
              "@box\nprogram @p {\n" RANK(0, 0) RANK(1, 4) "}\nscenario { program = @p\n mesh = "
                                                           "@m }\n",
              NULL, NULL);
    for (int r = 0; r < 2; r++) {
        char name[16];
        snprintf(name, sizeof name, "rank%d.d", r);
        for (int row = 0; row < 3; row++)
            exec_expect(exec_out(&b, name) + 4 * row, exec_out(&a, "d") + 8 * row + 4 * r, 4, name);
        snprintf(name, sizeof name, "rank%d.r", r);
        exec_expect(exec_out(&b, name), exec_out(&a, "r") + 4 * r, 4, name);
        snprintf(name, sizeof name, "rank%d.z", r);
        exec_expect(exec_out(&b, name), exec_out(&a, "z") + 4 * r, 4, name);
    }
    exec_free(&a), exec_free(&b);
}

/* ---- masks by name ---- */

static int differences(const double *a, const double *b, int n) {
    int count = 0;
    for (int i = 0; i < n; i++) count += (a[i] == 0) != (b[i] == 0);
    return count;
}

/* An op's key is the loops and calls around it and its own name; its turn is the loops' values. */
Test(exec_masks, a_key_and_a_turn_are_the_ops_path) {
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @inner(%x: f32[200]) -> f32[200] {\n"
              "%y, %k = for j in 0..2 carry (%h = %x) {\n%d = dropout(%x) {p = 0.5}\n"
              "yield %h keep %d\n}\n%o = scale(%k{1}) {factor = 1.0}\nreturn %o\n}\n"
              "func @f(%x: f32[200]) -> (f32[200], f32[200], f32[200], f32[200], f32[200]) {\n"
              "%y, %k = for l in 0..3 carry (%h = %x) {\n%block = call @inner(%x)\n"
              "yield %h keep %block\n}\n%a = scale(%k{2}) {factor = 1.0}\n"
              "%b = dropout(%x) {p = 0.5, key = \"l.block.j.d\", turn = [2, 1]}\n"
              "%o = dropout(%x) {p = 0.5, key = \"l.block.j.d\", turn = [1, 2]}\n"
              "%g, %r = for i in 0..3 carry (%h = %x) {\n"
              "%e = dropout(%x) {p = 0.5, key = \"l.block.j.d\", turn = [2 - i, 1]}\n"
              "yield %h keep %e\n}\n%v = scale(%r{0}) {factor = 1.0}\n"
              "%u = dropout(%x) {p = 0.5, key = v}\nreturn %a, %b, %o, %v, %u\n}\n"
              "scenario { program = @f }\n",
              NULL, NULL);
    exec_expect(exec_out(&c, "b"), exec_out(&c, "a"), 200, "inlined");
    exec_expect(exec_out(&c, "v"), exec_out(&c, "a"), 200, "in a loop that runs backwards");
    cr_expect_gt(differences(exec_out(&c, "a"), exec_out(&c, "o"), 200), 60, "other turns");
    cr_expect_gt(differences(exec_out(&c, "a"), exec_out(&c, "u"), 200), 60, "another key");
    exec_free(&c);
}

/* A call's microbatch is one more turn of the keys in it: the last one. */
Test(exec_masks, calls_say_their_microbatch) {
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @inner(%x: f32[200]) -> f32[200] {\n"
              "%y, %k = for l in 0..2 carry (%h = %x) {\n"
              "%d = dropout(%x) {p = 0.5, key = \"l.d\", turn = [l]}\nyield %h keep %d\n}\n"
              "%o = scale(%k{1}) {factor = 1.0}\nreturn %o\n}\n"
              "func @f(%x: f32[200]) -> (f32[200], f32[200], f32[200], f32[200], f32[200]) {\n"
              "%a = call @inner(%x) {microbatch = 3}\n%b = call @inner(%x) {microbatch = 4}\n"
              "%again = call @inner(%x) {microbatch = 3}\n%none = call @inner(%x)\n"
              "%c = dropout(%x) {p = 0.5, key = \"l.d\", turn = [1, 3]}\n"
              "return %a, %b, %again, %none, %c\n}\nscenario { program = @f }\n",
              NULL, NULL);
    exec_expect(exec_out(&c, "again"), exec_out(&c, "a"), 200, "the same microbatch");
    exec_expect(exec_out(&c, "c"), exec_out(&c, "a"), 200, "as a turn");
    cr_expect_gt(differences(exec_out(&c, "a"), exec_out(&c, "b"), 200), 60, "another one");
    cr_expect_gt(differences(exec_out(&c, "a"), exec_out(&c, "none"), 200), 60, "none");
    exec_free(&c);
}

Test(exec_masks, the_entrys_name_is_no_part_of_it) {
    exec_case a, b;
    exec_lines(&a, "%x: f32[100]", "f32[100]", "%y = dropout(%x) {p = 0.5}\nreturn %y");
    exec_text(&b,
              "dir 1\nfunc @other(%x: f32[100]) -> f32[100] {\n%y = dropout(%x) {p = 0.5}\nreturn "
              "%y\n}\n",
              NULL, NULL);
    exec_expect_same(&a, &b, "entries");
    exec_free(&a), exec_free(&b);
}

/* A key beside a seed: both count. A seed alone: no path. */
Test(exec_masks, seeds_and_keys) {
    exec_case c;
    exec_lines(
        &c, "%x: f32[200]", "f32[200], f32[200], f32[200], f32[200]",
        "%a = dropout(%x) {p = 0.5, seed = 3}\n%b = dropout(%x) {p = 0.5, seed = 3, key = k}\n"
        "%c = dropout(%x) {p = 0.5, seed = 4, key = k}\n"
        "%d = dropout(%x) {p = 0.5, seed = 3, key = k}\nreturn %a, %b, %c, %d");
    cr_expect_gt(differences(exec_out(&c, "a"), exec_out(&c, "b"), 200), 60);
    cr_expect_gt(differences(exec_out(&c, "b"), exec_out(&c, "c"), 200), 60);
    exec_expect(exec_out(&c, "d"), exec_out(&c, "b"), 200, "the same mask");
    exec_free(&c);
}

static void refuses(const char *attrs, ds_status code, const char *part) {
    exec_case c;
    char line[160];
    snprintf(line, sizeof line, "%%y = dropout(%%x) {%s}\nreturn %%y", attrs);
    exec_lines(&c, "%x: f32[2, 3]", "f32[2, 3]", line);
    cr_expect(c.status == code && strstr(c.err.message, part), "%s: %s", attrs, c.err.message);
    exec_free(&c);
}

Test(exec_masks, boxes_that_are_none) {
    refuses("start = [0, 1]", DS_ERR_TYPE, "'full', which is not given");
    refuses("full = [4]", DS_ERR_TYPE, "'full' has 1 entries for 2 dims");
    refuses("full = [4, 6], start = [0, 0, 0]", DS_ERR_TYPE, "'start' has 3 entries for 2 dims");
    refuses("full = [4, 6], start = [3, 0]", DS_ERR_VALUE, "dim 0: 2 elements at 3 are no part");
    refuses("full = [4, 6], start = [0, -1]", DS_ERR_VALUE, "dim 1: 3 elements at -1 are no part");
    refuses("full = [4611686018427387904, 6], start = [0, 0]", DS_ERR_OVERFLOW, "");
}
