/* Single constants of a loaded database. */
#include "sim/cost/constant.h"

#include "sim/cost/profiles_internal.h"

#include <math.h>
#include <string.h>

/* Where a constant is stored: one of the two. */
typedef struct slot {
    double *real;
    int64_t *whole; /* ps, bytes/s */
    bool share;     /* at most 1 */
    bool zero;      /* may be 0 */
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
        if (which->name == DS_CONSTANT_FLOOR_PS) *out = (slot){.whole = &f->floor_ps, .zero = true};
        return true;
    }
    return false;
}

static bool find_tiles(const ds_profiles *p, uint32_t profile, const char *dtype, slot *out) {
    for (uint32_t i = 0; i < p->gemms.n; i++) {
        ds_gemm_fit *f = &p->gemms.at[i];
        if (f->profile != profile || strcmp(dtype, ds_dtype_name(f->dtype)) != 0) continue;
        *out = (slot){.real = &f->model.e_max};
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
                                                     : (slot){.whole = &f->launch_ps, .zero = true};
        return true;
    }
    return false;
}

static bool find_protocol(const ds_profiles *p, uint32_t profile, const ds_constant *which,
                          slot *out) {
    for (uint32_t i = 0; i < p->protocols.n; i++) {
        ds_protocol *f = &p->protocols.at[i];
        if (f->profile != profile || f->link_bytes_per_s != which->link_bytes_per_s ||
            strcmp(f->collective, which->op) != 0 || strcmp(f->name, which->protocol) != 0)
            continue;
        *out = (slot){.zero = true};
        if (which->name == DS_CONSTANT_PROTOCOL_LAUNCH_PS) out->whole = &f->launch_ps;
        if (which->name == DS_CONSTANT_PROTOCOL_STEP_PS) out->whole = &f->step_ps;
        if (which->name == DS_CONSTANT_PROTOCOL_COPY_BYTES_PER_S) out->whole = &f->copy_bytes_per_s;
        if (which->name == DS_CONSTANT_PROTOCOL_E) *out = (slot){.real = &f->e, .share = true};
        return true;
    }
    return false;
}

static ds_status find_slot(const ds_profiles *p, uint32_t profile, const ds_constant *which,
                           slot *out, ds_error *err) {
    switch (which->name) {
    case DS_CONSTANT_ISSUE_PS:
        if (profile == 0)
            return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "profile none has no constants");
        *out = (slot){.whole = &p->profiles.at[profile].issue_ps, .zero = true};
        return DS_OK;
    case DS_CONSTANT_E_MAX:
    case DS_CONSTANT_W_HALF:
    case DS_CONSTANT_FLOOR_PS:
        if (find_curve(p, profile, which, out)) return DS_OK;
        return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                            "profile %s has no efficiency curve of %s, dtype %s, resource %s",
                            p->profiles.at[profile].name, which->op, which->dtype,
                            which->flop ? "flop" : "bytes");
    case DS_CONSTANT_TILES_E_MAX:
        if (find_tiles(p, profile, which->dtype, out)) return DS_OK;
        return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                            "profile %s has no products by tiles in %s",
                            p->profiles.at[profile].name, which->dtype);
    case DS_CONSTANT_COLL_E_MAX:
    case DS_CONSTANT_COLL_LAUNCH_PS:
        if (find_collective(p, profile, which, out)) return DS_OK;
        break;
    case DS_CONSTANT_PROTOCOL_LAUNCH_PS:
    case DS_CONSTANT_PROTOCOL_STEP_PS:
    case DS_CONSTANT_PROTOCOL_COPY_BYTES_PER_S:
    case DS_CONSTANT_PROTOCOL_E:
        if (find_protocol(p, profile, which, out)) return DS_OK;
        return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                            "profile %s has no protocol %s of %s on links of %lld bytes/s",
                            p->profiles.at[profile].name, which->protocol, which->op,
                            (long long)which->link_bytes_per_s);
    }
    return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "profile %s has no fit of %s over %u",
                        p->profiles.at[profile].name, which->op, which->group);
}

ds_status ds_constant_get(const ds_profiles *profiles, uint32_t profile, const ds_constant *which,
                          double *value, ds_error *err) {
    slot s;
    DS_TRY(find_slot(profiles, profile, which, &s, err));
    *value = s.real ? *s.real : (double)*s.whole;
    return DS_OK;
}

#define MOST_WHOLE 1e18 /* ps: 11 days; and an int64 */

ds_status ds_constant_set(ds_profiles *profiles, uint32_t profile, const ds_constant *which,
                          double value, ds_error *err) {
    slot s;
    DS_TRY(find_slot(profiles, profile, which, &s, err));
    bool good = (s.zero ? value >= 0 : value > 0) && isfinite(value);
    if (!good || (s.share && value > 1) || (s.whole && value > MOST_WHOLE))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "%g cannot be a constant of profile %s: out of its range", value,
                            profiles->profiles.at[profile].name);
    if (s.real)
        *s.real = value;
    else
        *s.whole = (int64_t)llround(value);
    return DS_OK;
}
