/* Kinds of functions in a pipeline. */
#ifndef DS_PASSES_PIPELINE_KINDS_H
#define DS_PASSES_PIPELINE_KINDS_H

#include "ir/passes/pipeline/internal.h"

typedef DS_VEC(uint64_t) ds_pipe_words;
typedef DS_VEC(int64_t) ds_pipe_integers;

/* Functions with the same words, whose integers are those of the first one plus `slope` times the
 * difference of their indices. */
typedef struct ds_pipe_kind {
    ds_pipe_words words; /* heap */
    ds_pipe_integers integers;
    int64_t *slope; /* heap; NULL: all members have the same integers */
    uint32_t at;    /* with slopes: the integer that is the index of a member */
    int64_t base;   /* with slopes: the index of the first member */
    char letter;    /* F, B, W, A */
    uint32_t variant;
    uint32_t chunk; /* DS_PIPE_NONE: of several chunks */
    uint32_t n_members;
    const struct ds_pipe_func *first; /* the first member, whose text the function copies */
    ds_func *func;                    /* NULL until the first call */
} ds_pipe_kind;

/* A walk over a text, one value and op after the other: either spells the text out, or writes a
 * kind's index into the text. */
typedef struct ds_pipe_walk {
    ds_exprs *exprs;
    ds_arena *arena;
    const ds_func *func;
    uint32_t at; /* integers so far */
    /* spelling: else NULL */
    ds_pipe_words *words;
    ds_pipe_integers *integers;
    uint32_t *number; /* per value */
    uint32_t n_values;
    bool unlike; /* a part has no words: the text is like no other */
    /* writing: else NULL */
    const ds_pipe_kind *kind;
    ds_expr index;
} ds_pipe_walk;

/* Values that the text takes, or that an op makes. */
void ds_pipe__walk_value(ds_pipe_walk *w, ds_value value);
/* An op with its bodies. Spelling leaves the op as it is. O(size of the op). */
void ds_pipe__walk_op(ds_pipe_walk *w, ds_op *op);

/* Is the text of this kind? Then the kind may have got slopes; *shift is the difference of the
 * text's index and the kind's base. O(words). */
bool ds_pipe__is_of_kind(ds_pipe_kind *kind, const ds_pipe_words *words,
                         const ds_pipe_integers *integers, int64_t *shift);
void ds_pipe__kind_deinit(ds_pipe_kind *kind);

#endif
