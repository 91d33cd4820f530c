/* The network: what a transfer is made of, how long it takes alone, and when active ones end.
 *
 * A transfer is a list of fluid phases. A phase first waits steps · alpha without
 * loading any link, then flows. Alone, it lasts
 *     steps · alpha + max over links of bytes / capacity,
 * rounded to picoseconds once. This version's solver gives every activity its time alone; the
 * engine already speaks to it the way a fair-sharing solver needs: activities are added when they
 * start, and the solver says which ends next. */
#ifndef DS_NET_NET_H
#define DS_NET_NET_H

#include "ir/base/arena.h"
#include "ir/base/error.h"
#include "ir/base/units.h"
#include "sim/topo/topo.h"

/* Bytes on a directed link, in 2^-32 bytes: equal-cost paths share bytes in fractions. */
typedef struct ds_load {
    uint32_t link;
    ds_u128 bytes_q32;
} ds_load;

typedef struct ds_phase {
    int64_t steps;
    int64_t alpha_ps; /* per step */
    int64_t weight;   /* messages in flight on a link: its share when links are contended */
    ds_load *loads;   /* ascending by link, each link once */
    uint32_t n_loads;
} ds_phase;

/* Time of the phase with no other traffic; capacities are scaled by efficiency_q32 / 2^32.
 * DS_ERR_OVERFLOW beyond int64 ps. O(n_loads). */
ds_status ds_phase_alone_ps(const ds_topo *topo, const ds_phase *phase, uint64_t efficiency_q32,
                            int64_t *ps, ds_error *err);

/* The load that needs longest alone (the first of equals); NULL if no link carries any. O(n_loads).
 */
const ds_load *ds_phase_slowest(const ds_topo *topo, const ds_phase *phase);

/* The active transfers, by end time; ties end in the order in which they were added. */
typedef struct ds_net ds_net;
ds_net *ds_net_new(void);
void ds_net_free(ds_net *net);
/* Starts activity `id` at `now_ps`; alone it lasts `ps`. O(log active). */
void ds_net_add(ds_net *net, uint32_t id, int64_t now_ps, int64_t ps);
/* End of the activity that ends next; INT64_MAX if none is active. O(1). */
int64_t ds_net_next_ps(const ds_net *net);
/* Removes that activity and returns its id. O(log active). */
uint32_t ds_net_pop(ds_net *net);

#endif
