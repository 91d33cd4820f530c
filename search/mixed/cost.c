/* Objectives: what a plan costs besides its time. */
#include "search/mixed/mixed.h"

#include <math.h>

/* e^x - 1 is exact for small x in expm1, so that rare failures give 1 plus a little. */
static double stretch(double per_s, const ds_mixed_faults *faults, double interval_s) {
    double mean = 1 / per_s;
    return mean * exp(faults->restart_s / mean) *
           expm1((interval_s + faults->checkpoint_s) / mean) / interval_s;
}

/* The stretch has one minimum in the interval: golden section over the interval's logarithm. */
double ds_mixed_stretch(double per_s, const ds_mixed_faults *faults, double interval_s,
                        double *best_interval_s) {
    if (best_interval_s) *best_interval_s = interval_s;
    if (!(per_s > 0)) return 1;
    if (interval_s > 0) return stretch(per_s, faults, interval_s);
    const double golden = 0.6180339887498949;
    double low = log(1e-3), high = log(100 / per_s);
    for (int i = 0; i < 100; i++) {
        double left = high - golden * (high - low), right = low + golden * (high - low);
        if (stretch(per_s, faults, exp(left)) <= stretch(per_s, faults, exp(right)))
            high = right;
        else
            low = left;
    }
    interval_s = exp((low + high) / 2);
    if (best_interval_s) *best_interval_s = interval_s;
    return stretch(per_s, faults, interval_s);
}

double ds_mixed_value(const ds_mixed_problem *problem, const ds_mixed_plan *plan,
                      ds_mixed_goal goal, const ds_mixed_faults *faults, double step_s) {
    double usd_per_s = 0, watts = 0, failures_per_s = 0;
    double tokens = (double)problem->batch * (double)problem->sample_units;
    for (uint32_t k = 0; k < problem->n_kinds; k++) {
        double used = ds_mixed_used(problem, plan, k);
        usd_per_s += used * problem->kinds[k].usd_per_hour / 3600;
        watts += used * problem->kinds[k].watts;
        failures_per_s += used * problem->kinds[k].failures_per_hour / 3600;
    }
    switch (goal) {
    case DS_MIXED_COST:
        return usd_per_s * step_s / tokens * 1e6;
    case DS_MIXED_ENERGY:
        return watts * step_s / tokens;
    case DS_MIXED_EXPECTED:
        return usd_per_s * step_s / tokens * 1e6 *
               ds_mixed_stretch(failures_per_s, faults, 0, NULL);
    default:
        return step_s;
    }
}
