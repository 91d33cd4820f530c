/* Gradients of layout ops and reductions: each is the transpose of the op as a linear map. */
#include "ir/passes/grad/vjp.h"

static ds_expr attr_expr(ds_vjp *v, const char *name, int64_t otherwise) {
    const ds_attr *attr = ds_attr_find(v->op->attrs, v->op->n_attrs, name);
    return attr ? ds_grad__rev(v->g, attr->expr) : ds_vjp_int(v, otherwise);
}

ds_status ds_vjp__reshape(ds_vjp *v, ds_error *err) {
    ds_use dy, dx;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    DS_TRY(ds_vjp_reshape(v, dy, ds_vjp_in_type(v, 0), ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

ds_status ds_vjp__transpose(ds_vjp *v, ds_error *err) {
    int64_t perm[DS_MAX_RANK];
    uint32_t n;
    ds_expr inverse[DS_MAX_RANK];
    ds_use dy, dx;
    DS_TRY(ds_vjp_ints(v, "perm", perm, &n, err));
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_op *op = ds_vjp_op(v, DS_OP_TRANSPOSE);
    ds_vjp_read(v, op, dy);
    for (uint32_t i = 0; i < n; i++) {
        int64_t from = perm[i] < 0 ? perm[i] + (int64_t)n : perm[i];
        inverse[from] = ds_vjp_int(v, i);
    }
    if (n) ds_build_attr_exprs(&v->g->b, op, "perm", inverse, n);
    DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

/* Dim `dim` goes back to the front. */
ds_status ds_vjp__stack(ds_vjp *v, ds_error *err) {
    uint32_t dim, rank = ds_vjp_in_type(v, 0)->rank;
    ds_expr perm[DS_MAX_RANK];
    ds_use dy, dx;
    DS_TRY(ds_vjp_dim(v, "dim", rank, 0, &dim, err));
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_op *op = ds_vjp_op(v, DS_OP_TRANSPOSE);
    ds_vjp_read(v, op, dy);
    for (uint32_t d = 0; d < rank; d++) perm[d] = ds_vjp_int(v, d == 0 ? dim : d - (d <= dim));
    ds_build_attr_exprs(&v->g->b, op, "perm", perm, rank);
    DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

/* ---- concat, split, slice, pad ---- */

static ds_op *slice_op(ds_vjp *v, ds_use x, uint32_t dim, ds_expr lo, ds_expr hi) {
    ds_op *op = ds_vjp_op(v, DS_OP_SLICE);
    ds_vjp_read(v, op, x);
    ds_build_attr_int(&v->g->b, op, "dim", dim);
    ds_build_attr_expr(&v->g->b, op, "lo", lo);
    ds_build_attr_expr(&v->g->b, op, "hi", hi);
    return op;
}

/* Operand i of a concat has the rows after those of the operands before it. */
ds_status ds_vjp__concat(ds_vjp *v, ds_error *err) {
    uint32_t dim;
    ds_use dy, dx;
    ds_expr lo = ds_vjp_int(v, 0);
    if (v->op->n_in == 1) return ds_vjp_pass(v, 0, err);
    DS_TRY(ds_vjp_dim(v, "dim", ds_vjp_out_type(v, 0)->rank, 0, &dim, err));
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    for (uint32_t i = 0; i < v->op->n_in; i++) {
        ds_expr hi = ds_vjp_fold(v, DS_EXPR_ADD, lo, ds_vjp_in_type(v, i)->dims[dim].size);
        if (ds_vjp_wants(v, i)) {
            const char *suffix = ds_arena_printf(&v->g->unit->arena, ".d%u", i);
            DS_TRY(ds_vjp_put(v, slice_op(v, dy, dim, lo, hi), suffix, i, &dx, err));
            DS_TRY(ds_vjp_give(v, i, dx, err));
        }
        lo = hi;
    }
    return DS_OK;
}

ds_status ds_vjp__split(ds_vjp *v, ds_error *err) {
    uint32_t dim;
    ds_use dy, dx;
    DS_TRY(ds_vjp_dim(v, "dim", ds_vjp_in_type(v, 0)->rank, 0, &dim, err));
    ds_op *op = ds_vjp_op(v, DS_OP_CONCAT);
    for (uint32_t r = 0; r < v->op->n_out; r++) {
        DS_TRY(ds_vjp_dy(v, r, &dy, err));
        ds_vjp_read(v, op, dy);
    }
    ds_build_attr_int(&v->g->b, op, "dim", dim);
    DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

/* The gradient of a store, with dy added to the slice's places. */
static ds_status add_in_place(ds_vjp *v, ds_grad_slot *slot, ds_use dy, uint32_t dim,
                              ds_error *err) {
    ds_use part, sum;
    ds_op *slice = slice_op(v, slot->term.use, dim, attr_expr(v, "lo", 0), attr_expr(v, "hi", 0));
    DS_TRY(ds_vjp_put(v, slice, ".before", DS_LIKE_NONE, &part, err));
    ds_op *add = ds_vjp_binary(v, DS_OP_ADD, dy, part), *put = ds_vjp_op(v, DS_OP_PUT);
    DS_TRY(ds_vjp_put(v, add, ".sum", DS_LIKE_NONE, &sum, err));
    ds_vjp_read(v, put, slot->term.use);
    ds_vjp_read(v, put, sum);
    ds_build_attr_int(&v->g->b, put, "dim", dim);
    ds_build_attr_expr(&v->g->b, put, "at", attr_expr(v, "lo", 0));
    DS_TRY(ds_vjp_put(v, put, ".dx", 0, &slot->term.use, err));
    slot->term.owned = true;
    return DS_OK;
}

ds_status ds_vjp__slice(ds_vjp *v, ds_error *err) {
    uint32_t dim;
    ds_use dy, dx;
    const ds_type *x = ds_vjp_in_type(v, 0);
    DS_TRY(ds_vjp_dim(v, "dim", x->rank, 0, &dim, err));
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_grad_slot *slot = ds_grad__slot(v->g, &v->op->in[0]);
    if (slot && !slot->term.is_const && ds_grad__is_store(v->g, v->op->in[0].value))
        return add_in_place(v, slot, dy, dim, err);
    ds_op *op = ds_vjp_op(v, DS_OP_PAD);
    ds_vjp_read(v, op, dy);
    ds_build_attr_int(&v->g->b, op, "dim", dim);
    ds_build_attr_expr(&v->g->b, op, "lo", attr_expr(v, "lo", 0));
    ds_expr rest = ds_vjp_fold(v, DS_EXPR_SUB, x->dims[dim].size, attr_expr(v, "hi", 0));
    ds_build_attr_expr(&v->g->b, op, "hi", rest);
    DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

ds_status ds_vjp__pad(ds_vjp *v, ds_error *err) {
    uint32_t dim;
    ds_use dy, dx;
    const ds_type *x = ds_vjp_in_type(v, 0);
    DS_TRY(ds_vjp_dim(v, "dim", x->rank, 0, &dim, err));
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_expr lo = attr_expr(v, "lo", 0);
    ds_expr hi = ds_vjp_fold(v, DS_EXPR_ADD, lo, x->dims[dim].size);
    DS_TRY(ds_vjp_put(v, slice_op(v, dy, dim, lo, hi), ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

/* The whole gets dy but for the part's place, the part gets dy there. */
ds_status ds_vjp__put(ds_vjp *v, ds_error *err) {
    uint32_t dim;
    ds_use dy, dx;
    const ds_type *part = ds_vjp_in_type(v, 1);
    DS_TRY(ds_vjp_dim(v, "dim", part->rank, 0, &dim, err));
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_expr at = attr_expr(v, "at", 0);
    if (ds_vjp_wants(v, 1)) {
        ds_expr end = ds_vjp_fold(v, DS_EXPR_ADD, at, part->dims[dim].size);
        DS_TRY(ds_vjp_put(v, slice_op(v, dy, dim, at, end), ".d1", 1, &dx, err));
        DS_TRY(ds_vjp_give(v, 1, dx, err));
    }
    if (!ds_vjp_wants(v, 0)) return DS_OK;
    if (ds_op_attr_bool(v->op, "once")) return ds_vjp_pass(v, 0, err); /* nobody reads the place */
    ds_op *zeros = ds_vjp_op(v, DS_OP_ZEROS), *put = ds_vjp_op(v, DS_OP_PUT);
    ds_use none;
    DS_TRY(ds_vjp_put(v, zeros, ".none", 1, &none, err));
    ds_vjp_read(v, put, dy);
    ds_vjp_read(v, put, none);
    ds_build_attr_int(&v->g->b, put, "dim", dim);
    ds_build_attr_expr(&v->g->b, put, "at", at);
    DS_TRY(ds_vjp_put(v, put, ".d0", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

/* ---- repetition and reduction ---- */

/* The dims that a reduction takes away, all of them by default. */
static ds_status reduced_dims(ds_vjp *v, bool reduced[DS_MAX_RANK], ds_error *err) {
    int64_t dims[DS_MAX_RANK];
    uint32_t n, rank = ds_vjp_in_type(v, 0)->rank;
    bool all = !ds_attr_find(v->op->attrs, v->op->n_attrs, "dims");
    DS_TRY(ds_vjp_ints(v, "dims", dims, &n, err));
    for (uint32_t d = 0; d < rank; d++) reduced[d] = all;
    for (uint32_t i = 0; i < n; i++)
        reduced[dims[i] < 0 ? dims[i] + (int64_t)rank : dims[i]] = true;
    return DS_OK;
}

/* dy over the dims that were reduced. */
static ds_status spread(ds_vjp *v, ds_use dy, ds_error *err) {
    bool reduced[DS_MAX_RANK];
    const ds_type *x = ds_vjp_in_type(v, 0);
    ds_expr dims[DS_MAX_RANK], sizes[DS_MAX_RANK], kept[DS_MAX_RANK];
    uint32_t n = 0, n_kept = 0;
    ds_use dx;
    DS_TRY(reduced_dims(v, reduced, err));
    for (uint32_t d = 0; d < x->rank; d++) {
        if (!reduced[d]) {
            kept[n_kept++] = x->dims[d].size;
            continue;
        }
        dims[n] = ds_vjp_int(v, d);
        sizes[n++] = x->dims[d].size;
    }
    if (n && ds_op_attr_bool(v->op, "keep")) {
        const ds_type *flat = ds_type_make(&v->g->unit->arena, x->dtype, kept, n_kept);
        DS_TRY(ds_vjp_reshape(v, dy, flat, ".dx.flat", DS_LIKE_NONE, &dy, err));
    }
    if (!n) return ds_vjp_pass(v, 0, err);
    ds_op *op = ds_vjp_op(v, DS_OP_EXPAND);
    ds_vjp_read(v, op, dy);
    ds_build_attr_exprs(&v->g->b, op, "dims", dims, n);
    ds_build_attr_exprs(&v->g->b, op, "sizes", sizes, n);
    DS_TRY(ds_vjp_put(v, op, ".dx", 0, &dx, err));
    return ds_vjp_give(v, 0, dx, err);
}

ds_status ds_vjp__reduce_sum(ds_vjp *v, ds_error *err) {
    ds_use dy;
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    return spread(v, dy, err);
}

ds_status ds_vjp__reduce_mean(ds_vjp *v, ds_error *err) {
    bool reduced[DS_MAX_RANK];
    const ds_type *x = ds_vjp_in_type(v, 0);
    ds_exprs *exprs = &v->g->unit->exprs;
    ds_use dy;
    DS_TRY(reduced_dims(v, reduced, err));
    DS_TRY(ds_vjp_dy(v, 0, &dy, err));
    ds_expr n = ds_vjp_int(v, 1);
    for (uint32_t d = 0; d < x->rank; d++)
        if (reduced[d]) n = ds_vjp_fold(v, DS_EXPR_MUL, n, x->dims[d].size);
    const char *text = ds_intern(&v->g->unit->strings, "1.0");
    ds_expr one = ds_expr_make(exprs, (ds_expr_node){.kind = DS_EXPR_REAL, .r = 1, .name = text});
    ds_op *op = ds_vjp_op(v, DS_OP_SCALE);
    ds_vjp_read(v, op, dy);
    ds_build_attr_expr(&v->g->b, op, "factor", ds_expr_binary(exprs, DS_EXPR_DIV, one, n));
    DS_TRY(ds_vjp_put(v, op, ".dx.mean", DS_LIKE_NONE, &dy, err));
    return spread(v, dy, err);
}
