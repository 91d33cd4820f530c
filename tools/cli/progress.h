/* How far a sweep has come, on a terminal: a bar, rate, time left, the best so far. */
#ifndef DS_CLI_PROGRESS_H
#define DS_CLI_PROGRESS_H

#include "search/driver/sweep.h"

typedef struct cli_progress {
    double shown_s;
} cli_progress;

/* Makes the sweep show itself on stderr if that is a terminal. */
void cli_progress_begin(cli_progress *progress, ds_sweep_options *sweep);
/* Erases what stands there. */
void cli_progress_end(const cli_progress *progress);

#endif
