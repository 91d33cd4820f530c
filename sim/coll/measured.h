/* Measured collectives: a table read as requests, for predictions beside them and for fits. */
#ifndef DS_COLL_MEASURED_H
#define DS_COLL_MEASURED_H

#include "ir/base/csv.h"
#include "sim/coll/coll.h"

typedef struct ds_measured {
    ds_coll_request request;
    double us;
    bool held;       /* the column `split` says held: no fit may see it */
    bool aux;        /* it says aux: to look at, neither fitted nor counted */
    bool has_groups; /* `devices` were named: the group is not simply the first ones */
} ds_measured;

/* Reads the columns collective, group_size, size_bytes (as nccl-tests counts it) and time_us;
 * `split` (fit, held or aux) and `devices` may be absent. `devices` are indices of the topology in
 * the group's order, "0-3 8-11"; empty: the first group_size ones. *rows has csv->rows.n entries,
 * in `arena`. Errors: DS_ERR_DATA with file and line. O(rows · group). */
ds_status ds_measured_read(const ds_csv *csv, uint32_t n_devices, ds_arena *arena,
                           ds_measured **rows, ds_error *err);

/* Bus bandwidth in 10^9 bytes/s of a row that takes `us`: S/t times 2(n−1)/n for an all_reduce,
 * (n−1)/n for gathers, scatters and all_to_all, 1 for the rest. Source: nccl-tests PERFORMANCE.md.
 */
double ds_measured_bus_gb_per_s(const ds_measured *row, double us);

#endif
