/* What skeletons leave for the next ones of a sweep: places of groups, prices, bases. */
#include "sim/plan/skeleton_internal.h"

#include <stdlib.h>

/* All is thrown away beyond this. A base of 64 stages takes about 100 KB. */
#define MOST_BYTES ((size_t)64 << 20)

struct ds_skeletons {
    ds_arena arena; /* places, prices, and the bases' heads */
    ds_map places, costs, bases;
    ds_map grids; /* key of a grid on its devices → key of its places and bases */
    DS_VEC(ds_skeleton_base *) all;
    size_t base_bytes;
};

ds_skeletons *ds_skeletons_new(void) {
    ds_skeletons *kept = ds_xcalloc(1, sizeof *kept);
    ds_arena_init(&kept->arena);
    return kept;
}

void ds_skeleton__base_deinit(ds_skeleton_base *base) {
    ds_plan_free(base->plan);
    free(base->made);
    free(base->n_made);
    ds_map_deinit(&base->inst_of);
}

static void forget_all(ds_skeletons *kept) {
    for (uint32_t i = 0; i < kept->all.n; i++) ds_skeleton__base_deinit(kept->all.at[i]);
    kept->all.n = 0;
    kept->base_bytes = 0;
    ds_map_clear(&kept->places);
    ds_map_clear(&kept->costs);
    ds_map_clear(&kept->bases);
    ds_map_clear(&kept->grids);
    ds_arena_deinit(&kept->arena);
    ds_arena_init(&kept->arena);
}

void ds_skeletons_free(ds_skeletons *kept) {
    if (!kept) return;
    forget_all(kept);
    free(kept->all.at);
    ds_map_deinit(&kept->places);
    ds_map_deinit(&kept->costs);
    ds_map_deinit(&kept->bases);
    ds_map_deinit(&kept->grids);
    ds_arena_deinit(&kept->arena);
    free(kept);
}

void ds_skeletons__make_room(ds_skeletons *kept) {
    if (kept->base_bytes + kept->arena.bytes > MOST_BYTES) forget_all(kept);
}

uint64_t ds_skeletons__grid(const ds_skeletons *kept, uint64_t own_key) {
    const uint64_t *found = ds_map_find(&kept->grids, own_key);
    return found ? *found : 0;
}

void ds_skeletons__keep_grid(ds_skeletons *kept, uint64_t own_key, uint64_t key) {
    ds_map_put(&kept->grids, own_key, key);
}

static void *find_pointer(const ds_map *map, uint64_t key) {
    const uint64_t *found = ds_map_find(map, key);
    return found ? (void *)(uintptr_t)*found : NULL;
}

ds_skeleton_place *ds_skeletons__place(const ds_skeletons *kept, uint64_t key) {
    return find_pointer(&kept->places, key);
}

ds_skeleton_place *ds_skeletons__keep_place(ds_skeletons *kept, uint64_t key,
                                            const ds_skeleton_place *place) {
    ds_skeleton_place *own = DS_NEW(&kept->arena, ds_skeleton_place);
    uint32_t *devices = DS_NEW_N(&kept->arena, uint32_t, place->n);
    for (uint32_t i = 0; i < place->n; i++) devices[i] = place->devices[i];
    *own = *place;
    own->devices = devices;
    ds_map_put(&kept->places, key, DS_KEY(own));
    return own;
}

const ds_group *ds_skeletons__cost(const ds_skeletons *kept, uint64_t key) {
    return find_pointer(&kept->costs, key);
}

const ds_group *ds_skeletons__keep_cost(ds_skeletons *kept, uint64_t key, const ds_group *cost) {
    ds_group *own = DS_NEW(&kept->arena, ds_group);
    *own = (ds_group){.bytes = cost->bytes};
    ds_ground__copy_cost(cost, &kept->arena, own);
    ds_map_put(&kept->costs, key, DS_KEY(own));
    return own;
}

const ds_skeleton_base *ds_skeletons__base(const ds_skeletons *kept, uint64_t key) {
    return find_pointer(&kept->bases, key);
}

/* About. */
static size_t bytes_of(const ds_skeleton_base *base) {
    const ds_plan *p = base->plan;
    size_t n_uses = 0;
    for (uint32_t f = 0; f < p->n_flows; f++) n_uses += p->flows[f].share.n_uses;
    return p->n_tasks * 64 + p->n_activities * sizeof *p->activities +
           2 * p->n_flows * sizeof *p->flows + n_uses * sizeof *p->link_uses +
           p->insts.n * (sizeof *p->insts.at + 64) + p->n_streams * sizeof *p->streams +
           p->arena.bytes + sizeof *p;
}

const ds_skeleton_base *ds_skeletons__keep_base(ds_skeletons *kept, uint64_t key,
                                                ds_skeleton_base base) {
    ds_skeleton_base *own = DS_NEW(&kept->arena, ds_skeleton_base);
    *own = base;
    kept->base_bytes += bytes_of(own);
    DS_HPUSH(&kept->all, own);
    ds_map_put(&kept->bases, key, DS_KEY(own));
    return own;
}
