/* What the files of `distsim plan` share. */
#ifndef DS_TOOLS_CLI_PLAN_PLAN_H
#define DS_TOOLS_CLI_PLAN_PLAN_H

#include "search/driver/sweep.h"
#include "tools/cli/cli.h"

/* What is planned. Texts are in the arena or the caller's. */
typedef struct cli_plan {
    ds_arena arena;
    const char *model_path, *model_func; /* the function: NULL is found */
    const char *on_path, *on_name;       /* the topology: NULL is found */
    const char *objective, *dtype, *optimizer;
    int64_t batch; /* 0: the model's, at least a sample a device */
    ds_load_options load;
    const char *model_with, *on_with; /* " with layers = 96", or "" */
    /* found by cli_plan_look */
    uint32_t world, node; /* devices; those with fast links to the first */
    const char *device;   /* "H100-SXM5-80GB" */
    bool has_loss;
    int64_t layers, hidden, heads, seq, experts; /* of the model's params; 0: none of that name */
} cli_plan;

/* Reads model and topology, gives each setting (--set) to the one that has the param, and finds
 * what a space needs. Prints what is wrong; returns the exit code. */
int cli_plan_look(cli_plan *plan, const ds_setting *settings, uint32_t n_settings);
/* A program with a scenario, and a sweep over what is worth trying. */
void cli_plan_put_sweep(const cli_plan *plan, ds_buf *out);
/* The same with the strategy of a row, without sweep. */
void cli_plan_put_scenario(const cli_plan *plan, const ds_sweep_row *row, ds_buf *out);
/* A number in a row's cell; 1 if there is no such column. */
int64_t cli_plan_int(const ds_sweep_row *row, const char *column);
const char *cli_plan_text(const ds_sweep_row *row, const char *column);

/* Why the row is the best: where its time and memory go, what binds, and what other values of each
 * knob would give at best, from the rows in `csv`. */
ds_status cli_plan_put_why(const cli_plan *plan, const ds_sweep_row *row, const char *csv,
                           const ds_profiles *profiles, ds_buf *out, ds_error *err);
/* How Megatron-LM and torchtitan are started so. */
void cli_plan_put_launch(const cli_plan *plan, const ds_sweep_row *row, ds_buf *out);

#endif
