/* The scenario that repeats a published run. */
#ifndef DS_VALIDATE_SCENARIO_H
#define DS_VALIDATE_SCENARIO_H

#include "tools/validate/testbed.h"

/* How many layers each stage has, as the frameworks of these tables divide them: equally; if that
 * does not go, with the embedding and the head counted as a layer each (Megatron-DeepSpeed's
 * partition method "type:transformer|embedding"); if that does not go either, as many as are needed
 * on each stage, and what is left on the last ones ("type:transformer"). 0 ≤ stage < pp. */
int64_t val_stage_layers(const val_row *row, int64_t stage);

/* The least number of microbatches that hold as much as all of the row's would: those that a stage
 * of 1F1B has in flight, pp, of interleaved 1F1B less than 2 pp, and at least 3, the first, the
 * last and one between. */
int64_t val_memory_microbatches(const val_row *row);

/* The cell gpu, "a100_80gb" or "V100-32GB (DGX-2)", as the catalogue writes the name. */
void val_gpu_name(const char *gpu, char *name, size_t room);

/* The cell gpu, or the card of which the notes tell ("96 GB HBM2e"). */
const char *val_row_gpu(const val_row *row);

/* What is wanted of the scenario. */
typedef enum val_purpose {
    VAL_TIME,   /* the whole step under the testbed's profile */
    VAL_MEMORY, /* as an allocator counts, with the framework's buffers, without costs */
    VAL_FITS,   /* the whole step as its published recipe keeps it in memory, without costs */
    VAL_AT_HOST /* the same with the activations of all layers at hosts */
} val_purpose;

/* Appends the scenario of a complete row: its model on nodes of its GPUs. Of gbs / (mbs dp)
 * microbatches it has at most `max_microbatches` (0: all). */
void val_scenario(const val_row *row, const val_testbed *testbed, val_purpose purpose,
                  int64_t max_microbatches, ds_buf *out);

#endif
