/* Statistics of errors. */
#include "tools/measured/measured.h"

#include <math.h>
#include <stdlib.h>

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

measured_errors measured_errors_of(const double *errors, uint32_t n) {
    measured_errors e = {0};
    if (!n) return e;
    double *sizes = ds_xcalloc(n, sizeof *sizes);
    for (uint32_t i = 0; i < n; i++) {
        sizes[i] = fabs(errors[i]);
        e.bias += errors[i] / n;
    }
    qsort(sizes, n, sizeof *sizes, by_size);
    e.median = n % 2 ? sizes[n / 2] : (sizes[n / 2 - 1] + sizes[n / 2]) / 2;
    double at = 0.9 * (n - 1);
    uint32_t low = (uint32_t)at;
    e.p90 = low + 1 < n ? sizes[low] + (at - low) * (sizes[low + 1] - sizes[low]) : sizes[low];
    free(sizes);
    return e;
}
