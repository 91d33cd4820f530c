/* Memory beside tensors: the context of a class's process, and its communicators.
 *
 * Records say which devices meet. A class's communicators are those of its representative: the
 * others of the class meet alike (plan/classes.c). A set of devices is known by a hash that does
 * not depend on their order, so mesh axes, groups, and both directions of a send agree. */
#include "ir/base/map.h"
#include "sim/mem/mem.h"

static uint64_t set_of(const ds_group *g) {
    uint64_t sum = g->n_devices;
    for (uint32_t i = 0; i < g->n_devices; i++) sum += ds_hash_mix(1, g->devices[i]);
    return sum;
}

static void add_record(const ds_plan *plan, const ds_record *r, ds_map *seen, int64_t *bytes) {
    for (uint32_t pos = 0; pos < r->n_classes; pos++) {
        uint32_t cls = r->classes[pos];
        const ds_group *g =
            &r->groups[r->kind == DS_REC_COMM ? r->group_of[r->class_member[pos]] : 0];
        uint64_t key = ds_hash_mix(set_of(g), cls);
        if (g->n_devices < 2 || ds_map_find(seen, key)) continue;
        ds_map_put(seen, key, 1);
        const ds_reserved_memory *m =
            &ds_profiles_kind(plan->profiles, plan->classes[cls].kind)->reserved;
        bytes[cls] += g->n_devices == 2 ? m->pair_bytes : m->group_bytes;
    }
}

void ds_mem_overheads(const ds_plan *plan, int64_t *context_bytes, int64_t *communicator_bytes) {
    ds_map seen;
    ds_map_init(&seen);
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        const ds_reserved_memory *m =
            &ds_profiles_kind(plan->profiles, plan->classes[c].kind)->reserved;
        context_bytes[c] = m->driver_bytes + m->context_bytes;
        communicator_bytes[c] = 0;
    }
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *r = plan->records.at[i];
        if (r->kind == DS_REC_COMM || r->kind == DS_REC_HALF)
            add_record(plan, r, &seen, communicator_bytes);
    }
    ds_map_deinit(&seen);
}
