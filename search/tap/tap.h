/* Search that does not grow with depth: equal blocks are folded, searched once, and composed.
 *
 * A model of many layers is the same block again and again. TAP finds such blocks and searches one
 * of them; here that one is searched by PaSE's programme for every assignment of its boundary, and
 * what a chain of them costs is a (min,+) power of the table that this gives. So the strategy is as
 * good as that of the whole graph, in which every copy of a block may be split in its own way.
 *
 * Source: Shi et al., "TAP: Accelerating Large-Scale DNN Training Through Tensor Automatic
 * Parallelisation", arXiv:2302.00247; its restriction that all copies are split alike is not
 * taken over. The programme within a block: search/pase/pase.h. */
#ifndef DS_TAP_TAP_H
#define DS_TAP_TAP_H

#include "ir/base/json.h"
#include "search/pase/pase.h"

/* A run of equal blocks: `copies` times `period` nodes, from node `start` on in the order of the
 * program. */
typedef struct ds_tap_run {
    uint32_t start, period, copies;
    /* The boundary between two copies: offsets in a copy of the nodes whose tensors the next one
     * reads; `in` are those that the first copy reads in their place. */
    uint32_t n_state, *state, *in;
    /* Nodes outside that all copies have to do with, like an encoder's output: they read it, or it
     * reads all of them, or they share a weight with it. */
    uint32_t n_global, *global;
} ds_tap_run;

typedef struct ds_tap_fold {
    ds_arena arena;
    const ds_pase_graph *graph;
    DS_VEC(ds_tap_run) runs; /* by start; they do not overlap */
    uint32_t n_unique;       /* nodes that are left if every run is one block */
    struct ds_tap_short *shortened;
} ds_tap_fold;

/* Finds the runs. Names do not matter: nodes are equal by op, shapes, attributes and kinds of
 * operands, and a run is proposed where their local structure repeats (a hash of a node and of
 * those that it reads) and accepted after a walk through all copies in step, edge by edge. Of the
 * places where a period can be cut, the one with the smallest boundary is taken.
 * `model` says which edges count and which configurations there are. Deterministic.
 * O(periods · nodes) + O(nodes · period) for each that repeats; periods proposed are at most
 * DS_TAP_MAX_PERIODS. Errors: the limits'. */
#define DS_TAP_MAX_PERIODS 64u
ds_status ds_tap_fold_new(const ds_pase_graph *graph, const ds_pase_model *model, ds_tap_fold **out,
                          ds_error *err);
void ds_tap_fold_free(ds_tap_fold *fold);

/* The best strategy of the whole graph, as ds_pase_search finds it: same result, sizes of tables
 * but for those. Costs are rounded once, to 2^-52 of a bound for their sum, so that sums are exact
 * and those of folded and unfolded graphs are the same number; `cost` is the sum of the costs as
 * the model gave them.
 * O(Π of what one block depends on + boundary³ · log copies), whatever the number of copies, but
 * for writing down the strategy. Memory limit: as ds_pase_search. Errors: likewise. */
ds_status ds_tap_search(const ds_tap_fold *fold, ds_pase_model *model,
                        const ds_pase_options *options, ds_pase_result **out, ds_error *err);

/* ---- meshes ---- */

/* One way to lay p = dp·tp devices out, and the best strategy on it. */
typedef struct ds_tap_mesh {
    int64_t dp, tp;
    double cost, memory_bytes;
    bool fits;
} ds_tap_mesh;

typedef struct ds_tap_meshes {
    ds_arena arena;
    ds_pase_graph *graph;       /* with each node's axis of examples: what was searched */
    DS_VEC(ds_tap_mesh) meshes; /* by tp */
    uint32_t best;              /* the cheapest that fits; if none fits, that of least memory */
    ds_tap_fold *fold;          /* its */
    ds_pase_result *result;     /* its */
} ds_tap_meshes;

/* The best strategy on each mesh dp x tp of the model's devices: dp splits the examples of a batch,
 * tp one more axis of an operation, whichever costs least (for a matrix product columns, rows or
 * examples again, TAP's patterns). As many searches as p has divisors; with `tp` above 0, which
 * must divide p, on that mesh alone. Errors: as ds_tap_search. */
ds_status ds_tap_search_meshes(const ds_pase_graph *graph, ds_pase_model *model, int64_t tp,
                               const ds_pase_options *options, ds_tap_meshes **out, ds_error *err);
void ds_tap_meshes_free(ds_tap_meshes *meshes);

/* ---- reports ---- */

/* A line a run: how many copies of how many operations, where from, and its boundary. */
void ds_tap_print_fold(const ds_tap_fold *fold, ds_buf *out);
/* A line a mesh. */
void ds_tap_print_meshes(const ds_tap_meshes *meshes, const ds_pase_model *model, ds_buf *out);
/* Both, as keys of the JSON object that is open; meshes may be NULL. */
void ds_tap_put_json(const ds_tap_fold *fold, const ds_tap_meshes *meshes, ds_json *json);

#endif
