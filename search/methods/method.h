/* A way through a space: which candidates are evaluated, in which order.
 *
 * The driver (search/driver/sweep.h) asks for candidates and hands them to workers in rounds of
 * DS_ROUND. A method that learns from results has `tell`. The driver calls `tell` for every
 * candidate of a round, in order, before asking for the next round, so the method depends neither
 * on timing nor on the number of workers. Without `tell` candidates stream. */
#ifndef DS_SEARCH_METHODS_METHOD_H
#define DS_SEARCH_METHODS_METHOD_H

#include "search/space/eval.h"

#define DS_ROUND 256u

typedef struct ds_method ds_method;
struct ds_method {
    /* The next candidate, with `number`. *found is false at the end, and where a method that learns
     * waits for `tell` of all candidates that the method gave. */
    ds_status (*next)(ds_method *method, ds_candidate *candidate, bool *found, ds_error *err);
    /* May be NULL. `accepted`: the candidate fits and holds all conditions. */
    void (*tell)(ds_method *method, const ds_candidate *candidate, const ds_outcome *outcome,
                 bool accepted);
    double (*progress)(const ds_method *method); /* 0 … 1 */
    void (*free)(ds_method *method);
};

/* Every candidate, in the odometer's order. */
ds_method *ds_grid_new(ds_space *space);
/* Different candidates drawn at random, in the order of the draws; ends when a thousand draws in a
 * row bring nothing new. `n`: the number wanted, for the progress alone; 0: not known. */
ds_method *ds_random_new(ds_space *space, uint64_t seed, uint64_t n);

#endif
