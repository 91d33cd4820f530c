/* Sweeps stream: what a process holds does not depend on how many rows it writes. */
#include "tests/support/sweep.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* 10 million candidates; with z = 0 the width divides by zero, so each is a row after a moment. */
static const char many[] =
    "dir 1\n"
    "param a = 0, b = 0, z = 1\n"
    "import \"models/mlp.dir\" as m with layers = 2, width = 64 / z, batch = 64\n"
    "topology @box { device gpu[4] : \"V100-PCIE-16GB\"\n"
    "  switch net\n  link gpu[i] -- net : 10 GB/s, 0 us for i in 0..4 }\n"
    "scenario { model = @m.mlp, on = @box, train { loss = mse, optimizer = sgd }\n"
    "  strategy { dp = 2 } }\n"
    "sweep { z in [%d]\n  a in 0..5000, b in 0..2000 %s\n  minimize step_time }\n";

/* KiB that a process needs at most which writes the first `rows` rows, and how many it wrote. */
typedef struct usage {
    long kib;
    uint64_t rows;
    bool complete;
} usage;

static usage measure(int z, const char *condition, uint64_t rows) {
    int ends[2];
    usage u = {0};
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        sweep_case c;
        ds_sweep_result r;
        char folder[64], path[100], text[1000];
        sweep_folder(folder);
        snprintf(path, sizeof path, "%s/rows.csv", folder);
        snprintf(text, sizeof text, many, z, condition);
        sweep_open_text(&c, text, NULL);
        sweep_run(&c, &(ds_sweep_options){.path = path, .n_workers = 2, .max_rows = rows}, &r,
                  DS_OK);
        struct rusage used;
        getrusage(RUSAGE_SELF, &used);
        u = (usage){used.ru_maxrss, r.rows, r.complete};
        ds_sweep_result_deinit(&r);
        sweep_close(&c);
        sweep_remove_folder(folder);
        ssize_t n = write(ends[1], &u, sizeof u);
        _exit(n == sizeof u ? 0 : 1);
    }
    int status;
    close(ends[1]);
    cr_assert_eq(read(ends[0], &u, sizeof u), sizeof u);
    close(ends[0]);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    return u;
}

static void expect_no_growth(usage few, usage many_more, uint64_t ratio) {
    cr_expect_eq(many_more.rows, ratio * few.rows);
    cr_expect_leq(many_more.kib, few.kib + 1024, "%ld KiB for %" PRIu64 " rows, %ld for %" PRIu64,
                  few.kib, few.rows, many_more.kib, many_more.rows);
    cr_expect_leq(many_more.kib, 200 * 1024);
}

/* Sanitizers keep what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED true
#else
#define INSTRUMENTED false
#endif
#define SKIP_IF_INSTRUMENTED()                                                                     \
    if (INSTRUMENTED) cr_skip_test("memory of instrumented builds says nothing")

Test(stream, rows_take_no_memory) {
    SKIP_IF_INSTRUMENTED();
    expect_no_growth(measure(0, "", 10000), measure(0, "", 100000), 10);
}

Test(stream, simulated_rows_take_no_memory) {
    SKIP_IF_INSTRUMENTED();
    expect_no_growth(measure(1, "", 200), measure(1, "", 2000), 10);
}

/* The whole odometer, of which a condition leaves one candidate. */
Test(stream, ten_million_candidates) {
    usage u = measure(0, "where a + b > 6997", 0);
    cr_expect(u.complete);
    cr_expect_eq(u.rows, 1);
    if (!INSTRUMENTED) cr_expect_leq(u.kib, 200 * 1024);
}
