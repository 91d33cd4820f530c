/* Intervals of time: sorted, merged, added up. */
#include "sim/run/spans.h"

#include "ir/base/arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_after(const ds_span *a, const ds_span *b) {
    return a->start != b->start ? a->start > b->start : a->end > b->end;
}

/* The end of the sorted run that begins at `from`. */
static uint32_t end_of_run(const ds_span *spans, uint32_t from, uint32_t n) {
    uint32_t end = from + 1;
    while (end < n && !is_after(&spans[end - 1], &spans[end])) end++;
    return end;
}

/* Two runs, [0 … middle) and [middle … n), become one. */
static void join_runs(ds_span *spans, uint32_t middle, uint32_t n, ds_span *room) {
    uint32_t begin = 0; /* spans that keep their place */
    while (begin < middle && !is_after(&spans[begin], &spans[middle])) begin++;
    uint32_t n_a = middle - begin, a = 0, b = middle, to = begin;
    memcpy(room, spans + begin, n_a * sizeof *room);
    while (a < n_a && b < n) spans[to++] = is_after(&room[a], &spans[b]) ? spans[b++] : room[a++];
    memcpy(spans + to, room + a, (n_a - a) * sizeof *room);
}

/* Spans of a few streams or executions come as a few sorted runs: neighbours are joined until one
 * run is left. */
static void sort_spans(ds_span *spans, uint32_t n) {
    if (!n || end_of_run(spans, 0, n) == n) return;
    ds_span *room = ds_xmalloc(n * sizeof *room);
    for (uint32_t end = 0; end < n;) {
        for (uint32_t first = 0; first < n; first = end) {
            uint32_t middle = end_of_run(spans, first, n);
            end = middle < n ? end_of_run(spans, middle, n) : n;
            if (middle < n) join_runs(spans + first, middle - first, end - first, room);
        }
        end = end_of_run(spans, 0, n);
    }
    free(room);
}

uint32_t ds_spans_merge(ds_span *spans, uint32_t n) {
    uint32_t kept = 0;
    sort_spans(spans, n);
    for (uint32_t i = 0; i < n; i++) {
        if (kept && spans[i].start <= spans[kept - 1].end) {
            if (spans[i].end > spans[kept - 1].end) spans[kept - 1].end = spans[i].end;
        } else {
            spans[kept++] = spans[i];
        }
    }
    return kept;
}

int64_t ds_spans_total(const ds_span *spans, uint32_t n) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += spans[i].end - spans[i].start;
    return sum;
}

int64_t ds_spans_overlap(const ds_span *a, uint32_t n_a, const ds_span *b, uint32_t n_b) {
    int64_t sum = 0;
    for (uint32_t i = 0, k = 0; i < n_a && k < n_b;) {
        int64_t lo = a[i].start > b[k].start ? a[i].start : b[k].start;
        int64_t hi = a[i].end < b[k].end ? a[i].end : b[k].end;
        if (hi > lo) sum += hi - lo;
        if (a[i].end < b[k].end)
            i++;
        else
            k++;
    }
    return sum;
}
