/* What tp_overlap is worth, in closed form, on four devices behind a switch: a product by columns
 * and one by rows, each of which is four chunks of C, with transfers of a quarter that take T.
 *
 * Ring: the first chunk needs no transfer, the others come one after the other, so the products of
 * a gather take max(4 C, 3 T + C). Those of a scatter send each but the last: the same, for the
 * last sent is there at C + 3 T, if transfers are what takes longer, and else before the device's
 * own product. A pipelined scatter in four parts of S: max(4 C + S, C + 4 S). At once: 3 T in front
 * of 4 C, and 4 C in front of three steps. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* Peak in f32 and bandwidth of an A100 (cost_profiles/catalogue, from its datasheet). */
#define PEAK_FLOP_PER_S   19.5e12
#define MEMORY_BYTE_PER_S 2039e9

static const char FORMAT[] =
    "dir 1\n"
    "topology @box { device gpu[4] : \"A100-SXM4-80GB\"\n  switch s\n"
    "  link gpu[i] -- s : %d GB/s, 1 us for i in 0..4 }\n"
    "func @layers(%%x: f32[1@dp, 4000@cp, 1000]) -> f32[1@dp, 4000@cp, 1000] {\n"
    "  %%y = for l in 0..1 carry (%%h: f32[1@dp, 4000@cp, 1000] = %%x) {\n"
    "    weight %%a : f32[1000, 4000@tp]\n    weight %%b : f32[4000@tp, 1000]\n"
    "    %%u = matmul(%%h, %%a)\n    %%v = relu(%%u)\n    %%z = matmul(%%v, %%b)\n    yield %%z\n"
    "  }\n  return %%y\n}\n"
    "scenario { model = @layers, on = @box, train = off\n"
    "  strategy { tp = 4, sp = true, tp_overlap = %s } }\n";

static int64_t step_ps(const char *overlap, int gb_per_s) {
    char text[2048];
    sim_case c;
    snprintf(text, sizeof text, FORMAT, gb_per_s, overlap);
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    int64_t ps = c.result->run.step_ps;
    cr_expect_eq(c.result->plan->n_classes, 1, "all devices do alike");
    sim_free(&c);
    return ps;
}

/* Rounded up to ps. */
static int64_t ps_of(double seconds) {
    int64_t ps = (int64_t)(seconds * 1e12);
    return ps + ((double)ps < seconds * 1e12);
}

static int64_t max_of(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* At 100 GB/s products take longer, at 10 transfers do. */
Test(tp_overlap_time, closed_forms) {
    static const int links[] = {100, 10};
    int64_t chunk = ps_of(2e9 / PEAK_FLOP_PER_S), whole = ps_of(8e9 / PEAK_FLOP_PER_S);
    int64_t relu = ps_of(2 * 16e6 / MEMORY_BYTE_PER_S), sum = ps_of(5 * 4e6 / MEMORY_BYTE_PER_S);
    for (size_t i = 0; i < 2; i++) {
        int64_t us = 1000000, hop = 2 * us;
        int64_t quarter = 4000 / links[i] * us + hop;  /* 4 MB over two links */
        int64_t part = 3000 / links[i] * us + 3 * hop; /* three steps of a quarter of 4 MB */
        int64_t ring = max_of(4 * chunk, 3 * quarter + chunk);
        int64_t all = 3 * (4000 / links[i] * us) + 3 * hop;
        cr_expect_eq(step_ps("none", links[i]), all + whole + relu + whole + all);
        cr_expect_eq(step_ps("bulk", links[i]), step_ps("none", links[i]));
        cr_expect_eq(step_ps("ring", links[i]), ring + relu + ring + sum);
        cr_expect_eq(step_ps("pipe", links[i]),
                     ring + relu + max_of(4 * chunk + part, chunk + 4 * part));
    }
}
