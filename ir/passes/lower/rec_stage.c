/* A rec over the stages of a pipeline. The dim that weights state is cut into parts, one a stage: an
 * equation over that dim becomes one equation a part, and a read names the part that has the point.
 *
 *     %x = case l == 0: %e, else: %y{t, l - 1}           over l in 0..8, on two stages:
 *
 *     %x = case l == 0: %e, else: %y{t, l - 1}           of stage 0, for l in 0..4
 *     %x = case l == 4: %y{t, l - 1}, else: %y{t, l - 1} of stage 1, for l in 4..8: the first branch
 *                                                        reads stage 0's %y, the second stage 1's
 *
 * So each part has loops and stores of its own, and `stage` finds each op on one stage. The parts
 * keep their names, since paths and masks do not depend on the strategy. */
#include "ir/passes/lower/rec_internal.h"
#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

#define NO_PART UINT32_MAX

typedef struct cutter {
    ds_lowering *l;
    const ds_func *old;
    ds_func *func; /* the old function with the values of all parts */
    const ds_op *rec;
    ds_lower_parts *parts;
    uint32_t *of;  /* [value][part]: the value of the part; an uncut value has itself */
    bool *is_cut;  /* by value of the old function */
    uint32_t part; /* of the equation that is being copied; NO_PART: the equation is whole */
} cutter;

static ds_exprs *exprs_of(const cutter *c) {
    return &c->l->source->unit->exprs;
}

static const char *dim_name(const cutter *c) {
    return c->rec->dims[c->parts->dim].name;
}

/* ---- the cut ---- */

static ds_status find_dim(cutter *c, uint32_t dims, ds_error *err) {
    if (!dims)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, c->rec->loc,
                            "no weight of the rec states a dim, and a pipeline (pp) cuts the dim "
                            "that weights state");
    if (dims & (dims - 1))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, c->rec->loc,
                            "weights of the rec state several dims, and a pipeline (pp) cuts one");
    while (!(dims >> c->parts->dim & 1)) c->parts->dim++;
    return DS_OK;
}

static ds_status find_ranges(cutter *c, ds_error *err) {
    const ds_strategy *s = &c->l->step->strategy;
    const ds_binder *binder = &c->rec->dims[c->parts->dim];
    ds_env env = ds_binding_env(c->l->source, NULL);
    uint32_t n = (uint32_t)s->pp;
    int64_t lo, hi, *turns = DS_NEW_N(ds_lower__arena(c->l), int64_t, n);
    DS_TRY(ds_expr_eval_int(&env, binder->lo, binder->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, binder->hi, binder->loc, &hi, err));
    DS_TRY(ds_strategy_share_turns(c->l->source->unit, s, hi > lo ? hi - lo : 0, n, turns, err));
    c->parts->n = n;
    c->parts->ranges = DS_NEW_N(ds_lower__arena(c->l), ds_temporal_range, n);
    for (uint32_t p = 0; p < n; p++) {
        c->parts->ranges[p] = (ds_temporal_range){binder->name, lo, lo + turns[p]};
        lo += turns[p];
    }
    return DS_OK;
}

/* ---- values ---- */

static bool has_dim(const cutter *c, ds_value value) {
    const ds_value_info *info = ds_value_at(c->old, value);
    for (uint32_t i = 0; i < info->n_binders; i++)
        if (info->in_rec && info->binders[i].name == dim_name(c)) return true;
    return false;
}

static void add_values(cutter *c, const ds_op *op, bool cut) {
    for (uint32_t i = 0; i < op->n_out + op->n_args; i++) {
        ds_value value = i < op->n_out ? op->out[i] : op->args[i - op->n_out];
        c->is_cut[value.i] = cut;
        for (uint32_t p = 0; p < c->parts->n && cut; p++) {
            c->of[value.i * c->parts->n + p] = c->func->values.n;
            DS_PUSH(ds_lower__arena(c->l), &c->func->values, *ds_value_at(c->old, value));
        }
    }
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++) add_values(c, op->body->ops[i], cut);
}

static void find_values(cutter *c) {
    uint32_t n = c->old->values.n;
    c->is_cut = DS_NEW_N(ds_lower__arena(c->l), bool, n + 1);
    c->of = DS_NEW_N(ds_lower__arena(c->l), uint32_t, (size_t)n * c->parts->n + 1);
    c->func = DS_NEW(ds_lower__arena(c->l), ds_func);
    *c->func = *c->old;
    c->func->values.cap = c->func->values.n; /* the next value moves the array */
    for (uint32_t i = 0; i < c->rec->body->n_ops; i++) {
        const ds_op *op = c->rec->body->ops[i];
        if (op->code != DS_OP_WEIGHT && op->code != DS_OP_YIELD && op->n_out)
            add_values(c, op, has_dim(c, op->out[0]));
    }
}

static ds_value value_of(const cutter *c, ds_value value, uint32_t part) {
    return c->is_cut[value.i] ? (ds_value){c->of[value.i * c->parts->n + part]} : value;
}

/* ---- reads ---- */

/* An expression at one point of the dim; false: the expression depends on more. */
static bool eval_at(const cutter *c, ds_expr e, int64_t at, int64_t *out) {
    ds_index index = {dim_name(c), at, NULL};
    ds_env env = ds_binding_env(c->l->source, &index);
    return ds_expr_eval_int(&env, e, DS_NOWHERE, out, NULL) == DS_OK;
}

static uint32_t part_at(const cutter *c, int64_t at) {
    for (uint32_t p = 0; p < c->parts->n; p++)
        if (at >= c->parts->ranges[p].lo && at < c->parts->ranges[p].hi) return p;
    return NO_PART;
}

/* The parts that an index reaches from the part that is being copied: first … last. Points outside
 * of the dim are never read. */
static void parts_of(const cutter *c, ds_expr e, uint32_t *first, uint32_t *last) {
    const ds_temporal_range *own = c->part == NO_PART ? NULL : &c->parts->ranges[c->part];
    int64_t lo = own ? own->lo : 0, hi = own ? own->hi : 1;
    *first = NO_PART;
    *last = 0;
    for (int64_t at = lo; at < hi; at++) {
        int64_t value;
        if (!eval_at(c, e, at, &value)) { /* of another dim, too */
            *first = 0;
            *last = c->parts->n - 1;
            return;
        }
        uint32_t p = part_at(c, value);
        if (p == NO_PART) continue;
        if (*first == NO_PART || p < *first) *first = p;
        if (p > *last) *last = p;
    }
    if (*first == NO_PART) *first = 0;
}

static uint32_t index_of(const cutter *c, const ds_use *use) {
    const ds_value_info *info = ds_value_at(c->old, use->value);
    uint32_t i = 0;
    while (info->binders[i].name != dim_name(c)) i++;
    return i;
}

static ds_status refuse_read(const cutter *c, const ds_use *use, const char *why, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, use->loc,
                        "%%%s is read from several stages of the pipeline, which cuts %s: %s",
                        ds_value_at(c->old, use->value)->name, dim_name(c), why);
}

/* A read outside of a case, or of one part. */
static ds_status read_one(const cutter *c, const ds_use *use, ds_use *out, ds_error *err) {
    *out = *use;
    if (!c->is_cut[use->value.i]) return DS_OK;
    if (!use->n_index || !has_dim(c, use->value)) {
        out->value = value_of(c, use->value, c->part); /* of a body */
        return DS_OK;
    }
    uint32_t i = index_of(c, use), first, last;
    parts_of(c, use->index[i], &first, &last);
    if (ds_use_is_range(use, i)) {
        ds_expr end =
            ds_expr_binary(exprs_of(c), DS_EXPR_SUB, use->index_hi[i], ds_expr_int(exprs_of(c), 1));
        uint32_t from, to;
        parts_of(c, end, &from, &to);
        if (from < first) first = from;
        if (to > last) last = to;
        if (first != last) return refuse_read(c, use, "a range lies on one stage", err);
    }
    if (first != last) return refuse_read(c, use, "such a read is a branch of a `case`", err);
    out->value = value_of(c, use->value, first);
    return DS_OK;
}

/* ---- cases ---- */

/* Does a condition hold at all points of the part, or at none? Else DS_UNKNOWN. */
static ds_tri holds(const cutter *c, ds_expr cond) {
    const ds_temporal_range *own = c->part == NO_PART ? NULL : &c->parts->ranges[c->part];
    int64_t lo = own ? own->lo : 0, hi = own ? own->hi : 1, n = 0;
    for (int64_t at = lo; at < hi; at++) {
        int64_t value;
        if (!eval_at(c, cond, at, &value)) return DS_UNKNOWN;
        n += value != 0;
    }
    return n == hi - lo ? DS_YES : n ? DS_UNKNOWN : DS_NO;
}

static void add_branch(const cutter *c, ds_op *op, const ds_use *use, ds_expr cond) {
    DS_VEC(ds_use) in = {.at = op->in, .n = op->n_in, .cap = op->n_in};
    DS_VEC(ds_expr) conds = {.at = op->conds, .n = op->n_conds, .cap = op->n_conds};
    DS_PUSH(ds_lower__arena(c->l), &in, *use);
    if (DS_HAS_EXPR(cond)) DS_PUSH(ds_lower__arena(c->l), &conds, cond);
    op->in = in.at;
    op->n_in = in.n;
    op->conds = conds.at;
    op->n_conds = conds.n;
}

/* The points whose index lies before `end`: l < 5 for the index l - 1 and the end 4; l == 4 if that
 * is the part's first point alone. */
static ds_expr lies_before(const cutter *c, ds_expr e, int64_t end) {
    ds_exprs *exprs = exprs_of(c);
    ds_expr dim = ds_expr_index(exprs, dim_name(c));
    const ds_temporal_range *own = &c->parts->ranges[c->part];
    int64_t at, shift = 0;
    bool plain = true;
    for (int64_t i = own->lo; i < own->hi && plain; i++) {
        plain = eval_at(c, e, i, &at) && (i == own->lo || at - i == shift);
        if (plain) shift = at - i;
    }
    if (!plain) return ds_expr_binary(exprs, DS_EXPR_LT, e, ds_expr_int(exprs, end));
    end -= shift;
    if (end == own->lo + 1)
        return ds_expr_binary(exprs, DS_EXPR_EQ, dim, ds_expr_int(exprs, own->lo));
    return ds_expr_binary(exprs, DS_EXPR_LT, dim, ds_expr_int(exprs, end));
}

/* A branch, one for each part that the branch reads. */
static ds_status copy_branch(const cutter *c, const ds_use *use, ds_expr cond, ds_op *op,
                             ds_error *err) {
    uint32_t first, last, i;
    ds_use read = *use;
    ds_exprs *exprs = exprs_of(c);
    if (!c->is_cut[use->value.i] || c->part == NO_PART ||
        ds_use_is_range(use, i = index_of(c, use))) {
        DS_TRY(read_one(c, use, &read, err));
        add_branch(c, op, &read, cond);
        return DS_OK;
    }
    parts_of(c, use->index[i], &first, &last);
    for (uint32_t p = first; p <= last; p++) {
        read.value = value_of(c, use->value, p);
        ds_expr when = cond;
        if (p < last) {
            when = lies_before(c, use->index[i], c->parts->ranges[p].hi);
            if (DS_HAS_EXPR(cond)) when = ds_expr_binary(exprs, DS_EXPR_AND, cond, when);
        }
        add_branch(c, op, &read, when);
    }
    return DS_OK;
}

/* Branches that the part never takes are left out. */
static ds_status copy_case(const cutter *c, const ds_op *old, ds_op *op, ds_error *err) {
    op->in = NULL;
    op->conds = NULL;
    op->n_in = op->n_conds = 0;
    for (uint32_t i = 0; i < old->n_in; i++) {
        ds_expr cond = i < old->n_conds ? old->conds[i] : DS_NO_EXPR;
        ds_tri known = DS_HAS_EXPR(cond) ? holds(c, cond) : DS_YES;
        if (known == DS_NO) continue;
        if (known == DS_YES) cond = DS_NO_EXPR;
        DS_TRY(copy_branch(c, &old->in[i], cond, op, err));
        if (known == DS_YES) break;
    }
    return DS_OK;
}

/* ---- equations ---- */

static ds_value copy_value(const cutter *c, ds_value old, ds_op *def) {
    ds_value value = value_of(c, old, c->part);
    ds_value_info *info = ds_value_at(c->func, value);
    if (info->def) info->def = def;
    return value;
}

static ds_status copy_op(const cutter *c, const ds_op *old, ds_op **out, ds_error *err) {
    ds_op *op = *out = DS_NEW(ds_lower__arena(c->l), ds_op);
    *op = *old;
    op->in = DS_NEW_N(ds_lower__arena(c->l), ds_use, old->n_in + 1);
    op->out = DS_NEW_N(ds_lower__arena(c->l), ds_value, old->n_out + 1);
    op->args = DS_NEW_N(ds_lower__arena(c->l), ds_value, old->n_args + 1);
    for (uint32_t i = 0; i < old->n_out; i++) op->out[i] = copy_value(c, old->out[i], op);
    for (uint32_t i = 0; i < old->n_args; i++) op->args[i] = copy_value(c, old->args[i], op);
    const uint64_t *turns = ds_map_find(&c->l->unrolled, DS_KEY(old));
    if (turns) ds_map_put(&c->l->unrolled, DS_KEY(op), *turns);
    if (old->code == DS_OP_CASE) return copy_case(c, old, op, err);
    for (uint32_t i = 0; i < old->n_in; i++) DS_TRY(read_one(c, &old->in[i], &op->in[i], err));
    if (!old->body) return DS_OK;
    op->body = DS_NEW(ds_lower__arena(c->l), ds_block);
    *op->body = *old->body;
    op->body->ops = DS_NEW_N(ds_lower__arena(c->l), ds_op *, old->body->n_ops + 1);
    for (uint32_t i = 0; i < old->body->n_ops; i++)
        DS_TRY(copy_op(c, old->body->ops[i], &op->body->ops[i], err));
    return DS_OK;
}

static ds_status add_equation(cutter *c, const ds_op *old, uint32_t part, ds_block *body,
                              ds_error *err) {
    ds_op *op;
    c->part = part;
    DS_TRY(copy_op(c, old, &op, err));
    body->ops[body->n_ops++] = op;
    if (part != NO_PART) ds_map_put(&c->parts->of, DS_KEY(op), part + 1);
    return DS_OK;
}

static ds_status check_yields(const cutter *c, const ds_op *yield, ds_error *err) {
    for (uint32_t i = 0; i < c->rec->n_out; i++) {
        const ds_value_info *info = ds_value_at(c->old, c->rec->out[i]);
        for (uint32_t b = 0; b < info->n_binders; b++)
            if (info->binders[b].name == dim_name(c))
                return ds_error_set(err, DS_ERR_UNSUPPORTED, yield->in[i].loc,
                                    "the rec yields %%%s for every %s, and the pipeline cuts %s: "
                                    "the elements would lie on several stages",
                                    ds_value_at(c->old, yield->in[i].value)->name, dim_name(c),
                                    dim_name(c));
    }
    return DS_OK;
}

static ds_status copy_body(cutter *c, ds_error *err) {
    const ds_block *from = c->rec->body;
    ds_op *rec = DS_NEW(ds_lower__arena(c->l), ds_op);
    ds_block *body = DS_NEW(ds_lower__arena(c->l), ds_block);
    *rec = *c->rec;
    *body = *from;
    body->n_ops = 0;
    body->ops = DS_NEW_N(ds_lower__arena(c->l), ds_op *, (size_t)from->n_ops * c->parts->n + 1);
    rec->body = body;
    for (uint32_t i = 0; i < from->n_ops; i++) {
        const ds_op *op = from->ops[i];
        if (op->code == DS_OP_WEIGHT) {
            body->ops[body->n_ops++] = (ds_op *)op;
            continue;
        }
        if (op->code == DS_OP_YIELD) DS_TRY(check_yields(c, op, err));
        bool cut = op->n_out && c->is_cut[op->out[0].i];
        for (uint32_t p = 0; p < (cut ? c->parts->n : 1); p++)
            DS_TRY(add_equation(c, op, cut ? p : NO_PART, body, err));
    }
    c->parts->rec = rec;
    return DS_OK;
}

/* The frame with room for the values of all parts. */
static void copy_frame(const cutter *c, const ds_lower_frame *frame) {
    uint32_t n = c->old->values.n;
    c->parts->frame = *frame;
    c->parts->frame.func = c->func;
    c->parts->frame.values = DS_NEW_N(ds_lower__arena(c->l), ds_lower_value, c->func->values.n + 1);
    memcpy(c->parts->frame.values, frame->values, n * sizeof *frame->values);
}

ds_status ds_lower__rec_cut(ds_lowering *l, const ds_lower_frame *frame, const ds_op *op,
                            ds_lower_parts *parts, ds_error *err) {
    cutter c = {.l = l, .old = frame->func, .rec = op, .parts = parts, .part = NO_PART};
    ds_lower_rec rec = {.l = l, .frame = (ds_lower_frame *)frame, .op = op};
    DS_TRY(find_dim(&c, ds_lower__rec_weight_dims(&rec), err));
    DS_TRY(find_ranges(&c, err));
    find_values(&c);
    DS_TRY(copy_body(&c, err));
    copy_frame(&c, frame);
    return DS_OK;
}

const ds_temporal_range *ds_lower__rec_range(const ds_lower_rec *rec, uint32_t statement,
                                             uint32_t dim) {
    bool chunk = statement < rec->program.n && ds_lower__rec_is_chunk(rec, statement);
    const ds_temporal_program *program = chunk ? &rec->program : &rec->whole;
    const ds_temporal_range *own =
        statement < rec->program.n ? program->statements[statement].ranges : NULL;
    return own ? &own[dim] : &program->dims[dim];
}
