/* Where a strategy's devices lie on a topology, as far as lower bounds look at it.
 *
 * One of these belongs to a topology; what it is asked for once it keeps. */
#ifndef DS_SEARCH_BOUND_MESH_H
#define DS_SEARCH_BOUND_MESH_H

#include "search/space/eval.h"
#include "sim/topo/topo.h"

typedef struct ds_bound_machine ds_bound_machine;

/* The topology of the scenario of a bound unit; NULL: its devices are of several kinds, or are
 * degraded, or it cannot be built. O(vertices + links). */
ds_bound_machine *ds_bound_machine_new(const ds_binding *binding, const ds_profiles *profiles);
void ds_bound_machine_free(ds_bound_machine *machine);
int64_t ds_bound_machine_capacity(const ds_bound_machine *machine); /* of a device; 0: not known */
const char *ds_bound_machine_device(const ds_bound_machine *machine); /* its kind, as written */
int64_t ds_bound_machine_devices(const ds_bound_machine *machine);

/* Devices in the order of the axes `order` ("pp dp cp tp"). */
typedef struct ds_bound_mesh {
    int64_t dp, tp, pp, cp;
    const char *order; /* interned */
} ds_bound_mesh;

/* The least that a transfer over tp and cp takes alone in any group, by whichever algorithm is
 * fastest. Groups that are images of each other under automorphisms of the topology are looked at
 * once; 0 if there are too many others. O(devices) once. */
int64_t ds_bound_mesh_transfer_ps(ds_bound_machine *machine, const ds_bound_mesh *mesh,
                                  ds_opcode op, int64_t bytes);
/* A number for what the groups look like; 0: it is not known. */
uint64_t ds_bound_mesh_group(ds_bound_machine *machine, const ds_bound_mesh *mesh);

/* Seconds a byte from a device to its host, or back, where that is fastest; 0: not known. */
double ds_bound_machine_host_per_byte(ds_bound_machine *machine, bool back);

/* Seconds a byte of what the first replicas reduce, or gather, over dp (and cp), by whichever
 * algorithm is fastest for `most` bytes; smaller ones take no less a byte. 0 where it is alone.
 * O(dp·cp) once. */
double ds_bound_mesh_per_byte(ds_bound_machine *machine, const ds_bound_mesh *mesh, ds_opcode op,
                              int64_t most);

/* sends[s]: what so many bytes take from the first device of stage 0 to that of stage 1, from there
 * on, and so to stage s; sends[pp + s]: the same way back. O(pp) once. */
const int64_t *ds_bound_mesh_sends(ds_bound_machine *machine, const ds_bound_mesh *mesh,
                                   int64_t bytes);

/* What so many bytes take from the first device of the first stage to that of the last one. */
int64_t ds_bound_mesh_across_ps(ds_bound_machine *machine, const ds_bound_mesh *mesh,
                                int64_t bytes);

#endif
