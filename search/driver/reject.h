/* Candidates that lack memory for certain, told without simulating them. */
#ifndef DS_SEARCH_DRIVER_REJECT_H
#define DS_SEARCH_DRIVER_REJECT_H

#include "search/space/eval.h"

/* In front of the simulating evaluator, for sweeps with `memory_first = on`: a candidate whose
 * lower bound of memory (search/bound/bounds.h) is beyond a device's does not fit, with the reason
 * "needs at least N bytes, device has M"; it is told before verifier and passes look at it, so it
 * may be illegal too. All others are simulated. What the bounds know nothing of is simulated as
 * ever. Errors: those of ds_eval_new_simulation. */
ds_status ds_eval_new_memory_first(const ds_eval_source *source, ds_eval **out, ds_error *err);

#endif
