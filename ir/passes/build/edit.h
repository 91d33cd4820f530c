/* Changing functions in place: how passes over explicit programs add an op here, a carry there.
 *
 * Functions may share arrays of ops, uses and values, so an array is copied when it grows. The
 * unit's arena owns everything that is made. */
#ifndef DS_PASSES_BUILD_EDIT_H
#define DS_PASSES_BUILD_EDIT_H

#include "ir/passes/build/build.h"

typedef struct ds_edit {
    ds_unit *unit;
    ds_func *func;
    ds_map names; /* of the function's values */
    ds_room room_ops, room_uses, room_values;
} ds_edit;

void ds_edit_init(ds_edit *e, ds_unit *unit, ds_func *func);
void ds_edit_deinit(ds_edit *e);

void ds_edit_insert_op(ds_edit *e, ds_block *block, uint32_t at, ds_op *op);
void ds_edit_remove_op(ds_block *block, uint32_t at);
void ds_edit_insert_use(ds_edit *e, ds_use **uses, uint32_t *n, uint32_t at, ds_use use);
void ds_edit_insert_value(ds_edit *e, ds_value **values, uint32_t *n, uint32_t at, ds_value value);

/* A value of the wanted name, or of a similar free name. */
ds_value ds_edit_value(ds_edit *e, const char *wanted, const ds_type *type, ds_op *def,
                       bool is_arg);
/* An op of one operand and one result of that type; not yet in a block. */
ds_op *ds_edit_unary(ds_edit *e, ds_opcode code, const char *name, ds_use use, const ds_type *type);
/* A view of `use` that waits; not yet in a block. ds_edit_wait adds a value for which the view
 * waits, but never a value on another mesh (an override's), since an op never moves data. */
ds_op *ds_edit_after(ds_edit *e, const char *name, ds_use use);
void ds_edit_wait(ds_edit *e, ds_op *after, ds_use use);
/* Inserts a carry of a loop as carry `at`; returns the carry's use inside the body. After the body
 * is complete, ds_edit_yield gives the carry its next value and returns the use of its result.
 * Several carries are yielded in the order in which they were inserted. */
ds_use ds_edit_carry(ds_edit *e, ds_op *loop, uint32_t at, const char *name, ds_use init);
ds_use ds_edit_yield(ds_edit *e, ds_op *loop, uint32_t at, const char *name, ds_use next);

/* The type of a use, with indices substituted. */
const ds_type *ds_edit_type(const ds_edit *e, const ds_use *use);
/* The position in the block of the op that makes the value; n_ops: the op is elsewhere. */
uint32_t ds_block_find(const ds_func *func, const ds_block *block, ds_value value);

/* Marks the values that updates (ops of DS_OPF_OPTIMIZER) read, directly or through views: value →
 * 1. */
void ds_mark_updates(const ds_block *block, ds_map *out);
bool ds_is_update(const ds_op *op);

#endif
