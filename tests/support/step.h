/* Runs the passes on a model given as text, for tests, and holds gradients against differences. */
#ifndef DS_TEST_STEP_H
#define DS_TEST_STEP_H

#include "ir/exec/exec.h"
#include "ir/passes/passes.h"

typedef struct step_case {
    ds_unit *source;
    ds_binding binding;
    ds_model_step *step; /* NULL if anything failed */
    ds_status status;
    ds_error err;
} step_case;

/* Loads, verifies and binds the text, then runs the passes up to `last`; grad and optimizer only if
 * asked for. `settings` is "a=1 b=2" or NULL. Imports are found as from scenarios/. */
void step_make(step_case *c, const char *text, const char *settings, ds_pass_id last);
void step_free(step_case *c);
/* Executes the step, which must have been made; inputs are kept. `given` may be NULL. */
ds_exec_result *step_run(const step_case *c, uint64_t seed, const ds_exec_tensor *given,
                         uint32_t n_given);
/* The step's text, which must parse, verify and print as itself. Free it. */
char *step_text(const step_case *c);
/* The op that has a result of that name in @step, or NULL: it is looked for in loops and regions
 * too. */
const ds_op *step_find(const step_case *c, const char *result);

/* Fails the test unless the gradient of every weight equals the central difference of the loss, at
 * every element of small weights and at a sample of large ones, within 1e-5 of the tensor's largest
 * gradient; and unless the text of the step is canonical. */
void step_expect_gradients(const char *text, const char *settings);
/* The same for at most `sample` elements of each weight. */
void step_expect_some_gradients(const char *text, const char *settings, int64_t sample);

#endif
