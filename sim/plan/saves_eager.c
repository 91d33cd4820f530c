/* What PyTorch's eager mode keeps for the backward pass beyond what the program's ops read.
 *
 *   rms_norm       a series of ops: x in f32, which their gradients read, and the normalised value in
 *                  the dtype of x, by which the gradient of the scale is made (aten/src/ATen/native/
 *                  layer_norm.cpp, rms_norm_symint, at v2.5; tools/autograd/derivatives.yaml: pow and
 *                  mul keep their operands). Of 32 bits x itself, and the normalised value. A fused
 *                  norm (`norm_kernels`) keeps what the op reads.
 *   selective_op   the results of every second product from the first one on are kept as the forward
 *                  pass made them, also where no gradient reads them (torch/utils/checkpoint.py,
 *                  _CachingTorchDispatchMode: storage holds MUST_SAVE results until the block has run
 *                  again). A compiler keeps those alone that a gradient reads. */
#include "sim/plan/walk.h"

#include <stdlib.h>

typedef struct eager {
    ds_plan *plan;
    const bool *backward; /* per instance */
    uint32_t *norm;       /* per value: the last rms_norm that read the value; DS_NONE */
    uint32_t *until;      /* per scope: the last gradient that reads a value made there; DS_NONE */
} eager;

static const ds_op *op_of(const ds_plan *plan, uint32_t inst) {
    return plan->records.at[plan->insts.at[inst].record]->op;
}

static uint32_t operand_of(const ds_plan *plan, uint32_t inst, uint32_t k) {
    return plan->operands.at[plan->insts.at[inst].first_operand + k];
}

static uint8_t bits_of(const ds_plan *plan, uint32_t value) {
    const ds_record *r = plan->records.at[plan->insts.at[plan->values.at[value].inst].record];
    uint32_t result = plan->values.at[value].result;
    return (uint8_t)ds_dtype_bits(ds_value_at(r->func, r->op->out[result])->type->dtype);
}

/* ---- norms ---- */

static void find_norms(eager *e) {
    ds_plan *plan = e->plan;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_op *op = op_of(plan, i);
        if (!op) continue;
        if (op->code == DS_OP_RMS_NORM) e->norm[operand_of(plan, i, 0)] = i;
        if (op->code != DS_OP_RMS_NORM_GRAD) continue;
        uint32_t norm = e->norm[operand_of(plan, i, 1)];
        if (norm == DS_NONE) continue;
        uint32_t value = plan->insts.at[norm].first_value;
        uint8_t bits = bits_of(plan, value);
        uint8_t kept = bits < 32 ? (uint8_t)(32 + bits) : bits;
        DS_HPUSH(&plan->copies, ((ds_plan_copy){value, i, kept, bits}));
    }
}

/* ---- selective checkpointing ---- */

static bool is_product(const ds_plan *plan, uint32_t inst) {
    const ds_op *op = op_of(plan, inst);
    if (!op || (op->code != DS_OP_EINSUM && op->code != DS_OP_MATMUL) || op->n_in != 2)
        return false;
    ds_category of = plan->values.at[operand_of(plan, inst, 1)].category;
    return of == DS_CAT_WEIGHT || of == DS_CAT_BUFFER; /* where gathered, a buffer */
}

static uint32_t scope_of(const ds_plan *plan, uint32_t value) {
    return plan->insts.at[plan->values.at[value].inst].scope;
}

static bool in_turn(const ds_plan *plan, uint32_t scope) {
    const ds_op *op = plan->scopes.at[scope].op;
    return op && op->code == DS_OP_FOR;
}

static void find_products(eager *e) {
    ds_plan *plan = e->plan;
    bool *read = ds_xcalloc(plan->values.n, sizeof *read); /* outside of the turn */
    bool *behind =
        ds_xcalloc(plan->scopes.n, sizeof *behind); /* the turn is of the backward pass */
    uint32_t *products = ds_xcalloc(plan->scopes.n, sizeof *products);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        uint32_t scope = plan->insts.at[i].scope;
        behind[scope] |= e->backward[i];
        for (uint32_t k = 0; k < ds_plan_n_reads(plan, i); k++) {
            uint32_t value = operand_of(plan, i, k);
            if (scope_of(plan, value) != scope) read[value] = true;
            if (e->backward[i]) e->until[scope_of(plan, value)] = i;
        }
    }
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        uint32_t scope = plan->insts.at[i].scope, value = plan->insts.at[i].first_value;
        if (behind[scope] || !in_turn(plan, scope) || !is_product(plan, i)) continue;
        bool kept = ++products[scope] % 2 == 1;
        if (!kept || read[value] || e->until[scope] == DS_NONE) continue;
        uint8_t bits = bits_of(plan, value);
        DS_HPUSH(&plan->copies, ((ds_plan_copy){value, e->until[scope], bits, bits}));
    }
    free(read);
    free(behind);
    free(products);
}

void ds_plan__saves_eager(ds_plan *plan, const bool *backward, bool keeps_products) {
    eager e = {.plan = plan,
               .backward = backward,
               .norm = ds_xmalloc(plan->values.n * sizeof *e.norm),
               .until = ds_xmalloc(plan->scopes.n * sizeof *e.until)};
    for (uint32_t v = 0; v < plan->values.n; v++) e.norm[v] = DS_NONE;
    for (uint32_t s = 0; s < plan->scopes.n; s++) e.until[s] = DS_NONE;
    if (plan->norms == DS_KERNELS_EAGER) find_norms(&e);
    if (keeps_products) find_products(&e);
    free(e.norm);
    free(e.until);
}
