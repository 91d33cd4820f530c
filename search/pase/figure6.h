/* Figure 6 of PaSE: what its strategies and an expert's gain over data parallelism on two clusters,
 * for four models on 4 to 64 GPUs, simulated.
 *
 * The strategies are those that were measured, as far as programs can have them, and what the search
 * finds for the models and batches of the paper by its formulas. What the steps are made of
 * (search/pase/README.md has the reasons):
 *   batch       128 images or 64 sequences on 4 GPUs, and as much for each 4 more (assumed)
 *   software    each gradient is reduced by itself, and nothing is computed beside communication
 *   expert      one weird trick for images; for the Transformer tp = 2, 4, 4, 8, 8, the batch over
 *               the others; for RNNLM each LSTM on half of the devices, the batch over a half
 * Source: Elango, IPDPS 2021, section V; its released benchmarks. */
#ifndef DS_PASE_FIGURE6_H
#define DS_PASE_FIGURE6_H

#include "ir/base/csv.h"
#include "search/pase/simulate.h"

enum { DS_FIGURE6_CLUSTERS = 2, DS_FIGURE6_MODELS = 4, DS_FIGURE6_SIZES = 5 };

const char *ds_figure6_cluster(uint32_t cluster); /* "1080Ti" */
const char *ds_figure6_model(uint32_t model);     /* "AlexNet" */
int64_t ds_figure6_devices(uint32_t size);        /* 4 … 64 */

typedef struct ds_figure6_setup {
    const char *scenarios;  /* the folder */
    const ds_csv *measured; /* tests/data/pase_measured_strategies.csv */
    const ds_profiles *profiles;
    int64_t infiniband_gbit; /* of a box; 56 by default */
    /* The devices that share the paper's batch: 4. 1: each has a whole one. 0: all devices share
     * one, however many they are. */
    int64_t batch_devices;
} ds_figure6_setup;

typedef struct ds_figure6_cell {
    ds_pase_time data, expert, pase, found;
    uint32_t n_dropped; /* operations of `pase` whose splits no program can have */
} ds_figure6_cell;

/* Searches and simulates one cell. Errors: those of simulate.h, with the strategy's name before the
 * message. O(the search + 4 simulations). */
ds_status ds_figure6_run(const ds_figure6_setup *setup, uint32_t cluster, uint32_t model,
                         uint32_t size, ds_figure6_cell *out, ds_error *err);

#endif
