/* Copying ops of a sharded function into another function, on the mesh slice of a stage. Only the
 * place in a type changes, so no type is inferred anew. */
#include "ir/passes/pipeline/emit.h"

#include <stdlib.h>
#include <string.h>

static ds_arena *arena_of(const ds_pipe_copy *c) {
    return &c->b->unit->arena;
}

void ds_pipe_uses(const ds_op *op, void (*visit)(void *context, const ds_use *use), void *context) {
    for (uint32_t i = 0; i < op->n_in; i++) visit(context, &op->in[i]);
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++)
        ds_pipe_uses(op->body->ops[i], visit, context);
}

ds_type *ds_pipe__place(ds_pipe_copy *c, const ds_type *type) {
    const uint64_t *found = type ? ds_map_find(c->types, DS_KEY(type)) : NULL;
    if (!type) return NULL;
    if (found) return (ds_type *)(uintptr_t)*found;
    ds_type *placed = DS_NEW(arena_of(c), ds_type);
    *placed = *type;
    if (!c->pipe || !ds_pipe__is_apart(c->pipe, type)) placed->on = c->place;
    ds_map_put(c->types, DS_KEY(type), DS_KEY(placed));
    return placed;
}

/* The length of a chunk's mark, `.c12`, at the begin of a text; 0: there is none. */
static size_t chunk_mark(const ds_pipe_copy *c, const char *text) {
    char *end;
    if (text[0] != '.' || text[1] != 'c' || text[2] < '0' || text[2] > '9') return 0;
    bool chunk = strtoul(text + 2, &end, 10) < c->n_chunks;
    return chunk && (!*end || *end == '.' || *end == '_') ? (size_t)(end - text) : 0;
}

/* l.ln1.c3.kept → l.ln1.kept */
static const char *without_chunk(const ds_pipe_copy *c, const char *name) {
    char *copy = ds_arena_strdup(arena_of(c), name), *to = copy;
    for (size_t mark; *name; name += mark) {
        mark = chunk_mark(c, name);
        if (mark) continue;
        *to++ = *name;
        mark = 1;
    }
    *to = '\0';
    return copy;
}

ds_value ds_pipe__value(ds_pipe_copy *c, ds_value old, const char *name, ds_op *def) {
    ds_value value = {c->b->func->values.n};
    ds_value_info info = *ds_value_at(c->old, old);
    if (c->copy) name = ds_pipe__rename(c->pipe, name, c->copy);
    if (c->n_chunks) name = without_chunk(c, name);
    info.name = ds_build_name(c->b, name);
    info.type = ds_pipe__place(c, info.type);
    info.def = def;
    DS_PUSH(arena_of(c), &c->b->func->values, info);
    c->map[old.i] = value;
    return value;
}

static ds_value *copy_values(ds_pipe_copy *c, const ds_value *old, uint32_t n, ds_op *def) {
    ds_value *values = DS_NEW_N(arena_of(c), ds_value, n + 1);
    for (uint32_t i = 0; i < n; i++)
        values[i] = ds_pipe__value(c, old[i], ds_value_at(c->old, old[i])->name, def);
    return values;
}

/* Inside a local region an operand has its outer name. */
static void name_operands(ds_pipe_copy *c, const ds_op *op) {
    ds_func *func = c->b->func;
    for (uint32_t i = 0; i < op->n_args; i++)
        ds_value_at(func, op->args[i])->name = ds_value_at(func, op->in[i].value)->name;
}

static ds_op *copy_op(ds_pipe_copy *c, const ds_op *old) {
    ds_op *op = DS_NEW(arena_of(c), ds_op);
    *op = *old;
    op->in = DS_NEW_N(arena_of(c), ds_use, old->n_in + 1);
    for (uint32_t i = 0; i < old->n_in; i++) {
        op->in[i] = old->in[i];
        op->in[i].value = c->map[old->in[i].value.i];
    }
    op->args = copy_values(c, old->args, old->n_args, op);
    if (op->code == DS_OP_LOCAL) name_operands(c, op);
    for (uint32_t i = 0; op->result_types && i < old->n_out; i++) {
        if (!i) op->result_types = DS_NEW_N(arena_of(c), ds_type *, old->n_out);
        op->result_types[i] = ds_pipe__place(c, old->result_types[i]);
    }
    if (old->body) {
        op->body = DS_NEW(arena_of(c), ds_block);
        *op->body = *old->body;
        op->body->ops = DS_NEW_N(arena_of(c), ds_op *, old->body->n_ops + 1);
        for (uint32_t i = 0; i < old->body->n_ops; i++)
            op->body->ops[i] = copy_op(c, old->body->ops[i]);
    }
    op->out = copy_values(c, old->out, old->n_out, op);
    return op;
}

ds_op *ds_pipe__copy_op(ds_pipe_copy *c, const ds_op *op) {
    ds_op *copy = copy_op(c, op);
    ds_build_append(c->b, copy);
    return copy;
}
