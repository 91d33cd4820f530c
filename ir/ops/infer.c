/* The entry of inference: arity, attributes and dtypes by the table, then the op's own hook or the
 * factor rule (match.c). */
#include "ir/ops/internal.h"

#include <stdio.h>

static ds_status wrong_count(const ds_infer *ctx, const ds_op_desc *desc, const char *what,
                             uint32_t n, uint32_t lo, uint32_t hi, ds_error *err) {
    char range[48];
    if (lo == hi)
        snprintf(range, sizeof range, "%u", lo);
    else if (hi == UINT32_MAX)
        snprintf(range, sizeof range, "%u or more", lo);
    else
        snprintf(range, sizeof range, "%u to %u", lo, hi);
    return ds_error_set(err, DS_ERR_TYPE, ctx->op->loc, "%s has %s %s%s, not %u", desc->name, range,
                        what, lo == 1 && hi == 1 ? "" : "s", n);
}

static ds_status check_arity(const ds_infer *ctx, const ds_op_desc *desc, ds_error *err) {
    const ds_op *op = ctx->op;
    if (op->n_in < desc->min_in || op->n_in > desc->max_in)
        return wrong_count(ctx, desc, "operand", op->n_in, desc->min_in, desc->max_in, err);
    if (op->n_out < desc->min_out || op->n_out > desc->max_out)
        return wrong_count(ctx, desc, "result", op->n_out, desc->min_out, desc->max_out, err);
    return DS_OK;
}

/* Clauses belong to collectives; each of those checks its own. */
static ds_status no_clauses(const ds_infer *ctx, const ds_op_desc *desc, ds_error *err) {
    const ds_op *op = ctx->op;
    bool has_dim = DS_HAS_EXPR(op->dim) || DS_HAS_EXPR(op->dim_to);
    bool has_place = op->n_to || DS_HAS_EXPR(op->to_rank) || DS_HAS_EXPR(op->from_rank);
    if (!op->n_over && !op->across && !op->has_group && !has_dim && !has_place &&
        !DS_HAS_EXPR(op->tag))
        return DS_OK;
    return ds_error_set(err, DS_ERR_TYPE, op->loc, "%s takes no '%s' clause; only collectives do%s",
                        desc->name,
                        op->n_over      ? "over"
                        : op->across    ? "across"
                        : op->has_group ? "group"
                        : has_dim       ? "dim"
                        : has_place     ? "to"
                                        : "tag",
                        has_dim ? " (an op's dim is an attribute: { dim = 1 })" : "");
}

static void fill_args(const ds_infer *ctx, ds_rule_args *args) {
    const ds_exprs *exprs = &ctx->unit->exprs;
    *args = (ds_rule_args){.unit = ctx->unit,
                           .op = ctx->op,
                           .exprs = exprs,
                           .env = ctx->env,
                           .n_in = ctx->op->n_in,
                           .n_out = ctx->op->n_out};
    for (uint32_t i = 0; i < ctx->op->n_in && i < DS_MAX_OPERANDS; i++) {
        args->in_rank[i] = (uint8_t)ctx->in[i]->rank;
        for (uint32_t d = 0; d < ctx->in[i]->rank; d++) {
            int64_t size;
            if (ds_expr_is_int(exprs, ctx->in[i]->dims[d].size, &size) && size == 1)
                args->in_ones[i] |= (uint8_t)(1u << d);
        }
    }
}

ds_status ds_op_rule(const ds_infer *ctx, ds_rule *out, ds_error *err) {
    if (ctx->op->code == DS_OP_RESHAPE) return ds_ops__reshape_rule(ctx, out, err);
    ds_rule_args args;
    fill_args(ctx, &args);
    return ds_ops__rule(&args, out, err);
}

ds_status ds_ops__infer_by_rule(const ds_infer *ctx, ds_error *err) {
    ds_rule rule;
    ds_match match;
    DS_TRY(ds_op_rule(ctx, &rule, err));
    ds_ops__match_init(&match, ctx, &rule);
    return ds_ops__match_run(&match, err);
}

ds_status ds_ops__infer_making(const ds_infer *ctx, uint32_t made, ds_error *err) {
    const ds_type *written = ctx->out[0];
    DS_TRY(ds_ops__infer_by_rule(ctx, err));
    ds_type *out = ctx->out[0];
    if (!written || written->rank != out->rank) return DS_OK;
    for (uint32_t d = 0; d < out->rank; d++) {
        if (!(made & (1u << d))) continue;
        out->dims[d].splits = written->dims[d].splits;
        out->dims[d].n_splits = written->dims[d].n_splits;
    }
    char what[64];
    snprintf(what, sizeof what, "%.40s: the result", ds_op_name(ctx->op->code));
    return ds_op_check_type(ctx, out, what, ctx->op->loc, err);
}

/* What is in a host's memory is reloaded before anything else is done with it. */
static ds_status check_memories(const ds_infer *ctx, const ds_op_desc *desc, ds_error *err) {
    const ds_op *op = ctx->op;
    bool reloads = op->code == DS_OP_RELOAD;
    for (uint32_t i = 0; i < op->n_in && op->code != DS_OP_AFTER; i++) {
        if (ctx->in[i]->host == reloads) continue;
        return ds_error_set(err, DS_ERR_TYPE, op->in[i].loc,
                            reloads ? "%s: operand %u is %s, in the device's own memory"
                                    : "%s: operand %u is %s, in the host's memory; reload it first",
                            desc->name, i, ds_ops__type_text(ctx, ctx->in[i]));
    }
    return DS_OK;
}

static ds_status infer(const ds_infer *ctx, const ds_op_desc *desc, ds_error *err) {
    DS_TRY(check_arity(ctx, desc, err));
    DS_TRY(ds_ops__check_attrs(ctx, desc, err));
    if (!(desc->flags & DS_OPF_COLLECTIVE)) DS_TRY(no_clauses(ctx, desc, err));
    DS_TRY(check_memories(ctx, desc, err));
    DS_TRY(ds_ops__dtypes(ctx, desc, NULL, err));
    return desc->infer ? desc->infer(ctx, err) : ds_ops__infer_by_rule(ctx, err);
}

ds_status ds_op_infer(const ds_infer *ctx, ds_error *err) {
    const ds_op_desc *desc = ds_op_desc_of(ctx->op->code);
    if (!desc)
        return ds_error_set(err, DS_ERR_INTERNAL, ctx->op->loc, "'%s' is not in the op table",
                            ds_op_name(ctx->op->code));
    DS_TRY(ds_stop_check(ctx->unit->stop, err)); /* every pass and check comes by here */
    return ds_ops__infer_once(ctx, desc, infer, err);
}
