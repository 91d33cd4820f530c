/* Memory by liveness.
 *
 * A result is allocated when its task starts (a received one: when the transfer starts) and freed
 * when the last task that reads it ends, on any stream; at equal times frees come first. Inputs
 * live for the whole step, outputs from their making to its end. An op marked in place takes its
 * operand's buffer if nothing reads that later in the program or still reads it on another stream;
 * optimizer results always do. Views own no bytes. The peak excludes allocator rounding. */
#ifndef DS_MEM_MEM_H
#define DS_MEM_MEM_H

#include "sim/engine/engine.h"

/* One change of a class's memory. */
typedef struct ds_mem_event {
    int64_t time_ps;
    int64_t delta_bytes; /* > 0: allocation */
    uint32_t value;      /* the buffer's first value instance */
} ds_mem_event;

typedef struct ds_mem_class {
    ds_mem_event *events; /* by time, frees first */
    uint32_t n_events;
    int64_t peak_bytes;
    int64_t peak_ps;                              /* the first time at which the peak is reached */
    uint32_t peak_event;                          /* events[0 … peak_event] lead to it */
    int64_t peak_by_category[DS_CATEGORY_COUNT];  /* at the peak: their sum is the peak */
    int64_t most_by_category[DS_CATEGORY_COUNT];  /* each at its own peak */
    int64_t input_by_category[DS_CATEGORY_COUNT]; /* what is there from the start to the end */
} ds_mem_class;

typedef struct ds_mem {
    ds_mem_class *classes; /* per class of the plan */
    uint32_t n_classes;
} ds_mem;

/* A buffer alive at a class's peak. */
typedef struct ds_mem_live {
    uint32_t value;
    int64_t bytes;
} ds_mem_live;

/* O(values · classes + events · log events). DS_ERR_OVERFLOW beyond int64 bytes. */
ds_status ds_mem_compute(const ds_plan *plan, const ds_run *run, ds_mem *out, ds_error *err);
void ds_mem_deinit(ds_mem *mem);

/* The buffers alive at the peak of a class, largest first (ties: earliest value), on the heap. */
ds_mem_live *ds_mem_live_at_peak(const ds_mem *mem, uint32_t cls, uint32_t *n);

#endif
