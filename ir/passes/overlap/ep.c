/* How tokens go to their experts and back: under the compute of another microbatch, and in how many
 * copies.
 *
 * Megatron-Core's overlap_moe_expert_parallel_comm puts the forward pass of one microbatch and the
 * backward pass of another together, layer by layer: while tokens of one go to their experts or come
 * back, the other computes (megatron/core/pipeline_parallel/combined_1f1b.py; DualPipe of
 * DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1, does the same). The order of two microbatches
 * is not written down. In its place an exchange that is marked `beside` keeps its links and slows
 * compute as any transfer does, and readers of its result wait for its operand alone
 * (sim/plan/expand.c): a step takes what compute takes, or what exchanges take if they are longer.
 * The first microbatch has no partner in its forward pass and waits, and for the last one's
 * backward pass, which has none either, the first one's stands.
 *
 * An all_to_all of the experts' buffers has a copy of a token for each of its experts. DeepEP sends
 * one copy to each node and one copy to each device. The values are equal, so the op stays an
 * all_to_all, and attributes of the op say which tokens the buffers hold (sim/coll/tokens.c). */
#include "ir/ops/ops.h"
#include "ir/passes/overlap/internal.h"

#include <string.h>

typedef struct marker {
    ds_builder b;
    ds_unit *unit;
    ds_func *func;
    const ds_strategy *strategy;
} marker;

static bool is_exchange(const ds_op *op) {
    return op->code == DS_OP_ALL_TO_ALL && op->n_over == 1 && strcmp(op->over[0], "ep") == 0;
}

static ds_op *maker_of(const marker *m, const ds_use *use) {
    return ds_value_at(m->func, use->value)->def;
}

/* The dim that is the i-th from the last. */
static ds_expr last_dim(const ds_type *type, uint32_t i) {
    return type->dims[type->rank - i].size;
}

/* `tokens` [… s d], `choice` [… s k], `buffers` [… e c d] */
static void describe(marker *m, ds_op *exchange, const ds_use *choice, bool back) {
    const ds_type *buffers = ds_use_type(m->unit, m->func, &exchange->in[0]);
    const ds_type *chosen = ds_use_type(m->unit, m->func, choice);
    ds_exprs *exprs = &m->unit->exprs;
    int64_t bits = (int64_t)ds_dtype_bits(buffers->dtype);
    ds_expr width = last_dim(buffers, 1);
    ds_expr bytes = ds_expr_fold(exprs, DS_EXPR_MUL, width, ds_expr_int(exprs, bits / 8));
    ds_build_attr_text(&m->b, exchange, "algorithm", "deepep");
    ds_build_attr_expr(&m->b, exchange, "experts", last_dim(buffers, 3));
    ds_build_attr_expr(&m->b, exchange, "top", last_dim(chosen, 1));
    ds_build_attr_expr(&m->b, exchange, "tokens", last_dim(chosen, 2));
    ds_build_attr_expr(&m->b, exchange, "capacity", last_dim(buffers, 2));
    ds_build_attr_expr(&m->b, exchange, "token_bytes", bytes);
    if (m->strategy->ep_nodes) ds_build_attr_int(&m->b, exchange, "nodes", m->strategy->ep_nodes);
    if (back) ds_build_attr_bool(&m->b, exchange, "back", true);
}

/* What dispatch makes goes to the experts; what combine reads comes from there. */
static void describe_near(marker *m, ds_op *op) {
    if (op->code == DS_OP_COMBINE) {
        ds_op *from = maker_of(m, &op->in[0]);
        if (from && is_exchange(from)) describe(m, from, &op->in[1], true);
    }
    if (!is_exchange(op)) return;
    const ds_op *from = maker_of(m, &op->in[0]);
    if (from && from->code == DS_OP_DISPATCH) describe(m, op, &from->in[1], false);
}

static void mark(marker *m, ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        if (m->strategy->ep_dispatch == DS_EP_DEEPEP) describe_near(m, op);
        if (m->strategy->ep_overlap && is_exchange(op))
            ds_build_attr_bool(&m->b, op, "beside", true);
        if (op->body) mark(m, op->body);
    }
}

void ds_overlap__ep(ds_model_step *step, ds_func *func) {
    marker m = {
        .b = {.unit = step->unit}, .unit = step->unit, .func = func, .strategy = &step->strategy};
    mark(&m, &func->body);
}
