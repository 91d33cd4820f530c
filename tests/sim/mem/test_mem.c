/* Liveness by hand (sim/mem/README.md, "What counts"). Tensors of 64 × 64 f32: S = 16 KiB each. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define S INT64_C(16384)

static int64_t peak_on(int devices, const char *body) {
    char text[2048];
    snprintf(
        text, sizeof text,
        "dir 1\n"
        "topology @t {\n  device d[2] : \"A100-SXM4-80GB\"\n"
        "  link d[0] -- d[1] : 10 GB/s, 1 us\n}\n"
        "mesh @all = [dp = 2] on @t\nmesh @m = pick 0..%d of @all [dp = %d]\n"
        "func @f(%%x: f32[64, 64] on @m, %%w: f32[64, 64] on @m {role = weight}) -> f32[64, 64] "
        "on @m {\n%s}\nscenario { program = @f }\n",
        devices, devices, body);
    sim_case c;
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK);
    int64_t bytes = c.result->mem.classes[0].peak_bytes, sum = 0;
    for (int k = 0; k < DS_CATEGORY_COUNT; k++) sum += c.result->mem.classes[0].peak_by_category[k];
    cr_expect_eq(sum, bytes, "categories add up to the peak");
    cr_expect_eq(c.result->mem.classes[0].peak_by_category[DS_CAT_WEIGHT], S);
    uint32_t n;
    ds_mem_live *live = ds_mem_live_at_peak(&c.result->mem, 0, &n);
    int64_t alive = 0;
    for (uint32_t i = 0; i < n; i++) alive += live[i].bytes;
    cr_expect_eq(alive, bytes, "the live tensors add up to the peak");
    free(live);
    sim_free(&c);
    return bytes;
}

static int64_t peak(const char *body) {
    return peak_on(1, body);
}

Test(mem, a_chain_frees_before_it_allocates) {
    /* x, w, and two of the chain: z1 ends when z2 does, before z3 is allocated */
    cr_expect_eq(peak("%z1 = matmul(%x, %w)\n%z2 = matmul(%z1, %w)\n%z3 = matmul(%z2, %w)\n"
                      "%z4 = matmul(%z3, %w)\nreturn %z4\n"),
                 4 * S);
}

/* z1 is waited for, not read: it ends with z2 as without `after`. */
Test(mem, waiting_for_a_value_does_not_keep_it) {
    cr_expect_eq(peak("%z1 = matmul(%x, %w)\n%z2 = matmul(%z1, %w)\n%h = after(%z2, %z1)\n"
                      "%z3 = matmul(%h, %w)\n%z4 = matmul(%z3, %w)\n%o = after(%z4, %z1)\n"
                      "return %o\n"),
                 4 * S);
}

/* The puzzles' accounting: what a step reads stays to its end, what it makes is there from then on.
 * As one op: x, w, z and y. As work, then the result in no time: z goes before y comes. */
Test(mem, work_makes_nothing_and_what_takes_no_time_frees_first) {
    cr_expect_eq(peak("%z = matmul(%x, %w) {cost = 1 us}\n%y = matmul(%z, %w) {cost = 2 us}\n"
                      "return %y\n"),
                 4 * S);
    cr_expect_eq(peak("%z = matmul(%x, %w) {cost = 1 us}\n%k = after(%z, %w) {cost = 2 us}\n"
                      "%y = matmul(%k, %w) {cost = 0 us}\nreturn %y\n"),
                 3 * S);
}

/* Work reads all its operands: u is held until it ends, 2 us later than its last other reader. */
Test(mem, work_holds_what_it_reads) {
    cr_expect_eq(peak("%u = matmul(%x, %w) {cost = 1 us}\n%z = matmul(%u, %w) {cost = 0 us}\n"
                      "%k = after(%z, %u) {cost = 2 us}\n"
                      "%y = matmul(%k, %w) {cost = 1 us}\nreturn %y\n"),
                 4 * S);
    /* k is z, so relu may take z's buffer only where z itself has no later reader */
    cr_expect_eq(peak("%z = matmul(%x, %w)\n%k = after(%z) {cost = 2 us}\n%a = relu(%k)\n"
                      "return %a\n"),
                 3 * S);
    cr_expect_eq(peak("%z = matmul(%x, %w)\n%k = after(%z) {cost = 2 us}\n%a = relu(%k)\n"
                      "%o = add(%z, %a)\nreturn %o\n"),
                 4 * S);
}

/* x, w and two of the chain from 1 us, and again from 2 us: the first time counts. */
Test(mem, the_peak_is_when_it_is_first_reached) {
    sim_case c;
    sim_run_text(&c,
                 "dir 1\ntopology @t {\n  device d[1] : \"A100-SXM4-80GB\"\n}\n"
                 "func @f(%x: f32[64, 64] on @t.d[0], %w: f32[64, 64] on @t.d[0]) -> f32[64, 64] "
                 "on @t.d[0] {\n  %a = matmul(%x, %w) {cost = 1 us}\n"
                 "  %b = matmul(%a, %w) {cost = 1 us}\n  %y = matmul(%b, %w) {cost = 1 us}\n"
                 "  return %y\n}\nscenario { program = @f }\n",
                 NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect_eq(c.result->mem.classes[0].peak_bytes, 4 * S);
    cr_expect_eq(c.result->mem.classes[0].peak_ps, 1000000);
    sim_free(&c);
}

/* x and a of 4096 elements (b is in place), and a mask of a byte an element, whatever an element
 * takes. */
Test(mem, a_kept_mask_is_a_byte_an_element) {
    static const struct {
        const char *dtype;
        int64_t bits;
    } types[] = {{"f4e2m1", 4}, {"f8e4m3", 8}, {"bf16", 16}, {"f32", 32}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int kept = 0; kept < 2; kept++) {
            char text[1024];
            const char *type = types[i].dtype;
            sim_case c;
            snprintf(text, sizeof text,
                     "dir 1\ntopology @t {\n  device d[1] : \"A100-SXM4-80GB\"\n}\n"
                     "func @f(%%x: %s[64, 64] on @t.d[0]) -> %s[64, 64] on @t.d[0] {\n"
                     "  %%a = dropout(%%x) {key = \"k\", cost = 1 us}\n"
                     "  %%b = dropout(%%a) {key = \"k\", cost = 1 us}\n  return %%b\n}\n"
                     "scenario { program = @f, masks = %s }\n",
                     type, type, kept ? "kept" : "drawn");
            sim_run_text(&c, text, NULL, false);
            cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
            cr_expect_eq(c.result->mem.classes[0].peak_bytes,
                         2 * 4096 * types[i].bits / 8 + kept * 4096, "%s", text);
            sim_free(&c);
        }
}

Test(mem, an_op_in_place_takes_its_operands_buffer) {
    cr_expect_eq(peak("%z = matmul(%x, %w)\n%a = relu(%z)\n%b = relu(%a)\nreturn %b\n"), 3 * S);
}

Test(mem, but_not_while_somebody_reads_it_later) {
    /* a may not take z's buffer, e may; o takes e's */
    cr_expect_eq(peak("%z = matmul(%x, %w)\n%a = relu(%z)\n%e = relu(%z)\n%o = add(%e, %a)\n"
                      "return %o\n"),
                 4 * S);
}

Test(mem, nor_the_buffer_of_a_program_input) {
    cr_expect_eq(peak("%a = relu(%x)\nreturn %a\n"), 3 * S);
}

Test(mem, views_own_nothing) {
    cr_expect_eq(peak("%z = matmul(%x, %w)\n%v = reshape(%z) {shape = [4096]}\n"
                      "%u = reshape(%v) {shape = [64, 64]}\nreturn %u\n"),
                 3 * S);
}

Test(mem, an_optimizer_updates_in_place) {
    cr_expect_eq(peak("%g = matmul(%x, %w)\n%n = sgd(%w, %g) {lr = 0.1}\nreturn %n\n"), 3 * S);
}

Test(mem, outputs_live_to_the_end) {
    /* a family of 3 kept values, all returned through their sum at the end */
    cr_expect_eq(
        peak("%h, %k = for l in 0..3 carry (%c = %x) {\n%z = matmul(%c, %w)\nyield %z keep "
             "%z\n}\n%s1 = add(%k{0}, %k{1})\n%s2 = add(%s1, %k{2})\nreturn %s2\n"),
        5 * S);
}

Test(mem, a_buffer_in_use_on_another_stream_is_not_taken) {
    /* x and w; a 0..101 us, p from 1 us, b from 1 us though relu is in place: the permute reads a
     */
    cr_expect_eq(peak_on(2, "%a = matmul(%x, %w) {cost = 1 us}\n"
                            "%p = permute(%a) over dp {cost = 100 us}\n"
                            "%b = relu(%a) {cost = 1 us}\n%c = add(%p, %b) {cost = 1 us}\n"
                            "return %c\n"),
                 5 * S);
}

/* ---- families over time ---- */

/* A cache of 8 places, carried and written a slice a turn in place: inputs x and w, the cache, one
 * slice and the sum over the whole cache. Twice as long a cache is twice as large. */
Test(mem, put_writes_a_carried_cache_in_place) {
    cr_expect_eq(peak("%c0 = zeros() : f32[8, 64, 64] on @m\n"
                      "%y, %end = for t in 0..8 carry (%h = %x, %c = %c0) {\n"
                      "%k = matmul(%h, %w)\n"
                      "%r = reshape(%k) {shape = [1, 64, 64]}\n%c1 = put(%c, %r) {at = t}\n"
                      "%past = slice(%c1) {hi = t + 1}\n%s = reduce_sum(%past) {dims = [0]}\n"
                      "yield %s, %c1\n}\nreturn %y\n"),
                 2 * S + 8 * S + 2 * S);
}

/* The cache of the turn before is read after the write: the write makes a new one. */
Test(mem, put_copies_what_is_read_later) {
    cr_expect_eq(peak("%c0 = zeros() : f32[8, 64, 64] on @m\n"
                      "%y, %end = for t in 0..8 carry (%h = %x, %c = %c0) {\n"
                      "%k = matmul(%h, %w)\n"
                      "%r = reshape(%k) {shape = [1, 64, 64]}\n%c1 = put(%c, %r) {at = t}\n"
                      "%s = reduce_sum(%c) {dims = [0]}\n"
                      "yield %s, %c1\n}\nreturn %y\n"),
                 2 * S + 2 * 8 * S + S);
}

/* A carry that is a family: three caches, each in place, whichever layer is at work. */
Test(mem, a_carried_family_is_written_in_place) {
    cr_expect_eq(peak("%c0 = for l in 0..3 {\n%z = zeros() : f32[8, 64, 64] on @m\n"
                      "yield keep %z\n}\n"
                      "%y, %end = for t in 0..8 carry (%h = %x, %c = %c0) {\n"
                      "%o, %cs = for l in 0..3 carry (%i = %h) {\n"
                      "%k = matmul(%i, %w)\n"
                      "%r = reshape(%k) {shape = [1, 64, 64]}\n%c1 = put(%c{l}, %r) {at = t}\n"
                      "%past = slice(%c1) {hi = t + 1}\n%s = reduce_sum(%past) {dims = [0]}\n"
                      "yield %s keep %c1\n}\nyield %o, %cs\n}\nreturn %y\n"),
                 2 * S + 3 * 8 * S + 2 * S);
}

/* A window of 3 over what the loop itself keeps: an element goes when its last reader has read it.
 * At a sum there are the three elements that it reads, and the sum. */
Test(mem, a_loop_frees_behind_the_window_that_it_reads) {
    cr_expect_eq(peak("%y, %k = for t in 0..8 carry (%h = %x) {\n"
                      "%p = matmul(%h, %w)\n"
                      "%s = reduce_sum(%k{max(0, t - 3):t}) {dims = [0]}\n"
                      "%o = add(%s, %p)\nyield %o keep %p\n"
                      "} : f32[64, 64] on @m, f32[64, 64] on @m\nreturn %y\n"),
                 2 * S + 3 * S + 2 * S);
}
