/* Integer time and exact scaling. Time is int64 picoseconds everywhere (about 106 days).
 *
 * The one place of checked arithmetic on times, bytes and counts. A sum or product that leaves
 * int64 is either an error where it is made (ds_add_i64, ds_mul_i64), or, in the middle of a
 * computation, DS_NEVER_PS: a time that absorbs what is added to it, and that no result may hold.
 * Who hands out a result refuses DS_NEVER_PS by the name of its op: the engine, the collectives. */
#ifndef DS_BASE_UNITS_H
#define DS_BASE_UNITS_H

#include "ir/base/error.h"
#include "ir/base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* 128-bit integers (a GNU extension that gcc and clang share). */
__extension__ typedef unsigned __int128 ds_u128;
__extension__ typedef __int128 ds_i128;

#define DS_PS_PER_S INT64_C(1000000000000)

/* A duration in (double) seconds as picoseconds, rounded up (except for a relative excess below
 * 2^-50 over an integer, which is rounding noise); the one place where a double becomes a time.
 * DS_ERR_OVERFLOW if negative, not finite or beyond int64. */
ds_status ds_ps_from_seconds(double seconds, int64_t *ps, ds_error *err);

/* a + b, a * b with overflow check: false on overflow. */
static inline bool ds_add_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool ds_mul_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

/* The greatest common divisor; that of 0 and a is a. */
static inline int64_t ds_common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Appends the divisors of n nearest to `near` on both sides, "2 or 4", for the fix that an error
 * names; "1" at least. n >= 1. Looks at divisors up to 10^6 and their counterparts. */
void ds_put_near_divisors(int64_t n, int64_t near, ds_buf *out);

#define DS_NEVER_PS INT64_MAX
/* A time of 128 bits as one of 64: DS_NEVER_PS from there on, 0 below 0. */
static inline int64_t ds_ps_narrow(ds_i128 ps) {
    return ps >= DS_NEVER_PS ? DS_NEVER_PS : ps < 0 ? 0 : (int64_t)ps;
}
/* a + b, DS_NEVER_PS if one of them is, or the sum is beyond. */
static inline int64_t ds_ps_sum(int64_t a, int64_t b) {
    int64_t sum;
    bool fits = ds_add_i64(a, b, &sum) && a != DS_NEVER_PS && b != DS_NEVER_PS;
    return fits ? sum : DS_NEVER_PS;
}

/* A sum of bytes beyond int64, which reports tell as such: "over 8 EiB", null in JSON. */
#define DS_MANY_BYTES INT64_MAX
static inline int64_t ds_bytes_sum(int64_t a, int64_t b) {
    return ds_ps_sum(a, b);
}

/* "35.01 ms", "1.25 GiB", "53.7 GB/s", "312 TFLOP/s": for people, 4 significant digits,
 * no trailing zeros. */
void ds_print_ps(int64_t ps, ds_buf *out);
void ds_print_bytes(int64_t bytes, ds_buf *out);
void ds_print_rate(double per_s, const char *unit, ds_buf *out);

/* floor(a / b), a - b*floor(a / b) for b != 0 (and not INT64_MIN / -1). */
int64_t ds_floordiv(int64_t a, int64_t b);
int64_t ds_floormod(int64_t a, int64_t b);

#endif
