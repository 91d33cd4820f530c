/* A hash map from 64-bit keys to 64-bit values, and the hashes used with it. */
#ifndef DS_BASE_MAP_H
#define DS_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* FNV-1a with a final mix: stable over machines, so it may enter files and tests. */
uint64_t ds_hash_bytes(const void *data, size_t n);

/* splitmix64's finalizer (Steele, Lea, Flood 2014): a permutation. */
static inline uint64_t ds_hash_finish(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Mixes one more word into a hash. */
static inline uint64_t ds_hash_mix(uint64_t hash, uint64_t word) {
    return ds_hash_finish(hash * 0x9e3779b97f4a7c15u + word + 1);
}

typedef struct ds_map_entry {
    uint64_t key, value;
} ds_map_entry;

typedef struct ds_map {
    ds_map_entry *at; /* open addressing; key 0: free */
    uint32_t n, cap;  /* cap is a power of two or 0 */
    bool has_zero;    /* the key 0, which has no place in `at`: */
    ds_map_entry zero;
} ds_map;

void ds_map_init(ds_map *map);
void ds_map_deinit(ds_map *map);
/* Empties the map and keeps its memory. */
void ds_map_clear(ds_map *map);
/* The value's slot, or NULL if the key is absent. Expected O(1). */
uint64_t *ds_map_find(const ds_map *map, uint64_t key);
/* Sets key → value, replacing an older value. */
void ds_map_put(ds_map *map, uint64_t key, uint64_t value);
/* The value's slot, made with 0 if the key is absent; good until the map grows. Expected O(1). */
uint64_t *ds_map_slot(ds_map *map, uint64_t key);
/* Makes room for n keys in all. O(capacity). */
void ds_map_reserve(ds_map *map, uint32_t n);
/* All entries, in no order: begin with *at = 0; NULL after the last. */
const ds_map_entry *ds_map_next(const ds_map *map, uint32_t *at);
/* Interned strings and other pointers as keys. */
#define DS_KEY(pointer) ((uint64_t)(uintptr_t)(pointer))

#endif
