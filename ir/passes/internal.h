/* Shared by the passes; not a public header. */
#ifndef DS_PASSES_INTERNAL_H
#define DS_PASSES_INTERNAL_H

#include "ir/passes/passes.h"

/* Is the step one of a pipeline that is written in brief (ds_model_step.brief)? Before `pipeline`
 * such a step does not verify. */
static inline bool ds_step__is_brief(const ds_model_step *step) {
    return step->brief && step->train.on && step->strategy.pp > 1;
}

/* Verifies the step's unit, binds its params anew and verifies the unit with numbers. A finding
 * becomes an error of status `code` whose message names the pass `after` which it was found. */
ds_status ds_step__verify(ds_model_step *step, const char *after, ds_status code, ds_error *err);

/* The place of an error at a knob of the strategy: where the scenario sets the knob, else where the
 * scenario sets pp. */
ds_loc ds_step__knob(const ds_model_step *step, const char *name);

#endif
