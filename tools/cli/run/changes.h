/* run --ladder, --what-if, --sensitivity: one program on several machines. */
#ifndef DS_CLI_RUN_CHANGES_H
#define DS_CLI_RUN_CHANGES_H

#include "sim/run/run.h"
#include "tools/cli/cli.h"

/* One program and what became of it. */
typedef struct cli_side {
    cli_source source;
    ds_result *result;
} cli_side;
void cli_close_side(cli_side *side);

/* Terms that --ladder leaves out unless told: what is beside the operations themselves, until the
 * busiest device computes without a pause. */
#define CLI_LADDER "interference,host,launch,bandwidth,transfers,waits"

typedef struct cli_changes {
    const cli_options *options;
    const char *ladder; /* terms, separated by commas; NULL: not asked for */
    cli_texts what_ifs; /* statements; n 0: none */
    bool sensitivity;
    /* Loads and simulates under the options; says on stderr what is wrong, and returns the exit
     * code. */
    int (*simulate)(void *context, cli_options *options, cli_side *out);
    void *context;
} cli_changes;

/* Appends the table and the JSON object. Returns the exit code: that of the first run that is wrong,
 * or 1 if the unchanged step does not fit. */
int cli_run_changes(const cli_changes *changes, ds_buf *table, ds_buf *json);

#endif
