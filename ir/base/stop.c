/* One clock, read at each question: the system call is answered without entering the kernel. */
#include "ir/base/stop.h"

#include <time.h>

#define NS_PER_S 1000000000

int64_t ds_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

void ds_stop_set(ds_stop *stop, int64_t start_ns, double seconds) {
    double room_s = (double)(INT64_MAX - start_ns) / NS_PER_S;
    stop->is_set = seconds > 0;
    stop->at_ns = seconds < room_s * 0.99 ? start_ns + (int64_t)(seconds * NS_PER_S) : INT64_MAX;
}

bool ds_stop_due(const ds_stop *stop) {
    return stop && stop->is_set && ds_clock_ns() >= stop->at_ns;
}

ds_status ds_stop_check(const ds_stop *stop, ds_error *err) {
    if (!ds_stop_due(stop)) return DS_OK;
    return ds_error_set(err, DS_ERR_STOPPED, DS_NOWHERE, "the time limit has passed");
}
