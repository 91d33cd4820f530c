/* distsim validate: its two tables, of times and of memory. */
#ifndef DS_CLI_VALIDATE_H
#define DS_CLI_VALIDATE_H

#include "tools/cli/cli.h"
#include "tools/validate/mfu.h"

typedef struct validate_arguments {
    cli_options common;
    cli_texts files;
    const char *split;   /* NULL: all; of memory: all but `exclude` */
    const char *out;     /* a row each; NULL: none */
    const char *without; /* terms of the cost model, "tiles,launch"; NULL: none */
    uint32_t scenario;   /* a line whose scenario is printed; 0: none */
    uint32_t workers;    /* 0: as many as there are cores */
    uint32_t every;      /* only every so many-th row of a file; 0: each */
    bool memory, json, ledger, pairs, all_microbatches, zero_shot;
} validate_arguments;

/* val_planner: the search of `distsim plan` over several kinds of machines. */
ds_status validate_plan(const val_job *job, val_plan_request *request, ds_error *err);

/* The memory of the rows of one file that have a figure for it; returns the exit code. */
struct ds_profiles;
int validate_memory(const validate_arguments *args, const struct ds_profiles *profiles,
                    const char *file);

#endif
