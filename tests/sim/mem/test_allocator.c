/* The caching allocator: cases by hand from the rules of PyTorch's, and against a second
 * implementation that keeps every segment as a plain list of pieces and searches all of them. */
#include "ir/base/rng.h"
#include "sim/mem/allocator.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define KIB INT64_C(1024)
#define MIB (1024 * KIB)

static uint32_t take(ds_allocator *a, int64_t bytes) {
    uint32_t block = 0;
    cr_assert_eq(ds_allocator_take(a, DS_ALLOC_COMPUTE, bytes, &block, NULL), DS_OK);
    return block;
}

Test(allocator, small_requests_share_segments_of_2_mib) {
    ds_allocator *a = ds_allocator_new(0, false);
    uint32_t x = take(a, 1), y = take(a, 513), z = take(a, MIB);
    cr_expect_eq(ds_allocator_block_bytes(a, x), 512);
    cr_expect_eq(ds_allocator_block_bytes(a, y), 1024);
    cr_expect_eq(ds_allocator_block_bytes(a, z), MIB);
    cr_expect_eq(ds_allocator_allocated_bytes(a), MIB + 1536);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 2 * MIB);
    take(a, MIB); /* 1 MiB less 1536 B is left: another segment */
    cr_expect_eq(ds_allocator_reserved_bytes(a), 4 * MIB);
    ds_allocator_free(a);
}

Test(allocator, from_1_to_10_mib_share_segments_of_20_mib) {
    ds_allocator *a = ds_allocator_new(0, false);
    take(a, MIB + 1);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 20 * MIB);
    take(a, 10 * MIB - 512); /* 8.99 MiB are left of the 20 */
    cr_expect_eq(ds_allocator_reserved_bytes(a), 20 * MIB);
    /* 9 MiB - 512 B are left: exactly 8 MiB are cut off, the rest is 1 MiB - 512 B: not split */
    uint32_t z = take(a, 8 * MIB);
    cr_expect_eq(ds_allocator_block_bytes(a, z), 20 * MIB - (MIB + 512) - (10 * MIB - 512));
    cr_expect_eq(ds_allocator_reserved_bytes(a), 20 * MIB);
    cr_expect_eq(ds_allocator_allocated_bytes(a), 20 * MIB);
    ds_allocator_free(a);
}

Test(allocator, from_10_mib_on_a_segment_of_its_own_in_steps_of_2_mib) {
    ds_allocator *a = ds_allocator_new(0, false);
    uint32_t x = take(a, 10 * MIB), y = take(a, 11 * MIB), z = take(a, 32 * MIB + 1);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 10 * MIB + 12 * MIB + 34 * MIB);
    cr_expect_eq(ds_allocator_block_bytes(a, x), 10 * MIB);
    cr_expect_eq(ds_allocator_block_bytes(a, y), 12 * MIB, "1 MiB is not split off");
    cr_expect_eq(ds_allocator_block_bytes(a, z), 32 * MIB + 512);
    ds_allocator_free(a);
}

Test(allocator, keeps_what_is_freed_and_joins_neighbours) {
    ds_allocator *a = ds_allocator_new(0, false);
    uint32_t x = take(a, 6 * MIB), y = take(a, 6 * MIB);
    ds_allocator_give(a, x);
    ds_allocator_give(a, y);
    cr_expect_eq(ds_allocator_allocated_bytes(a), 0);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 20 * MIB);
    take(a, 20 * MIB); /* the whole segment again */
    cr_expect_eq(ds_allocator_reserved_bytes(a), 20 * MIB);
    ds_allocator_free(a);
}

Test(allocator, fragments) {
    ds_allocator *a = ds_allocator_new(0, false);
    uint32_t x = take(a, 8 * MIB);
    take(a, 4 * MIB);
    ds_allocator_give(a, x); /* 8 MiB free before y, 8 MiB behind it: 16 in all */
    take(a, 9 * MIB);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 40 * MIB);
    ds_allocator_free(a);
}

Test(allocator, gives_free_segments_back_at_the_limit) {
    ds_allocator *a = ds_allocator_new(64 * MIB, false);
    uint32_t x = take(a, 40 * MIB);
    ds_allocator_give(a, x);
    take(a, 48 * MIB); /* 40 + 48 > 64: the 40 go back */
    cr_expect_eq(ds_allocator_reserved_bytes(a), 48 * MIB);
    take(a, 30 * MIB); /* nothing is free: beyond the limit */
    cr_expect_eq(ds_allocator_reserved_bytes(a), 78 * MIB);
    ds_allocator_free(a);
}

Test(allocator, refuses_what_no_integer_holds) {
    ds_allocator *a = ds_allocator_new(0, false);
    uint32_t block;
    cr_expect_eq(ds_allocator_take(a, DS_ALLOC_COMPUTE, INT64_MAX, &block, NULL), DS_ERR_OVERFLOW);
    cr_expect_eq(ds_allocator_take(a, DS_ALLOC_COMPUTE, INT64_MAX / 2 + 1 - 2 * MIB, &block, NULL),
                 DS_OK);
    cr_expect_eq(ds_allocator_take(a, DS_ALLOC_COMPUTE, INT64_MAX / 2, &block, NULL), DS_OK);
    cr_expect_eq(ds_allocator_take(a, DS_ALLOC_COMPUTE, 16 * MIB, &block, NULL), DS_ERR_OVERFLOW);
    ds_allocator_free(a);
}

/* A block that one stream gave back serves no other stream. */
Test(allocator, streams_have_pools_of_their_own) {
    ds_allocator *a = ds_allocator_new(0, false);
    uint32_t x = take(a, 30 * MIB), y;
    ds_allocator_give(a, x);
    cr_assert_eq(ds_allocator_take(a, DS_ALLOC_GATHER, 30 * MIB, &y, NULL), DS_OK);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 60 * MIB);
    take(a, 30 * MIB);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 60 * MIB);
    ds_allocator_free(a);
}

/* The last free block grows by what it lacks, in pages of 20 MiB: 100 of 50 + 30 free ones and one
 * page of which 10 stay free. Ordinary segments would be 30 + 50 + 60 MiB. */
Test(allocator, expandable_segments_grow_at_their_end) {
    ds_allocator *a = ds_allocator_new(0, true);
    uint32_t x = take(a, 30 * MIB), y = take(a, 50 * MIB);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 80 * MIB);
    ds_allocator_give(a, y);
    uint32_t z = take(a, 60 * MIB);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 100 * MIB);
    take(a, 10 * MIB);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 100 * MIB, "the rest of the page");
    ds_allocator_give(a, x);
    ds_allocator_give(a, z);
    take(a, 90 * MIB);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 100 * MIB, "neighbours are one block");
    take(a, MIB);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 102 * MIB, "a page of the small pool");
    ds_allocator_free(a);
}

/* 60 MiB in use, 40 free before them: pages of the free block go where 30 more would not fit. */
Test(allocator, full_expandable_segments_give_pages_back) {
    ds_allocator *a = ds_allocator_new(110 * MIB, true);
    uint32_t x = take(a, 40 * MIB);
    take(a, 60 * MIB);
    ds_allocator_give(a, x);
    take(a, 20 * MIB);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 100 * MIB);
    take(a, 30 * MIB);
    cr_expect_eq(ds_allocator_allocated_bytes(a), 110 * MIB);
    cr_expect_eq(ds_allocator_reserved_bytes(a), 120 * MIB, "80 MiB in use, and two pages");
    ds_allocator_free(a);
}

/* ---- against a plain one ---- */

enum { MAX_SEGMENTS = 512, MAX_PIECES = 256 };

typedef struct piece {
    int64_t bytes;
    int owner; /* -1: free */
} piece;

typedef struct segment {
    piece pieces[MAX_PIECES];
    int n; /* 0: given back */
    bool small;
} segment;

typedef struct plain {
    segment at[MAX_SEGMENTS];
    int n;
} plain;

static int64_t bytes_of(const segment *s) {
    int64_t sum = 0;
    for (int i = 0; i < s->n; i++) sum += s->pieces[i].bytes;
    return sum;
}

static int64_t reserved(const plain *p) {
    int64_t sum = 0;
    for (int s = 0; s < p->n; s++) sum += bytes_of(&p->at[s]);
    return sum;
}

static void add_segment(plain *p, int64_t request, bool small, int64_t capacity) {
    int64_t bytes = small                ? 2 * MIB
                    : request < 10 * MIB ? 20 * MIB
                                         : (request + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    if (capacity && reserved(p) + bytes > capacity)
        for (int s = 0; s < p->n; s++)
            if (p->at[s].n == 1 && p->at[s].pieces[0].owner < 0) p->at[s].n = 0;
    cr_assert_lt(p->n, MAX_SEGMENTS);
    p->at[p->n++] = (segment){.pieces = {{bytes, -1}}, .n = 1, .small = small};
}

/* The smallest free piece that is large enough; segments and pieces in order of address. */
static bool find(const plain *p, int64_t request, bool small, int *segment_at, int *piece_at) {
    int64_t best = INT64_MAX;
    for (int s = 0; s < p->n; s++)
        for (int i = 0; i < p->at[s].n && p->at[s].small == small; i++) {
            const piece *q = &p->at[s].pieces[i];
            if (q->owner >= 0 || q->bytes < request || q->bytes >= best) continue;
            best = q->bytes;
            *segment_at = s;
            *piece_at = i;
        }
    return best < INT64_MAX;
}

static int64_t plain_take(plain *p, int64_t bytes, int owner, int64_t capacity) {
    int64_t request = (bytes + 511) / 512 * 512;
    bool small = request <= MIB;
    int s = 0, i = 0;
    if (!find(p, request, small, &s, &i)) {
        add_segment(p, request, small, capacity);
        s = p->n - 1;
        i = 0;
    }
    segment *seg = &p->at[s];
    int64_t rest = seg->pieces[i].bytes - request;
    seg->pieces[i].owner = owner;
    if (small ? rest >= 512 : rest > MIB) {
        cr_assert_lt(seg->n, MAX_PIECES);
        memmove(&seg->pieces[i + 2], &seg->pieces[i + 1],
                (size_t)(seg->n - i - 1) * sizeof *seg->pieces);
        seg->n++;
        seg->pieces[i].bytes = request;
        seg->pieces[i + 1] = (piece){rest, -1};
    }
    return seg->pieces[i].bytes;
}

static void plain_give(plain *p, int owner) {
    for (int s = 0; s < p->n; s++) {
        segment *seg = &p->at[s];
        for (int i = 0; i < seg->n; i++)
            if (seg->pieces[i].owner == owner) seg->pieces[i].owner = -1;
        for (int i = 0; i + 1 < seg->n;) {
            if (seg->pieces[i].owner >= 0 || seg->pieces[i + 1].owner >= 0) {
                i++;
                continue;
            }
            seg->pieces[i].bytes += seg->pieces[i + 1].bytes;
            memmove(&seg->pieces[i + 1], &seg->pieces[i + 2],
                    (size_t)(seg->n - i - 2) * sizeof *seg->pieces);
            seg->n--;
        }
    }
}

enum { STEPS = 400, RUNS = 200, MAX_HELD = 60 };

static int64_t draw_bytes(ds_rng *rng) {
    static const int64_t scale[] = {2 * KIB, 200 * KIB, 1100 * KIB, 4 * MIB, 12 * MIB, 60 * MIB};
    return 1 + (int64_t)(ds_rng_next(rng) % (uint64_t)scale[ds_rng_next(rng) % 6]);
}

Test(allocator, equals_a_plain_one_on_random_sequences) {
    plain *p = malloc(sizeof *p);
    for (uint64_t run = 0; run < RUNS; run++) {
        ds_rng rng = {run};
        int64_t capacity = run % 2 ? 300 * MIB : 0, allocated = 0;
        ds_allocator *a = ds_allocator_new(capacity, false);
        uint32_t block[STEPS];
        int held[MAX_HELD], n = 0;
        p->n = 0;
        for (int step = 0; step < STEPS; step++) {
            if (n < MAX_HELD && (n == 0 || ds_rng_next(&rng) % 100 < 55)) {
                int64_t bytes = draw_bytes(&rng);
                block[step] = take(a, bytes);
                int64_t got = plain_take(p, bytes, step, capacity);
                cr_assert_eq(ds_allocator_block_bytes(a, block[step]), got);
                allocated += got;
                held[n++] = step;
            } else {
                int at = (int)(ds_rng_next(&rng) % (uint64_t)n), owner = held[at];
                held[at] = held[--n];
                allocated -= ds_allocator_block_bytes(a, block[owner]);
                ds_allocator_give(a, block[owner]);
                plain_give(p, owner);
            }
            cr_assert_eq(ds_allocator_allocated_bytes(a), allocated);
            cr_assert_eq(ds_allocator_reserved_bytes(a), reserved(p), "run %llu, step %d",
                         (unsigned long long)run, step);
        }
        ds_allocator_free(a);
    }
    free(p);
}
