/* `degrade` as numbers: devices and links that are slower than their topology says. */
#ifndef DS_VERIFY_DEGRADE_H
#define DS_VERIFY_DEGRADE_H

#include "ir/core/ir.h"

/* The topology that the root module's degrades mean: the scenario's topology, else the topology of
 * the scenario's mesh, else the only topology that the root module declares; NULL: the topology of
 * the run. */
const ds_topology *ds_degraded_topology(const ds_unit *unit);
/* Factors are kept in 10^-9, so that 0.8 is exact. */
#define DS_DEGRADE_WHOLE INT64_C(1000000000)
/* The share that is left (compute, memory: 10^-6 … 1; bandwidth: 0 … 1), or the factor on time
 * (latency: 1 … 10^6). DS_ERR_VALUE beyond. */
ds_status ds_degrade_factor(const ds_env *env, const ds_attr *factor, int64_t *ppb, ds_error *err);

#endif
