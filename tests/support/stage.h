/* Steps cut for a pipeline, in tests. */
#ifndef DS_TEST_STAGE_H
#define DS_TEST_STAGE_H

#include "tests/support/step.h"

/* A scenario that trains scenarios/models/`model`.dir with that strategy; `loss` as in train. */
char *stage_text(const char *model, const char *loss, const char *strategy);
/* Its step, cut. `settings` as in step_make. */
void stage_make(step_case *c, const char *model, const char *settings, const char *strategy);

/* The weight of the step with that name; NULL: there is none. */
const ds_step_weight *stage_weight(const step_case *c, const char *name);

/* "0 0 1 1": the chunk of every turn of the loops that stand in no other, as the weights that they
 * read say; '-' for a turn without weights. Fails the test if an op or a turn reads weights of
 * several chunks, or of an earlier one than what stands before it. Heap. */
char *stage_turns(const step_case *c);
/* The same for everything that is not cut, ops outside of loops too. */
char *stage_units(const step_case *c);

#endif
