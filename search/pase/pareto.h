/* A memory limit as part of the state: the cheapest strategy that keeps it, exactly. Internal to
 * search/pase.
 *
 * Where the elimination (eliminate.h) keeps for each assignment of a node's dependent nodes the
 * least cost, this keeps all pairs of cost and bytes that no other one is better than in everything
 * (three numbers where memory has two moments). Nothing is rounded, so the last list has the
 * optimum. What cannot keep the limit any more, or cost less than a strategy that is known, is
 * dropped. Lists can grow without bound: beyond the limits below it gives up. */
#ifndef DS_PASE_PARETO_H
#define DS_PASE_PARETO_H

#include "search/pase/tables.h"

#define DS_PARETO_MAX_POINTS 4000000u /* in all lists: 96 MB */
#define DS_PARETO_MAX_WORK   3e8      /* sums: about a second */

typedef enum ds_pareto_verdict {
    DS_PARETO_FOUND,    /* choice[] is the optimum */
    DS_PARETO_NONE,     /* no strategy keeps the limit (and costs less than `below`) */
    DS_PARETO_TOO_LARGE /* given up */
} ds_pareto_verdict;

typedef struct ds_pareto_problem {
    const ds_pase_graph *graph;
    const ds_pase_tables *tables;
    const uint32_t *order, *goes; /* of elimination: node by place, place by node */
    double limit, below;          /* of bytes at all moments; of cost, INFINITY: any cost */
} ds_pareto_problem;

/* Of the strategies within the limits one that costs least. choice[nodes], *cost. */
ds_pareto_verdict ds_pase__pareto(const ds_pareto_problem *problem, uint32_t *choice, double *cost);

#endif
