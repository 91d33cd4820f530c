/* What collectives over parts of a mesh cost, all groups at once. Internal to search/pase. */
#ifndef DS_PASE_GROUPS_H
#define DS_PASE_GROUPS_H

#include "ir/base/map.h"
#include "sim/cost/cost.h"
#include "sim/topo/topo.h"

/* Mesh axes that are in the group: member number i is offset by Σ (digit of i)·stride. */
typedef struct ds_pase_group {
    uint32_t n_axes;
    uint32_t size[8], stride[8];
} ds_pase_group;

typedef struct ds_pase_groups {
    ds_topo *topo;
    const ds_profiles *profiles;
    uint32_t profile, devices;
    ds_arena arena;
    ds_map known; /* hash of op and group → a curve */
} ds_pase_groups;

void ds_pase__groups_init(ds_pase_groups *groups, ds_topo *topo, const ds_profiles *profiles,
                          uint32_t profile, uint32_t devices);
void ds_pase__groups_deinit(ds_pase_groups *groups);

/* What a collective takes by its size: microseconds at some sizes, linear between them. */
typedef struct ds_pase_curve ds_pase_curve;

/* Have the groups the same members? */
bool ds_pase__group_same(const ds_pase_group *a, const ds_pase_group *b);
/* Microseconds of the collective (all_reduce, all_to_all; S as in coll.h) in every group of that
 * shape, all at once: per phase the most loaded link. Piecewise linear in the bytes between sizes
 * that are computed; 0 for groups of one. */
ds_status ds_pase__group_us(ds_pase_groups *groups, ds_opcode op, const ds_pase_group *group,
                            double bytes, double *us, ds_error *err);
/* The same in two steps, for many sizes of one collective. The curve lives as long as `groups`;
 * NULL: a group of one. */
ds_status ds_pase__group_curve(ds_pase_groups *groups, ds_opcode op, const ds_pase_group *group,
                               const ds_pase_curve **out, ds_error *err);
double ds_pase__curve_us(const ds_pase_curve *curve, double bytes);

#endif
