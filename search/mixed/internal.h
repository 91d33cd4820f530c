/* Between the files of search/mixed. */
#ifndef DS_SEARCH_MIXED_INTERNAL_H
#define DS_SEARCH_MIXED_INTERNAL_H

#include "search/mixed/mixed.h"

enum { DS_MIXED__POOL = 96, DS_MIXED__ALIKE = 2 };

/* The best plans by estimate, the best first; of plans that differ in microbatches alone the best
 * DS_MIXED__ALIKE. */
typedef struct ds_mixed__pool {
    const ds_mixed_problem *problem;
    ds_mixed_goal goal;
    ds_mixed_faults faults;
    double within_s; /* plans that are estimated slower come last; 0: none */
    uint32_t n;
    double values[DS_MIXED__POOL];
    ds_mixed_plan plans[DS_MIXED__POOL];
    uint64_t n_estimated;
} ds_mixed__pool;

/* Shares and cuts the batch and the layers, and chooses zero and, where nothing else fits,
 * recomputation, by estimate; false: it does not fit. */
bool ds_mixed__complete(const ds_mixed_problem *problem, ds_mixed_plan *plan);
/* Lists all structures of the pool's problem and puts the best into the pool. */
void ds_mixed__list(ds_mixed__pool *pool);

#endif
