/* recompute = "every:K": loops of n turns become loops of n / K blocks of K turns.
 *
 *     for l in lo..hi carry (%h = %x) { … }
 *     for l_block in 0..(hi - lo) / K carry (%h.block = %x) {
 *       for l_turn in 0..K carry (%h = %h.block) { … lo + l_block * K + l_turn for l … }
 *     }
 *
 * and so do the loops of the backward pass that read the forward loops' families. A block then runs
 * again as a whole (make.c), and only its %h.block is kept. An element of a family over l is read
 * at two indices, the block and the turn.
 *
 * Changes the old function in place, because a copy replaces it anyway. */
#include "ir/passes/build/path.h"
#include "ir/passes/recompute/internal.h"

#include <string.h>

/* A loop and its loops over blocks and turns. */
typedef struct tiled {
    ds_again *a;
    ds_op *outer;        /* the old loop's op */
    const char *index;   /* the old index */
    ds_expr lo, hi;      /* the old range */
    ds_expr block, turn; /* the new indices */
    bool forward;
} tiled;

static ds_expr fold(const ds_again *a, ds_expr_kind kind, ds_expr x, ds_expr y) {
    return ds_expr_fold(&a->unit->exprs, kind, x, y);
}

static ds_expr integer(const ds_again *a, int64_t i) {
    return ds_expr_int(&a->unit->exprs, i);
}

static ds_expr length(const ds_again *a) {
    return integer(a, a->step->strategy.recompute_every);
}

/* ---- the new index in place of the old index ---- */

static ds_expr put_index(const tiled *t, ds_expr e, ds_expr by) {
    return DS_HAS_EXPR(e) ? ds_expr_subst(&t->a->unit->exprs, e, t->index, by) : e;
}

static ds_attr put_attr(const tiled *t, ds_attr attr, ds_expr by) {
    attr.expr = put_index(t, attr.expr, by);
    if (attr.n_items) attr.items = ds_copy_attrs(&t->a->unit->arena, attr.items, attr.n_items);
    for (uint32_t i = 0; i < attr.n_items; i++) attr.items[i] = put_attr(t, attr.items[i], by);
    return attr;
}

static void put_type(const tiled *t, ds_value value, ds_expr by) {
    ds_value_info *info = ds_value_at(t->a->old, value);
    info->type =
        (ds_type *)ds_type_subst(&t->a->unit->exprs, &t->a->unit->arena, info->type, t->index, by);
}

/* Copies the array too, because copied uses share indices. */
static ds_expr *put_all(const tiled *t, const ds_expr *from, uint32_t n, ds_expr by) {
    ds_expr *index = DS_NEW_N(&t->a->unit->arena, ds_expr, n + 1);
    for (uint32_t i = 0; i < n; i++) index[i] = put_index(t, from[i], by);
    return index;
}

static void put_op(const tiled *t, ds_op *op, ds_expr by) {
    for (uint32_t i = 0; i < op->n_in; i++) {
        ds_use *use = &op->in[i];
        if (use->n_index) use->index = put_all(t, use->index, use->n_index, by);
        if (use->index_hi) use->index_hi = put_all(t, use->index_hi, use->n_index, by);
    }
    op->attrs = ds_copy_attrs(&t->a->unit->arena, op->attrs, op->n_attrs);
    for (uint32_t i = 0; i < op->n_attrs; i++) op->attrs[i] = put_attr(t, op->attrs[i], by);
    for (uint32_t i = 0; i < op->n_out; i++) put_type(t, op->out[i], by);
}

/* ---- one loop ---- */

static const char *index_name(const ds_again *a, const char *base, const char *suffix) {
    const ds_module *module = a->old->module;
    const char *name = ds_arena_printf(&a->unit->arena, "%s_%s", base, suffix);
    for (uint32_t i = 0; i < module->params.n; i++)
        if (strcmp(module->params.at[i].name, name) == 0)
            return index_name(a, base, ds_arena_printf(&a->unit->arena, "%s_", suffix));
    return ds_intern(&a->unit->strings, name);
}

static ds_value new_value(ds_again *a, ds_value like, ds_op *def, bool is_arg) {
    ds_func *func = (ds_func *)a->old;
    ds_value value = {func->values.n};
    ds_value_info info = *ds_value_at(func, like);
    info.def = def;
    info.is_arg = is_arg;
    info.type_written = info.type_written && is_arg;
    info.binders = NULL;
    info.n_binders = 0;
    DS_PUSH(&a->unit->arena, &func->values, info);
    return value;
}

static void name_block(const ds_again *a, ds_value value, ds_value of) {
    ds_value_at(a->old, value)->name =
        ds_arena_printf(&a->unit->arena, "%s.block", ds_value_at(a->old, of)->name);
}

static ds_use *uses_of(ds_again *a, const ds_value *values, uint32_t n) {
    ds_use *uses = DS_NEW_N(&a->unit->arena, ds_use, n + 1);
    for (uint32_t i = 0; i < n; i++) uses[i] = ds_use_of(values[i]);
    return uses;
}

/* Gives the family two binders, over blocks and over turns. */
static void set_binders(const tiled *t, ds_value family, const ds_op *inner) {
    ds_value_info *info = ds_value_at(t->a->old, family);
    ds_binder *binders = DS_NEW_N(&t->a->unit->arena, ds_binder, info->n_binders + 1);
    binders[0] = (ds_binder){t->outer->index, t->outer->lo, t->outer->hi, t->outer->loc};
    binders[1] = (ds_binder){inner->index, inner->lo, inner->hi, inner->loc};
    for (uint32_t i = 1; i < info->n_binders; i++) binders[i + 1] = info->binders[i];
    info->binders = binders;
    info->n_binders++;
}

static ds_op *make_inner(tiled *t) {
    ds_again *a = t->a;
    ds_arena *arena = &a->unit->arena;
    ds_op *outer = t->outer, *inner = DS_NEW(arena, ds_op);
    ds_value *args = DS_NEW_N(arena, ds_value, outer->n_args + 1);
    inner->code = DS_OP_FOR;
    inner->loc = outer->loc;
    inner->index = index_name(a, t->index, "turn");
    inner->lo = integer(a, 0);
    inner->hi = length(a);
    inner->body = outer->body;
    inner->args = outer->args;
    inner->n_args = inner->n_in = outer->n_args;
    for (uint32_t i = 0; i < outer->n_args; i++) {
        args[i] = new_value(a, outer->args[i], outer, true);
        name_block(a, args[i], outer->args[i]);
        ds_value_at(a->old, inner->args[i])->def = inner;
    }
    inner->in = uses_of(a, args, outer->n_args);
    outer->args = args;
    inner->out = DS_NEW_N(arena, ds_value, outer->n_out + 1);
    inner->n_out = outer->n_out;
    for (uint32_t i = 0; i < outer->n_out; i++) {
        inner->out[i] = new_value(a, outer->out[i], inner, false);
        name_block(a, inner->out[i], outer->out[i]);
    }
    return inner;
}

static void tile(tiled *t) {
    ds_again *a = t->a;
    ds_arena *arena = &a->unit->arena;
    ds_op *outer = t->outer, *inner = make_inner(t), *yield = DS_NEW(arena, ds_op);
    const ds_op *end = ds_block_end(inner->body);
    outer->lo = integer(a, 0);
    outer->hi = fold(a, DS_EXPR_DIV, fold(a, DS_EXPR_SUB, t->hi, t->lo), length(a));
    outer->index = index_name(a, t->index, "block");
    yield->code = DS_OP_YIELD;
    yield->in = uses_of(a, inner->out, inner->n_out);
    yield->n_in = inner->n_out;
    yield->n_keep = end->n_keep;
    outer->body = DS_NEW(arena, ds_block);
    outer->body->ops = DS_NEW_N(arena, ds_op *, 2);
    outer->body->ops[0] = inner;
    outer->body->ops[1] = yield;
    outer->body->n_ops = 2;
    for (uint32_t i = outer->n_args; i < outer->n_out; i++) {
        ds_value_info *info = ds_value_at(a->old, inner->out[i]);
        info->n_binders = ds_value_at(a->old, outer->out[i])->n_binders;
        info->binders = DS_NEW_N(arena, ds_binder, info->n_binders);
        memcpy(info->binders, ds_value_at(a->old, outer->out[i])->binders,
               info->n_binders * sizeof *info->binders);
        info->binders[0] = (ds_binder){inner->index, inner->lo, inner->hi, inner->loc};
        set_binders(t, outer->out[i], inner);
    }
    if (!ds_attr_find(outer->attrs, outer->n_attrs, "name"))
        ds_build_attr_text(&a->b, outer, "name", t->index); /* paths stay */
    t->block = ds_expr_index(&a->unit->exprs, outer->index);
    t->turn = ds_expr_index(&a->unit->exprs, inner->index);
    ds_expr at = fold(a, DS_EXPR_ADD, fold(a, DS_EXPR_MUL, t->block, length(a)), t->turn);
    at = fold(a, DS_EXPR_ADD, t->lo, at);
    for (uint32_t i = 0; i < inner->body->n_ops; i++) put_op(t, inner->body->ops[i], at);
    for (uint32_t i = 0; i < inner->n_args; i++) put_type(t, inner->args[i], at);
}

/* ---- reads of families ---- */

/* The block and turn of element e. In loops over `reader`'s old range e is often lo + l or hi - 1 -
 * l, which need no division. */
static void split_index(const tiled *t, const tiled *reader, ds_expr e, ds_expr *block,
                        ds_expr *turn) {
    const ds_again *a = t->a;
    ds_exprs *exprs = &a->unit->exprs;
    ds_expr one = integer(a, 1), k = length(a), from = fold(a, DS_EXPR_SUB, e, t->lo);
    if (reader) {
        ds_expr at = fold(a, DS_EXPR_MUL, reader->block, k);
        at = fold(a, DS_EXPR_ADD, at, reader->turn);
        ds_expr last = fold(a, DS_EXPR_SUB, fold(a, DS_EXPR_SUB, t->hi, t->lo), one);
        if (ds_expr_equal(exprs, from, at) == DS_YES) {
            *block = reader->block;
            *turn = reader->turn;
            return;
        }
        if (ds_expr_equal(exprs, from, fold(a, DS_EXPR_SUB, last, at)) == DS_YES) {
            ds_expr blocks = fold(a, DS_EXPR_SUB, t->outer->hi, one);
            *block = fold(a, DS_EXPR_SUB, blocks, reader->block);
            *turn = fold(a, DS_EXPR_SUB, fold(a, DS_EXPR_SUB, k, one), reader->turn);
            return;
        }
    }
    *block = fold(a, DS_EXPR_DIV, from, k);
    *turn = fold(a, DS_EXPR_MOD, from, k);
}

typedef struct tiles {
    ds_again *a;
    DS_VEC(tiled) all; /* in the unit's arena */
    ds_map families;   /* results of tiled loops → number in all */
} tiles;

static void split_use(const tiles *x, const tiled *reader, ds_use *use) {
    const uint64_t *family = ds_map_find(&x->families, use->value.i);
    if (!family) return;
    ds_expr *index = DS_NEW_N(&x->a->unit->arena, ds_expr, use->n_index + 1);
    split_index(&x->all.at[*family], reader, use->index[0], &index[0], &index[1]);
    for (uint32_t i = 1; i < use->n_index; i++) index[i + 1] = use->index[i];
    use->index = index;
    use->n_index++;
}

static const tiled *tile_of(const tiles *x, const ds_op *outer) {
    for (uint32_t i = 0; i < x->all.n; i++)
        if (x->all.at[i].outer == outer) return &x->all.at[i];
    return NULL;
}

static void split_uses(const tiles *x, const ds_block *block, const tiled *reader) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        const tiled *own = tile_of(x, op);
        for (uint32_t k = 0; k < op->n_in; k++) split_use(x, reader, &op->in[k]);
        if (op->body) split_uses(x, op->body, own ? own : reader);
    }
}

/* ---- which loops ---- */

/* Does an op in the block read a family of a tiled forward loop? */
static bool reads_kept(const tiles *x, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->body && reads_kept(x, op->body)) return true;
        for (uint32_t k = 0; k < op->n_in; k++) {
            const uint64_t *family = ds_map_find(&x->families, op->in[k].value.i);
            if (family && x->all.at[*family].forward) return true;
        }
    }
    return false;
}

static bool holds_regions(const ds_op *loop) {
    for (uint32_t i = 0; i < loop->body->n_ops; i++)
        if (loop->body->ops[i]->body) return true;
    return false;
}

static ds_status refuse(const ds_again *a, const ds_op *loop, const char *why, ds_error *err) {
    return ds_error_set(
        err, DS_ERR_UNSUPPORTED, loop->loc, "recompute = \"every:%lld\": the loop over %s %s",
        (long long)a->step->strategy.recompute_every, ds_path_loop_name(a->old, loop), why);
}

static ds_status turns_of(const ds_again *a, const ds_op *loop, int64_t *n, ds_error *err) {
    ds_env env = ds_binding_env(&a->step->binding, NULL);
    ds_expr range = fold(a, DS_EXPR_SUB, loop->hi, loop->lo);
    return ds_expr_eval_int(&env, range, loop->loc, n, err);
}

static void add_tile(tiles *x, ds_op *loop, bool forward) {
    tiled t = {.a = x->a,
               .outer = loop,
               .index = loop->index,
               .lo = loop->lo,
               .hi = loop->hi,
               .forward = forward};
    for (uint32_t i = loop->n_args; i < loop->n_out; i++)
        ds_map_put(&x->families, loop->out[i].i, x->all.n);
    DS_PUSH(&x->a->unit->arena, &x->all, t);
}

static ds_status check_forward(tiles *x, ds_op *loop, ds_error *err) {
    const ds_again *a = x->a;
    int64_t n, k = a->step->strategy.recompute_every;
    DS_TRY(turns_of(a, loop, &n, err));
    if (n < 2 || !loop->n_args) return DS_OK;
    if (n % k)
        return refuse(a, loop,
                      ds_arena_printf(&a->unit->arena, "has %lld turns, which %lld does not divide",
                                      (long long)n, (long long)k),
                      err);
    if (holds_regions(loop)) return refuse(a, loop, "has loops inside", err);
    for (uint32_t i = loop->n_args; i < loop->n_out; i++)
        if (a->wanted[loop->out[i].i])
            return refuse(a, loop, "keeps values that the model reads itself", err);
    add_tile(x, loop, true);
    return DS_OK;
}

/* Adds a loop of the backward pass that reads families of a tiled loop. */
static ds_status check_backward(tiles *x, ds_op *loop, ds_error *err) {
    int64_t n, k = x->a->step->strategy.recompute_every;
    if (!reads_kept(x, loop->body)) return DS_OK;
    DS_TRY(turns_of(x->a, loop, &n, err));
    bool whole = false; /* a family that is read whole must keep one index */
    for (uint32_t i = loop->n_args; i < loop->n_out; i++)
        whole = whole || x->a->wanted[loop->out[i].i];
    if (n % k || holds_regions(loop) || whole)
        return refuse(x->a, loop, "is another one in the backward pass", err);
    add_tile(x, loop, false);
    return DS_OK;
}

static ds_status find_loops(tiles *x, ds_error *err) {
    const ds_block *body = &x->a->old->body;
    for (uint32_t i = 0; i < body->n_ops; i++) {
        ds_op *op = body->ops[i];
        if (op->code != DS_OP_FOR) continue;
        if (ds_again__op(x->a, op)->forward)
            DS_TRY(check_forward(x, op, err));
        else
            DS_TRY(check_backward(x, op, err));
    }
    return DS_OK;
}

ds_status ds_again__tile(ds_again *a, ds_error *err) {
    tiles x = {.a = a};
    a->b.unit = a->unit;
    ds_map_init(&x.families);
    ds_status status = find_loops(&x, err);
    for (uint32_t i = 0; i < x.all.n && status == DS_OK; i++) {
        tile(&x.all.at[i]);
        if (x.all.at[i].forward) ds_map_put(&a->blocks, DS_KEY(x.all.at[i].outer->body->ops[0]), 1);
    }
    if (status == DS_OK) split_uses(&x, &a->old->body, NULL);
    ds_map_deinit(&x.families);
    return status;
}
