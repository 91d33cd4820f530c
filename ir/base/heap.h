/* A 4-ary min-heap of (time, sequence) → id: the event queue. Equal times leave in the order in
 * which they were pushed, so a simulation never depends on the heap's shape. A search's queue of
 * bounds gives ranks in place of the order of pushes. */
#ifndef DS_BASE_HEAP_H
#define DS_BASE_HEAP_H

#include <stdint.h>

typedef struct ds_heap_item {
    int64_t time_ps;
    uint64_t sequence_and_id; /* sequence << 32 | id */
} ds_heap_item;

typedef struct ds_heap {
    ds_heap_item *at;
    uint32_t n, cap;
    uint32_t sequence;
} ds_heap;

void ds_heap_deinit(ds_heap *heap);
/* O(log n); allocates only when it outgrows its largest size so far. */
void ds_heap_push(ds_heap *heap, int64_t time_ps, uint32_t id);
/* Equal times leave by rank, equal ranks by id. A heap takes either pushes or ranked pushes. */
void ds_heap_push_ranked(ds_heap *heap, int64_t time_ps, uint32_t rank, uint32_t id);
/* The id of the earliest item, removed. The heap must not be empty. O(log n). */
uint32_t ds_heap_pop(ds_heap *heap);

#endif
