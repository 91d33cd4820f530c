/* Turns of a loop that do the same: the layers of a decoded token, of which there are a thousand.
 *
 * What a turn leaves in the plan depends on its op's records, and on its operands only in which values
 * stand where. So where no record depends on the loop's index, and the second turn leaves to the
 * third, in the same places of the turn, what the first leaves to the second, each turn from the
 * second on is a copy of the second, moved by as many instances as a turn has. Of n turns three are
 * followed: the first, which reads what stands before the loop; the second, a *repeat*, which stands
 * for n - 2; and the last, whose values the ops behind the loop read.
 *
 * The times are a matter of the run. The engine holds all that comes after a gate until all before it
 * has ended, and refuses the plan where that would hold back anything (sim/engine/repeat.c): so a
 * turn begins when nothing runs, each takes as long as the first of them, and the clock goes on by
 * the others at once.
 *
 * Memory is that of the three turns: each turn between allocates and frees what the second does. */
#include "sim/plan/walk.h"

#include <stdlib.h>
#include <string.h>

/* More turns than int64 picoseconds can hold, but for such that take no time. */
#define MOST_TURNS (INT64_C(1) << 40)

/* ---- what the text says ---- */

static bool is_input(const ds_frame *f, ds_value value) {
    const ds_func *func = f->ctx->func;
    bool found = false;
    for (uint32_t i = 0; i < func->n_args; i++) found = found || func->args[i].i == value.i;
    return found && f->depth == 0;
}

/* Elements of the program's inputs are there from the start, and all alike if their type is. */
static bool use_is_alike(const ds_builder *b, const ds_frame *f, const ds_use *use,
                         const char *index) {
    const ds_exprs *exprs = &b->unit->exprs;
    const ds_value_info *v = ds_value_at(f->ctx->func, use->value);
    for (uint32_t i = 0; i < use->n_index; i++) {
        if (ds_use_is_range(use, i) && ds_expr_mentions(exprs, use->index_hi[i], index))
            return false;
        if (!ds_expr_mentions(exprs, use->index[i], index)) continue;
        if (ds_use_is_range(use, i) || !is_input(f, use->value) ||
            ds_type_mentions(exprs, v->type, v->binders[i].name))
            return false;
    }
    return true;
}

/* A store in tiles, or at the host: each turn may write another tile first, and each point has
 * transfers of its own. */
static bool is_in_parts(const ds_op *op) {
    return op->code == DS_OP_ZEROS && (ds_attr_find(op->attrs, op->n_attrs, "tile") ||
                                       ds_attr_find(op->attrs, op->n_attrs, "host"));
}

static bool body_is_alike(const ds_builder *b, const ds_frame *f, const ds_block *body,
                          const char *index) {
    const ds_exprs *exprs = &b->unit->exprs;
    for (uint32_t i = 0; i < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
        const ds_op_desc *desc = ds_op_desc_of(op->code);
        if (op->code == DS_OP_CALL || (desc && desc->flags & (DS_OPF_OPTIMIZER | DS_OPF_HOST)) ||
            is_in_parts(op))
            return false;
        if (ds_plan__op_mentions(b, op, f->ctx->func, index)) return false;
        for (uint32_t k = 0; k < op->n_in; k++)
            if (!use_is_alike(b, f, &op->in[k], index)) return false;
        if (op->code == DS_OP_FOR &&
            (ds_expr_mentions(exprs, op->lo, index) || ds_expr_mentions(exprs, op->hi, index)))
            return false;
        if (op->body && !body_is_alike(b, f, op->body, index)) return false;
    }
    return true;
}

static bool has_parts(ds_builder *b) {
    for (; b->n_searched < b->plan->records.n && !b->in_parts; b->n_searched++) {
        const ds_op *op = b->plan->records.at[b->n_searched]->op;
        b->in_parts = op && is_in_parts(op);
    }
    return b->in_parts;
}

/* The op in whose body a scope's ops stand; NULL: in none. */
static const ds_op *op_around(const ds_builder *b, uint32_t scope) {
    return scope == DS_NONE ? NULL : b->plan->scopes.at[scope].op;
}

static bool is_whole(const ds_builder *b, const ds_frame *f, const ds_op *op) {
    const ds_plan_options *options = b->options;
    const ds_op *around = op_around(b, f->scope);
    bool whole = options->whole_dim && strcmp(options->whole_dim, op->index) == 0;
    for (uint32_t i = 0; i < options->n_whole; i++) whole = whole || options->whole[i] == around;
    return whole;
}

bool ds_plan__may_repeat(ds_builder *b, const ds_frame *f, const ds_op *op, int64_t turns) {
    const ds_plan_options *options = b->options;
    int64_t all;
    if (!options->repeat_turns || turns < options->repeat_turns || turns < 4) return false;
    if (op->n_out > op->n_args || b->on_symbols || f->rank_device != DS_NONE) return false;
    if (!ds_mul_i64(b->repeated ? b->repeated : 1, turns, &all) || all > MOST_TURNS) return false;
    if (has_parts(b)) return false;
    const uint64_t *found = ds_map_find(&b->repeats_of, DS_KEY(op));
    if (!found) {
        ds_map_put(&b->repeats_of, DS_KEY(op),
                   !is_whole(b, f, op) && body_is_alike(b, f, op->body, op->index));
        found = ds_map_find(&b->repeats_of, DS_KEY(op));
    }
    return *found && b->n_repeats++ >= options->repeats_from;
}

void ds_plan__never_repeats(ds_builder *b, const ds_op *op) {
    ds_map_put(&b->repeats_of, DS_KEY(op), false);
}

/* ---- what the turns leave ---- */

static bool is_alike(const ds_builder *b, ds_turn_mark first, ds_slot one, ds_turn_mark second,
                     ds_slot two) {
    if (one.family || two.family || one.value == DS_NONE || two.value == DS_NONE) return false;
    if ((one.value | two.value) & DS_JOIN) return false;
    const ds_vinst *a = &b->plan->values.at[one.value], *z = &b->plan->values.at[two.value];
    if (a->category != z->category) return false;
    if (one.value < first.value) return one.value == two.value;
    return two.value >= second.value && one.value - first.value == two.value - second.value;
}

/* Can the i-th value that a turn leaves be in the buffer of another one that the turn before left?
 * Then buffers change places from turn to turn. */
static bool may_change_places(const ds_builder *b, ds_turn_mark second, const ds_slot *left,
                              const ds_slot *left_second, uint32_t i, uint32_t n) {
    uint32_t value = left_second[i].value;
    while (value != DS_NONE && value >= second.value) value = b->plan->values.at[value].alias;
    if (value == DS_NONE || value == left[i].value || left_second[i].value < second.value)
        return false;
    for (uint32_t k = 0; k < n; k++)
        if (left[k].value == value) return true;
    return false;
}

bool ds_plan__leave_alike(const ds_builder *b, ds_turn_mark first, const ds_slot *left,
                          ds_turn_mark second, const ds_slot *left_second, uint32_t n) {
    if (second.inst - first.inst != b->plan->insts.n - second.inst) return false;
    bool alike = true;
    for (uint32_t i = 0; i < n && alike; i++)
        alike = is_alike(b, first, left[i], second, left_second[i]) &&
                !may_change_places(b, second, left, left_second, i, n);
    return alike;
}

uint32_t ds_plan__begin_repeat(ds_builder *b, uint32_t scope, int64_t times) {
    uint32_t repeat = b->plan->repeats.n;
    ds_repeat fresh = {.first = b->plan->insts.n,
                       .around = op_around(b, scope),
                       .times = times,
                       .up = b->repeat - 1};
    DS_HPUSH(&b->plan->repeats, fresh);
    b->repeat = repeat + 1;
    b->repeated = (b->repeated ? b->repeated : 1) * times;
    return repeat;
}

void ds_plan__end_repeat(ds_builder *b, uint32_t repeat, bool holds) {
    ds_plan *plan = b->plan;
    ds_repeat *r = &plan->repeats.at[repeat];
    b->repeated /= r->times;
    b->repeat = r->up + 1;
    r->end = plan->insts.n;
    if (holds && r->end > r->first) return;
    uint32_t up = r->up, n = --plan->repeats.n - repeat; /* those inside are the loop's no more */
    memmove(r, r + 1, n * sizeof *r);
    for (uint32_t i = repeat; i < plan->repeats.n; i++)
        plan->repeats.at[i].up = plan->repeats.at[i].up == repeat ? up : plan->repeats.at[i].up - 1;
}

/* ---- gates ---- */

int64_t ds_plan_times(const ds_plan *plan, uint32_t inst) {
    int64_t times = 1;
    if (!plan->repeat_of) return times;
    for (uint32_t r = plan->repeat_of[inst]; r != DS_NONE; r = plan->repeats.at[r].up)
        times *= plan->repeats.at[r].times;
    return times;
}

/* The first task of an instance that has one, from `inst` on. */
static uint32_t task_from(const ds_plan *plan, uint32_t inst) {
    while (inst < plan->insts.n && plan->insts.at[inst].first_task == DS_NONE) inst++;
    return inst < plan->insts.n ? plan->insts.at[inst].first_task : plan->n_tasks;
}

static void add_gate(ds_plan *plan, uint32_t repeat, bool ends) {
    const ds_repeat *r = &plan->repeats.at[repeat];
    plan->gates[plan->n_gates++] =
        (ds_gate){task_from(plan, ends ? r->end : r->first), repeat, ends};
}

void ds_plan__gates(ds_plan *plan) {
    if (!plan->repeats.n) return;
    plan->gates = ds_xcalloc((size_t)plan->repeats.n * 2, sizeof *plan->gates);
    plan->repeat_of = ds_xcalloc((size_t)plan->insts.n + 1, sizeof *plan->repeat_of);
    uint32_t open = DS_NONE, next = 0, n = plan->repeats.n;
    for (uint32_t i = 0; i <= plan->insts.n; i++) {
        for (; open != DS_NONE && plan->repeats.at[open].end == i; open = plan->repeats.at[open].up)
            add_gate(plan, open, true);
        for (; next < n && plan->repeats.at[next].first == i; open = next++)
            add_gate(plan, next, false);
        plan->repeat_of[i] = open;
    }
}
