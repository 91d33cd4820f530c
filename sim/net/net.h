/* The network: what a transfer is made of, how long it takes alone, and when active ones end.
 *
 * A transfer is a list of fluid phases. A phase first waits steps · alpha + more without
 * loading any link, then flows. Alone, it lasts
 *     steps · alpha + more + max over links of bytes / capacity,
 * rounded to picoseconds once; no less than most bytes / (weight · cap) if a link caps what a
 * message gets. Phases that flow at the same time over the same links share them
 * max-min fairly (share.h); their rates change only when one of them begins or ends. */
#ifndef DS_NET_NET_H
#define DS_NET_NET_H

#include "ir/base/arena.h"
#include "ir/base/error.h"
#include "ir/base/units.h"
#include "sim/net/share.h"
#include "sim/topo/topo.h"

/* Bytes on a directed link, in 2^-32 bytes: equal-cost paths share bytes in fractions. */
typedef struct ds_load {
    uint32_t link;
    bool
        turned; /* so many on each of the links that a turn takes to each other; this is the first */
    ds_u128 bytes_q32;
} ds_load;

typedef struct ds_phase {
    int64_t steps;
    int64_t alpha_ps; /* per step */
    int64_t more_ps;  /* waited beyond steps · alpha, or less: what unequal hops make of it */
    int64_t weight;   /* messages in flight on a link: its share when links are contended */
    ds_load *loads;   /* ascending by link, each link once */
    uint32_t n_loads;
} ds_phase;

/* Time of the phase with no other traffic; capacities, but not caps, are scaled by
 * efficiency_q32 / 2^32.
 * DS_ERR_OVERFLOW beyond int64 ps. O(n_loads). */
ds_status ds_phase_alone_ps(const ds_topo *topo, const ds_phase *phase, uint64_t efficiency_q32,
                            int64_t *ps, ds_error *err);

/* What the load takes at capacity · efficiency_q32 / 2^32, to the nearest ps; INT64_MAX beyond. */
int64_t ds_load_ps(const ds_topo *topo, const ds_load *load, uint64_t efficiency_q32);
/* Level of the phase's flow with no other traffic, in 2^-20 B/s (share.h). O(n_loads). */
ds_u128 ds_phase_level_alone_q20(const ds_topo *topo, const ds_phase *phase,
                                 uint64_t efficiency_q32);
/* What a flow takes of a link that carries `bytes` where its most loaded one carries `most`. */
uint64_t ds_link_use_q32(ds_u128 bytes_q32, ds_u128 most_q32, uint64_t efficiency_q32);

/* Bytes of the most loaded link, 0 if none is. O(n_loads). */
ds_u128 ds_phase_most_bytes_q32(const ds_phase *phase);
/* The least cap of its links: with m messages in flight (`weight`) the most loaded link gets no
 * more than m times that; 0: no cap. O(n_loads). */
int64_t ds_phase_cap(const ds_topo *topo, const ds_phase *phase);

/* The load that needs longest alone (the first of equals); NULL if no link carries any. O(n_loads).
 */
const ds_load *ds_phase_slowest(const ds_topo *topo, const ds_phase *phase);

/* A phase as the solver takes it: the bytes of its most loaded link, at a rate that sharing sets.
 * `work` is these bytes in 2^-20 B/s · ps, which is bytes_q32 · 5^12, exactly. As long as its level
 * is alone_q20 from beginning to end, it takes alone_ps; otherwise until its work is done, rounded
 * up to the next ps. */
typedef struct ds_flow {
    ds_share_flow share;
    ds_u128 work;
    ds_u128 alone_q20;
    int64_t wait_ps; /* before it loads links */
    int64_t alone_ps;
} ds_flow;
#define DS_WORK_PER_BYTE_Q32 UINT64_C(244140625) /* 10^12 · 2^20 / 2^32 */

/* The active transfers, by end time; of equal times, by `order`: lower first. A transfer may wait
 * (until a time that is known) or flow. */
typedef struct ds_net ds_net;
/* Links and flows must outlive the net. O(links + flows + uses + activities). */
ds_net *ds_net_new(const ds_u128 *capacity_q20, uint32_t n_links, const ds_flow *flows,
                   uint32_t n_flows, uint32_t n_activities);
void ds_net_free(ds_net *net);
/* An activity that ends at end_ps, whatever others do. O(log active). */
void ds_net_wait(ds_net *net, uint32_t activity, uint32_t order, int64_t end_ps);
/* An activity begins to flow; a flow is active once at a time. Its end is known once
 * ds_net_next_ps has been asked. O(uses + log active). */
void ds_net_flow(ds_net *net, uint32_t activity, uint32_t order, uint32_t flow, int64_t now_ps);
/* When the next activity ends, all starts and pops up to now being at now_ps; INT64_MAX if none
 * ever does. Ends at now_ps are told before rates are looked for again. Amortised over starts and
 * ends: one solution of each connected component of links and instant. */
int64_t ds_net_next_ps(ds_net *net, int64_t now_ps);
/* Removes that activity and returns its id. O(uses + log active). */
uint32_t ds_net_pop(ds_net *net);
uint32_t ds_net_n_active(const ds_net *net);
/* How far an active flow is: a hash of its work left, its rate, and since when it has that,
 * relative to now_ps. What will become of flows in equal states is the same. O(1). */
uint64_t ds_net_state(const ds_net *net, uint32_t flow, int64_t now_ps);
/* Rate of an active flow on its most loaded link since ds_net_next_ps was last asked. */
ds_u128 ds_net_rate_q20(const ds_net *net, uint32_t flow);

#endif
