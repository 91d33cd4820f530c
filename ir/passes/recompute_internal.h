/* Shared by the files of the recomputation pass.
 *
 *   recompute.c         the pass: the step's functions, copied; what they read
 *   recompute_scan.c    forward and backward ops; what the forward pass keeps for itself
 *   recompute_choose.c  which ops run again
 *
 * "Old" is the function as grad left it, "new" the one being made. */
#ifndef DS_PASSES_RECOMPUTE_INTERNAL_H
#define DS_PASSES_RECOMPUTE_INTERNAL_H

#include "ir/passes/copy.h"
#include "ir/passes/passes.h"

#define DS_AGAIN_DEPTH (DS_MAX_RANK * 2) /* loops around an op */

/* A loop of the old function. */
typedef struct ds_again_loop {
    const ds_op *op;
    struct ds_again_loop *up;
    uint32_t depth; /* 1: no loop is around it */
    bool forward;
} ds_again_loop;

/* An op of the old function; they are numbered in program order. */
typedef struct ds_again_op {
    const ds_op *op;
    const ds_again_loop *home; /* around it, or NULL */
    bool forward;              /* the model's results depend on it, or on the loop that it is in */
    bool chosen;               /* it may run again */
    uint32_t group;            /* the ops of a group run again together; 0: each as it is needed */
} ds_again_op;

/* An op that has run again, for the turns `at` of the loops around it. */
typedef struct ds_again_made {
    uint32_t op;
    ds_expr at[DS_AGAIN_DEPTH];
    const ds_again_loop *where; /* the loop in which the copy is */
    const ds_op *made;
} ds_again_made;

typedef struct ds_again {
    ds_model_step *step;
    ds_unit *unit;
    const ds_func *old;
    ds_builder b;
    ds_copy copy;
    DS_VEC(ds_again_op) ops;    /* in the unit's arena */
    ds_map number;              /* old op → its number */
    const ds_again_loop **home; /* by value: the innermost loop around its definition */
    bool *wanted; /* by value: read by forward ops, returned, or read as a whole family */
    bool *again;  /* by value: the backward pass reads a copy */
    ds_map kept;  /* old value and depth of a loop → the new family that the loop was given */
    DS_VEC(ds_again_made) made; /* heap */
} ds_again;

/* ---- recompute_scan.c ---- */

/* Fills ops, number, home and wanted. O(ops). */
void ds_again__scan(ds_again *a);
ds_again_op *ds_again__op(const ds_again *a, const ds_op *op);
/* The op that makes the value, or NULL: an argument. */
ds_again_op *ds_again__def(const ds_again *a, ds_value value);

/* ---- recompute_choose.c ---- */

/* Sets chosen, group and again. Errors: DS_ERR_UNSUPPORTED, nothing to recompute. O(ops). */
ds_status ds_again__choose(ds_again *a, ds_error *err);

#endif
