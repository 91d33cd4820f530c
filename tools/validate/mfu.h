/* Rows that state an MFU and a cluster, and neither layout, batch, sequence nor network: HexiScale's. Its
 * authors' "optimal MFU" is that of the fastest plan here. What the source leaves open is assumed, the same for all
 * rows (mfu.c), and the network is varied threefold. */
#ifndef DS_VALIDATE_MFU_H
#define DS_VALIDATE_MFU_H

#include "tools/validate/predict.h"

enum { VAL_NETWORKS = 3 };

/* The fastest plan for a cluster. */
struct val_plan_request {
    const val_row *row; /* dims, sequence, batch */
    const char *
        topologies[VAL_NETWORKS]; /* texts of @cluster: the network assumed, a third, three times */
    double seconds[VAL_NETWORKS]; /* the planner's answer; the plan is made for the first network */
};

bool val_is_mfu_alone(const val_row *row);
/* Sets row and times of the prediction; the measured time follows from the MFU. DS_ERR_UNSUPPORTED: a model or a
 * device that is not known here; DS_ERR_DATA: cells that contradict each other, nothing fits. */
ds_status val_predict_mfu(const val_job *job, val_row row, val_prediction *p, ds_error *err);
/* The MFU of a step, in per cent, by the row's cluster and model. */
double val_mfu_pct(const val_row *row, double seconds);

#endif
