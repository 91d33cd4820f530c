/* How many devices topologies and meshes have, by the params' values alone. */
#ifndef DS_CORE_DEVICES_H
#define DS_CORE_DEVICES_H

#include "ir/core/ir.h"

/* The size of each axis, in the order of mesh->axes, all at least 1, their product within int64.
 * Errors: DS_ERR_VALUE, DS_ERR_OVERFLOW, evaluation. O(axes). */
ds_status ds_mesh_axis_sizes(const ds_binding *binding, const ds_mesh *mesh, int64_t *sizes,
                             ds_error *err);

/* The number of devices of a topology: sum over its nodes of count × (1 for a device, the devices
 * of the nested topology for an instance), without building it. Errors: a negative count
 * (DS_ERR_VALUE), beyond int64 (DS_ERR_OVERFLOW), an unknown or recursive instance (DS_ERR_NAME).
 * O(nodes × nesting paths). */
ds_status ds_topology_count_devices(const ds_binding *binding, const ds_topology *topology,
                                    int64_t *n, ds_error *err);

/* Hardware names of the devices that the topology declares, those of nested topologies too, each
 * once; at most `most`. Returns their number. Devices without a name, and topologies that nest too
 * deep, have none. O(declarations). */
uint32_t ds_topology_device_types(const ds_topology *topology, const char **types, uint32_t most);

/* The number of devices that a mesh covers: all devices of its topology, of the viewed mesh, or hi
 * − lo of a pick. */
ds_status ds_mesh_count_devices(const ds_binding *binding, const ds_mesh *mesh, int64_t *n,
                                ds_error *err);

/* The place of a mesh's device i among the devices of its topology, in order of declaration. Errors:
 * evaluation, a device that the mesh's base lacks. O(meshes that it is made of). */
ds_status ds_mesh_device_at(const ds_binding *binding, const ds_mesh *mesh, int64_t i, int64_t *out,
                            ds_error *err);

/* Is `name` a mesh axis here: one of pp, dp, cp, tp, ep, or declared by `axis NAME` in `module` or
 * in its imports? */
bool ds_axis_is_declared(const ds_module *module, const char *name);

/* pp, dp, cp, tp and ep: axes that no module needs to declare. */
#define DS_N_BUILTIN_AXES 5
extern const char *const ds_builtin_axes[DS_N_BUILTIN_AXES];
bool ds_axis_is_builtin(const char *name);

/* Topologies that nest deeper are refused. */
#define DS_MAX_TOPOLOGY_NESTING 64
/* Imports through which a name is looked up. */
#define DS_MAX_IMPORT_DEPTH 16

#endif
