/* A rec becomes loops: the schedule of ir/temporal, written with the builder.
 *
 * A value that is read where it was just made is a plain value. What later turns read goes into a
 * store, a tensor that the loops carry: `put` writes the point of a turn, a slice reads points. A
 * result of the rec is a family, filled from its store after the loops.
 *
 * A run of a statement is the statement's op, copied as any op of a model, with the dims replaced
 * by what the loops around say: %x{t, l-1} is read at t = v - 3 as %x{v - 3, l-1}. */
#include "ir/passes/lower/rec_internal.h"
#include "ir/strategy/tokens.h"

#include <stdlib.h>
#include <string.h>

/* ---- places ---- */

static ds_expr expr_of(const ds_lower_rec *rec, const ds_temporal_place *place) {
    ds_expr offset = ds_lower__int(rec->l, place->offset < 0 ? -place->offset : place->offset);
    if (place->loop == DS_TEMPORAL_NO_LOOP) return ds_lower__int(rec->l, place->offset);
    if (place->offset == 0) return rec->variable[place->loop];
    return ds_lower__fold(rec->l, place->offset < 0 ? DS_EXPR_SUB : DS_EXPR_ADD,
                          rec->variable[place->loop], offset);
}

/* The type of `n` points along the store's axis. */
static const ds_type *type_of_points(const ds_lower_rec *rec, const ds_lower_store *store,
                                     ds_expr n) {
    ds_type *type = ds_type_copy(ds_lower__arena(rec->l), store->point);
    ds_dim *dims = DS_NEW_N(ds_lower__arena(rec->l), ds_dim, type->rank + 1);
    for (uint32_t d = 0; d <= type->rank; d++)
        dims[d] = d == store->axis ? (ds_dim){.size = n} : type->dims[d - (d > store->axis)];
    type->dims = dims;
    type->rank++;
    return type;
}

/* ---- stores ---- */

static ds_status open_store(ds_lower_rec *rec, ds_lower_store *store, const char *name,
                            ds_error *err) {
    int64_t n = store->twice ? 2 : 1;
    for (uint32_t i = 0; i < store->n_dims; i++)
        if (__builtin_mul_overflow(n, store->slots[i], &n))
            return ds_error_set(err, DS_ERR_OVERFLOW, rec->op->loc, "%%%s has too many points",
                                name);
    if (!store->one && store->point->rank == DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, rec->op->loc,
                            "%%%s is stored for later turns: with the points the store has more "
                            "than %d dims",
                            name, DS_MAX_RANK);
    ds_builder *b = &rec->l->b;
    ds_op *op = ds_build_op(b, DS_OP_ZEROS);
    op->loc = ds_clone_loc(&rec->l->c, rec->op->loc);
    if (store->tile) {
        ds_build_attr_int(b, op, "dim", store->axis);
        ds_build_attr_int(b, op, "tile", store->tile);
        if (store->host) ds_build_attr_int(b, op, "host", store->host);
    }
    store->now = ds_use_of(ds_build_out(
        b, op, ds_arena_printf(ds_lower__arena(rec->l), "%s.store", name),
        store->one ? store->point : type_of_points(rec, store, ds_lower__int(rec->l, n))));
    store->open = true;
    return ds_build_put(b, op, err);
}

/* Is a place of the store written for several points? */
static bool is_ring(const ds_lower_store *store) {
    bool ring = false;
    for (uint32_t i = 0; i < store->n_dims; i++) ring = ring || store->ring[i];
    return ring;
}

ds_status ds_lower__store_put(ds_lower_rec *rec, ds_lower_store *store, const char *name,
                              ds_value part, ds_expr at, ds_error *err) {
    ds_builder *b = &rec->l->b;
    ds_op *put = ds_build_op(b, DS_OP_PUT);
    ds_build_in(b, put, store->now);
    ds_build_in(b, put, ds_use_of(part));
    ds_value whole =
        ds_build_out(b, put, ds_arena_printf(ds_lower__arena(rec->l), "%s.store", name), NULL);
    ds_build_attr_int(b, put, "dim", store->axis);
    ds_build_attr_expr(b, put, "at", at);
    if (rec->l->step->train.on && !is_ring(store)) ds_build_attr_bool(b, put, "once", true);
    if (store->window && store->n_dims > 1)
        ds_build_attr_int(b, put, "row", store->slots[store->n_dims - 1]);
    if (store->window) ds_build_attr_int(b, put, "window", store->window);
    DS_TRY(ds_build_put(b, put, err));
    store->now = ds_use_of(whole);
    return DS_OK;
}

/* In training a value that loops carry may be kept for the gradient. A view into a store would keep
 * the whole store: the value is copied. */
static ds_status set_apart(ds_lower_rec *rec, ds_use *x, ds_error *err) {
    ds_builder *b = &rec->l->b;
    const ds_op *def = ds_value_at(b->func, x->value)->def;
    if (x->n_index || !rec->l->step->train.on || !ds_use_type(rec->l->c.unit, b->func, x)->rank)
        return DS_OK;
    while (def && def->code == DS_OP_RESHAPE) def = ds_value_at(b->func, def->in[0].value)->def;
    if (!def || def->code != DS_OP_SLICE) return DS_OK;
    ds_op *copy = ds_build_op(b, DS_OP_PAD);
    ds_build_in(b, copy, *x);
    ds_build_attr_int(b, copy, "dim", 0);
    *x = ds_use_of(ds_build_out(b, copy, ds_value_at(b->func, x->value)->name, NULL));
    return ds_build_put(b, copy, err);
}

static ds_status put_point(ds_lower_rec *rec, ds_lower_store *store, const char *name, ds_use x,
                           const ds_expr *index, ds_error *err) {
    ds_builder *b = &rec->l->b;
    DS_TRY(ds_lower__not_padded(rec->l, x, "a store", rec->op->loc, err));
    DS_TRY(ds_lower__cast(rec->l, &x, store->point->dtype, err));
    DS_TRY(ds_lower__store_widen(rec, store, &x, err));
    store->open = true;
    if (store->one) {
        store->now = x;
        return set_apart(rec, &store->now, err);
    }
    ds_op *reshape = ds_build_op(b, DS_OP_RESHAPE);
    ds_build_in(b, reshape, x);
    ds_value part =
        ds_build_out(b, reshape, ds_arena_printf(ds_lower__arena(rec->l), "%s.point", name),
                     type_of_points(rec, store, ds_lower__int(rec->l, 1)));
    DS_TRY(ds_build_put(b, reshape, err));
    ds_expr at = ds_lower__store_place(rec, store, index);
    DS_TRY(ds_lower__store_put(rec, store, name, part, at, err));
    if (!store->twice) return DS_OK;
    int64_t window = store->slots[store->n_dims - 1];
    return ds_lower__store_put(
        rec, store, name, part,
        ds_lower__fold(rec->l, DS_EXPR_ADD, at, ds_lower__int(rec->l, window)), err);
}

ds_status ds_lower__rec_use(ds_lower_rec *rec, const ds_use *use, ds_use *out, ds_error *err) {
    bool chunk = ds_lower__rec_is_chunk(rec, rec->running->statement), known = false;
    if (rec->chunks.on) DS_TRY(ds_lower__chunk_use(rec, use, out, &known, err));
    if (known) return DS_OK;
    if (ds_lower__rec_is_here(rec, rec->running, ds_lower__rec_read(rec, use, chunk, false))) {
        *out = rec->local[use->value.i];
        return DS_OK;
    }
    return ds_lower__store_read(rec, use, out, err);
}

bool ds_lower__rec_makes(const ds_lower_rec *rec, const ds_lower_frame *frame, ds_value value) {
    return rec && rec->frame == frame && rec->statement_of[value.i] != UINT32_MAX;
}

uint32_t ds_lower__rec_loops(const ds_lower_rec *rec, const char *const **names) {
    *names = rec ? rec->names : NULL;
    return rec ? rec->depth : 0;
}

const ds_value *ds_lower__rec_weight(ds_lower_rec *rec, const char *name, const ds_value *made) {
    if (!rec) return NULL;
    uint64_t *found = ds_map_find(&rec->weights, DS_KEY(name));
    if (found) return (const ds_value *)(uintptr_t)*found;
    if (!made) return NULL;
    ds_value *kept = DS_NEW(ds_lower__arena(rec->l), ds_value);
    *kept = *made;
    ds_map_put(&rec->weights, DS_KEY(name), (uint64_t)(uintptr_t)kept);
    return NULL;
}

/* ---- runs ---- */

/* A stack of stored points is the slice itself if the store lies that way. */
static bool is_slice(const ds_lower_rec *rec, const ds_op *op) {
    if (op->code != DS_OP_STACK || !ds_lower__rec_makes(rec, rec->frame, op->in[0].value))
        return false;
    const ds_lower_store *store = &rec->stores[op->in[0].value.i];
    const ds_attr *dim = ds_attr_find(op->attrs, op->n_attrs, "dim");
    int64_t at = 0;
    if (dim && !ds_expr_is_int(&rec->l->source->unit->exprs, dim->expr, &at)) return false;
    return store->wanted && store->ranges && at == (int64_t)store->axis;
}

static const ds_use *branch_of(const ds_lower_rec *rec, const ds_op *op) {
    const ds_lower_join *join = &rec->joins[rec->running->statement];
    if (join->joined && rec->running->place[join->dim].loop != DS_TEMPORAL_NO_LOOP)
        return join->next; /* what the loop began with is carried as the value before */
    ds_env env = ds_binding_env(rec->l->source, NULL);
    ds_index at[DS_TEMPORAL_DIMS];
    /* Any point of the run takes the same branch: loops are cut where a branch begins or ends. */
    bool chunk = ds_lower__rec_is_chunk(rec, rec->running->statement);
    for (uint32_t d = 0; d < rec->op->n_dims; d++) {
        bool in_chunk = chunk && d == rec->chunks.turn;
        const ds_temporal_place *place = &rec->running->place[in_chunk ? rec->chunks.dim : d];
        int64_t value = place->offset;
        if (place->loop != DS_TEMPORAL_NO_LOOP) value += rec->first[place->loop];
        if (in_chunk) value = rec->chunks.lo + rec->chunks.size * value;
        at[d] = (ds_index){rec->op->dims[d].name, value, env.indices};
        env.indices = &at[d];
    }
    for (uint32_t i = 0; i < op->n_conds; i++) {
        int64_t holds;
        if (ds_expr_eval_int(&env, op->conds[i], op->loc, &holds, NULL) == DS_OK && holds)
            return &op->in[i];
    }
    return &op->in[op->n_in - 1];
}

static ds_status run_op(ds_lower_rec *rec, const ds_op *op, ds_error *err) {
    uint32_t s = rec->running->statement;
    ds_use *local = ds_lower__rec_local(rec, s, op->out[0]);
    if (op->code == DS_OP_CASE)
        return ds_lower__use(rec->l, rec->frame, branch_of(rec, op), local, err);
    bool done;
    DS_TRY(ds_lower__tile_op(rec, op, &done, err));
    if (done) return DS_OK;
    if (is_slice(rec, op)) {
        DS_TRY(ds_lower__use(rec->l, rec->frame, &op->in[0], local, err));
        const ds_lower_store *store = &rec->stores[op->in[0].value.i];
        return ds_lower__chunk_move(rec, local, store->axis, err);
    }
    DS_TRY(ds_lower__op(rec->l, rec->frame, op, err));
    for (uint32_t k = 0; k < op->n_out; k++)
        *ds_lower__rec_local(rec, s, op->out[k]) = rec->frame->values[op->out[k].i].use;
    return DS_OK;
}

/* The dims of `weights` in a call; all dims of another op. */
static bool is_turn(const ds_lower_rec *rec, const ds_op *op, uint32_t dim) {
    if (!op || op->code != DS_OP_CALL) return true;
    const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, "weights");
    for (uint32_t i = 0; attr && i < attr->n_items; i++)
        if (ds_expr_at(&rec->l->source->unit->exprs, attr->items[i].expr)->name ==
            rec->op->dims[dim].name)
            return true;
    return false;
}

/* A dim of the rec as a loop of the source: its name is replaced by what the loops around say. */
static ds_lower_loop dim_as_loop(const ds_lower_rec *rec, uint32_t dim, ds_expr by) {
    const ds_binder *binder = &rec->op->dims[dim];
    return (ds_lower_loop){.op = rec->op,
                           .old = ds_clone_text(&rec->l->c, binder->name),
                           .name = ds_clone_text(&rec->l->c, binder->name),
                           .by = by,
                           .lo = ds_clone_expr(&rec->l->c, binder->lo),
                           .hi = ds_clone_expr(&rec->l->c, binder->hi)};
}

static ds_status store_results(ds_lower_rec *rec, const ds_temporal_node *node, ds_error *err) {
    const ds_op *op = rec->op_of[node->statement];
    for (uint32_t k = 0; k < (op ? op->n_out : 1); k++) {
        ds_value value = op ? op->out[k] : ds_lower__rec_result(rec, node->statement);
        ds_lower_store *store = ds_lower__rec_store(rec, node->statement, value);
        const char *name = ds_value_at(rec->frame->func, value)->name;
        ds_use made = *ds_lower__rec_local(rec, node->statement, value);
        ds_expr index[DS_TEMPORAL_DIMS] = {0};
        if (!store->wanted) continue;
        DS_TRY(ds_lower__rec_copy(rec, store, name, node, err));
        bool chunk = ds_lower__rec_is_chunk(rec, node->statement);
        bool joint = chunk && store == &rec->stores[value.i];
        for (uint32_t i = 0; i < store->n_dims; i++)
            index[i] = joint && store->dims[i] == rec->chunks.turn
                           ? rec->chunks.first
                           : expr_of(rec, &node->place[store->dims[i]]);
        if (joint) {
            DS_TRY(ds_lower__chunk_put(rec, store, name, made, index, err));
            continue;
        }
        if (chunk) DS_TRY(ds_lower__chunk_settle(rec, &made, store->point, err));
        DS_TRY(put_point(rec, store, name, made, index, err));
    }
    return DS_OK;
}

/* Reads and copies at the point of a run: dims are replaced by what the loops around say. `use`:
 * only this use is read, into *out. */
static ds_status at_point(ds_lower_rec *rec, const ds_temporal_node *node, const ds_use *use,
                          ds_use *out, ds_error *err) {
    ds_lowering *l = rec->l;
    ds_lower_frame *frame = rec->frame;
    const ds_op *op = rec->op_of[node->statement];
    const ds_lower_loop *loops = l->loops, *own = frame->loops;
    const char *key = frame->where.key;
    ds_lower_loop dims[DS_TEMPORAL_DIMS], turns[DS_TEMPORAL_DIMS];
    for (uint32_t d = 0; d < rec->program.n_dims; d++) {
        if (!(rec->program.statements[node->statement].dims >> d & 1)) continue;
        if (rec->chunks.on && d == rec->chunks.dim)
            dims[d] =
                dim_as_loop(rec, rec->chunks.turn,
                            ds_lower__chunk_begin(rec, &dims[d], expr_of(rec, &node->place[d])));
        else
            dims[d] = dim_as_loop(rec, d, expr_of(rec, &node->place[d]));
        turns[d] = dims[d];
        dims[d].unrolled = true; /* always replaced */
        dims[d].frame_up = frame->loops;
        frame->loops = &dims[d];
        turns[d].shared = !is_turn(rec, op, d < rec->op->n_dims ? d : rec->chunks.turn);
        turns[d].up = l->loops;
        l->loops = &turns[d];
        frame->where.key =
            ds_arena_printf(ds_lower__arena(rec->l), "%s%s.", frame->where.key, dims[d].old);
    }
    rec->running = node;
    ds_status status = use ? ds_lower__use(l, frame, use, out, err) : run_op(rec, op, err);
    l->loops = loops;
    frame->loops = own;
    frame->where.key = key;
    return status;
}

static ds_status run(ds_lower_rec *rec, const ds_temporal_node *node, ds_error *err) {
    if (rec->op_of[node->statement])
        DS_TRY(at_point(rec, node, NULL, NULL, err));
    else {
        ds_use *made =
            ds_lower__rec_local(rec, node->statement, ds_lower__rec_result(rec, node->statement));
        DS_TRY(at_point(rec, node, rec->yielded[node->statement], made, err));
        DS_TRY(ds_lower__not_padded(rec->l, *made, "a result", rec->op->loc, err));
    }
    ds_lower_here *here = &rec->here[node->statement];
    *here = (ds_lower_here){.valid = true, .depth = rec->depth};
    memcpy(here->place, node->place, sizeof here->place);
    return store_results(rec, node, err);
}

/* ---- loops ---- */

/* By store. */
static void mark_written(const ds_lower_rec *rec, const ds_temporal_node *nodes, uint32_t n,
                         bool *written) {
    for (uint32_t i = 0; i < n; i++) {
        if (nodes[i].kind == DS_TEMPORAL_LOOP)
            mark_written(rec, nodes[i].body, nodes[i].n_body, written);
        if (nodes[i].kind != DS_TEMPORAL_RUN) continue;
        uint32_t s = nodes[i].statement;
        const ds_op *op = rec->op_of[s];
        for (uint32_t k = 0; op && k < op->n_out; k++)
            written[ds_lower__rec_store(rec, s, op->out[k]) - rec->stores] = true;
        if (!op)
            written[ds_lower__rec_store(rec, s, ds_lower__rec_result(rec, s)) - rec->stores] = true;
    }
}

const char *ds_lower__rec_index(const ds_lower_rec *rec, const char *wanted) {
    const char **open = DS_NEW_N(ds_lower__arena(rec->l), const char *, rec->depth + 16);
    uint32_t n = 0;
    if (rec->l->micro_index) open[n++] = rec->l->micro_index;
    for (const ds_lower_loop *at = rec->l->loops; at && n < 15; at = at->up)
        if (!at->unrolled) open[n++] = at->name;
    for (uint32_t i = 0; i < rec->depth; i++) open[n++] = rec->names[i];
    return ds_clone_index_name(&rec->l->c, wanted, open, n);
}

static ds_status write_nodes(ds_lower_rec *rec, const ds_temporal_node *nodes, uint32_t n,
                             ds_error *err);

/* What carried values are before the loop's first turn, where a case says so. */
static ds_status write_inits(ds_lower_rec *rec, const ds_temporal_node *loop, ds_error *err) {
    for (uint32_t i = 0; i < loop->n_body; i++) {
        bool starts;
        const ds_temporal_node *node = &loop->body[i];
        if (node->kind != DS_TEMPORAL_RUN ||
            !ds_lower__rec_in_join(rec, node, loop, rec->depth, &starts) || !starts)
            continue;
        const ds_lower_join *join = &rec->joins[node->statement];
        ds_lower_store *store = ds_lower__rec_store(rec, node->statement, join->next->value);
        ds_temporal_node first = ds_lower__rec_first(rec, node);
        DS_TRY(at_point(rec, &first, join->init, &store->now, err));
        if (ds_lower__rec_is_chunk(rec, node->statement))
            DS_TRY(ds_lower__chunk_settle(rec, &store->now, store->point, err));
        DS_TRY(ds_lower__cast(rec->l, &store->now, store->point->dtype, err));
        DS_TRY(set_apart(rec, &store->now, err));
        store->open = true;
    }
    return DS_OK;
}

/* The yield: carried stores, then the results that the loop keeps. */
static ds_status end_loop(ds_lower_rec *rec, const ds_temporal_node *node, const ds_op *loop,
                          ds_lower_store *const *carried, uint32_t n, ds_error *err) {
    ds_builder *b = &rec->l->b;
    ds_use *next = DS_NEW_N(ds_lower__arena(rec->l), ds_use, n + 1);
    for (uint32_t i = 0; i < n; i++) next[i] = carried[i]->now;
    uint32_t n_kept = 0, n_out = rec->op->n_out;
    ds_use *kept = DS_NEW_N(ds_lower__arena(rec->l), ds_use, n_out + 1);
    const char **names = DS_NEW_N(ds_lower__arena(rec->l), const char *, n + n_out + 1);
    for (uint32_t k = 0; k < n_out; k++) {
        if (rec->kept_by[k] != node) continue;
        names[n + n_kept] =
            ds_clone_text(&rec->l->c, ds_value_at(rec->frame->func, rec->op->out[k])->name);
        kept[n_kept++] = rec->local[rec->op->out[k].i];
    }
    DS_TRY(ds_build_yield(b, next, n, kept, n_kept, names, err));
    for (uint32_t i = 0; i < n; i++) carried[i]->now = ds_use_of(loop->out[i]);
    for (uint32_t k = 0; k < n_out; k++)
        if (rec->kept_by[k] == node)
            rec->frame->values[rec->op->out[k].i].use = ds_use_of(loop->out[n++]);
    return DS_OK;
}

static const char *name_of_store(const ds_lower_rec *rec, uint32_t i) {
    return ds_value_at(rec->frame->func, (ds_value){i % rec->n_values})->name;
}

static ds_status write_loop(ds_lower_rec *rec, const ds_temporal_node *node, ds_error *err) {
    ds_builder *b = &rec->l->b;
    uint32_t n_stores = 2 * rec->n_values, n = 0;
    bool *written = DS_NEW_N(ds_lower__arena(rec->l), bool, n_stores + 1);
    ds_lower_store **carried = DS_NEW_N(ds_lower__arena(rec->l), ds_lower_store *, n_stores + 1);
    mark_written(rec, node->body, node->n_body, written);
    DS_TRY(write_inits(rec, node, err));
    DS_TRY(ds_lower__rec_copies(rec, node, err));
    for (uint32_t i = 0; i < n_stores; i++) {
        ds_lower_store *store = &rec->stores[i];
        if (written[i] && store->wanted && !store->open)
            DS_TRY(open_store(rec, store, name_of_store(rec, i), err));
    }
    const char *name = ds_lower__rec_index(rec, rec->program.dims[node->dim].name);
    ds_op *loop =
        ds_build_for(b, name, ds_lower__int(rec->l, node->lo), ds_lower__int(rec->l, node->hi));
    loop->loc = ds_clone_loc(&rec->l->c, rec->op->loc);
    for (uint32_t i = 0; i < n_stores; i++) {
        if (!written[i] || !rec->stores[i].wanted) continue;
        const char *wanted =
            ds_arena_printf(ds_lower__arena(rec->l), "%s.store", name_of_store(rec, i));
        ds_lower_store *store = carried[n++] = &rec->stores[i];
        store->now = ds_use_of(ds_build_carry(b, loop, wanted, NULL, store->now));
    }
    ds_expr index = ds_expr_index(ds_lower__exprs(rec->l), loop->index);
    rec->names[rec->depth] = loop->index;
    rec->first[rec->depth] = node->lo;
    rec->variable[rec->depth] =
        node->reverse ? ds_lower__fold(rec->l, DS_EXPR_SUB,
                                       ds_lower__int(rec->l, node->lo + node->hi - 1), index)
                      : index;
    rec->depth++;
    DS_TRY(write_nodes(rec, node->body, node->n_body, err));
    DS_TRY(ds_lower__rec_end_turn(rec, NULL, err));
    rec->depth--;
    for (uint32_t s = 0; s < rec->program.n; s++)
        if (rec->here[s].depth > rec->depth) rec->here[s].valid = false;
    return end_loop(rec, node, loop, carried, n, err);
}

static ds_status write_nodes(ds_lower_rec *rec, const ds_temporal_node *nodes, uint32_t n,
                             ds_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        if (nodes[i].kind == DS_TEMPORAL_LOOP) DS_TRY(write_loop(rec, &nodes[i], err));
        if (nodes[i].kind == DS_TEMPORAL_RUN) DS_TRY(run(rec, &nodes[i], err));
    }
    return DS_OK;
}

/* ---- results ---- */

/* A point of a result, at an index for each dim of the store. */
static ds_status write_element(ds_lower_rec *rec, const ds_lower_store *store, const char *name,
                               const ds_expr *index, ds_use *out, ds_error *err) {
    ds_builder *b = &rec->l->b;
    ds_value value = {(uint32_t)(store - rec->stores) % rec->n_values};
    ds_expr at[DS_TEMPORAL_DIMS];
    bool empty = false;
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) at[d] = DS_NO_EXPR;
    for (uint32_t k = 0; k < store->n_dims; k++) {
        at[store->dims[k]] = index[k];
        empty = empty || !store->slots[k];
    }
    if (!empty) {
        DS_TRY(ds_lower__store_take(rec, store, name, index, DS_NO_EXPR, out, err));
        return ds_lower__store_narrow(rec, store, value, at, 0, out, err);
    }
    ds_op *zeros = ds_build_op(b, DS_OP_ZEROS); /* in a loop without turns */
    *out = ds_use_of(ds_build_out(b, zeros, name, ds_lower__store_type(rec, store, value, at)));
    return ds_build_put(b, zeros, err);
}

/* for t in lo..hi { %x = the store's point; yield keep %x }, a loop a dim. */
static ds_status write_family(ds_lower_rec *rec, const ds_lower_store *store, const char *name,
                              uint32_t dim, ds_expr *index, ds_use *out, ds_error *err) {
    ds_builder *b = &rec->l->b;
    if (store->one) {
        *out = store->now;
        return DS_OK;
    }
    uint32_t at = 0; /* the header's dim-th of the store's */
    for (uint32_t k = 0; k < store->n_dims; k++) {
        uint32_t before = 0;
        for (uint32_t i = 0; i < store->n_dims; i++) before += store->dims[i] < store->dims[k];
        if (before == dim) at = k;
    }
    if (dim == store->n_dims) return write_element(rec, store, name, index, out, err);
    const ds_temporal_range *range = ds_lower__rec_range(rec, UINT32_MAX, store->dims[at]);
    const char *text = ds_lower__rec_index(rec, rec->program.dims[store->dims[at]].name);
    ds_op *loop =
        ds_build_for(b, text, ds_lower__int(rec->l, range->lo), ds_lower__int(rec->l, range->hi));
    loop->loc = ds_clone_loc(&rec->l->c, rec->op->loc);
    rec->names[rec->depth++] = loop->index;
    index[at] = ds_expr_index(ds_lower__exprs(rec->l), loop->index);
    ds_use point;
    DS_TRY(write_family(rec, store, name, dim + 1, index, &point, err));
    rec->depth--;
    DS_TRY(ds_build_yield(b, NULL, 0, &point, 1, &name, err));
    *out = ds_use_of(loop->out[0]);
    return DS_OK;
}

static ds_status write_results(ds_lower_rec *rec, ds_error *err) {
    for (uint32_t k = 0; k < rec->op->n_out; k++) {
        ds_value value = rec->op->out[k];
        ds_expr index[DS_TEMPORAL_DIMS] = {0};
        if (rec->kept_by[k]) continue;
        DS_TRY(write_family(rec, &rec->stores[value.i],
                            ds_clone_text(&rec->l->c, ds_value_at(rec->frame->func, value)->name),
                            0, index, &rec->frame->values[value.i].use, err));
    }
    return DS_OK;
}

/* ---- the rec ---- */

/* A weight of the rec is an argument, as a weight in loops over its dims. */
static ds_status write_weights(ds_lower_rec *rec, ds_error *err) {
    ds_lowering *l = rec->l;
    const ds_block *body = rec->op->body;
    for (uint32_t i = 0; i < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
        if (op->code != DS_OP_WEIGHT) continue;
        const ds_value_info *info = ds_value_at(rec->frame->func, op->out[0]);
        const ds_lower_loop *loops = l->loops;
        ds_lower_loop dims[DS_TEMPORAL_DIMS];
        for (uint32_t k = 0; k < info->n_binders; k++) {
            uint32_t d = 0;
            while (rec->op->dims[d].name != info->binders[k].name) d++;
            dims[k] =
                dim_as_loop(rec, d, ds_expr_index(ds_lower__exprs(rec->l), info->binders[k].name));
            dims[k].up = l->loops;
            l->loops = &dims[k];
        }
        ds_status status = ds_lower__op(l, rec->frame, op, err);
        l->loops = loops;
        if (status != DS_OK) return status;
        /* Loops around the rec stay in the use; the rec's dims come with each read. */
        ds_lower_value *made = &rec->frame->values[op->out[0].i];
        made->use.n_index -= info->n_binders;
    }
    return DS_OK;
}

/* Dims that state weights. With these outside, a weight is read in the turns of one loop, where its
 * gradient is summed. */
uint32_t ds_lower__rec_weight_dims(const ds_lower_rec *rec) {
    uint32_t dims = 0;
    for (uint32_t d = 0; d < rec->op->n_dims; d++)
        for (uint32_t i = 0; i < rec->op->body->n_ops; i++) {
            const ds_op *op = rec->op->body->ops[i];
            if (op->code == DS_OP_CALL && ds_attr_find(op->attrs, op->n_attrs, "weights") &&
                is_turn(rec, op, d))
                dims |= 1u << d;
            if (op->code != DS_OP_WEIGHT) continue;
            const ds_value_info *info = ds_value_at(rec->frame->func, op->out[0]);
            for (uint32_t k = 0; k < info->n_binders; k++)
                if (info->binders[k].name == rec->op->dims[d].name) dims |= 1u << d;
        }
    return dims;
}

/* The turns that the scenario counts as tokens can be told apart. */
static ds_status show_turns(ds_lower_rec *rec, ds_error *err) {
    ds_tokens tokens;
    DS_TRY(ds_tokens_read(rec->l->source, &tokens, err));
    for (uint32_t d = 0; tokens.is_given && d < rec->op->n_dims; d++)
        if (strcmp(rec->op->dims[d].name, tokens.dim) == 0) rec->program.turns |= 1u << d;
    return DS_OK;
}

static ds_status write_rec(ds_lower_rec *rec, ds_error *err) {
    DS_TRY(ds_lower__rec_program(rec, err));
    DS_TRY(show_turns(rec, err));
    if (rec->l->step->train.on) rec->program.outer = ds_lower__rec_weight_dims(rec);
    rec->program.apart = rec->l->step->strategy.rec_fuse == DS_REC_APART;
    rec->program.unfreed = true; /* a value ends with its last reader; a ring, by its slots */
    rec->joins = DS_NEW_N(ds_lower__arena(rec->l), ds_lower_join, 2 * rec->program.n + 1);
    DS_TRY(ds_temporal_schedule_make(&rec->program, ds_lower__arena(rec->l), &rec->schedule, err));
    rec->whole = rec->program;
    DS_TRY(ds_lower__rec_prompt(rec, err));
    DS_TRY(ds_lower__rec_stores(rec, err));
    if (ds_lower__rec_joins(rec)) {
        DS_TRY(
            ds_temporal_schedule_make(&rec->program, ds_lower__arena(rec->l), &rec->schedule, err));
        DS_TRY(ds_lower__rec_stores(rec, err));
    }
    if (rec->has_stored) rec->l->stored = true;
    if (!rec->has_stored && !rec->l->unstored) rec->l->unstored = rec->op;
    ds_lower__rec_note_order(rec);
    DS_TRY(write_weights(rec, err));
    for (uint32_t i = 0; i < 2 * rec->n_values; i++)
        if (rec->stores[i].wanted && !rec->stores[i].one)
            DS_TRY(open_store(rec, &rec->stores[i], name_of_store(rec, i), err));
    DS_TRY(write_nodes(rec, rec->schedule.nodes, rec->schedule.n_nodes, err));
    DS_TRY(ds_lower__rec_end_turn(rec, NULL, err));
    return write_results(rec, err);
}

static ds_status lower_rec(ds_lowering *l, ds_lower_frame *frame, const ds_op *op,
                           const ds_lower_parts *parts, ds_error *err) {
    ds_lower_rec rec = {.l = l, .frame = frame, .op = op, .parts = parts};
    ds_map_init(&rec.read_of);
    ds_map_init(&rec.chunks.back_of);
    ds_map_init(&rec.weights);
    ds_map_init(&rec.padded);
    ds_map_init(&rec.stored);
    ds_map_init(&rec.chunks.marks);
    l->rec = &rec;
    ds_status status = write_rec(&rec, err);
    if (status != DS_OK && err && !err->loc.line) ds_error_move(err, op->loc);
    l->rec = NULL;
    ds_map_deinit(&rec.read_of);
    ds_map_deinit(&rec.chunks.back_of);
    ds_map_deinit(&rec.weights);
    ds_map_deinit(&rec.padded);
    ds_map_deinit(&rec.stored);
    ds_map_deinit(&rec.chunks.marks);
    return status;
}

/* Over the stages of a pipeline a rec without a backward pass is cut first. */
ds_status ds_lower__rec(ds_lowering *l, ds_lower_frame *frame, const ds_op *op, ds_error *err) {
    ds_lower_parts parts = {0};
    if (l->step->strategy.pp == 1 || l->step->train.on) return lower_rec(l, frame, op, NULL, err);
    ds_map_init(&parts.of);
    ds_status status = ds_lower__rec_cut(l, frame, op, &parts, err);
    if (status == DS_OK) status = lower_rec(l, &parts.frame, parts.rec, &parts, err);
    for (uint32_t k = 0; k < op->n_out && status == DS_OK; k++)
        frame->values[op->out[k].i] = parts.frame.values[op->out[k].i];
    ds_map_deinit(&parts.of);
    return status;
}
