/* Stores whose memory comes in tiles: `zeros` with a tile, filled by `put`.
 *
 * A tile is there from the start of the put that writes an index of the tile first to the start of
 * the put whose window leaves the tile behind, or else to the end of the store. A put that makes a
 * copy takes the tiles that are there then. The tiles of one put that end together are one buffer,
 * by the name of the put's result. */
#include "sim/mem/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct tile {
    uint32_t from, to; /* instances; to DS_NONE: the end of the store */
    int64_t n;         /* indices */
} tile;

/* Tiles first … first + n of a row that is open between `lo` and `hi`. */
typedef struct row {
    int64_t lo, hi;
} row;

typedef struct store {
    int64_t size, tile, n_tiles; /* along the dim */
    uint32_t *open;              /* by tile: 1 + its place among `tiles`; 0: not there */
    row *rows;                   /* by the first tile of each */
} store;

typedef struct tiles {
    const ds_plan *plan;
    DS_VEC(tile) at;
    DS_VEC(store) stores;
    uint32_t *store_of; /* by value: 1 + the store; 0: none */
} tiles;

bool ds_mem__is_tiled(const ds_op *op) {
    return op && op->code == DS_OP_ZEROS && ds_attr_find(op->attrs, op->n_attrs, "tile");
}

/* The indices of the loops around a scope, up to the function's. */
static ds_env env_of(const ds_plan *plan, uint32_t scope, ds_index *room, uint32_t n_room) {
    uint32_t n = 0;
    for (; scope != DS_NONE && n < n_room; scope = plan->scopes.at[scope].up) {
        const ds_scope *s = &plan->scopes.at[scope];
        if (s->op && s->op->code == DS_OP_CALL) break;
        if (!s->op || s->op->code != DS_OP_FOR) continue;
        room[n] = (ds_index){s->op->index, s->index, NULL};
        if (n) room[n - 1].up = &room[n];
        n++;
    }
    return ds_binding_env(plan->binding, n ? room : NULL);
}

static ds_status attr_of(const ds_op *op, const ds_env *env, const char *name, int64_t *out,
                         ds_error *err) {
    if (!ds_attr_find(op->attrs, op->n_attrs, name)) return DS_OK;
    return ds_op_attr_int(op, env, name, out, err);
}

static ds_status open_store(tiles *t, const ds_record *r, uint32_t value, ds_error *err) {
    const ds_type *type = ds_value_at(r->func, r->op->out[0])->type;
    ds_env env = ds_binding_env(t->plan->binding, NULL);
    int64_t dim = 0;
    store s = {0};
    DS_TRY(attr_of(r->op, &env, "dim", &dim, err));
    DS_TRY(attr_of(r->op, &env, "tile", &s.tile, err));
    DS_TRY(ds_expr_eval_int(&env, type->dims[dim].size, r->op->loc, &s.size, err));
    s.n_tiles = (s.size + s.tile - 1) / s.tile;
    s.open = ds_xcalloc((size_t)s.n_tiles + 1, sizeof *s.open);
    s.rows = ds_xcalloc((size_t)s.n_tiles + 1, sizeof *s.rows);
    DS_HPUSH(&t->stores, s);
    t->store_of[value] = t->stores.n;
    return DS_OK;
}

/* The copy of a store takes as many tiles as the store holds at that moment. */
static void copy_store(tiles *t, uint32_t from, uint32_t value, uint32_t inst) {
    const store *old = &t->stores.at[t->store_of[from] - 1];
    store s = *old;
    s.open = ds_xcalloc((size_t)s.n_tiles + 1, sizeof *s.open);
    s.rows = ds_xcalloc((size_t)s.n_tiles + 1, sizeof *s.rows);
    memcpy(s.rows, old->rows, (size_t)s.n_tiles * sizeof *s.rows);
    for (int64_t i = 0; i < s.n_tiles; i++) {
        if (!old->open[i]) continue;
        tile copy = {inst, DS_NONE, t->at.at[old->open[i] - 1].n};
        DS_HPUSH(&t->at, copy);
        s.open[i] = t->at.n;
    }
    DS_HPUSH(&t->stores, s);
    t->store_of[value] = t->stores.n;
}

static void close_tiles(tiles *t, store *s, int64_t from, int64_t to, uint32_t inst) {
    for (int64_t i = from; i < to; i++) {
        if (s->open[i]) t->at.at[s->open[i] - 1].to = inst;
        s->open[i] = 0;
    }
}

/* The row's tiles outside of from … to are freed. */
static void leave(tiles *t, store *s, row *r, int64_t from, int64_t to, uint32_t inst) {
    close_tiles(t, s, r->lo, from < r->hi ? from : r->hi, inst);
    close_tiles(t, s, to > r->lo ? to : r->lo, r->hi, inst);
    if (r->lo < from) r->lo = from;
    if (r->hi > to) r->hi = to;
    if (r->lo > r->hi) r->hi = r->lo;
}

static ds_status put(tiles *t, store *s, uint32_t inst, int64_t n, ds_error *err) {
    enum { LOOPS = 64 };
    const ds_plan *plan = t->plan;
    const ds_op *op = plan->records.at[plan->insts.at[inst].record]->op;
    ds_index room[LOOPS];
    ds_env env = env_of(plan, plan->insts.at[inst].scope, room, LOOPS);
    int64_t at = 0, length = s->size, window = 0;
    DS_TRY(attr_of(op, &env, "at", &at, err));
    DS_TRY(attr_of(op, &env, "row", &length, err));
    DS_TRY(attr_of(op, &env, "window", &window, err));
    int64_t start = at / length * length, end = start + length < s->size ? start + length : s->size;
    row *r = &s->rows[start / s->tile];
    if (window) {
        int64_t lo = window < 0 ? at : at + n - window, hi = window < 0 ? at - window : at + n;
        if (lo < start) lo = start;
        if (hi > end) hi = end;
        leave(t, s, r, lo / s->tile, (hi + s->tile - 1) / s->tile, inst);
    }
    int64_t first = at / s->tile, last = (at + n - 1) / s->tile;
    if (r->lo == r->hi) *r = (row){first, first};
    if (first < r->lo) r->lo = first;
    if (last + 1 > r->hi) r->hi = last + 1;
    for (int64_t i = first; i <= last; i++) {
        if (s->open[i]) continue;
        int64_t to = (i + 1) * s->tile < s->size ? (i + 1) * s->tile : s->size;
        tile fresh = {inst, DS_NONE, to - i * s->tile};
        DS_HPUSH(&t->at, fresh);
        s->open[i] = t->at.n;
    }
    return DS_OK;
}

/* Indices that the put writes. */
static ds_status n_written(const ds_plan *plan, const ds_record *r, int64_t *n, ds_error *err) {
    ds_env env = ds_binding_env(plan->binding, NULL);
    int64_t dim = 0;
    DS_TRY(attr_of(r->op, &env, "dim", &dim, err));
    const ds_type *part = ds_value_at(r->func, r->op->in[1].value)->type;
    return ds_expr_eval_int(&env, part->dims[dim].size, r->op->loc, n, err);
}

static ds_status follow(tiles *t, const uint32_t *root, ds_error *err) {
    const ds_plan *plan = t->plan;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_record *r = plan->records.at[inst->record];
        uint32_t value = inst->first_value;
        if (ds_mem__is_tiled(r->op)) DS_TRY(open_store(t, r, value, err));
        if (!r->op || r->op->code != DS_OP_PUT) continue;
        uint32_t whole = plan->operands.at[inst->first_operand];
        if (whole == DS_NONE || !t->store_of[root[whole]]) continue;
        if (root[value] == value) copy_store(t, root[whole], value, i);
        int64_t n = 1;
        DS_TRY(n_written(plan, r, &n, err));
        DS_TRY(put(t, &t->stores.at[t->store_of[root[value]] - 1], i, n, err));
    }
    return DS_OK;
}

/* One buffer for the tiles first … end of one put, `n` indices of each store of `size`. */
static void give(const tiles *t, const ds_run *run, const tile *of, int64_t n, int64_t size,
                 ds_mem_scratches *out) {
    const ds_plan *plan = t->plan;
    const ds_inst *from = &plan->insts.at[of->from];
    const ds_record *r = plan->records.at[from->record];
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        int64_t whole = r->variants[r->class_variant[pos]].out_bytes[0];
        ds_mem_scratch s = {.cls = r->classes[pos],
                            .value = from->first_value,
                            .bytes = whole / size * n + whole % size * n / size,
                            .start_ps = run->start_ps[from->first_task + pos],
                            .end_ps = INT64_MAX};
        uint32_t to = of->to == DS_NONE ? DS_NONE : plan->insts.at[of->to].first_task;
        if (to != DS_NONE) {
            const ds_record *last = plan->records.at[plan->insts.at[of->to].record];
            uint32_t at = ds_record_class_pos(last, s.cls);
            if (at != DS_NONE) s.end_ps = run->start_ps[to + at];
        }
        if (s.bytes) DS_HPUSH(out, s);
    }
}

ds_status ds_mem__tiles(const ds_plan *plan, const ds_run *run, const uint32_t *root, bool together,
                        ds_mem_scratches *out, ds_error *err) {
    tiles t = {.plan = plan};
    t.store_of = ds_xcalloc((size_t)plan->values.n + 1, sizeof *t.store_of);
    ds_status status = follow(&t, root, err);
    for (uint32_t i = 0, end; i < t.at.n && status == DS_OK; i = end) {
        tile one = t.at.at[i];
        int64_t n = one.n;
        for (end = i + 1; end < t.at.n && t.at.at[end].from == one.from &&
                          (together || t.at.at[end].to == one.to);
             end++) {
            n += t.at.at[end].n;
            if (t.at.at[end].to > one.to) one.to = t.at.at[end].to; /* DS_NONE is the last */
        }
        uint32_t value = plan->insts.at[one.from].first_value;
        give(&t, run, &one, n, t.stores.at[t.store_of[root[value]] - 1].size, out);
    }
    for (uint32_t i = 0; i < t.stores.n; i++) {
        free(t.stores.at[i].open);
        free(t.stores.at[i].rows);
    }
    free(t.stores.at);
    free(t.at.at);
    free(t.store_of);
    return status;
}
