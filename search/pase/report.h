/* What a search found, as a table for a terminal. */
#ifndef DS_PASE_REPORT_H
#define DS_PASE_REPORT_H

#include "ir/base/json.h"
#include "search/pase/pase.h"

/* A strategy beside the found one. */
typedef struct ds_pase_rival {
    const char *name; /* "data parallel" */
    double cost, memory_bytes;
} ds_pase_rival;

/* One line an operation: how its axes are split, for all turns of its loops that are split alike,
 * which the line names if they are not all.
 * O(nodes²) of one pattern at most. */
void ds_pase_print_strategy(const ds_pase_graph *graph, const ds_pase_splits *strategy,
                            ds_buf *out);
/* Costs, rivals, sizes of tables. */
void ds_pase_print_summary(const ds_pase_result *result, ds_pase_model *model,
                           const ds_pase_rival *rivals, uint32_t n_rivals, ds_buf *out);
/* The same and the splits and costs of every node, as keys of the JSON object that is open. Costs are
 * numbers in the model's `unit`, counts and bytes integers. */
void ds_pase_put_json(const ds_pase_result *result, ds_pase_model *model,
                      const ds_pase_rival *rivals, uint32_t n_rivals, ds_json *json);

/* "b 8 x n 4": the axes that are split; "-" for none. */
void ds_pase_put_split(const ds_pase_node *node, const uint16_t *split, ds_buf *out);

#endif
