/* Devices and profiles by name, and the plain accessors. */
#include "sim/cost/profiles_internal.h"

#include <string.h>
#include <strings.h>

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

bool ds_profile_has_compute(const ds_profiles *profiles, uint32_t profile) {
    profile = ds_cost__base(profiles, profile);
    for (uint32_t i = 0; i < profiles->ops.n; i++)
        if (profiles->ops.at[i].key.profile == profile) return true;
    for (uint32_t i = 0; i < profiles->fits.n; i++)
        if (profiles->fits.at[i].profile == profile) return true;
    for (uint32_t i = 0; i < profiles->gemms.n; i++)
        if (profiles->gemms.at[i].profile == profile) return true;
    for (uint32_t i = 0; i < profiles->attentions.n; i++)
        if (profiles->attentions.at[i].profile == profile) return true;
    return false;
}

const char *ds_profile_software(const ds_profiles *profiles, uint32_t profile) {
    return profiles->profiles.at[profile].software;
}

const char *ds_profile_framework(const ds_profiles *profiles, uint32_t profile) {
    return profiles->profiles.at[profile].framework;
}

ds_profile_steps ds_profile_measured_steps(const ds_profiles *profiles, uint32_t profile) {
    return profiles->profiles.at[profile].steps;
}

void ds_profiles_use_defaults(ds_profiles *profiles, bool use) {
    profiles->uses_defaults = use;
}

uint32_t ds_profiles_default(const ds_profiles *profiles, uint32_t kind) {
    if (!profiles->uses_defaults) return 0;
    for (uint32_t i = 1; i < profiles->profiles.n; i++)
        if (profiles->profiles.at[i].is_default && profiles->profiles.at[i].kind == kind) return i;
    return ds_profiles_generic(profiles, kind);
}

bool ds_profiles_means_generic(const char *name) {
    return strcasecmp(name, "generic") == 0;
}

uint32_t ds_profiles_generic(const ds_profiles *profiles, uint32_t kind) {
    for (uint32_t i = 1; i < profiles->profiles.n; i++)
        if (profiles->profiles.at[i].is_generic && profiles->profiles.at[i].kind == kind) return i;
    return 0;
}

bool ds_profile_is_generic(const ds_profiles *profiles, uint32_t profile) {
    return profiles->profiles.at[ds_cost__base(profiles, profile)].is_generic;
}

const ds_profiles *ds_profiles_without(const ds_profiles *profiles, uint32_t terms,
                                       ds_arena *arena) {
    if (!terms) return profiles;
    ds_profiles *copy = DS_NEW(arena, ds_profiles);
    *copy = *profiles;
    copy->without |= terms;
    return copy;
}

const ds_profiles *ds_profiles_what_if(const ds_profiles *profiles, const ds_what_if *what_if,
                                       ds_arena *arena) {
    if (ds_what_if_is_plain(what_if)) return profiles;
    ds_profiles *copy = DS_NEW(arena, ds_profiles);
    int64_t *rates_ppb = DS_NEW_N(arena, int64_t, DS_N_RESOURCES);
    memcpy(rates_ppb, what_if->ppb, sizeof what_if->ppb);
    *copy = *profiles;
    copy->rates_ppb = rates_ppb;
    return copy;
}

int64_t ds_profiles_rate_ppb(const ds_profiles *profiles, ds_resource resource) {
    return profiles->rates_ppb ? profiles->rates_ppb[resource] : DS_WHAT_IF_WHOLE;
}

bool ds_profiles_has(const ds_profiles *profiles, ds_term term) {
    return !(profiles->without & (uint32_t)term);
}

int64_t ds_profile_issue_ps(const ds_profiles *profiles, uint32_t profile) {
    if (!ds_profiles_has(profiles, DS_TERM_HOST)) return 0;
    const ds_profile *p = &profiles->profiles.at[profile];
    return ds_what_if_over((int64_t)((double)p->issue_ps * p->factors.host + 0.5),
                           ds_profiles_rate_ppb(profiles, DS_RESOURCE_HOST));
}

int64_t ds_profile_kernels_issue_ps(const ds_profiles *profiles, uint32_t profile,
                                    ds_kernel_stack kernels) {
    int64_t eager_ps = ds_profile_issue_ps(profiles, profile);
    if (!ds_profile_is_generic(profiles, profile)) return eager_ps;
    return eager_ps / 100 * ds_kernel_issue_percent(kernels);
}

ds_cost_spread ds_profile_spread(const ds_profiles *profiles, uint32_t profile) {
    return profiles->profiles.at[profile].spread;
}
uint64_t ds_profile_slow_q32(const ds_profiles *profiles, uint32_t profile) {
    bool counts = ds_profiles_has(profiles, DS_TERM_INTERFERENCE);
    return counts ? profiles->profiles.at[profile].slow_q32 : UINT64_C(1) << 32;
}

bool ds_profile_holds_compute(const ds_profiles *profiles, uint32_t profile) {
    profile = ds_cost__base(profiles, profile);
    for (uint32_t i = 0; i < profiles->coll_fits.n; i++)
        if (profiles->coll_fits.at[i].profile == profile && profiles->coll_fits.at[i].holds_compute)
            return true;
    return false;
}

const char *ds_cost_origin_name(ds_cost_origin origin) {
    static const char *const names[] = {"exact", "interpolated", "roofline", "given"};
    return origin < DS_COST_ORIGIN_COUNT ? names[origin] : "?";
}

/* Names in lower case, cut to what ds_suggest compares. */
typedef struct query {
    char lower[64];
} query;

static query query_of(const char *name) {
    query q = {0};
    for (size_t i = 0; name[i] && i < sizeof q.lower - 1; i++)
        q.lower[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] - 'A' + 'a') : name[i];
    return q;
}

/* The kind of that name or alias, UINT32_MAX if there is none. */
static uint32_t kind_named(const ds_profiles *p, const char *name) {
    for (uint32_t i = 0; i < p->kind_names.n; i++)
        if (strcasecmp(p->kind_names.at[i].name, name) == 0) return p->kind_names.at[i].index;
    return UINT32_MAX;
}

ds_status ds_profiles_find_kind(const ds_profiles *profiles, const char *name, ds_loc loc,
                                uint32_t *kind, ds_error *err) {
    *kind = kind_named(profiles, name);
    if (*kind != UINT32_MAX) return DS_OK;
    uint32_t n = profiles->kind_names.n;
    query q = query_of(name);
    ds_arena scratch;
    ds_arena_init(&scratch);
    const char **lower = DS_NEW_N(&scratch, const char *, n);
    for (uint32_t i = 0; i < n; i++) lower[i] = profiles->kind_names.at[i].lower;
    const char *near = ds_suggest(q.lower, lower, n), *written = NULL;
    for (uint32_t i = 0; near && i < n; i++)
        if (lower[i] == near) written = profiles->kind_names.at[i].name;
    ds_arena_deinit(&scratch);
    if (!written) return ds_error_set(err, DS_ERR_NAME, loc, "unknown device \"%s\"", name);
    return ds_error_set(err, DS_ERR_NAME, loc, "unknown device \"%s\"; did you mean \"%s\"?", name,
                        written);
}

/* Why a profile may be meant by a name, best first. */
typedef enum likeness { OF_THAT_DEVICE, ALIKE, ANY, LIKENESS_COUNT } likeness;

static bool is_like(const ds_profiles *p, uint32_t i, const char *name, likeness how) {
    const ds_profile *profile = &p->profiles.at[i];
    query q = query_of(name);
    switch (how) {
    case OF_THAT_DEVICE:
        return i && profile->kind == kind_named(p, name);
    case ALIKE: /* a misspelling, or a part of the name */
        return ds_suggest(q.lower, &profile->lower, 1) ||
               (strlen(q.lower) > 1 && strstr(profile->lower, q.lower));
    default:
        return i > 0;
    }
}

ds_status ds_profiles_find_profile(const ds_profiles *profiles, const char *name, ds_loc loc,
                                   uint32_t *profile, ds_error *err) {
    uint32_t n = profiles->profiles.n;
    for (uint32_t i = 0; i < n; i++)
        if (strcasecmp(profiles->profiles.at[i].name, name) == 0) {
            *profile = i;
            return DS_OK;
        }
    ds_buf names = {0};
    likeness how = OF_THAT_DEVICE;
    for (; how < LIKENESS_COUNT; how++) {
        for (uint32_t i = 0; i < n; i++)
            if (is_like(profiles, i, name, how))
                ds_buf_printf(&names, "%s\"%s\"", names.n ? ", " : "",
                              profiles->profiles.at[i].name);
        if (names.n) break;
    }
    ds_status status = ds_error_set(err, DS_ERR_NAME, loc, "unknown profile \"%s\"%s%s%s", name,
                                    !names.n     ? ""
                                    : how == ANY ? "; there are "
                                                 : "; did you mean ",
                                    names.n ? names.text : "", names.n && how != ANY ? "?" : "");
    ds_buf_deinit(&names);
    return status;
}

bool ds_profile_curve(const ds_profiles *profiles, uint32_t profile, const char *op,
                      ds_cost_curve *out) {
    const ds_profile *of = &profiles->profiles.at[ds_cost__base(profiles, profile)];
    for (uint32_t i = of->first_fit; i < of->end_fit; i++) {
        const ds_fit *f = &profiles->fits.at[i];
        if (f->flop || strcmp(f->op, op) != 0) continue;
        *out = (ds_cost_curve){f->reference_per_s, f->e_max, f->w_half, (double)f->floor_ps / 1e12,
                               f->spread};
        return true;
    }
    return false;
}
