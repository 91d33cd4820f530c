/* FLOPs and seconds at peak, summed over devices of one hardware kind. */
#include "sim/run/run.h"

#include <stdlib.h>

/* The first rounding, so that sums do not depend on how devices are classed. */
static void sum_up(const ds_result *r, ds_kind_total *k) {
    const double *peak = ds_profiles_kind(r->plan->profiles, k->kind)->peak_flop_per_s;
    ds_i128 flop = 0, product_flop = 0;
    for (int d = 0; d < DS_DTYPE_COUNT; d++) {
        flop += k->flop_of[d];
        product_flop += k->product_flop_of[d];
        if (!(peak[d] > 0)) continue;
        k->peak_s += (double)k->flop_of[d] / peak[d];
        k->product_s += (double)k->product_flop_of[d] / peak[d];
    }
    k->flop = (double)flop;
    k->product_flop = (double)product_flop;
    if (r->step) k->peak_s = r->useful * k->product_s;
}

bool ds_result_is_bound(const ds_result *r, uint32_t kind) {
    for (uint32_t c = 0; c < r->plan->n_classes; c++) {
        const ds_class *cls = &r->plan->classes[c];
        const ds_account *a = &r->accounts[c];
        if (cls->kind == kind && a->origin_ps[DS_COST_ROOFLINE] > a->fitted_ps &&
            !ds_profile_has_compute(r->plan->profiles, cls->profile))
            return true;
    }
    return false;
}

ds_kind_total *ds_kind_totals(const ds_result *r, uint32_t *n) {
    ds_kind_total *kinds = ds_xcalloc(r->plan->n_classes, sizeof *kinds);
    *n = 0;
    for (uint32_t c = 0; c < r->plan->n_classes; c++) {
        const ds_class *cls = &r->plan->classes[c];
        uint32_t k = 0;
        while (k < *n && kinds[k].kind != cls->kind) k++;
        if (k == *n) {
            kinds[(*n)++] = (ds_kind_total){.kind = cls->kind, .profile = cls->profile};
            const ds_device_kind *kind = ds_profiles_kind(r->plan->profiles, cls->kind);
            for (int d = 0; d < DS_DTYPE_COUNT; d++)
                if (kind->peak_flop_per_s[d] > 0) kinds[k].peak_is_known = true;
        }
        kinds[k].n_devices += cls->n_devices;
        for (int d = 0; d < DS_DTYPE_COUNT; d++) {
            kinds[k].flop_of[d] += cls->n_devices * r->accounts[c].flop_of[d];
            kinds[k].product_flop_of[d] += cls->n_devices * r->accounts[c].product_flop_of[d];
        }
    }
    for (uint32_t k = 0; k < *n; k++) sum_up(r, &kinds[k]);
    return kinds;
}
