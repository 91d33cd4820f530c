/* Attention over q [b, s, h, d], k [b, t, g, d], v [b, t, g, e]; each of the g key heads serves h/g
 * consecutive query heads.
 *
 * FLOPs: the two products, 2·b·h·s·t·(d + e), which is 4·b·h·s·t·d for d = e; half of it if causal
 * (the diagonal's half is ignored; the convention of the FlashAttention papers, Dao 2023, section
 * 4). The softmax is not counted. Bytes: q, k, v and the results once; without flash the scores and
 * the probabilities, b·h·s·t each, are also written once and read once.
 *
 * The gradient recomputes the scores (Dao et al. 2022, algorithm 4): five products, q k', dy v',
 * p' dy, ds k and ds' q, are 2·b·h·s·t·(3d + 2e), 2.5 times the forward pass for d = e.
 *
 * With a window of w keys, w < t, a query sees the last w of those: b·h·(s·w - w²/2) pairs, which
 * are the half of b·h·s·t for w = s = t.
 *
 * Causal queries that are fewer than the keys, s < t, are the last ones of the sequence: b·h·(s·t -
 * s²/2) pairs, so that a sequence in chunks has the pairs of the whole.
 *
 * With documents of l tokens, l < t, one after another in a sequence, a query sees keys of its own
 * document: the pairs of t / l sequences of l tokens, and of the rest, of which s of t queries are
 * here. The kernel then runs as many sequences of l tokens.
 *
 * Where q_start or k_start says which block of a longer sequence this is, a causal block counts
 * whole, with a window s·w pairs: which part of it is visible differs between devices. */
#include "ir/ops/internal.h"

#include <string.h>

/* With one key head the query heads may be split freely: every device has that head. The second
 * result lacks e, so a device that has a part of e only would have all of it and not a term. */
ds_status ds_ops__attention_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    bool backward = args->op->code == DS_OP_ATTENTION_GRAD;
    uint32_t k = backward ? 2 : 1;
    const ds_op *op = args->op;
    if (ds_attr_find(op->attrs, op->n_attrs, "document") &&
        (ds_attr_find(op->attrs, op->n_attrs, "q_start") ||
         ds_attr_find(op->attrs, op->n_attrs, "k_start")))
        return ds_error_set(err, DS_ERR_VALUE, op->loc,
                            "%s: documents are for whole sequences, not for blocks of one",
                            ds_op_name(op->code));
    bool one_head = (args->in_ones[k] & 4u) && (args->in_ones[k + 1] & 4u);
    const char *text = ds_op_desc_of(args->op->code)->rule;
    if (ds_attr_find(args->op->attrs, args->op->n_attrs, "window") &&
        !ds_op_attr_bool(args->op, "causal"))
        return ds_error_set(err, DS_ERR_VALUE, args->op->loc,
                            "%s: a window of keys is for causal attention",
                            ds_op_name(args->op->code));
    if (one_head && backward)
        text = "b s r e, b s r d, b t 1 d, b t 1 e, b s r e, b s r -> b s r d, b t 1 d, b t 1 e; "
               "t: whole, d: whole, e: whole";
    else if (one_head)
        text = "b s r d, b t 1 d, b t 1 e -> b s r e, b s r; t: whole, d: whole";
    DS_TRY(ds_rule_parse(text, args->op->loc, out, err));
    if (args->n_out > 1) out->kinds[ds_ops__factor_named(out, "e")] = DS_FACTOR_WHOLE;
    return DS_OK;
}

/* Twice the pairs of a query and a key that are multiplied, of s queries and t keys. Causal queries
 * that are fewer than the keys are the last ones, as in a growing cache: each sees the t - s keys
 * before them all. */
static int64_t twice_pairs(bool *ok, bool causal, int64_t s, int64_t t, int64_t window) {
    int64_t earlier = causal && t > s ? t - s : 0;
    if (window >= t) /* of the last s keys a query sees half */
        return ds_ops__mul(ok, s, causal ? ds_ops__add(ok, t, earlier) : ds_ops__mul(ok, 2, t));
    int64_t twice = ds_ops__mul(ok, 2, ds_ops__mul(ok, s, window)), cut = window - earlier;
    return causal && cut > 0 ? twice - ds_ops__mul(ok, cut, cut) : twice;
}

/* *out comes with the number of keys, which is 0 for an empty range. */
static ds_status read_count(const ds_op *op, const ds_env *env, const char *name, int64_t *out,
                            ds_error *err) {
    int64_t keys = *out;
    DS_TRY(ds_op_attr_int(op, env, name, out, err));
    if (*out > 0 || keys == 0) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, op->loc, "%s: a %s of %lld %s", ds_op_name(op->code),
                        name, (long long)*out, strcmp(name, "window") == 0 ? "keys" : "tokens");
}

/* Twice the pairs of one head and sample. With documents the work is that of their sequences. */
static ds_status pairs_of(const ds_op *op, const ds_env *env, ds_work *work, bool *ok,
                          int64_t *twice, ds_error *err) {
    int64_t s = work->seq_q, t = work->seq_kv, window = t, document = t;
    DS_TRY(read_count(op, env, "window", &window, err));
    DS_TRY(read_count(op, env, "document", &document, err));
    work->window = window < t ? window : 0;
    if (document >= t) {
        *twice = twice_pairs(ok, work->causal, s, t, window);
        return DS_OK;
    }
    int64_t n = t / document, rest = t % document;
    int64_t all = ds_ops__mul(ok, n, twice_pairs(ok, work->causal, document, document, window));
    all = ds_ops__add(ok, all, twice_pairs(ok, work->causal, rest, rest, window));
    *twice = s == t ? all : (int64_t)((double)all * ((double)s / (double)t));
    work->batch = ds_ops__mul(ok, work->batch, s) / document;
    if (work->batch < 1) work->batch = 1;
    work->seq_q = work->seq_kv = document;
    work->window = window < document ? window : 0;
    return DS_OK;
}

/* How many products of 2·b·h·s·t·d and of 2·b·h·s·t·e FLOPs an attention takes. */
typedef struct products {
    int64_t d, e;
} products;

/* The shape and FLOPs of the attention over qkv[0], qkv[1] and qkv[2]. *scores is b·h·s·t. */
static ds_status work_of_products(const ds_op *op, const ds_env *env, const ds_shape *qkv,
                                  products n, ds_work *work, int64_t *scores, ds_error *err) {
    const ds_shape *q = &qkv[0], *k = &qkv[1], *v = &qkv[2];
    bool ok = true, block = ds_attr_find(op->attrs, op->n_attrs, "q_start") ||
                            ds_attr_find(op->attrs, op->n_attrs, "k_start");
    work->kind = DS_WORK_ATTENTION;
    work->batch = q->dims[0];
    work->seq_q = q->dims[1];
    work->heads = q->dims[2];
    work->head_dim = q->dims[3];
    work->seq_kv = k->dims[1];
    work->kv_heads = k->dims[2];
    work->value_dim = v->dims[3];
    work->causal = ds_op_attr_bool(op, "causal") && !block;
    int64_t rows = ds_ops__mul(&ok, work->batch, ds_ops__mul(&ok, work->heads, work->seq_q));
    *scores = ds_ops__mul(&ok, rows, work->seq_kv);
    int64_t dims =
        ds_ops__add(&ok, ds_ops__mul(&ok, n.d, work->head_dim), ds_ops__mul(&ok, n.e, v->dims[3]));
    int64_t twice = 0, heads = ds_ops__mul(&ok, work->batch, work->heads);
    DS_TRY(pairs_of(op, env, work, &ok, &twice, err));
    work->flop = ds_ops__mul(&ok, ds_ops__mul(&ok, heads, twice), dims);
    return ds_ops__overflow(op, ok, err);
}

ds_status ds_ops__attention_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                                 const ds_shape *out, ds_work *work, ds_error *err) {
    int64_t scores;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    DS_TRY(work_of_products(op, env, in, (products){1, 1}, work, &scores, err));
    work->stores_scores = !ds_op_attr_bool(op, "flash");
    if (!work->stores_scores) return DS_OK;
    bool ok = true;
    int64_t bytes = ds_ops__mul(&ok, scores, (int64_t)ds_dtype_bits(in[0].dtype)) / 8;
    work->bytes_read = ds_ops__add(&ok, work->bytes_read, ds_ops__mul(&ok, 2, bytes));
    work->bytes_written = ds_ops__add(&ok, work->bytes_written, ds_ops__mul(&ok, 2, bytes));
    return ds_ops__overflow(op, ok, err);
}

ds_status ds_ops__attention_grad_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                                      const ds_shape *out, ds_work *work, ds_error *err) {
    int64_t scores;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    return work_of_products(op, env, in + 1, (products){3, 2}, work, &scores, err);
}
