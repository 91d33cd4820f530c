/* How many of their cases do tests with very many take? A few, and all with DISTSIM_TEST_ALL=1. */
#ifndef DS_TESTS_CASES_H
#define DS_TESTS_CASES_H

#include <stdlib.h>

#define FEW_CASES (!getenv("DISTSIM_TEST_ALL"))

#endif
