/* measure-gpu: times a GPU's operations and writes the profile (../README.md). What is timed and
 * how it is written down is C (main.c, jobs.c) and runs anywhere with --dry-run; the kernels are
 * CUDA (time.cu), or missing (none.c). */
#ifndef DS_TOOLS_MEASURE_GPU_H
#define DS_TOOLS_MEASURE_GPU_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gpu_dtype { GPU_F16, GPU_BF16, GPU_TF32, GPU_F32 } gpu_dtype;

typedef enum gpu_op {
    GPU_GEMM,      /* batch x (m x k . k x n), cuBLAS */
    GPU_ATTENTION, /* q k^T, softmax, times v: three kernels, not fused; batch, heads, seq, dim */
    GPU_ADD,       /* the rest on rows x width elements, each row after row */
    GPU_RELU,
    GPU_GELU,
    GPU_SILU_MUL,
    GPU_SOFTMAX,
    GPU_LAYER_NORM,
    GPU_RMS_NORM,
    GPU_SGD,
    GPU_OP_COUNT
} gpu_op;

typedef struct gpu_job {
    gpu_op op;
    gpu_dtype dtype;
    int64_t batch, m, n, k;       /* GEMM */
    int64_t heads, seq, head_dim; /* ATTENTION, with batch */
    int64_t rows, width;          /* the others */
    double us;                    /* what came out: the median of several timings */
} gpu_job;

/* Direction of a copy. */
typedef enum gpu_copy { GPU_TO_DEVICE, GPU_TO_HOST, GPU_ON_DEVICE, GPU_COPY_COUNT } gpu_copy;

typedef struct gpu_device {
    char name[256];
    int processors;         /* streaming multiprocessors */
    double memory_gb_per_s; /* bus width times clock; 0: the driver does not say */
    double memory_gib;
    int runtime_version; /* CUDA's, 12040 is 12.4 */
} gpu_device;

/* jobs.c: all that is timed, in order; heap. */
gpu_job *gpu_jobs(uint32_t *n);
const char *gpu_op_name(gpu_op op); /* mnemonic of the language */
const char *gpu_dtype_name(gpu_dtype type);
/* Bytes of operands and results, and FLOPs of products. */
double gpu_job_bytes(const gpu_job *job);
double gpu_job_flop(const gpu_job *job);

/* time.cu or none.c. False after a message on stderr. */
bool gpu_open(gpu_device *device);
bool gpu_time(gpu_job *job);
bool gpu_time_copy(gpu_copy direction, int64_t bytes, double *us);
/* Host time to launch an empty kernel, without waiting for it. */
bool gpu_time_launch(double *us);
void gpu_close(void);

#ifdef __cplusplus
}
#endif

#endif
