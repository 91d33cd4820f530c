/* The kernels of measure-gpu, and how they are timed: by events around so many repetitions that the
 * clock resolves them, the median of several, after a warm-up that lets clocks rise.
 *
 * Operands are random and not zero: multiplying zeros takes less power, so GPUs that slow down by
 * power run faster on them. Each repetition takes the next of several sets of operands, together
 * larger than any L2 cache, since in a training step most operands come from memory.
 *
 * Products are cuBLAS's with sums in f32; matrices lie row after row, so C = A B is asked for as
 * C^T = B^T A^T. Elementwise kernels, norms and softmax are the obvious ones: one thread an
 * element, one block a row. */
#include "tools/measure/gpu/gpu.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace {

const size_t ARENA_BYTES = (size_t)4 << 30; /* all sets of operands of one job */
const double SHORTEST_MS = 5;               /* of one timing */
const int TIMINGS = 7;
const int MOST_SETS = 16;
const int THREADS = 256;

char *arena;
cublasHandle_t blas;

bool failed(cudaError_t code, const char *what) {
    if (code == cudaSuccess) return false;
    std::fprintf(stderr, "measure-gpu: error: %s: %s\n", what, cudaGetErrorString(code));
    return true;
}

/* ---- kernels ---- */

template <typename T> __device__ float to_float(T v) {
    return (float)v;
}

template <typename T> __global__ void fill(T *x, size_t n) {
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) {
        unsigned long long h = (i + 1) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 31;
        x[i] = (T)((float)(h >> 40) / (float)(1 << 23) - 1.0f);
    }
}

__global__ void nothing() {}

template <typename T>
__global__ void elementwise(gpu_op op, const T *a, const T *b, T *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = to_float(a[i]), z = op == GPU_RELU || op == GPU_GELU ? 0 : to_float(b[i]), r = 0;
    switch (op) {
    case GPU_ADD:
        r = x + z;
        break;
    case GPU_RELU:
        r = fmaxf(x, 0);
        break;
    case GPU_GELU:
        r = 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
        break;
    case GPU_SILU_MUL:
        r = x / (1 + expf(-x)) * z;
        break;
    default: /* SGD */
        r = x - 1e-6f * z;
    }
    y[i] = (T)r;
}

/* The sum or the maximum of a value a thread over the block, for all threads. */
template <bool MAXIMUM> __device__ float over_block(float v) {
    __shared__ float shared[THREADS];
    shared[threadIdx.x] = v;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float other = shared[threadIdx.x + half];
            shared[threadIdx.x] =
                MAXIMUM ? fmaxf(shared[threadIdx.x], other) : shared[threadIdx.x] + other;
        }
        __syncthreads();
    }
    float result = shared[0];
    __syncthreads();
    return result;
}

/* One block a row. */
template <typename T> __global__ void by_row(gpu_op op, const T *x, T *y, int width) {
    const T *in = x + (size_t)blockIdx.x * width;
    T *out = y + (size_t)blockIdx.x * width;
    float shift = 0, scale = 0, sum = 0;
    if (op == GPU_SOFTMAX) {
        float most = -INFINITY;
        for (int i = threadIdx.x; i < width; i += THREADS) most = fmaxf(most, to_float(in[i]));
        shift = over_block<true>(most);
        for (int i = threadIdx.x; i < width; i += THREADS) sum += expf(to_float(in[i]) - shift);
        scale = 1 / over_block<false>(sum);
        for (int i = threadIdx.x; i < width; i += THREADS)
            out[i] = (T)(expf(to_float(in[i]) - shift) * scale);
        return;
    }
    if (op == GPU_LAYER_NORM) {
        for (int i = threadIdx.x; i < width; i += THREADS) sum += to_float(in[i]);
        shift = over_block<false>(sum) / width;
    }
    sum = 0;
    for (int i = threadIdx.x; i < width; i += THREADS) {
        float d = to_float(in[i]) - shift;
        sum += d * d;
    }
    scale = rsqrtf(over_block<false>(sum) / width + 1e-5f);
    for (int i = threadIdx.x; i < width; i += THREADS)
        out[i] = (T)((to_float(in[i]) - shift) * scale);
}

/* ---- one execution of a job ---- */

size_t element_bytes(gpu_dtype type) {
    return type == GPU_F16 || type == GPU_BF16 ? 2 : 4;
}

cudaDataType type_of(gpu_dtype type) {
    return type == GPU_F16 ? CUDA_R_16F : type == GPU_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

size_t aligned(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* Bytes of the three operands of a set: two inputs and the result. */
void operand_bytes(const gpu_job *j, size_t bytes[3]) {
    size_t b = element_bytes(j->dtype);
    if (j->op == GPU_GEMM) {
        bytes[0] = b * j->batch * j->m * j->k;
        bytes[1] = b * j->batch * j->k * j->n;
        bytes[2] = b * j->batch * j->m * j->n;
    } else if (j->op == GPU_ATTENTION) {
        size_t tensor = b * j->batch * j->heads * j->seq * j->head_dim;
        bytes[0] = 3 * tensor;                                /* q, k, v */
        bytes[1] = b * j->batch * j->heads * j->seq * j->seq; /* scores */
        bytes[2] = tensor;
    } else {
        bytes[0] = bytes[1] = bytes[2] = b * j->rows * j->width;
    }
    for (int i = 0; i < 3; i++) bytes[i] = aligned(bytes[i]);
}

/* C = A op(B), row after row: A m x k, B k x n, or n x k if transposed. */
bool product(gpu_dtype dtype, int64_t batch, int64_t m, int64_t n, int64_t k, const char *a,
             const char *b, bool transposed, char *c) {
    const float one = 1, zero = 0;
    cudaDataType type = type_of(dtype);
    cublasComputeType_t compute =
        dtype == GPU_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasStatus_t status = cublasGemmStridedBatchedEx(
        blas, transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, (int)n, (int)m, (int)k, &one, b,
        type, (int)(transposed ? k : n), k * n, a, type, (int)k, m * k, &zero, c, type, (int)n,
        m * n, (int)batch, compute, CUBLAS_GEMM_DEFAULT);
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    std::fprintf(stderr, "measure-gpu: error: cuBLAS: %s\n", cublasGetStatusString(status));
    return false;
}

template <typename T> void launch(const gpu_job *j, const char *a, const char *b, char *c) {
    size_t n = (size_t)j->rows * j->width;
    if (j->op == GPU_SOFTMAX || j->op == GPU_LAYER_NORM || j->op == GPU_RMS_NORM)
        by_row<T><<<(unsigned)j->rows, THREADS>>>(j->op, (const T *)a, (T *)c, (int)j->width);
    else
        elementwise<T><<<(unsigned)((n + THREADS - 1) / THREADS), THREADS>>>(
            j->op, (const T *)a, (const T *)b, (T *)c, n);
}

void launch_typed(const gpu_job *j, const char *a, const char *b, char *c) {
    if (j->dtype == GPU_F16)
        launch<__half>(j, a, b, c);
    else if (j->dtype == GPU_BF16)
        launch<__nv_bfloat16>(j, a, b, c);
    else
        launch<float>(j, a, b, c);
}

bool attention(const gpu_job *j, const char *qkv, char *scores, char *out) {
    int64_t heads = j->batch * j->heads;
    size_t tensor = element_bytes(j->dtype) * heads * j->seq * j->head_dim;
    gpu_job softmax = *j;
    softmax.op = GPU_SOFTMAX;
    softmax.rows = heads * j->seq;
    softmax.width = j->seq;
    if (!product(j->dtype, heads, j->seq, j->seq, j->head_dim, qkv, qkv + tensor, true, scores))
        return false;
    launch_typed(&softmax, scores, scores, scores);
    return product(j->dtype, heads, j->seq, j->head_dim, j->seq, scores, qkv + 2 * tensor, false,
                   out);
}

bool execute(const gpu_job *j, const size_t bytes[3], int set) {
    char *a = arena + set * (bytes[0] + bytes[1] + bytes[2]), *b = a + bytes[0], *c = b + bytes[1];
    if (j->op == GPU_GEMM) return product(j->dtype, j->batch, j->m, j->n, j->k, a, b, false, c);
    if (j->op == GPU_ATTENTION) return attention(j, a, b, c);
    launch_typed(j, a, b, c);
    return true;
}

/* ---- timing ---- */

struct stopwatch {
    cudaEvent_t begin, end;
    stopwatch() {
        cudaEventCreate(&begin);
        cudaEventCreate(&end);
    }
    ~stopwatch() {
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
    }
};

/* Milliseconds of `repeats` calls of work(i); negative after a message. */
template <typename F> float time_repeats(stopwatch *w, int repeats, F work) {
    float ms = -1;
    cudaEventRecord(w->begin);
    for (int i = 0; i < repeats; i++)
        if (!work(i)) return -1;
    cudaEventRecord(w->end);
    if (failed(cudaEventSynchronize(w->end), "timing") || failed(cudaGetLastError(), "kernel"))
        return -1;
    return failed(cudaEventElapsedTime(&ms, w->begin, w->end), "timing") ? -1 : ms;
}

/* The median over TIMINGS of one call, in microseconds. */
template <typename F> bool time_median(F work, double *us) {
    stopwatch watch;
    int repeats = 2;
    float ms;
    while ((ms = time_repeats(&watch, repeats, work)) >= 0 && ms < SHORTEST_MS && repeats < 1 << 20)
        repeats *= 2;
    double all[TIMINGS];
    for (int t = 0; t < TIMINGS && ms >= 0; t++) {
        ms = time_repeats(&watch, repeats, work);
        all[t] = 1e3 * ms / repeats;
    }
    if (ms < 0) return false;
    std::sort(all, all + TIMINGS);
    *us = all[TIMINGS / 2];
    return true;
}

} // namespace

extern "C" bool gpu_open(gpu_device *device) {
    cudaDeviceProp prop;
    int clock_khz = 0, bus_bits = 0;
    if (failed(cudaSetDevice(0), "no GPU") || failed(cudaGetDeviceProperties(&prop, 0), "GPU"))
        return false;
    cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, 0);
    cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, 0);
    *device = gpu_device();
    std::snprintf(device->name, sizeof device->name, "%s", prop.name);
    device->processors = prop.multiProcessorCount;
    device->memory_gib = (double)prop.totalGlobalMem / (1 << 30);
    device->memory_gb_per_s = 2.0 * clock_khz * 1e3 * bus_bits / 8 / 1e9; /* two words a clock */
    cudaRuntimeGetVersion(&device->runtime_version);
    if (failed(cudaMalloc(&arena, ARENA_BYTES), "operands")) return false;
    fill<__half><<<4096, THREADS>>>((__half *)arena, ARENA_BYTES / sizeof(__half));
    if (failed(cudaDeviceSynchronize(), "operands")) return false;
    return cublasCreate(&blas) == CUBLAS_STATUS_SUCCESS;
}

extern "C" void gpu_close(void) {
    cublasDestroy(blas);
    cudaFree(arena);
}

/* The operands as values of the job's own type: f16's bits are other numbers in f32. */
static bool prepare(const gpu_job *job, size_t bytes) {
    static int filled = GPU_F16;
    bool same = filled == job->dtype || (filled >= GPU_TF32 && job->dtype >= GPU_TF32);
    if (same) return true;
    (void)bytes;
    filled = job->dtype;
    if (job->dtype == GPU_F16)
        fill<__half><<<4096, THREADS>>>((__half *)arena, ARENA_BYTES / 2);
    else if (job->dtype == GPU_BF16)
        fill<__nv_bfloat16><<<4096, THREADS>>>((__nv_bfloat16 *)arena, ARENA_BYTES / 2);
    else
        fill<float><<<4096, THREADS>>>((float *)arena, ARENA_BYTES / 4);
    return !failed(cudaDeviceSynchronize(), "operands");
}

extern "C" bool gpu_time(gpu_job *job) {
    size_t bytes[3];
    operand_bytes(job, bytes);
    size_t set = bytes[0] + bytes[1] + bytes[2];
    if (set > ARENA_BYTES) {
        std::fprintf(stderr, "measure-gpu: error: %s needs %zu bytes of operands\n",
                     gpu_op_name(job->op), set);
        return false;
    }
    int sets = (int)std::min<size_t>(MOST_SETS, ARENA_BYTES / set);
    if (!prepare(job, set)) return false;
    return time_median([=](int i) { return execute(job, bytes, i % sets); }, &job->us);
}

extern "C" bool gpu_time_copy(gpu_copy direction, int64_t bytes, double *us) {
    void *host = nullptr;
    if (failed(cudaMallocHost(&host, bytes), "pinned memory")) return false;
    char *far = arena + ARENA_BYTES / 2;
    bool done = time_median(
        [=](int) {
            cudaError_t code = direction == GPU_TO_DEVICE
                                   ? cudaMemcpyAsync(arena, host, bytes, cudaMemcpyHostToDevice)
                               : direction == GPU_TO_HOST
                                   ? cudaMemcpyAsync(host, arena, bytes, cudaMemcpyDeviceToHost)
                                   : cudaMemcpyAsync(far, arena, bytes, cudaMemcpyDeviceToDevice);
            return !failed(code, "copy");
        },
        us);
    cudaFreeHost(host);
    return done;
}

extern "C" bool gpu_time_launch(double *us) {
    const int launches = 1000; /* fewer than the queue holds, so that none waits for room */
    double all[TIMINGS];
    for (int t = 0; t < TIMINGS; t++) {
        if (failed(cudaDeviceSynchronize(), "launch")) return false;
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < launches; i++) nothing<<<1, 32>>>();
        std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
        all[t] = spent.count() / launches;
    }
    std::sort(all, all + TIMINGS);
    *us = all[TIMINGS / 2];
    return !failed(cudaDeviceSynchronize(), "launch");
}
