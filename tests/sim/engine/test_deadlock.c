/* Per-rank programs that cannot finish: each ends with DS_ERR_DEADLOCK and names ranks and ops. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define HEAD                                                                                       \
    "dir 1\n"                                                                                      \
    "topology @box {\n"                                                                            \
    "  device d[3] : \"A100-SXM4-80GB\"\n"                                                         \
    "  switch s\n"                                                                                 \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..3\n"                                             \
    "}\n"
#define TAIL "scenario { program = @p, on = @box }\n"

static void expect_deadlock(const char *text, const char *const *words) {
    sim_case c;
    sim_run_text(&c, text, NULL, false);
    cr_expect_eq(c.status, DS_ERR_DEADLOCK, "%s", ds_status_name(c.status));
    for (; *words; words++)
        cr_expect(strstr(c.err.message, *words), "\"%s\" is not in: %s", *words, c.err.message);
    sim_free(&c);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(deadlock, orphan_send) {
    expect_deadlock(HEAD "program @p {\n"
                         "  rank 0 (%x: f32[8]) { send(%x) to 1 tag 7 }\n"
                         "  rank 1 (%y: f32[8]) { %z = relu(%y) }\n"
                         "}\n" TAIL,
                    WORDS("deadlock", "rank 0", "send", "rank 1 has no matching recv"));
}

Test(deadlock, swapped_order) {
    expect_deadlock(HEAD "program @p {\n"
                         "  rank 0 (%x: f32[8]) { send(%x) to 1 tag 1 send(%x) to 1 tag 2 }\n"
                         "  rank 1 { %b = recv tag 2 from 0 : f32[8]\n"
                         "           %a = recv tag 1 from 0 : f32[8] }\n"
                         "}\n" TAIL,
                    WORDS("deadlock", "cycle", "rank 0", "rank 1", "send", "recv"));
}

Test(deadlock, missing_rank) {
    expect_deadlock(HEAD "program @p {\n"
                         "  rank 0 (%x: f32[8]) { %g = all_reduce(%x) group (0, 1, 2) }\n"
                         "  rank 1 (%x: f32[8]) { %g = all_reduce(%x) group (0, 1, 2) }\n"
                         "  rank 2 (%x: f32[8]) { %g = relu(%x) }\n"
                         "}\n" TAIL,
                    WORDS("deadlock", "all_reduce", "not all of the 3 ranks", "missing rank 2"));
}

Test(deadlock, mismatched_sizes) {
    expect_deadlock(HEAD "program @p {\n"
                         "  rank 0 (%x: f32[8]) { send(%x) to 1 tag 7 }\n"
                         "  rank 1 { %y = recv tag 7 from 0 : f32[16] }\n"
                         "}\n" TAIL,
                    WORDS("mismatched", "rank 0", "rank 1", "32 bytes", "64 bytes"));
}

Test(deadlock, cycle_through_data) {
    expect_deadlock(
        HEAD "program @p {\n"
             "  rank 0 { %a = recv tag 1 from 2 : f32[8]\n %b = relu(%a)\n send(%b) to 1 tag 1 }\n"
             "  rank 1 { %a = recv tag 1 from 0 : f32[8]\n %b = relu(%a)\n send(%b) to 2 tag 1 }\n"
             "  rank 2 { %a = recv tag 1 from 1 : f32[8]\n %b = relu(%a)\n send(%b) to 0 tag 1 }\n"
             "}\n" TAIL,
        WORDS("deadlock", "cycle", "rank 0", "rank 1", "rank 2", "needs the result of"));
}

Test(deadlock, ends_that_disagree) {
    expect_deadlock(HEAD "program @p {\n"
                         "  rank 0 (%x: f32[8]) { %g = all_reduce(%x) group (0, 1) }\n"
                         "  rank 1 (%x: f32[8]) { %g = all_reduce(%x) group (1, 0) }\n"
                         "}\n" TAIL,
                    WORDS("mismatched", "group (0, 1)", "group (1, 0)"));
    expect_deadlock(HEAD "program @p {\n"
                         "  rank 0 (%x: f32[8]) { send(%x) to 1 tag 7 }\n"
                         "  rank 1 { %y = recv tag 7 from 0 : f16[16] }\n"
                         "}\n" TAIL,
                    WORDS("mismatched", "f32[8]", "f16[16]"));
}

/* Eight ranks around: a recv, an op and a send of each wait for what comes before. 20 of the 24 are
 * told, from the first; that one's line is the error's. */
Test(deadlock, long_cycles_are_cut_short) {
    char text[2048];
    size_t at = (size_t)snprintf(text, sizeof text,
                                 "dir 1\ntopology @box {\n  device d[8] : \"A100-SXM4-80GB\"\n"
                                 "  switch s\n  link d[i] -- s : 10 GB/s, 1 us for i in 0..8\n}\n"
                                 "program @p {\n");
    for (int r = 0; r < 8; r++)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "  rank %d { %%a = recv tag 1 from %d : f32[8]\n %%b = relu(%%a)\n"
                               " send(%%b) to %d tag 1 }\n",
                               r, (r + 7) % 8, (r + 1) % 8);
    snprintf(text + at, sizeof text - at, "}\n" TAIL);
    sim_case c;
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_ERR_DEADLOCK);
    int told = 0;
    for (const char *m = c.err.message; (m = strstr(m, "\n  ")); m++) told++;
    cr_expect_eq(told, 21, "%s", c.err.message);
    cr_expect(strstr(c.err.message, "deadlock: 24 tasks can never run"), "%s", c.err.message);
    cr_expect(strstr(c.err.message, "\n  … 4 more"), "%s", c.err.message);
    cr_expect_eq(c.err.loc.line, 8);
    sim_free(&c);
}

Test(deadlock, a_program_that_runs) {
    sim_case c;
    sim_run_text(&c,
                 HEAD "program @p {\n"
                      "  rank 0 (%x: f32[2500000]) { send(%x) to 1 tag 7 }\n"
                      "  rank 1 { %y = recv tag 7 from 0 : f32[2500000] }\n"
                      "}\n" TAIL,
                 NULL, false);
    cr_assert_eq(c.status, DS_OK);
    /* two hops of 1 us, 10^7 bytes at 10 GB/s = 1 ms */
    cr_expect_eq(c.result->run.step_ps, 1002000000);
    sim_free(&c);
}
