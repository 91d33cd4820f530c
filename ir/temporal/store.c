/* Bytes of stores, by the closed forms of store.h. */
#include "ir/temporal/store.h"

#include <inttypes.h>

const char *ds_store_name(ds_store_class kind) {
    static const char *const names[] = {
#define DS_X(name, text, bytes, source) text,
        DS_STORE_MAP(DS_X)
#undef DS_X
    };
    return names[kind];
}

static int64_t window_of(const ds_store *store) {
    return store->window > 0 && store->window < store->length ? store->window : store->length;
}

static bool has_tiles(const ds_store *store) {
    return store->kind == DS_STORE_BLOCK || store->kind == DS_STORE_PAGED;
}

static int64_t tile_of(const ds_store *store) {
    return has_tiles(store) ? store->tile : 1;
}

ds_status ds_store_check(const ds_store *store, ds_error *err) {
    int64_t bytes;
    if (store->point_bytes < 0 || store->length < 0 || store->window < 0)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "a store of %" PRId64 " points of %" PRId64
                            " bytes with window %" PRId64 ": none may be negative",
                            store->length, store->point_bytes, store->window);
    if (has_tiles(store) && store->tile < 1)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "a %s store with tiles of %" PRId64 " points: a tile has at least one",
                            ds_store_name(store->kind), store->tile);
    if (store->kind == DS_STORE_HOST && store->depth < 1)
        return ds_error_set(
            err, DS_ERR_VALUE, DS_NOWHERE,
            "a host store that holds %" PRId64 " points on the device: at least one", store->depth);
    int64_t points;
    if (__builtin_add_overflow(store->length, tile_of(store), &points) ||
        __builtin_mul_overflow(store->point_bytes, points, &bytes) || bytes > INT64_MAX / 2)
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "a store of %" PRId64 " points of %" PRId64 " bytes", store->length,
                            store->point_bytes);
    return DS_OK;
}

/* Tiles of B points that meet the window of turn t. */
static int64_t live(const ds_store *store, int64_t tile, int64_t t) {
    int64_t first = t - window_of(store) + 1;
    return t / tile - (first > 0 ? first : 0) / tile + 1;
}

int64_t ds_store_bytes(const ds_store *store, int64_t t) {
    int64_t n = store->point_bytes, tile = tile_of(store);
    switch (store->kind) {
    case DS_STORE_POINT:
    case DS_STORE_BLOCK:
    case DS_STORE_PAGED:
        return n * tile * live(store, tile, t);
    case DS_STORE_WHOLE:
        return n * store->length;
    case DS_STORE_FUNCTIONAL:
        return 2 * n * store->length;
    case DS_STORE_CIRCULAR:
        return 2 * n * window_of(store);
    case DS_STORE_RING:
        return n * window_of(store);
    default:
        return n * (t + 1 < store->depth ? t + 1 : store->depth);
    }
}

int64_t ds_store_peak(const ds_store *store) {
    int64_t T = store->length, w = window_of(store), tile = tile_of(store);
    if (T == 0) return 0;
    if (store->kind != DS_STORE_BLOCK && store->kind != DS_STORE_PAGED)
        return ds_store_bytes(store, T - 1);
    /* A window that begins r points into a tile meets floor((r + w - 1) / B) + 1 tiles; r reaches
     * every place of a tile, or T - w if the program ends before. */
    int64_t r = tile - 1 < T - w ? tile - 1 : T - w;
    return store->point_bytes * tile * ((r + w - 1) / tile + 1);
}

int64_t ds_store_host_bytes(const ds_store *store, int64_t t) {
    if (store->kind != DS_STORE_HOST) return 0;
    return store->point_bytes * live(store, 1, t);
}

int64_t ds_store_steps(const ds_store *store, int64_t *turns, int64_t room) {
    int64_t n = 0, before = 0;
    for (int64_t t = 0; t < store->length; t++) {
        int64_t bytes = ds_store_bytes(store, t);
        if (bytes > before && n++ < room) turns[n - 1] = t;
        before = bytes;
    }
    return n;
}
