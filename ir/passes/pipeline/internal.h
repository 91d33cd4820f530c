/* The pipeline pass inside: the parts into which a microbatch's function is cut.
 *
 * A *part* is the function of a microbatch that `grad` made (@first, @next, @last), sharded. Each
 * of its ops belongs to a chunk and a phase:
 *
 *     F   the model's own ops, up to the last one that makes a result of the model
 *     B   the backward pass; if W is apart, the ops on which other backward ops depend
 *     W   ops on which only gradients of weights depend
 *
 * The ops of one chunk and phase, in their order, are a *slice*, and become a function on the
 * chunk's stage. Values that a slice makes and other slices read are the slice's exports. Between
 * stages of several widths, other slices read the reshards that `shard` has put after exports, and
 * the reshards' results are sent. */
#ifndef DS_PASSES_PIPELINE_INTERNAL_H
#define DS_PASSES_PIPELINE_INTERNAL_H

#include "ir/passes/build/build.h"
#include "ir/passes/pipeline/chunks.h"

#define DS_PIPE_NONE UINT32_MAX

typedef enum ds_pipe_phase { DS_PIPE_F, DS_PIPE_B, DS_PIPE_W } ds_pipe_phase;

/* The kind of a part's argument. */
typedef enum ds_pipe_arg_kind { DS_PIPE_INPUT, DS_PIPE_WEIGHT, DS_PIPE_SUM } ds_pipe_arg_kind;
typedef struct ds_pipe_arg {
    ds_pipe_arg_kind kind;
    uint32_t index; /* of the step's argument; of the weight */
} ds_pipe_arg;

typedef struct ds_pipe_op {
    uint32_t chunk; /* DS_PIPE_NONE: a constant, made in every slice that reads it */
    ds_pipe_phase phase;
    bool crosses;    /* a reshard to a stage of another width, which is in no slice; has the chunk
                        and phase of the op that makes its operand */
    uint32_t *reads; /* values of the function's own level, loops' bodies included */
    uint32_t n_reads;
} ds_pipe_op;

/* A part and how it is cut. All arrays are in the unit's arena. */
typedef struct ds_pipe_part {
    const ds_func *func;
    uint32_t n_ops; /* without the return */
    ds_pipe_op *ops;
    ds_pipe_arg *args;
    /* by value */
    uint32_t *arg;       /* the argument's number, or NONE */
    uint32_t *def;       /* the op of the function's own level that makes it, or NONE */
    uint32_t *result;    /* the number of the model's result, or NONE */
    uint32_t *gradient;  /* the weight whose gradient it is, or NONE */
    uint32_t *exported;  /* number among the exports of its chunk, or NONE; a reshard that crosses
                            has its operand's number */
    uint32_t *sent;      /* number among the values that other chunks read, or NONE */
    uint32_t *source;    /* the operand of the crossing reshard that made the value; else the
                            value */
    uint32_t *n_exports; /* by chunk; exports of F come first */
    uint32_t *n_forward; /* by chunk: exports of F */
    uint32_t **sends;    /* by chunk: the values that other chunks read, in their order */
    uint32_t *n_sends;
} ds_pipe_part;

/* The step, and the arguments of its parts. */
typedef struct ds_pipe_context {
    ds_model_step *step;
    ds_unit *unit;
    uint32_t n_chunks;
    const ds_pipe_arg *args; /* of the call: inputs and weights; sums follow in order of weights */
    uint32_t n_args;
} ds_pipe_context;

/* Cuts a part. With `split`, W is a phase of its own and the loops of the backward pass are cut in
 * two. The function does not change. Errors: DS_ERR_UNSUPPORTED for a forward value that an earlier
 * stage reads. O(size of the function). */
ds_status ds_pipe__cut(const ds_pipe_context *c, const ds_func *func, bool split, ds_pipe_part *out,
                       ds_error *err);
/* A copy of the part's function that has two loops for each loop of the backward pass: first the
 * chain of input gradients, then the remaining ops, which read families that the first loop keeps.
 * `is_wgrad` by value: only gradients of weights depend on the value. `seconds`: second loop →
 * 1. */
ds_func *ds_pipe__split(ds_unit *unit, const ds_func *func, uint32_t from, const bool *is_wgrad,
                        ds_map *seconds);

/* Of stages of several widths the first on whose mesh the type is; NONE: the type is on no stage's. */
uint32_t ds_pipe__first_on(const ds_model_step *step, const ds_type *type);
/* Is the type on a mesh as wide as the stage's? A mesh that is no stage's (a group's) goes with all. */
bool ds_pipe__fits(const ds_model_step *step, const ds_type *type, uint32_t stage);
/* Does the op of `func` move a value to a stage of another width? */
bool ds_pipe__crosses(const ds_model_step *step, const ds_func *func, const ds_op *op);

/* Does only the addition that makes the next value read carry k of the loop? */
bool ds_pipe__carry_adds(const ds_op *loop, uint32_t k);

/* Copies ops of a typed function to another place, into a function under construction. */
typedef struct ds_pipe_copy {
    ds_builder *b;
    const ds_func *old;
    ds_value *map; /* old value → new value; UINT32_MAX: not made */
    ds_place place;
    ds_map *types;              /* old type → placed type; of this place */
    const struct ds_pipe *pipe; /* renames texts that begin with a weight's name, for … */
    uint32_t copy;              /* … this copy of the weights; 0: not */
    uint32_t n_chunks;          /* chunks' numbers are left out of names; 0: not */
} ds_pipe_copy;

ds_type *ds_pipe__place(ds_pipe_copy *c, const ds_type *type);
/* A value of the new function, like the old value, under `name`. */
ds_value ds_pipe__value(ds_pipe_copy *c, ds_value old, const char *name, ds_op *def);
/* Appends the copy; its results are in c->map. */
ds_op *ds_pipe__copy_op(ds_pipe_copy *c, const ds_op *op);

#endif
