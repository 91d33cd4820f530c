/* Ends are kept in a heap that knows where each activity stands in it, because a change of rate
 * moves an end both ways.
 *
 * A flow's remaining work is brought up to date only when its own rate changes, so the same history
 * of rates gives the same picosecond, whatever else happened in between. Rates are not looked for
 * before time goes on: of several starts and ends at one instant only what they add up to counts,
 * not their order. */
#include "sim/net/net.h"

#include "ir/base/map.h"
#include "ir/base/units.h"

#include <assert.h>
#include <stdlib.h>

#define NONE UINT32_MAX

typedef struct active {
    ds_u128 left; /* work at since_ps */
    ds_u128 level_q20;
    int64_t since_ps;
    uint32_t activity;
    bool fresh; /* has had no rate yet */
} active;

typedef struct end {
    int64_t ps;
    uint32_t order; /* of equal times the transfer that started first ends first */
    uint32_t activity;
} end;

struct ds_net {
    const ds_flow *flows;
    ds_share_flow *specs;
    ds_share *share;
    active *active; /* per flow */
    end *heap;
    uint32_t n_heap, cap_heap;
    uint32_t *place;   /* per activity: in the heap; NONE */
    uint32_t *flow_of; /* per activity: the flow it is in; NONE: it just waits */
};

ds_net *ds_net_new(const ds_u128 *capacity_q20, uint32_t n_links, const ds_flow *flows,
                   uint32_t n_flows, uint32_t n_activities) {
    ds_net *net = ds_xcalloc(1, sizeof *net);
    net->flows = flows;
    net->place = ds_xcalloc(n_activities, sizeof *net->place);
    net->flow_of = ds_xcalloc(n_activities, sizeof *net->flow_of);
    for (uint32_t a = 0; a < n_activities; a++) net->place[a] = net->flow_of[a] = NONE;
    if (!n_flows) return net;
    net->active = ds_xcalloc(n_flows, sizeof *net->active);
    net->specs = ds_xcalloc(n_flows, sizeof *net->specs);
    for (uint32_t f = 0; f < n_flows; f++) net->specs[f] = flows[f].share;
    net->share = ds_share_new(capacity_q20, n_links, net->specs, n_flows);
    return net;
}

void ds_net_free(ds_net *net) {
    if (!net) return;
    ds_share_free(net->share);
    free(net->specs);
    free(net->active);
    free(net->heap);
    free(net->place);
    free(net->flow_of);
    free(net);
}

/* ---- the heap ---- */

static bool sooner(end a, end b) {
    return a.ps != b.ps ? a.ps < b.ps : a.order < b.order;
}

static void put_end(ds_net *net, uint32_t i, end e) {
    net->heap[i] = e;
    net->place[e.activity] = i;
}

static void sift(ds_net *net, uint32_t i, end e) {
    while (i > 0 && sooner(e, net->heap[(i - 1) / 2])) {
        put_end(net, i, net->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= net->n_heap) break;
        if (child + 1 < net->n_heap && sooner(net->heap[child + 1], net->heap[child])) child++;
        if (!sooner(net->heap[child], e)) break;
        put_end(net, i, net->heap[child]);
        i = child;
    }
    put_end(net, i, e);
}

static void push_end(ds_net *net, end e) {
    if (net->n_heap == net->cap_heap)
        net->heap = ds_vec_grow_heap(net->heap, &net->cap_heap, sizeof *net->heap);
    net->n_heap++;
    sift(net, net->n_heap - 1, e);
}

/* ---- starting, settling, ending ---- */

void ds_net_wait(ds_net *net, uint32_t activity, uint32_t order, int64_t end_ps) {
    push_end(net, (end){end_ps, order, activity});
}

void ds_net_flow(ds_net *net, uint32_t activity, uint32_t order, uint32_t flow, int64_t now_ps) {
    assert(net->flow_of[activity] == NONE);
    net->flow_of[activity] = flow;
    net->active[flow] = (active){
        .left = net->flows[flow].work, .since_ps = now_ps, .activity = activity, .fresh = true};
    ds_share_start(net->share, flow);
    push_end(net, (end){DS_NEVER_PS, order, activity});
}

/* When `work` is done at `rate`, rounded up; DS_NEVER_PS if never. */
static int64_t done_at(int64_t now_ps, ds_u128 work, ds_u128 rate_q20) {
    if (!rate_q20) return DS_NEVER_PS;
    ds_u128 ps = work / rate_q20;
    if (ps >= DS_NEVER_PS) return DS_NEVER_PS;
    return ds_ps_narrow((ds_i128)ps + (work % rate_q20 != 0) + now_ps);
}

static void change_rate(ds_net *net, uint32_t flow, int64_t now_ps) {
    const ds_flow *spec = &net->flows[flow];
    active *a = &net->active[flow];
    int64_t end_ps;
    if (!a->fresh) {
        ds_u128 done =
            a->level_q20 * spec->share.weight * (ds_u128)(uint64_t)(now_ps - a->since_ps);
        a->left -= done < a->left ? done : a->left;
    }
    a->since_ps = now_ps;
    a->level_q20 = ds_share_level_q20(net->share, flow);
    /* Never slowed so far: its time alone, which is rounded from the exact quotient. */
    if (!a->fresh || a->level_q20 != spec->alone_q20)
        end_ps = done_at(now_ps, a->left, a->level_q20 * spec->share.weight);
    else
        end_ps = ds_ps_sum(now_ps, spec->alone_ps);
    a->fresh = false;
    end e = net->heap[net->place[a->activity]];
    e.ps = end_ps;
    sift(net, net->place[a->activity], e);
}

static void settle(ds_net *net, int64_t now_ps) {
    const uint32_t *changed;
    uint32_t n = ds_share_settle(net->share, &changed);
    for (uint32_t i = 0; i < n; i++) change_rate(net, changed[i], now_ps);
}

int64_t ds_net_next_ps(ds_net *net, int64_t now_ps) {
    if (!net->n_heap) return DS_NEVER_PS;
    if (net->heap[0].ps > now_ps && net->share && ds_share_unsettled(net->share))
        settle(net, now_ps);
    return net->heap[0].ps;
}

uint32_t ds_net_pop(ds_net *net) {
    uint32_t activity = net->heap[0].activity, flow = net->flow_of[activity];
    end last = net->heap[--net->n_heap];
    if (net->n_heap) sift(net, 0, last);
    net->place[activity] = NONE;
    if (flow != NONE) {
        ds_share_stop(net->share, flow);
        net->flow_of[activity] = NONE;
    }
    return activity;
}

uint32_t ds_net_n_active(const ds_net *net) {
    return net->n_heap;
}

ds_u128 ds_net_rate_q20(const ds_net *net, uint32_t flow) {
    return ds_share_level_q20(net->share, flow) * net->flows[flow].share.weight;
}

uint64_t ds_net_state(const ds_net *net, uint32_t flow, int64_t now_ps) {
    const active *a = &net->active[flow];
    uint64_t hash = ds_hash_mix((uint64_t)(now_ps - a->since_ps), a->fresh);
    hash = ds_hash_mix(ds_hash_mix(hash, (uint64_t)(a->left >> 64)), (uint64_t)a->left);
    hash = ds_hash_mix(hash, (uint64_t)(a->level_q20 >> 64));
    return ds_hash_mix(hash, (uint64_t)a->level_q20);
}
