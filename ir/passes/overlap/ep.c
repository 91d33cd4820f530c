/* Expert parallelism's communication under the compute of another microbatch.
 *
 * Megatron-Core's overlap_moe_expert_parallel_comm puts the forward pass of one microbatch and the
 * backward pass of another together, layer by layer: while tokens of one go to their experts or come
 * back, the other computes (megatron/core/pipeline_parallel/combined_1f1b.py; DualPipe of
 * DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1, does the same). The order of two microbatches
 * is not written down. In its place an exchange that is marked `beside` keeps its links and slows
 * compute as any transfer does, and readers of its result wait for its operand alone
 * (sim/plan/expand.c): a step takes what compute takes, or what exchanges take if they are longer.
 * The first microbatch has no partner in its forward pass and waits, and for the last one's
 * backward pass, which has none either, the first one's stands. */
#include "ir/passes/overlap/internal.h"

#include <string.h>

static bool is_exchange(const ds_op *op) {
    return op->code == DS_OP_ALL_TO_ALL && op->n_over == 1 && strcmp(op->over[0], "ep") == 0;
}

static void mark(ds_builder *b, ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        if (is_exchange(op)) ds_build_attr_bool(b, op, "beside", true);
        if (op->body) mark(b, op->body);
    }
}

void ds_overlap__ep(ds_model_step *step, ds_func *func) {
    ds_builder b = {.unit = step->unit};
    mark(&b, &func->body);
}
