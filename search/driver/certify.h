/* Checking a certificate of branch and bound (search/methods/bound.h). */
#ifndef DS_SEARCH_DRIVER_CERTIFY_H
#define DS_SEARCH_DRIVER_CERTIFY_H

#include "search/space/eval.h"

typedef struct ds_certified {
    uint64_t candidates, regions;
    uint64_t simulated; /* of the candidates; the others lie in regions with a bound */
    int64_t value;      /* of the best one, ps or bytes; INT64_MAX: none counts */
} ds_certified;

/* Is what the certificate says of the sweep of `source` true? Every candidate must begin with the
 * values of exactly one region, and every region's kind must hold:
 * a bound is no less than the incumbent's value, and no more than the bound that is computed here,
 * for the region or one around it; what lacks memory has a bound of memory beyond the devices'
 * capacity; what is illegal a pass refuses, by what is known of the region; what was run or
 * rejected is simulated again, with the same result, which is no better than the incumbent; and the
 * incumbent is one of the runs. This calls the tables of operations and the evaluator; the formulas
 * of the bounds are written again, by bounds.h, and nothing of the search is used. `binding` is the
 * sweep's, `source` has neither space nor content yet. Errors: DS_ERR_DATA with the line that is
 * wrong; those of loading. O(candidates * + simulations). */
ds_status ds_certify(const char *text, const ds_binding *binding, const ds_setting *settings,
                     uint32_t n_settings, const ds_eval_source *source, ds_certified *out,
                     ds_error *err);

#endif
