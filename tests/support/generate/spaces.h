/* Random sweeps of small models, for tests of searches. */
#ifndef DS_TEST_SPACES_H
#define DS_TEST_SPACES_H

#include "tests/support/sweep.h"

/* A sweep that follows from `seed`, with `least` to `most` candidates: an MLP or a GPT on 4 to 16
 * GPUs, degrees, microbatches, and some of ZeRO, recomputation, schedule, sequence parallelism,
 * batch, topology, order of axes, late reduction, offloading, p2p, in random order. Minimizes
 * step_time, of every fifth seed peak_memory. Opened.
 */
void random_space(uint64_t seed, uint64_t least, uint64_t most, sweep_case *c);

/* Of any size, with more of what sweeps share between candidates, or must not share: nodes whose links
 * several stages load, a degraded device, V schedules and several chunks a stage, odd numbers of
 * microbatches, context parallelism, unequal parts, buckets, sent parts, norms of gradients. */
void random_wide_space(uint64_t seed, sweep_case *c);

#endif
