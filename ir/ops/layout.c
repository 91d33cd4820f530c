/* Ops that move or rename elements without arithmetic: reshape, transpose, stack, concat, split, slice,
 * pad, expand, after.
 *
 * In concat, split, slice and pad the dim that changes is `*` in the operand: it takes any size and
 * no split. */
#include "ir/ops/internal.h"

#include <string.h>

ds_status ds_ops__transpose_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    uint32_t rank = args->in_rank[0], n, perm[DS_MAX_RANK];
    DS_TRY(ds_ops__attr_dims(args, "perm", rank, perm, &n, err));
    if (!ds_attr_find(args->op->attrs, args->op->n_attrs, "perm")) {
        if (rank < 2)
            return ds_error_set(err, DS_ERR_SHAPE, args->op->loc,
                                "transpose: the operand has %u dims; two or more are needed", rank);
        for (n = 0; n < rank; n++) perm[n] = n;
        perm[rank - 2] = rank - 1;
        perm[rank - 1] = rank - 2;
    }
    if (n != rank)
        return ds_error_set(err, DS_ERR_VALUE, args->op->loc,
                            "transpose: 'perm' has %u entries for %u dims", n, rank);
    ds_ops__rule_identity(out, rank);
    for (uint32_t d = 0; d < rank; d++) out->out[0].dims[d] = out->in[0].dims[perm[d]];
    return DS_OK;
}

/* Dim 0 goes to `dim`, and the dims up to there one to the left. */
ds_status ds_ops__stack_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    uint32_t dim, rank = args->in_rank[0];
    DS_TRY(ds_ops__attr_dim(args, "dim", rank, &dim, err));
    ds_ops__rule_identity(out, rank);
    for (uint32_t d = 0; d < dim; d++) out->out[0].dims[d] = out->in[0].dims[d + 1];
    if (rank) out->out[0].dims[dim] = out->in[0].dims[0];
    return DS_OK;
}

/* The identity but for one dim: `*` in the operand, a factor of its own in the result. */
static ds_status one_dim_rule(const ds_rule_args *args, uint32_t *dim, ds_rule *out,
                              ds_error *err) {
    uint32_t rank = args->in_rank[0];
    DS_TRY(ds_ops__attr_dim(args, "dim", rank, dim, err));
    ds_ops__rule_identity(out, rank);
    out->in[0].dims[*dim] = (ds_rule_dim){.any = true};
    out->kinds[out->out[0].dims[*dim].factors[0]] = DS_FACTOR_WHOLE;
    return DS_OK;
}

static uint32_t changed_dim(const ds_match *m) {
    uint32_t d = 0;
    while (!m->rule.in[0].dims[d].any) d++;
    return d;
}

ds_status ds_ops__slice_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    uint32_t dim;
    return one_dim_rule(args, &dim, out, err);
}

ds_status ds_ops__concat_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    return ds_ops__slice_rule(args, out, err);
}

ds_status ds_ops__split_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    uint32_t dim;
    DS_TRY(one_dim_rule(args, &dim, out, err));
    for (uint32_t i = 1; i < args->n_out; i++) {
        const char name[3] = {'p', (char)('0' + i), '\0'};
        out->out[i] = out->out[0];
        out->out[i].dims[dim].factors[0] = ds_ops__factor(out, name, DS_FACTOR_WHOLE);
    }
    out->n_out = args->n_out;
    return DS_OK;
}

ds_status ds_ops__concat_sizes(ds_match *m, ds_error *err) {
    (void)err;
    const ds_infer *ctx = m->ctx;
    uint32_t d = changed_dim(m);
    ds_expr sum = ctx->in[0]->dims[d].size;
    for (uint32_t i = 1; i < ctx->op->n_in; i++)
        sum = ds_expr_fold(&ctx->unit->exprs, DS_EXPR_ADD, sum, ctx->in[i]->dims[d].size);
    m->size[m->rule.out[0].dims[d].factors[0]] = sum;
    return DS_OK;
}

static ds_status bad_parts(const ds_match *m, ds_expr parts, ds_expr whole, ds_error *err) {
    return ds_error_set(err, DS_ERR_SHAPE, m->ctx->op->loc,
                        "split: %u parts that add up to %s do not make up dim %u of %s",
                        m->ctx->op->n_out, ds_ops__expr_text(m->ctx, parts), changed_dim(m),
                        ds_ops__expr_text(m->ctx, whole));
}

ds_status ds_ops__split_sizes(ds_match *m, ds_error *err) {
    const ds_infer *ctx = m->ctx;
    ds_exprs *exprs = &ctx->unit->exprs;
    uint32_t d = changed_dim(m), n = ctx->op->n_out, given = ds_ops__attr_n(ctx->op, "sizes");
    ds_expr whole = ctx->in[0]->dims[d].size, sum = ds_expr_int(exprs, 0);
    if (ds_attr_find(ctx->op->attrs, ctx->op->n_attrs, "sizes") && given != n)
        return ds_error_set(err, DS_ERR_TYPE, ctx->op->loc,
                            "split: %u sizes are given for %u results", given, n);
    for (uint32_t i = 0; i < n; i++) {
        ds_expr part = given ? ds_ops__attr_item(exprs, ctx->op, "sizes", i)
                             : ds_expr_fold(exprs, DS_EXPR_DIV, whole, ds_expr_int(exprs, n));
        m->size[m->rule.out[i].dims[d].factors[0]] = part;
        sum = given ? ds_expr_fold(exprs, DS_EXPR_ADD, sum, part)
                    : ds_expr_fold(exprs, DS_EXPR_MUL, part, ds_expr_int(exprs, n));
    }
    ds_tri same;
    DS_TRY(ds_ops__equal(ctx, sum, whole, &same, err));
    return same == DS_NO ? bad_parts(m, sum, whole, err) : DS_OK;
}

ds_status ds_ops__slice_sizes(ds_match *m, ds_error *err) {
    const ds_infer *ctx = m->ctx;
    ds_exprs *exprs = &ctx->unit->exprs;
    uint32_t d = changed_dim(m);
    ds_expr bound[3] = {ds_ops__attr_item(exprs, ctx->op, "lo", 0),
                        ds_ops__attr_item(exprs, ctx->op, "hi", 0), ctx->in[0]->dims[d].size};
    int64_t value[3] = {0};
    bool all = true;
    for (uint32_t i = 0; i < 3; i++) {
        bool known;
        DS_TRY(ds_ops__int(exprs, ctx->env, bound[i], ctx->op->loc, &value[i], &known, err));
        all &= known;
    }
    ds_expr size = ds_expr_fold(exprs, DS_EXPR_SUB, bound[1], bound[0]);
    if (all && (value[0] < 0 || value[0] > value[1] || value[1] > value[2]))
        return ds_error_set(err, DS_ERR_VALUE, ctx->op->loc,
                            "slice: %lld to %lld is no part of dim %u, which has size %lld",
                            (long long)value[0], (long long)value[1], d, (long long)value[2]);
    m->size[m->rule.out[0].dims[d].factors[0]] = size;
    return DS_OK;
}

ds_status ds_ops__pad_sizes(ds_match *m, ds_error *err) {
    const ds_infer *ctx = m->ctx;
    ds_exprs *exprs = &ctx->unit->exprs;
    uint32_t d = changed_dim(m);
    ds_expr size = ctx->in[0]->dims[d].size;
    static const char *const sides[] = {"lo", "hi"};
    for (uint32_t i = 0; i < 2; i++) {
        ds_expr side = ds_ops__attr_item(exprs, ctx->op, sides[i], 0);
        DS_TRY(ds_ops__at_least(ctx, sides[i], side, 0, err));
        size = ds_expr_fold(exprs, DS_EXPR_ADD, size, side);
    }
    m->size[m->rule.out[0].dims[d].factors[0]] = size;
    return DS_OK;
}

/* ---- put ---- */

/* The whole and the part differ in one dim alone: `*` in the part. */
ds_status ds_ops__put_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    uint32_t dim, rank = args->in_rank[0];
    DS_TRY(ds_ops__attr_dim(args, "dim", rank, &dim, err));
    if (args->in_rank[1] != rank)
        return ds_error_set(err, DS_ERR_SHAPE, args->op->loc,
                            "put: the part has %u dims and the whole %u; reshape the part so that "
                            "the part has a dim of 1 there",
                            args->in_rank[1], rank);
    ds_ops__rule_identity(out, rank);
    out->kinds[out->out[0].dims[dim].factors[0]] = DS_FACTOR_WHOLE;
    out->in[1] = out->in[0];
    out->in[1].dims[dim] = (ds_rule_dim){.any = true};
    out->n_in = 2;
    return DS_OK;
}

ds_status ds_ops__put_sizes(ds_match *m, ds_error *err) {
    const ds_infer *ctx = m->ctx;
    ds_exprs *exprs = &ctx->unit->exprs;
    uint32_t d = 0;
    while (!m->rule.in[1].dims[d].any) d++;
    if (ds_attr_find(ctx->op->attrs, ctx->op->n_attrs, "row"))
        DS_TRY(ds_ops__at_least(ctx, "row", ds_ops__attr_item(exprs, ctx->op, "row", 0), 1, err));
    ds_expr given[3] = {ds_ops__attr_item(exprs, ctx->op, "at", 0), ctx->in[1]->dims[d].size,
                        ctx->in[0]->dims[d].size};
    int64_t value[3] = {0};
    bool all = true;
    for (uint32_t i = 0; i < 3; i++) {
        bool known;
        DS_TRY(ds_ops__int(exprs, ctx->env, given[i], ctx->op->loc, &value[i], &known, err));
        all &= known;
    }
    if (all && (value[0] < 0 || value[1] > value[2] || value[0] > value[2] - value[1]))
        return ds_error_set(err, DS_ERR_VALUE, ctx->op->loc,
                            "put: %lld to %lld is no part of dim %u, which has size %lld",
                            (long long)value[0], (long long)(value[0] + value[1]), d,
                            (long long)value[2]);
    return DS_OK;
}

/* Only the part is read and written: the whole stays where it is. */
ds_status ds_ops__put_work(const ds_op *op, const ds_env *env, const ds_shape *in,
                           const ds_shape *out, ds_work *work, ds_error *err) {
    (void)env;
    DS_TRY(ds_ops__work_bytes(op, in, out, work, err));
    DS_TRY(ds_shape_bytes(&in[1], &work->bytes_read, err));
    work->bytes_written = work->bytes_read;
    work->tokens = work->width = 1;
    for (uint32_t d = 0; d < in[1].rank; d++)
        *(d + 1 < in[1].rank ? &work->tokens : &work->width) *= in[1].dims[d];
    return DS_OK;
}

/* ---- expand, after ---- */

/* The new dims, as a set of result dims, and the result's rank. */
static ds_status new_dims(const ds_rule_args *args, uint32_t *rank, uint32_t dims[DS_MAX_RANK],
                          uint32_t *n, ds_error *err) {
    *rank = args->in_rank[0] + ds_ops__attr_n(args->op, "dims");
    if (*rank > DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, args->op->loc, "expand: more than %d dims",
                            DS_MAX_RANK);
    return ds_ops__attr_dims(args, "dims", *rank, dims, n, err);
}

ds_status ds_ops__expand_rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    uint32_t rank, dims[DS_MAX_RANK], n;
    DS_TRY(new_dims(args, &rank, dims, &n, err));
    ds_ops__rule_identity(out, rank);
    out->in[0].n = 0;
    for (uint32_t d = 0; d < rank; d++) {
        bool fresh = false;
        for (uint32_t i = 0; i < n; i++) fresh |= dims[i] == d;
        if (!fresh) ds_ops__dim(&out->in[0], out->out[0].dims[d].factors[0]);
    }
    return DS_OK;
}

ds_status ds_ops__expand_sizes(ds_match *m, ds_error *err) {
    const ds_infer *ctx = m->ctx;
    uint32_t rank, dims[DS_MAX_RANK], n;
    ds_rule_args args = {.op = ctx->op, .exprs = &ctx->unit->exprs, .env = ctx->env};
    args.in_rank[0] = (uint8_t)ctx->in[0]->rank;
    DS_TRY(new_dims(&args, &rank, dims, &n, err));
    if (ds_ops__attr_n(ctx->op, "sizes") != n)
        return ds_error_set(err, DS_ERR_TYPE, ctx->op->loc,
                            "expand: %u sizes are given for %u new dims",
                            ds_ops__attr_n(ctx->op, "sizes"), n);
    for (uint32_t i = 0; i < n; i++) {
        ds_expr size = ds_ops__attr_item(&ctx->unit->exprs, ctx->op, "sizes", i);
        DS_TRY(ds_ops__at_least(ctx, "sizes", size, 0, err));
        m->size[m->rule.out[0].dims[dims[i]].factors[0]] = size;
    }
    return DS_OK;
}

ds_status ds_ops__expand_infer(const ds_infer *ctx, ds_error *err) {
    uint32_t rank, dims[DS_MAX_RANK], n, made = 0;
    ds_rule_args args = {.op = ctx->op, .exprs = &ctx->unit->exprs, .env = ctx->env};
    args.in_rank[0] = (uint8_t)ctx->in[0]->rank;
    DS_TRY(new_dims(&args, &rank, dims, &n, err));
    for (uint32_t i = 0; i < n; i++) made |= 1u << dims[i];
    return ds_ops__infer_making(ctx, made, err);
}

/* The others are waited for, not read: any type will do. */
ds_status ds_ops__after_infer(const ds_infer *ctx, ds_error *err) {
    DS_TRY(ds_ops__one_place(ctx, err));
    ctx->out[0] = ds_type_copy(&ctx->unit->arena, ctx->in[0]);
    return DS_OK;
}

/* ---- host memory ---- */

/* The same type in the other memory. */
ds_status ds_ops__host_infer(const ds_infer *ctx, ds_error *err) {
    (void)err;
    ds_type *type = ds_type_copy(&ctx->unit->arena, ctx->in[0]);
    type->host = ctx->op->code == DS_OP_OFFLOAD;
    ctx->out[0] = type;
    return DS_OK;
}

/* ---- reshape ---- */

/* Source dims and target dims, literal 1s left out, with their indices. */
typedef struct side {
    ds_expr size[DS_MAX_RANK];
    uint32_t index[DS_MAX_RANK];
    uint32_t n;
} side;

static void add_dim(const ds_infer *ctx, side *s, ds_rule_term *term, uint32_t d, ds_expr size) {
    int64_t value;
    term->dims[d] = (ds_rule_dim){0};
    if (ds_expr_is_int(&ctx->unit->exprs, size, &value) && value == 1) return;
    s->size[s->n] = size;
    s->index[s->n++] = d;
}

/* The target: the attribute, else the written type. */
static ds_status target_shape(const ds_infer *ctx, ds_expr size[DS_MAX_RANK], uint32_t *rank,
                              ds_error *err) {
    const ds_attr *attr = ds_attr_find(ctx->op->attrs, ctx->op->n_attrs, "shape");
    const ds_type *written = ctx->out[0];
    if (!attr && !written)
        return ds_error_set(err, DS_ERR_TYPE, ctx->op->loc,
                            "reshape needs the attribute 'shape' or a written result type");
    *rank = attr ? ds_ops__attr_n(ctx->op, "shape") : written->rank;
    if (*rank > DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, ctx->op->loc, "reshape: more than %d dims",
                            DS_MAX_RANK);
    for (uint32_t d = 0; d < *rank; d++)
        size[d] = attr ? ds_ops__attr_item(&ctx->unit->exprs, ctx->op, "shape", d)
                       : written->dims[d].size;
    return DS_OK;
}

static ds_expr product(const ds_infer *ctx, const side *s, uint32_t from, uint32_t n) {
    ds_expr p = ds_expr_int(&ctx->unit->exprs, 1);
    for (uint32_t i = from; i < from + n; i++)
        p = ds_expr_fold(&ctx->unit->exprs, DS_EXPR_MUL, p, s->size[i]);
    return p;
}

/* p source dims from i on become q target dims from j on. */
typedef struct group {
    uint32_t i, j, p, q;
} group;

/* The smallest group after `*g` with provably equal products that are not 0; if there is none, all
 * the rest up to the ends. Decided on symbols alone, so that the grouping (and the sharding that
 * follows from it) does not change when params are bound. */
static void next_group(const ds_infer *ctx, const side *a, const side *b, uint32_t end_a,
                       uint32_t end_b, group *g) {
    g->i += g->p, g->j += g->q;
    uint32_t most_p = end_a - g->i, most_q = end_b - g->j;
    for (uint32_t sum = 2; sum <= most_p + most_q; sum++)
        for (g->p = 1; g->p < sum; ++g->p) {
            g->q = sum - g->p;
            if (g->p > most_p || g->q > most_q) continue;
            ds_expr from = product(ctx, a, g->i, g->p), to = product(ctx, b, g->j, g->q);
            int64_t size = 1;
            if (ds_expr_equal(&ctx->unit->exprs, from, to) == DS_YES &&
                !(ds_expr_is_int(&ctx->unit->exprs, from, &size) && size == 0))
                return;
        }
    g->p = most_p;
    g->q = most_q;
}

static ds_status check_group(const ds_infer *ctx, const side *a, const side *b, const group *g,
                             ds_error *err) {
    ds_expr from = product(ctx, a, g->i, g->p), to = product(ctx, b, g->j, g->q);
    ds_tri same;
    DS_TRY(ds_ops__equal(ctx, from, to, &same, err));
    if (same != DS_NO) return DS_OK;
    return ds_error_set(err, DS_ERR_SHAPE, ctx->op->loc,
                        "reshape: %s has other elements than asked for: %s against %s",
                        ds_ops__type_text(ctx, ctx->in[0]), ds_ops__expr_text(ctx, from),
                        ds_ops__expr_text(ctx, to));
}

/* One group becomes factors: p = 1 or q = 1 share them, else both sides stand alone and unsplit. */
static ds_status add_group(const ds_infer *ctx, ds_rule *rule, const side *a, const side *b,
                           const group *g, ds_error *err) {
    ds_rule_dim *src = rule->in[0].dims, *dst = rule->out[0].dims;
    bool shared = g->p == 1 || g->q == 1;
    uint32_t n = g->q == 1 ? g->p : g->q;
    if (shared && n > 4)
        return ds_error_set(err, DS_ERR_LIMIT, ctx->op->loc,
                            "reshape: one dim made of %u others; at most 4", n);
    for (uint32_t k = 0; k < n; k++) {
        const char name[3] = {'f', (char)('a' + rule->n_factors), '\0'};
        uint8_t f = ds_ops__factor(rule, name, shared ? DS_FACTOR_PAR : DS_FACTOR_WHOLE);
        ds_rule_dim *to = &dst[b->index[g->q == 1 ? g->j : g->j + k]];
        to->factors[to->n++] = f;
        if (!shared) continue;
        ds_rule_dim *from = &src[a->index[g->q == 1 ? g->i + k : g->i]];
        from->factors[from->n++] = f;
    }
    for (uint32_t k = 0; k < g->p && !shared; k++)
        src[a->index[g->i + k]] = (ds_rule_dim){.any = true};
    return DS_OK;
}

static ds_status reshape_rule(const ds_infer *ctx, const ds_expr *target, uint32_t rank,
                              ds_rule *rule, ds_error *err) {
    const ds_type *in = ctx->in[0];
    *rule = (ds_rule){.n_in = 1, .n_out = 1};
    rule->in[0].n = (uint8_t)in->rank;
    rule->out[0].n = (uint8_t)rank;
    side a = {0}, b = {0};
    for (uint32_t d = 0; d < in->rank; d++) add_dim(ctx, &a, &rule->in[0], d, in->dims[d].size);
    for (uint32_t d = 0; d < rank; d++) add_dim(ctx, &b, &rule->out[0], d, target[d]);
    /* Equal trailing dims are told apart first: what is left in the middle is then one group even
     * if its products cannot be compared, as width against heads · (width / heads). */
    uint32_t end_a = a.n, end_b = b.n;
    while (end_a && end_b &&
           ds_expr_equal(&ctx->unit->exprs, a.size[end_a - 1], b.size[end_b - 1]) == DS_YES)
        end_a--, end_b--;
    group g = {0};
    while (g.i + g.p < end_a || g.j + g.q < end_b) {
        next_group(ctx, &a, &b, end_a, end_b, &g);
        DS_TRY(check_group(ctx, &a, &b, &g, err));
        DS_TRY(add_group(ctx, rule, &a, &b, &g, err));
    }
    for (; end_a < a.n; end_a++, end_b++)
        DS_TRY(add_group(ctx, rule, &a, &b, &(group){end_a, end_b, 1, 1}, err));
    return DS_OK;
}

ds_status ds_ops__reshape_rule(const ds_infer *ctx, ds_rule *out, ds_error *err) {
    ds_expr target[DS_MAX_RANK];
    uint32_t rank;
    DS_TRY(target_shape(ctx, target, &rank, err));
    return reshape_rule(ctx, target, rank, out, err);
}

ds_status ds_ops__reshape_infer(const ds_infer *ctx, ds_error *err) {
    ds_expr target[DS_MAX_RANK];
    uint32_t rank;
    ds_rule rule;
    ds_match m;
    DS_TRY(target_shape(ctx, target, &rank, err));
    DS_TRY(reshape_rule(ctx, target, rank, &rule, err));
    ds_ops__match_init(&m, ctx, &rule);
    for (uint32_t d = 0; d < rank; d++) {
        const ds_rule_dim *dim = &rule.out[0].dims[d];
        if (dim->n == 1) m.size[dim->factors[0]] = target[d];
    }
    DS_TRY(ds_ops__match_run(&m, err));
    for (uint32_t d = 0; d < rank; d++) ctx->out[0]->dims[d].size = target[d];
    return DS_OK;
}
