/* NCCL topology files as topologies.
 *
 * The graph is the one that NCCL builds of such a file (NVIDIA/nccl src/graph/topo.cc): PCI devices
 * under switches under NUMA nodes, these linked with one another; GPUs linked by NVLink with each
 * other, with the CPU, or with one vertex that stands for all NVSwitch chips; a network adapter
 * with a vertex for each of its ports. Figures differ where NCCL takes what it measured: PCIe links
 * have speed times width less the line code, NVLinks what the catalogue says.
 *
 * GPUs are numbered as NCCL and nvidia-smi do, adapters likewise; switches and NUMA nodes in the
 * order in which a walk up from GPU 0, 1, … first meets them. */
#include "ir/import/nccl_internal.h"

#include "ir/base/units.h"
#include "ir/import/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* NVLinks from one vertex to another: how many, and what they carry. */
typedef struct nvlink {
    uint32_t from, to;
    int64_t bytes_per_s;
} nvlink;

typedef struct writer {
    nccl n;
    ds_graph graph;
    DS_VEC(nccl_part *) sorted; /* by node: GPUs, adapters, then what is above them */
    uint32_t pci, cpu, port;    /* groups */
    uint32_t nvswitch;          /* node; UINT32_MAX: none */
    DS_VEC(nvlink) nvlinks;
    ds_map nvlink_of; /* from << 32 | to → index */
    const ds_hw_nvlink *nvlink_kind;
    const ds_hw_cpu *cpu_kind; /* of a link between CPUs; NULL: assumed, or there is none */
    uint32_t n_slow_ports, n_ports, n_timed_ports, n_assumed_cpus;
} writer;

/* ---- numbers ---- */

/* GPUs, then adapters; by machine, by dev, by bus id, by place in the file. */
static int compare_parts(const void *a, const void *b) {
    const nccl_part *x = *(nccl_part *const *)a, *y = *(nccl_part *const *)b;
    if (x->kind != y->kind) return x->kind == NCCL_GPU ? -1 : 1;
    if (x->host != y->host) return x->host < y->host ? -1 : 1;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    if (x->bus != y->bus) return x->bus < y->bus ? -1 : 1;
    if (x->xml->line != y->xml->line) return x->xml->line < y->xml->line ? -1 : 1;
    return x->xml->col < y->xml->col ? -1 : x->xml->col > y->xml->col;
}

/* One without a number, or two with the same: bus ids count. */
static void drop_numbers(nccl_part **parts, uint32_t n) {
    bool fine = true;
    for (uint32_t i = 0; i < n; i++)
        fine &= parts[i]->number >= 0 && (i == 0 || parts[i]->host != parts[i - 1]->host ||
                                          parts[i]->number != parts[i - 1]->number);
    if (fine) return;
    for (uint32_t i = 0; i < n; i++) parts[i]->number = -1;
    qsort(parts, n, sizeof *parts, compare_parts);
}

static void sort_devices(writer *w) {
    nccl *n = &w->n;
    uint32_t n_gpus = 0;
    for (uint32_t i = 0; i < n->parts.n; i++) {
        nccl_part *part = n->parts.at[i];
        if (part->into || (part->kind != NCCL_GPU && part->kind != NCCL_NIC)) continue;
        n_gpus += part->kind == NCCL_GPU;
        DS_PUSH(n->arena, &w->sorted, part);
    }
    qsort(w->sorted.at, w->sorted.n, sizeof *w->sorted.at, compare_parts);
    drop_numbers(w->sorted.at, n_gpus);
    drop_numbers(w->sorted.at + n_gpus, w->sorted.n - n_gpus);
}

static void number(writer *w, nccl_part *part, uint32_t group) {
    part->node = ds_graph__node(&w->graph, group);
}

static void number_up(writer *w, nccl_part *part) {
    for (part = nccl_whole(part); part->node == UINT32_MAX; part = nccl_whole(part->up)) {
        number(w, part, part->kind == NCCL_CPU ? w->cpu : w->pci);
        DS_PUSH(w->n.arena, &w->sorted, part);
        if (!part->up) break;
    }
}

/* GPUs of one kind in a row are one group. */
static void number_gpu(writer *w, nccl_part *part, const nccl_part *before) {
    uint32_t group = before ? w->graph.nodes.at[before->node].group : 0;
    if (!before || strcmp(before->type, part->type) != 0)
        group = ds_graph__group(&w->graph, "gpu", DS_NODE_DEVICE, part->type, false);
    number(w, part, group);
}

static bool has_nvswitch(const writer *w);

static void number_all(writer *w) {
    sort_devices(w);
    uint32_t n_devices = w->sorted.n, i = 0;
    for (; i < n_devices && w->sorted.at[i]->kind == NCCL_GPU; i++)
        number_gpu(w, w->sorted.at[i], i ? w->sorted.at[i - 1] : NULL);
    w->nvswitch = UINT32_MAX;
    if (has_nvswitch(w))
        w->nvswitch = ds_graph__node(
            &w->graph, ds_graph__group(&w->graph, "nvswitch", DS_NODE_SWITCH, NULL, true));
    w->pci = ds_graph__group(&w->graph, "pci", DS_NODE_SWITCH, NULL, false);
    w->cpu = ds_graph__group(&w->graph, "cpu", DS_NODE_HOST, NULL, false);
    uint32_t nic = ds_graph__group(&w->graph, "nic", DS_NODE_NIC, NULL, false);
    w->port = ds_graph__group(&w->graph, "port", DS_NODE_NIC, NULL, false);
    for (; i < n_devices; i++) number(w, w->sorted.at[i], nic);
    for (i = 0; i < n_devices; i++) number_up(w, w->sorted.at[i]->up);
    for (i = 0; i < w->n.parts.n; i++) number_up(w, w->n.parts.at[i]);
}

/* ---- NVLink ---- */

typedef enum target { TO_SWITCH, TO_CPU, TO_GPU } target;

static target target_of(const writer *w, const nccl_part *gpu, const ds_xml *link) {
    const char *class = ds_xml__attr(link, "tclass"), *busid = ds_xml__attr(link, "target");
    if (class && strncmp(class, "0x068001", 8) == 0) return TO_CPU;
    if (class) return strncmp(class, "0x03", 4) == 0 ? TO_GPU : TO_SWITCH;
    return busid && ds_nccl__find(&w->n, gpu, busid) ? TO_GPU : TO_SWITCH;
}

/* Calls visit for every <nvlink> and <c2c> of every GPU. */
static ds_status each_link(writer *w,
                           ds_status (*visit)(writer *w, nccl_part *gpu, const ds_xml *link)) {
    for (uint32_t i = 0; i < w->sorted.n && w->sorted.at[i]->kind == NCCL_GPU; i++) {
        const ds_xml *gpu = ds_xml__child(w->sorted.at[i]->xml, "gpu");
        for (const ds_xml *link = gpu ? gpu->first : NULL; link; link = link->next)
            DS_TRY(visit(w, w->sorted.at[i], link));
    }
    return DS_OK;
}

static bool has_nvswitch(const writer *w) {
    for (uint32_t i = 0; i < w->sorted.n && w->sorted.at[i]->kind == NCCL_GPU; i++) {
        const ds_xml *gpu = ds_xml__child(w->sorted.at[i]->xml, "gpu");
        for (const ds_xml *link = gpu ? gpu->first : NULL; link; link = link->next)
            if (strcmp(link->name, "nvlink") == 0 &&
                target_of(w, w->sorted.at[i], link) == TO_SWITCH)
                return true;
    }
    return false;
}

static nccl_part *cpu_of(nccl_part *part) {
    while (part->up) part = part->up;
    return part;
}

static ds_status add_nvlinks(writer *w, const ds_xml *xml, uint32_t from, uint32_t to,
                             int64_t bytes_per_s) {
    uint64_t key = (uint64_t)from << 32 | to;
    const uint64_t *at = ds_map_find(&w->nvlink_of, key);
    if (!at) {
        ds_map_put(&w->nvlink_of, key, w->nvlinks.n);
        DS_PUSH(w->n.arena, &w->nvlinks, ((nvlink){from, to, bytes_per_s}));
        return DS_OK;
    }
    int64_t *sum = &w->nvlinks.at[*at].bytes_per_s;
    if (ds_add_i64(*sum, bytes_per_s, sum)) return DS_OK;
    return ds_xml__error(xml, DS_ERR_OVERFLOW, w->n.err, "too many NVLinks between two ends");
}

static ds_status find_end(writer *w, nccl_part *gpu, const ds_xml *link, uint32_t *node) {
    const char *busid = ds_xml__attr(link, "target");
    switch (target_of(w, gpu, link)) {
    case TO_SWITCH:
        *node = w->nvswitch;
        return DS_OK;
    case TO_CPU:
        *node = cpu_of(gpu)->node;
        return DS_OK;
    case TO_GPU:
        break;
    }
    const nccl_part *other = busid ? ds_nccl__find(&w->n, gpu, busid) : NULL;
    if (!other || other->kind != NCCL_GPU || other == gpu)
        return ds_xml__error(link, DS_ERR_DATA, w->n.err,
                             "the target of this <nvlink>, \"%s\", is no other GPU of the file",
                             ds_import__plain(w->n.arena, busid ? busid : ""));
    *node = other->node;
    return DS_OK;
}

static ds_status read_link(writer *w, nccl_part *gpu, const ds_xml *link) {
    int64_t count, mega;
    uint32_t to = 0;
    if (strcmp(link->name, "c2c") == 0) {
        DS_TRY(ds_xml__int(link, "count", 1, 1, 1000, &count, w->n.err));
        DS_TRY(ds_xml__int(link, "bw", -1, 1, 10000000, &mega, w->n.err));
        if (mega < 0) return ds_xml__error(link, DS_ERR_DATA, w->n.err, "<c2c> has no bw");
        int64_t bytes_per_s = count * mega * 1000000;
        to = cpu_of(gpu)->node;
        DS_TRY(add_nvlinks(w, link, gpu->node, to, bytes_per_s));
        return add_nvlinks(w, link, to, gpu->node, bytes_per_s);
    }
    if (strcmp(link->name, "nvlink") != 0) return DS_OK;
    DS_TRY(ds_xml__int(link, "count", 1, 1, 1000, &count, w->n.err));
    DS_TRY(find_end(w, gpu, link, &to));
    const ds_hw_gpu *facts = gpu->gpu;
    if (!facts) facts = ds_hw__gpu_named(gpu->type);
    const ds_hw_nvlink *kind = facts ? ds_hw__nvlink(facts->sm, facts->nvlink) : NULL;
    if (!kind) kind = ds_hw__nvlink(0, 3); /* as NCCL, for what it does not know */
    w->nvlink_kind = kind;
    DS_TRY(add_nvlinks(w, link, gpu->node, to, count * kind->bytes_per_s));
    if (target_of(w, gpu, link) == TO_GPU) return DS_OK; /* which names its own way back */
    return add_nvlinks(w, link, to, gpu->node, count * kind->bytes_per_s);
}

/* A link and its reverse with the same bandwidth are one duplex link. */
static void write_nvlinks(writer *w) {
    for (uint32_t i = 0; i < w->nvlinks.n; i++) {
        const nvlink *link = &w->nvlinks.at[i];
        const uint64_t *back = ds_map_find(&w->nvlink_of, (uint64_t)link->to << 32 | link->from);
        bool duplex = back && w->nvlinks.at[*back].bytes_per_s == link->bytes_per_s;
        if (duplex && *back < i) continue; /* written with the other */
        bool direct = link->from != w->nvswitch && link->to != w->nvswitch;
        ds_graph__link(&w->graph, link->from, link->to, link->bytes_per_s,
                       direct ? DS_HW_NVLINK_PS : DS_HW_NVLINK_SWITCH_PS, duplex);
    }
}

/* ---- PCI and CPUs ---- */

static void write_up(writer *w, nccl_kind kind) {
    for (uint32_t i = 0; i < w->sorted.n; i++) {
        nccl_part *part = w->sorted.at[i];
        if (part->kind == kind)
            ds_graph__link(&w->graph, part->node, nccl_whole(part->up)->node, part->bytes_per_s,
                           DS_HW_PCIE_PS, true);
    }
}

/* <pcilink target>: a way from switch to switch past the CPU; each side names its own. */
static ds_status write_pcilinks(writer *w) {
    for (uint32_t i = 0; i < w->n.parts.n; i++) {
        nccl_part *part = w->n.parts.at[i];
        if (part->kind != NCCL_SWITCH) continue;
        for (const ds_xml *link = part->xml->first; link; link = link->next) {
            if (strcmp(link->name, "pcilink") != 0) continue;
            const char *busid = ds_xml__attr(link, "target");
            nccl_part *other = busid ? ds_nccl__find(&w->n, part, busid) : NULL;
            if (!other || other->kind != NCCL_SWITCH)
                return ds_xml__error(link, DS_ERR_DATA, w->n.err,
                                     "the target of this <pcilink> is no switch of the file");
            if (nccl_whole(other) != nccl_whole(part))
                ds_graph__link(&w->graph, nccl_whole(part)->node, nccl_whole(other)->node,
                               DS_HW_LOCAL_BYTES_PER_S, DS_HW_PCIE_PS, false);
        }
    }
    return DS_OK;
}

static int64_t cpu_bytes_per_s(writer *w, const nccl_part *cpu) {
    if (cpu->cpu) {
        w->cpu_kind = cpu->cpu;
        return cpu->cpu->bytes_per_s;
    }
    w->n_assumed_cpus++;
    return ds_hw__cpu_beside(4)->bytes_per_s;
}

static void write_cpus(writer *w) {
    for (uint32_t i = 0; i < w->sorted.n; i++) {
        const nccl_part *a = w->sorted.at[i];
        for (uint32_t j = i + 1; a->kind == NCCL_CPU && j < w->sorted.n; j++) {
            const nccl_part *b = w->sorted.at[j];
            if (b->kind != NCCL_CPU || a->host != b->host) continue;
            int64_t there = cpu_bytes_per_s(w, a), back = cpu_bytes_per_s(w, b);
            ds_graph__link(&w->graph, a->node, b->node, there, DS_HW_PCIE_PS, there == back);
            if (there != back)
                ds_graph__link(&w->graph, b->node, a->node, back, DS_HW_PCIE_PS, false);
        }
    }
}

/* ---- ports ---- */

/* latency is in microseconds, a real; 0 where the plugin says nothing. */
static ds_status port_latency(writer *w, const ds_xml *net, int64_t bytes_per_s, int64_t *ps) {
    const char *text = ds_xml__attr(net, "latency");
    const ds_hw_port *known = ds_hw__port(bytes_per_s);
    *ps = known ? known->latency_ps : DS_HW_PORT_PS;
    if (!text) return DS_OK;
    char *end;
    double us = strtod(text, &end);
    if (end == text || *end || !(us >= 0 && us <= 1e6))
        return ds_xml__error(net, DS_ERR_DATA, w->n.err,
                             "latency is \"%s\"; microseconds are needed",
                             ds_import__plain(w->n.arena, text));
    if (us == 0) return DS_OK;
    w->n_timed_ports++;
    return ds_ps_from_seconds(us * 1e-6, ps, w->n.err);
}

static ds_status write_port(writer *w, uint32_t nic, const ds_xml *net) {
    int64_t mega_bits, used, ps;
    DS_TRY(ds_xml__int(net, "net", 1, 0, 1, &used, w->n.err));
    if (!used) return DS_OK; /* merged into a virtual adapter, which is listed, too */
    DS_TRY(ds_xml__int(net, "speed", 0, -1, 100000000, &mega_bits, w->n.err));
    if (mega_bits <= 0) {
        mega_bits = 10000; /* as NCCL */
        w->n_slow_ports++;
    }
    int64_t bytes_per_s = mega_bits * 125000;
    DS_TRY(port_latency(w, net, bytes_per_s, &ps));
    w->n_ports++;
    ds_graph__link(&w->graph, nic, ds_graph__node(&w->graph, w->port), bytes_per_s, ps, true);
    return DS_OK;
}

static ds_status write_ports(writer *w) {
    for (uint32_t i = 0; i < w->sorted.n; i++)
        for (nccl_part *part = w->sorted.at[i]; part && part->kind == NCCL_NIC; part = part->also) {
            const ds_xml *nic =
                strcmp(part->xml->name, "nic") == 0 ? part->xml : ds_xml__child(part->xml, "nic");
            for (const ds_xml *net = nic ? nic->first : NULL; net; net = net->next)
                if (strcmp(net->name, "net") == 0)
                    DS_TRY(write_port(w, w->sorted.at[i]->node, net));
        }
    return DS_OK;
}

/* ---- comments ---- */

static void note_order(writer *w) {
    ds_buf nodes = {0};
    for (uint32_t i = 0; i < w->sorted.n; i++)
        if (w->sorted.at[i]->kind == NCCL_CPU)
            ds_buf_printf(&nodes, "%s%" PRId64, nodes.n ? ", " : "",
                          ds_xml__attr(w->sorted.at[i]->xml, "numaid") ? w->sorted.at[i]->number
                                                                       : -1);
    ds_graph__note(&w->graph,
                   "GPUs and network adapters are in the order of their %s. cpu: the "
                   "NUMA nodes %s.",
                   w->sorted.at[0]->number >= 0 ? "dev numbers" : "bus ids", nodes.text);
    ds_buf_deinit(&nodes);
    if (w->n.n_fused)
        ds_graph__note(&w->graph,
                       "%" PRIu32 " switches of Broadcom that stand behind another one are part of "
                       "it, as NCCL has them.",
                       w->n.n_fused);
}

static void note_gpus(writer *w) {
    bool assumed = false;
    for (uint32_t i = 0; i < w->sorted.n; i++) assumed |= w->sorted.at[i]->type_assumed;
    if (assumed)
        ds_graph__note(&w->graph, "assumed: the GPUs' memory and board; the file has their compute "
                                  "capability only (--device NAME says which).");
    const ds_hw_nvlink *kind = w->nvlink_kind;
    if (kind && kind->total_bytes_per_s)
        ds_graph__note(&w->graph,
                       "NVLink: the file's number of links, of %s: %" PRId64 " GB/s each way on "
                       "%" PRIu32 " of them (%s).",
                       kind->name, kind->total_bytes_per_s / 1000000000, kind->links, kind->source);
    else if (kind)
        ds_graph__note(&w->graph,
                       "NVLink: the file's number of links, %" PRId64 " GB/s each way (%s).",
                       kind->bytes_per_s / 1000000000, kind->source);
    else
        ds_graph__note(&w->graph, "The file has no NVLinks%s.",
                       ds_xml__child(w->sorted.at[0]->xml, "gpu")
                           ? ""
                           : ": NCCL adds them on the machine itself");
}

static void note_links(writer *w) {
    ds_graph__note(&w->graph, "PCIe: the file's speed times width, less the line code (128b/130b; "
                              "8b/10b up to 5 GT/s).");
    if (w->n.n_unknown_pcie)
        ds_graph__note(&w->graph,
                       "assumed: 8 GT/s or 16 lanes for %" PRIu32 " links of unknown speed or "
                       "width, as NCCL does.",
                       w->n.n_unknown_pcie);
    if (w->cpu_kind)
        ds_graph__note(&w->graph,
                       "Between CPUs, for GPU traffic: NVIDIA/nccl src/graph/topo.h, %s.",
                       w->cpu_kind->name);
    if (w->n_assumed_cpus)
        ds_graph__note(&w->graph, "assumed: 16 GB/s between CPUs where the file does not say which "
                                  "they are.");
    if (w->n_ports)
        ds_graph__note(&w->graph, "port: the file's network ports and their speed; a topology "
                                  "around this one links them to its switches.");
    if (w->n_slow_ports)
        ds_graph__note(&w->graph,
                       "assumed: 10 Gb/s for %" PRIu32 " ports without a speed, as NCCL "
                       "does.",
                       w->n_slow_ports);
    ds_graph__note(&w->graph,
                   "Latency between two GPUs: NVLink 0.47 us, PCIe 1 us (NVIDIA/nccl "
                   "src/graph/tuning.cc, hwLat, ring LL); assumed: split evenly over two "
                   "links, and as much for each further link and between CPUs.");
    if (w->n_ports > w->n_timed_ports)
        ds_graph__note(&w->graph, "Latency of a port: 0.5 us at 100 Gb/s, 0.6 us at 200 Gb/s "
                                  "(stas00/ml-engineering network/README.md); assumed: 0.6 us at "
                                  "other speeds.");
}

/* ---- main ---- */

static ds_status write_links(writer *w) {
    DS_TRY(each_link(w, read_link));
    write_nvlinks(w);
    write_up(w, NCCL_GPU);
    write_up(w, NCCL_NIC);
    write_up(w, NCCL_SWITCH);
    DS_TRY(write_pcilinks(w));
    DS_TRY(write_ports(w));
    write_cpus(w);
    return DS_OK;
}

static ds_status import_tree(writer *w, const ds_xml *root, ds_buf *out) {
    const ds_import_options *options = w->n.options;
    DS_TRY(ds_nccl__read(&w->n, root));
    number_all(w);
    if (options->source)
        ds_graph__note(&w->graph, "Imported from %s (NCCL topology).",
                       ds_import__plain(w->n.arena, options->source));
    DS_TRY(write_links(w));
    note_order(w);
    note_gpus(w);
    note_links(w);
    ds_graph__print(&w->graph, options->topology ? options->topology : "imported", out);
    return DS_OK;
}

ds_status ds_import_nccl_topo(const char *text, size_t n, const ds_import_options *options,
                              ds_buf *out, ds_error *err) {
    ds_arena arena;
    ds_arena_init(&arena);
    const ds_xml *root;
    writer w = {.n = {.arena = &arena, .options = options, .err = err}};
    ds_graph__init(&w.graph, &arena);
    ds_status status = ds_import__set(options, NULL, 0, err);
    if (status == DS_OK) status = ds_xml__parse(&arena, text, n, &root, err);
    if (status == DS_OK) status = import_tree(&w, root, out);
    ds_map_deinit(&w.n.of_bus);
    ds_map_deinit(&w.n.of_slot);
    ds_map_deinit(&w.nvlink_of);
    ds_graph__deinit(&w.graph);
    ds_arena_deinit(&arena);
    return status;
}
