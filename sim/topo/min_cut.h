/* The minimum cut of a directed graph, with igraph's maximum flow, in whole numbers. */
#ifndef DS_TOPO_MIN_CUT_H
#define DS_TOPO_MIN_CUT_H

#include "ir/base/error.h"

#include <stdbool.h>

enum { DS_MIN_CUT_SOURCE, DS_MIN_CUT_SINK, DS_MIN_CUT_FIRST_OTHER };

#define DS_MIN_CUT_NEVER INT64_MAX /* the capacity of an arc that no minimum cut may cut */

typedef struct ds_min_cut_arc {
    uint32_t from, to;
    int64_t capacity; /* at least 0 */
} ds_min_cut_arc;

/* Sets is_behind[n_vertices]: the vertices on the sink's side of the minimum cut. Of several minimum
 * cuts the least set, which is part of all the others. The sink is in it, the source is not.
 *
 * igraph computes in doubles. No capacity counts for more than the sum of the capacities into the sink,
 * which changes no least set. In units of the greatest common divisor the sums out of the source and
 * into the sink are at most 2^53, so that all flows are exact. Errors: LIMIT if they are not. Safe in
 * several threads at once (one after the other). */
ds_status ds_min_cut(const ds_min_cut_arc *arc, uint32_t n_arcs, uint32_t n_vertices,
                     bool *is_behind, ds_error *err);

#endif
