/* distsim exec --verify: the passes proved on a scenario's model. */
#ifndef DS_CLI_EXEC_VERIFY_H
#define DS_CLI_EXEC_VERIFY_H

#include "tools/cli/cli.h"

typedef struct cli_verify_options {
    uint64_t seed;
    const char *pass; /* compare before and after this one alone; NULL: all */
    int64_t max_bytes;
    bool quiet;
} cli_verify_options;

/* Prints a table; returns the exit code: 1 if anything differs or cannot be decided. */
int cli_verify(const cli_source *source, const cli_verify_options *options);

#endif
