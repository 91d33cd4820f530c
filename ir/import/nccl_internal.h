/* The machine that an NCCL topology file describes, between reading it and writing it. */
#ifndef DS_IMPORT_NCCL_INTERNAL_H
#define DS_IMPORT_NCCL_INTERNAL_H

#include "ir/base/map.h"
#include "ir/import/graph_internal.h"
#include "ir/import/hardware_internal.h"
#include "ir/import/xml_internal.h"

typedef enum nccl_kind { NCCL_CPU, NCCL_SWITCH, NCCL_GPU, NCCL_NIC } nccl_kind;

/* A thing of the machine: a NUMA node, or a PCI device. */
typedef struct nccl_part {
    nccl_kind kind;
    const ds_xml *xml;      /* <cpu>, <pci>, or a <nic> right under a <cpu> */
    struct nccl_part *up;   /* the switch or CPU that its link goes to; NULL for a CPU */
    struct nccl_part *into; /* a part of that one, with no link of its own; NULL: none */
    struct nccl_part *also; /* of an adapter: its next function */
    int64_t bytes_per_s;    /* of that link */
    uint32_t host;          /* number of the machine, by host_hash */
    uint64_t bus;           /* the bus id as a number */
    int64_t number;         /* numaid, dev of the gpu, dev of the first net; -1: none */
    uint32_t node;          /* in the graph; UINT32_MAX: none yet */
    const ds_hw_gpu *gpu;   /* by its PCI device number, else its compute capability; may be NULL */
    const ds_hw_cpu *cpu;   /* NULL: not known to NCCL */
    const char *type;       /* of a GPU: its catalogue name */
    bool type_assumed;
    bool is_broadcom; /* a switch: Broadcom's PEX chip */
} nccl_part;

typedef struct nccl {
    ds_arena *arena;
    const ds_import_options *options;
    DS_VEC(nccl_part *) parts; /* in the file's order; all in the arena */
    DS_VEC(uint64_t) hosts;    /* hashes */
    uint32_t n_cpus, n_gpus;
    uint32_t n_fused, n_unknown_pcie;
    ds_map of_bus, of_slot; /* host and bus id, without function → index of the part */
    ds_error *err;
} nccl;

/* The part that this one is, or is a part of. */
static inline nccl_part *nccl_whole(nccl_part *part) {
    while (part->into) part = part->into;
    return part;
}

/* nccl_read.c: fills the parts. Errors with their place. */
ds_status ds_nccl__read(nccl *n, const ds_xml *root);
/* The part that `busid` names on the same machine as `from`; NULL if there is none. */
nccl_part *ds_nccl__find(const nccl *n, const nccl_part *from, const char *busid);

#endif
