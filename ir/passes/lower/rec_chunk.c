/* Values of chunks (rec_prompt.c): which dim of a value counts the chunk's turns, and how such values
 * are read and stored.
 *
 * A chunk's value has the turns as one more dim, the *axis*. A value that every turn makes alike has
 * none and is not marked. What a turn reads as a range, %k{0:t + 1}, is for a chunk the tensor of
 * what its last turn reads: the op that reads the tensor knows that each turn before reads one point
 * less (rec_batch.c). */
#include "ir/passes/lower/rec_internal.h"

#include <string.h>

static const char *name_of(const ds_lower_rec *rec, ds_use use, const char *end) {
    return ds_arena_printf(ds_lower__arena(rec->l), "%s.%s",
                           ds_value_at(rec->l->b.func, use.value)->name, end);
}

/* ---- marks ---- */

const ds_lower_mark *ds_lower__mark_of(const ds_lower_rec *rec, ds_use use) {
    uint64_t *found = ds_map_find(&rec->chunks.marks, (uint64_t)use.value.i + 1);
    return found ? (const ds_lower_mark *)(uintptr_t)*found : NULL;
}

void ds_lower__mark(ds_lower_rec *rec, ds_use use, ds_lower_mark mark) {
    ds_lower_mark *kept = DS_NEW(ds_lower__arena(rec->l), ds_lower_mark);
    *kept = mark;
    ds_map_put(&rec->chunks.marks, (uint64_t)use.value.i + 1, (uint64_t)(uintptr_t)kept);
}

uint32_t ds_lower__chunk_axis(const ds_type *point) {
    return point->rank ? 1 : 0;
}

ds_type *ds_lower__chunk_type(const ds_lower_rec *rec, const ds_type *point, uint32_t axis) {
    ds_type *type = ds_type_copy(ds_lower__arena(rec->l), point);
    ds_dim *dims = DS_NEW_N(ds_lower__arena(rec->l), ds_dim, type->rank + 1);
    for (uint32_t d = 0; d <= type->rank; d++)
        dims[d] = d == axis ? (ds_dim){.size = ds_lower__int(rec->l, rec->chunks.size)}
                            : type->dims[d - (d > axis)];
    type->dims = dims;
    type->rank++;
    return type;
}

/* Are all dims between the two places of size 1? Then a move is a view. */
static bool is_view(const ds_lower_rec *rec, const ds_type *type, uint32_t from, uint32_t to) {
    uint32_t lo = from < to ? from + 1 : to, hi = from < to ? to + 1 : from;
    for (uint32_t d = lo; d < hi; d++) {
        int64_t size;
        if (!ds_expr_is_int(ds_lower__exprs(rec->l), type->dims[d].size, &size) || size != 1)
            return false;
    }
    return true;
}

ds_status ds_lower__chunk_move(ds_lower_rec *rec, ds_use *x, uint32_t axis, ds_error *err) {
    const ds_lower_mark *mark = ds_lower__mark_of(rec, *x);
    if (!mark || mark->axis == axis) return DS_OK;
    ds_builder *b = &rec->l->b;
    const ds_type *type = ds_lower__type_of(rec->l, *x);
    bool view = is_view(rec, type, mark->axis, axis);
    ds_expr perm[DS_MAX_RANK];
    ds_type *moved = ds_type_copy(ds_lower__arena(rec->l), type);
    ds_dim *dims = DS_NEW_N(ds_lower__arena(rec->l), ds_dim, type->rank + 1);
    uint32_t from = 0;
    for (uint32_t d = 0; d < type->rank; d++) {
        if (from == mark->axis) from++;
        uint32_t at = d == axis ? mark->axis : from++;
        perm[d] = ds_lower__int(rec->l, at);
        dims[d] = type->dims[at];
    }
    moved->dims = dims;
    ds_op *op = ds_build_op(b, view ? DS_OP_RESHAPE : DS_OP_TRANSPOSE);
    op->loc = rec->op->loc;
    ds_build_in(b, op, *x);
    ds_value out = ds_build_out(b, op, name_of(rec, *x, "turned"), view ? moved : NULL);
    if (!view) ds_build_attr_exprs(b, op, "perm", perm, type->rank);
    DS_TRY(ds_build_put(b, op, err));
    ds_lower_mark now = *mark;
    now.axis = axis;
    *x = ds_use_of(out);
    ds_lower__mark(rec, *x, now);
    return DS_OK;
}

ds_status ds_lower__chunk_repeat(ds_lower_rec *rec, ds_use *x, uint32_t axis, ds_error *err) {
    ds_builder *b = &rec->l->b;
    ds_op *op = ds_build_op(b, DS_OP_EXPAND);
    ds_expr dim = ds_lower__int(rec->l, axis), size = ds_lower__int(rec->l, rec->chunks.size);
    op->loc = rec->op->loc;
    ds_build_in(b, op, *x);
    ds_value out = ds_build_out(b, op, name_of(rec, *x, "turns"), NULL);
    ds_build_attr_exprs(b, op, "dims", &dim, 1);
    ds_build_attr_exprs(b, op, "sizes", &size, 1);
    DS_TRY(ds_build_put(b, op, err));
    *x = ds_use_of(out);
    ds_lower__mark(rec, *x, (ds_lower_mark){.axis = axis});
    return DS_OK;
}

static ds_status cast(ds_lower_rec *rec, ds_use *x, ds_dtype dtype, ds_error *err) {
    const ds_lower_mark *mark = ds_lower__mark_of(rec, *x);
    DS_TRY(ds_lower__cast(rec->l, x, dtype, err));
    if (mark) ds_lower__mark(rec, *x, *mark);
    return DS_OK;
}

/* One with the axis there. */
static ds_status settle(ds_lower_rec *rec, ds_use *x, uint32_t axis, ds_error *err) {
    if (!ds_lower__mark_of(rec, *x)) return ds_lower__chunk_repeat(rec, x, axis, err);
    return ds_lower__chunk_move(rec, x, axis, err);
}

ds_status ds_lower__chunk_settle(ds_lower_rec *rec, ds_use *x, const ds_type *type, ds_error *err) {
    DS_TRY(cast(rec, x, type->dtype, err));
    return settle(rec, x, type->rank > 1 ? 1 : 0, err);
}

/* ---- runs ---- */

ds_expr ds_lower__chunk_begin(ds_lower_rec *rec, ds_lower_loop *at, ds_expr chunk) {
    ds_lower_chunks *chunks = &rec->chunks;
    chunks->chunk = chunk;
    chunks->first = ds_lower__fold(
        rec->l, DS_EXPR_ADD, ds_lower__int(rec->l, chunks->lo),
        ds_lower__fold(rec->l, DS_EXPR_MUL, ds_lower__int(rec->l, chunks->size), chunk));
    if (chunks->lo == 0)
        chunks->first =
            ds_lower__fold(rec->l, DS_EXPR_MUL, ds_lower__int(rec->l, chunks->size), chunk);
    chunks->at = at;
    return chunks->first;
}

bool ds_lower__in_chunk(const ds_lower_rec *rec) {
    return rec && rec->chunks.on && rec->running &&
           ds_lower__rec_is_chunk(rec, rec->running->statement);
}

ds_expr ds_lower__chunk_last(ds_lower_rec *rec, ds_expr e) {
    ds_lower_loop *at = rec->chunks.at;
    at->by = ds_lower__fold(rec->l, DS_EXPR_ADD, rec->chunks.first,
                            ds_lower__int(rec->l, rec->chunks.size - 1));
    ds_expr last = ds_lower__expr(rec->l, rec->frame, e);
    at->by = rec->chunks.first;
    return last;
}

/* The number that moves with the turn, one a turn: t, t - 1. */
static bool moves_with_turn(const ds_lower_rec *rec, ds_expr e, int64_t *by) {
    const ds_expr_node *node = ds_expr_at(&rec->l->source->unit->exprs, e);
    const char *turn = rec->op->dims[rec->chunks.turn].name;
    int64_t a, b;
    *by = 0;
    if (!ds_expr_mentions(&rec->l->source->unit->exprs, e, turn)) return true;
    if (node->kind == DS_EXPR_INDEX) {
        *by = 1;
        return true;
    }
    if (node->kind != DS_EXPR_ADD && node->kind != DS_EXPR_SUB) return false;
    if (!moves_with_turn(rec, node->a, &a) || !moves_with_turn(rec, node->b, &b)) return false;
    *by = node->kind == DS_EXPR_ADD ? a + b : a - b;
    return true;
}

bool ds_lower__chunk_moves(const ds_lower_rec *rec, ds_expr e) {
    int64_t by;
    return moves_with_turn(rec, e, &by) && by == 1;
}

/* ---- values from outside ---- */

bool ds_lower__chunk_reads(const ds_lower_rec *rec, const ds_lower_frame *frame,
                           const ds_use *use) {
    if (!ds_lower__in_chunk(rec) || rec->frame != frame) return false;
    const ds_exprs *exprs = &rec->l->source->unit->exprs;
    const char *turn = rec->op->dims[rec->chunks.turn].name;
    for (uint32_t i = 0; i < use->n_index; i++)
        if (ds_expr_mentions(exprs, use->index[i], turn) ||
            (ds_use_is_range(use, i) && ds_expr_mentions(exprs, use->index_hi[i], turn)))
            return true;
    return false;
}

/* stack(%ids{first:first + size}) */
ds_status ds_lower__chunk_family(ds_lower_rec *rec, const ds_use *use, ds_use *out, ds_error *err) {
    ds_builder *b = &rec->l->b;
    const char *name = ds_value_at(rec->frame->func, use->value)->name;
    const char *turn = rec->op->dims[rec->chunks.turn].name;
    uint32_t n = 0, before = out->n_index - use->n_index;
    ds_expr *hi = DS_NEW_N(ds_lower__arena(rec->l), ds_expr, out->n_index + 1);
    for (uint32_t i = 0; i < use->n_index; i++) {
        if (!ds_expr_mentions(&rec->l->source->unit->exprs, use->index[i], turn)) continue;
        if (ds_use_is_range(use, i) || !ds_lower__chunk_moves(rec, use->index[i])) n = 2;
        hi[before + i] = ds_lower__fold(rec->l, DS_EXPR_ADD, out->index[before + i],
                                        ds_lower__int(rec->l, rec->chunks.size));
        n++;
    }
    if (n != 1 || out->index_hi)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, use->loc,
                            "prefill = vector: %%%s comes from outside of the rec, and is not read "
                            "at the turn plus a number",
                            name);
    out->index_hi = hi;
    const ds_type *point = ds_value_at(b->func, out->value)->type;
    ds_op *op = ds_build_op(b, DS_OP_STACK);
    op->loc = out->loc;
    ds_build_in(b, op, *out);
    ds_value made = ds_build_out(b, op, name_of(rec, *out, "turns"), NULL);
    uint32_t axis = ds_lower__chunk_axis(point);
    ds_build_attr_int(b, op, "dim", axis);
    DS_TRY(ds_build_put(b, op, err));
    *out = ds_use_of(made);
    ds_lower__mark(rec, *out, (ds_lower_mark){.axis = axis});
    return DS_OK;
}

/* ---- stores ---- */

/* What chunks alone keep: the whole chunk. */
static ds_status read_chunks(ds_lower_rec *rec, const ds_use *use, ds_expr chunk, ds_use *out,
                             ds_error *err) {
    const ds_lower_store *store = &rec->stores[rec->n_values + use->value.i];
    const char *name = ds_value_at(rec->frame->func, use->value)->name;
    ds_expr index[DS_TEMPORAL_DIMS] = {0};
    *out = store->now;
    if (!store->one) {
        for (uint32_t k = 0; k < store->n_dims; k++)
            index[k] =
                store->dims[k] == rec->chunks.dim
                    ? chunk
                    : ds_lower__expr(rec->l, rec->frame,
                                     use->index[ds_lower__rec_place(rec, use, store->dims[k])]);
        DS_TRY(ds_lower__store_take(rec, store, name, index, DS_NO_EXPR, out, err));
    }
    ds_lower__mark(rec, *out, (ds_lower_mark){.axis = store->point->rank > 1 ? 1 : 0});
    return DS_OK;
}

static ds_status slice_of(ds_lower_rec *rec, ds_use x, uint32_t dim, ds_expr lo, ds_expr hi,
                          ds_use *out, ds_error *err) {
    ds_builder *b = &rec->l->b;
    ds_op *slice = ds_build_op(b, DS_OP_SLICE);
    slice->loc = rec->op->loc;
    ds_build_in(b, slice, x);
    ds_value part = ds_build_out(b, slice, name_of(rec, x, "read"), NULL);
    ds_build_attr_int(b, slice, "dim", dim);
    ds_build_attr_expr(b, slice, "lo", lo);
    ds_build_attr_expr(b, slice, "hi", hi);
    DS_TRY(ds_build_put(b, slice, err));
    *out = ds_use_of(part);
    return DS_OK;
}

/* One turn of a chunk. */
static ds_status read_point(ds_lower_rec *rec, const ds_use *use, const ds_temporal_read *read,
                            ds_use *out, ds_error *err) {
    const ds_lower_chunks *chunks = &rec->chunks;
    ds_expr turn =
        ds_lower__expr(rec->l, rec->frame, use->index[ds_lower__rec_place(rec, use, chunks->turn)]);
    ds_expr at = ds_lower__fold(rec->l, DS_EXPR_SUB, turn, ds_lower__int(rec->l, chunks->lo));
    ds_expr size = ds_lower__int(rec->l, chunks->size);
    if (ds_lower__rec_is_here(rec, rec->running, read))
        *out = *ds_lower__rec_local(rec, read->source, use->value);
    else
        DS_TRY(read_chunks(rec, use, ds_lower__fold(rec->l, DS_EXPR_DIV, at, size), out, err));
    const ds_lower_mark *mark = ds_lower__mark_of(rec, *out);
    if (!mark) return DS_OK;
    uint32_t axis = mark->axis;
    if (chunks->n > 1) at = ds_lower__fold(rec->l, DS_EXPR_MOD, at, size);
    ds_use batch = *out;
    DS_TRY(slice_of(rec, batch, axis, at,
                    ds_lower__fold(rec->l, DS_EXPR_ADD, at, ds_lower__int(rec->l, 1)), out, err));
    ds_type *point = ds_type_copy(ds_lower__arena(rec->l), ds_lower__type_of(rec->l, batch));
    point->rank--;
    for (uint32_t d = axis; d < point->rank; d++) point->dims[d] = point->dims[d + 1];
    ds_op *reshape = ds_build_op(&rec->l->b, DS_OP_RESHAPE);
    reshape->loc = rec->op->loc;
    ds_build_in(&rec->l->b, reshape, *out);
    ds_value made = ds_build_out(&rec->l->b, reshape, name_of(rec, batch, "then"), point);
    DS_TRY(ds_build_put(&rec->l->b, reshape, err));
    *out = ds_use_of(made);
    return DS_OK;
}

/* From the store of turns and chunks, the places lo … hi of the turns' dim. */
static ds_status read_joint(ds_lower_rec *rec, const ds_use *use, ds_expr lo, ds_expr hi,
                            ds_lower_mark mark, ds_use *out, ds_error *err) {
    const ds_lower_store *store = &rec->stores[use->value.i];
    ds_expr index[DS_TEMPORAL_DIMS] = {0};
    for (uint32_t k = 0; k < store->n_dims; k++)
        index[k] = store->dims[k] == rec->chunks.turn
                       ? lo
                       : ds_lower__expr(rec->l, rec->frame,
                                        use->index[ds_lower__rec_place(rec, use, store->dims[k])]);
    DS_TRY(ds_lower__store_take(rec, store, ds_value_at(rec->frame->func, use->value)->name, index,
                                ds_lower__fold(rec->l, DS_EXPR_SUB, hi, lo), out, err));
    mark.axis = store->axis;
    ds_lower__mark(rec, *out, mark);
    return DS_OK;
}

/* What a chunk reads of all turns so far, or of a window. */
static ds_status read_range(ds_lower_rec *rec, const ds_use *use, const ds_temporal_read *read,
                            ds_use *out, ds_error *err) {
    ds_lower_chunks *chunks = &rec->chunks;
    uint32_t i = ds_lower__rec_place(rec, use, chunks->turn);
    int64_t back = (int64_t)*ds_map_find(&chunks->back_of, DS_KEY(use));
    ds_lower_mark mark = {.range = true, .window = back == INT64_MAX ? back : back + 1};
    if (!ds_lower__rec_is_here(rec, rec->running, read))
        return read_joint(rec, use, ds_lower__expr(rec->l, rec->frame, use->index[i]),
                          ds_lower__chunk_last(rec, use->index_hi[i]), mark, out, err);
    ds_use own = *ds_lower__rec_local(rec, read->source, use->value);
    const ds_lower_mark *axis = ds_lower__mark_of(rec, own);
    if (!axis) {
        DS_TRY(ds_lower__chunk_repeat(rec, &own, 0, err));
        axis = ds_lower__mark_of(rec, own);
    }
    mark.axis = axis->axis;
    DS_TRY(slice_of(rec, own, mark.axis, ds_lower__int(rec->l, 0),
                    ds_lower__int(rec->l, chunks->size), out, err));
    ds_lower__mark(rec, *out, mark);
    return DS_OK;
}

static ds_status refuse_ring(const ds_lower_rec *rec, const ds_use *use, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, use->loc,
                        "prefill = vector: %%%s is read in another loop than its own, and a window "
                        "of it is stored",
                        ds_value_at(rec->frame->func, use->value)->name);
}

/* Points of one chunk over a range of another dim lie in no one tensor. */
static ds_status check_rows(const ds_lower_rec *rec, const ds_use *use,
                            const ds_temporal_read *read, ds_error *err) {
    for (uint32_t d = 0; d < rec->chunks.dim; d++)
        if (d != rec->chunks.turn && read->index[d].end)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, use->loc,
                                "prefill = vector: a range of %%%s over %s is read, which turns of "
                                "the prompt make",
                                ds_value_at(rec->frame->func, use->value)->name,
                                rec->program.dims[d].name);
    return DS_OK;
}

static ds_status chunk_reads(ds_lower_rec *rec, const ds_use *use, const ds_temporal_read *read,
                             ds_use *out, ds_error *err) {
    const ds_lower_chunks *chunks = &rec->chunks;
    const ds_temporal_index *index = &read->index[chunks->dim];
    const ds_lower_store *store = &rec->stores[use->value.i];
    bool joint = chunks->joint[ds_lower__rec_origin(rec, read->source)];
    bool here = ds_lower__rec_is_here(rec, rec->running, read), ring = false;
    for (uint32_t k = 0; k < store->n_dims; k++) ring = ring || (chunks->n == 1 && store->ring[k]);
    if (joint && !here && ring) return refuse_ring(rec, use, err);
    if (index->end && index->end->kind == DS_TEMPORAL_CONST)
        return ds_lower__store_read(rec, use, out, err);
    DS_TRY(check_rows(rec, use, read, err));
    if (index->end) return read_range(rec, use, read, out, err);
    if (index->at->kind == DS_TEMPORAL_CONST)
        return joint && !here ? ds_lower__store_read(rec, use, out, err)
                              : read_point(rec, use, read, out, err);
    if (here) {
        *out = *ds_lower__rec_local(rec, read->source, use->value);
        return DS_OK;
    }
    ds_expr end =
        ds_lower__fold(rec->l, DS_EXPR_ADD, chunks->first, ds_lower__int(rec->l, chunks->size));
    return joint ? read_joint(rec, use, chunks->first, end, (ds_lower_mark){0}, out, err)
                 : read_chunks(rec, use, chunks->chunk, out, err);
}

ds_status ds_lower__chunk_use(ds_lower_rec *rec, const ds_use *use, ds_use *out, bool *known,
                              ds_error *err) {
    const ds_temporal_node *run = rec->running;
    bool by_chunk = ds_lower__rec_is_chunk(rec, run->statement);
    const ds_temporal_read *read = ds_lower__rec_read(rec, use, by_chunk, true);
    *known = read != NULL;
    if (!read) return DS_OK;
    if (by_chunk) return chunk_reads(rec, use, read, out, err);
    if (read->index[rec->chunks.dim].end) return ds_lower__store_read(rec, use, out, err);
    *known = run->active[read - rec->program.statements[run->statement].reads];
    if (!*known) return DS_OK;
    if (rec->chunks.joint[ds_lower__rec_origin(rec, read->source)] &&
        !ds_lower__rec_is_here(rec, run, read))
        return ds_lower__store_read(rec, use, out, err);
    DS_TRY(check_rows(rec, use, read, err));
    return read_point(rec, use, read, out, err);
}

/* The points part[0] … part[1] - 1 of the chunk, to their places. */
static ds_status put_some(ds_lower_rec *rec, ds_lower_store *store, const char *name, ds_use x,
                          const int64_t part[2], const ds_expr *index, ds_error *err) {
    uint32_t minor = store->n_dims - 1;
    ds_expr at[DS_TEMPORAL_DIMS], lo = ds_lower__int(rec->l, part[0]),
                                  hi = ds_lower__int(rec->l, part[1]);
    if (part[0] == part[1]) return DS_OK;
    memcpy(at, index, sizeof at);
    at[minor] = ds_lower__fold(rec->l, DS_EXPR_ADD, index[minor], lo);
    if (part[1] - part[0] < rec->chunks.size)
        DS_TRY(slice_of(rec, x, store->axis, lo, hi, &x, err));
    ds_expr place = ds_lower__store_place(rec, store, at);
    DS_TRY(ds_lower__store_put(rec, store, name, x.value, place, err));
    if (!store->twice) return DS_OK;
    place = ds_lower__fold(rec->l, DS_EXPR_ADD, place, ds_lower__int(rec->l, store->slots[minor]));
    return ds_lower__store_put(rec, store, name, x.value, place, err);
}

ds_status ds_lower__chunk_put(ds_lower_rec *rec, ds_lower_store *store, const char *name, ds_use x,
                              const ds_expr *index, ds_error *err) {
    const ds_lower_chunks *chunks = &rec->chunks;
    uint32_t minor = store->n_dims - 1;
    store->open = true;
    DS_TRY(cast(rec, &x, store->point->dtype, err));
    DS_TRY(settle(rec, &x, store->axis, err));
    int64_t slots = store->slots[minor], size = chunks->size, all[2] = {0, size};
    if (!store->ring[minor] || (chunks->n > 1 && slots % size == 0))
        return put_some(rec, store, name, x, all, index, err);
    /* Of one chunk the ring keeps the last points, in two pieces where they pass its end. */
    if (chunks->n > 1)
        return ds_error_set(err, DS_ERR_INTERNAL, rec->op->loc,
                            "%%%s: a ring of %lld points for chunks of %lld", name,
                            (long long)slots, (long long)size);
    int64_t from = size > slots ? size - slots : 0, end = from + slots - from % slots;
    int64_t first[2] = {from, end < size ? end : size}, rest[2] = {first[1], size};
    DS_TRY(put_some(rec, store, name, x, first, index, err));
    return put_some(rec, store, name, x, rest, index, err);
}
