/* Shared by the passes; not a public header. */
#ifndef DS_PASSES_STEP_INTERNAL_H
#define DS_PASSES_STEP_INTERNAL_H

#include "ir/passes/passes.h"

/* Verifies the step's unit, binds its params anew and verifies it with numbers. A finding is given
 * `code`, and says that it was found `after` a pass. */
ds_status ds_step__verify(ds_model_step *step, const char *after, ds_status code, ds_error *err);

#endif
