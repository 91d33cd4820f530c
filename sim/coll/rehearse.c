/* A collective's messages run by themselves: the network, and no engine around it.
 *
 * Where closed forms say too little (alone.c), the time that phases add up to is the time that
 * their messages take together: chunks in trees that share links, rings through nodes at sizes
 * where latency counts, groups whose members are through with a phase at different times. */
#include "ir/base/units.h"
#include "sim/coll/internal.h"
#include "sim/coll/messages.h"

#include <stdlib.h>

#define NONE UINT32_MAX

/* ---- one message ---- */

static uint32_t place_of(ds_link_places *p, uint32_t link) {
    const uint64_t *found = ds_map_find(&p->place, link + UINT64_C(1));
    if (found) return (uint32_t)*found;
    ds_map_put(&p->place, link + UINT64_C(1), p->links.n);
    DS_HPUSH(&p->links, link);
    return p->links.n - 1;
}

void ds_link_places_deinit(ds_link_places *places) {
    ds_map_deinit(&places->place);
    free(places->links.at);
}

/* What the message loads, as a phase without latency; loads in `arena`. */
static ds_phase phase_of(const ds_message *message, ds_arena *arena) {
    if (message->phase) {
        ds_phase phase = *message->phase;
        phase.steps = phase.more_ps = 0;
        return phase;
    }
    const ds_route *route = message->route;
    ds_phase phase = {.weight = 1, .n_loads = route && message->bytes ? route->n_links : 0};
    phase.loads = DS_NEW_N(arena, ds_load, phase.n_loads);
    for (uint32_t i = 0; i < phase.n_loads; i++)
        phase.loads[i] = (ds_load){.link = route->links[i],
                                   .bytes_q32 = (ds_u128)message->bytes * route->share_q32[i]};
    return phase;
}

static ds_status flow_of(const ds_topo *topo, const ds_phase *phase, uint64_t efficiency_q32,
                         ds_link_places *places, ds_arena *arena, ds_flow *out, ds_error *err) {
    ds_u128 most = ds_phase_most_bytes_q32(phase);
    ds_link_use *uses = DS_NEW_N(arena, ds_link_use, phase->n_loads);
    *out = (ds_flow){.work = most * DS_WORK_PER_BYTE_Q32};
    DS_TRY(ds_phase_alone_ps(topo, phase, efficiency_q32, &out->alone_ps, err));
    out->alone_q20 = ds_phase_level_alone_q20(topo, phase, efficiency_q32);
    out->share =
        (ds_share_flow){.uses = uses, .weight = (uint32_t)phase->weight, .cap_q20 = out->alone_q20};
    for (uint32_t i = 0; i < phase->n_loads; i++) {
        uint64_t use = ds_link_use_q32(phase->loads[i].bytes_q32, most, efficiency_q32);
        uint32_t place = place_of(places, phase->loads[i].link);
        if (use) uses[out->share.n_uses++] = (ds_link_use){place, use};
    }
    return DS_OK;
}

ds_status ds_message_flow(const ds_topo *topo, const ds_message *message, const ds_coll_cost *terms,
                          ds_link_places *places, ds_arena *arena, ds_message_load *out,
                          ds_error *err) {
    out->wait_ps = message->route ? ds_ps_sum(message->route->latency_ps, terms->step_ps) : 0;
    if (message->phase)
        out->wait_ps = ds_ps_narrow(message->phase->steps *
                                    ((ds_i128)message->phase->alpha_ps + terms->step_ps));
    ds_phase phase = phase_of(message, arena);
    out->loads = phase.n_loads > 0;
    if (!out->loads) return DS_OK;
    return flow_of(topo, &phase, terms->efficiency_q32, places, arena, &out->flow, err);
}

/* ---- all of them ---- */

typedef struct rehearsal {
    const ds_message_graph *graph;
    ds_net *net;
    ds_flow *flows;
    uint32_t *flow; /* per message; NONE */
    int64_t *wait_ps;
    uint32_t *n_waits, *next; /* the message that has this one as `after` */
    bool *waited, *ended;
    uint32_t n_flows, order;
} rehearsal;

static void begin_message(rehearsal *r, uint32_t m, int64_t now_ps) {
    ds_net_wait(r->net, m, r->order++, ds_ps_sum(now_ps, r->wait_ps[m]));
}

static void load_links(rehearsal *r, uint32_t m, int64_t now_ps) {
    if (r->flow[m] == NONE)
        ds_net_wait(r->net, m, r->order++, now_ps);
    else
        ds_net_flow(r->net, m, r->order++, r->flow[m], now_ps);
}

static void end_message(rehearsal *r, uint32_t m, int64_t now_ps) {
    const ds_message_graph *g = r->graph;
    r->ended[m] = true;
    if (r->next[m] != NONE && r->waited[r->next[m]]) load_links(r, r->next[m], now_ps);
    for (uint32_t e = g->first[m]; e < g->first[m + 1]; e++)
        if (!--r->n_waits[g->edges[e]]) begin_message(r, g->edges[e], now_ps);
}

static int64_t run_messages(rehearsal *r) {
    int64_t now_ps = 0;
    for (uint32_t m = 0; m < r->graph->n_messages; m++)
        if (!r->n_waits[m]) begin_message(r, m, 0);
    while (ds_net_n_active(r->net)) {
        now_ps = ds_net_next_ps(r->net, now_ps);
        if (now_ps == DS_NEVER_PS) break;
        uint32_t m = ds_net_pop(r->net), after = r->graph->messages[m].after;
        if (r->waited[m]) {
            end_message(r, m, now_ps);
            continue;
        }
        r->waited[m] = true;
        if (after == NONE || r->ended[after]) load_links(r, m, now_ps);
    }
    return now_ps;
}

/* Chunks of one hop load the same links with the same bytes: the last load of each. */
enum { KNOWN_HOPS = 64 };
typedef struct hop {
    const ds_route *route;
    int64_t bytes;
    ds_message_load load;
} hop;

static ds_status make_flows(rehearsal *r, const ds_topo *topo, const ds_coll_cost *terms,
                            ds_link_places *places, ds_arena *arena, ds_error *err) {
    uint32_t n = r->graph->n_messages;
    r->flows = DS_NEW_N(arena, ds_flow, n);
    r->flow = DS_NEW_N(arena, uint32_t, n);
    r->wait_ps = DS_NEW_N(arena, int64_t, n);
    r->n_waits = DS_NEW_N(arena, uint32_t, n);
    r->next = DS_NEW_N(arena, uint32_t, n);
    r->waited = DS_NEW_N(arena, bool, n);
    r->ended = DS_NEW_N(arena, bool, n);
    hop *known = DS_NEW_N(arena, hop, KNOWN_HOPS);
    for (uint32_t m = 0; m < n; m++) {
        const ds_message *message = &r->graph->messages[m];
        uint64_t key = ds_hash_mix(DS_KEY(message->route), (uint64_t)message->bytes);
        hop *h = &known[key % KNOWN_HOPS];
        bool is_known = h->route && h->route == message->route && h->bytes == message->bytes;
        if (!is_known) DS_TRY(ds_message_flow(topo, message, terms, places, arena, &h->load, err));
        h->route = message->phase ? NULL : message->route;
        h->bytes = message->bytes;
        r->wait_ps[m] = h->load.wait_ps;
        if (h->load.loads) r->flows[r->n_flows] = h->load.flow;
        r->flow[m] = h->load.loads ? r->n_flows++ : NONE;
        r->n_waits[m] = message->n_waits;
        r->next[m] = NONE;
        if (message->after != NONE) r->next[message->after] = m;
    }
    return DS_OK;
}

ds_status ds_coll__rehearse(ds_topo *topo, const ds_coll_request *request, const char *algorithm,
                            const ds_coll_cost *terms, int64_t *ps, ds_error *err) {
    ds_arena arena;
    ds_message_graph graph;
    ds_link_places places = {0};
    ds_arena_init(&arena);
    ds_status status = ds_coll_messages(topo, request, algorithm, &arena, &graph, err);
    rehearsal r = {.graph = &graph};
    if (status == DS_OK) status = make_flows(&r, topo, terms, &places, &arena, err);
    if (status == DS_OK) {
        ds_u128 *capacity_q20 = DS_NEW_N(&arena, ds_u128, places.links.n);
        for (uint32_t l = 0; l < places.links.n; l++)
            capacity_q20[l] = (ds_u128)ds_topo_link_at(topo, places.links.at[l])->bytes_per_s
                              << DS_RATE_BITS;
        r.net = ds_net_new(capacity_q20, places.links.n, r.flows, r.n_flows, graph.n_messages);
        *ps = run_messages(&r);
        if (*ps == DS_NEVER_PS) status = ds_coll__too_long(request, err);
        ds_net_free(r.net);
    }
    ds_link_places_deinit(&places);
    ds_arena_deinit(&arena);
    return status;
}
