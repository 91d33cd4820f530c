/* The plan of the communication of equal stages, without the programs around it: what sim/compose
 * asks how long its transfers take, and which of them share links. Records are made by hand, from
 * groups; costs, sharing, classes, tasks and flows are those of any plan. */
#include "sim/plan/comm.h"
#include "sim/plan/skeleton_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct maker {
    ds_builder *b;
    const ds_plan_grid *grid;
    uint32_t *stages; /* placements */
    uint32_t n_stages;
    ds_skeleton_copies copies;
} maker;

/* The slices of the grid along pp. */
static ds_status slice(maker *m, ds_error *err) {
    ds_arena *arena = &m->b->plan->arena;
    const ds_plan_grid *grid = m->grid;
    int64_t world = 1, inner = 1; /* places that follow each other with one coordinate of pp */
    uint32_t pp = grid->n_axes;
    for (uint32_t a = 0; a < grid->n_axes; a++) {
        world *= grid->sizes[a];
        inner *= grid->sizes[a];
        if (strcmp(grid->axes[a], "pp") == 0) {
            pp = a;
            inner = 1;
        }
    }
    m->n_stages = pp < grid->n_axes ? (uint32_t)grid->sizes[pp] : 1;
    if (world > m->b->plan->n_devices)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%lld devices are needed, %u are there",
                            (long long)world, m->b->plan->n_devices);
    m->stages = DS_NEW_N(arena, uint32_t, m->n_stages);
    for (uint32_t s = 0; s < m->n_stages; s++) {
        ds_placement p = {.axes = DS_NEW_N(arena, const char *, grid->n_axes),
                          .sizes = DS_NEW_N(arena, int64_t, grid->n_axes),
                          .devices = DS_NEW_N(arena, uint32_t, world / m->n_stages)};
        for (uint32_t a = 0; a < grid->n_axes; a++) {
            if (a == pp) continue;
            p.axes[p.n_axes] = grid->axes[a];
            p.sizes[p.n_axes++] = grid->sizes[a];
        }
        for (int64_t i = 0; i < world; i++)
            if (m->n_stages == 1 || i / inner % m->n_stages == s)
                p.devices[p.n_devices++] = (uint32_t)i;
        m->stages[s] = ds_plan__intern(m->b, p);
    }
    return DS_OK;
}

static void add_inst(ds_builder *b, ds_record *r) {
    ds_inst inst = {.record = b->plan->records.n, .first_task = DS_NONE};
    DS_PUSH(&b->plan->arena, &b->plan->records, r);
    DS_HPUSH(&b->plan->insts, inst);
}

/* No result, no duration: what it is for is its class. */
static void set_variant(ds_builder *b, ds_record *r) {
    r->n_variants = 1;
    r->variants = DS_NEW(&b->plan->arena, ds_variant);
    *r->variants = (ds_variant){0};
}

/* The sort of a replica, by its coordinate on dp. */
static uint32_t sort_of(const ds_plan_grid *grid, const ds_placement *p, uint32_t pos) {
    uint32_t sort = 0, axis = 0;
    while (axis < grid->n_axes && strcmp(grid->axes[axis], "dp") != 0) axis++;
    if (axis == grid->n_axes) return 0;
    int64_t at = ds_plan__coordinate(p, grid->axes[axis], pos);
    while (sort + 1 < grid->n_replicas && grid->replicas[sort + 1] <= at) sort++;
    return sort;
}

/* Durations tell classes apart. */
static void set_sorts(const maker *m, const ds_placement *p, ds_record *r) {
    const ds_plan_grid *grid = m->grid;
    if (grid->n_replicas < 2) return;
    r->n_variants = grid->n_replicas;
    r->variants = DS_NEW_N(&m->b->plan->arena, ds_variant, r->n_variants);
    for (uint32_t i = 0; i < r->n_variants; i++) r->variants[i] = (ds_variant){.ps = i};
    for (uint32_t i = 0; i < r->n_devices; i++)
        r->variant_of[i] = sort_of(grid, p, p->by_device[i]);
}

static void add_compute(const maker *m, const ds_placement *p) {
    ds_builder *b = m->b;
    ds_record *r = DS_NEW(&b->plan->arena, ds_record);
    *r = (ds_record){.kind = DS_REC_COMPUTE, .label = "stage"};
    r->devices = p->ascending;
    r->n_devices = p->n_devices;
    r->variant_of = DS_NEW_N(&b->plan->arena, uint32_t, p->n_devices);
    memset(r->variant_of, 0, p->n_devices * sizeof *r->variant_of);
    set_variant(b, r);
    set_sorts(m, p, r);
    add_inst(b, r);
}

/* Pairs of two stages, or groups over the axes: one after another. */
static const uint32_t *list_members(const maker *m, const ds_plan_meet *meet, uint32_t *n_groups,
                                    uint32_t *group_size) {
    const ds_placement *from = ds_plan__placement(m->b, m->stages[meet->from]);
    uint32_t *devices;
    if (meet->op->code != DS_OP_SEND && !meet->op->across) {
        ds_plan__groups(m->b, from, meet->op->over, meet->op->n_over, &devices, n_groups,
                        group_size);
        return devices;
    }
    const ds_placement *to = ds_plan__placement(m->b, m->stages[meet->to]);
    devices = DS_NEW_N(&m->b->plan->arena, uint32_t, (size_t)from->n_devices * 2);
    for (uint32_t i = 0; i < from->n_devices; i++) {
        devices[2 * i] = from->devices[i];
        devices[2 * i + 1] = to->devices[i];
    }
    *n_groups = from->n_devices;
    *group_size = 2;
    return devices;
}

/* Does it differ from one that was made in its bytes alone? Then its cost is kept. */
static ds_status find_first(maker *m, uint32_t meet, const ds_plan_meet *meets, uint32_t *of,
                            ds_error *err) {
    ds_builder *b = m->b;
    const uint64_t *found = ds_map_find(&m->copies.first, ds_skeleton__alike(b, &meets[meet]));
    *of = DS_NONE;
    if (!found) return DS_OK;
    const ds_inst *inst = &b->plan->insts.at[*found >> 32];
    const ds_record *first = b->plan->records.at[inst->record];
    if (!first->n_groups) return DS_OK;
    ds_group own = {.devices = first->groups[0].devices,
                    .n_devices = first->groups[0].n_devices,
                    .bytes = meets[meet].bytes};
    const ds_op *op = meets[meet].op;
    DS_TRY(ds_plan__group_cost(b, op, op->code, NULL, 0, NULL, NULL, &own, err));
    if (!ds_skeleton__is_copy(first, &own)) return DS_OK;
    *of = (uint32_t)*found;
    DS_HPUSH(&m->copies.costs, own);
    return DS_OK;
}

static bool is_host(const ds_op *op) {
    return (ds_op_desc_of(op->code)->flags & DS_OPF_HOST) != 0;
}

/* Each way between a device and its host is a stream, as in ds_plan__host_record. */
static void set_host_keys(const ds_record *r) {
    for (uint32_t g = 0; g < r->n_groups; g++)
        r->groups[g].key =
            ds_hash_mix(ds_plan__devices_key(r->groups[g].devices, 1, false), r->op->code) | 1;
}

static ds_status find_hosts(ds_builder *b, const ds_plan_meet *meets, uint32_t n, ds_error *err) {
    uint32_t i = 0;
    while (i < n && !is_host(meets[i].op)) i++;
    if (i == n) return DS_OK;
    ds_plan__find_hosts(b);
    for (uint32_t d = 0; d < b->plan->n_devices; d++)
        if (b->plan->host_of[d] == DS_NONE)
            return ds_error_set(err, DS_ERR_UNREACHABLE, meets[i].op->loc,
                                "no host can be reached from %s",
                                ds_topo_device_path(b->plan->topo, d));
    return DS_OK;
}

static ds_status make_meet(maker *m, const ds_plan_meet *meet, ds_error *err) {
    ds_builder *b = m->b;
    uint32_t size;
    ds_record *r = DS_NEW(&b->plan->arena, ds_record);
    *r = (ds_record){.kind = DS_REC_COMM,
                     .op = meet->op,
                     .label = ds_op_name(meet->op->code),
                     .stream = meet->stream};
    const uint32_t *devices = list_members(m, meet, &r->n_groups, &size);
    r->groups = DS_NEW_N(&b->plan->arena, ds_group, r->n_groups);
    ds_plan__set_devices(b, r, devices, r->n_groups * size);
    memset(r->variant_of, 0, r->n_devices * sizeof *r->variant_of);
    set_variant(b, r);
    r->group_of = DS_NEW_N(&b->plan->arena, uint32_t, r->n_devices);
    for (uint32_t i = 0; i < r->n_groups * size; i++)
        r->group_of[ds_plan__member(r, devices[i])] = i / size;
    for (uint32_t g = 0; g < r->n_groups; g++) {
        r->groups[g] = (ds_group){
            .devices = devices + (size_t)g * size, .n_devices = size, .bytes = meet->bytes};
        if (g && ds_plan__cost_alike(b, &r->groups[0], &r->groups[g])) continue;
        DS_TRY(ds_plan__group_cost(b, meet->op, meet->op->code, NULL, 0, NULL, NULL, &r->groups[g],
                                   err));
    }
    if (is_host(meet->op)) set_host_keys(r);
    add_inst(b, r);
    return DS_OK;
}

static ds_status add_meet(maker *m, uint32_t i, const ds_plan_meet *meets, ds_error *err) {
    DS_TRY(find_first(m, i, meets, &m->copies.of[i], err));
    if (m->copies.of[i] != DS_NONE) return DS_OK;
    ds_map_put(&m->copies.first, ds_skeleton__alike(m->b, &meets[i]),
               (uint64_t)m->b->plan->insts.n << 32 | i);
    return make_meet(m, &meets[i], err);
}

static ds_status build(maker *m, const ds_plan_meet *meets, uint32_t n, ds_error *err) {
    ds_builder *b = m->b;
    b->plan->topo = b->options->topo;
    b->plan->borrows_topo = true;
    DS_TRY(ds_plan__find_profiles(b, err));
    DS_TRY(ds_plan__know_devices(b, DS_NOWHERE, err));
    DS_TRY(slice(m, err));
    DS_TRY(find_hosts(b, meets, n, err));
    m->copies.of = ds_xcalloc(n, sizeof *m->copies.of);
    for (uint32_t i = 0; i < n; i++) DS_TRY(add_meet(m, i, meets, err));
    for (uint32_t s = 0; s < m->n_stages; s++) add_compute(m, ds_plan__placement(b, m->stages[s]));
    DS_TRY(ds_plan__sharing(b, err));
    ds_plan__classes(b);
    DS_TRY(ds_plan__expand(b, err));
    DS_TRY(ds_plan__flows(b, err));
    return ds_skeleton__add_copies(b, &m->copies, n, err);
}

/* Tasks, activities, flows, streams and classes stay; what they were made from goes. */
static void keep_results(ds_plan *plan) {
    ds_arena kept;
    ds_arena_init(&kept);
    ds_class *classes = DS_NEW_N(&kept, ds_class, plan->n_classes);
    memcpy(classes, plan->classes, plan->n_classes * sizeof *classes);
    for (uint32_t a = 0; a < plan->n_activities; a++) plan->activities[a].group = NULL;
    plan->classes = classes;
    plan->class_of = plan->kind_of = plan->profile_of = plan->host_of = NULL;
    plan->placements.n = plan->placements.cap = 0;
    plan->placements.at = NULL;
    plan->records.n = plan->records.cap = 0;
    plan->records.at = NULL;
    ds_arena_deinit(&plan->arena);
    plan->arena = kept;
}

ds_status ds_plan_skeleton(const ds_binding *binding, const ds_profiles *profiles,
                           const ds_plan_options *options, const ds_plan_grid *grid,
                           const ds_plan_meet *meets, uint32_t n, ds_plan **out, ds_error *err) {
    ds_plan *plan = ds_xcalloc(1, sizeof *plan);
    ds_arena_init(&plan->arena);
    plan->binding = binding;
    plan->profiles = profiles;
    plan->cost_mode = options->cost_mode;
    ds_builder b = {.plan = plan,
                    .unit = binding->unit,
                    .binding = binding,
                    .profiles = profiles,
                    .options = options,
                    .root = binding->unit->modules.at[0]};
    maker m = {.b = &b, .grid = grid};
    ds_status status = build(&m, meets, n, err);
    ds_plan__deinit(&b);
    ds_skeleton__copies_deinit(&m.copies);
    if (status == DS_OK) keep_results(plan);
    if (status != DS_OK) {
        ds_plan_free(plan);
        plan = NULL;
    }
    *out = plan;
    return status;
}
