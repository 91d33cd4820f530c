/* The recomputation pass: values that the forward pass kept for the backward pass are made again.
 *
 * After grad the backward pass reads forward values as they are; those of a loop's turns from
 * families that the forward loop keeps, %act.kept{layers - 1 - layer}. Here the function is copied,
 * and every such read is traced to the op that made the value and to the turns of the loops around
 * it. If that op is chosen (recompute_choose.c), a copy of it, and of the chosen ops that its
 * operands come from, is put right before the first reader; what those read that is not chosen is
 * kept: a loop's carries, say, or q, k and v. Turns are put in the place of loop indices, in
 * operands, types and attributes, so that a dropout draws the mask that it drew (its key names the
 * op, not the copy). A copy serves all readers in its block and in the loops inside.
 *
 * Loops keep what is still read, and nothing else. Copies are called %x.again; they are ops like
 * all others, so that shard gives them their communication (SEMANTICS P1). */
#include "ir/passes/path.h"
#include "ir/passes/recompute_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A forward value: for turns `at` of the loops around its definition, read at `rest` if it is a
 * family itself. */
typedef struct instance {
    ds_value value;
    ds_expr at[DS_AGAIN_DEPTH];
    uint32_t n_at;
    ds_expr rest[DS_AGAIN_DEPTH];
    uint32_t n_rest;
    bool is_range; /* rest_hi are the ends of a stacked range */
    ds_expr rest_hi[DS_AGAIN_DEPTH];
} instance;

static ds_arena *arena_of(const ds_again *a) {
    return &a->unit->arena;
}

static uint32_t depth_of(const ds_again_loop *loop) {
    return loop ? loop->depth : 0;
}

/* ---- turns in the place of indices ---- */

/* The indices of the loops around an op, and what stands for them. `at` may mention indices of the
 * same names that mean other loops, so each goes through a name that no text has. */
typedef struct turns {
    ds_again *a;
    const ds_again_loop *loop;
    const ds_expr *at;
} turns;

static const char *hidden(const ds_again *a, const ds_again_loop *loop) {
    return ds_intern(&a->unit->strings, ds_arena_printf(arena_of(a), "\2%u", loop->depth));
}

static ds_expr put_turns(const turns *t, ds_expr e) {
    ds_exprs *exprs = &t->a->unit->exprs;
    if (!DS_HAS_EXPR(e)) return e;
    for (const ds_again_loop *loop = t->loop; loop; loop = loop->up)
        e = ds_expr_subst(exprs, e, loop->op->index, ds_expr_index(exprs, hidden(t->a, loop)));
    for (const ds_again_loop *loop = t->loop; loop; loop = loop->up)
        e = ds_expr_subst(exprs, e, hidden(t->a, loop), t->at[loop->depth - 1]);
    return e;
}

static const ds_type *put_turns_type(const turns *t, const ds_type *type) {
    ds_exprs *exprs = &t->a->unit->exprs;
    ds_arena *arena = arena_of(t->a);
    for (const ds_again_loop *loop = t->loop; loop; loop = loop->up)
        type = ds_type_subst(exprs, arena, type, loop->op->index,
                             ds_expr_index(exprs, hidden(t->a, loop)));
    for (const ds_again_loop *loop = t->loop; loop; loop = loop->up)
        type = ds_type_subst(exprs, arena, type, hidden(t->a, loop), t->at[loop->depth - 1]);
    return type;
}

static ds_attr put_turns_attr(const turns *t, ds_attr attr) {
    attr.expr = put_turns(t, attr.expr);
    if (attr.n_items) attr.items = ds_copy_attrs(arena_of(t->a), attr.items, attr.n_items);
    for (uint32_t i = 0; i < attr.n_items; i++) attr.items[i] = put_turns_attr(t, attr.items[i]);
    return attr;
}

/* ---- from a read to what it reads ---- */

/* The result of the loop that the value is, if it is one that is kept; else UINT32_MAX. */
static uint32_t kept_result(const ds_again *a, ds_value value) {
    const ds_again_op *def = ds_again__def(a, value);
    if (!def || def->op->code != DS_OP_FOR || !def->forward) return UINT32_MAX;
    for (uint32_t i = def->op->n_args; i < def->op->n_out; i++)
        if (def->op->out[i].i == value.i) return i;
    return UINT32_MAX;
}

/* Follows an element of a family into the loop that keeps it. */
static void trace(ds_again *a, instance *x) {
    uint32_t i;
    while (x->n_rest && !a->wanted[x->value.i] && (i = kept_result(a, x->value)) != UINT32_MAX) {
        const ds_op *loop = ds_again__def(a, x->value)->op;
        const ds_use *inner = &ds_block_end(loop->body)->in[i];
        x->at[x->n_at++] = x->rest[0];
        memmove(x->rest, x->rest + 1, --x->n_rest * sizeof *x->rest);
        const turns t = {a, ds_again__op(a, loop->body->ops[0])->home, x->at};
        for (uint32_t k = 0; k < inner->n_index; k++) x->rest[k] = put_turns(&t, inner->index[k]);
        if (inner->n_index) x->n_rest = inner->n_index;
        x->value = inner->value;
        x->n_at = depth_of(a->home[x->value.i]);
    }
}

/* What an op reads that runs for the turns `at` of the loops around it. */
static instance operand(ds_again *a, const ds_use *use, const ds_again_loop *home,
                        const ds_expr *at) {
    instance x = {.value = use->value, .n_rest = use->n_index, .is_range = use->index_hi != NULL};
    const turns t = {a, home, at};
    x.n_at = depth_of(a->home[use->value.i]);
    if (x.n_at) memcpy(x.at, at, x.n_at * sizeof *at);
    for (uint32_t i = 0; i < use->n_index; i++) x.rest[i] = put_turns(&t, use->index[i]);
    for (uint32_t i = 0; x.is_range && i < use->n_index; i++)
        x.rest_hi[i] = put_turns(&t, use->index_hi[i]);
    trace(a, &x);
    return x;
}

static bool runs_again(const ds_again *a, const instance *x) {
    return a->again[x->value.i] && !x->n_rest;
}

/* ---- what is kept ---- */

/* The old family over the turns of `loop` in which the value is kept, if there is one. */
static bool old_family(const ds_again_loop *loop, ds_value value, ds_value *out) {
    const ds_op *yield = ds_block_end(loop->op->body);
    for (uint32_t i = yield->n_in - yield->n_keep; i < yield->n_in; i++)
        if (yield->in[i].value.i == value.i && !yield->in[i].n_index) {
            *out = loop->op->out[i];
            return true;
        }
    return false;
}

/* The new family of an old value over all loops around it: the old ones as far as there are any. */
static ds_value family_of(ds_again *a, ds_value value) {
    ds_value made = a->copy.map[value.i], old = value;
    const char *name = ds_arena_printf(arena_of(a), "%s.kept", ds_value_at(a->old, value)->name);
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

static ds_use read_kept(ds_again *a, const instance *x) {
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

/* ---- what is made again ---- */

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
    uint32_t n = depth_of(a->ops.at[op].home);
    for (uint32_t i = a->made.n; i-- > 0;) {
        const ds_again_made *made = &a->made.at[i];
        if (made->op == op && is_inside(where, made->where) && same_turns(made->at, at, n))
            return made->made;
    }
    return NULL;
}

static void add_item(work *w, uint32_t op, const ds_expr *at) {
    uint32_t n = depth_of(w->a->ops.at[op].home);
    item it = {.op = op};
    if (find_made(w->a, op, at, w->where)) return;
    for (uint32_t i = 0; i < w->items.n; i++)
        if (w->items.at[i].op == op && same_turns(w->items.at[i].at, at, n)) return;
    if (n) memcpy(it.at, at, n * sizeof *at);
    DS_HPUSH(&w->items, it);
}

/* The op and its group. Groups are of one loop or of neighbours, so they are looked for nearby. */
static void add_group(work *w, uint32_t op, const ds_expr *at) {
    const ds_again_op *all = w->a->ops.at;
    add_item(w, op, at);
    for (uint32_t i = 0; all[op].group && i < w->a->ops.n; i++)
        if (all[i].group == all[op].group) add_item(w, i, at);
}

/* Everything that the items read and that runs again too. */
static void add_operands(work *w) {
    for (uint32_t i = 0; i < w->items.n; i++) {
        const item it = w->items.at[i];
        const ds_again_op *info = &w->a->ops.at[it.op];
        for (uint32_t k = 0; k < info->op->n_in; k++) {
            instance x = operand(w->a, &info->op->in[k], info->home, it.at);
            if (!runs_again(w->a, &x)) continue;
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

static ds_value copy_of(const ds_again *a, const instance *x, const ds_again_loop *where) {
    const ds_again_op *def = ds_again__def(a, x->value);
    const ds_op *made = find_made(a, (uint32_t)(def - a->ops.at), x->at, where);
    assert(made); /* operands come before their readers */
    uint32_t k = 0;
    while (def->op->out[k].i != x->value.i) k++;
    return made->out[k];
}

static const char *again_name(const ds_again *a, const char *name) {
    return ds_arena_printf(arena_of(a), "%s.again", name);
}

static void name_copy(ds_again *a, const ds_op *old, ds_op *op) {
    const char *name = again_name(a, ds_path_op_name(a->old, old));
    if (strcmp(ds_value_at(a->b.func, op->out[0])->name, name) != 0)
        ds_build_attr_text(&a->b, op, "name", name);
}

static ds_status run_again(work *w, const item *it, ds_error *err) {
    ds_again *a = w->a;
    const ds_again_op *info = &a->ops.at[it->op];
    const ds_op *old = info->op;
    const turns t = {a, info->home, it->at};
    ds_op *op = ds_build_op(&a->b, old->code);
    op->loc = old->loc;
    op->attrs = ds_copy_attrs(arena_of(a), old->attrs, old->n_attrs);
    op->n_attrs = old->n_attrs;
    for (uint32_t i = 0; i < op->n_attrs; i++) op->attrs[i] = put_turns_attr(&t, op->attrs[i]);
    for (uint32_t i = 0; i < old->n_in; i++) {
        instance x = operand(a, &old->in[i], info->home, it->at);
        ds_build_in(&a->b, op,
                    runs_again(a, &x) ? ds_use_of(copy_of(a, &x, w->where)) : read_kept(a, &x));
    }
    for (uint32_t i = 0; i < old->n_out; i++) {
        const ds_value_info *out = ds_value_at(a->old, old->out[i]);
        const ds_type *type = out->type_written ? put_turns_type(&t, out->type) : NULL;
        ds_build_out(&a->b, op, again_name(a, out->name), type);
    }
    name_copy(a, old, op);
    DS_TRY(ds_build_put(&a->b, op, err));
    ds_again_made made = {.op = it->op, .where = w->where, .made = op};
    memcpy(made.at, it->at, sizeof made.at);
    DS_HPUSH(&a->made, made);
    return DS_OK;
}

static ds_status make_again(ds_again *a, const instance *x, const ds_again_loop *where,
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

/* ---- copying ---- */

static bool is_plain(const ds_again *a, const ds_again_op *reader, const ds_use *use) {
    bool whole = ds_value_at(a->old, use->value)->n_binders && !use->n_index;
    return reader->forward || reader->op->code == DS_OP_RETURN || use->index_hi || whole;
}

/* ds_copy's `read`. */
static ds_status read(void *context, const ds_op *reader, const ds_use *use, ds_use *out,
                      ds_error *err) {
    ds_again *a = context;
    const ds_again_op *info = ds_again__op(a, reader);
    if (is_plain(a, info, use)) {
        *out = ds_copy_use(&a->copy, use);
        return DS_OK;
    }
    instance x = {.value = use->value, .n_rest = use->n_index};
    if (use->n_index) memcpy(x.rest, use->index, use->n_index * sizeof *x.rest);
    trace(a, &x);
    if (runs_again(a, &x)) {
        const ds_op *made;
        uint32_t def = (uint32_t)(ds_again__def(a, x.value) - a->ops.at);
        made = find_made(a, def, x.at, info->home);
        if (!made) DS_TRY(make_again(a, &x, info->home, err));
        *out = ds_use_of(copy_of(a, &x, info->home));
        return DS_OK;
    }
    *out = x.value.i == use->value.i ? ds_copy_use(&a->copy, use) : read_kept(a, &x);
    return DS_OK;
}

/* ds_copy's `keeps`: what is read of a forward loop later is added then. */
static bool keeps(void *context, const ds_op *loop, uint32_t i) {
    const ds_again *a = context;
    return !ds_again__op(a, loop)->forward || a->wanted[loop->out[i].i];
}

static ds_status make_body(ds_again *a, ds_error *err) {
    const ds_op *end = ds_block_end(&a->old->body);
    ds_again__scan(a);
    DS_TRY(ds_again__choose(a, err));
    for (uint32_t i = 0; i < a->old->n_args; i++) ds_copy_arg(&a->copy, i);
    DS_TRY(ds_copy_block(&a->copy, &a->old->body, err));
    ds_use *results = DS_NEW_N(arena_of(a), ds_use, end->n_in + 1);
    for (uint32_t i = 0; i < end->n_in; i++) results[i] = ds_copy_use(&a->copy, &end->in[i]);
    return ds_build_return(&a->b, results, end->n_in, err);
}

/* ---- the step's functions ---- */

static void move_value(const ds_again *a, ds_value *value) {
    if (value->i != UINT32_MAX) *value = a->copy.map[value->i];
}

static void move_weights(const ds_again *a) {
    for (uint32_t i = 0; i < a->step->weights.n; i++) {
        ds_step_weight *w = &a->step->weights.at[i];
        move_value(a, &w->arg);
        for (uint32_t k = 0; k < w->n_states; k++) move_value(a, &w->state[k]);
        move_value(a, &w->master);
    }
}

static ds_status rewrite(ds_model_step *step, const ds_func *old, ds_func **out, ds_error *err) {
    ds_again a = {.step = step, .unit = step->unit, .old = old};
    uint32_t n = old->values.n + 1;
    a.home = ds_xcalloc(n, sizeof *a.home);
    a.wanted = ds_xcalloc(n, sizeof *a.wanted);
    a.again = ds_xcalloc(n, sizeof *a.again);
    ds_map_init(&a.number);
    ds_map_init(&a.kept);
    ds_build_func(&a.b, old->module, old->name, true);
    a.b.func->loc = old->loc;
    ds_copy_init(&a.copy, &a.b, old);
    a.copy.read = read;
    a.copy.keeps = keeps;
    a.copy.context = &a;
    ds_status status = make_body(&a, err);
    if (status == DS_OK && old == step->func) move_weights(&a);
    ds_copy_deinit(&a.copy);
    *out = ds_build_end(&a.b);
    ds_map_deinit(&a.number);
    ds_map_deinit(&a.kept);
    free(a.home);
    free(a.wanted);
    free(a.again);
    free(a.made.at);
    return status;
}

static bool has_calls(const ds_func *func) {
    for (uint32_t i = 0; i < func->body.n_ops; i++)
        if (func->body.ops[i]->code == DS_OP_CALL) return true;
    return false;
}

/* The functions of microbatches, or the step itself. */
ds_status ds_pass_recompute(ds_model_step *step, ds_error *err) {
    const ds_module *module = step->unit->modules.at[0];
    bool parts = has_calls(step->func);
    if (step->strategy.recompute == DS_RECOMPUTE_NONE) return DS_OK;
    for (uint32_t i = 0; i < module->funcs.n; i++) {
        ds_func *func = module->funcs.at[i], *made;
        if (parts == (func == step->func)) continue;
        DS_TRY(rewrite(step, func, &made, err));
        ds_model_step_set_func(step, made);
        for (uint32_t k = 0; parts && k < step->func->body.n_ops; k++)
            if (step->func->body.ops[k]->callee == func) step->func->body.ops[k]->callee = made;
    }
    return DS_OK;
}
