/* How far predictions are from what was measured. */
#ifndef DS_VALIDATE_ERRORS_H
#define DS_VALIDATE_ERRORS_H

#include "tools/validate/predict.h"

/* Of the rows of one set and split. Errors are predicted/measured - 1, in percent; -1 (spearman:
 * -2) where there are too few rows to say. */
typedef struct val_errors {
    const char *set, *split; /* the rows' */
    uint32_t n, refused;
    uint32_t unfit; /* predicted to need more memory than their devices have, where they ran */
    uint32_t ran_out, let_run; /* runs that ended out of memory, and those predicted to fit; no part
                                  of n */
    double mape, median, p90, max; /* of the absolute errors */
    double bias;                   /* mean error */
    double spearman;               /* rank correlation of predicted and measured seconds */
    /* Mean absolute error of one constant rate of model FLOPs a GPU: the median of the set's calib
     * rows, or of all its rows where it has none. */
    double baseline_mape;
    bool baseline_from_calib; /* false, too, where no row is predicted */
    /* Of the groups of two rows or more with the same model, batch and cluster: in how many percent
     * the plan that is predicted best measured at most 2 % worse than the best. */
    double regret_within_2pct;
    uint32_t groups;
    double worst_regret; /* percent */
    /* Of the rows whose prediction has an interval for nine in ten: how many percent measured
     * within; -1: none has one. */
    double covered;
    /* The median of (high - low)/2 of these intervals, in percent of the prediction; -1: none. */
    double half_width;
} val_errors;

/* One entry for each set and split, in order of appearance; *out is the caller's to free, before
 * the rows. O(n²). */
uint32_t val_errors_of(const val_prediction *rows, uint32_t n, val_errors **out);

/* Does it need more memory than its devices have? False where that is not known. */
bool val_is_unfit(const val_prediction *p);

/* Percent; negative: the prediction is too short. */
double val_error(const val_prediction *p);

#endif
