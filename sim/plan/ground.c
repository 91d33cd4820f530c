/* What collectives cost and which links they load, kept from plan to plan (congruent.c and
 * traffic.c say what the keys hold). */
#include "sim/plan/internal.h"
#include "sim/plan/skeleton_internal.h"

#include "sim/coll/coll.h"

#include <stdlib.h>
#include <string.h>

struct ds_plan_ground {
    ds_arena arena;
    ds_map costs;            /* key → ds_group */
    ds_map shapes;           /* key → ds_load_shape */
    ds_map links;            /* key → those of a shape, for one group */
    ds_skeletons *skeletons; /* NULL: nobody has asked */
};

ds_plan_ground *ds_plan_ground_new(void) {
    ds_plan_ground *ground = ds_xcalloc(1, sizeof *ground);
    ds_arena_init(&ground->arena);
    ds_map_init(&ground->costs);
    ds_map_init(&ground->shapes);
    return ground;
}

void ds_plan_ground_free(ds_plan_ground *ground) {
    if (!ground) return;
    ds_map_deinit(&ground->costs);
    ds_map_deinit(&ground->shapes);
    ds_map_deinit(&ground->links);
    ds_arena_deinit(&ground->arena);
    ds_skeletons_free(ground->skeletons);
    free(ground);
}

ds_skeletons *ds_ground__skeletons(ds_plan_ground *ground) {
    if (!ground->skeletons) ground->skeletons = ds_skeletons_new();
    return ground->skeletons;
}

/* All is thrown away beyond this, before the next plan: a sweep of millions of candidates runs in
 * constant memory. */
#define MOST_BYTES ((size_t)64 << 20)

void ds_ground__make_room(ds_plan_ground *ground) {
    if (ground->arena.bytes < MOST_BYTES) return;
    ds_map_clear(&ground->costs);
    ds_map_clear(&ground->shapes);
    ds_map_clear(&ground->links);
    ds_arena_deinit(&ground->arena);
    ds_arena_init(&ground->arena);
}

void ds_ground__copy_cost(const ds_group *from, ds_arena *arena, ds_group *out) {
    ds_phase_time *times = DS_NEW_N(arena, ds_phase_time, from->n_phases);
    if (from->n_phases) memcpy(times, from->times, from->n_phases * sizeof *times);
    out->terms = from->terms;
    out->ps = from->ps;
    out->algorithm = from->algorithm ? ds_arena_strdup(arena, from->algorithm) : NULL;
    out->times = times;
    out->n_phases = from->n_phases;
}

bool ds_ground__find(const ds_plan_ground *ground, uint64_t key, ds_arena *arena, ds_group *out) {
    const uint64_t *found = ds_map_find(&ground->costs, key);
    if (found) ds_ground__copy_cost((const ds_group *)(uintptr_t)*found, arena, out);
    return found != NULL;
}

void ds_ground__keep(ds_plan_ground *ground, uint64_t key, const ds_group *group) {
    ds_group *kept = DS_NEW(&ground->arena, ds_group);
    memset(kept, 0, sizeof *kept);
    ds_ground__copy_cost(group, &ground->arena, kept);
    ds_map_put(&ground->costs, key, DS_KEY(kept));
}

static void copy_shape(const ds_load_shape *from, ds_arena *arena, ds_load_shape *out) {
    *out = *from;
    out->phases = DS_NEW_N(arena, ds_load_phase, from->n);
    out->links = DS_NEW_N(arena, uint32_t, from->n_links);
    out->uses_q32 = DS_NEW_N(arena, uint64_t, from->n_links);
    if (from->n) memcpy(out->phases, from->phases, from->n * sizeof *out->phases);
    if (!from->n_links) return;
    memcpy(out->links, from->links, from->n_links * sizeof *out->links);
    memcpy(out->uses_q32, from->uses_q32, from->n_links * sizeof *out->uses_q32);
}

bool ds_ground__find_shape(const ds_plan_ground *ground, uint64_t key, ds_arena *arena,
                           ds_load_shape *out) {
    const uint64_t *found = ds_map_find(&ground->shapes, key);
    if (found) copy_shape((const ds_load_shape *)(uintptr_t)*found, arena, out);
    return found != NULL;
}

void ds_ground__keep_shape(ds_plan_ground *ground, uint64_t key, const ds_load_shape *shape) {
    ds_load_shape *kept = DS_NEW(&ground->arena, ds_load_shape);
    copy_shape(shape, &ground->arena, kept);
    ds_map_put(&ground->shapes, key, DS_KEY(kept));
}

const uint32_t *ds_ground__links(const ds_plan_ground *ground, uint64_t key) {
    const uint64_t *found = ds_map_find(&ground->links, key);
    return found ? (const uint32_t *)(uintptr_t)*found : NULL;
}

void ds_ground__keep_links(ds_plan_ground *ground, uint64_t key, const uint32_t *links) {
    ds_map_put(&ground->links, key, DS_KEY(links));
}

ds_arena *ds_ground__arena(ds_plan_ground *ground) {
    return &ground->arena;
}
