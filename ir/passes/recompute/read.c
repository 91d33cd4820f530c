/* From a read in the backward pass to the op and the turns that made the value; and back, from a
 * kept value to its new use. */
#include "ir/passes/recompute/internal.h"

#include <string.h>

static ds_arena *arena_of(const ds_again *a) {
    return &a->unit->arena;
}

/* ---- turns in place of indices ---- */

/* A name that no text has. `at` may use the same index names for other loops, so each index is
 * first replaced by a hidden name. */
static const char *hidden(const ds_again *a, const ds_again_loop *loop) {
    return ds_intern(&a->unit->strings, ds_arena_printf(arena_of(a), "\2%u", loop->depth));
}

ds_expr ds_again__put(const ds_again_turns *t, ds_expr e) {
    ds_exprs *exprs = &t->a->unit->exprs;
    if (!ds_expr_mentions(exprs, e, NULL)) return e;
    for (const ds_again_loop *loop = t->loop; loop; loop = loop->up)
        e = ds_expr_subst(exprs, e, loop->op->index, ds_expr_index(exprs, hidden(t->a, loop)));
    for (const ds_again_loop *loop = t->loop; loop; loop = loop->up)
        e = ds_expr_subst(exprs, e, hidden(t->a, loop), t->at[loop->depth - 1]);
    return e;
}

const ds_type *ds_again__put_type(const ds_again_turns *t, const ds_type *type) {
    ds_exprs *exprs = &t->a->unit->exprs;
    ds_arena *arena = arena_of(t->a);
    if (!ds_type_mentions(exprs, type, NULL)) return type;
    for (const ds_again_loop *loop = t->loop; loop; loop = loop->up)
        type = ds_type_subst(exprs, arena, type, loop->op->index,
                             ds_expr_index(exprs, hidden(t->a, loop)));
    for (const ds_again_loop *loop = t->loop; loop; loop = loop->up)
        type = ds_type_subst(exprs, arena, type, hidden(t->a, loop), t->at[loop->depth - 1]);
    return type;
}

ds_attr ds_again__put_attr(const ds_again_turns *t, ds_attr attr) {
    attr.expr = ds_again__put(t, attr.expr);
    if (attr.n_items) attr.items = ds_copy_attrs(arena_of(t->a), attr.items, attr.n_items);
    for (uint32_t i = 0; i < attr.n_items; i++)
        attr.items[i] = ds_again__put_attr(t, attr.items[i]);
    return attr;
}

/* ---- from a read to the value ---- */

/* The number of the forward loop's result that the value is, if the loop keeps it; else
 * UINT32_MAX. */
static uint32_t kept_result(const ds_again *a, ds_value value) {
    const ds_again_op *def = ds_again__def(a, value);
    if (!def || def->op->code != DS_OP_FOR || !def->forward) return UINT32_MAX;
    for (uint32_t i = def->op->n_args; i < def->op->n_out; i++)
        if (def->op->out[i].i == value.i) return i;
    return UINT32_MAX;
}

/* Follows an element of a family into the loop that keeps it. */
static void trace(const ds_again *a, ds_again_value *x) {
    uint32_t i;
    while (x->n_rest && !a->wanted[x->value.i] && (i = kept_result(a, x->value)) != UINT32_MAX) {
        const ds_op *loop = ds_again__def(a, x->value)->op;
        const ds_use *inner = &ds_block_end(loop->body)->in[i];
        x->at[x->n_at++] = x->rest[0];
        memmove(x->rest, x->rest + 1, --x->n_rest * sizeof *x->rest);
        const ds_again_turns t = {a, ds_again__op(a, loop->body->ops[0])->home, x->at};
        for (uint32_t k = 0; k < inner->n_index; k++)
            x->rest[k] = ds_again__put(&t, inner->index[k]);
        if (inner->n_index) x->n_rest = inner->n_index;
        x->value = inner->value;
        x->n_at = ds_again__depth(a->home[x->value.i]);
    }
}

/* The value that an op reads when it runs for the turns `at` of the loops around it. */
ds_again_value ds_again__operand(const ds_again *a, const ds_use *use, const ds_again_loop *home,
                                 const ds_expr *at) {
    ds_again_value x = {
        .value = use->value, .n_rest = use->n_index, .is_range = use->index_hi != NULL};
    const ds_again_turns t = {a, home, at};
    x.n_at = ds_again__depth(a->home[use->value.i]);
    if (x.n_at) memcpy(x.at, at, x.n_at * sizeof *at);
    for (uint32_t i = 0; i < use->n_index; i++) x.rest[i] = ds_again__put(&t, use->index[i]);
    for (uint32_t i = 0; x.is_range && i < use->n_index; i++)
        x.rest_hi[i] = ds_again__put(&t, use->index_hi[i]);
    trace(a, &x);
    return x;
}

bool ds_again__runs(const ds_again *a, const ds_again_value *x) {
    return a->again[x->value.i] && !x->n_rest;
}

ds_again_value ds_again__trace(const ds_again *a, const ds_use *use) {
    ds_again_value x = {.value = use->value, .n_rest = use->n_index};
    if (use->n_index) memcpy(x.rest, use->index, use->n_index * sizeof *x.rest);
    trace(a, &x);
    return x;
}

/* ---- kept values ---- */

/* Finds the old family over the turns of `loop` that keeps the value. */
static bool old_family(const ds_again_loop *loop, ds_value value, ds_value *out) {
    const ds_op *yield = ds_block_end(loop->op->body);
    for (uint32_t i = yield->n_in - yield->n_keep; i < yield->n_in; i++)
        if (yield->in[i].value.i == value.i && !yield->in[i].n_index) {
            *out = loop->op->out[i];
            return true;
        }
    return false;
}

/* The new family of an old value over all loops around it; uses the copies of old families if they
 * exist. */
static ds_value family_of(ds_again *a, ds_value value) {
    ds_value made = a->copy.map[value.i], old = value;
    const char *name = ds_arena_join(arena_of(a), ds_value_at(a->old, value)->name, ".kept");
    bool known = true;
    for (const ds_again_loop *loop = a->home[value.i]; loop; loop = loop->up) {
        known = known && old_family(loop, old, &old);
        uint64_t key = (uint64_t)value.i * (DS_AGAIN_DEPTH + 1) + loop->depth;
        const uint64_t *kept = ds_map_find(&a->kept, key);
        if (known && a->copy.map[old.i].i != UINT32_MAX) {
            made = a->copy.map[old.i];
        } else if (kept) {
            made.i = (uint32_t)*kept;
        } else {
            uint64_t *now = ds_map_find(&a->copy.ops, DS_KEY(loop->op));
            if (known) name = ds_value_at(a->old, old)->name;
            made = ds_build_keep(&a->b, (ds_op *)(uintptr_t)*now, made, name);
            ds_map_put(&a->kept, key, made.i);
        }
    }
    return made;
}

ds_use ds_again__kept(ds_again *a, const ds_again_value *x) {
    ds_expr index[2 * DS_AGAIN_DEPTH];
    uint32_t n = x->n_at + x->n_rest;
    if (x->n_at) memcpy(index, x->at, x->n_at * sizeof *index);
    if (x->n_rest) memcpy(index + x->n_at, x->rest, x->n_rest * sizeof *index);
    ds_value value = x->n_at ? family_of(a, x->value) : a->copy.map[x->value.i];
    ds_use use = n ? ds_use_at(arena_of(a), value, index, n) : ds_use_of(value);
    if (!x->is_range) return use;
    use.index_hi = DS_NEW_N(arena_of(a), ds_expr, n);
    memcpy(use.index_hi + x->n_at, x->rest_hi, x->n_rest * sizeof *index);
    return use;
}
