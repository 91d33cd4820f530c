/* Meets of a skeleton that differ in their bytes alone; not a public header. */
#ifndef DS_PLAN_SKELETON_INTERNAL_H
#define DS_PLAN_SKELETON_INTERNAL_H

#include "sim/plan/internal.h"

typedef struct ds_skeleton_copies {
    uint32_t *of;           /* per meet: the meet that it is a copy of; DS_NONE: it is made */
    ds_map first;           /* ds_skeleton__alike → the last meet of the sort that was made */
    DS_VEC(ds_group) costs; /* per copy, in the order of meets: what one of its groups takes */
    DS_VEC(ds_flow) flows;
} ds_skeleton_copies;

/* Equal for meets that differ in their bytes alone. O(words of the op). */
uint64_t ds_skeleton__alike(const ds_builder *b, const ds_plan_meet *meet);
/* Is a meet of these groups, with the cost of `own`, a copy of theirs? O(groups). */
bool ds_skeleton__is_copy(const ds_record *first, const ds_group *own);
/* Once there are tasks and flows: adds those of the copies, so that instance i is meet i. Errors:
 * overflow. O(meets). */
ds_status ds_skeleton__add_copies(ds_builder *b, ds_skeleton_copies *copies, uint32_t n_meets,
                                  ds_error *err);
void ds_skeleton__copies_deinit(ds_skeleton_copies *copies);

#endif
