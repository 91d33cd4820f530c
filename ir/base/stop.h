/* The moment at which long work ends.
 *
 * The owner of a limit on time owns the ds_stop, sets the moment before other threads see the
 * ds_stop, and hands a pointer down (ds_unit.stop, ds_eval_source.stop). Long loops ask whether the
 * stop is due. A stop that is NULL or not set is never due. The clock is CLOCK_MONOTONIC, which
 * nobody can set back. */
#ifndef DS_BASE_STOP_H
#define DS_BASE_STOP_H

#include "ir/base/error.h"

#include <stdbool.h>

typedef struct ds_stop {
    bool is_set;
    int64_t at_ns; /* by CLOCK_MONOTONIC */
} ds_stop;

int64_t ds_clock_ns(void); /* CLOCK_MONOTONIC */
/* Due `seconds` after start_ns; never if seconds <= 0. Times beyond the clock's range are its end.
 */
void ds_stop_set(ds_stop *stop, int64_t start_ns, double seconds);
/* Is the stop due? Some 30 ns. */
bool ds_stop_due(const ds_stop *stop);
/* DS_ERR_STOPPED if the stop is due. */
ds_status ds_stop_check(const ds_stop *stop, ds_error *err);
/* The same on every 256th call of a loop whose turns take less than a microsecond. */
static inline ds_status ds_stop_check_often(const ds_stop *stop, uint32_t *count, ds_error *err) {
    return (++*count & 255) ? DS_OK : ds_stop_check(stop, err);
}

#endif
