/* rec_shapes = static: what a turn reads as a range, %k{0:t + 1}, has as many places at every turn as
 * at the turn with most. The tensor is *padded*: places `begin` to `end` - 1 of one dim count, the
 * others hold zeros, or points of other turns.
 *
 * The factor rule of an op says what becomes of the dim. A parallel factor stays: the results are
 * padded. A factor that is summed has its other places multiplied by 0 before; of maxima and softmax
 * they become MINUS. Attention sees the keys up to a place of the query (`q_start`), and perhaps a
 * window of them. The other ops are refused. */
#include "ir/passes/lower/rec_internal.h"

#define MINUS (-1e30) /* exp(MINUS - m) = 0; a finite f32 and bf16, and -inf in f16 */

static bool is_int(const ds_lowering *l, ds_expr e, int64_t value) {
    int64_t v;
    return ds_expr_is_int(ds_lower__exprs(l), e, &v) && v == value;
}

/* ---- marks ---- */

const ds_lower_padded *ds_lower__padded(const ds_lower_rec *rec, ds_use use) {
    if (!rec || use.n_index) return NULL;
    const uint64_t *found = ds_map_find(&rec->padded, (uint64_t)use.value.i + 1);
    return found ? (const ds_lower_padded *)(uintptr_t)*found : NULL;
}

void ds_lower__mark_padded(ds_lower_rec *rec, ds_use use, uint32_t axis,
                           const ds_lower_padded *as) {
    ds_lower_padded *kept = DS_NEW(&rec->l->c.unit->arena, ds_lower_padded);
    *kept = *as;
    kept->axis = axis;
    ds_map_put(&rec->padded, (uint64_t)use.value.i + 1, (uint64_t)(uintptr_t)kept);
}

void ds_lower__pad_type(const ds_lowering *l, const ds_use *use, ds_type *type) {
    const ds_lower_padded *padded = ds_lower__padded(l->rec, *use);
    if (padded && padded->axis < type->rank) type->dims[padded->axis].size = padded->size;
}

ds_status ds_lower__not_padded(const ds_lowering *l, ds_use use, const char *reader, ds_loc loc,
                               ds_error *err) {
    if (!ds_lower__padded(l->rec, use)) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                        "rec_shapes = static: %s has no form for a range that is padded", reader);
}

/* ---- ranges ---- */

/* Does the expression of the source differ between points? */
static bool moves(const ds_lower_rec *rec, ds_expr e) {
    for (uint32_t d = 0; d < rec->op->n_dims; d++)
        if (ds_expr_mentions(&rec->l->source->unit->exprs, e, rec->op->dims[d].name)) return true;
    return false;
}

static bool is_on(const ds_lower_rec *rec) {
    return rec->l->step->strategy.rec_shapes == DS_REC_STATIC && !ds_lower__in_chunk(rec);
}

/* Points of the dim that a turn reads at most. */
static int64_t most_of(const ds_lower_rec *rec, const ds_use *use, uint32_t dim, int64_t all) {
    const ds_temporal_read *read = ds_lower__rec_read(rec, use, false, false);
    ds_arena *arena = &rec->l->c.unit->arena;
    int64_t reach[2];
    if (!read) return all; /* a chunk's points */
    for (int k = 0; k < 2; k++) {
        reach[k] =
            ds_temporal_reach(&rec->program, rec->running->statement, read, dim, k ? -1 : 1, arena);
        if (reach[k] < -all || reach[k] > all) return all;
    }
    int64_t most = reach[0] + reach[1] + 1;
    return most < all ? most : all;
}

/* Is the range, of this size in the copy, not as long at every point? */
static bool is_moving(const ds_lower_rec *rec, const ds_use *use, uint32_t dim, ds_expr size) {
    uint32_t i = ds_lower__rec_place(rec, use, dim);
    if (!moves(rec, use->index[i]) && !moves(rec, use->index_hi[i])) return false;
    const ds_temporal_range *points = &rec->program.dims[dim];
    /* Of a prompt in chunks, what no turn reads has the sizes of the chunks' stores. */
    uint32_t dims = rec->program.statements[rec->running->statement].dims;
    if (rec->chunks.on && dim == rec->chunks.turn && !(dims >> dim & 1)) return false;
    return !is_int(rec->l, size, most_of(rec, use, dim, points->hi - points->lo));
}

ds_status ds_lower__not_moving(const ds_lower_rec *rec, uint32_t dim, ds_expr size,
                               const ds_use *use, ds_error *err) {
    if (!is_on(rec) || !is_moving(rec, use, dim, size)) return DS_OK;
    return ds_error_set(
        err, DS_ERR_UNSUPPORTED, use->loc,
        "rec_shapes = static: ranges of %%%s over another dim than the store's last "
        "differ in size",
        ds_value_at(rec->frame->func, use->value)->name);
}

/* Down to a multiple of the tile in its row, or up. */
static ds_expr to_tile(const ds_lowering *l, ds_expr place, int64_t lo, int64_t tile, bool up) {
    ds_expr size = ds_lower__int(l, tile),
            at = ds_lower__fold(l, DS_EXPR_SUB, place, ds_lower__int(l, lo));
    if (up) at = ds_lower__fold(l, DS_EXPR_ADD, at, ds_lower__int(l, tile - 1));
    at = ds_lower__fold(l, DS_EXPR_MUL, ds_lower__fold(l, DS_EXPR_DIV, at, size), size);
    return ds_lower__fold(l, DS_EXPR_ADD, at, ds_lower__int(l, lo));
}

bool ds_lower__pad_range(const ds_lower_rec *rec, const ds_lower_store *store, const ds_use *use,
                         uint32_t k, ds_expr *lo, ds_expr *size, ds_lower_padded *out) {
    const ds_lowering *l = rec->l;
    uint32_t i = ds_lower__rec_place(rec, use, store->dims[k]);
    if (!is_on(rec) || !is_moving(rec, use, store->dims[k], *size)) return false;
    ds_expr first = *lo, end = ds_lower__fold(l, DS_EXPR_ADD, *lo, *size);
    const ds_temporal_range *points =
        ds_lower__rec_range(rec, ds_lower__store_source(rec, store), store->dims[k]);
    int64_t all = points->hi - points->lo;
    int64_t most = most_of(rec, use, store->dims[k], all);
    bool grows = !moves(rec, use->index[i]), shrinks = !moves(rec, use->index_hi[i]);
    if (store->tile && (grows || shrinks)) {
        *lo = to_tile(l, first, points->lo, store->tile, false);
        *size = ds_lower__fold(l, DS_EXPR_SUB, to_tile(l, end, points->lo, store->tile, true), *lo);
    } else {
        *size = ds_lower__int(l, most);
        if (store->ring[k] && most > store->slots[k]) *size = ds_lower__int(l, store->slots[k]);
        if (most == all && !store->ring[k]) *lo = ds_lower__int(l, points->lo);
        if (most < all && !store->ring[k])
            *lo = ds_lower__fold(l, DS_EXPR_MIN, first, ds_lower__int(l, points->hi - most));
    }
    *out = (ds_lower_padded){.begin = ds_lower__fold(l, DS_EXPR_SUB, first, *lo),
                             .end = ds_lower__fold(l, DS_EXPR_SUB, end, *lo),
                             .size = *size,
                             .freed = store->tile && store->window};
    return true;
}

/* ---- masks ---- */

/* Numbers of the dim's places: 1 at the range and 0 elsewhere, or (`minus`) 0 at the range and MINUS
 * elsewhere; elsewhere is behind the range (`behind`) or before. */
static ds_status places(ds_lowering *l, const ds_lower_padded *padded, ds_dtype dtype, bool minus,
                        bool behind, ds_use *out, ds_error *err) {
    bool before = behind != minus; /* is the number that is not 0 before `at`? */
    ds_expr at = behind ? padded->end : padded->begin;
    ds_builder *b = &l->b;
    ds_type *type = DS_NEW(&l->c.unit->arena, ds_type);
    *type = (ds_type){.dtype = dtype, .rank = 1, .dims = DS_NEW(&l->c.unit->arena, ds_dim)};
    type->dims[0] = (ds_dim){.size = padded->size};
    ds_op *fill = ds_build_op(b, DS_OP_FILL);
    ds_build_attr_real(b, fill, "value", minus ? MINUS : 1);
    ds_value numbers = ds_build_out(b, fill, "places", type);
    DS_TRY(ds_build_put(b, fill, err));
    ds_op *pad = ds_build_op(b, DS_OP_PAD);
    ds_build_in(b, pad, ds_use_of(numbers));
    ds_value all = ds_build_out(b, pad, "places.all", NULL);
    ds_build_attr_expr(b, pad, before ? "hi" : "lo", padded->size);
    DS_TRY(ds_build_put(b, pad, err));
    ds_op *slice = ds_build_op(b, DS_OP_SLICE);
    ds_build_in(b, slice, ds_use_of(all));
    ds_value mask = ds_build_out(b, slice, "places.mask", NULL);
    ds_expr lo = ds_lower__fold(l, DS_EXPR_SUB, padded->size, at);
    ds_build_attr_expr(b, slice, "lo", lo);
    ds_build_attr_expr(b, slice, "hi", ds_lower__fold(l, DS_EXPR_ADD, lo, padded->size));
    *out = ds_use_of(mask);
    return ds_build_put(b, slice, err);
}

/* The mask repeated along the dims of x behind its own. */
static ds_status spread(ds_lowering *l, ds_use x, uint32_t axis, ds_use *mask, ds_error *err) {
    ds_builder *b = &l->b;
    const ds_type *type = ds_lower__type_of(l, x);
    ds_expr dims[DS_MAX_RANK], sizes[DS_MAX_RANK];
    uint32_t n = 0;
    for (uint32_t d = axis + 1; d < type->rank; d++) {
        dims[n] = ds_lower__int(l, d - axis);
        sizes[n++] = type->dims[d].size;
    }
    if (n == 0) return DS_OK;
    ds_op *expand = ds_build_op(b, DS_OP_EXPAND);
    ds_build_in(b, expand, *mask);
    ds_value out = ds_build_out(b, expand, "places.mask", NULL);
    ds_build_attr_exprs(b, expand, "dims", dims, n);
    ds_build_attr_exprs(b, expand, "sizes", sizes, n);
    *mask = ds_use_of(out);
    return ds_build_put(b, expand, err);
}

/* Other places times 0, or plus MINUS. */
static ds_status apply(ds_lowering *l, ds_use *x, const ds_lower_padded *padded, bool minus,
                       bool behind, ds_error *err) {
    ds_builder *b = &l->b;
    const char *name = ds_value_at(b->func, x->value)->name;
    ds_use mask;
    DS_TRY(places(l, padded, ds_lower__type_of(l, *x)->dtype, minus, behind, &mask, err));
    if (!minus) DS_TRY(spread(l, *x, padded->axis, &mask, err));
    ds_op *op = ds_build_op(b, minus ? DS_OP_BIAS : DS_OP_MUL);
    ds_build_in(b, op, *x);
    ds_build_in(b, op, mask);
    ds_value out = ds_build_out(b, op, ds_arena_printf(&l->c.unit->arena, "%s.masked", name), NULL);
    if (minus) ds_build_attr_int(b, op, "dim", padded->axis);
    *x = ds_use_of(out);
    return ds_build_put(b, op, err);
}

static ds_status mask(ds_lowering *l, ds_use *x, bool minus, ds_error *err) {
    ds_lower_padded padded = *ds_lower__padded(l->rec, *x);
    if (ds_expr_equal(ds_lower__exprs(l), padded.end, padded.size) != DS_YES)
        DS_TRY(apply(l, x, &padded, minus, true, err));
    if (!is_int(l, padded.begin, 0)) DS_TRY(apply(l, x, &padded, minus, false, err));
    return DS_OK;
}

/* ---- ops ---- */

static ds_status refuse(const ds_op *op, const char *why, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                        "rec_shapes = static: %s has no form for a range that is padded%s%s",
                        ds_op_name(op->code), *why ? ": " : "", why);
}

/* Other places may hold numbers that have no result, or each place has its own number. */
static bool is_open(const ds_lowering *l, const ds_op *op) {
    switch (op->code) {
    case DS_OP_DIV:
        return !ds_lower__padded(l->rec, op->in[1]);
    case DS_OP_SQRT:
        return !l->step->train.on;
    case DS_OP_LOG:
    case DS_OP_DROPOUT:
    case DS_OP_RESHAPE:
        return false;
    default:
        return true;
    }
}

static bool has(const ds_rule_dim *dim, uint32_t factor) {
    for (uint32_t i = 0; i < dim->n; i++)
        if (dim->factors[i] == factor) return true;
    return false;
}

static const ds_rule_term *term(const ds_rule_term *terms, uint32_t n, uint32_t i) {
    return &terms[i < n ? i : n - 1];
}

static bool alike(const ds_lowering *l, const ds_lower_padded *a, const ds_lower_padded *b) {
    return ds_expr_equal(ds_lower__exprs(l), a->begin, b->begin) == DS_YES &&
           ds_expr_equal(ds_lower__exprs(l), a->end, b->end) == DS_YES &&
           ds_expr_equal(ds_lower__exprs(l), a->size, b->size) == DS_YES;
}

/* The factor of the padded dim, the same in all operands that have the dim. */
static ds_status find_factor(const ds_lowering *l, const ds_op *op, const ds_rule *rule,
                             const ds_lower_padded *padded, uint32_t *factor, ds_error *err) {
    *factor = UINT32_MAX;
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ds_lower_padded *own = ds_lower__padded(l->rec, op->in[i]);
        if (!own) continue;
        const ds_rule_dim *dim = &term(rule->in, rule->n_in, i)->dims[own->axis];
        if (dim->any || dim->n != 1) return refuse(op, "", err);
        if (*factor == UINT32_MAX) *factor = dim->factors[0];
        if (*factor != dim->factors[0] || !alike(l, own, padded))
            return refuse(op, "operands are of two ranges", err);
    }
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ds_lower_padded *own = ds_lower__padded(l->rec, op->in[i]);
        const ds_rule_term *dims = term(rule->in, rule->n_in, i);
        for (uint32_t d = 0; d < dims->n; d++)
            if (has(&dims->dims[d], *factor) && !(own && own->axis == d))
                return refuse(op, "another operand is no range of the same turns", err);
    }
    return DS_OK;
}

static ds_status put_count(ds_lowering *l, ds_op *op, const ds_rule *rule, uint32_t factor,
                           const ds_lower_padded *padded, ds_error *err) {
    const ds_type *type = ds_lower__type_of(l, op->in[0]);
    ds_expr count = ds_lower__fold(l, DS_EXPR_SUB, padded->end, padded->begin);
    if (ds_attr_find(op->attrs, op->n_attrs, "count")) return refuse(op, "it has a count", err);
    for (uint32_t d = 0; d < type->rank; d++) {
        const ds_rule_dim *dim = &rule->in[0].dims[d];
        if (dim->n == 1 && dim->factors[0] != factor &&
            rule->kinds[dim->factors[0]] == DS_FACTOR_SUM)
            count = ds_lower__fold(l, DS_EXPR_MUL, count, type->dims[d].size);
    }
    ds_build_attr_expr(&l->b, op, "count", count);
    return DS_OK;
}

/* Keys and values are padded alike: the last query is the last place that counts. */
static ds_status attend(ds_lowering *l, ds_op *op, ds_error *err) {
    const ds_lower_padded *keys = ds_lower__padded(l->rec, op->in[1]);
    const ds_lower_padded *values = ds_lower__padded(l->rec, op->in[2]);
    ds_builder *b = &l->b;
    ds_expr queries = ds_lower__type_of(l, op->in[0])->dims[1].size;
    const ds_attr *own = ds_attr_find(op->attrs, op->n_attrs, "window");
    if (ds_lower__padded(l->rec, op->in[0]) || !keys || !values || keys->axis != 1 ||
        values->axis != 1 || !alike(l, keys, values))
        return refuse(op, "its keys and values are not of one range", err);
    if (ds_attr_find(op->attrs, op->n_attrs, "q_start") ||
        ds_attr_find(op->attrs, op->n_attrs, "k_start") ||
        ds_attr_find(op->attrs, op->n_attrs, "document"))
        return refuse(op, "it is a part of an attention already", err);
    if (!is_int(l, queries, 1) && !ds_op_attr_bool(op, "causal"))
        return refuse(op, "a turn has several queries that see all keys", err);
    if (!is_int(l, keys->begin, 0)) {
        ds_expr window = ds_lower__fold(l, DS_EXPR_SUB, keys->end, keys->begin);
        if (!is_int(l, queries, 1)) return refuse(op, "a turn has several queries", err);
        if (own) window = ds_lower__fold(l, DS_EXPR_MIN, window, own->expr);
        ds_build_attr_expr(b, op, "window", window);
    }
    ds_build_attr_bool(b, op, "causal", true);
    ds_build_attr_expr(b, op, "q_start", ds_lower__fold(l, DS_EXPR_SUB, keys->end, queries));
    return DS_OK;
}

static ds_status rule_of(const ds_lowering *l, const ds_op *op, ds_rule *out, ds_error *err) {
    const ds_type *in[DS_MAX_OPERANDS];
    if (op->n_in > DS_MAX_OPERANDS) return refuse(op, "", err);
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = ds_type_plain(&l->c.unit->arena, ds_lower__type_of(l, op->in[i]));
    ds_infer ctx = {.unit = l->c.unit, .func = l->b.func, .op = op, .in = in};
    if (ds_op_rule(&ctx, out, NULL) == DS_OK) return DS_OK;
    return refuse(op, "", err);
}

/* What an op that reads the padded dim as `factor` does about other places. */
static ds_status close_factor(ds_lowering *l, ds_op *op, const ds_rule *rule, uint32_t factor,
                              const ds_lower_padded *padded, ds_error *err) {
    ds_factor_kind kind = rule->kinds[factor];
    uint32_t i = 0;
    while (!ds_lower__padded(l->rec, op->in[i])) i++;
    if (kind == DS_FACTOR_PAR) return DS_OK;
    if (padded->freed) return refuse(op, "tiles behind the range's window are freed", err);
    if (kind == DS_FACTOR_SUM) {
        if (op->code == DS_OP_REDUCE_MEAN) DS_TRY(put_count(l, op, rule, factor, padded, err));
        return mask(l, &op->in[i], false, err);
    }
    bool minus = op->code == DS_OP_REDUCE_MAX || op->code == DS_OP_SOFTMAX;
    if (!minus || !ds_dtype_is_float(ds_lower__type_of(l, op->in[i])->dtype))
        return refuse(op, "", err);
    return mask(l, &op->in[i], true, err);
}

/* Of each result: padded, where `size` is there. */
struct ds_lower_pads {
    uint32_t n, factor; /* the padded dim, in the op's rule */
    bool has[DS_MAX_OPERANDS];
    ds_lower_padded of[DS_MAX_OPERANDS];
};

static ds_status pad_results(ds_lowering *l, const ds_op *op, const ds_rule *rule,
                             const ds_lower_padded *padded, const ds_type **types,
                             ds_lower_pads *pads, ds_error *err) {
    for (uint32_t k = 0; k < pads->n; k++) {
        const ds_rule_term *dims = term(rule->out, rule->n_out, k);
        for (uint32_t d = 0; d < dims->n; d++) {
            if (!has(&dims->dims[d], pads->factor)) continue;
            if (dims->dims[d].n != 1 || pads->has[k]) return refuse(op, "", err);
            pads->of[k] = *padded;
            pads->of[k].axis = d;
            pads->has[k] = true;
            if (!types[k]) continue;
            ds_type *type = ds_type_copy(&l->c.unit->arena, types[k]);
            type->dims[d].size = padded->size;
            types[k] = type;
        }
    }
    return DS_OK;
}

void ds_lower__pad_results(ds_lowering *l, const ds_op *op, const ds_lower_pads *pads) {
    for (uint32_t k = 0; pads && k < pads->n; k++)
        if (pads->has[k])
            ds_lower__mark_padded(l->rec, ds_use_of(op->out[k]), pads->of[k].axis, &pads->of[k]);
}

ds_status ds_lower__pad_op(ds_lowering *l, ds_op *op, const ds_type **types, uint32_t n,
                           const ds_lower_pads **out, ds_error *err) {
    const ds_lower_padded *padded = NULL;
    *out = NULL;
    for (uint32_t i = 0; l->rec && i < op->n_in && !padded; i++)
        padded = ds_lower__padded(l->rec, op->in[i]);
    if (!padded) return DS_OK;
    if (op->code == DS_OP_ATTENTION && !ds_lower__padded(l->rec, op->in[0]))
        return attend(l, op, err);
    if (!is_open(l, op)) return refuse(op, "", err);
    if (n > DS_MAX_OPERANDS) return refuse(op, "", err);
    ds_rule *rule = DS_NEW(&l->c.unit->arena, ds_rule);
    ds_lower_pads *pads = DS_NEW(&l->c.unit->arena, ds_lower_pads);
    pads->n = n;
    *out = pads;
    DS_TRY(rule_of(l, op, rule, err));
    DS_TRY(find_factor(l, op, rule, padded, &pads->factor, err));
    if (op->code == DS_OP_ATTENTION && ds_op_attr_bool(op, "causal"))
        return refuse(op, "its queries are a range", err);
    DS_TRY(close_factor(l, op, rule, pads->factor, padded, err));
    return pad_results(l, op, rule, padded, types, pads, err);
}
