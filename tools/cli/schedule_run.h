/* distsim schedule --run FILE. */
#ifndef DS_CLI_SCHEDULE_RUN_H
#define DS_CLI_SCHEDULE_RUN_H

#include "sim/report/schedules.h"
#include "tools/cli/cli.h"

/* Simulates the model of the file's scenario under every schedule and prints `report` of them;
 * with `html` writes a page there, too. Returns the exit code: 1 if none runs and fits. */
int cli_schedule_run(const char *file, cli_options *options,
                     void (*report)(const ds_schedule_table *, ds_buf *), const char *html);

#endif
