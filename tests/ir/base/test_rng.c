#include "ir/base/rng.h"

#include <criterion/criterion.h>

/* The first outputs of splitmix64 for seed 1234567, as published with the reference code
 * (https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64). */
Test(rng, is_splitmix64) {
    static const uint64_t published[] = {
        UINT64_C(6457827717110365317), UINT64_C(3203168211198807973), UINT64_C(9817491932198370423),
        UINT64_C(4593380528125082431), UINT64_C(16408922859458223821)};
    ds_rng rng = {1234567};
    for (int i = 0; i < 5; i++) cr_assert_eq(ds_rng_next(&rng), published[i]);
}

Test(rng, counter_is_pure_and_every_word_counts) {
    uint64_t x = ds_rng_at(42, 1, 2, 3);
    cr_assert_eq(
        x, UINT64_C(0x4e790d9643302802)); /* stable over versions: computed apart from this code */
    cr_assert_eq(x, ds_rng_at(42, 1, 2, 3));
    cr_assert_neq(x, ds_rng_at(43, 1, 2, 3));
    cr_assert_neq(x, ds_rng_at(42, 2, 1, 3));
    cr_assert_neq(x, ds_rng_at(42, 1, 3, 2));
    cr_assert_neq(ds_rng_at(0, 0, 0, 0), ds_rng_at(0, 0, 0, 1));
}

/* Mean 1/2 and variance 1/12 of a uniform: over n draws the mean's standard deviation is
 * 1/sqrt(12 n); five of them bound the error, for the counter and for the stream. */
Test(rng, uniform_has_the_moments_of_a_uniform) {
    enum { N = 100000 };
    double sum[2] = {0}, squares[2] = {0};
    ds_rng rng = {7};
    for (uint64_t i = 0; i < N; i++) {
        double x[2] = {ds_rng_uniform_at(7, 0, i, 0), ds_rng_uniform(&rng)};
        for (int k = 0; k < 2; k++) {
            cr_assert(x[k] >= 0 && x[k] < 1);
            sum[k] += x[k];
            squares[k] += x[k] * x[k];
        }
    }
    for (int k = 0; k < 2; k++) {
        cr_assert_float_eq(sum[k] / N, 0.5, 5 * 0.2887 / 316.2);
        cr_assert_float_eq(squares[k] / N, 1.0 / 3, 5 * 0.2981 / 316.2);
    }
}

/* Chi-square over 10 bins: 9 degrees of freedom, 99.9 % quantile 27.9. */
Test(rng, below_is_even) {
    enum { N = 100000 };
    double count[10] = {0}, chi = 0;
    ds_rng rng = {3};
    for (int i = 0; i < N; i++) count[ds_rng_below(&rng, 10)]++;
    for (int k = 0; k < 10; k++) chi += (count[k] - N / 10.0) * (count[k] - N / 10.0) / (N / 10.0);
    cr_assert_lt(chi, 27.9);
    for (int i = 0; i < 100; i++) cr_assert_eq(ds_rng_below(&rng, 1), 0);
}
