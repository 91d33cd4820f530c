/* Single constants of a loaded database. */
#include "sim/cost/constant.h"

#include "sim/cost/profiles_internal.h"

#include <math.h>
#include <string.h>

/* Where a constant is stored: one of the two. */
typedef struct slot {
    double *real;
    int64_t *ps;
    bool share; /* at most 1 */
    bool zero;  /* may be 0 */
} slot;

static bool same_dtype(const ds_fit *fit, const char *name) {
    return strcmp(name, fit->dtype == DS_ANY_DTYPE ? "*" : ds_dtype_name((ds_dtype)fit->dtype)) ==
           0;
}

static bool find_curve(const ds_profiles *p, uint32_t profile, const ds_constant *which,
                       slot *out) {
    for (uint32_t i = 0; i < p->fits.n; i++) {
        ds_fit *f = &p->fits.at[i];
        if (f->profile != profile || f->flop != which->flop || strcmp(f->op, which->op) != 0 ||
            !same_dtype(f, which->dtype))
            continue;
        bool half = which->name == DS_CONSTANT_W_HALF;
        *out = (slot){.real = half ? &f->w_half : &f->e_max, .zero = half};
        return true;
    }
    return false;
}

static bool find_collective(const ds_profiles *p, uint32_t profile, const ds_constant *which,
                            slot *out) {
    for (uint32_t i = 0; i < p->coll_fits.n; i++) {
        ds_coll_fit *f = &p->coll_fits.at[i];
        if (f->profile != profile || f->group != which->group ||
            strcmp(f->collective, which->op) != 0)
            continue;
        *out = which->name == DS_CONSTANT_COLL_E_MAX ? (slot){.real = &f->e_max, .share = true}
                                                     : (slot){.ps = &f->launch_ps, .zero = true};
        return true;
    }
    return false;
}

static ds_status find(const ds_profiles *p, uint32_t profile, const ds_constant *which, slot *out,
                      ds_error *err) {
    switch (which->name) {
    case DS_CONSTANT_ISSUE_PS:
        if (profile == 0)
            return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "profile none has no constants");
        *out = (slot){.ps = &p->profiles.at[profile].issue_ps, .zero = true};
        return DS_OK;
    case DS_CONSTANT_E_MAX:
    case DS_CONSTANT_W_HALF:
        if (find_curve(p, profile, which, out)) return DS_OK;
        return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                            "profile %s has no efficiency curve of %s, dtype %s, resource %s",
                            p->profiles.at[profile].name, which->op, which->dtype,
                            which->flop ? "flop" : "bytes");
    case DS_CONSTANT_COLL_E_MAX:
    case DS_CONSTANT_COLL_LAUNCH_PS:
        if (find_collective(p, profile, which, out)) return DS_OK;
        break;
    }
    return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "profile %s has no fit of %s over %u",
                        p->profiles.at[profile].name, which->op, which->group);
}

ds_status ds_constant_get(const ds_profiles *profiles, uint32_t profile, const ds_constant *which,
                          double *value, ds_error *err) {
    slot s;
    DS_TRY(find(profiles, profile, which, &s, err));
    *value = s.real ? *s.real : (double)*s.ps;
    return DS_OK;
}

#define MOST_PS 1e18 /* 11 days, and an int64 */

ds_status ds_constant_set(ds_profiles *profiles, uint32_t profile, const ds_constant *which,
                          double value, ds_error *err) {
    slot s;
    DS_TRY(find(profiles, profile, which, &s, err));
    bool good = (s.zero ? value >= 0 : value > 0) && isfinite(value);
    if (!good || (s.share && value > 1) || (s.ps && value > MOST_PS))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "%g cannot be a constant of profile %s: out of its range", value,
                            profiles->profiles.at[profile].name);
    if (s.real)
        *s.real = value;
    else
        *s.ps = (int64_t)llround(value);
    return DS_OK;
}
