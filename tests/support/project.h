/* Is a program, projected, still the same program? Its ranks are printed, read, verified, printed
 * again, executed and simulated, and held to the program on its mesh. */
#ifndef DS_TEST_PROJECT_H
#define DS_TEST_PROJECT_H

#include "ir/core/ir.h"

#include <stddef.h>

typedef enum projection_verdict {
    PROJECTION_SAME,
    PROJECTION_REFUSED, /* with a reason */
    PROJECTION_WRONG    /* other numbers, an illegal text, an internal error, another step time */
} projection_verdict;

typedef struct projection {
    projection_verdict verdict;
    char what[1200];           /* the reason, the difference */
    uint32_t compared;         /* tensors of the program's results */
    char *text;                /* of the ranks, on the heap */
    int64_t mesh_ps, ranks_ps; /* step times, if asked for */
} projection;

/* The scenario's program of a verified and bound unit. */
void projection_of(const ds_binding *program, bool execute, bool simulate, projection *out);
void projection_free(projection *p);

/* Fail the test unless the ranks return what the program returns and, if `timed`, the step takes as
 * long to the picosecond. The text is a program, or a model that all passes are run on. `settings`
 * is "a=1 b=2" or NULL. */
void project_expect_same(const char *text, const char *settings, bool timed);
/* A file, relative to the repository's root. */
void project_expect_same_file(const char *file, const char *settings, bool timed);
/* Fails the test unless the projection is refused with a reason that has `part`. */
void project_expect_refused(const char *text, const char *part);
/* The ranks' text; free it. */
char *project_text(const char *text, const char *settings);

#endif
