/* Reading and changing single constants of a loaded database, for a fit to whole simulated steps:
 * it tries thousands of values, and one database each would cost more than the simulation.
 *
 * Only its owner, who holds the ds_profiles without const, can change it, and must not while it is
 * shared with another thread or a simulation that runs. */
#ifndef DS_COST_CONSTANT_H
#define DS_COST_CONSTANT_H

#include "sim/cost/cost.h"

typedef enum ds_constant_name {
    DS_CONSTANT_ISSUE_PS, /* profile.csv issue_us */
    DS_CONSTANT_E_MAX,    /* efficiency.csv e_max, w_half of (op, dtype, resource) */
    DS_CONSTANT_W_HALF,
    DS_CONSTANT_FLOOR_PS,   /* efficiency.csv floor_us */
    DS_CONSTANT_COLL_E_MAX, /* collective_fits.csv e_max, launch_us of (collective, group) */
    DS_CONSTANT_COLL_LAUNCH_PS,
    DS_CONSTANT_PROTOCOL_LAUNCH_PS, /* collective_protocols.csv launch_us, step_us, copy_gb_per_s */
    DS_CONSTANT_PROTOCOL_STEP_PS,   /* and e of (collective, link, protocol) */
    DS_CONSTANT_PROTOCOL_COPY_BYTES_PER_S,
    DS_CONSTANT_PROTOCOL_E,
    DS_CONSTANT_TILES_E_MAX /* gemm_fits.csv e_max of dtype */
} ds_constant_name;

typedef struct ds_constant {
    ds_constant_name name;
    const char *op;       /* of efficiency.csv, or the collective */
    const char *dtype;    /* of efficiency.csv: "f32", "*" */
    bool flop;            /* resource of efficiency.csv */
    uint32_t group;       /* of collective_fits.csv */
    const char *protocol; /* of collective_protocols.csv */
    int64_t link_bytes_per_s;
} ds_constant;

/* The value of a constant of `profile`; times in ps, rates in bytes/s. Errors: DS_ERR_NAME if the
 * profile has no such row. O(fits). */
ds_status ds_constant_get(const ds_profiles *profiles, uint32_t profile, const ds_constant *which,
                          double *value, ds_error *err);
/* The same, changed: times and rates are rounded to whole ps and bytes/s. Besides DS_ERR_NAME:
 * DS_ERR_VALUE if the loader would refuse the value. */
ds_status ds_constant_set(ds_profiles *profiles, uint32_t profile, const ds_constant *which,
                          double value, ds_error *err);

/* Sets the factors of all generic profiles; each is positive and finite. */
void ds_profiles_set_generic_factors(ds_profiles *profiles, ds_cost_factors factors);

#endif
