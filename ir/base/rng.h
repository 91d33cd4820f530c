/* Random numbers that are pure functions of what they belong to.
 *
 * A simulation draws by counter: the number for (seed, run, device, op instance) is the same
 * however many threads run and in whatever order they ask. Tests that just want a
 * stream use the sequential generator. Neither is for cryptography.
 *
 * Source: splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA
 * 2014; constants as in Vigna's public-domain splitmix64.c). */
#ifndef DS_BASE_RNG_H
#define DS_BASE_RNG_H

#include <stdint.h>

/* 64 random bits for the counter (a, b, c) under `seed`. O(1), stateless. */
uint64_t ds_rng_at(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);
/* The same as a double in [0, 1), a multiple of 2^-53. */
double ds_rng_uniform_at(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);

/* A stream: splitmix64 itself. `ds_rng rng = {seed};` starts one. */
typedef struct ds_rng {
    uint64_t state;
} ds_rng;

uint64_t ds_rng_next(ds_rng *rng);
/* In [0, 1). */
double ds_rng_uniform(ds_rng *rng);
/* In 0..n-1, without bias; n > 0. Expected O(1). */
uint64_t ds_rng_below(ds_rng *rng, uint64_t n);

#endif
