/* Placements: meshes, mesh slices and single devices as interned, ordered lists of devices. */
#include "ir/strategy/scenario.h"
#include "sim/plan/internal.h"

#include <stdlib.h>
#include <string.h>

int64_t ds_plan__axis_size(const ds_placement *p, const char *axis) {
    for (uint32_t i = 0; i < p->n_axes; i++)
        if (p->axes[i] == axis) return p->sizes[i];
    return 1;
}

static bool same_placement(const ds_placement *a, const ds_placement *b) {
    if (a->n_axes != b->n_axes || a->n_devices != b->n_devices) return false;
    for (uint32_t i = 0; i < a->n_axes; i++)
        if (a->axes[i] != b->axes[i] || a->sizes[i] != b->sizes[i]) return false;
    return memcmp(a->devices, b->devices, a->n_devices * sizeof *a->devices) == 0;
}

typedef struct at_device {
    uint32_t device, position;
} at_device;

static int compare_devices(const void *a, const void *b) {
    const at_device *x = a, *y = b;
    return x->device < y->device ? -1 : x->device > y->device;
}

static void index_devices(ds_builder *b, ds_placement *p) {
    at_device *order = ds_xcalloc(p->n_devices, sizeof *order);
    for (uint32_t i = 0; i < p->n_devices; i++) order[i] = (at_device){p->devices[i], i};
    bool sorted = true;
    for (uint32_t i = 1; i < p->n_devices; i++) sorted &= p->devices[i - 1] < p->devices[i];
    if (!sorted) qsort(order, p->n_devices, sizeof *order, compare_devices);
    p->by_device = DS_NEW_N(&b->plan->arena, uint32_t, p->n_devices);
    p->ascending = DS_NEW_N(&b->plan->arena, uint32_t, p->n_devices);
    for (uint32_t i = 0; i < p->n_devices; i++) {
        p->by_device[i] = order[i].position;
        p->ascending[i] = order[i].device;
    }
    free(order);
}

uint32_t ds_plan__intern(ds_builder *b, ds_placement p) {
    uint64_t hash = ds_hash_bytes(p.devices, p.n_devices * sizeof *p.devices);
    for (uint32_t i = 0; i < p.n_axes; i++)
        hash = ds_hash_mix(ds_hash_mix(hash, DS_KEY(p.axes[i])), (uint64_t)p.sizes[i]);
    for (;; hash++) { /* linear probing over hashes: equal ones are told apart by content */
        uint64_t *found = ds_map_find(&b->placement_index, hash);
        if (!found) break;
        if (same_placement(ds_plan__placement(b, (uint32_t)*found), &p)) return (uint32_t)*found;
    }
    uint32_t id = b->plan->placements.n;
    ds_placement *copy = DS_NEW(&b->plan->arena, ds_placement);
    *copy = p;
    index_devices(b, copy);
    DS_PUSH(&b->plan->arena, &b->plan->placements, copy);
    ds_map_put(&b->placement_index, hash, id);
    return id;
}

uint32_t ds_plan__single(ds_builder *b, uint32_t device) {
    uint32_t *devices = DS_NEW(&b->plan->arena, uint32_t);
    *devices = device;
    return ds_plan__intern(b, (ds_placement){.devices = devices, .n_devices = 1});
}

uint32_t ds_plan__devices_in_order(ds_builder *b) {
    uint32_t n = ds_topo_n_devices(b->plan->topo);
    uint32_t *devices = DS_NEW_N(&b->plan->arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) devices[i] = i;
    return ds_plan__intern(b, (ds_placement){.devices = devices, .n_devices = n});
}

/* Declared at one place: a model's step has a copy of the topology of the file that it came from.
 */
static bool is_same(const ds_topology *a, const ds_topology *b) {
    return strcmp(a->name, b->name) == 0 && a->loc.line == b->loc.line &&
           a->loc.col == b->loc.col && a->loc.file && b->loc.file &&
           strcmp(a->loc.file, b->loc.file) == 0;
}

/* Every device is of one kind, and there is no graph. */
static void use_schematic(ds_builder *b) {
    ds_plan *plan = b->plan;
    plan->n_devices = DS_SCHEMATIC_DEVICES;
    plan->kind_of = DS_NEW_N(&plan->arena, uint32_t, plan->n_devices);
    plan->profile_of = DS_NEW_N(&plan->arena, uint32_t, plan->n_devices);
    for (uint32_t d = 0; d < plan->n_devices; d++) {
        plan->kind_of[d] = b->options->schematic->kind;
        plan->profile_of[d] = b->options->schematic->profile;
    }
}

/* The scenario's last profile of the kind, else what the scenario says of kinds without one. */
static ds_status choose_profile(const ds_builder *b, uint32_t kind, ds_loc loc, uint32_t *profile,
                                ds_error *err) {
    bool found = false;
    *profile = 0;
    for (uint32_t p = 0; p < b->n_profiles_used; p++)
        if (ds_profile_kind(b->profiles, b->profiles_used[p]) == kind) {
            *profile = b->profiles_used[p];
            found = true;
        }
    if (found || b->is_ideal) return DS_OK;
    if (b->is_generic) return ds_plan__generic_of(b->profiles, kind, loc, profile, err);
    *profile = ds_profiles_default(b->profiles, kind);
    return DS_OK;
}

/* A kernel that the profile has no fits of would be a word without effect. */
static ds_status check_attention(const ds_builder *b, uint32_t profile, ds_loc loc, ds_error *err) {
    const char *kernel = b->plan->attention_kernel;
    const ds_attr *said = ds_scenario_find(b->unit, "", "attention_kernel");
    ds_buf known = {0};
    if (said) loc = said->loc;
    if (!kernel || ds_profile_has_attention(b->profiles, profile, kernel, &known)) return DS_OK;
    ds_status status =
        known.n
            ? ds_error_set(err, DS_ERR_VALUE, loc,
                           "attention_kernel = %s: profile \"%s\" has fits of %s alone", kernel,
                           ds_profile_name(b->profiles, profile), known.text)
            : ds_error_set(err, DS_ERR_VALUE, loc,
                           "attention_kernel = %s: profile \"%s\" has no fits of single kernels "
                           "of attention; generic profiles have such fits",
                           kernel, ds_profile_name(b->profiles, profile));
    ds_buf_deinit(&known);
    return status;
}

/* Kinds and profiles of all devices of the plan's graph. */
ds_status ds_plan__know_devices(ds_builder *b, ds_loc loc, ds_error *err) {
    uint32_t n = ds_topo_n_devices(b->plan->topo);
    b->plan->n_devices = n;
    b->plan->kind_of = DS_NEW_N(&b->plan->arena, uint32_t, n);
    b->plan->profile_of = DS_NEW_N(&b->plan->arena, uint32_t, n);
    for (uint32_t d = 0; d < n; d++) {
        const char *type = ds_topo_device_type(b->plan->topo, d);
        if (!type)
            return ds_error_set(err, DS_ERR_COST, loc,
                                "device %s of topology @%s names no hardware, so nothing is known "
                                "of its speed: write `device %s : \"A100-SXM4-80GB\"`, say",
                                ds_topo_device_path(b->plan->topo, d), ds_topo_name(b->plan->topo),
                                ds_topo_device_path(b->plan->topo, d));
        if (d && strcmp(type, ds_topo_device_type(b->plan->topo, d - 1)) == 0) {
            b->plan->kind_of[d] = b->plan->kind_of[d - 1];
            b->plan->profile_of[d] = b->plan->profile_of[d - 1];
            continue;
        }
        DS_TRY(ds_profiles_find_kind(b->profiles, type, loc, &b->plan->kind_of[d], err));
        DS_TRY(choose_profile(b, b->plan->kind_of[d], loc, &b->plan->profile_of[d], err));
        DS_TRY(check_attention(b, b->plan->profile_of[d], loc, err));
    }
    for (uint32_t p = 0; p < b->n_profiles_used; p++) {
        bool used = b->profiles_used[p] == 0; /* ideal: of any device */
        for (uint32_t d = 0; d < n && !used; d++)
            used = b->plan->profile_of[d] == b->profiles_used[p];
        if (!used)
            return ds_error_set(
                err, DS_ERR_VALUE, loc,
                "profile \"%s\" is measured on %s, which topology @%s does not have",
                ds_profile_name(b->profiles, b->profiles_used[p]),
                ds_profiles_kind(b->profiles, ds_profile_kind(b->profiles, b->profiles_used[p]))
                    ->name,
                ds_topo_name(b->plan->topo));
    }
    return DS_OK;
}

/* A run has one cluster: the first topology that the program names. */
ds_status ds_plan__use_topology(ds_builder *b, const ds_topology *topology, ds_loc loc,
                                ds_error *err) {
    if (b->topology == topology ||
        (b->topology && b->plan->n_jobs && is_same(b->topology, topology)))
        return DS_OK;
    if (b->topology)
        return ds_error_set(
            err, DS_ERR_UNSUPPORTED, loc,
            "the program spans two topologies, @%s and @%s; a run has one: nest both "
            "in a third",
            b->topology->name, topology->name);
    b->topology = topology;
    if (b->options->schematic) {
        use_schematic(b);
        return DS_OK;
    }
    b->plan->topo = b->options->topo;
    b->plan->borrows_topo = b->options->topo != NULL;
    if (!b->plan->topo) DS_TRY(ds_topo_build(b->binding, topology, &b->plan->topo, err));
    return ds_plan__know_devices(b, topology->loc, err);
}

static ds_status axes_of(ds_builder *b, const ds_mesh *mesh, ds_placement *p, ds_error *err) {
    ds_env env = ds_binding_env(b->binding, NULL);
    p->n_axes = mesh->n_axes;
    p->axes = DS_NEW_N(&b->plan->arena, const char *, mesh->n_axes);
    p->sizes = DS_NEW_N(&b->plan->arena, int64_t, mesh->n_axes);
    int64_t total = 1;
    for (uint32_t i = 0; i < mesh->n_axes; i++) {
        p->axes[i] = mesh->axes[i].name;
        DS_TRY(ds_expr_eval_int(&env, mesh->axes[i].size, mesh->axes[i].loc, &p->sizes[i], err));
        if (p->sizes[i] < 1 || total > INT32_MAX / p->sizes[i])
            return ds_error_set(err, DS_ERR_VALUE, mesh->axes[i].loc,
                                "axis %s of mesh @%s has size %lld", p->axes[i], mesh->name,
                                (long long)p->sizes[i]);
        total *= p->sizes[i];
    }
    p->n_devices = (uint32_t)total;
    return DS_OK;
}

ds_status ds_plan__mesh(ds_builder *b, const ds_mesh *mesh, uint32_t *out, ds_error *err) {
    uint64_t *known = ds_map_find(&b->mesh_index, DS_KEY(mesh));
    if (known) {
        *out = (uint32_t)*known;
        return DS_OK;
    }
    ds_placement p = {0};
    DS_TRY(axes_of(b, mesh, &p, err));
    if (b->options->schematic) {
        if (!b->topology) use_schematic(b);
        p.replica = b->options->schematic->replica;
        p.n_devices = 1;
        p.devices = DS_NEW(&b->plan->arena, uint32_t);
        *p.devices = 0;
        *out = ds_plan__intern(b, p);
        ds_map_put(&b->mesh_index, DS_KEY(mesh), *out);
        return DS_OK;
    }
    const uint32_t *base;
    int64_t n_base, first = 0;
    if (mesh->kind == DS_MESH_ON) {
        const ds_topology *topology = ds_find_topology(mesh->module, mesh->base);
        DS_TRY(ds_plan__use_topology(b, topology, mesh->loc, err));
        const ds_placement *all = ds_plan__placement(b, ds_plan__devices_in_order(b));
        base = all->devices;
        n_base = all->n_devices;
    } else {
        uint32_t id;
        DS_TRY(ds_plan__mesh(b, ds_find_mesh(mesh->module, mesh->base), &id, err));
        base = ds_plan__placement(b, id)->devices;
        n_base = ds_plan__placement(b, id)->n_devices;
    }
    ds_env env = ds_binding_env(b->binding, NULL);
    if (mesh->kind == DS_MESH_PICK) {
        int64_t hi;
        DS_TRY(ds_expr_eval_int(&env, mesh->pick_lo, mesh->loc, &first, err));
        DS_TRY(ds_expr_eval_int(&env, mesh->pick_hi, mesh->loc, &hi, err));
        if (first < 0 || hi > n_base || first >= hi)
            return ds_error_set(err, DS_ERR_VALUE, mesh->loc,
                                "pick %lld..%lld is not a range of the %lld devices of @%s",
                                (long long)first, (long long)hi, (long long)n_base, mesh->base);
        n_base = hi - first;
    }
    if (n_base != p.n_devices || (mesh->n_order && mesh->n_order != p.n_devices))
        return ds_error_set(err, DS_ERR_SHAPE, mesh->loc,
                            "mesh @%s has %u places for %lld devices of @%s%s", mesh->name,
                            p.n_devices, (long long)n_base, mesh->base,
                            mesh->n_order ? " and an order of another length" : "");
    p.devices = DS_NEW_N(&b->plan->arena, uint32_t, p.n_devices);
    for (uint32_t i = 0; i < p.n_devices; i++) {
        int64_t at = i;
        if (mesh->n_order) {
            DS_TRY(ds_expr_eval_int(&env, mesh->order[i], mesh->loc, &at, err));
            if (at < 0 || at >= n_base)
                return ds_error_set(err, DS_ERR_VALUE, mesh->loc,
                                    "order entry %lld is not one of the %lld devices of @%s",
                                    (long long)at, (long long)n_base, mesh->base);
        }
        p.devices[i] = base[first + at];
    }
    *out = ds_plan__intern(b, p);
    ds_plan__find_turn(b, ds_plan__placement(b, *out));
    ds_map_put(&b->mesh_index, DS_KEY(mesh), *out);
    return DS_OK;
}

/* A slice that was asked for before. */
typedef struct ds_slice {
    uint32_t whole, id;
    const int64_t *fixed; /* per axis of the whole: the coordinate, or -1 */
    const struct ds_slice *next;
} ds_slice;

static uint64_t slice_hash(uint32_t whole, const int64_t *fixed, uint32_t n) {
    uint64_t hash = whole;
    for (uint32_t a = 0; a < n; a++) hash = ds_hash_mix(hash, (uint64_t)fixed[a]);
    return hash;
}

static bool find_slice(const ds_builder *b, uint32_t whole, const int64_t *fixed, uint32_t n,
                       uint32_t *out) {
    const uint64_t *found = ds_map_find(&b->slices, slice_hash(whole, fixed, n));
    const ds_slice *s = found ? (const ds_slice *)(uintptr_t)*found : NULL;
    while (s && (s->whole != whole || memcmp(s->fixed, fixed, n * sizeof *fixed) != 0)) s = s->next;
    if (s) *out = s->id;
    return s != NULL;
}

static void add_slice(ds_builder *b, uint32_t whole, const int64_t *fixed, uint32_t n,
                      uint32_t id) {
    uint64_t hash = slice_hash(whole, fixed, n);
    const uint64_t *found = ds_map_find(&b->slices, hash);
    ds_slice *s = DS_NEW(&b->plan->arena, ds_slice);
    *s = (ds_slice){whole, id, fixed, found ? (const ds_slice *)(uintptr_t)*found : NULL};
    ds_map_put(&b->slices, hash, DS_KEY(s));
}

/* Fixes coordinates: keeps the devices whose coordinates match, drops those axes. */
static ds_status slice(ds_builder *b, uint32_t whole, const ds_place *place,
                       const ds_index *indices, uint32_t *out, ds_error *err) {
    const ds_placement *from = ds_plan__placement(b, whole);
    ds_env env = ds_binding_env(b->binding, indices);
    int64_t *fixed = DS_NEW_N(&b->plan->arena, int64_t, from->n_axes);
    for (uint32_t a = 0; a < from->n_axes; a++) fixed[a] = -1;
    for (uint32_t c = 0; c < place->n_coords; c++) {
        int64_t at;
        DS_TRY(ds_expr_eval_int(&env, place->coords[c].at, place->loc, &at, err));
        uint32_t a = 0;
        while (a < from->n_axes && from->axes[a] != place->coords[c].axis) a++;
        int64_t size = a < from->n_axes ? from->sizes[a] : 1; /* a missing axis has size 1 */
        if (at < 0 || at >= size)
            return ds_error_set(err, DS_ERR_VALUE, place->loc,
                                "coordinate %s=%lld is outside @%s, where %s has size %lld",
                                place->coords[c].axis, (long long)at, place->name,
                                place->coords[c].axis, (long long)size);
        if (a < from->n_axes) fixed[a] = at;
    }
    if (find_slice(b, whole, fixed, from->n_axes, out)) return DS_OK;
    ds_placement p = {0};
    p.axes = DS_NEW_N(&b->plan->arena, const char *, from->n_axes);
    p.sizes = DS_NEW_N(&b->plan->arena, int64_t, from->n_axes);
    p.devices = DS_NEW_N(&b->plan->arena, uint32_t, from->n_devices);
    for (uint32_t a = 0; a < from->n_axes; a++)
        if (fixed[a] < 0) {
            p.axes[p.n_axes] = from->axes[a];
            p.sizes[p.n_axes++] = from->sizes[a];
        }
    if (b->options->schematic) {
        int64_t at = 0;
        p.replica = b->options->schematic->replica;
        for (uint32_t a = 0; a < from->n_axes; a++)
            if (fixed[a] >= 0) at = at * from->sizes[a] + fixed[a];
        if (at >= DS_SCHEMATIC_DEVICES)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, place->loc,
                                "more than %u slices in a schematic plan", DS_SCHEMATIC_DEVICES);
        p.devices[p.n_devices++] = (uint32_t)at;
    }
    for (uint32_t i = 0; i < from->n_devices && !b->options->schematic; i++) {
        int64_t rest = i;
        bool keep = true;
        for (uint32_t a = from->n_axes; a-- > 0;) {
            int64_t at = rest % from->sizes[a];
            rest /= from->sizes[a];
            keep = keep && (fixed[a] < 0 || fixed[a] == at);
        }
        if (keep) p.devices[p.n_devices++] = from->devices[i];
    }
    *out = ds_plan__intern(b, p);
    add_slice(b, whole, fixed, from->n_axes, *out);
    return DS_OK;
}

ds_status ds_plan__place(ds_builder *b, const ds_context *ctx, const ds_place *place,
                         const ds_index *indices, uint32_t *out, ds_error *err) {
    if (place->kind == DS_PLACE_NONE) {
        *out = ctx->default_place;
        if (*out == DS_NONE)
            return ds_error_set(err, DS_ERR_SHARDING, ctx->func->loc,
                                "a value of @%s says no place, and the scenario gives none: write "
                                "`on @mesh` in its type, or `mesh = @mesh` in the scenario",
                                ctx->func->name);
        return DS_OK;
    }
    if (place->kind == DS_PLACE_DEVICE) {
        const ds_topology *topology = ds_find_topology(ctx->func->module, place->name);
        if (!topology)
            return ds_error_set(err, DS_ERR_NAME, place->loc, "no topology @%s", place->name);
        DS_TRY(ds_plan__use_topology(b, topology, place->loc, err));
        ds_env env = ds_binding_env(b->binding, indices);
        uint32_t device;
        DS_TRY(ds_topo_find_device(b->plan->topo, &env, place->steps, place->n_steps, place->loc,
                                   &device, err));
        *out = ds_plan__single(b, device);
        return DS_OK;
    }
    uint32_t whole = DS_NONE;
    for (uint32_t i = 0; i < ctx->func->n_mesh_params; i++)
        if (ctx->func->mesh_params[i] == place->name) whole = ctx->mesh_args[i];
    if (whole == DS_NONE) {
        const ds_mesh *mesh = ds_find_mesh(ctx->func->module, place->name);
        if (!mesh) return ds_error_set(err, DS_ERR_NAME, place->loc, "no mesh @%s", place->name);
        DS_TRY(ds_plan__mesh(b, mesh, &whole, err));
    }
    if (!place->n_coords) {
        *out = whole;
        return DS_OK;
    }
    return slice(b, whole, place, indices, out, err);
}

static void split(ds_builder *b, const ds_placement *p, const char *const *axes, uint32_t n,
                  uint32_t **devices, uint32_t *n_groups, uint32_t *group_size) {
    /* group of a position: its coordinates on the other axes; rank in it: those on `axes` */
    int64_t *in_group = DS_NEW_N(&b->plan->arena, int64_t, p->n_axes); /* stride; 0: other axis */
    int64_t size = 1;
    for (uint32_t k = n; k-- > 0;)
        for (uint32_t a = 0; a < p->n_axes; a++)
            if (p->axes[a] == axes[k]) {
                in_group[a] = size;
                size *= p->sizes[a];
            }
    *group_size = (uint32_t)size;
    *n_groups = p->n_devices / *group_size;
    *devices = DS_NEW_N(&b->plan->arena, uint32_t, p->n_devices);
    for (uint32_t i = 0; i < p->n_devices; i++) {
        int64_t rest = i, rank = 0, group = 0, group_stride = 1;
        for (uint32_t a = p->n_axes; a-- > 0;) {
            int64_t at = rest % p->sizes[a];
            rest /= p->sizes[a];
            if (in_group[a]) {
                rank += at * in_group[a];
            } else {
                group += at * group_stride;
                group_stride *= p->sizes[a];
            }
        }
        (*devices)[group * size + rank] = p->devices[i];
    }
}

/* A placement that was split before. */
typedef struct parts {
    uint32_t *devices, n_groups, group_size;
} parts;

void ds_plan__groups(ds_builder *b, const ds_placement *p, const char *const *axes, uint32_t n,
                     uint32_t **devices, uint32_t *n_groups, uint32_t *group_size) {
    uint64_t key = DS_KEY(p);
    for (uint32_t k = 0; k < n; k++) key = ds_hash_mix(key, DS_KEY(axes[k]));
    uint64_t *slot = ds_map_slot(&b->split, key);
    parts *known = (parts *)(uintptr_t)*slot;
    if (!known) {
        known = DS_NEW(&b->plan->arena, parts);
        split(b, p, axes, n, &known->devices, &known->n_groups, &known->group_size);
        *slot = DS_KEY(known);
    }
    *devices = known->devices;
    *n_groups = known->n_groups;
    *group_size = known->group_size;
}
