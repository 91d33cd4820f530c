/* distsim plan: the same plan as options of two training programs.
 *
 * Sources of the names and their meaning:
 *   Megatron-LM  github.com/NVIDIA/Megatron-LM, megatron/training/arguments.py (commit 000c4ac2);
 *                options of Megatron-FSDP: "Required Configurations" of
 *                docs/discussions/megatron-fsdp-user-guide/megatron-fsdp-user-guide.md
 *   torchtitan   github.com/pytorch/torchtitan, torchtitan/config/job_config.py (commit 000204a4),
 *                classes Training, Parallelism, ActivationCheckpoint
 * Where a program lacks an option, the nearest option is given, and a line says so. */
#include "tools/cli/plan/plan.h"

#include <inttypes.h>
#include <string.h>

/* The strategy of a row, and the text so far. */
typedef struct launch {
    const cli_plan *plan;
    int64_t dp, tp, pp, ep, microbatches, zero, size, chunks;
    const char *recompute;
    ds_buf *out;
    uint32_t column;
} launch;

enum { WIDTH = 96 };

/* One option, on a new line where the last line is full. */
static void option(launch *l, const char *name, const char *value) {
    uint32_t n = (uint32_t)(strlen(name) + (*value ? 1 + strlen(value) : 0) + 1);
    if (l->column + n + 2 > WIDTH) {
        ds_buf_put(l->out, " \\\n     ");
        l->column = 5;
    }
    ds_buf_printf(l->out, " %s%s%s", name, *value ? " " : "", value);
    l->column += n;
}

static void number(launch *l, const char *name, int64_t value) {
    ds_buf text = {0};
    ds_buf_put_int(&text, value);
    option(l, name, text.text);
    ds_buf_deinit(&text);
}

static void torchrun(launch *l) {
    uint32_t nodes = (l->plan->world + l->plan->node - 1) / l->plan->node;
    ds_buf_printf(l->out, "    torchrun --nnodes %" PRIu32 " --nproc-per-node %" PRIu32, nodes,
                  l->plan->node);
    l->column = 48;
}

static bool is_encoder(const cli_plan *plan) {
    return strcmp(plan->model_func, "bert") == 0;
}

/* ---- Megatron-LM ---- */

/* arguments.py, "distributed": reductions beside the backward pass are off by default, and so are
 * gathers of weights beside the forward pass. Megatron-FSDP overlaps both by itself. */
static void megatron_state(launch *l) {
    if (l->dp > 1 && l->zero < 2) option(l, "--overlap-grad-reduce", "");
    if (l->zero >= 1) option(l, "--use-distributed-optimizer", "");
    if (l->zero == 1) option(l, "--overlap-param-gather", "");
    if (l->zero < 2) return;
    option(l, "--use-megatron-fsdp", "");
    option(l, "--data-parallel-sharding-strategy",
           l->zero == 2 ? "optim_grads" : "optim_grads_params");
    option(l, "--no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor", "");
}

/* arguments.py, "training": full recomputation takes a method and how many layers make a unit. */
static void megatron_recompute(launch *l) {
    if (strcmp(l->recompute, "none") == 0) return;
    option(l, "--recompute-granularity", l->recompute);
    if (strcmp(l->recompute, "full") == 0)
        option(l, "--recompute-method uniform --recompute-num-layers 1", "");
}

static void megatron(launch *l) {
    ds_buf_put(l->out, "  Megatron-LM\n");
    torchrun(l);
    option(l, is_encoder(l->plan) ? "pretrain_bert.py" : "pretrain_gpt.py", "");
    number(l, "--tensor-model-parallel-size", l->tp);
    if (l->tp > 1) option(l, "--sequence-parallel", "");
    number(l, "--pipeline-model-parallel-size", l->pp);
    if (l->chunks > 1)
        number(l, "--num-layers-per-virtual-pipeline-stage", l->plan->layers / (l->pp * l->chunks));
    if (l->ep > 1) number(l, "--expert-model-parallel-size", l->ep);
    number(l, "--micro-batch-size", l->size);
    number(l, "--global-batch-size", l->plan->batch);
    megatron_state(l);
    megatron_recompute(l);
    number(l, "--num-layers", l->plan->layers);
    number(l, "--hidden-size", l->plan->hidden);
    number(l, "--num-attention-heads", l->plan->heads);
    number(l, "--seq-length", l->plan->seq);
    number(l, "--max-position-embeddings", l->plan->seq);
    if (strcmp(l->plan->dtype, "bf16") == 0) option(l, "--bf16", "");
    if (strcmp(l->plan->dtype, "f16") == 0) option(l, "--fp16", "");
    ds_buf_putc(l->out, '\n');
}

/* ---- torchtitan: FSDP2 with tensor and pipeline parallelism ---- */

/* Parallelism: replicas are DDP, shards FSDP; `always` gathers weights again for the backward pass.
 */
static void titan_replicas(launch *l) {
    bool shards = l->zero > 0;
    number(l, "--parallelism.data_parallel_replicate_degree", shards ? 1 : l->dp);
    number(l, "--parallelism.data_parallel_shard_degree", shards ? l->dp : 1);
    if (shards)
        option(l, "--parallelism.fsdp_reshard_after_forward", l->zero == 3 ? "always" : "never");
}

/* Parallelism: by default the first and the last stage get a layer less, for embedding and head,
 * and layers a stage must divide layers + 2; zeros switch that off. */
static void titan_pipeline(launch *l) {
    if (l->pp == 1) return;
    number(l, "--parallelism.pipeline_parallel_degree", l->pp);
    option(l, "--parallelism.pipeline_parallel_schedule",
           l->chunks > 1 ? "Interleaved1F1B" : "1F1B");
    number(l, "--parallelism.pipeline_parallel_microbatch_size", l->size);
    number(l, "--parallelism.pipeline_parallel_layers_per_stage",
           l->plan->layers / (l->pp * l->chunks));
    number(l, "--parallelism.pipeline_parallel_first_stage_less_layers", 0);
    number(l, "--parallelism.pipeline_parallel_last_stage_less_layers", 0);
}

static void titan(launch *l) {
    ds_buf_put(l->out, "  torchtitan (FSDP)\n");
    torchrun(l);
    option(l, "-m torchtitan.train", "");
    titan_replicas(l);
    number(l, "--parallelism.tensor_parallel_degree", l->tp);
    titan_pipeline(l);
    if (l->ep > 1) number(l, "--parallelism.expert_parallel_degree", l->ep);
    /* with a pipeline the local batch is a replica's whole step; without a pipeline the rest of the
     * global batch is accumulated */
    number(l, "--training.local_batch_size", l->pp > 1 ? l->plan->batch / l->dp : l->size);
    number(l, "--training.global_batch_size", l->plan->batch);
    number(l, "--training.seq_len", l->plan->seq);
    option(l, "--activation_checkpoint.mode", l->recompute);
    ds_buf_putc(l->out, '\n');
    if (l->zero == 1)
        ds_buf_put(l->out, "    (it has no ZeRO 1; this also shares out the gradients)\n");
    if (strcmp(l->recompute, "selective") == 0)
        ds_buf_put(l->out,
                   "    (its selective checkpointing chooses other operations than the core "
                   "of attention)\n");
}

void cli_plan_put_launch(const cli_plan *plan, const ds_sweep_row *row, ds_buf *out) {
    if (!plan->layers || !plan->hidden || !plan->heads || !plan->seq) return;
    const char *schedule = cli_plan_text(row, "schedule");
    launch l = {.plan = plan,
                .dp = cli_plan_int(row, "dp"),
                .tp = cli_plan_int(row, "tp"),
                .pp = cli_plan_int(row, "pp"),
                .ep = cli_plan_int(row, "ep"),
                .microbatches = cli_plan_int(row, "microbatches"),
                .zero = cli_plan_int(row, "zero"),
                .chunks = schedule && strcmp(schedule, "interleaved") == 0 ? 2 : 1,
                .recompute = cli_plan_text(row, "recompute"),
                .out = out};
    l.size = plan->batch / (l.dp * l.microbatches);
    ds_buf_put(out, "\nHow to launch it (parallelism and sizes; data, model details and learning "
                    "rates are yours)\n");
    megatron(&l);
    if (!is_encoder(plan)) titan(&l);
}
