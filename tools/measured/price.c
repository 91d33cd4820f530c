/* What the cost model says of a row. */
#include "tools/measured/measured.h"

/* The host's time to issue a task stands for the gap between launches of a stream without work. */
static void price_gap(const ds_profiles *profiles, uint32_t profile, measured_row *row,
                      double *us) {
    *us = (double)ds_profile_issue_ps(profiles, profile) / 1e6;
    if (*us <= 0) row->refused = "the profile has no time to issue a task";
}

ds_status measured_price(const ds_profiles *profiles, uint32_t profile, ds_cost_mode mode,
                         measured_row *row, double *us, bool *exact, ds_error *err) {
    *us = 0;
    *exact = false;
    if (row->table == MEASURED_LAUNCH) {
        price_gap(profiles, profile, row, us);
        return DS_OK;
    }
    for (uint32_t i = 0; i < row->n_parts; i++) {
        const measured_part *part = &row->parts[i];
        ds_cost_query query = {.profiles = profiles,
                               .kind = row->kind,
                               .profile = profile,
                               .op = part->op,
                               .work = &part->work,
                               .kernels = part->kernels,
                               .kernel = row->table == MEASURED_ATTENTION ? row->kernel
                                         : row->table == MEASURED_MLA     ? "mla"
                                                                          : NULL};
        ds_cost cost;
        ds_status status = ds_cost_op(&query, mode, &cost, NULL, err);
        if (status == DS_ERR_COST) {
            row->refused = "the catalogue has no peak of the dtype, and the profile no curve";
            return DS_OK;
        }
        DS_TRY(status);
        *us += (double)cost.ps / 1e6;
        *exact = *exact || cost.origin == DS_COST_EXACT;
    }
    return DS_OK;
}
