/* Strategies of a search simulated: the scenario's file is read again for each, given the strategy,
 * and run as any other. */
#ifndef DS_CLI_SEARCH_SIMULATE_H
#define DS_CLI_SEARCH_SIMULATE_H

#include "ir/base/json.h"
#include "search/pase/apply.h"
#include "sim/cost/cost.h"
#include "tools/cli/cli.h"

typedef struct cli_search_run {
    const char *file;
    const cli_options *options;
    const ds_profiles *profiles;
    int64_t devices;
} cli_search_run;

/* Drops from `text`, a variant of FILE, the params that nothing reads. Params that --set names stay. */
ds_status cli_search_drop_unused(const cli_options *common, const char *file, ds_buf *text,
                                 ds_error *err);

/* The file with the strategy in its scenario, as text, without unused params. */
ds_status cli_search_text(const cli_search_run *run, const ds_pase_graph *graph,
                          const ds_pase_splits *strategy, ds_buf *text, ds_pase_applied *applied,
                          ds_error *err);

/* One simulated step, or why there is none. */
typedef struct cli_search_step {
    char name[48]; /* "data parallel" */
    ds_status status;
    ds_error err;
    int64_t step_ps, peak_bytes;
    bool fits;
} cli_search_step;

/* Found, expert, and dp x tp for tp = 1, 2, 4, 8. */
#define CLI_SEARCH_MAX_STEPS 6u
typedef struct cli_search_steps {
    uint32_t n;
    cli_search_step at[CLI_SEARCH_MAX_STEPS];
} cli_search_steps;

/* Simulates a text of cli_search_text, and adds it to `steps`. */
void cli_search_simulate(const cli_search_run *run, const char *name, const char *text,
                         cli_search_steps *steps);
/* Likewise data parallelism, and the model's own dp x tp for tp = 2, 4 … most_tp, which is 8 at
 * most. */
void cli_search_simulate_meshes(const cli_search_run *run, int64_t most_tp,
                                cli_search_steps *steps);
/* Says on stderr if the first, which the file `output` has (NULL: no file has it), cannot run or is
 * slower than another; false: it cannot run. */
bool cli_search_check(const cli_search_steps *steps, const char *output);

/* A line each; "simulated": [{"strategy", "step_time_ps", …} or {"strategy", "refused"}], and which
 * of those that fit is the fastest. */
void cli_search_print_steps(const cli_search_steps *steps, ds_buf *out);
void cli_search_put_steps(const cli_search_steps *steps, ds_json *json);

/* Writes the page of a search's JSON object. */
ds_status cli_search_write_page(const cli_options *options, const char *path, const char *file,
                                const ds_buf *json, ds_error *err);

#endif
