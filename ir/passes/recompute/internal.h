/* Shared by the files of the recomputation pass.
 *
 *   recompute.c         the pass: the step's functions, copied
 *   scan.c    forward and backward ops; what the forward pass keeps for itself
 *   choose.c  which ops run again
 *   tile.c    loops over blocks of turns
 *   read.c    from a read to the op and the turns that made the value; what is kept
 *   make.c    copies of ops, and of blocks
 *
 * "Old" is the function as grad left it, "new" the one being made. */
#ifndef DS_PASSES_RECOMPUTE_INTERNAL_H
#define DS_PASSES_RECOMPUTE_INTERNAL_H

#include "ir/passes/build/copy.h"
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
    uint32_t first, next;      /* of its group: numbers of ops; next 0: it is the last */
    uint32_t made;             /* 1 + the last of its copies in ds_again.made; 0: none yet */
} ds_again_op;

/* An op that has run again, for the turns `at` of the loops around it. */
typedef struct ds_again_made {
    uint32_t op;
    ds_expr at[DS_AGAIN_DEPTH];
    const ds_again_loop *where; /* the loop in which the copy is */
    const ds_op *made;
    uint32_t before; /* of the same op, likewise */
} ds_again_made;

/* A block of turns that has run again, for the turns `at` of the loops around it. */
typedef struct ds_again_block {
    const ds_again_loop *loop; /* the old loop over the turns of a block */
    ds_expr at[DS_AGAIN_DEPTH];
    const ds_again_loop *where;
    ds_op *made;
    ds_value *map;  /* by old value: of this run */
    ds_value *kept; /* by old value: its family over the turns, if somebody reads it */
} ds_again_block;

/* A forward value: for turns `at` of the loops around its definition, read at `rest` if it is a
 * family itself. */
typedef struct ds_again_value {
    ds_value value;
    ds_expr at[DS_AGAIN_DEPTH];
    uint32_t n_at;
    ds_expr rest[DS_AGAIN_DEPTH];
    uint32_t n_rest;
    bool is_range; /* rest_hi are the ends of a stacked range */
    ds_expr rest_hi[DS_AGAIN_DEPTH];
} ds_again_value;

/* The indices of the loops around an op (`loop`, inside out), and what stands for them. */
typedef struct ds_again_turns {
    const struct ds_again *a;
    const ds_again_loop *loop;
    const ds_expr *at;
} ds_again_turns;

typedef struct ds_again {
    ds_model_step *step;
    ds_unit *unit;
    const ds_func *old;
    ds_builder b;
    ds_copy copy;
    DS_VEC(ds_again_op) ops;    /* in the unit's arena */
    ds_map number;              /* old op → its number */
    const ds_again_loop **home; /* by value: the innermost loop around its definition */
    bool *wanted;  /* by value: read by forward ops, returned, or read as a whole family */
    bool *again;   /* by value: the backward pass reads a copy */
    ds_map kept;   /* old value and depth of a loop → the new family that the loop was given */
    ds_map blocks; /* old loops over the turns of a block, which run again as a whole */
    DS_VEC(ds_again_made) made;         /* heap */
    DS_VEC(ds_again_block) made_blocks; /* heap */
} ds_again;

/* ---- scan.c ---- */

/* Fills ops, number, home and wanted. O(ops). */
void ds_again__scan(ds_again *a);
ds_again_op *ds_again__op(const ds_again *a, const ds_op *op);
/* The op that makes the value, or NULL: an argument. */
ds_again_op *ds_again__def(const ds_again *a, ds_value value);

/* ---- choose.c ---- */

/* Sets chosen, group and again. Errors: DS_ERR_UNSUPPORTED, nothing to recompute. O(ops). */
ds_status ds_again__choose(ds_again *a, ds_error *err);

/* ---- tile.c ---- */

/* Makes blocks of the forward loops of a function that has been scanned, in place, and of the loops
 * of its backward pass; sets `blocks`. The function has to be scanned anew. Errors:
 * DS_ERR_UNSUPPORTED, loops that do not fit. O(ops). */
ds_status ds_again__tile(ds_again *a, ds_error *err);

/* ---- read.c ---- */

static inline uint32_t ds_again__depth(const ds_again_loop *loop) {
    return loop ? loop->depth : 0;
}

/* Turns in the place of indices. */
ds_expr ds_again__put(const ds_again_turns *t, ds_expr e);
const ds_type *ds_again__put_type(const ds_again_turns *t, const ds_type *type);
ds_attr ds_again__put_attr(const ds_again_turns *t, ds_attr attr);

/* What the backward pass reads: elements of families are followed into the loops that keep them. */
ds_again_value ds_again__trace(const ds_again *a, const ds_use *use);
/* What an op in `home` reads that runs for the turns `at` of the loops around it. */
ds_again_value ds_again__operand(const ds_again *a, const ds_use *use, const ds_again_loop *home,
                                 const ds_expr *at);
/* Is it made again, or read as the forward pass made it? */
bool ds_again__runs(const ds_again *a, const ds_again_value *x);
/* The new use of what is kept; loops are given further families. */
ds_use ds_again__kept(ds_again *a, const ds_again_value *x);

/* ---- make.c ---- */

/* The new use of what is made again, which is put into the open block, in the old loop `where`,
 * unless it can be read there already. */
ds_status ds_again__make(ds_again *a, const ds_again_value *x, const ds_again_loop *where,
                         ds_use *out, ds_error *err);
/* Blocks run again before the loop that reads their turns. */
ds_status ds_again__prepare(ds_again *a, const ds_op *loop, ds_error *err);

#endif
