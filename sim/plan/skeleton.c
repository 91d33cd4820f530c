/* The plan of the communication of equal stages, without the programs around it: what search/compose
 * asks how long its transfers take, and which of them share links.
 *
 * Meets are priced first. That tells of which sorts they are (skeleton_internal.h); the plan of one
 * meet of each sort is made, or found: its records are made by hand, from groups; costs, sharing,
 * classes, tasks and flows are those of any plan. Then each meet is a copy of its sort's. */
#include "sim/plan/comm.h"
#include "sim/plan/skeleton_internal.h"

#include "sim/coll/coll.h"

#include <stdlib.h>
#include <string.h>

typedef struct maker {
    ds_builder *b;
    const ds_plan_grid *grid;
    const ds_plan_meet *meets;
    uint32_t n;
    ds_skeletons *kept;
    uint64_t own_key;         /* of the grid on its devices */
    uint64_t key;             /* the same, or of all grids that are congruent to it */
    ds_skeleton_meet *priced; /* per meet */
    bool ready;               /* devices are known, and stages: */
    uint32_t *stages;         /* placements */
    uint32_t n_stages;
    uint32_t *group_of_device; /* scratch: of the meet in hand */
    bool again;                /* the grid or some places have turned out to stand alone */
    bool unturned;             /* the meets do not repeat where the grid does */
} maker;

static bool is_host(const ds_op *op) {
    return (ds_op_desc_of(op->code)->flags & DS_OPF_HOST) != 0;
}

/* ---- stages ---- */

/* The slices of the grid along pp. */
static ds_status slice(maker *m, ds_error *err) {
    ds_arena *arena = &m->b->plan->arena;
    const ds_plan_grid *grid = m->grid;
    int64_t world = ds_skeleton__world(grid);
    int64_t inner = ds_skeleton__in_a_row(grid, &m->n_stages);
    if (world > m->b->plan->n_devices)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%lld devices are needed, %u are there",
                            (long long)world, m->b->plan->n_devices);
    m->stages = DS_NEW_N(arena, uint32_t, m->n_stages);
    for (uint32_t s = 0; s < m->n_stages; s++) {
        ds_placement p = {.axes = DS_NEW_N(arena, const char *, grid->n_axes),
                          .sizes = DS_NEW_N(arena, int64_t, grid->n_axes),
                          .devices = DS_NEW_N(arena, uint32_t, world / m->n_stages)};
        for (uint32_t a = 0; a < grid->n_axes; a++) {
            if (strcmp(grid->axes[a], "pp") == 0) continue;
            p.axes[p.n_axes] = grid->axes[a];
            p.sizes[p.n_axes++] = grid->sizes[a];
        }
        for (int64_t i = s * inner; i < world; i += m->n_stages * inner)
            for (int64_t k = 0; k < inner; k++) p.devices[p.n_devices++] = (uint32_t)(i + k);
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

/* Does it go from one stage to another? */
static bool joins_stages(const ds_plan_meet *meet) {
    return meet->op->code == DS_OP_SEND || meet->op->across;
}

/* Pairs of two stages, or groups over the axes: one after another. */
static uint32_t *list_members(const maker *m, const ds_plan_meet *meet, uint32_t *n_groups,
                              uint32_t *group_size) {
    const ds_placement *from = ds_plan__placement(m->b, m->stages[meet->from]);
    uint32_t *devices;
    if (!joins_stages(meet)) {
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

/* Each way between a device and its host is a stream, as in ds_plan__host_record. */
static void set_host_keys(const ds_record *r) {
    for (uint32_t g = 0; g < r->n_groups; g++)
        r->groups[g].key =
            ds_hash_mix(ds_plan__devices_key(r->groups[g].devices, 1, false), r->op->code) | 1;
}

/* The devices of two stages, ascending. */
static uint32_t *union_of(const maker *m, const ds_placement *a, const ds_placement *b,
                          uint32_t *n) {
    uint32_t *both = DS_NEW_N(&m->b->plan->arena, uint32_t, (size_t)a->n_devices + b->n_devices);
    *n = 0;
    for (uint32_t i = 0, k = 0; i < a->n_devices || k < b->n_devices;) {
        uint32_t x = i < a->n_devices ? a->ascending[i] : DS_NONE;
        uint32_t y = k < b->n_devices ? b->ascending[k] : DS_NONE;
        both[(*n)++] = x < y ? x : y;
        i += x <= y;
        k += y <= x;
    }
    return both;
}

/* Of a turn's circle the first device alone. */
static const uint32_t *keep_first(const ds_builder *b, const uint32_t *devices, uint32_t *n) {
    uint32_t *first, kept = 0;
    if (!b->turn.turn) return devices;
    first = DS_NEW_N(&b->plan->arena, uint32_t, *n);
    for (uint32_t i = 0; i < *n; i++)
        if (ds_plan__is_first(b, devices[i])) first[kept++] = devices[i];
    *n = kept;
    return first;
}

/* The devices of one stage, or of two, in one variant; and which group each is in. */
static void set_members(const maker *m, const ds_plan_meet *meet, const ds_comm_shape *c,
                        ds_record *r) {
    ds_builder *b = m->b;
    const ds_placement *from = ds_plan__placement(b, m->stages[meet->from]);
    if (!b->zeros) b->zeros = DS_NEW_N(&b->plan->arena, uint32_t, b->plan->n_devices);
    r->devices = from->ascending;
    r->n_devices = from->n_devices;
    r->variant_of = b->zeros;
    if (joins_stages(meet))
        r->devices = union_of(m, from, ds_plan__placement(b, m->stages[meet->to]), &r->n_devices);
    r->devices = keep_first(b, r->devices, &r->n_devices);
    r->group_of = DS_NEW_N(&b->plan->arena, uint32_t, r->n_devices);
    for (uint32_t i = 0; i < c->n_groups * c->group_size; i++)
        m->group_of_device[c->devices[i]] = i / c->group_size;
    for (uint32_t i = 0; i < r->n_devices; i++) r->group_of[i] = m->group_of_device[r->devices[i]];
}

static ds_status make_meet(maker *m, const ds_plan_meet *meet, ds_error *err) {
    ds_builder *b = m->b;
    ds_comm_shape c = {.op = meet->op->code};
    ds_record *r = DS_NEW(&b->plan->arena, ds_record);
    *r = (ds_record){.kind = DS_REC_COMM,
                     .op = meet->op,
                     .label = ds_op_name(meet->op->code),
                     .stream = meet->stream};
    c.devices = list_members(m, meet, &c.n_groups, &c.group_size);
    if (b->turn.turn) DS_TRY(ds_plan__turn_groups(b, &c));
    r->n_groups = c.n_groups;
    r->groups = DS_NEW_N(&b->plan->arena, ds_group, r->n_groups);
    set_members(m, meet, &c, r);
    set_variant(b, r);
    for (uint32_t g = 0; g < r->n_groups; g++) {
        r->groups[g] = (ds_group){.devices = c.devices + (size_t)g * c.group_size,
                                  .n_devices = c.group_size,
                                  .n_images = c.n_images,
                                  .period = c.period,
                                  .bytes = meet->bytes};
        if (g && ds_plan__cost_alike(b, &r->groups[0], &r->groups[g])) continue;
        const ds_group_work work = {.op = meet->op, .code = meet->op->code};
        DS_TRY(ds_plan__group_cost(b, &work, &r->groups[g], err));
    }
    if (is_host(meet->op)) set_host_keys(r);
    add_inst(b, r);
    return DS_OK;
}

/* ---- the base ---- */

/* The first meet with hosts; their number: there is none. */
static uint32_t first_of_hosts(const maker *m) {
    uint32_t i = 0;
    while (i < m->n && !is_host(m->meets[i].op)) i++;
    return i;
}

static ds_status find_hosts(const maker *m, ds_error *err) {
    ds_builder *b = m->b;
    uint32_t i = first_of_hosts(m);
    if (i == m->n) return DS_OK;
    ds_plan__find_hosts(b);
    for (uint32_t d = 0; d < b->plan->n_devices; d++)
        if (b->plan->host_of[d] == DS_NONE)
            return ds_error_set(err, DS_ERR_UNREACHABLE, m->meets[i].op->loc,
                                "no host can be reached from %s",
                                ds_topo_device_path(b->plan->topo, d));
    return DS_OK;
}

/* Once something has to be made. */
static ds_status get_ready(maker *m, ds_error *err) {
    if (m->ready) return DS_OK;
    DS_TRY(ds_plan__know_devices(m->b, DS_NOWHERE, err));
    DS_TRY(slice(m, err));
    DS_TRY(find_hosts(m, err));
    m->group_of_device = DS_NEW_N(&m->b->plan->arena, uint32_t, m->b->plan->n_devices);
    m->ready = true;
    return DS_OK;
}

/* A turn of the whole grid, if its parts can be images of each other. */
static void find_turn(const maker *m) {
    const ds_plan_grid *grid = m->grid;
    ds_arena *arena = &m->b->plan->arena;
    uint32_t world = (uint32_t)ds_skeleton__world(grid);
    ds_placement p = {.n_axes = grid->n_axes, .n_devices = world};
    if (grid->n_replicas > 1 || first_of_hosts(m) < m->n) return;
    p.axes = DS_NEW_N(arena, const char *, grid->n_axes);
    p.sizes = DS_NEW_N(arena, int64_t, grid->n_axes);
    memcpy(p.axes, grid->axes, grid->n_axes * sizeof *p.axes);
    memcpy(p.sizes, grid->sizes, grid->n_axes * sizeof *p.sizes);
    p.devices = DS_NEW_N(arena, uint32_t, world);
    for (uint32_t i = 0; i < world; i++) p.devices[i] = i;
    ds_plan__find_turn(m->b, &p);
}

/* Are all groups images of the first? */
static bool is_congruent(const ds_record *r) {
    for (uint32_t g = 0; g < r->n_groups; g++)
        if (!r->groups[g].congruent || r->groups[g].congruent != r->groups[0].congruent)
            return false;
    return r->n_groups > 0;
}

/* The sorts, one after another; sorted, so that they are found again. */
static ds_status make_sorts(maker *m, const ds_skeleton_meet *sorts, uint32_t n, ds_map *inst_of,
                            ds_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        ds_map_put(inst_of, sorts[i].sort, m->b->plan->insts.n);
        DS_TRY(make_meet(m, &m->meets[sorts[i].of], err));
        if (sorts[i].place->alone || is_congruent(m->b->plan->records.at[i])) continue;
        sorts[i].place->alone = m->again = true;
    }
    return DS_OK;
}

static void keep_flows(const ds_plan *plan, ds_skeleton_base *base) {
    base->made = ds_xcalloc((size_t)plan->n_flows + 1, sizeof *base->made);
    base->n_made = ds_xcalloc((size_t)plan->n_activities + 1, sizeof *base->n_made);
    for (uint32_t a = 0; a < plan->n_activities; a++) {
        const ds_activity *activity = &plan->activities[a];
        const ds_group *g = activity->group;
        bool shares = false;
        for (uint32_t p = 0; p < g->n_flows; p++) shares = shares || g->flows[p].share.n_uses;
        if (!shares) continue;
        base->n_made[a] = g->n_flows;
        for (uint32_t p = 0; p < g->n_flows; p++) {
            ds_flow *made = &base->made[activity->first_flow + p];
            *made = g->flows[p];
            made->share.uses = NULL;
            made->share.n_uses = 0;
        }
    }
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

/* From now on the grid shares nothing with congruent grids. */
static void stand_alone(maker *m) {
    ds_skeletons__keep_grid(m->kept, m->own_key, m->own_key);
    m->again = true;
}

/* The builder's plan becomes that of the base, if there is no error. */
static ds_status make_base(maker *m, const ds_skeleton_meet *sorts, uint32_t n,
                           ds_skeleton_base *out, ds_error *err) {
    ds_builder *b = m->b;
    DS_TRY(get_ready(m, err));
    find_turn(m);
    DS_TRY(make_sorts(m, sorts, n, &out->inst_of, err));
    if (m->again) return DS_OK;
    out->n_stages = m->n_stages;
    for (uint32_t s = 0; s < m->n_stages; s++) add_compute(m, ds_plan__placement(b, m->stages[s]));
    DS_TRY(ds_plan__turn_holds(b));
    DS_TRY(ds_plan__sharing(b, err));
    ds_plan__classes(b);
    /* Several classes a stage are numbered by where they are. */
    if (m->key != m->own_key && b->plan->n_classes != m->n_stages) stand_alone(m);
    if (m->again) return DS_OK;
    DS_TRY(ds_plan__expand(b, err));
    DS_TRY(ds_plan__flows(b, err));
    keep_flows(b->plan, out);
    return DS_OK;
}

/* ---- prices ---- */

/* What one of the first groups takes; own.request stays NULL if nothing is known of that. */
static ds_status price_group(maker *m, const ds_plan_meet *meet, const uint32_t *devices,
                             uint32_t n, ds_group *own, ds_error *err) {
    DS_TRY(get_ready(m, err));
    *own = (ds_group){.devices = devices, .n_devices = n, .bytes = meet->bytes};
    const ds_group_work work = {.op = meet->op, .code = meet->op->code};
    return ds_plan__group_cost(m->b, &work, own, err);
}

/* Where costs are the same, whatever the mesh. */
static uint64_t cost_kind(maker *m, const ds_group *own) {
    const ds_coll_request *q = own->request;
    uint64_t kind = ds_hash_mix(ds_plan__place_hash(own->congruent), ds_plan__graph(m->b));
    kind = ds_hash_mix(ds_hash_mix(kind, q->op), (uint64_t)q->chunks);
    kind = ds_hash_mix(kind, ds_exchange_hash(q->exchange));
    kind = ds_hash_mix(kind, q->algorithm ? ds_hash_bytes(q->algorithm, strlen(q->algorithm)) : 0);
    for (uint32_t i = 0; i < q->n; i++)
        kind = ds_hash_mix(kind, m->b->plan->profile_of[q->devices[i]]);
    return kind;
}

static ds_status find_place(maker *m, uint64_t key, const ds_plan_meet *meet,
                            ds_skeleton_place **out, ds_error *err) {
    *out = ds_skeletons__place(m->kept, key);
    if (*out) return DS_OK;
    uint32_t n_groups, size;
    ds_group own;
    DS_TRY(get_ready(m, err));
    const uint32_t *devices = list_members(m, meet, &n_groups, &size);
    DS_TRY(price_group(m, meet, devices, size, &own, err));
    ds_skeleton_place place = {.devices = devices, .n = size};
    place.alone = !n_groups || !own.request || !own.congruent;
    if (!place.alone) place.kind = cost_kind(m, &own);
    *out = ds_skeletons__keep_place(m->kept, key, &place);
    return DS_OK;
}

static ds_status price(maker *m, uint32_t i, ds_error *err) {
    const ds_plan_meet *meet = &m->meets[i];
    ds_skeleton_meet *out = &m->priced[i];
    uint64_t alike = ds_hash_mix(m->key, ds_skeleton__alike(m->b, meet));
    *out = (ds_skeleton_meet){.of = i};
    DS_TRY(find_place(m, alike, meet, &out->place, err));
    out->sort = ds_hash_mix(alike, (uint64_t)meet->bytes);
    if (out->place->alone) return DS_OK;
    uint64_t key = out->place->kind;
    key = ds_hash_mix(key, (uint64_t)meet->bytes);
    out->cost = ds_skeletons__cost(m->kept, key);
    if (!out->cost) {
        ds_group own;
        DS_TRY(price_group(m, meet, out->place->devices, out->place->n, &own, err));
        out->cost = ds_skeletons__keep_cost(m->kept, key, &own);
    }
    out->sort = ds_skeleton__sort(alike, out->cost);
    return DS_OK;
}

/* ---- all of it ---- */

static int by_sort(const void *a, const void *b) {
    const ds_skeleton_meet *x = a, *y = b;
    if (x->sort != y->sort) return x->sort < y->sort ? -1 : 1;
    return x->of < y->of ? -1 : x->of > y->of;
}

/* One meet of each sort, in order of sorts, which are the base's key. */
static uint32_t list_sorts(const maker *m, ds_skeleton_meet *sorts, uint64_t *key) {
    uint32_t n = 0;
    if (m->n) memcpy(sorts, m->priced, m->n * sizeof *sorts);
    if (m->n) qsort(sorts, m->n, sizeof *sorts, by_sort);
    *key = m->key;
    for (uint32_t i = 0; i < m->n; i++) {
        if (n && sorts[n - 1].sort == sorts[i].sort) continue;
        sorts[n++] = sorts[i];
        *key = ds_hash_mix(*key, sorts[i].sort);
    }
    return n;
}

static void start(maker *m, ds_builder *b, const ds_binding *binding, const ds_profiles *profiles,
                  const ds_plan_options *options) {
    ds_plan *plan = ds_xcalloc(1, sizeof *plan);
    ds_arena_init(&plan->arena);
    plan->binding = binding;
    plan->profiles = profiles;
    plan->cost_mode = options->cost_mode;
    plan->topo = options->topo;
    plan->borrows_topo = true;
    *b = (ds_builder){.plan = plan,
                      .unit = binding->unit,
                      .binding = binding,
                      .profiles = profiles,
                      .options = options,
                      .root = binding->unit->modules.at[0],
                      .unturned = m->unturned};
    m->b = b;
    m->ready = m->again = false;
}

static uint64_t setting_key(const maker *m) {
    uint64_t key = ds_hash_mix(ds_plan__graph(m->b), m->b->options->cost_mode);
    for (uint32_t i = 0; i < m->b->n_profiles_used; i++)
        key = ds_hash_mix(key, m->b->profiles_used[i]);
    return key;
}

static uint64_t grid_key(const maker *m) {
    const ds_plan_grid *grid = m->grid;
    uint64_t key = setting_key(m);
    for (uint32_t a = 0; a < grid->n_axes; a++) {
        key = ds_hash_mix(key, ds_hash_bytes(grid->axes[a], strlen(grid->axes[a])));
        key = ds_hash_mix(key, (uint64_t)grid->sizes[a]);
    }
    for (uint32_t i = 0; i < grid->n_replicas; i++)
        key = ds_hash_mix(key, (uint64_t)grid->replicas[i]);
    return key;
}

/* Groups that stand alone have links by their numbers (congruent.c), and sorts of replicas classes
 * of their own. */
static uint64_t shared_key(maker *m) {
    uint64_t key = ds_skeletons__grid(m->kept, m->own_key);
    if (key) return key;
    bool alone = m->grid->n_replicas > 1 ||
                 ds_skeleton__world(m->grid) > ds_topo_n_devices(m->b->plan->topo);
    key = alone ? m->own_key
                : ds_hash_mix(setting_key(m), ds_skeleton__place_key(m->b->plan->topo, m->grid));
    ds_skeletons__keep_grid(m->kept, m->own_key, key);
    return key;
}

static ds_status find_base(maker *m, const ds_skeleton_base **out, ds_error *err) {
    uint64_t key;
    DS_TRY(ds_plan__find_profiles(m->b, err));
    m->own_key = grid_key(m);
    m->key = shared_key(m);
    for (uint32_t i = 0; i < m->n; i++) DS_TRY(price(m, i, err));
    for (uint32_t i = 0; i < m->n && m->key != m->own_key && !m->again; i++)
        if (m->priced[i].place->alone) stand_alone(m);
    if (m->again) return DS_OK;
    ds_skeleton_meet *sorts = ds_xcalloc((size_t)m->n + 1, sizeof *sorts);
    uint32_t n = list_sorts(m, sorts, &key);
    ds_status status = DS_OK;
    *out = ds_skeletons__base(m->kept, key);
    if (!*out) {
        ds_skeleton_base base = {0};
        status = make_base(m, sorts, n, &base, err);
        if (status == DS_OK && !m->again) {
            keep_results(m->b->plan);
            base.plan = m->b->plan;
            m->b->plan = NULL;
            *out = ds_skeletons__keep_base(m->kept, key, base);
        } else {
            ds_skeleton__base_deinit(&base);
        }
    }
    free(sorts);
    return status;
}

/* The devices that stand for the stages may be those of another grid. */
static void name_stages(const maker *m, ds_plan *plan) {
    uint32_t n_stages;
    int64_t inner = ds_skeleton__in_a_row(m->grid, &n_stages);
    if (m->key == m->own_key) return;
    for (uint32_t s = 0; s < n_stages; s++)
        plan->classes[plan->task_class[plan->insts.at[m->n + s].first_task]].device =
            (uint32_t)(s * inner);
}

static void end(maker *m) {
    ds_plan_free(m->b->plan);
    m->b->plan = NULL;
    ds_plan__deinit(m->b);
}

ds_status ds_plan_skeleton(const ds_binding *binding, const ds_profiles *profiles,
                           const ds_plan_options *options, const ds_plan_grid *grid,
                           ds_plan_meets meets, ds_plan **out, ds_error *err) {
    ds_skeletons *own = options->ground ? NULL : ds_skeletons_new();
    ds_builder b;
    maker m = {.grid = grid, .meets = meets.at, .n = meets.n};
    const ds_skeleton_base *base = NULL;
    ds_status status = DS_OK;
    m.kept = own ? own : ds_ground__skeletons(options->ground);
    m.priced = ds_xcalloc((size_t)meets.n + 1, sizeof *m.priced);
    ds_skeletons__make_room(m.kept);
    if (options->ground) ds_ground__make_room(options->ground);
    *out = NULL;
    while (status == DS_OK && !base) { /* again only if more is known to stand alone */
        start(&m, &b, binding, profiles, options);
        status = find_base(&m, &base, err);
        if (status == DS_OK && base)
            status = ds_skeleton__copy(&b, base, m.priced, meets.n, out, err);
        if (status == DS_OK && base) name_stages(&m, *out);
        if (b.turn.refused && !m.unturned) {
            m.unturned = true;
            status = DS_OK;
        }
        end(&m);
    }
    free(m.priced);
    ds_skeletons_free(own);
    return status;
}
