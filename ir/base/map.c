#include "ir/base/map.h"

#include "ir/base/arena.h"

#include <stdlib.h>
#include <string.h>

uint64_t ds_hash_bytes(const void *data, size_t n) {
    const unsigned char *p = data;
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a 64-bit offset basis and prime */
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return ds_hash_finish(h);
}

void ds_map_init(ds_map *map) {
    *map = (ds_map){0};
}

void ds_map_deinit(ds_map *map) {
    free(map->at);
    *map = (ds_map){0};
}

void ds_map_clear(ds_map *map) {
    if (map->cap) memset(map->at, 0, map->cap * sizeof *map->at);
    map->n = 0;
    map->has_zero = false;
}

/* The entry of a key that is not 0, or the free one where it belongs. */
static ds_map_entry *entry_of(const ds_map *map, uint64_t key) {
    uint32_t mask = map->cap - 1, at = (uint32_t)ds_hash_finish(key) & mask;
    while (map->at[at].key && map->at[at].key != key) at = (at + 1) & mask;
    return &map->at[at];
}

uint64_t *ds_map_find(const ds_map *map, uint64_t key) {
    if (!key) return map->has_zero ? (uint64_t *)&map->zero.value : NULL;
    if (!map->cap) return NULL;
    ds_map_entry *e = entry_of(map, key);
    return e->key ? &e->value : NULL;
}

static void grow_to(ds_map *map, uint32_t cap) {
    ds_map old = *map;
    map->cap = cap;
    map->at = ds_xcalloc(map->cap, sizeof *map->at);
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.at[i].key) *entry_of(map, old.at[i].key) = old.at[i];
    free(old.at);
}

void ds_map_reserve(ds_map *map, uint32_t n) {
    uint32_t cap = map->cap ? map->cap : 16;
    while ((uint64_t)n * 4 > (uint64_t)cap * 3) cap *= 2;
    if (cap > map->cap) grow_to(map, cap);
}

uint64_t *ds_map_slot(ds_map *map, uint64_t key) {
    if (!key) {
        if (!map->has_zero) map->zero.value = 0;
        map->n += !map->has_zero;
        map->has_zero = true;
        return &map->zero.value;
    }
    if ((map->n + 1) * 4 > map->cap * 3) ds_map_reserve(map, map->n + 1);
    ds_map_entry *e = entry_of(map, key);
    map->n += !e->key;
    if (!e->key) *e = (ds_map_entry){key, 0};
    return &e->value;
}

void ds_map_put(ds_map *map, uint64_t key, uint64_t value) {
    *ds_map_slot(map, key) = value;
}

const ds_map_entry *ds_map_next(const ds_map *map, uint32_t *at) {
    while (*at < map->cap)
        if (map->at[(*at)++].key) return &map->at[*at - 1];
    return (*at)++ == map->cap && map->has_zero ? &map->zero : NULL;
}
