/* The chunk of a pipeline that each op belongs to, known before the pipeline is made: where stages
 * differ in width, `shard` needs the stage's mesh for each op. */
#ifndef DS_PASSES_PIPELINE_CHUNKS_H
#define DS_PASSES_PIPELINE_CHUNKS_H

#include "ir/base/map.h"
#include "ir/passes/passes.h"

/* Finds the chunk of every op, in the microbatches' functions and after their calls, of a step
 * between `stage` and `shard`: op → chunk. Constants are left out. Errors: errors of cutting. */
ds_status ds_pipe_chunks(ds_model_step *step, ds_map *of, ds_error *err);

/* Calls `visit` with every use in the op, bodies included. */
void ds_pipe_uses(const ds_op *op, void (*visit)(void *context, const ds_use *use), void *context);

#endif
