/* Which link holds a collective up, and for how long. */
#include "ir/base/map.h"
#include "ir/base/units.h"
#include "sim/coll/internal.h"

/* One algorithm's flow at full capacity in seconds, and its slowest link. */
typedef struct flow {
    double seconds;
    int64_t wait_ps;             /* all of its steps' latencies */
    int64_t slowest_bytes_per_s; /* without `what_if` */
    double changed;              /* how many times as much by `what_if`; 0: nothing is said */
} flow;

static ds_status flow_of(ds_topo *topo, const ds_coll_request *request, const char *algorithm,
                         flow *out, ds_error *err) {
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_phase *phases;
    uint32_t n = 0;
    double longest = -1;
    *out = (flow){0};
    ds_status status = ds_coll_phases(topo, request, algorithm, &scratch, &phases, &n, err);
    for (uint32_t i = 0; i < n && status == DS_OK; i++) {
        const ds_load *load = ds_phase_slowest(topo, &phases[i]);
        ds_i128 wait_ps = (ds_i128)phases[i].steps * phases[i].alpha_ps;
        out->wait_ps = ds_ps_narrow(wait_ps + out->wait_ps);
        if (out->wait_ps == DS_NEVER_PS) status = ds_coll__too_long(request, err);
        if (!load) continue;
        const ds_topo_link *link = ds_topo_link_at(topo, load->link);
        int64_t capacity = link->bytes_per_s;
        double seconds = (double)load->bytes_q32 / 4294967296.0 / (double)capacity;
        out->seconds += seconds;
        if (seconds <= longest) continue;
        longest = seconds;
        int64_t known = link->known_bytes_per_s;
        out->slowest_bytes_per_s = known ? known : capacity;
        out->changed = known ? (double)capacity / (double)known : 0;
    }
    ds_arena_deinit(&scratch);
    return status;
}

/* Islands of fast links that the group has devices in. O(group) where neighbours share one. */
static uint32_t count_nodes(ds_topo *topo, const ds_coll_request *request) {
    uint32_t n = 0;
    ds_map seen;
    ds_map_init(&seen);
    for (uint32_t i = 0; i < request->n; i++) {
        uint64_t island = ds_topo_island(topo, request->devices[i]);
        if (ds_map_find(&seen, island + 1)) continue;
        ds_map_put(&seen, island + 1, 1);
        n++;
    }
    ds_map_deinit(&seen);
    return n;
}

/* The least capacity on the way, as if the message had the route's links to itself. */
static int64_t rate_of(ds_topo *topo, uint32_t from, uint32_t to) {
    const ds_route *route;
    int64_t least = INT64_MAX;
    if (ds_topo_route(topo, from, to, &route, &(ds_error){0}) != DS_OK) return 0;
    for (uint32_t i = 0; i < route->n_links; i++) {
        double capacity = (double)ds_topo_link_at(topo, route->links[i])->bytes_per_s;
        double whole = capacity * 4294967296.0 / (double)route->share_q32[i];
        int64_t rate = whole < 0x1p63 ? (int64_t)whole : INT64_MAX;
        if (rate < least) least = rate;
    }
    return route->n_links ? least : 0;
}

/* Between the first member and the first other one of its island, and of another. */
static void exchange_of(ds_topo *topo, const ds_coll_request *q, ds_coll_links *out) {
    uint32_t island = ds_topo_island(topo, q->devices[0]);
    out->exchange = q->exchange;
    for (uint32_t i = 1; i < q->n && !(out->inside_bytes_per_s && out->between_bytes_per_s); i++) {
        bool inside = ds_topo_island(topo, q->devices[i]) == island;
        int64_t *rate = inside ? &out->inside_bytes_per_s : &out->between_bytes_per_s;
        if (!*rate) *rate = rate_of(topo, q->devices[0], q->devices[i]);
    }
}

ds_status ds_coll_links_of(ds_topo *topo, const ds_coll_request *request, ds_coll_links *out,
                           ds_error *err) {
    const char *names[DS_COLL_MOST_ALGORITHMS];
    uint32_t n = ds_coll_candidates(request, names);
    double least = -1;
    ds_status why = DS_OK;
    ds_error said = {0};
    *out = (ds_coll_links){0};
    for (uint32_t i = 0; i < n; i++) {
        flow f;
        ds_error refusal = {0};
        ds_status status = flow_of(topo, request, names[i], &f, &refusal);
        if (ds_coll__says_more(status, why)) {
            why = status;
            said = refusal;
        }
        if (status != DS_OK && !ds_coll__is_passed_over(status)) least = -1;
        if (status != DS_OK && !ds_coll__is_passed_over(status)) break;
        if (status != DS_OK) continue;
        if (least < 0) out->slowest_bytes_per_s = f.slowest_bytes_per_s;
        if (least < 0) out->changed = f.changed;
        if (least < 0 || f.seconds < least) out->wait_ps = f.wait_ps;
        if (least < 0 || f.seconds < least) least = f.seconds;
    }
    if (least < 0 && why != DS_OK && err) *err = said;
    if (least < 0) return why;
    out->n_nodes = count_nodes(topo, request);
    if (request->exchange) exchange_of(topo, request, out);
    return ds_ps_from_seconds(least, &out->flow_ps, err);
}
