/* How stores are read: where a point lies, and the points of a read as one tensor.
 *
 * Points lie in row-major order along the store's axis. A range of the minor dim is one slice.
 * Ranges of other dims, or of several, are taken from the outermost dim in: a slice of whole rows,
 * whose axis a reshape parts into the range and a row, and so on in the rows. */
#include "ir/passes/lower/rec_internal.h"

/* Slots along the store's dim `k`. */
static int64_t room_of(const ds_lower_store *store, uint32_t k) {
    return store->slots[k] * (k + 1 == store->n_dims && store->twice ? 2 : 1);
}

/* … and the slot of a point there. */
static ds_expr slot_of(const ds_lower_rec *rec, const ds_lower_store *store, uint32_t k,
                       ds_expr index) {
    uint32_t source = ds_lower__store_source(rec, store);
    if (store->slots[k] <= 1) return ds_lower__int(rec->l, 0);
    ds_expr lo = ds_lower__int(rec->l, ds_lower__rec_range(rec, source, store->dims[k])->lo);
    ds_expr slot = ds_lower__fold(rec->l, DS_EXPR_SUB, index, lo);
    return store->ring[k]
               ? ds_lower__fold(rec->l, DS_EXPR_MOD, slot, ds_lower__int(rec->l, store->slots[k]))
               : slot;
}

/* The place of slots along the dims k … end - 1. */
static ds_expr place_of(const ds_lower_rec *rec, const ds_lower_store *store, const ds_expr *index,
                        uint32_t k, uint32_t end) {
    ds_expr at = ds_lower__int(rec->l, 0);
    for (; k < end; k++)
        at = ds_lower__fold(
            rec->l, DS_EXPR_ADD,
            ds_lower__fold(rec->l, DS_EXPR_MUL, at, ds_lower__int(rec->l, room_of(store, k))),
            slot_of(rec, store, k, index[k]));
    return at;
}

ds_expr ds_lower__store_place(const ds_lower_rec *rec, const ds_lower_store *store,
                              const ds_expr *index) {
    return place_of(rec, store, index, 0, store->n_dims);
}

ds_status ds_lower__store_slice(ds_lower_rec *rec, const ds_lower_store *store, const char *name,
                                const ds_expr *bounds, bool one, ds_use *out, ds_error *err) {
    ds_builder *b = &rec->l->b;
    ds_op *slice = ds_build_op(b, DS_OP_SLICE);
    ds_build_in(b, slice, store->now);
    ds_value part =
        ds_build_out(b, slice, ds_arena_printf(ds_lower__arena(rec->l), "%s.read", name), NULL);
    ds_build_attr_int(b, slice, "dim", store->axis);
    ds_build_attr_expr(b, slice, "lo", bounds[0]);
    ds_build_attr_expr(b, slice, "hi", bounds[1]);
    DS_TRY(ds_build_put(b, slice, err));
    *out = ds_use_of(part);
    if (!one) return DS_OK;
    ds_op *reshape = ds_build_op(b, DS_OP_RESHAPE);
    ds_build_in(b, reshape, *out);
    ds_value point = ds_build_out(
        b, reshape, ds_arena_printf(ds_lower__arena(rec->l), "%s.then", name), store->point);
    DS_TRY(ds_build_put(b, reshape, err));
    *out = ds_use_of(point);
    return DS_OK;
}

ds_status ds_lower__store_take(ds_lower_rec *rec, const ds_lower_store *store, const char *name,
                               const ds_expr *index, ds_expr n, ds_use *out, ds_error *err) {
    ds_expr bounds[2] = {ds_lower__store_place(rec, store, index)};
    bounds[1] = ds_lower__fold(rec->l, DS_EXPR_ADD, bounds[0],
                               DS_HAS_EXPR(n) ? n : ds_lower__int(rec->l, 1));
    if (store->once && DS_HAS_EXPR(n))
        return ds_lower__store_window(rec, store, name, bounds, index, out, err);
    return ds_lower__store_slice(rec, store, name, bounds, !DS_HAS_EXPR(n), out, err);
}

/* ---- ranges of other dims than the minor one ---- */

static ds_status slice(ds_lower_rec *rec, ds_use *x, const char *name, uint32_t axis, ds_expr lo,
                       ds_expr n, ds_error *err) {
    ds_builder *b = &rec->l->b;
    ds_op *op = ds_build_op(b, DS_OP_SLICE);
    ds_build_in(b, op, *x);
    *x = ds_use_of(
        ds_build_out(b, op, ds_arena_printf(ds_lower__arena(rec->l), "%s.read", name), NULL));
    ds_build_attr_int(b, op, "dim", axis);
    ds_build_attr_expr(b, op, "lo", lo);
    ds_build_attr_expr(b, op, "hi", ds_lower__fold(rec->l, DS_EXPR_ADD, lo, n));
    return ds_build_put(b, op, err);
}

/* The axis becomes `n` dims of these sizes. */
static ds_status part(ds_lower_rec *rec, ds_use *x, const char *name, uint32_t axis,
                      const ds_expr *sizes, uint32_t n, ds_error *err) {
    ds_builder *b = &rec->l->b;
    ds_type *type = ds_type_copy(ds_lower__arena(rec->l), ds_use_type(rec->l->c.unit, b->func, x));
    if (type->rank - 1 + n > DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, rec->op->loc,
                            "ranges of several dims of %%%s are read: with the dims of the ranges "
                            "the store has more than %d dims",
                            name, DS_MAX_RANK);
    ds_dim *dims = DS_NEW_N(ds_lower__arena(rec->l), ds_dim, type->rank + n);
    for (uint32_t d = 0; d < axis; d++) dims[d] = type->dims[d];
    for (uint32_t i = 0; i < n; i++) dims[axis + i] = (ds_dim){.size = sizes[i]};
    for (uint32_t d = axis + 1; d < type->rank; d++) dims[d - 1 + n] = type->dims[d];
    type->dims = dims;
    type->rank += n - 1;
    ds_op *op = ds_build_op(b, DS_OP_RESHAPE);
    ds_build_in(b, op, *x);
    *x = ds_use_of(
        ds_build_out(b, op, ds_arena_printf(ds_lower__arena(rec->l), "%s.rows", name), type));
    return ds_build_put(b, op, err);
}

/* `sizes`: of ranges; of a dim that is read at a point DS_NO_EXPR. */
static ds_status take_ranges(ds_lower_rec *rec, const ds_lower_store *store, const char *name,
                             const ds_expr *index, const ds_expr *sizes, ds_use *out,
                             ds_error *err) {
    uint32_t axis = store->axis, n = store->n_dims;
    *out = store->now;
    for (uint32_t k = 0; k < n; axis++) {
        uint32_t f = k;
        int64_t row = 1;
        while (f < n && !DS_HAS_EXPR(sizes[f])) f++;
        for (uint32_t i = f + 1; i < n; i++) row *= room_of(store, i);
        ds_expr at = place_of(rec, store, index, k, f < n ? f + 1 : n);
        if (f == n) {
            DS_TRY(slice(rec, out, name, axis, at, ds_lower__int(rec->l, 1), err));
            return part(rec, out, name, axis, NULL, 0, err);
        }
        ds_expr rows[2] = {sizes[f], ds_lower__int(rec->l, row)};
        DS_TRY(slice(rec, out, name, axis, ds_lower__fold(rec->l, DS_EXPR_MUL, at, rows[1]),
                     ds_lower__fold(rec->l, DS_EXPR_MUL, rows[0], rows[1]), err));
        if (f + 1 < n) DS_TRY(part(rec, out, name, axis, rows, 2, err));
        k = f + 1;
    }
    return DS_OK;
}

uint32_t ds_lower__rec_place(const ds_lower_rec *rec, const ds_use *use, uint32_t dim) {
    const ds_value_info *info = ds_value_at(rec->frame->func, use->value);
    uint32_t i = 0;
    while (i < info->n_binders && info->binders[i].name != rec->program.dims[dim].name) i++;
    return i;
}

/* ---- shapes that depend on a dim ---- */

/* A size of the source at a point. The indices are expressions of the copy, in which the names of
 * dims mean other things. */
static ds_expr size_at(ds_lower_rec *rec, ds_expr size, const ds_expr *index) {
    ds_lowering *l = rec->l;
    ds_exprs *exprs = &l->c.unit->exprs;
    ds_expr copy = ds_clone_expr_replaced(&l->c, size);
    const char *apart[DS_TEMPORAL_DIMS];
    for (uint32_t d = 0; d < rec->op->n_dims; d++) {
        const char *name = ds_clone_text(&l->c, rec->op->dims[d].name);
        apart[d] =
            ds_intern(&l->c.unit->strings, ds_arena_printf(ds_lower__arena(rec->l), "%s'", name));
        if (DS_HAS_EXPR(index[d]))
            copy = ds_expr_subst(exprs, copy, name, ds_expr_index(exprs, apart[d]));
    }
    for (const ds_lower_loop *at = rec->frame->loops; at; at = at->frame_up)
        if (at->unrolled || at->name != at->old) copy = ds_expr_subst(exprs, copy, at->old, at->by);
    for (uint32_t d = 0; d < rec->op->n_dims; d++)
        if (DS_HAS_EXPR(index[d])) copy = ds_expr_subst(exprs, copy, apart[d], index[d]);
    return copy;
}

const ds_type *ds_lower__store_type(ds_lower_rec *rec, const ds_lower_store *store, ds_value value,
                                    const ds_expr *index) {
    ds_type *type = ds_type_copy(ds_lower__arena(rec->l), store->point);
    ds_dim *dims = DS_NEW_N(ds_lower__arena(rec->l), ds_dim, type->rank + 1);
    for (uint32_t d = 0; d < type->rank; d++) {
        dims[d] = type->dims[d];
        const ds_type *source = ds_value_at(rec->frame->func, value)->type;
        if (store->varies >> d & 1) dims[d].size = size_at(rec, source->dims[d].size, index);
    }
    type->dims = dims;
    return type;
}

ds_status ds_lower__store_narrow(ds_lower_rec *rec, const ds_lower_store *store, ds_value value,
                                 const ds_expr *index, uint32_t n, ds_use *x, ds_error *err) {
    if (!store->varies) return DS_OK;
    const char *name = ds_value_at(rec->frame->func, value)->name;
    const ds_type *type = ds_lower__store_type(rec, store, value, index);
    for (uint32_t d = 0; d < type->rank; d++)
        if (store->varies >> d & 1)
            DS_TRY(slice(rec, x, name, d + (d >= store->axis ? n : 0), ds_lower__int(rec->l, 0),
                         type->dims[d].size, err));
    return DS_OK;
}

ds_status ds_lower__store_widen(ds_lower_rec *rec, const ds_lower_store *store, ds_use *x,
                                ds_error *err) {
    ds_builder *b = &rec->l->b;
    for (uint32_t d = 0; d < store->point->rank; d++) {
        if (!(store->varies >> d & 1)) continue;
        const ds_type *type = ds_use_type(rec->l->c.unit, b->func, x);
        const char *name = ds_value_at(b->func, x->value)->name;
        ds_op *pad = ds_build_op(b, DS_OP_PAD);
        ds_build_in(b, pad, *x);
        ds_value out =
            ds_build_out(b, pad, ds_arena_printf(ds_lower__arena(rec->l), "%s.wide", name), NULL);
        ds_build_attr_int(b, pad, "dim", d);
        ds_build_attr_expr(
            b, pad, "hi",
            ds_lower__fold(rec->l, DS_EXPR_SUB, store->point->dims[d].size, type->dims[d].size));
        DS_TRY(ds_build_put(b, pad, err));
        *x = ds_use_of(out);
    }
    return DS_OK;
}

/* ---- uses ---- */

ds_status ds_lower__store_read(ds_lower_rec *rec, const ds_use *use, ds_use *out, ds_error *err) {
    const ds_lower_store *store = &rec->stores[use->value.i];
    const char *name = ds_value_at(rec->frame->func, use->value)->name;
    ds_expr lo[DS_TEMPORAL_DIMS] = {0}, size[DS_TEMPORAL_DIMS], index[DS_TEMPORAL_DIMS];
    uint32_t n_ranges = 0;
    bool rows = false;
    for (uint32_t d = 0; d < rec->op->n_dims; d++) {
        uint32_t i = ds_lower__rec_place(rec, use, d);
        index[d] = i < use->n_index && !ds_use_is_range(use, i)
                       ? ds_lower__expr(rec->l, rec->frame, use->index[i])
                       : DS_NO_EXPR;
    }
    if (store->one) {
        *out = store->now;
        return ds_lower__store_narrow(rec, store, use->value, index, 0, out, err);
    }
    for (uint32_t k = 0; k < store->n_dims; k++) {
        uint32_t i = ds_lower__rec_place(rec, use, store->dims[k]);
        lo[k] = ds_lower__expr(rec->l, rec->frame, use->index[i]);
        size[k] = DS_NO_EXPR;
        if (!ds_use_is_range(use, i)) continue;
        ds_expr hi = ds_lower__expr(rec->l, rec->frame, use->index_hi[i]);
        size[k] = ds_lower__fold(rec->l, DS_EXPR_SUB, hi, lo[k]);
        rows = rows || k + 1 < store->n_dims;
        n_ranges++;
    }
    uint32_t minor = store->n_dims ? store->n_dims - 1 : 0;
    ds_expr n = store->n_dims ? size[minor] : DS_NO_EXPR;
    ds_lower_padded padded;
    bool pads = !rows && DS_HAS_EXPR(n) &&
                ds_lower__pad_range(rec, store, use, minor, &lo[minor], &n, &padded);
    for (uint32_t k = 0; rows && k < store->n_dims; k++)
        if (DS_HAS_EXPR(size[k]))
            DS_TRY(ds_lower__not_moving(rec, store->dims[k], size[k], use, err));
    if (rows)
        DS_TRY(take_ranges(rec, store, name, lo, size, out, err));
    else
        DS_TRY(ds_lower__store_take(rec, store, name, lo, n, out, err));
    DS_TRY(ds_lower__store_narrow(rec, store, use->value, index, n_ranges, out, err));
    if (pads) ds_lower__mark_padded(rec, *out, store->axis, &padded);
    return DS_OK;
}
