/* A first walk through the model, call by call, that copies nothing.
 *
 * The walk finds the names that weights will have, which no other value may take. The walk also
 * matches the patterns that the strategy names, in overrides and for recomputation. A pattern of a
 * single turn makes its loop, and the loops around it, unroll. A pattern that matches nothing is an
 * error. */
#include "ir/passes/lower/internal.h"

#include "ir/strategy/group.h"
#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

typedef struct scan_loop {
    ds_path_loop path; /* first member, so that a ds_path_loop of the list casts to its scan_loop */
    const ds_op *op;
} scan_loop;

typedef struct path_pattern {
    const char *text;
    const char *forward; /* of an override of a backward op, "fc1.dw": "fc1"; else NULL */
    ds_loc loc;
    bool matched;
} path_pattern;

typedef struct scanner {
    ds_lowering *l;
    DS_VEC(path_pattern) patterns;
    ds_arena arena;
    DS_VEC(const char *) paths; /* of all ops, for suggestions */
} scanner;

static const char *join_names(scanner *s, const char *prefix, const char *name) {
    return ds_arena_printf(&s->arena, "%s%s", prefix, name);
}

/* A turn that the loop does not have matches nothing. A loop whose bounds depend on outer indices
 * is taken to have every turn. */
static bool has_turn(const scanner *s, const ds_op *loop, const char *pattern) {
    ds_env env = ds_binding_env(s->l->source, NULL);
    int64_t lo, hi;
    const char *bracket = strchr(pattern, '[');
    if (!bracket || bracket[1] == '*' ||
        ds_expr_eval_int(&env, loop->lo, loop->loc, &lo, NULL) != DS_OK ||
        ds_expr_eval_int(&env, loop->hi, loop->loc, &hi, NULL) != DS_OK)
        return true;
    int64_t turn = strtoll(bracket + 1, NULL, 10);
    return turn >= lo && turn < hi;
}

static void match(scanner *s, const ds_path_loop *loops, const char *name) {
    const char *func = s->l->model->name;
    for (uint32_t i = 0; i < s->patterns.n; i++) {
        const char *text = s->patterns.at[i].text, *forward = s->patterns.at[i].forward;
        const ds_path_loop *innermost;
        if (!ds_path_match(text, func, loops, name, &innermost) &&
            !(forward && ds_path_match(forward, func, loops, name, &innermost)))
            continue;
        if (innermost && !has_turn(s, ((const scan_loop *)(const void *)innermost)->op, text))
            continue;
        s->patterns.at[i].matched = true;
        if (innermost) {
            s->l->step->turn_pattern = ds_clone_text(&s->l->c, text);
            s->l->step->turn_loc = s->patterns.at[i].loc;
        }
        for (const ds_path_loop *at = innermost; at; at = at->up) {
            const ds_op *op = ((const scan_loop *)(const void *)at)->op;
            ds_map_put(&s->l->unrolled, DS_KEY(op), 1);
        }
    }
}

static ds_status scan_block(scanner *s, const ds_func *func, const ds_block *block,
                            const ds_path_loop *loops, const char *calls, const char *path,
                            ds_error *err);

static ds_status scan_call(scanner *s, const ds_func *func, const ds_op *op,
                           const ds_path_loop *loops, const char *calls, const char *path,
                           ds_error *err) {
    const char *name = ds_path_op_name(func, op);
    if (!op->callee || ds_func_open(op->callee))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "@%s has %s: a model says nothing about places; the shard pass does",
                            op->callee_name, op->callee ? ds_func_open(op->callee) : "no body");
    if (ds_attr_find(op->attrs, op->n_attrs, "cost"))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "the call %s states its cost: what its backward pass costs is unknown, "
                            "so no step can be made of it",
                            name);
    if (++s->l->depth > DS_LOWER_MAX_DEPTH)
        return ds_error_set(err, DS_ERR_LIMIT, op->loc, "calls are more than %u deep",
                            DS_LOWER_MAX_DEPTH);
    if (*name) name = join_names(s, name, ".");
    ds_status status = scan_block(s, op->callee, &op->callee->body, loops,
                                  join_names(s, calls, name), join_names(s, path, name), err);
    s->l->depth--;
    return status;
}

static ds_status scan_op(scanner *s, const ds_func *func, const ds_op *op,
                         const ds_path_loop *loops, const char *calls, const char *path,
                         ds_error *err) {
    if (++s->l->n_ops > DS_LOWER_MAX_OPS)
        return ds_error_set(err, DS_ERR_LIMIT, op->loc,
                            "with its calls written out the model has more than %u operations",
                            DS_LOWER_MAX_OPS);
    if (op->code == DS_OP_CALL) return scan_call(s, func, op, loops, calls, path, err);
    if (op->code == DS_OP_WEIGHT) {
        const char *name = join_names(s, calls, ds_value_at(func, op->out[0])->name);
        ds_map_put(&s->l->weight_names, DS_KEY(ds_clone_text(&s->l->c, name)), 1);
        return DS_OK;
    }
    if (op->code == DS_OP_FOR) {
        const char *name = ds_path_loop_name(func, op);
        scan_loop loop = {{name, DS_ANY_TURN, loops}, op};
        return scan_block(s, func, op->body, &loop.path, calls,
                          ds_arena_printf(&s->arena, "%s%s[*].", path, name), err);
    }
    if (op->code == DS_OP_REC) return scan_block(s, func, op->body, loops, calls, path, err);
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    if (op->code == DS_OP_LOCAL || op->n_over || op->n_to || op->across || op->has_group ||
        (desc && desc->flags & (DS_OPF_COLLECTIVE | DS_OPF_HOST)))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "%s in a model: the shard pass makes communication",
                            ds_op_name(op->code));
    if (!desc) return DS_OK; /* yield, return */
    const char *name = ds_path_op_name(func, op);
    match(s, loops, join_names(s, calls, name));
    DS_PUSH(&s->arena, &s->paths, join_names(s, path, name));
    return DS_OK;
}

static ds_status scan_block(scanner *s, const ds_func *func, const ds_block *block,
                            const ds_path_loop *loops, const char *calls, const char *path,
                            ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++)
        DS_TRY(scan_op(s, func, block->ops[i], loops, calls, path, err));
    return DS_OK;
}

/* ---- patterns that match nothing ---- */

static ds_status unmatched(const scanner *s, const path_pattern *p, ds_error *err) {
    const char *near = ds_suggest(p->text, s->paths.at, s->paths.n);
    ds_buf list = {0};
    if (near) ds_buf_printf(&list, "; did you mean \"%s\"?", near);
    for (uint32_t i = 0; i < s->paths.n && i < 6 && !near; i++)
        ds_buf_printf(&list, "%s%s", i ? ", " : "; there are ", s->paths.at[i]);
    if (s->paths.n > 6 && !near) ds_buf_put(&list, ", ...");
    ds_error_set(err, DS_ERR_NAME, p->loc, "\"%s\" is the path of no operation of @%s%s", p->text,
                 s->l->model->name, list.n ? list.text : "");
    ds_buf_deinit(&list);
    return DS_ERR_NAME;
}

/* Whether the forward op has the backward op, `shard` checks. */
static const char *forward_of(scanner *s, const char *pattern) {
    size_t n = strlen(pattern);
    while (n && !strchr("./", pattern[n - 1])) n--;
    bool is = n > 1 && s->l->step->train.on && ds_path_is_gradient(pattern + n);
    return is ? ds_arena_strndup(&s->arena, pattern, n - 1) : NULL;
}

static ds_status find_patterns(scanner *s, ds_error *err) {
    const ds_strategy *strategy = &s->l->step->strategy;
    const ds_attr *again = ds_scenario_find(s->l->source->unit, "strategy", "recompute");
    for (uint32_t i = 0; strategy->ops && i < strategy->ops->n_items; i++) {
        const ds_attr *item = &strategy->ops->items[i];
        path_pattern pattern = {item->name, forward_of(s, item->name), item->loc, false};
        DS_PUSH(&s->arena, &s->patterns, pattern);
    }
    for (uint32_t i = 0; i < strategy->n_recompute_ops; i++)
        DS_PUSH(&s->arena, &s->patterns,
                ((path_pattern){.text = strategy->recompute_ops[i], .loc = again->loc}));
    for (uint32_t i = 0; strategy->groups && i < strategy->groups->n_items; i++) {
        ds_op_group group;
        DS_TRY(ds_group_read(s->l->source, &strategy->groups->items[i], &group, err));
        for (uint32_t k = 0; k < group.n_ops; k++)
            DS_PUSH(&s->arena, &s->patterns,
                    ((path_pattern){group.ops[k], forward_of(s, group.ops[k]), group.loc, false}));
    }
    return DS_OK;
}

ds_status ds_lower__scan(ds_lowering *l, ds_error *err) {
    scanner s = {.l = l};
    ds_arena_init(&s.arena);
    ds_status status = find_patterns(&s, err);
    if (status == DS_OK) status = scan_block(&s, l->model, &l->model->body, NULL, "", "", err);
    if (l->step->train.on && l->step->train.loss != DS_LOSS_NONE) { /* `lower` adds the loss */
        match(&s, NULL, "loss");
        DS_PUSH(&s.arena, &s.paths, "loss");
    }
    for (uint32_t i = 0; i < s.patterns.n && status == DS_OK; i++)
        if (!s.patterns.at[i].matched) status = unmatched(&s, &s.patterns.at[i], err);
    l->n_ops = l->depth = 0;
    ds_arena_deinit(&s.arena);
    return status;
}
