/* Shared by the files of the stage pass; not a public header.
 *
 *   stage.c    the pass: schedule, weights' arguments, the step built anew
 *   cut.c      units, and where the cut is
 *   piece.c    chunks in pieces of layers that are alike in what they do
 *   weights.c  which chunk reads which weights, or elements of weights
 *   flow.c     the same without training, where loops stay as they are */
#ifndef DS_PASSES_STAGE_INTERNAL_H
#define DS_PASSES_STAGE_INTERNAL_H

#include "ir/passes/build/flow.h"
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
    struct ds_stage_piece *pieces; /* in order of units; a chunk has one piece or several */
    uint32_t n_pieces;
} ds_stage_cut;

/* A run of units of one chunk whose turns are alike: bits DS_LAYERS_…. Loops are cut where a piece
 * ends. */
typedef struct ds_stage_piece {
    int64_t first; /* unit */
    uint32_t chunk;
    uint32_t at; /* number of the piece in its chunk */
    uint8_t marks;
} ds_stage_piece;

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
/* The piece of a unit; the last piece for a number beyond the last unit. O(log pieces). */
uint32_t ds_stage__piece(const ds_stage_cut *cut, int64_t unit);
/* The first unit after a piece. */
int64_t ds_stage__end(const ds_stage_cut *cut, uint32_t piece);
/* Does the item run in more than one piece? */
bool ds_stage__is_cut(const ds_stage_cut *cut, const ds_stage_item *item);
/* The suffix of names of a piece: ".c1", ".c1.p0"; ".p0" without a pipeline. */
const char *ds_stage__suffix(const ds_model_step *step, const ds_stage_cut *cut, uint32_t piece);

/* The part of a weight that one piece of a loop reads: elements lo … hi − 1 of a family by the
 * family's first binder. Of a single weight: the copy that one chunk has. */
typedef struct ds_stage_part {
    uint32_t chunk;
    uint32_t piece; /* of a family; the chunk's first piece of a single weight */
    bool sent;      /* its states wait at the host; set by ds_stage__pieces */
    int64_t lo, hi;
    ds_value arg; /* of the new step; set by stage.c */
} ds_stage_part;

typedef struct ds_stage_weight {
    ds_stage_part *parts; /* in order of pieces; at least one */
    uint32_t n_parts;
    bool shared_out; /* a family whose elements are in several pieces */
    bool is_family;
} ds_stage_weight;

/* weights.c: an entry for each of step->weights, in the step's arena.
 * Errors: DS_ERR_UNSUPPORTED for a family of which two pieces read the same element, or whose
 * elements are not neighbours in their piece; DS_ERR_VALUE for a chunk without a weight;
 * DS_ERR_LIMIT. O(ops · turns). */
ds_status ds_stage__weights(const ds_model_step *step, const ds_stage_names *names,
                            const ds_stage_cut *cut, ds_stage_weight **out, ds_error *err);

/* flow.c: an entry for each of step->weights, and the stage of each value of the step; sets step->cut.chunk_turns. cut->pieces
 * are whole chunks. Errors: DS_ERR_UNSUPPORTED for an op that reads weights of two stages;
 * DS_ERR_VALUE for a stage without a weight. */
ds_status ds_stage__flow(ds_model_step *step, const ds_stage_names *names, const ds_stage_cut *cut,
                         ds_stage_weight **out, const uint32_t **stage, ds_error *err);
/* The stage on which an op runs; 0 for an op without operands. */
uint32_t ds_stage__of(const uint32_t *stage, const ds_op *op);

/* piece.c: makes each chunk one piece. O(chunks). */
void ds_stage__whole(const ds_model_step *step, ds_stage_cut *cut);
/* Cuts these pieces where layers begin to differ, and finds the single weights whose states wait at
 * the host. `weights` are those of whole chunks. Errors: DS_ERR_UNSUPPORTED for layers that the
 * model does not have, or that run again in blocks; evaluation. O(units + weights). */
ds_status ds_stage__pieces(const ds_model_step *step, ds_stage_weight *weights, ds_stage_cut *cut,
                           ds_error *err);

#endif
