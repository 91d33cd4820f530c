/* Figure 6 as tables, one a cluster. */
#include "tools/pase/cells.h"
#include "tools/pase/tables.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

typedef struct sums {
    uint32_t n, right, right_with_expert, failures;
    double log, log2; /* of simulated over measured */
} sums;

typedef struct place {
    uint32_t cluster, model, size;
} place;

static void fail(sums *s, place at, const ds_error *err) {
    fprintf(stderr, "%s on %" PRId64 " x %s: %s\n", ds_figure6_model(at.model),
            ds_figure6_devices(at.size), ds_figure6_cluster(at.cluster), err->message);
    s->failures++;
}

static void add_gain(sums *s, ds_figure6_gain measured, ds_figure6_gain simulated,
                     ds_figure6_verdict verdict) {
    double ratio = log(simulated.pase / measured.pase);
    bool right = verdict.side && verdict.winner;
    s->n++;
    s->right += right;
    s->right_with_expert += right && verdict.expert_side;
    s->log += ratio;
    s->log2 += ratio * ratio;
}

static ds_status row(const ds_figure6_setup *setup, const ds_csv *figure, place at, sums *s,
                     ds_error *err) {
    ds_figure6_cell cell;
    ds_figure6_gain measured;
    ds_pase_time found;
    DS_TRY(ds_figure6_measured(figure, at.cluster, at.model, at.size, &measured, err));
    DS_TRY(ds_figure6_run(setup, at.cluster, at.model, at.size, &cell, err));
    DS_TRY(ds_figure6_found(setup, at.cluster, at.model, at.size, &found, err));
    ds_figure6_gain simulated = ds_figure6_gain_of(&cell);
    ds_figure6_verdict verdict = ds_figure6_judge(measured, simulated);
    add_gain(s, measured, simulated, verdict);
    printf("| %s | %" PRId64 " | %.2f | %.2f | %.2f%s | %.2f%s%s | %.2f | %.1f |\n",
           ds_figure6_model(at.model), ds_figure6_devices(at.size), measured.expert, measured.pase,
           simulated.expert, verdict.expert_side ? "" : " (side)", simulated.pase,
           verdict.side ? "" : " (side)", verdict.winner ? "" : " (winner)",
           (double)cell.data.step_ps / (double)found.step_ps, (double)cell.data.step_ps * 1e-9);
    fflush(stdout);
    return DS_OK;
}

static void cluster_table(const ds_figure6_setup *setup, const ds_csv *figure, uint32_t cluster,
                          sums *s) {
    printf("**%s**\n\n"
           "| model | GPUs | expert, measured | PaSE, measured | expert | PaSE | search | data "
           "parallel, ms |\n|---|---|---|---|---|---|---|---|\n",
           ds_figure6_cluster(cluster));
    for (uint32_t model = 0; model < DS_FIGURE6_MODELS; model++)
        for (uint32_t size = 0; size < DS_FIGURE6_SIZES; size++) {
            ds_error err = {0};
            place at = {cluster, model, size};
            if (row(setup, figure, at, s, &err) != DS_OK) fail(s, at, &err);
        }
    printf("\n");
}

static ds_status read_table(const char *root, const char *name, ds_csv *out, ds_error *err) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/data/%s", root, name);
    return ds_csv_read(path, out, err);
}

int tables_figure6(const tables_options *options) {
    ds_csv figure, strategies;
    ds_error err = {0};
    sums s = {0};
    char scenarios[4096];
    snprintf(scenarios, sizeof scenarios, "%s/scenarios", options->root);
    if (read_table(options->root, "pase_figure6.csv", &figure, &err) != DS_OK) goto unread;
    if (read_table(options->root, "pase_measured_strategies.csv", &strategies, &err) != DS_OK) {
        ds_csv_deinit(&figure);
        goto unread;
    }
    ds_figure6_setup setup = {.scenarios = scenarios,
                              .measured = &strategies,
                              .profiles = options->profiles,
                              .infiniband_gbit = options->infiniband_gbit};
    for (uint32_t c = 0; c < DS_FIGURE6_CLUSTERS; c++) cluster_table(&setup, &figure, c, &s);
    if (s.n)
        printf("InfiniBand of %" PRId64
               " Gb/s: side and winner right in %u of %u, the expert's side "
               "too in %u; simulated over measured, geometric mean %.3f, spread %.3f\n",
               options->infiniband_gbit, s.right, s.n, s.right_with_expert, exp(s.log / s.n),
               exp(sqrt(s.log2 / s.n)));
    ds_csv_deinit(&figure);
    ds_csv_deinit(&strategies);
    return (int)s.failures;
unread:
    fprintf(stderr, "pase-tables: %s\n", err.message);
    return 1;
}
