/* Random distributed programs, for tests of the simulator: two-stage tensor-parallel blocks over
 * topologies some of which have an odd link or device. */
#ifndef DS_TEST_RANDOM_PROGRAM_H
#define DS_TEST_RANDOM_PROGRAM_H

#include "ir/base/str.h"

/* A whole file with a scenario. Sizes may not divide: then it is refused with DS_ERR_SHAPE. */
void random_program(uint64_t seed, ds_buf *text);

/* The same programs on clusters of templates: units of nodes of GPUs with a few NICs, rails, trunks
 * to several spines; up to 512 devices, half of the cases more or less degraded somewhere. */
void random_cluster(uint64_t seed, ds_buf *text);

#endif
