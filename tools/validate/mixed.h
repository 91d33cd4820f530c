/* Machines of several kinds of nodes: rows that say which device each stage and replica ran on.
 *
 * Columns: cluster_id, stage_devices (" ; " between stages, " | " between replicas of a stage,
 * "KIND*N", "KIND*N+KIND*N" within a replica, "KIND*N xM replicas"), stage_layers. Ranks are in the
 * order of stages, then of replicas, then of shards; nodes of gpus_per_node take them in that
 * order. */
#ifndef DS_VALIDATE_MIXED_H
#define DS_VALIDATE_MIXED_H

#include "tools/validate/testbed.h"

/* A kind of node of a published cluster. */
typedef struct val_node_kind {
    const char *clusters; /* ids between blanks */
    const char *gpu;      /* the word of stage_devices, up to the memory's size */
    const char *device;   /* of the catalogue */
    const char *profile;
    int64_t intra_mb_per_s; /* between two GPUs */
    int64_t pcie_mb_per_s;  /* between a GPU and its NIC */
    int64_t nics;           /* a node */
    int64_t nic_mb_per_s;   /* a NIC, each way */
    const char *basis;
} val_node_kind;

#define VAL_MOST_NODES  512
#define VAL_MOST_STAGES 128
#define VAL_MOST_KINDS  8

typedef struct val_mixed {
    uint32_t n_nodes, n_kinds;
    const val_node_kind *node[VAL_MOST_NODES];
    const val_node_kind *kind[VAL_MOST_KINDS]; /* each once, in order of appearance */
    int64_t layers[VAL_MOST_STAGES];           /* blocks of a stage; as long as pp */
} val_mixed;

/* Does the row name a cluster? */
bool val_is_mixed(const val_row *row);
/* Of a complete row. DS_ERR_UNSUPPORTED: a cluster or a kind of device that is not known, a node of
 * several kinds; DS_ERR_DATA: cells that contradict the row. */
ds_status val_mixed_read(const val_row *row, val_mixed *out, ds_error *err);
/* Topologies of the nodes, and @cluster. */
void val_mixed_topology(const val_row *row, const val_mixed *m, ds_buf *out);

#endif
