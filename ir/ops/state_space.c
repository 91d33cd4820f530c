/* Selective state spaces, as Mamba-2 has them (Dao and Gu 2024, arXiv:2405.21060).
 *
 * causal_conv: x [b, s, c], taps [c, k], bias [c]. FLOPs: 2k per element, 1 for the bias, 4 for
 * silu. The gradient finds what silu is applied to again, where there is one (the forward pass and
 * 9 for the slope), and has two products of the taps, 4k, and 1 for the bias.
 *
 * ssd_scan: x [b, s, h, p], dt [b, s, h], B and C [b, s, g, n], and three numbers a head. FLOPs
 * are those of the blocked algorithm (section 6) with blocks of q = min(chunk, s) tokens, a
 * multiply-add of a product 2, what is done once an element left out:
 *
 *   C B' within a block      2·b·s·q·g·n
 *   its product with x       2·b·s·q·h·p
 *   a block's state          2·b·s·h·p·n
 *   what states add to y     2·b·s·h·p·n
 *
 * and backward, where scores and states are found again, 3 times the first two (C B', dB and dC;
 * dx, d(C B') and the decays' gradient) and 5 times a state's (it, its gradient, dx, dB, dC).
 * Bytes: operands and results once, and what goes from kernel to kernel of the authors'
 * implementation (github.com/state-spaces/mamba, mamba_ssm/ops/triton/ssd_combined.py,
 * _mamba_chunk_scan_combined_fwd and _bwd): the b·(s/q)·h·p·n elements of the blocks' states,
 * forward written and read in f32 around the pass over the blocks and in x's type after it;
 * backward written and read in f32 before it and after it, and so their gradients, then both
 * written in x's type, those read by dx and dB and the states by dC; and C B', b·s·q·g elements of
 * f32, forward written and read, backward too, by dx and the decays, and its gradient, by dB and
 * dC. */
#include "ir/ops/internal.h"

/* ---- convolution ---- */

/* `each`: FLOPs per element of x. */
static ds_status conv_work(const ds_op *op, const ds_shape *in, const ds_shape *out,
                           const ds_shape *x, int64_t each, ds_work *work, ds_error *err) {
    bool ok = true;
    int64_t elements;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    DS_TRY(ds_shape_elements(x, &elements, err));
    work->flop = ds_ops__mul(&ok, elements, each);
    return ds_ops__overflow(op, ok, err);
}

DS_WORK_HOOK(ds_ops__causal_conv_work) {
    (void)env;
    int64_t silu = ds_op_attr_bool(op, "silu") ? 4 : 0;
    int64_t each = 2 * in[1].dims[1] + (op->n_in > 2) + silu;
    return conv_work(op, in, out, &in[0], each, work, err);
}

DS_WORK_HOOK(ds_ops__causal_conv_grad_work) {
    (void)env;
    int64_t taps = in[2].dims[1], bias = op->n_in > 3;
    int64_t again = ds_op_attr_bool(op, "silu") ? 2 * taps + bias + 9 : 0;
    return conv_work(op, in, out, &in[1], 4 * taps + bias + again, work, err);
}

/* The gradient has a result for each operand of the op. */
DS_SIZES_HOOK(ds_ops__causal_conv_grad_sizes) {
    const ds_op *op = m->ctx->op;
    if (op->n_out == op->n_in - 1) return DS_OK;
    return ds_error_set(err, DS_ERR_TYPE, op->loc,
                        "causal_conv_grad of %u operands of causal_conv has as many results, not "
                        "%u",
                        op->n_in - 1, op->n_out);
}

/* ---- scan ---- */

DS_SIZES_HOOK(ds_ops__ssd_scan_sizes) {
    ds_expr chunk = ds_ops__attr_item(&m->ctx->unit->exprs, m->ctx->op, "chunk", 0);
    return DS_HAS_EXPR(chunk) ? ds_ops__at_least(m->ctx, "chunk", chunk, 1, err) : DS_OK;
}

typedef struct scan {
    bool ok;
    int64_t scores; /* 2·b·s·q·g·n */
    int64_t within; /* 2·b·s·q·h·p */
    int64_t states; /* 2·b·s·h·p·n */
    int64_t state_elements, score_elements, element_bytes;
} scan;

static ds_status scan_of(const ds_op *op, const ds_env *env, const ds_shape *x, const ds_shape *b,
                         scan *out, ds_error *err) {
    bool ok = true;
    int64_t chunk = 128, tokens = ds_ops__mul(&ok, x->dims[0], x->dims[1]);
    DS_TRY(ds_op_attr_int(op, env, "chunk", &chunk, err));
    if (chunk < 1)
        return ds_error_set(err, DS_ERR_VALUE, op->loc, "%s: chunk = %lld", ds_op_name(op->code),
                            (long long)chunk);
    int64_t q = chunk < x->dims[1] ? chunk : x->dims[1];
    int64_t hp = ds_ops__mul(&ok, x->dims[2], x->dims[3]);
    int64_t pairs = ds_ops__mul(&ok, ds_ops__mul(&ok, 2, tokens), q);
    int64_t state = ds_ops__mul(&ok, hp, b->dims[3]);
    int64_t blocks = q ? x->dims[1] / q + (x->dims[1] % q != 0) : 0;
    *out = (scan){.scores = ds_ops__mul(&ok, pairs, ds_ops__mul(&ok, b->dims[2], b->dims[3])),
                  .within = ds_ops__mul(&ok, pairs, hp),
                  .states = ds_ops__mul(&ok, ds_ops__mul(&ok, 2, tokens), state),
                  .state_elements = ds_ops__mul(&ok, ds_ops__mul(&ok, x->dims[0], blocks), state),
                  .score_elements = ds_ops__mul(&ok, ds_ops__mul(&ok, tokens, q), b->dims[2]),
                  .element_bytes = ((int64_t)ds_dtype_bits(x->dtype) + 7) / 8};
    out->ok = ok;
    return DS_OK;
}

/* How often products of pairs and of states are made, and states (in f32, in x's type) and scores
 * (in f32) read and written. */
typedef struct times {
    int64_t pairs, states;
    struct {
        int64_t wide, narrow, scores;
    } read, written;
} times;

/* So many bytes of each element of the states and of the scores. */
static void add_moved(const scan *s, int64_t of_state, int64_t of_score, bool *ok, int64_t *bytes) {
    *bytes = ds_ops__add(ok, *bytes, ds_ops__mul(ok, of_state, s->state_elements));
    *bytes = ds_ops__add(ok, *bytes, ds_ops__mul(ok, of_score, s->score_elements));
}

static ds_status scan_work(const ds_op *op, const ds_shape *in, const ds_shape *out, scan *s,
                           const times *t, ds_work *work, ds_error *err) {
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    bool ok = s->ok;
    int64_t pairs = ds_ops__mul(&ok, t->pairs, ds_ops__add(&ok, s->scores, s->within));
    work->kind = DS_WORK_RECURRENT;
    work->flop = ds_ops__add(&ok, pairs, ds_ops__mul(&ok, t->states, s->states));
    add_moved(s, 4 * t->read.wide + s->element_bytes * t->read.narrow, 4 * t->read.scores, &ok,
              &work->bytes_read);
    add_moved(s, 4 * t->written.wide + s->element_bytes * t->written.narrow, 4 * t->written.scores,
              &ok, &work->bytes_written);
    return ds_ops__overflow(op, ok, err);
}

/* For rows of profiles: tokens, heads' dims, state's dim. */
static void scan_shape(const ds_shape *x, const ds_shape *b, ds_work *work) {
    work->batch = x->dims[0];
    work->m = x->dims[1];
    work->n = x->dims[2] * x->dims[3];
    work->k = b->dims[3];
}

DS_WORK_HOOK(ds_ops__ssd_scan_work) {
    scan s;
    DS_TRY(scan_of(op, env, &in[0], &in[2], &s, err));
    DS_TRY(scan_work(op, in, out, &s, &(times){1, 2, {1, 1, 1}, {1, 1, 1}}, work, err));
    scan_shape(&in[0], &in[2], work);
    return DS_OK;
}

DS_WORK_HOOK(ds_ops__ssd_scan_grad_work) {
    scan s;
    DS_TRY(scan_of(op, env, &in[1], &in[3], &s, err));
    DS_TRY(scan_work(op, in, out, &s, &(times){3, 5, {3, 3, 4}, {3, 2, 2}}, work, err));
    scan_shape(&in[1], &in[3], work);
    return DS_OK;
}
