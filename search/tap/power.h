/* (min,+) powers: what a chain of equal blocks costs. Internal to search/tap.
 *
 * A block costs A[in][out] between the states at its two ends. A chain of `copies` blocks costs the
 * power under
 *
 *     (A ⊗ B)[in][out] = min over mid of A[in][mid] + B[mid][out],
 *
 * which is associative, and to the last bit if the costs are whole numbers below 2^53. It is made
 * by squaring: A, A^2, A^4 … Most chains soon cost the same more for every further block whatever
 * the states at their ends: once A^(k+1) = A^k + c, all further powers are known, and a longer
 * chain takes no longer. Others only repeat with a longer period: A^2k = A^k + c tells A^mk. */
#ifndef DS_TAP_POWER_H
#define DS_TAP_POWER_H

#include "ir/base/arena.h"

#include <stdbool.h>

#define DS_TAP_MAX_LEVELS 32u

typedef struct ds_tap_power {
    uint32_t n, copies;
    uint32_t n_levels;
    const double *level[DS_TAP_MAX_LEVELS]; /* [n][n]: A^(2^i) */
    uint32_t n_lead; /* blocks in front of all others that cost `rise` each */
    bool is_steady;  /* the last level is the one before + rise */
    double rise;
    /* The others, in parts: part i is A^(2^part_level) `times` times. */
    uint32_t n_parts, part_level[DS_TAP_MAX_LEVELS + 1], times[DS_TAP_MAX_LEVELS + 1];
    const double *part[DS_TAP_MAX_LEVELS + 1];   /* what it costs */
    const double *prefix[DS_TAP_MAX_LEVELS + 1]; /* what the parts up to it cost */
    const double *table;                         /* what the chain costs: [n][n] */
} ds_tap_power;

/* block[n][n], which must outlive the power, as the arena, where tables are; copies ≥ 1.
 * O(n³ · log copies). */
void ds_tap__power_init(ds_tap_power *power, const double *block, uint32_t n, uint32_t copies,
                        ds_arena *arena);
/* The states of a cheapest chain from `in` to `out`: state[0 … copies], the ends among them.
 * O(n · copies). */
void ds_tap__power_states(const ds_tap_power *power, uint32_t in, uint32_t out, uint32_t *state);

#endif
