/* Counter-based draws chain the avalanche hash of ir/base/map.c over the words of the counter. */
#include "ir/base/rng.h"

#include "ir/base/map.h"

#include <assert.h>

static double to_unit(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

uint64_t ds_rng_at(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
    return ds_hash_mix(ds_hash_mix(ds_hash_mix(ds_hash_mix(0, seed), a), b), c);
}

double ds_rng_uniform_at(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
    return to_unit(ds_rng_at(seed, a, b, c));
}

uint64_t ds_rng_next(ds_rng *rng) {
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio, odd */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double ds_rng_uniform(ds_rng *rng) {
    return to_unit(ds_rng_next(rng));
}

uint64_t ds_rng_below(ds_rng *rng, uint64_t n) {
    assert(n > 0);
    uint64_t unfair =
        (0 - n) % n; /* 2^64 mod n: the lowest draws that would favour small results */
    uint64_t draw;
    do draw = ds_rng_next(rng);
    while (draw < unfair);
    return draw % n;
}
