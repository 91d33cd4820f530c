/* Where values live, as numbers: a mesh, a slice of one, or one device, as an ordered list of
 * devices. Devices are counted in order of declaration; no device graph is built. */
#ifndef DS_EXEC_PLACE_H
#define DS_EXEC_PLACE_H

#include "ir/base/map.h"
#include "ir/core/ir.h"

#define DS_EXEC_MAX_AXES 32 /* a set of axes is a word of bits */

/* Position i of a placement has coordinates (i / stride of axis) % size, the last axis fastest. */
typedef struct ds_exec_place {
    const char **axes; /* interned */
    int64_t *sizes;
    uint32_t n_axes;
    uint64_t *devices; /* number of the topology << 40 | number of the device in it */
    uint32_t n_devices;
} ds_exec_place;

/* The placements of one run, each once: equal ones are the same pointer. */
typedef struct ds_exec_places {
    const ds_binding *binding;
    ds_arena arena;
    DS_VEC(const ds_topology *) topologies;
    DS_VEC(const ds_exec_place *) all;
    ds_map mesh_index; /* ds_mesh → index in all */
} ds_exec_places;

void ds_exec_places_init(ds_exec_places *places, const ds_binding *binding);
void ds_exec_places_deinit(ds_exec_places *places);

/* What a function's places refer to. */
typedef struct ds_exec_scope {
    const ds_func *func;
    const ds_exec_place **mesh_args; /* one per mesh parameter */
    const ds_exec_place *here;       /* of values without `on` */
} ds_exec_scope;

/* Errors: DS_ERR_NAME, DS_ERR_VALUE (a coordinate out of range), DS_ERR_SHAPE (a mesh that does not
 * fit its devices), DS_ERR_LIMIT. O(devices of the mesh). */
ds_status ds_exec_place_of(ds_exec_places *places, const ds_exec_scope *scope,
                           const ds_place *place, const ds_index *indices,
                           const ds_exec_place **out, ds_error *err);
ds_status ds_exec_place_mesh(ds_exec_places *places, const ds_mesh *mesh, const ds_exec_place **out,
                             ds_error *err);
/* All devices of a topology in order, as one axis without a name; or its first device alone; NULL:
 * one device of no topology. */
ds_status ds_exec_place_all(ds_exec_places *places, const ds_topology *topology,
                            const ds_exec_place **out, ds_error *err);
const ds_exec_place *ds_exec_place_first(ds_exec_places *places, const ds_topology *topology);
/* One device of a placement, by itself. */
const ds_exec_place *ds_exec_place_at(ds_exec_places *places, const ds_exec_place *place,
                                      uint32_t position);

/* The number of the axis, or n_axes. */
uint32_t ds_exec_axis(const ds_exec_place *place, const char *axis);
/* Its size; 1 if the placement lacks it. */
int64_t ds_exec_axis_size(const ds_exec_place *place, const char *axis);
int64_t ds_exec_coordinate(const ds_exec_place *place, uint32_t axis, uint32_t position);
/* The position of a device; UINT32_MAX if it is not there. O(devices). */
uint32_t ds_exec_position(const ds_exec_place *place, uint64_t device);
/* The i-th devices of all places are a group of a collective `across`: n_in places of operands, and
 * behind them those of results that live elsewhere, n in all. Sets *at to the position of the
 * device in those where it is; UINT32_MAX: nowhere. Errors: DS_ERR_SHARDING for places of different
 * shape, or a device that would be in the group twice. O(n · devices). */
ds_status ds_exec_places_across(const ds_exec_place *const *places, uint32_t n_in, uint32_t n,
                                uint64_t device, const ds_op *op, uint32_t *at, ds_error *err);
/* "device 3 (dp=1, tp=1)" */
void ds_exec_device_text(const ds_exec_place *place, uint32_t position, ds_buf *out);

#endif
