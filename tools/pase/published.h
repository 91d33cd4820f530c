/* Published strategies from a table, in terms of our models' operations.
 *
 *     model,devices,operation,split
 *     alexnet,32,*,dp                 all operations that no other row names
 *     alexnet,32,fc1,k 8 n 4          one operation; an asterisk matches anything but a dot
 *
 * The row `*` is `dp` (ds_pase_data_parallel) or `tp N` (ds_pase_expert: Megatron's pattern over N
 * devices, the batch over the others). */
#ifndef DS_TOOLS_PASE_PUBLISHED_H
#define DS_TOOLS_PASE_PUBLISHED_H

#include "ir/base/csv.h"
#include "search/pase/pase.h"

/* The parts of each axis by the rows of the model and number of devices: pins[nodes], 0 for an axis
 * that no row names; rows `*` are left out. Errors: DS_ERR_DATA for no rows, a row that no
 * operation matches, an axis that the operation lacks. O(rows · nodes). */
ds_status ds_pase_pins(const ds_csv *table, const char *model, int64_t devices,
                       const ds_pase_graph *graph, ds_pase_splits *pins, ds_error *err);

/* The strategy of the rows within `limits`; axes that no row names are whole. An operation whose
 * splits `limits` refuse follows the row `*`; *n_dropped counts such operations. Errors: as above;
 * no row `*`. */
ds_status ds_pase_published(const ds_csv *table, const char *model, const ds_pase_graph *graph,
                            const ds_pase_limits *limits, ds_pase_splits *strategy,
                            uint32_t *n_dropped, ds_error *err);

#endif
