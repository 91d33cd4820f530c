/* The clock that a power limit allows.
 *
 * A device draws P = P_0 + D busy f^3: what it draws at rest, and what switching costs, which grows
 * with the share `busy` of the peak that an op reaches at the clock of a short measurement and,
 * since voltage falls with the clock f, with its third power. Where that is more than the limit the
 * clock falls:
 *
 *     f = min(1, ((P - P_0) / (D busy))^(1/3))
 *
 * The catalogue says for products that reach busy_0 which part s of the clock they keep at the limit
 * P_1 that the device is sold with, so D = (P_1 - P_0) / (busy_0 s^3), and
 *
 *     f = min(1, s ((P - P_0)/(P_1 - P_0) · busy_0/busy)^(1/3))
 *
 * Small products, attention and memory-bound ops switch less and keep more of the clock. The limit
 * is taken to hold in each op: over the tenths of a second that a device averages its power, other
 * ops beside products leave them more. Source of the third power: dynamic power is C V^2 f and V
 * about proportional to f (Weste and Harris, CMOS VLSI Design, 4th ed., section 5.1). */
#include "ir/base/units.h"
#include "sim/cost/profiles_internal.h"

#define WHOLE INT64_C(1000000000)
/* P_0 / P_1, assumed: idle with a context an H100 draws 0.15 to 0.2 of 700 W (arXiv 2605.23918: 26
 * to 50 W above 70), and memory more. At 500 of 700 W the clock is 0.878, 0.863 and 0.843 of the
 * one at 700 W for a share of 0.1, 0.2 and 0.3. */
#define AT_REST 0.2

/* By Newton's method, with operations that every machine rounds alike. 0 < x < 10^9. */
static double cube_root(double x) {
    double root = x > 1 ? x : 1;
    for (int i = 0; i < 64; i++) root = (2 * root + x / (root * root)) / 3;
    return root;
}

int64_t ds_clock_part(const ds_device_clock *clock, int64_t power_mw, double busy) {
    if (!clock->power_mw || !(busy > 1e-6)) return WHOLE;
    double limit = (double)clock->power_mw, rest = AT_REST * limit;
    double left = power_mw ? ((double)power_mw - rest) / (limit - rest) : 1;
    if (left < 1e-3) left = 1e-3; /* a cap at or below what the device draws at rest */
    double part = clock->sustained * cube_root(left * clock->busy / busy);
    return part < 1 ? (int64_t)(part * (double)WHOLE + 0.5) : WHOLE;
}

/* The share of its peak that the op reaches by the fits; 0: not known, or it computes nothing. The
 * profile's factor is of the time at whatever clock there was. */
static double busy_of(const ds_cost_query *q, const ds_cost *cost) {
    double peak = ds_profiles_kind(q->profiles, q->kind)->peak_flop_per_s[q->work->dtype];
    if (!(peak > 0) || cost->ps <= 0) return 0;
    double ps = (double)cost->ps / ds_cost__op_factor(q);
    double share = (double)q->work->flop * (double)DS_PS_PER_S / (ps * peak);
    return share < 1 ? share : 1;
}

/* Of the part of the clock, what the fit of the op has not counted: a long product sagged while it
 * was measured, and the clock of a limit is where sagging ends. */
static int64_t beyond_sag(int64_t part, const ds_cost *cost) {
    if (!cost->sagged_ppb) return part;
    if (part >= cost->sagged_ppb) return WHOLE;
    return (int64_t)((ds_i128)part * WHOLE / cost->sagged_ppb);
}

/* How many standard deviations the largest of 2^i normal variables lies above their mean, expected:
 * the integral of x d(F(x)^(2^i)), F the normal distribution function. */
static const double largest_of[] = {0,      0.5642, 1.0294, 1.4236, 1.7660, 2.0697, 2.3437,
                                    2.5946, 2.8269, 3.0439, 3.2482, 3.4418, 3.6261, 3.8023,
                                    3.9714, 4.1341, 4.2911, 4.4430, 4.5903, 4.7332, 4.8723};

/* One kind of device differs from one to the next: chips leak unequally, so under one power limit
 * they keep unequal clocks, and a step waits for the slowest of its n devices. On five clusters of
 * V100 and MI60 (Sinha et al., SC22, arXiv 2208.11035) run times of equal devices lie, without
 * outliers, within 8 % of the median on average. Assumed: normal, and the 8 % are what a box plot's
 * whiskers span, 5.4 standard deviations. Memory-bound ops do not vary so. */
#define DEVIATION 0.015

double ds_clock_slowest(int64_t n) {
    size_t i = 0, last = sizeof largest_of / sizeof *largest_of - 1;
    while (i < last && n >> (i + 1)) i++;
    double least = (double)(INT64_C(1) << i), above = largest_of[i];
    if (i < last && n > 0) above += (largest_of[i + 1] - above) * ((double)n / least - 1);
    return 1 + DEVIATION * above;
}

static int64_t slowest(const ds_cost_query *q, int64_t part) {
    if (q->n_devices < 2 || !ds_profiles_has(q->profiles, DS_TERM_VARIATION)) return part;
    return (int64_t)((double)part / ds_clock_slowest(q->n_devices) + 0.5);
}

/* The part of its clock that the op keeps. */
static int64_t part_of(const ds_cost_query *q, int64_t clock_ppb, int64_t power_mw,
                       const ds_cost *cost) {
    const ds_device_clock *clock = &ds_profiles_kind(q->profiles, q->kind)->clock;
    bool own = q->profile && ds_profile_kind(q->profiles, q->profile) == q->kind;
    bool generic = own && ds_profile_is_generic(q->profiles, q->profile);
    bool peaks = cost->origin == DS_COST_ROOFLINE && !cost->fitted;
    if (!ds_profiles_has(q->profiles, DS_TERM_CLOCKS)) return generic ? slowest(q, WHOLE) : WHOLE;
    if ((peaks || generic) && clock_ppb != WHOLE) return clock_ppb;
    double busy = busy_of(q, cost);
    if (generic) return slowest(q, beyond_sag(ds_clock_part(clock, power_mw, busy), cost));
    if (!power_mw) return WHOLE;
    int64_t capped = ds_clock_part(clock, power_mw, busy), part;
    if (peaks) return capped;
    part = ds_clock_part(clock, 0, busy);
    return capped < part ? (int64_t)((ds_i128)capped * WHOLE / part) : WHOLE;
}

ds_status ds_cost_clock(const ds_cost_query *q, int64_t clock_ppb, int64_t power_mw, ds_cost *cost,
                        ds_buf *explain, ds_error *err) {
    double compute_s, memory_s;
    if (cost->origin == DS_COST_GIVEN) return DS_OK;
    int64_t part = part_of(q, clock_ppb, power_mw, cost);
    if (part == WHOLE) return DS_OK;
    ds_cost_sides(q, &compute_s, &memory_s);
    if (!(compute_s > 0)) return DS_OK;
    cost->clock_ppb = part;
    DS_TRY(ds_cost_degrade(compute_s, memory_s, part, WHOLE, &cost->ps, err));
    if (explain)
        ds_buf_printf(explain, "  %s: %.9g of the clock: %lld ps\n",
                      part == clock_ppb  ? "sustained_clock"
                      : q->n_devices > 1 ? "power limit, slowest device"
                                         : "power limit",
                      (double)part / (double)WHOLE, (long long)cost->ps);
    return DS_OK;
}
