/* Names of a sweep: what they are, and what a dimension's name finds. */
#include "ir/strategy/sweep.h"

#include <string.h>

static const struct {
    const char *name;
    bool is_objective;
} derived_names[] = {
#define DS_X(name, is_objective, doc) {#name, is_objective},
    DS_SWEEP_DERIVED(DS_X)
#undef DS_X
};

ds_derived ds_derived_by_name(const char *name) {
    for (int i = 0; i < DS_DERIVED_COUNT; i++)
        if (strcmp(derived_names[i].name, name) == 0) return (ds_derived)i;
    return DS_DERIVED_COUNT;
}

const char *ds_derived_name(ds_derived derived) {
    return derived_names[derived].name;
}

bool ds_derived_is_objective(ds_derived derived) {
    return derived < DS_DERIVED_COUNT && derived_names[derived].is_objective;
}

bool ds_sweep_sees_knob(const ds_knob *knob) {
    bool seen = strcmp(knob->section, "strategy") == 0 || strcmp(knob->section, "train") == 0;
    return seen && knob->kind != DS_KNOB_SECTION;
}

const ds_sweep *ds_unit_sweep(const ds_unit *unit) {
    const ds_module *root = unit->modules.n ? unit->modules.at[0] : NULL;
    return root && root->sweeps.n ? &root->sweeps.at[0] : NULL;
}

bool ds_sweep_is_on(const ds_sweep *sweep, const char *option) {
    for (uint32_t i = 0; sweep && i < sweep->n_entries; i++)
        if (sweep->entries[i].kind == DS_SWEEP_OPTION &&
            strcmp(sweep->entries[i].name, option) == 0)
            return sweep->entries[i].on;
    return false;
}

/* "strategy.zero", or "zero" of the first section that has it. */
static const ds_knob *find_knob(const char *name) {
    static const char *const sections[] = {"strategy", "train", ""};
    const char *dot = strchr(name, '.');
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        size_t n = strlen(sections[i]);
        bool named = dot && n == (size_t)(dot - name) && memcmp(sections[i], name, n) == 0;
        if (dot && !named) continue;
        const ds_knob *knob = ds_scenario_knob(sections[i], dot ? dot + 1 : name);
        if (knob) return knob;
    }
    return NULL;
}

bool ds_sweep_find(ds_unit *unit, const char *name, ds_sweep_target *out) {
    const char *dot = strrchr(name, '.');
    *out = (ds_sweep_target){.bare = ds_intern(&unit->strings, dot ? dot + 1 : name)};
    if (ds_find_param(unit, name, &out->module, &out->param)) return true;
    out->knob = find_knob(name);
    return out->knob != NULL;
}
