/* Closed forms of stores against stores that are really kept: slots are taken, written, read back
 * and given up turn by turn, and their bytes counted. */
#include "ir/temporal/store.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Slots of points; a tile is taken when its first point is written, and given up when no later turn
 * reads a point of the tile. */
typedef struct kept {
    int64_t *slot; /* the point that a slot holds, or -1 */
    char *taken;   /* by tile */
    int64_t bytes, peak;
} kept;

static int64_t first_read(const ds_store *s, int64_t t) {
    int64_t w = s->window > 0 ? s->window : s->length;
    return t - w + 1 > 0 ? t - w + 1 : 0;
}

/* Tiles in place of the address space: points stay where they were written. */
static void keep_tiles(const ds_store *s, int64_t tile, kept *k, int64_t t) {
    if (!k->taken[t / tile]) k->bytes += tile * s->point_bytes;
    k->taken[t / tile] = 1;
    k->slot[t] = t;
    cr_expect_eq(ds_store_bytes(s, t), k->bytes, "%s: turn %" PRId64, ds_store_name(s->kind), t);
    for (int64_t p = first_read(s, t); p <= t; p++)
        cr_assert(k->taken[p / tile] && k->slot[p] == p, "a point of the window is gone");
    if (k->bytes > k->peak) k->peak = k->bytes;
    int64_t keep = first_read(s, t + 1);
    for (int64_t i = 0; (i + 1) * tile <= keep; i++) {
        if (k->taken[i]) k->bytes -= tile * s->point_bytes;
        k->taken[i] = 0;
    }
}

/* A ring of `slots`, each point written `times` times, w apart. Every window must lie in one piece
 * if points are written twice. */
static void keep_ring(const ds_store *s, int64_t times, kept *k, int64_t t) {
    int64_t w = s->window > 0 && s->window < s->length ? s->window : s->length;
    for (int64_t i = 0; i < times; i++) k->slot[t % w + i * w] = t;
    int64_t from = first_read(s, t), n = t - from + 1;
    bool in_one_piece = false;
    for (int64_t at = 0; at + n <= times * w && !in_one_piece; at++) {
        in_one_piece = true;
        for (int64_t i = 0; i < n; i++) in_one_piece = in_one_piece && k->slot[at + i] == from + i;
    }
    cr_expect(times == 1 || in_one_piece, "window %" PRId64 " of %" PRId64, t, w);
    for (int64_t p = from; p <= t; p++) cr_expect_eq(k->slot[p % w], p);
    k->peak = times * w * s->point_bytes;
    cr_expect_eq(ds_store_bytes(s, t), k->peak);
}

/* The last `depth` points are on the device, the window's points on the host. */
static void keep_host(const ds_store *s, kept *k, int64_t t) {
    k->taken[t] = 1;
    k->bytes += s->point_bytes;
    if (t >= s->depth) k->bytes -= s->point_bytes;
    cr_expect_eq(ds_store_bytes(s, t), k->bytes);
    cr_expect_eq(ds_store_host_bytes(s, t), (t - first_read(s, t) + 1) * s->point_bytes);
    if (k->bytes > k->peak) k->peak = k->bytes;
}

static void keep_whole(const ds_store *s, int64_t copies, kept *k, int64_t t) {
    k->bytes = k->peak = copies * s->length * s->point_bytes;
    cr_expect_eq(ds_store_bytes(s, t), k->bytes);
}

static void compare(ds_store s) {
    ds_error err = {0};
    cr_assert_eq(ds_store_check(&s, &err), DS_OK, "%s", err.message);
    size_t room = 2 * (size_t)s.length + 2;
    kept k = {.slot = malloc(room * sizeof(int64_t)), .taken = calloc(room, 1)};
    memset(k.slot, -1, room * sizeof(int64_t));
    for (int64_t t = 0; t < s.length; t++) switch (s.kind) {
        case DS_STORE_POINT:
            keep_tiles(&s, 1, &k, t);
            break;
        case DS_STORE_BLOCK:
        case DS_STORE_PAGED:
            keep_tiles(&s, s.tile, &k, t);
            break;
        case DS_STORE_WHOLE:
            keep_whole(&s, 1, &k, t);
            break;
        case DS_STORE_FUNCTIONAL:
            keep_whole(&s, 2, &k, t);
            break;
        case DS_STORE_CIRCULAR:
            keep_ring(&s, 2, &k, t);
            break;
        case DS_STORE_RING:
            keep_ring(&s, 1, &k, t);
            break;
        case DS_STORE_HOST:
            keep_host(&s, &k, t);
            break;
        }
    cr_expect_eq(ds_store_peak(&s), k.peak,
                 "%s: %" PRId64 " points, tile %" PRId64 ", window %" PRId64, ds_store_name(s.kind),
                 s.length, s.tile, s.window);
    free(k.slot);
    free(k.taken);
}

Test(store, bytes_of_every_class_length_tile_and_window) {
    static const int64_t lengths[] = {1, 7, 64, 100}, tiles[] = {1, 3, 16},
                         windows[] = {0, 1, 5, 16, 33};
    int n = 0;
    for (int kind = DS_STORE_POINT; kind <= DS_STORE_HOST; kind++)
        for (int l = 0; l < 4; l++)
            for (int b = 0; b < 3; b++)
                for (int w = 0; w < 5; w++, n++)
                    compare((ds_store){.kind = (ds_store_class)kind,
                                       .point_bytes = 24 + n,
                                       .length = lengths[l],
                                       .tile = tiles[b],
                                       .window = windows[w],
                                       .depth = 1 + n % 11});
    cr_expect_geq(n, 100);
}

/* GPT-2 on 48 GB: batch 64, 4,096 tokens, 12 layers of keys and values, 768 wide, four bytes. The
 * figure's steps are 4.69 %, Torch's cache 37.5, JAX's 75, two windows of 512 9.4. */
#define GPT2_POINT (2 * 12 * 64 * 768 * INT64_C(4))

static double share_of_card(int64_t bytes) {
    return 100.0 * (double)bytes / (48.0 * 1073741824);
}

Test(store, gpt2_of_the_published_figure) {
    ds_store s = {.kind = DS_STORE_BLOCK, .point_bytes = GPT2_POINT, .length = 4096, .tile = 512};
    int64_t turns[16];
    cr_assert_eq(ds_store_steps(&s, turns, 16), 8);
    for (int i = 0; i < 8; i++) {
        cr_expect_eq(turns[i], 512 * i);
        cr_expect_float_eq(share_of_card(ds_store_bytes(&s, turns[i])), 4.6875 * (i + 1), 1e-9);
    }
    s.kind = DS_STORE_WHOLE;
    cr_expect_float_eq(share_of_card(ds_store_peak(&s)), 37.5, 1e-9);
    s.kind = DS_STORE_FUNCTIONAL;
    cr_expect_float_eq(share_of_card(ds_store_peak(&s)), 75, 1e-9);
    s.kind = DS_STORE_CIRCULAR;
    s.window = 512;
    cr_expect_float_eq(share_of_card(ds_store_peak(&s)), 9.375, 1e-9);
}

/* Llama-3.2-3B, batch 64, 2,048 tokens, tiles and window of 256: 28 layers of 8 heads of 128 at two
 * bytes. */
Test(store, llama_of_the_published_figure) {
    ds_store s = {.kind = DS_STORE_BLOCK,
                  .point_bytes = 2 * 28 * 64 * 8 * 128 * 2,
                  .length = 2048,
                  .tile = 256};
    cr_expect_float_eq(share_of_card(ds_store_bytes(&s, 0)), 3.65, 0.005);
    cr_expect_float_eq(share_of_card(ds_store_peak(&s)), 29.2, 0.05);
    s.kind = DS_STORE_CIRCULAR;
    s.window = 256;
    cr_expect_float_eq(share_of_card(ds_store_peak(&s)), 7.29, 0.005);
}

Test(store, sizes_that_make_no_sense_are_refused) {
    ds_error err;
    ds_store s = {.kind = DS_STORE_BLOCK, .point_bytes = 8, .length = 8};
    cr_expect_eq(ds_store_check(&s, &err), DS_ERR_VALUE);
    cr_expect(strstr(err.message, "tiles of 0 points"), "%s", err.message);
    s = (ds_store){.kind = DS_STORE_HOST, .length = 8};
    cr_expect_eq(ds_store_check(&s, &err), DS_ERR_VALUE);
    s = (ds_store){.point_bytes = -1, .length = 8};
    cr_expect_eq(ds_store_check(&s, &err), DS_ERR_VALUE);
    s = (ds_store){.point_bytes = INT64_C(1) << 40, .length = INT64_C(1) << 30};
    cr_expect_eq(ds_store_check(&s, &err), DS_ERR_OVERFLOW);
}
