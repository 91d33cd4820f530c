/* Which parts of a topology are interchangeable, and what one group's traffic says of another's.
 *
 * Two elements of a node array (`node n[32]`, `switch spine[8]`) are *twins* if exchanging them
 * changes nothing: what is inside is equal, link by link, and what links from outside end in them
 * comes from the same vertices, with the same figures. Every permutation of twins, at every level
 * of the tree of templates and each instance for itself, is an automorphism of the whole graph.
 * With one of them a list of vertices is brought to its *canonical place*: going through the list,
 * the first element that is met of a set of twins goes to the lowest place of the set, the next one
 * to the next. Lists with one canonical place are congruent: routes between members of one are the
 * images of those of the other, with the same latencies, capacities and shares. So what is found
 * for the canonical list holds for all, and its links are carried back by the permutation.
 *
 * A degraded link, or one more of them, makes its element no twin of the others. */
#ifndef DS_TOPO_SYMMETRY_H
#define DS_TOPO_SYMMETRY_H

#include "sim/topo/topo.h"

typedef struct ds_symmetry ds_symmetry;

/* The twins of a topology, found when first asked for, by comparing what is said of each link:
 * elements are taken to be twins if 64-bit hashes of all that has to be equal are. Owned by the
 * topo, and like its routes not thread-safe. O(links · depth). */
ds_symmetry *ds_topo_symmetry(ds_topo *topo);
void ds_symmetry_free(ds_symmetry *symmetry);

/* The canonical place of a list of vertices. Until the next call, or the next route that is asked
 * for, `ds_symmetry_carry_*` map that place back to the list. O(n · depth). */
void ds_symmetry_canonical(ds_symmetry *symmetry, const uint32_t *vertices, uint32_t n,
                           uint32_t *canonical);
/* Where the permutation takes a vertex, a link of the canonical place. O(depth), O(depth + log
 * links of a vertex). */
uint32_t ds_symmetry_carry_vertex(ds_symmetry *symmetry, uint32_t vertex);
uint32_t ds_symmetry_carry_link(ds_symmetry *symmetry, uint32_t link);

/* The link from one vertex to another that an automorphism takes `link` to: of equal figures, and
 * the same in order of parallel ones. O(log links of a vertex). */
uint32_t ds_symmetry_link_between(const ds_symmetry *symmetry, uint32_t link, uint32_t from,
                                  uint32_t to);

/* A step on the way from the root to a vertex: an element of an array. */
typedef struct ds_symmetry_step {
    uint32_t element, set;             /* its number, and that of its set of twins */
    uint32_t index;                    /* in its array */
    uint32_t first_vertex, first_link; /* of the whole graph */
    const struct ds_topo_node *node;   /* the array (tree.h) */
} ds_symmetry_step;
/* At most DS_TOPO_MAX_DEPTH steps; returns their number, 0 where nothing is exchanged. O(depth). */
uint32_t ds_symmetry_path(const ds_symmetry *symmetry, uint32_t vertex, ds_symmetry_step *steps);

/* Are the two vertices elements of one array and twins, or in twins at the same places? */
bool ds_symmetry_are_alike(ds_symmetry *symmetry, uint32_t a, uint32_t b);

#endif
