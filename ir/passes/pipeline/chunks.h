/* Which chunk of a pipeline each op belongs to, before the pipeline is made: `shard` gives ops the
 * mesh of their stage where stages have several widths. */
#ifndef DS_PASSES_PIPELINE_CHUNKS_H
#define DS_PASSES_PIPELINE_CHUNKS_H

#include "ir/base/map.h"
#include "ir/passes/passes.h"

/* The chunk of every op of a step that is cut but not sharded yet, of the microbatches' functions
 * and of what follows them: op → chunk. Constants are left out. Errors: those of cutting. */
ds_status ds_pipe_chunks(ds_model_step *step, ds_map *of, ds_error *err);

/* Calls `visit` with every use in the op, bodies included. */
void ds_pipe_uses(const ds_op *op, void (*visit)(void *context, const ds_use *use), void *context);

#endif
