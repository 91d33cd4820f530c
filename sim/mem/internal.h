/* Shared by the files of sim/mem; not a public header. */
#ifndef DS_MEM_INTERNAL_H
#define DS_MEM_INTERNAL_H

#include "ir/base/arena.h"
#include "sim/mem/allocator.h"
#include "sim/mem/mem.h"

/* A buffer of a class that no value of the program is. */
typedef struct ds_mem_scratch {
    uint32_t cls;
    uint32_t value; /* of the op, with DS_MEM_SCRATCH or DS_MEM_LIBRARY; of a put, without */
    int64_t bytes;
    int64_t start_ps, end_ps; /* INT64_MAX: to the end */
} ds_mem_scratch;

typedef DS_VEC(ds_mem_scratch) ds_mem_scratches;

/* The workspace of ops and libraries, on the heap (workspace.c). O(instances · classes). */
void ds_mem__scratch(const ds_plan *plan, const ds_run *run, ds_mem_framework framework,
                     ds_mem_scratches *out);

/* Per value: on which stream it is allocated, and whether it is at all. */
typedef struct ds_mem_places {
    uint8_t *stream; /* ds_alloc_stream */
    bool *absent;
} ds_mem_places;

/* What FSDP keeps where (fsdp.c); nothing for other frameworks. O(instances · classes + values). */
void ds_mem__fsdp(const ds_plan *plan, const ds_run *run, ds_mem_framework framework,
                  ds_mem_places *places, ds_mem_scratches *out);

/* Stores in tiles (tiles.c): is the op's result one? */
bool ds_mem__is_tiled(const ds_op *op);
/* The tiles of all stores, `root` being the first value of each value's buffer. INT64_MAX: to the
 * end of the store. `together`: what one put takes is one buffer, which ends with its last tile.
 * O(instances + tiles). */
ds_status ds_mem__tiles(const ds_plan *plan, const ds_run *run, const uint32_t *root, bool together,
                        ds_mem_scratches *out, ds_error *err);
bool ds_mem__is_weight_gather(const ds_plan *plan, uint32_t inst);

#endif
