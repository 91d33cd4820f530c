/* Which ops run again, by the strategy's knob.
 *
 *   full       the bodies of loops: a turn of a loop is a layer, whose carries are kept, and every
 *              other value of the turn is made again. Outside of loops, the inlined calls: ops
 *              whose names begin alike, "a1.conv.y" and "a1.sum". Values of a call that other
 *              forward ops read are kept. All ops of a turn or a call run again, also ops whose
 *              results the backward pass does not use, as in torch.utils.checkpoint and Megatron.
 *   selective  the core of attention: the fused op; or, written out, the ops from the product of
 *              two activations to a softmax, the softmax, and its dropout.
 *   paths      the ops that match, each only if its results are needed; modules of a layer
 *              (modules.c). */
#include "ir/passes/build/path.h"
#include "ir/passes/recompute/internal.h"

#include <string.h>

static void choose_op(ds_again *a, ds_again_op *info, uint32_t group) {
    info->chosen = true;
    info->group = group;
    for (uint32_t k = 0; k < info->op->n_out; k++) a->again[info->op->out[k].i] = true;
}

static bool is_forward_op(const ds_again_op *info) {
    return info->forward && info->op->code >= DS_OP_FIRST_TABLE_OP;
}

/* ---- full ---- */

/* The outermost inlined call of an op outside of loops, by its name; NULL: none. */
static const char *call_of(const ds_again *a, const ds_again_op *info) {
    const char *name = ds_path_op_name(a->old, info->op), *dot = strchr(name, '.');
    if (!dot || info->home || !is_forward_op(info)) return NULL;
    return ds_intern_n(&a->unit->strings, name, (size_t)(dot - name));
}

/* Keeps values of a call that other forward ops read, or that are returned. */
static void keep_outputs(ds_again *a) {
    for (uint32_t i = 0; i < a->ops.n; i++) {
        const ds_again_op *reader = &a->ops.at[i];
        if (!reader->forward && reader->op->code != DS_OP_RETURN) continue;
        for (uint32_t k = 0; k < reader->op->n_in; k++) {
            ds_value value = reader->op->in[k].value;
            const ds_again_op *def = ds_again__def(a, value);
            if (def && !def->home && (reader->home || reader->group != def->group))
                a->again[value.i] = false;
        }
    }
}

/* Does the op make a result of the model? The backward pass begins right after the loss, so running
 * the loss's call again would free no memory in between. */
static bool makes_result(const ds_again *a, const ds_again_op *info) {
    const ds_op *end = ds_block_end(&a->old->body);
    for (uint32_t i = 0; i < a->step->n_model_results && i < end->n_in; i++)
        for (uint32_t k = 0; k < info->op->n_out; k++)
            if (info->op->out[k].i == end->in[i].value.i) return true;
    return false;
}

static uint32_t end_of_call(const ds_again *a, uint32_t i, bool *result) {
    const char *call = call_of(a, &a->ops.at[i]);
    *result = false;
    for (; i < a->ops.n && call_of(a, &a->ops.at[i]) == call; i++)
        *result = *result || makes_result(a, &a->ops.at[i]);
    return i;
}

/* Lets the carries of the loop over a block's turns be made again: only the block's first carries
 * are kept. */
static void choose_carries(ds_again *a, const ds_op *loop) {
    for (uint32_t i = 0; i < loop->n_args; i++) a->again[loop->args[i].i] = true;
}

static void choose_full(ds_again *a) {
    uint32_t group = 0;
    ds_map loops; /* loop → group */
    ds_map_init(&loops);
    for (uint32_t i = 0; i < a->ops.n; i++) {
        ds_again_op *info = &a->ops.at[i];
        if (!is_forward_op(info)) continue;
        if (info->home) {
            if (!ds_map_find(&loops, DS_KEY(info->home)))
                ds_map_put(&loops, DS_KEY(info->home), ++group);
            choose_op(a, info, (uint32_t)*ds_map_find(&loops, DS_KEY(info->home)));
            if (ds_map_find(&a->blocks, DS_KEY(info->home->op))) choose_carries(a, info->home->op);
        } else if (call_of(a, info)) {
            bool result;
            uint32_t end = end_of_call(a, i, &result);
            group++;
            for (uint32_t k = i; k < end && !result; k++) choose_op(a, &a->ops.at[k], group);
            i = end - 1;
        }
    }
    ds_map_deinit(&loops);
    keep_outputs(a);
}

/* ---- selective ---- */

static bool is_product(const ds_again_op *info) {
    ds_opcode code = info ? info->op->code : DS_OP_INVALID;
    return code == DS_OP_EINSUM || code == DS_OP_MATMUL;
}

bool ds_again__is_weight(const ds_again *a, ds_value value) {
    for (;;) {
        const ds_value_info *info = ds_value_at(a->old, value);
        if (info->is_arg && !info->def) {
            const ds_attr *role = ds_attr_find(info->attrs, info->n_attrs, "role");
            return role && role->word && strcmp(role->word, "weight") == 0;
        }
        if (info->is_arg || !info->def || info->def->code != DS_OP_CAST) return false;
        value = info->def->in[0].value;
    }
}

/* The product of two activations from which operand 0 comes, through ops that keep its shape. */
static bool find_scores(ds_again *a, const ds_op *op, uint32_t *from) {
    const ds_type *want = ds_value_at(a->old, op->out[0])->type;
    while (op->n_in && !op->in[0].n_index) {
        const ds_again_op *def = ds_again__def(a, op->in[0].value);
        if (!def || !is_forward_op(def)) return false;
        op = def->op;
        *from = (uint32_t)(def - a->ops.at);
        if (is_product(def))
            return op->n_in == 2 && !ds_again__is_weight(a, op->in[0].value) &&
                   !ds_again__is_weight(a, op->in[1].value);
        const ds_type *type = ds_value_at(a->old, op->out[0])->type;
        if (op->n_out != 1 || type->rank != want->rank) return false;
    }
    return false;
}

static bool is_read_by_product(const ds_again *a, ds_value value) {
    for (uint32_t i = 0; i < a->ops.n; i++) {
        const ds_again_op *info = &a->ops.at[i];
        if (!info->forward || !is_product(info)) continue;
        for (uint32_t k = 0; k < info->op->n_in; k++)
            if (info->op->in[k].value.i == value.i) return true;
    }
    return false;
}

/* The value's only forward reader, if this reader is a dropout or cast; else NULL. */
static ds_again_op *only_reader(ds_again *a, ds_value value) {
    ds_again_op *found = NULL;
    for (uint32_t i = 0; i < a->ops.n; i++) {
        ds_again_op *info = &a->ops.at[i];
        for (uint32_t k = 0; is_forward_op(info) && k < info->op->n_in; k++) {
            if (info->op->in[k].value.i != value.i) continue;
            if (found || (info->op->code != DS_OP_DROPOUT && info->op->code != DS_OP_CAST))
                return NULL;
            found = info;
        }
    }
    return found;
}

static void choose_written_out(ds_again *a, uint32_t softmax) {
    const ds_op *op = a->ops.at[softmax].op;
    ds_again_op *last = &a->ops.at[softmax];
    uint32_t from = softmax;
    if (!find_scores(a, op, &from)) return;
    while (!is_read_by_product(a, last->op->out[0])) {
        last = only_reader(a, last->op->out[0]);
        if (!last) return;
    }
    for (ds_again_op *at = last;; at = ds_again__def(a, at->op->in[0].value)) {
        choose_op(a, at, 0);
        if (at == &a->ops.at[from]) return;
    }
}

void ds_again__choose_attention(ds_again *a) {
    for (uint32_t i = 0; i < a->ops.n; i++) {
        ds_again_op *info = &a->ops.at[i];
        if (!is_forward_op(info)) continue;
        if (info->op->code == DS_OP_ATTENTION) choose_op(a, info, 0);
        if (info->op->code == DS_OP_SOFTMAX) choose_written_out(a, i);
    }
}

/* ---- paths ---- */

static bool matches(const ds_again *a, const ds_again_op *info, const ds_path_loop *loops) {
    const ds_strategy *strategy = &a->step->strategy;
    const char *name = ds_path_op_name(a->old, info->op);
    for (uint32_t i = 0; i < strategy->n_recompute_ops; i++)
        if (ds_path_match(strategy->recompute_ops[i], a->step->func->name, loops, name, NULL))
            return true;
    return false;
}

static void choose_paths(ds_again *a, const ds_block *block, const ds_path_loop *loops) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        ds_again_op *info = ds_again__op(a, op);
        if (op->code == DS_OP_FOR) {
            const ds_path_loop inside = {ds_path_loop_name(a->old, op), DS_ANY_TURN, loops};
            choose_paths(a, op->body, &inside);
        } else if (is_forward_op(info) && matches(a, info, loops)) {
            choose_op(a, info, 0);
        }
    }
}

/* ---- the knob ---- */

static ds_status nothing(const ds_again *a, ds_error *err) {
    const ds_strategy *s = &a->step->strategy;
    const char *why = s->recompute == DS_RECOMPUTE_OPS
                          ? "recompute: the model has none of the modules of the list"
                      : s->recompute == DS_RECOMPUTE_SELECTIVE
                          ? "recompute = selective: the model has no attention; full, \"every:K\" "
                            "or a list of paths say what else is to run again"
                          : "recompute: the model has neither loops nor calls before its loss; a "
                            "list of paths says what is to run again";
    return ds_error_set(err, DS_ERR_UNSUPPORTED, a->old->loc, "%s", why);
}

/* Chains the ops of each group, in program order. */
static void link_groups(ds_again *a) {
    ds_map last; /* group → its last op so far */
    ds_map_init(&last);
    for (uint32_t i = 0; i < a->ops.n; i++) {
        ds_again_op *op = &a->ops.at[i];
        const uint64_t *before = op->group ? ds_map_find(&last, op->group) : NULL;
        op->first = before ? a->ops.at[*before].first : i;
        if (before) a->ops.at[*before].next = i;
        if (op->group) ds_map_put(&last, op->group, i);
    }
    ds_map_deinit(&last);
}

/* Leaves out layers that recompute_layers leaves out, and what is in no layer. The step's loops
 * begin with the model's, in the order in which `stage` has made them. */
static void leave_out(ds_again *a) {
    const ds_block *body = &a->old->body;
    ds_map again; /* loop → its turns run again */
    ds_map_init(&again);
    for (uint32_t i = 0, n = 0; i < body->n_ops; i++)
        if (body->ops[i]->code == DS_OP_FOR && ds_step_layers_do(a->step, n++, DS_LAYERS_AGAIN))
            ds_map_put(&again, DS_KEY(body->ops[i]), 1);
    for (uint32_t i = 0; i < a->ops.n; i++) {
        ds_again_op *info = &a->ops.at[i];
        const ds_again_loop *loop = info->home;
        while (loop && loop->up) loop = loop->up;
        if (!info->chosen || (loop && ds_map_find(&again, DS_KEY(loop->op)))) continue;
        info->chosen = false;
        info->group = 0;
        for (uint32_t k = 0; k < info->op->n_out; k++) a->again[info->op->out[k].i] = false;
    }
    ds_map_deinit(&again);
}

ds_status ds_again__choose(ds_again *a, ds_error *err) {
    switch (a->step->strategy.recompute) {
    case DS_RECOMPUTE_SELECTIVE:
        ds_again__choose_attention(a);
        break;
    case DS_RECOMPUTE_OPS:
        choose_paths(a, &a->old->body, NULL);
        ds_again__choose_modules(a, a->step->strategy.recompute_modules);
        break;
    default:
        choose_full(a);
    }
    bool some = ds_step_tells_apart(a->step) & DS_LAYERS_AGAIN;
    if (some) leave_out(a);
    link_groups(a);
    for (uint32_t i = 0; i < a->ops.n; i++)
        if (a->ops.at[i].chosen) return DS_OK;
    return some ? DS_OK : nothing(a, err);
}
