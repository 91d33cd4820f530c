/* Scenarios of the figure's cells, made from the models and clusters under scenarios/. */
#include "tools/pase/cells.h"

#include "tools/pase/published.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- models and clusters ---- */

typedef struct network {
    const char *name, *import, *function;
    int64_t batch, cutoff;
    int64_t share;   /* devices that share such a batch; 0: all devices */
    bool normalizes; /* batches, each device its own part */
} network;

static const network networks[DS_FIGURE6_MODELS] = {
    {"AlexNet", "models/pase/alexnet.dir", "alexnet", 128, 4, 4, false},
    {"Inception v3", "models/pase/inception_v3.dir", "inception_v3", 128, 4, 4, true},
    {"RNNLM", "models/rnnlm.dir", "rnnlm", 64, 1, 0, false},
    {"Transformer", "models/pase/transformer.dir", "transformer", 64, 1, 0, false},
};
enum { RNNLM = 2, TRANSFORMER = 3 };

static const struct {
    const char *name, *import, *profile;
} clusters[DS_FIGURE6_CLUSTERS] = {
    {"1080Ti", "topologies/pase-1080ti.dir", "GTX-1080Ti-MeshTF"},
    {"2080Ti", "topologies/pase-2080ti.dir", "RTX-2080Ti-MeshTF"},
};

static const int64_t sizes[DS_FIGURE6_SIZES] = {4, 8, 16, 32, 64};
enum { GPUS_OF_A_BOX = 8 };

/* Devices over which the released Transformer's expert splits heads, hidden units and words. */
static const int64_t transformer_tp[DS_FIGURE6_SIZES] = {2, 4, 4, 8, 8};

const char *ds_figure6_cluster(uint32_t cluster) {
    return clusters[cluster].name;
}

const char *ds_figure6_model(uint32_t model) {
    return networks[model].name;
}

int64_t ds_figure6_devices(uint32_t size) {
    return sizes[size];
}

/* ---- one cell ---- */

typedef struct cell {
    const ds_figure6_setup *setup;
    const network *net;
    uint32_t cluster, model, size;
    int64_t devices;
} cell;

static void put_scenario(const cell *c, int64_t batch, const char *strategy, ds_buf *out) {
    int64_t gpus = c->devices < GPUS_OF_A_BOX ? c->devices : GPUS_OF_A_BOX;
    ds_buf_printf(out, "dir 1\nimport \"%s\" as m with batch = %" PRId64, c->net->import, batch);
    if (c->net->normalizes) ds_buf_printf(out, ", bn_groups = %" PRId64, c->devices);
    ds_buf_printf(out,
                  "\nimport \"%s\" with machines = %" PRId64 ", gpus = %" PRId64 ", gbit = %" PRId64
                  "\n",
                  clusters[c->cluster].import, c->devices / gpus, gpus, c->setup->infiniband_gbit);
    ds_buf_printf(out,
                  "scenario {\n  model = @m.%s\n  on = @cluster\n  profile = \"%s\"\n"
                  "  train { optimizer = sgd }\n  strategy { %s, bucket_size = 1 B }\n}\n",
                  c->net->function, clusters[c->cluster].profile, strategy);
}

static int64_t batch_of(const cell *c) {
    return c->net->share ? c->net->batch * c->devices / c->net->share : c->net->batch;
}

static ds_pase_source source_of(const char *path, const ds_buf *text) {
    return (ds_pase_source){.path = path, .text = text->text, .n = text->n};
}

static ds_status named(ds_status status, const char *what, ds_error *err) {
    if (!status || !err) return status;
    ds_error inner = *err;
    return ds_error_set(err, status, ds_error_loc(&inner), "%s: %s", what, inner.message);
}

static ds_status simulate_text(const cell *c, const char *path, const char *strategy,
                               ds_pase_time *out, ds_error *err) {
    ds_buf text = {0};
    put_scenario(c, batch_of(c), strategy, &text);
    ds_pase_source source = source_of(path, &text);
    ds_status status = ds_pase_simulate(&source, c->setup->profiles, out, err);
    ds_buf_deinit(&text);
    return status;
}

static ds_status simulate_splits(const cell *c, const char *path, const ds_pase_graph *graph,
                                 const ds_pase_splits *splits, ds_pase_time *out, ds_error *err) {
    ds_buf text = {0};
    put_scenario(c, batch_of(c), "dp = 1", &text);
    ds_pase_source source = source_of(path, &text);
    ds_status status =
        ds_pase_simulate_strategy(&source, c->setup->profiles,
                                  &(ds_pase_assigned){graph, splits, c->devices, true}, out, err);
    ds_buf_deinit(&text);
    return status;
}

static ds_status data_parallel(const cell *c, const char *path, ds_pase_time *out, ds_error *err) {
    char strategy[64];
    snprintf(strategy, sizeof strategy, "dp = %" PRId64, c->devices);
    return named(simulate_text(c, path, strategy, out, err), "data parallel", err);
}

static ds_status expert(const cell *c, const char *path, const ds_pase_graph *graph,
                        ds_pase_time *out, ds_error *err) {
    if (c->model == RNNLM) {
        char strategy[64];
        snprintf(strategy, sizeof strategy, "pp = 2, dp = %" PRId64, c->devices / 2);
        return named(simulate_text(c, path, strategy, out, err), "expert", err);
    }
    ds_pase_limits limits = {.devices = c->devices, .cutoff = 1, .by_rule = true, .divides = true};
    ds_pase_splits *splits = ds_xcalloc((size_t)graph->nodes.n + 1, sizeof *splits);
    int64_t tp = c->model == TRANSFORMER ? transformer_tp[c->size] : 1;
    ds_pase_expert(graph, &limits, tp, splits);
    ds_status status = simulate_splits(c, path, graph, splits, out, err);
    free(splits);
    return named(status, "expert", err);
}

static ds_status measured(const cell *c, const char *path, const ds_pase_graph *graph,
                          ds_figure6_cell *out, ds_error *err) {
    ds_pase_limits limits = {.devices = c->devices, .cutoff = 1, .by_rule = true, .divides = true};
    ds_pase_splits *splits = ds_xcalloc((size_t)graph->nodes.n + 1, sizeof *splits);
    ds_status status = ds_pase_published(c->setup->measured, c->net->function, graph, &limits,
                                         splits, &out->n_dropped, err);
    if (!status) status = simulate_splits(c, path, graph, splits, &out->pase, err);
    free(splits);
    return named(status, "PaSE", err);
}

/* Searches by the paper's formulas, for the paper's batch, among splits that programs can have. */
static ds_status found(const cell *c, const char *path, ds_pase_time *out, ds_error *err) {
    ds_buf text = {0};
    ds_pase_case paper;
    ds_pase_result *result = NULL;
    put_scenario(c, c->net->batch, "dp = 1", &text);
    ds_pase_source source = source_of(path, &text);
    ds_pase_model *model =
        ds_pase_formulas_new(c->devices, c->net->cutoff, DS_PASE_FLOP_PER_S, DS_PASE_BYTES_PER_S);
    model->limits.by_rule = model->limits.divides = true;
    ds_status status = ds_pase_case_open(&source, &paper, err);
    if (!status) status = ds_pase_search(paper.folded, model, &(ds_pase_options){0}, &result, err);
    if (!status) status = simulate_splits(c, path, paper.folded, result->strategy, out, err);
    ds_pase_result_free(result);
    model->free(model);
    ds_pase_case_close(&paper);
    ds_buf_deinit(&text);
    return named(status, "found", err);
}

static cell cell_of(const ds_figure6_setup *setup, uint32_t cluster, uint32_t model,
                    uint32_t size) {
    return (cell){.setup = setup,
                  .net = &networks[model],
                  .cluster = cluster,
                  .model = model,
                  .size = size,
                  .devices = sizes[size]};
}

static void path_of(const ds_figure6_setup *setup, char *path, size_t n) {
    snprintf(path, n, "%s/figure6.dir", setup->scenarios);
}

ds_status ds_figure6_run(const ds_figure6_setup *setup, uint32_t cluster, uint32_t model,
                         uint32_t size, ds_figure6_cell *out, ds_error *err) {
    cell c = cell_of(setup, cluster, model, size);
    char path[4096];
    ds_buf text = {0};
    ds_pase_case full;
    path_of(setup, path, sizeof path);
    put_scenario(&c, batch_of(&c), "dp = 1", &text);
    ds_pase_source source = source_of(path, &text);
    ds_status status = ds_pase_case_open(&source, &full, err);
    if (!status) status = data_parallel(&c, path, &out->data, err);
    if (!status) status = expert(&c, path, full.folded, &out->expert, err);
    if (!status) status = measured(&c, path, full.folded, out, err);
    ds_pase_case_close(&full);
    ds_buf_deinit(&text);
    return status;
}

ds_status ds_figure6_found(const ds_figure6_setup *setup, uint32_t cluster, uint32_t model,
                           uint32_t size, ds_pase_time *out, ds_error *err) {
    cell c = cell_of(setup, cluster, model, size);
    char path[4096];
    path_of(setup, path, sizeof path);
    return found(&c, path, out, err);
}

/* ---- against measurements ---- */

ds_figure6_gain ds_figure6_gain_of(const ds_figure6_cell *times) {
    double data = (double)times->data.step_ps;
    return (ds_figure6_gain){data / (double)times->expert.step_ps,
                             data / (double)times->pase.step_ps};
}

ds_status ds_figure6_measured(const ds_csv *figure, uint32_t cluster, uint32_t model, uint32_t size,
                              ds_figure6_gain *out, ds_error *err) {
    static const char *const names[] = {"cluster", "model", "devices", "expert", "pase"};
    uint32_t at[5];
    for (int i = 0; i < 5; i++) DS_TRY(ds_csv_need(figure, names[i], &at[i], err));
    for (uint32_t i = 0; i < figure->rows.n; i++) {
        const char *const *cells = (const char *const *)figure->rows.at[i].cells;
        if (strcmp(cells[at[0]], clusters[cluster].name) != 0 ||
            strcmp(cells[at[1]], networks[model].function) != 0 ||
            strtoll(cells[at[2]], NULL, 10) != sizes[size])
            continue;
        *out = (ds_figure6_gain){strtod(cells[at[3]], NULL), strtod(cells[at[4]], NULL)};
        return DS_OK;
    }
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s has no %s on %" PRId64 " x %s",
                        figure->file, networks[model].function, sizes[size],
                        clusters[cluster].name);
}

static bool is_tie(double a, double b) {
    return a < b * 1.03 && b < a * 1.03;
}

static bool same_side(double measured, double simulated, double of_measured, double of_simulated) {
    return is_tie(measured, of_measured) || is_tie(simulated, of_simulated) ||
           (measured > of_measured) == (simulated > of_simulated);
}

ds_figure6_verdict ds_figure6_judge(ds_figure6_gain measured, ds_figure6_gain simulated) {
    return (ds_figure6_verdict){
        .side = same_side(measured.pase, simulated.pase, 1, 1),
        .expert_side = same_side(measured.expert, simulated.expert, 1, 1),
        .winner = same_side(measured.pase, simulated.pase, measured.expert, simulated.expert)};
}
