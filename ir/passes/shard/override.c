/* The strategy's overrides of single ops: `"layer[*].fc1" = on @v [n: x, k: y]`.
 *
 * An override says everything about its op: the op's mesh and the axes of each factor. A weight
 * that the op reads has the layout that the op wants. The backward ops of that op (fc1.dx, fc1.dw)
 * follow it: the same dims of the same tensors are split. Backward ops of products, convolutions
 * and normalisations have the forward op's letters. Others have not: the backward op of a transpose
 * `a b -> b a` swaps the letters, and a sub's is a neg with dims _0, _1. A backward op whose result
 * is a gradient of an operand has the operand's dims, so each of its letters gets the forward op's
 * name for the same dim.
 *
 * A pattern that names a backward op itself ("fc1.dw") goes before patterns of the forward op, and
 * has the letters of the backward op's own rule. It says nothing about a weight's layout. */
#include "ir/passes/shard/internal.h"

#include <stdlib.h>
#include <string.h>

/* The name of the forward op, from the name of a backward op or of a copy: fc1.dx, fc1.again → fc1;
 * a loss's gradient may be scaled, loss.dx.one → loss; NULL: neither. *end is the rest: dx,
 * again. */
static const char *forward_name(ds_arena *arena, const char *name, const char **end) {
    const char *dot = strrchr(name, '.');
    if (dot && strcmp(dot, ".one") == 0) {
        name = ds_arena_strndup(arena, name, (size_t)(dot - name));
        dot = strrchr(name, '.');
    }
    bool other = dot && (ds_path_is_gradient(dot + 1) || strcmp(dot, ".again") == 0);
    *end = dot ? dot + 1 : "";
    return other ? ds_arena_strndup(arena, name, (size_t)(dot - name)) : NULL;
}

/* ---- letters of backward ops ---- */

static void find_ops(ds_sharder *s, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_FOR) find_ops(s, op->body);
        if (op->code < DS_OP_FIRST_TABLE_OP) continue;
        const char *name = ds_intern(&s->unit->strings, ds_path_op_name(s->f.from, op));
        if (!ds_map_find(&s->f.by_name, DS_KEY(name)))
            ds_map_put(&s->f.by_name, DS_KEY(name), DS_KEY(op));
    }
}

void ds_shard__find_names(ds_sharder *s) {
    if (s->step->strategy.ops) find_ops(s, &s->f.from->body);
}

/* The forward op's term of `rank` dims whose gradient has the name's end; NULL: not known. A loss's
 * dy is the gradient of its second operand, an lstm's dy of its result. */
static const ds_rule_term *term_of(const ds_rule *forward, const char *end, uint32_t rank) {
    static const char *const first[] = {"dx", "da", "dq"}, *const second[] = {"dw", "db", "dy"};
    uint32_t i = DS_MAX_OPERANDS;
    for (size_t k = 0; k < sizeof first / sizeof *first; k++) {
        if (strcmp(end, first[k]) == 0) i = 0;
        if (strcmp(end, second[k]) == 0) i = 1;
    }
    if (end[0] == 'd' && end[1] >= '0' && end[1] <= '9') i = (uint32_t)strtoul(end + 1, NULL, 10);
    if (strcmp(end, "dy") == 0 && forward->out[0].n == rank) return &forward->out[0];
    if (i >= DS_MAX_OPERANDS || !forward->n_in) return NULL;
    const ds_rule_term *term = &forward->in[i < forward->n_in ? i : forward->n_in - 1];
    return term->n == rank ? term : NULL;
}

/* Names for the factors of `rule` by the dims of its first result, which are the dims of `term`.
 * If a factor of the result gets another name, a factor outside of the result loses its name. */
static void rename_factors(ds_rule *rule, const ds_rule *forward, const ds_rule_term *term) {
    char names[DS_MAX_FACTORS][DS_FACTOR_NAME_MAX] = {0};
    bool same = true;
    for (uint32_t d = 0; d < term->n; d++) {
        const ds_rule_dim *to = &rule->out[0].dims[d], *from = &term->dims[d];
        for (uint32_t k = 0; k < to->n && k < from->n; k++) {
            const char *name = forward->names[from->factors[k]];
            memcpy(names[to->factors[k]], name, DS_FACTOR_NAME_MAX);
            same &= strcmp(rule->names[to->factors[k]], name) == 0;
        }
    }
    if (!same) memcpy(rule->names, names, sizeof names);
}

ds_status ds_shard__rename(ds_sharder *s, const ds_op *op, ds_rule *rule, ds_error *err) {
    const char *end, *name = forward_name(&s->unit->arena, ds_path_op_name(s->f.from, op), &end);
    if (!name || !ds_path_is_gradient(end)) return DS_OK;
    const uint64_t *found = ds_map_find(&s->f.by_name, DS_KEY(ds_intern(&s->unit->strings, name)));
    if (!found) return DS_OK;
    ds_rule forward;
    DS_TRY(ds_shard__rule(s, (const ds_op *)(uintptr_t)*found, &forward, err));
    const ds_rule_term *term = term_of(&forward, end, rule->out[0].n);
    if (term) rename_factors(rule, &forward, term);
    return DS_OK;
}

/* ---- the override of an op ---- */

/* The first override whose pattern matches the name; n_items: none. */
static uint32_t match(const ds_sharder *s, const ds_path_loop *loops, const char *name) {
    const ds_attr *ops = s->step->strategy.ops;
    const char *func = s->step->func->name; /* a microbatch's ops have the step's paths */
    uint32_t i = 0;
    while (i < ops->n_items && !ds_path_match(ops->items[i].name, func, loops, name, NULL)) i++;
    return i;
}

ds_status ds_shard__override(ds_sharder *s, const ds_op *op, const ds_path_loop *loops,
                             const ds_attr **override, uint8_t *mesh, bool *exact, ds_error *err) {
    const ds_attr *ops = s->step->strategy.ops;
    *override = NULL;
    bool joins = s->step->strategy.microbatches > 1 && s->f.from == s->step->func;
    if (!ops || joins) return DS_OK; /* what puts microbatches together is no op of the model */
    const char *end, *name = ds_path_op_name(s->f.from, op);
    uint32_t i = match(s, loops, name);
    *exact = i < ops->n_items;
    if (*exact) s->override_used[i] = true;
    const char *forward = *exact ? NULL : forward_name(&s->unit->arena, name, &end);
    if (forward) i = match(s, loops, forward);
    if (i == ops->n_items) return DS_OK;
    *override = &ops->items[i];
    return ds_shard__view(s, &ops->items[i].place, ops->items[i].loc, mesh, err);
}

/* Is this a backward op? It has no say in where a weight lies. */
static bool is_backward(ds_sharder *s, const ds_op *op) {
    const char *end, *name = ds_path_op_name(s->f.from, op);
    return forward_name(&s->unit->arena, name, &end) && ds_path_is_gradient(end);
}

static ds_status find_home(ds_sharder *s, const ds_block *block, const ds_path_loop *loops,
                           const char *weight, ds_layout *home, bool *found, ds_error *err);

/* Looks in a microbatch's function, which has weights under the step's names. */
static ds_status find_home_in_callee(ds_sharder *s, const ds_func *callee, const char *weight,
                                     ds_layout *home, bool *found, ds_error *err) {
    const ds_func *caller = s->f.from;
    s->f.from = callee;
    ds_status status = find_home(s, &callee->body, NULL, weight, home, found, err);
    s->f.from = caller;
    return status;
}

static ds_status find_home(ds_sharder *s, const ds_block *block, const ds_path_loop *loops,
                           const char *weight, ds_layout *home, bool *found, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops && !*found; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_FOR) {
            const ds_path_loop inside = {ds_path_loop_name(s->f.from, op), DS_ANY_TURN, loops};
            DS_TRY(find_home(s, op->body, &inside, weight, home, found, err));
        }
        if (op->code == DS_OP_CALL)
            DS_TRY(find_home_in_callee(s, op->callee, weight, home, found, err));
        if (op->code < DS_OP_FIRST_TABLE_OP) continue;
        for (uint32_t k = 0; k < op->n_in && k < DS_MAX_OPERANDS && !*found; k++) {
            const ds_attr *override = NULL;
            uint8_t mesh = 0;
            bool exact = false;
            ds_shard_choice choice = {0};
            if (ds_value_at(s->f.from, op->in[k].value)->name != weight) continue;
            if (is_backward(s, op)) continue;
            DS_TRY(ds_shard__override(s, op, loops, &override, &mesh, &exact, err));
            if (!override || !exact) continue;
            DS_TRY(ds_shard__forced(s, op, override, mesh, exact, &choice, err));
            *home = choice.in[k];
            *found = true;
        }
    }
    return DS_OK;
}

ds_status ds_shard__override_home(ds_sharder *s, const char *weight, ds_layout *home, bool *found,
                                  ds_error *err) {
    *found = false;
    if (!s->step->strategy.ops) return DS_OK;
    return find_home(s, &s->f.from->body, NULL, weight, home, found, err);
}

ds_status ds_shard__overrides_used(const ds_sharder *s, ds_error *err) {
    const ds_attr *ops = s->step->strategy.ops;
    for (uint32_t i = 0; ops && i < ops->n_items; i++)
        if (!s->override_used[i])
            return ds_error_set(err, DS_ERR_NAME, ops->items[i].loc,
                                "the override \"%s\" matches no op of the model",
                                ops->items[i].name);
    return DS_OK;
}
