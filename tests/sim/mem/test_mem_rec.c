/* Stores of a rec in the simulated memory, to the byte: 100 combinations of class, length and window
 * against the closed forms of ir/temporal/store.h. All that is not the store is the same in each. */
#include "ir/temporal/store.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>

enum { N = 1000, POINT = 4 * N };

/* The peak of a sum over windows of w values, of T values in all. */
static int64_t peak_of(int T, int w, bool whole) {
    char text[1024];
    sim_case c;
    snprintf(text, sizeof text,
             "dir 1\ntopology @box {\n  device d : \"A100-SXM4-80GB\"\n}\n"
             "func @f(%%x: f32[%d]) -> f32[%d] {\n  %%r = rec (t in 0..%d) {\n"
             "    %%u = scale(%%x) {factor = 0.5 * t}\n"
             "    %%m = reduce_sum(%%u{max(0, t - %d):t + 1}) {dims = [0]}\n"
             "    %%s = case t == 0: %%x, else: %%c{t - 1}\n    %%c = add(%%s, %%m)\n"
             "    yield %%c{%d}\n  }\n  return %%r\n}\n"
             "scenario { model = @f, on = @box, strategy { rec_stores = %s } }\n",
             N, N, T, w - 1, T - 1, whole ? "whole" : "rings");
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text);
    int64_t peak = c.result->mem.classes[0].peak_bytes;
    sim_free(&c);
    return peak;
}

/* A ring holds each point twice; one that would hold more than all points is no ring. */
static int64_t store_of(int T, int w, bool whole) {
    ds_store store = {.kind = whole || 2 * w > T ? DS_STORE_WHOLE : DS_STORE_CIRCULAR,
                      .point_bytes = POINT,
                      .length = T,
                      .window = w};
    return ds_store_peak(&store);
}

Test(mem_rec, stores_by_class_length_and_window) {
    static const int lengths[] = {6, 9, 16, 33, 64},
                     windows[] = {2, 3, 4, 5, 8, 12, 16, 20, 31, 40};
    int64_t rest = peak_of(64, 2, false) - store_of(64, 2, false);
    int n = 0;
    for (int l = 0; l < 5; l++)
        for (int w = 0; w < 10; w++)
            for (int whole = 0; whole < 2; whole++, n++) {
                int64_t got = peak_of(lengths[l], windows[w], whole);
                int64_t want = rest + store_of(lengths[l], windows[w], whole);
                cr_expect_eq(got, want, "%d values, window %d, %s: %" PRId64 ", not %" PRId64,
                             lengths[l], windows[w], whole ? "whole" : "rings", got, want);
            }
    cr_expect_eq(n, 100);
    /* The input, the sum of all turns, and the value of the turn or the sum of its window. */
    cr_expect_eq(rest, 3 * POINT, "%" PRId64 " bytes beside the store", rest);
}
