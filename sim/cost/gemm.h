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
 *   memory  = batch (element (m k + k n) + result m n + [s > 1] 8 m n s) / (B e_memory)
 *   time    = launch + min over tiles, s of max(compute, memory) + overlap min(compute, memory)
 *
 * with P processors, F FLOP/s and B bytes/s of all of them. 8: partial sums are f32, written and
 * read once. tail = 1 is full quantisation, 0 none (blocks of several kernels or clusters share
 * processors). Seven constants, fitted to measured products (fit/gemm.h): e_max, tail, prologue,
 * port, e_memory, overlap, launch. Source: waves, tiles and cuts as in NVIDIA, "Matrix
 * Multiplication Background User's Guide", and the stream-K paper (Osama et al., PPoPP 2023); the
 * tiles are those of cuBLAS that the former names and their halves down to 16 rows.
 *
 * With `resident` > 0 a processor holds several tiles at once, as many of 256 x 128 results fit and
 * at most `resident`. A processor that holds fewer is slower at each, since one tile does not fill
 * its pipelines; and cuts cost a launch of the kernel that adds up. With o tiles held at once and
 * R = b mod (P o) tiles of the last wave, j = ceil(R/P) of them on the busiest processor:
 *
 *   T(j)    = o (j + lone)/(o + lone), T(0) = 0
 *   waves   = T(j) if b < P o, else (1 - tail) b/P + tail (o floor(b/(P o)) + T(j))
 *   t       = launch + min over tiles, s of max(compute, memory) + overlap min(...) + [s > 1] cut
 *   time    = t (1 + sag t/(t + t_sag))
 *
 * The last line: a long product draws more power than the device may, and its clock sags from the
 * boost clock of the first milliseconds. Tiles of 256 x 256 (a pair of processors) and cuts by 3
 * and 6 belong to this form; no cut leaves a k below 512. */
#ifndef DS_COST_GEMM_H
#define DS_COST_GEMM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ds_gemm_model {
    int64_t processors;             /* P */
    double flop_per_s, bytes_per_s; /* F, B */
    double e_max, tail, prologue, port, e_memory, overlap;
    double launch_s;
    int64_t resident; /* tiles of a processor at once; 0: one, and no constant below */
    double lone, cut_s, sag, sag_s; /* sag_s: t_sag */
} ds_gemm_model;

typedef struct ds_gemm_shape {
    int64_t batch, m, n, k;             /* batch x (m x k . k x n), each at least 1 */
    double element_bytes, result_bytes; /* of an element of the operands, of the result */
} ds_gemm_shape;

/* What the minimum chose. */
typedef struct ds_gemm_choice {
    int64_t tile_m, tile_n, cuts; /* cuts of k */
    double waves;                 /* as defined above */
    bool memory_bound;
    double sag; /* 1 + sag t/(t + t_sag) */
} ds_gemm_choice;

/* Rates, processors, e_max and e_memory positive, tail and overlap in 0 .. 1, the rest >= 0, all
 * finite; without `resident` no constant of its form. */
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
