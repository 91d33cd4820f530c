/* The tables of search/pase/RESULTS.md, made again. */
#ifndef DS_TOOLS_PASE_TABLES_H
#define DS_TOOLS_PASE_TABLES_H

#include "sim/cost/cost.h"

typedef struct tables_options {
    const char *root; /* of the repository */
    const ds_profiles *profiles;
    int64_t infiniband_gbit;
    int64_t devices; /* of the models' table */
} tables_options;

/* Print Markdown on standard output; return the number of failures. */
int tables_figure6(const tables_options *options);
int tables_models(const tables_options *options);
int tables_search(const tables_options *options);

#endif
