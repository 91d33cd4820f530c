/* How many of their cases do tests with very many take? All of them in gcc's builds, or, where that
 * takes minutes, every fifth, and all with DISTSIM_TEST_ALL=1. Builds with sanitizers,
 * some twenty times slower, and clang's, which are there for what compilers disagree about, take a
 * part: FEW_CASES is 1 there. */
#ifndef DS_TESTS_CASES_H
#define DS_TESTS_CASES_H

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define FEW_CASES 1
#else
#define FEW_CASES 0
#endif
#define EVERY_FIFTH (getenv("DISTSIM_TEST_ALL") ? 1u : 5u)

#endif
