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

/* The row that ran out of memory (:918) is predicted 1 % below what the card has: 79.15 GiB (what
 * the driver calls total, cost_profiles/catalogue/memory.csv) are 81.05 times 1000 MiB. */
#define CARD_GB     81.05
#define NEARLY_FULL 0.98

Test(validate_memory, val_rows_of_the_topology_search) {
    /* without the row of 48 stages, which takes longer than all others */
    FILE *run = popen("grep -v 'chronicles-prequel.md:818,' " DS_TEST_DIR
                      "/data/memory_bigscience_a100.csv | " DS_DISTSIM_BINARY
                      " validate --memory --split val --database " DS_BUILD_PROFILES
                      " -I " DS_SOURCE_DIR "/scenarios /dev/stdin",
                      "r");
    cr_assert_not_null(run);
    char line[1024];
    unsigned n = 0, oom = 0;
    double mean = -1, predicted;
    while (fgets(line, sizeof line, run)) {
        fputs(line, stdout);
        if (sscanf(line, "all: n = %u, mean |error| %lf %%", &n, &mean) == 2) continue;
        const char *row = strstr(line, "| OOM |");
        if (!row) continue;
        oom++;
        cr_assert_eq(sscanf(row, "| OOM | %lf |", &predicted), 1);
        cr_expect_geq(predicted, NEARLY_FULL * CARD_GB, "%s", line);
    }
    cr_expect_eq(pclose(run), 0);
    cr_expect_eq(n, 11u);
    cr_expect_geq(mean, 0);
    cr_expect_leq(mean, PROMISED_PERCENT);
    cr_expect_leq(mean, REACHED_PERCENT, "worse than it was");
    cr_expect_eq(oom, 1u);
}
