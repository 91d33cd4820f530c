/* The reverse walk: blocks from their last op to their first, loops from their last turn to their
 * first.
 *
 * The backward of `for l in lo..hi carry (h = x) { … yield a keep s }` is
 *
 *     for l in 0..hi - lo carry (dh = gradient of the result, dv = sum for each v of outside) {
 *       … reads what turn hi - 1 - l kept …
 *       yield dh, dv keep gradients of elements that belong to the turn
 *     }
 */
#include "ir/passes/grad/internal.h"

#include <stdlib.h>
#include <string.h>

static ds_arena *arena_of(ds_grad *g) {
    return &g->unit->arena;
}

static ds_expr index_expr(ds_grad *g, const ds_grad_loop *loop) {
    return ds_expr_index(&g->unit->exprs, loop->op->index);
}

/* ---- weights ---- */

static ds_dtype grad_dtype(const ds_grad *g, const ds_type *weight) {
    ds_dtype wanted = g->step->train.grad_dtype;
    return wanted == DS_DTYPE_COUNT ? weight->dtype : wanted;
}

static const ds_type *with_dtype(ds_grad *g, const ds_type *type, ds_dtype dtype) {
    if (type->dtype == dtype) return type;
    ds_type *copy = DS_NEW(arena_of(g), ds_type);
    *copy = *type;
    copy->dtype = dtype;
    return copy;
}

/* A role is said of all results of an op. Beside the gradients of a norm's two vectors is that of
 * its operand, an activation many times their size: such an op is not marked. An lstm's weights are
 * what is large in its gradients. */
static bool is_marked(const ds_op *op) {
    return op->n_out == 1 || op->code == DS_OP_LSTM_GRAD;
}

/* The op behind the gradient of weight `elem`, the last one: summed with what earlier microbatches
 * gave, in the dtype of gradients, marked. */
static ds_status finish_term(ds_grad *g, const ds_grad_weight *w, const ds_use *elem,
                             ds_grad_term *term, ds_error *err) {
    const ds_type *type = ds_grad__type(g, elem);
    ds_dtype dtype = grad_dtype(g, type);
    const char *name =
        w->assembled ? ds_grad__term_name(g, w->old) : ds_grad__name(g, w->old, ".grad");
    DS_TRY(ds_grad__make(g, term, type, name, err));
    bool add = w->accumulator.i != UINT32_MAX, cast = !add && dtype != type->dtype;
    if (add || cast || !term->owned) {
        ds_op *op = ds_build_op(&g->b, add ? DS_OP_ACCUMULATE : cast ? DS_OP_CAST : DS_OP_AFTER);
        if (add) {
            ds_use acc = {.value = w->accumulator, .n_index = elem->n_index};
            acc.index = DS_NEW_N(arena_of(g), ds_expr, elem->n_index + 1);
            for (uint32_t k = 0; k < elem->n_index; k++)
                acc.index[k] = ds_grad__rev(g, elem->index[k]);
            ds_build_in(&g->b, op, acc);
        }
        ds_build_in(&g->b, op, term->use);
        if (cast) ds_build_attr_word(&g->b, op, "dtype", ds_dtype_name(dtype));
        term->use = ds_use_of(ds_build_out(&g->b, op, name, with_dtype(g, type, dtype)));
        DS_TRY(ds_build_put(&g->b, op, err));
        term->owned = true;
    }
    ds_op *op = ds_value_at(g->b.func, term->use.value)->def;
    if (g->final && is_marked(op)) ds_build_attr_word(&g->b, op, "role", "gradient");
    return DS_OK;
}

/* The first result keeps its part of the op's path when it is called after the weight. */
static void call_after_weight(ds_grad *g, const ds_grad_weight *w, ds_value made) {
    ds_value_info *info = ds_value_at(g->b.func, made);
    ds_op *op = info->def;
    const char *wanted = ds_grad__name(g, w->old, ".grad");
    if (strcmp(info->name, wanted) == 0) return;
    const char *term = ds_grad__term_name(g, w->old);
    bool is_term = strncmp(info->name, term, strlen(term)) == 0;
    if (!is_term && op->out[0].i == made.i && !ds_attr_find(op->attrs, op->n_attrs, "name"))
        ds_build_attr_text(&g->b, op, "name", info->name);
    info->name = ds_build_name(&g->b, wanted);
}

/* Nothing that was walked before this op reads the weight: its gradient is complete. */
static ds_status finish_weight(ds_grad *g, ds_grad_weight *w, ds_error *err) {
    ds_use elem = {.value = w->old};
    if (w->home) {
        elem.n_index = ds_value_at(g->old, w->old)->n_binders;
        elem.index = DS_NEW_N(arena_of(g), ds_expr, elem.n_index);
        uint32_t k = elem.n_index;
        for (const ds_grad_loop *at = w->home; at; at = at->up) elem.index[--k] = index_expr(g, at);
    }
    ds_grad_slot *slot = ds_grad__slot(g, &elem);
    ds_grad_term term = slot ? slot->term : (ds_grad_term){.is_const = true};
    DS_TRY(finish_term(g, w, &elem, &term, err));
    if (slot) {
        slot->term = term;
    } else {
        ds_grad_slot fresh = {w->old, elem.index, NULL, elem.n_index, term, false};
        ds_grad__push_slot(g, g->level, fresh);
    }
    if (w->assembled) return DS_OK;
    w->result = term.use.value;
    call_after_weight(g, w, w->result);
    return DS_OK;
}

static ds_status finish_weights(ds_grad *g, const ds_op *op, ds_error *err) {
    const uint64_t *first = ds_map_find(&g->firsts, DS_KEY(op));
    ds_grad_weight *w = first ? (ds_grad_weight *)(uintptr_t)*first : NULL;
    for (; w; w = w->next)
        if (w->home == g->level->loop && (w->home || !w->assembled))
            DS_TRY(finish_weight(g, w, err));
    return DS_OK;
}

/* ---- families of weights: in the order of the weight ---- */

static ds_status element_gradient(ds_grad *g, ds_grad_weight *w, const ds_expr *j, uint32_t n,
                                  ds_use *out, ds_error *err) {
    ds_grad_part *parts;
    uint32_t n_parts = ds_grad__parts_of(g, w->old, &parts);
    ds_grad_term total = {.is_const = true};
    const char *name = ds_grad__term_name(g, w->old);
    for (uint32_t i = 0; i < n_parts; i++) {
        bool none;
        ds_grad_term term = {0};
        DS_TRY(ds_grad__part_at(g, &parts[i], j, n, &term, &none, err));
        if (none) continue;
        if (total.is_const) {
            total = term;
            continue;
        }
        total.owned = true;
        DS_TRY(ds_build_binary(&g->b, DS_OP_ADD, name, total.use, term.use, &total.use.value, err));
        total.use = ds_use_of(total.use.value);
    }
    if (!w->home || !n_parts) {
        ds_use elem = {.value = w->old, .index = (ds_expr *)j, .n_index = n};
        DS_TRY(finish_term(g, w, &elem, &total, err));
    }
    *out = total.use;
    return DS_OK;
}

static ds_status assemble(ds_grad *g, ds_grad_weight *w, ds_expr *j, uint32_t depth, ds_use *out,
                          ds_error *err) {
    const ds_value_info *info = ds_value_at(g->old, w->old);
    if (depth == info->n_binders) return element_gradient(g, w, j, depth, out, err);
    const ds_binder *binder = &info->binders[depth];
    const char *name = ds_grad__name(g, w->old, depth ? ".grad.row" : ".grad");
    j[depth] = ds_expr_index(&g->unit->exprs, binder->name);
    ds_op *loop = ds_build_for(&g->b, binder->name, binder->lo, binder->hi);
    ds_use kept;
    DS_TRY(assemble(g, w, j, depth + 1, &kept, err));
    DS_TRY(ds_build_yield(&g->b, NULL, 0, &kept, 1, &name, err));
    *out = ds_use_of(loop->out[0]);
    return DS_OK;
}

/* ---- loops ---- */

/* A value of outside that a loop reads in every turn alike: its gradient is carried. */
typedef struct outer_use {
    const ds_use *use;
    bool rows;
} outer_use;

typedef struct loop_walk {
    ds_grad_loop *loop;
    uint32_t *carries; /* numbers of the live ones */
    uint32_t n_carries;
    DS_VEC(outer_use) outer;
} loop_walk;

static bool index_mentions(ds_grad *g, const ds_use *use, const char *name) {
    for (uint32_t i = 0; i < use->n_index; i++) {
        if (ds_expr_mentions(&g->unit->exprs, use->index[i], name)) return true;
        if (ds_use_is_range(use, i) && ds_expr_mentions(&g->unit->exprs, use->index_hi[i], name))
            return true;
    }
    return false;
}

/* Elements that an inner loop reads in every turn of this loop alike: layers of a network inside of
 * time. The gradient of the whole family is carried as one tensor, a row an element. */
static bool are_rows(ds_grad *g, const ds_grad_loop *loop, const ds_use *use) {
    const ds_value_info *info = ds_value_at(g->old, use->value);
    if (use->n_index != 1 || use->index_hi || info->type->rank == DS_MAX_RANK ||
        ds_type_mentions(&g->unit->exprs, info->type, info->binders[0].name))
        return false;
    return ds_grad__rows(g, use->value) || !index_mentions(g, use, loop->op->index);
}

/* %w{lo:hi} over the family's range. */
static const ds_use *all_of(ds_grad *g, ds_value family) {
    const ds_binder *binder = &ds_value_at(g->old, family)->binders[0];
    ds_use *use = DS_NEW(arena_of(g), ds_use);
    *use = (ds_use){.value = family, .n_index = 1};
    use->index = DS_NEW_N(arena_of(g), ds_expr, 2);
    use->index[0] = binder->lo;
    use->index_hi = use->index + 1;
    use->index_hi[0] = binder->hi;
    return use;
}

static ds_status add_outer(ds_grad *g, loop_walk *w, const ds_use *use, const ds_grad_loop *inner,
                           ds_error *err) {
    if (!g->live[use->value.i] || ds_grad__inside(g, use->value, w->loop)) return DS_OK;
    const ds_value_info *info = ds_value_at(g->old, use->value);
    if (info->n_binders && !use->n_index)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, use->loc,
                            "grad: the family %%%s is read as a whole in a loop", info->name);
    bool moves = false;
    for (const ds_grad_loop *at = inner; at != w->loop->up; at = at->up)
        moves |= index_mentions(g, use, at->op->index);
    bool rows = moves && are_rows(g, w->loop, use);
    if (moves && !rows) return DS_OK; /* kept, not carried */
    if (rows) use = all_of(g, use->value);
    for (uint32_t i = 0; i < w->outer.n; i++)
        if (ds_use_same(w->outer.at[i].use, use)) return DS_OK;
    outer_use entry = {.use = use, .rows = rows};
    DS_HPUSH(&w->outer, entry);
    return DS_OK;
}

static ds_status find_outer(ds_grad *g, loop_walk *w, const ds_grad_loop *inner, ds_error *err) {
    const ds_block *block = inner->op->body;
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        bool reads = op->code == DS_OP_YIELD || op->code == DS_OP_FOR || ds_grad__op_is_live(g, op);
        for (uint32_t k = 0; reads && k < op->n_in; k++)
            DS_TRY(add_outer(g, w, &op->in[k], inner, err));
        if (op->code == DS_OP_FOR) DS_TRY(find_outer(g, w, ds_grad__loop(g, op), err));
    }
    return DS_OK;
}

/* The carries' first values: what has arrived for the loop's results and for outer values. */
static ds_status loop_inits(ds_grad *g, loop_walk *w, ds_use *inits, ds_error *err) {
    const ds_op *op = w->loop->op;
    for (uint32_t i = 0; i < w->n_carries; i++) {
        ds_use result = ds_use_of(op->out[w->carries[i]]);
        ds_grad_slot *slot = ds_grad__slot(g, &result);
        ds_grad_term term = slot ? slot->term : (ds_grad_term){.is_const = true};
        const char *name = ds_grad__name(g, result.value, ".grad");
        DS_TRY(ds_grad__make(g, &term, ds_grad__type(g, &result), name, err));
        inits[i] = term.use;
    }
    for (uint32_t i = 0; i < w->outer.n; i++) {
        const ds_use *use = w->outer.at[i].use;
        ds_grad_slot *slot = ds_grad__slot(g, use);
        ds_grad_term term = slot ? slot->term : (ds_grad_term){.is_const = true};
        const char *name = ds_grad__term_name(g, use->value);
        DS_TRY(ds_grad__make(g, &term, ds_grad__type(g, use), name, err));
        inits[w->n_carries + i] = term.use;
    }
    return DS_OK;
}

/* At the start of the turn that is l = hi - 1 - i, the carry is the gradient of what the next turn
 * gets: its type is the forward carry's at l + 1. */
static const ds_type *carry_type(ds_grad *g, const loop_walk *w, uint32_t carry) {
    const ds_op *op = w->loop->op;
    const ds_value_info *info = ds_value_at(g->old, op->args[carry]);
    ds_exprs *exprs = &g->unit->exprs;
    if (!ds_type_mentions(exprs, info->type, op->index))
        return info->type_written ? ds_grad__rev_type(g, info->type) : NULL;
    ds_expr turn = ds_expr_fold(exprs, DS_EXPR_SUB, op->hi, index_expr(g, w->loop));
    return ds_grad__rev_type(g, ds_type_subst(exprs, arena_of(g), info->type, op->index, turn));
}

static void begin_loop(ds_grad *g, loop_walk *w, const ds_use *inits, ds_grad_level *level,
                       ds_op **out) {
    const ds_op *op = w->loop->op;
    ds_exprs *exprs = &g->unit->exprs;
    ds_expr turns = ds_expr_fold(exprs, DS_EXPR_SUB, op->hi, op->lo);
    ds_op *made = ds_build_for(&g->b, op->index, ds_expr_int(exprs, 0), ds_grad__rev(g, turns));
    made->loc = op->loc;
    for (uint32_t i = 0; i < w->n_carries; i++)
        ds_build_carry(&g->b, made, ds_grad__name(g, op->args[w->carries[i]], ".grad"),
                       carry_type(g, w, w->carries[i]), inits[i]);
    for (uint32_t i = 0; i < w->outer.n; i++) {
        const ds_use *use = w->outer.at[i].use;
        ds_value carry = ds_build_carry(&g->b, made, ds_grad__term_name(g, use->value),
                                        ds_grad__written(g, use), inits[w->n_carries + i]);
        ds_grad_slot slot = {use->value,   use->index, use->index_hi,
                             use->n_index, {0},        w->outer.at[i].rows};
        slot.term.use = ds_use_of(carry);
        ds_grad__push_slot(g, level, slot);
    }
    *out = made;
}

/* Gradients of the elements of a kept family, at this turn, go to the value that was kept. */
static ds_status give_kept(ds_grad *g, const ds_grad_loop *loop, const ds_use *kept,
                           const ds_grad_part *parts, uint32_t n, ds_error *err) {
    const ds_value_info *inner = ds_value_at(g->old, kept->value);
    ds_expr turn = index_expr(g, loop);
    for (uint32_t i = 0; i < n; i++) {
        if (inner->n_binders && !kept->n_index) { /* a family of families: one index is known */
            ds_grad_part part = parts[i];
            part.fixed = DS_NEW_N(arena_of(g), ds_expr, part.n_fixed + 1);
            if (part.n_fixed) memcpy(part.fixed, parts[i].fixed, part.n_fixed * sizeof *part.fixed);
            part.fixed[part.n_fixed++] = turn;
            part.target = kept->value;
            ds_grad__push_part(g, part);
            continue;
        }
        bool none;
        ds_grad_term term = {0};
        DS_TRY(ds_grad__part_at(g, &parts[i], &turn, 1, &term, &none, err));
        if (!none) DS_TRY(ds_grad__give(g, kept, term, err));
    }
    return DS_OK;
}

static ds_status give_yielded(ds_grad *g, const loop_walk *w, const ds_op *made,
                              ds_grad_part *const *parts, const uint32_t *n_parts, ds_error *err) {
    const ds_op *op = w->loop->op, *yield = ds_block_end(op->body);
    for (uint32_t i = 0; i < w->n_carries; i++) {
        ds_grad_term term = {.use = ds_use_of(made->args[i])};
        DS_TRY(ds_grad__give(g, &yield->in[w->carries[i]], term, err));
    }
    for (uint32_t k = op->n_args; k < op->n_out; k++)
        DS_TRY(give_kept(g, w->loop, &yield->in[k], parts[k], n_parts[k], err));
    return DS_OK;
}

/* What a turn made for elements of families outside. */
typedef struct kept_list {
    DS_VEC(ds_grad_part) parts;
} kept_list;

static ds_status check_moves(ds_grad *g, const ds_grad_loop *loop, const ds_grad_part *part,
                             ds_error *err) {
    ds_use use = {.value = part->value,
                  .index = part->index,
                  .index_hi = part->index_hi,
                  .n_index = part->n_index};
    if (index_mentions(g, &use, loop->op->index)) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, loop->op->loc,
                        "grad: elements of %%%s are read by the index of an inner loop in every "
                        "turn of this loop over '%s': such a family has one index, and elements "
                        "of one shape",
                        ds_value_at(g->old, part->value)->name, loop->op->index);
}

static ds_status find_kept(ds_grad *g, const loop_walk *w, kept_list *list, ds_error *err) {
    const ds_grad_level *level = g->level;
    for (uint32_t i = 0; i < level->parts.n; i++) {
        if (ds_grad__inside(g, level->parts.at[i].target, w->loop)) continue;
        DS_TRY(check_moves(g, w->loop, &level->parts.at[i], err));
        DS_HPUSH(&list->parts, level->parts.at[i]);
    }
    for (uint32_t i = w->outer.n; i < level->slots.n; i++) { /* carried ones come first */
        ds_grad_slot *slot = &g->level->slots.at[i];
        if (ds_grad__inside(g, slot->value, w->loop)) continue;
        ds_use use = {.value = slot->value,
                      .index = slot->index,
                      .index_hi = slot->index_hi,
                      .n_index = slot->n_index};
        const char *name = ds_grad__term_name(g, slot->value);
        DS_TRY(ds_grad__make(g, &slot->term, ds_grad__type(g, &use), name, err));
        ds_grad_part part = {.value = slot->value,
                             .target = slot->value,
                             .index = slot->index,
                             .index_hi = slot->index_hi,
                             .n_index = slot->n_index,
                             .use = slot->term.use};
        DS_TRY(check_moves(g, w->loop, &part, err));
        DS_HPUSH(&list->parts, part);
    }
    return DS_OK;
}

/* The part seen from outside the loop: one more span, the loop's index hidden. */
static ds_grad_part widen(ds_grad *g, const ds_grad_loop *loop, const ds_grad_part *part,
                          ds_value family) {
    ds_exprs *exprs = &g->unit->exprs;
    ds_grad_part wide = *part;
    const char *hidden = ds_grad__hidden(g), *index = loop->op->index;
    ds_expr by = ds_expr_index(exprs, hidden);
    wide.use = ds_use_of(family);
    wide.spans = DS_NEW_N(arena_of(g), ds_grad_span, part->n_spans + 1);
    wide.spans[wide.n_spans = 0] = (ds_grad_span){hidden, loop->op->lo, loop->op->hi};
    for (uint32_t i = 0; i < part->n_spans; i++) {
        ds_grad_span span = part->spans[i];
        span.lo = ds_expr_subst(exprs, span.lo, index, by);
        span.hi = ds_expr_subst(exprs, span.hi, index, by);
        wide.spans[i + 1] = span;
    }
    wide.n_spans = part->n_spans + 1;
    wide.index = DS_NEW_N(arena_of(g), ds_expr, part->n_index + 1);
    for (uint32_t i = 0; i < part->n_index; i++)
        wide.index[i] = ds_expr_subst(exprs, part->index[i], index, by);
    return wide;
}

static ds_status end_loop(ds_grad *g, loop_walk *w, kept_list *kept, ds_error *err) {
    const ds_op *op = w->loop->op;
    uint32_t n = w->n_carries + w->outer.n;
    ds_use *next = DS_NEW_N(arena_of(g), ds_use, n + 1);
    for (uint32_t i = 0; i < w->n_carries; i++) {
        ds_use arg = ds_use_of(op->args[w->carries[i]]);
        ds_grad_slot *slot = ds_grad__slot(g, &arg);
        ds_grad_term term = slot ? slot->term : (ds_grad_term){.is_const = true};
        const char *name = ds_grad__name(g, arg.value, ".grad");
        DS_TRY(ds_grad__make(g, &term, ds_grad__type(g, &arg), name, err));
        next[i] = term.use;
    }
    for (uint32_t i = 0; i < w->outer.n; i++)
        next[w->n_carries + i] = g->level->slots.at[i].term.use;
    DS_TRY(find_kept(g, w, kept, err));
    ds_use *uses = DS_NEW_N(arena_of(g), ds_use, kept->parts.n + 1);
    const char **names = DS_NEW_N(arena_of(g), const char *, n + kept->parts.n + 1);
    for (uint32_t i = 0; i < kept->parts.n; i++) {
        uses[i] = kept->parts.at[i].use;
        names[n + i] = ds_grad__name(g, kept->parts.at[i].value, ".grad.rev");
    }
    return ds_build_yield(&g->b, next, n, uses, kept->parts.n, names, err);
}

/* The results of the backward loop are gradients in the block around it. */
static ds_status give_results(ds_grad *g, const loop_walk *w, const ds_op *made,
                              const kept_list *kept, ds_error *err) {
    const ds_op *op = w->loop->op;
    for (uint32_t i = 0; i < w->outer.n; i++) {
        const ds_use *use = w->outer.at[i].use;
        ds_grad_term term = {.use = ds_use_of(made->out[w->n_carries + i])};
        ds_grad_slot *slot = ds_grad__slot(g, use);
        if (slot)
            slot->term = term;
        else
            DS_TRY(ds_grad__give(g, use, term, err));
    }
    for (uint32_t i = 0; i < w->n_carries; i++) {
        ds_grad_term term = {.use = ds_use_of(made->out[i])};
        DS_TRY(ds_grad__give(g, &op->in[w->carries[i]], term, err));
    }
    for (uint32_t i = 0; i < kept->parts.n; i++) {
        ds_value family = made->out[w->n_carries + w->outer.n + i];
        ds_grad_part part = widen(g, w->loop, &kept->parts.at[i], family);
        ds_grad__push_part(g, part);
    }
    return DS_OK;
}

static ds_status walk_block(ds_grad *g, ds_error *err);

static ds_status walk_loop_in(ds_grad *g, loop_walk *w, ds_grad_level *level, kept_list *kept,
                              ds_error *err) {
    const ds_op *op = w->loop->op;
    ds_grad_part **parts = DS_NEW_N(arena_of(g), ds_grad_part *, op->n_out + 1);
    uint32_t *n_parts = DS_NEW_N(arena_of(g), uint32_t, op->n_out + 1);
    bool arrived = false;
    for (uint32_t k = 0; k < op->n_out; k++) {
        ds_use result = ds_use_of(op->out[k]);
        if (k >= op->n_args) n_parts[k] = ds_grad__parts_of(g, op->out[k], &parts[k]);
        arrived |= n_parts[k] > 0 || ds_grad__slot(g, &result);
    }
    if (!arrived) return DS_OK;
    w->carries = DS_NEW_N(arena_of(g), uint32_t, op->n_args + 1);
    for (uint32_t k = 0; k < op->n_args; k++)
        if (g->live[op->args[k].i]) w->carries[w->n_carries++] = k;
    DS_TRY(find_outer(g, w, w->loop, err));
    ds_use *inits = DS_NEW_N(arena_of(g), ds_use, w->n_carries + w->outer.n + 1);
    DS_TRY(loop_inits(g, w, inits, err));
    ds_op *made;
    begin_loop(g, w, inits, level, &made);
    level->up = g->level;
    g->level = level;
    DS_TRY(give_yielded(g, w, made, parts, n_parts, err));
    DS_TRY(walk_block(g, err));
    DS_TRY(end_loop(g, w, kept, err));
    g->level = level->up;
    return give_results(g, w, made, kept, err);
}

static ds_status walk_loop(ds_grad *g, const ds_op *op, ds_error *err) {
    loop_walk w = {.loop = ds_grad__loop(g, op)};
    ds_grad_level level = {.loop = w.loop, .block = op->body}, *here = g->level;
    kept_list kept = {0};
    ds_status status = walk_loop_in(g, &w, &level, &kept, err);
    g->level = here;
    free(w.outer.at);
    free(level.slots.at);
    free(level.parts.at);
    free(level.again.at);
    free(kept.parts.at);
    return status;
}

/* ---- blocks ---- */

static bool has_arrived(ds_grad *g, const ds_op *op) {
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_use result = ds_use_of(op->out[i]);
        if (ds_grad__slot(g, &result)) return true;
    }
    return false;
}

static ds_status walk_block(ds_grad *g, ds_error *err) {
    const ds_block *block = g->level->block;
    for (uint32_t i = block->n_ops; i-- > 0;) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_FOR)
            DS_TRY(walk_loop(g, op, err));
        else if (op->code >= DS_OP_FIRST_TABLE_OP && has_arrived(g, op))
            DS_TRY(ds_grad__vjp(g, op, err));
        DS_TRY(finish_weights(g, op, err));
    }
    return DS_OK;
}

static ds_status backward(ds_grad *g, ds_error *err) {
    const ds_op *end = ds_block_end(&g->old->body);
    ds_grad_term seed = {.is_const = true, .c = g->seed};
    DS_TRY(ds_grad__give(g, &end->in[0], seed, err));
    DS_TRY(walk_block(g, err));
    for (uint32_t i = 0; i < g->n_weights; i++) {
        ds_grad_weight *w = &g->weights[i];
        if (!w->assembled && w->result.i == UINT32_MAX) DS_TRY(finish_weight(g, w, err));
        if (!w->assembled) continue;
        ds_expr j[DS_MAX_RANK * 2];
        ds_use out;
        DS_TRY(assemble(g, w, j, 0, &out, err));
        w->result = out.value;
    }
    return DS_OK;
}

ds_status ds_grad__backward(ds_grad *g, ds_error *err) {
    ds_grad_level top = {.block = &g->old->body};
    g->level = &top;
    ds_status status = backward(g, err);
    free(top.slots.at);
    free(top.parts.at);
    free(top.again.at);
    g->level = NULL;
    return status;
}
