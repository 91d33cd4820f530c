/* The walk with numbers through loops, local regions and recs. */
#include "ir/core/rec.h"
#include "ir/verify/bound_internal.h"

#include <stdlib.h>

/* ---- loops and regions ---- */

static const ds_op *yield_of(const ds_op *region) {
    const ds_block *body = region->body;
    return body->n_ops ? body->ops[body->n_ops - 1] : NULL;
}

/* The elements' types were compared as symbols; ranges are compared here. */
static void check_carried_family(ds_bound_walk *w, const ds_use *use, const ds_value_info *carry) {
    const ds_value_info *info = ds_value_at(w->at->func, use->value);
    if (ds_verify__same_binders(w->ck, &w->env, info->binders, info->n_binders, carry->binders,
                                carry->n_binders) == DS_NO)
        ds_verify__error(w->ck, DS_ERR_SHAPE, use->loc, NULL,
                         "%s is a family over another range than the carry %%%s%s",
                         ds_bound__value_text(w, use->value), carry->name, ds_bound__turn_note(w));
}

static void check_carries(ds_bound_walk *w, const ds_op *loop) {
    const ds_op *yield = yield_of(loop);
    for (uint32_t i = 0; i < loop->n_args; i++) {
        const ds_value_info *carry = ds_value_at(w->at->func, loop->args[i]);
        if (!carry->type || !yield || i >= yield->n_in) continue;
        const ds_type *next = ds_verify__carry_next(w->ck, loop, carry->type);
        const char *what = ds_arena_printf(&w->ck->unit->arena, "the next %%%s", carry->name);
        const ds_type *found = ds_bound__read_use(w, &yield->in[i]);
        if (carry->n_binders) {
            check_carried_family(w, &yield->in[i], carry);
            continue;
        }
        bool same = found && ds_bound__compare_types(w, next, found, yield->in[i].loc, what,
                                                     "the loop", "yields");
        if (!same && i < loop->n_out) ds_bound__set_wrong(w, &loop->out[i], 1);
    }
}

static void turn(ds_bound_walk *w, const ds_op *loop, int64_t at, bool first) {
    const ds_index *up = w->env.indices;
    uint64_t later = w->later, depth = w->open_loops.n;
    ds_index index = {loop->index, at, up};
    w->env.indices = &index;
    for (uint32_t i = 0; i < loop->n_args; i++) {
        const ds_value_info *carry = ds_value_at(w->at->func, loop->args[i]);
        if (carry->type)
            ds_bound__check_family(w, carry, 0, w->turns, ds_bound__value_text(w, loop->args[i]));
    }
    DS_HPUSH(&w->open_loops, loop);
    if (!first && depth < 64) w->later |= UINT64_C(1) << depth;
    ds_bound__walk_block(w, loop->body);
    check_carries(w, loop);
    w->later = later;
    w->open_loops.n--;
    w->env.indices = up;
}

/* At most this many ops are checked for one loop nest, whatever the number of turns. */
#define MAX_OP_CHECKS (UINT64_C(1) << 18)

static void check_start(ds_bound_walk *w, const ds_op *loop) {
    for (uint32_t i = 0; i < loop->n_args; i++) {
        const ds_value_info *carry = ds_value_at(w->at->func, loop->args[i]);
        const ds_type *init = ds_bound__read_use(w, &loop->in[i]);
        if (!init) ds_bound__set_wrong(w, &loop->args[i], 1);
        if (!carry->type || !init) continue;
        if (carry->n_binders) {
            check_carried_family(w, &loop->in[i], carry);
            continue;
        }
        ds_bound__compare_types(w, ds_verify__carry_at(w->ck, loop, carry->type, loop->lo), init,
                                carry->loc,
                                ds_arena_printf(&w->ck->unit->arena, "the first %%%s", carry->name),
                                "it", "starts with");
    }
}

void ds_bound__for_loop(ds_bound_walk *w, const ds_op *loop) {
    int64_t lo, hi;
    check_start(w, loop);
    if (!ds_bound__eval(w, loop->lo, loop->loc, &lo) ||
        !ds_bound__eval(w, loop->hi, loop->loc, &hi))
        return;
    if (lo > hi) {
        ds_verify__error(w->ck, DS_ERR_VALUE, loop->loc, NULL,
                         "the loop runs over %s in %lld..%lld, which ends before it begins%s",
                         loop->index, (long long)lo, (long long)hi, ds_bound__turn_note(w));
        return;
    }
    ds_dependence info = {0};
    ds_verify__depends(w->ck, w->at->func, loop->body, loop->index, &info);
    uint64_t n = (uint64_t)hi - (uint64_t)lo, before = w->turns;
    bool all = n <= w->ck->max_turns / before && n <= MAX_OP_CHECKS / (info.ops + 1) / before;
    uint64_t ends = ds_bound__end_turns(all, before);
    if (info.mentions && n) w->turns = before * (all ? n : 1);
    for (int64_t at = lo; at < hi; at = info.mentions ? ds_bound__next_turn(at, lo, hi, ends) : hi)
        turn(w, loop, at, at == lo);
    w->turns = before;
    for (uint32_t i = 0; i < loop->n_args && i < loop->n_out; i++) {
        const ds_value_info *info_out = ds_value_at(w->at->func, loop->out[i]);
        if (w->wrong[loop->out[i].i]) continue;
        if (info_out->type)
            ds_bound__check_family(w, info_out, 0, w->turns, ds_bound__value_text(w, loop->out[i]));
    }
}

/* Walks the body with the coordinates own[] as axis_index. */
static void local_body(ds_bound_walk *w, const ds_op *region, const ds_index *own) {
    const ds_index *up = w->env.indices;
    if (region->n_over) w->env.indices = &own[region->n_over - 1];
    ds_bound__walk_block(w, region->body);
    const ds_op *yield = yield_of(region);
    for (uint32_t i = 0; yield && i < yield->n_in && i < region->n_out; i++) {
        const ds_type *shard = ds_verify__shard_type(w->ck, w->at->func, region->result_types[i],
                                                     region->over, region->n_over);
        ds_bound__compare_types(w, shard, ds_bound__read_use(w, &yield->in[i]), yield->in[i].loc,
                                "a shard of the result", "the region", "yields");
    }
    w->env.indices = up;
}

/* Are there several coordinates? Then sets own[] to the last. */
static bool go_to_last(ds_bound_walk *w, const ds_op *region, ds_index *own) {
    const ds_place nowhere = {0};
    const ds_place *on =
        region->n_in ? &ds_value_at(w->at->func, region->in[0].value)->type->on : &nowhere;
    bool many = false;
    for (uint32_t i = 0; i < region->n_over; i++) {
        int64_t size = 1;
        if (ds_bound__axis_size(w, on, region->over[i], &size)) own[i].value = size - 1;
        many = many || size > 1;
    }
    return many;
}

/* Walks a local region. axis_index has a value inside; the first and the last coordinates are
 * checked for all. */
void ds_bound__local_region(ds_bound_walk *w, const ds_op *region) {
    ds_index *own = ds_xcalloc(region->n_over + 1, sizeof *own);
    uint64_t before = w->turns;
    w->manual = ds_xrealloc(w->manual, (w->n_manual + region->n_over + 1) * sizeof *w->manual);
    for (uint32_t i = 0; i < region->n_in; i++) {
        const ds_type *outside = ds_bound__read_use(w, &region->in[i]);
        if (outside)
            ds_bound__check_type(w, outside, ds_bound__value_text(w, region->in[i].value),
                                 region->in[i].loc);
    }
    for (uint32_t i = 0; i < region->n_over; i++) {
        own[i] = (ds_index){region->over[i], 0, i ? &own[i - 1] : w->env.indices};
        w->manual[w->n_manual++] = region->over[i];
    }
    bool both = before <= w->ck->max_turns / 2; /* regions may be nested */
    if (both) w->turns = 2 * before;
    local_body(w, region, own);
    if (both && go_to_last(w, region, own)) local_body(w, region, own);
    w->turns = before;
    w->n_manual -= region->n_over;
    free(own);
    ds_bound__check_results(w, region, NULL);
}

/* The branch that is taken at the point has the case's type there. */
void ds_bound__case_op(ds_bound_walk *w, const ds_op *op) {
    const ds_value_info *info = ds_value_at(w->at->func, op->out[0]);
    int64_t holds = 0;
    uint32_t i = 0;
    for (; i < op->n_conds && !holds; i += !holds)
        if (!ds_bound__eval(w, op->conds[i], op->loc, &holds)) return;
    const char *name = ds_bound__value_text(w, op->out[0]);
    if (!ds_bound__compare_types(w, info->type, ds_bound__read_use(w, &op->in[i]), op->in[i].loc,
                                 name, "its branch", "is") ||
        !ds_bound__check_type(w, info->type, name, info->loc))
        ds_bound__set_wrong(w, op->out, 1);
}

/* Walks an equation at its points, over dims i and on: all values of a dim that the equation
 * mentions, up to a limit the first and the last ones of many; one value of another dim. */
static void at_points(ds_bound_walk *w, const ds_op *op, uint32_t i) {
    uint32_t n_dims;
    const ds_binder *dims = ds_rec_dims(w->at->func, op, &n_dims);
    if (i == n_dims) {
        ds_bound__walk_in_arena(w, op);
        return;
    }
    int64_t lo, hi;
    if (!ds_bound__eval(w, dims[i].lo, dims[i].loc, &lo) ||
        !ds_bound__eval(w, dims[i].hi, dims[i].loc, &hi))
        return;
    const ds_block alone = {.ops = (ds_op *[]){(ds_op *)op}, .n_ops = 1};
    ds_dependence info = {0};
    ds_verify__depends(w->ck, w->at->func, &alone, dims[i].name, &info);
    uint64_t n = hi > lo ? (uint64_t)hi - (uint64_t)lo : 0, before = w->turns;
    bool all = n <= w->ck->max_turns / before && n <= MAX_OP_CHECKS / (info.ops + 1) / before;
    uint64_t ends = ds_bound__end_turns(all, before);
    if (info.mentions && n) w->turns = before * (all ? n : 1);
    for (int64_t at = lo; at < hi;
         at = info.mentions ? ds_bound__next_turn(at, lo, hi, ends) : hi) {
        const ds_index *up = w->env.indices;
        ds_index index = {dims[i].name, at, up};
        w->env.indices = &index;
        at_points(w, op, i + 1);
        w->env.indices = up;
    }
    w->turns = before;
}

/* How many reads of a rec are followed for its bounds and cycles, of a quarter as many points at most;
 * beyond, the schedule and exec find the rest. Some 50 ms. */
#define MAX_REC_READS (INT64_C(1) << 19)

void ds_bound__rec_region(ds_bound_walk *w, const ds_op *rec) {
    bool complete;
    ds_error err = {0};
    uint32_t errors = w->ck->diags->n_errors;
    for (uint32_t d = 0; d < rec->n_dims; d++) {
        int64_t lo, hi;
        ds_bound__binder_range(w, &rec->dims[d], &lo, &hi);
    }
    if (w->ck->diags->n_errors == errors &&
        ds_rec_check(w->at->func, rec, &w->env, MAX_REC_READS, &complete, &err) != DS_OK)
        ds_verify__pass_on(w->ck, &err);
    for (uint32_t i = 0; i < rec->body->n_ops && w->ck->diags->n_errors == errors; i++)
        if (rec->body->ops[i]->n_out) at_points(w, rec->body->ops[i], 0);
    if (w->ck->diags->n_errors > errors) ds_bound__set_wrong(w, rec->out, rec->n_out);
}
