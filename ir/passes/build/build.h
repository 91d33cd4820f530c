/* Making functions: what passes write with.
 *
 * A builder holds one function that is being made and the blocks that are open in it. An op is
 * created, given operands, attributes and results, and put: its result types are inferred by the op
 * table, as the verifier would. What is made belongs to the unit's arena.
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

/* Which array of its kind grew last, and for how many elements it has room. All others are copied
 * when they grow, since they may be shared. */
typedef struct ds_room {
    void *array;
    uint32_t n;
} ds_room;
/* Room for one more element before element `at` of an array of n, in the arena; returns the array,
 * which may have moved. O(n − at) amortized while one array grows, O(n) for another one. */
void *ds_room_insert(ds_room *room, ds_arena *arena, void *array, uint32_t n, uint32_t at,
                     size_t size);

typedef struct ds_builder {
    ds_unit *unit;
    ds_func *func;
    bool hints;           /* a model: splits in types are hints, inference does not see them */
    bool resumed;         /* the function's body is not the builder's */
    ds_build_block *open; /* innermost */
    ds_map names;         /* interned name → how many values wanted it; 0: free again */
    DS_VEC(const char *) taken; /* the names in order of their taking */
    ds_map plain;               /* types of a model, with hints → without */
    const char **manual;        /* axes of the open local regions */
    uint32_t n_manual;
    ds_room room_in, room_out, room_args;
    /* Sizes of mesh axes where known, for inference (as in ds_infer); may be NULL. */
    bool (*axis_size)(void *context, const ds_place *on, const char *axis, int64_t *size);
    void *context;
} ds_builder;

/* Begins @name. `hints` as above. */
void ds_build_func(ds_builder *b, ds_module *module, const char *name, bool hints);
/* Makes room for n values in all, where it is known that there will be about so many. */
void ds_build_reserve(ds_builder *b, uint32_t n);
/* Ends the function and gives the builder's memory back; after an error likewise. */
ds_func *ds_build_end(ds_builder *b);

/* Goes on with a function that is there: what is put stands in a block of its own, until it is
 * taken, for the caller to put in its place. ds_build_end gives the builder's memory back. */
void ds_build_resume(ds_builder *b, ds_func *func);
ds_block ds_build_take(ds_builder *b);

/* An interned name that no value of the function has yet: `wanted`, or wanted_2, wanted_3, … */
const char *ds_build_name(ds_builder *b, const char *wanted);

/* An argument, in order; a family if n_binders. */
ds_value ds_build_arg(ds_builder *b, const char *name, const ds_type *type,
                      const ds_binder *binders, uint32_t n_binders, const ds_attr *attrs,
                      uint32_t n_attrs);

/* A point to which the function can be taken back: what was made since is forgotten, its names are
 * free again. The open blocks must be those of the mark, and others inside them. */
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
/* The type of what a use reads, indices put in; a whole family: its element type. NULL where the
 * value has no type. */
const ds_type *ds_use_type(ds_unit *unit, const ds_func *func, const ds_use *use);

/* ---- ops ---- */

ds_op *ds_build_op(ds_builder *b, ds_opcode code);
void ds_build_in(ds_builder *b, ds_op *op, ds_use use);
/* Adds a result; its name is made unique. `type`: what is written (NULL: inferred). */
ds_value ds_build_out(ds_builder *b, ds_op *op, const char *name, const ds_type *type);
/* Infers the results' types and appends the op to the innermost open block. For a call: set callee
 * first, and give every result its type. Errors: those of ds_op_infer. */
ds_status ds_build_put(ds_builder *b, ds_op *op, ds_error *err);
/* Appends an op whose results have their types. */
void ds_build_append(ds_builder *b, ds_op *op);
/* The op that was put (or the region that was ended) last in the open block. */
ds_op *ds_build_last(const ds_builder *b);
/* Is the value made in the innermost open block? O(ops of the block). */
bool ds_build_is_inner(const ds_builder *b, ds_value value);
/* The common case: one result, no attributes. */
ds_status ds_build_unary(ds_builder *b, ds_opcode code, const char *name, ds_use x, ds_value *out,
                         ds_error *err);
ds_status ds_build_binary(ds_builder *b, ds_opcode code, const char *name, ds_use x, ds_use y,
                          ds_value *out, ds_error *err);

/* Attributes; names and texts are interned. Setting one that is there replaces it; the array is
 * made anew, so that ops may share theirs. */
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

/* for index in lo..hi; then its carries; then its body; then the yield, which ends it. Carries and
 * results are op->args and op->out: first the carries' final values, then a family per kept value.
 */
ds_op *ds_build_for(ds_builder *b, const char *index, ds_expr lo, ds_expr hi);
/* A carry; call before anything is put into the body. `type` NULL: that of init. */
ds_value ds_build_carry(ds_builder *b, ds_op *loop, const char *name, const ds_type *type,
                        ds_use init);
/* Ends the loop: `next` one a carry, `kept` the values to keep. Results are named after the
 * carries and the kept values, unless names are given (n_next + n_kept of them, may hold NULLs). */
ds_status ds_build_yield(ds_builder *b, const ds_use *next, uint32_t n_next, const ds_use *kept,
                         uint32_t n_kept, const char *const *names, ds_error *err);
/* One more kept value of a loop that has ended: its family over the loop's turns. */
ds_value ds_build_keep(ds_builder *b, ds_op *loop, ds_value inner, const char *name);

/* local over (axes) (operands) -> types; op->args are the operands inside, with shard types (the
 * axes' sizes come from axis_size). Ends with ds_build_yield_local. */
ds_status ds_build_local(ds_builder *b, const char *const *axes, uint32_t n_axes,
                         const ds_use *operands, uint32_t n, ds_op **out, ds_error *err);
ds_status ds_build_yield_local(ds_builder *b, const ds_use *results, const ds_type *const *types,
                               uint32_t n, const char *const *names, ds_error *err);

/* Ends a region whose results are values that the function has already: from now on this op makes
 * them, with the types that they have. */
void ds_build_end_local(ds_builder *b, const ds_use *results, const ds_value *out, uint32_t n);

/* Ends the function's body; the function's result types are those of the uses, families included.
 */
ds_status ds_build_return(ds_builder *b, const ds_use *results, uint32_t n, ds_error *err);

/* ---- types ---- */

/* dtype[dims], plain. */
ds_type *ds_type_make(ds_arena *arena, ds_dtype dtype, const ds_expr *dims, uint32_t rank);

#endif
