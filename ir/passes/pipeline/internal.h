/* The pipeline pass inside: what a microbatch's function is cut into.
 *
 * A *part* is the function of a microbatch that `grad` made (@first, @next, @last), sharded. Each
 * of its ops belongs to a chunk and a phase:
 *
 *     F   the model's own ops, up to the last one that makes a result of the model
 *     B   the backward pass; where W is apart, what other ops of the backward pass depend on
 *     W   what leads to gradients of weights and nowhere else
 *
 * The ops of one chunk and phase, in their order, are a *slice*, and become a function on the
 * chunk's stage. What a slice makes and others read are its exports. Between stages of several
 * widths `shard` has put reshards, and others read those: they are what is sent. */
#ifndef DS_PASSES_PIPELINE_INTERNAL_H
#define DS_PASSES_PIPELINE_INTERNAL_H

#include "ir/passes/build/build.h"
#include "ir/passes/pipeline/chunks.h"

#define DS_PIPE_NONE UINT32_MAX

typedef enum ds_pipe_phase { DS_PIPE_F, DS_PIPE_B, DS_PIPE_W } ds_pipe_phase;

/* What an argument of a part is. */
typedef enum ds_pipe_arg_kind { DS_PIPE_INPUT, DS_PIPE_WEIGHT, DS_PIPE_SUM } ds_pipe_arg_kind;
typedef struct ds_pipe_arg {
    ds_pipe_arg_kind kind;
    uint32_t index; /* of the step's argument; of the weight */
} ds_pipe_arg;

typedef struct ds_pipe_op {
    uint32_t chunk; /* DS_PIPE_NONE: a constant, made in every slice that reads it */
    ds_pipe_phase phase;
    bool crosses;    /* to a stage of another width: a reshard, which is in no slice. Its chunk and
                        phase are those of what makes its operand */
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
    uint32_t *arg;       /* its argument, or NONE */
    uint32_t *def;       /* the op of the function's own level that makes it, or NONE */
    uint32_t *result;    /* the result of the model that it is, or NONE */
    uint32_t *gradient;  /* the weight whose gradient it is, or NONE */
    uint32_t *exported;  /* number among the exports of its chunk, or NONE; of a reshard that
                            crosses, its operand's */
    uint32_t *sent;      /* number among those that other chunks read, or NONE */
    uint32_t *source;    /* the operand of the reshard that made it, which crosses; else itself */
    uint32_t *n_exports; /* by chunk; those of F come first */
    uint32_t *n_forward; /* by chunk: exports of F */
    uint32_t **sends;    /* by chunk: the values that other chunks read, in their order */
    uint32_t *n_sends;
} ds_pipe_part;

/* Which chunk a weight belongs to, and what a part's arguments are. */
typedef struct ds_pipe_context {
    ds_model_step *step;
    ds_unit *unit;
    uint32_t n_chunks;
    const ds_pipe_arg *args; /* of the call: inputs and weights; sums follow in order of weights */
    uint32_t n_args;
} ds_pipe_context;

/* Cuts a part. With `split`, W is a phase of its own and the loops of the backward pass are cut in
 * two. The function is left as it is. Errors: DS_ERR_UNSUPPORTED for what leads back to an earlier
 * stage. O(size of the function). */
ds_status ds_pipe__cut(const ds_pipe_context *c, const ds_func *func, bool split, ds_pipe_part *out,
                       ds_error *err);
/* A copy of the part's function in which the backward pass's loops are two: the chain of input
 * gradients, and behind it what is left, which reads families that the first one keeps. `is_wgrad`
 * by value: nothing but gradients of weights depends on it. `seconds`: the loops of what is left
 * → 1.
 */
ds_func *ds_pipe__split(ds_unit *unit, const ds_func *func, uint32_t from, const bool *is_wgrad,
                        ds_map *seconds);

/* Does the op, of `func`, bring a value to another mesh? */
bool ds_pipe__crosses(const ds_func *func, const ds_op *op);

/* Is carry k of the loop read by nothing but the addition that makes its next value? */
bool ds_pipe__carry_adds(const ds_op *loop, uint32_t k);

/* Copies ops of a typed function into one that is being made, on another place. */
typedef struct ds_pipe_copy {
    ds_builder *b;
    const ds_func *old;
    ds_value *map; /* by old value; UINT32_MAX: not made */
    ds_place place;
    ds_map *types;              /* old type → placed type; of this place */
    const struct ds_pipe *pipe; /* renames what begins with a weight's name, for … */
    uint32_t copy;              /* … this copy of the weights; 0: not */
} ds_pipe_copy;

ds_type *ds_pipe__place(ds_pipe_copy *c, const ds_type *type);
/* A value of the function that is being made, as the old one, under `name`. */
ds_value ds_pipe__value(ds_pipe_copy *c, ds_value old, const char *name, ds_op *def);
/* Appends the copy; its results are in c->map. */
ds_op *ds_pipe__copy_op(ds_pipe_copy *c, const ds_op *op);

#endif
