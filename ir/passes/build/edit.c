/* Changing functions in place. */
#include "ir/passes/build/edit.h"

#include "ir/passes/build/copy.h"

#include <string.h>

void ds_edit_init(ds_edit *e, ds_unit *unit, ds_func *func) {
    *e = (ds_edit){.unit = unit, .func = func};
    ds_map_init(&e->names);
    ds_map_reserve(&e->names, func->values.n + func->values.n / 8);
    for (uint32_t i = 0; i < func->values.n; i++)
        ds_map_put(&e->names, DS_KEY(func->values.at[i].name), 1);
}

void ds_edit_deinit(ds_edit *e) {
    ds_map_deinit(&e->names);
}

/* ---- arrays ---- */

void ds_edit_insert_op(ds_edit *e, ds_block *block, uint32_t at, ds_op *op) {
    block->ops = ds_room_insert(&e->room_ops, &e->unit->arena, block->ops, block->n_ops, at,
                                sizeof(ds_op *));
    block->ops[at] = op;
    block->n_ops++;
}

void ds_edit_remove_op(ds_block *block, uint32_t at) {
    block->n_ops--;
    memmove(&block->ops[at], &block->ops[at + 1], (block->n_ops - at) * sizeof(ds_op *));
}

void ds_edit_insert_use(ds_edit *e, ds_use **uses, uint32_t *n, uint32_t at, ds_use use) {
    *uses = ds_room_insert(&e->room_uses, &e->unit->arena, *uses, *n, at, sizeof use);
    (*uses)[at] = use;
    ++*n;
}

void ds_edit_insert_value(ds_edit *e, ds_value **values, uint32_t *n, uint32_t at, ds_value value) {
    *values = ds_room_insert(&e->room_values, &e->unit->arena, *values, *n, at, sizeof value);
    (*values)[at] = value;
    ++*n;
}

/* ---- values and ops ---- */

/* A taken name is never freed, so the search for a free number begins at the last number. */
static const char *free_name(ds_edit *e, const char *wanted) {
    const uint64_t *last = ds_map_find(&e->names, DS_KEY(wanted));
    if (!last) return wanted;
    for (uint64_t i = *last + 1;; i++) {
        const char *name =
            ds_intern(&e->unit->strings, ds_arena_numbered(&e->unit->arena, wanted, "_", i));
        if (ds_map_find(&e->names, DS_KEY(name))) continue;
        ds_map_put(&e->names, DS_KEY(wanted), i);
        return name;
    }
}

ds_value ds_edit_value(ds_edit *e, const char *wanted, const ds_type *type, ds_op *def,
                       bool is_arg) {
    ds_arena *arena = &e->unit->arena;
    const char *name = free_name(e, ds_intern(&e->unit->strings, wanted));
    ds_map_put(&e->names, DS_KEY(name), 1);
    ds_value value = {e->func->values.n};
    ds_value_info info = {.name = name,
                          .type = (ds_type *)type,
                          .type_written = is_arg,
                          .def = def,
                          .is_arg = is_arg};
    DS_PUSH(arena, &e->func->values, info);
    return value;
}

ds_op *ds_edit_unary(ds_edit *e, ds_opcode code, const char *name, ds_use use,
                     const ds_type *type) {
    ds_op *op = DS_NEW(&e->unit->arena, ds_op);
    op->code = code;
    ds_edit_insert_use(e, &op->in, &op->n_in, 0, use);
    ds_edit_insert_value(e, &op->out, &op->n_out, 0, ds_edit_value(e, name, type, op, false));
    return op;
}

ds_op *ds_edit_after(ds_edit *e, const char *name, ds_use use) {
    return ds_edit_unary(e, DS_OP_AFTER, name, use, ds_edit_type(e, &use));
}

void ds_edit_wait(ds_edit *e, ds_op *after, ds_use use) {
    if (ds_place_equal(&e->unit->exprs, &ds_edit_type(e, &after->in[0])->on,
                       &ds_edit_type(e, &use)->on) == DS_YES)
        ds_edit_insert_use(e, &after->in, &after->n_in, after->n_in, use);
}

ds_use ds_edit_carry(ds_edit *e, ds_op *loop, uint32_t at, const char *name, ds_use init) {
    ds_value arg = ds_edit_value(e, name, ds_edit_type(e, &init), loop, true);
    ds_edit_insert_use(e, &loop->in, &loop->n_in, at, init);
    ds_edit_insert_value(e, &loop->args, &loop->n_args, at, arg);
    return ds_use_of(arg);
}

ds_use ds_edit_yield(ds_edit *e, ds_op *loop, uint32_t at, const char *name, ds_use next) {
    ds_op *yield = loop->body->ops[loop->body->n_ops - 1];
    ds_value out = ds_edit_value(e, name, ds_value_at(e->func, loop->args[at])->type, loop, false);
    ds_edit_insert_use(e, &yield->in, &yield->n_in, at, next);
    ds_edit_insert_value(e, &loop->out, &loop->n_out, at, out);
    return ds_use_of(out);
}

/* ---- questions ---- */

const ds_type *ds_edit_type(const ds_edit *e, const ds_use *use) {
    return ds_use_type(e->unit, e->func, use);
}

uint32_t ds_block_find(const ds_func *func, const ds_block *block, ds_value value) {
    const ds_value_info *info = ds_value_at(func, value);
    uint32_t i = 0;
    while (i < block->n_ops && (info->is_arg || block->ops[i] != info->def)) i++;
    return i;
}

bool ds_is_update(const ds_op *op) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    return desc && desc->flags & DS_OPF_OPTIMIZER;
}

/* Walks in reverse, so that a view's readers are known before the view. */
void ds_mark_updates(const ds_block *block, ds_map *out) {
    for (uint32_t i = block->n_ops; i-- > 0;) {
        const ds_op *op = block->ops[i];
        const ds_op_desc *desc = ds_op_desc_of(op->code);
        bool view = desc && desc->flags & DS_OPF_VIEW && ds_map_find(out, op->out[0].i);
        for (uint32_t k = 0; k < op->n_in && (view ? k == 0 : ds_is_update(op)); k++)
            ds_map_put(out, op->in[k].value.i, 1);
        if (op->body) ds_mark_updates(op->body, out);
    }
}
