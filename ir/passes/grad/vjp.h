/* What the gradients of ops are written with.
 *
 * For the old op `op`, whose results have gradients, a vjp reads forward values (in, out) and the
 * results' gradients (dy), puts ops, and gives their results to the operands. Names: the forward
 * op's name and a suffix, "fc1.dx"; a `name` attribute gets the same suffix, so that paths carry
 * over. */
#ifndef DS_PASSES_GRAD_VJP_H
#define DS_PASSES_GRAD_VJP_H

#include "ir/passes/grad/internal.h"

typedef struct ds_vjp {
    ds_grad *g;
    const ds_op *op;
} ds_vjp;

#define DS_LIKE_NONE UINT32_MAX

typedef ds_status ds_vjp_fn(ds_vjp *v, ds_error *err);

/* Is the gradient of operand i wanted? */
bool ds_vjp_wants(const ds_vjp *v, uint32_t i);
/* Has a gradient arrived for result r? */
bool ds_vjp_has(const ds_vjp *v, uint32_t r);
/* The gradient of result r as a value; zeros if none has arrived. */
ds_status ds_vjp_dy(ds_vjp *v, uint32_t r, ds_use *out, ds_error *err);
/* Operand i and result r as the backward pass reads them, and their types there. A number of
 * results beyond the op's own is that of the result it gained (ds_grad__extend). */
ds_use ds_vjp_in(ds_vjp *v, uint32_t i);
ds_use ds_vjp_out(ds_vjp *v, uint32_t r);
const ds_type *ds_vjp_in_type(ds_vjp *v, uint32_t i);
const ds_type *ds_vjp_out_type(ds_vjp *v, uint32_t r);

/* An op of the backward pass. */
ds_op *ds_vjp_op(ds_vjp *v, ds_opcode code);
void ds_vjp_read(ds_vjp *v, ds_op *op, ds_use use);
/* Copies those of the forward op's attributes that are in the list, which ends with NULL. */
void ds_vjp_attrs(ds_vjp *v, ds_op *op, const char *const *names);
/* Adds a result; its written type is that of operand `like`, if that was written. */
ds_value ds_vjp_result(ds_vjp *v, ds_op *op, const char *suffix, uint32_t like);
/* One result, and puts the op. */
ds_status ds_vjp_put(ds_vjp *v, ds_op *op, const char *suffix, uint32_t like, ds_use *out,
                     ds_error *err);
/* The op code(x, y), not put yet. */
ds_op *ds_vjp_binary(ds_vjp *v, ds_opcode code, ds_use x, ds_use y);
/* code(x) in one go. */
ds_status ds_vjp_unary(ds_vjp *v, ds_opcode code, ds_use x, const char *suffix, uint32_t like,
                       ds_use *out, ds_error *err);
/* Operand i's gradient: an op of its own made it. Cast to the operand's dtype. */
ds_status ds_vjp_give(ds_vjp *v, uint32_t i, ds_use use, ds_error *err);
/* Operand i's gradient is that of result 0 as it is. */
ds_status ds_vjp_pass(ds_vjp *v, uint32_t i, ds_error *err);
/* Sums what the broadcasting of operand i repeated (lower rank, dims of 1). */
ds_status ds_vjp_unbroadcast(ds_vjp *v, uint32_t i, const char *suffix, ds_use *use, bool *made,
                             ds_error *err);
/* `x` as a value of operand like's (LIKE_NONE: the given) shape. */
ds_status ds_vjp_reshape(ds_vjp *v, ds_use x, const ds_type *type, const char *suffix,
                         uint32_t like, ds_use *out, ds_error *err);
/* The gradient of a loss: `x` is right for an upstream gradient of 1. */
ds_status ds_vjp_upstream(ds_vjp *v, ds_use *x, const char *suffix, uint32_t like, ds_error *err);

/* An attribute that lists integers, or one; 0 if absent. At most DS_MAX_RANK. */
ds_status ds_vjp_ints(ds_vjp *v, const char *name, int64_t out[DS_MAX_RANK], uint32_t *n,
                      ds_error *err);
/* A dim attribute, default and negative numbers resolved. */
ds_status ds_vjp_dim(ds_vjp *v, const char *name, uint32_t rank, int64_t otherwise, uint32_t *out,
                     ds_error *err);
ds_expr ds_vjp_fold(ds_vjp *v, ds_expr_kind kind, ds_expr a, ds_expr b);
ds_expr ds_vjp_int(ds_vjp *v, int64_t i);

/* The functions that the op table names by VJP. */
#define VJP(f)                       ds_vjp_fn ds_vjp__##f;
#define OP(ID, MNEMONIC, ROOMS, ...) ROOMS
#include "ir/ops/ops.def"

#endif
