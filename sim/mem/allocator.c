/* Segments are cut into blocks, which know their neighbours; free blocks of a pool are kept in an
 * array sorted by size and address, so best fit is a binary search. The array has the size and the
 * address of each free block, so a search reads the array alone. */
#include "sim/mem/allocator.h"

#include "ir/base/arena.h"
#include "ir/base/units.h"

#include <stdlib.h>
#include <string.h>

#define MIB INT64_C(1048576)
/* Names in PyTorch: kSmallSize, kSmallBuffer, kLargeBuffer, kMinLargeAlloc, kRoundLarge. */
#define SMALL_REQUEST MIB
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)
#define OWN_SEGMENT   (10 * MIB)
#define ROUND_SEGMENT (2 * MIB)
#define SMALL_PAGE    (2 * MIB)
#define LARGE_PAGE    (20 * MIB)

#define NONE UINT32_MAX

enum { SMALL, LARGE, N_SIZES, N_POOLS = N_SIZES * DS_ALLOC_STREAMS };

typedef struct block {
    int64_t bytes;
    int64_t offset; /* in its segment */
    uint32_t segment;
    uint32_t prev, next; /* neighbours in the segment; of an unused handle `next` is the next one */
    uint8_t pool;
    bool is_free;
} block;

/* A free block in its pool. */
typedef struct spot {
    int64_t bytes, offset;
    uint32_t segment, handle;
} spot;

struct ds_allocator {
    DS_VEC(block) blocks; /* by handle */
    uint32_t unused;      /* handles that may be taken again */
    DS_VEC(spot) cached[N_POOLS];
    uint32_t n_segments;
    bool expandable;
    bool is_full;           /* pages of free blocks were given back */
    uint32_t last[N_POOLS]; /* the last block of an expandable pool; NONE: the pool is empty */
    int64_t capacity, reserved, allocated;
};

ds_allocator *ds_allocator_new(int64_t capacity_bytes, bool expandable) {
    ds_allocator *a = ds_xcalloc(1, sizeof *a);
    a->unused = NONE;
    a->capacity = capacity_bytes;
    a->expandable = expandable;
    for (int p = 0; p < N_POOLS; p++) a->last[p] = NONE;
    return a;
}

static bool is_small(int pool) {
    return pool % N_SIZES == SMALL;
}

void ds_allocator_free(ds_allocator *a) {
    if (!a) return;
    for (int p = 0; p < N_POOLS; p++) free(a->cached[p].at);
    free(a->blocks.at);
    free(a);
}

ds_status ds_alloc_round(int64_t bytes, int64_t *out, ds_error *err) {
    if (!ds_add_i64(bytes, DS_ALLOC_BLOCK - 1, out))
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "an allocation of %lld bytes cannot be rounded up to blocks of 512",
                            (long long)bytes);
    *out -= *out % DS_ALLOC_BLOCK;
    return DS_OK;
}

/* ---- handles ---- */

static uint32_t new_block(ds_allocator *a, block contents) {
    uint32_t handle = a->unused;
    if (handle == NONE) {
        DS_HPUSH(&a->blocks, contents);
        return a->blocks.n - 1;
    }
    a->unused = a->blocks.at[handle].next;
    a->blocks.at[handle] = contents;
    return handle;
}

static void drop_block(ds_allocator *a, uint32_t handle) {
    a->blocks.at[handle] = (block){.next = a->unused};
    a->unused = handle;
}

/* ---- free blocks ---- */

static bool is_before(const spot *x, const spot *y) {
    if (x->bytes != y->bytes) return x->bytes < y->bytes;
    if (x->segment != y->segment) return x->segment < y->segment;
    return x->offset < y->offset;
}

/* The first place in the pool's array whose block does not come before `s`. */
static uint32_t place_of(const ds_allocator *a, int pool, const spot *s) {
    uint32_t lo = 0, hi = a->cached[pool].n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (is_before(&a->cached[pool].at[mid], s))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static spot spot_of(const block *b, uint32_t handle) {
    return (spot){b->bytes, b->offset, b->segment, handle};
}

static void cache(ds_allocator *a, uint32_t handle) {
    block *b = &a->blocks.at[handle];
    b->is_free = true;
    spot s = spot_of(b, handle);
    uint32_t at = place_of(a, b->pool, &s);
    DS_HPUSH(&a->cached[b->pool], s);
    spot *list = a->cached[b->pool].at;
    memmove(list + at + 1, list + at, (a->cached[b->pool].n - 1 - at) * sizeof *list);
    list[at] = s;
}

/* The block at a place of its pool's array is free no more. */
static void uncache_at(ds_allocator *a, int pool, uint32_t at) {
    spot *list = a->cached[pool].at;
    a->blocks.at[list[at].handle].is_free = false;
    a->cached[pool].n--;
    memmove(list + at, list + at + 1, (a->cached[pool].n - at) * sizeof *list);
}

static void uncache(ds_allocator *a, uint32_t handle) {
    const block *b = &a->blocks.at[handle];
    spot s = spot_of(b, handle);
    uncache_at(a, b->pool, place_of(a, b->pool, &s));
}

/* ---- segments ---- */

/* Gives back every segment that is one free block. */
static void release_segments(ds_allocator *a) {
    for (int pool = 0; pool < N_POOLS; pool++) {
        uint32_t kept = 0;
        spot *list = a->cached[pool].at;
        for (uint32_t i = 0; i < a->cached[pool].n; i++) {
            const block *b = &a->blocks.at[list[i].handle];
            if (b->prev == NONE && b->next == NONE) {
                a->reserved -= b->bytes;
                drop_block(a, list[i].handle);
            } else {
                list[kept++] = list[i];
            }
        }
        a->cached[pool].n = kept;
    }
}

static bool segment_bytes(int64_t request, int64_t *out) {
    *out = request <= SMALL_REQUEST ? SMALL_SEGMENT : LARGE_SEGMENT;
    if (request < OWN_SEGMENT) return true;
    if (!ds_add_i64(request, ROUND_SEGMENT - 1, out)) return false;
    *out -= *out % ROUND_SEGMENT;
    return true;
}

static ds_status new_segment(ds_allocator *a, int64_t request, int pool, uint32_t *handle,
                             ds_error *err) {
    int64_t bytes, reserved;
    bool fine = segment_bytes(request, &bytes);
    if (fine && a->capacity && (a->reserved > a->capacity || bytes > a->capacity - a->reserved))
        release_segments(a);
    if (!fine || !ds_add_i64(a->reserved, bytes, &reserved))
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "a device holds more than 2^63 bytes");
    a->reserved = reserved;
    *handle = new_block(a, (block){.bytes = bytes,
                                   .segment = a->n_segments++,
                                   .prev = NONE,
                                   .next = NONE,
                                   .pool = (uint8_t)pool});
    return DS_OK;
}

/* A block at the end of the pool's one segment, which begins with the last block where that is
 * free. */
static ds_status expand(ds_allocator *a, int64_t request, int pool, uint32_t *handle,
                        ds_error *err) {
    uint32_t last = a->last[pool];
    bool joins = last != NONE && a->blocks.at[last].is_free;
    int64_t page = is_small(pool) ? SMALL_PAGE : LARGE_PAGE, bytes, reserved;
    int64_t lacks = joins ? request - a->blocks.at[last].bytes : request;
    bool fine = ds_add_i64(lacks, page - 1, &bytes);
    bytes -= fine ? bytes % page : 0;
    if (fine && a->capacity && (a->reserved > a->capacity || bytes > a->capacity - a->reserved)) {
        a->is_full = true;
        a->reserved = joins ? a->allocated + a->blocks.at[last].bytes : a->allocated;
    }
    if (!fine || !ds_add_i64(a->reserved, bytes, &reserved))
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "a device holds more than 2^63 bytes");
    a->reserved = reserved;
    if (joins) {
        uncache(a, last);
        a->blocks.at[last].bytes += bytes;
        *handle = last;
        return DS_OK;
    }
    block b = {.bytes = bytes,
               .segment = (uint32_t)pool,
               .prev = last,
               .next = NONE,
               .pool = (uint8_t)pool};
    if (last != NONE) b.offset = a->blocks.at[last].offset + a->blocks.at[last].bytes;
    *handle = new_block(a, b);
    if (last != NONE) a->blocks.at[last].next = *handle;
    a->last[pool] = *handle;
    return DS_OK;
}

/* ---- taking and giving ---- */

static void split_block(ds_allocator *a, uint32_t handle, int64_t request) {
    block b = a->blocks.at[handle];
    int64_t rest = b.bytes - request;
    bool fine = is_small(b.pool) || a->expandable;
    if (fine ? rest < DS_ALLOC_BLOCK : rest <= SMALL_REQUEST) return;
    uint32_t after = new_block(a, (block){.bytes = rest,
                                          .offset = b.offset + request,
                                          .segment = b.segment,
                                          .prev = handle,
                                          .next = b.next,
                                          .pool = b.pool});
    if (b.next != NONE) a->blocks.at[b.next].prev = after;
    a->blocks.at[handle].next = after;
    a->blocks.at[handle].bytes = request;
    if (a->last[b.pool] == handle) a->last[b.pool] = after;
    cache(a, after);
}

ds_status ds_allocator_take(ds_allocator *a, ds_alloc_stream stream, int64_t bytes,
                            uint32_t *handle, ds_error *err) {
    int64_t request;
    DS_TRY(ds_alloc_round(bytes, &request, err));
    int pool = (int)stream * N_SIZES + (request <= SMALL_REQUEST ? SMALL : LARGE);
    uint32_t at = place_of(a, pool, &(spot){.bytes = request});
    if (at < a->cached[pool].n) {
        *handle = a->cached[pool].at[at].handle;
        uncache_at(a, pool, at);
    } else {
        DS_TRY(a->expandable ? expand(a, request, pool, handle, err)
                             : new_segment(a, request, pool, handle, err));
    }
    split_block(a, *handle, request);
    a->allocated += a->blocks.at[*handle].bytes;
    if (a->is_full && a->allocated > a->reserved) a->reserved = a->allocated;
    return DS_OK;
}

/* Makes the block one with its right neighbour, whose handle ends. */
static void join_blocks(ds_allocator *a, uint32_t left, uint32_t right) {
    block *l = &a->blocks.at[left], *r = &a->blocks.at[right];
    l->bytes += r->bytes;
    l->next = r->next;
    if (r->next != NONE) a->blocks.at[r->next].prev = left;
    if (a->last[l->pool] == right) a->last[l->pool] = left;
    drop_block(a, right);
}

void ds_allocator_give(ds_allocator *a, uint32_t handle) {
    block b = a->blocks.at[handle];
    a->allocated -= b.bytes;
    if (b.next != NONE && a->blocks.at[b.next].is_free) {
        uncache(a, b.next);
        join_blocks(a, handle, b.next);
    }
    if (b.prev != NONE && a->blocks.at[b.prev].is_free) {
        uncache(a, b.prev);
        join_blocks(a, b.prev, handle);
        handle = b.prev;
    }
    cache(a, handle);
}

int64_t ds_allocator_block_bytes(const ds_allocator *a, uint32_t handle) {
    return a->blocks.at[handle].bytes;
}

int64_t ds_allocator_allocated_bytes(const ds_allocator *a) {
    return a->allocated;
}

int64_t ds_allocator_reserved_bytes(const ds_allocator *a) {
    return a->reserved;
}
