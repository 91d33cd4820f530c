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

/* Whose bias is in the costs of operations already (ds_cost__op_factor). */
static bool is_of_ops(int part) {
    return part == DS_PART_COMPUTE || part == DS_PART_ATTENTION || part == DS_PART_NARROW;
}

double ds_cost__op_factor(const ds_cost_query *q) {
    const ds_profiles *p = q->profiles;
    double factor = p->profiles.at[q->profile].factors.compute;
    bool known = p->knows_parts && q->n_devices > 0 && ds_profiles_has(p, DS_TERM_STEP);
    if (!known || !ds_profile_is_generic(p, q->profile)) return factor;
    bool attends = q->work->kind == DS_WORK_ATTENTION;
    bool narrow = q->work->kind == DS_WORK_GEMM && ds_dtype_bits(q->work->dtype) <= 8;
    ds_step_part part = attends ? DS_PART_ATTENTION : narrow ? DS_PART_NARROW : DS_PART_COMPUTE;
    return factor * exp_of(p->parts[DS_PART_STEP].bias + p->parts[part].bias);
}

ds_cost_spread ds_profile_step_spread(const ds_profiles *profiles, uint32_t profile,
                                      const double share[DS_PART_COUNT]) {
    if (!profiles->knows_parts || !ds_profile_is_generic(profiles, profile))
        return (ds_cost_spread){0};
    double bias = 0, squares = 0, counted = 0;
    if (ds_profiles_has(profiles, DS_TERM_STEP))
        for (int k = 0; k < DS_PART_COUNT; k++) counted += is_of_ops(k) ? share[k] : 0;
    bool lent = profiles->profiles.at[ds_cost__base(profiles, profile)].is_lent;
    for (int k = 0; k < DS_PART_COUNT; k++) {
        const ds_part_error *part = &profiles->parts[k];
        if (k == DS_PART_LENT && !lent) continue;
        double own = k == DS_PART_STEP             ? share[k] - counted
                     : counted > 0 && is_of_ops(k) ? 0
                                                   : share[k];
        bias += own * part->bias;
        squares += share[k] * part->error * share[k] * part->error;
    }
    double error = sqrt(squares);
    return (ds_cost_spread){exp_of(bias - error), exp_of(bias + error)};
}
