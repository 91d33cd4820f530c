/* `distsim validate` on measured memory (tests/data/memory_bigscience_a100.csv, split val, which
 * like all rows was fitted to nothing): mean absolute error at most 10 % is what was promised. What
 * it reaches is under 7 %, two contradictory figures of the source included, so 8 % is the bound
 * against getting worse. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMISED_PERCENT 10.0
#define REACHED_PERCENT  8.0

Test(validate_memory, val_rows_of_the_topology_search) {
    /* without the row of 48 stages, which takes longer than all others */
    FILE *run = popen("grep -v 'chronicles-prequel.md:818,' " DS_TEST_DIR
                      "/data/memory_bigscience_a100.csv | " DS_DISTSIM_BINARY
                      " validate --split val --profiles " DS_BUILD_PROFILES " -I " DS_SOURCE_DIR
                      "/scenarios /dev/stdin",
                      "r");
    cr_assert_not_null(run);
    char line[1024];
    unsigned n = 0, oom = 0, oom_seen = 0;
    double mean = -1;
    while (fgets(line, sizeof line, run)) {
        fputs(line, stdout);
        if (sscanf(line, "all: n = %u, mean |error| %lf %%", &n, &mean) == 2) continue;
        if (!strstr(line, "| OOM |")) continue;
        oom++;
        oom_seen += strstr(line, "does not fit") != NULL;
    }
    cr_expect_eq(pclose(run), 0);
    cr_expect_eq(n, 11u);
    cr_expect_geq(mean, 0);
    cr_expect_leq(mean, PROMISED_PERCENT);
    cr_expect_leq(mean, REACHED_PERCENT, "worse than it was");
    cr_expect_eq(oom, 1u);
    cr_expect_eq(oom_seen, oom);
}
