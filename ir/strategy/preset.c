/* Frameworks' defaults (knobs.def). A setting counts only where the scenario does not
 * state its key, so a preset never overrides anybody. */
#include "ir/strategy/preset.h"

#include "ir/strategy/scenario.h"

#include <math.h>
#include <string.h>

static const ds_preset presets[] = {
#define PRESET(framework, section, key, value, when, source)                                       \
    {#framework, section, key, value, DS_PRESET_##when, source},
#include "ir/strategy/knobs.def"
};

#define N_PRESETS ((uint32_t)(sizeof presets / sizeof *presets))

const ds_preset *ds_presets(uint32_t *n) {
    *n = N_PRESETS;
    return presets;
}

const ds_preset *ds_preset_find(const char *framework, const char *section, const char *key) {
    for (uint32_t i = 0; i < N_PRESETS; i++)
        if (strcmp(presets[i].framework, framework) == 0 &&
            strcmp(presets[i].section, section) == 0 && strcmp(presets[i].key, key) == 0)
            return &presets[i];
    return NULL;
}

const ds_preset *ds_preset_of(const ds_binding *binding, const char *section, const char *key) {
    const char *framework = NULL;
    if (ds_scenario_text(binding, "", "framework", &framework, NULL) != DS_OK || !framework)
        return NULL;
    if (ds_scenario_find(binding->unit, section, key)) return NULL;
    return ds_preset_find(framework, section, key);
}

bool ds_preset_holds(const ds_preset *preset, const ds_train *train, const ds_strategy *s) {
    switch (preset->when) {
    case DS_PRESET_BF16:
        return train && train->dtype == DS_BF16;
    case DS_PRESET_REPLICAS:
        return s && s->zero <= 1 && (s->dp > 1 || s->cp > 1 || s->stage_dp);
    case DS_PRESET_PARTITION:
        return s && (s->zero == 1 || s->zero == 2) && s->dp > 1 && !s->dp_shares &&
               !s->dp_shares_by_time;
    case DS_PRESET_SHARDS:
        return s && s->zero == 3 && s->dp > 1 && !s->dp_shares && !s->dp_shares_by_time &&
               !s->stage_dp;
    case DS_PRESET_STAGES:
        return s && s->zero >= 2 && s->pp > 1 && (s->dp > 1 || s->cp > 1 || s->stage_dp);
    case DS_PRESET_PARTS:
        return s && s->zero == 3 && (s->dp > 1 || s->cp > 1 || s->stage_dp);
    case DS_PRESET_SEQUENCE:
        return s && s->zero > 0 && s->cp > 1;
    case DS_PRESET_CHUNKS:
        return s && s->pp > 1;
    case DS_PRESET_PIPELINE:
        return s && s->pp > 1 && s->tp > 1 && !s->stage_dp;
    default:
        return true;
    }
}

/* Those that hold always first: the others depend on them. */
void ds_presets_fill(const ds_binding *binding, const char *section, void *record) {
    bool train = strcmp(section, "train") == 0;
    for (int always = 1; always >= 0; always--)
        for (uint32_t i = 0; i < N_PRESETS; i++) {
            const ds_preset *p = &presets[i];
            if ((p->when == DS_PRESET_ALWAYS) != always || strcmp(p->section, section) != 0 ||
                ds_preset_of(binding, section, p->key) != p)
                continue;
            if (ds_preset_holds(p, train ? record : NULL, train ? NULL : record))
                ds_knob_set(ds_scenario_knob(section, p->key), record, p->value);
        }
}

int64_t ds_preset_bucket_bytes(const ds_binding *binding, const ds_train *train,
                               const ds_strategy *s) {
    const char *framework = NULL;
    if (ds_scenario_find(binding->unit, "strategy", "bucket_size") ||
        ds_scenario_text(binding, "", "framework", &framework, NULL) != DS_OK || !framework)
        return 0;
    bool megatron = strcmp(framework, "megatron") == 0,
         deepspeed = strcmp(framework, "deepspeed") == 0;
    bool several = s->dp > 1 || s->cp > 1, late = s->late_reduce && s->zero <= 1;
    if (!(megatron || deepspeed) || !several || late) return 0;
    ds_dtype dtype = train->grad_dtype == DS_DTYPE_COUNT ? train->dtype : train->grad_dtype;
    double replicas = (double)s->dp * (double)s->cp,
           elements = deepspeed ? 5e8 : fmax(40e6, 1e6 * replicas);
    int64_t bytes = dtype == DS_DTYPE_COUNT ? 4 : ds_dtype_bits(dtype) / 8;
    return (int64_t)fmin(elements, 1e15) * bytes;
}

bool ds_preset_print(const ds_binding *binding, const ds_train *train, const ds_strategy *strategy,
                     ds_buf *out) {
    bool any = false;
    for (uint32_t i = 0; i < N_PRESETS; i++) {
        const ds_preset *p = &presets[i];
        if (ds_preset_of(binding, p->section, p->key) != p || !ds_preset_holds(p, train, strategy))
            continue;
        ds_buf_printf(out, "%s%s = %s", any ? ", " : "", p->key, p->value);
        any = true;
    }
    int64_t bucket = train && strategy ? ds_preset_bucket_bytes(binding, train, strategy) : 0;
    if (bucket) ds_buf_printf(out, "%sbucket_size = %g MB", any ? ", " : "", (double)bucket * 1e-6);
    return any || bucket;
}
