/* Figures of hardware that topologies of other tools leave out: what a GPU's NVLinks carry, what
 * PCIe and the way between two CPUs carry, which GPU a number stands for.
 *
 * Bandwidths are those of the hardware catalogue (cost_profiles/catalogue/links.csv), which a test
 * compares with this table; what is not there names its own source. */
#ifndef DS_IMPORT_HARDWARE_INTERNAL_H
#define DS_IMPORT_HARDWARE_INTERNAL_H

#include <stdint.h>

typedef struct ds_hw_gpu {
    const char *name; /* in the catalogue */
    uint32_t sm;      /* compute capability, 80 for 8.0 */
    uint32_t pci_id;  /* device number of vendor 0x10de; 0: none known */
    uint32_t nvlinks; /* of one GPU */
    uint32_t nvlink;  /* generation, of ds_hw__nvlink; 0: none */
    uint32_t pcie;    /* generation */
} ds_hw_gpu;

/* By catalogue name without case; by PCI device number; the one that NVIDIA's own servers have of a
 * compute capability. NULL if there is none. */
const ds_hw_gpu *ds_hw__gpu_named(const char *name);
const ds_hw_gpu *ds_hw__gpu_of_pci(uint32_t pci_id);
const ds_hw_gpu *ds_hw__gpu_of_sm(uint32_t sm);
/* The one GPU whose NVLinks are that many: 6, 12 or 18; NULL: several or none have so many. */
const ds_hw_gpu *ds_hw__gpu_of_nvlinks(uint32_t nvlinks);

typedef struct ds_hw_nvlink {
    const char *name;          /* "NVLink3" */
    int64_t bytes_per_s;       /* one link, one way */
    uint32_t links;            /* of a GPU, and what they carry together: */
    int64_t total_bytes_per_s; /* the catalogue's figure; 0: it has none */
    const char *source;
} ds_hw_nvlink;
/* The generation of a compute capability (86 has slower ones of the third); generation 1 to 5. */
const ds_hw_nvlink *ds_hw__nvlink(uint32_t sm, uint32_t generation);

/* One direction of a PCIe link of 16 lanes, and where the figure is from. */
int64_t ds_hw__pcie_x16(uint32_t generation, const char **source);
/* One direction of a link: `mega_transfers` a second on each of `lanes`, less the line code. Two
 * and a half and 5 GT/s: 8b/10b; 8 to 32: 128b/130b; 64: 242 of 256 bytes of a flit. In whole
 * MB/s. */
int64_t ds_hw__pcie(int64_t mega_transfers, int64_t lanes);

typedef struct ds_hw_cpu {
    const char *name;
    int64_t bytes_per_s; /* one way between two CPUs, for GPU traffic */
} ds_hw_cpu;
/* As NCCL tells CPUs apart; texts may be NULL, numbers -1. A CPU that it does not know: NULL. */
const ds_hw_cpu *ds_hw__cpu(const char *arch, const char *vendor, int64_t family, int64_t model);
/* The CPU of NVIDIA's own server with GPUs of that PCIe generation. */
const ds_hw_cpu *ds_hw__cpu_beside(uint32_t pcie);

/* Bandwidth and latency of one port of a network adapter. */
typedef struct ds_hw_port {
    const char *name;
    int64_t bytes_per_s, latency_ps;
} ds_hw_port;
/* The catalogue's port of that bandwidth with a latency, or NULL. */
const ds_hw_port *ds_hw__port(int64_t bytes_per_s);

/* assumed: NCCL's latency between two GPUs (src/graph/tuning.cc, hwLat, ring LL), split evenly over
 * two links; the scenarios' topologies do the same. */
#define DS_HW_NVLINK_PS        INT64_C(470000) /* between two GPUs, directly */
#define DS_HW_NVLINK_SWITCH_PS INT64_C(235000) /* GPU to switch */
#define DS_HW_PCIE_PS          INT64_C(500000) /* a link; between two CPUs, too */
/* assumed: as InfiniBand HDR, where the catalogue has no latency. */
#define DS_HW_PORT_PS INT64_C(600000)
/* What NCCL takes for links inside a chip or package (LOC_BW, src/graph/topo.h). */
#define DS_HW_LOCAL_BYTES_PER_S INT64_C(5000000000000)

#endif
