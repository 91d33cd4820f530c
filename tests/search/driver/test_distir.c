/* DistIR's grid: what its authors found on 16 devices, and what becomes of it on other networks. */
#include "tests/support/sweep.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_MAX = 80, N_DEGREES = 4 };

/* A row of either table: dp, tp, pp, microbatches, and the throughput. */
typedef struct config {
    int at[N_DEGREES];
    double throughput;
} config;

typedef struct table {
    config at[N_MAX];
    uint32_t n;
} table;

static void put(table *t, const char *line) {
    config c;
    int *d = c.at;
    if (sscanf(line, "%d,%d,%d,%d,%lf", d, d + 1, d + 2, d + 3, &c.throughput) != 5) return;
    cr_assert_lt(t->n, N_MAX);
    t->at[t->n++] = c;
}

static table published(void) {
    table t = {.n = 0};
    char *text = sweep_read(DS_TEST_DIR "/data/distir_grid.csv", NULL);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) put(&t, line);
    free(text);
    return t;
}

/* The grid under `settings`. */
static table grid(const char *settings) {
    table t = {.n = 0};
    sweep_case c;
    ds_sweep_result r;
    char folder[64], path[100];
    sweep_open_file(&c, DS_SOURCE_DIR "/scenarios/distir-grid.dir", settings);
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    sweep_run(&c, &(ds_sweep_options){.path = path, .n_workers = 2}, &r, DS_OK);
    ds_sweep_result_deinit(&r);
    char *csv = sweep_read(path, NULL);
    for (char *at = strchr(csv, '\n') + 1, *end; *at; at = end + 1) {
        char *cells[64], line[200];
        end = strchr(at, '\n');
        *end = '\0';
        cr_assert_gt(sweep_split(at, cells, 64), 9);
        /* model, world, batch, dp, tp, pp, microbatches, latency, throughput */
        snprintf(line, sizeof line, "%s,%s,%s,%s,%s", cells[3], cells[4], cells[5], cells[6],
                 cells[8]);
        put(&t, line);
    }
    free(csv);
    sweep_remove_folder(folder);
    sweep_close(&c);
    return t;
}

/* The best of those with all devices in one degree (0 to 2), or, -1, in several. */
static const config *best(const table *t, int pure) {
    const config *found = NULL;
    for (uint32_t i = 0; i < t->n; i++) {
        const config *c = &t->at[i];
        int of = c->at[0] == 16 ? 0 : c->at[1] == 16 ? 1 : c->at[2] == 16 ? 2 : -1;
        if (of == pure && (!found || c->throughput > found->throughput)) found = c;
    }
    cr_assert_not_null(found);
    return found;
}

static void expect_best(const table *t, const char *degrees) {
    char text[60];
    const config *hybrid = best(t, -1), *pipeline = best(t, 2);
    const config *c = hybrid->throughput > pipeline->throughput ? hybrid : pipeline;
    snprintf(text, sizeof text, "%d/%d/%d/%d", c->at[0], c->at[1], c->at[2], c->at[3]);
    cr_expect_str_eq(text, degrees);
}

/* "The best hybrid beats data, tensor and pipeline parallelism alone", in DistIR's table and in
 * ours, whether stages send beside compute or in line with it, as DistIR's do. */
Test(distir, a_hybrid_beats_the_pure_ones) {
    table tables[] = {published(), grid(NULL), grid("p2p=blocking")};
    for (int i = 0; i < 3; i++)
        for (int pure = 0; pure < 3; pure++)
            cr_expect_gt(best(&tables[i], -1)->throughput, best(&tables[i], pure)->throughput,
                         "table %d, pure %d", i, pure);
    expect_best(&tables[0], "4/4/1/1"); /* 0.3 % before 8/2/1/1 */
    expect_best(&tables[1], "8/2/1/1");
}

/* The order of the pure ones is DistIR's too when sends block. */
Test(distir, the_order_of_the_pure_ones) {
    table tables[] = {published(), grid("p2p=blocking")};
    for (int i = 0; i < 2; i++) {
        cr_expect_gt(best(&tables[i], 0)->throughput, best(&tables[i], 1)->throughput);
        cr_expect_gt(best(&tables[i], 1)->throughput, best(&tables[i], 2)->throughput);
    }
}

/* At 25 Gb/s pipelines win, alone if sends are hidden; if not, what DistIR's command line finds on
 * that network: D2/P8 with 32 microbatches. */
Test(distir, slow_networks_want_pipelines) {
    table hidden = grid("gbit=25"), blocking = grid("gbit=25 p2p=blocking");
    expect_best(&hidden, "1/1/16/128");
    expect_best(&blocking, "2/1/8/32");
}

static int rank(const table *t, const config *of) {
    int n = 0;
    for (uint32_t i = 0; i < t->n; i++) n += t->at[i].throughput < of->throughput;
    return n;
}

/* Spearman's coefficient over the 52 rows, of ranks within them: 1 − 6 Σ d² / (n (n² − 1)). */
Test(distir, ranks) {
    table theirs = published(), all = grid("p2p=blocking"), ours = {.n = 0};
    for (uint32_t i = 0; i < theirs.n; i++)
        for (uint32_t k = 0; k < all.n; k++)
            if (memcmp(theirs.at[i].at, all.at[k].at, sizeof all.at[k].at) == 0)
                ours.at[ours.n++] = all.at[k];
    cr_assert_eq(theirs.n, 52);
    cr_assert_eq(ours.n, 52);
    double sum = 0, n = 52;
    for (uint32_t i = 0; i < ours.n; i++) {
        double d = rank(&theirs, &theirs.at[i]) - rank(&ours, &ours.at[i]);
        sum += d * d;
    }
    cr_expect_gt(1 - 6 * sum / (n * (n * n - 1)), 0.8);
}
