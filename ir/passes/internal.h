/* Shared by the passes; not a public header. */
#ifndef DS_PASSES_INTERNAL_H
#define DS_PASSES_INTERNAL_H

#include "ir/passes/passes.h"

/* Is the step one of a pipeline that is written in brief (ds_model_step.brief)? Until `pipeline`
 * has written the program, such a step is not what verifies. */
static inline bool ds_step__is_brief(const ds_model_step *step) {
    return step->brief && step->train.on && step->strategy.pp > 1;
}

/* Verifies the step's unit, binds its params anew and verifies it with numbers. A finding is given
 * `code`, and says that it was found `after` a pass. */
ds_status ds_step__verify(ds_model_step *step, const char *after, ds_status code, ds_error *err);

/* The place of an error at a knob of the strategy: where the scenario says the knob, else where the
 * scenario says pp. */
ds_loc ds_step__knob(const ds_model_step *step, const char *name);

#endif
