/* The search beside PaSE's own program: 25 cells, least costs to every digit, seconds. */
#define _GNU_SOURCE
#include "ir/base/csv.h"
#include "ir/base/file.h"
#include "search/pase/simulate.h"
#include "tools/pase/tables.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* The search may take SHORT_S where PaSE's program takes less than LONG_S; else the search must be
 * LEAST times as fast as PaSE's program. */
#define SHORT_S   5e-3
#define LONG_S    1.0
#define LEAST     100.0
#define MOST_RUNS 20

typedef struct cell {
    const char *model, *cost, *kind;
    int64_t cutoff, devices;
    double pase_s;
} cell;

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The fastest of a few runs of enumeration, tables of costs, elimination and strategy. */
static ds_status time_search(const ds_pase_graph *graph, const cell *c, double *seconds, char *cost,
                             size_t n, ds_error *err) {
    double spent = 0;
    *seconds = INFINITY;
    for (int i = 0; i < MOST_RUNS && (i < 3 || spent < 0.1) && spent < 3; i++) {
        ds_pase_result *result = NULL;
        ds_pase_model *model =
            ds_pase_formulas_new(c->devices, c->cutoff, DS_PASE_FLOP_PER_S, DS_PASE_BYTES_PER_S);
        double start = cpu_seconds();
        ds_status status = ds_pase_search(graph, model, &(ds_pase_options){0}, &result, err);
        double took = cpu_seconds() - start;
        if (!status) snprintf(cost, n, "%.2f", result->cost);
        ds_pase_result_free(result);
        model->free(model);
        DS_TRY(status);
        *seconds = fmin(*seconds, took);
        spent += took;
    }
    return DS_OK;
}

static ds_status row(const tables_options *options, const cell *c, bool *right, ds_error *err) {
    char path[4096], cost[64];
    ds_buf text = {0};
    ds_pase_case opened;
    double seconds;
    snprintf(path, sizeof path, "%s/scenarios/models/pase/%s.dir", options->root, c->model);
    DS_TRY(ds_file_read(path, DS_NOWHERE, 1u << 20, &text, err));
    ds_pase_source source = {.path = path, .text = text.text, .n = text.n};
    ds_status status = ds_pase_case_open(&source, &opened, err);
    if (!status) {
        status = time_search(opened.graph, c, &seconds, cost, sizeof cost, err);
        ds_pase_case_close(&opened);
    }
    ds_buf_deinit(&text);
    DS_TRY(status);
    bool same = strcmp(cost, c->cost) == 0, below = strcmp(c->kind, "below") == 0;
    bool fast = c->pase_s < LONG_S ? seconds <= SHORT_S : c->pase_s >= LEAST * seconds;
    *right = same && fast;
    printf("| %s | %lld | %s%s | %.6f | %s%.3f (%s) | %s%.0f%s |\n", c->model,
           (long long)c->devices, cost, same ? "" : ": differs", seconds, below ? "over " : "",
           c->pase_s, below ? "with 16" : c->kind, below ? "over " : "", c->pase_s / seconds,
           fast ? "" : ": slow");
    fflush(stdout);
    return DS_OK;
}

static ds_status read_cell(const ds_csv *csv, uint32_t r, cell *c, ds_error *err) {
    static const char *const names[] = {"model", "cutoff", "p", "cost", "seconds", "kind"};
    const char *at[6];
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t column;
        DS_TRY(ds_csv_need(csv, names[i], &column, err));
        at[i] = csv->rows.at[r].cells[column];
    }
    *c = (cell){.model = at[0],
                .cost = at[3],
                .kind = at[5],
                .cutoff = strtoll(at[1], NULL, 10),
                .devices = strtoll(at[2], NULL, 10),
                .pase_s = strtod(at[4], NULL)};
    return DS_OK;
}

int tables_search(const tables_options *options) {
    char path[4096];
    ds_csv csv;
    ds_error err = {0};
    snprintf(path, sizeof path, "%s/tests/data/pase_search_seconds.csv", options->root);
    if (ds_csv_read(path, &csv, &err) != DS_OK) {
        fprintf(stderr, "pase-tables: %s\n", err.message);
        return 1;
    }
    int wrong = 0;
    printf("| model | p | least cost, FLOP | CPU s | PaSE's program, s | times |\n"
           "|---|---|---|---|---|---|\n");
    for (uint32_t r = 0; r < csv.rows.n; r++) {
        cell c;
        bool right = false;
        ds_status status = read_cell(&csv, r, &c, &err);
        if (!status) status = row(options, &c, &right, &err);
        if (status) fprintf(stderr, "pase-tables: %s\n", err.message);
        wrong += !right;
    }
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("\n%u cells, %d wrong or slow; %.0f MB at most\n", csv.rows.n, wrong,
           (double)use.ru_maxrss / 1024);
    ds_csv_deinit(&csv);
    return wrong;
}
