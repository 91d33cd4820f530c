/* Devices of topologies and meshes; axes that are declared. */
#include "ir/core/devices.h"

#include "ir/base/units.h"

#include <string.h>

/* ---- axes ---- */

const char *const ds_builtin_axes[DS_N_BUILTIN_AXES] = {"pp", "dp", "cp", "tp", "ep"};
bool ds_axis_is_builtin(const char *name) {
    for (uint32_t i = 0; i < DS_N_BUILTIN_AXES; i++)
        if (strcmp(ds_builtin_axes[i], name) == 0) return true;
    return false;
}

/* The loader keeps imports acyclic, but imports may form a diamond of diamonds, so a limit on depth
 * bounds the walk. A second visit of a module is harmless. */
static bool declares_axis(const ds_module *module, const char *name, uint32_t depth) {
    for (uint32_t i = 0; i < module->axes.n; i++)
        if (module->axes.at[i].name == name) return true;
    for (uint32_t i = 0; i < module->imports.n && depth; i++) {
        const ds_module *imported = module->imports.at[i].module;
        if (imported && declares_axis(imported, name, depth - 1)) return true;
    }
    return false;
}

bool ds_axis_is_declared(const ds_module *module, const char *name) {
    return ds_axis_is_builtin(name) || declares_axis(module, name, DS_MAX_IMPORT_DEPTH);
}

/* ---- topologies ---- */

/* Topologies that were looked at, each once: instances may form a diamond of diamonds, or a circle.
 */
typedef struct type_list {
    const ds_topology *seen[256];
    uint32_t n_seen, n, most;
    const char **types;
} type_list;

static void add_type(type_list *list, const char *type) {
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->types[i], type) == 0) return;
    if (list->n < list->most) list->types[list->n++] = type;
}

static void list_types(type_list *list, const ds_topology *topology) {
    for (uint32_t i = 0; i < list->n_seen; i++)
        if (list->seen[i] == topology) return;
    if (!topology || list->n_seen == sizeof list->seen / sizeof *list->seen) return;
    list->seen[list->n_seen++] = topology;
    for (uint32_t i = 0; i < topology->nodes.n; i++) {
        const ds_node_decl *node = &topology->nodes.at[i];
        if (node->type_name && node->kind == DS_NODE_DEVICE) add_type(list, node->type_name);
        if (node->type_name && node->kind == DS_NODE_INSTANCE)
            list_types(list, ds_find_topology(topology->module, node->type_name));
    }
}

uint32_t ds_topology_device_types(const ds_topology *topology, const char **types, uint32_t most) {
    type_list list = {.most = most, .types = types};
    list_types(&list, topology);
    return list.n;
}

typedef struct counter {
    ds_env env;
    ds_map done; /* topology → devices; OPEN while counting */
    uint32_t depth;
    ds_error *err;
} counter;

#define OPEN UINT64_MAX

static ds_status count_topology(counter *c, const ds_topology *topology, ds_loc loc, int64_t *out);

static ds_status count_node(counter *c, const ds_topology *topology, const ds_node_decl *node,
                            int64_t *out) {
    int64_t count = 1, inside = 1;
    *out = 0;
    if (DS_HAS_EXPR(node->count))
        DS_TRY(ds_expr_eval_int(&c->env, node->count, node->loc, &count, c->err));
    if (count < 0)
        return ds_error_set(c->err, DS_ERR_VALUE, node->loc, "the count of '%s' is %lld, below 0",
                            node->name, (long long)count);
    if (node->kind == DS_NODE_INSTANCE) {
        const ds_topology *inner = ds_find_topology(topology->module, node->type_name);
        if (!inner)
            return ds_error_set(c->err, DS_ERR_NAME, node->loc, "unknown topology @%s",
                                node->type_name);
        DS_TRY(count_topology(c, inner, node->loc, &inside));
    } else if (node->kind != DS_NODE_DEVICE) {
        return DS_OK;
    }
    if (!ds_mul_i64(count, inside, out))
        return ds_error_set(c->err, DS_ERR_OVERFLOW, node->loc,
                            "%lld times %lld devices in '%s' are beyond 64 bits", (long long)count,
                            (long long)inside, node->name);
    return DS_OK;
}

static ds_status count_topology(counter *c, const ds_topology *topology, ds_loc loc, int64_t *out) {
    const uint64_t *known = ds_map_find(&c->done, DS_KEY(topology));
    if (known && *known == OPEN)
        return ds_error_set(c->err, DS_ERR_NAME, loc, "topology @%s contains itself",
                            topology->name);
    if (known) {
        *out = (int64_t)*known;
        return DS_OK;
    }
    if (c->depth == DS_MAX_TOPOLOGY_NESTING)
        return ds_error_set(c->err, DS_ERR_LIMIT, loc, "topologies nest more than %d deep at @%s",
                            DS_MAX_TOPOLOGY_NESTING, topology->name);
    c->depth++;
    ds_map_put(&c->done, DS_KEY(topology), OPEN);
    int64_t sum = 0;
    for (uint32_t i = 0; i < topology->nodes.n; i++) {
        int64_t n;
        DS_TRY(count_node(c, topology, &topology->nodes.at[i], &n));
        if (!ds_add_i64(sum, n, &sum))
            return ds_error_set(c->err, DS_ERR_OVERFLOW, topology->loc,
                                "the devices of @%s are beyond 64 bits", topology->name);
    }
    c->depth--;
    ds_map_put(&c->done, DS_KEY(topology), (uint64_t)sum);
    *out = sum;
    return DS_OK;
}

ds_status ds_topology_count_devices(const ds_binding *binding, const ds_topology *topology,
                                    int64_t *n, ds_error *err) {
    counter c = {.env = ds_binding_env(binding, NULL), .err = err};
    ds_map_init(&c.done);
    ds_status status = count_topology(&c, topology, topology->loc, n);
    ds_map_deinit(&c.done);
    return status;
}

/* ---- meshes ---- */

ds_status ds_mesh_axis_sizes(const ds_binding *binding, const ds_mesh *mesh, int64_t *sizes,
                             ds_error *err) {
    ds_env env = ds_binding_env(binding, NULL);
    int64_t product = 1;
    for (uint32_t i = 0; i < mesh->n_axes; i++) {
        const ds_mesh_axis *axis = &mesh->axes[i];
        DS_TRY(ds_expr_eval_int(&env, axis->size, axis->loc, &sizes[i], err));
        if (sizes[i] < 1)
            return ds_error_set(err, DS_ERR_VALUE, axis->loc,
                                "axis %s of mesh @%s has size %lld; an axis has at least 1 device",
                                axis->name, mesh->name, (long long)sizes[i]);
        if (!ds_mul_i64(product, sizes[i], &product))
            return ds_error_set(err, DS_ERR_OVERFLOW, axis->loc,
                                "the axes of mesh @%s multiply to more than 64 bits hold",
                                mesh->name);
    }
    return DS_OK;
}

#define MAX_MESH_CHAIN 64

static ds_status count_mesh(const ds_binding *binding, const ds_mesh *mesh, uint32_t depth,
                            int64_t *n, ds_error *err) {
    if (mesh->kind == DS_MESH_PICK) {
        ds_env env = ds_binding_env(binding, NULL);
        int64_t lo, hi;
        DS_TRY(ds_expr_eval_int(&env, mesh->pick_lo, mesh->loc, &lo, err));
        DS_TRY(ds_expr_eval_int(&env, mesh->pick_hi, mesh->loc, &hi, err));
        if (lo < 0 || lo >= hi)
            return ds_error_set(err, DS_ERR_VALUE, mesh->loc,
                                "pick %lld..%lld takes no devices: the range must begin at 0 or "
                                "above and end beyond its begin",
                                (long long)lo, (long long)hi);
        *n = hi - lo;
        return DS_OK;
    }
    if (mesh->kind == DS_MESH_ON) {
        const ds_topology *topology = ds_find_topology(mesh->module, mesh->base);
        if (topology) return ds_topology_count_devices(binding, topology, n, err);
        return ds_error_set(err, DS_ERR_NAME, mesh->loc, "unknown topology @%s", mesh->base);
    }
    const ds_mesh *base = ds_find_mesh(mesh->module, mesh->base);
    if (!base) return ds_error_set(err, DS_ERR_NAME, mesh->loc, "unknown mesh @%s", mesh->base);
    if (!depth)
        return ds_error_set(err, DS_ERR_LIMIT, mesh->loc,
                            "mesh @%s is a view of a view of … more than %d deep", mesh->name,
                            MAX_MESH_CHAIN);
    return count_mesh(binding, base, depth - 1, n, err);
}

ds_status ds_mesh_count_devices(const ds_binding *binding, const ds_mesh *mesh, int64_t *n,
                                ds_error *err) {
    return count_mesh(binding, mesh, MAX_MESH_CHAIN, n, err);
}

ds_status ds_mesh_device_at(const ds_binding *binding, const ds_mesh *mesh, int64_t i, int64_t *out,
                            ds_error *err) {
    ds_env env = ds_binding_env(binding, NULL);
    *out = i;
    for (uint32_t depth = 0; mesh && depth < MAX_MESH_CHAIN; depth++) {
        int64_t lo = 0;
        if (mesh->n_order && *out >= mesh->n_order)
            return ds_error_set(err, DS_ERR_SHAPE, mesh->loc, "mesh @%s has an order of %u devices",
                                mesh->name, mesh->n_order);
        if (mesh->n_order) DS_TRY(ds_expr_eval_int(&env, mesh->order[*out], mesh->loc, out, err));
        if (mesh->kind == DS_MESH_PICK)
            DS_TRY(ds_expr_eval_int(&env, mesh->pick_lo, mesh->loc, &lo, err));
        if (*out < 0 || !ds_add_i64(*out, lo, out) || *out < 0)
            return ds_error_set(err, DS_ERR_VALUE, mesh->loc, "mesh @%s has no device %lld",
                                mesh->name, (long long)i);
        mesh = mesh->kind == DS_MESH_ON ? NULL : ds_find_mesh(mesh->module, mesh->base);
    }
    return DS_OK;
}
