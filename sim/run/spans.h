/* Intervals of time in picoseconds. */
#ifndef DS_RUN_SPANS_H
#define DS_RUN_SPANS_H

#include <stdint.h>

typedef struct ds_span {
    int64_t start, end;
} ds_span;

/* Sorts spans and merges spans that touch; returns the number left. O(n log n), O(n) if sorted. */
uint32_t ds_spans_merge(ds_span *spans, uint32_t n);
/* Lengths of merged spans, and of what two lists of merged spans share. O(n). */
int64_t ds_spans_total(const ds_span *spans, uint32_t n);
int64_t ds_spans_overlap(const ds_span *a, uint32_t n_a, const ds_span *b, uint32_t n_b);

#endif
