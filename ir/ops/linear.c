/* Matrix products. matmul is an einsum whose rule depends on ranks and transpositions. */
#include "ir/ops/internal.h"

#include <stdio.h>

ds_status ds_ops__matmul_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    bool ta = ds_op_attr_bool(args->op, "transpose_a"),
         tb = ds_op_attr_bool(args->op, "transpose_b");
    bool batched = args->in_rank[1] > 2;
    /* Without batching every leading dim of a is a row; transposing needs to know which is k. */
    static const char *const rules[2][2][2] = {
        {{"... k, k n -> ... n; k: sum", "... k, n k -> ... n; k: sum"},
         {"k m, k n -> m n; k: sum", "k m, n k -> m n; k: sum"}},
        {{"... m k, ... k n -> ... m n; k: sum", "... m k, ... n k -> ... m n; k: sum"},
         {"... k m, ... k n -> ... m n; k: sum", "... k m, ... n k -> ... m n; k: sum"}}};
    return ds_ops__rule_text(args, rules[batched][ta][tb], args->op->loc, out, err);
}

ds_status ds_ops__einsum_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    const char *text = ds_ops__attr_text(args->op, args->exprs, "rule");
    const ds_attr *attr = ds_attr_find(args->op->attrs, args->op->n_attrs, "rule");
    ds_loc loc = attr ? attr->loc : args->op->loc;
    if (!text)
        return ds_error_set(err, DS_ERR_TYPE, loc,
                            "einsum: attribute 'rule' must be a literal string");
    DS_TRY(ds_ops__rule_text(args, text, loc, out, err));
    for (uint32_t f = 0; f < out->n_factors; f++)
        if (out->kinds[f] != DS_FACTOR_PAR && out->kinds[f] != DS_FACTOR_SUM &&
            out->kinds[f] != DS_FACTOR_WHOLE)
            return ds_error_set(err, DS_ERR_VALUE, loc,
                                "einsum: factor '%s' of rule \"%s\" may be sum or whole only",
                                out->names[f], text);
    if (out->n_in == args->n_in && out->n_out == 1) return DS_OK;
    return ds_error_set(err, DS_ERR_TYPE, loc,
                        "einsum: rule \"%s\" is for %u operands and %u results, but there are %u "
                        "and 1",
                        text, out->n_in, out->n_out, args->n_in);
}

static bool term_has(const ds_rule_term *term, uint32_t f) {
    for (uint32_t d = 0; d < term->n; d++)
        for (uint32_t k = 0; k < term->dims[d].n; k++)
            if (term->dims[d].factors[k] == f) return true;
    return false;
}

/* Products in a dtype of their own (attribute `products`): operands are read in it. Those that
 * `converts` names come in another and are converted first, which reads them once and writes them
 * twice, as they are and transposed for a product of the backward pass that sums over another dim
 * (Micikevicius et al. 2022, arXiv:2209.05433; NVIDIA Transformer Engine does both at once, since
 * products of 8 bits want the summed dim last in both operands). */
static ds_status narrow_products(const ds_op *op, const ds_env *env, const ds_shape *in,
                                 ds_work *work, ds_error *err) {
    const char *word = ds_ops__attr_text(op, env->exprs, "products");
    if (!word) return DS_OK;
    bool ok = true;
    ds_dtype dtype;
    if (!ds_dtype_parse(word, &dtype))
        return ds_error_set(err, DS_ERR_TYPE, op->loc, "%s: products in '%s', which is no dtype",
                            ds_op_name(op->code), word);
    work->dtype = dtype;
    work->bytes_read = 0;
    for (uint32_t i = 0; i < op->n_in; i++) {
        ds_shape narrow = in[i];
        int64_t bytes;
        narrow.dtype = dtype;
        DS_TRY(ds_shape_bytes(&narrow, &bytes, err));
        work->bytes_read = ds_ops__add(&ok, work->bytes_read, bytes);
    }
    for (uint32_t k = 0; k < ds_ops__attr_n(op, "converts"); k++) {
        int64_t i = -1, from = 0, to = 0;
        DS_TRY(ds_ops__attr_item_int(op, env, "converts", k, &i, err));
        if (i < 0 || i >= op->n_in)
            return ds_error_set(err, DS_ERR_VALUE, op->loc,
                                "%s: 'converts' has %lld, but there are %u operands",
                                ds_op_name(op->code), (long long)i, op->n_in);
        ds_shape narrow = in[i];
        narrow.dtype = dtype;
        DS_TRY(ds_shape_bytes(&in[i], &from, err));
        DS_TRY(ds_shape_bytes(&narrow, &to, err));
        int64_t moved = ds_ops__add(&ok, from, ds_ops__mul(&ok, 2, to));
        work->bytes_converted = ds_ops__add(&ok, work->bytes_converted, moved);
    }
    return ds_ops__overflow(op, ok, err);
}

/* Per point of the space: one multiplication fewer than operands, and an addition if there is a
 * sum. Two operands and a sum: 2, a multiply-add. */
ds_status ds_ops__einsum_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                              const ds_shape *out, ds_work *work, ds_error *err) {
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    ds_rule rule;
    int64_t size[DS_MAX_FACTORS];
    DS_TRY(ds_ops__work_factors(op, env, in, out, &rule, size, err));
    bool ok = true, sums = false;
    int64_t points = 1, batch = 1, m = 1, n = 1, k = 1;
    for (uint32_t f = 0; f < rule.n_factors; f++) {
        points = ds_ops__mul(&ok, points, size[f]);
        bool in_out = term_has(&rule.out[0], f);
        sums |= !in_out;
        if (op->n_in != 2) continue;
        bool in_a = term_has(&rule.in[0], f), in_b = term_has(&rule.in[1], f);
        int64_t *role = !in_out ? &k : in_a && in_b ? &batch : in_a ? &m : &n;
        *role = ds_ops__mul(&ok, *role, size[f]);
    }
    work->flop = ds_ops__mul(&ok, points, (int64_t)op->n_in - 1 + sums);
    if (op->n_in == 2 && sums) {
        work->kind = DS_WORK_GEMM;
        work->batch = batch, work->m = m, work->n = n, work->k = k;
        DS_TRY(narrow_products(op, env, in, work, err));
    }
    return ds_ops__overflow(op, ok, err);
}
