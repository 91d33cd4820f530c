/* Testbeds from Hopper on: GPT of Megatron-Core, Llama of Megatron-LM's FP8 example, and the tables
 * of Megatron-Bridge, whose runs of one container (release) share their software. */
#include "tools/validate/testbed.h"

/* NVLink of a Hopper is 450 GB/s each way, of a Blackwell 900; ConnectX-7 is 400 Gb/s, ConnectX-8
 * 800; PCIe 5 carries 63 GB/s, 6 121 (cost_profiles/catalogue/links.csv). */
#define HOPPER_NODE .domain = 8, .nvlink_gb_per_s = 450, .nic_mb_per_s = 50000, .pcie_gb_per_s = 63
#define B200_NODE   .domain = 8, .nvlink_gb_per_s = 900, .nic_mb_per_s = 50000, .pcie_gb_per_s = 63
#define B300_NODE   .domain = 8, .nvlink_gb_per_s = 900, .nic_mb_per_s = 100000, .pcie_gb_per_s = 121
/* assumed: 64 of an NVL72's 72 GPUs, so that groups of powers of two lie in one rack. Recipes for
 * racks record layers, or parts of layers, as CUDA graphs (NVIDIA-NeMo/Megatron-Bridge pull requests
 * 4080 and 5383: attention and MLP; 4211: the iteration; perf_recipes/nemotronh), from 26.06 on
 * recipes for B200 and B300, too (4606); assumed: of parts, the host hides the rest. */
#define GB200_RACK                                                                                 \
    .domain = 64, .graphs = true, .nvlink_gb_per_s = 900, .nic_mb_per_s = 50000, .pcie_gb_per_s = 63
#define GB300_RACK                                                                                 \
    .domain = 64, .graphs = true, .nvlink_gb_per_s = 900, .nic_mb_per_s = 100000,                  \
    .pcie_gb_per_s = 121

/* Megatron-Bridge's recipes: distributed optimizer, fused attention, sequence parallel with tp; its
 * tables do not say what is recomputed (recipe.h). */
#define BRIDGE                                                                                     \
    .source = "megatron_bridge", .set = "megatron_bridge", .model = VAL_LLAMA, .zero = 2,          \
    .sp = true, .tp_overlap = "pipe", .narrow_tp_overlap = "ring", .narrow = true,                 \
    .recompute = "none", .recipes = true, .kernels = "fused",                                      \
    .basis =                                                                                       \
        "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md (force-balanced, dropless), "     \
        "scripts/performance/configs, tp_comm_overlap with userbuffers_bf16_* and _fp8_* of "      \
        "training/comm_overlap.py, not with NVFP4"

const val_testbed val_recent_testbeds[] = {
    {.source = "megatron_h100",
     .gpu = "H100",
     .set = "megatron_h100",
     .kernels = "fused",
     .profile = "H100-Eos-Megatron",
     .model = VAL_GPT_FLASH,
     HOPPER_NODE,
     .zero = 2,
     .sp = true,
     .tp_overlap = "pipe",
     .chunks = 32,
     .gathers_ahead = true,
     .tunes = true,
     .precision = "bf16",
     .recompute = "none",
     .basis = "Megatron-LM README, core_r0.8.0: NDR, flash attention, --overlap-grad-reduce and "
              "--overlap-param-gather (a distributed optimizer), --tp-comm-overlap, which wants "
              "sequence parallelism; stages overlap their sends, which interleaved ones do"},
    {.source = "megatron_llama_fp8",
     .gpu = "H100",
     .set = "llama3_h100",
     .kernels = "fused",
     .profile = "H100-Bridge",
     .model = VAL_LLAMA,
     HOPPER_NODE,
     .zero = 2,
     .sp = true,
     .tp_overlap = "pipe",
     .narrow_tp_overlap = "ring",
     .narrow = true,
     .recompute = "none",
     .basis = "assumed: as Megatron-Bridge's, whose configurations are NeMo's, which "
              "examples/llama/README.md says it follows (userbuffers_fp8_h100_h16384_tp8_cp2)"},
    /* Products of the tables without a column for the precision: their footnote names the blocks
     * that are quantised together. */
    {BRIDGE, .gpu = "H100", .profile = "H100-Bridge", .precision = "fp8", HOPPER_NODE},
    {BRIDGE, .gpu = "B200", .profile = "B200-Bridge-early", B200_NODE},
    {BRIDGE, .gpu = "B300", .profile = "B300-Bridge-early", B300_NODE},
    {BRIDGE, .gpu = "GB200", .profile = "GB200-Bridge-early", GB200_RACK},
    {BRIDGE, .gpu = "GB300", .profile = "GB300-Bridge-early", GB300_RACK},
    {BRIDGE, .gpu = "B200", .since = 2606, .profile = "B200-Bridge", .graphs = true, B200_NODE},
    {BRIDGE, .gpu = "B300", .since = 2606, .profile = "B300-Bridge", .graphs = true, B300_NODE},
    {BRIDGE, .gpu = "GB200", .since = 2606, .profile = "GB200-Bridge", GB200_RACK},
    {BRIDGE, .gpu = "GB300", .since = 2606, .profile = "GB300-Bridge", GB300_RACK},
};
const size_t val_n_recent_testbeds = sizeof val_recent_testbeds / sizeof *val_recent_testbeds;
