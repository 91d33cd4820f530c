/* Reading an NCCL topology file: <system> has <cpu>s (NUMA nodes), these have <pci>s, which are
 * bridges and switches down to GPUs (<gpu> inside, or class 0x03…) and network adapters (<nic>, or
 * class 0x02…).
 *
 * Attributes and what NCCL makes of them: NVIDIA/nccl src/graph/topo.cc, ncclTopoAddCpu,
 * ncclTopoAddPci, ncclTopoFlattenBcmSwitches; src/graph/xml.cc writes them. */
#include "ir/import/nccl_internal.h"

#include "ir/import/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARTS (UINT32_C(1) << 14)
#define MAX_CPUS  512

static const char *plain(nccl *n, const char *text) {
    return ds_import__plain(n->arena, text);
}

static ds_status new_part(nccl *n, nccl_kind kind, const ds_xml *xml, nccl_part *up,
                          nccl_part **out) {
    if (n->parts.n == MAX_PARTS)
        return ds_xml__error(xml, DS_ERR_LIMIT, n->err, "more than %u devices", MAX_PARTS);
    nccl_part *part = *out = DS_NEW(n->arena, nccl_part);
    *part = (nccl_part){.kind = kind,
                        .xml = xml,
                        .up = up,
                        .host = up ? up->host : 0,
                        .number = -1,
                        .node = UINT32_MAX};
    DS_PUSH(n->arena, &n->parts, part);
    n->n_cpus += kind == NCCL_CPU;
    n->n_gpus += kind == NCCL_GPU;
    return DS_OK;
}

/* ---- bus ids ---- */

/* "0000:07:00.0": hexadecimal digits, as one number. */
static bool parse_bus(const char *text, uint64_t *bus) {
    uint32_t n_digits = 0;
    *bus = 0;
    for (; *text; text++) {
        if (*text == ':' || *text == '.') continue;
        const char *digits = "0123456789abcdef", *at = strchr(digits, *text | 0x20);
        if (!at || ++n_digits > 13) return false;
        *bus = *bus << 4 | (uint64_t)(at - digits);
    }
    return n_digits >= 5;
}

static uint64_t bus_key(uint32_t host, uint64_t bus) {
    return (uint64_t)host << 52 ^ bus;
}

static ds_status read_bus(nccl *n, nccl_part *part) {
    const char *text = ds_xml__attr(part->xml, "busid");
    if (!text) return ds_xml__error(part->xml, DS_ERR_DATA, n->err, "<pci> has no busid");
    if (!parse_bus(text, &part->bus))
        return ds_xml__error(part->xml, DS_ERR_DATA, n->err,
                             "busid \"%s\" is not of the form 0000:07:00.0", plain(n, text));
    uint64_t key = bus_key(part->host, part->bus);
    const uint64_t *other = ds_map_find(&n->of_bus, key);
    if (other && part->kind == NCCL_GPU) {
        const nccl_part *first = n->parts.at[*other];
        return ds_xml__error(part->xml, DS_ERR_DATA, n->err,
                             "busid %s is that of another device, on line %" PRIu32, plain(n, text),
                             first->xml->line);
    }
    if (!other) ds_map_put(&n->of_bus, key, n->parts.n - 1);
    return DS_OK;
}

nccl_part *ds_nccl__find(const nccl *n, const nccl_part *from, const char *busid) {
    uint64_t bus;
    if (!parse_bus(busid, &bus)) return NULL;
    const uint64_t *at = ds_map_find(&n->of_bus, bus_key(from->host, bus));
    return at ? n->parts.at[*at] : NULL;
}

/* ---- PCI ---- */

static uint32_t hex_attr(const ds_xml *xml, const char *name) {
    const char *text = ds_xml__attr(xml, name);
    return text ? (uint32_t)strtoul(text, NULL, 16) : 0;
}

/* The link to the parent. Where the system did not know, NCCL takes 8 GT/s and 16 lanes. */
static ds_status read_speed(nccl *n, nccl_part *part) {
    const char *text = ds_xml__attr(part->xml, "link_speed");
    int64_t lanes;
    DS_TRY(ds_xml__int(part->xml, "link_width", 0, 0, 255, &lanes, n->err));
    bool known = text && *text && strncmp(text, "Unknown", 7) != 0;
    double giga = 8;
    if (known) {
        char *end;
        giga = strtod(text, &end);
        if (end == text || !(giga >= 1 && giga <= 256) || strncmp(end, " GT/s", 5) != 0)
            return ds_xml__error(part->xml, DS_ERR_DATA, n->err,
                                 "link_speed is \"%s\"; a speed as \"16.0 GT/s PCIe\" is needed",
                                 plain(n, text));
    }
    n->n_unknown_pcie += !known || lanes == 0;
    part->bytes_per_s = ds_hw__pcie((int64_t)(giga * 1000), lanes ? lanes : 16);
    return DS_OK;
}

static bool has_class(const ds_xml *pci, const char *prefix) {
    const char *class = ds_xml__attr(pci, "class");
    return class && strncmp(class, prefix, strlen(prefix)) == 0;
}

static ds_status kind_of(nccl *n, const ds_xml *pci, nccl_kind *kind) {
    if (ds_xml__child(pci, "gpu") || has_class(pci, "0x03")) {
        *kind = NCCL_GPU;
    } else if (ds_xml__child(pci, "nic") || has_class(pci, "0x02")) {
        *kind = NCCL_NIC;
    } else if (ds_xml__child(pci, "pci") || has_class(pci, "0x06")) {
        *kind = NCCL_SWITCH;
    } else {
        return ds_xml__error(pci, DS_ERR_DATA, n->err,
                             "neither GPU, network adapter nor switch: <pci> has no class; such a "
                             "file is completed by NCCL, which writes out what it found with "
                             "NCCL_TOPO_DUMP_FILE");
    }
    return DS_OK;
}

/* Broadcom's PEX chips show up as switches behind a switch, and pass full bandwidth between all
 * ports: NCCL makes one of them. */
static bool is_broadcom(const ds_xml *pci) {
    uint32_t device = hex_attr(pci, "device");
    return hex_attr(pci, "vendor") == 0x1000 && hex_attr(pci, "subsystem_vendor") == 0x1000 &&
           (device == 0xc010 || device == 0xc030);
}

/* Functions of one adapter share its link: 0000:61:00.1 is another port of 0000:61:00.0. */
static void merge_functions(nccl *n, nccl_part *nic) {
    uint64_t slot = bus_key(nic->host, nic->bus >> 4);
    const uint64_t *at = ds_map_find(&n->of_slot, slot);
    nccl_part *last = at ? n->parts.at[*at] : NULL;
    if (last && nccl_whole(last->up) == nccl_whole(nic->up)) {
        nic->into = nccl_whole(last);
        last->also = nic;
    }
    ds_map_put(&n->of_slot, slot, n->parts.n - 1);
}

static ds_status read_gpu(nccl *n, nccl_part *part) {
    const ds_xml *gpu = ds_xml__child(part->xml, "gpu");
    int64_t sm = -1;
    if (gpu) {
        DS_TRY(ds_xml__int(gpu, "dev", -1, -1, 1 << 20, &part->number, n->err));
        DS_TRY(ds_xml__int(gpu, "sm", -1, -1, 1000, &sm, n->err));
        if (ds_xml__child(gpu, "xgmi"))
            return ds_xml__error(gpu, DS_ERR_UNSUPPORTED, n->err,
                                 "links of AMD GPUs (xgmi, written by RCCL) are not imported");
    }
    part->gpu = ds_hw__gpu_of_sm((uint32_t)sm);
    const ds_hw_gpu *exact = NULL;
    if (hex_attr(part->xml, "vendor") == 0x10de)
        exact = ds_hw__gpu_of_pci(hex_attr(part->xml, "device"));
    if (exact) part->gpu = exact;
    part->type = n->options->device;
    if (part->type) return DS_OK;
    if (!part->gpu)
        return ds_xml__error(part->xml, DS_ERR_VALUE, n->err,
                             "nothing here says which GPU this is (sm=\"80\" of <gpu>, a known "
                             "device=\"0x20b2\" of <pci>): name it, as --device A100-SXM4-80GB");
    part->type = part->gpu->name;
    part->type_assumed = !exact;
    return DS_OK;
}

static ds_status read_nic(nccl *n, nccl_part *part) {
    const ds_xml *nic =
        strcmp(part->xml->name, "nic") == 0 ? part->xml : ds_xml__child(part->xml, "nic");
    const ds_xml *net = nic ? ds_xml__child(nic, "net") : NULL;
    if (!net) return DS_OK;
    return ds_xml__int(net, "dev", -1, -1, 1 << 20, &part->number, n->err);
}

static ds_status read_pci(nccl *n, const ds_xml *xml, nccl_part *up) {
    nccl_kind kind;
    nccl_part *part;
    DS_TRY(kind_of(n, xml, &kind));
    DS_TRY(new_part(n, kind, xml, up, &part));
    DS_TRY(read_bus(n, part));
    DS_TRY(read_speed(n, part));
    if (kind == NCCL_GPU) return read_gpu(n, part);
    if (kind == NCCL_NIC) {
        merge_functions(n, part);
        return read_nic(n, part);
    }
    part->is_broadcom = is_broadcom(xml);
    if (part->is_broadcom && up->is_broadcom) {
        part->into = up;
        n->n_fused++;
    }
    for (const ds_xml *child = xml->first; child; child = child->next)
        if (strcmp(child->name, "pci") == 0) DS_TRY(read_pci(n, child, part));
    return DS_OK;
}

/* ---- CPUs ---- */

static ds_status read_host(nccl *n, nccl_part *cpu) {
    const char *text = ds_xml__attr(cpu->xml, "host_hash");
    uint64_t hash = text ? strtoull(text, NULL, 16) : 0;
    while (cpu->host < n->hosts.n && n->hosts.at[cpu->host] != hash) cpu->host++;
    if (cpu->host == n->hosts.n) DS_PUSH(n->arena, &n->hosts, hash);
    return DS_OK;
}

static ds_status read_cpu(nccl *n, const ds_xml *xml) {
    nccl_part *cpu, *nic;
    int64_t family, model;
    if (n->n_cpus == MAX_CPUS)
        return ds_xml__error(xml, DS_ERR_LIMIT, n->err, "more than %d NUMA nodes", MAX_CPUS);
    DS_TRY(new_part(n, NCCL_CPU, xml, NULL, &cpu));
    DS_TRY(read_host(n, cpu));
    DS_TRY(ds_xml__int(xml, "numaid", -1, -1, 1 << 20, &cpu->number, n->err));
    DS_TRY(ds_xml__int(xml, "familyid", -1, -1, 1 << 20, &family, n->err));
    DS_TRY(ds_xml__int(xml, "modelid", -1, -1, 1 << 20, &model, n->err));
    cpu->cpu = ds_hw__cpu(ds_xml__attr(xml, "arch"), ds_xml__attr(xml, "vendor"), family, model);
    for (const ds_xml *child = xml->first; child; child = child->next) {
        if (strcmp(child->name, "pci") == 0) DS_TRY(read_pci(n, child, cpu));
        if (strcmp(child->name, "nic") != 0) continue;
        DS_TRY(new_part(n, NCCL_NIC, child, cpu, &nic));
        nic->bytes_per_s = DS_HW_LOCAL_BYTES_PER_S;
        DS_TRY(read_nic(n, nic));
    }
    return DS_OK;
}

ds_status ds_nccl__read(nccl *n, const ds_xml *root) {
    if (strcmp(root->name, "system") != 0)
        return ds_xml__error(root, DS_ERR_DATA, n->err,
                             "an NCCL topology is a <system>, and this is a <%.40s>",
                             plain(n, root->name));
    for (const ds_xml *child = root->first; child; child = child->next)
        if (strcmp(child->name, "cpu") == 0) DS_TRY(read_cpu(n, child));
    if (n->n_gpus) return DS_OK;
    return ds_xml__error(root, DS_ERR_DATA, n->err, "there is no GPU in this topology");
}
