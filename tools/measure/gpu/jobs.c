/* What is timed on a GPU.
 *
 * Products: the shapes of transformer layers (their n and k split over 1 to 8 devices), with tokens
 * from 1 to 16,384, some of them no multiple of a tile, so that tiles and waves show; weight
 * gradients, which have the tokens as k; batches of small products. Memory-bound operations: rows
 * times widths over five decades of bytes. */
#include "tools/measure/gpu/gpu.h"

#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const int64_t tokens[] = {1,   16,   64,   128,  200,  256,  384,  512,
                                 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384};

/* n and k of the four products of a layer: h = 4096 with an MLP of 4 h, h = 8192 with a gated one
 * of 28672 and 8 key-value heads of 128, h = 2560 (heads of 80, no multiple of a tile). */
static const int64_t layers[][2] = {{12288, 4096}, {4096, 4096}, {16384, 4096}, {4096, 16384},
                                    {10240, 8192}, {8192, 8192}, {57344, 8192}, {8192, 28672},
                                    {7680, 2560},  {2560, 2560}, {10240, 2560}, {2560, 10240}};

/* Tensor parallelism splits n of the first and third product of a layer, k of the others. */
static const int64_t degrees[] = {1, 2, 4, 8};

static const int64_t rows[] = {1, 64, 512, 2048, 8192, 32768};
static const int64_t widths[] = {1024, 4096, 12288};

static const struct {
    int64_t batch, heads, seq, head_dim;
} attentions[] = {{1, 32, 512, 128},  {4, 32, 512, 128}, {1, 32, 1024, 128}, {2, 32, 2048, 128},
                  {1, 32, 4096, 128}, {4, 16, 1024, 64}, {1, 16, 2048, 64},  {1, 12, 4096, 64}};

typedef struct list {
    gpu_job *at;
    uint32_t n, room;
} list;

static void push(list *l, gpu_job job) {
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 256;
        l->at = realloc(l->at, l->room * sizeof *l->at);
        if (!l->at) abort();
    }
    l->at[l->n++] = job;
}

static void push_gemm(list *l, gpu_dtype dtype, int64_t batch, int64_t m, int64_t n, int64_t k) {
    push(l, (gpu_job){.op = GPU_GEMM, .dtype = dtype, .batch = batch, .m = m, .n = n, .k = k});
}

static void push_layers(list *l, gpu_dtype dtype, size_t n_degrees) {
    for (size_t i = 0; i < COUNT(layers); i++) {
        for (size_t d = 0; d < n_degrees; d++) {
            int64_t n = layers[i][0], k = layers[i][1];
            *(i % 2 == 0 ? &n : &k) /= degrees[d];
            for (size_t t = 0; t < COUNT(tokens); t++) push_gemm(l, dtype, 1, tokens[t], n, k);
            for (size_t t = 8; t < COUNT(tokens); t += 2) push_gemm(l, dtype, 1, n, k, tokens[t]);
        }
    }
}

static void push_memory(list *l, gpu_dtype dtype) {
    for (int op = GPU_ADD; op < GPU_OP_COUNT; op++)
        for (size_t r = 0; r < COUNT(rows); r++)
            for (size_t w = 0; w < COUNT(widths); w++)
                push(l, (gpu_job){
                            .op = (gpu_op)op, .dtype = dtype, .rows = rows[r], .width = widths[w]});
}

gpu_job *gpu_jobs(uint32_t *n) {
    static const gpu_dtype halves[] = {GPU_F16, GPU_BF16};
    list l = {0};
    for (size_t d = 0; d < COUNT(halves); d++) {
        push_layers(&l, halves[d], d == 0 ? COUNT(degrees) : 1);
        for (int64_t seq = 256; seq <= 4096; seq *= 2)
            push_gemm(&l, halves[d], 32, seq, seq, 128); /* q k^T of 32 heads */
        push_memory(&l, halves[d]);
        for (size_t a = 0; a < COUNT(attentions); a++)
            push(&l, (gpu_job){.op = GPU_ATTENTION,
                               .dtype = halves[d],
                               .batch = attentions[a].batch,
                               .heads = attentions[a].heads,
                               .seq = attentions[a].seq,
                               .head_dim = attentions[a].head_dim});
    }
    for (size_t t = 1; t < COUNT(tokens); t += 2)
        for (size_t i = 0; i < 4; i++) {
            push_gemm(&l, GPU_TF32, 1, tokens[t], layers[i][0], layers[i][1]);
            push_gemm(&l, GPU_F32, 1, tokens[t], layers[i][0], layers[i][1]);
        }
    push_memory(&l, GPU_F32);
    *n = l.n;
    return l.at;
}

const char *gpu_op_name(gpu_op op) {
    static const char *const names[] = {"gemm",     "attention", "add",        "relu",     "gelu",
                                        "silu_mul", "softmax",   "layer_norm", "rms_norm", "sgd"};
    return names[op];
}

const char *gpu_dtype_name(gpu_dtype type) {
    static const char *const names[] = {"f16", "bf16", "tf32", "f32"};
    return names[type];
}

static double element_bytes(const gpu_job *job) {
    return job->dtype == GPU_F16 || job->dtype == GPU_BF16 ? 2 : 4;
}

double gpu_job_bytes(const gpu_job *job) {
    double b = element_bytes(job), batch = (double)job->batch;
    double m = (double)job->m, n = (double)job->n, k = (double)job->k;
    switch (job->op) {
    case GPU_GEMM:
        return b * batch * (m * k + k * n + m * n);
    case GPU_ATTENTION:
        return b * batch * 4 * (double)job->heads * (double)job->seq * (double)job->head_dim;
    case GPU_ADD:
    case GPU_SILU_MUL:
    case GPU_SGD:
        return b * 3 * (double)job->rows * (double)job->width;
    default:
        return b * 2 * (double)job->rows * (double)job->width;
    }
}

double gpu_job_flop(const gpu_job *job) {
    double batch = (double)job->batch;
    if (job->op == GPU_GEMM) return 2 * batch * (double)job->m * (double)job->n * (double)job->k;
    if (job->op == GPU_ATTENTION)
        return 4 * batch * (double)job->heads * (double)job->seq * (double)job->seq *
               (double)job->head_dim;
    return 0;
}
