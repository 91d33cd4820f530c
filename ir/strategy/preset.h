/* What a framework does where the scenario says nothing: `framework = megatron` and others. */
#ifndef DS_STRATEGY_PRESET_H
#define DS_STRATEGY_PRESET_H

#include "ir/base/str.h"
#include "ir/strategy/strategy.h"

/* When a setting counts. */
typedef enum ds_preset_when {
    DS_PRESET_ALWAYS,
    DS_PRESET_BF16,      /* dtype = bf16 */
    DS_PRESET_REPLICAS,  /* zero = 0 or 1, and replicas */
    DS_PRESET_PARTITION, /* zero = 1 or 2, and dp > 1 */
    DS_PRESET_SHARDS,    /* zero = 3 and dp > 1 */
    DS_PRESET_STAGES,    /* zero = 2 or 3, pp > 1 and replicas */
    DS_PRESET_PARTS,     /* zero = 3 and replicas */
    DS_PRESET_SEQUENCE,  /* zero > 0 and cp > 1 */
    DS_PRESET_CHUNKS,    /* pp > 1 */
    DS_PRESET_PIPELINE   /* pp > 1 and tp > 1, stages of one width */
} ds_preset_when;

typedef struct ds_preset {
    const char *framework, *section, *key, *value;
    ds_preset_when when;
    const char *source;
} ds_preset;

/* The whole table, grouped by framework. */
const ds_preset *ds_presets(uint32_t *n);

/* The framework's setting of a key; NULL: the framework has none. */
const ds_preset *ds_preset_find(const char *framework, const char *section, const char *key);
/* Does `when` hold for these records? Either may be NULL, which no condition on the record holds for.
 */
bool ds_preset_holds(const ds_preset *preset, const ds_train *train, const ds_strategy *strategy);
/* The setting of a key by the scenario's framework, if the scenario does not state that key; NULL:
 * there is none. Whether `when` holds is for the caller to see. */
const ds_preset *ds_preset_of(const ds_binding *binding, const char *section, const char *key);
/* Fills what the scenario does not say of a section, in the section's record. */
void ds_presets_fill(const ds_binding *binding, const char *section, void *record);
/* Bytes of the framework's buckets of gradients, which depend on dp, if the scenario does not state
 * bucket_size; 0: none, or gradients are reduced when the backward pass has ended. Megatron-LM:
 * max(40e6, 1e6 · dp · cp) parameters (megatron/core/distributed/distributed_data_parallel.py);
 * DeepSpeed: 5e8 elements (deepspeed/runtime/zero/config.py, reduce_bucket_size). */
int64_t ds_preset_bucket_bytes(const ds_binding *binding, const ds_train *train,
                               const ds_strategy *strategy);
/* Appends "late_reduce = true, …": what the framework has set; false: nothing. */
bool ds_preset_print(const ds_binding *binding, const ds_train *train, const ds_strategy *strategy,
                     ds_buf *out);

#endif
