/* Stores with copies. With `rec_stores = functional` each turn makes the store anew, as a framework
 * without donation does: the first write of a turn goes into a copy of the whole, and the tensor
 * before lives to the end of the turn, where a slice without time reads the tensor. With
 * `rec_stores = ring` a window is up to two pieces of the ring, which are copied into one. */
#include "ir/passes/lower/rec_internal.h"

static bool same_turn(const ds_temporal_place *a, const ds_temporal_place *b) {
    return a->loop == b->loop && a->offset == b->offset;
}

static const char *name_of(const ds_lower_rec *rec, uint32_t value) {
    return ds_value_at(rec->frame->func, (ds_value){value % rec->n_values})->name;
}

static ds_status hold(ds_lower_rec *rec, const ds_lower_store *store, const char *name,
                      ds_error *err) {
    ds_builder *b = &rec->l->b;
    ds_op *op = ds_build_op(b, DS_OP_SLICE);
    ds_build_in(b, op, store->old);
    const char *wanted = ds_arena_printf(&rec->l->c.unit->arena, "%s.before", name);
    ds_build_out(b, op, wanted, NULL);
    ds_build_attr_int(b, op, "dim", store->axis);
    ds_build_attr_int(b, op, "lo", 0);
    ds_build_attr_int(b, op, "hi", 1);
    ds_attr cost = {.name = ds_intern(&rec->l->c.unit->strings, "cost"),
                    .kind = DS_ATTR_QUANTITY,
                    .expr = ds_expr_int(&rec->l->c.unit->exprs, 0)};
    ds_unit_parse("us", 2, &cost.unit);
    ds_build_attr(b, op, cost);
    return ds_build_put(b, op, err);
}

ds_status ds_lower__rec_end_turn(ds_lower_rec *rec, const ds_temporal_place *turn, ds_error *err) {
    for (uint32_t i = 0; i < 2 * rec->n_values; i++) {
        ds_lower_store *store = &rec->stores[i];
        if (!store->copied || store->depth != rec->depth) continue;
        if (turn && same_turn(&store->turn, turn)) continue;
        store->copied = false;
        DS_TRY(hold(rec, store, name_of(rec, i), err));
    }
    return DS_OK;
}

/* The turn of the store that the run is in. A chunk of turns counts as one turn. */
static ds_temporal_place turn_of(const ds_lower_rec *rec, const ds_lower_store *store,
                                 const ds_temporal_node *run) {
    bool chunk = ds_lower__rec_is_chunk(rec, run->statement) && store->turn_dim == rec->chunks.turn;
    ds_temporal_place turn = run->place[chunk ? rec->chunks.dim : store->turn_dim];
    if (chunk) turn.offset = -1 - turn.offset; /* no turn's */
    return turn;
}

static bool makes(const ds_lower_rec *rec, const ds_temporal_node *run, uint32_t i) {
    const ds_op *op = rec->op_of[run->statement];
    for (uint32_t k = 0; op && k < op->n_out; k++)
        if (ds_lower__rec_store(rec, run->statement, op->out[k]) == &rec->stores[i]) return true;
    return false;
}

/* A run in the node that writes store `i` in one turn of the loops that are open; NULL: there is
 * none. */
static const ds_temporal_node *writer_in(const ds_lower_rec *rec, const ds_temporal_node *node,
                                         uint32_t i) {
    if (node->kind == DS_TEMPORAL_RUN && makes(rec, node, i)) {
        uint32_t loop = turn_of(rec, &rec->stores[i], node).loop;
        return loop == DS_TEMPORAL_NO_LOOP || loop < rec->depth ? node : NULL;
    }
    const ds_temporal_node *run = NULL;
    for (uint32_t k = 0; node->kind == DS_TEMPORAL_LOOP && k < node->n_body && !run; k++)
        run = writer_in(rec, &node->body[k], i);
    return run;
}

ds_status ds_lower__rec_copy(ds_lower_rec *rec, ds_lower_store *store, const char *name,
                             const ds_temporal_node *run, ds_error *err) {
    ds_builder *b = &rec->l->b;
    if (!store->functional) return DS_OK;
    ds_temporal_place turn = turn_of(rec, store, run);
    if (store->copied && same_turn(&store->turn, &turn)) return DS_OK;
    DS_TRY(ds_lower__rec_end_turn(rec, &turn, err));
    store->copied = true;
    store->turn = turn;
    store->depth = rec->depth;
    store->old = store->now;
    ds_op *copy = ds_build_op(b, DS_OP_CONCAT);
    ds_build_in(b, copy, store->now);
    const char *wanted = ds_arena_printf(&rec->l->c.unit->arena, "%s.store", name);
    ds_value fresh = ds_build_out(b, copy, wanted, NULL);
    ds_build_attr_int(b, copy, "dim", store->axis);
    DS_TRY(ds_build_put(b, copy, err));
    store->now = ds_use_of(fresh);
    return DS_OK;
}

ds_status ds_lower__rec_copies(ds_lower_rec *rec, const ds_temporal_node *loop, ds_error *err) {
    for (uint32_t i = 0; i < 2 * rec->n_values; i++) {
        ds_lower_store *store = &rec->stores[i];
        if (!store->wanted || !store->functional) continue;
        bool chunks = rec->chunks.on && loop->dim == rec->chunks.dim;
        if (store->turn_dim == loop->dim || (chunks && store->turn_dim == rec->chunks.turn)) {
            DS_TRY(ds_lower__rec_end_turn(rec, NULL, err));
            continue;
        }
        const ds_temporal_node *run = writer_in(rec, loop, i);
        if (run) DS_TRY(ds_lower__rec_copy(rec, store, name_of(rec, i), run, err));
    }
    return DS_OK;
}

/* ---- rings ---- */

ds_status ds_lower__store_window(ds_lower_rec *rec, const ds_lower_store *store, const char *name,
                                 const ds_expr *bounds, const ds_expr *index, ds_use *out,
                                 ds_error *err) {
    ds_builder *b = &rec->l->b;
    ds_arena *arena = &rec->l->c.unit->arena;
    uint32_t minor = store->n_dims - 1, source = ds_lower__store_source(rec, store);
    ds_expr slots = ds_lower__int(rec->l, store->slots[minor]);
    ds_expr first = ds_lower__int(rec->l, ds_lower__rec_range(rec, source, store->dims[minor])->lo);
    ds_expr slot = ds_lower__fold(rec->l, DS_EXPR_MOD,
                                  ds_lower__fold(rec->l, DS_EXPR_SUB, index[minor], first), slots);
    ds_expr row = ds_lower__fold(rec->l, DS_EXPR_SUB, bounds[0], slot);
    ds_expr end = ds_lower__fold(rec->l, DS_EXPR_ADD, row, slots);
    ds_expr size = ds_lower__fold(rec->l, DS_EXPR_SUB, bounds[1], bounds[0]);
    ds_expr rest =
        ds_lower__fold(rec->l, DS_EXPR_SUB, ds_lower__fold(rec->l, DS_EXPR_ADD, slot, size), slots);
    rest = ds_lower__fold(rec->l, DS_EXPR_MAX, ds_lower__int(rec->l, 0), rest);
    ds_expr head[2] = {bounds[0], ds_lower__fold(rec->l, DS_EXPR_MIN, bounds[1], end)};
    ds_expr tail[2] = {row, ds_lower__fold(rec->l, DS_EXPR_ADD, row, rest)};
    ds_use parts[2];
    DS_TRY(ds_lower__store_slice(rec, store, name, head, false, &parts[0], err));
    DS_TRY(ds_lower__store_slice(rec, store, name, tail, false, &parts[1], err));
    ds_type *type = ds_type_copy(arena, ds_use_type(rec->l->c.unit, b->func, &store->now));
    ds_dim *dims = DS_NEW_N(arena, ds_dim, type->rank);
    for (uint32_t d = 0; d < type->rank; d++)
        dims[d] = d == store->axis ? (ds_dim){.size = size} : type->dims[d];
    type->dims = dims;
    ds_op *concat = ds_build_op(b, DS_OP_CONCAT);
    for (uint32_t i = 0; i < 2; i++) ds_build_in(b, concat, parts[i]);
    ds_value window = ds_build_out(b, concat, ds_arena_printf(arena, "%s.window", name), type);
    ds_build_attr_int(b, concat, "dim", store->axis);
    DS_TRY(ds_build_put(b, concat, err));
    *out = ds_use_of(window);
    return DS_OK;
}
