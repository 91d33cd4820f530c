/* Stores: how the values of one statement over one dim lie in memory, and the bytes of each way.
 *
 * A statement writes a point of `point_bytes` at each of the turns 0 .. length-1. Turn t reads the
 * points from t-window+1 (or 0) to t. The bytes of a store are the bytes that the device holds
 * at turn t, after the write and before the frees of the turn.
 *
 * X(NAME, text, bytes at turn t, source). n: point_bytes, T: length, B: tile, w: window, at most T.
 *
 *   live(B) = floor(t/B) - floor(max(0, t-w+1)/B) + 1   tiles of B points that meet the window
 *
 * Sources: Tempo is arXiv 2501.05408 and its code; vLLM is arXiv 2309.06180 (pages of 16
 * tokens). */
#ifndef DS_TEMPORAL_STORE_H
#define DS_TEMPORAL_STORE_H

#include "ir/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define DS_STORE_MAP(X)                                                                            \
    X(POINT, "point", "n * live(1)", "one tensor a point (Tempo's PointStore)")                    \
    X(BLOCK, "block", "n * B * live(B)", "blocks, written in place (Tempo's BlockStore)")          \
    X(WHOLE, "whole", "n * T", "one tensor, written in place")                                     \
    X(FUNCTIONAL, "functional", "2 * n * T", "an update makes a new tensor (JAX, as measured)")    \
    X(CIRCULAR, "circular", "2 * n * w",                                                           \
      "each point is written twice, so that a window is one "                                      \
      "slice (Tempo's CircularBufferStore)")                                                       \
    X(RING, "ring", "n * w", "each point is written once; a window is two slices")                 \
    X(PAGED, "paged", "n * B * live(B)", "pages from a pool, for each sequence (vLLM)")            \
    X(HOST, "host", "n * min(t + 1, depth)", "points go to the host and come back before a read")

typedef enum ds_store_class {
#define DS_X(name, text, bytes, source) DS_STORE_##name,
    DS_STORE_MAP(DS_X)
#undef DS_X
} ds_store_class;

typedef struct ds_store {
    ds_store_class kind;
    int64_t point_bytes;
    int64_t length;
    int64_t tile;   /* BLOCK, PAGED: points of a tile; else not read */
    int64_t window; /* points that a turn reads at most; 0: all before it */
    int64_t depth;  /* HOST: points on the device at most: those on their way out or in */
} ds_store;

/* "point", "block", … Static strings. */
const char *ds_store_name(ds_store_class kind);
/* DS_ERR_VALUE for a negative size, a tile or depth below 1 where one is read; DS_ERR_OVERFLOW if
 * twice the whole does not fit into int64. */
ds_status ds_store_check(const ds_store *store, ds_error *err);
/* The bytes at turn t, 0 <= t < length, of a store that ds_store_check accepts. O(1). */
int64_t ds_store_bytes(const ds_store *store, int64_t t);
/* The most of all turns; 0 for a store of length 0. O(1). */
int64_t ds_store_peak(const ds_store *store);
/* Of HOST: bytes on the host at turn t; of the others 0. */
int64_t ds_store_host_bytes(const ds_store *store, int64_t t);

/* The device's memory over the turns as a staircase: the turns at which the bytes grow. Writes at
 * most `room` of them and returns how many there are. O(length). */
int64_t ds_store_steps(const ds_store *store, int64_t *turns, int64_t room);

#endif
