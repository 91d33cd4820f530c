/* A graph as a number, to know it again. */
#include "sim/topo/tree.h"

#include "ir/base/map.h"

#include <string.h>

static uint64_t find_hash(const ds_topo *topo) {
    const ds_topo_template *root = topo->root;
    uint64_t hash = ds_hash_mix(root->n_vertices, root->n_links);
    hash = ds_hash_mix(hash, ds_hash_bytes(root->flags, root->n_vertices));
    for (uint32_t i = 0; i < root->n_links; i++) {
        const ds_topo_link *l = &topo->links[i];
        const int64_t of[] = {l->from, l->to, l->bytes_per_s, l->latency_ps, l->cap_bytes_per_s};
        if (l->known_bytes_per_s) hash = ds_hash_mix(hash, (uint64_t)l->known_bytes_per_s);
        for (size_t k = 0; k < sizeof of / sizeof *of; k++)
            hash = (hash ^ (uint64_t)of[k]) * UINT64_C(0x9e3779b97f4a7c15) ^ (hash >> 31);
    }
    const char *last = NULL;
    for (uint32_t d = 0; d < root->n_devices; d++) {
        const char *type = topo->device_type[d];
        if (type != last && type) hash = ds_hash_mix(hash, ds_hash_bytes(type, strlen(type)) ^ d);
        if (topo->clock_ppb[d] != DS_TOPO_WHOLE)
            hash = ds_hash_mix(hash, (uint64_t)topo->clock_ppb[d] ^ (uint64_t)d << 32);
        if (topo->power_mw[d])
            hash = ds_hash_mix(hash, (uint64_t)topo->power_mw[d] ^ (uint64_t)d << 32 ^ 1);
        last = type;
    }
    return hash;
}

uint64_t ds_topo_hash(ds_topo *topo) {
    if (!topo->hash) topo->hash = find_hash(topo) | 1;
    return topo->hash;
}
