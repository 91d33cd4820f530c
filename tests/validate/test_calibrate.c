/* Factors of a cluster from measured steps: closed forms of Bayes' rule, and errors by hand. */
#include "tools/validate/calibrate.h"

#include <criterion/criterion.h>
#include <math.h>

static const cal_prior prior = {{0.2, 0.4, 0.5}, 0.1};

/* A step of compute alone, ratio r: the estimate m is where the weight 5/(4 + ((r - m)/0.1)²)/0.01
 * of the row and that of the prior, 1/0.04, balance. Without a residual the weight is 125. */
Test(calibrate, one_row_moves_what_its_time_is_made_of) {
    const cal_row rows[] = {{0.3, {1, 0, 0}, 0}, {0, {1, 0, 0}, 0}};
    const uint32_t first = 0, second = 1;
    cal_estimate e;
    cal_estimate_from(rows, &first, 1, &prior, &e);
    double m = e.mean[0], weight = 5 / (4 + pow((0.3 - m) / 0.1, 2)) / 0.01;
    cr_expect_float_eq(m, weight * 0.3 / (weight + 25), 1e-6);
    cr_expect(m > 0.2 && m < 0.3);
    cr_expect_float_eq(e.mean[1], 0, 1e-12);
    cr_expect_float_eq(e.covariance[1][1], 0.16, 1e-12);
    cr_expect_float_eq(e.covariance[2][2], 0.25, 1e-12);
    cr_expect_float_eq(cal_shift(&e, &rows[0]), m, 1e-12);

    cal_estimate_from(rows, &second, 1, &prior, &e);
    cr_expect_float_eq(e.mean[0], 0, 1e-12);
    cr_expect_float_eq(e.covariance[0][0], 1 / (125. + 25), 1e-12);
    cr_expect_float_eq(cal_deviation(&e, &rows[1], &prior), sqrt(0.01 + 1 / 150.), 1e-12);
}

/* Two steps with other shares tell compute and communication apart: with priors of no weight the
 * factors solve 0.8 a + 0.2 b = 0.16, 0.5 a + 0.5 b = 0.25. */
Test(calibrate, rows_of_other_shares_tell_factors_apart) {
    const cal_row rows[] = {{0.16, {0.8, 0.2, 0}, 0}, {0.25, {0.5, 0.5, 0}, 0}};
    const uint32_t both[] = {0, 1};
    const cal_prior vague = {{100, 100, 100}, 1e-3};
    cal_estimate e;
    cal_estimate_from(rows, both, 2, &vague, &e);
    cr_expect_float_eq(e.mean[0], 0.1, 1e-6);
    cr_expect_float_eq(e.mean[1], 0.4, 1e-6);
}

/* A run that was held up is far from nine others, and moves the factor less than a tenth of the way
 * that the mean of all would go. */
Test(calibrate, a_row_far_off_pulls_little) {
    cal_row rows[10];
    uint32_t all[10];
    for (uint32_t i = 0; i < 10; i++) {
        rows[i] = (cal_row){i ? 0.1 : 2, {1, 0, 0}, 0};
        all[i] = i;
    }
    cal_estimate with, without;
    cal_estimate_from(rows, all, 10, &prior, &with);
    cal_estimate_from(rows, all + 1, 9, &prior, &without);
    cr_expect_lt(fabs(with.mean[0] - without.mean[0]), 0.1 * 0.19);
}

/* Without a row errors are those of the generic profile: exp(-ratio) - 1. */
Test(calibrate, errors_against_the_number_of_rows) {
    const cal_row rows[] = {{log(1.25), {1, 0, 0}, 0},
                            {log(1.25), {1, 0, 0}, 0},
                            {log(1.25), {1, 0, 0}, 0},
                            {log(2), {1, 0, 0}, 0}};
    cal_errors e;
    cal_errors_of(rows, 4, 0, &prior, &e);
    cr_expect_eq(e.draws, 1);
    cr_expect_float_eq(e.mean, (20. * 3 + 50) / 4, 1e-9);
    cr_expect_float_eq(e.bias, -(20. * 3 + 50) / 4, 1e-9);
    cr_expect_float_eq(e.median, 20, 1e-9);
    cr_expect_eq(e.covered, 75); /* log 1.25 < 2.132 sqrt(0.04 + 0.01) = 0.477 < log 2 */
    cr_expect_float_eq(e.half_width, 100 * sinh(2.132 * sqrt(0.05)), 1e-9);

    cal_errors_of(rows, 3, 1, &prior, &e);
    cr_expect_eq(e.draws, 3);
    cr_expect_lt(e.mean, 5);
    cr_expect_eq(e.covered, 100);
    cal_errors_of(rows, 4, 3, &prior, &e);
    cr_expect_eq(e.draws, 4);
    cal_errors_of(rows, 4, 4, &prior, &e);
    cr_expect_eq(e.draws, 0);
}

Test(calibrate, choices_beyond_two_hundred_are_drawn) {
    cal_row rows[30];
    for (uint32_t i = 0; i < 30; i++) rows[i] = (cal_row){0.01 * i, {1, 0, 0}, 0};
    cal_errors once, again;
    cal_errors_of(rows, 30, 10, &prior, &once);
    cal_errors_of(rows, 30, 10, &prior, &again);
    cr_expect_eq(once.draws, CAL_DRAWS);
    cr_expect_eq(once.mean, again.mean);
    cal_errors_of(rows, 30, 1, &prior, &once);
    cr_expect_eq(once.draws, 30);
}
