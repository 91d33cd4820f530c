/* Shared by optimizer.c and clip.c; not a public header. */
#ifndef DS_PASSES_OPTIMIZER_INTERNAL_H
#define DS_PASSES_OPTIMIZER_INTERNAL_H

#include "ir/passes/build/build.h"
#include "ir/passes/passes.h"

/* Are both families over the same range, of the same chunk? */
bool ds_optimizer__same_range(const ds_model_step *step, const ds_func *func, uint32_t a,
                              uint32_t b);

/* The gradients of a step with `clip_norm`. */
typedef struct ds_clip {
    ds_model_step *step;
    ds_builder *b;
    ds_use *gradient; /* by weight; a whole family if the weight is a family */
    ds_value *square; /* by weight: the sum of its squares */
    ds_use *factor;   /* by weight, in its gradient's dtype */
} ds_clip;

/* Writes the norm of all gradients and the factors that scale them. The caller sets `gradient`;
 * afterwards `gradient` has the final gradients, to be scaled. */
ds_status ds_clip__norm(ds_clip *c, ds_error *err);
/* Scales one weight's gradient, or one element of a family. */
ds_status ds_clip__scale(ds_clip *c, uint32_t weight, ds_use gradient, ds_use *out, ds_error *err);

#endif
