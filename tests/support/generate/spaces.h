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

#endif
