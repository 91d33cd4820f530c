/* Weights that ZeRO shares out and that stay gathered (reshard_after_forward = never; root, of which
 * weights outside of loops alone stay, and are gathered in each microbatch's function).
 *
 * Such a weight is gathered before the first op: in the step, where the weight stays for all
 * microbatches, else in each microbatch's function. Weights that are read before loops come first,
 * weights that are read after loops last. Every reader but the
 * optimizer reads the gathered weight; microbatches' functions get the gathered weight. The weights
 * of a loop's turn are gathered in one turn of a loop of their own, so that `overlap` joins the
 * gathers to units:
 *
 *     %u.whole, %v.whole = for l in 0..layers {
 *       %u.whole_2 = all_gather(%u{l}) over dp dim 0
 *       %v.whole_2 = all_gather(%v{l}) over dp dim 0
 *       yield keep %u.whole_2, %v.whole_2
 *     }
 *
 * PyTorch's FSDP2 gathers a unit in the unit's first forward pass. Gathers that follow each other
 * from the beginning end no later than gathers that begin with the unit before. */
#include "ir/passes/shard/internal.h"

#include <stdlib.h>
#include <string.h>

static bool is_step(const ds_sharder *s) {
    return s->f.from == s->step->func;
}

bool ds_shard__gets_parts(const ds_sharder *s) {
    const ds_strategy *st = &s->step->strategy;
    return st->zero == 3 && (is_step(s) || !ds_strategy_gathers_once(st));
}

ds_use ds_shard__whole_weight(const ds_sharder *s, ds_use use) {
    const uint64_t *whole = ds_map_find(&s->f.whole, use.value.i);
    if (whole) use.value.i = (uint32_t)*whole;
    return use;
}

/* One weight outside of loops, or all weights of a chunk with the same indices. */
typedef struct group {
    ds_sharder *s;
    ds_value *args;
    uint32_t n;
    const ds_binder *binders;
    uint32_t n_binders;
} group;

static const ds_value_info *info_of(const ds_sharder *s, ds_value arg) {
    return ds_value_at(s->f.b.func, arg);
}

static uint32_t chunk_of(ds_sharder *s, ds_value arg) {
    return s->step->weights.at[ds_shard__value(s, arg)->weight - 1].chunk;
}

static bool is_split(ds_sharder *s, ds_value arg) {
    const ds_shard_value *known = ds_shard__value(s, arg);
    ds_layout now = ds_shard__layout(s, info_of(s, arg)->type);
    return known->weight && !ds_shard__same_layout(&now, &known->home);
}

static bool fits(ds_sharder *s, const group *g, ds_value arg) {
    const ds_value_info *info = info_of(s, arg);
    ds_exprs *exprs = &s->unit->exprs;
    if (info->n_binders != g->n_binders || chunk_of(s, arg) != chunk_of(s, g->args[0]))
        return false;
    for (uint32_t b = 0; b < info->n_binders; b++)
        if (info->binders[b].name != g->binders[b].name ||
            ds_expr_equal(exprs, info->binders[b].lo, g->binders[b].lo) != DS_YES ||
            ds_expr_equal(exprs, info->binders[b].hi, g->binders[b].hi) != DS_YES)
            return false;
    return true;
}

static const char *whole_name(const ds_sharder *s, ds_value arg) {
    return ds_arena_join(&s->unit->arena, info_of(s, arg)->name, ".whole");
}

/* Gathers the elements at the open loops' indices. */
static ds_status gather_turn(const group *g, const ds_expr *index, ds_use *out, ds_error *err) {
    for (uint32_t i = 0; i < g->n; i++) {
        ds_use part = ds_use_at(&g->s->unit->arena, g->args[i], index, g->n_binders);
        ds_layout home = ds_shard__value(g->s, g->args[i])->home;
        DS_TRY(ds_shard__move(g->s, part, &home, &out[i], err));
    }
    return DS_OK;
}

/* The loops over the indices from `depth` on; out[i] is the family of weight i. */
static ds_status gather_level(const group *g, uint32_t depth, ds_expr *index, ds_use *out,
                              ds_error *err) {
    ds_sharder *s = g->s;
    if (depth == g->n_binders) return gather_turn(g, index, out, err);
    const ds_binder *binder = &g->binders[depth];
    const char **names = DS_NEW_N(&s->unit->arena, const char *, g->n);
    ds_build_for(&s->f.b, binder->name, binder->lo, binder->hi);
    index[depth] = ds_expr_index(&s->unit->exprs, binder->name);
    DS_TRY(gather_level(g, depth + 1, index, out, err));
    for (uint32_t i = 0; i < g->n; i++) names[i] = whole_name(s, g->args[i]);
    DS_TRY(ds_build_yield(&s->f.b, NULL, 0, out, g->n, names, err));
    const ds_op *loop = ds_build_last(&s->f.b);
    for (uint32_t i = 0; i < g->n; i++) out[i] = ds_use_of(loop->out[i]);
    return DS_OK;
}

static ds_status gather_group(const group *g, ds_error *err) {
    ds_sharder *s = g->s;
    ds_use *out = DS_NEW_N(&s->unit->arena, ds_use, g->n);
    ds_expr *index = DS_NEW_N(&s->unit->arena, ds_expr, g->n_binders + 1);
    uint32_t n_moved = s->f.moved.n;
    s->here = ds_shard__home_mesh(s, ds_shard__value(s, g->args[0])->weight - 1);
    DS_TRY(gather_level(g, 0, index, out, err));
    s->f.moved.n = n_moved;
    for (uint32_t i = 0; i < g->n; i++) {
        ds_shard_value known = *ds_shard__value(s, g->args[i]);
        *ds_shard__value(s, out[i].value) = known;
        ds_map_put(&s->f.whole, g->args[i].i, out[i].value.i);
    }
    return DS_OK;
}

/* ---- the order ---- */

/* The step's first microbatch; NULL: the step calls none. */
static const ds_op *first_call(const ds_func *step) {
    for (uint32_t i = 0; i < step->body.n_ops; i++)
        if (step->body.ops[i]->code == DS_OP_CALL) return step->body.ops[i];
    return NULL;
}

static bool reads(const ds_op *op, ds_value value) {
    bool does = false;
    for (uint32_t i = 0; i < op->n_in; i++) does = does || op->in[i].value.i == value.i;
    return does;
}

enum { BEFORE_LOOPS, IN_LOOPS, AFTER_LOOPS };

/* Where the model reads argument i first. */
static int when_read(const ds_sharder *s, uint32_t i) {
    const ds_func *func = s->f.from;
    ds_value value = func->args[i];
    const ds_op *call = first_call(func);
    if (info_of(s, s->f.b.func->args[i])->n_binders) return IN_LOOPS;
    for (uint32_t k = 0; call && k < call->n_in; k++)
        if (call->in[k].value.i == func->args[i].i) value = call->callee->args[k];
    if (call) func = call->callee;
    for (uint32_t k = 0; k < func->body.n_ops && func->body.ops[k]->code != DS_OP_FOR; k++)
        if (reads(func->body.ops[k], value)) return BEFORE_LOOPS;
    return AFTER_LOOPS;
}

/* Gathers argument i and, of weights in loops, all that fit. */
static ds_status gather_from(ds_sharder *s, uint32_t i, ds_error *err) {
    const ds_func *func = s->f.b.func;
    const ds_value_info *info = info_of(s, func->args[i]);
    group g = {.s = s,
               .args = DS_NEW_N(&s->unit->arena, ds_value, func->n_args),
               .binders = info->binders,
               .n_binders = info->n_binders};
    g.args[g.n++] = func->args[i];
    for (uint32_t k = i + 1; k < func->n_args && g.n_binders; k++)
        if (is_split(s, func->args[k]) && fits(s, &g, func->args[k])) g.args[g.n++] = func->args[k];
    return gather_group(&g, err);
}

ds_status ds_shard__gather_all(ds_sharder *s, ds_error *err) {
    const ds_strategy *st = &s->step->strategy;
    const ds_func *func = s->f.b.func;
    bool never = st->reshard_after == DS_RESHARD_NEVER, root = st->reshard_after == DS_RESHARD_ROOT;
    bool step = never ? ds_strategy_gathers_once(st) : !first_call(s->step->func);
    if (st->zero != 3 || !(never || root) || is_step(s) != step) return DS_OK;
    const uint8_t here = s->here;
    for (int when = BEFORE_LOOPS; when <= AFTER_LOOPS; when++)
        for (uint32_t i = 0; i < func->n_args; i++)
            if (is_split(s, func->args[i]) && when_read(s, i) == when &&
                (never || when != IN_LOOPS) && !ds_map_find(&s->f.whole, func->args[i].i))
                DS_TRY(gather_from(s, i, err));
    s->here = here;
    return DS_OK;
}
