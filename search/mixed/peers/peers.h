/* Other planners' methods, as their papers publish them, on distsim's problem: each has the same times and
 * bandwidths of pieces, plans by its own rules and its own cost, and yields plans that the same simulator
 * runs. README.md has the rules, and how far each method is reduced. */
#ifndef DS_SEARCH_MIXED_PEERS_PEERS_H
#define DS_SEARCH_MIXED_PEERS_PEERS_H

#include "search/mixed/mixed.h"

enum { DS_MIXED_PEER_PLANS = 3 };

/* A planner's best plans by its own cost, the best first. */
typedef struct ds_mixed_peer_plans {
    uint32_t n;
    double costs[DS_MIXED_PEER_PLANS];
    ds_mixed_plan plans[DS_MIXED_PEER_PLANS];
} ds_mixed_peer_plans;

typedef struct ds_mixed_peer {
    const char *name, *paper;
    void (*plan)(const ds_mixed_problem *problem, ds_mixed_peer_plans *out);
} ds_mixed_peer;

const ds_mixed_peer *ds_mixed_peers(uint32_t *n);

/* ---- between the planners ---- */

void ds_mixed_peer_amp(const ds_mixed_problem *problem, ds_mixed_peer_plans *out);
void ds_mixed_peer_metis(const ds_mixed_problem *problem, ds_mixed_peer_plans *out);
void ds_mixed_peer_flashflex(const ds_mixed_problem *problem, ds_mixed_peer_plans *out);
void ds_mixed_peer_sailor(const ds_mixed_problem *problem, ds_mixed_peer_plans *out);

/* Keeps the plan if it is among the best. */
void ds_mixed_peer_keep(ds_mixed_peer_plans *out, const ds_mixed_plan *plan, double cost);
/* (m - 1) max_s t_s + Σ_s t_s + Σ_s 2 send_s + max_s sum_s of a plan of stages: the cost of 1F1B and of
 * GPipe that AMP, Metis and Sailor state alike. */
double ds_mixed_peer_cost(const ds_mixed_problem *problem, const ds_mixed_plan *plan);
/* Seconds of a layer on a stage, of a microbatch. */
double ds_mixed_peer_layer_s(const ds_mixed_problem *problem, const ds_mixed_plan *plan,
                             uint32_t s);
/* Cuts the layers in proportion to the stages' speeds, at least one each; largest remainders first. */
bool ds_mixed_peer_proportional(const ds_mixed_problem *problem, ds_mixed_plan *plan);
/* The next order of the n kinds in `order`; false after the last. */
bool ds_mixed_peer_next_order(uint8_t *order, uint32_t n);

/* A walk over plans of stages in which the kinds follow one another and all devices take part. */
typedef struct ds_mixed_peer_walk ds_mixed_peer_walk;
struct ds_mixed_peer_walk {
    const ds_mixed_problem *problem;
    ds_mixed_peer_plans *out;
    /* Appends the devices of kind order[at] to the plan, in each way that the planner knows, and calls
     * ds_mixed_peer_append after each. */
    void (*part)(const ds_mixed_peer_walk *walk, ds_mixed_plan *plan, uint32_t at);
    /* Cuts the layers; false: the plan does not fit. */
    bool (*fit)(const ds_mixed_problem *problem, ds_mixed_plan *plan);
    uint8_t order[DS_MIXED_KINDS];
    uint32_t pipelines; /* a planner's own */
};

/* Appends n[0] stages with twice the replicas of `stage` and n[1] like `stage`, on kind order[at], and goes
 * on with the next kind; after the last kind the plan is kept with each number of microbatches that
 * fits. Nothing happens where there are too many stages. */
void ds_mixed_peer_append(const ds_mixed_peer_walk *walk, ds_mixed_plan *plan, uint32_t at,
                          const ds_mixed_stage *stage, const uint32_t n[2]);
/* All orders of the kinds. */
void ds_mixed_peer_walk_all(ds_mixed_peer_walk *walk);

#endif
