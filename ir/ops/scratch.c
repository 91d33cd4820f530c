/* Scratch: what an op's reference implementation allocates beside operands and results while it
 * runs. Each number is read off the code that is named here; an op without one has none.
 *
 *   attention_grad      FlashAttention-2, csrc/flash_attn/flash_api.cpp, mha_bwd: softmax_d [b, h,
 * s'] and dq_accum [b, s', h, d'] in f32, s' = s in whole 128, d' = d in whole 32 (256 above 192);
 * with fewer key heads dk and dv for every query head, [b, t, h, d] each. It takes f16 and bf16 and
 * heads up to 256 attention           the same, mha_fwd: softmax_lse [b, h, s] in f32, where the op
 * has no second result for it cross_entropy       PyTorch, aten/src/ATen/native/LossNLL.cpp,
 * cross_entropy_loss: log_softmax(x) beside x. It is saved for the backward pass, where x is kept
 *                       here: one of the two
 *   cross_entropy_grad  the backward of both: the gradient of log_softmax's result, beside that
 *                       result and x's gradient. Parts of a row have none: that loss is Megatron's
 *                       (megatron/mpu/cross_entropy.py), whose backward pass works in place
 *   mse                 aten/src/ATen/native/Loss.cpp, mse_loss_out: the squares before their sum
 *   embedding_grad      aten/src/ATen/native/cuda/Embedding.cu, embedding_dense_backward_cuda: none
 *                       up to 3,072 indices, else they are sorted (n indices and n places), and
 *                       EmbeddingBackwardKernel.cu sums runs of equal ones in parts of 10: n starts
 *                       of runs; of up to m = min(n, rows) runs two counts; of up to p = n / 10 + m
 *                       parts a start and a sum [p, d], in f32 at least
 *   adam, adamw         torch/optim/adam.py and adamw.py, _multi_tensor_adam(w), the default on
 *                       GPUs: _foreach_sqrt of the second moment */
#include "ir/ops/internal.h"

static int64_t element_bytes(ds_dtype dtype) {
    return ((int64_t)ds_dtype_bits(dtype) + 7) / 8;
}

static int64_t round_up(bool *ok, int64_t n, int64_t multiple) {
    return ds_ops__add(ok, n, multiple - 1) / multiple * multiple;
}

static ds_status done(const ds_op *op, bool ok, int64_t sum, int64_t *bytes, ds_error *err) {
    *bytes = sum;
    return ds_ops__overflow(op, ok, err);
}

/* ---- attention ---- */

static bool is_flash(const ds_shape *q, const ds_shape *v) {
    return (q->dtype == DS_F16 || q->dtype == DS_BF16) && q->dims[3] <= 256 &&
           q->dims[3] == v->dims[3];
}

DS_SCRATCH_HOOK(ds_ops__attention_scratch) {
    (void)types, (void)out;
    const ds_shape *q = &in[0];
    bool ok = true;
    if (op->n_out > 1 || !is_flash(q, &in[2])) return done(op, true, 0, bytes, err);
    int64_t rows = ds_ops__mul(&ok, ds_ops__mul(&ok, q->dims[0], q->dims[1]), q->dims[2]);
    return done(op, ok, ds_ops__mul(&ok, rows, 4), bytes, err);
}

DS_SCRATCH_HOOK(ds_ops__attention_grad_scratch) {
    (void)types, (void)out;
    const ds_shape *q = &in[1], *k = &in[2];
    bool ok = true;
    if (!is_flash(q, &in[3])) return done(op, true, 0, bytes, err);
    int64_t batch = q->dims[0], heads = q->dims[2], d = q->dims[3];
    int64_t rows = ds_ops__mul(&ok, ds_ops__mul(&ok, batch, heads), round_up(&ok, q->dims[1], 128));
    int64_t wide = d <= 192 ? round_up(&ok, d, 32) : 256;
    int64_t sum = ds_ops__mul(&ok, rows, 4 * (wide + 1));
    if (k->dims[2] != heads) {
        int64_t keys = ds_ops__mul(&ok, ds_ops__mul(&ok, batch, k->dims[1]), heads);
        int64_t expanded = ds_ops__mul(&ok, keys, d * element_bytes(k->dtype));
        sum = ds_ops__add(&ok, sum, ds_ops__mul(&ok, expanded, 2));
    }
    return done(op, ok, sum, bytes, err);
}

/* ---- losses ---- */

DS_SCRATCH_HOOK(ds_ops__cross_entropy_scratch) {
    (void)op, (void)types, (void)out;
    return ds_shape_bytes(&in[0], bytes, err);
}

/* Has each device a part of every row? */
static bool has_parts(const ds_op *op, const ds_type *x) {
    return x->dims[x->rank - 1].n_splits || ds_attr_find(op->attrs, op->n_attrs, "start");
}

DS_SCRATCH_HOOK(ds_ops__cross_entropy_grad_scratch) {
    (void)out;
    bool ok = true;
    if (has_parts(op, types[0])) return done(op, true, 0, bytes, err);
    DS_TRY(ds_shape_bytes(&in[0], bytes, err));
    return done(op, ok, ds_ops__mul(&ok, *bytes, 2), bytes, err);
}

DS_SCRATCH_HOOK(ds_ops__mse_scratch) {
    (void)types;
    if (out[0].rank || !in[0].rank) return done(op, true, 0, bytes, err); /* each on its own */
    return ds_shape_bytes(&in[0], bytes, err);
}

/* ---- look-up ---- */

DS_SCRATCH_HOOK(ds_ops__embedding_grad_scratch) {
    (void)types;
    bool ok = true;
    int64_t n, rows = out[0].dims[0], width = out[0].dims[1];
    DS_TRY(ds_shape_elements(&in[1], &n, err));
    if (n <= 3072) return done(op, true, 0, bytes, err);
    int64_t runs = n < rows ? n : rows, parts = ds_ops__add(&ok, n / 10, runs);
    int64_t indices = ds_ops__add(&ok, ds_ops__mul(&ok, 3, n), ds_ops__mul(&ok, 2, runs));
    indices = ds_ops__mul(&ok, ds_ops__add(&ok, indices, parts), element_bytes(in[1].dtype));
    int64_t sum_bytes = element_bytes(out[0].dtype) > 4 ? element_bytes(out[0].dtype) : 4;
    int64_t sums = ds_ops__mul(&ok, ds_ops__mul(&ok, parts, width), sum_bytes);
    return done(op, ok, ds_ops__add(&ok, indices, sums), bytes, err);
}

/* ---- optimizers ---- */

DS_SCRATCH_HOOK(ds_ops__adam_scratch) {
    (void)op, (void)types, (void)out;
    return ds_shape_bytes(&in[3], bytes, err);
}

/* ---- entry ---- */

ds_status ds_op_scratch(const ds_op *op, const ds_type *const *types, const ds_shape *in,
                        const ds_shape *out, int64_t *bytes, ds_error *err) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    *bytes = 0;
    return desc && desc->scratch ? desc->scratch(op, types, in, out, bytes, err) : DS_OK;
}
