/* Which split of an operation is the outermost. */
#ifndef DS_PASE_ALIGN_H
#define DS_PASE_ALIGN_H

#include "search/pase/pase.h"

/* The axes of a node that are split, outermost first. */
typedef struct ds_pase_nesting {
    uint32_t n;
    uint8_t axis[DS_PASE_MAX_AXES];
} ds_pase_nesting;

/* As they come: what distsim's costs stand for. */
ds_pase_nesting ds_pase_nested(const ds_pase_node *node, const uint16_t *split);

/* PaSE's formulas take all devices for aligned: a tensor that both ends split alike is not moved.
 * That takes splits nested so that it lies alike too. One operation after the other, in the order
 * of the program, gets the nesting under which the fewest bytes of what it reads have to move; of
 * equals the first. nesting[nodes]. O(edges · n! · devices) for n splits of an operation. */
void ds_pase_align(const ds_pase_graph *graph, const ds_pase_splits *strategy, int64_t devices,
                   ds_pase_nesting *nesting);

#endif
