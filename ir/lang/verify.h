/* The verifier: names, SSA, arity, types, shapes, shardings, collectives, recursion.
 *
 * It reports everything it finds and goes on. Values whose type could not be found are left without
 * one and cause no further reports. */
#ifndef DS_LANG_VERIFY_H
#define DS_LANG_VERIFY_H

#include "ir/base/diag.h"
#include "ir/core/ir.h"

/* Resolves names and infers every value's type, symbolically; checks what does not need numbers.
 * Returns DS_OK iff no error was added, else the first error's status. Idempotent.
 * O(size of the unit). */
ds_status ds_verify(ds_unit *unit, ds_diags *diags);

/* Checks what needs the params' values: divisibility, ranges, shapes that were not decidable.
 * Loops whose body depends on the index are checked at every index, up to DS_VERIFY_MAX_TURNS turns
 * a nest; beyond that, at the first and last few of each loop. Call after ds_verify succeeded. */
ds_status ds_verify_bound(ds_unit *unit, const ds_binding *binding, ds_diags *diags);

#define DS_VERIFY_MAX_TURNS 4096

/* ---- what needs only the params' values; used by the simulator too ---- */

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

/* The number of devices that a mesh covers: those of its topology, of the viewed mesh, or hi − lo
 * of a pick. */
ds_status ds_mesh_count_devices(const ds_binding *binding, const ds_mesh *mesh, int64_t *n,
                                ds_error *err);

/* Is `name` a mesh axis here: one of pp, dp, cp, tp, ep, or declared by `axis NAME` in `module` or
 * in what it imports? */
bool ds_axis_is_declared(const ds_module *module, const char *name);

#endif
