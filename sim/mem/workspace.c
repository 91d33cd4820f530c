/* Workspace: what libraries and implementations of ops allocate through the caching allocator
 * beside the program's tensors.
 *
 * Of an op (ds_op_scratch), while it runs. PyTorch's optimizers update all weights in one call,
 * each step of it for all of them before the next: updates with nothing but communication between
 * them have their scratch together, from the first one's start to the last one's end. A state that
 * comes from the host's memory, or other work, ends such a call.
 *
 * Of cuBLAS, from the start to the end: PyTorch keeps a workspace for each handle and stream
 * (aten/src/ATen/cuda/CublasHandlePool.cpp, setWorkspaceForHandle), and each thread has its own
 * handle; the backward pass runs in a thread of its own (torch/csrc/autograd/engine.cpp, one for
 * each device). So a stream on which a class computes products has one, two if the class trains. A
 * product with a bias is one call of cuBLASLt (aten/src/ATen/native/cuda/Blas.cpp,
 * addmm_out_cuda_impl), with a workspace of its own for each stream; the backward pass makes none.
 * Sizes are the catalogue's.
 *
 * DeepSpeed updates by a fused kernel in place (deepspeed/ops/adam/fused_adam.py), and
 * Megatron-DeepSpeed computes its loss in place too (megatron/mpu/cross_entropy.py): with it
 * neither has scratch. */
#include "ir/base/map.h"
#include "sim/mem/internal.h"

#include <stdlib.h>

static const ds_record *record_of(const ds_plan *plan, uint32_t inst) {
    return plan->records.at[plan->insts.at[inst].record];
}

static const ds_variant *variant_at(const ds_record *r, uint32_t pos) {
    return &r->variants[r->class_variant[pos]];
}

static uint32_t flags_of(const ds_record *r) {
    const ds_op_desc *desc = r->op ? ds_op_desc_of(r->op->code) : NULL;
    return desc ? desc->flags : 0;
}

/* ---- scratch of ops ---- */

typedef struct span {
    int64_t start_ps, end_ps;
} span;

/* An update's place in `out`, and its call. */
typedef struct update {
    uint32_t scratch, call;
} update;

typedef struct collector {
    const ds_plan *plan;
    const ds_run *run;
    bool fused_updates, fused_losses; /* which have no scratch */
    ds_mem_scratches *out;
    uint32_t *open; /* per class: its call; DS_NONE: other work came since */
    DS_VEC(span) calls;
    DS_VEC(update) updates;
} collector;

static void add_scratch(collector *c, uint32_t cls, uint32_t value, int64_t bytes, span during) {
    if (bytes == 0 || during.start_ps == during.end_ps) return;
    DS_HPUSH(c->out, ((ds_mem_scratch){cls, value, bytes, during.start_ps, during.end_ps}));
}

static void add_update(collector *c, uint32_t cls, uint32_t value, int64_t bytes, span during) {
    uint32_t n = c->out->n, *open = &c->open[cls];
    if (*open == DS_NONE) {
        *open = c->calls.n;
        DS_HPUSH(&c->calls, during);
    }
    span *call = &c->calls.at[*open];
    if (during.start_ps < call->start_ps) call->start_ps = during.start_ps;
    if (during.end_ps > call->end_ps) call->end_ps = during.end_ps;
    add_scratch(c, cls, value, bytes, during);
    if (c->out->n > n) DS_HPUSH(&c->updates, ((update){n, *open}));
}

/* All updates of a call have their scratch as long as it lasts. */
static void stretch_updates(collector *c) {
    for (uint32_t i = 0; i < c->updates.n; i++) {
        ds_mem_scratch *scratch = &c->out->at[c->updates.at[i].scratch];
        const span *call = &c->calls.at[c->updates.at[i].call];
        scratch->start_ps = call->start_ps;
        scratch->end_ps = call->end_ps;
    }
    free(c->updates.at);
    free(c->calls.at);
}

static bool is_loss(ds_opcode code) {
    return code == DS_OP_CROSS_ENTROPY || code == DS_OP_CROSS_ENTROPY_GRAD;
}

/* Tensors of the logits' size: two (ir/ops/scratch.c). Where each device has a part of the rows,
 * which is no scratch there, PyTorch's eager loss has three: zeros, the exponentials and their sum
 * (torch/distributed/tensor/parallel/loss.py, _nll_loss_and_log_softmax_backward). */
static void add_loss_gradient(collector *c, uint32_t cls, uint32_t value, const ds_variant *v,
                              bool none, span during) {
    static const uint32_t parts[] = {DS_MEM_SCRATCH, DS_MEM_SECOND, DS_MEM_THIRD};
    bool in_parts = !v->scratch_bytes && c->plan->loss == DS_KERNELS_EAGER;
    int64_t each = in_parts ? v->out_bytes[0] : v->scratch_bytes / 2;
    for (int i = 0; i < (in_parts ? 3 : 2) && !none; i++)
        add_scratch(c, cls, value | parts[i], each, during);
}

static void add_op(collector *c, uint32_t inst) {
    const ds_inst *at = &c->plan->insts.at[inst];
    const ds_record *r = record_of(c->plan, inst);
    uint32_t flags = flags_of(r), value = at->first_value | DS_MEM_SCRATCH;
    bool none =
        flags & DS_OPF_OPTIMIZER ? c->fused_updates : c->fused_losses && is_loss(r->op->code);
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t cls = r->classes[pos], task = at->first_task + pos;
        const ds_variant *v = variant_at(r, pos);
        int64_t bytes = none ? 0 : v->scratch_bytes;
        span during = {c->run->start_ps[task], c->run->end_ps[task]};
        if (flags & DS_OPF_OPTIMIZER) {
            add_update(c, cls, value, bytes, during);
        } else if (r->op->code == DS_OP_CROSS_ENTROPY_GRAD) {
            add_loss_gradient(c, cls, at->first_value, v, none, during);
        } else {
            add_scratch(c, cls, value, bytes, during);
        }
        bool works = v->work.kind != DS_WORK_NONE || flags & DS_OPF_HOST;
        if (works && !(flags & DS_OPF_OPTIMIZER)) c->open[cls] = DS_NONE;
    }
}

/* ---- cuBLAS ---- */

/* Products of one stream: the values that its workspaces are named after. */
typedef struct stream_products {
    uint32_t cls, first, last, biased; /* DS_NONE: none */
} stream_products;

typedef DS_VEC(stream_products) products;

static bool is_product(const ds_record *r) {
    return r->kind == DS_REC_COMPUTE && r->n_variants && r->variants[0].work.kind == DS_WORK_GEMM;
}

/* A bias right behind a product. */
static bool is_biased_product(const ds_plan *plan, uint32_t inst) {
    const ds_record *r = record_of(plan, inst);
    if (!r->op || r->op->code != DS_OP_BIAS) return false;
    uint32_t operand = plan->operands.at[plan->insts.at[inst].first_operand];
    return is_product(record_of(plan, plan->values.at[operand].inst));
}

static void find_products(const ds_plan *plan, products *out, bool *trains) {
    ds_map index;
    ds_map_init(&index);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *r = record_of(plan, i);
        bool product = is_product(r), biased = is_biased_product(plan, i);
        bool training = flags_of(r) & (DS_OPF_BACKWARD | DS_OPF_OPTIMIZER);
        if (!product && !biased && !training) continue;
        for (uint32_t pos = 0; pos < r->n_classes; pos++) {
            uint32_t cls = r->classes[pos], value = plan->insts.at[i].first_value;
            trains[cls] |= training;
            if (!product && !biased) continue;
            uint64_t stream = r->class_stream[pos];
            const uint64_t *found = ds_map_find(&index, stream);
            if (!found) {
                ds_map_put(&index, stream, out->n);
                DS_HPUSH(out, ((stream_products){cls, DS_NONE, DS_NONE, DS_NONE}));
            }
            stream_products *s = &out->at[found ? *found : out->n - 1];
            if (product && s->first == DS_NONE) s->first = value;
            if (product) s->last = value;
            if (biased && s->biased == DS_NONE) s->biased = value;
        }
    }
    ds_map_deinit(&index);
}

static void add_libraries(collector *c) {
    const ds_plan *plan = c->plan;
    const span always = {0, INT64_MAX};
    products found = {0};
    bool *trains = ds_xcalloc(plan->n_classes, sizeof *trains);
    find_products(plan, &found, trains);
    for (uint32_t i = 0; i < found.n; i++) {
        const stream_products *s = &found.at[i];
        const ds_reserved_memory *m =
            &ds_profiles_kind(plan->profiles, plan->classes[s->cls].kind)->reserved;
        if (s->first != DS_NONE)
            add_scratch(c, s->cls, s->first | DS_MEM_LIBRARY, m->blas_bytes, always);
        if (s->last != s->first && trains[s->cls])
            add_scratch(c, s->cls, s->last | DS_MEM_LIBRARY, m->blas_bytes, always);
        if (s->biased != DS_NONE)
            add_scratch(c, s->cls, s->biased | DS_MEM_LIBRARY, m->blaslt_bytes, always);
    }
    free(found.at);
    free(trains);
}

void ds_mem__scratch(const ds_plan *plan, const ds_run *run, ds_mem_framework framework,
                     ds_mem_scratches *out) {
    collector c = {.plan = plan, .run = run, .out = out};
    c.fused_updates = framework == DS_MEM_DEEPSPEED || plan->stack == DS_KERNELS_FUSED;
    c.fused_losses = framework == DS_MEM_DEEPSPEED || plan->loss >= DS_KERNELS_COMPILED;
    c.open = ds_xcalloc(plan->n_classes, sizeof *c.open);
    for (uint32_t i = 0; i < plan->n_classes; i++) c.open[i] = DS_NONE;
    for (uint32_t i = 0; i < plan->insts.n; i++)
        if (record_of(plan, i)->op && plan->insts.at[i].first_task != DS_NONE) add_op(&c, i);
    stretch_updates(&c);
    add_libraries(&c);
    free(c.open);
}
