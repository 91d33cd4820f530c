/* Gradients of products and convolutions.
 *
 * A product by a factor rule has gradients by factor rules of the same letters: operand i's place
 * is taken by dy, and the result's by operand i. `m k, k n -> m n` gives `m n, k n -> m k` and
 * `m k, m n -> k n`. */
#include "ir/passes/grad/vjp.h"

#include <stdio.h>
#include <string.h>

static bool term_has(const ds_rule_term *term, uint32_t f) {
    for (uint32_t d = 0; d < term->n; d++)
        for (uint32_t k = 0; k < term->dims[d].n; k++)
            if (term->dims[d].factors[k] == f) return true;
    return false;
}

static bool any_has(const ds_rule *rule, uint32_t f) {
    for (uint32_t i = 0; i < rule->n_in; i++)
        if (term_has(&rule->in[i], f)) return true;
    return false;
}

static ds_status rule_of(ds_vjp *v, ds_rule *out, ds_error *err) {
    ds_unit *unit = v->g->unit;
    const ds_type *in[DS_MAX_OPERANDS];
    for (uint32_t i = 0; i < v->op->n_in; i++)
        in[i] = ds_type_plain(&unit->arena, ds_use_type(unit, v->g->old, &v->op->in[i]));
    ds_infer ctx = {.unit = unit, .func = v->g->old, .op = v->op, .in = in};
    return ds_op_rule(&ctx, out, err);
}

/* Takes the dims out of the result that no operand has any more: x's dims that the forward op
 * summed at once. They are repeated afterwards. */
static ds_status drop_lost(ds_vjp *v, ds_rule *rule, uint32_t *lost, uint32_t *n, ds_error *err) {
    ds_rule_term *out = &rule->out[0];
    uint32_t kept = 0, rank = out->n;
    *n = 0;
    for (uint32_t d = 0; d < rank; d++) {
        uint32_t missing = 0;
        for (uint32_t k = 0; k < out->dims[d].n; k++)
            missing += !any_has(rule, out->dims[d].factors[k]);
        if (missing && missing < out->dims[d].n)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, v->op->loc,
                                "grad: %s sums a part of a dim that no other operand has",
                                ds_op_name(v->op->code));
        if (missing)
            lost[(*n)++] = d;
        else
            out->dims[kept++] = out->dims[d];
    }
    out->n = (uint8_t)kept;
    return DS_OK;
}

/* Sums are what the result lacks, which is how rules are read: only `whole` is said. */
static const char *rule_text(ds_vjp *v, ds_rule *rule) {
    for (uint32_t f = 0; f < rule->n_factors; f++) {
        bool used = any_has(rule, f) || term_has(&rule->out[0], f);
        if (!used || rule->kinds[f] != DS_FACTOR_WHOLE) rule->kinds[f] = DS_FACTOR_PAR;
    }
    rule->leading_kind = DS_FACTOR_PAR;
    ds_buf text = {0};
    ds_rule_print(rule, &text);
    const char *copy = ds_intern(&v->g->unit->strings, text.text);
    ds_buf_deinit(&text);
    return copy;
}

static ds_status expand_lost(ds_vjp *v, uint32_t i, const uint32_t *lost, uint32_t n,
                             const char *suffix, ds_use *use, ds_error *err) {
    const ds_type *type = ds_vjp_in_type(v, i);
    ds_expr dims[DS_MAX_RANK], sizes[DS_MAX_RANK];
    for (uint32_t k = 0; k < n; k++) {
        dims[k] = ds_vjp_int(v, lost[k]);
        sizes[k] = type->dims[lost[k]].size;
    }
    ds_op *op = ds_vjp_op(v, DS_OP_EXPAND);
    ds_vjp_read(v, op, *use);
    ds_build_attr_exprs(&v->g->b, op, "dims", dims, n);
    ds_build_attr_exprs(&v->g->b, op, "sizes", sizes, n);
    return ds_vjp_put(v, op, suffix, i, use, err);
}

/* Products in a dtype of their own stay so in the backward pass, where dy is converted for the
 * first of them that reads it. */
static void keep_products(ds_vjp *v, ds_op *op, uint32_t dy, bool converts) {
    const ds_attr *products = ds_attr_find(v->op->attrs, v->op->n_attrs, "products");
    if (!products) return;
    ds_build_attr(&v->g->b, op, *products);
    if (converts) ds_build_attr_int(&v->g->b, op, "converts", dy);
}

static ds_status product(ds_vjp *v, const ds_rule *forward, uint32_t i, bool converts,
                         const char *suffix, ds_use *dx, ds_error *err) {
    ds_rule rule = *forward;
    uint32_t lost[DS_MAX_RANK], n_lost;
    rule.in[i] = forward->out[0];
    rule.out[0] = forward->in[i];
    DS_TRY(drop_lost(v, &rule, lost, &n_lost, err));
    ds_use dy;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_op *op = ds_vjp_op(v, DS_OP_EINSUM);
    for (uint32_t k = 0; k < v->op->n_in; k++) ds_vjp_read(v, op, k == i ? dy : ds_vjp_in(v, k));
    ds_build_attr_text(&v->g->b, op, "rule", rule_text(v, &rule));
    keep_products(v, op, i, converts);
    DS_TRY(ds_vjp_put(v, op, suffix, n_lost ? DS_LIKE_NONE : i, dx, err));
    return n_lost ? expand_lost(v, i, lost, n_lost, suffix, dx, err) : DS_OK;
}

/* All products first, then the sums that they go into: a sum may wait for a communication (of the
 * input's gradient over tp), beside which the weight's product can be computed. */
ds_status ds_vjp__einsum(ds_vjp *v, ds_error *err) {
    ds_rule rule;
    ds_use dx[DS_MAX_OPERANDS];
    bool converted = false;
    DS_TRY(rule_of(v, &rule, err));
    for (uint32_t i = 0; i < v->op->n_in; i++) {
        char suffix[8];
        snprintf(suffix, sizeof suffix, ".d%u", i % 1000);
        if (v->op->n_in <= 2) strcpy(suffix, i ? ".dw" : ".dx");
        if (!ds_vjp_wants(v, i)) continue;
        DS_TRY(product(v, &rule, i, !converted, suffix, &dx[i], err));
        converted = true;
    }
    for (uint32_t i = 0; i < v->op->n_in; i++)
        if (ds_vjp_wants(v, i)) DS_TRY(ds_vjp_give(v, i, dx[i], err));
    return DS_OK;
}

/* ---- convolutions ---- */

static void pair_attr(ds_vjp *v, ds_op *op, const char *name, const ds_type *type) {
    ds_expr items[2] = {type->dims[type->rank - 2].size, type->dims[type->rank - 1].size};
    ds_build_attr_exprs(&v->g->b, op, name, items, 2);
}

ds_status ds_vjp__conv2d(ds_vjp *v, ds_error *err) {
    static const char *const attrs[] = {"stride", "pad", "dilation", "groups", NULL};
    ds_use dy, dx;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    if (ds_vjp_wants(v, 0)) {
        ds_op *op = ds_vjp_op(v, DS_OP_CONV2D_GRAD_X);
        ds_vjp_read(v, op, dy);
        ds_vjp_read(v, op, ds_vjp_in(v, 1));
        pair_attr(v, op, "size", ds_vjp_in_type(v, 0));
        ds_vjp_attrs(v, op, attrs);
        DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
        DS_TRY(ds_vjp_give(v, 0, dx, err));
    }
    if (!ds_vjp_wants(v, 1)) return DS_OK;
    ds_op *op = ds_vjp_op(v, DS_OP_CONV2D_GRAD_W);
    ds_vjp_read(v, op, ds_vjp_in(v, 0));
    ds_vjp_read(v, op, dy);
    pair_attr(v, op, "window", ds_vjp_in_type(v, 1));
    ds_vjp_attrs(v, op, attrs);
    DS_TRY(ds_vjp_put(v, op, ".dw", 1, &dx, err));
    return ds_vjp_give(v, 1, dx, err);
}

ds_status ds_vjp__avg_pool(ds_vjp *v, ds_error *err) {
    ds_use dy, dx;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_op *op = ds_vjp_op(v, DS_OP_AVG_POOL_GRAD);
    ds_vjp_read(v, op, dy);
    pair_attr(v, op, "size", ds_vjp_in_type(v, 0));
    ds_vjp_attrs(v, op, (const char *const[]){"window", "stride", "pad", NULL});
    DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}
