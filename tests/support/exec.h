/* Executes a program given as text or file, for tests; inputs are kept. */
#ifndef DS_TEST_EXEC_H
#define DS_TEST_EXEC_H

#include "ir/core/ir.h"
#include "ir/exec/exec.h"

typedef struct exec_case {
    ds_unit *unit;
    ds_binding binding;
    ds_exec_result *result; /* NULL if anything failed */
    ds_status status;       /* of loading, verifying or executing: the first failure */
    ds_error err;
} exec_case;

/* `settings` is "a=1 b=2" or NULL; `options` may be NULL (seed 1). Imports are found as from
 * scenarios/. Says what went wrong on stdout, and leaves it to the test to mind. */
void exec_text(exec_case *c, const char *text, const char *settings,
               const ds_exec_options *options);
void exec_file(exec_case *c, const char *file, const char *settings);
/* A function of these arguments and result types around the lines, of which the last returns. */
void exec_lines(exec_case *c, const char *args, const char *results, const char *lines);
void exec_free(exec_case *c);

/* The elements of a result or input; fails the test if there is none of that name. */
const ds_exec_tensor *exec_output(const exec_case *c, const char *name);
const double *exec_out(const exec_case *c, const char *name);
const double *exec_in(const exec_case *c, const char *name);
/* Fails the test unless |got[i] - want[i]| <= 1e-12 (1 + |want[i]|) for all. */
void exec_expect(const double *got, const double *want, int64_t n, const char *what);
/* Fails the test unless all outputs of both are equal within DS_EXEC_BOUND, and the inputs are the
 * same by name and shape. */
void exec_expect_same(const exec_case *a, const exec_case *b, const char *what);

#endif
