/* B and W apart: a loop of the backward pass becomes two.
 *
 *     %d, %g = for l in a..b carry (%e = %in) {      %d, %k = for l in a..b carry (%e = %in) {
 *       %f = einsum(%e, %w{…})                          %f = einsum(%e, %w{…})
 *       %dw = einsum(%h.kept{…}, %e)          →         yield %f keep %e
 *       yield %f keep %dw                             }
 *     }                                               %g = for l in a..b {
 *                                                       %dw = einsum(%h.kept{…}, %k{l})
 *                                                       yield keep %dw
 *                                                     }
 *
 * Gathers in the second loop (of kept activations that are split over tp) depend on no op of the
 * loop, so the gathers of all turns would run at once. Each gather therefore waits for the end of
 * the turn before last, by a view that turns pass on as a carry.
 *
 * The first loop has the ops on which carries depend, except carries that only add up (the gradient
 * of a weight that all turns read). The second loop has the remaining ops, on which only gradients
 * of weights depend. Inner loops stay whole, in the first loop. */
#include "ir/ops/ops.h"
#include "ir/passes/build/copy.h"
#include "ir/passes/pipeline/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct splitter {
    ds_unit *unit;
    ds_func *func;      /* the copy */
    const ds_op *loop;  /* the loop that is being split */
    const ds_op *yield; /* of the loop */
    uint32_t n_values;  /* of the function before the split */
    uint32_t *inner;    /* value → 1 + the body's op that makes it; 0: made elsewhere */
    bool *is_carry;     /* value: a carry of the first loop, inside */
    bool *adds;         /* carry → the carry only adds up */
    bool *first;        /* op of the body → the op is in the first loop */
    ds_map kept;        /* value of the first loop → the family kept for the second loop */
    DS_VEC(ds_use) keep;
    DS_VEC(ds_value) families;
    bool changed;
} splitter;

static ds_arena *arena_of(const splitter *s) {
    return &s->unit->arena;
}

static bool adds_up(ds_opcode code) {
    return code == DS_OP_ADD || code == DS_OP_ACCUMULATE;
}

typedef struct counter {
    uint32_t value, n;
} counter;

static void count_use(void *context, const ds_use *use) {
    counter *c = context;
    c->n += use->value.i == c->value;
}

bool ds_pipe__carry_adds(const ds_op *loop, uint32_t k) {
    const ds_op *yield = ds_block_end(loop->body);
    counter reads = {.value = loop->args[k].i};
    for (uint32_t i = 0; i < loop->body->n_ops; i++)
        ds_pipe_uses(loop->body->ops[i], count_use, &reads);
    for (uint32_t i = 0; i + 1 < loop->body->n_ops; i++) {
        const ds_op *op = loop->body->ops[i];
        if (op->n_out != 1 || op->out[0].i != yield->in[k].value.i) continue;
        counter here = {.value = reads.value};
        ds_pipe_uses(op, count_use, &here);
        return adds_up(op->code) && here.n == 1 && reads.n == 1;
    }
    return false;
}

/* ---- ops of the first loop ---- */

static void join_first(void *context, const ds_use *use) {
    splitter *s = context;
    uint32_t made_by = s->inner[use->value.i];
    if (!made_by || s->first[made_by - 1]) return;
    s->first[made_by - 1] = true;
    s->changed = true;
}

static void close_first(splitter *s) {
    const ds_block *body = s->loop->body;
    for (uint32_t i = body->n_ops - 1; i-- > 0;)
        if (s->first[i]) ds_pipe_uses(body->ops[i], join_first, s);
}

/* Does the op read a family of the first loop? A loop cannot keep a family's element for the second
 * loop, so the op joins the first loop. */
static void find_families(void *context, const ds_use *use) {
    splitter *s = context;
    uint32_t made_by = s->inner[use->value.i];
    if (made_by && s->first[made_by - 1] && ds_value_at(s->func, use->value)->n_binders)
        s->changed = true;
}

static void find_first(splitter *s, const bool *is_wgrad) {
    const ds_op *loop = s->loop;
    const ds_block *body = loop->body;
    for (uint32_t i = 0; i < loop->n_out; i++) {
        bool second = i < loop->n_args ? s->adds[i] : is_wgrad[loop->out[i].i];
        if (!second) join_first(s, &s->yield->in[i]);
    }
    for (uint32_t i = 0; i + 1 < body->n_ops; i++) s->first[i] |= body->ops[i]->body != NULL;
    close_first(s);
    for (uint32_t i = 0; i + 1 < body->n_ops; i++) {
        if (s->first[i]) continue;
        s->changed = false;
        ds_pipe_uses(body->ops[i], find_families, s);
        if (!s->changed) continue;
        s->first[i] = true;
        close_first(s);
    }
}

/* ---- the two loops ---- */

static ds_value new_value(splitter *s, const char *name, const ds_value_info *like, ds_op *def) {
    ds_value value = {s->func->values.n};
    ds_value_info info = *like;
    ds_binder *binder = DS_NEW(arena_of(s), ds_binder);
    *binder = (ds_binder){s->loop->index, s->loop->lo, s->loop->hi, s->loop->loc};
    info.name = ds_intern(&s->unit->strings, name);
    info.def = def;
    info.is_arg = false;
    info.binders = binder;
    info.n_binders = 1;
    DS_PUSH(arena_of(s), &s->func->values, info);
    return value;
}

/* The family of a value of the first loop that the second loop reads. */
static ds_value family_of(splitter *s, ds_value inner) {
    const uint64_t *found = ds_map_find(&s->kept, inner.i);
    if (found) return (ds_value){(uint32_t)*found};
    const ds_value_info *info = ds_value_at(s->func, inner);
    ds_value family =
        new_value(s, ds_arena_printf(arena_of(s), "%s.for_w", info->name), info, NULL);
    ds_map_put(&s->kept, inner.i, family.i);
    DS_PUSH(arena_of(s), &s->keep, ds_use_of(inner));
    DS_PUSH(arena_of(s), &s->families, family);
    return family;
}

static ds_op *second_copy(splitter *s, const ds_op *old) {
    ds_op *op = DS_NEW(arena_of(s), ds_op);
    *op = *old;
    op->in = DS_NEW_N(arena_of(s), ds_use, old->n_in + 1);
    for (uint32_t i = 0; i < old->n_in; i++) {
        op->in[i] = old->in[i];
        uint32_t value = old->in[i].value.i, made_by = s->inner[value];
        if (!s->is_carry[value] && !(made_by && s->first[made_by - 1])) continue;
        ds_expr index = ds_expr_index(&s->unit->exprs, s->loop->index);
        op->in[i] = ds_use_at(arena_of(s), family_of(s, old->in[i].value), &index, 1);
    }
    return op;
}

static ds_op *new_loop(splitter *s, uint32_t n_ops) {
    ds_op *op = DS_NEW(arena_of(s), ds_op);
    const ds_op *old = s->loop;
    *op = *old;
    op->trivia = (ds_trivia){0};
    op->in = DS_NEW_N(arena_of(s), ds_use, old->n_in + 3);
    op->args = DS_NEW_N(arena_of(s), ds_value, old->n_args + 3);
    op->n_in = op->n_args = op->n_out = 0;
    op->body = DS_NEW(arena_of(s), ds_block);
    op->body->ops = DS_NEW_N(arena_of(s), ds_op *, n_ops + 1);
    return op;
}

/* Gives a loop the carries and kept values of its half; the first loop also keeps s->keep for the
 * second. */
static void end_loop(splitter *s, ds_op *op, bool second, const bool *is_wgrad) {
    const ds_op *old = s->loop;
    uint32_t more = second ? 0 : s->families.n;
    ds_op *yield = DS_NEW(arena_of(s), ds_op);
    *yield = *s->yield;
    yield->in = DS_NEW_N(arena_of(s), ds_use, old->n_out + more + 1);
    yield->n_in = 0;
    op->out = DS_NEW_N(arena_of(s), ds_value, old->n_out + more + 3);
    for (uint32_t i = 0; i < old->n_out; i++) {
        bool carry = i < old->n_args;
        if ((carry ? s->adds[i] : is_wgrad[old->out[i].i]) != second) continue;
        if (carry) {
            op->in[op->n_in++] = old->in[i];
            op->args[op->n_args++] = old->args[i];
        }
        ds_use use = s->yield->in[i];
        uint32_t made_by = s->inner[use.value.i];
        if (second && made_by && s->first[made_by - 1]) {
            ds_expr index = ds_expr_index(&s->unit->exprs, old->index);
            use = ds_use_at(arena_of(s), family_of(s, use.value), &index, 1);
        }
        yield->in[yield->n_in++] = use;
        op->out[op->n_out++] = old->out[i];
    }
    for (uint32_t i = 0; i < more; i++) {
        yield->in[yield->n_in++] = s->keep.at[i];
        op->out[op->n_out++] = s->families.at[i];
    }
    yield->n_keep = yield->n_in - op->n_args;
    op->body->ops[op->body->n_ops++] = yield;
}

/* ---- gathers of the second loop ---- */

/* Is the op a collective of values that the second loop does not make? */
static bool runs_ahead(const splitter *s, const ds_op *op) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    if (!desc || !(desc->flags & DS_OPF_COLLECTIVE)) return false;
    for (uint32_t i = 0; i < op->n_in; i++) {
        uint32_t value = op->in[i].value.i;
        uint32_t made_by = value < s->n_values ? s->inner[value] : 0;
        if (made_by && !s->first[made_by - 1]) return false;
    }
    return true;
}

/* The family of the least rank, because the view that waits keeps its operand in memory. */
static ds_value smallest_family(const splitter *s) {
    ds_value best = s->families.at[0];
    for (uint32_t i = 1; i < s->families.n; i++)
        if (ds_value_at(s->func, s->families.at[i])->type->rank <
            ds_value_at(s->func, best)->type->rank)
            best = s->families.at[i];
    return best;
}

static ds_value plain_value(splitter *s, const char *name, ds_value like, ds_op *def, bool is_arg) {
    ds_value value = new_value(s, name, ds_value_at(s->func, like), def);
    ds_value_info *info = ds_value_at(s->func, value);
    info->binders = NULL;
    info->n_binders = 0;
    info->is_arg = is_arg;
    return value;
}

static ds_op *new_after(splitter *s, const char *name, ds_use view, ds_use wait, ds_value like) {
    ds_op *op = DS_NEW(arena_of(s), ds_op);
    *op = (ds_op){.code = DS_OP_AFTER, .loc = s->loop->loc, .n_in = 2, .n_out = 1};
    op->in = DS_NEW_N(arena_of(s), ds_use, 2);
    op->in[0] = view;
    op->in[1] = wait;
    op->out = DS_NEW(arena_of(s), ds_value);
    op->out[0] = plain_value(s, name, like, op, false);
    return op;
}

/* Adds two carries: %done of the turn before, and of the turn before last. */
static void add_carries(splitter *s, ds_op *loop, ds_value family, ds_value *carry) {
    ds_use at = ds_use_at(arena_of(s), family, &loop->lo, 1);
    uint32_t n = loop->n_args;
    memmove(loop->out + n + 2, loop->out + n, (loop->n_out - n) * sizeof *loop->out);
    for (uint32_t i = 0; i < 2; i++) {
        const char *name = ds_value_at(s->func, family)->name;
        carry[i] = plain_value(s, ds_arena_printf(arena_of(s), "%s.turn%u", name, i + 1), family,
                               loop, true);
        loop->args[loop->n_args++] = carry[i];
        loop->in[loop->n_in++] = at;
        loop->out[n + i] = plain_value(s, ds_arena_printf(arena_of(s), "%s.last%u", name, i + 1),
                                       family, loop, false);
    }
    loop->n_out += 2;
}

/* Builds the body anew: gathers wait, and each turn passes its end on. */
static void hold_gathers(splitter *s, ds_op *loop) {
    ds_block *body = loop->body;
    ds_op *yield = body->ops[--body->n_ops];
    uint32_t n_ahead = 0;
    for (uint32_t i = 0; i < body->n_ops; i++) n_ahead += runs_ahead(s, body->ops[i]);
    if (!n_ahead || !s->families.n || n_ahead == body->n_ops) {
        body->ops[body->n_ops++] = yield;
        return;
    }
    ds_value carry[2], family = smallest_family(s);
    add_carries(s, loop, family, carry);
    ds_op **ops = DS_NEW_N(arena_of(s), ds_op *, body->n_ops + n_ahead + 2);
    uint32_t n = 0;
    ds_value last = {UINT32_MAX};
    for (uint32_t i = 0; i < body->n_ops; i++) {
        ds_op *op = body->ops[i];
        if (runs_ahead(s, op)) {
            const ds_value_info *out = ds_value_at(s->func, op->in[0].value);
            ds_op *held = new_after(s, ds_arena_printf(arena_of(s), "%s.held", out->name),
                                    op->in[0], ds_use_of(carry[1]), op->in[0].value);
            op->in[0] = ds_use_of(held->out[0]);
            ops[n++] = held;
        } else if (op->n_out && !ds_value_at(s->func, op->out[0])->n_binders) {
            last = op->out[0];
        }
        ops[n++] = op;
    }
    ds_expr index = ds_expr_index(&s->unit->exprs, loop->index);
    ds_op *done =
        new_after(s, ds_arena_printf(arena_of(s), "%s.done", ds_value_at(s->func, family)->name),
                  ds_use_at(arena_of(s), family, &index, 1), ds_use_of(last), family);
    ops[n++] = done;
    uint32_t n_next = loop->n_args - 2;
    ds_use *in = DS_NEW_N(arena_of(s), ds_use, yield->n_in + 2);
    memcpy(in, yield->in, n_next * sizeof *in);
    in[n_next] = ds_use_of(done->out[0]);
    in[n_next + 1] = ds_use_of(carry[0]);
    memcpy(in + n_next + 2, yield->in + n_next, (yield->n_in - n_next) * sizeof *in);
    yield->in = in;
    yield->n_in += 2;
    ops[n++] = yield;
    body->ops = ops;
    body->n_ops = n;
}

/* ---- both ---- */

static void scan_body(splitter *s) {
    const ds_op *loop = s->loop;
    for (uint32_t i = 0; i + 1 < loop->body->n_ops; i++)
        for (uint32_t k = 0; k < loop->body->ops[i]->n_out; k++)
            s->inner[loop->body->ops[i]->out[k].i] = i + 1;
    for (uint32_t k = 0; k < loop->n_args; k++) s->is_carry[loop->args[k].i] = !s->adds[k];
}

static void split_loop(splitter *s, const bool *is_wgrad, ds_op **first, ds_op **second) {
    const ds_block *body = s->loop->body;
    uint32_t n = body->n_ops - 1, n_second = 0;
    *first = (ds_op *)s->loop;
    *second = NULL;
    for (uint32_t k = 0; k < s->loop->n_args; k++)
        s->adds[k] = is_wgrad[s->loop->out[k].i] && ds_pipe__carry_adds(s->loop, k);
    scan_body(s);
    find_first(s, is_wgrad);
    for (uint32_t i = 0; i < n; i++) n_second += !s->first[i];
    if (!n_second) return;
    *second = new_loop(s, n);
    for (uint32_t i = 0; i < n; i++)
        if (!s->first[i])
            (*second)->body->ops[(*second)->body->n_ops++] = second_copy(s, body->ops[i]);
    end_loop(s, *second, true, is_wgrad);
    hold_gathers(s, *second);
    *first = new_loop(s, n);
    for (uint32_t i = 0; i < n; i++)
        if (s->first[i]) (*first)->body->ops[(*first)->body->n_ops++] = body->ops[i];
    end_loop(s, *first, false, is_wgrad);
}

/* ---- the function ---- */

static bool is_split(const ds_op *op, const bool *is_wgrad) {
    if (op->code != DS_OP_FOR || !op->n_args) return false;
    for (uint32_t i = 0; i < op->n_out; i++)
        if (is_wgrad[op->out[i].i]) return true;
    return false;
}

static ds_func *copy_func(ds_unit *unit, const ds_func *func) {
    ds_func *copy = DS_NEW(&unit->arena, ds_func);
    *copy = *func;
    copy->values.at = DS_NEW_N(&unit->arena, ds_value_info, func->values.n + 1);
    copy->values.cap = func->values.n;
    memcpy(copy->values.at, func->values.at, func->values.n * sizeof *func->values.at);
    copy->body.ops = DS_NEW_N(&unit->arena, ds_op *, 2 * func->body.n_ops + 1);
    copy->body.n_ops = 0;
    return copy;
}

ds_func *ds_pipe__split(ds_unit *unit, const ds_func *func, uint32_t from, const bool *is_wgrad,
                        ds_map *seconds) {
    ds_func *copy = copy_func(unit, func);
    for (uint32_t i = 0; i < func->body.n_ops; i++) {
        ds_op *op = func->body.ops[i];
        ds_op *second = NULL;
        if (i >= from && is_split(op, is_wgrad)) {
            splitter s = {.unit = unit, .func = copy, .loop = op};
            s.yield = ds_block_end(op->body);
            s.n_values = func->values.n;
            s.inner = ds_xcalloc(func->values.n + 1, sizeof *s.inner);
            s.is_carry = ds_xcalloc(func->values.n + 1, sizeof *s.is_carry);
            s.adds = ds_xcalloc(op->n_args + 1, sizeof *s.adds);
            s.first = ds_xcalloc(op->body->n_ops + 1, sizeof *s.first);
            ds_map_init(&s.kept);
            split_loop(&s, is_wgrad, &op, &second);
            ds_map_deinit(&s.kept);
            free(s.inner);
            free(s.is_carry);
            free(s.adds);
            free(s.first);
        }
        copy->body.ops[copy->body.n_ops++] = op;
        if (!second) continue;
        copy->body.ops[copy->body.n_ops++] = second;
        ds_map_put(seconds, DS_KEY(second), 1);
    }
    return copy;
}
