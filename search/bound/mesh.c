/* Meshes on a topology: the devices of a group, and the cost of the group's transfers alone. */
#include "search/bound/mesh.h"

#include "ir/base/map.h"
#include "ir/strategy/scenario.h"
#include "sim/coll/coll.h"
#include "sim/topo/symmetry.h"

#include <stdlib.h>
#include <string.h>

/* The kinds of groups of a mesh, and the first device of one group of each kind. */
enum { MOST_LOOKS = 16 };
typedef struct looks {
    uint64_t key; /* 0: more than MOST_LOOKS kinds, or the mesh is not on the topology */
    uint32_t n;
    uint32_t first[MOST_LOOKS];
    uint64_t place[MOST_LOOKS];
} looks;

struct ds_bound_machine {
    ds_arena arena;
    ds_topo *topo;
    int64_t capacity_bytes, process_bytes;
    ds_map groups;           /* mesh → looks of its groups */
    ds_map transfers;        /* key of looks, op and bytes → picoseconds */
    ds_map rates;            /* mesh and op → double */
    ds_map routes;           /* mesh and bytes → sends */
    ds_map across;           /* … → picoseconds from end to end */
    uint32_t *group, *place; /* of one group: devices, vertices */
    bool knows_hosts;
    double to_host_s, from_host_s; /* a byte */
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
    ds_map_init(&m->groups);
    ds_map_init(&m->transfers);
    ds_map_init(&m->rates);
    ds_map_init(&m->routes);
    ds_map_init(&m->across);
    m->topo = topo;
    const ds_device_kind *device = ds_profiles_kind(profiles, kind);
    m->capacity_bytes = device->memory_bytes;
    m->process_bytes = device->reserved.driver_bytes + device->reserved.context_bytes;
    m->group = ds_xcalloc(ds_topo_n_devices(topo), sizeof *m->group);
    m->place = ds_xcalloc(ds_topo_n_devices(topo) + UINT32_C(1), sizeof *m->place);
    return m;
}

void ds_bound_machine_free(ds_bound_machine *m) {
    if (!m) return;
    ds_map_deinit(&m->groups);
    ds_map_deinit(&m->transfers);
    ds_map_deinit(&m->rates);
    ds_map_deinit(&m->routes);
    ds_map_deinit(&m->across);
    ds_arena_deinit(&m->arena);
    ds_topo_free(m->topo);
    free(m->group);
    free(m->place);
    free(m);
}

int64_t ds_bound_machine_capacity(const ds_bound_machine *m) {
    return m->capacity_bytes;
}

int64_t ds_bound_machine_process(const ds_bound_machine *m) {
    return m->process_bytes;
}

const char *ds_bound_machine_device(const ds_bound_machine *m) {
    return ds_topo_device_type(m->topo, 0);
}

int64_t ds_bound_machine_devices(const ds_bound_machine *m) {
    return ds_topo_n_devices(m->topo);
}

/* ---- meshes ---- */

/* The distance of neighbours on the axis: the product of all later axes. 0: no such axis. */
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

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Lists the group over two axes that begins with device `first`, in ascending order. */
static void list_group(ds_bound_machine *m, uint32_t first, int64_t n, int64_t n_stride, int64_t k,
                       int64_t k_stride) {
    for (int64_t i = 0; i < n * k; i++)
        m->group[i] = first + (uint32_t)(i / k * n_stride + i % k * k_stride);
    qsort(m->group, (size_t)(n * k), sizeof *m->group, ascending);
}

/* The canonical place of the listed group, hashed. */
static uint64_t place_of(ds_bound_machine *m, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) m->place[i] = ds_topo_device_vertex(m->topo, m->group[i]);
    ds_symmetry_canonical(ds_topo_symmetry(m->topo), m->place, n, m->place);
    return ds_hash_bytes(m->place, n * sizeof *m->place) | 1;
}

/* Groups with the same canonical place count once. */
static const looks *find_looks(ds_bound_machine *m, const ds_bound_mesh *mesh) {
    int64_t dp = stride_of(mesh, "dp"), tp = stride_of(mesh, "tp"), cp = stride_of(mesh, "cp");
    int64_t pp = stride_of(mesh, "pp");
    looks *out = DS_NEW(&m->arena, looks);
    *out = (looks){0};
    bool placed = dp && tp && cp && pp && is_on(m, mesh);
    for (int64_t i = 0; i < mesh->dp * mesh->pp && placed; i++) {
        uint32_t first = (uint32_t)(i / mesh->pp * dp + i % mesh->pp * pp), k = 0;
        list_group(m, first, mesh->tp, tp, mesh->cp, cp);
        uint64_t here = place_of(m, (uint32_t)(mesh->tp * mesh->cp));
        while (k < out->n && out->place[k] != here) k++;
        if (k < out->n) continue;
        if (out->n == MOST_LOOKS) return memset(out, 0, sizeof *out);
        out->place[out->n] = here;
        out->first[out->n++] = first;
        out->key += here;
    }
    out->key = out->n ? out->key | 1 : 0;
    return out;
}

static const looks *looks_of(ds_bound_machine *m, const ds_bound_mesh *mesh) {
    uint64_t key = key_of(mesh, 0);
    const uint64_t *known = ds_map_find(&m->groups, key);
    if (known) return (const looks *)(uintptr_t)*known;
    const looks *found = find_looks(m, mesh);
    ds_map_put(&m->groups, key, DS_KEY(found));
    return found;
}

uint64_t ds_bound_mesh_group(ds_bound_machine *m, const ds_bound_mesh *mesh) {
    return mesh->tp * mesh->cp == 1 ? 1 : looks_of(m, mesh)->key;
}

static int64_t cost_with(ds_bound_machine *m, ds_opcode op, const uint32_t *devices, uint32_t n,
                         uint32_t host, int64_t bytes) {
    const ds_coll_request request = {
        .op = op, .devices = devices, .n = n, .bytes = bytes, .shift = 1, .host = host};
    const ds_coll_cost terms = {.efficiency_q32 = UINT64_C(1) << 32};
    ds_coll_choice choice;
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_status status = ds_coll_choose(m->topo, &request, &terms, &scratch, &choice, NULL);
    ds_arena_deinit(&scratch);
    return status == DS_OK ? choice.ps : 0;
}

static int64_t cost_alone(ds_bound_machine *m, ds_opcode op, const uint32_t *devices, uint32_t n,
                          int64_t bytes) {
    return cost_with(m, op, devices, n, UINT32_MAX, bytes);
}

/* Costs one pair of a device and its host of each kind; the fastest pair counts. */
static void look_at_hosts(ds_bound_machine *m) {
    enum { MUCH = 1 << 30 };
    uint32_t n = ds_topo_n_devices(m->topo), *host = ds_xcalloc(n, sizeof *host);
    int64_t there = INT64_MAX, back = INT64_MAX;
    ds_map seen;
    ds_map_init(&seen);
    ds_topo_nearest_hosts(m->topo, host);
    for (uint32_t d = 0; d < n; d++) {
        uint32_t pair[] = {ds_topo_device_vertex(m->topo, d), host[d]};
        if (host[d] == UINT32_MAX) there = back = 0;
        if (host[d] == UINT32_MAX || seen.n > MOST_LOOKS) break;
        ds_symmetry_canonical(ds_topo_symmetry(m->topo), pair, 2, pair);
        uint64_t place = ds_hash_bytes(pair, sizeof pair);
        if (ds_map_find(&seen, place)) continue;
        ds_map_put(&seen, place, 1);
        int64_t to = cost_with(m, DS_OP_OFFLOAD, &d, 1, host[d], MUCH);
        int64_t from = cost_with(m, DS_OP_RELOAD, &d, 1, host[d], MUCH);
        if (to < there) there = to;
        if (from < back) back = from;
    }
    if (seen.n <= MOST_LOOKS && n) {
        m->to_host_s = (double)there * 1e-12 / MUCH;
        m->from_host_s = (double)back * 1e-12 / MUCH;
    }
    ds_map_deinit(&seen);
    free(host);
}

double ds_bound_machine_host_per_byte(ds_bound_machine *m, bool back) {
    if (!m->knows_hosts) look_at_hosts(m);
    m->knows_hosts = true;
    return back ? m->from_host_s : m->to_host_s;
}

int64_t ds_bound_mesh_transfer_ps(ds_bound_machine *m, const ds_bound_mesh *mesh, ds_opcode op,
                                  int64_t bytes) {
    uint64_t group = ds_bound_mesh_group(m, mesh);
    uint64_t key = ds_hash_mix(ds_hash_mix(group, op), (uint64_t)bytes);
    const uint64_t *known = ds_map_find(&m->transfers, key);
    if (known) return (int64_t)*known;
    const looks *kinds = looks_of(m, mesh);
    int64_t ps = kinds->n ? INT64_MAX : 0;
    for (uint32_t i = 0; i < kinds->n; i++) {
        list_group(m, kinds->first[i], mesh->tp, stride_of(mesh, "tp"), mesh->cp,
                   stride_of(mesh, "cp"));
        int64_t one = cost_alone(m, op, m->group, (uint32_t)(mesh->tp * mesh->cp), bytes);
        if (one < ps) ps = one;
    }
    ds_map_put(&m->transfers, key, (uint64_t)ps);
    return ps;
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
    int64_t dp = stride_of(mesh, "dp"), cp = stride_of(mesh, "cp");
    bool placed = dp && cp && is_on(m, mesh);
    if (placed) list_group(m, 0, mesh->dp, dp, mesh->cp, cp);
    if (n > 1 && most > 0 && placed)
        rate = (double)cost_alone(m, op, m->group, n, most) * 1e-12 / (double)most;
    uint64_t kept;
    memcpy(&kept, &rate, sizeof kept);
    ds_map_put(&m->rates, key, kept);
    return rate;
}

int64_t ds_bound_mesh_across_ps(ds_bound_machine *m, const ds_bound_mesh *mesh, int64_t bytes) {
    uint64_t key = key_of(mesh, (uint64_t)bytes);
    const uint64_t *known = ds_map_find(&m->across, key);
    if (known) return (int64_t)*known;
    const uint32_t ends[] = {0, (uint32_t)((mesh->pp - 1) * stride_of(mesh, "pp"))};
    bool apart = ends[1] && is_on(m, mesh) && bytes > 0;
    int64_t ps = apart ? cost_alone(m, DS_OP_SEND, ends, 2, bytes) : 0;
    ds_map_put(&m->across, key, (uint64_t)ps);
    return ps;
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
