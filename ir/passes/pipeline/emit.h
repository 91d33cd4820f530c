/* The pipeline pass while it writes the program. */
#ifndef DS_PASSES_PIPELINE_EMIT_H
#define DS_PASSES_PIPELINE_EMIT_H

#include "ir/passes/pipeline/internal.h"

enum { DS_PIPE_FIRST, DS_PIPE_NEXT, DS_PIPE_LAST, DS_PIPE_VARIANTS = 6 };

/* What an item's function takes and gives: values of the text that it was copied from. */
typedef struct ds_pipe_func {
    ds_func *func; /* NULL: nothing to do */
    const ds_pipe_part *part;
    const uint32_t *in, *out; /* values of the part's function */
    uint32_t n_in, n_out;
} ds_pipe_func;

/* A value of the step on one of the stages. */
typedef struct ds_pipe_place {
    uint32_t key, stage;
    ds_value value;
    const struct ds_pipe_parts *parts; /* NULL: whole, or gathered by now */
} ds_pipe_place;
typedef DS_VEC(ds_pipe_place) ds_pipe_places;

typedef struct ds_pipe {
    ds_model_step *step;
    ds_unit *unit;
    const ds_func *old; /* the step as it was */
    const ds_schedule_index *index;
    const char *mesh;
    uint32_t m, n_chunks, n_copies, n_stages;
    bool splits;         /* some items are W */
    const ds_op **parts; /* by microbatch: the call */
    uint32_t tail;       /* first op behind the microbatches */
    ds_pipe_arg *args;   /* of a call */
    uint32_t n_args;
    uint32_t *arg_number; /* value of the step → argument, or NONE */
    uint32_t *arg_weight; /* argument → weight that it belongs to, states too, or NONE */
    uint8_t *role;        /* [microbatch][chunk]: 2 · role + split: the variant of the text */
    ds_pipe_part cut[DS_PIPE_VARIANTS];
    uint32_t forward; /* the variant that F is copied from */
    uint8_t ***destinations;

    /* writing */
    ds_builder b;
    ds_map *types;        /* by stage: old type → placed */
    ds_map funcs;         /* (variant, chunk, copy, kind, microbatch) → ds_pipe_func */
    ds_value *input;      /* [argument][stage] */
    ds_value **arg;       /* [copy][argument]: weights and states */
    ds_value **made;      /* [microbatch · n_chunks + chunk] → [export] */
    ds_pipe_places *sent; /* [microbatch · n_chunks + chunk]: key: number among the sends */
    ds_use **sums;        /* [copy][weight] */
    ds_value *results;    /* [microbatch][result of the model] */
} ds_pipe;

static inline uint32_t ds_pipe__stage(const ds_pipe *p, uint32_t chunk, uint32_t copy) {
    return p->index->stage[copy * p->n_chunks + chunk];
}
ds_place ds_pipe__on(const ds_pipe *p, uint32_t stage);
/* With stages of several widths: does the type live on a mesh that is as wide as the stage's? */
bool ds_pipe__as_wide(const ds_pipe *p, const ds_type *type, uint32_t stage);
/* The value on another stage, resharded to `as` where that is not NULL: the type of a value on a
 * stage as wide as `to`. */
ds_status ds_pipe__bring(ds_pipe *p, ds_value value, uint32_t to, const ds_type *as,
                         const char *name, ds_value *out, ds_error *err);
ds_status ds_pipe__send(ds_pipe *p, ds_value value, uint32_t to, const char *name, ds_value *out,
                        ds_error *err);

/* With scatter_gather: what came in parts, one on each device of tp, and is gathered when the
 * first item reads it, as DeepSpeed and Megatron-LM do. Right behind the send the gather would
 * stand in front of items that the stage has still to run, which it would hold up until the parts
 * are there. */
typedef struct ds_pipe_parts {
    const ds_type *whole;
    uint32_t dim;
    const char *name; /* of the whole */
} ds_pipe_parts;

/* A term of a sum over stages; then the sum, on the same stage. */
typedef struct ds_pipe_term {
    ds_value value;
    uint32_t stage;
    const char *name; /* of the sum on this stage, where this is its first term */
} ds_pipe_term;

/* Adds the terms of each stage up, in place, and all_reduces them across the stages: every stage
 * then has the sum of all. One term is left as it is. O(n²). */
ds_status ds_pipe__sum(ds_pipe *p, ds_pipe_term *terms, uint32_t n, ds_error *err);

/* What a value of the step as it was is to a weight that several chunks read. */
typedef struct ds_pipe_tied {
    uint32_t group;  /* the first of the weights that are one; NONE: nothing to such a weight */
    uint32_t lo, hi; /* the sum of the gradients of its lo-th … hi-th argument */
    bool is_total;   /* of all of them */
} ds_pipe_tied;

/* Finds, by value, gradients of weights that are one and the sums of them that `grad` wrote, where
 * nothing else reads what these sums are made of. O(values + ops). */
void ds_pipe__find_tied(const ds_pipe *p, ds_pipe_tied *of);

/* What begins with a weight's name, for a copy of the weights: %w.m.new → %w.copy1.m.new. */
const char *ds_pipe__rename(const ds_pipe *p, const char *name, uint32_t copy);

/* The function of an item: `kind` F, B, W, or A for B and W in one. Its func is NULL if there is
 * nothing to do. */
ds_status ds_pipe__func(ds_pipe *p, char kind, uint32_t chunk, uint32_t mb,
                        const ds_pipe_func **out, ds_error *err);

/* The new step: arguments, items in the schedule's order, and what stood behind. */
ds_status ds_pipe__emit(ds_pipe *p, ds_error *err);
ds_status ds_pipe__tail(ds_pipe *p, ds_error *err);
/* The chunks of ops behind the microbatches: op → chunk. `p` knows the calls, their arguments, and
 * how the forward text is cut. */
void ds_pipe__tail_chunks(ds_pipe *p, ds_map *of);

#endif
