/* How much longer an op takes on a device that has lost part of its compute or memory bandwidth.
 *
 * The roofline says how long either would be busy: t_c for the FLOPs, t_m for the bytes. Whole, the
 * op takes max(t_c, t_m); with shares c and m left, max(t_c/c, t_m/m). A measured time goes by the
 * same quotient, for what else it holds (launches inside, waits) belongs to one of the two:
 *
 *     time · max(t_c/c, t_m/m) / max(t_c, t_m)
 *
 * rounded up to ps. Where the larger side stays the larger one that is time/c or time/m, exactly.
 */
#include "ir/base/units.h"
#include "sim/cost/cost.h"

#define WHOLE INT64_C(1000000000)

/* ceil(ps · ratio / share) with ratio in 2^-32 and share in 10^-9; false beyond int64. ps < 2^63,
 * ratio <= 2^32 and 10^9 < 2^30: the product is below 2^125. */
static bool stretch(int64_t ps, uint64_t ratio_q32, int64_t share_ppb, int64_t *out) {
    ds_u128 over = (ds_u128)(uint64_t)ps * ratio_q32 * (uint64_t)WHOLE;
    ds_u128 under = (ds_u128)(uint64_t)share_ppb << 32;
    ds_u128 quotient = over / under + (over % under != 0);
    if (quotient > INT64_MAX) return false;
    *out = (int64_t)quotient;
    return true;
}

ds_status ds_cost_degrade(double compute_s, double memory_s, int64_t compute_ppb,
                          int64_t memory_ppb, int64_t *ps, ds_error *err) {
    bool by_memory = memory_s > compute_s;
    double larger = by_memory ? memory_s : compute_s, smaller = by_memory ? compute_s : memory_s;
    uint64_t ratio_q32 =
        larger > 0 && smaller > 0 ? (uint64_t)(smaller / larger * 0x1p32 + 0.5) : 0;
    int64_t first, second;
    bool fits = stretch(*ps, UINT64_C(1) << 32, by_memory ? memory_ppb : compute_ppb, &first) &&
                stretch(*ps, ratio_q32, by_memory ? compute_ppb : memory_ppb, &second);
    if (!fits)
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "an op on a degraded device takes longer than 106 days, the range of "
                            "int64 picoseconds");
    *ps = first > second ? first : second;
    return DS_OK;
}
