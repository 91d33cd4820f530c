/* Where PyTorch's FSDP keeps what the program names otherwise.
 *
 *   weights     the parts that a device holds are those of f32, which the optimizer updates. Narrow
 *               parts exist inside a gather alone (FSDP2: the cast into the gather's input,
 *               torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, _get_param_all_gather_inputs;
 *               FSDP1: _mp_shard, freed after the gather, torch/distributed/fsdp/_flat_param.py,
 *               _free_mp_shard). A weight that no gather reads stays as the program says.
 *   gathers     FSDP2 gathers into one flat tensor on a stream of its own, and copies the weights
 *               out of it on the compute stream (the same file, foreach_all_gather and
 *               foreach_all_gather_copy_out). FSDP1's weights are views of the flat tensor
 *               (_flat_param.py, _use_unsharded_flat_param).
 *   gradients   the parts that a scatter leaves are allocated on the scatter's stream
 *               (foreach_reduce; FSDP1: _runtime_utils.py, _reduce_grad in _post_backward_stream).
 *
 * The caching allocator gives a block back to the stream that took the block, so these streams have
 * pools of their own (allocator.h). torchtitan has FSDP2 and expandable segments (run_train.sh). */
#include "sim/mem/internal.h"

#include <stdlib.h>

static const ds_record *record_of(const ds_plan *plan, uint32_t inst) {
    return plan->records.at[plan->insts.at[inst].record];
}

static const ds_op *op_of(const ds_plan *plan, uint32_t inst) {
    return record_of(plan, inst)->op;
}

static uint32_t operand_of(const ds_plan *plan, uint32_t inst, uint32_t k) {
    return plan->operands.at[plan->insts.at[inst].first_operand + k];
}

static bool is_comm(const ds_plan *plan, uint32_t inst, ds_opcode code, ds_category of) {
    const ds_record *r = record_of(plan, inst);
    return r->kind == DS_REC_COMM && r->op && r->op->code == code &&
           plan->values.at[plan->insts.at[inst].first_value].category == of;
}

bool ds_mem__is_weight_gather(const ds_plan *plan, uint32_t inst) {
    return is_comm(plan, inst, DS_OP_ALL_GATHER, DS_CAT_BUFFER);
}

/* Values that a gather reads, some by way of `after`. */
static bool *find_gathered(const ds_plan *plan) {
    bool *gathered = ds_xcalloc(plan->values.n, sizeof *gathered);
    for (uint32_t i = plan->insts.n; i-- > 0;) {
        const ds_op *op = op_of(plan, i);
        bool waits = op && op->code == DS_OP_AFTER && gathered[plan->insts.at[i].first_value];
        uint32_t n = ds_mem__is_weight_gather(plan, i) ? ds_plan_n_reads(plan, i) : waits;
        for (uint32_t k = 0; k < n; k++) gathered[operand_of(plan, i, k)] = true;
    }
    return gathered;
}

static uint32_t operand_bits(const ds_record *r, uint32_t k) {
    return ds_dtype_bits(ds_value_at(r->func, r->op->in[k].value)->type->dtype);
}

/* The last operand of an update is the wide weight, where there is one. */
static void find_narrow_parts(const ds_plan *plan, bool *absent) {
    bool *gathered = find_gathered(plan);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *r = record_of(plan, i);
        const ds_op_desc *desc = r->op ? ds_op_desc_of(r->op->code) : NULL;
        if (!desc || !(desc->flags & DS_OPF_OPTIMIZER)) continue;
        uint32_t weight = operand_of(plan, i, 0), last = (uint32_t)r->op->n_in - 1;
        if (gathered[weight] && operand_bits(r, 0) < operand_bits(r, last)) absent[weight] = true;
    }
    free(gathered);
}

static void add_flat(const ds_plan *plan, const ds_run *run, uint32_t inst, ds_mem_scratches *out) {
    const ds_inst *at = &plan->insts.at[inst];
    const ds_record *r = record_of(plan, inst);
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        const ds_variant *v = &r->variants[r->class_variant[pos]];
        uint32_t task = at->first_task + pos;
        ds_mem_scratch flat = {.cls = r->classes[pos],
                               .value = at->first_value | DS_MEM_SCRATCH,
                               .start_ps = run->start_ps[task],
                               .end_ps = run->end_ps[task]};
        for (uint32_t k = 0; k < r->n_out; k++)
            flat.bytes = ds_bytes_sum(flat.bytes, v->out_bytes[k]);
        if (flat.bytes && flat.start_ps < flat.end_ps) DS_HPUSH(out, flat);
    }
}

void ds_mem__fsdp(const ds_plan *plan, const ds_run *run, ds_mem_framework framework,
                  ds_mem_places *places, ds_mem_scratches *out) {
    if (framework != DS_MEM_FSDP && framework != DS_MEM_TORCHTITAN) return;
    find_narrow_parts(plan, places->absent);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *at = &plan->insts.at[i];
        bool gathers = ds_mem__is_weight_gather(plan, i);
        bool scatters = is_comm(plan, i, DS_OP_REDUCE_SCATTER, DS_CAT_GRADIENT);
        if (at->first_task == DS_NONE) continue;
        if (gathers && framework == DS_MEM_TORCHTITAN) add_flat(plan, run, i, out);
        uint8_t stream = scatters                              ? DS_ALLOC_SCATTER
                         : gathers && framework == DS_MEM_FSDP ? DS_ALLOC_GATHER
                                                               : DS_ALLOC_COMPUTE;
        for (uint32_t k = 0; k < record_of(plan, i)->n_out; k++)
            places->stream[at->first_value + k] = stream;
    }
}
