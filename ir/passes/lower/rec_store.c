/* Which values of a rec are stored for turns to come, and in what: a value that every reader reads
 * where the value was just made needs no store. */
#include "ir/passes/lower/rec_internal.h"

#include <string.h>

/* e at the run's point, as a place; false: neither a variable plus a number nor a number. */
static bool place_of(const ds_temporal_node *run, const ds_temporal_expr *e,
                     ds_temporal_place *out) {
    ds_temporal_place a, b;
    *out = (ds_temporal_place){DS_TEMPORAL_NO_LOOP, 0, 1};
    if (e->kind == DS_TEMPORAL_CONST) {
        out->offset = e->value;
        return true;
    }
    if (e->kind == DS_TEMPORAL_DIM) {
        *out = run->place[e->value];
        return true;
    }
    if ((e->kind != DS_TEMPORAL_ADD && e->kind != DS_TEMPORAL_SUB) || !place_of(run, e->a, &a) ||
        !place_of(run, e->b, &b))
        return false;
    if (b.loop != DS_TEMPORAL_NO_LOOP) {
        if (e->kind == DS_TEMPORAL_SUB || a.loop != DS_TEMPORAL_NO_LOOP) return false;
        ds_temporal_place swap = a;
        a = b;
        b = swap;
    }
    *out = a;
    out->offset += e->kind == DS_TEMPORAL_ADD ? b.offset : -b.offset;
    return true;
}

bool ds_lower__rec_is_here(const ds_lower_rec *rec, const ds_temporal_node *run,
                           const ds_temporal_read *read) {
    const ds_lower_here *here = &rec->here[read->source];
    uint32_t dims = rec->program.statements[read->source].dims;
    if (!here->valid) return false;
    for (uint32_t d = 0; d < rec->program.n_dims; d++) {
        ds_temporal_place place;
        if (!(dims >> d & 1)) continue;
        /* Of one chunk a range is that chunk. */
        bool one = rec->chunks.on && d == rec->chunks.dim && rec->chunks.n == 1;
        if (one && ds_lower__rec_is_chunk(rec, run->statement) && read->index[d].end &&
            read->index[d].end->kind != DS_TEMPORAL_CONST)
            continue;
        if (read->index[d].end || !place_of(run, read->index[d].at, &place)) return false;
        if (place.loop != here->place[d].loop || place.offset != here->place[d].offset)
            return false;
    }
    return true;
}

/* ---- readers of stores ---- */

/* Does the read hold in the run? A read that begins a loop does so before the loop. */
static bool is_active(const ds_lower_rec *rec, const ds_temporal_node *run,
                      const ds_temporal_read *read) {
    return read->joined < 0 || run->active[read - rec->program.statements[run->statement].reads];
}

static void want(ds_lower_rec *rec, const ds_temporal_node *run, const ds_use *use) {
    bool chunk = ds_lower__rec_is_chunk(rec, run->statement);
    for (int of_chunk = 0; of_chunk < 2; of_chunk++) {
        const ds_temporal_read *read = ds_lower__rec_read(rec, use, chunk, of_chunk);
        if (!read || ds_lower__rec_is_here(rec, run, read)) continue;
        if (!is_active(rec, run, read)) continue;
        ds_lower__rec_store(rec, read->source, use->value)->wanted = true;
        ds_map_put(&rec->stored, DS_KEY(read), 1);
    }
}

static void want_op(ds_lower_rec *rec, const ds_temporal_node *run, const ds_op *op) {
    const ds_lower_join *join = &rec->joins[run->statement];
    if (join->joined) {
        const ds_temporal_place *at = &run->place[join->dim];
        bool first = at->loop == DS_TEMPORAL_NO_LOOP && at->offset == join->first;
        want(rec, run, first ? join->init : join->next);
        return;
    }
    for (uint32_t i = 0; i < op->n_in; i++) want(rec, run, &op->in[i]);
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++) want_op(rec, run, op->body->ops[i]);
}

/* What the loop begins with is read before the loop. */
static void want_inits(ds_lower_rec *rec, const ds_temporal_node *loop, uint32_t depth) {
    for (uint32_t i = 0; i < loop->n_body; i++) {
        bool starts;
        const ds_temporal_node *run = &loop->body[i];
        if (run->kind != DS_TEMPORAL_RUN ||
            !ds_lower__rec_in_join(rec, run, loop, depth, &starts) || !starts)
            continue;
        ds_temporal_node first = ds_lower__rec_first(rec, run);
        want(rec, &first, rec->joins[run->statement].init);
    }
}

static void walk(ds_lower_rec *rec, const ds_temporal_node *nodes, uint32_t n, uint32_t depth) {
    for (uint32_t i = 0; i < n; i++) {
        const ds_temporal_node *node = &nodes[i];
        if (node->kind == DS_TEMPORAL_LOOP) {
            want_inits(rec, node, depth);
            walk(rec, node->body, node->n_body, depth + 1);
            for (uint32_t s = 0; s < rec->program.n; s++)
                if (rec->here[s].depth > depth) rec->here[s].valid = false;
            continue;
        }
        if (node->kind == DS_TEMPORAL_FREE) continue;
        const ds_op *op = rec->op_of[node->statement];
        if (op)
            want_op(rec, node, op);
        else
            want(rec, node, rec->yielded[node->statement]);
        ds_lower_here *here = &rec->here[node->statement];
        *here = (ds_lower_here){.valid = true, .depth = depth};
        memcpy(here->place, node->place, sizeof here->place);
    }
}

/* ---- slots ---- */

typedef ds_lower_path path;

static void find_paths(const ds_temporal_nest *nest, uint32_t n, const path *around, path *paths,
                       uint32_t *at) {
    for (uint32_t i = 0; i < n; i++) {
        path inner = *around;
        if (nest[i].loop) {
            inner.loops[inner.n++] = &nest[i];
            find_paths(nest[i].body, nest[i].n_body, &inner, paths, at);
        } else if (!nest[i].free) {
            inner.at = (*at)++;
            paths[nest[i].statement] = inner;
        }
    }
}

ds_lower_path *ds_lower__rec_paths(const ds_lower_rec *rec) {
    path *paths = DS_NEW_N(&rec->l->c.unit->arena, path, rec->program.n + 1);
    uint32_t at = 0;
    if (!rec->schedule.parted) /* else the nest's statements are parts */
        find_paths(rec->schedule.nest, rec->schedule.n_nest, &(path){0}, paths, &at);
    return paths;
}

/* A stored value's reads and where all statements stand. Where turns and chunks are in one store,
 * the reads are those of the program without chunks. */
typedef struct slots {
    ds_lower_rec *rec;
    const ds_temporal_program *program;
    uint32_t source;
    const path *paths;
    bool joint;
} slots;

static bool is_stored(const slots *s, const ds_temporal_read *read) {
    return read->source == s->source && (s->joint || ds_map_find(&s->rec->stored, DS_KEY(read)));
}

static bool shares(const path *a, const path *b, uint32_t depth) {
    return a->n > depth && b->n > depth && a->loops[depth] == b->loops[depth];
}

/* Is the slot read before the same turn writes it anew? The reader stands in the source's loops,
 * perhaps in others inside of them, and first; it reads the current point of the loops inside. */
static bool reads_first(const slots *s, uint32_t reader, const ds_temporal_read *read,
                        uint32_t depth) {
    const path *from = &s->paths[s->source], *to = &s->paths[reader];
    if (from->n > to->n || to->at >= from->at) return false;
    for (uint32_t k = 0; k < from->n; k++)
        if (from->loops[k] != to->loops[k]) return false;
    for (uint32_t k = depth + 1; k < from->n; k++) {
        const ds_temporal_index *index = &read->index[from->loops[k]->dim];
        if (index->end || !index->at || index->at->kind != DS_TEMPORAL_DIM ||
            index->at->value != from->loops[k]->dim ||
            from->loops[k]->shift[reader] != from->loops[k]->shift[s->source])
            return false;
    }
    return !read->index[from->loops[depth]->dim].end;
}

/* Slots that a read asks of the loop at `depth` around its source; INT64_MAX: all points. *turns:
 * how many turns later the read may come. */
static int64_t slots_of_read(const slots *s, uint32_t reader, const ds_temporal_read *read,
                             uint32_t depth, int64_t *turns) {
    const ds_temporal_nest *loop = s->paths[s->source].loops[depth];
    const ds_temporal_program *program = s->program;
    *turns = INT64_MAX;
    if (!shares(&s->paths[s->source], &s->paths[reader], depth)) {
        /* After the loop: the last points are still there. */
        const ds_temporal_index *index = &read->index[loop->dim];
        const ds_temporal_range *range = ds_lower__rec_range(s->rec, s->source, loop->dim);
        if (!index->at) return 1; /* the value lacks the dim */
        if (index->end || index->at->kind != DS_TEMPORAL_CONST) return INT64_MAX;
        int64_t need =
            loop->direction > 0 ? range->hi - index->at->value : index->at->value - range->lo + 1;
        if (need == 1) *turns = 0; /* the last turn's point is what loops inside left */
        return need;
    }
    int64_t reach = ds_temporal_reach(program, reader, read, loop->dim, loop->direction,
                                      &s->rec->l->c.unit->arena);
    if (reach == INT64_MIN) return 0;
    *turns = reach + loop->shift[reader] - loop->shift[s->source];
    return *turns > 0 && reads_first(s, reader, read, depth) ? *turns : *turns + 1;
}

/* Does the gradient of an op read what the statement makes? Views and cases pass the value on. */
static bool gradient_reads(const ds_lower_rec *rec, uint32_t source, bool *seen) {
    if (seen[source]) return false;
    seen[source] = true;
    for (uint32_t s = 0; s < rec->program.n; s++)
        for (uint32_t r = 0; r < rec->program.statements[s].n_reads; r++) {
            const ds_op *op = rec->op_of[s];
            if (!op || rec->program.statements[s].reads[r].source != source) continue;
            const ds_op_desc *desc = ds_op_desc_of(op->code);
            if (!desc && op->code != DS_OP_CASE) return true; /* a loop, a call */
            for (uint32_t of = 0; desc && of < op->n_in; of++)
                for (uint32_t i = 0; i < op->n_in; i++)
                    if (rec->statement_of[op->in[i].value.i] == source &&
                        ds_op_saves_operand(desc, of, i))
                        return true;
            bool passes = !desc || strcmp(desc->family, "layout") == 0;
            if (passes && gradient_reads(rec, s, seen)) return true;
        }
    return false;
}

/* A ring would be copied in each turn for the gradient: all points are less. */
static bool is_whole(const ds_lower_rec *rec, uint32_t source) {
    if (rec->l->step->strategy.rec_stores == DS_REC_WHOLE) return true;
    bool *seen = DS_NEW_N(&rec->l->c.unit->arena, bool, rec->program.n + 1);
    return rec->l->step->train.on && gradient_reads(rec, source, seen);
}

/* Points whose memory is taken together: the strategy's tile; 0 where stores are there at once. */
static int64_t tile_of(const ds_lower_rec *rec) {
    const ds_strategy *s = &rec->l->step->strategy;
    if (s->rec_stores == DS_REC_POINT || s->rec_stores == DS_REC_HOST) return 1;
    if (s->rec_stores == DS_REC_BLOCK) return s->rec_tile ? s->rec_tile : DS_REC_BLOCK_POINTS;
    if (s->rec_stores == DS_REC_PAGED) return s->rec_tile ? s->rec_tile : DS_REC_PAGE_POINTS;
    return 0;
}

/* Of `most` points that are still read: ds_lower_store.window. In an outer loop the points of the
 * turn before end with the first write. */
static int64_t window_of(const ds_lower_store *store, const path *own, uint32_t depth,
                         int64_t most) {
    uint32_t k = 0;
    while (store->dims[k] != own->loops[depth]->dim) k++;
    if (most >= store->slots[k]) most = depth ? store->slots[k] : 0;
    return most * own->loops[depth]->direction;
}

/* Tiles along dim `k`, which becomes the minor one. False: the strategy has none, or ranges of
 * another dim are read, which lies so already. */
static bool set_tiles(const ds_lower_rec *rec, ds_lower_store *store, uint32_t k, int64_t window) {
    uint32_t last = store->n_dims - 1, dim = store->dims[k];
    int64_t points = store->slots[k], tile = tile_of(rec);
    const ds_strategy *strategy = &rec->l->step->strategy;
    bool host = strategy->rec_stores == DS_REC_HOST;
    if (host && (store->ranges || rec->l->step->train.on)) return false; /* read where it lies */
    if (host) store->host = strategy->rec_prefetch ? strategy->rec_prefetch : DS_REC_PREFETCH;
    if (!tile || (store->ranges && k != last)) return false;
    for (; k < last; k++) {
        store->dims[k] = store->dims[k + 1];
        store->slots[k] = store->slots[k + 1];
        store->ring[k] = store->ring[k + 1];
    }
    store->dims[last] = dim;
    store->slots[last] = points;
    store->ring[last] = false;
    store->tile = tile;
    store->window = window;
    return true;
}

/* Chunks that read earlier ones find those of a window in one piece, as their own points: so many
 * whole chunks. */
static int64_t slots_for_chunks(const slots *s, int64_t most) {
    const ds_lower_chunks *chunks = &s->rec->chunks;
    int64_t back = chunks->back[s->source];
    if (chunks->n == 1 || most == INT64_MAX) return most;
    if (back == INT64_MAX) return INT64_MAX;
    if (back + chunks->size > most) most = back + chunks->size;
    return (most + chunks->size - 1) / chunks->size * chunks->size;
}

/* Of so many points one after another, the points of all blocks that they may lie in; chunks are
 * whole, too. */
static int64_t blocks_of(const slots *s, const ds_lower_store *store, int64_t points) {
    int64_t block = store->block, all = ((points + block - 2) / block + 1) * block, step = block;
    while (s->joint && step % s->rec->chunks.size) step += block;
    return (all + step - 1) / step * step;
}

/* Rings, from the outermost loop in. A dim inside may be one only if every read comes in the turn
 * of the loops around that made the point. */
static void find_rings(const slots *s, ds_lower_store *store) {
    const path *own = &s->paths[s->source];
    const ds_temporal_program *program = s->program;
    bool same_turn = true, whole = is_whole(s->rec, s->source);
    for (uint32_t depth = 0; depth < own->n && same_turn; depth++) {
        uint32_t dim = own->loops[depth]->dim, k = 0;
        int64_t most = 1;
        while (k < store->n_dims && store->dims[k] != dim) k++;
        for (uint32_t r = 0; r < program->n; r++)
            for (uint32_t i = 0; i < program->statements[r].n_reads; i++) {
                const ds_temporal_read *read = &program->statements[r].reads[i];
                int64_t turns, need;
                if (!is_stored(s, read)) continue;
                need = slots_of_read(s, r, read, depth, &turns);
                if (need > most) most = need;
                same_turn = same_turn && turns == 0;
            }
        if (k == store->n_dims) {
            same_turn = false; /* made once in a loop that it lacks: leave the rest whole */
            continue;
        }
        if (s->joint && dim == s->rec->chunks.turn) most = slots_for_chunks(s, most);
        ds_rec_stores kind = s->rec->l->step->strategy.rec_stores;
        /* Windows are in one piece in the minor dim alone, and there not beside other ranges. */
        bool range = store->ranges >> dim & 1, minor = k + 1 == store->n_dims;
        if (range && (store->many || (most > 1 && !minor))) most = INT64_MAX;
        bool ranged = range && minor && most > 1;
        bool blocks = ranged && store->block && !store->mixed;
        bool twice = ranged && !blocks && kind != DS_REC_RING;
        if (most > 1 && (whole || (ranged && store->mixed))) continue;
        int64_t window = window_of(store, own, depth, most);
        if (most > 1 && !s->rec->l->step->train.on && set_tiles(s->rec, store, k, window)) continue;
        bool anew = kind == DS_REC_FUNCTIONAL && !s->rec->l->step->train.on;
        if (most > 1 && store->slots[k] > 1 && anew) {
            store->functional = true;
            store->turn_dim = dim;
            continue;
        }
        if (blocks && most < store->slots[k]) most = blocks_of(s, store, most);
        if (most >= store->slots[k]) continue;
        if (twice && kind != DS_REC_CIRCULAR && most > store->slots[k] / 2) continue;
        store->slots[k] = most;
        store->ring[k] = true;
        store->twice = twice;
        store->once = ranged && !blocks && !twice;
    }
}

static void count_slots(const ds_lower_rec *rec, ds_lower_store *store) {
    store->one = !store->ranges;
    for (uint32_t k = 0; k < store->n_dims; k++) store->one = store->one && store->slots[k] == 1;
    uint32_t last = store->n_dims - 1;
    int64_t tile = tile_of(rec);
    store->functional = store->functional && !store->one;
    if (store->one || store->n_dims == 0) return;
    if (store->block)
        store->slots[last] = (store->slots[last] + store->block - 1) / store->block * store->block;
    if (!tile) return;
    if (!store->tile && !store->ring[last]) set_tiles(rec, store, last, 0);
    /* Each row begins with a tile. */
    if (store->tile) store->slots[last] = (store->slots[last] + tile - 1) / tile * tile;
}

/* ---- layout ---- */

/* The dims of a store, in the header's order, but for the minor one: the turns that chunks write, or
 * a dim of which ranges are read. Of several such dims the first one, which can be a ring; where one
 * read has several ranges the last one, since the ranges have the header's order. */
static ds_status order_dims(ds_lower_rec *rec, ds_lower_store *store, uint32_t statement,
                            uint32_t range, ds_loc loc, ds_error *err) {
    uint32_t dims = rec->program.statements[statement].dims, minor = range & (~range + 1);
    for (uint32_t d = 0; d < rec->program.n_dims && store->many; d++)
        if (range >> d & 1) minor = 1u << d;
    bool joint = rec->chunks.on && statement < rec->n_whole && rec->chunks.joint[statement];
    uint32_t turn = joint ? 1u << rec->chunks.turn : minor; /* a chunk's points are one piece */
    if (store->many && turn != minor)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                            "prefill = vector: a read of %%%s has ranges of several dims, of which "
                            "%s, the dim of the prompt, is not the last",
                            rec->program.statements[statement].name,
                            rec->program.dims[rec->chunks.turn].name);
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t d = 0; d < rec->program.n_dims; d++)
            if ((dims >> d & 1) && (turn >> d & 1) == pass) {
                const ds_temporal_range *points = ds_lower__rec_range(rec, statement, d);
                store->slots[store->n_dims] = points->hi - points->lo;
                store->dims[store->n_dims++] = d;
            }
    store->ranges = range;
    return DS_OK;
}

/* The dims of which ranges are read; the store's axis, which is the place that `stack` gives to the
 * range if all readers of ranges are stacks of one place; `many`. */
static uint32_t ranges_of(const ds_lower_rec *rec, ds_value value, ds_lower_store *store) {
    uint32_t range = 0, *axis = &store->axis;
    bool alike = true, any = false;
    *axis = 0;
    for (uint32_t s = 0; s < rec->n_whole; s++) {
        const ds_op *op = rec->op_of[s];
        for (uint32_t r = 0; r < rec->whole.statements[s].n_reads; r++) {
            const ds_temporal_read *read = &rec->whole.statements[s].reads[r];
            uint32_t found = 0;
            if (read->source != rec->statement_of[value.i]) continue;
            for (uint32_t d = 0; d < rec->whole.n_dims; d++)
                if (read->index[d].end) found |= 1u << d;
            range |= found;
            if (!found) continue;
            store->many = store->many || (found & (found - 1));
            int64_t at = -1;
            const ds_attr *dim = op && op->code == DS_OP_STACK && op->in[0].value.i == value.i
                                     ? ds_attr_find(op->attrs, op->n_attrs, "dim")
                                     : NULL;
            if (dim) ds_expr_is_int(&rec->l->source->unit->exprs, dim->expr, &at);
            alike = alike && at >= 0 && (!any || at == (int64_t)*axis);
            *axis = at >= 0 ? (uint32_t)at : 0;
            any = true;
        }
    }
    if (!alike || !any || store->many) *axis = 0;
    return range;
}

/* The largest size of a dim at any point; the header's dims that the size mentions are a set. */
static ds_status find_most(const ds_lower_rec *rec, ds_expr size, uint32_t dims, ds_loc loc,
                           int64_t *most, ds_error *err) {
    enum { MOST_POINTS = 1 << 16 };
    ds_env env = ds_binding_env(rec->l->source, NULL);
    ds_index at[DS_TEMPORAL_DIMS];
    int64_t n = 1, value;
    uint32_t n_dims = rec->op->n_dims, d = 0;
    *most = 0;
    for (uint32_t i = 0; i < n_dims; i++) {
        const ds_temporal_range *range = ds_lower__rec_range(rec, UINT32_MAX, i);
        at[i] = (ds_index){rec->op->dims[i].name, range->lo, env.indices};
        env.indices = &at[i];
        if ((dims >> i & 1) && __builtin_mul_overflow(n, range->hi - range->lo, &n)) n = INT64_MAX;
    }
    if (n > MOST_POINTS)
        return ds_error_set(err, DS_ERR_LIMIT, loc,
                            "a shape that depends on dims of %lld points is stored; at most %d",
                            (long long)n, MOST_POINTS);
    while (n > 0 && d < n_dims) {
        DS_TRY(ds_expr_eval_int(&env, size, loc, &value, err));
        if (value > *most) *most = value;
        for (d = 0; d < n_dims; d++) {
            const ds_temporal_range *range = ds_lower__rec_range(rec, UINT32_MAX, d);
            if (!(dims >> d & 1)) continue;
            if (++at[d].value < range->hi) break;
            at[d].value = range->lo;
        }
    }
    return DS_OK;
}

/* The type of a point: where sizes depend on a dim of the rec, the largest ones. */
static ds_status find_point(const ds_lower_rec *rec, const ds_value_info *info,
                            ds_lower_store *store, ds_error *err) {
    const ds_exprs *exprs = &rec->l->source->unit->exprs;
    ds_type *point =
        ds_type_copy(&rec->l->c.unit->arena, ds_lower__type(rec->l, rec->frame, info->type));
    ds_dim *sizes = DS_NEW_N(&rec->l->c.unit->arena, ds_dim, point->rank + 1);
    store->point = point;
    for (uint32_t i = 0; i < point->rank; i++) {
        uint32_t dims = 0;
        int64_t most;
        sizes[i] = point->dims[i];
        for (uint32_t d = 0; d < rec->op->n_dims; d++)
            if (ds_expr_mentions(exprs, info->type->dims[i].size, rec->op->dims[d].name))
                dims |= 1u << d;
        if (!dims) continue;
        DS_TRY(find_most(rec, info->type->dims[i].size, dims, info->loc, &most, err));
        sizes[i].size = ds_expr_int(&rec->l->c.unit->exprs, most);
        store->varies |= 1u << i;
    }
    point->dims = sizes;
    return DS_OK;
}

static ds_status plan_store(ds_lower_rec *rec, uint32_t statement, ds_value value,
                            ds_lower_store *store, ds_error *err) {
    const ds_value_info *info = ds_value_at(rec->frame->func, value);
    DS_TRY(find_point(rec, info, store, err));
    if (store->varies && rec->chunks.on)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, info->loc,
                            "prefill = vector: %%%s is read at another turn than its own, and its "
                            "shape depends on a dim",
                            info->name);
    if (ds_lower__rec_is_chunk(rec, statement)) {
        store->point = ds_lower__chunk_type(rec, store->point, ds_lower__chunk_axis(store->point));
        return order_dims(rec, store, statement, 0, info->loc, err);
    }
    uint32_t range = rec->op_of[statement] ? ranges_of(rec, value, store) : 0;
    if (store->axis > store->point->rank) store->axis = 0;
    DS_TRY(order_dims(rec, store, statement, range, info->loc, err));
    ds_lower__tile_store(rec, statement, store);
    return DS_OK;
}

static uint32_t runs_of(const ds_temporal_node *nodes, uint32_t n, uint32_t statement) {
    uint32_t runs = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (nodes[i].kind == DS_TEMPORAL_LOOP)
            runs += runs_of(nodes[i].body, nodes[i].n_body, statement);
        runs += nodes[i].kind == DS_TEMPORAL_RUN && nodes[i].statement == statement;
    }
    return runs;
}

/* The one loop that makes a result of one dim from first to last; NULL: there is none. */
static const ds_temporal_node *loop_of_result(const ds_lower_rec *rec, uint32_t statement) {
    for (uint32_t i = 0; i < rec->schedule.n_nodes; i++) {
        const ds_temporal_node *loop = &rec->schedule.nodes[i];
        if (loop->kind != DS_TEMPORAL_LOOP || loop->reverse ||
            rec->program.statements[statement].dims != 1u << loop->dim ||
            loop->lo != ds_lower__rec_range(rec, UINT32_MAX, loop->dim)->lo ||
            loop->hi != rec->program.dims[loop->dim].hi)
            continue;
        for (uint32_t k = 0; k < loop->n_body; k++)
            if (loop->body[k].kind == DS_TEMPORAL_RUN && loop->body[k].statement == statement &&
                loop->body[k].place[loop->dim].loop == 0 &&
                loop->body[k].place[loop->dim].offset == 0 &&
                runs_of(rec->schedule.nodes, rec->schedule.n_nodes, statement) == 1)
                return loop;
    }
    return NULL;
}

/* Of the values that are equations: how each is stored. */
static ds_status plan_values(ds_lower_rec *rec, ds_error *err) {
    const path *paths = ds_lower__rec_paths(rec);
    bool windows = false, hosts = false;
    for (uint32_t i = 0; i < 2 * rec->n_values; i++) {
        ds_lower_store *store = &rec->stores[i];
        ds_value value = {i % rec->n_values};
        uint32_t statement = rec->statement_of[value.i];
        if (!store->wanted) continue;
        bool joint = rec->chunks.on && i < rec->n_values && rec->chunks.joint[statement];
        if (i >= rec->n_values) statement = rec->chunks.of_statement[statement];
        slots s = {.rec = rec,
                   .program = joint ? &rec->whole : &rec->program,
                   .source = statement,
                   .paths = paths,
                   .joint = joint};
        DS_TRY(plan_store(rec, statement, value, store, err));
        if (!rec->schedule.unrolled) find_rings(&s, store);
        count_slots(rec, store);
        windows = windows || store->twice || store->once ||
                  (store->block && store->ring[store->n_dims - 1]);
        hosts = hosts || store->host;
    }
    rec->has_stored = rec->l->step->strategy.rec_stores == DS_REC_HOST ? hosts : windows;
    return DS_OK;
}

ds_status ds_lower__rec_check_stores(const ds_lowering *l, ds_error *err) {
    ds_rec_stores kind = l->step->strategy.rec_stores;
    if (l->stored || !l->unstored || l->step->train.on) return DS_OK;
    if (kind == DS_REC_HOST)
        return ds_error_set(err, DS_ERR_VALUE, l->unstored->loc,
                            "rec_stores = host: no value of the rec is read by single points of "
                            "other turns");
    if (kind != DS_REC_CIRCULAR && kind != DS_REC_RING) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, l->unstored->loc,
                        "rec_stores = %s: no value of the rec is read by a window that is shorter "
                        "than the turns",
                        kind == DS_REC_RING ? "ring" : "circular");
}

ds_status ds_lower__rec_stores(ds_lower_rec *rec, ds_error *err) {
    ds_arena *arena = &rec->l->c.unit->arena;
    rec->stores = DS_NEW_N(arena, ds_lower_store, 2 * rec->n_values + 1);
    ds_map_clear(&rec->stored);
    rec->here = DS_NEW_N(arena, ds_lower_here, rec->program.n + 1);
    rec->local = DS_NEW_N(arena, ds_use, 2 * rec->n_values + 1);
    walk(rec, rec->schedule.nodes, rec->schedule.n_nodes, 0);
    DS_TRY(ds_lower__rec_tiles(rec, err));
    for (uint32_t s = 0; s < rec->program.n; s++) rec->here[s].valid = false;
    DS_TRY(plan_values(rec, err));
    /* What is yielded is kept to the end. */
    uint32_t first = rec->n_whole - rec->op->n_out;
    rec->kept_by = DS_NEW_N(arena, const ds_temporal_node *, rec->op->n_out + 1);
    for (uint32_t k = 0; k < rec->op->n_out; k++) {
        ds_lower_store *store = &rec->stores[rec->op->out[k].i];
        rec->kept_by[k] = loop_of_result(rec, first + k);
        if (rec->kept_by[k]) continue;
        store->wanted = true;
        DS_TRY(plan_store(rec, first + k, rec->op->out[k], store, err));
        if (rec->chunks.on && rec->chunks.joint[first + k])
            store->axis = ds_lower__chunk_axis(store->point); /* as chunks have the turns */
        store->one = store->n_dims == 0;
    }
    return DS_OK;
}
