/* Shared by the files of `distsim plan`. */
#ifndef DS_TOOLS_CLI_PLAN_PLAN_H
#define DS_TOOLS_CLI_PLAN_PLAN_H

#include "search/driver/sweep.h"
#include "tools/cli/cli.h"

/* The model, the topology and the goal of a plan. Texts are in the arena or the caller's. */
typedef struct cli_plan {
    ds_arena arena;
    const char *model_path, *model_func; /* the function; NULL: to be found */
    const char *on_path, *on_name;       /* the topology; NULL: to be found */
    const char *objective, *dtype, *optimizer;
    int64_t batch; /* 0: the model's, at least a sample a device */
    ds_load_options load;
    const char *model_with, *on_with; /* " with layers = 96", or "" */
    /* found by cli_plan_look */
    uint32_t world, node; /* devices; devices with fast links to the first */
    const char *device;   /* "H100-SXM5-80GB" */
    bool has_loss;
    int64_t layers, hidden, heads, seq, experts; /* the model's params; 0: no such param */
} cli_plan;

/* Reads model and topology, gives each setting (--set) to the file that has the param, and fills in
 * the fields that are to be found. Prints errors; returns the exit code. */
int cli_plan_look(cli_plan *plan, const ds_setting *settings, uint32_t n_settings);
/* A program with a scenario, and a sweep over the space worth trying. */
void cli_plan_put_sweep(const cli_plan *plan, ds_buf *out);
/* The same program with the strategy of a row, without sweep. */
void cli_plan_put_scenario(const cli_plan *plan, const ds_sweep_row *row, ds_buf *out);
/* A number in a row's cell; 1: no such column. */
int64_t cli_plan_int(const ds_sweep_row *row, const char *column);
const char *cli_plan_text(const ds_sweep_row *row, const char *column);

/* Why the row is the best: where its time and memory go, the resource that binds, and the best
 * result with other values of each knob, from the rows in `csv`. */
ds_status cli_plan_put_why(const cli_plan *plan, const ds_sweep_row *row, const char *csv,
                           const ds_profiles *profiles, ds_buf *out, ds_error *err);
/* The commands that start Megatron-LM and torchtitan with the row's strategy. */
void cli_plan_put_launch(const cli_plan *plan, const ds_sweep_row *row, ds_buf *out);

#endif
