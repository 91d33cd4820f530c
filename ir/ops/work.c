/* Work of one device on local shapes: every operand is read once, every result written once, and
 * the rule's iteration space costs flop_per_point each. Hooks in the family files override it. */
#include "ir/ops/internal.h"

int64_t ds_ops__mul(bool *ok, int64_t a, int64_t b) {
    int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) *ok = false;
    return product;
}

int64_t ds_ops__add(bool *ok, int64_t a, int64_t b) {
    int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) *ok = false;
    return sum;
}

ds_status ds_ops__overflow(const ds_op *op, bool ok, ds_error *err) {
    if (ok) return DS_OK;
    return ds_error_set(err, DS_ERR_OVERFLOW, op->loc,
                        "%s: FLOPs or bytes beyond 2^63 on one device", ds_op_name(op->code));
}

ds_status ds_shape_elements(const ds_shape *shape, int64_t *out, ds_error *err) {
    bool ok = true;
    *out = 1;
    for (uint32_t d = 0; d < shape->rank; d++) *out = ds_ops__mul(&ok, *out, shape->dims[d]);
    if (ok) return DS_OK;
    return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE, "a tensor of more than 2^63 elements");
}

ds_status ds_shape_bytes(const ds_shape *shape, int64_t *out, ds_error *err) {
    int64_t elements;
    DS_TRY(ds_shape_elements(shape, &elements, err));
    bool ok = true;
    int64_t bits = (int64_t)ds_dtype_bits(shape->dtype);
    /* Whole bytes per element but for 4-bit dtypes, so that 2^60 elements do not overflow in bits.
     */
    *out = bits % 8 == 0 ? ds_ops__mul(&ok, elements, bits / 8)
                         : ds_ops__add(&ok, ds_ops__mul(&ok, elements, bits), 7) / 8;
    if (ok) return DS_OK;
    return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE, "a tensor of more than 2^63 bytes");
}

/* An error of one of the op's tensors is at the op. */
static ds_status bytes_of(const ds_op *op, const ds_shape *shape, int64_t *out, ds_error *err) {
    ds_status status = ds_shape_bytes(shape, out, err);
    if (status != DS_OK && err && !err->loc.line) ds_error_move(err, op->loc);
    return status;
}

ds_status ds_ops__work_bytes(const ds_op *op, const ds_shape *in, const ds_shape *out,
                             ds_work *work, ds_error *err) {
    bool ok = true;
    *work = (ds_work){.kind = DS_WORK_MEMORY, .tokens = 1, .width = 1};
    for (uint32_t i = 0; i < op->n_in; i++) {
        int64_t bytes;
        DS_TRY(bytes_of(op, &in[i], &bytes, err));
        work->bytes_read = ds_ops__add(&ok, work->bytes_read, bytes);
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        int64_t bytes;
        DS_TRY(bytes_of(op, &out[i], &bytes, err));
        work->bytes_written = ds_ops__add(&ok, work->bytes_written, bytes);
    }
    const ds_shape *main = op->n_in ? &in[0] : op->n_out ? &out[0] : NULL;
    if (main) work->dtype = main->dtype;
    for (uint32_t d = 0; main && d + 1 < main->rank; d++)
        work->tokens = ds_ops__mul(&ok, work->tokens, main->dims[d]);
    if (main && main->rank) work->width = main->dims[main->rank - 1];
    return ds_ops__overflow(op, ok, err);
}

static void fill_args(const ds_op *op, const ds_env *env, const ds_shape *in, ds_rule_args *args) {
    *args = (ds_rule_args){
        .op = op, .exprs = env->exprs, .env = env, .n_in = op->n_in, .n_out = op->n_out};
    for (uint32_t i = 0; i < op->n_in && i < DS_MAX_OPERANDS; i++) {
        args->in_rank[i] = (uint8_t)in[i].rank;
        for (uint32_t d = 0; d < in[i].rank; d++)
            if (in[i].dims[d] == 1) args->in_ones[i] |= (uint8_t)(1u << d);
    }
}

/* Sizes are -1 while unknown; a shard of an unevenly split dim may well be 0. */
static void bind(const ds_rule_term *term, const ds_shape *shape, bool products,
                 int64_t size[DS_MAX_FACTORS], bool *ok) {
    for (uint32_t d = 0; d < term->n && d < shape->rank; d++) {
        const ds_rule_dim *dim = &term->dims[d];
        if ((dim->n > 1) != products) continue;
        int64_t known = 1;
        uint32_t n_open = 0, open = 0;
        for (uint32_t k = 0; k < dim->n; k++) {
            uint32_t f = dim->factors[k];
            if (size[f] >= 0) {
                known = ds_ops__mul(ok, known, size[f]);
            } else {
                n_open++;
                open = f;
            }
        }
        if (n_open == 1) size[open] = known > 0 ? shape->dims[d] / known : 0;
    }
}

ds_status ds_ops__work_factors(const ds_op *op, const ds_env *env, const ds_shape *in,
                               const ds_shape *out, ds_rule *rule, int64_t size[DS_MAX_FACTORS],
                               ds_error *err) {
    ds_rule_args args;
    fill_args(op, env, in, &args);
    DS_TRY(ds_ops__rule(&args, rule, err));
    bool ok = true;
    for (uint32_t f = 0; f < DS_MAX_FACTORS; f++) size[f] = -1;
    for (uint32_t products = 0; products < 2; products++) {
        for (uint32_t i = 0; i < op->n_in; i++)
            bind(ds_ops__term(rule->in, rule->n_in, i), &in[i], products, size, &ok);
        for (uint32_t i = 0; i < op->n_out; i++)
            bind(ds_ops__term(rule->out, rule->n_out, i), &out[i], products, size, &ok);
    }
    return ds_ops__overflow(op, ok, err);
}

static ds_status generic(const ds_op *op, const ds_op_desc *desc, const ds_env *env,
                         const ds_shape *in, const ds_shape *out, ds_work *work, ds_error *err) {
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    if (desc->flop_per_point == 0) return DS_OK;
    ds_rule rule;
    int64_t size[DS_MAX_FACTORS];
    DS_TRY(ds_ops__work_factors(op, env, in, out, &rule, size, err));
    bool ok = true;
    work->flop = desc->flop_per_point;
    for (uint32_t f = 0; f < rule.n_factors; f++)
        if (size[f] >= 0) work->flop = ds_ops__mul(&ok, work->flop, size[f]);
    return ds_ops__overflow(op, ok, err);
}

ds_status ds_op_work(const ds_op *op, const ds_env *env, const ds_shape *in, const ds_shape *out,
                     ds_work *work, ds_error *err) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    if (!desc || (desc->flags & DS_OPF_VIEW)) {
        *work = (ds_work){.kind = DS_WORK_NONE};
        return DS_OK;
    }
    if (desc->work) return desc->work(op, env, in, out, work, err);
    return generic(op, desc, env, in, out, work, err);
}
