#include "ir/base/heap.h"

#include "ir/base/arena.h"

#include <stdbool.h>
#include <stdlib.h>

void ds_heap_deinit(ds_heap *heap) {
    free(heap->at);
    *heap = (ds_heap){0};
}

static bool before(ds_heap_item a, ds_heap_item b) {
    return a.time_ps != b.time_ps ? a.time_ps < b.time_ps : a.sequence_and_id < b.sequence_and_id;
}

/* Sequence numbers wrap after 2^32 pushes; renumbering in heap order keeps them exact. Items sorted
 * by (time, sequence) form a valid heap, so the order of equals is kept. */
static int earlier_first(const void *a, const void *b) {
    const ds_heap_item *x = a, *y = b;
    return before(*x, *y) ? -1 : before(*y, *x);
}

static void renumber(ds_heap *heap) {
    qsort(heap->at, heap->n, sizeof *heap->at, earlier_first);
    for (uint32_t i = 0; i < heap->n; i++)
        heap->at[i].sequence_and_id = (uint64_t)i << 32 | (uint32_t)heap->at[i].sequence_and_id;
    heap->sequence = heap->n;
}

void ds_heap_push(ds_heap *heap, int64_t time_ps, uint32_t id) {
    if (heap->sequence == UINT32_MAX) renumber(heap);
    ds_heap_push_ranked(heap, time_ps, heap->sequence++, id);
}

void ds_heap_push_ranked(ds_heap *heap, int64_t time_ps, uint32_t rank, uint32_t id) {
    if (heap->n == heap->cap) heap->at = ds_vec_grow_heap(heap->at, &heap->cap, sizeof *heap->at);
    ds_heap_item item = {time_ps, (uint64_t)rank << 32 | id};
    uint32_t i = heap->n++;
    while (i > 0 && before(item, heap->at[(i - 1) / 4])) {
        heap->at[i] = heap->at[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    heap->at[i] = item;
}

uint32_t ds_heap_pop(ds_heap *heap) {
    uint32_t id = (uint32_t)heap->at[0].sequence_and_id;
    ds_heap_item last = heap->at[--heap->n];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 4 * i + 1;
        if (child >= heap->n) break;
        uint32_t end = child + 4 < heap->n ? child + 4 : heap->n, best = child;
        for (uint32_t c = child + 1; c < end; c++)
            if (before(heap->at[c], heap->at[best])) best = c;
        if (!before(heap->at[best], last)) break;
        heap->at[i] = heap->at[best];
        i = best;
    }
    if (heap->n) heap->at[i] = last;
    if (heap->n == 0) heap->sequence = 0;
    return id;
}
