/* Random modules for round-trip tests: every construct of the language, in varied layout, with
 * comments in odd places. */
#ifndef DS_TESTS_GEN_MODULE_H
#define DS_TESTS_GEN_MODULE_H

#include "ir/base/str.h"

/* Appends the text of a module that the parser accepts and that is mostly well-typed; the same seed
 * gives the same text. No imports. */
void ds_test_gen_module(uint64_t seed, ds_buf *out);

#endif
