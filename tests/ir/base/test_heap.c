#include "ir/base/heap.h"

#include "ir/base/rng.h"

#include <criterion/criterion.h>
#include <stdlib.h>

typedef struct event {
    int64_t time_ps;
    uint32_t order; /* of the push; also the id */
} event;

static int by_time_then_order(const void *a, const void *b) {
    const event *x = a, *y = b;
    if (x->time_ps != y->time_ps) return x->time_ps < y->time_ps ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Against a sort by (time, order of push). Few distinct times, so that most are ties. */
Test(heap, leaves_in_order_of_time_then_push) {
    enum { N = 5000 };
    static event events[N];
    for (uint64_t distinct = 1; distinct <= 100000; distinct *= 10) {
        ds_rng rng = {distinct};
        ds_heap heap = {0};
        for (uint32_t i = 0; i < N; i++) {
            events[i] = (event){(int64_t)ds_rng_below(&rng, distinct), i};
            ds_heap_push(&heap, events[i].time_ps, i);
        }
        qsort(events, N, sizeof *events, by_time_then_order);
        for (uint32_t i = 0; i < N; i++) {
            cr_assert_eq(heap.at[0].time_ps, events[i].time_ps);
            cr_assert_eq(ds_heap_pop(&heap), events[i].order);
        }
        cr_assert_eq(heap.n, 0);
        ds_heap_deinit(&heap);
    }
}

/* Pushes and pops mixed, as an event loop does it: against the least of the events not yet taken.
 */
Test(heap, interleaved) {
    enum { N = 600 };
    static event events[N];
    static bool taken[N];
    ds_heap heap = {0};
    ds_rng rng = {17};
    uint32_t pushed = 0;
    while (pushed < N || heap.n) {
        if (pushed < N && (!heap.n || ds_rng_below(&rng, 3))) {
            events[pushed] = (event){(int64_t)ds_rng_below(&rng, 50), pushed};
            ds_heap_push(&heap, events[pushed].time_ps, pushed);
            pushed++;
            continue;
        }
        uint32_t least = UINT32_MAX;
        for (uint32_t i = 0; i < pushed; i++)
            if (!taken[i] &&
                (least == UINT32_MAX || by_time_then_order(&events[i], &events[least]) < 0))
                least = i;
        cr_assert_eq(ds_heap_pop(&heap), least);
        taken[least] = true;
    }
    ds_heap_deinit(&heap);
}

Test(heap, extreme_times) {
    ds_heap heap = {0};
    ds_heap_push(&heap, INT64_MAX, 1);
    ds_heap_push(&heap, 0, 2);
    ds_heap_push(&heap, INT64_MAX, UINT32_MAX);
    cr_assert_eq(ds_heap_pop(&heap), 2);
    cr_assert_eq(ds_heap_pop(&heap), 1);
    cr_assert_eq(ds_heap_pop(&heap), UINT32_MAX);
    ds_heap_deinit(&heap);
}

static int by_time_rank_id(const void *a, const void *b) {
    const uint32_t *x = a, *y = b; /* time, rank, id */
    for (int k = 0; k < 3; k++)
        if (x[k] != y[k]) return x[k] < y[k] ? -1 : 1;
    return 0;
}

/* Against a sort by (time, rank, id). Few distinct times and ranks, pushed in any order. */
Test(heap, ranked_leaves_in_order_of_time_rank_id) {
    enum { N = 3000 };
    static uint32_t items[N][3];
    ds_heap heap = {0};
    ds_rng rng = {5};
    for (uint32_t i = 0; i < N; i++) {
        uint32_t id = i * 1009u % N; /* 1009 and 3000 have no common divisor: each id once */
        items[i][0] = (uint32_t)ds_rng_below(&rng, 20);
        items[i][1] = UINT32_MAX - (uint32_t)ds_rng_below(&rng, 5);
        items[i][2] = id;
        ds_heap_push_ranked(&heap, items[i][0], items[i][1], id);
    }
    qsort(items, N, sizeof *items, by_time_rank_id);
    for (uint32_t i = 0; i < N; i++) cr_assert_eq(ds_heap_pop(&heap), items[i][2]);
    ds_heap_deinit(&heap);
}
