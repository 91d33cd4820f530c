/* A step that was put together against the simulated one. */
#ifndef TESTS_SUPPORT_COMPOSED_H
#define TESTS_SUPPORT_COMPOSED_H

#include "sim/compose/compose.h"
#include "tests/support/sim.h"

/* The same picosecond and byte on every class. */
void composed_compare(const sim_case *c, const ds_composed *x, const char *what);

#endif
