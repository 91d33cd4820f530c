/* Random distributed programs, for tests of the simulator: two-stage tensor-parallel blocks over
 * topologies some of which have an odd link or device. */
#ifndef DS_TEST_RANDOM_PROGRAM_H
#define DS_TEST_RANDOM_PROGRAM_H

#include "ir/base/str.h"

/* A whole file with a scenario. Sizes may not divide: then it is refused with DS_ERR_SHAPE. */
void random_program(uint64_t seed, ds_buf *text);

#endif
