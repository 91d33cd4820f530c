/* What a training framework allocates beside the program's tensors when weights are updated.
 *
 * A program says how gradients are summed, shared out and used. Frameworks do that through flat
 * copies, in segments that stay reserved because nothing else is as large. Of n updated elements on
 * a device (the shard of a ZeRO partition, gradients of g bytes, w bytes of weights there):
 *
 *   deepspeed  gradients as wide as the weights:    (g + 4) n + 5e8 g
 *              gradients summed in a wider dtype:   w + 5e8 g
 *
 * (g + 4) n: ZeRO 1 and 2 put the gradients of the partition into one tensor, and that into another
 * one of f32, before the optimizer runs (deepspeed/runtime/zero/stage_1_and_2.py, step:
 * self.flatten(self.averaged_gradients[i]).to(…)). 5e8 g: the reduction's bucket, which is made
 * whole (the same file, reduce_gradients: torch.empty(int(self.reduce_bucket_size)); its default is
 * 500,000,000 elements, deepspeed/runtime/zero/constants.py); of gradients that nobody reduces
 * there is none. w: with BF16_Optimizer the weights' own narrow gradients stay until the next
 * backward pass, beside the f32 sums (deepspeed/runtime/bf16_optimizer.py, update_hp_grads), which
 * are flat already. Beside them the process has all kernels of PyTorch in memory, as CUDA before
 * 11.7 loaded kernels (`modules` of the catalogue). Version 0.5.10 and later; the code read is that of 2022. */
#include "sim/mem/mem.h"

#include <stdlib.h>
#include <string.h>

#define DEEPSPEED_BUCKET INT64_C(500000000) /* elements */

bool ds_mem_framework_parse(const char *text, ds_mem_framework *out) {
    static const struct {
        const char *word;
        ds_mem_framework framework;
    } words[] = {{"none", DS_MEM_PLAIN},          {"megatron", DS_MEM_PLAIN},
                 {"deepspeed", DS_MEM_DEEPSPEED}, {"megatron_deepspeed", DS_MEM_DEEPSPEED},
                 {"fsdp", DS_MEM_FSDP},           {"torchtitan", DS_MEM_TORCHTITAN}};
    *out = DS_MEM_PLAIN;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i].word) != 0) continue;
        *out = words[i].framework;
        return true;
    }
    return false;
}

static const ds_record *record_of(const ds_plan *plan, uint32_t inst) {
    return plan->records.at[plan->insts.at[inst].record];
}

static int64_t bytes_on(const ds_plan *plan, uint32_t value, uint32_t cls) {
    const ds_vinst *v = &plan->values.at[value];
    const ds_record *r = record_of(plan, v->inst);
    uint32_t pos = ds_record_class_pos(r, cls);
    return pos == DS_NONE ? 0 : r->variants[r->class_variant[pos]].out_bytes[v->result];
}

/* Bytes of an element of an operand. */
static int64_t bytes_of(const ds_record *r, uint32_t operand) {
    return ds_dtype_bits(ds_value_at(r->func, r->op->in[operand].value)->type->dtype) / 8;
}

/* What the updates of a class say. */
typedef struct updates {
    int64_t grad_bytes; /* of an element of the summed gradients, the widest */
    bool narrow;        /* weights are narrower than that */
} updates;

/* One update of some elements: operand 0 is the weight that others read, 1 its gradient. */
static void add_update(const ds_plan *plan, uint32_t inst, int64_t *bytes, updates *of) {
    const ds_record *r = record_of(plan, inst);
    uint32_t gradient = plan->operands.at[plan->insts.at[inst].first_operand + 1];
    int64_t weight = bytes_of(r, 0), grad = bytes_of(r, 1);
    if (grad == 0) return;
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t cls = r->classes[pos];
        ds_i128 copies = (ds_i128)(bytes_on(plan, gradient, cls) / grad) * (grad + 4);
        if (grad < 4) bytes[cls] = ds_ps_narrow(copies + bytes[cls]);
        if (grad > of[cls].grad_bytes) of[cls].grad_bytes = grad;
        of[cls].narrow |= weight < grad;
    }
}

/* Weights that a device holds from the start, if they are narrower than their gradients' sums. */
static void add_narrow_weights(const ds_plan *plan, const updates *of, int64_t *bytes) {
    for (uint32_t v = 0; v < plan->values.n; v++) {
        const ds_vinst *value = &plan->values.at[v];
        const ds_record *r = record_of(plan, value->inst);
        if (r->kind != DS_REC_INPUT || value->category != DS_CAT_WEIGHT) continue;
        for (uint32_t pos = 0; pos < r->n_classes; pos++) {
            uint32_t cls = r->classes[pos];
            if (of[cls].narrow) bytes[cls] = ds_bytes_sum(bytes[cls], bytes_on(plan, v, cls));
        }
    }
}

void ds_mem_framework_bytes(const ds_plan *plan, ds_mem_framework framework, int64_t *bytes) {
    if (framework != DS_MEM_DEEPSPEED) return;
    updates *of = ds_xcalloc(plan->n_classes, sizeof *of);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_op *op = record_of(plan, i)->op;
        const ds_op_desc *desc = op ? ds_op_desc_of(op->code) : NULL;
        if (desc && desc->flags & DS_OPF_OPTIMIZER) add_update(plan, i, bytes, of);
    }
    add_narrow_weights(plan, of, bytes);
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        const ds_profiles *profiles = plan->profiles;
        int64_t modules = ds_profiles_kind(profiles, plan->classes[c].kind)->reserved.modules_bytes;
        bytes[c] = ds_bytes_sum(bytes[c], DEEPSPEED_BUCKET * of[c].grad_bytes);
        bytes[c] = ds_bytes_sum(bytes[c], modules);
    }
    free(of);
}
