/* Rounding to a narrower dtype, to nearest, ties to even.
 *
 * Source of the formats: IEEE 754-2019 (f16, f32); bfloat16 as the upper half of a binary32; OCP
 * 8-bit floating point specification 1.0 (E4M3 without infinity, largest 448; E5M2); OCP
 * Microscaling formats 1.0 (E2M1, largest 6); tf32 is stored as f32 here (only tensor cores see its
 * 10 bits). Overflow gives an infinity where the format has one; E4M3 and E2M1 saturate, which is
 * the specification's saturating mode and what training libraries use. */
#include "ir/exec/internal.h"

#include <math.h>

typedef struct float_format {
    int mantissa_bits; /* without the leading one */
    int min_exponent;  /* of normal numbers */
    double largest;
    bool saturates;
} float_format;

static double round_float(const float_format *f, double x) {
    if (x == 0 || !isfinite(x)) return x;
    int exponent;
    frexp(x, &exponent); /* x = m 2^exponent, 0.5 <= |m| < 1 */
    exponent -= 1;
    if (exponent < f->min_exponent) exponent = f->min_exponent; /* subnormal: fixed spacing */
    double ulp = ldexp(1, exponent - f->mantissa_bits);
    double y = nearbyint(x / ulp) * ulp; /* both exact: powers of two */
    if (fabs(y) <= f->largest) return y;
    return copysign(f->saturates ? f->largest : INFINITY, x);
}

/* Two's complement with that many bits: what an integer unit keeps. */
static double wrap(double x, int bits, bool is_signed) {
    double range = ldexp(1, bits), low = is_signed ? -range / 2 : 0;
    double y = x - floor((x - low) / range) * range;
    return y;
}

double ds_exec__round(ds_dtype dtype, double x) {
    static const float_format bf16 = {7, -126, 0x1.FEp127, false};
    static const float_format f16 = {10, -14, 65504, false};
    static const float_format e4m3 = {3, -6, 448, true};
    static const float_format e5m2 = {2, -14, 57344, false};
    static const float_format e2m1 = {1, 0, 6, true};
    switch (dtype) {
    case DS_F32:
    case DS_TF32:
        return (double)(float)x;
    case DS_BF16:
        return round_float(&bf16, x);
    case DS_F16:
        return round_float(&f16, x);
    case DS_F8E4M3:
        return round_float(&e4m3, x);
    case DS_F8E5M2:
        return round_float(&e5m2, x);
    case DS_F4E2M1:
        return round_float(&e2m1, x);
    case DS_I32:
        return wrap(x, 32, true);
    case DS_I16:
        return wrap(x, 16, true);
    case DS_I8:
        return wrap(x, 8, true);
    case DS_U8:
        return wrap(x, 8, false);
    case DS_BOOL:
        return x != 0;
    case DS_F64:
    case DS_I64:
    case DS_DTYPE_COUNT:
        break;
    }
    return x;
}
