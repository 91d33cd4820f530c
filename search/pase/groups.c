/* Collectives of all groups of a mesh at once: loads of their phases are added up link by link. */
#include "search/pase/groups.h"

#include "sim/coll/coll.h"

#include <stdlib.h>
#include <string.h>

/* Sizes that are computed: 4 KiB … 256 MiB. */
enum { N_POINTS = 5 };
static const int64_t points[N_POINTS] = {4096, 65536, 1 << 20, 1 << 24, 1 << 28};

struct ds_pase_curve {
    double us[N_POINTS], slope[N_POINTS]; /* slope[i]: microseconds a byte behind points[i] */
};

void ds_pase__groups_init(ds_pase_groups *groups, ds_topo *topo, const ds_profiles *profiles,
                          uint32_t profile, uint32_t devices) {
    *groups = (ds_pase_groups){
        .topo = topo, .profiles = profiles, .profile = profile, .devices = devices};
    ds_arena_init(&groups->arena);
    ds_map_init(&groups->known);
}

void ds_pase__groups_deinit(ds_pase_groups *groups) {
    ds_map_deinit(&groups->known);
    ds_arena_deinit(&groups->arena);
}

static uint32_t members(const ds_pase_group *group) {
    uint32_t n = 1;
    for (uint32_t a = 0; a < group->n_axes; a++) n *= group->size[a];
    return n;
}

static uint32_t offset_of(const ds_pase_group *group, uint32_t member) {
    uint32_t offset = 0;
    for (uint32_t a = group->n_axes; a-- > 0;) {
        offset += member % group->size[a] * group->stride[a];
        member /= group->size[a];
    }
    return offset;
}

/* Is the device the first of its group: digit 0 on every axis of it? */
static bool is_first(const ds_pase_group *group, uint32_t device) {
    for (uint32_t a = 0; a < group->n_axes; a++)
        if (device / group->stride[a] % group->size[a] != 0) return false;
    return true;
}

typedef struct adder {
    ds_pase_groups *groups;
    ds_u128 *loads; /* [phase][link] */
    double *wait_us;
    uint32_t n_phases, n_links;
} adder;

static void add_phases(adder *a, const ds_phase *phases, uint32_t n, int64_t step_ps) {
    for (uint32_t i = 0; i < n && i < a->n_phases; i++) {
        int64_t ps = phases[i].steps * (phases[i].alpha_ps + step_ps) + phases[i].more_ps;
        if ((double)ps * 1e-6 > a->wait_us[i]) a->wait_us[i] = (double)ps * 1e-6;
        for (uint32_t l = 0; l < phases[i].n_loads; l++)
            a->loads[(size_t)i * a->n_links + phases[i].loads[l].link] +=
                phases[i].loads[l].bytes_q32;
    }
}

static double slowest_us(const adder *a, uint32_t phase, uint64_t efficiency) {
    double most = 0;
    for (uint32_t l = 0; l < a->n_links; l++) {
        ds_load load = {.link = l, .bytes_q32 = a->loads[(size_t)phase * a->n_links + l]};
        if (load.bytes_q32 == 0) continue;
        double us = (double)ds_load_ps(a->groups->topo, &load, efficiency) * 1e-6;
        if (us > most) most = us;
    }
    return most;
}

static ds_status compute(ds_pase_groups *groups, ds_opcode op, const ds_pase_group *group,
                         int64_t bytes, ds_arena *arena, double *us, ds_error *err) {
    uint32_t n = members(group);
    uint32_t *devices = DS_NEW_N(arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) devices[i] = offset_of(group, i);
    ds_coll_request request = {.op = op, .devices = devices, .n = n, .bytes = bytes};
    ds_coll_links links;
    ds_coll_cost terms;
    ds_coll_choice choice;
    DS_TRY(ds_coll_links_of(groups->topo, &request, &links, err));
    DS_TRY(ds_cost_collective(groups->profiles, groups->profile,
                              &(ds_coll_demand){ds_op_name(op), n, bytes, links}, &terms, NULL,
                              err));
    DS_TRY(ds_coll_choose(groups->topo, &request, &terms, arena, &choice, err));
    adder a = {
        .groups = groups, .n_phases = choice.n_phases, .n_links = ds_topo_n_links(groups->topo)};
    a.loads = DS_NEW_N(arena, ds_u128, (size_t)a.n_phases * a.n_links + 1);
    a.wait_us = DS_NEW_N(arena, double, a.n_phases + 1);
    for (uint32_t first = 0; first < groups->devices; first++) {
        if (!is_first(group, first) || first + offset_of(group, n - 1) >= groups->devices) continue;
        ds_phase *phases;
        uint32_t n_phases;
        for (uint32_t i = 0; i < n; i++) devices[i] = first + offset_of(group, i);
        DS_TRY(ds_coll_phases(groups->topo, &request, choice.algorithm, arena, &phases, &n_phases,
                              err));
        add_phases(&a, phases, n_phases, terms.step_ps);
    }
    *us = (double)terms.launch_ps * 1e-6;
    for (uint32_t i = 0; i < a.n_phases; i++)
        *us += a.wait_us[i] + slowest_us(&a, i, terms.efficiency_q32);
    return DS_OK;
}

static ds_status curve_of(ds_pase_groups *groups, ds_opcode op, const ds_pase_group *group,
                          const ds_pase_curve **out, ds_error *err) {
    uint64_t hash = ds_hash_mix(op, group->n_axes);
    for (uint32_t a = 0; a < group->n_axes; a++)
        hash = ds_hash_mix(hash, (uint64_t)group->size[a] << 32 | group->stride[a]);
    const uint64_t *found = ds_map_find(&groups->known, hash);
    if (found) {
        *out = (const ds_pase_curve *)(uintptr_t)*found;
        return DS_OK;
    }
    ds_pase_curve *made = DS_NEW(&groups->arena, ds_pase_curve);
    ds_status status = DS_OK;
    for (int i = 0; i < N_POINTS && !status; i++) {
        ds_arena arena;
        ds_arena_init(&arena);
        status = compute(groups, op, group, points[i], &arena, &made->us[i], err);
        ds_arena_deinit(&arena);
    }
    for (int i = 0; i + 1 < N_POINTS; i++)
        made->slope[i] = (made->us[i + 1] - made->us[i]) / (double)(points[i + 1] - points[i]);
    ds_map_put(&groups->known, hash, DS_KEY(made));
    *out = made;
    return status;
}

/* Neighbouring axes that follow each other are one: [4, 2] with strides 2 and 1 is [8]. */
static ds_pase_group merged(const ds_pase_group *group) {
    ds_pase_group out;
    memset(&out, 0, sizeof out);
    for (uint32_t a = 0; a < group->n_axes; a++) {
        if (group->size[a] == 1) continue;
        uint32_t last = out.n_axes - 1;
        if (out.n_axes && out.stride[last] == group->size[a] * group->stride[a]) {
            out.size[last] *= group->size[a];
            out.stride[last] = group->stride[a];
            continue;
        }
        out.size[out.n_axes] = group->size[a];
        out.stride[out.n_axes++] = group->stride[a];
    }
    return out;
}

bool ds_pase__group_same(const ds_pase_group *a, const ds_pase_group *b) {
    ds_pase_group x = merged(a), y = merged(b);
    return memcmp(&x, &y, sizeof x) == 0;
}

ds_status ds_pase__group_curve(ds_pase_groups *groups, ds_opcode op, const ds_pase_group *group,
                               const ds_pase_curve **out, ds_error *err) {
    ds_pase_group g = merged(group);
    *out = NULL;
    return g.n_axes ? curve_of(groups, op, &g, out, err) : DS_OK;
}

double ds_pase__curve_us(const ds_pase_curve *curve, double bytes) {
    if (!curve || bytes <= 0) return 0;
    if (bytes < (double)points[0]) return curve->us[0];
    int i = 0;
    while (i + 2 < N_POINTS && bytes > (double)points[i + 1]) i++;
    return curve->us[i] + (bytes - (double)points[i]) * curve->slope[i];
}

ds_status ds_pase__group_us(ds_pase_groups *groups, ds_opcode op, const ds_pase_group *group,
                            double bytes, double *us, ds_error *err) {
    const ds_pase_curve *curve = NULL;
    *us = 0;
    if (bytes <= 0) return DS_OK;
    DS_TRY(ds_pase__group_curve(groups, op, group, &curve, err));
    *us = ds_pase__curve_us(curve, bytes);
    return DS_OK;
}
