/* Checking a certificate of branch and bound (search/methods/bound.h). */
#ifndef DS_SEARCH_DRIVER_CERTIFY_H
#define DS_SEARCH_DRIVER_CERTIFY_H

#include "search/space/eval.h"

typedef struct ds_certified {
    uint64_t candidates, regions;
    uint64_t simulated; /* of the candidates; the others lie in regions with a bound */
    int64_t value;      /* of the best candidate, ps or bytes; INT64_MAX: no candidate counts */
} ds_certified;

/* Checks a certificate against the sweep of `source`. Every candidate must begin with the values of
 * exactly one region, the incumbent must be one of the runs, and every region's kind must hold:
 *
 *   bound         no less than the incumbent's value, and no more than the bound computed here, for
 *                 the region or a region around it
 *   lacks_memory  the bound of memory is beyond the devices' capacity
 *   illegal       a pass refuses all candidates, by what is known of the region
 *   run           simulated again, with the same value, which is no better than the incumbent's
 *   rejected      simulated again, and does not count
 *
 * The check calls the stages' times and bytes (bounds.h) and the evaluator, writes the formulas of
 * the bounds again, and uses no search. `binding` is the sweep's, `source` has neither space nor
 * content yet. Errors: DS_ERR_DATA with the wrong line; those of loading.
 * O(candidates + simulations). */
ds_status ds_certify(const char *text, const ds_binding *binding, const ds_setting *settings,
                     uint32_t n_settings, const ds_eval_source *source, ds_certified *out,
                     ds_error *err);

#endif
