/* Time of a matrix product by tiles and waves.
 *
 * A library cuts the m x n results of a product into tiles, one for a processor (a multiprocessor
 * of a GPU) at a time; with more tiles than processors the work goes in waves, and the last one may
 * be nearly empty. If there are few tiles, k is cut too, into s parts that are added in the end. Of
 * the usual tiles and cuts the library takes the fastest, and so does the model:
 *
 *   b       = batch ceil(m/tm) ceil(n/tn) s             tiles
 *   waves   = max(1, (1 - tail) b/P + tail ceil(b/P))
 *   tile    = max(2 tm tn (ceil(k/s) + prologue) / (F/P e_max),    its multiply-adds
 *                 (tm + tn) ceil(k/s) element port / (B/P))        its operands, to the processor
 *   compute = waves tile
 *   memory  = (element batch (m k + k n + m n) + [s > 1] 8 batch m n s) / (B e_memory)
 *   time    = launch + min over tiles, s of max(compute, memory) + overlap min(compute, memory)
 *
 * with P processors, F FLOP/s and B bytes/s of all of them. 8: partial sums are f32, written and
 * read once. tail = 1 is full quantisation, 0 none (blocks of several kernels or clusters share
 * processors). Seven constants, fitted to measured products (fit/gemm.h): e_max, tail, prologue,
 * port, e_memory, overlap, launch. Source: waves, tiles and cuts as in NVIDIA, "Matrix
 * Multiplication Background User's Guide", and the stream-K paper (Osama et al., PPoPP 2023); the
 * tiles are those of cuBLAS that the former names and their halves down to 16 rows. */
#ifndef DS_COST_GEMM_H
#define DS_COST_GEMM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ds_gemm_model {
    int64_t processors;             /* P */
    double flop_per_s, bytes_per_s; /* F, B */
    double e_max, tail, prologue, port, e_memory, overlap;
    double launch_s;
} ds_gemm_model;

typedef struct ds_gemm_shape {
    int64_t batch, m, n, k; /* batch x (m x k . k x n), each at least 1 */
    double element_bytes;
} ds_gemm_shape;

/* What the minimum chose. */
typedef struct ds_gemm_choice {
    int64_t tile_m, tile_n, cuts; /* cuts of k */
    double waves;                 /* as defined above */
    bool memory_bound;
} ds_gemm_choice;

/* Rates, processors, e_max and e_memory positive, tail and overlap in 0 .. 1, the rest >= 0, all
 * finite. */
bool ds_gemm_model_is_valid(const ds_gemm_model *model);

/* Seconds; `choice` may be NULL. Only + - x / on doubles: the same on all machines. O(1), some
 * hundred operations. */
double ds_gemm_seconds(const ds_gemm_model *model, const ds_gemm_shape *shape,
                       ds_gemm_choice *choice);

/* No product of that many FLOPs takes less than the first, none of that many bytes of operands and
 * result less than the second: launch + flop/(F e_max), launch + bytes/(B e_memory). */
double ds_gemm_least_compute(const ds_gemm_model *model, double flop);
double ds_gemm_least_memory(const ds_gemm_model *model, double bytes);

#endif
