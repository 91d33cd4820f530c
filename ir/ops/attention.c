/* Attention over q [b, s, h, d], k [b, t, g, d], v [b, t, g, e]; each of the g key heads serves h/g
 * consecutive query heads.
 *
 * FLOPs: the two products, 2·b·h·s·t·(d + e), which is 4·b·h·s·t·d for d = e; half of it if causal
 * (the diagonal's half is ignored; the convention of the FlashAttention papers, Dao 2023, section
 * 4). The softmax is not counted. Bytes: q, k, v and the result once; without flash the scores and
 * the probabilities, b·h·s·t each, are also written once and read once. */
#include "ir/ops/internal.h"

/* With one key head the query heads may be split freely: every device has that head. */
ds_status ds_ops__attention_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    bool one_head = (args->in_ones[1] & 4u) && (args->in_ones[2] & 4u);
    const char *text = one_head ? "b s r d, b t 1 d, b t 1 e -> b s r e; t: whole, d: whole"
                                : ds_op_desc_of(args->op->code)->rule;
    return ds_rule_parse(text, args->op->loc, out, err);
}

ds_status ds_ops__attention_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                                 const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    bool ok = true;
    work->kind = DS_WORK_ATTENTION;
    work->batch = in[0].dims[0];
    work->seq_q = in[0].dims[1];
    work->heads = in[0].dims[2];
    work->head_dim = in[0].dims[3];
    work->seq_kv = in[1].dims[1];
    work->kv_heads = in[1].dims[2];
    work->causal = ds_op_attr_bool(op, "causal");
    int64_t rows = ds_ops__mul(&ok, work->batch, ds_ops__mul(&ok, work->heads, work->seq_q));
    int64_t scores = ds_ops__mul(&ok, rows, work->seq_kv);
    int64_t dims = ds_ops__add(&ok, work->head_dim, in[2].dims[3]);
    work->flop = ds_ops__mul(&ok, ds_ops__mul(&ok, scores, dims), work->causal ? 1 : 2);
    if (!ds_op_attr_bool(op, "flash")) {
        int64_t bytes = ds_ops__mul(&ok, scores, (int64_t)ds_dtype_bits(in[0].dtype)) / 8;
        work->bytes_read = ds_ops__add(&ok, work->bytes_read, ds_ops__mul(&ok, 2, bytes));
        work->bytes_written = ds_ops__add(&ok, work->bytes_written, ds_ops__mul(&ok, 2, bytes));
    }
    return ds_ops__overflow(op, ok, err);
}
