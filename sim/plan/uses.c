/* How many devices a program uses: devices of the meshes that values and calls name. A step waits for
 * the slowest of these devices (sim/cost/clock.c); idle devices of the topology delay no step. The count
 * comes before the walk, since the walk prices operations as it meets them. */
#include "sim/plan/internal.h"

#include <stdlib.h>

typedef struct uses {
    ds_builder *b;
    ds_map seen;             /* functions */
    DS_VEC(uint32_t) places; /* heap */
    bool unknown;            /* a device is named by an index: it may be any */
} uses;

/* Coordinates pick slices of a mesh, of which a program uses all. A parameter's mesh is an argument of
 * the call. */
static ds_status use_place(uses *u, const ds_func *func, const ds_place *place, ds_error *err) {
    uint32_t id = u->b->default_place;
    if (place->kind == DS_PLACE_DEVICE) {
        u->unknown = true;
        return DS_OK;
    }
    if (place->kind == DS_PLACE_MESH) {
        const ds_mesh *mesh = ds_find_mesh(func->module, place->name);
        if (!mesh) return DS_OK;
        DS_TRY(ds_plan__mesh(u->b, mesh, &id, err));
    }
    if (id != DS_NONE) DS_HPUSH(&u->places, id);
    return DS_OK;
}

static ds_status use_func(uses *u, const ds_func *func, ds_error *err);

static ds_status use_block(uses *u, const ds_func *func, const ds_block *block, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        for (uint32_t k = 0; k < op->n_mesh_args; k++)
            DS_TRY(use_place(u, func, &op->mesh_args[k], err));
        if (op->callee) DS_TRY(use_func(u, op->callee, err));
        if (op->body) DS_TRY(use_block(u, func, op->body, err));
    }
    return DS_OK;
}

static ds_status use_func(uses *u, const ds_func *func, ds_error *err) {
    uint64_t *seen = ds_map_slot(&u->seen, DS_KEY(func));
    if (*seen) return DS_OK;
    *seen = 1;
    for (uint32_t i = 0; i < func->values.n; i++) {
        const ds_type *type = func->values.at[i].type;
        bool placed = type && (type->on.kind != DS_PLACE_NONE || func == u->b->entry);
        if (placed) DS_TRY(use_place(u, func, &type->on, err));
    }
    return use_block(u, func, &func->body, err);
}

static int64_t count(const uses *u) {
    const ds_plan *plan = u->b->plan;
    bool *used = ds_xcalloc((size_t)plan->n_devices + 1, sizeof *used);
    int64_t n = 0;
    for (uint32_t i = 0; i < u->places.n; i++) {
        const ds_placement *p = ds_plan__placement(u->b, u->places.at[i]);
        for (uint32_t d = 0; d < p->n_devices; d++) used[p->devices[d]] = true;
    }
    for (uint32_t d = 0; d < plan->n_devices; d++) n += used[d];
    free(used);
    return n && !u->unknown ? n : plan->n_devices;
}

ds_status ds_plan__count_used(ds_builder *b, ds_error *err) {
    uses u = {.b = b};
    ds_status status = DS_OK;
    b->n_used = b->program ? b->n_rank_devices : 0;
    if (b->options->schematic) b->n_used = b->options->schematic->n_devices;
    if (b->n_used) return DS_OK;
    ds_map_init(&u.seen);
    status = use_func(&u, b->entry, err);
    if (status == DS_OK) b->n_used = count(&u);
    ds_map_deinit(&u.seen);
    free(u.places.at);
    return status;
}
