/* Shared by the files of the recomputation pass.
 *
 *   recompute.c  the pass: the step's functions, copied
 *   scan.c       forward and backward ops; families that the forward pass itself reads
 *   choose.c     which ops run again
 *   modules.c    modules of a layer that run again
 *   tile.c       loops over blocks of turns
 *   read.c       from a read to the op and the turns that made the value; uses of kept values
 *   make.c       copies of ops, and of blocks
 *
 * "Old" is the function before the pass, "new" the function under construction. */
#ifndef DS_PASSES_RECOMPUTE_INTERNAL_H
#define DS_PASSES_RECOMPUTE_INTERNAL_H

#include "ir/passes/build/copy.h"
#include "ir/passes/passes.h"

#define DS_AGAIN_DEPTH (DS_MAX_RANK * 2) /* loops around an op */

/* A loop of the old function. */
typedef struct ds_again_loop {
    const ds_op *op;
    struct ds_again_loop *up;
    uint32_t depth; /* 1: an outermost loop */
    bool forward;
} ds_again_loop;

/* An op of the old function; ops are numbered in program order. */
typedef struct ds_again_op {
    const ds_op *op;
    const ds_again_loop *home; /* the innermost loop around the op, or NULL */
    bool forward;              /* the model's results depend on the op, or on the op's loop */
    bool chosen;               /* the op may run again */
    uint32_t group;            /* the ops of a group run again together; 0: the op runs again
                                  alone */
    uint32_t first, next;      /* first and next op of the group; next 0: the op is the last */
    uint32_t made;             /* 1 + the last copy of the op in ds_again.made; 0: none yet */
} ds_again_op;

/* An op that has run again, for the turns `at` of the loops around it. */
typedef struct ds_again_made {
    uint32_t op;
    ds_expr at[DS_AGAIN_DEPTH];
    const ds_again_loop *where; /* the loop in which the copy is */
    const ds_op *made;
    uint32_t before; /* 1 + the copy of the op before this copy; 0: none */
} ds_again_made;

/* A block of turns that has run again, for the turns `at` of the loops around it. */
typedef struct ds_again_block {
    const ds_again_loop *loop; /* the old loop over the turns of a block */
    ds_expr at[DS_AGAIN_DEPTH];
    const ds_again_loop *where;
    ds_op *made;
    ds_value *map;  /* by old value: the value of this run */
    ds_value *kept; /* by old value: its family over the turns, if an op reads the family */
} ds_again_block;

/* A forward value of turns `at` of the loops around its definition; if the value is a family, read
 * at indices `rest`. */
typedef struct ds_again_value {
    ds_value value;
    ds_expr at[DS_AGAIN_DEPTH];
    uint32_t n_at;
    ds_expr rest[DS_AGAIN_DEPTH];
    uint32_t n_rest;
    bool is_range; /* rest_hi are the ends of a stacked range */
    ds_expr rest_hi[DS_AGAIN_DEPTH];
} ds_again_value;

/* Replaces the indices of the loops around an op (`loop`, inside out) by turns. */
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
    bool *wanted;  /* by value: kept anyway, since forward ops read it, it is returned, or read as a
                      whole family */
    bool *again;   /* by value: the backward pass reads a copy */
    ds_map kept;   /* old value and depth of a loop → the new family that the loop keeps */
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

/* The cores of attention. */
void ds_again__choose_attention(ds_again *a);
/* A weight, or a cast of one. */
bool ds_again__is_weight(const ds_again *a, ds_value value);

/* ---- modules.c ---- */

/* Chooses the ops of modules: bits DS_RECOMPUTE_… of ds_strategy.recompute_modules. O(ops²). */
void ds_again__choose_modules(ds_again *a, uint32_t wanted);

/* ---- tile.c ---- */

/* Turns the forward loops of a scanned function, and the loops of its backward pass, into loops
 * over blocks, in place; sets `blocks`. The caller has to scan the function anew. Errors:
 * DS_ERR_UNSUPPORTED, loops that do not fit. O(ops). */
ds_status ds_again__tile(ds_again *a, ds_error *err);

/* ---- read.c ---- */

static inline uint32_t ds_again__depth(const ds_again_loop *loop) {
    return loop ? loop->depth : 0;
}

/* The expression with indices replaced by turns. */
ds_expr ds_again__put(const ds_again_turns *t, ds_expr e);
const ds_type *ds_again__put_type(const ds_again_turns *t, const ds_type *type);
ds_attr ds_again__put_attr(const ds_again_turns *t, ds_attr attr);

/* The value of a read in the backward pass; follows an element of a family into the loop that keeps
 * the family. */
ds_again_value ds_again__trace(const ds_again *a, const ds_use *use);
/* The value that an op of `home` reads when it runs for the turns `at` of the loops around it. */
ds_again_value ds_again__operand(const ds_again *a, const ds_use *use, const ds_again_loop *home,
                                 const ds_expr *at);
/* Is the value made again? Otherwise the forward pass's value is read. */
bool ds_again__runs(const ds_again *a, const ds_again_value *x);
/* The new use of a kept value; loops get further kept families as needed. */
ds_use ds_again__kept(ds_again *a, const ds_again_value *x);

/* ---- make.c ---- */

/* The new use of a value that is made again. Puts the ops into the open block, in the old loop
 * `where`, unless this block can already read an earlier copy. */
ds_status ds_again__make(ds_again *a, const ds_again_value *x, const ds_again_loop *where,
                         ds_use *out, ds_error *err);
/* Runs blocks again before the loop that reads their turns. */
ds_status ds_again__prepare(ds_again *a, const ds_op *loop, ds_error *err);

#endif
