/* Are two modules the same program text? Everything is compared but source locations and what the
 * verifier adds (types that were not written, cross references, use counts). */
#ifndef DS_TESTS_MODULE_EQUAL_H
#define DS_TESTS_MODULE_EQUAL_H

#include "ir/core/ir.h"

/* NULL if they are equal, else what differs first, for the message (a static string). */
const char *ds_test_module_difference(const ds_module *a, const ds_module *b);

#endif
