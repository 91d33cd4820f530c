/* Max-min fair sharing of links, apart from any clock: which rate each active flow gets.
 *
 * A flow has a *rate* in bytes/s on the link that it loads most, and takes rate · use of every link
 * it loads. Rates are in proportion to weights: rate = weight · level. Levels are the max-min fair
 * ones: no flow's level can grow without taking from one of a level as low or lower. They are found
 * by filling: all levels rise together, until a link is full or a flow has reached its cap; flows
 * there are done, the others go on.
 *
 * All in integers, so that neither the order of flows nor that of links matters:
 *   capacities, levels, rates in 2^-20 B/s;   uses in 2^-32;
 *   a round's level = min over links of floor(free / Σ weight · use), and over caps; all links and
 *   caps at that level are done in the same round.
 * A link never carries more than its capacity; each round leaves less than one unit of level on a
 * full link.
 *
 * Starting or stopping a flow marks the links that it loads. The next settling solves only the
 * connected components (of links joined by active flows) that hold marked links. */
#ifndef DS_NET_SHARE_H
#define DS_NET_SHARE_H

#include "ir/base/units.h"

#define DS_RATE_BITS 20 /* capacities and rates are in 2^-20 B/s */
#define DS_USE_BITS  32
#define DS_NO_CAP    (~(ds_u128)0)

/* What a flow takes of a link for each B/s of its rate; its most loaded link has 2^32 where it is
 * one transfer, and more where it stands for several equal ones on that link. */
typedef struct ds_link_use {
    uint32_t link;
    uint64_t use_q32; /* 1 … 2^56 */
} ds_link_use;

/* What sharing needs to know of a flow. */
typedef struct ds_share_flow {
    const ds_link_use *uses; /* each link once */
    uint32_t n_uses;
    uint32_t weight; /* at least 1 */
    ds_u128 cap_q20; /* most level, DS_NO_CAP: none; a flow without links needs one */
} ds_share_flow;

typedef struct ds_share ds_share;

/* `flows` and what they point to must outlive the solver. capacity_q20[link] below 2^84. All memory
 * is taken here. O(links + flows + uses). */
ds_share *ds_share_new(const ds_u128 *capacity_q20, uint32_t n_links, const ds_share_flow *flows,
                       uint32_t n_flows);
void ds_share_free(ds_share *share);

/* A flow is started once at a time. O(uses). */
void ds_share_start(ds_share *share, uint32_t flow);
void ds_share_stop(ds_share *share, uint32_t flow);
/* Has anything started or stopped since the last settling? */
bool ds_share_unsettled(const ds_share *share);
/* Solves what has changed. *changed: the active flows that have another level than before, started
 * ones included; valid until the next call. Returns their number.
 * O(uses of the components · log of their links and flows). */
uint32_t ds_share_settle(ds_share *share, const uint32_t **changed);
/* Since the last settling; 0 for a flow that is not active. O(1). */
ds_u128 ds_share_level_q20(const ds_share *share, uint32_t flow);
/* The flows that the last settling looked at, for tests of its locality. */
uint32_t ds_share_n_solved(const ds_share *share);

#endif
