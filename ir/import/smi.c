/* `nvidia-smi topo -m` as a topology.
 *
 * The table gives distances. Those of PCI are an ultrametric: the devices at most PIX apart stand
 * behind one switch, those at most PXB apart behind one switch above these, those at most NODE
 * apart on one NUMA node. So there is one tree, and where a cell is farther than the tree has it
 * the table is no tree's, which is an error: but for GPUs whose NUMA affinity is the same and
 * adapters that the driver of a virtual machine calls SYS apart. A device with no other at most PIX
 * apart is linked to the switch of those PXB apart, with the latency of a bridge between them: so
 * a table's PXB is farther than its PIX.
 *
 * NVLinks: between GPUs that have as many as the table says they are direct. Where the sum over a
 * GPU's row is more than it has they all go to NVSwitch, as many as the row's largest. */
#include "ir/import/graph_internal.h"
#include "ir/import/hardware_internal.h"
#include "ir/import/internal.h"
#include "ir/import/smi_internal.h"

#include <inttypes.h>
#include <string.h>

enum { BY_PIX, BY_PXB, BY_NODE, N_CLUSTERINGS };
static const smi_level bound_of[] = {SMI_PIX, SMI_PXB, SMI_NODE};

typedef struct writer {
    ds_arena *arena;
    const ds_import_options *options;
    smi_table table;
    ds_graph graph;
    uint32_t *cluster[N_CLUSTERINGS]; /* [device] → the first device of its cluster */
    uint32_t *nvlinks;                /* [device] */
    uint32_t *node;                   /* [device] */
    uint32_t *above[N_CLUSTERINGS];   /* [first device of a cluster] → node; UINT32_MAX: none */
    uint32_t n_hosts, n_stretched, n_fabrics;
    const ds_hw_gpu *gpu;
    const char *type;
    ds_error *err;
} writer;

/* ---- clusters ---- */

static uint32_t first_of_set(uint32_t *first, uint32_t i) {
    while (first[i] != i) i = first[i] = first[first[i]];
    return i;
}

/* The lower number stays the first. */
static void join_sets(uint32_t *first, uint32_t i, uint32_t j) {
    i = first_of_set(first, i);
    j = first_of_set(first, j);
    first[i < j ? j : i] = i < j ? i : j;
}

static bool same_affinity(const smi_table *table, uint32_t i, uint32_t j) {
    const char *a = table->devices[i].affinity, *b = table->devices[j].affinity;
    return a && b && strcmp(a, b) == 0;
}

static uint32_t *new_array(const writer *w, bool own) {
    uint32_t *array = DS_NEW_N(w->arena, uint32_t, w->table.n);
    for (uint32_t i = 0; i < w->table.n; i++) array[i] = own ? i : UINT32_MAX;
    return array;
}

static void find_clusters(writer *w) {
    const smi_table *t = &w->table;
    for (int c = 0; c < N_CLUSTERINGS; c++) {
        w->cluster[c] = new_array(w, true);
        w->above[c] = new_array(w, false);
        for (uint32_t i = 0; i < t->n; i++)
            for (uint32_t j = 0; j < i; j++)
                if (smi_at(t, i, j)->level <= bound_of[c] ||
                    (c == BY_NODE && same_affinity(t, i, j)))
                    join_sets(w->cluster[c], i, j);
        for (uint32_t i = 0; i < t->n; i++) w->cluster[c][i] = first_of_set(w->cluster[c], i);
    }
}

static bool together(const writer *w, int clustering, uint32_t i, uint32_t j) {
    return w->cluster[clustering][i] == w->cluster[clustering][j];
}

static ds_status check_distances(writer *w) {
    const smi_table *t = &w->table;
    for (uint32_t i = 0; i < t->n; i++)
        for (uint32_t j = 0; j < i; j++) {
            smi_level level = smi_at(t, i, j)->level;
            if (level == SMI_NVLINK) continue;
            w->n_stretched += level == SMI_SYS && together(w, BY_NODE, i, j);
            for (int c = BY_PIX; c <= BY_PXB; c++)
                if (level > bound_of[c] && together(w, c, i, j))
                    return ds_smi__error(t, i, j, w->err,
                                         "%s and %s are %s apart, but both within %s of another "
                                         "device: no tree of PCIe switches has these distances",
                                         t->devices[i].label, t->devices[j].label,
                                         ds_smi__level_name(level),
                                         ds_smi__level_name(bound_of[c]));
        }
    return DS_OK;
}

/* ---- NVLink ---- */

static uint32_t row_sum(const smi_table *t, uint32_t i) {
    uint32_t sum = 0;
    for (uint32_t j = 0; j < t->n; j++) sum += smi_at(t, i, j)->nvlinks;
    return sum;
}

static uint32_t row_max(const smi_table *t, uint32_t i) {
    uint32_t max = 0;
    for (uint32_t j = 0; j < t->n; j++)
        if (smi_at(t, i, j)->nvlinks > max) max = smi_at(t, i, j)->nvlinks;
    return max;
}

static ds_status unknown_gpu(writer *w) {
    return ds_error_set(w->err, DS_ERR_VALUE, DS_NOWHERE,
                        "the table does not say which GPUs these are, and their NVLinks do not "
                        "tell: name them, as --device V100-SXM2-16GB");
}

/* Which GPU it is: what the user says, else what has that many NVLinks. */
static ds_status find_gpu(writer *w) {
    const smi_table *t = &w->table;
    uint32_t max = 0, sum = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        if (row_max(t, i) > max) max = row_max(t, i);
        if (row_sum(t, i) > sum) sum = row_sum(t, i);
    }
    w->type = w->options->device;
    if (w->type) {
        w->gpu = ds_hw__gpu_named(w->type);
        if (w->gpu) return DS_OK;
        return ds_error_set(w->err, DS_ERR_VALUE, DS_NOWHERE,
                            "how fast PCIe and NVLink of a '%s' are is not known; this importer "
                            "knows NVIDIA's P100 to B300 by their catalogue names",
                            ds_import__plain(w->arena, w->type));
    }
    if (max == 12 || max == 18)
        sum = max; /* all links of a GPU to one place: NVSwitch, or a pair */
    w->gpu = ds_hw__gpu_of_nvlinks(sum);
    if (!w->gpu) w->gpu = ds_hw__gpu_of_nvlinks(max);
    if (!w->gpu) return unknown_gpu(w);
    w->type = w->gpu->name;
    return DS_OK;
}

static ds_status check_fabric(writer *w, const uint32_t *fabric, uint32_t first) {
    const smi_table *t = &w->table;
    for (uint32_t i = 0; i < t->n; i++)
        for (uint32_t j = 0; j < i; j++) {
            if (fabric[i] != first || fabric[j] != first) continue;
            uint32_t least = w->nvlinks[i] < w->nvlinks[j] ? w->nvlinks[i] : w->nvlinks[j];
            if (smi_at(t, i, j)->nvlinks != least)
                return ds_smi__error(
                    t, i, j, w->err,
                    "with %" PRIu32 " NVLinks a GPU (%s) the GPUs hang on NVSwitch, "
                    "but then %s and %s are NV%" PRIu32,
                    w->gpu->nvlinks, w->type, t->devices[i].label, t->devices[j].label, least);
        }
    return DS_OK;
}

static void write_direct(writer *w, uint32_t i, const ds_hw_nvlink *kind) {
    for (uint32_t j = i + 1; j < w->table.n; j++) {
        uint32_t n = smi_at(&w->table, i, j)->nvlinks;
        if (n)
            ds_graph__link(&w->graph, w->node[i], w->node[j], n * kind->bytes_per_s,
                           DS_HW_NVLINK_PS, true);
    }
}

/* One fabric: the GPUs that NVLinks join, by the first of them. */
static ds_status write_fabric(writer *w, const uint32_t *fabric, uint32_t first, uint32_t group,
                              const ds_hw_nvlink *kind) {
    const smi_table *t = &w->table;
    bool direct = true;
    for (uint32_t i = first; i < t->n; i++) {
        if (fabric[i] != first) continue;
        if (w->nvlinks[i] > w->gpu->nvlinks)
            return ds_smi__error(t, i, first, w->err,
                                 "%s has NV%" PRIu32 "; a %s has %" PRIu32 " NVLinks",
                                 t->devices[i].label, w->nvlinks[i], w->type, w->gpu->nvlinks);
        direct &= row_sum(t, i) <= w->gpu->nvlinks;
    }
    uint32_t nvswitch = UINT32_MAX;
    if (!direct) {
        DS_TRY(check_fabric(w, fabric, first));
        nvswitch = ds_graph__node(&w->graph, group);
    }
    for (uint32_t i = first; i < t->n; i++) {
        if (fabric[i] != first) continue;
        if (direct)
            write_direct(w, i, kind);
        else
            ds_graph__link(&w->graph, w->node[i], nvswitch, w->nvlinks[i] * kind->bytes_per_s,
                           DS_HW_NVLINK_SWITCH_PS, true);
    }
    w->n_fabrics += !direct;
    return DS_OK;
}

static ds_status write_nvlinks(writer *w) {
    const smi_table *t = &w->table;
    const ds_hw_nvlink *kind = ds_hw__nvlink(w->gpu->sm, w->gpu->nvlink);
    uint32_t *fabric = new_array(w, true);
    uint32_t group = ds_graph__group(&w->graph, "nvswitch", DS_NODE_SWITCH, NULL, true);
    w->nvlinks = new_array(w, false);
    for (uint32_t i = 0; i < t->n; i++) {
        w->nvlinks[i] = row_max(t, i);
        for (uint32_t j = 0; j < i; j++)
            if (smi_at(t, i, j)->nvlinks) join_sets(fabric, i, j);
    }
    for (uint32_t i = 0; i < t->n; i++) fabric[i] = first_of_set(fabric, i);
    for (uint32_t i = 0; i < t->n; i++)
        if (fabric[i] == i && w->nvlinks[i]) DS_TRY(write_fabric(w, fabric, i, group, kind));
    return DS_OK;
}

/* ---- PCI ---- */

static bool is_alone(const writer *w, int clustering, uint32_t first) {
    for (uint32_t i = first + 1; i < w->table.n; i++)
        if (w->cluster[clustering][i] == first) return false;
    return true;
}

/* A PXB cluster needs a switch of its own, if it is more than one PIX cluster. */
static bool is_one_below(const writer *w, uint32_t first) {
    for (uint32_t i = first + 1; i < w->table.n; i++)
        if (together(w, BY_PXB, i, first) && !together(w, BY_PIX, i, first)) return false;
    return true;
}

static void number_clusters(writer *w) {
    uint32_t pci = ds_graph__group(&w->graph, "pci", DS_NODE_SWITCH, NULL, false);
    uint32_t cpu = ds_graph__group(&w->graph, "cpu", DS_NODE_HOST, NULL, false);
    for (uint32_t i = 0; i < w->table.n; i++)
        for (int c = BY_PIX; c <= BY_NODE; c++) {
            if (w->cluster[c][i] != i) continue;
            bool none = (c == BY_PIX && is_alone(w, c, i)) || (c == BY_PXB && is_one_below(w, i));
            if (!none) w->above[c][i] = ds_graph__node(&w->graph, c == BY_NODE ? cpu : pci);
            w->n_hosts += c == BY_NODE;
        }
}

/* The node above a device (from BY_PIX) or above its switch (from BY_PXB, BY_NODE). */
static uint32_t node_above(const writer *w, uint32_t device, int from) {
    for (int c = from; c < BY_NODE; c++)
        if (w->above[c][w->cluster[c][device]] != UINT32_MAX)
            return w->above[c][w->cluster[c][device]];
    return w->above[BY_NODE][w->cluster[BY_NODE][device]];
}

/* Of the link above a device: two steps where a bridge of its own lies between. */
static int64_t latency_above(const writer *w, uint32_t device) {
    bool bridge = w->above[BY_PIX][w->cluster[BY_PIX][device]] == UINT32_MAX &&
                  w->above[BY_PXB][w->cluster[BY_PXB][device]] != UINT32_MAX;
    return bridge ? 2 * DS_HW_PCIE_PS : DS_HW_PCIE_PS;
}

static void write_pci(writer *w, int64_t bytes_per_s) {
    const smi_table *t = &w->table;
    for (int gpus = 1; gpus >= 0; gpus--)
        for (uint32_t i = 0; i < t->n; i++)
            if (t->devices[i].is_gpu == (gpus == 1))
                ds_graph__link(&w->graph, w->node[i], node_above(w, i, BY_PIX), bytes_per_s,
                               latency_above(w, i), true);
    for (int c = BY_PIX; c < BY_NODE; c++)
        for (uint32_t i = 0; i < t->n; i++)
            if (w->above[c][i] != UINT32_MAX)
                ds_graph__link(&w->graph, w->above[c][i], node_above(w, i, c + 1), bytes_per_s,
                               DS_HW_PCIE_PS, true);
}

static void write_hosts(writer *w) {
    int64_t bytes_per_s = ds_hw__cpu_beside(w->gpu->pcie)->bytes_per_s;
    for (uint32_t i = 0; i < w->table.n; i++)
        for (uint32_t j = i + 1; j < w->table.n; j++)
            if (w->above[BY_NODE][i] != UINT32_MAX && w->above[BY_NODE][j] != UINT32_MAX)
                ds_graph__link(&w->graph, w->above[BY_NODE][i], w->above[BY_NODE][j], bytes_per_s,
                               DS_HW_PCIE_PS, true);
}

/* ---- comments ---- */

static void note_devices(writer *w) {
    const smi_table *t = &w->table;
    if (!w->options->device)
        ds_graph__note(&w->graph,
                       "assumed: %s, since the table has no names and these have %" PRIu32
                       " NVLinks (--device NAME says otherwise).",
                       w->type, w->gpu->nvlinks);
    ds_buf names = {0};
    bool named = false;
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->devices[i].is_gpu) continue;
        ds_buf_printf(&names, "%s%s", names.n ? ", " : "", t->devices[i].name);
        named |= strncmp(t->devices[i].name, "NIC", 3) != 0;
    }
    if (named) ds_graph__note(&w->graph, "nic: %s.", names.text);
    ds_buf_deinit(&names);
    if (w->n_stretched)
        ds_graph__note(&w->graph,
                       "%" PRIu32
                       " pairs that the table calls SYS are on one NUMA node here, since "
                       "GPUs between them have the same affinity.",
                       w->n_stretched);
}

static void note_nvlinks(writer *w) {
    bool any = false;
    for (uint32_t i = 0; i < w->table.n; i++) any |= w->nvlinks[i] > 0;
    const ds_hw_nvlink *kind = any ? ds_hw__nvlink(w->gpu->sm, w->gpu->nvlink) : NULL;
    if (!any)
        ds_graph__note(&w->graph, "The table has no NVLinks.");
    else if (kind && kind->total_bytes_per_s)
        ds_graph__note(&w->graph,
                       "NVLink: NV# links, of %s: %" PRId64 " GB/s each way on %" PRIu32
                       " of them (%s).",
                       kind->name, kind->total_bytes_per_s / 1000000000, kind->links, kind->source);
    else if (kind)
        ds_graph__note(&w->graph, "NVLink: NV# links, %" PRId64 " GB/s each way (%s).",
                       kind->bytes_per_s / 1000000000, kind->source);
    if (w->n_fabrics)
        ds_graph__note(&w->graph, "assumed: NVSwitch, non-blocking, since a GPU has fewer NVLinks "
                                  "than its row adds up to.");
}

static void note_pci(writer *w, const char *source) {
    ds_graph__note(
        &w->graph,
        "assumed: PCIe %" PRIu32 " with 16 lanes everywhere (%s). PIX: one switch, PXB: "
        "one above it, or a bridge (twice the latency), PHB and NODE: the NUMA node, cpu.",
        w->gpu->pcie, source);
    if (w->n_hosts > 1)
        ds_graph__note(&w->graph,
                       "assumed: between CPUs what NCCL takes for %s (NVIDIA/nccl "
                       "src/graph/topo.h), as in NVIDIA's own servers with these GPUs.",
                       ds_hw__cpu_beside(w->gpu->pcie)->name);
    ds_graph__note(&w->graph,
                   "Latency between two GPUs: NVLink 0.47 us, PCIe 1 us (NVIDIA/nccl "
                   "src/graph/tuning.cc, hwLat, ring LL); assumed: split evenly over two "
                   "links, and as much for each further link and between CPUs.");
}

/* ---- main ---- */

static void number_devices(writer *w) {
    const smi_table *t = &w->table;
    uint32_t gpu = ds_graph__group(&w->graph, "gpu", DS_NODE_DEVICE, w->type, false);
    uint32_t nic = ds_graph__group(&w->graph, "nic", DS_NODE_NIC, NULL, false);
    w->node = new_array(w, false);
    for (uint32_t i = 0; i < t->n; i++)
        w->node[i] = ds_graph__node(&w->graph, t->devices[i].is_gpu ? gpu : nic);
}

static ds_status import_table(writer *w, ds_buf *out) {
    const ds_import_options *options = w->options;
    find_clusters(w);
    DS_TRY(check_distances(w));
    DS_TRY(find_gpu(w));
    const char *source;
    int64_t pcie = ds_hw__pcie_x16(w->gpu->pcie, &source);
    if (options->source)
        ds_graph__note(&w->graph, "Imported from %s (nvidia-smi topo -m).",
                       ds_import__plain(w->arena, options->source));
    number_devices(w);
    DS_TRY(write_nvlinks(w));
    number_clusters(w);
    write_pci(w, pcie);
    write_hosts(w);
    note_devices(w);
    note_nvlinks(w);
    note_pci(w, source);
    ds_graph__print(&w->graph, options->topology ? options->topology : "imported", out);
    return DS_OK;
}

ds_status ds_import_nvidia_smi(const char *text, size_t n, const ds_import_options *options,
                               ds_buf *out, ds_error *err) {
    ds_arena arena;
    ds_arena_init(&arena);
    writer w = {.arena = &arena, .options = options, .err = err};
    ds_graph__init(&w.graph, &arena);
    ds_status status = ds_import__set(options, NULL, 0, err);
    if (status == DS_OK) status = ds_smi__read(&arena, text, n, &w.table, err);
    if (status == DS_OK) status = import_table(&w, out);
    ds_graph__deinit(&w.graph);
    ds_arena_deinit(&arena);
    return status;
}
