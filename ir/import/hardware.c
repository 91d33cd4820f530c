/* Tables of hardware that importers of topologies look things up in.
 *
 * Sources: PCI device numbers are of the PCI ID Repository (pci-ids.ucw.cz, vendor 10de); NVLink
 * and PCIe of stas00/ml-engineering network/README.md, as the catalogue quotes it; CPUs and sm_86
 * of NVIDIA/nccl src/graph/topo.h and topo.cc. */
#include "ir/import/hardware_internal.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#define GB INT64_C(1000000000)
#define MB INT64_C(1000000)

/* The first of a compute capability is what ds_hw__gpu_of_sm takes. */
static const ds_hw_gpu gpus[] = {
    {"P100-SXM2-16GB", 60, 0x15f9, 4, 1, 3},
    {"P100-PCIE-16GB", 60, 0x15f8, 0, 0, 3},
    {"GTX-1080Ti", 61, 0x1b06, 0, 0, 3},
    {"V100-SXM2-16GB", 70, 0x1db1, 6, 2, 3},
    {"V100-SXM2-32GB", 70, 0x1db5, 6, 2, 3},
    {"V100-SXM3-32GB", 70, 0, 6, 2, 3},
    {"V100-PCIE-16GB", 70, 0x1db4, 0, 0, 3},
    {"T4", 75, 0x1eb8, 0, 0, 3},
    {"A100-SXM4-80GB", 80, 0x20b2, 12, 3, 4},
    {"A100-SXM4-40GB", 80, 0x20b0, 12, 3, 4},
    {"A40", 86, 0x2235, 4, 3, 4},
    {"H100-SXM5-80GB", 90, 0x2330, 18, 4, 5},
    {"H100-PCIE-80GB", 90, 0x2331, 12, 4, 5},
    {"H200-SXM-141GB", 90, 0x2335, 18, 4, 5},
    {"GH200-96GB", 90, 0x2342, 18, 4, 5},
    {"B200-SXM-180GB", 100, 0x2901, 18, 5, 5},
    {"GB200-SXM-186GB", 100, 0x2941, 18, 5, 5},
    {"B300-SXM-288GB", 103, 0, 18, 5, 6},
    {"GB300-SXM", 103, 0x31c2, 18, 5, 6},
};
#define N_GPUS (sizeof gpus / sizeof *gpus)

const ds_hw_gpu *ds_hw__gpu_named(const char *name) {
    for (size_t i = 0; i < N_GPUS; i++)
        if (strcasecmp(gpus[i].name, name) == 0) return &gpus[i];
    return NULL;
}

const ds_hw_gpu *ds_hw__gpu_of_pci(uint32_t pci_id) {
    for (size_t i = 0; i < N_GPUS; i++)
        if (pci_id && gpus[i].pci_id == pci_id) return &gpus[i];
    return NULL;
}

const ds_hw_gpu *ds_hw__gpu_of_sm(uint32_t sm) {
    for (size_t i = 0; i < N_GPUS; i++)
        if (gpus[i].sm == sm) return &gpus[i];
    return NULL;
}

const ds_hw_gpu *ds_hw__gpu_of_nvlinks(uint32_t nvlinks) {
    switch (nvlinks) {
    case 6:
        return ds_hw__gpu_of_sm(70);
    case 12:
        return ds_hw__gpu_of_sm(80);
    case 18:
        return ds_hw__gpu_of_sm(90);
    default:
        return NULL;
    }
}

#define CATALOGUE "stas00/ml-engineering network/README.md"

const ds_hw_nvlink *ds_hw__nvlink(uint32_t sm, uint32_t generation) {
    static const ds_hw_nvlink nvlinks[] = {
        {"NVLink1", 20 * GB, 4, 80 * GB, CATALOGUE},
        {"NVLink2", 25 * GB, 6, 150 * GB, CATALOGUE},
        {"NVLink3", 25 * GB, 12, 300 * GB, CATALOGUE},
        {"NVLink4", 25 * GB, 18, 450 * GB, CATALOGUE},
        {"NVLink5", 50 * GB, 18, 900 * GB, CATALOGUE},
    };
    static const ds_hw_nvlink sm86 = {"NVLink of sm_86", 12 * GB, 4, 0,
                                      "NVIDIA/nccl src/graph/topo.h"};
    if (sm == 86) return &sm86;
    return generation >= 1 && generation <= 5 ? &nvlinks[generation - 1] : NULL;
}

int64_t ds_hw__pcie_x16(uint32_t generation, const char **source) {
    *source = CATALOGUE;
    switch (generation) {
    case 4:
        return 31 * GB;
    case 5:
        return 63 * GB;
    case 6:
        return 121 * GB;
    default:
        *source = "8 GT/s on 16 lanes, 128b/130b";
        return ds_hw__pcie(8000, 16);
    }
}

int64_t ds_hw__pcie(int64_t mega_transfers, int64_t lanes) {
    int64_t payload = 128, line = 130;
    if (mega_transfers <= 5000) {
        payload = 8;
        line = 10;
    } else if (mega_transfers > 32000) {
        payload = 242;
        line = 256;
    }
    return mega_transfers * lanes * payload / (line * 8) * MB;
}

/* ---- CPUs ---- */

enum { POWER, ARM, BROADWELL, SKYLAKE, SAPPHIRE, EMERALD, ZEN2, ZEN4, ZEN5, ZHAOXIN, YONGFENG };
static const ds_hw_cpu cpus[] = {
    {"POWER9", 32 * GB},
    {"Arm", 6 * GB},
    {"Intel Broadwell and older", 6 * GB},
    {"Intel Skylake to Ice Lake", 10 * GB},
    {"Intel Sapphire Rapids", 22 * GB},
    {"Intel Emerald Rapids and newer", 40 * GB},
    {"AMD Zen 1 and 2", 16 * GB},
    {"AMD Zen 3 and 4", 24 * GB},
    {"AMD Zen 5", 32 * GB},
    {"Zhaoxin", 6 * GB},
    {"Zhaoxin Yongfeng", 9 * GB},
};

static const ds_hw_cpu *intel(int64_t family, int64_t model) {
    if (family != 6) return &cpus[BROADWELL];
    if (model >= 0xcf || (model >= 0xad && model <= 0xaf)) return &cpus[EMERALD];
    if (model >= 0x8f) return &cpus[SAPPHIRE];
    return model >= 0x55 ? &cpus[SKYLAKE] : &cpus[BROADWELL];
}

/* Older versions of NCCL wrote the family as it stands in one byte of CPUID: 0xbf for 26. */
static const ds_hw_cpu *amd(int64_t family) {
    if (family == 26 || family == 0xbf) return &cpus[ZEN5];
    return family == 25 || family == 0xaf ? &cpus[ZEN4] : &cpus[ZEN2];
}

const ds_hw_cpu *ds_hw__cpu(const char *arch, const char *vendor, int64_t family, int64_t model) {
    if (!arch) return NULL;
    if (strcmp(arch, "ppc64") == 0) return &cpus[POWER];
    if (strcmp(arch, "arm64") == 0) return &cpus[ARM];
    if (strcmp(arch, "x86_64") != 0 || !vendor) return NULL;
    if (strcmp(vendor, "GenuineIntel") == 0) return intel(family, model);
    if (strcmp(vendor, "AuthenticAMD") == 0) return amd(family);
    if (strcmp(vendor, "CentaurHauls") == 0 || strcmp(vendor, "  Shanghai  ") == 0)
        return family == 7 && model == 0x5b ? &cpus[YONGFENG] : &cpus[ZHAOXIN];
    return NULL;
}

/* DGX-1 and DGX-2, DGX A100, DGX H100 and B200. */
const ds_hw_cpu *ds_hw__cpu_beside(uint32_t pcie) {
    if (pcie <= 3) return &cpus[BROADWELL];
    return pcie == 4 ? &cpus[ZEN2] : &cpus[SAPPHIRE];
}

const ds_hw_port *ds_hw__port(int64_t bytes_per_s) {
    static const ds_hw_port ports[] = {{"InfiniBand-EDR", 12500 * MB, 500000},
                                       {"InfiniBand-HDR", 25 * GB, 600000}};
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++)
        if (ports[i].bytes_per_s == bytes_per_s) return &ports[i];
    return NULL;
}
