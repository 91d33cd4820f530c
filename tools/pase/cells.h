/* Figure 6 of PaSE, simulated: the gains of PaSE's strategies and of an expert's strategies over
 * data parallelism, on two clusters, for four models on 4 to 64 GPUs.
 *
 * The strategies are the measured ones, as far as programs can have such strategies. The steps
 * (search/pase/RESULTS.md has the reasons):
 *   batch       128 images for each 4 GPUs; 64 sequences for any number of GPUs (assumed)
 *   software    each gradient is reduced by itself, and nothing is computed during communication
 *   expert      one weird trick for images; for the Transformer tp = 2, 4, 4, 8, 8, the batch over
 *               the rest; for RNNLM each LSTM on half of the devices, the batch over a half
 * Source: Elango, IPDPS 2021, section V; its released benchmarks. */
#ifndef DS_TOOLS_PASE_CELLS_H
#define DS_TOOLS_PASE_CELLS_H

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
    int64_t infiniband_gbit; /* of a box */
} ds_figure6_setup;

typedef struct ds_figure6_cell {
    ds_pase_time data, expert, pase;
    uint32_t n_dropped; /* operations of `pase` whose splits no program can have */
} ds_figure6_cell;

/* Simulates one cell. Errors: those of simulate.h, with the strategy's name before the message.
 * O(3 simulations). */
ds_status ds_figure6_run(const ds_figure6_setup *setup, uint32_t cluster, uint32_t model,
                         uint32_t size, ds_figure6_cell *out, ds_error *err);
/* The strategy that the search finds for the cell by PaSE's formulas, for the paper's batch and
 * among splits that programs can have, simulated like the others. */
ds_status ds_figure6_found(const ds_figure6_setup *setup, uint32_t cluster, uint32_t model,
                           uint32_t size, ds_pase_time *out, ds_error *err);

/* Speed-ups over data parallelism. */
typedef struct ds_figure6_gain {
    double expert, pase;
} ds_figure6_gain;
ds_figure6_gain ds_figure6_gain_of(const ds_figure6_cell *cell);
/* The paper's measured gains (tests/data/pase_figure6.csv). Errors: DS_ERR_DATA. */
ds_status ds_figure6_measured(const ds_csv *figure, uint32_t cluster, uint32_t model, uint32_t size,
                              ds_figure6_gain *out, ds_error *err);

/* Is PaSE's gain on the measured side of 1, is the expert's gain, and does the measured winner win?
 * A gain within 3 % of 1, or of the other gain, is on either side. */
typedef struct ds_figure6_verdict {
    bool side, expert_side, winner;
} ds_figure6_verdict;
ds_figure6_verdict ds_figure6_judge(ds_figure6_gain measured, ds_figure6_gain simulated);

#endif
