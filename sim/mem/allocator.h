/* PyTorch's caching allocator for one device, as a function of the order of allocations and frees.
 *
 * Sizes are rounded up to 512 B. What is asked for up to 1 MiB comes out of segments of 2 MiB (the
 * small pool); up to 10 MiB out of segments of 20 MiB; more gets a segment of its own, rounded up
 * to 2 MiB (both the large pool). A request takes the smallest free block of its pool that is large
 * enough, of equal ones that with the lowest address; the rest of the block stays free if it is at
 * least 512 B (small pool) or more than 1 MiB (large pool), else it goes with the request. A freed
 * block joins its free neighbours in the segment. Segments are kept; where a new one would pass the
 * capacity, all that are wholly free are given back first.
 *
 * Each stream has its own small and large pool. A freed block serves later requests of the stream that
 * allocated the block, and no request of another stream.
 *
 * Expandable segments (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True): each pool is one range of
 * addresses that grows at its end by what its last free block lacks, in pages of 2 MiB (small) or
 * 20 MiB (large), and the rest of any block stays free. Where the pages would pass the capacity, the
 * pages of free blocks are given back, so that no more is reserved than is in use.
 *
 * Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp (kMinBlockSize, kSmallSize, kSmallBuffer,
 * kLargeBuffer, kMinLargeAlloc, kRoundLarge; get_free_block, should_split, release_cached_blocks;
 * try_allocate_expandable_block, ExpandableSegment), else with its default options: no split limit,
 * no rounding to powers of two. Assumed: segments with ascending addresses in the order in which
 * they were made. */
#ifndef DS_MEM_ALLOCATOR_H
#define DS_MEM_ALLOCATOR_H

#include "ir/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define DS_ALLOC_BLOCK INT64_C(512)

typedef struct ds_allocator ds_allocator;

typedef enum ds_alloc_stream {
    DS_ALLOC_COMPUTE,
    DS_ALLOC_GATHER,  /* of weights */
    DS_ALLOC_SCATTER, /* of gradients */
    DS_ALLOC_STREAMS
} ds_alloc_stream;

/* capacity_bytes: what all segments may have together; 0: no limit. */
ds_allocator *ds_allocator_new(int64_t capacity_bytes, bool expandable);
void ds_allocator_free(ds_allocator *a);

/* A block of at least `bytes` > 0; its handle is valid until it is given back. A capacity that is
 * too small even so is passed, not an error. DS_ERR_OVERFLOW beyond 2^63 bytes. O(free blocks). */
ds_status ds_allocator_take(ds_allocator *a, ds_alloc_stream stream, int64_t bytes, uint32_t *block,
                            ds_error *err);
void ds_allocator_give(ds_allocator *a, uint32_t block);

/* What the block holds: the request rounded up, and what was too small to split off. */
int64_t ds_allocator_block_bytes(const ds_allocator *a, uint32_t block);
/* Sum over the blocks in use; sum over the segments. */
int64_t ds_allocator_allocated_bytes(const ds_allocator *a);
int64_t ds_allocator_reserved_bytes(const ds_allocator *a);

/* Rounds up to whole blocks of 512 B. DS_ERR_OVERFLOW. */
ds_status ds_alloc_round(int64_t bytes, int64_t *out, ds_error *err);

#endif
