#include "ir/base/units.h"

#include <criterion/criterion.h>
#include <math.h>

static int64_t from_seconds(double s) {
    int64_t ps = -1;
    cr_assert_eq(ds_ps_from_seconds(s, &ps, NULL), DS_OK);
    return ps;
}

Test(units, seconds_round_up_but_not_for_noise) {
    cr_assert_eq(from_seconds(0), 0);
    cr_assert_eq(from_seconds(1), DS_PS_PER_S);
    cr_assert_eq(from_seconds(1.5e-12), 2);
    cr_assert_eq(from_seconds(1e-13), 1);
    cr_assert_eq(from_seconds(2.0000001e-12), 3);
    /* k nanoseconds written in decimal: neither the literal nor the product is exact. */
    for (int64_t ns = 1; ns < 100000; ns += 7)
        cr_assert_eq(from_seconds((double)ns * 1e-9), ns * 1000, "%d ns", (int)ns);
}

Test(units, seconds_out_of_range) {
    const double bad[] = {-1e-12, NAN, INFINITY, -INFINITY, 9.3e6, 1e300};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t ps;
        ds_error err;
        cr_assert_eq(ds_ps_from_seconds(bad[i], &ps, &err), DS_ERR_OVERFLOW, "%g", bad[i]);
        cr_assert_eq(err.code, DS_ERR_OVERFLOW);
    }
    cr_assert_eq(from_seconds(9.2e6), INT64_C(9200000) * DS_PS_PER_S);
}

Test(units, checked_arithmetic) {
    int64_t x;
    cr_assert(ds_add_i64(INT64_MAX - 1, 1, &x) && x == INT64_MAX);
    cr_assert_not(ds_add_i64(INT64_MAX, 1, &x));
    cr_assert_not(ds_add_i64(INT64_MIN, -1, &x));
    cr_assert(ds_mul_i64(INT64_C(3037000499), INT64_C(3037000499), &x));
    cr_assert_not(ds_mul_i64(INT64_C(3037000500), INT64_C(3037000500), &x));
    cr_assert_not(ds_mul_i64(INT64_MIN, -1, &x));
}

/* a = b*q + r with r between 0 and b: the definition. */
Test(units, floor_division) {
    for (int64_t a = -20; a <= 20; a++)
        for (int64_t b = -7; b <= 7; b++) {
            if (b == 0) continue;
            int64_t q = ds_floordiv(a, b), r = ds_floormod(a, b);
            cr_assert_eq(b * q + r, a);
            cr_assert(b > 0 ? 0 <= r && r < b : b < r && r <= 0);
        }
    cr_assert_eq(ds_floordiv(INT64_MIN, 2), INT64_MIN / 2);
    cr_assert_eq(ds_floormod(INT64_MIN, INT64_MAX), INT64_MAX - 1);
}

static void expect(ds_buf *buf, const char *text) {
    cr_assert_str_eq(buf->text, text);
    buf->n = 0;
    buf->text[0] = '\0';
}

Test(units, printing_for_people) {
    ds_buf buf = {0};
    ds_print_ps(0, &buf), expect(&buf, "0 ps");
    ds_print_ps(INT64_C(35007000000), &buf), expect(&buf, "35.01 ms");
    ds_print_ps(1500, &buf), expect(&buf, "1.5 ns");
    ds_print_ps(999960, &buf), expect(&buf, "1 us");
    ds_print_ps(-2000000, &buf), expect(&buf, "-2 us");
    ds_print_ps(INT64_C(123456) * DS_PS_PER_S, &buf), expect(&buf, "123456 s");
    ds_print_bytes(1023, &buf), expect(&buf, "1023 B");
    ds_print_bytes(INT64_C(5) << 28, &buf), expect(&buf, "1.25 GiB");
    ds_print_bytes(INT64_MAX, &buf), expect(&buf, "8 EiB");
    ds_print_rate(53.7e9, "B/s", &buf), expect(&buf, "53.7 GB/s");
    ds_print_rate(312e12, "FLOP/s", &buf), expect(&buf, "312 TFLOP/s");
    ds_print_rate(0, "B/s", &buf), expect(&buf, "0 B/s");
    ds_buf_deinit(&buf);
}
