/* How often a step communicates, turns of loops counted. */
#ifndef DS_TEST_LAUNCHES_H
#define DS_TEST_LAUNCHES_H

#include "tests/support/step.h"

typedef struct launches {
    int64_t all_reduce, all_gather, reduce_scatter, all_to_all, permute;
    int64_t other; /* communications of other kinds; a reshard to smaller parts is none */
} launches;

/* Launches of @step over exactly these axes ("cp", "dp,ep"; NULL: any). Each turn of a loop is one
 * more; a bucket is one launch. The step must have been made, and be sharded. */
launches launches_of(const step_case *c, const char *over);
/* The same of a text with these settings. */
launches launches_in(const char *text, const char *settings, const char *over);
/* What one more turn of the model's loop adds: with `layers` = 3 against 2. `settings` is not to
 * name layers. */
launches launches_a_layer(const char *text, const char *settings, const char *over);
launches launches_minus(launches a, launches b);

#endif
