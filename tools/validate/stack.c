/* Tables of machines and of frameworks, and the rows' words for both. */
#include "tools/validate/stack.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool begins(const char *text, const char *word) {
    return strncasecmp(text, word, strlen(word)) == 0;
}

/* ---- machines ---- */

/* A usual machine of a GPU, where the row says nothing else. NVLink and PCIe: each way, a GPU
 * (cost_profiles/catalogue/links.csv). */
typedef struct machine {
    const char *gpu; /* the cell gpu begins with that word; the longest counts */
    int64_t nvlink_gb_per_s, domain, nic_mb_per_s, pcie_gb_per_s;
    const char *basis;
} machine;

static const machine machines[] = {
    {"P100", 80, 8, 3125, 16, "NVLink 1; assumed: 25 Gb/s a GPU"},
    {"V100", 150, 8, 6250, 16, "NVLink 2; assumed: four EDR ports a node of 8"},
    {"A40", 31, 8, 12500, 31, "PCIe 4; assumed: 100 Gb/s a GPU"},
    {"A100", 300, 8, 25000, 31, "NVLink 3; DGX A100: eight HDR ports of 200 Gb/s a node"},
    {"L40S", 31, 8, 25000, 31, "PCIe 4; assumed: 200 Gb/s a GPU"},
    {"H100", 450, 8, 50000, 63, "NVLink 4; DGX H100: eight NDR ports of 400 Gb/s a node"},
    {"H200", 450, 8, 50000, 63, "as H100"},
    {"GH200", 450, 8, 50000, 63, "as H100"},
    {"B200", 900, 8, 50000, 63, "NVLink 5; DGX B200: eight NDR ports of 400 Gb/s a node"},
    {"B300", 900, 8, 100000, 121, "NVLink 5; DGX B300: eight XDR ports of 800 Gb/s a node"},
    {"GB200", 900, 64, 50000, 63, "assumed: 64 of an NVL72's 72 GPUs; ConnectX-7"},
    {"GB300", 900, 64, 100000, 121, "assumed: 64 of an NVL72's 72 GPUs; ConnectX-8"},
    {"MI250", 200, 8, 25000, 31,
     "AMD CDNA 2 white paper: links of 50 GB/s; assumed: 200 Gb/s a GPU"},
    {"MI300", 448, 8, 50000, 63, "AMD CDNA 3 white paper: seven links of 64 GB/s each way"},
    {"MI325", 448, 8, 50000, 63, "as MI300X"},
    {"MI355", 538, 8, 50000, 63, "AMD CDNA 4 white paper: seven links of 76.8 GB/s each way"},
};

static const machine *machine_of(const char *gpu) {
    const machine *best = NULL;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const machine *m = &machines[i];
        if (begins(gpu, m->gpu) && (!best || strlen(m->gpu) > strlen(best->gpu))) best = m;
    }
    return best;
}

/* "25 GB/s a GPU (assumed)", "400 Gb/s a GPU"; 0: blank. DS_ERR_UNSUPPORTED for other words. */
static ds_status link_of(const char *column, const char *text, double *gb_per_s, ds_error *err) {
    static const char *const technologies[] = {"NVLink", "NVSwitch", "xGMI", "InfiniBand", "RoCE"};
    *gb_per_s = 0;
    if (!text[strspn(text, " \t")]) return DS_OK;
    for (size_t i = 0; i < sizeof technologies / sizeof *technologies; i++)
        if (strcasecmp(text, technologies[i]) == 0) return DS_OK; /* the usual machine's rate */
    char *end;
    double value = strtod(text, &end);
    bool bytes = strncmp(end, " GB/s a GPU", 11) == 0, bits = strncmp(end, " Gb/s a GPU", 11) == 0;
    if (end == text || !(value > 0 && value < 1e5) || !(bytes || bits))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "%s = '%.60s' is no rate, as '25 GB/s a GPU'", column, text);
    *gb_per_s = bytes ? value : value / 8;
    return DS_OK;
}

static ds_status fill_machine(const val_row *row, val_testbed *out, ds_error *err) {
    const machine *m = machine_of(row->gpu);
    double intra, inter;
    if (!m)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "gpu = '%.60s': no usual machine is known", row->gpu);
    DS_TRY(link_of("intra_link", row->intra_link, &intra, err));
    DS_TRY(link_of("inter_link", row->inter_link, &inter, err));
    out->nvlink_gb_per_s = intra > 0 ? (int64_t)(intra + 0.5) : m->nvlink_gb_per_s;
    out->nic_mb_per_s = inter > 0 ? (int64_t)(inter * 1000 + 0.5) : m->nic_mb_per_s;
    out->pcie_gb_per_s = m->pcie_gb_per_s;
    out->domain = m->domain;
    return DS_OK;
}

/* ---- frameworks ---- */

/* Defaults of a framework, where the row says nothing. */
typedef struct stack {
    const char *word; /* of source_id or source_ref; the first of the table counts */
    val_testbed facts;
} stack;

#define NEMO_FACTS                                                                                 \
    .framework = "megatron", .zero = 2, .gathers_ahead = true, .narrow = true,                     \
    .grad_dtype = "bf16", .recompute = "none", .precision = "bf16"

static const stack stacks[] = {
    {"torchtitan",
     {.framework = "torchtitan",
      .zero = 4,
      .gathers_ahead = true,
      .sp = true,
      .narrow = true,
      .recompute = "selective-op",
      .precision = "bf16",
      .whole_vocab = true,
      .basis =
          "pytorch/torchtitan torchtitan/config: FSDP over all, train_configs/llama3_8b.toml: "
          "selective checkpointing of ops; with a pipeline fsdp_reshard_after_forward \"default\" "
          "is \"never\" and the last microbatch alone reduces gradients"}},
    {"fms-fsdp",
     {.framework = "fsdp",
      .zero = 4,
      .kernels = "compiled",
      .recompute = "none",
      .precision = "bf16",
      .whole_vocab = true,
      .basis = "foundation-model-stack/fms-fsdp fms_fsdp/config/training.py and policies: FSDP1, "
               "bfloat16 for parameters and reductions; use_torch_compile = True"}},
    {"NeMo-Framework-Launcher",
     {NEMO_FACTS, .model = VAL_GPT,
      .basis = "launcher_scripts/conf/training: distributed_fused_adam with overlap_grad_sync and "
               "overlap_param_sync, transformer_engine off: attention written out"}},
    {"NeMo",
     {NEMO_FACTS, .model = VAL_GPT_FLASH, .tp_overlap = "pipe", .narrow_tp_overlap = "ring",
      .basis = "the same folder, *_performance.yaml: grad_sync_dtype bf16, ub_tp_comm_overlap, "
               "Transformer Engine's fused attention"}},
    {"Megatron-DeepSpeed",
     {.framework = "megatron_deepspeed",
      .zero = 2,
      .late_reduce = true,
      .uneven = true,
      .parts = true,
      .model = VAL_GPT_FLASH,
      .recompute = "none",
      .precision = "bf16",
      .basis = "as bigscience_a100, with fused attention"}},
    {"DeepSpeed",
     {.framework = "deepspeed",
      .zero = 1,
      .late_reduce = true,
      .model = VAL_GPT_FLASH,
      .recompute = "none",
      .precision = "bf16",
      .basis = "deepspeed/runtime/engine.py: gradients are reduced after the backward pass below "
               "stage 2"}},
    {"Megatron",
     {NEMO_FACTS, .model = VAL_GPT_FLASH, .tp_overlap = "pipe", .narrow_tp_overlap = "ring",
      .basis = "Megatron-LM examples: --use-distributed-optimizer --overlap-grad-reduce "
               "--overlap-param-gather; Transformer Engine"}},
    {"Primus",
     {NEMO_FACTS, .model = VAL_GPT_FLASH,
      .basis = "AMD-AGI/Primus examples/megatron: Megatron-LM with a distributed optimizer; no "
               "userbuffers on AMD"}},
    {"TransformerEngine",
     {.framework = "none",
      .kernels = "fused",
      .zero = 1,
      .narrow = true,
      .model = VAL_GPT_FLASH,
      .recompute = "none",
      .precision = "bf16",
      .whole_vocab = true,
      .basis = "Transformer Engine's layers under PyTorch's DistributedDataParallel"}},
    {NULL, /* weights that are shared out, by a source without a known name */
     {.framework = "fsdp",
      .zero = 4,
      .narrow = true,
      .model = VAL_GPT_FLASH,
      .recompute = "none",
      .precision = "bf16",
      .whole_vocab = true,
      .basis = "torch.distributed.fsdp's defaults"}},
    {NULL,
     {NEMO_FACTS, .model = VAL_GPT_FLASH,
      .basis = "assumed: as Megatron-LM's examples with a distributed optimizer"}},
};

static const stack *stack_of(const val_row *row) {
    size_t n = sizeof stacks / sizeof *stacks;
    for (size_t i = 0; i + 2 < n; i++) {
        const stack *s = &stacks[i];
        bool named = val_mentions(row->source_id, s->word) || val_mentions(row->ref, s->word);
        bool replicates = strcmp(s->facts.framework, "megatron") == 0 || s->facts.zero == 1;
        if (named && (row->zero != 3 || !replicates || val_mentions(s->word, "DeepSpeed")))
            return s;
    }
    return row->zero == 3 ? &stacks[n - 2] : &stacks[n - 1];
}

/* Names of families with learned positions, biases and one product up and down. */
static bool is_gpt(const val_row *row) {
    static const char *const names[] = {"gpt", "opt", "bloom", "turing", "mt-nlg"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (begins(row->model, names[i])) return true;
    return false;
}

static val_model model_of(const val_row *row, val_model gpt) {
    if (begins(row->model, "bert")) return VAL_BERT;
    return is_gpt(row) ? gpt : VAL_LLAMA;
}

/* Asynchronous tensor parallelism is a pass of the compiler, and torchtitan's docs/float8.md asks for
 * the compiler, too: else each conversion is a kernel. */
static bool is_compiled(const val_row *row, const val_testbed *t) {
    bool narrow = val_mentions(row->precision, "fp8") && strcmp(t->framework, "torchtitan") == 0;
    if (val_mentions(row->notes, "eager") || val_mentions(row->notes, "no torch.compile"))
        return false;
    return narrow || val_mentions(row->notes, "torch.compile") ||
           (t->tp_overlap && strcmp(t->framework, "torchtitan") == 0);
}

/* torchtitan's compiler leaves the loss to eager mode where the page of the figures is of 2024 or
 * the beginning of 2025 (the cell names such pages by year and month): each layer is compiled
 * (torchtitan/parallelisms/parallelize_llama.py, apply_compile), and "compiling loss function causes
 * CUDA errors, turning off" (train.py, pull request 755 of 2024-12; torchtitan/components/loss.py
 * has the compiler again in March 2025). */
#define LOSS_COMPILED_SINCE 202503

static bool has_eager_loss(const val_row *row, const val_testbed *t) {
    const char *date = strstr(row->ref, "_20");
    return t->kernels && strcmp(t->kernels, "compiled") == 0 &&
           strcmp(t->framework, "torchtitan") == 0 && date && atoi(date + 1) < LOSS_COMPILED_SINCE;
}

/* torchtitan's page of Llama 2 is of April 2024, when its configurations said norm_type =
 * "fused_rmsnorm" (train_configs/llama_7b.toml; pull request 181). */
static bool has_fused_norms(const val_row *row, const val_testbed *t) {
    return strcmp(t->framework, "torchtitan") == 0 && val_mentions(row->ref, "performance.md") &&
           val_mentions(row->ref, "Llama 2");
}

/* torchtitan wraps the embedding, and norm and head together, since July 2025 (pull request 1094,
 * rebased to be merged on 2025-07-29); before, the three were the root's weights. docs/performance.md
 * is of 2024. */
static bool has_root_weights(const val_row *row, const val_testbed *t) {
    enum { WRAPPED_SINCE = 202508 };
    const char *date = strstr(row->ref, "_20");
    long month = date ? strtol(date + 1, NULL, 10) * (date[5] == '-' ? 100 : 1) +
                            (date[5] == '-' ? strtol(date + 6, NULL, 10) : 0)
                      : 0;
    return strcmp(t->framework, "torchtitan") == 0 &&
           (val_mentions(row->ref, "performance.md") || (date && month < WRAPPED_SINCE));
}

ds_status val_stack_testbed(const val_row *row, val_testbed *out, ds_error *err) {
    *out = stack_of(row)->facts;
    DS_TRY(fill_machine(row, out, err));
    out->source = row->source_id;
    out->gpu = row->gpu;
    out->profile = VAL_GENERIC;
    out->model = model_of(row, out->model);
    out->tunes = true;
    if (row->tp > 1 && strcmp(out->framework, "megatron") == 0) out->sp = true;
    if (val_mentions(row->notes, "async TP") || val_mentions(row->notes, "AsyncTP"))
        out->tp_overlap = out->narrow_tp_overlap = "ring";
    if (is_compiled(row, out)) out->kernels = "compiled";
    if (out->kernels && val_mentions(row->notes, "eager")) out->kernels = "eager";
    if (has_eager_loss(row, out)) out->loss_kernels = "eager";
    if (has_root_weights(row, out)) out->reshard = "root";
    if (has_fused_norms(row, out)) out->norm_kernels = "fused";
    return DS_OK;
}

ds_status val_testbed_for(const val_row *row, bool zero_shot, val_testbed *out, ds_error *err) {
    const val_testbed *known = val_testbed_of(row);
    if (!known && *row->cluster_id)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "source_id = '%.40s': no such source of rows with cluster_id is known",
                            row->source_id);
    if (!known) return val_stack_testbed(row, out, err);
    *out = *known;
    if (zero_shot) out->profile = VAL_GENERIC;
    return DS_OK;
}
