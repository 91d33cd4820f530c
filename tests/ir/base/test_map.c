#include "ir/base/map.h"

#include "ir/base/rng.h"

#include <criterion/criterion.h>

/* Against an array: keys are small so that many collide with earlier ones. */
Test(map, agrees_with_an_array) {
    enum { KEYS = 5000 };
    static uint64_t model[KEYS];
    static bool present[KEYS];
    ds_map map;
    ds_map_init(&map);
    cr_assert_null(ds_map_find(&map, 0));
    ds_rng rng = {1};
    uint32_t n = 0;
    for (int i = 0; i < 20000; i++) {
        uint64_t key = ds_rng_below(&rng, KEYS), value = ds_rng_next(&rng);
        ds_map_put(&map, key << 32, value);
        n += !present[key];
        present[key] = true;
        model[key] = value;
    }
    cr_assert_eq(map.n, n);
    for (uint64_t key = 0; key < KEYS; key++) {
        uint64_t *slot = ds_map_find(&map, key << 32);
        cr_assert_eq(slot != NULL, present[key]);
        if (slot) cr_assert_eq(*slot, model[key]);
    }
    ds_map_clear(&map);
    cr_assert_eq(map.n, 0);
    for (uint64_t key = 0; key < KEYS; key++) cr_assert_null(ds_map_find(&map, key << 32));
    ds_map_deinit(&map);
}

Test(map, any_key_is_a_key) {
    ds_map map;
    ds_map_init(&map);
    ds_map_put(&map, 0, 7);
    ds_map_put(&map, UINT64_MAX, 8);
    cr_assert_eq(*ds_map_find(&map, 0), 7);
    cr_assert_eq(*ds_map_find(&map, UINT64_MAX), 8);
    *ds_map_find(&map, 0) = 9;
    cr_assert_eq(*ds_map_find(&map, 0), 9);
    ds_map_deinit(&map);
}

Test(map, all_entries_are_listed_once) {
    ds_map map;
    uint32_t at = 0;
    ds_map_init(&map);
    cr_assert_null(ds_map_next(&map, &at));
    for (uint64_t key = 0; key < 100; key++) ds_map_put(&map, key, key * key);
    uint64_t sum = 0;
    uint32_t n = 0;
    at = 0;
    for (const ds_map_entry *e; (e = ds_map_next(&map, &at)); n++) {
        cr_assert_eq(e->value, e->key * e->key);
        sum += e->key;
    }
    cr_assert_eq(n, 100);
    cr_assert_eq(sum, 4950);
    cr_assert_null(ds_map_next(&map, &at));
    ds_map_deinit(&map);
}

/* Hashes enter files: FNV-1a's published value of "foobar" (0x85944171f73967e8, Fowler, Noll, Vo,
 * fnv test suite) through the finalizer of splitmix64, computed apart from this code. */
Test(map, hash_is_stable) {
    cr_assert_eq(ds_hash_bytes("foobar", 6), UINT64_C(0x404da9e3b74078c2));
    cr_assert_neq(ds_hash_mix(1, 2), ds_hash_mix(2, 1));
}
