/* The numbers that priors see. Internal to search/tag. */
#ifndef DS_SEARCH_TAG_VIEW_H
#define DS_SEARCH_TAG_VIEW_H

#include "search/tag/prior.h"

enum {
    DS_TAG_N_BATCHES = 4,
    DS_TAG_GROUP_WIDTH = 13,
    DS_TAG_MACHINE_WIDTH = 5,
    DS_TAG_PLACE_WIDTH = 5,
    DS_TAG_N_WAYS = 3 /* of searches: ps, all_reduce, split */
};

/* Edges of one type of the graph: messages go from `from` to `to`. */
typedef struct ds_tag_edges {
    uint32_t n;
    uint32_t *from, *to;
} ds_tag_edges;

struct ds_tag_view {
    const ds_tag_problem *problem;
    const ds_tag_action *actions;
    uint32_t n_actions, n_groups, n_machines;
    uint32_t *group_size;                /* operations */
    float *group_us;                     /* [group][machine][N_BATCHES] */
    float *group_bytes;                  /* [group][2]: parameters, tensors inside */
    float *machine;                      /* [machine][3]: GPUs, memory, bandwidth inside */
    ds_tag_edges tensors, places, links; /* group → group, machine → group, machine → machine */
    float *tensor, *link;
    uint64_t *machine_gpus;
    double total_us;
};

/* The numbers of a state: [groups][GROUP_WIDTH], [machines][MACHINE_WIDTH], [places][PLACE_WIDTH]
 * in the order of view->places. */
typedef struct ds_tag_numbers {
    float *group, *machine, *place;
} ds_tag_numbers;

ds_tag_numbers ds_tag__numbers(const ds_tag_state *state, ds_arena *arena);

#endif
