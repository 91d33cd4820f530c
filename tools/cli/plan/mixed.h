/* Plans for clusters of several kinds of machines: from a cli_plan to search/mixed and back. */
#ifndef DS_TOOLS_CLI_PLAN_MIXED_H
#define DS_TOOLS_CLI_PLAN_MIXED_H

#include "search/mixed/peers/peers.h"
#include "sim/run/run.h"
#include "tools/cli/plan/plan.h"

enum { CLI_MIXED_WORKERS = 16 };

typedef struct cli_mixed_arguments {
    const char *prices, *preempt;   /* "A100=3.67,V100=2.86"; failures of a device and hour */
    double checkpoint_s, restart_s; /* 0: the defaults below */
    double within_s;                /* slower plans do not count; 0: any */
    bool front, peers, json;
    const char *write, *html;
    uint32_t top;
    uint64_t max_runs;  /* 0: the default */
    uint32_t n_workers; /* 0: one a processor */
} cli_mixed_arguments;

/* Another planner's method, and the fastest of its plans. */
typedef struct cli_mixed_peer {
    const ds_mixed_peer *peer;
    ds_mixed_plan best; /* fits false: the method has no plan that fits */
} cli_mixed_peer;

typedef struct cli_mixed {
    const cli_plan *plan;
    const cli_mixed_arguments *args;
    const cli_options *common;
    const ds_profiles *profiles;
    ds_plan_ground *grounds[CLI_MIXED_WORKERS];
    uint32_t n_workers;
    ds_mixed_problem problem;
    ds_mixed_goal goal;
    ds_mixed_faults faults;
    ds_mixed_result result;
    cli_mixed_peer *peers; /* owned; NULL: not asked for */
    uint32_t n_peers;
    uint32_t n_pieces; /* simulated */
    double seconds;    /* of the search, and of measuring before */
    ds_error first;    /* why a plan was refused; code DS_OK: none was */
} cli_mixed;

/* Step, memory and sizes of a simulated text. */
typedef struct cli_mixed_run {
    int64_t step_ps, comm_ps, hidden_ps, peak_bytes, capacity_bytes,
        parameters; /* comm: exposed and hidden */
    bool fits;
    double busy_s[DS_MIXED_STAGES]; /* of devices[s], as far as they are asked for */
} cli_mixed_run;

/* The program of a plan. */
void cli_mixed_put_program(const cli_mixed *mixed, const cli_plan *plan, const ds_mixed_plan *p,
                           ds_buf *out);
/* Simulates a program; with a plan, which the program is of, also the busy times of its stages, without
 * one the model's parameters. `ground` is the caller's alone. */
ds_status cli_mixed_run_text(const cli_mixed *mixed, ds_plan_ground *ground, const ds_buf *text,
                             const ds_mixed_plan *plan, cli_mixed_run *out, ds_error *err);
/* ds_mixed_simulate for a cli_mixed, with its workers. */
ds_status cli_mixed_simulate(void *mixed, ds_mixed_plan *plans, uint32_t n, ds_error *err);
/* Fills the problem: kinds and devices of the topology, prices, and pieces by simulation. */
ds_status cli_mixed_measure(cli_mixed *mixed, ds_error *err);

/* The word of a goal; DS_MIXED_GOALS: none has the name. */
ds_mixed_goal cli_mixed_goal(const char *word);
/* Plans and reports; returns the exit code. */
int cli_plan_mixed(cli_plan *plan, const cli_mixed_arguments *args, const cli_options *common,
                   const ds_profiles *profiles);

#endif
