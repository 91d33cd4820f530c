/* Frameworks' defaults, each with its source. A setting counts only where the scenario does not
 * state its key, so a preset never overrides anybody. */
#include "ir/strategy/preset.h"

#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

#define MEGATRON  "megatron"
#define DEEPSPEED "megatron_deepspeed"
#define FSDP      "fsdp"

static const ds_preset presets[] = {
    {MEGATRON, "train", "clip_norm", "1.0", DS_PRESET_ALWAYS,
     "Megatron-LM megatron/training/arguments.py: --clip-grad, default 1.0"},
    {MEGATRON, "train", "grad_dtype", "f32", DS_PRESET_BF16,
     "the same: --bf16 sets accumulate_allreduce_grads_in_fp32"},
    {MEGATRON, "strategy", "late_reduce", "true", DS_PRESET_REPLICAS,
     "the same: --overlap-grad-reduce is off by default"},
    {MEGATRON, "strategy", "scatter_gather", "true", DS_PRESET_PIPELINE,
     "Narayanan et al. 2021 (arXiv:2104.04473), section 4.1; on by default"},
    {MEGATRON, "", "masks", "kept", DS_PRESET_ALWAYS, "torch.nn.Dropout keeps a byte an element"},

    {DEEPSPEED, "train", "clip_norm", "1.0", DS_PRESET_ALWAYS,
     "assumed: gradient_clipping = 1.0 as in BigScience's train/tr11-176B-ml, with --clip-grad "
     "1.0"},
    {DEEPSPEED, "strategy", "late_reduce", "true", DS_PRESET_REPLICAS,
     "deepspeed/runtime/pipe/engine.py: gradients are reduced by the schedule's ReduceGrads"},
    {DEEPSPEED, "strategy", "scatter_gather", "true", DS_PRESET_PIPELINE,
     "the same: is_pipe_partitioned, is_grad_partitioned"},
    {DEEPSPEED, "strategy", "zero_uneven", "true", DS_PRESET_PARTITION,
     "deepspeed/runtime/zero/stage_1_and_2.py: a flat buffer is cut, whatever its tensors' dims"},
    {DEEPSPEED, "", "masks", "kept", DS_PRESET_ALWAYS, "as megatron"},

    {FSDP, "strategy", "zero", "3", DS_PRESET_ALWAYS,
     "torch.distributed.fsdp: ShardingStrategy.FULL_SHARD by default"},
    {FSDP, "strategy", "prefetch", "1", DS_PRESET_ALWAYS,
     "the same: BackwardPrefetch.BACKWARD_PRE by default, one layer ahead"},
    {FSDP, "", "masks", "kept", DS_PRESET_ALWAYS, "as megatron"},
};

#define N_PRESETS ((uint32_t)(sizeof presets / sizeof *presets))

const ds_preset *ds_presets(uint32_t *n) {
    *n = N_PRESETS;
    return presets;
}

const ds_preset *ds_preset_of(const ds_binding *binding, const char *section, const char *key) {
    const char *framework = NULL;
    if (ds_scenario_text(binding, "", "framework", &framework, NULL) != DS_OK || !framework)
        return NULL;
    if (ds_scenario_find(binding->unit, section, key)) return NULL;
    for (uint32_t i = 0; i < N_PRESETS; i++)
        if (strcmp(presets[i].framework, framework) == 0 &&
            strcmp(presets[i].section, section) == 0 && strcmp(presets[i].key, key) == 0)
            return &presets[i];
    return NULL;
}

static bool holds(ds_preset_when when, const ds_train *train, const ds_strategy *s) {
    switch (when) {
    case DS_PRESET_BF16:
        return train && train->dtype == DS_BF16;
    case DS_PRESET_REPLICAS:
        return s && s->zero == 0 && (s->dp > 1 || s->stage_dp);
    case DS_PRESET_PARTITION:
        return s && (s->zero == 1 || s->zero == 2) && s->dp > 1 && !s->dp_shares &&
               !s->dp_shares_by_time;
    case DS_PRESET_PIPELINE:
        return s && s->pp > 1 && s->tp > 1 && !s->stage_dp;
    default:
        return true;
    }
}

void ds_preset_train(const ds_binding *binding, ds_train *train) {
    const ds_preset *clip = ds_preset_of(binding, "train", "clip_norm");
    const ds_preset *dtype = ds_preset_of(binding, "train", "grad_dtype");
    if (clip) train->clip_norm = strtod(clip->value, NULL);
    if (dtype && holds(dtype->when, train, NULL)) ds_dtype_parse(dtype->value, &train->grad_dtype);
}

void ds_preset_strategy(const ds_binding *binding, ds_strategy *s) {
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {{"late_reduce", &s->late_reduce},
                 {"scatter_gather", &s->scatter_gather},
                 {"zero_uneven", &s->zero_uneven}};
    const struct {
        const char *key;
        int64_t *value;
    } numbers[] = {{"zero", &s->zero}, {"prefetch", &s->prefetch}};
    for (uint32_t i = 0; i < sizeof numbers / sizeof *numbers; i++) { /* the rest depends on zero */
        const ds_preset *p = ds_preset_of(binding, "strategy", numbers[i].key);
        if (p) *numbers[i].value = strtoll(p->value, NULL, 10);
    }
    for (uint32_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const ds_preset *p = ds_preset_of(binding, "strategy", flags[i].key);
        if (p && holds(p->when, NULL, s)) *flags[i].flag = strcmp(p->value, "true") == 0;
    }
}

bool ds_preset_print(const ds_binding *binding, const ds_train *train, const ds_strategy *strategy,
                     ds_buf *out) {
    bool any = false;
    for (uint32_t i = 0; i < N_PRESETS; i++) {
        const ds_preset *p = &presets[i];
        if (ds_preset_of(binding, p->section, p->key) != p || !holds(p->when, train, strategy))
            continue;
        ds_buf_printf(out, "%s%s = %s", any ? ", " : "", p->key, p->value);
        any = true;
    }
    return any;
}
