/* Integer time: conversions are exact where the inputs are integers and happen in one place where
 * they are not. */
#include "ir/base/units.h"

#include <math.h>

#define INT64_LIMIT 9223372036854775808.0 /* 2^63, the first double beyond int64 */

ds_status ds_ps_from_seconds(double seconds, int64_t *ps, ds_error *err) {
    if (!isfinite(seconds) || seconds < 0)
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "a duration must be finite and not negative, got %g s", seconds);
    double scaled = seconds * (double)DS_PS_PER_S;
    double nearest = floor(scaled + 0.5);
    /* 500 ns is no exact double, nor is its product: a few units in the last place above an integer
     * are rounding noise of the caller's arithmetic, not a reason to round up by a picosecond. */
    double noise = scaled * 0x1p-50;
    double rounded = fabs(scaled - nearest) <= noise ? nearest : ceil(scaled);
    if (rounded >= INT64_LIMIT)
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "%g s does not fit in 64-bit picoseconds (about 9.2e6 s)", seconds);
    *ps = (int64_t)rounded;
    return DS_OK;
}

int64_t ds_floordiv(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t ds_floormod(int64_t a, int64_t b) {
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Four significant digits; whole numbers beyond those. */
static void print_number(double v, ds_buf *out) {
    ds_buf_printf(out, fabs(v) >= 9999.5 ? "%.0f" : "%.4g", v);
}

void ds_print_ps(int64_t ps, ds_buf *out) {
    static const char *const names[] = {"ps", "ns", "us", "ms", "s"};
    double v = (double)ps;
    unsigned unit = 0;
    while (unit < 4 && fabs(v) >= 999.95) { /* 999.95 would print as 1000 */
        v /= 1000;
        unit++;
    }
    print_number(v, out);
    ds_buf_printf(out, " %s", names[unit]);
}

void ds_print_bytes(int64_t bytes, ds_buf *out) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    unsigned unit = 0;
    while (unit < 6 && fabs(v) >= 1024) {
        v /= 1024;
        unit++;
    }
    print_number(v, out);
    ds_buf_printf(out, " %s", names[unit]);
}

void ds_print_rate(double per_s, const char *unit, ds_buf *out) {
    static const char *const prefixes[] = {"", "K", "M", "G", "T", "P", "E"};
    unsigned prefix = 0;
    while (prefix < 6 && isfinite(per_s) && fabs(per_s) >= 999.95) {
        per_s /= 1000;
        prefix++;
    }
    print_number(per_s, out);
    ds_buf_printf(out, " %s%s", prefixes[prefix], unit);
}

void ds_put_near_divisors(int64_t n, int64_t near, ds_buf *out) {
    enum { MOST = 1000000 };
    int64_t below = 1, above = INT64_MAX;
    for (int64_t d = 1; d <= MOST && d <= n / d; d++) {
        const int64_t both[] = {d, n / d};
        for (int i = 0; i < 2 && n % d == 0; i++) {
            if (both[i] <= near && both[i] > below) below = both[i];
            if (both[i] >= near && both[i] < above) above = both[i];
        }
    }
    ds_buf_printf(out, "%lld", (long long)below);
    if (above != INT64_MAX && above != below) ds_buf_printf(out, " or %lld", (long long)above);
}
