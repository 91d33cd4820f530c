/* Copying a function's body, op by op, loops included. */
#include "ir/passes/copy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void ds_copy_init(ds_copy *c, ds_builder *b, const ds_func *old) {
    *c = (ds_copy){.b = b, .old = old};
    c->map = ds_xmalloc((old->values.n + 1) * sizeof *c->map);
    memset(c->map, 0xff, (old->values.n + 1) * sizeof *c->map);
    ds_map_init(&c->ops);
}

void ds_copy_deinit(ds_copy *c) {
    free(c->map);
    ds_map_deinit(&c->ops);
}

ds_value ds_copy_arg(ds_copy *c, uint32_t i) {
    ds_value old = c->old->args[i];
    const ds_value_info *info = ds_value_at(c->old, old);
    c->map[old.i] = ds_build_arg(c->b, info->name, info->type, info->binders, info->n_binders,
                                 info->attrs, info->n_attrs);
    ds_value_at(c->b->func, c->map[old.i])->loc = info->loc;
    return c->map[old.i];
}

ds_use ds_copy_use(const ds_copy *c, const ds_use *use) {
    ds_use copy = *use;
    copy.value = c->map[use->value.i];
    assert(copy.value.i != UINT32_MAX);
    return copy;
}

const ds_op *ds_block_end(const ds_block *block) {
    return block->n_ops ? block->ops[block->n_ops - 1] : NULL;
}

ds_attr *ds_copy_attrs(ds_arena *arena, const ds_attr *attrs, uint32_t n) {
    ds_attr *copy = DS_NEW_N(arena, ds_attr, n + 1);
    if (n) memcpy(copy, attrs, n * sizeof *copy);
    return copy;
}

static const ds_type *written(const ds_copy *c, ds_value old) {
    const ds_value_info *info = ds_value_at(c->old, old);
    return info->type_written ? info->type : NULL;
}

static void copy_head(ds_copy *c, const ds_op *old, ds_op *op) {
    op->loc = old->loc;
    op->trivia = old->trivia;
    op->attrs = ds_copy_attrs(&c->b->unit->arena, old->attrs, old->n_attrs);
    op->n_attrs = old->n_attrs;
    ds_map_put(&c->ops, DS_KEY(old), DS_KEY(op));
}

static ds_status copy_table_op(ds_copy *c, const ds_op *old, ds_error *err) {
    ds_op *op = ds_build_op(c->b, old->code);
    copy_head(c, old, op);
    for (uint32_t i = 0; i < old->n_in; i++) ds_build_in(c->b, op, ds_copy_use(c, &old->in[i]));
    for (uint32_t i = 0; i < old->n_out; i++)
        c->map[old->out[i].i] =
            ds_build_out(c->b, op, ds_value_at(c->old, old->out[i])->name, written(c, old->out[i]));
    if (c->extend) DS_TRY(c->extend(c->context, old, op, err));
    return ds_build_put(c->b, op, err);
}

static ds_status copy_for(ds_copy *c, const ds_op *old, ds_error *err) {
    ds_arena *arena = &c->b->unit->arena;
    ds_op *loop = ds_build_for(c->b, old->index, old->lo, old->hi);
    copy_head(c, old, loop);
    for (uint32_t i = 0; i < old->n_args; i++)
        c->map[old->args[i].i] =
            ds_build_carry(c->b, loop, ds_value_at(c->old, old->args[i])->name,
                           written(c, old->args[i]), ds_copy_use(c, &old->in[i]));
    DS_TRY(ds_copy_block(c, old->body, err));
    const ds_op *end = ds_block_end(old->body);
    const ds_op *yield = end && end->code == DS_OP_YIELD ? end : NULL;
    uint32_t n = yield ? yield->n_in : 0, n_keep = yield ? yield->n_keep : 0;
    ds_use *uses = DS_NEW_N(arena, ds_use, n + 1);
    const char **names = DS_NEW_N(arena, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        uses[i] = ds_copy_use(c, &yield->in[i]);
        names[i] = ds_value_at(c->old, old->out[i])->name;
    }
    DS_TRY(ds_build_yield(c->b, uses, n - n_keep, uses + (n - n_keep), n_keep, names, err));
    for (uint32_t i = 0; i < old->n_out; i++) {
        c->map[old->out[i].i] = loop->out[i];
        const ds_value_info *from = ds_value_at(c->old, old->out[i]);
        if (!from->type_written) continue;
        ds_value_info *info = ds_value_at(c->b->func, loop->out[i]);
        info->type = from->type;
        info->type_written = true;
        info->binders = from->binders;
        info->n_binders = from->n_binders;
    }
    return DS_OK;
}

/* What is called stays as it is. */
static ds_status copy_call(ds_copy *c, const ds_op *old, ds_error *err) {
    ds_op *call = ds_build_op(c->b, DS_OP_CALL);
    copy_head(c, old, call);
    call->callee_name = old->callee_name;
    call->callee = old->callee;
    call->mesh_args = old->mesh_args;
    call->n_mesh_args = old->n_mesh_args;
    for (uint32_t i = 0; i < old->n_in; i++) ds_build_in(c->b, call, ds_copy_use(c, &old->in[i]));
    for (uint32_t i = 0; i < old->n_out; i++) {
        const ds_value_info *from = ds_value_at(c->old, old->out[i]);
        ds_value out = ds_build_out(c->b, call, from->name, from->type);
        ds_value_info *info = ds_value_at(c->b->func, out);
        info->type_written = from->type_written;
        info->binders = from->binders;
        info->n_binders = from->n_binders;
        c->map[old->out[i].i] = out;
    }
    return ds_build_put(c->b, call, err);
}

ds_status ds_copy_block(ds_copy *c, const ds_block *block, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_YIELD || op->code == DS_OP_RETURN) continue;
        if (op->code == DS_OP_FOR) {
            DS_TRY(copy_for(c, op, err));
        } else if (op->code == DS_OP_CALL) {
            DS_TRY(copy_call(c, op, err));
        } else if (op->code >= DS_OP_FIRST_TABLE_OP) {
            DS_TRY(copy_table_op(c, op, err));
        } else {
            return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                                "%s: a step has operations, loops and calls alone here",
                                ds_op_name(op->code));
        }
    }
    return DS_OK;
}
