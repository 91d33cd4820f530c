/* The table of `nvidia-smi topo -m`, between reading it and writing it. */
#ifndef DS_IMPORT_SMI_INTERNAL_H
#define DS_IMPORT_SMI_INTERNAL_H

#include "ir/import/import.h"

/* The PCI distance of two devices, nearest first. NV#: the table hides it. */
typedef enum smi_level {
    SMI_SELF, /* X */
    SMI_PIX,  /* at most one PCIe bridge */
    SMI_PXB,  /* several, and no host bridge */
    SMI_PHB,  /* a host bridge */
    SMI_NODE, /* several of one NUMA node */
    SMI_SYS,  /* the way between NUMA nodes; SOC in old versions */
    SMI_NVLINK
} smi_level;

typedef struct smi_cell {
    smi_level level;
    uint32_t nvlinks; /* of NV# */
    uint32_t col;     /* where it stands in its row's line */
} smi_cell;

typedef struct smi_device {
    const char *label; /* "GPU0", "NIC3", "mlx5_0" */
    const char *name;  /* by the legend, else the label */
    bool is_gpu;
    uint32_t line;
    const char *affinity; /* of its NUMA node, else of its CPUs; NULL: not said */
} smi_device;

typedef struct smi_table {
    smi_device *devices;
    uint32_t n, n_gpus;
    smi_cell *cells; /* [n][n] */
} smi_table;

#define SMI_MAX_DEVICES 256

static inline const smi_cell *smi_at(const smi_table *table, uint32_t i, uint32_t j) {
    return &table->cells[(size_t)i * table->n + j];
}
/* "PXB" */
const char *ds_smi__level_name(smi_level level);
/* Sets an error at the cell's place. */
ds_status ds_smi__error(const smi_table *table, uint32_t i, uint32_t j, ds_error *err,
                        const char *format, ...) DS_PRINTF(5, 6);

/* Finds the table in the text and reads it into the arena; it is symmetric. */
ds_status ds_smi__read(ds_arena *arena, const char *text, size_t n, smi_table *table,
                       ds_error *err);

#endif
