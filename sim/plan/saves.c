/* What stays in memory for the backward pass, where framework stacks make several ops one kernel.
 *
 * The program says which values an op of the backward pass reads. A stack (`kernels` of the
 * scenario) may keep less:
 *
 *   compiled, fused   silu(g) · u is one kernel. The kernel's gradient makes silu(g) again from g,
 *                     so no op of the backward pass reads silu(g). The loss reads logits in the
 *                     dtype of the product, so neither logits in f32 nor a gradient in f32 exists.
 *   fused             the gradient by the logits takes the place of the logits. Routing weights are
 *                     factors of the experts' activation, so `combine` keeps no expert's result. A
 *                     product in fewer bits keeps its operands in fewer bits alone.
 *
 * Sources: Megatron-LM core/fusions/fused_bias_swiglu.py (SwiGLUFunction saves its input alone,
 * WeightedSwiGLUFunction the input and the weights), core/transformer/moe/experts.py (permuted_probs
 * in the activation), core/fusions/fused_cross_entropy.py; Transformer Engine
 * pytorch/cross_entropy.py and common/triton/cross_entropy.py (the gradient overwrites the logits),
 * pytorch/module/linear.py, layernorm_linear.py and grouped_linear.py (prepare_for_saving of the
 * quantised input); PyTorch torch/_functorch/partitioners.py (min_cut_rematerialization_partition
 * makes pointwise values again unless a product reads them). torchao's float8 products save the
 * wide input (float8/float8_linear.py matmul_with_hp_or_float8_args), so `compiled` keeps it.
 * Scales of quantised blocks (1/32 of a byte an element, 1/16 with 4 bits) are left out.
 *
 * eager keeps more than the ops read (saves_eager.c). The loss may have another stack than the model
 * (`loss_kernels`).
 *
 * An op belongs to the backward pass if a gradient reaches the op. Only the lists of operands
 * change: an op still waits for an operand that memory does not keep, and no longer reads the
 * operand. */
#include "sim/plan/walk.h"

#include <stdlib.h>

/* Who reads a value. */
enum { BY_LOSS = 1, BY_SCALE = 2, BY_CAST = 4, BY_NARROW = 8, BY_OTHER = 16 };

typedef struct saves {
    ds_plan *plan;
    bool *backward;   /* per instance */
    uint8_t *bits;    /* per instance: of a narrow product of the backward pass; 0: none */
    uint8_t *by;      /* per value: its readers */
    uint32_t *source; /* per value inside a kernel: what the kernel reads in its place; DS_NONE */
    uint32_t *copy;   /* per value: 1 + its place in plan->copies */
} saves;

static const ds_record *record_of(const ds_plan *plan, uint32_t inst) {
    return plan->records.at[plan->insts.at[inst].record];
}

static uint32_t maker_of(const ds_plan *plan, uint32_t value) {
    return plan->values.at[value].inst;
}

static uint32_t operand_of(const ds_plan *plan, uint32_t inst, uint32_t k) {
    return plan->operands.at[plan->insts.at[inst].first_operand + k];
}

static ds_opcode code_of(const ds_plan *plan, uint32_t inst) {
    const ds_record *r = record_of(plan, inst);
    return r->op ? r->op->code : DS_OP_INVALID;
}

static uint32_t flags_of(const ds_plan *plan, uint32_t inst) {
    const ds_record *r = record_of(plan, inst);
    const ds_op_desc *desc = r->op ? ds_op_desc_of(r->op->code) : NULL;
    return desc ? desc->flags : 0;
}

/* 0: an input. */
static uint32_t bits_of(const ds_plan *plan, uint32_t value) {
    const ds_record *r = record_of(plan, maker_of(plan, value));
    if (!r->op) return 0;
    return ds_dtype_bits(
        ds_value_at(r->func, r->op->out[plan->values.at[value].result])->type->dtype);
}

/* ---- the backward pass ---- */

/* Bits of the dtype in which a product reads its operands, where it states one; else 0. */
static uint8_t product_bits(const ds_record *r) {
    const ds_exprs *exprs = &r->func->module->unit->exprs;
    const char *word = ds_attr_text(exprs, ds_attr_find(r->op->attrs, r->op->n_attrs, "products"));
    ds_dtype dtype;
    bool product = r->op->code == DS_OP_EINSUM || r->op->code == DS_OP_MATMUL;
    return product && word && ds_dtype_parse(word, &dtype) ? (uint8_t)ds_dtype_bits(dtype) : 0;
}

/* Updated weights are no gradients: what reads them is the next step. */
static void find_backward(saves *s) {
    const ds_plan *plan = s->plan;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        if (flags_of(plan, i) & DS_OPF_BACKWARD) s->backward[i] = true;
        for (uint32_t k = 0; k < ds_plan_n_reads(plan, i) && !s->backward[i]; k++) {
            uint32_t maker = maker_of(plan, operand_of(plan, i, k));
            s->backward[i] = s->backward[maker] && !(flags_of(plan, maker) & DS_OPF_OPTIMIZER);
        }
        if (s->backward[i] && s->plan->stack == DS_KERNELS_FUSED)
            s->bits[i] = product_bits(record_of(plan, i));
    }
}

static uint8_t reader_of(const saves *s, uint32_t inst) {
    switch (code_of(s->plan, inst)) {
    case DS_OP_CROSS_ENTROPY:
    case DS_OP_CROSS_ENTROPY_GRAD:
        return BY_LOSS;
    case DS_OP_SCALE:
        return BY_SCALE;
    case DS_OP_CAST:
        return BY_CAST;
    default:
        return s->bits[inst] ? BY_NARROW : BY_OTHER;
    }
}

static void find_readers(saves *s) {
    for (uint32_t i = 0; i < s->plan->insts.n; i++)
        for (uint32_t k = 0; k < ds_plan_n_reads(s->plan, i); k++)
            s->by[operand_of(s->plan, i, k)] |= reader_of(s, i);
}

/* ---- values inside a kernel ---- */

/* Is it an activation of which the gradient reads the operand? */
static bool is_activation(ds_opcode code) {
    return code == DS_OP_SILU || code == DS_OP_GELU || code == DS_OP_SQUARED_RELU;
}

/* Does the instance make operand k again, in place of reading what the forward pass made? */
static bool makes_again(const saves *s, uint32_t inst, uint32_t k) {
    uint32_t maker = maker_of(s->plan, operand_of(s->plan, inst, k));
    ds_opcode code = code_of(s->plan, inst);
    if (!s->backward[inst] || s->backward[maker]) return false;
    if (s->plan->stack < DS_KERNELS_COMPILED) return false;
    if (code == DS_OP_MUL) return is_activation(code_of(s->plan, maker));
    return code == DS_OP_COMBINE_GRAD && k == 1 && s->plan->stack == DS_KERNELS_FUSED;
}

static uint32_t resolve(const saves *s, uint32_t value) {
    return s->source[value] == DS_NONE ? value : s->source[value];
}

static void put_inside(saves *s, uint32_t value, uint32_t source) {
    s->source[value] = source;
    s->plan->values.at[value].is_inside = true;
}

/* The loss reads the logits as they are; its gradient is written as the product behind reads it. */
static void find_loss(saves *s) {
    ds_plan *plan = s->plan;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        ds_opcode code = code_of(plan, i);
        bool cast = code == DS_OP_CAST, grad = code == DS_OP_CROSS_ENTROPY_GRAD;
        if (!cast && !grad && code != DS_OP_SCALE) continue;
        uint32_t value = plan->insts.at[i].first_value, from = operand_of(plan, i, 0);
        ds_vinst *v = &plan->values.at[value];
        if (v->is_output || !s->by[value] || record_of(plan, i)->kind != DS_REC_COMPUTE) continue;
        bool ends = cast && s->backward[i] && s->source[from] != DS_NONE;
        if (ends && s->plan->loss == DS_KERNELS_FUSED) v->alias = resolve(s, from);
        bool wide = cast && !s->backward[i] && s->by[value] == BY_LOSS &&
                    bits_of(plan, value) > bits_of(plan, from);
        bool slope = !cast && (grad || s->source[from] != DS_NONE) &&
                     !(s->by[value] & ~(BY_SCALE | BY_CAST));
        if (wide || slope) put_inside(s, value, resolve(s, from));
    }
}

/* ---- narrow copies ---- */

/* Is the instance the last so far that reads a narrow copy of operand k? Weights are kept as they
 * are. A gather for such products reads the part that the device has kept. */
static uint8_t copy_bits(const saves *s, uint32_t inst, uint32_t k) {
    const ds_plan *plan = s->plan;
    const ds_record *r = record_of(plan, inst);
    uint32_t value = operand_of(plan, inst, k), maker = maker_of(plan, value);
    uint8_t bits = s->bits[inst];
    if (r->kind == DS_REC_COMM && code_of(plan, inst) == DS_OP_ALL_GATHER &&
        s->by[plan->insts.at[inst].first_value] == BY_NARROW)
        bits = 8;
    bool ours = bits && !s->backward[maker] &&
                plan->values.at[value].category == DS_CAT_ACTIVATION &&
                record_of(plan, maker)->op && code_of(plan, maker) != DS_OP_ALL_GATHER &&
                bits_of(plan, value) > bits;
    return ours ? bits : 0;
}

static void note_copy(saves *s, uint32_t inst, uint32_t value, uint8_t bits) {
    ds_plan_copy copy = {value, inst, bits, (uint8_t)bits_of(s->plan, value)};
    if (s->copy[value]) {
        s->plan->copies.at[s->copy[value] - 1].until = inst;
    } else {
        DS_HPUSH(&s->plan->copies, copy);
        s->copy[value] = s->plan->copies.n;
    }
}

/* ---- the lists of operands ---- */

/* Operands that are read come first, then the others, which are waited for. */
static void rewrite(saves *s) {
    ds_plan *plan = s->plan;
    DS_VEC(uint32_t) all = {0}, waits = {0};
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        ds_inst *inst = &plan->insts.at[i];
        uint32_t n = ds_plan_n_operands(plan, i), first = all.n;
        waits.n = 0;
        for (uint32_t k = 0; k < n; k++) {
            uint32_t value = operand_of(plan, i, k);
            uint8_t bits = k < inst->n_reads ? copy_bits(s, i, k) : 0;
            bool inside = s->source[value] != DS_NONE;
            if (bits) note_copy(s, i, value, bits);
            if (k >= inst->n_reads || inside || bits || makes_again(s, i, k))
                DS_HPUSH(&waits, value);
            else
                DS_HPUSH(&all, value);
            if (inside) DS_HPUSH(&all, s->source[value]);
        }
        inst->n_reads = all.n - first;
        for (uint32_t k = 0; k < waits.n; k++) DS_HPUSH(&all, waits.at[k]);
        inst->first_operand = first;
    }
    free(waits.at);
    free(plan->operands.at);
    plan->operands.at = all.at;
    plan->operands.n = all.n;
    plan->operands.cap = all.cap;
}

static void find_saves(saves *s) {
    ds_plan *plan = s->plan;
    find_readers(s);
    for (uint32_t v = 0; v < plan->values.n; v++) s->source[v] = DS_NONE;
    if (plan->loss >= DS_KERNELS_COMPILED) find_loss(s);
    for (uint32_t v = 0; v < plan->values.n; v++) {
        ds_vinst *value = &plan->values.at[v];
        bool taken = value->alias != DS_NONE && plan->values.at[value->alias].is_inside;
        if (taken && !value->is_inside) value->alias = DS_NONE;
    }
    rewrite(s);
}

void ds_plan__saves(ds_plan *plan, bool keeps_products) {
    if (plan->stack == DS_KERNELS_OPS && plan->loss == DS_KERNELS_OPS) return;
    saves s = {.plan = plan,
               .backward = ds_xcalloc(plan->insts.n, sizeof *s.backward),
               .bits = ds_xcalloc(plan->insts.n, sizeof *s.bits),
               .by = ds_xcalloc(plan->values.n, sizeof *s.by),
               .source = ds_xcalloc(plan->values.n, sizeof *s.source),
               .copy = ds_xcalloc(plan->values.n, sizeof *s.copy)};
    find_backward(&s);
    if (plan->stack == DS_KERNELS_EAGER) ds_plan__saves_eager(plan, s.backward, keeps_products);
    if (plan->stack >= DS_KERNELS_COMPILED || plan->loss >= DS_KERNELS_COMPILED) find_saves(&s);
    free(s.backward);
    free(s.bits);
    free(s.by);
    free(s.source);
    free(s.copy);
}
