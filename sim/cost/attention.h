/* Time of fused attention by blocks and waves.
 *
 * A fused kernel gives a block of R query rows of one head and sample to a processor (a
 * multiprocessor of a GPU), which goes through the keys that these rows see; a causal block takes
 * the keys on its diagonal whole. Blocks of a causal or windowed attention differ in keys, and go to
 * whichever processor is free; the last blocks hold the kernel up:
 *
 *   n       = ceil(s / R) blocks of a head,  b = batch heads n
 *   keys_i  = t, or causal min(t, t - s + (i + 1) R), at most window + R;  i = 0 .. n - 1
 *   dims    = pad(d) + pad(e) + score          forward: q k' and p v
 *             3 pad(d) + 2 pad(e) + score      backward: q k', dy v', p' dy, ds k, ds' q
 *   block_i = 2 R (keys_i dims + 256 prologue) / (F e_max / P)
 *   compute = b <= P: block of the most keys, else
 *             max(that, b/P mean block + tail idle (block of the most keys))
 *   memory  = bytes / (B e_memory)
 *   time    = launch + max(compute, memory) + overlap min(compute, memory) + token batch t
 *
 * with P processors, F FLOP/s and B bytes/s of all of them; s queries and t keys of a sample, d the
 * dim of queries and keys, e of values; pad to a multiple of `head_step`, the width of a tile in
 * shared memory. idle is ceil(b/P) - b/P if all blocks have equally many keys, and 1 if not. A score
 * costs `score` dims besides its products: the exponential, the running maximum and its rescaling,
 * on units other than the tensor cores, which run partly beside the products. Hence narrow heads
 * cost per score and not per FLOP. `prologue`: loads and stores of a block and what nothing hides
 * before its first product, in keys of 128 dims. `token`: what an inference kernel does with each
 * key once, as it writes K and V into a cache of pages; 0 in training.
 *
 * Few queries (s times the query heads of a key head, in steps of 16, within R: decoding) are packed
 * into one block of a key head, and the keys are cut over the processors: compute is then the mean
 * alone.
 *
 * Eight constants, fitted to measured kernels (fit/attention.h): e_max, score, prologue, tail,
 * e_memory, overlap, launch, token; R, head_step and whether the kernel skips blocks outside of a
 * window are the kernel's. Sources: FlashAttention-2 (Dao 2023, arXiv:2307.08691, section 3.2: one
 * block of rows a processor; section 3.1: five products backward), FlashAttention-3 (Shah et al.
 * 2024, arXiv:2407.08608, section 3.2: exponentials beside products); list scheduling ends at most
 * one longest block after the mean (Graham 1969). */
#ifndef DS_COST_ATTENTION_H
#define DS_COST_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ds_attention_model {
    int64_t processors, block_rows, head_step; /* P, R */
    double flop_per_s, bytes_per_s;            /* F, B */
    bool skips_window; /* else a window takes the time of its mask without a window */
    double e_max, score, prologue, tail, e_memory, overlap;
    double launch_s, token_s;
} ds_attention_model;

typedef struct ds_attention_shape {
    int64_t batch, heads, kv_heads, seq_q, seq_kv, head_dim, value_dim; /* at least 1 */
    int64_t window;                                                     /* keys; 0: all */
    bool causal, backward;
    double bytes; /* read and written */
} ds_attention_shape;

typedef struct ds_attention_choice {
    double blocks, mean_keys, most_keys;
    bool memory_bound;
} ds_attention_choice;

/* Processors, block_rows, head_step, rates, e_max and e_memory positive, tail and overlap in
 * 0 .. 1, the rest >= 0, all finite. */
bool ds_attention_model_is_valid(const ds_attention_model *model);

/* Seconds; `choice` may be NULL. Only + - x / on doubles: the same on all machines. O(1). */
double ds_attention_seconds(const ds_attention_model *model, const ds_attention_shape *shape,
                            ds_attention_choice *choice);

/* The bytes of q, k, v and the result once, backward also of their gradients and dy. */
double ds_attention_bytes(const ds_attention_shape *shape, double element_bytes);

#endif
