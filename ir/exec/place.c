/* Meshes, slices and single devices as lists of numbers. */
#include "ir/exec/place.h"

#include "ir/base/units.h"
#include "ir/core/devices.h"
#include "ir/ops/ops.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES (INT64_C(1) << 20) /* of one placement: exec holds a tensor a device */

void ds_exec_places_init(ds_exec_places *places, const ds_binding *binding) {
    *places = (ds_exec_places){.binding = binding};
    ds_arena_init(&places->arena);
    ds_map_init(&places->mesh_index);
}

void ds_exec_places_deinit(ds_exec_places *places) {
    ds_map_deinit(&places->mesh_index);
    ds_arena_deinit(&places->arena);
}

/* ---- interning ---- */

static bool same_place(const ds_exec_place *a, const ds_exec_place *b) {
    if (a->n_axes != b->n_axes || a->n_devices != b->n_devices) return false;
    for (uint32_t i = 0; i < a->n_axes; i++)
        if (a->axes[i] != b->axes[i] || a->sizes[i] != b->sizes[i]) return false;
    return memcmp(a->devices, b->devices, a->n_devices * sizeof *a->devices) == 0;
}

/* `p`'s arrays are copied if it is new. */
static const ds_exec_place *intern(ds_exec_places *places, ds_exec_place p) {
    for (uint32_t i = 0; i < places->all.n; i++)
        if (same_place(places->all.at[i], &p)) return places->all.at[i];
    ds_arena *arena = &places->arena;
    ds_exec_place *copy = DS_NEW(arena, ds_exec_place);
    *copy = (ds_exec_place){.n_axes = p.n_axes, .n_devices = p.n_devices};
    copy->axes = DS_NEW_N(arena, const char *, p.n_axes + 1);
    copy->sizes = DS_NEW_N(arena, int64_t, p.n_axes + 1);
    copy->devices = DS_NEW_N(arena, uint64_t, p.n_devices);
    for (uint32_t a = 0; a < p.n_axes; a++) {
        copy->axes[a] = p.axes[a];
        copy->sizes[a] = p.sizes[a];
    }
    memcpy(copy->devices, p.devices, p.n_devices * sizeof *p.devices);
    DS_PUSH(arena, &places->all, copy);
    return copy;
}

static const ds_exec_place *single(ds_exec_places *places, uint64_t device) {
    return intern(places, (ds_exec_place){.devices = &device, .n_devices = 1});
}

static uint64_t first_of(ds_exec_places *places, const ds_topology *topology) {
    uint32_t i = 0;
    while (i < places->topologies.n && places->topologies.at[i] != topology) i++;
    if (i == places->topologies.n) DS_PUSH(&places->arena, &places->topologies, topology);
    return (uint64_t)i << 40;
}

const ds_exec_place *ds_exec_place_first(ds_exec_places *places, const ds_topology *topology) {
    return single(places, first_of(places, topology));
}

const ds_exec_place *ds_exec_place_at(ds_exec_places *places, const ds_exec_place *place,
                                      uint32_t position) {
    return single(places, place->devices[position]);
}

/* ---- meshes ---- */

static ds_status too_many(int64_t n, ds_loc loc, ds_error *err) {
    return ds_error_set(err, DS_ERR_LIMIT, loc, "%lld devices: exec works on at most %lld",
                        (long long)n, (long long)MAX_DEVICES);
}

ds_status ds_exec_place_all(ds_exec_places *places, const ds_topology *topology,
                            const ds_exec_place **out, ds_error *err) {
    int64_t n;
    DS_TRY(ds_topology_count_devices(places->binding, topology, &n, err));
    if (n > MAX_DEVICES) return too_many(n, topology->loc, err);
    const char *no_name = NULL;
    ds_exec_place p = {.axes = &no_name, .sizes = &n, .n_axes = 1, .n_devices = (uint32_t)n};
    p.devices = ds_xcalloc((size_t)n + 1, sizeof *p.devices);
    for (uint32_t i = 0; i < p.n_devices; i++) p.devices[i] = first_of(places, topology) + i;
    *out = intern(places, p);
    free(p.devices);
    return DS_OK;
}

static ds_status axes_of(ds_exec_places *places, const ds_mesh *mesh, ds_exec_place *p,
                         ds_error *err) {
    if (mesh->n_axes > DS_EXEC_MAX_AXES)
        return ds_error_set(err, DS_ERR_LIMIT, mesh->loc, "mesh @%s has %u axes; at most %d",
                            mesh->name, mesh->n_axes, DS_EXEC_MAX_AXES);
    p->n_axes = mesh->n_axes;
    p->axes = DS_NEW_N(&places->arena, const char *, mesh->n_axes);
    p->sizes = DS_NEW_N(&places->arena, int64_t, mesh->n_axes);
    DS_TRY(ds_mesh_axis_sizes(places->binding, mesh, p->sizes, err));
    int64_t total = 1;
    for (uint32_t i = 0; i < mesh->n_axes; i++) {
        p->axes[i] = mesh->axes[i].name;
        total *= p->sizes[i]; /* within int64, as ds_mesh_axis_sizes has checked */
    }
    if (total > MAX_DEVICES) return too_many(total, mesh->loc, err);
    p->n_devices = (uint32_t)total;
    return DS_OK;
}

/* The devices that a mesh chooses from: all of its base, or the picked range. */
static ds_status base_of(ds_exec_places *places, const ds_mesh *mesh, const uint64_t **devices,
                         int64_t *n, ds_error *err) {
    const ds_exec_place *base;
    if (mesh->kind == DS_MESH_ON) {
        const ds_topology *topology = ds_find_topology(mesh->module, mesh->base);
        if (!topology)
            return ds_error_set(err, DS_ERR_NAME, mesh->loc, "no topology @%s", mesh->base);
        DS_TRY(ds_exec_place_all(places, topology, &base, err));
    } else {
        const ds_mesh *from = ds_find_mesh(mesh->module, mesh->base);
        if (!from) return ds_error_set(err, DS_ERR_NAME, mesh->loc, "no mesh @%s", mesh->base);
        DS_TRY(ds_exec_place_mesh(places, from, &base, err));
    }
    *devices = base->devices;
    *n = base->n_devices;
    if (mesh->kind != DS_MESH_PICK) return DS_OK;
    ds_env env = ds_binding_env(places->binding, NULL);
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, mesh->pick_lo, mesh->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, mesh->pick_hi, mesh->loc, &hi, err));
    if (lo < 0 || hi > *n || lo >= hi)
        return ds_error_set(err, DS_ERR_VALUE, mesh->loc,
                            "pick %lld..%lld is not a range of the %lld devices of @%s",
                            (long long)lo, (long long)hi, (long long)*n, mesh->base);
    *devices += lo;
    *n = hi - lo;
    return DS_OK;
}

ds_status ds_exec_place_mesh(ds_exec_places *places, const ds_mesh *mesh, const ds_exec_place **out,
                             ds_error *err) {
    const uint64_t *known = ds_map_find(&places->mesh_index, DS_KEY(mesh));
    if (known) {
        *out = places->all.at[*known];
        return DS_OK;
    }
    ds_exec_place p = {0};
    const uint64_t *base = NULL;
    int64_t n_base = 0;
    DS_TRY(axes_of(places, mesh, &p, err));
    DS_TRY(base_of(places, mesh, &base, &n_base, err));
    bool order_fits = !mesh->n_order || mesh->n_order == p.n_devices;
    if (n_base < p.n_devices || !order_fits)
        return ds_error_set(err, DS_ERR_SHAPE, mesh->loc,
                            "mesh @%s has %u places for %lld devices of @%s%s", mesh->name,
                            p.n_devices, (long long)n_base, mesh->base,
                            order_fits ? "" : " and an order of another length");
    p.devices = DS_NEW_N(&places->arena, uint64_t, p.n_devices);
    ds_env env = ds_binding_env(places->binding, NULL);
    for (uint32_t i = 0; i < p.n_devices; i++) {
        int64_t at = i;
        if (mesh->n_order) DS_TRY(ds_expr_eval_int(&env, mesh->order[i], mesh->loc, &at, err));
        if (at < 0 || at >= n_base)
            return ds_error_set(err, DS_ERR_VALUE, mesh->loc,
                                "order entry %lld is not one of the %lld devices of @%s",
                                (long long)at, (long long)n_base, mesh->base);
        p.devices[i] = base[at];
    }
    *out = intern(places, p);
    for (uint32_t i = 0; i < places->all.n; i++)
        if (places->all.at[i] == *out) ds_map_put(&places->mesh_index, DS_KEY(mesh), i);
    return DS_OK;
}

/* ---- places ---- */

/* Keeps the devices whose coordinates are those given, and drops the axes given. */
static ds_status slice(ds_exec_places *places, const ds_exec_place *from, const ds_place *place,
                       const ds_index *indices, const ds_exec_place **out, ds_error *err) {
    ds_env env = ds_binding_env(places->binding, indices);
    int64_t fixed[DS_EXEC_MAX_AXES];
    for (uint32_t a = 0; a < from->n_axes; a++) fixed[a] = -1;
    for (uint32_t c = 0; c < place->n_coords; c++) {
        int64_t at, size = ds_exec_axis_size(from, place->coords[c].axis);
        uint32_t a = ds_exec_axis(from, place->coords[c].axis);
        DS_TRY(ds_expr_eval_int(&env, place->coords[c].at, place->loc, &at, err));
        if (at < 0 || at >= size)
            return ds_error_set(err, DS_ERR_VALUE, place->loc,
                                "coordinate %s=%lld is outside @%s, where %s has size %lld",
                                place->coords[c].axis, (long long)at, place->name,
                                place->coords[c].axis, (long long)size);
        if (a < from->n_axes) fixed[a] = at;
    }
    const char *axes[DS_EXEC_MAX_AXES];
    int64_t sizes[DS_EXEC_MAX_AXES];
    ds_exec_place p = {.axes = axes, .sizes = sizes};
    p.devices = ds_xcalloc(from->n_devices, sizeof *p.devices);
    for (uint32_t a = 0; a < from->n_axes; a++) {
        if (fixed[a] >= 0) continue;
        p.axes[p.n_axes] = from->axes[a];
        p.sizes[p.n_axes++] = from->sizes[a];
    }
    for (uint32_t i = 0; i < from->n_devices; i++) {
        bool keep = true;
        for (uint32_t a = 0; a < from->n_axes; a++)
            keep = keep && (fixed[a] < 0 || fixed[a] == ds_exec_coordinate(from, a, i));
        if (keep) p.devices[p.n_devices++] = from->devices[i];
    }
    *out = intern(places, p);
    free(p.devices);
    return DS_OK;
}

/* The number of the first device at the end of a path: those declared before it, level by level. */
static ds_status device_number(ds_exec_places *places, const ds_topology *topology,
                               const ds_place *place, const ds_index *indices, uint64_t *out,
                               ds_error *err) {
    ds_env env = ds_binding_env(places->binding, indices);
    ds_env counts = ds_binding_env(places->binding, NULL);
    int64_t before = 0;
    const ds_topology *inside = topology;
    for (uint32_t s = 0; s < place->n_steps; s++) {
        const ds_step *step = &place->steps[s];
        const ds_node_decl *found = NULL;
        int64_t index = 0, each = 1, count = 1;
        for (uint32_t i = 0; inside && i < inside->nodes.n && !found; i++) {
            const ds_node_decl *node = &inside->nodes.at[i];
            const ds_topology *child = NULL;
            count = 1;
            each = node->kind == DS_NODE_DEVICE;
            if (DS_HAS_EXPR(node->count))
                DS_TRY(ds_expr_eval_int(&counts, node->count, node->loc, &count, err));
            if (node->kind == DS_NODE_INSTANCE) {
                child = ds_find_topology(inside->module, node->type_name);
                if (!child)
                    return ds_error_set(err, DS_ERR_NAME, node->loc, "no topology @%s",
                                        node->type_name);
                DS_TRY(ds_topology_count_devices(places->binding, child, &each, err));
            }
            if (node->name == step->name) {
                found = node;
                inside = child;
            } else {
                before += count * each; /* within the count of the whole, which is in int64 */
            }
        }
        if (!found)
            return ds_error_set(err, DS_ERR_NAME, place->loc, "@%s has no device at '%s'",
                                place->name, step->name);
        if (DS_HAS_EXPR(step->index))
            DS_TRY(ds_expr_eval_int(&env, step->index, place->loc, &index, err));
        if (index < 0 || index >= count)
            return ds_error_set(err, DS_ERR_VALUE, place->loc, "@%s.%s[%lld]: there are %lld",
                                place->name, step->name, (long long)index, (long long)count);
        before += index * each;
        if (s + 1 == place->n_steps && each != 1)
            return ds_error_set(err, DS_ERR_NAME, place->loc,
                                "@%s at '%s' is %lld devices: name one of them", place->name,
                                step->name, (long long)each);
    }
    *out = first_of(places, topology) + (uint64_t)before;
    return DS_OK;
}

ds_status ds_exec_place_of(ds_exec_places *places, const ds_exec_scope *scope,
                           const ds_place *place, const ds_index *indices,
                           const ds_exec_place **out, ds_error *err) {
    const ds_func *func = scope->func;
    if (place->kind == DS_PLACE_NONE) {
        *out = scope->here;
        return DS_OK;
    }
    if (place->kind == DS_PLACE_DEVICE) {
        const ds_topology *topology = ds_find_topology(func->module, place->name);
        uint64_t device = 0;
        if (!topology)
            return ds_error_set(err, DS_ERR_NAME, place->loc, "no topology @%s", place->name);
        DS_TRY(device_number(places, topology, place, indices, &device, err));
        *out = single(places, device);
        return DS_OK;
    }
    const ds_exec_place *whole = NULL;
    for (uint32_t i = 0; i < func->n_mesh_params; i++)
        if (func->mesh_params[i] == place->name) whole = scope->mesh_args[i];
    if (!whole) {
        const ds_mesh *mesh = ds_find_mesh(func->module, place->name);
        if (!mesh) return ds_error_set(err, DS_ERR_NAME, place->loc, "no mesh @%s", place->name);
        DS_TRY(ds_exec_place_mesh(places, mesh, &whole, err));
    }
    *out = whole;
    return place->n_coords ? slice(places, whole, place, indices, out, err) : DS_OK;
}

/* ---- coordinates ---- */

uint32_t ds_exec_axis(const ds_exec_place *place, const char *axis) {
    uint32_t a = 0;
    while (a < place->n_axes && place->axes[a] != axis) a++;
    return a;
}

int64_t ds_exec_axis_size(const ds_exec_place *place, const char *axis) {
    uint32_t a = ds_exec_axis(place, axis);
    return a < place->n_axes ? place->sizes[a] : 1;
}

int64_t ds_exec_coordinate(const ds_exec_place *place, uint32_t axis, uint32_t position) {
    int64_t rest = position;
    for (uint32_t a = place->n_axes; a-- > axis + 1;) rest /= place->sizes[a];
    return axis < place->n_axes ? rest % place->sizes[axis] : 0;
}

uint32_t ds_exec_position(const ds_exec_place *place, uint64_t device) {
    for (uint32_t i = 0; i < place->n_devices; i++)
        if (place->devices[i] == device) return i;
    return UINT32_MAX;
}

void ds_exec_device_text(const ds_exec_place *place, uint32_t position, ds_buf *out) {
    uint64_t device = place->devices[position] & ((UINT64_C(1) << 40) - 1);
    ds_buf_printf(out, "device %llu", (unsigned long long)device);
    const char *gap = " (";
    for (uint32_t a = 0; a < place->n_axes; a++) {
        if (!place->axes[a]) continue;
        ds_buf_printf(out, "%s%s=%lld", gap, place->axes[a],
                      (long long)ds_exec_coordinate(place, a, position));
        gap = ", ";
    }
    if (*gap == ',') ds_buf_putc(out, ')');
}

/* ---- places whose devices meet ---- */

/* The next axis from *at on that is larger than 1; n_axes: none. */
static uint32_t next_axis(const ds_exec_place *place, uint32_t *at) {
    while (*at < place->n_axes && place->sizes[*at] == 1) ++*at;
    return *at < place->n_axes ? (*at)++ : place->n_axes;
}

static bool same_axes(const ds_exec_place *a, const ds_exec_place *b) {
    for (uint32_t i = 0, k = 0;;) {
        uint32_t x = next_axis(a, &i), y = next_axis(b, &k);
        if (x == a->n_axes || y == b->n_axes) return x == a->n_axes && y == b->n_axes;
        if (a->axes[x] != b->axes[y] || a->sizes[x] != b->sizes[y]) return false;
    }
}

static void put_shape(const ds_exec_place *place, ds_buf *out) {
    const char *gap = "[";
    for (uint32_t at = 0, a; (a = next_axis(place, &at)) < place->n_axes; gap = ", ")
        ds_buf_printf(out, "%s%s = %lld", gap, place->axes[a] ? place->axes[a] : "devices",
                      (long long)place->sizes[a]);
    ds_buf_put(out, *gap == '[' ? "[]" : "]");
}

static ds_status other_shape(const ds_exec_place *a, const ds_exec_place *b, const ds_op *op,
                             ds_error *err) {
    ds_buf text = {0};
    put_shape(a, &text);
    ds_buf_put(&text, " and ");
    put_shape(b, &text);
    ds_status status =
        ds_error_set(err, DS_ERR_SHARDING, op->loc,
                     "%s across: slices %s have different shapes; their i-th devices form a group",
                     ds_op_name(op->code), text.text);
    ds_buf_deinit(&text);
    return status;
}

static ds_status twice(const ds_exec_place *place, uint32_t position, const ds_op *op,
                       ds_error *err) {
    ds_buf text = {0};
    ds_exec_device_text(place, position, &text);
    ds_status status =
        ds_error_set(err, DS_ERR_SHARDING, op->loc, "%s across: %s is in two of the slices",
                     ds_op_name(op->code), text.text);
    ds_buf_deinit(&text);
    return status;
}

static bool same_devices(const ds_exec_place *a, const ds_exec_place *b) {
    return memcmp(a->devices, b->devices, a->n_devices * sizeof *a->devices) == 0;
}

/* A root may be one of those that it sends to or gathers from, then at the same positions. */
ds_status ds_exec_places_across(const ds_exec_place *const *places, uint32_t n_in, uint32_t n,
                                uint64_t device, const ds_op *op, uint32_t *at, ds_error *err) {
    uint32_t first = n;
    *at = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        if (!same_axes(places[0], places[i])) return other_shape(places[0], places[i], op, err);
        uint32_t here = ds_exec_position(places[i], device);
        if (here == UINT32_MAX) continue;
        bool rooted = first < n_in && i >= n_in && same_devices(places[first], places[i]);
        if (first < n && !rooted) return twice(places[i], here, op, err);
        first = i;
        *at = here;
    }
    return DS_OK;
}
