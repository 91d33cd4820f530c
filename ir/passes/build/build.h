/* Making functions: the builder with which passes write ops.
 *
 * A builder holds one function under construction and the function's open blocks. A pass creates an
 * op, adds operands, attributes and results, and puts the op: the op table infers the result types,
 * as in the verifier. The unit's arena owns everything that a builder makes.
 *
 *     ds_builder b;
 *     ds_build_func(&b, module, "step", true);
 *     ds_value x = ds_build_arg(&b, "x", type, NULL, 0, NULL, 0);
 *     ds_op *op = ds_build_op(&b, DS_OP_RELU);
 *     ds_build_in(&b, op, ds_use_of(x));
 *     ds_build_out(&b, op, "y", NULL);
 *     DS_TRY(ds_build_put(&b, op, err));                  // ds_value: op->out[0]
 *     DS_TRY(ds_build_return(&b, uses, n, err));
 *     ds_func *f = ds_build_end(&b);                      // not yet among the module's functions
 */
#ifndef DS_PASSES_BUILD_BUILD_H
#define DS_PASSES_BUILD_BUILD_H

#include "ir/base/map.h"
#include "ir/core/ir.h"
#include "ir/ops/ops.h"

typedef struct ds_build_block ds_build_block;

/* The array of one kind that grew last, and the number of elements for which that array has room.
 * Every other array is copied when it grows, since ops may share it. */
typedef struct ds_room {
    void *array;
    uint32_t n;
} ds_room;
/* Room for one more element before element `at` of an array of n, in the arena; returns the array,
 * which may have moved. O(n − at) amortized while the same array grows, O(n) at a change of
 * array. */
void *ds_room_insert(ds_room *room, ds_arena *arena, void *array, uint32_t n, uint32_t at,
                     size_t size);

typedef struct ds_builder {
    ds_unit *unit;
    ds_func *func;
    bool hints;           /* a model: splits in types are hints, which inference ignores */
    bool resumed;         /* the function's body is not the builder's */
    ds_build_block *open; /* innermost */
    ds_map names; /* interned name → number of values that wanted the name; 0: free again */
    DS_VEC(const char *) taken; /* the names in the order in which they were taken */
    ds_map plain;               /* types of a model, with hints → without */
    const char **manual;        /* axes of the open local regions */
    uint32_t n_manual;
    ds_room room_in, room_out, room_args;
    /* Gives inference the known sizes of mesh axes (as in ds_infer); may be NULL. */
    bool (*axis_size)(void *context, const ds_place *on, const char *axis, int64_t *size);
    void *context;
} ds_builder;

/* Begins @name. `hints`: see ds_builder. */
void ds_build_func(ds_builder *b, ds_module *module, const char *name, bool hints);
/* Makes room for about n values in all. */
void ds_build_reserve(ds_builder *b, uint32_t n);
/* Ends the function and frees the builder's memory; to be called after an error too. */
ds_func *ds_build_end(ds_builder *b);

/* Resumes an existing function: ops are put into a separate block. ds_build_take returns this
 * block, for the caller to place; ds_build_end frees the builder's memory. */
void ds_build_resume(ds_builder *b, ds_func *func);
ds_block ds_build_take(ds_builder *b);

/* An interned name that no value of the function has yet: `wanted`, or wanted_2, wanted_3, … */
const char *ds_build_name(ds_builder *b, const char *wanted);

/* An argument, in order; a family if n_binders. */
ds_value ds_build_arg(ds_builder *b, const char *name, const ds_type *type,
                      const ds_binder *binders, uint32_t n_binders, const ds_attr *attrs,
                      uint32_t n_attrs);

/* A point to which the function can return: values, ops and names that were made after the mark are
 * forgotten. The blocks that were open at the mark must still be open; blocks inside them may be
 * open too. */
typedef struct ds_build_mark {
    uint32_t n_values, n_taken, n_ops, n_manual;
    const ds_build_block *open;
} ds_build_mark;
ds_build_mark ds_build_here(const ds_builder *b);
void ds_build_back(ds_builder *b, ds_build_mark mark);

/* ---- uses ---- */

ds_use ds_use_of(ds_value value);
/* %v{i} */
ds_use ds_use_at(ds_arena *arena, ds_value value, const ds_expr *index, uint32_t n);
/* The type of a use, with indices substituted; for a whole family the element type. NULL if the
 * value has no type. */
const ds_type *ds_use_type(ds_unit *unit, const ds_func *func, const ds_use *use);

/* ---- ops ---- */

ds_op *ds_build_op(ds_builder *b, ds_opcode code);
void ds_build_in(ds_builder *b, ds_op *op, ds_use use);
/* Adds a result; its name is made unique. `type`: the written type (NULL: inferred). */
ds_value ds_build_out(ds_builder *b, ds_op *op, const char *name, const ds_type *type);
/* Infers the results' types and appends the op to the innermost open block. For a call: set callee
 * first, and give every result its type. Errors: those of ds_op_infer. */
ds_status ds_build_put(ds_builder *b, ds_op *op, ds_error *err);
/* Appends an op whose results have their types. */
void ds_build_append(ds_builder *b, ds_op *op);
/* The op that was last put, or the region that was last ended, in the open block. */
ds_op *ds_build_last(const ds_builder *b);
/* Is the value made in the innermost open block? O(ops of the block). */
bool ds_build_is_inner(const ds_builder *b, ds_value value);
/* The common case: one result, no attributes. */
ds_status ds_build_unary(ds_builder *b, ds_opcode code, const char *name, ds_use x, ds_value *out,
                         ds_error *err);
ds_status ds_build_binary(ds_builder *b, ds_opcode code, const char *name, ds_use x, ds_use y,
                          ds_value *out, ds_error *err);

/* Attributes; names and texts are interned. Setting an existing attribute replaces its value. The
 * array is made anew, so that ops may share arrays. */
void ds_build_attr(ds_builder *b, ds_op *op, ds_attr attr);
void ds_build_attr_expr(ds_builder *b, ds_op *op, const char *name, ds_expr value);
void ds_build_attr_int(ds_builder *b, ds_op *op, const char *name, int64_t value);
void ds_build_attr_real(ds_builder *b, ds_op *op, const char *name, double value);
void ds_build_attr_bool(ds_builder *b, ds_op *op, const char *name, bool value);
void ds_build_attr_word(ds_builder *b, ds_op *op, const char *name, const char *word);
void ds_build_attr_text(ds_builder *b, ds_op *op, const char *name, const char *text);
void ds_build_attr_exprs(ds_builder *b, ds_op *op, const char *name, const ds_expr *items,
                         uint32_t n);
/* One attribute outside an op, e.g. of an argument: {role = weight}. */
ds_attr ds_attr_of_word(ds_unit *unit, const char *name, const char *word);

/* ---- regions ---- */

/* Begins `for index in lo..hi`. Carries follow, then the body, then the yield, which ends the loop.
 * op->args has the carries; op->out the carries' final values, then a family per kept value. */
ds_op *ds_build_for(ds_builder *b, const char *index, ds_expr lo, ds_expr hi);
/* Adds a carry, before any op is put into the body. `type` NULL: the type of init. */
ds_value ds_build_carry(ds_builder *b, ds_op *loop, const char *name, const ds_type *type,
                        ds_use init);
/* Ends the loop: `next` has the next value of each carry, `kept` the values to keep. Results are
 * named after the
 * carries and the kept values, unless names are given (n_next + n_kept names, NULL for the
 * default). */
ds_status ds_build_yield(ds_builder *b, const ds_use *next, uint32_t n_next, const ds_use *kept,
                         uint32_t n_kept, const char *const *names, ds_error *err);
/* Keeps one more value of a loop that has ended; returns the family over the loop's turns. */
ds_value ds_build_keep(ds_builder *b, ds_op *loop, ds_value inner, const char *name);

/* local over (axes) (operands) -> types; op->args are the operands inside, with shard types (the
 * axes' sizes come from axis_size). Ends with ds_build_yield_local. */
ds_status ds_build_local(ds_builder *b, const char *const *axes, uint32_t n_axes,
                         const ds_use *operands, uint32_t n, ds_op **out, ds_error *err);
ds_status ds_build_yield_local(ds_builder *b, const ds_use *results, const ds_type *const *types,
                               uint32_t n, const char *const *names, ds_error *err);

/* Ends a region whose results are existing values of the function: this op now makes these values,
 * and their types stay. */
void ds_build_end_local(ds_builder *b, const ds_use *results, const ds_value *out, uint32_t n);

/* Ends the function's body; the function's result types are the uses' types, families included. */
ds_status ds_build_return(ds_builder *b, const ds_use *results, uint32_t n, ds_error *err);

/* ---- types ---- */

/* dtype[dims], plain. */
ds_type *ds_type_make(ds_arena *arena, ds_dtype dtype, const ds_expr *dims, uint32_t rank);

#endif
