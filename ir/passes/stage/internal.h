/* Shared by the files of the stage pass; not a public header.
 *
 *   stage.c    the pass: schedule, weights' arguments, the step built anew
 *   cut.c      units, and where the cut is
 *   weights.c  which chunk reads which weights, or elements of weights */
#ifndef DS_PASSES_STAGE_INTERNAL_H
#define DS_PASSES_STAGE_INTERNAL_H

#include "ir/passes/internal.h"

/* A *unit* is never cut: an op outside of loops, or one turn of an outermost loop. Units are
 * numbered in the order in which they run. */
typedef struct ds_stage_item {
    const ds_op *op;
    int64_t first; /* number of the item's first unit */
    int64_t lo, n; /* first turn and number of turns of a loop; else 0 and 1 */
    bool reads;    /* the item reads a weight */
} ds_stage_item;

typedef struct ds_stage_cut {
    ds_stage_item *items; /* one item an op of the step's body, except the return */
    uint32_t n_items;
    int64_t n_units, n_turns;
    uint32_t n_chunks;
    int64_t *begin; /* [n_chunks + 1]: chunk c has the units begin[c] … begin[c + 1] − 1 */
} ds_stage_cut;

/* Finds the weight of the step that a value is; step->weights.n: none. O(1). */
typedef struct ds_stage_names {
    const ds_model_step *step;
    ds_map weights; /* value → index into step->weights */
} ds_stage_names;
void ds_stage__names_init(ds_stage_names *names, const ds_model_step *step);
void ds_stage__names_deinit(ds_stage_names *names);
uint32_t ds_stage__weight(const ds_stage_names *names, ds_value value);

/* cut.c. step->schedule gives the number of chunks. The step's arena owns all memory.
 * Errors: DS_ERR_VALUE at the knob if the strategy's cut does not fit; errors of counting. */
ds_status ds_stage__cut(const ds_model_step *step, const ds_stage_names *names, ds_stage_cut *out,
                        ds_error *err);
/* The cut in turns, in the step's arena. O(items · chunks). */
ds_step_cut ds_stage__turns(const ds_model_step *step, const ds_stage_cut *cut);
/* The chunk of a unit; the last chunk for a number beyond the last unit. O(log chunks). */
uint32_t ds_stage__chunk(const ds_stage_cut *cut, int64_t unit);
/* Does the item run in more than one chunk? */
bool ds_stage__is_cut(const ds_stage_cut *cut, const ds_stage_item *item);

/* The part of a weight that one chunk reads: elements lo … hi − 1 of a family by its first
 * binder. */
typedef struct ds_stage_part {
    uint32_t chunk;
    int64_t lo, hi;
    ds_value arg; /* of the new step; set by stage.c */
} ds_stage_part;

typedef struct ds_stage_weight {
    ds_stage_part *parts; /* in order of chunks; at least one */
    uint32_t n_parts;
    bool shared_out; /* a family whose elements are in several chunks */
} ds_stage_weight;

/* weights.c: an entry for each of step->weights, in the step's arena.
 * Errors: DS_ERR_UNSUPPORTED for a family of which two chunks read the same element, or whose
 * elements are not neighbours in their chunk; DS_ERR_VALUE for a chunk without a weight;
 * DS_ERR_LIMIT. O(ops · turns). */
ds_status ds_stage__weights(const ds_model_step *step, const ds_stage_names *names,
                            const ds_stage_cut *cut, ds_stage_weight **out, ds_error *err);

#endif
