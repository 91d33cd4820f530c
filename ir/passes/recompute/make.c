/* Forward ops once more, in the backward pass.
 *
 * An op runs again together with its group and all chosen ops on which they depend, in the order of
 * the forward pass. Each copy is remembered with its block, for readers in this block and in inner
 * loops. A block of turns runs again as a loop of its own, before the loop that reads its
 * values. */
#include "ir/passes/build/path.h"
#include "ir/passes/recompute/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static ds_arena *arena_of(const ds_again *a) {
    return &a->unit->arena;
}

/* ---- ops made again ---- */

/* An op that has to run again, and the turns. */
typedef struct item {
    uint32_t op;
    ds_expr at[DS_AGAIN_DEPTH];
} item;

typedef struct work {
    ds_again *a;
    const ds_again_loop *where;
    DS_VEC(item) items; /* heap */
} work;

static bool same_turns(const ds_expr *a, const ds_expr *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (a[i].i != b[i].i) return false;
    return true;
}

static bool is_inside(const ds_again_loop *loop, const ds_again_loop *outer) {
    while (loop && loop != outer) loop = loop->up;
    return loop == outer;
}

/* The copy that can be read in `where`, or NULL. */
static const ds_op *find_made(const ds_again *a, uint32_t op, const ds_expr *at,
                              const ds_again_loop *where) {
    uint32_t n = ds_again__depth(a->ops.at[op].home);
    for (uint32_t i = a->ops.at[op].made; i; i = a->made.at[i - 1].before) {
        const ds_again_made *made = &a->made.at[i - 1];
        if (is_inside(where, made->where) && same_turns(made->at, at, n)) return made->made;
    }
    return NULL;
}

static void add_item(work *w, uint32_t op, const ds_expr *at) {
    uint32_t n = ds_again__depth(w->a->ops.at[op].home);
    item it = {.op = op};
    if (find_made(w->a, op, at, w->where)) return;
    for (uint32_t i = 0; i < w->items.n; i++)
        if (w->items.at[i].op == op && same_turns(w->items.at[i].at, at, n)) return;
    if (n) memcpy(it.at, at, n * sizeof *at);
    DS_HPUSH(&w->items, it);
}

/* Adds the op and its group. */
static void add_group(work *w, uint32_t op, const ds_expr *at) {
    const ds_again_op *all = w->a->ops.at;
    add_item(w, op, at);
    for (uint32_t i = all[op].first; all[op].group; i = all[i].next) {
        add_item(w, i, at);
        if (!all[i].next) return;
    }
}

/* Adds the ops that make the items' operands, if these run again too. */
static void add_operands(work *w) {
    for (uint32_t i = 0; i < w->items.n; i++) {
        const item it = w->items.at[i];
        const ds_again_op *info = &w->a->ops.at[it.op];
        for (uint32_t k = 0; k < info->op->n_in; k++) {
            ds_again_value x = ds_again__operand(w->a, &info->op->in[k], info->home, it.at);
            if (!ds_again__runs(w->a, &x)) continue;
            add_group(w, (uint32_t)(ds_again__def(w->a, x.value) - w->a->ops.at), x.at);
        }
    }
}

static int by_order(const void *x, const void *y) {
    const item *a = x, *b = y;
    if (a->op != b->op) return a->op < b->op ? -1 : 1;
    for (uint32_t i = 0; i < DS_AGAIN_DEPTH; i++)
        if (a->at[i].i != b->at[i].i) return a->at[i].i < b->at[i].i ? -1 : 1;
    return 0;
}

static ds_value copy_of(const ds_again *a, const ds_again_value *x, const ds_again_loop *where) {
    const ds_again_op *def = ds_again__def(a, x->value);
    const ds_op *made = find_made(a, (uint32_t)(def - a->ops.at), x->at, where);
    assert(made); /* operands come before their readers */
    uint32_t k = 0;
    while (def->op->out[k].i != x->value.i) k++;
    return made->out[k];
}

static const char *again_name(const ds_again *a, const char *name) {
    return ds_arena_join(arena_of(a), name, ".again");
}

static void name_copy(ds_again *a, const ds_op *old, ds_op *op) {
    const char *name = again_name(a, ds_path_op_name(a->old, old));
    if (strcmp(ds_value_at(a->b.func, op->out[0])->name, name) != 0)
        ds_build_attr_text(&a->b, op, "name", name);
}

/* Begins a copy, without operands and results. */
static ds_op *begin_copy(ds_again *a, const ds_op *old, const ds_again_turns *t) {
    ds_op *op = ds_build_op(&a->b, old->code);
    op->loc = old->loc;
    op->attrs = old->attrs;
    op->n_attrs = old->n_attrs;
    if (!ds_attrs_mention(&a->unit->exprs, old->attrs, old->n_attrs, NULL)) return op;
    op->attrs = ds_copy_attrs(arena_of(a), old->attrs, old->n_attrs);
    for (uint32_t i = 0; i < op->n_attrs; i++) op->attrs[i] = ds_again__put_attr(t, op->attrs[i]);
    return op;
}

static ds_status end_copy(ds_again *a, const ds_op *old, ds_op *op, const ds_again_turns *t,
                          ds_error *err) {
    for (uint32_t i = 0; i < old->n_out; i++) {
        const ds_value_info *out = ds_value_at(a->old, old->out[i]);
        const ds_type *type = out->type_written ? ds_again__put_type(t, out->type) : NULL;
        ds_build_out(&a->b, op, again_name(a, out->name), type);
    }
    name_copy(a, old, op);
    return ds_build_put(&a->b, op, err);
}

static ds_status run_again(work *w, const item *it, ds_error *err) {
    ds_again *a = w->a;
    const ds_again_op *info = &a->ops.at[it->op];
    const ds_again_turns t = {a, info->home, it->at};
    ds_op *op = begin_copy(a, info->op, &t);
    for (uint32_t i = 0; i < info->op->n_in; i++) {
        ds_again_value x = ds_again__operand(a, &info->op->in[i], info->home, it->at);
        bool made = ds_again__runs(a, &x);
        ds_build_in(&a->b, op, made ? ds_use_of(copy_of(a, &x, w->where)) : ds_again__kept(a, &x));
    }
    DS_TRY(end_copy(a, info->op, op, &t, err));
    uint32_t *last = &a->ops.at[it->op].made;
    ds_again_made made = {.op = it->op, .where = w->where, .made = op, .before = *last};
    memcpy(made.at, it->at, sizeof made.at);
    DS_HPUSH(&a->made, made);
    *last = a->made.n;
    return DS_OK;
}

static ds_status make_again(ds_again *a, const ds_again_value *x, const ds_again_loop *where,
                            ds_error *err) {
    work w = {.a = a, .where = where};
    ds_status status = DS_OK;
    add_group(&w, (uint32_t)(ds_again__def(a, x->value) - a->ops.at), x->at);
    add_operands(&w);
    qsort(w.items.at, w.items.n, sizeof *w.items.at, by_order);
    for (uint32_t i = 0; i < w.items.n && status == DS_OK; i++)
        status = run_again(&w, &w.items.at[i], err);
    free(w.items.at);
    return status;
}

/* ---- blocks ---- */

/* The loop over the turns of a block that the value belongs to, or NULL. */
static const ds_again_loop *block_of(const ds_again *a, ds_value value) {
    const ds_again_loop *home = a->home[value.i];
    return home && ds_map_find(&a->blocks, DS_KEY(home->op)) ? home : NULL;
}

static ds_again_block *find_block(ds_again *a, const ds_again_loop *loop, const ds_expr *at,
                                  const ds_again_loop *where) {
    for (uint32_t i = a->made_blocks.n; i-- > 0;) {
        ds_again_block *block = &a->made_blocks.at[i];
        if (block->loop == loop && is_inside(where, block->where) &&
            same_turns(block->at, at, loop->depth - 1))
            return block;
    }
    return NULL;
}

/* The new use that an op of the block reads: a value of this run, or a kept value. */
static ds_use in_block(ds_again *a, const ds_again_block *block, const ds_use *use,
                       const ds_expr *at) {
    if (a->home[use->value.i] == block->loop) return ds_use_of(block->map[use->value.i]);
    ds_again_value x = ds_again__operand(a, use, block->loop, at);
    return ds_again__kept(a, &x);
}

static ds_status run_body(ds_again *a, ds_again_block *block, ds_error *err) {
    const ds_op *old = block->loop->op, *end = ds_block_end(old->body);
    ds_expr at[DS_AGAIN_DEPTH];
    const ds_again_turns t = {a, block->loop, at};
    memcpy(at, block->at, sizeof at);
    at[block->loop->depth - 1] = ds_expr_index(&a->unit->exprs, old->index);
    for (uint32_t i = 0; old->body->ops[i] != end; i++) {
        const ds_op *from = old->body->ops[i];
        ds_op *op = begin_copy(a, from, &t);
        for (uint32_t k = 0; k < from->n_in; k++)
            ds_build_in(&a->b, op, in_block(a, block, &from->in[k], at));
        DS_TRY(end_copy(a, from, op, &t, err));
        for (uint32_t k = 0; k < from->n_out; k++) block->map[from->out[k].i] = op->out[k];
    }
    ds_use *next = DS_NEW_N(arena_of(a), ds_use, old->n_args + 1);
    const char **names = DS_NEW_N(arena_of(a), const char *, old->n_args + 1);
    for (uint32_t i = 0; i < old->n_args; i++) {
        next[i] = in_block(a, block, &end->in[i], at);
        names[i] = again_name(a, ds_value_at(a->old, old->out[i])->name);
    }
    return ds_build_yield(&a->b, next, old->n_args, NULL, 0, names, err);
}

static ds_value *no_values(const ds_again *a) {
    uint32_t n = a->old->values.n + 1;
    ds_value *values = DS_NEW_N(arena_of(a), ds_value, n);
    memset(values, 0xff, n * sizeof *values);
    return values;
}

static ds_status run_block(ds_again *a, const ds_again_loop *loop, const ds_expr *at,
                           const ds_again_loop *where, ds_error *err) {
    const ds_op *old = loop->op;
    ds_again_block block = {.loop = loop, .where = where};
    ds_use *init = DS_NEW_N(arena_of(a), ds_use, old->n_args + 1);
    memcpy(block.at, at, (loop->depth - 1) * sizeof *at);
    block.map = no_values(a);
    block.kept = no_values(a);
    for (uint32_t i = 0; i < old->n_args; i++) {
        ds_again_value x = ds_again__operand(a, &old->in[i], loop->up, at);
        init[i] = ds_again__kept(a, &x);
    }
    block.made = ds_build_for(&a->b, old->index, old->lo, old->hi);
    for (uint32_t i = 0; i < old->n_args; i++) {
        const ds_value_info *arg = ds_value_at(a->old, old->args[i]);
        block.map[old->args[i].i] = ds_build_carry(&a->b, block.made, again_name(a, arg->name),
                                                   arg->type_written ? arg->type : NULL, init[i]);
    }
    DS_TRY(run_body(a, &block, err));
    DS_HPUSH(&a->made_blocks, block);
    return DS_OK;
}

static ds_use read_block(ds_again *a, ds_again_block *block, const ds_again_value *x) {
    ds_value *family = &block->kept[x->value.i];
    if (family->i == UINT32_MAX) {
        ds_value inner = block->map[x->value.i];
        const char *name = ds_arena_join(arena_of(a), ds_value_at(a->b.func, inner)->name, ".kept");
        *family = ds_build_keep(&a->b, block->made, inner, name);
    }
    return ds_use_at(arena_of(a), *family, &x->at[block->loop->depth - 1], 1);
}

static bool mentions(const ds_again *a, const ds_expr *at, uint32_t n, const char *index) {
    for (uint32_t i = 0; i < n; i++)
        if (ds_expr_mentions(&a->unit->exprs, at[i], index)) return true;
    return false;
}

/* Runs the blocks whose values the ops of `body` read, if their turns do not depend on `index`. */
static ds_status make_inputs_again(ds_again *a, const ds_block *body, const char *index,
                                   const ds_again_loop *where, ds_error *err) {
    for (uint32_t i = 0; i < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
        for (uint32_t k = 0; k < op->n_in; k++) {
            ds_again_value x = ds_again__trace(a, &op->in[k]);
            const ds_again_loop *loop = block_of(a, x.value);
            if (!loop || mentions(a, x.at, loop->depth - 1, index) ||
                find_block(a, loop, x.at, where))
                continue;
            DS_TRY(run_block(a, loop, x.at, where, err));
        }
    }
    return DS_OK;
}

ds_status ds_again__prepare(ds_again *a, const ds_op *loop, ds_error *err) {
    const ds_again_op *info = ds_again__op(a, loop);
    return info->forward ? DS_OK : make_inputs_again(a, loop->body, loop->index, info->home, err);
}

/* ---- either ---- */

ds_status ds_again__make(ds_again *a, const ds_again_value *x, const ds_again_loop *where,
                         ds_use *out, ds_error *err) {
    const ds_again_loop *loop = block_of(a, x->value);
    if (loop) {
        if (!find_block(a, loop, x->at, where)) DS_TRY(run_block(a, loop, x->at, where, err));
        *out = read_block(a, find_block(a, loop, x->at, where), x);
        return DS_OK;
    }
    uint32_t def = (uint32_t)(ds_again__def(a, x->value) - a->ops.at);
    if (!find_made(a, def, x->at, where)) DS_TRY(make_again(a, x, where, err));
    *out = ds_use_of(copy_of(a, x, where));
    return DS_OK;
}
