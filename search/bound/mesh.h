/* The place of a strategy's devices on a topology, as far as lower bounds need the place.
 *
 * A ds_bound_machine belongs to one topology and keeps every answer. */
#ifndef DS_SEARCH_BOUND_MESH_H
#define DS_SEARCH_BOUND_MESH_H

#include "search/space/eval.h"
#include "sim/topo/topo.h"

typedef struct ds_bound_machine ds_bound_machine;

/* The topology of the scenario of a bound unit; NULL: devices of several kinds, something degraded,
 * or a topology that cannot be built. O(vertices + links). */
ds_bound_machine *ds_bound_machine_new(const ds_binding *binding, const ds_profiles *profiles);
void ds_bound_machine_free(ds_bound_machine *machine);
int64_t ds_bound_machine_capacity(const ds_bound_machine *machine); /* of a device; 0: not known */
/* … that the driver and a process take of a device beside tensors. */
int64_t ds_bound_machine_process(const ds_bound_machine *machine);
const char *ds_bound_machine_device(const ds_bound_machine *machine); /* its kind, as written */
int64_t ds_bound_machine_devices(const ds_bound_machine *machine);

/* Devices in the order of the axes `order` ("pp dp cp tp"). */
typedef struct ds_bound_mesh {
    int64_t dp, tp, pp, cp;
    const char *order; /* interned */
} ds_bound_mesh;

/* The least time that a transfer over tp and cp takes alone in any group, by the fastest algorithm.
 * Groups that are images of each other under automorphisms of the topology count once; 0 if too
 * many groups differ. O(devices) once. */
int64_t ds_bound_mesh_transfer_ps(ds_bound_machine *machine, const ds_bound_mesh *mesh,
                                  ds_opcode op, int64_t bytes);
/* A key of the groups over tp and cp by their places on the topology; 0: not known. */
uint64_t ds_bound_mesh_group(ds_bound_machine *machine, const ds_bound_mesh *mesh);

/* Seconds a byte from a device to its host, or back, for the fastest pair; 0: not known. */
double ds_bound_machine_host_per_byte(ds_bound_machine *machine, bool back);

/* Seconds a byte for the first replicas to reduce or gather over dp and cp, by the fastest
 * algorithm for `most` bytes; fewer bytes take no less a byte. 0 for one replica. O(dp·cp) once. */
double ds_bound_mesh_per_byte(ds_bound_machine *machine, const ds_bound_mesh *mesh, ds_opcode op,
                              int64_t most);

/* sends[s]: the time of `bytes` from stage 0 by way of each stage to stage s, between the stages'
 * first devices; sends[pp + s]: the same way back. O(pp) once. */
const int64_t *ds_bound_mesh_sends(ds_bound_machine *machine, const ds_bound_mesh *mesh,
                                   int64_t bytes);

/* The time of `bytes` from the first device of the first stage to that of the last stage. */
int64_t ds_bound_mesh_across_ps(ds_bound_machine *machine, const ds_bound_mesh *mesh,
                                int64_t bytes);

#endif
