/* Copying a function's body into one under construction: how a pass keeps ops that it does not
 * change.
 *
 * Values are looked up in `map`, old value → new value, which the caller fills for arguments. Loops
 * are kept; `ops` has the new op of each old one. Local regions and weights are refused, because no
 * step has any before `shard`. */
#ifndef DS_PASSES_BUILD_COPY_H
#define DS_PASSES_BUILD_COPY_H

#include "ir/passes/build/build.h"

typedef struct ds_copy {
    ds_builder *b;
    const ds_func *old;
    ds_value *map; /* old value → new value; UINT32_MAX: not made yet */
    ds_map ops;    /* old op → new op */
    /* Called before an op is put, to add results or attributes; may be NULL. */
    ds_status (*extend)(void *context, const ds_op *old, ds_op *op, ds_error *err);
    /* Gives the use that the copy of `reader` has for an old use; may put ops before the copy.
     * NULL: ds_copy_use. */
    ds_status (*read)(void *context, const ds_op *reader, const ds_use *use, ds_use *out,
                      ds_error *err);
    /* Does the copy of the loop keep result i of the old loop? NULL: every result. */
    bool (*keeps)(void *context, const ds_op *loop, uint32_t i);
    /* Called before a loop is copied, to put ops before it; may be NULL. */
    ds_status (*before)(void *context, const ds_op *loop, ds_error *err);
    void *context;
} ds_copy;

/* Begins with an empty map; the builder must outlive the copy. */
void ds_copy_init(ds_copy *c, ds_builder *b, const ds_func *old);
void ds_copy_deinit(ds_copy *c);
/* Adds a copy of argument i, with its name and attributes. */
ds_value ds_copy_arg(ds_copy *c, uint32_t i);
/* Copies all ops of the block but the last, the yield or return. Errors: DS_ERR_UNSUPPORTED.
 * O(ops). */
ds_status ds_copy_block(ds_copy *c, const ds_block *block, ds_error *err);
ds_use ds_copy_use(const ds_copy *c, const ds_use *use);
/* The op that ends a block; NULL if it is empty. */
const ds_op *ds_block_end(const ds_block *block);
/* A copy of attributes, to be changed without changing the old attributes. */
ds_attr *ds_copy_attrs(ds_arena *arena, const ds_attr *attrs, uint32_t n);

#endif
