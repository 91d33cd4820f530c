/* Which ops are forward, which are backward, and which families the forward pass keeps for itself.
 *
 * An op of the function's body is forward if a result of the model depends on it; a loop is forward
 * as a whole. All other ops are the backward pass and the updates. A family that a forward loop
 * keeps is *wanted* if the loop must keep it even without the backward pass's reads of elements:
 * forward ops read the family, the function returns it, or an op reads it whole. */
#include "ir/passes/recompute/internal.h"

#include <stdlib.h>

static void number_ops(ds_again *a, const ds_block *block, const ds_again_loop *home) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        ds_map_put(&a->number, DS_KEY(op), a->ops.n);
        DS_PUSH(&a->unit->arena, &a->ops, ((ds_again_op){.op = op, .home = home}));
        for (uint32_t k = 0; k < op->n_out; k++) a->home[op->out[k].i] = home;
        if (op->code != DS_OP_FOR) continue;
        ds_again_loop *loop = DS_NEW(&a->unit->arena, ds_again_loop);
        *loop = (ds_again_loop){.op = op, .up = (ds_again_loop *)home, .depth = 1};
        if (home) loop->depth = home->depth + 1;
        for (uint32_t k = 0; k < op->n_args; k++) a->home[op->args[k].i] = loop;
        number_ops(a, op->body, loop);
    }
}

ds_again_op *ds_again__op(const ds_again *a, const ds_op *op) {
    const uint64_t *found = op ? ds_map_find(&a->number, DS_KEY(op)) : NULL;
    return found ? &a->ops.at[*found] : NULL;
}

ds_again_op *ds_again__def(const ds_again *a, ds_value value) {
    const ds_value_info *info = ds_value_at(a->old, value);
    return info->is_arg ? NULL : ds_again__op(a, info->def);
}

/* ---- forward ---- */

static void need_all(const ds_op *op, bool *needed) {
    for (uint32_t i = 0; i < op->n_in; i++) needed[op->in[i].value.i] = true;
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++) need_all(op->body->ops[i], needed);
}

static void set_forward(ds_again *a, const ds_op *op) {
    ds_again__op(a, op)->forward = true;
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++) set_forward(a, op->body->ops[i]);
}

static void find_forward(ds_again *a) {
    const ds_block *body = &a->old->body;
    const ds_op *end = ds_block_end(body);
    bool *needed = ds_xcalloc(a->old->values.n + 1, sizeof *needed);
    for (uint32_t i = 0; i < a->step->n_model_results && i < end->n_in; i++)
        needed[end->in[i].value.i] = true;
    for (uint32_t i = body->n_ops - 1; i-- > 0;) {
        const ds_op *op = body->ops[i];
        bool is = false;
        for (uint32_t k = 0; k < op->n_out; k++) is = is || needed[op->out[k].i];
        if (!is) continue;
        set_forward(a, op);
        need_all(op, needed);
    }
    free(needed);
}

/* ---- wanted ---- */

static bool is_whole(const ds_again *a, const ds_use *use) {
    return use->index_hi || (ds_value_at(a->old, use->value)->n_binders && !use->n_index);
}

static void note_wanted(ds_again *a, const ds_again_op *reader, const ds_use *use) {
    bool returned = reader->op->code == DS_OP_RETURN || reader->op->code == DS_OP_CALL;
    if (reader->forward || returned || is_whole(a, use)) a->wanted[use->value.i] = true;
}

/* Walks in reverse, so that all readers of a loop's families are known before the loop's yield is
 * read. */
static void find_wanted(ds_again *a, const ds_block *block) {
    for (uint32_t i = block->n_ops; i-- > 0;) {
        const ds_op *op = block->ops[i];
        const ds_again_op *info = ds_again__op(a, op);
        if (op->body) {
            const ds_op *yield = ds_block_end(op->body);
            for (uint32_t k = 0; k < yield->n_in; k++)
                if (k < op->n_args || a->wanted[op->out[k].i])
                    note_wanted(a, ds_again__op(a, yield), &yield->in[k]);
            find_wanted(a, op->body);
        }
        if (op->code == DS_OP_YIELD) continue;
        for (uint32_t k = 0; k < op->n_in; k++) note_wanted(a, info, &op->in[k]);
    }
}

void ds_again__scan(ds_again *a) {
    number_ops(a, &a->old->body, NULL);
    find_forward(a);
    find_wanted(a, &a->old->body);
}
