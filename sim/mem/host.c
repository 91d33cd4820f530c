/* What is kept at hosts: the sum over the devices that have the host.
 *
 * All devices of a class keep the same at the same times, so a host is known by how many devices it
 * has of each class, and hosts that agree in this have one curve. */
#include "ir/base/map.h"
#include "ir/base/units.h"
#include "sim/mem/mem.h"

#include <stdlib.h>
#include <string.h>

int64_t ds_mem_host_peak(const ds_mem_class *c) {
    int64_t now = 0, peak = 0;
    for (uint32_t i = 0; i < c->n_host_events; i++) {
        if (!ds_add_i64(now, c->host_events[i].delta_bytes, &now)) return DS_MANY_BYTES;
        if (now > peak) peak = now;
    }
    return peak;
}

typedef struct change {
    int64_t time_ps, delta_bytes;
} change;

static int by_time(const void *a, const void *b) {
    const change *x = a, *y = b;
    if (x->time_ps != y->time_ps) return x->time_ps < y->time_ps ? -1 : 1;
    return (x->delta_bytes > 0) - (y->delta_bytes > 0); /* frees first */
}

/* The curve of a host with count[c] devices of class c. */
static ds_status find_peak(const ds_mem *mem, const uint32_t *count, ds_mem_host *host,
                           ds_error *err) {
    DS_VEC(change) all = {0};
    bool fine = true;
    for (uint32_t c = 0; c < mem->n_classes; c++)
        for (uint32_t i = 0; count[c] && i < mem->classes[c].n_host_events; i++) {
            const ds_mem_event *e = &mem->classes[c].host_events[i];
            change one = {.time_ps = e->time_ps};
            fine = fine &&
                   !__builtin_mul_overflow(e->delta_bytes, (int64_t)count[c], &one.delta_bytes);
            DS_HPUSH(&all, one);
        }
    if (all.n) qsort(all.at, all.n, sizeof *all.at, by_time);
    int64_t now = 0;
    for (uint32_t i = 0; i < all.n && fine; i++) {
        fine = ds_add_i64(now, all.at[i].delta_bytes, &now);
        if (now <= host->peak_bytes) continue;
        host->peak_bytes = now;
        host->peak_ps = all.at[i].time_ps;
    }
    free(all.at);
    if (fine) return DS_OK;
    return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE, "a host holds more than 2^63 bytes");
}

static int by_vertex(const void *a, const void *b) {
    const ds_mem_host *x = a, *y = b;
    return (x->vertex > y->vertex) - (x->vertex < y->vertex);
}

/* The hosts of devices that keep something, each once. */
static ds_mem_host *list_hosts(const ds_plan *plan, const ds_mem *mem, uint32_t *n) {
    ds_mem_host *hosts = ds_xcalloc(plan->n_devices, sizeof *hosts);
    ds_map index;
    ds_map_init(&index);
    *n = 0;
    for (uint32_t d = 0; plan->host_of && d < plan->n_devices; d++) {
        uint32_t cls = plan->class_of[d], vertex = plan->host_of[d];
        if (cls == DS_NONE || vertex == DS_NONE || !mem->classes[cls].n_host_events) continue;
        const uint64_t *found = ds_map_find(&index, vertex);
        if (!found) {
            ds_map_put(&index, vertex, *n);
            hosts[(*n)++] = (ds_mem_host){.vertex = vertex};
        }
        hosts[found ? *found : *n - 1].n_devices++;
    }
    ds_map_deinit(&index);
    if (*n) qsort(hosts, *n, sizeof *hosts, by_vertex);
    return hosts;
}

/* counts[h · classes + c]: the devices of class c at hosts[h]. */
static uint32_t *count_devices(const ds_plan *plan, const ds_mem_host *hosts, uint32_t n) {
    uint32_t *counts = ds_xcalloc((size_t)n * plan->n_classes, sizeof *counts);
    for (uint32_t d = 0; n && d < plan->n_devices; d++) {
        ds_mem_host key = {.vertex = plan->host_of[d]};
        const ds_mem_host *host = bsearch(&key, hosts, n, sizeof *hosts, by_vertex);
        if (host && plan->class_of[d] != DS_NONE)
            counts[(size_t)(host - hosts) * plan->n_classes + plan->class_of[d]]++;
    }
    return counts;
}

ds_status ds_mem_hosts(const ds_plan *plan, const ds_mem *mem, ds_mem_host **out, uint32_t *n,
                       ds_error *err) {
    ds_mem_host *hosts = list_hosts(plan, mem, n);
    uint32_t *counts = count_devices(plan, hosts, *n);
    size_t width = plan->n_classes * sizeof *counts;
    ds_map known; /* hash of the counts → the host that has been done; hashes of 64 bits */
    ds_map_init(&known);
    ds_status status = DS_OK;
    for (uint32_t h = 0; h < *n && status == DS_OK; h++) {
        const uint32_t *count = counts + (size_t)h * plan->n_classes;
        uint64_t key = ds_hash_bytes(count, width);
        const uint64_t *same = ds_map_find(&known, key);
        if (same && memcmp(counts + *same * plan->n_classes, count, width) == 0) {
            hosts[h].peak_bytes = hosts[*same].peak_bytes;
            hosts[h].peak_ps = hosts[*same].peak_ps;
            continue;
        }
        status = find_peak(mem, count, &hosts[h], err);
        ds_map_put(&known, key, h);
    }
    ds_map_deinit(&known);
    free(counts);
    *out = hosts;
    return status;
}
