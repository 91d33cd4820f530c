/* The testbeds, one entry each, with where every figure comes from. */
#include "tools/validate/testbed.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A DGX A100 of Selene and Megatron-LM's padded vocabulary. */
#define SELENE_OF(name)                                                                            \
    .gpu = "A100", .profile = name, .nvlink_gb_per_s = 300, .nic_mb_per_s = 25000, .vocab = 51200
/* llm-foundry's benchmarks, whatever the machine. The loss is flash-attn's CrossEntropyLoss, in 16
 * bits (llmfoundry/models/mpt/modeling_mpt.py: loss_fn is fused_crossentropy by default). */
#define MPT                                                                                        \
    .source = "mpt", .set = "mpt_fsdp", .model = VAL_GPT_FLASH, .vocab = 50368, .zero = 4,         \
    .fsdp = true, .precision = "bf16", .kernels = "eager", .loss_kernels = "compiled",             \
    .attention_kernel = "fa1"
/* Sailor's validation runs, whatever the machine: the pipeline of DeepSpeed under Megatron, fp32. */
#define SAILOR                                                                                     \
    .gpu = "", .vocab = 50257, .own_dims = true, .zero = 1, .late_reduce = true,                   \
    .recompute = "none", .precision = "fp32", .p2p = "buffered"
#define SAILOR_BASIS                                                                               \
    "mixed.c has the machines. DeepSpeed's PipelineEngine (runtime/pipe/engine.py, schedule.py) "  \
    "sends gradients, then activations; layer 0 of Sailor's llm_info.json has the rows of "        \
    "50,257 padded to 128 tp, not those of the training configs"
#define SELENE SELENE_OF("A100-Selene-Megatron")

static const val_testbed testbeds[] = {
    {.source = "vtrain_single",
     .gpu = "A100",
     .kernels = "fused",
     .set = "vtrain_single",
     .profile = "A100-vTrain-node",
     .nvlink_gb_per_s = 300,
     .nic_mb_per_s = 12500,
     .vocab = 50257,
     .zero = 1,
     .recompute = "full",
     .precision = "fp16",
     .whole_vocab = true,
     .basis = "VIA-Research/vTrain config/validation: 8 GPUs a node, 800 Gb/s between nodes, "
              "use_checkpoint, 1f1b; vocabulary of its simulator"},
    {.source = "vtrain_multi",
     .gpu = "A100",
     .kernels = "fused",
     .set = "vtrain_multi",
     .profile = "A100-vTrain-cluster",
     .nvlink_gb_per_s = 300,
     .nics = 4,
     .nic_mb_per_s = 25000,
     .vocab = 50257,
     .zero = 1,
     .late_reduce = true,
     .recompute = "full",
     .precision = "fp16",
     .parts = true,
     .basis = "the same; four HDR ports of 200 Gb/s a node are 800 Gb/s; DeepSpeed's pipeline "
              "(runtime/pipe/engine.py: is_pipe_partitioned, is_grad_partitioned) sends parts"},
    {.source = "megatron_apr2021",
     SELENE,
     .kernels = "fused",
     .set = "megatron_a100",
     .zero = 1,
     .late_reduce = true,
     .precision = "fp16",
     .chunks = 3, /* more than Megatron-LM's examples of that time have */
     .parts = true,
     .tunes = true,
     .basis = "Narayanan et al. 2021, section 5: Selene, eight HDR ports of 200 Gb/s a node; "
              "section 4.1: scatter and gather"},
    {.source = "megatron_jan2021",
     SELENE,
     .kernels = "fused",
     .set = "megatron_a100",
     .zero = 1,
     .late_reduce = true,
     .precision = "fp16",
     .parts = true,
     .tunes = true,
     .basis = "as megatron_apr2021"},
    {.source = "megatron_readme_175b",
     SELENE,
     .kernels = "fused",
     .set = "megatron_a100",
     .seq = 1024,
     .zero = 1,
     .late_reduce = true,
     .precision = "fp16",
     .basis = "as megatron_apr2021"},
    {.source = "seqsel",
     SELENE_OF("A100-Selene-Megatron-2022"),
     .kernels = "fused",
     .set = "megatron_seqsel",
     .zero = 1,
     .late_reduce = true,
     .basis = "Korthikanti et al. 2022, section 6: Selene"},
    {.source = "bigscience_a100",
     .gpu = "A100",
     .kernels = "fused",
     .set = "bigscience_a100",
     .profile = "A100-JeanZay-DeepSpeed",
     .nvlink_gb_per_s = 300,
     .nics = 4,
     .nic_mb_per_s = 12500,
     .vocab = 250680,
     .heads = 64,
     .zero = 2,
     .late_reduce = true,
     .uneven = true,
     .parts = true,
     .basis = "bigscience train/tr11-176B-ml: four Omni-Path ports of 100 Gb/s a node; \"all "
              "NHEADS=64 (above too)\", chronicles-prequel.md:660; ZeRO-1 of DeepSpeed's pipeline "
              "(runtime/pipe/engine.py: ReduceGrads)"},
    {.source = "bigscience_v100",
     .gpu = "V100",
     .kernels = "fused",
     .set = "bigscience_v100",
     .profile = "V100-JeanZay-DeepSpeed",
     .nvlink_gb_per_s = 150,
     .nics = 4,
     .nic_mb_per_s = 12500,
     .zero = 1,
     .late_reduce = true,
     .recompute = "full",
     .precision = "fp16",
     .uneven = true,
     .parts = true,
     .basis = "bigscience experiments: four V100 a node, four Omni-Path ports of 100 Gb/s"},
    {.source = "bigscience_v100_tr3m",
     .gpu = "V100",
     .kernels = "fused",
     .set = "bigscience_v100",
     .profile = "V100-JeanZay-DeepSpeed",
     .device = "V100-SXM2-32GB",
     .nvlink_gb_per_s = 150,
     .nics = 4,
     .nic_mb_per_s = 12500,
     .layers = 24,
     .hidden = 2048,
     .heads = 16,
     .vocab = 50257,
     .zero = 2,
     .late_reduce = true,
     .uneven = true,
     .parts = true,
     .basis =
         "bigscience train/tr3-1B3-baseline/tr3m-1B3-emb-norm-pile.slurm, which "
         "experiments/tr3m-1B3.md names: its dims, ZeRO-1, GPT-2's vocabulary; nodes as above"},
    {.source = "alpa",
     .gpu = "V100",
     .kernels = "fused",
     .set = "alpa_v100",
     .profile = "V100-p3-Megatron",
     .nvlink_gb_per_s = 150,
     .nics = 1,
     .nic_mb_per_s = 3125,
     .vocab = 51200,
     .seq = 1024,
     .zero = 1,
     .late_reduce = true,
     .recompute = "full",
     .precision = "fp16",
     .plans = true,
     .parts = true,
     .basis =
         "Zheng et al. 2022, section 8: p3.16xlarge, 25 Gb/s between nodes; stages send parts: "
         "alpa/global_env.py (use_scatter_gather), and Megatron-LM by default, which "
         "benchmark/megatron/benchmark_gpt_bert_one_case.py leaves as it is"},
    {.source = "sailor",
     SAILOR,
     .untied = true,
     .parts = true,
     .basis = SAILOR_BASIS "; OPT has an untied head there: layer 25 of llm_info.json has 51.5 M "
                           "parameters"},
    {.source = "amp",
     .gpu = "",
     .vocab = 50257,
     .own_dims = true,
     .zero = 1,
     .late_reduce = true,
     .recompute = "none",
     .precision = "fp16",
     .tied_dtype = "f16",
     .p2p = "buffered",
     .parts = true,
     .basis = "DachengLi1/AMP 72eeea4: DeepSpeed's PipelineEngine with fp32 all_reduces of "
              "gradients over replicas (tied ones between stages go as they are: "
              "runtime/pipe/module.py, allreduce_tied_weight_gradients), GPT-2's vocabulary padded "
              "to 128 tp; mixed.c has the machines"},
    {.source = "amp_model",
     .gpu = "",
     .model = VAL_TRANSGAN,
     .heads = 4,
     .vocab = 1,
     .seq = 81,
     .own_dims = true,
     .zero = 1,
     .late_reduce = true,
     .recompute = "none",
     .precision = "fp16",
     .p2p = "buffered",
     .parts = true,
     .basis = "as amp; a position of TransGAN has four heads"},
    {.source = "sailor_gh",
     SAILOR,
     .untied = true,
     .basis = SAILOR_BASIS "; whole values, not parts"},
    {.source = "sailor_gh_neo",
     SAILOR,
     .basis = SAILOR_BASIS "; layer 33 has 5,120 parameters, and no head"},
    {MPT, .gpu = "A100", .profile = "A100-MPT-FSDP", .nvlink_gb_per_s = 300, .nic_mb_per_s = 25000,
     .basis = "assumed: eight HDR ports of 200 Gb/s a node, which the source does not name"},
    {MPT, .gpu = "A100_40gb", .profile = "A100-40GB-MPT-FSDP", .nvlink_gb_per_s = 300,
     .nic_mb_per_s = 25000, .basis = "as A100"},
    {MPT, .gpu = "H100", .profile = "H100-MPT-FSDP", .nvlink_gb_per_s = 450, .nic_mb_per_s = 50000,
     .basis = "assumed: eight NDR ports of 400 Gb/s a node, which the source does not name"},
    {.source = "megatron_2020",
     SELENE_OF("A100-Selene-Megatron-2020"),
     .kernels = "fused",
     .set = "megatron_2020",
     .seq = 1024,
     .zero = 1,
     .recompute = "full",
     .precision = "fp16",
     .tunes = true,
     .basis = "as on V100; PyTorch's DistributedDataParallel reduces beside the backward pass"},
    {.source = "megatron_2020",
     .gpu = "V100",
     .set = "megatron_2020",
     .profile = "V100-DGX2-Megatron",
     .nvlink_gb_per_s = 150,
     .nic_mb_per_s = 12500,
     .vocab = 51200,
     .seq = 1024,
     .zero = 1,
     .recompute = "full",
     .precision = "fp16",
     .tunes = true,
     .basis = "Shoeybi et al. 2020, section 5: sequences of 1,024, vocabulary padded to 51,200"},
};

/* "seqsel_tab5" begins with the word seqsel, "seqsel2" does not. */
static bool begins(const char *text, const char *word) {
    size_t n = strlen(word);
    return strncasecmp(text, word, n) == 0 && !isalnum((unsigned char)text[n]);
}

/* The same GPU: its memory and what the source calls the machine may follow, not another bus. */
static bool is_gpu(const char *text, const char *gpu) {
    if (!*gpu) return true; /* the machine is in other cells (mixed.h) */
    static const char *const others[] = {"pcie", "pci-e", "nvl"};
    for (const char *at = text; *at; at++)
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            if (begins(at, others[i])) return false;
    return begins(text, gpu);
}

/* The longest source counts first, then the longest device, then the latest release. */
static bool is_closer(const val_testbed *t, const val_testbed *than) {
    if (!than) return true;
    size_t source = strlen(t->source), gpu = strlen(t->gpu);
    if (source != strlen(than->source)) return source > strlen(than->source);
    if (gpu != strlen(than->gpu)) return gpu > strlen(than->gpu);
    return t->since > than->since;
}

static const val_testbed *closest(const val_row *row, const val_testbed *all, size_t n,
                                  const val_testbed *best) {
    for (size_t i = 0; i < n; i++) {
        const val_testbed *t = &all[i];
        if (!begins(row->source_id, t->source) || !is_gpu(row->gpu, t->gpu)) continue;
        if (row->release >= t->since && is_closer(t, best)) best = t;
    }
    return best;
}

const val_testbed *val_testbed_of(const val_row *row) {
    const val_testbed *best = closest(row, testbeds, sizeof testbeds / sizeof *testbeds, NULL);
    return closest(row, val_recent_testbeds, val_n_recent_testbeds, best);
}

const char *val_set_of(const val_row *row, const char *file, char *room, size_t n) {
    const val_testbed *testbed = val_testbed_of(row);
    if (testbed && testbed->set) return testbed->set;
    if ((*row->cluster_id || *row->stage_devices) && *row->source_id) return row->source_id;
    const char *name = strrchr(file, '/');
    name = name ? name + 1 : file;
    if (strncmp(name, "e2e_", 4) == 0) name += 4;
    const char *dot = strrchr(name, '.');
    snprintf(room, n, "%.*s", (int)(dot ? (size_t)(dot - name) : strlen(name)), name);
    return room;
}

static void fill_number(int64_t *cell, int64_t value) {
    if (!*cell && value) *cell = value;
}
static void fill_text(const char **cell, const char *value) {
    if (!**cell && value) *cell = value;
}

void val_testbed_complete(const val_testbed *t, val_row *row) {
    if (t->own_dims) row->vocab = t->vocab;
    if (t->own_dims && t->heads) row->heads = t->heads;
    fill_number(&row->vocab, t->vocab);
    fill_number(&row->heads, t->heads);
    fill_number(&row->layers, t->layers);
    fill_number(&row->hidden, t->hidden);
    fill_number(&row->seq, t->seq);
    if (t->domain) fill_number(&row->gpus_per_node, row->gpus < t->domain ? row->gpus : t->domain);
    if (row->sp < 0 && t->sp) row->sp = 1;
    if (row->zero < 0 && strcasecmp(row->schedule, "FSDP") == 0) row->zero = 3;
    if (row->zero < 0 && t->zero) row->zero = t->zero - 1;
    bool together = t->framework && strcmp(t->framework, "torchtitan") == 0;
    bool looped = row->generator && strcmp(row->generator, "interleaved") == 0;
    if (together && looped && !row->vpp) row->vpp = 2; /* stages a rank of its pipeline_llama */
    int64_t others = row->tp * row->pp * (row->cp ? row->cp : 1);
    if (!row->dp && others && row->gpus % others == 0) row->dp = row->gpus / others;
    fill_text(&row->recompute, t->recompute);
    fill_text(&row->precision, t->precision);
}
