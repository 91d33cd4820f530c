/* Islands: devices that fast links join, such as those of one node.
 *
 * Two vertices are in one island if links lead from one to the other none of which ends in a NIC
 * or has less than half of the bandwidth of the fastest link of the device where it ends. So a
 * node's NVSwitch or PCIe tree joins its devices, the network does not. In a network without NICs
 * and as fast as the devices' other links all devices are one island. A link that is degraded is as
 * fast here as it was whole: a node stays a node. One that is missing joins nothing. */
#include "ir/base/units.h"
#include "sim/topo/tree.h"

#include <stdlib.h>

static uint32_t root_of(uint32_t *up, uint32_t v) {
    while (up[v] != v) v = up[v] = up[up[v]];
    return v;
}

static bool is_fast(const ds_topo *topo, const int64_t *fastest, const ds_topo_link *link) {
    uint32_t ends[] = {link->from, link->to};
    for (int i = 0; i < 2; i++) {
        ds_node_kind kind = ds_topo_vertex_kind(topo, ends[i]);
        if (kind == DS_NODE_NIC) return false;
        if (kind == DS_NODE_DEVICE && link->whole_bytes_per_s < fastest[ends[i]] / 2) return false;
    }
    return true;
}

static void find_islands(ds_topo *topo) {
    uint32_t n = ds_topo_n_vertices(topo), n_links = ds_topo_n_links(topo);
    uint32_t n_devices = ds_topo_n_devices(topo);
    int64_t *fastest = ds_xcalloc(n, sizeof *fastest);
    uint32_t *up = ds_xcalloc(n, sizeof *up);
    topo->islands = DS_NEW_N(&topo->arena, uint32_t, n_devices);
    topo->has_peers = DS_NEW_N(&topo->arena, bool, n_devices);
    for (uint32_t v = 0; v < n; v++) {
        up[v] = v;
        if (ds_topo_reduces(topo, v)) DS_PUSH(&topo->arena, &topo->reducing, v);
    }
    for (uint32_t l = 0; l < n_links; l++) {
        const ds_topo_link *link = ds_topo_link_at(topo, l);
        int64_t rate = link->bytes_per_s ? link->whole_bytes_per_s : 0;
        if (rate > fastest[link->from]) fastest[link->from] = rate;
        if (rate > fastest[link->to]) fastest[link->to] = rate;
    }
    bool *peers = ds_xcalloc(n, sizeof *peers);
    for (uint32_t l = 0; l < n_links; l++) {
        const ds_topo_link *link = ds_topo_link_at(topo, l);
        if (!link->bytes_per_s || !is_fast(topo, fastest, link)) continue;
        up[root_of(up, link->from)] = root_of(up, link->to);
        if (ds_topo_vertex_kind(topo, link->from) == DS_NODE_DEVICE &&
            ds_topo_vertex_kind(topo, link->to) == DS_NODE_DEVICE)
            peers[link->from] = peers[link->to] = true;
    }
    for (uint32_t d = 0; d < n_devices; d++) {
        uint32_t vertex = ds_topo_device_vertex(topo, d);
        topo->islands[d] = root_of(up, vertex);
        topo->has_peers[d] = peers[vertex];
    }
    free(fastest);
    free(up);
    free(peers);
}

uint32_t ds_topo_island(ds_topo *topo, uint32_t device) {
    if (!topo->islands) find_islands(topo);
    return topo->islands[device];
}

bool ds_topo_has_peer_links(ds_topo *topo, uint32_t device) {
    if (!topo->islands) find_islands(topo);
    return topo->has_peers[device];
}

bool ds_topo_reduces(const ds_topo *topo, uint32_t vertex) {
    return topo->root->flags[vertex] & DS_TOPO_REDUCES;
}

const uint32_t *ds_topo_reducing_switches(ds_topo *topo, uint32_t *n) {
    if (!topo->islands) find_islands(topo);
    *n = topo->reducing.n;
    return topo->reducing.at;
}
