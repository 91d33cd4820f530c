/* What whole steps say of generic profiles: how much longer operations take in steps, and where measured
 * steps lie around predictions.
 *
 * No step was used to fit a generic profile. Its errors are known from the steps of testbeds
 * (cost_profiles/FITTING.md). The common error of operations, their bias, is a factor on each operation's
 * time, the term `step`. So predictions have no bias left, and spreads by part give the interval. */
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

ds_step_part ds_step_part_of(const ds_work *work) {
    if (work->kind == DS_WORK_ATTENTION) return DS_PART_ATTENTION;
    bool narrow = work->kind == DS_WORK_GEMM && ds_dtype_bits(work->dtype) <= 8;
    return narrow ? DS_PART_NARROW : DS_PART_COMPUTE;
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

static double bias_of(const ds_profiles *p, ds_step_part part) {
    return p->parts[DS_PART_STEP].bias + p->parts[part].bias;
}

double ds_cost__op_factor(const ds_cost_query *q) {
    const ds_profiles *p = q->profiles;
    double factor = p->profiles.at[q->profile].factors.compute;
    bool known = p->knows_parts && q->n_devices > 0 && ds_profiles_has(p, DS_TERM_STEP);
    if (!known || !ds_profile_is_generic(p, q->profile)) return factor;
    return factor * exp_of(bias_of(p, ds_step_part_of(q->work)));
}

ds_cost_spread ds_profile_step_spread(const ds_profiles *profiles, uint32_t profile,
                                      const double share[DS_PART_COUNT]) {
    if (!profiles->knows_parts || !ds_profile_is_generic(profiles, profile))
        return (ds_cost_spread){0};
    double bias = 0, squares = 0;
    bool lent = profiles->profiles.at[ds_cost__base(profiles, profile)].is_lent;
    for (int k = 0; k < DS_PART_COUNT; k++) {
        double error = k == DS_PART_LENT && !lent ? 0 : share[k] * profiles->parts[k].error;
        squares += error * error;
    }
    if (!ds_profiles_has(profiles, DS_TERM_STEP)) /* predictions without the factor are biased */
        for (int k = DS_PART_COMPUTE; k <= DS_PART_NARROW; k++)
            bias += share[k] * bias_of(profiles, (ds_step_part)k);
    double error = sqrt(squares);
    return (ds_cost_spread){exp_of(bias - error), exp_of(bias + error)};
}
