/* Megatron-LM's arguments: the ids of the lines of megatron.def. */
#ifndef DS_LAUNCH_MEGATRON_INTERNAL_H
#define DS_LAUNCH_MEGATRON_INTERNAL_H

#include "ir/launch/internal.h"

enum {
#define ARG(id, ...) A_##id,
#include "ir/launch/megatron.def"
    A_COUNT
};

/* The value of --pipeline-model-parallel-layout, in quotes, for stages that layers do not divide. */
void ds_launch__put_layout(const ds_launch *l, ds_buf *out);
/* Reads such a value into virtual_stages and stage_layers; false: not a layout of the model's layers
 * over pp stages that the strategy can say. */
bool ds_launch__read_layout(ds_launch *l, const char *text);

#endif
