/* Shared by the files of the overlap pass. */
#ifndef DS_PASSES_OVERLAP_INTERNAL_H
#define DS_PASSES_OVERLAP_INTERNAL_H

#include "ir/passes/build/edit.h"
#include "ir/passes/passes.h"

/* The number of stages of the step's function: 1 if no value is placed on stages. */
uint32_t ds_overlap__n_stages(const ds_model_step *step, const ds_func *func);
/* The stage of a call's function, or of an op's results; `otherwise` if the op has none. */
uint32_t ds_overlap__stage(const ds_model_step *step, const ds_func *func, const ds_op *op,
                           uint32_t otherwise);
/* The mesh of a place in the function. A mesh parameter stands for slices of equally wide meshes: the
 * mesh of the first call then. */
const ds_mesh *ds_overlap__mesh(const ds_model_step *step, const ds_func *func, const ds_place *on);
/* The value of which beginnings on the stage may be views: an argument on the stage's devices, or
 * an element of an argument; else the nearest value made before the op at `at`; value UINT32_MAX:
 * none. */
ds_use ds_overlap__base(const ds_model_step *step, const ds_func *func, uint32_t stage,
                        uint32_t at);

/* Adds the waits for offloads (host.c). `base`: the value of which tokens are views; `updates`:
 * values that updates read; `tokens`: carries that are no values of the model. O(ops). */
void ds_overlap__hold_host(const ds_model_step *step, ds_edit *edit, ds_use base,
                           const ds_map *updates, const ds_map *tokens);

/* Marks the exchanges of tokens with experts, as strategy.ep_overlap and strategy.ep_dispatch ask
 * (ep.c). O(ops). */
void ds_overlap__ep(ds_model_step *step, ds_func *func);

/* Runs tensor parallelism's communication under products, as strategy.tp_overlap says (tp.c). O(ops
 * · collectives of a block). */
ds_status ds_overlap__tp(ds_model_step *step, ds_func *func, ds_error *err);

#endif
