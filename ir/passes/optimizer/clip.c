/* Clipping: gradients are scaled by min(1, clip_norm / (norm + 1e-6)), norm being the root of the
 * sum of the squares of all elements of all gradients (Pascanu et al., arXiv:1211.5063; the formula
 * of torch.nn.utils.clip_grad_norm_ and Megatron-LM's optimizer/clip_grads.py).
 *
 *     %w.grad.done = after(%w.grad)                     in the layout that the optimizer reads
 *     %w.grad.square = sum_squares(%w.grad.done)        families: added up turn by turn
 *     %square = total(%a.grad.square, %b.grad.square)   of one chunk of a pipeline
 *     %clip = clip_factor(%square, …) {max_norm = 1.0}  of all chunks; once for each chunk
 *     %w.grad.clipped = mul(%w.grad.done, %clip)
 *
 * So no weight is updated before all gradients of all stages are final. A weight that several
 * chunks read counts once. `shard` makes `total` one sum over all devices, with one all_reduce for
 * each difference in layout (shard/total.c); values that devices hold in common count once.
 * `pipeline` adds up the chunks' sums by an all_reduce across the stages. */
#include "ir/passes/optimizer/internal.h"

#include <stdlib.h>
#include <string.h>

static const char *named(const ds_clip *c, uint32_t w, const char *suffix) {
    return ds_arena_printf(&c->step->unit->arena, "%s.grad%s", c->step->weights.at[w].name, suffix);
}

static const ds_value_info *info_of(const ds_clip *c, uint32_t w) {
    return ds_value_at(c->b->func, c->step->weights.at[w].arg);
}

/* ---- squares ---- */

/* Marks one gradient, or element of a family, as final, and sums its squares. A weight that several
 * chunks read has one sum, of the first. */
static ds_status square_one(ds_clip *c, uint32_t w, ds_use gradient, ds_value *done,
                            ds_value *square, ds_error *err) {
    DS_TRY(ds_build_unary(c->b, DS_OP_AFTER, named(c, w, ".done"), gradient, done, err));
    if (c->step->weights.at[w].tied != w) return DS_OK;
    return ds_build_unary(c->b, DS_OP_SUM_SQUARES, named(c, w, ".square"), ds_use_of(*done), square,
                          err);
}

/* The weights of a range, their sums so far, and their final gradients. */
typedef struct range {
    const uint32_t *weights;
    uint32_t n;
    ds_use *sum, *done; /* [n] */
    ds_expr at[DS_MAX_RANK * 2];
} range;

static ds_status square_turn(ds_clip *c, range *r, uint32_t depth, ds_error *err) {
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t w = r->weights[i];
        ds_use element = ds_use_at(&c->step->unit->arena, c->gradient[w].value, r->at, depth);
        ds_value done, square, sum;
        DS_TRY(square_one(c, w, element, &done, &square, err));
        DS_TRY(ds_build_binary(c->b, DS_OP_ADD, named(c, w, ".squares"), r->sum[i],
                               ds_use_of(square), &sum, err));
        r->sum[i] = ds_use_of(sum);
        r->done[i] = ds_use_of(done);
    }
    return DS_OK;
}

/* Puts one loop a binder. */
static ds_status square_range(ds_clip *c, range *r, uint32_t depth, ds_error *err) {
    const ds_value_info *info = info_of(c, r->weights[0]);
    if (depth == info->n_binders) return square_turn(c, r, depth, err);
    const ds_binder *binder = &info->binders[depth];
    const char **names = DS_NEW_N(&c->step->unit->arena, const char *, 2 * r->n);
    r->at[depth] = ds_expr_index(&c->step->unit->exprs, binder->name);
    ds_op *loop = ds_build_for(c->b, binder->name, binder->lo, binder->hi);
    for (uint32_t i = 0; i < r->n; i++) {
        names[i] = named(c, r->weights[i], ".square");
        names[r->n + i] = named(c, r->weights[i], ".done");
        r->sum[i] = ds_use_of(
            ds_build_carry(c->b, loop, named(c, r->weights[i], ".so_far"), NULL, r->sum[i]));
    }
    DS_TRY(square_range(c, r, depth + 1, err));
    DS_TRY(ds_build_yield(c->b, r->sum, r->n, r->done, r->n, names, err));
    for (uint32_t i = 0; i < r->n; i++) {
        r->sum[i] = ds_use_of(loop->out[i]);
        r->done[i] = ds_use_of(loop->out[r->n + i]);
    }
    return DS_OK;
}

static ds_status put_zero(ds_clip *c, const char *name, ds_use *out, ds_error *err) {
    ds_op *op = ds_build_op(c->b, DS_OP_ZEROS);
    ds_value zero =
        ds_build_out(c->b, op, name, ds_type_make(&c->step->unit->arena, DS_F32, NULL, 0));
    *out = ds_use_of(zero);
    return ds_build_put(c->b, op, err);
}

static ds_status square_family(ds_clip *c, uint32_t lead, bool *done, ds_error *err) {
    ds_arena *arena = &c->step->unit->arena;
    uint32_t n_weights = ds_step_n_trained(c->step),
             *members = DS_NEW_N(arena, uint32_t, n_weights);
    range r = {.weights = members,
               .sum = DS_NEW_N(arena, ds_use, n_weights),
               .done = DS_NEW_N(arena, ds_use, n_weights)};
    for (uint32_t w = n_weights; w-- > 0;) {
        if (done[w] || !ds_optimizer__same_range(c->step, c->b->func, lead, w)) continue;
        DS_TRY(put_zero(c, named(c, w, ".zero"), &r.sum[r.n], err));
        members[r.n++] = w;
        done[w] = true;
    }
    DS_TRY(square_range(c, &r, 0, err));
    for (uint32_t i = 0; i < r.n; i++) {
        c->square[members[i]] = r.sum[i].value;
        c->gradient[members[i]] = r.done[i];
    }
    return DS_OK;
}

static ds_status square_all(ds_clip *c, bool *done, ds_error *err) {
    for (uint32_t w = ds_step_n_trained(c->step); w-- > 0;) {
        if (done[w]) continue;
        if (info_of(c, w)->n_binders) {
            DS_TRY(square_family(c, w, done, err));
            continue;
        }
        ds_value whole;
        DS_TRY(square_one(c, w, c->gradient[w], &whole, &c->square[w], err));
        c->gradient[w] = ds_use_of(whole);
        done[w] = true;
    }
    return DS_OK;
}

/* ---- the factor ---- */

static uint32_t n_chunks(const ds_clip *c) {
    uint32_t n = 0;
    for (uint32_t w = 0; w < ds_step_n_trained(c->step); w++)
        if (c->step->weights.at[w].chunk + 1 > n) n = c->step->weights.at[w].chunk + 1;
    return n;
}

/* totals[chunk]: the sum over the chunk's weights; a weight that several chunks read counts in the
 * first. */
static ds_status put_totals(ds_clip *c, ds_value *totals, uint32_t n, ds_error *err) {
    for (uint32_t k = 0; k < n; k++) {
        ds_op *op = ds_build_op(c->b, DS_OP_TOTAL);
        for (uint32_t w = 0; w < ds_step_n_trained(c->step); w++)
            if (c->step->weights.at[w].chunk == k && c->step->weights.at[w].tied == w)
                ds_build_in(c->b, op, ds_use_of(c->square[w]));
        totals[k] = DS_NO_VALUE;
        if (!op->n_in) continue;
        totals[k] = ds_build_out(c->b, op, "square", NULL);
        DS_TRY(ds_build_put(c->b, op, err));
    }
    return DS_OK;
}

static ds_status put_factor(ds_clip *c, const ds_value *totals, uint32_t n, ds_value *out,
                            ds_error *err) {
    ds_op *op = ds_build_op(c->b, DS_OP_CLIP_FACTOR);
    for (uint32_t k = 0; k < n; k++)
        if (totals[k].i != DS_NO_VALUE.i) ds_build_in(c->b, op, ds_use_of(totals[k]));
    ds_build_attr_real(c->b, op, "max_norm", c->step->train.clip_norm);
    *out = ds_build_out(c->b, op, "clip", NULL);
    return ds_build_put(c->b, op, err);
}

static ds_dtype dtype_of(const ds_clip *c, uint32_t w) {
    return ds_use_type(c->step->unit, c->b->func, &c->gradient[w])->dtype;
}

/* The factor of the weight's chunk, in the dtype of its gradient. */
static ds_status find_factor(ds_clip *c, uint32_t w, const ds_value *factors, ds_error *err) {
    const ds_step_weight *weights = c->step->weights.at;
    ds_dtype dtype = dtype_of(c, w);
    c->factor[w] = ds_use_of(factors[weights[w].chunk]);
    if (dtype == DS_F32) return DS_OK;
    for (uint32_t i = 0; i < w; i++) {
        if (weights[i].chunk != weights[w].chunk || dtype_of(c, i) != dtype) continue;
        c->factor[w] = c->factor[i];
        return DS_OK;
    }
    ds_op *op = ds_build_op(c->b, DS_OP_CAST);
    ds_build_in(c->b, op, c->factor[w]);
    c->factor[w] = ds_use_of(
        ds_build_out(c->b, op, "clip.cast", ds_type_make(&c->step->unit->arena, dtype, NULL, 0)));
    return ds_build_put(c->b, op, err);
}

ds_status ds_clip__norm(ds_clip *c, ds_error *err) {
    ds_arena *arena = &c->step->unit->arena;
    uint32_t n_weights = ds_step_n_trained(c->step), n = n_chunks(c);
    ds_value *totals = DS_NEW_N(arena, ds_value, n + 1),
             *factors = DS_NEW_N(arena, ds_value, n + 1);
    bool *done = DS_NEW_N(arena, bool, n_weights + 1);
    memset(done, 0, n_weights * sizeof *done);
    DS_TRY(square_all(c, done, err));
    DS_TRY(put_totals(c, totals, n, err));
    for (uint32_t w = 0; w < n_weights; w++) {
        uint32_t chunk = c->step->weights.at[w].chunk;
        bool first = true;
        for (uint32_t i = 0; i < w && first; i++) first = c->step->weights.at[i].chunk != chunk;
        if (first) DS_TRY(put_factor(c, totals, n, &factors[chunk], err));
        DS_TRY(find_factor(c, w, factors, err));
    }
    return DS_OK;
}

ds_status ds_clip__scale(ds_clip *c, uint32_t weight, ds_use gradient, ds_use *out, ds_error *err) {
    ds_value scaled;
    DS_TRY(ds_build_binary(c->b, DS_OP_MUL, named(c, weight, ".clipped"), gradient,
                           c->factor[weight], &scaled, err));
    *out = ds_use_of(scaled);
    return DS_OK;
}
