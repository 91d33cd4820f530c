/* From a cluster and a model to a topology, and from an MFU to a step.
 *
 * HexiScale's MFU (Relaxed-System-Lab/FlashFlex a4f366f, experimental/cost_modeling.py):
 *
 *     72 L B S H² (1 + S / 6H + V / 16LH) / (step · Σ peaks)
 *
 * with 96 in place of 72 where recomputation counts, as in the script's default. Here 72: the published figures are
 * called MFU, and with 96 the four calib rows would be predicted 27 to 45 % high. */
#include "tools/validate/mfu.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* config.py: S = 4096, V = 32000, B_type = 2; llama_train.py's example trains in fp16 with --checkpoint-layers. */
enum { SEQ = 4096, VOCAB = 32000 };
/* assumed: no source. Of 64, 96, 128 and 256 sequences a step the calib rows' largest error is least with 96 (17, 8,
 * 13 and 22 %). */
enum { BATCH = 96 };
/* arguments.py: inter_bw = 5 GB/s by default; assumed: one port a node and 15 us, as TCP. */
enum { NETWORK_MB_PER_S = 5000 };

/* Peaks: machine_amounts.json. Rates in a node: the same file has 20 GB/s for the 3080 Ti and half nodes of 4090, 2
 * for whole nodes of 3090 and 4090, as an example of the scheduler's input. assumed: 20, all being cards on PCIe 4. */
static const struct kind {
    const char *word; /* what the cell begins with */
    const char *device, *attrs;
    double peak_tflops;
    int64_t node_mb_per_s; /* of a GPU */
} kinds[] = {
    {"3080Ti", "RTX-3080Ti-12GB", "", 56.9, 20000},
    {"3090", "RTX-3090-24GB", "", 80, 20000},
    {"4090", "RTX-4090-24GB", "", 165.2, 20000},
    /* PCIe 4; 300 W: the data sheet of the 80 GB card (not read again) */
    {"A100-PCIe", "A100-SXM4-80GB", " {power_cap = 300}", 312, 31000},
    {"A100", "A100-SXM4-80GB", "", 312, 200000},
};

enum { MOST_PARTS = 16 };

typedef struct part {
    const struct kind *kind;
    int64_t nodes, gpus; /* of a node */
} part;

typedef struct cluster {
    part parts[MOST_PARTS];
    uint32_t n;
    int64_t gpus;
    double peak_tflops;
} cluster;

/* "RTX 4090", "RTX-4090" and "4090" are one card. */
static const struct kind *kind_of(const char *text, size_t n) {
    if (n > 4 && strncasecmp(text, "RTX", 3) == 0) text += 4, n -= 4;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n >= strlen(kinds[i].word) &&
            strncasecmp(text, kinds[i].word, strlen(kinds[i].word)) == 0)
            return &kinds[i];
    return NULL;
}

/* What the row's cells of the GPU and of nodes say beside the cluster. */
static ds_status check_part(const val_row *row, const part *p, ds_error *err) {
    if (*row->gpu && !val_mentions(row->gpu, p->kind->word))
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "gpu = '%.60s' does not name the %s of cluster", row->gpu,
                            p->kind->word);
    if (row->gpus_per_node && row->gpus_per_node != p->gpus)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "gpus_per_node = %" PRId64 ", but cluster has nodes of %" PRId64,
                            row->gpus_per_node, p->gpus);
    return DS_OK;
}

/* "3x(8x4090-24GB)" between '+'. */
static ds_status read_cluster(const val_row *row, cluster *out, ds_error *err) {
    *out = (cluster){0};
    for (const char *at = row->cluster; *at;) {
        size_t n = strcspn(at, ")");
        char *open, *name;
        long long nodes = strtoll(at, &open, 10), gpus = 0;
        bool good = open > at && strncmp(open, "x(", 2) == 0 && at[n] == ')' && out->n < MOST_PARTS;
        if (good) gpus = strtoll(open + 2, &name, 10);
        good = good && *name == 'x' && nodes > 0 && gpus > 0 && nodes <= 512 && gpus <= 64;
        if (!good)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                                "cluster = '%.60s' is no list like 3x(8x4090-24GB)+1x(8x3090-24GB)",
                                row->cluster);
        const struct kind *kind = kind_of(name + 1, (size_t)(at + n - name - 1));
        if (!kind)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                                "cluster: the peak of '%.*s' is not known here",
                                (int)(at + n - name - 1), name + 1);
        out->parts[out->n++] = (part){kind, nodes, gpus};
        DS_TRY(check_part(row, &out->parts[out->n - 1], err));
        out->gpus += nodes * gpus;
        out->peak_tflops += (double)(nodes * gpus) * kind->peak_tflops;
        at += n + 1;
        at += strspn(at, " +");
    }
    if (out->n && (!row->gpus || row->gpus == out->gpus)) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "cluster = '%.60s' has %" PRId64 " GPUs, not %" PRId64, row->cluster,
                        out->gpus, row->gpus);
}

static void put_topology(const cluster *c, double network_mb_per_s, ds_buf *out) {
    for (uint32_t i = 0; i < c->n; i++) {
        const part *p = &c->parts[i];
        ds_buf_printf(out,
                      "topology @node%" PRIu32 " {\n  device gpu[%" PRId64
                      "] : \"%s\"%s\n  switch bus\n  nic nic\n  link gpu[i] -- bus : %" PRId64
                      " MB/s, 500 ns for i in 0..%" PRId64
                      "\n  link bus -- nic : 31 GB/s, 500 ns\n}\n",
                      i, p->gpus, p->kind->device, p->kind->attrs, p->kind->node_mb_per_s, p->gpus);
    }
    ds_buf_put(out, "topology @cluster {\n  switch fabric\n");
    for (uint32_t i = 0; i < c->n; i++)
        ds_buf_printf(out,
                      "  node n%" PRIu32 "[%" PRId64 "] : @node%" PRIu32 "\n  link n%" PRIu32
                      "[i].nic -- fabric : %.0f MB/s, 7500 ns for i in 0..%" PRId64 "\n",
                      i, c->parts[i].nodes, i, i, network_mb_per_s, c->parts[i].nodes);
    ds_buf_put(out, "}\n");
}

/* ---- the model ---- */

/* Llama's products: 8/3 of the width in multiples of 256, but for the 70B model (arXiv:2307.09288). */
static void fill_model(val_row *row) {
    bool grouped = row->hidden == 8192 && strstr(row->model, "70");
    if (!row->ffn) row->ffn = grouped ? 28672 : (row->hidden * 8 / 3 + 255) / 256 * 256;
    if (!row->kv_heads) row->kv_heads = grouped ? 8 : row->heads;
    if (!row->vocab) row->vocab = VOCAB;
    if (!row->seq) row->seq = SEQ;
    if (!row->gbs) row->gbs = BATCH;
}

/* Words about a link may be anything; a rate would not count. */
static ds_status check_link(const char *column, const char *text, ds_error *err) {
    text += strspn(text, " \t");
    if (!*text || !strchr("+-.0123456789", *text)) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "%s = '%.60s': MFU alone takes no rates; links are assumed", column, text);
}

static ds_status check_row(const val_row *row, ds_error *err) {
    DS_TRY(val_row_check_cells(row, err));
    if (strncasecmp(row->model, "Llama", 5) != 0)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "MFU alone: of model '%.60s' no dims are known", row->model);
    if (!row->layers || !row->hidden || !row->heads)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "not stated: %s",
                            !row->layers   ? "layers"
                            : !row->hidden ? "hidden"
                                           : "heads");
    DS_TRY(val_row_check_heads(row, err));
    DS_TRY(check_link("intra_link", row->intra_link, err));
    DS_TRY(check_link("inter_link", row->inter_link, err));
    if (row->dp || row->tp || row->pp || row->mbs)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "MFU alone beside a layout: only a layout of the planner is predicted");
    if (!*row->cluster)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "MFU alone, and not stated: cluster");
    return DS_OK;
}

static double flop_of(const val_row *r) {
    double l = (double)r->layers, h = (double)r->hidden, s = (double)r->seq;
    return 72 * l * (double)r->gbs * s * h * h *
           (1 + s / (6 * h) + (double)r->vocab / (16 * l * h));
}

double val_mfu_pct(const val_row *row, double seconds) {
    cluster c;
    ds_error unsaid;
    if (read_cluster(row, &c, &unsaid) != DS_OK) return 0;
    return 100 * flop_of(row) / (seconds * c.peak_tflops * 1e12);
}

bool val_is_mfu_alone(const val_row *row) {
    return row->mfu_pct > 0 && !(row->seconds > 0) && *row->cluster_id;
}

ds_status val_predict_mfu(const val_job *job, val_row row, val_prediction *p, ds_error *err) {
    cluster c;
    DS_TRY(check_row(&row, err));
    DS_TRY(read_cluster(&row, &c, err));
    if (!job->planner)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "MFU alone: there is no planner");
    fill_model(&row);
    row.gpus = c.gpus;
    row.seconds = flop_of(&row) / (row.mfu_pct / 100 * c.peak_tflops * 1e12);
    static const double networks[VAL_NETWORKS] = {1, 1.0 / 3, 3};
    val_plan_request request = {.row = &row};
    ds_buf texts[VAL_NETWORKS] = {{0}};
    for (int i = 0; i < VAL_NETWORKS; i++) {
        put_topology(&c, networks[i] * NETWORK_MB_PER_S, &texts[i]);
        request.topologies[i] = texts[i].text;
    }
    ds_status status = job->planner(job, &request, err);
    for (int i = 0; i < VAL_NETWORKS; i++) ds_buf_deinit(&texts[i]);
    if (status != DS_OK) return status;
    p->row = row;
    p->seconds = request.seconds[0];
    p->high = request.seconds[1];
    p->low = request.seconds[2];
    return DS_OK;
}
