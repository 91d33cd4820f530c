/* Meshes on a topology: which devices meet, and what it costs them alone. */
#include "search/bounds_mesh.h"

#include "ir/base/map.h"
#include "ir/lang/scenario.h"
#include "sim/coll/coll.h"
#include "sim/topo/symmetry.h"

#include <stdlib.h>
#include <string.h>

struct ds_bound_machine {
    ds_arena arena;
    ds_topo *topo;
    int64_t capacity_bytes;
    ds_map alike;  /* tp·cp → how many groups from the first device on are alike */
    ds_map rates;  /* mesh and op → double */
    ds_map routes; /* mesh and bytes → sends */
    uint32_t *group;
};

/* ---- the topology ---- */

static bool is_uniform(const ds_topo *topo) {
    uint32_t n;
    ds_topo_degraded_all(topo, &n);
    for (uint32_t d = 1; d < ds_topo_n_devices(topo) && !n; d++)
        if (strcmp(ds_topo_device_type(topo, d), ds_topo_device_type(topo, 0)) != 0) return false;
    return n == 0 && ds_topo_n_devices(topo) > 0;
}

ds_bound_machine *ds_bound_machine_new(const ds_binding *binding, const ds_profiles *profiles) {
    const ds_topology *topology = ds_scenario_topology(binding->unit);
    ds_topo *topo;
    uint32_t kind;
    if (!topology || ds_topo_build(binding, topology, &topo, NULL) != DS_OK) return NULL;
    if (!is_uniform(topo) || ds_profiles_find_kind(profiles, ds_topo_device_type(topo, 0),
                                                   DS_NOWHERE, &kind, NULL) != DS_OK) {
        ds_topo_free(topo);
        return NULL;
    }
    ds_bound_machine *m = ds_xcalloc(1, sizeof *m);
    ds_arena_init(&m->arena);
    ds_map_init(&m->alike);
    ds_map_init(&m->rates);
    ds_map_init(&m->routes);
    m->topo = topo;
    m->capacity_bytes = ds_profiles_kind(profiles, kind)->memory_bytes;
    m->group = ds_xcalloc(ds_topo_n_devices(topo), sizeof *m->group);
    return m;
}

void ds_bound_machine_free(ds_bound_machine *m) {
    if (!m) return;
    ds_map_deinit(&m->alike);
    ds_map_deinit(&m->rates);
    ds_map_deinit(&m->routes);
    ds_arena_deinit(&m->arena);
    ds_topo_free(m->topo);
    free(m->group);
    free(m);
}

int64_t ds_bound_machine_capacity(const ds_bound_machine *m) {
    return m->capacity_bytes;
}

int64_t ds_bound_machine_devices(const ds_bound_machine *m) {
    return ds_topo_n_devices(m->topo);
}

/* ---- meshes ---- */

/* How far apart neighbours on the axis are: the product of the axes behind it. 0: it is not there.
 */
static int64_t stride_of(const ds_bound_mesh *mesh, const char *axis) {
    const char *at = strstr(mesh->order, axis);
    int64_t stride = 1;
    if (!at) return 0;
    if (strstr(at + 2, "cp")) stride *= mesh->cp;
    if (strstr(at + 2, "dp")) stride *= mesh->dp;
    if (strstr(at + 2, "tp")) stride *= mesh->tp;
    if (strstr(at + 2, "pp")) stride *= mesh->pp;
    return stride;
}

static bool is_on(const ds_bound_machine *m, const ds_bound_mesh *mesh) {
    return mesh->dp * mesh->tp * mesh->pp * mesh->cp <= ds_topo_n_devices(m->topo);
}

static uint64_t key_of(const ds_bound_mesh *mesh, uint64_t more) {
    uint64_t key = ds_hash_mix(DS_KEY(mesh->order), (uint64_t)mesh->dp);
    key = ds_hash_mix(ds_hash_mix(key, (uint64_t)mesh->tp), (uint64_t)mesh->pp);
    return ds_hash_mix(ds_hash_mix(key, (uint64_t)mesh->cp), more);
}

/* The canonical place of the group of n devices that begins with this one, hashed. */
static uint64_t place_of(ds_bound_machine *m, uint32_t first, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) m->group[i] = ds_topo_device_vertex(m->topo, first + i);
    ds_symmetry_canonical(ds_topo_symmetry(m->topo), m->group, n, m->group);
    return ds_hash_bytes(m->group, n * sizeof *m->group);
}

bool ds_bound_mesh_is_alike(ds_bound_machine *m, const ds_bound_mesh *mesh) {
    int64_t size = mesh->tp * mesh->cp, tp = stride_of(mesh, "tp"), cp = stride_of(mesh, "cp");
    if (size == 1) return true;
    bool inside = tp && cp && (mesh->tp == 1 || tp * mesh->tp <= size) &&
                  (mesh->cp == 1 || cp * mesh->cp <= size);
    if (!is_on(m, mesh) || !inside) return false;
    uint32_t n = (uint32_t)size, n_groups = ds_topo_n_devices(m->topo) / n;
    const uint64_t *known = ds_map_find(&m->alike, n);
    uint64_t alike = known ? *known : 1;
    if (!known) {
        uint64_t first = place_of(m, 0, n);
        while (alike < n_groups && place_of(m, (uint32_t)alike * n, n) == first) alike++;
        ds_map_put(&m->alike, n, alike);
    }
    return mesh->dp * mesh->pp <= (int64_t)alike;
}

static int64_t cost_alone(ds_bound_machine *m, ds_opcode op, const uint32_t *devices, uint32_t n,
                          int64_t bytes) {
    const ds_coll_request request = {
        .op = op, .devices = devices, .n = n, .bytes = bytes, .shift = 1, .host = UINT32_MAX};
    const ds_coll_cost terms = {.efficiency_q32 = UINT64_C(1) << 32};
    ds_coll_choice choice;
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_status status = ds_coll_choose(m->topo, &request, &terms, &scratch, &choice, NULL);
    ds_arena_deinit(&scratch);
    return status == DS_OK ? choice.ps : 0;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The group of the first device over dp and cp; false if the mesh lies elsewhere. */
static bool list_replicas(ds_bound_machine *m, const ds_bound_mesh *mesh) {
    int64_t dp = stride_of(mesh, "dp"), cp = stride_of(mesh, "cp");
    if (!dp || !cp || !is_on(m, mesh)) return false;
    for (int64_t i = 0; i < mesh->dp * mesh->cp; i++)
        m->group[i] = (uint32_t)(i / mesh->cp * dp + i % mesh->cp * cp);
    qsort(m->group, (size_t)(mesh->dp * mesh->cp), sizeof *m->group, ascending);
    return true;
}

double ds_bound_mesh_per_byte(ds_bound_machine *m, const ds_bound_mesh *mesh, ds_opcode op,
                              int64_t most) {
    double rate = 0;
    uint64_t key = key_of(mesh, ds_hash_mix(op, (uint64_t)most));
    const uint64_t *known = ds_map_find(&m->rates, key);
    if (known) {
        memcpy(&rate, known, sizeof rate);
        return rate;
    }
    uint32_t n = (uint32_t)(mesh->dp * mesh->cp);
    if (n > 1 && most > 0 && list_replicas(m, mesh))
        rate = (double)cost_alone(m, op, m->group, n, most) * 1e-12 / (double)most;
    uint64_t kept;
    memcpy(&kept, &rate, sizeof kept);
    ds_map_put(&m->rates, key, kept);
    return rate;
}

const int64_t *ds_bound_mesh_sends(ds_bound_machine *m, const ds_bound_mesh *mesh, int64_t bytes) {
    uint64_t key = key_of(mesh, (uint64_t)bytes);
    const uint64_t *known = ds_map_find(&m->routes, key);
    if (known) return (const int64_t *)(uintptr_t)*known;
    int64_t *there = DS_NEW_N(&m->arena, int64_t, 2 * mesh->pp), *back = there + mesh->pp;
    int64_t stride = stride_of(mesh, "pp");
    bool placed = stride && is_on(m, mesh) && bytes > 0;
    there[0] = back[0] = 0;
    for (int64_t s = 1; s < mesh->pp; s++) {
        uint32_t from = (uint32_t)((s - 1) * stride), to = (uint32_t)(s * stride);
        const uint32_t ends[] = {from, to, from};
        there[s] = there[s - 1] + (placed ? cost_alone(m, DS_OP_SEND, ends, 2, bytes) : 0);
        back[s] = back[s - 1] + (placed ? cost_alone(m, DS_OP_SEND, ends + 1, 2, bytes) : 0);
    }
    ds_map_put(&m->routes, key, DS_KEY(there));
    return there;
}
