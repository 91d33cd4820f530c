/* Cases that are what a loop begins with: `%x = case t == 0: %a, else: %u{t - 1}` over a carried
 * %u. Without these the first turn of every recurrence would be written apart from the others. */
#include "ir/passes/lower/rec_internal.h"

/* Does `when` hold at the statement's first point of a dim alone: t == 0, or t < 1? */
static bool is_first(const ds_lower_rec *rec, uint32_t statement, const ds_temporal_expr *when,
                     uint32_t *dim, int *direction) {
    if (when->kind != DS_TEMPORAL_EQ && when->kind != DS_TEMPORAL_LT) return false;
    if (when->a->kind != DS_TEMPORAL_DIM || when->b->kind != DS_TEMPORAL_CONST) return false;
    *dim = (uint32_t)when->a->value;
    const ds_temporal_range *range = ds_lower__rec_range(rec, statement, *dim);
    int64_t at = when->b->value;
    *direction = when->kind == DS_TEMPORAL_EQ && at == range->hi - 1 && at != range->lo ? -1 : 1;
    return at == (*direction < 0 ? range->hi - 1 : range->lo + (when->kind == DS_TEMPORAL_LT));
}

/* The point before, in the loop's direction, and the same point of all other dims? */
static bool is_step_back(const ds_lower_rec *rec, const ds_temporal_read *read, uint32_t dim,
                         int direction) {
    uint32_t dims = rec->program.statements[read->source].dims;
    if (!(dims >> dim & 1)) return false;
    for (uint32_t d = 0; d < rec->program.n_dims; d++) {
        if (!(dims >> d & 1)) continue;
        const ds_temporal_expr *at = read->index[d].at;
        if (read->index[d].end) return false;
        if (d != dim && (at->kind != DS_TEMPORAL_DIM || at->value != d)) return false;
        if (d != dim) continue;
        if (at->kind != (direction > 0 ? DS_TEMPORAL_SUB : DS_TEMPORAL_ADD) ||
            at->a->kind != DS_TEMPORAL_DIM || at->a->value != dim ||
            at->b->kind != DS_TEMPORAL_CONST || at->b->value != 1)
            return false;
    }
    return true;
}

/* A chunk's or turn's read of its own kind. */
static ds_temporal_read *read_of(const ds_lower_rec *rec, uint32_t statement, const ds_use *use) {
    bool chunk = ds_lower__rec_is_chunk(rec, statement);
    return (ds_temporal_read *)(uintptr_t)ds_lower__rec_read(rec, use, chunk, chunk);
}

/* Both stand directly in one loop over the dim, in the direction, and run at the same turns. */
static bool share_loop(const ds_lower_path *x, const ds_lower_path *u, uint32_t statement,
                       uint32_t source, uint32_t dim, int direction) {
    if (x->n == 0 || x->n != u->n) return false;
    const ds_temporal_nest *loop = x->loops[x->n - 1];
    return loop == u->loops[u->n - 1] && loop->dim == dim && loop->direction == direction &&
           loop->shift[statement] == loop->shift[source];
}

static bool is_carried(const ds_lower_rec *rec, const ds_use *next, uint32_t statement,
                       uint32_t source) {
    const ds_lower_store *store = ds_lower__rec_store(rec, source, next->value);
    bool chunk = ds_lower__rec_is_chunk(rec, statement);
    if (!store->wanted || !store->one) return false;
    for (uint32_t s = 0; s < rec->program.n; s++)
        if (s != statement && rec->joins[s].joined &&
            rec->joins[s].next->value.i == next->value.i && ds_lower__rec_is_chunk(rec, s) == chunk)
            return false; /* the loop begins with another case's branch */
    return true;
}

/* Is the first branch there before the loop? Not if a turn of the loop makes it. */
static bool comes_before(const ds_temporal_read *init, const ds_lower_path *paths,
                         const ds_temporal_nest *loop) {
    for (uint32_t k = 0; init && k < paths[init->source].n; k++)
        if (paths[init->source].loops[k] == loop) return false;
    return true;
}

static bool join(ds_lower_rec *rec, const ds_lower_path *paths, uint32_t s) {
    const ds_op *op = rec->op_of[s];
    ds_lower_join *made = &rec->joins[s];
    if (!op || op->code != DS_OP_CASE || op->n_in != 2 || made->joined) return false;
    if (rec->program.statements[s].unstored) return false; /* each turn has a shape of its own */
    ds_temporal_read *init = read_of(rec, s, &op->in[0]), *next = read_of(rec, s, &op->in[1]);
    int direction;
    if (ds_lower__rec_read(rec, &op->in[0], false, true) && !ds_lower__rec_is_chunk(rec, s))
        return false;
    if (ds_lower__rec_read(rec, &op->in[1], false, true) && !ds_lower__rec_is_chunk(rec, s))
        return false;
    if (!next || !next->when || next->when->kind != DS_TEMPORAL_NOT ||
        !is_first(rec, s, next->when->a, &made->dim, &direction) ||
        !is_step_back(rec, next, made->dim, direction) || next->source == s ||
        rec->program.statements[next->source].dims != rec->program.statements[s].dims ||
        !share_loop(&paths[s], &paths[next->source], s, next->source, made->dim, direction) ||
        !comes_before(init, paths, paths[s].loops[paths[s].n - 1]) ||
        !is_carried(rec, &op->in[1], s, next->source))
        return false;
    const ds_temporal_range *range = ds_lower__rec_range(rec, s, made->dim);
    made->first = direction > 0 ? range->lo : range->hi - 1;
    made->init = &op->in[0];
    made->next = &op->in[1];
    made->joined = true;
    next->joined = 1;
    if (init) init->joined = -1;
    return true;
}

bool ds_lower__rec_joins(ds_lower_rec *rec) {
    const ds_lower_path *paths = ds_lower__rec_paths(rec);
    bool any = false;
    for (uint32_t s = 0; s < rec->program.n && !rec->schedule.unrolled; s++)
        any = join(rec, paths, s) || any;
    return any;
}

bool ds_lower__rec_in_join(const ds_lower_rec *rec, const ds_temporal_node *run,
                           const ds_temporal_node *loop, uint32_t depth, bool *starts) {
    const ds_lower_join *join = &rec->joins[run->statement];
    if (!join->joined || run->place[join->dim].loop != depth) return false;
    int64_t turn = loop->reverse ? loop->hi - 1 : loop->lo;
    *starts = turn + run->place[join->dim].offset == join->first;
    return true;
}

ds_temporal_node ds_lower__rec_first(const ds_lower_rec *rec, const ds_temporal_node *run) {
    const ds_lower_join *join = &rec->joins[run->statement];
    ds_temporal_node first = *run;
    first.place[join->dim] = (ds_temporal_place){DS_TEMPORAL_NO_LOOP, join->first, 1};
    return first;
}
