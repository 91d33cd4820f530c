/* Which host a device keeps things at: the nearest.
 *
 * Dijkstra's algorithm over the links of the whole graph, from each device until hosts are reached.
 * Hosts are a few links away, and a search goes no further, so this needs neither templates nor a
 * cache. */
#include "sim/topo/search.h"

#include <stdlib.h>

/* Links by the vertex where they start: links[start[v] .. start[v + 1]). */
typedef struct leaving {
    uint32_t *start, *links;
} leaving;

static leaving find_leaving(const ds_topo *topo) {
    uint32_t n = topo->root->n_vertices, n_links = topo->root->n_links;
    leaving l = {ds_xcalloc((size_t)n + 2, sizeof *l.start),
                 ds_xcalloc((size_t)n_links + 1, sizeof *l.links)};
    for (uint32_t i = 0; i < n_links; i++)
        if (topo->links[i].bytes_per_s) l.start[topo->links[i].from + 2]++;
    for (uint32_t v = 0; v < n; v++) l.start[v + 2] += l.start[v + 1];
    for (uint32_t i = 0; i < n_links; i++)
        if (topo->links[i].bytes_per_s) l.links[l.start[topo->links[i].from + 1]++] = i;
    return l;
}

/* The least latency comes first off the heap; of hosts that are equally near the first declared. */
static uint32_t nearest_host(const ds_topo *topo, const leaving *l, uint32_t from) {
    ds_topo_heap heap = {0};
    ds_map seen;
    ds_map_init(&seen);
    uint32_t found = UINT32_MAX;
    int64_t latency_ps = INT64_MAX;
    ds_topo_heap_push(&heap, (ds_topo_heap_item){0, 0, from});
    while (heap.n && heap.at[0].latency_ps <= latency_ps) {
        ds_topo_heap_item at = ds_topo_heap_pop(&heap);
        if (ds_map_find(&seen, at.vertex)) continue;
        ds_map_put(&seen, at.vertex, 1);
        uint8_t flags = topo->root->flags[at.vertex];
        if (ds_topo_kind(flags) == DS_NODE_HOST) {
            if (at.vertex < found) found = at.vertex;
            latency_ps = at.latency_ps;
        }
        if (at.vertex != from && !(flags & DS_TOPO_FORWARDS)) continue;
        for (uint32_t i = l->start[at.vertex]; i < l->start[at.vertex + 1]; i++) {
            const ds_topo_link *link = &topo->links[l->links[i]];
            ds_topo_heap_item next = {at.latency_ps, at.hops + 1, link->to};
            if (!__builtin_add_overflow(next.latency_ps, link->latency_ps, &next.latency_ps))
                ds_topo_heap_push(&heap, next);
        }
    }
    ds_map_deinit(&seen);
    free(heap.at);
    return found;
}

void ds_topo_nearest_hosts(const ds_topo *topo, uint32_t *host) {
    leaving l = find_leaving(topo);
    for (uint32_t d = 0; d < topo->root->n_devices; d++)
        host[d] = nearest_host(topo, &l, topo->device_vertex[d]);
    free(l.start);
    free(l.links);
}

uint32_t ds_topo_device_vertex(const ds_topo *topo, uint32_t device) {
    return topo->device_vertex[device];
}
