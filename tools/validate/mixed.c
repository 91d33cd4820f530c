/* From cluster_id, stage_devices and stage_layers to nodes and stages. */
#include "tools/validate/mixed.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SENDS "largest send/recv between nodes, Sailor's network_coeffs_all_homo.json @cf2c8e3"
#define MIT   .clusters = " sailor_mit1 sailor_mit2 ", .pcie_mb_per_s = 12000, .nics = 1

#define P3                                                                                         \
    .gpu = "V100", .device = "V100-SXM2-16GB", .intra_mb_per_s = 75000, .pcie_mb_per_s = 12000,    \
    .nics = 1, .nic_mb_per_s = 1250
#define P3_BASIS                                                                                   \
    "AWS p3.8xlarge: 10 Gb/s; one or two NVLinks of 25 GB/s between each two of four V100"

static const val_node_kind kinds[] = {
    {MIT, .gpu = "RTX-3090", .device = "RTX-3090-24GB", .profile = "RTX-3090-Sailor",
     .intra_mb_per_s = 5327, .nic_mb_per_s = 116,
     .basis = SENDS ": 0.116 GB/s, 1 Gb/s; 5.3 GB/s among 8 GPUs; PCIe assumed"},
    {MIT, .gpu = "RTX-2080", .device = "RTX-2080Ti", .profile = "RTX-2080Ti-Sailor",
     .intra_mb_per_s = 24552, .nic_mb_per_s = 2858,
     .basis = SENDS ": 2.858 GB/s by 1 to 8 GPUs; 11 GB are the memory of a 2080 Ti"},
    {MIT, .gpu = "Titan-RTX", .device = "TITAN-RTX", .profile = "TITAN-RTX-Sailor",
     .intra_mb_per_s = 24304, .nic_mb_per_s = 2858, .basis = SENDS ": 2.858 GB/s"},
    {P3, .clusters = " amp_model ", .profile = "V100-AMP", .basis = P3_BASIS},
    {P3, .clusters = " amp_het ", .profile = "V100-AMP-T4", .basis = P3_BASIS},
    {.clusters = " amp_het amp_homo ",
     .gpu = "T4",
     .device = "T4",
     .profile = "T4-AMP",
     .intra_mb_per_s = 9000,
     .pcie_mb_per_s = 12000,
     .nics = 1,
     .nic_mb_per_s = 6250,
     .basis = "AWS g4dn.12xlarge: 50 Gb/s; PCIe assumed"},
    {.clusters = " sailor_clariden ",
     .gpu = "GH",
     .device = "GH200-96GB",
     .profile = "GH200-Sailor",
     .intra_mb_per_s = 150000,
     .pcie_mb_per_s = 64000,
     .nics = 4,
     .nic_mb_per_s = 23000,
     .basis = SENDS ": 22.9, 45.7 and 92.6 GB/s by 1, 2 and 4 GPUs; NVLink "
                    "of four GH200, six links of 25 GB/s a pair"},
};

bool val_is_mixed(const val_row *row) {
    return *row->cluster_id != 0;
}

/* ---- cells ---- */

static const val_node_kind *find_kind(const val_row *row, const char *word, size_t n) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i].gpu), id = strlen(row->cluster_id);
        const char *at = strstr(kinds[i].clusters, row->cluster_id);
        bool here = at && at[-1] == ' ' && at[id] == ' ';
        bool whole = n == length || (n > length && word[length] == '-');
        if (here && whole && strncasecmp(word, kinds[i].gpu, length) == 0) return &kinds[i];
    }
    return NULL;
}

static bool is_known_cluster(const val_row *row) {
    size_t id = strlen(row->cluster_id);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *at = strstr(kinds[i].clusters, row->cluster_id);
        if (id && !strchr(row->cluster_id, ' ') && at && at[-1] == ' ' && at[id] == ' ')
            return true;
    }
    return false;
}

typedef struct ranks {
    const val_row *row;
    val_mixed *out;
    int64_t n; /* ranks so far */
} ranks;

static ds_status take_rank(ranks *r, const val_node_kind *kind, ds_error *err) {
    int64_t node = r->n / r->row->gpus_per_node;
    if (node >= VAL_MOST_NODES)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "more than %d nodes",
                            VAL_MOST_NODES);
    if (r->n++ % r->row->gpus_per_node == 0) {
        r->out->node[node] = kind;
        r->out->n_nodes = (uint32_t)node + 1;
    }
    if (r->out->node[node] != kind)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "stage_devices: node %" PRId64 " has a %s and a %s", node,
                            r->out->node[node]->gpu, kind->gpu);
    return DS_OK;
}

/* "RTX-3090*8": n devices of a kind. */
static ds_status take_group(ranks *r, const char *text, size_t n, ds_error *err) {
    const char *star = memchr(text, '*', n);
    char *end = NULL;
    long count = star ? strtol(star + 1, &end, 10) : 0;
    if (!star || end > text + n || count < 1 || count > r->row->gpus)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "stage_devices: '%.*s' is no KIND*N",
                            (int)n, text);
    size_t word = (size_t)(star - text);
    while (word && text[word - 1] == ' ') word--;
    const val_node_kind *kind = find_kind(r->row, text, word);
    if (!kind)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "no device '%.*s' of cluster %s is known here", (int)word, text,
                            r->row->cluster_id);
    if (*r->row->gpu && !val_mentions(r->row->gpu, kind->gpu))
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "gpu = '%.60s' does not name the %s of stage_devices", r->row->gpu,
                            kind->gpu);
    for (long i = 0; i < count; i++) DS_TRY(take_rank(r, kind, err));
    return DS_OK;
}

/* Groups between '+', and " xM replicas" behind them. */
static ds_status take_replica(ranks *r, const char *text, size_t n, ds_error *err) {
    long times = 1;
    char word[24];
    size_t groups = n;
    for (size_t i = 0; i + 1 < n; i++)
        if (text[i] == ' ' && text[i + 1] == 'x') {
            groups = i;
            snprintf(word, sizeof word, "%.*s", (int)(n - i - 2 < 23 ? n - i - 2 : 23),
                     text + i + 2);
            times = strtol(word, NULL, 10);
            break;
        }
    if (times < 1 || times > r->row->gpus)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "stage_devices: '%.*s' has no replicas",
                            (int)n, text);
    for (; times; times--)
        for (size_t at = 0; at < groups;) {
            const char *plus = memchr(text + at, '+', groups - at);
            size_t length = plus ? (size_t)(plus - text) - at : groups - at;
            DS_TRY(take_group(r, text + at, length, err));
            at += length + 1;
        }
    return DS_OK;
}

static ds_status take_stages(ranks *r, ds_error *err) {
    const char *text = r->row->stage_devices;
    int64_t each = r->row->gpus / r->row->pp, stage = 0;
    while (*text) {
        size_t n = strcspn(text, ";|"), length = n;
        while (length && text[length - 1] == ' ') length--;
        DS_TRY(take_replica(r, text, length, err));
        char end = text[n];
        if (end != '|' && r->n != ++stage * each)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                                "stage_devices: %" PRId64 " devices in the first %" PRId64
                                " stages, not %" PRId64,
                                r->n, stage, stage * each);
        text += n + (end != 0);
        text += strspn(text, " ");
    }
    if (r->n != r->row->gpus)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "stage_devices: %" PRId64 " devices, not %" PRId64, r->n, r->row->gpus);
    return DS_OK;
}

/* Blocks of each stage; a source that counts embedding and head has two more. */
static ds_status take_layers(const val_row *row, val_mixed *out, ds_error *err) {
    int64_t sum = 0, n = 0;
    for (const char *at = row->stage_layers; *at;) {
        char *end;
        long value = strtol(at, &end, 10);
        if (end == at || value < 0 || value > row->layers + 2 || n == row->pp)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                                "stage_layers = '%.40s' is no list of %" PRId64 " numbers",
                                row->stage_layers, row->pp);
        sum += out->layers[n++] = value;
        at = end + strspn(end, " ,");
    }
    bool counted = sum == row->layers + 2 && n == row->pp;
    if (counted) {
        out->layers[0]--;
        out->layers[n - 1]--;
    }
    if (n != row->pp || (sum != row->layers && !counted) || out->layers[0] < 0 ||
        out->layers[n - 1] < 0)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "stage_layers = '%.40s' are not %" PRId64 " layers on %" PRId64
                            " stages",
                            row->stage_layers, row->layers, row->pp);
    return DS_OK;
}

static ds_status list_kinds(val_mixed *out, ds_error *err) {
    for (uint32_t i = 0; i < out->n_nodes; i++) {
        uint32_t k = 0;
        while (k < out->n_kinds && out->kind[k] != out->node[i]) k++;
        if (k < out->n_kinds) continue;
        if (k == VAL_MOST_KINDS)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "more than %d kinds",
                                VAL_MOST_KINDS);
        out->kind[out->n_kinds++] = out->node[i];
    }
    return DS_OK;
}

ds_status val_mixed_read(const val_row *row, val_mixed *out, ds_error *err) {
    *out = (val_mixed){0};
    if (!is_known_cluster(row))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "cluster_id = '%.40s': no machine is known here", row->cluster_id);
    if (row->pp > VAL_MOST_STAGES)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "more than %d stages",
                            VAL_MOST_STAGES);
    if (!*row->stage_devices || !*row->stage_layers || row->no_node_size)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "not stated: %s",
                            !*row->stage_devices  ? "stage_devices"
                            : !*row->stage_layers ? "stage_layers"
                                                  : "gpus_per_node");
    ranks r = {row, out, 0};
    DS_TRY(take_stages(&r, err));
    DS_TRY(take_layers(row, out, err));
    return list_kinds(out, err);
}

/* ---- the machine ---- */

static void put_node(const val_row *row, const val_node_kind *k, uint32_t number, ds_buf *out) {
    int64_t each = row->gpus_per_node, nics = k->nics < each ? k->nics : each;
    while (each % nics) nics--;
    ds_buf_printf(out, "topology @node%" PRIu32 " {\n  device gpu[%" PRId64 "] : ", number, each);
    ds_buf_put_quoted(out, k->device);
    ds_buf_printf(out,
                  "\n  switch bus\n  nic nic[%" PRId64 "]\n  link gpu[i] -- bus : %" PRId64
                  " MB/s, 1 us for i in 0..%" PRId64 "\n  link gpu[i] -- nic[i / %" PRId64
                  "] : %" PRId64 " MB/s, 1 us for i in 0..%" PRId64 "\n}\n\n",
                  nics, k->intra_mb_per_s, each, each / nics, k->pcie_mb_per_s, each);
}

void val_mixed_topology(const val_row *row, const val_mixed *m, ds_buf *out) {
    for (uint32_t k = 0; k < m->n_kinds; k++) put_node(row, m->kind[k], k, out);
    ds_buf_put(out, "topology @cluster {\n  switch fabric\n");
    for (uint32_t i = 0, n; i < m->n_nodes; i += n) {
        uint32_t kind = 0;
        const val_node_kind *k = m->node[i];
        for (n = 1; i + n < m->n_nodes && m->node[i + n] == k; n++) {
        }
        while (m->kind[kind] != k) kind++;
        int64_t nics = k->nics < row->gpus_per_node ? k->nics : row->gpus_per_node;
        while (row->gpus_per_node % nics) nics--;
        ds_buf_printf(out,
                      "  node n%" PRIu32 "[%" PRIu32 "] : @node%" PRIu32 "\n  link n%" PRIu32
                      "[i].nic[j] -- fabric : %" PRId64 " MB/s, 1 us for i in 0..%" PRIu32
                      ", j in 0..%" PRId64 "\n",
                      i, n, kind, i, k->nic_mb_per_s, n, nics);
    }
    ds_buf_put(out, "}\n\n");
}
