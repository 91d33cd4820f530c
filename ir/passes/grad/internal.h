/* Shared by the files of the gradient pass.
 *
 *   grad.c        the pass: the step's functions, microbatches, results
 *   scan.c   what needs a gradient; where values and weights are at home
 *   walk.c   the reverse walk over blocks and loops
 *   slot.c   gradients on their way: sums, families, elements of families
 *   store.c  tensors that loops carry and `put` fills
 *   vjp*.c        the gradient of one op as ops
 *
 * "Old" is the function without gradients, "new" the one being made. Everything that the walk
 * remembers about a position (an index of a family, a loop bound) is in *forward terms*: the index
 * names of the old loops. It becomes text of the backward pass by ds_grad__rev, which puts
 * hi - 1 - l for every index l of the loops that are open. */
#ifndef DS_PASSES_GRAD_INTERNAL_H
#define DS_PASSES_GRAD_INTERNAL_H

#include "ir/passes/build/copy.h"
#include "ir/passes/passes.h"

/* A loop of the old function. */
typedef struct ds_grad_loop {
    const ds_op *op;
    ds_op *made; /* the forward loop in the new function */
    struct ds_grad_loop *up;
} ds_grad_loop;

/* A gradient: a value of the new function, or a constant that needs none yet (the seed). */
typedef struct ds_grad_term {
    bool is_const;
    double c;
    ds_use use;
    bool owned; /* the op that makes it has no other purpose: it may be marked, and renamed */
} ds_grad_term;

/* What has arrived in the open block for an old value, or for one element of a family. */
typedef struct ds_grad_slot {
    ds_value value;
    ds_expr *index, *index_hi; /* forward terms */
    uint32_t n_index;
    ds_grad_term term;
    bool rows; /* of a whole family, carried as a tensor: the gradient of an element adds to a row */
} ds_grad_slot;

/* A term of the gradients of a family's elements, made in loops that have ended: `use` names a
 * family over them. */
typedef struct ds_grad_span {
    const char *index; /* a name that no text has, in place of the loop's */
    ds_expr lo, hi;
} ds_grad_span;

typedef struct ds_grad_part {
    ds_value value;            /* the family that was read */
    ds_value target;           /* it, or the family of an inner loop that it is made of */
    ds_expr *index, *index_hi; /* which element turn (spans) has a term for */
    uint32_t n_index;
    ds_use use;
    ds_grad_span *spans; /* outermost first: the binders of `use` */
    uint32_t n_spans;
    ds_expr *fixed; /* leading indices that are known by now */
    uint32_t n_fixed;
} ds_grad_part;

/* A value that stands for a tensor which loops carry and `put` fills, one of several in a row. */
typedef struct ds_grad_store {
    bool is;         /* it is one */
    bool once;       /* `later` has all its places as they were */
    ds_value later;  /* after the next put in the block, or the next loop; none: the last */
    const ds_op *of; /* the put `once` that stores this value */
} ds_grad_store;

/* A value of the forward pass that the backward pass reads from a store. */
typedef struct ds_grad_again {
    ds_value value;
    ds_use use;
} ds_grad_again;

/* A block of the backward pass: the function's, or a loop's that is walked in reverse. */
typedef struct ds_grad_level {
    struct ds_grad_level *up;
    ds_grad_loop *loop; /* NULL: the function */
    const ds_block *block;
    DS_VEC(ds_grad_slot) slots;
    DS_VEC(ds_grad_part) parts;
    DS_VEC(ds_grad_again) again;
} ds_grad_level;

/* No others of a family are in a list: hi 0, none at all. */
typedef struct ds_grad_place {
    uint32_t lo, hi;
} ds_grad_place;

/* A weight of the step. */
typedef struct ds_grad_weight {
    ds_value old;
    ds_grad_loop *home; /* the loop in whose turns its gradients become final; NULL: none */
    bool assembled;     /* a family whose elements are read in other ways: summed at the end */
    const ds_op *first; /* the first op of the home block that reads it; NULL: none */
    struct ds_grad_weight *next; /* with the same `first` */
    ds_value accumulator;        /* new: what to add the gradient to, or none */
    ds_value result;             /* new: the gradient */
} ds_grad_weight;

typedef struct ds_grad {
    ds_model_step *step;
    ds_unit *unit;
    const ds_func *old;
    ds_builder b;
    ds_copy copy;
    uint32_t n_values;                  /* old values, then results that the forward pass gains */
    bool *live;                         /* by value: a weight's gradient runs through it */
    ds_grad_loop **home;                /* by value: the innermost loop around its definition */
    ds_value *saved;                    /* by value: the family that keeps it */
    ds_grad_place *parts_at, *slots_at; /* by family: where they are, on whatever level */
    ds_grad_store *stores;              /* by value */
    ds_map loops;                       /* old op → ds_grad_loop */
    ds_map extra;                       /* old op → number of its further result (lse) */
    DS_VEC(ds_value) extra_new;
    DS_VEC(ds_grad_loop *) extra_home;
    ds_grad_level *level;
    ds_grad_weight *weights;
    uint32_t n_weights;
    ds_map weight_of; /* old value → the weight that it is */
    ds_map firsts;    /* op → the first weight whose `first` it is */
    uint32_t n_hidden;
    double seed; /* d result / d loss */
    bool final;  /* gradients are complete: mark them */
} ds_grad;

/* ---- scan.c ---- */

/* Fills live, home, loops, weights' home and first. O(ops × depth of loops), and once more for
 * every carry of a loop that is live only through another one. */
ds_status ds_grad__scan(ds_grad *g, ds_error *err);
/* The weight that the old value is; n_weights: none. */
uint32_t ds_grad__weight(const ds_grad *g, ds_value old);
ds_grad_loop *ds_grad__loop(const ds_grad *g, const ds_op *loop);
/* Is `loop` the home of the value, or around it? NULL is around everything. */
bool ds_grad__inside(const ds_grad *g, ds_value value, const ds_grad_loop *loop);
/* Has the op a result whose gradient is wanted? */
bool ds_grad__op_is_live(const ds_grad *g, const ds_op *op);

/* ---- slot.c ---- */

ds_expr ds_grad__rev(ds_grad *g, ds_expr e);
const ds_type *ds_grad__rev_type(ds_grad *g, const ds_type *type);
/* An attribute of a forward op in the backward pass. */
ds_attr ds_grad__rev_attr(ds_grad *g, ds_attr attr);
/* The type to write for the gradient of what an old use reads: the value's where that was written,
 * else NULL. */
const ds_type *ds_grad__written(ds_grad *g, const ds_use *old);
/* Its type, written or not, where the backward pass is. */
const ds_type *ds_grad__type(ds_grad *g, const ds_use *old);
/* What an old use reads, in the backward pass: kept where the value belongs to a loop's turn. */
ds_use ds_grad__read(ds_grad *g, const ds_use *old);
/* A constant term as a value of that type. */
ds_status ds_grad__make(ds_grad *g, ds_grad_term *term, const ds_type *type, const char *name,
                        ds_error *err);
ds_status ds_grad__zeros(ds_grad *g, const ds_type *type, const char *name, ds_use *out,
                         ds_error *err);
/* Adds a term to the gradient of what an old use reads; nothing if none is wanted. */
ds_status ds_grad__give(ds_grad *g, const ds_use *old, ds_grad_term term, ds_error *err);
/* The slot of an old use in the open block, or NULL. */
ds_grad_slot *ds_grad__slot(ds_grad *g, const ds_use *old);
/* The slot of the family's rows in the open block, or NULL. */
ds_grad_slot *ds_grad__rows(ds_grad *g, ds_value family);
void ds_grad__push_slot(ds_grad *g, ds_grad_level *level, ds_grad_slot slot);
void ds_grad__push_part(ds_grad *g, ds_grad_part part);
/* All that has arrived for elements of a family, slots and parts. */
uint32_t ds_grad__parts_of(ds_grad *g, ds_value family, ds_grad_part **out);
/* The term's use and owner for element j of the part (forward terms, n of them); *none if it never
 * has one. What is outside the part's turns is multiplied by 0. */
ds_status ds_grad__part_at(ds_grad *g, const ds_grad_part *part, const ds_expr *j, uint32_t n,
                           ds_grad_term *term, bool *none, ds_error *err);
/* An interned name that cannot be written. */
const char *ds_grad__hidden(ds_grad *g);
const char *ds_grad__name(ds_grad *g, ds_value old, const char *suffix);
/* What a term of a value's gradient is called: %v.grad, but %w.grad.part for a weight. */
const char *ds_grad__term_name(ds_grad *g, ds_value old);

/* ---- store.c ---- */

/* Fills `stores`; homes are known. O(ops). */
void ds_grad__find_stores(ds_grad *g);
/* The gradient of the op is about to be made: values that it reads and that lie in a store to the
 * end are read from there, so that no loop keeps a copy of them. */
ds_status ds_grad__read_again(ds_grad *g, const ds_op *op, ds_error *err);
/* Does the value stand for a store? Gradients of its slices are added in place. */
bool ds_grad__is_store(const ds_grad *g, ds_value value);

/* ---- walk.c ---- */

/* The forward pass is made: makes the backward pass and sets every weight's `result`. */
ds_status ds_grad__backward(ds_grad *g, ds_error *err);
/* Adds what the backward pass needs to a forward op: ds_copy's `extend`. */
ds_status ds_grad__extend(void *context, const ds_op *old, ds_op *op, ds_error *err);

/* ---- vjp.c ---- */

/* Gives the operands of a live op their gradients. */
ds_status ds_grad__vjp(ds_grad *g, const ds_op *op, ds_error *err);

#endif
