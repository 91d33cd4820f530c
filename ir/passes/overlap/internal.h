/* Shared by the files of the overlap pass. */
#ifndef DS_PASSES_OVERLAP_INTERNAL_H
#define DS_PASSES_OVERLAP_INTERNAL_H

#include "ir/passes/build/edit.h"
#include "ir/passes/passes.h"

/* Stages that the step's function has: 1 where nothing is placed on stages. */
uint32_t ds_overlap__n_stages(const ds_model_step *step, const ds_func *func);
/* The stage of a call's function, or of what an op makes; `otherwise` if it has none. */
uint32_t ds_overlap__stage(const ds_model_step *step, const ds_func *func, const ds_op *op,
                           uint32_t otherwise);
/* What beginnings on the stage may be views of: an argument on its devices, or an element of one;
 * else the nearest value that is made before the op at `at`; value UINT32_MAX: there is none. */
ds_use ds_overlap__base(const ds_model_step *step, const ds_func *func, uint32_t stage,
                        uint32_t at);

/* What waits for offloads (host.c). `base`: what tokens are views of; `updates`: values
 * that updates read; `tokens`: carries that are no values of the model. O(ops). */
void ds_overlap__hold_host(const ds_model_step *step, ds_edit *edit, ds_use base,
                           const ds_map *updates, const ds_map *tokens);

/* Tensor parallelism's communication under products, as strategy.tp_overlap says (tp.c).
 * O(ops), times those of a block for each collective in it. */
ds_status ds_overlap__tp(ds_model_step *step, ds_func *func, ds_error *err);

#endif
