/* How skeletons are made: shared by skeleton*.c; not a public header.
 *
 * Steps of a sweep have few kinds of communication: over the same groups of a mesh, by the same
 * algorithm, with sizes of their own. So a skeleton is put together in three steps:
 *
 *     price    each meet: what one of its groups takes    kept per place and size
 *     base     the plan of one meet of each sort          kept per set of sorts
 *     copy     each meet is a copy of its sort's, with its own times
 *
 * Meets are of one *sort* if they differ in nothing but their bytes and times: same groups, streams
 * and links of the same phases. */
#ifndef DS_PLAN_SKELETON_INTERNAL_H
#define DS_PLAN_SKELETON_INTERNAL_H

#include "sim/plan/internal.h"

/* The first group of a meet, whatever its bytes. */
typedef struct ds_skeleton_place {
    const uint32_t *devices;
    uint32_t n;
    uint64_t kind; /* what a cost there depends on beside the bytes */
    /* Its groups are no images of each other, or are not looked at for that: no meet is a copy of
     * another one. */
    bool alone;
} ds_skeleton_place;

/* A meet with its price. */
typedef struct ds_skeleton_meet {
    uint64_t sort;
    const ds_group *cost; /* of one group; NULL: it stands alone */
    ds_skeleton_place *place;
    uint32_t of; /* itself */
} ds_skeleton_meet;

/* The plan of one meet of each sort. */
typedef struct ds_skeleton_base {
    ds_plan *plan;     /* instances: sorts, then stages */
    ds_flow *made;     /* per flow: as it was before classes of links bounded it; of no links */
    uint32_t *n_made;  /* per activity: phases of its groups that were looked at, or 0 */
    ds_map inst_of;    /* sort → instance */
    uint32_t n_stages; /* instances behind the sorts */
} ds_skeleton_base;

/* ---- skeleton_kept.c: what one skeleton leaves for the next ---- */

typedef struct ds_skeletons ds_skeletons;
ds_skeletons *ds_skeletons_new(void);
void ds_skeletons_free(ds_skeletons *kept);
/* Throws all of it away if it has become too much; what has been found is gone then. */
void ds_skeletons__make_room(ds_skeletons *kept);
/* The key that a grid's places and bases have; 0: nobody has asked. */
uint64_t ds_skeletons__grid(const ds_skeletons *kept, uint64_t own_key);
void ds_skeletons__keep_grid(ds_skeletons *kept, uint64_t own_key, uint64_t key);
/* NULL: there is none. */
ds_skeleton_place *ds_skeletons__place(const ds_skeletons *kept, uint64_t key);
ds_skeleton_place *ds_skeletons__keep_place(ds_skeletons *kept, uint64_t key,
                                            const ds_skeleton_place *place);
const ds_group *ds_skeletons__cost(const ds_skeletons *kept, uint64_t key);
const ds_group *ds_skeletons__keep_cost(ds_skeletons *kept, uint64_t key, const ds_group *cost);
const ds_skeleton_base *ds_skeletons__base(const ds_skeletons *kept, uint64_t key);
/* Takes it over. */
const ds_skeleton_base *ds_skeletons__keep_base(ds_skeletons *kept, uint64_t key,
                                                ds_skeleton_base base);
void ds_skeleton__base_deinit(ds_skeleton_base *base);

/* ground.c: where they are kept from plan to plan. */
ds_skeletons *ds_ground__skeletons(ds_plan_ground *ground);
/* Terms, time, algorithm and phases, with copies of what they point to. */
void ds_ground__copy_cost(const ds_group *from, ds_arena *arena, ds_group *out);

/* ---- skeleton_grid.c: where devices are ---- */

int64_t ds_skeleton__world(const ds_plan_grid *grid);
/* How many devices in a row have one coordinate of pp; there are so many stages. */
int64_t ds_skeleton__in_a_row(const ds_plan_grid *grid, uint32_t *n_stages);
/* Equal for grids that an automorphism of the topology takes to each other, device by device. The
 * topology has all of its devices. O(devices · depth). */
uint64_t ds_skeleton__place_key(ds_topo *topo, const ds_plan_grid *grid);

/* ---- skeleton_sizes.c: sorts, and copies ---- */

/* Equal for meets of the same groups and streams. O(words of the op). */
uint64_t ds_skeleton__alike(const ds_builder *b, const ds_plan_meet *meet);
/* The sort of a meet with this price. */
uint64_t ds_skeleton__sort(uint64_t alike, const ds_group *cost);
/* The base's plan, and behind it the tasks, activities and flows of all meets, so that instance i
 * is meet i. Errors: overflow. O(base + meets). */
ds_status ds_skeleton__copy(const ds_builder *b, const ds_skeleton_base *base,
                            const ds_skeleton_meet *meets, uint32_t n, ds_plan **out,
                            ds_error *err);

#endif
