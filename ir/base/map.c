#include "ir/base/map.h"

#include "ir/base/arena.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x) { /* splitmix64's finalizer (Steele, Lea, Flood 2014) */
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t ds_hash_bytes(const void *data, size_t n) {
    const unsigned char *p = data;
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a 64-bit offset basis and prime */
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return mix(h);
}

uint64_t ds_hash_mix(uint64_t hash, uint64_t word) {
    return mix(hash * 0x9e3779b97f4a7c15u + word + 1);
}

void ds_map_init(ds_map *map) {
    *map = (ds_map){0};
}

void ds_map_deinit(ds_map *map) {
    free(map->keys);
    free(map->values);
    free(map->used);
    *map = (ds_map){0};
}

void ds_map_clear(ds_map *map) {
    if (map->cap) memset(map->used, 0, map->cap);
    map->n = 0;
}

static uint32_t slot_of(const ds_map *map, uint64_t key) {
    uint32_t mask = map->cap - 1, at = (uint32_t)mix(key) & mask;
    while (map->used[at] && map->keys[at] != key) at = (at + 1) & mask;
    return at;
}

uint64_t *ds_map_find(const ds_map *map, uint64_t key) {
    if (!map->cap) return NULL;
    uint32_t at = slot_of(map, key);
    return map->used[at] ? &map->values[at] : NULL;
}

static void grow(ds_map *map) {
    ds_map old = *map;
    map->cap = old.cap ? old.cap * 2 : 16;
    map->keys = ds_xcalloc(map->cap, sizeof *map->keys);
    map->values = ds_xcalloc(map->cap, sizeof *map->values);
    map->used = ds_xcalloc(map->cap, 1);
    for (uint32_t i = 0; i < old.cap; i++) {
        if (!old.used[i]) continue;
        uint32_t at = slot_of(map, old.keys[i]);
        map->used[at] = 1;
        map->keys[at] = old.keys[i];
        map->values[at] = old.values[i];
    }
    ds_map_deinit(&old);
}

void ds_map_put(ds_map *map, uint64_t key, uint64_t value) {
    if ((map->n + 1) * 4 > map->cap * 3) grow(map);
    uint32_t at = slot_of(map, key);
    if (!map->used[at]) {
        map->used[at] = 1;
        map->keys[at] = key;
        map->n++;
    }
    map->values[at] = value;
}
