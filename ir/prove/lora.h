/* Not a public header: merged weights of adapters, for check.c. */
#ifndef DS_PROVE_LORA_H
#define DS_PROVE_LORA_H

#include "ir/exec/exec.h"
#include "ir/passes/passes.h"

/* The weights with adapters, each W + alpha / rank A B, by the names of `run`'s inputs, which it has
 * kept; in `arena`. O(elements · rank). */
ds_exec_tensor *ds_prove__merged(const ds_model_step *step, const ds_exec_result *run,
                                 ds_arena *arena, uint32_t *n);

#endif
