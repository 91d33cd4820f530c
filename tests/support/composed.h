/* A step that was put together against the simulated one. */
#ifndef TESTS_SUPPORT_COMPOSED_H
#define TESTS_SUPPORT_COMPOSED_H

#include "search/compose/compose.h"
#include "tests/support/sim.h"

/* What sweeps show, whichever way a step was simulated: integers exactly, reals but for the order
 * of their sums. */
void composed_compare_metrics(const ds_metrics *x, const ds_metrics *r, const char *what);
/* Likewise, and the same picosecond and byte on every class. */
void composed_compare(const sim_case *c, const ds_composed *x, const char *what);

#endif
