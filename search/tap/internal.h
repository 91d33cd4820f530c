/* Shared by the files of search/tap. */
#ifndef DS_TAP_INTERNAL_H
#define DS_TAP_INTERNAL_H

#include "search/tap/tap.h"

/* The edges of node v that count: list[first[v] … first[v + 1] - 1], in the order of the graph. */
typedef struct ds_tap_edges {
    uint32_t *first, *list;
} ds_tap_edges;
ds_tap_edges ds_tap__edges_of(const ds_pase_graph *graph, const ds_pase_model *model,
                              bool by_reader, ds_arena *arena);

/* The graph with one block of every run: its first, of which what reads the last copy reads. */
typedef struct ds_tap_short {
    ds_arena arena;
    ds_pase_graph *graph;
    uint32_t *node,
        *edge; /* of the whole graph → what stands for it; edges that do not count: none */
    /* Of the short graph: 0, or 1 + the run whose block it belongs to. A block's edges are all that
     * its nodes read, and those to global nodes behind the run. */
    uint32_t *node_run, *edge_run;
    uint32_t *alike; /* per node: the first that is equal but for its place */
} ds_tap_short;
#define DS_TAP_NO_EDGE UINT32_MAX

/* alike: of the whole graph. */
ds_tap_short *ds_tap__short_new(const ds_tap_fold *fold, const ds_pase_model *model,
                                const uint32_t *alike);
void ds_tap__short_free(ds_tap_short *s);

#endif
