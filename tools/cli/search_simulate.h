/* Strategies of a search simulated: the scenario's file is read again for each, given the strategy,
 * and run as any other. */
#ifndef DS_CLI_SEARCH_SIMULATE_H
#define DS_CLI_SEARCH_SIMULATE_H

#include "search/pase/apply.h"
#include "sim/cost/cost.h"
#include "tools/cli/cli.h"

typedef struct cli_search_run {
    const char *file;
    const cli_options *options;
    const ds_profiles *profiles;
    int64_t devices;
} cli_search_run;

/* The file with the strategy in its scenario, as text. */
ds_status cli_search_text(const cli_search_run *run, const ds_pase_graph *graph,
                          const ds_pase_splits *strategy, ds_buf *text, ds_pase_applied *applied,
                          ds_error *err);
/* Simulated step times: of that text, of data parallelism, and of the model's own dp x tp for
 * tp = 2, 4, 8. A line each; one that is refused says why. */
void cli_search_simulate(const cli_search_run *run, const char *found, ds_buf *out);

#endif
