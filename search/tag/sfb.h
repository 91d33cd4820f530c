/* Sufficient factors in deployments of TAG mode (sim/run/sfb.h has the choice itself). */
#ifndef DS_SEARCH_TAG_SFB_H
#define DS_SEARCH_TAG_SFB_H

#include "search/tag/tag.h"
#include "sim/run/sfb.h"

/* The problem of the operations of `group` and of all groups with the same GPUs and shares, under a
 * deployment of a checked problem: operation i is the graph's operation i. T is the slowest replica's
 * time in whole microseconds, S the greatest share's bytes, B the slowest link's bandwidth. A sum is a
 * gradient: TAG mode reduces it before any operation reads it. Operations that all replicas compute
 * whole anyway, and all operations unless the group has all_reduce on two GPUs and more, stay.
 * Errors: those of ds_tag_simulate's actions. */
ds_status ds_tag_sfb_of_group(const ds_tag_problem *problem, const ds_tag_action *action,
                              uint32_t group, ds_sfb_gather gather, ds_arena *arena,
                              ds_sfb_problem *out, ds_error *err);

typedef struct ds_tag_sfb_deployment {
    ds_tag_problem problem; /* twice as many groups: those of index n_groups + g have duplicate */
    ds_tag_op *op;          /* of the problem, with new groups */
    ds_tag_action *action;  /* [twice n_groups] */
    uint32_t n_whole;
    double cost_us; /* sums of all choices */
    int64_t gathered_bytes, spared_bytes;
} ds_tag_sfb_deployment;

/* The deployment with sufficient factors: chosen operations leave their group for one on the same GPUs
 * whose way is `duplicate`. Without any chosen operation the simulation is the same. Memory has no part
 * in the choice. */
ds_status ds_tag_sfb_deploy(const ds_tag_problem *problem, const ds_tag_action *action,
                            ds_sfb_gather gather, ds_arena *arena, ds_tag_sfb_deployment *out,
                            ds_error *err);

#endif
