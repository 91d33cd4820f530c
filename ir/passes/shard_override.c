/* What the strategy says of single ops: `"layer[*].fc1" = on @v [n: x, k: y]`.
 *
 * An override says everything about its op: the mesh it is done on and the axes of each factor. The
 * backward ops of that op (fc1.dx, fc1.dw) are einsums over the same letters and follow it. A
 * weight that the op reads lies as the op wants it. */
#include "ir/passes/shard_internal.h"

#include <string.h>

/* The ends of names that backward rules give (vjp*.c): "dx", and "d2" of an operand by number. */
static bool is_gradient(const char *end) {
    static const char *const ends[] = {"dx", "dw",  "da",  "db",  "dy",  "dq",     "dk",
                                       "dv", "dh0", "dc0", "dwx", "dwh", "dscale", "dshift"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strcmp(end, ends[i]) == 0) return true;
    return end[0] == 'd' && end[1] && strspn(end + 1, "0123456789") == strlen(end + 1);
}

/* The name of the forward op, from that of a backward op, or of a copy: fc1.dx, fc1.again → fc1; a
 * loss's gradient may be scaled, loss.dx.one → loss; NULL: it is neither. */
static const char *forward_name(ds_arena *arena, const char *name) {
    const char *dot = strrchr(name, '.');
    if (dot && strcmp(dot, ".one") == 0) {
        name = ds_arena_strndup(arena, name, (size_t)(dot - name));
        dot = strrchr(name, '.');
    }
    bool other = dot && (is_gradient(dot + 1) || strcmp(dot, ".again") == 0);
    return other ? ds_arena_strndup(arena, name, (size_t)(dot - name)) : NULL;
}

ds_status ds_shard__override(ds_sharder *s, const ds_op *op, const ds_path_loop *loops,
                             const ds_attr **override, uint8_t *mesh, bool *exact, ds_error *err) {
    const ds_attr *ops = s->step->strategy.ops;
    *override = NULL;
    bool joins = s->step->strategy.microbatches > 1 && s->from == s->step->func;
    if (!ops || joins) return DS_OK; /* what puts microbatches together is no op of the model */
    const char *name = ds_path_op_name(s->from, op);
    const char *forward = forward_name(&s->unit->arena, name);
    const char *func = s->step->func->name; /* a microbatch's ops have the paths of the step's */
    for (uint32_t i = 0; i < ops->n_items && !*override; i++) {
        const char *pattern = ops->items[i].name;
        *exact = ds_path_match(pattern, func, loops, name, NULL);
        if (!*exact && !(forward && ds_path_match(pattern, func, loops, forward, NULL))) continue;
        *override = &ops->items[i];
        if (*exact) s->override_used[i] = true;
        DS_TRY(ds_shard__view(s, &ops->items[i].place, ops->items[i].loc, mesh, err));
    }
    return DS_OK;
}

static ds_status find_home(ds_sharder *s, const ds_block *block, const ds_path_loop *loops,
                           const char *weight, ds_layout *home, bool *found, ds_error *err);

/* A microbatch's function has the weights by the step's names. */
static ds_status find_home_in_callee(ds_sharder *s, const ds_func *callee, const char *weight,
                                     ds_layout *home, bool *found, ds_error *err) {
    const ds_func *caller = s->from;
    s->from = callee;
    ds_status status = find_home(s, &callee->body, NULL, weight, home, found, err);
    s->from = caller;
    return status;
}

static ds_status find_home(ds_sharder *s, const ds_block *block, const ds_path_loop *loops,
                           const char *weight, ds_layout *home, bool *found, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops && !*found; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_FOR) {
            const ds_path_loop inside = {ds_path_loop_name(s->from, op), DS_ANY_TURN, loops};
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
            if (ds_value_at(s->from, op->in[k].value)->name != weight) continue;
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
    return find_home(s, &s->from->body, NULL, weight, home, found, err);
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
