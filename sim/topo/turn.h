/* Turns: automorphisms of a topology that move elements of node arrays around in circles.
 *
 * A turn takes each of some elements (nodes of a cluster, units of a fabric) to the next of its
 * circle, with all that is inside; all circles are equally long, the turn's *order*, and everything
 * else stays. Elements of one circle are twins (symmetry.h), so a turn is an automorphism of the
 * whole graph. Under a turn a device or a link has as many images as the order says, or stays where
 * it is; the one in the lowest element of the circle stands for the others. */
#ifndef DS_TOPO_TURN_H
#define DS_TOPO_TURN_H

#include "sim/topo/topo.h"

typedef struct ds_turn ds_turn;

/* The turn that takes device from[i] to to[i], for all i < n; NULL if there is none. The devices
 * may be named in any order, each once on either side. O(n · depth). */
ds_turn *ds_turn_new(ds_topo *topo, const uint32_t *from, const uint32_t *to, uint32_t n);
void ds_turn_free(ds_turn *turn);
uint32_t ds_turn_order(const ds_turn *turn);

/* Where a device or a link is on its circle: the `steps`-th image of `first`. */
typedef struct ds_turned {
    uint32_t first, steps;
    bool moves; /* false: it stays, and is `first` itself */
} ds_turned;
/* O(depth), O(depth + log links of a vertex); of links not thread-safe, like a topo's routes. */
ds_turned ds_turn_device(const ds_turn *turn, uint32_t device);
ds_turned ds_turn_link(const ds_turn *turn, uint32_t link);

#endif
