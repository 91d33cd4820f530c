/* The page of a large sweep: bytes a row, and the time from table to page. `bench_report ROWS FILE`
 * keeps the page, for tools/bench/report.js, which measures it in a browser. The rows are made up:
 * random figures with as many digits as a sweep's. */
#include "ir/base/heap.h"
#include "ir/base/rng.h"
#include "ir/base/stop.h"
#include "tools/report/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void put_row(ds_rng *rng, long row, FILE *out) {
    int dp = 1 << ds_rng_next(rng) % 8, tp = 1 << ds_rng_next(rng) % 4;
    int pp = 1 << ds_rng_next(rng) % 5, mb = 1 << ds_rng_next(rng) % 8;
    double bubble = pp > 1 ? (pp - 1.0) / (mb + pp - 1) : 0;
    double mfu = (1 - bubble) * (0.35 + 0.25 * ds_rng_uniform(rng)) / (1 + 0.05 * tp);
    long long step_ps = (long long)(2e12 / mfu),
              memory = (long long)(1e9 + 8e10 * ds_rng_uniform(rng));
    bool fits = memory < 80000000000;
    fprintf(out, "gpt,%d,1024,%d,%d,%d,%d,%lld.%012lld,%.17g,%lld,", dp * tp * pp, dp, tp, pp, mb,
            step_ps / 1000000000000, step_ps % 1000000000000, 1024e12 / (double)step_ps, memory);
    fprintf(out, "%d,%d,%d,%d,%d,%lld,85899345920,%.17g,%.17g,%lld,%d,%s,%s,", dp, tp, pp, mb,
            (int)(ds_rng_next(rng) % 4), step_ps, mfu, bubble, step_ps / (8 + row % 7), fits,
            fits ? "ok" : "too large", fits ? "" : "does not fit");
    fprintf(out, "%016llx,%ld,0123456789abcdef,scenarios/big.dir,\n",
            (unsigned long long)ds_rng_next(rng), row);
}

static void write_table(const char *path, long rows) {
    FILE *out = fopen(path, "w");
    if (!out) exit(1);
    ds_rng rng = {1};
    fputs("model_size,world_size,batch_size,dp_degree,hp_degree,pp_degree,num_microbatches,latency,"
          "throughput,peak_memory,strategy.dp,strategy.tp,strategy.pp,strategy.microbatches,"
          "strategy.zero,step_time_ps,memory_capacity,mfu,bubble,exposed_comm_ps,fits,status,"
          "reason,hash,candidate,sweep,source,settings\n",
          out);
    for (long row = 0; row < rows; row++) put_row(&rng, row, out);
    if (fclose(out)) exit(1);
}

int main(int argc, char **argv) {
    char table[] = "/tmp/bench-report-XXXXXX";
    long rows = argc > 1 ? strtol(argv[1], NULL, 10) : 100000;
    int file = mkstemp(table);
    if (file < 0) return 1;
    close(file);
    write_table(table, rows);
    ds_buf page = {0};
    ds_error err;
    int64_t start = ds_clock_ns();
    ds_status status = report_sweep_page(table, "scenarios/big.dir", &page, &err);
    double seconds = (double)(ds_clock_ns() - start) * 1e-9;
    unlink(table);
    if (status != DS_OK) {
        fprintf(stderr, "bench_report: %s\n", err.message);
        return 1;
    }
    printf("%ld rows: %zu bytes, %.1f a row, written in %.2f s\n", rows, page.n,
           (double)page.n / (double)rows, seconds);
    FILE *out = argc > 2 ? fopen(argv[2], "w") : NULL;
    bool failed = argc > 2 && (!out || fwrite(page.text, 1, page.n, out) != page.n);
    if (out) fclose(out);
    ds_buf_deinit(&page);
    return failed;
}
