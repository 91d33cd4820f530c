/* In place of time.cu in a build without CUDA: everything but the kernels, for --dry-run. */
#include "tools/measure/gpu/gpu.h"

#include <stdio.h>

bool gpu_open(gpu_device *device) {
    *device = (gpu_device){0};
    fputs("measure-gpu: error: built without CUDA (-DDS_CUDA=ON), only --dry-run works\n", stderr);
    return false;
}

bool gpu_time(gpu_job *job) {
    (void)job;
    return false;
}

bool gpu_time_copy(gpu_copy direction, int64_t bytes, double *us) {
    (void)direction, (void)bytes, (void)us;
    return false;
}

bool gpu_time_launch(double *us) {
    (void)us;
    return false;
}

void gpu_close(void) {}
