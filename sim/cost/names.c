/* Devices and profiles by name, and the plain accessors. */
#include "sim/cost/profiles_internal.h"

#include <string.h>
#include <strings.h>

uint32_t ds_profiles_n_kinds(const ds_profiles *profiles) {
    return profiles->kinds.n;
}

const ds_device_kind *ds_profiles_kind(const ds_profiles *profiles, uint32_t kind) {
    return &profiles->kinds.at[kind];
}

uint32_t ds_profiles_n_profiles(const ds_profiles *profiles) {
    return profiles->profiles.n;
}

uint32_t ds_profile_kind(const ds_profiles *profiles, uint32_t profile) {
    return profiles->profiles.at[profile].kind;
}

const char *ds_profile_name(const ds_profiles *profiles, uint32_t profile) {
    return profiles->profiles.at[profile].name;
}

int64_t ds_profile_issue_ps(const ds_profiles *profiles, uint32_t profile) {
    return profiles->profiles.at[profile].issue_ps;
}

const char *ds_profile_source(const ds_profiles *profiles, uint32_t profile) {
    return profiles->profiles.at[profile].source;
}

const char *ds_cost_origin_name(ds_cost_origin origin) {
    static const char *const names[] = {"exact", "interpolated", "roofline", "given"};
    return origin < DS_COST_ORIGIN_COUNT ? names[origin] : "?";
}

/* DS_ERR_NAME with the nearest of n lower-case names, spelt as `written` spells it. */
static ds_status unknown(const char *what, const char *name, const char *const *lower,
                         const char *const *written, uint32_t n, ds_loc loc, ds_error *err) {
    char query[64] = "";
    for (size_t i = 0; name[i] && i < sizeof query - 1; i++)
        query[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] - 'A' + 'a') : name[i];
    const char *near = ds_suggest(query, lower, n);
    for (uint32_t i = 0; near && i < n; i++)
        if (lower[i] == near)
            return ds_error_set(err, DS_ERR_NAME, loc, "unknown %s \"%s\"; did you mean \"%s\"?",
                                what, name, written[i]);
    return ds_error_set(err, DS_ERR_NAME, loc, "unknown %s \"%s\"", what, name);
}

ds_status ds_profiles_find_kind(const ds_profiles *profiles, const char *name, ds_loc loc,
                                uint32_t *kind, ds_error *err) {
    uint32_t n = profiles->kind_names.n;
    for (uint32_t i = 0; i < n; i++)
        if (strcasecmp(profiles->kind_names.at[i].name, name) == 0) {
            *kind = profiles->kind_names.at[i].index;
            return DS_OK;
        }
    ds_arena scratch;
    ds_arena_init(&scratch);
    const char **lower = DS_NEW_N(&scratch, const char *, n);
    const char **written = DS_NEW_N(&scratch, const char *, n);
    for (uint32_t i = 0; i < n; i++) {
        lower[i] = profiles->kind_names.at[i].lower;
        written[i] = profiles->kind_names.at[i].name;
    }
    ds_status status = unknown("device", name, lower, written, n, loc, err);
    ds_arena_deinit(&scratch);
    return status;
}

ds_status ds_profiles_find_profile(const ds_profiles *profiles, const char *name, ds_loc loc,
                                   uint32_t *profile, ds_error *err) {
    uint32_t n = profiles->profiles.n;
    for (uint32_t i = 0; i < n; i++)
        if (strcasecmp(profiles->profiles.at[i].name, name) == 0) {
            *profile = i;
            return DS_OK;
        }
    ds_arena scratch;
    ds_arena_init(&scratch);
    const char **lower = DS_NEW_N(&scratch, const char *, n);
    const char **written = DS_NEW_N(&scratch, const char *, n);
    for (uint32_t i = 0; i < n; i++) {
        written[i] = profiles->profiles.at[i].name;
        lower[i] = profiles->profiles.at[i].lower;
    }
    ds_status status = unknown("profile", name, lower, written, n, loc, err);
    ds_arena_deinit(&scratch);
    return status;
}
