/* How few measured steps of a cluster bring the error of its predictions down.
 *
 * Each row is predicted with the generic profile of its device, and three times more with compute,
 * communication or the host slower by CAL_AWAY. The quotients say how a step's time follows each
 * factor: near the generic constants log(step) is linear in the logarithms of the factors. Steps of
 * the cluster then give the factors, by Bayes' rule: before any row a factor is 1, and its logarithm
 * normal with the width that such factors had on other clusters, so one row moves the factors that
 * its time is made of, and no factor goes far without rows that show it. */
#ifndef DS_VALIDATE_CALIBRATE_H
#define DS_VALIDATE_CALIBRATE_H

#include "tools/validate/predict.h"

#define CAL_FACTORS 3 /* compute, communication, host */

/* Known before any row: the scales of the logarithms of the factors, and of log(measured/predicted)
 * around a cluster's own factors. */
typedef struct cal_prior {
    double spread[CAL_FACTORS], noise;
} cal_prior;
/* By catalogue/intervals.csv: of the parts compute, communication and host, of which a factor may have
 * the bias and the error of other clusters; the noise is the error of the part step. */
cal_prior cal_prior_of(const ds_profiles *profiles);

/* Student's t with four degrees of freedom: nine in ten lie within so many scales. */
#define CAL_NINE_IN_TEN 2.132

/* A row near the generic constants. */
typedef struct cal_row {
    double ratio;              /* log(measured/predicted) by the generic profile */
    double slope[CAL_FACTORS]; /* of log(predicted) by the logarithm of each factor */
    uint32_t of;               /* the prediction: an index into those of cal_look */
} cal_row;

/* The factors' logarithms after some rows, and their covariance. */
typedef struct cal_estimate {
    double mean[CAL_FACTORS], covariance[CAL_FACTORS][CAL_FACTORS];
} cal_estimate;

/* The estimate from `n` rows, rows[chosen[i]]: of normal priors and of rows with Student's tails. O(n).
 */
void cal_estimate_from(const cal_row *rows, const uint32_t *chosen, uint32_t n,
                       const cal_prior *prior, cal_estimate *out);
/* log(prediction/generic prediction) of a row, and its standard deviation with the noise of a row. */
double cal_shift(const cal_estimate *e, const cal_row *row);
double cal_deviation(const cal_estimate *e, const cal_row *row, const cal_prior *prior);

/* Errors of rows that were not among the k from which the factors came, over `draws` choices of k
 * rows: all choices where there are few, else CAL_DRAWS from a fixed seed. */
#define CAL_DRAWS 200
typedef struct cal_errors {
    uint32_t k, draws;   /* draws 0: fewer than k + 1 rows */
    double mean, median; /* of |predicted/measured - 1|, in percent, over draws and rows */
    double bias;         /* mean of predicted/measured - 1, in percent */
    double p90_draws;    /* nine in ten choices have at most this mean error, in percent */
    double covered;      /* percent of the rows that measured within their interval */
    double half_width;   /* the median of (high - low)/2, in percent of the prediction */
} cal_errors;
void cal_errors_of(const cal_row *rows, uint32_t n, uint32_t k, const cal_prior *prior,
                   cal_errors *out);

/* Predicts the rows four times: `rows` by the generic profile, with the reasons of refusals; near[i]
 * of the rows that all four predict, as many as *n_near. near has room for n. db_path NULL: as
 * ds_profiles_load. Errors: of ds_profiles_load and val_predict. */
ds_status cal_look(const val_job *job, const char *db_path, val_prediction *rows, uint32_t n,
                   cal_row *near, uint32_t *n_near, ds_error *err);
/* Predicts rows that nothing has predicted yet by the generic profile with these factors. */
ds_status cal_predict(const val_job *job, const char *db_path, const double factors[CAL_FACTORS],
                      val_prediction *rows, uint32_t n, ds_error *err);

#endif
