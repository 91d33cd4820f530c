/* The gradient of one op: the functions that the op table names by VJP, what they are written with,
 * and elementwise ops. */
#include "ir/passes/grad/vjp.h"

#include <stdio.h>
#include <string.h>

static ds_arena *arena_of(ds_vjp *v) {
    return &v->g->unit->arena;
}

/* ---- operands, results, their gradients ---- */

bool ds_vjp_wants(const ds_vjp *v, uint32_t i) {
    return i < v->op->n_in && v->g->live[v->op->in[i].value.i];
}

static ds_grad_slot *slot_of(const ds_vjp *v, uint32_t r) {
    ds_use result = ds_use_of(v->op->out[r]);
    return r < v->op->n_out ? ds_grad__slot(v->g, &result) : NULL;
}

bool ds_vjp_has(const ds_vjp *v, uint32_t r) {
    return r < v->op->n_out && slot_of(v, r);
}

ds_status ds_vjp_dy(ds_vjp *v, uint32_t r, ds_use *out, ds_error *err) {
    ds_use result = ds_use_of(v->op->out[r]);
    ds_grad_slot *slot = slot_of(v, r);
    ds_grad_term term = slot ? slot->term : (ds_grad_term){.is_const = true};
    const char *name = ds_grad__name(v->g, result.value, ".grad");
    DS_TRY(ds_grad__make(v->g, &term, ds_grad__type(v->g, &result), name, err));
    if (slot) slot->term = term;
    *out = term.use;
    return DS_OK;
}

static ds_use result_use(const ds_vjp *v, uint32_t r) {
    if (r < v->op->n_out) return ds_use_of(v->op->out[r]);
    uint64_t *extra = ds_map_find(&v->g->extra, DS_KEY(v->op));
    return ds_use_of((ds_value){(uint32_t)*extra});
}

ds_use ds_vjp_in(ds_vjp *v, uint32_t i) {
    return ds_grad__read(v->g, &v->op->in[i]);
}

ds_use ds_vjp_out(ds_vjp *v, uint32_t r) {
    ds_use use = result_use(v, r);
    return ds_grad__read(v->g, &use);
}

const ds_type *ds_vjp_in_type(ds_vjp *v, uint32_t i) {
    return ds_grad__type(v->g, &v->op->in[i]);
}

const ds_type *ds_vjp_out_type(ds_vjp *v, uint32_t r) {
    ds_use use = result_use(v, r);
    return ds_grad__type(v->g, &use);
}

/* ---- making ops ---- */

ds_op *ds_vjp_op(ds_vjp *v, ds_opcode code) {
    ds_op *op = ds_build_op(&v->g->b, code);
    op->loc = v->op->loc;
    return op;
}

void ds_vjp_read(ds_vjp *v, ds_op *op, ds_use use) {
    ds_build_in(&v->g->b, op, use);
}

/* The attributes are those of the new forward op, which may have gained some. */
void ds_vjp_attrs(ds_vjp *v, ds_op *op, const char *const *names) {
    uint64_t *made = ds_map_find(&v->g->copy.ops, DS_KEY(v->op));
    const ds_op *from = made ? (const ds_op *)(uintptr_t)*made : v->op;
    for (; *names; names++) {
        const ds_attr *attr = ds_attr_find(from->attrs, from->n_attrs, *names);
        if (attr) ds_build_attr(&v->g->b, op, ds_grad__rev_attr(v->g, *attr));
    }
}

ds_value ds_vjp_result(ds_vjp *v, ds_op *op, const char *suffix, uint32_t like) {
    const ds_type *type = like == DS_LIKE_NONE ? NULL : ds_grad__written(v->g, &v->op->in[like]);
    const ds_attr *name = ds_attr_find(v->op->attrs, v->op->n_attrs, "name");
    const char *text = name ? ds_attr_text(&v->g->unit->exprs, name) : NULL;
    if (text && !op->n_out)
        ds_build_attr_text(&v->g->b, op, "name", ds_arena_join(arena_of(v), text, suffix));
    return ds_build_out(&v->g->b, op, ds_grad__name(v->g, v->op->out[0], suffix), type);
}

ds_status ds_vjp_put(ds_vjp *v, ds_op *op, const char *suffix, uint32_t like, ds_use *out,
                     ds_error *err) {
    *out = ds_use_of(ds_vjp_result(v, op, suffix, like));
    return ds_build_put(&v->g->b, op, err);
}

ds_status ds_vjp_unary(ds_vjp *v, ds_opcode code, ds_use x, const char *suffix, uint32_t like,
                       ds_use *out, ds_error *err) {
    ds_op *op = ds_vjp_op(v, code);
    ds_vjp_read(v, op, x);
    return ds_vjp_put(v, op, suffix, like, out, err);
}

ds_op *ds_vjp_binary(ds_vjp *v, ds_opcode code, ds_use x, ds_use y) {
    ds_op *op = ds_vjp_op(v, code);
    ds_vjp_read(v, op, x);
    ds_vjp_read(v, op, y);
    return op;
}

static ds_status give(ds_vjp *v, uint32_t i, ds_grad_term term, ds_error *err) {
    if (!ds_vjp_wants(v, i)) return DS_OK;
    ds_dtype wanted = ds_vjp_in_type(v, i)->dtype;
    if (!term.is_const && ds_use_type(v->g->unit, v->g->b.func, &term.use)->dtype != wanted) {
        ds_op *cast = ds_vjp_op(v, DS_OP_CAST);
        ds_vjp_read(v, cast, term.use);
        ds_build_attr_word(&v->g->b, cast, "dtype", ds_dtype_name(wanted));
        DS_TRY(ds_vjp_put(v, cast, ".cast.dx", i, &term.use, err));
        term.owned = true;
    }
    return ds_grad__give(v->g, &v->op->in[i], term, err);
}

ds_status ds_vjp_give(ds_vjp *v, uint32_t i, ds_use use, ds_error *err) {
    return give(v, i, (ds_grad_term){.use = use, .owned = true}, err);
}

ds_status ds_vjp_pass(ds_vjp *v, uint32_t i, ds_error *err) {
    ds_grad_slot *slot = slot_of(v, 0);
    if (!slot) return DS_OK;
    ds_grad_term term = slot->term;
    term.owned = false;
    if (term.is_const && ds_vjp_in_type(v, i)->rank != ds_vjp_out_type(v, 0)->rank)
        return ds_error_set(err, DS_ERR_INTERNAL, v->op->loc, "a constant gradient is broadcast");
    return give(v, i, term, err);
}

/* ---- broadcasting, shapes ---- */

static bool is_one(ds_vjp *v, ds_expr e) {
    int64_t size;
    return ds_expr_is_int(&v->g->unit->exprs, e, &size) && size == 1;
}

static ds_op *sum_op(ds_vjp *v, const int64_t *dims, uint32_t n, bool keep, ds_use x) {
    ds_expr items[DS_MAX_RANK];
    for (uint32_t i = 0; i < n; i++) items[i] = ds_vjp_int(v, dims[i]);
    ds_op *op = ds_vjp_op(v, DS_OP_REDUCE_SUM);
    ds_vjp_read(v, op, x);
    ds_build_attr_exprs(&v->g->b, op, "dims", items, n);
    if (keep) ds_build_attr_bool(&v->g->b, op, "keep", true);
    return op;
}

ds_status ds_vjp_unbroadcast(ds_vjp *v, uint32_t i, const char *suffix, ds_use *use, bool *made,
                             ds_error *err) {
    const ds_type *to = ds_vjp_in_type(v, i), *from = ds_vjp_out_type(v, 0);
    int64_t lead[DS_MAX_RANK], ones[DS_MAX_RANK];
    uint32_t n_lead = from->rank - to->rank, n_ones = 0;
    for (uint32_t d = 0; d < n_lead; d++) lead[d] = d;
    for (uint32_t d = 0; d < to->rank; d++)
        if (is_one(v, to->dims[d].size) && !is_one(v, from->dims[n_lead + d].size))
            ones[n_ones++] = d;
    if (n_lead)
        DS_TRY(ds_vjp_put(v, sum_op(v, lead, n_lead, false, *use), suffix,
                          n_ones ? DS_LIKE_NONE : i, use, err));
    if (n_ones) DS_TRY(ds_vjp_put(v, sum_op(v, ones, n_ones, true, *use), suffix, i, use, err));
    *made = n_lead || n_ones;
    return DS_OK;
}

ds_status ds_vjp_reshape(ds_vjp *v, ds_use x, const ds_type *type, const char *suffix,
                         uint32_t like, ds_use *out, ds_error *err) {
    ds_expr dims[DS_MAX_RANK];
    for (uint32_t d = 0; d < type->rank; d++) dims[d] = type->dims[d].size;
    ds_op *op = ds_vjp_op(v, DS_OP_RESHAPE);
    ds_vjp_read(v, op, x);
    if (!type->rank) { /* a scalar's shape is best written as a type */
        *out = ds_use_of(ds_build_out(&v->g->b, op, ds_grad__name(v->g, v->op->out[0], suffix),
                                      ds_type_plain(arena_of(v), type)));
        return ds_build_put(&v->g->b, op, err);
    }
    ds_build_attr_exprs(&v->g->b, op, "shape", dims, type->rank);
    return ds_vjp_put(v, op, suffix, like, out, err);
}

ds_status ds_vjp_upstream(ds_vjp *v, ds_use *x, const char *suffix, uint32_t like, ds_error *err) {
    ds_grad_term term = slot_of(v, 0)->term;
    if (term.is_const) {
        if (term.c == 1) return DS_OK;
        ds_op *op = ds_vjp_op(v, DS_OP_SCALE);
        ds_vjp_read(v, op, *x);
        ds_build_attr_real(&v->g->b, op, "factor", term.c);
        return ds_vjp_put(v, op, suffix, like, x, err);
    }
    ds_use dy = term.use;
    const ds_type *of_dy = ds_vjp_out_type(v, 0), *of_x = ds_vjp_in_type(v, 0);
    if (of_dy->rank && of_dy->rank + 1 == of_x->rank) { /* one number a row */
        ds_expr dims[DS_MAX_RANK];
        for (uint32_t d = 0; d < of_dy->rank; d++) dims[d] = of_dy->dims[d].size;
        dims[of_dy->rank] = ds_vjp_int(v, 1);
        const ds_type *column = ds_type_make(arena_of(v), of_dy->dtype, dims, of_dy->rank + 1);
        DS_TRY(ds_vjp_reshape(v, dy, column, ".grad.column", DS_LIKE_NONE, &dy, err));
    }
    if (ds_use_type(v->g->unit, v->g->b.func, &dy)->dtype != of_x->dtype) {
        ds_op *cast = ds_vjp_op(v, DS_OP_CAST);
        ds_vjp_read(v, cast, dy);
        ds_build_attr_word(&v->g->b, cast, "dtype", ds_dtype_name(of_x->dtype));
        DS_TRY(ds_vjp_put(v, cast, ".grad.cast", DS_LIKE_NONE, &dy, err));
    }
    return ds_vjp_put(v, ds_vjp_binary(v, DS_OP_MUL, *x, dy), suffix, like, x, err);
}

/* ---- attributes ---- */

ds_expr ds_vjp_fold(ds_vjp *v, ds_expr_kind kind, ds_expr a, ds_expr b) {
    return ds_expr_fold(&v->g->unit->exprs, kind, a, b);
}

ds_expr ds_vjp_int(ds_vjp *v, int64_t i) {
    return ds_expr_int(&v->g->unit->exprs, i);
}

ds_status ds_vjp_ints(ds_vjp *v, const char *name, int64_t out[DS_MAX_RANK], uint32_t *n,
                      ds_error *err) {
    const ds_attr *attr = ds_attr_find(v->op->attrs, v->op->n_attrs, name);
    ds_env env = ds_binding_env(&v->g->step->binding, NULL);
    *n = 0;
    if (!attr) return DS_OK;
    if (attr->kind == DS_ATTR_EXPR) {
        *n = 1;
        return ds_expr_eval_int(&env, attr->expr, attr->loc, &out[0], err);
    }
    for (; *n < attr->n_items && *n < DS_MAX_RANK; ++*n)
        DS_TRY(ds_expr_eval_int(&env, attr->items[*n].expr, attr->loc, &out[*n], err));
    return DS_OK;
}

ds_status ds_vjp_dim(ds_vjp *v, const char *name, uint32_t rank, int64_t otherwise, uint32_t *out,
                     ds_error *err) {
    int64_t list[DS_MAX_RANK];
    uint32_t n;
    DS_TRY(ds_vjp_ints(v, name, list, &n, err));
    int64_t dim = n ? list[0] : otherwise;
    *out = (uint32_t)(dim < 0 ? dim + (int64_t)rank : dim);
    return DS_OK;
}

/* ---- gradients that the table describes ---- */

static const ds_op_desc *desc_of(const ds_vjp *v) {
    return ds_op_desc_of(v->op->code);
}

/* The attributes that the forward op and the op of the backward pass both have. */
static void shared_attrs(ds_vjp *v, ds_op *op) {
    const char *attrs = ds_op_desc_of(op->code)->attrs;
    for (size_t n; attrs && *attrs; attrs += n + strspn(attrs + n, " ")) {
        char name[32];
        n = strcspn(attrs, " ");
        snprintf(name, sizeof name, "%.*s", (int)strcspn(attrs, ":"), attrs);
        ds_vjp_attrs(v, op, (const char *const[]){name, NULL});
    }
}

/* backward(dy, what the line saves). */
ds_status ds_vjp__by_backward(ds_vjp *v, ds_error *err) {
    const ds_op_desc *desc = desc_of(v);
    ds_use dy, dx;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_op *op = ds_vjp_op(v, desc->backward);
    ds_vjp_read(v, op, dy);
    for (uint32_t i = 0; i < v->op->n_in; i++)
        if (ds_op_saves_operand(desc, 0, i)) ds_vjp_read(v, op, ds_vjp_in(v, i));
    for (uint32_t r = 0; r < v->op->n_out; r++)
        if (ds_op_saves_result(desc, 0, r)) ds_vjp_read(v, op, ds_vjp_out(v, r));
    shared_attrs(v, op);
    DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

/* ---- elementwise ---- */

/* A constant stays one: a loss that is scaled needs no op. */
ds_status ds_vjp__scale(ds_vjp *v, ds_error *err) {
    ds_grad_term term = slot_of(v, 0)->term;
    const ds_attr *factor = ds_attr_find(v->op->attrs, v->op->n_attrs, "factor");
    ds_env env = ds_binding_env(&v->g->step->binding, NULL);
    double by;
    if (term.is_const && ds_expr_eval_real(&env, factor->expr, factor->loc, &by, NULL) == DS_OK) {
        term.c *= by;
        return give(v, 0, term, err);
    }
    return ds_vjp__by_backward(v, err);
}

/* Operand 0 alone passes through; give() casts. */
ds_status ds_vjp__pass(ds_vjp *v, ds_error *err) {
    return ds_vjp_pass(v, 0, err);
}

ds_status ds_vjp__add(ds_vjp *v, ds_error *err) {
    DS_TRY(ds_vjp_pass(v, 0, err));
    if (!ds_vjp_wants(v, 1)) return DS_OK;
    if (slot_of(v, 0)->term.is_const && !ds_vjp_out_type(v, 0)->rank) return ds_vjp_pass(v, 1, err);
    ds_use db;
    bool made;
    DS_TRY(ds_vjp_dy(v, 0, &db, err));
    DS_TRY(ds_vjp_unbroadcast(v, 1, ".db", &db, &made, err));
    return give(v, 1, (ds_grad_term){.use = db, .owned = made}, err);
}

ds_status ds_vjp__sub(ds_vjp *v, ds_error *err) {
    DS_TRY(ds_vjp_pass(v, 0, err));
    if (!ds_vjp_wants(v, 1)) return DS_OK;
    ds_use db;
    bool made;
    DS_TRY(ds_vjp_dy(v, 0, &db, err));
    DS_TRY(ds_vjp_unbroadcast(v, 1, ".db.sum", &db, &made, err));
    DS_TRY(ds_vjp_unary(v, DS_OP_NEG, db, ".db", 1, &db, err));
    return ds_vjp_give(v, 1, db, err);
}

ds_status ds_vjp__bias(ds_vjp *v, ds_error *err) {
    DS_TRY(ds_vjp_pass(v, 0, err));
    if (!ds_vjp_wants(v, 1)) return DS_OK;
    uint32_t rank = ds_vjp_out_type(v, 0)->rank, dim, n = 0;
    DS_TRY(ds_vjp_dim(v, "dim", rank, -1, &dim, err));
    int64_t dims[DS_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++)
        if (d != dim) dims[n++] = d;
    ds_use db;
    DS_TRY(ds_vjp_dy(v, 0, &db, err));
    if (!n) return give(v, 1, (ds_grad_term){.use = db}, err);
    DS_TRY(ds_vjp_put(v, sum_op(v, dims, n, false, db), ".db", 1, &db, err));
    return ds_vjp_give(v, 1, db, err);
}

ds_status ds_vjp__mul(ds_vjp *v, ds_error *err) {
    ds_use dy, da, db;
    bool made;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    if (ds_vjp_wants(v, 0)) {
        DS_TRY(ds_vjp_put(v, ds_vjp_binary(v, DS_OP_MUL, dy, ds_vjp_in(v, 1)), ".da", 0, &da, err));
        DS_TRY(ds_vjp_give(v, 0, da, err));
    }
    if (!ds_vjp_wants(v, 1)) return DS_OK;
    DS_TRY(ds_vjp_put(v, ds_vjp_binary(v, DS_OP_MUL, dy, ds_vjp_in(v, 0)), ".db", DS_LIKE_NONE, &db,
                      err));
    DS_TRY(ds_vjp_unbroadcast(v, 1, ".db.sum", &db, &made, err));
    return ds_vjp_give(v, 1, db, err);
}

/* y = a / b: da = dy / b, db = -dy y / b. */
ds_status ds_vjp__div(ds_vjp *v, ds_error *err) {
    ds_use dy, da, db;
    bool made;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    DS_TRY(ds_vjp_put(v, ds_vjp_binary(v, DS_OP_DIV, dy, ds_vjp_in(v, 1)), ".da", 0, &da, err));
    if (ds_vjp_wants(v, 0)) DS_TRY(ds_vjp_give(v, 0, da, err));
    if (!ds_vjp_wants(v, 1)) return DS_OK;
    DS_TRY(ds_vjp_put(v, ds_vjp_binary(v, DS_OP_MUL, da, ds_vjp_out(v, 0)), ".db.product",
                      DS_LIKE_NONE, &db, err));
    DS_TRY(ds_vjp_unbroadcast(v, 1, ".db.sum", &db, &made, err));
    DS_TRY(ds_vjp_unary(v, DS_OP_NEG, db, ".db", 1, &db, err));
    return ds_vjp_give(v, 1, db, err);
}

ds_status ds_vjp__accumulate(ds_vjp *v, ds_error *err) {
    DS_TRY(ds_vjp_pass(v, 0, err));
    return ds_vjp_pass(v, 1, err);
}

ds_status ds_vjp__sqrt(ds_vjp *v, ds_error *err) {
    ds_use dy, dx;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_op *half = ds_vjp_op(v, DS_OP_SCALE);
    ds_vjp_read(v, half, dy);
    ds_build_attr_real(&v->g->b, half, "factor", 0.5);
    DS_TRY(ds_vjp_put(v, half, ".dx.half", DS_LIKE_NONE, &dx, err));
    DS_TRY(ds_vjp_put(v, ds_vjp_binary(v, DS_OP_DIV, dx, ds_vjp_out(v, 0)), ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

/* ---- the table ---- */

#define VJP(f)                       .fn = ds_vjp__##f,
#define OP(ID, MNEMONIC, ROOMS, ...) [DS_OP_##ID] = {.code = DS_OP_##ID, ROOMS},
static const struct {
    ds_opcode code;
    ds_vjp_fn *fn;
} table[DS_OP_COUNT] = {
#include "ir/ops/ops.def"
};

ds_status ds_grad__vjp(ds_grad *g, const ds_op *op, ds_error *err) {
    ds_vjp v = {.g = g, .op = op};
    bool wanted = false;
    for (uint32_t i = 0; i < op->n_in; i++) wanted |= ds_vjp_wants(&v, i);
    if (!wanted) return DS_OK;
    ds_vjp_fn *fn = op->code < DS_OP_COUNT ? table[op->code].fn : NULL;
    if (fn) {
        DS_TRY(ds_grad__read_again(g, op, err));
        return fn(&v, err);
    }
    return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                        "grad: %%%s = %s(…) is on the way from a weight to the loss, and '%s' "
                        "has no gradient",
                        ds_value_at(g->old, op->out[0])->name, ds_op_name(op->code),
                        ds_op_name(op->code));
}
