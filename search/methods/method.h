/* A way through a space: which candidates are evaluated, in which order.
 *
 * The driver (search/driver/sweep.h) asks for candidates and hands them to workers in rounds of
 * DS_ROUND. A method that learns from results has `tell`; it is called for every candidate of a
 * round, in order, before the next round is asked for, so what it does depends on no timing and on
 * no number of workers (SEMANTICS R2). Without `tell` candidates stream. */
#ifndef DS_SEARCH_METHODS_METHOD_H
#define DS_SEARCH_METHODS_METHOD_H

#include "search/space/eval.h"

#define DS_ROUND 256u

typedef struct ds_method ds_method;
struct ds_method {
    /* The next candidate, `number` and all; false: no more, or, of one that learns, none before it
     * has been told of all that it gave. */
    ds_status (*next)(ds_method *method, ds_candidate *candidate, bool *found, ds_error *err);
    /* May be NULL. `accepted`: it fits and holds all conditions. */
    void (*tell)(ds_method *method, const ds_candidate *candidate, const ds_outcome *outcome,
                 bool accepted);
    double (*progress)(const ds_method *method); /* 0 … 1 */
    void (*free)(ds_method *method);
};

/* Every candidate, in the odometer's order. */
ds_method *ds_grid_new(ds_space *space);
/* Different candidates drawn at random, in the order of the draws; ends when a thousand draws in a
 * row bring nothing new. `n` is how many are wanted, for the progress alone; 0: not known. */
ds_method *ds_random_new(ds_space *space, uint64_t seed, uint64_t n);

#endif
