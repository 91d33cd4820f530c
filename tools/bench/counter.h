/* The processor's counter of instructions. */
#ifndef DS_BENCH_COUNTER_H
#define DS_BENCH_COUNTER_H

#include <stdint.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#endif

/* -1: the kernel does not give it. */
static inline int bench_open_counter(void) {
#ifdef __linux__
    struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_HW_INSTRUCTIONS,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
#else
    return -1;
#endif
}

/* 0: not known. */
static inline uint64_t bench_read_counter(int counter) {
    uint64_t value = 0;
    if (counter >= 0 && read(counter, &value, sizeof value) != sizeof value) value = 0;
    return value;
}

#endif
