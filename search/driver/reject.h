/* Rejecting candidates that certainly lack memory, without simulation. */
#ifndef DS_SEARCH_DRIVER_REJECT_H
#define DS_SEARCH_DRIVER_REJECT_H

#include "search/space/eval.h"

/* The evaluator of sweeps with `memory_first = on`: a candidate whose lower bound of memory
 * (search/bound/bounds.h) is beyond a device's memory does not fit, with the reason "needs at least
 * N bytes, device has M". Verifier and passes never see a rejected candidate, which may be illegal,
 * too. Every other candidate is simulated. Errors: those of ds_eval_new_simulation. */
ds_status ds_eval_new_memory_first(const ds_eval_source *source, ds_eval **out, ds_error *err);

#endif
