/* Shared by the files of the overlap pass. */
#ifndef DS_PASSES_OVERLAP_INTERNAL_H
#define DS_PASSES_OVERLAP_INTERNAL_H

#include "ir/passes/edit.h"

/* What waits for offloads (overlap_host.c). `base`: what tokens are views of; `updates`: values
 * that updates read; `tokens`: carries that are no values of the model. O(ops). */
void ds_overlap__hold_host(ds_edit *edit, ds_use base, uint32_t prefetch, const ds_map *updates,
                           const ds_map *tokens);

#endif
