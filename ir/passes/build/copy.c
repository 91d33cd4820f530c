/* Copying a function's body, op by op, loops included. */
#include "ir/passes/build/copy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void ds_copy_init(ds_copy *c, ds_builder *b, const ds_func *old) {
    *c = (ds_copy){.b = b, .old = old};
    c->map = ds_xmalloc((old->values.n + 1) * sizeof *c->map);
    memset(c->map, 0xff, (old->values.n + 1) * sizeof *c->map);
    ds_map_init(&c->ops);
    ds_build_reserve(b, old->values.n + old->values.n / 4);
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
    op->attrs = old->attrs;
    op->n_attrs = old->n_attrs;
    ds_map_put(&c->ops, DS_KEY(old), DS_KEY(op));
}

/* All operands of an op in the copy, in an array of the arena. */
static ds_status read_all(ds_copy *c, const ds_op *reader, ds_use **out, ds_error *err) {
    *out = DS_NEW_N(&c->b->unit->arena, ds_use, reader->n_in + 1);
    for (uint32_t i = 0; i < reader->n_in; i++) {
        const ds_use *use = &reader->in[i];
        if (c->read)
            DS_TRY(c->read(c->context, reader, use, &(*out)[i], err));
        else
            (*out)[i] = ds_copy_use(c, use);
    }
    return DS_OK;
}

static ds_status copy_table_op(ds_copy *c, const ds_op *old, ds_error *err) {
    ds_use *in;
    DS_TRY(read_all(c, old, &in, err));
    ds_op *op = ds_build_op(c->b, old->code);
    copy_head(c, old, op);
    op->in = in;
    op->n_in = old->n_in;
    for (uint32_t i = 0; i < old->n_out; i++)
        c->map[old->out[i].i] =
            ds_build_out(c->b, op, ds_value_at(c->old, old->out[i])->name, written(c, old->out[i]));
    if (c->extend) DS_TRY(c->extend(c->context, old, op, err));
    return ds_build_put(c->b, op, err);
}

/* Ends the loop; `from` gets the numbers of the old results that the new loop has. */
static ds_status copy_yield(ds_copy *c, const ds_op *old, uint32_t *from, uint32_t *n_from,
                            ds_error *err) {
    ds_arena *arena = &c->b->unit->arena;
    const ds_op *end = ds_block_end(old->body);
    if (!end || end->code != DS_OP_YIELD) return ds_build_yield(c->b, NULL, 0, NULL, 0, NULL, err);
    ds_use *uses = DS_NEW_N(arena, ds_use, end->n_in + 1);
    const char **names = DS_NEW_N(arena, const char *, end->n_in + 1);
    uint32_t n = 0, n_next = end->n_in - end->n_keep;
    for (uint32_t i = 0; i < end->n_in; i++) {
        if (i >= n_next && c->keeps && !c->keeps(c->context, old, i)) continue;
        if (c->read)
            DS_TRY(c->read(c->context, end, &end->in[i], &uses[n], err));
        else
            uses[n] = ds_copy_use(c, &end->in[i]);
        names[n] = ds_value_at(c->old, old->out[i])->name;
        from[n++] = i;
    }
    *n_from = n;
    return ds_build_yield(c->b, uses, n_next, uses + n_next, n - n_next, names, err);
}

static ds_status copy_for(ds_copy *c, const ds_op *old, ds_error *err) {
    ds_use *init;
    if (c->before) DS_TRY(c->before(c->context, old, err));
    DS_TRY(read_all(c, old, &init, err));
    ds_op *loop = ds_build_for(c->b, old->index, old->lo, old->hi);
    copy_head(c, old, loop);
    for (uint32_t i = 0; i < old->n_args; i++)
        c->map[old->args[i].i] = ds_build_carry(c->b, loop, ds_value_at(c->old, old->args[i])->name,
                                                written(c, old->args[i]), init[i]);
    DS_TRY(ds_copy_block(c, old->body, err));
    uint32_t *from = DS_NEW_N(&c->b->unit->arena, uint32_t, old->n_out + 1), n = 0;
    DS_TRY(copy_yield(c, old, from, &n, err));
    for (uint32_t i = 0; i < n; i++) {
        ds_value out = old->out[from[i]];
        c->map[out.i] = loop->out[i];
        const ds_value_info *was = ds_value_at(c->old, out);
        if (!was->type_written) continue;
        ds_value_info *info = ds_value_at(c->b->func, loop->out[i]);
        info->type = was->type;
        info->type_written = true;
        info->binders = was->binders;
        info->n_binders = was->n_binders;
    }
    return DS_OK;
}

/* A call copies as a call of the same function. */
static ds_status copy_call(ds_copy *c, const ds_op *old, ds_error *err) {
    ds_op *call = ds_build_op(c->b, DS_OP_CALL);
    copy_head(c, old, call);
    call->callee_name = old->callee_name;
    call->callee = old->callee;
    call->mesh_args = old->mesh_args;
    call->n_mesh_args = old->n_mesh_args;
    call->index_arg = old->index_arg;
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
