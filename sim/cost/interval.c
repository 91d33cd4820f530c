/* The interval of whole steps by generic profiles, of what the steps are made of.
 *
 * No whole step fitted a generic profile, so nobody knows its error on one. What is known are its
 * errors on steps of testbeds: their common bias moves the middle of the interval, and their spread
 * its width, by part (cost_profiles/FITTING.md). */
#include "sim/cost/profiles_internal.h"

#include <math.h>

const char *ds_step_part_name(ds_step_part part) {
    static const char *const names[] = {
#define DS_X(id, name) name,
        DS_PART_MAP(DS_X)
#undef DS_X
    };
    return names[part];
}

ds_part_error ds_profiles_part_error(const ds_profiles *profiles, ds_step_part part) {
    return profiles->parts[part];
}

/* e^x by + and x alone, the same on all machines: (1 + x/2^20)^(2^20), off by x^2/2^21. */
static double exp_of(double x) {
    double power = 1 + x / 0x1p20;
    for (int i = 0; i < 20; i++) power *= power;
    return power;
}

ds_cost_spread ds_profile_step_spread(const ds_profiles *profiles, uint32_t profile,
                                      const double share[DS_PART_COUNT]) {
    if (!profiles->knows_parts || !ds_profile_is_generic(profiles, profile))
        return (ds_cost_spread){0};
    double bias = 0, squares = 0;
    bool lent = profiles->profiles.at[ds_cost__base(profiles, profile)].is_lent;
    for (int k = 0; k < DS_PART_COUNT; k++) {
        const ds_part_error *part = &profiles->parts[k];
        if (k == DS_PART_LENT && !lent) continue;
        bias += share[k] * part->bias;
        squares += share[k] * part->error * share[k] * part->error;
    }
    double error = sqrt(squares);
    return (ds_cost_spread){exp_of(bias - error), exp_of(bias + error)};
}
