/* Generic inference: operand types are matched against the factor rule, results are built from it.
 *
 * 1. Every dim of one factor gives that factor its size and splits; a second one must agree.
 * 2. The op's `sizes` hook sets factors that depend on attributes.
 * 3. A dim of several factors gives the one that is still unknown its size; its splits belong to
 * the outermost factor.
 * 4. A result dim takes its factors' sizes and the outermost one's splits. A split factor that the
 *    result lacks leaves it partial: a sum (or look-up) over those axes, or a maximum.
 *
 * Cost: O(operands × rank × factors), independent of sizes. */
#include "ir/ops/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const ds_dim unsplit = {0};

static const char *op_name(const ds_match *m) {
    return m->desc->name;
}

static ds_exprs *exprs_of(const ds_match *m) {
    return &m->ctx->unit->exprs;
}

void ds_ops__match_init(ds_match *m, const ds_infer *ctx, const ds_rule *rule) {
    *m = (ds_match){.ctx = ctx, .desc = ds_op_desc_of(ctx->op->code), .rule = *rule};
}

void ds_ops__set_size(ds_match *m, const char *name, ds_expr size) {
    uint32_t f = ds_ops__factor_named(&m->rule, name);
    assert(f < DS_MAX_FACTORS);
    m->size[f] = size;
}

ds_expr ds_ops__size(const ds_match *m, const char *name) {
    uint32_t f = ds_ops__factor_named(&m->rule, name);
    assert(f < DS_MAX_FACTORS);
    return m->size[f];
}

/* ---- operands ---- */

static bool are_equal(const ds_match *m, const ds_dim *a, const ds_dim *b) {
    ds_tri same = DS_NO;
    return ds_ops__equal(m->ctx, a->size, b->size, &same, NULL) == DS_OK && same == DS_YES;
}

/* The fix for a product whose operands would fit otherwise; "they must be equal" if none is seen. */
static const char *fix_of_product(const ds_match *m) {
    const char *none = "they must be equal";
    if (m->ctx->op->code != DS_OP_MATMUL) return none;
    const ds_type *a = m->ctx->in[0], *b = m->ctx->in[1];
    if (a->rank < 2 || b->rank < 2) return none;
    const ds_dim *a_end = &a->dims[a->rank - 1], *b_end = &b->dims[b->rank - 1];
    if (a->rank == b->rank && are_equal(m, b_end, a_end - 1))
        return "the operands fit in the other order: swap them";
    if (are_equal(m, a_end, b_end))
        return "operand 1 fits transposed: transpose(...) swaps its dims";
    if (are_equal(m, a_end - 1, b_end - 1))
        return "operand 0 fits transposed: transpose(...) swaps its dims";
    return none;
}

static ds_status sizes_differ(const ds_match *m, uint32_t i, uint32_t d, uint32_t f,
                              ds_error *err) {
    const ds_type *a = m->ctx->in[m->operand[f]], *b = m->ctx->in[i];
    return ds_error_set(err, DS_ERR_SHAPE, m->ctx->op->in[i].loc,
                        "%s: dim %u of operand %u (%s) is %s, but dim %u of operand %u (%s) is %s; "
                        "%s",
                        op_name(m), d, i, ds_ops__type_text(m->ctx, b),
                        ds_ops__expr_text(m->ctx, b->dims[d].size), m->index[f], m->operand[f],
                        ds_ops__type_text(m->ctx, a), ds_ops__expr_text(m->ctx, m->size[f]),
                        fix_of_product(m));
}

static ds_status splits_differ(const ds_match *m, uint32_t i, uint32_t d, uint32_t f,
                               ds_error *err) {
    const ds_infer *ctx = m->ctx;
    uint32_t j = m->operand[f];
    const ds_dim *mine = &ctx->in[i]->dims[d];
    const ds_dim *first = m->outermost[f] ? m->dim[f] : &unsplit;
    char advice[160];
    if (mine->n_splits && first->n_splits)
        snprintf(advice, sizeof advice, "reshard one of them");
    else {
        bool i_split = mine->n_splits > 0;
        const ds_dim *split = i_split ? mine : first;
        snprintf(advice, sizeof advice,
                 "all_gather operand %u over %.64s dim %u, or split operand %u alike",
                 i_split ? i : j, split->splits[split->n_splits - 1].axis,
                 i_split ? d : m->index[f], i_split ? j : i);
    }
    return ds_error_set(err, DS_ERR_SHARDING, ctx->op->in[i].loc,
                        "%s: dim %u of operand %u (%s) and dim %u of operand %u (%s) belong "
                        "together but are split differently; %s",
                        op_name(m), m->index[f], j, ds_ops__type_text(ctx, ctx->in[j]), d, i,
                        ds_ops__type_text(ctx, ctx->in[i]), advice);
}

static ds_status never_split(const ds_match *m, uint32_t i, uint32_t d, const char *why,
                             ds_error *err) {
    const ds_infer *ctx = m->ctx;
    const ds_dim *dim = &ctx->in[i]->dims[d];
    const char *axis = dim->splits[dim->n_splits - 1].axis;
    return ds_error_set(
        err, DS_ERR_SHARDING, ctx->op->in[i].loc,
        "%s: dim %u of operand %u (%s) is split over %s, but %s; all_gather it over "
        "%s dim %u first, or work on shards in a local region",
        op_name(m), d, i, ds_ops__type_text(ctx, ctx->in[i]),
        ds_ops__axes_text(ctx, dim->splits, dim->n_splits), why, axis, d);
}

static ds_status may_split(const ds_match *m, uint32_t i, uint32_t d, ds_error *err) {
    const ds_rule_dim *rd = &ds_ops__term(m->rule.in, m->rule.n_in, i)->dims[d];
    const ds_dim *dim = &m->ctx->in[i]->dims[d];
    if (dim->n_splits == 0) return DS_OK;
    if (rd->n == 0) return never_split(m, i, d, "the op needs all of it on each device", err);
    switch (m->rule.kinds[rd->factors[0]]) {
    case DS_FACTOR_WHOLE:
        return never_split(m, i, d, "the op needs all of it on each device", err);
    case DS_FACTOR_SCAN:
        return never_split(m, i, d, "its steps depend on each other", err);
    case DS_FACTOR_WINDOW:
        return never_split(m, i, d, "windows reach over the borders of its parts", err);
    case DS_FACTOR_PAR:
    case DS_FACTOR_SUM:
    case DS_FACTOR_MAX:
    case DS_FACTOR_LOOKUP:
        break;
    }
    return DS_OK;
}

/* The dim with its uneven sizes times, or over, `inner`: those of a dim made of the outermost
 * factor and others, or of the outermost factor of such a dim. check_factor sees what does not
 * divide. */
static const ds_dim *scale_sizes(const ds_match *m, const ds_dim *dim, ds_expr_kind kind,
                                 ds_expr inner) {
    ds_arena *arena = &m->ctx->unit->arena;
    ds_dim *scaled = DS_NEW(arena, ds_dim);
    *scaled = *dim;
    scaled->splits = DS_NEW_N(arena, ds_split, dim->n_splits + 1);
    for (uint32_t s = 0; s < dim->n_splits; s++) {
        ds_split *split = &scaled->splits[s];
        *split = dim->splits[s];
        if (split->n_sizes) split->sizes = DS_NEW_N(arena, ds_expr, split->n_sizes);
        for (uint32_t k = 0; k < split->n_sizes; k++)
            split->sizes[k] = ds_expr_fold(exprs_of(m), kind, dim->splits[s].sizes[k], inner);
    }
    return scaled;
}

static bool is_uneven(const ds_dim *dim) {
    for (uint32_t s = 0; s < dim->n_splits; s++)
        if (dim->splits[s].n_sizes) return true;
    return false;
}

/* The product of the factors behind the outermost one. */
static ds_expr inner_size(const ds_match *m, const ds_rule_dim *rd) {
    ds_expr size = ds_expr_int(exprs_of(m), 1);
    for (uint32_t k = 1; k < rd->n; k++)
        size = ds_expr_fold(exprs_of(m), DS_EXPR_MUL, size, m->size[rd->factors[k]]);
    return size;
}

/* Operand i's dim d carries factor f, with the splits of `dim`: they must agree with those seen
 * before. */
static ds_status carry(ds_match *m, uint32_t i, uint32_t d, const ds_dim *dim, uint32_t f,
                       bool outermost, ds_error *err) {
    if (!m->dim[f]) {
        m->dim[f] = dim;
        m->outermost[f] = outermost;
        m->operand[f] = i;
        m->index[f] = d;
        return DS_OK;
    }
    bool same;
    DS_TRY(ds_ops__same_splits(m->ctx, outermost ? dim : &unsplit,
                               m->outermost[f] ? m->dim[f] : &unsplit, &same, err));
    return same ? DS_OK : splits_differ(m, i, d, f, err);
}

static ds_status bind_simple(ds_match *m, uint32_t i, uint32_t d, const ds_rule_dim *rd,
                             ds_error *err) {
    const ds_dim *dim = &m->ctx->in[i]->dims[d];
    ds_tri same = DS_YES;
    if (rd->n == 0) {
        if (!rd->any)
            DS_TRY(ds_ops__equal(m->ctx, dim->size, ds_expr_int(exprs_of(m), 1), &same, err));
        if (same != DS_NO) return DS_OK;
        return ds_error_set(err, DS_ERR_SHAPE, m->ctx->op->in[i].loc,
                            "%s: dim %u of operand %u (%s) must be 1", op_name(m), d, i,
                            ds_ops__type_text(m->ctx, m->ctx->in[i]));
    }
    uint32_t f = rd->factors[0];
    if (!DS_HAS_EXPR(m->size[f]))
        m->size[f] = dim->size;
    else {
        DS_TRY(ds_ops__equal(m->ctx, dim->size, m->size[f], &same, err));
        if (same == DS_NO) return sizes_differ(m, i, d, f, err);
    }
    return carry(m, i, d, dim, f, true, err);
}

static ds_status bind_product(ds_match *m, uint32_t i, uint32_t d, const ds_rule_dim *rd,
                              ds_error *err) {
    ds_exprs *exprs = exprs_of(m);
    const ds_dim *dim = &m->ctx->in[i]->dims[d];
    ds_expr known = ds_expr_int(exprs, 1);
    uint32_t open = DS_MAX_FACTORS;
    for (uint32_t k = 0; k < rd->n; k++) {
        uint32_t f = rd->factors[k];
        if (k) DS_TRY(carry(m, i, d, dim, f, false, err));
        if (DS_HAS_EXPR(m->size[f]))
            known = ds_expr_fold(exprs, DS_EXPR_MUL, known, m->size[f]);
        else if (open == DS_MAX_FACTORS)
            open = f;
        else
            return ds_error_set(err, DS_ERR_SHAPE, m->ctx->op->loc,
                                "%s: nothing says how large the factors '%s' and '%s' of dim %u of "
                                "operand %u are",
                                op_name(m), m->rule.names[open], m->rule.names[f], d, i);
    }
    ds_expr whole = known;
    if (open < DS_MAX_FACTORS) {
        m->size[open] = ds_expr_fold(exprs, DS_EXPR_DIV, dim->size, known);
        whole = ds_expr_fold(exprs, DS_EXPR_MUL, known, m->size[open]);
    }
    const ds_dim *outer =
        is_uneven(dim) ? scale_sizes(m, dim, DS_EXPR_DIV, inner_size(m, rd)) : dim;
    DS_TRY(carry(m, i, d, outer, rd->factors[0], true, err));
    ds_tri same;
    DS_TRY(ds_ops__equal(m->ctx, dim->size, whole, &same, err));
    if (same != DS_NO) return DS_OK;
    return ds_error_set(
        err, DS_ERR_SHAPE, m->ctx->op->in[i].loc,
        "%s: dim %u of operand %u (%s) is %s, which is not %s%s", op_name(m), d, i,
        ds_ops__type_text(m->ctx, m->ctx->in[i]), ds_ops__expr_text(m->ctx, dim->size),
        open < DS_MAX_FACTORS ? "a multiple of " : "", ds_ops__expr_text(m->ctx, known));
}

/* Whole blocks of the inner factors: else some were cut off above. */
static ds_status check_uneven(const ds_match *m, uint32_t f, const ds_split *split, int64_t size,
                              ds_error *err) {
    const ds_infer *ctx = m->ctx;
    int64_t sum = 0, part;
    for (uint32_t k = 0; k < split->n_sizes; k++) {
        DS_TRY(ds_expr_eval_int(ctx->env, split->sizes[k], ctx->op->loc, &part, err));
        sum += part;
    }
    if (sum == size) return DS_OK;
    return ds_error_set(err, DS_ERR_SHAPE, ctx->op->in[m->operand[f]].loc,
                        "%s: the uneven sizes of dim %u of operand %u (%s) are not whole numbers "
                        "of the inner part of the dim, whose outer factor is %lld",
                        op_name(m), m->index[f], m->operand[f],
                        ds_ops__type_text(ctx, ctx->in[m->operand[f]]), (long long)size);
}

/* The size of a split outermost factor must be divisible, not only that of the dim. */
static ds_status check_factor(const ds_match *m, uint32_t f, ds_error *err) {
    const ds_infer *ctx = m->ctx;
    uint32_t i = m->operand[f], d = m->index[f];
    const ds_type *type = ctx->in[i];
    int64_t size, count;
    DS_TRY(ds_expr_eval_int(ctx->env, m->size[f], ctx->op->loc, &size, err));
    for (uint32_t s = 0; s < m->dim[f]->n_splits; s++) {
        const ds_split *split = &m->dim[f]->splits[s];
        if (split->n_sizes && ds_ops__term(m->rule.in, m->rule.n_in, i)->dims[d].n > 1)
            return check_uneven(m, f, split, size, err);
        if (split->n_sizes || !ctx->axis_size(ctx->context, &type->on, split->axis, &count) ||
            count < 1)
            break;
        if (size % count == 0) {
            size /= count;
            continue;
        }
        bool product = ds_ops__term(m->rule.in, m->rule.n_in, i)->dims[d].n > 1;
        return ds_error_set(err, DS_ERR_SHAPE, ctx->op->in[i].loc,
                            "%s: dim %u of operand %u (%s) is split over %s, whose size %lld does "
                            "not divide %lld%s",
                            op_name(m), d, i, ds_ops__type_text(ctx, type), split->axis,
                            (long long)count, (long long)size,
                            product ? ", the outer factor of the dim" : "");
    }
    return DS_OK;
}

static ds_status check_factors(const ds_match *m, ds_error *err) {
    if (!m->ctx->env || !m->ctx->axis_size) return DS_OK;
    for (uint32_t f = 0; f < m->rule.n_factors; f++)
        if (m->dim[f] && m->outermost[f] && DS_HAS_EXPR(m->size[f]))
            DS_TRY(check_factor(m, f, err));
    return DS_OK;
}

static ds_status bind_operands(ds_match *m, bool products, ds_error *err) {
    for (uint32_t i = 0; i < m->ctx->op->n_in; i++) {
        const ds_rule_term *term = ds_ops__term(m->rule.in, m->rule.n_in, i);
        if (term->n != m->ctx->in[i]->rank)
            return ds_error_set(err, DS_ERR_SHAPE, m->ctx->op->in[i].loc,
                                "%s: operand %u (%s) has %u dims, but %u are needed", op_name(m), i,
                                ds_ops__type_text(m->ctx, m->ctx->in[i]), m->ctx->in[i]->rank,
                                term->n);
        for (uint32_t d = 0; d < term->n; d++) {
            if ((term->dims[d].n > 1) != products) continue;
            DS_TRY(may_split(m, i, d, err));
            DS_TRY(products ? bind_product(m, i, d, &term->dims[d], err)
                            : bind_simple(m, i, d, &term->dims[d], err));
        }
    }
    return DS_OK;
}

/* ---- results ---- */

static const ds_dim *factor_dim(const ds_match *m, uint32_t f) {
    return m->dim[f] && m->outermost[f] ? m->dim[f] : &unsplit;
}

/* An operand dim of the same factors has the size already, and in the user's words. */
static ds_expr product_size(const ds_match *m, const ds_rule_dim *rd) {
    for (uint32_t i = 0; i < m->rule.n_in && i < m->ctx->op->n_in; i++)
        for (uint32_t d = 0; d < m->rule.in[i].n; d++) {
            const ds_rule_dim *other = &m->rule.in[i].dims[d];
            if (other->n == rd->n && memcmp(other->factors, rd->factors, rd->n) == 0)
                return m->ctx->in[i]->dims[d].size;
        }
    ds_expr size = ds_expr_int(exprs_of(m), 1);
    for (uint32_t k = 0; k < rd->n; k++)
        size = ds_expr_fold(exprs_of(m), DS_EXPR_MUL, size, m->size[rd->factors[k]]);
    return size;
}

static ds_status result_dim(const ds_match *m, const ds_rule_dim *rd, uint32_t d, ds_dim *out,
                            ds_error *err) {
    for (uint32_t k = 0; k < rd->n; k++) {
        uint32_t f = rd->factors[k];
        if (!DS_HAS_EXPR(m->size[f]))
            return ds_error_set(err, DS_ERR_SHAPE, m->ctx->op->loc,
                                "%s: factor '%s' of the result occurs in no operand", op_name(m),
                                m->rule.names[f]);
        const ds_dim *from = factor_dim(m, f);
        if (k > 0 && from->n_splits)
            return ds_error_set(err, DS_ERR_SHARDING, m->ctx->op->in[m->operand[f]].loc,
                                "%s: dim %u of operand %u (%s) is split over %s, but becomes an "
                                "inner part of result dim %u, which can be split on its outermost "
                                "part only; all_gather it first",
                                op_name(m), m->index[f], m->operand[f],
                                ds_ops__type_text(m->ctx, m->ctx->in[m->operand[f]]),
                                ds_ops__axes_text(m->ctx, from->splits, from->n_splits), d);
    }
    if (rd->n == 0) {
        out->size = ds_expr_int(exprs_of(m), 1);
        return DS_OK;
    }
    const ds_dim *from = factor_dim(m, rd->factors[0]);
    out->size = rd->n == 1 ? m->size[rd->factors[0]] : product_size(m, rd);
    if (rd->n > 1 && is_uneven(from)) from = scale_sizes(m, from, DS_EXPR_MUL, inner_size(m, rd));
    out->splits = from->splits;
    out->n_splits = from->n_splits;
    return DS_OK;
}

static bool term_has(const ds_rule_term *term, uint32_t f) {
    for (uint32_t d = 0; d < term->n; d++)
        for (uint32_t k = 0; k < term->dims[d].n; k++)
            if (term->dims[d].factors[k] == f) return true;
    return false;
}

static uint32_t count_partials(const ds_match *m, const ds_rule_term *term) {
    uint32_t n = 0;
    for (uint32_t f = 0; f < m->rule.n_factors; f++)
        if (!term_has(term, f)) n += factor_dim(m, f)->n_splits;
    return n;
}

static void add_partials(const ds_match *m, const ds_rule_term *term, ds_type *type) {
    for (uint32_t f = 0; f < m->rule.n_factors; f++) {
        if (term_has(term, f)) continue;
        const ds_dim *from = factor_dim(m, f);
        ds_reduction reduction = m->rule.kinds[f] == DS_FACTOR_MAX ? DS_RED_MAX : DS_RED_SUM;
        for (uint32_t s = 0; s < from->n_splits; s++)
            type->partials[type->n_partials++] = (ds_partial){from->splits[s].axis, reduction};
    }
}

/* What the message would call it is only written where there is one. */
static ds_status check_result(const ds_match *m, const ds_type *type, uint32_t i, ds_error *err) {
    if (ds_op_check_type(m->ctx, type, "", m->ctx->op->loc, NULL) == DS_OK) return DS_OK;
    char what[64];
    snprintf(what, sizeof what, "%.40s: result %u", op_name(m), i);
    return ds_op_check_type(m->ctx, type, what, m->ctx->op->loc, err);
}

static ds_status build_result(const ds_match *m, uint32_t i, ds_dtype dtype,
                              const ds_partial *passed, uint32_t n_passed, ds_error *err) {
    const ds_infer *ctx = m->ctx;
    ds_arena *arena = &ctx->unit->arena;
    const ds_rule_term *term = ds_ops__term(m->rule.out, m->rule.n_out, i);
    ds_type *type = DS_NEW(arena, ds_type);
    type->dtype = dtype;
    type->rank = term->n;
    type->dims = DS_NEW_N(arena, ds_dim, term->n ? term->n : 1);
    if (ctx->op->n_in) type->on = ctx->in[0]->on;
    for (uint32_t d = 0; d < term->n; d++)
        DS_TRY(result_dim(m, &term->dims[d], d, &type->dims[d], err));
    uint32_t n = n_passed + count_partials(m, term);
    type->partials = n ? DS_NEW_N(arena, ds_partial, n) : NULL;
    for (uint32_t p = 0; p < n_passed; p++) type->partials[type->n_partials++] = passed[p];
    add_partials(m, term, type);
    DS_TRY(check_result(m, type, i, err));
    ctx->out[i] = type;
    return DS_OK;
}

ds_status ds_ops__match_run(ds_match *m, ds_error *err) {
    const ds_infer *ctx = m->ctx;
    DS_TRY(ds_ops__one_place(ctx, err));
    DS_TRY(bind_operands(m, false, err));
    if (m->desc->sizes) DS_TRY(m->desc->sizes(m, err));
    DS_TRY(bind_operands(m, true, err));
    DS_TRY(check_factors(m, err));
    const ds_partial *passed;
    uint32_t n_passed;
    DS_TRY(ds_ops__passed_partials(ctx, m->desc, &passed, &n_passed, err));
    if (ctx->op->n_out == 0) return DS_OK;
    ds_dtype *dtypes = DS_NEW_N(&ctx->unit->arena, ds_dtype, ctx->op->n_out);
    DS_TRY(ds_ops__dtypes(ctx, m->desc, dtypes, err));
    for (uint32_t i = 0; i < ctx->op->n_out; i++)
        DS_TRY(build_result(m, i, dtypes[i], passed, n_passed, err));
    return DS_OK;
}
