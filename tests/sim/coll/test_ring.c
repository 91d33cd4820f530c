/* Ring all_reduce against the exact alpha-beta times of a 1 GiB ring at 50 GiB/s and 500 ns a hop:
 * 2(N−1)·500 ns + 2(N−1)/N · 2^30 B / 53.6870912 GB/s, as SimGrid's S4U model gives them too. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>

static const char ring[] =
    "dir 1\n"
    "topology @ring {\n"
    "  device d[%u] : \"A100-SXM4-80GB\"\n"
    "  link d[i] -- d[(i + 1) %% %u] : 53.6870912 GB/s, 500 ns for i in 0..%u\n"
    "}\n"
    "mesh @m = [dp = %u] on @ring\n"
    "func @main(%%x: f32[268435456] on @m partial(dp)) -> f32[268435456] on @m {\n"
    "  %%y = all_reduce(%%x) over dp {algorithm = \"ring\"}\n"
    "  return %%y\n"
    "}\n"
    "scenario { program = @main }\n";

static void check(uint32_t n, int64_t expected_ns) {
    char text[1024];
    snprintf(text, sizeof text, ring, n, n, n, n);
    for (int unfold = 0; unfold < 2; unfold++) {
        sim_case c;
        sim_run_text(&c, text, NULL, unfold);
        cr_assert_eq(c.status, DS_OK);
        int64_t off = c.result->run.step_ps - expected_ns * 1000;
        cr_expect(off >= -1000 && off <= 1000, "N = %u: %lld ps instead of %lld ns", n,
                  (long long)c.result->run.step_ps, (long long)expected_ns);
        cr_expect_eq(c.result->plan->n_classes, unfold ? n : 1u);
        cr_expect_eq(c.result->metrics.op_instances, (int64_t)n);
        sim_free(&c);
    }
}

Test(ring, all_reduce_of_one_gib_is_exact) {
    check(8, 35007000);
    check(64, 39438000);
    check(512, 40432875);
    check(1024, 40983938);
    check(4096, 44085234);
}
