/* Models of scenarios/models in tests: how large they are, and what they give. */
#ifndef DS_TEST_MODEL_H
#define DS_TEST_MODEL_H

#include "ir/exec/exec.h"
#include "ir/passes/build/count.h"

typedef struct model_case {
    ds_unit *unit;
    ds_binding binding;
    const ds_func *func;
} model_case;

/* Loads scenarios/models/`model`.dir, whose function is @`model`, verifies and binds it with
 * `settings` ("batch=2 width=8", or NULL). Fails the test if anything is wrong with it. */
void model_open(model_case *m, const char *model, const char *settings);
void model_close(model_case *m);

void model_count(const char *model, const char *settings, ds_model_counts *out);

/* Runs the model with seed 1. Inputs named in `zeros` ("w_fc b_fc", or NULL) are all 0; naming one
 * that the model lacks fails the test. Gives result 0, the loss. */
double model_loss(const char *model, const char *settings, const char *zeros);

#endif
