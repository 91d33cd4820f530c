/* Where the devices of a skeleton's grid are.
 *
 * An automorphism of the topology that takes the devices of one grid to those of another, each to
 * the one of the same coordinates, takes the skeleton of the first to that of the second. So grids
 * with one canonical place share their skeletons (sim/topo/symmetry.h): where nodes are twins it
 * does not matter which of the axes that go over whole nodes comes first in the mesh. */
#include "sim/plan/skeleton_internal.h"

#include "sim/topo/symmetry.h"

#include <stdlib.h>
#include <string.h>

int64_t ds_skeleton__world(const ds_plan_grid *grid) {
    int64_t world = 1;
    for (uint32_t a = 0; a < grid->n_axes; a++) world *= grid->sizes[a];
    return world;
}

int64_t ds_skeleton__in_a_row(const ds_plan_grid *grid, uint32_t *n_stages) {
    int64_t inner = 1;
    *n_stages = 1;
    for (uint32_t a = grid->n_axes; a-- > 0; inner *= grid->sizes[a]) {
        if (strcmp(grid->axes[a], "pp") != 0) continue;
        *n_stages = (uint32_t)grid->sizes[a];
        break;
    }
    return inner;
}

/* An axis, and how far apart its neighbours are. */
typedef struct axis {
    const char *name;
    int64_t size, stride;
} axis;

static int by_name(const void *a, const void *b) {
    return strcmp(((const axis *)a)->name, ((const axis *)b)->name);
}

/* By names, so that coordinates come in one order whatever the order of the mesh. */
static uint32_t list_axes(const ds_plan_grid *grid, axis *out) {
    int64_t stride = 1;
    for (uint32_t a = grid->n_axes; a-- > 0; stride *= grid->sizes[a])
        out[a] = (axis){grid->axes[a], grid->sizes[a], stride};
    if (grid->n_axes) qsort(out, grid->n_axes, sizeof *out, by_name);
    return grid->n_axes;
}

uint64_t ds_skeleton__place_key(ds_topo *topo, const ds_plan_grid *grid) {
    axis axes[4];
    uint32_t n = list_axes(grid, axes), world = (uint32_t)ds_skeleton__world(grid);
    uint32_t *vertices = ds_xcalloc(world, sizeof *vertices);
    for (uint32_t i = 0; i < world; i++) {
        int64_t device = 0, rest = i;
        for (uint32_t a = n; a-- > 0; rest /= axes[a].size)
            device += rest % axes[a].size * axes[a].stride;
        vertices[i] = ds_topo_device_vertex(topo, (uint32_t)device);
    }
    ds_symmetry_canonical(ds_topo_symmetry(topo), vertices, world, vertices);
    uint64_t key = ds_hash_bytes(vertices, world * sizeof *vertices);
    for (uint32_t a = 0; a < n; a++)
        key = ds_hash_mix(ds_hash_mix(key, ds_hash_bytes(axes[a].name, strlen(axes[a].name))),
                          (uint64_t)axes[a].size);
    free(vertices);
    return key;
}
