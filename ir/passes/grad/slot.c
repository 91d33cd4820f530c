/* Gradients on their way from the uses of a value to its definition.
 *
 * In the open block every old value that something arrived for has a slot; a second arrival is
 * added to the first. An element %s{e} of a family has a slot for each distinct e. When a loop of
 * the backward pass ends, its slots for values outside become carries (if e does not move with the
 * loop), or are kept: then they are *parts*, families over the turns. Where the family's own
 * definition is reached, part_at answers which turn has a term for element j: it solves e(turn) = j
 * for e of the form turn + c or c - turn, index by index. */
#include "ir/passes/grad/internal.h"

#include <stdlib.h>
#include <string.h>

static ds_arena *arena_of(ds_grad *g) {
    return &g->unit->arena;
}

static ds_expr fold(ds_grad *g, ds_expr_kind kind, ds_expr a, ds_expr b) {
    return ds_expr_fold(&g->unit->exprs, kind, a, b);
}

static ds_expr integer(ds_grad *g, int64_t i) {
    return ds_expr_int(&g->unit->exprs, i);
}

/* ---- forward terms and backward text ---- */

/* Innermost first: a bound may mention outer indices, which then are replaced in it too. */
ds_expr ds_grad__rev(ds_grad *g, ds_expr e) {
    if (!ds_expr_mentions(&g->unit->exprs, e, NULL)) return e;
    for (const ds_grad_level *at = g->level; at && at->loop; at = at->up) {
        const ds_op *loop = at->loop->op;
        ds_expr last = fold(g, DS_EXPR_SUB, loop->hi, integer(g, 1));
        ds_expr turn = fold(g, DS_EXPR_SUB, last, ds_expr_index(&g->unit->exprs, loop->index));
        e = ds_expr_subst(&g->unit->exprs, e, loop->index, turn);
    }
    return e;
}

const ds_type *ds_grad__rev_type(ds_grad *g, const ds_type *type) {
    if (!type || !ds_type_mentions(&g->unit->exprs, type, NULL)) return type;
    for (const ds_grad_level *at = g->level; at && at->loop; at = at->up) {
        const ds_op *loop = at->loop->op;
        ds_expr last = fold(g, DS_EXPR_SUB, loop->hi, integer(g, 1));
        ds_expr turn = fold(g, DS_EXPR_SUB, last, ds_expr_index(&g->unit->exprs, loop->index));
        type = ds_type_subst(&g->unit->exprs, arena_of(g), type, loop->index, turn);
    }
    return type;
}

ds_attr ds_grad__rev_attr(ds_grad *g, ds_attr attr) {
    attr.expr = ds_grad__rev(g, attr.expr);
    if (attr.n_items) attr.items = ds_copy_attrs(arena_of(g), attr.items, attr.n_items);
    for (uint32_t i = 0; i < attr.n_items; i++) attr.items[i] = ds_grad__rev_attr(g, attr.items[i]);
    return attr;
}

const ds_type *ds_grad__type(ds_grad *g, const ds_use *old) {
    if (old->value.i >= g->old->values.n) { /* a result that the forward pass gained */
        ds_value made = g->extra_new.at[old->value.i - g->old->values.n];
        return ds_grad__rev_type(g, ds_value_at(g->b.func, made)->type);
    }
    return ds_grad__rev_type(g, ds_use_type(g->unit, g->old, old));
}

const ds_type *ds_grad__written(ds_grad *g, const ds_use *old) {
    if (old->value.i >= g->old->values.n) return NULL;
    return ds_value_at(g->old, old->value)->type_written ? ds_grad__type(g, old) : NULL;
}

const char *ds_grad__hidden(ds_grad *g) {
    return ds_intern(&g->unit->strings, ds_arena_printf(arena_of(g), "\2%u", g->n_hidden++));
}

const char *ds_grad__name(ds_grad *g, ds_value old, const char *suffix) {
    return ds_arena_join(arena_of(g), ds_value_at(g->old, old)->name, suffix);
}

/* A weight's own %w.grad is the whole. */
const char *ds_grad__term_name(ds_grad *g, ds_value old) {
    bool weight = ds_grad__weight(g, old) < g->n_weights;
    return ds_grad__name(g, old, weight ? ".grad.part" : ".grad");
}

/* ---- what the forward pass keeps ---- */

/* The old family that the model itself keeps of a value, if it does. */
static bool kept_already(const ds_grad_loop *home, ds_value old, ds_value *out) {
    const ds_op *yield = ds_block_end(home->op->body);
    for (uint32_t i = yield->n_in - yield->n_keep; i < yield->n_in; i++)
        if (yield->in[i].value.i == old.i && !yield->in[i].n_index) {
            *out = home->op->out[i];
            return true;
        }
    return false;
}

static ds_value made_of(const ds_grad *g, ds_value old) {
    return old.i < g->old->values.n ? g->copy.map[old.i]
                                    : g->extra_new.at[old.i - g->old->values.n];
}

/* The family of a value over all the loops around it. */
static ds_value save(ds_grad *g, ds_value old) {
    if (g->saved[old.i].i != UINT32_MAX) return g->saved[old.i];
    ds_value family, made = made_of(g, old);
    if (kept_already(g->home[old.i], old, &family)) {
        g->saved[old.i] = g->home[family.i] ? save(g, family) : g->copy.map[family.i];
        return g->saved[old.i];
    }
    const char *name = ds_arena_join(arena_of(g), ds_value_at(g->b.func, made)->name, ".kept");
    for (const ds_grad_loop *at = g->home[old.i]; at; at = at->up)
        made = ds_build_keep(&g->b, at->made, made, name);
    g->saved[old.i] = made;
    return made;
}

ds_use ds_grad__read(ds_grad *g, const ds_use *old) {
    uint32_t depth = 0;
    const ds_grad_loop *home = g->home[old->value.i];
    for (const ds_grad_level *at = g->level; at; at = at->up)
        for (uint32_t i = 0; i < at->again.n && !old->n_index; i++)
            if (at->again.at[i].value.i == old->value.i) return at->again.at[i].use;
    for (const ds_grad_loop *at = home; at; at = at->up) depth++;
    ds_use use = {.n_index = old->n_index ? depth + old->n_index : 0};
    use.value = home ? save(g, old->value) : made_of(g, old->value);
    if (home && !old->n_index) use.n_index = depth; /* the rest of a family is no use here */
    use.index = DS_NEW_N(arena_of(g), ds_expr, use.n_index + 1);
    uint32_t at_index = depth;
    for (const ds_grad_loop *at = home; at; at = at->up)
        use.index[--at_index] = ds_grad__rev(g, ds_expr_index(&g->unit->exprs, at->op->index));
    for (uint32_t i = 0; i < old->n_index; i++)
        use.index[depth + i] = ds_grad__rev(g, old->index[i]);
    if (!old->index_hi) return use;
    use.index_hi = DS_NEW_N(arena_of(g), ds_expr, use.n_index + 1);
    for (uint32_t i = 0; i < old->n_index; i++)
        use.index_hi[depth + i] = ds_grad__rev(g, old->index_hi[i]);
    return use;
}

/* ---- terms ---- */

ds_status ds_grad__zeros(ds_grad *g, const ds_type *type, const char *name, ds_use *out,
                         ds_error *err) {
    ds_op *op = ds_build_op(&g->b, DS_OP_ZEROS);
    *out = ds_use_of(ds_build_out(&g->b, op, name, type));
    return ds_build_put(&g->b, op, err);
}

ds_status ds_grad__make(ds_grad *g, ds_grad_term *term, const ds_type *type, const char *name,
                        ds_error *err) {
    if (!term->is_const) return DS_OK;
    term->is_const = false;
    term->owned = true;
    if (term->c == 0) return ds_grad__zeros(g, type, name, &term->use, err);
    ds_op *op = ds_build_op(&g->b, DS_OP_FILL);
    ds_build_attr_real(&g->b, op, "value", term->c);
    term->use = ds_use_of(ds_build_out(&g->b, op, name, type));
    return ds_build_put(&g->b, op, err);
}

static bool same_element(const ds_grad_slot *slot, const ds_use *use) {
    if (slot->value.i != use->value.i || slot->n_index != use->n_index) return false;
    for (uint32_t i = 0; i < use->n_index; i++) {
        uint32_t a = slot->index_hi ? slot->index_hi[i].i : 0;
        uint32_t b = use->index_hi ? use->index_hi[i].i : 0;
        if (slot->index[i].i != use->index[i].i || a != b) return false;
    }
    return true;
}

static void note_place(ds_grad_place *place, uint32_t at) {
    if (!place->hi || at < place->lo) place->lo = at;
    if (at >= place->hi) place->hi = at + 1;
}

void ds_grad__push_slot(ds_grad *g, ds_grad_level *level, ds_grad_slot slot) {
    if (slot.n_index) note_place(&g->slots_at[slot.value.i], level->slots.n);
    DS_HPUSH(&level->slots, slot);
}

void ds_grad__push_part(ds_grad *g, ds_grad_part part) {
    note_place(&g->parts_at[part.target.i], g->level->parts.n);
    DS_HPUSH(&g->level->parts, part);
}

ds_grad_slot *ds_grad__rows(ds_grad *g, ds_value family) {
    for (uint32_t i = 0; i < g->level->slots.n; i++) {
        ds_grad_slot *slot = &g->level->slots.at[i];
        if (slot->rows && slot->value.i == family.i) return slot;
    }
    return NULL;
}

ds_grad_slot *ds_grad__slot(ds_grad *g, const ds_use *old) {
    for (uint32_t i = 0; i < g->level->slots.n; i++)
        if (same_element(&g->level->slots.at[i], old)) return &g->level->slots.at[i];
    return NULL;
}

static ds_status sum(ds_grad *g, const ds_use *old, ds_grad_term *a, ds_grad_term b,
                     ds_error *err) {
    if (a->is_const && b.is_const) {
        a->c += b.c;
        return DS_OK;
    }
    const ds_type *type = ds_grad__type(g, old);
    const char *name = ds_grad__term_name(g, old->value);
    DS_TRY(ds_grad__make(g, a, type, name, err));
    DS_TRY(ds_grad__make(g, &b, type, name, err));
    ds_op *op = ds_build_op(&g->b, DS_OP_ADD);
    ds_build_in(&g->b, op, a->use);
    ds_build_in(&g->b, op, b.use);
    *a = (ds_grad_term){.owned = true};
    a->use = ds_use_of(ds_build_out(&g->b, op, name, ds_grad__written(g, old)));
    return ds_build_put(&g->b, op, err);
}

/* The term is added to the element's row, in place. */
static ds_status add_row(ds_grad *g, ds_grad_slot *rows, const ds_use *old, ds_grad_term term,
                         ds_error *err) {
    const char *name = ds_grad__term_name(g, old->value);
    ds_expr one = integer(g, 1), lo = fold(g, DS_EXPR_SUB, old->index[0], rows->index[0]);
    lo = ds_grad__rev(g, lo);
    DS_TRY(ds_grad__make(g, &term, ds_grad__type(g, old), name, err));
    const ds_type *element = ds_grad__type(g, old);
    ds_expr sizes[DS_MAX_RANK + 1] = {one};
    for (uint32_t d = 0; d < element->rank; d++) sizes[d + 1] = element->dims[d].size;
    ds_op *reshape = ds_build_op(&g->b, DS_OP_RESHAPE), *slice = ds_build_op(&g->b, DS_OP_SLICE);
    ds_build_in(&g->b, reshape, term.use);
    ds_build_attr_exprs(&g->b, reshape, "shape", sizes, element->rank + 1);
    ds_value row = ds_build_out(&g->b, reshape, name, NULL), before, sum;
    DS_TRY(ds_build_put(&g->b, reshape, err));
    ds_build_in(&g->b, slice, rows->term.use);
    ds_build_attr_int(&g->b, slice, "dim", 0);
    ds_build_attr_expr(&g->b, slice, "lo", lo);
    ds_build_attr_expr(&g->b, slice, "hi", fold(g, DS_EXPR_ADD, lo, one));
    before = ds_build_out(&g->b, slice, name, NULL);
    DS_TRY(ds_build_put(&g->b, slice, err));
    DS_TRY(ds_build_binary(&g->b, DS_OP_ADD, name, ds_use_of(row), ds_use_of(before), &sum, err));
    ds_op *put = ds_build_op(&g->b, DS_OP_PUT);
    ds_build_in(&g->b, put, rows->term.use);
    ds_build_in(&g->b, put, ds_use_of(sum));
    ds_build_attr_int(&g->b, put, "dim", 0);
    ds_build_attr_expr(&g->b, put, "at", lo);
    rows->term.use = ds_use_of(ds_build_out(&g->b, put, name, NULL));
    return ds_build_put(&g->b, put, err);
}

ds_status ds_grad__give(ds_grad *g, const ds_use *old, ds_grad_term term, ds_error *err) {
    if (!g->live[old->value.i]) return DS_OK;
    ds_grad_slot *slot = ds_grad__slot(g, old), *rows = ds_grad__rows(g, old->value);
    if (!slot && rows && old->n_index == 1 && !old->index_hi)
        return add_row(g, rows, old, term, err);
    if (slot) {
        ds_grad_term total = slot->term;
        DS_TRY(sum(g, old, &total, term, err));
        slot->term = total;
        return DS_OK;
    }
    ds_grad_slot fresh = {old->value, old->index, old->index_hi, old->n_index, term, false};
    ds_grad__push_slot(g, g->level, fresh);
    return DS_OK;
}

/* ---- elements of families ---- */

static bool is_part(const ds_grad_slot *slot, ds_value family) {
    return slot->value.i == family.i && slot->n_index && !slot->term.is_const;
}

uint32_t ds_grad__parts_of(ds_grad *g, ds_value family, ds_grad_part **out) {
    const ds_grad_level *level = g->level;
    const ds_grad_place *in_parts = &g->parts_at[family.i], *in_slots = &g->slots_at[family.i];
    uint32_t n = 0, most = 0;
    uint32_t parts_hi = in_parts->hi < level->parts.n ? in_parts->hi : level->parts.n;
    uint32_t slots_hi = in_slots->hi < level->slots.n ? in_slots->hi : level->slots.n;
    for (uint32_t i = in_parts->lo; i < parts_hi; i++)
        most += level->parts.at[i].target.i == family.i;
    for (uint32_t i = in_slots->lo; i < slots_hi; i++) most += is_part(&level->slots.at[i], family);
    *out = NULL;
    if (!most) return 0;
    ds_grad_part *parts = DS_NEW_N(arena_of(g), ds_grad_part, most + 1);
    for (uint32_t i = in_parts->lo; i < parts_hi; i++)
        if (level->parts.at[i].target.i == family.i) parts[n++] = level->parts.at[i];
    for (uint32_t i = in_slots->lo; i < slots_hi; i++) {
        const ds_grad_slot *slot = &level->slots.at[i];
        if (!is_part(slot, family)) continue;
        parts[n++] = (ds_grad_part){.value = family,
                                    .target = family,
                                    .index = slot->index,
                                    .index_hi = slot->index_hi,
                                    .n_index = slot->n_index,
                                    .use = slot->term.use};
    }
    *out = parts;
    return n;
}

typedef struct solution {
    ds_expr turn[DS_MAX_RANK * 2]; /* by span; none: not known yet */
    ds_expr when;                  /* none: always */
    bool never;
} solution;

static void and_when(ds_grad *g, solution *s, ds_expr condition) {
    s->when = DS_HAS_EXPR(s->when) ? fold(g, DS_EXPR_AND, s->when, condition) : condition;
}

static ds_expr put_turns(ds_grad *g, const ds_grad_part *part, const solution *s, ds_expr e) {
    for (uint32_t t = 0; t < part->n_spans && DS_HAS_EXPR(e); t++)
        if (DS_HAS_EXPR(s->turn[t]))
            e = ds_expr_subst(&g->unit->exprs, e, part->spans[t].index, s->turn[t]);
    return e;
}

static bool equal(ds_grad *g, ds_expr a, ds_expr b) {
    return ds_expr_equal(&g->unit->exprs, a, b) == DS_YES;
}

/* The unsolved span that e mentions; n_spans: none. */
static uint32_t span_in(ds_grad *g, const ds_grad_part *part, ds_expr e) {
    uint32_t t = 0;
    while (t < part->n_spans && !ds_expr_mentions(&g->unit->exprs, e, part->spans[t].index)) t++;
    return t;
}

/* An index of the wanted element, and the range of the index. */
typedef struct wanted {
    ds_expr j, lo, hi;
} wanted;

/* e = j, where e is a sum of a turn and what is known, or what is known minus a turn. */
static ds_status solve_turn(ds_grad *g, const ds_grad_part *part, solution *s, uint32_t t,
                            ds_expr e, const wanted *w, ds_error *err) {
    ds_exprs *exprs = &g->unit->exprs;
    const ds_grad_span *span = &part->spans[t];
    ds_expr x = ds_expr_index(exprs, span->index), zero = integer(g, 0);
    ds_expr c = ds_expr_subst(exprs, e, span->index, zero);
    bool up = equal(g, e, fold(g, DS_EXPR_ADD, c, x));
    bool down = !up && equal(g, e, fold(g, DS_EXPR_SUB, c, x));
    if ((!up && !down) || span_in(g, part, c) < part->n_spans)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "grad: an element of %%%s is read by an index that is not a loop's "
                            "plus or minus a constant",
                            ds_value_at(g->old, part->value)->name);
    ds_expr lo = put_turns(g, part, s, span->lo), hi = put_turns(g, part, s, span->hi);
    ds_expr one = integer(g, 1), last = fold(g, DS_EXPR_SUB, hi, one);
    s->turn[t] = up ? fold(g, DS_EXPR_SUB, w->j, c) : fold(g, DS_EXPR_SUB, c, w->j);
    ds_expr first_j = up ? fold(g, DS_EXPR_ADD, c, lo) : fold(g, DS_EXPR_SUB, c, last);
    ds_expr last_j = up ? fold(g, DS_EXPR_ADD, c, last) : fold(g, DS_EXPR_SUB, c, lo);
    if (equal(g, first_j, w->lo) && equal(g, fold(g, DS_EXPR_ADD, last_j, one), w->hi))
        return DS_OK;
    and_when(g, s, fold(g, DS_EXPR_GE, s->turn[t], lo));
    and_when(g, s, fold(g, DS_EXPR_LT, s->turn[t], hi));
    s->turn[t] = fold(g, DS_EXPR_MIN, fold(g, DS_EXPR_MAX, s->turn[t], lo), last);
    return DS_OK;
}

/* %k{lo:hi}: the element's place in the stack. */
static void solve_range(ds_grad *g, const ds_grad_part *part, uint32_t k, const wanted *w,
                        solution *s, ds_expr *at) {
    ds_expr lo = part->index[k], hi = part->index_hi[k];
    *at = fold(g, DS_EXPR_SUB, w->j, lo);
    if (equal(g, lo, w->lo) && equal(g, hi, w->hi)) return;
    and_when(g, s, fold(g, DS_EXPR_GE, w->j, lo));
    and_when(g, s, fold(g, DS_EXPR_LT, w->j, hi));
    ds_expr last = fold(g, DS_EXPR_SUB, fold(g, DS_EXPR_SUB, hi, lo), integer(g, 1));
    *at = fold(g, DS_EXPR_MIN, fold(g, DS_EXPR_MAX, *at, integer(g, 0)), last);
}

static ds_status solve_all(ds_grad *g, const ds_grad_part *part, const ds_expr *j, solution *s,
                           ds_expr *row, ds_error *err) {
    const ds_value_info *info = ds_value_at(g->old, part->value);
    for (uint32_t k = 0; k < part->n_index; k++) {
        wanted w = {j[k], info->binders[k].lo, info->binders[k].hi};
        for (uint32_t p = 0; p < k; p++) {
            w.lo = ds_expr_subst(&g->unit->exprs, w.lo, info->binders[p].name, j[p]);
            w.hi = ds_expr_subst(&g->unit->exprs, w.hi, info->binders[p].name, j[p]);
        }
        if (part->index_hi && DS_HAS_EXPR(part->index_hi[k])) {
            solve_range(g, part, k, &w, s, row);
            continue;
        }
        ds_expr e = put_turns(g, part, s, part->index[k]);
        uint32_t t = span_in(g, part, e);
        if (t < part->n_spans) {
            DS_TRY(solve_turn(g, part, s, t, e, &w, err));
            continue;
        }
        ds_tri same = ds_expr_equal(&g->unit->exprs, e, j[k]);
        if (same == DS_NO) s->never = true;
        if (same == DS_UNKNOWN) and_when(g, s, fold(g, DS_EXPR_EQ, j[k], e));
    }
    return DS_OK;
}

/* Row `at` of a stacked gradient. */
static ds_status take_row(ds_grad *g, const ds_grad_part *part, ds_expr at, ds_use *use,
                          const ds_type *type, ds_error *err) {
    const char *name = ds_grad__term_name(g, part->value);
    ds_expr row = ds_grad__rev(g, at);
    ds_op *slice = ds_build_op(&g->b, DS_OP_SLICE);
    ds_build_in(&g->b, slice, *use);
    ds_build_attr_int(&g->b, slice, "dim", 0);
    ds_build_attr_expr(&g->b, slice, "lo", row);
    ds_build_attr_expr(&g->b, slice, "hi", fold(g, DS_EXPR_ADD, row, integer(g, 1)));
    ds_value out = ds_build_out(&g->b, slice, name, NULL);
    DS_TRY(ds_build_put(&g->b, slice, err));
    ds_op *reshape = ds_build_op(&g->b, DS_OP_RESHAPE);
    ds_build_in(&g->b, reshape, ds_use_of(out));
    *use = ds_use_of(ds_build_out(&g->b, reshape, name, type));
    return ds_build_put(&g->b, reshape, err);
}

ds_status ds_grad__part_at(ds_grad *g, const ds_grad_part *part, const ds_expr *j, uint32_t n,
                           ds_grad_term *term, bool *none, ds_error *err) {
    ds_use *out = &term->use;
    solution s = {0};
    ds_expr row = DS_NO_EXPR, element[DS_MAX_RANK * 2];
    if (part->n_fixed) memcpy(element, part->fixed, part->n_fixed * sizeof *element);
    memcpy(element + part->n_fixed, j, n * sizeof *element);
    DS_TRY(solve_all(g, part, element, &s, &row, err));
    *none = s.never;
    term->owned = false;
    if (s.never) return DS_OK;
    *out = part->use;
    if (part->n_spans) {
        ds_expr at[DS_MAX_RANK * 2];
        for (uint32_t t = 0; t < part->n_spans; t++) {
            if (!DS_HAS_EXPR(s.turn[t]))
                return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                                    "grad: the same element of %%%s is read in several turns of "
                                    "a loop around its own",
                                    ds_value_at(g->old, part->value)->name);
            ds_expr last =
                fold(g, DS_EXPR_SUB, put_turns(g, part, &s, part->spans[t].hi), integer(g, 1));
            at[t] = ds_grad__rev(g, fold(g, DS_EXPR_SUB, last, s.turn[t]));
        }
        *out = ds_use_at(arena_of(g), part->use.value, at, part->n_spans);
    }
    ds_use old = {.value = part->value, .index = element, .n_index = part->n_fixed + n};
    if (DS_HAS_EXPR(row)) {
        DS_TRY(take_row(g, part, row, out, ds_grad__type(g, &old), err));
        term->owned = true;
    }
    if (!DS_HAS_EXPR(s.when)) return DS_OK;
    ds_op *op = ds_build_op(&g->b, DS_OP_SCALE);
    ds_build_in(&g->b, op, *out);
    ds_build_attr_expr(&g->b, op, "factor", ds_grad__rev(g, s.when));
    *out = ds_use_of(ds_build_out(&g->b, op, ds_grad__term_name(g, part->value), NULL));
    term->owned = true;
    return ds_build_put(&g->b, op, err);
}
