/* The pipeline pass while it writes the program. */
#ifndef DS_PASSES_PIPELINE_EMIT_H
#define DS_PASSES_PIPELINE_EMIT_H

#include "ir/passes/pipeline/kinds.h"

enum { DS_PIPE_FIRST, DS_PIPE_NEXT, DS_PIPE_LAST, DS_PIPE_VARIANTS = 6 };

/* The function of a chunk's items on a stage, with its operands and results as values of the text
 * that the function copies. */
typedef struct ds_pipe_func {
    ds_pipe_kind *kind; /* NULL: nothing to do */
    int64_t shift;      /* the index is kind->base + shift */
    uint32_t chunk, copy, stage;
    const ds_pipe_part *part;
    const uint32_t *in, *out; /* values of the part's function */
    uint32_t n_in, n_out;
} ds_pipe_func;

/* A value of the step on one of the stages. */
typedef struct ds_pipe_place {
    uint32_t key, stage;
    ds_value value;
    const struct ds_pipe_parts *parts; /* NULL: whole, or already gathered */
} ds_pipe_place;
typedef DS_VEC(ds_pipe_place) ds_pipe_places;

typedef struct ds_pipe {
    ds_model_step *step;
    ds_unit *unit;
    const ds_func *old; /* the step before the pass */
    const ds_schedule_index *index;
    const char *mesh;
    uint32_t m, n_chunks, n_copies, n_stages;
    bool splits;         /* some items are W */
    const ds_op **parts; /* by microbatch: the call */
    uint32_t head;       /* first op of the step that is a call: the ops before gather weights */
    uint32_t tail;       /* first op after the microbatches' calls */
    ds_pipe_arg *args;   /* of a call */
    uint32_t n_args;
    uint32_t *arg_number; /* value of the step → argument, or NONE */
    uint32_t *arg_weight; /* argument → its weight, for weights and states, or NONE */
    ds_value *whole;      /* weight → the value that calls take in its place; DS_NO_VALUE: none */
    uint8_t *role;        /* [microbatch][chunk]: 2 · role + split: the variant of the text */
    ds_pipe_part cut[DS_PIPE_VARIANTS];
    uint32_t forward; /* the variant that F is copied from */
    uint8_t ***destinations;

    /* writing */
    ds_builder b;
    ds_map *types; /* by stage: old type → placed */
    ds_map funcs;  /* (variant, chunk, copy, letter) → ds_pipe_func */
    DS_VEC(ds_pipe_kind *) kinds;
    ds_value *input;      /* [argument][stage] */
    ds_value **arg;       /* [copy][argument]: weights and states */
    ds_value **gathered;  /* [copy][value of the old step], of the ops before the calls */
    ds_value **made;      /* [microbatch · n_chunks + chunk] → [export] */
    ds_pipe_places *sent; /* [microbatch · n_chunks + chunk]: key: number among the sends */
    ds_use **sums;        /* [copy][weight] */
    ds_value *results;    /* [microbatch][result of the model] */
} ds_pipe;

static inline uint32_t ds_pipe__stage(const ds_pipe *p, uint32_t chunk, uint32_t copy) {
    return p->index->stage[copy * p->n_chunks + chunk];
}
/* The weight that a value of the old step is, or is gathered from; NONE for other values. */
uint32_t ds_pipe__weight_of(const ds_pipe *p, ds_value v);
ds_place ds_pipe__on(const ds_pipe *p, uint32_t stage);
/* Is the type on another mesh than the stages', an override's or a group's? Such values stay there. */
bool ds_pipe__is_apart(const ds_pipe *p, const ds_type *type);
/* Sends a value to another stage. `as`: NULL, or a type on a stage as wide as `to`, to which the
 * value is resharded. */
ds_status ds_pipe__bring(ds_pipe *p, ds_value value, uint32_t to, const ds_type *as,
                         const char *name, ds_value *out, ds_error *err);
ds_status ds_pipe__send(ds_pipe *p, ds_value value, uint32_t to, const char *name, ds_value *out,
                        ds_error *err);

/* With scatter_gather: a value that was sent in parts, one part on each device of tp. The first
 * item that reads the value gathers the parts, as in DeepSpeed and Megatron-LM. A gather right
 * after the send would precede items that the stage can run before the parts arrive, and delay
 * them. */
typedef struct ds_pipe_parts {
    const ds_type *whole;
    uint32_t dim;
    const char *name; /* of the whole */
} ds_pipe_parts;

/* A term of a sum over stages; then the sum, on the same stage. */
typedef struct ds_pipe_term {
    ds_value value;
    uint32_t stage;
    const char *name; /* of the sum on this stage, if this is the stage's first term */
} ds_pipe_term;

/* Adds up the terms of each stage, in place, and all_reduces the sums across stages, so that every
 * stage has the whole sum. A single term stays as it is. O(n²). */
ds_status ds_pipe__sum(ds_pipe *p, ds_pipe_term *terms, uint32_t n, ds_error *err);

/* How a value of the old step contributes to the gradient of a weight that several chunks read. */
typedef struct ds_pipe_tied {
    uint32_t group;  /* the first of the tied weights; NONE: no contribution */
    uint32_t lo, hi; /* the sum of the gradients of its lo-th … hi-th argument */
    bool is_total;   /* the sum over all arguments of the group */
} ds_pipe_tied;

/* Finds, by value, gradients of tied weights and their sums that `grad` wrote, if nothing else
 * reads the terms of these sums. O(values + ops). */
void ds_pipe__find_tied(const ds_pipe *p, ds_pipe_tied *of);

/* Renames a text that begins with a weight's name, for a copy of the weights: %w.m.new →
 * %w.copy1.m.new. */
const char *ds_pipe__rename(const ds_pipe *p, const char *name, uint32_t copy);

/* Does the kind's function have a mesh parameter? */
static inline bool ds_pipe__is_shared(const ds_pipe_kind *kind) {
    return kind->n_members > 1;
}
/* F, B, W, or A for B and W in one. */
char ds_pipe__letter(const ds_pipe *p, const ds_schedule_item *item);
/* Finds the kinds of all items' functions. O(items + sizes of the texts of all chunks). */
void ds_pipe__find_funcs(ds_pipe *p);
/* The function of an item, written if it is not yet. Its kind is NULL if the item has no ops. */
ds_status ds_pipe__func(ds_pipe *p, char letter, uint32_t chunk, uint32_t mb,
                        const ds_pipe_func **out, ds_error *err);

/* Writes the new step: arguments, items in the schedule's order, and (tail) the ops after the
 * items. */
ds_status ds_pipe__emit(ds_pipe *p, ds_error *err);
ds_status ds_pipe__tail(ds_pipe *p, ds_error *err);
/* turns.c: the pass for a step without a backward pass. */
ds_status ds_pipe__turns(ds_model_step *step, ds_error *err);
/* The chunks of ops after the microbatches: op → chunk. The caller has set the calls, their
 * arguments and the cut of the forward text in `p`. */
void ds_pipe__tail_chunks(ds_pipe *p, ds_map *of);

#endif
