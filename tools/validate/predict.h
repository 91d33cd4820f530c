/* Published steps, predicted. */
#ifndef DS_VALIDATE_PREDICT_H
#define DS_VALIDATE_PREDICT_H

#include "ir/lang/lang.h"
#include "sim/run/run.h"
#include "tools/validate/scenario.h"

typedef struct val_prediction {
    val_row row;
    const char *file;
    char set[64];
    bool refused; /* then `why` says for what reason, and the rest is 0 */
    char why[240];
    double seconds; /* of a step */
    /* Of it, on the device that ends last: computing, and in transfers that no compute hides; the
     * rest is idle, waiting for other stages or for the host. */
    double compute_s, exposed_s;
    /* Shares of the critical path (sim/report/analysis.h); of a step that was put together from
     * parts nobody knows: 0. */
    double share[DS_PART_COUNT];
    double low, high; /* nine in ten measurements lie between; 0: nobody knows */
    /* Of the fullest device: what the allocator reserves, the process's own memory and the driver's
     * share; capacity 0: not known. */
    double peak_gib, capacity_gib;
    bool ran_out;     /* the run ended out of memory: `seconds` stays 0 */
    bool fits_last;   /* the last scenario that was simulated for it */
    int64_t mbs, vpp; /* used: the row's, or the best, where it does not say */
} val_prediction;

struct val_job;
typedef struct val_plan_request val_plan_request; /* mfu.h */
/* Finds the fastest plan for a cluster and a model, and its step. */
typedef ds_status (*val_planner)(const struct val_job *job, val_plan_request *request,
                                 ds_error *err);

typedef struct val_job {
    const ds_profiles *profiles;
    ds_load_options load;
    uint32_t n_workers;
    bool times_only; /* no memory is predicted, and runs that ended out of memory are refused */
    bool zero_shot;  /* no calibrated profile counts: the generic profile of each device does */
    const char
        *without; /* terms of the cost model that do not count, "tiles, launch"; NULL: none */
    val_planner planner; /* NULL: rows that leave the layout to a planner are refused */
} val_job;

/* Predicts the rows, each filled in but for what follows `file`; every row ends with a time or a
 * reason. What comes out does not depend on the number of workers. DS_ERR_LIMIT: no threads;
 * DS_ERR_IO: the models are not where `load` says, which is no fault of a row. */
ds_status val_predict(const val_job *job, val_prediction *rows, uint32_t n, ds_error *err);

/* DS_ERR_UNSUPPORTED for a complete row whose model the testbed's model is not. */
ds_status val_check_model(const val_row *row, const val_testbed *testbed, ds_error *err);

/* Loads, verifies and binds a scenario's text; the unit is to be freed either way. */
ds_status val_open(const char *text, size_t n, const ds_load_options *load, ds_unit **unit,
                   ds_binding *binding, ds_error *err);

#endif
