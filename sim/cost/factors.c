/* Profiles on a base: the rows and fits of another profile, times three factors.
 *
 * A few measured steps of a cluster say how much slower or faster its compute, its communication and
 * its host are than a profile's constants, and no more. Such a profile holds these factors alone, and
 * names the profile whose rows and fits count. */
#include "ir/base/units.h"
#include "sim/cost/constant.h"
#include "sim/cost/profiles_internal.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#define WHOLE_Q32 (UINT64_C(1) << 32)

ds_cost_factors ds_profile_factors(const ds_profiles *profiles, uint32_t profile) {
    return profiles->profiles.at[profile].factors;
}

void ds_profiles_set_generic_factors(ds_profiles *profiles, ds_cost_factors factors) {
    for (uint32_t i = 1; i < profiles->profiles.n; i++)
        if (profiles->profiles.at[i].is_generic) profiles->profiles.at[i].factors = factors;
}

/* All but what a profile says of itself. */
static void inherit(ds_profile *own, const ds_profile *base, uint32_t at) {
    ds_profile made = *base;
    made.name = own->name;
    made.lower = own->lower;
    made.software = own->software;
    made.source = own->source;
    made.is_default = own->is_default;
    made.is_generic = own->is_generic;
    made.framework = own->framework;
    made.steps = own->steps;
    made.spread = own->spread;
    made.base_name = own->base_name;
    made.factors = own->factors;
    made.base = at;
    *own = made;
}

static ds_status find_base(ds_profiles *p, uint32_t profile, ds_error *err) {
    ds_profile *own = &p->profiles.at[profile];
    for (uint32_t i = 1; i < p->profiles.n; i++) {
        const ds_profile *other = &p->profiles.at[i];
        if (i == profile || strcasecmp(other->name, own->base_name) != 0) continue;
        if (other->kind != own->kind)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                                "profile '%s': base = '%s' is a profile of %s, not of %s",
                                own->name, own->base_name, p->kinds.at[other->kind].name,
                                p->kinds.at[own->kind].name);
        if (*other->base_name)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                                "profile '%s': base = '%s' has a base itself", own->name,
                                own->base_name);
        inherit(own, other, i);
        return DS_OK;
    }
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "profile '%s': base = '%s': no such profile",
                        own->name, own->base_name);
}

ds_status ds_cost__find_bases(ds_profiles *p, ds_error *err) {
    for (uint32_t i = 0; i < p->profiles.n; i++) {
        p->profiles.at[i].base = i;
        if (*p->profiles.at[i].base_name) DS_TRY(find_base(p, i, err));
    }
    return DS_OK;
}

ds_status ds_cost__scale(const ds_profile *profile, double factor, int64_t *ps, ds_buf *explain,
                         ds_error *err) {
    if (factor == 1) return DS_OK;
    double scaled = ceil((double)*ps * factor);
    if (!(scaled < 0x1p63))
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE, "a time beyond 2^63 ps");
    *ps = (int64_t)scaled;
    if (explain) ds_buf_printf(explain, "  times %.4g, by profile %s\n", factor, profile->name);
    return DS_OK;
}

ds_status ds_cost__scale_collective(const ds_profile *profile, ds_coll_cost *cost, ds_buf *explain,
                                    ds_error *err) {
    double factor = profile->factors.communication;
    if (factor == 1) return DS_OK;
    DS_TRY(ds_cost__scale(profile, factor, &cost->launch_ps, NULL, err));
    DS_TRY(ds_cost__scale(profile, factor, &cost->copy_ps, NULL, err));
    DS_TRY(ds_cost__scale(profile, factor, &cost->step_ps, explain, err));
    double efficiency = floor((double)cost->efficiency_q32 / factor);
    cost->efficiency_q32 = efficiency < 1                   ? 1
                           : efficiency < (double)WHOLE_Q32 ? (uint64_t)efficiency
                                                            : WHOLE_Q32;
    return DS_OK;
}
