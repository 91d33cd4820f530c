/* The framework of a model whose scenario names neither framework nor profile: the framework of the
 * stack that the default profile of its devices measured. The devices are read off the topology's
 * declarations: params need no values for that. */
#include "ir/core/devices.h"
#include "ir/strategy/scenario.h"
#include "tools/cli/cli.h"

#include <string.h>

#define MOST_KINDS 64 /* assumed: no cluster has more kinds of devices */

/* ---- which devices ---- */

/* Framework of all devices looked at; kinds without one count for nothing. */
typedef struct stack {
    const ds_profiles *profiles;
    const char *framework; /* NULL: none so far */
    bool differs;
} stack;

const char *cli_framework_of_profile(const ds_profiles *profiles, const char *name) {
    uint32_t profile;
    ds_error unsaid;
    if (ds_profiles_find_profile(profiles, name, DS_NOWHERE, &profile, &unsaid) != DS_OK)
        return NULL;
    const char *framework = ds_profile_framework(profiles, profile);
    return *framework ? framework : NULL;
}

const char *cli_framework_of_device(const ds_profiles *profiles, const char *device) {
    uint32_t kind;
    ds_error unsaid;
    if (ds_profiles_find_kind(profiles, device, DS_NOWHERE, &kind, &unsaid) != DS_OK) return NULL;
    const char *framework = ds_profile_framework(profiles, ds_profiles_default(profiles, kind));
    return *framework ? framework : NULL;
}

static void look_at(stack *s, const char *device) {
    const char *framework = cli_framework_of_device(s->profiles, device);
    if (!framework) return;
    s->differs = s->differs || (s->framework && strcmp(s->framework, framework) != 0);
    s->framework = framework;
}

/* ---- what the file states ---- */

/* Does --profile state a profile, and the file none? */
static bool is_option_alone(const ds_unit *unit) {
    for (uint32_t i = 0; i < unit->said.n; i++)
        if (strcmp(unit->said.at[i].path, CLI_PROFILE_KEY) == 0)
            return !unit->said.at[i].instead_of;
    return false;
}

static bool has_model(const ds_unit *unit) {
    bool any = ds_scenario_model(unit) != NULL;
    for (uint32_t j = 0; j < ds_scenario_n_jobs(unit); j++) {
        const ds_attr *job = ds_scenario_job(unit, j);
        any = any || ds_attr_find(job->items, job->n_items, "model");
    }
    return any;
}

static bool varies(const ds_unit *unit, const char *key) {
    const ds_module *root = unit->modules.at[0];
    for (uint32_t k = 0; k < root->sweeps.n; k++)
        for (uint32_t i = 0; i < root->sweeps.at[k].n_entries; i++) {
            const ds_sweep_entry *entry = &root->sweeps.at[k].entries[i];
            if (entry->kind == DS_SWEEP_DIM && strcmp(entry->name, key) == 0) return true;
        }
    return false;
}

/* No framework has stages of several widths. */
static bool is_beyond_frameworks(const ds_unit *unit) {
    static const char *const keys[] = {"stage_dp", "stage_tp"};
    bool any = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        any = any || varies(unit, keys[i]) || ds_scenario_find(unit, "strategy", keys[i]);
        for (uint32_t j = 0; j < ds_scenario_n_jobs(unit); j++) {
            const ds_attr *job = ds_scenario_job(unit, j);
            const ds_attr *strategy = ds_attr_find(job->items, job->n_items, "strategy");
            any = any || (strategy && ds_attr_find(strategy->items, strategy->n_items, keys[i]));
        }
    }
    return any;
}

static bool is_open(const ds_unit *unit) {
    static const char *const keys[] = {"framework", "profile", "profiles"};
    if (!ds_unit_scenario(unit) || !has_model(unit) || is_beyond_frameworks(unit)) return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool option = i == 1 && is_option_alone(unit);
        if (varies(unit, keys[i]) || (ds_scenario_find(unit, "", keys[i]) && !option)) return false;
    }
    return true;
}

static const char *find(const cli_options *options, const ds_unit *unit,
                        const ds_profiles *profiles) {
    const char *profile = cli_setting(options, CLI_PROFILE_KEY);
    if (profile) return cli_framework_of_profile(profiles, profile);
    const ds_topology *topology = ds_scenario_devices(unit);
    stack s = {.profiles = profiles};
    const char *types[MOST_KINDS];
    uint32_t n = topology ? ds_topology_device_types(topology, types, MOST_KINDS) : 0;
    for (uint32_t i = 0; i < n; i++) look_at(&s, types[i]);
    return s.differs ? NULL : s.framework;
}

ds_status cli_state_framework(cli_options *options, ds_unit *unit, ds_error *err) {
    const ds_profiles *profiles;
    if (!options->simulates || !is_open(unit)) return DS_OK;
    DS_TRY(cli_load_profiles(options, &profiles, err));
    ds_setting setting = {"scenario.framework", find(options, unit, profiles)};
    if (!setting.text) return DS_OK;
    DS_TRY(ds_load_say(unit, &setting, err));
    DS_HPUSH(&options->settings, setting);
    unit->assumes_framework = true;
    return DS_OK;
}
