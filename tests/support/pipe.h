/* Models cut into stages, in tests: small ones with a strategy, held to their sequential step. */
#ifndef DS_TEST_PIPE_H
#define DS_TEST_PIPE_H

#include "ir/base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* A file of scenarios/models made small: 4 turns of loops and 8 samples. */
typedef struct pipe_model {
    const char *name;
    const char *with;  /* params */
    const char *train; /* what else its block says, or "" */
} pipe_model;

extern const pipe_model pipe_mlp, pipe_gpt, pipe_llama, pipe_t5, pipe_mixtral, pipe_alexnet;

typedef struct pipe_case {
    const pipe_model *model;
    const char *strategy;
    const char *set;   /* "layers=8 batch=16" of the model's params, or NULL */
    const char *train; /* NULL: "optimizer = adam" */
    const char *items; /* what else the module has, as a schedule; or NULL */
} pipe_case;

/* The i-th schedule that there is a form of; NULL behind the last. */
const char *pipe_schedule(uint32_t i);

/* The case's scenario. */
void pipe_text(const pipe_case *c, ds_buf *out);
/* "g.layers=8 g.batch=16": its settings for that text; NULL if there are none. Free it. */
char *pipe_settings(const pipe_case *c);

/* Fails the test unless the step after every pass is the one before, the pipeline's the sequential
 * one, and its ranks' the pipeline's; unless there is something to compare, most of which is not
 * zero; and unless that ran on as many devices as the strategy says. */
void pipe_expect_equal(const pipe_case *c);
/* Fails the test unless the case is refused for a reason (never an internal error) that has all
 * parts; ends with NULL. */
void pipe_expect_refused(const pipe_case *c, const char *const *parts);

#endif
