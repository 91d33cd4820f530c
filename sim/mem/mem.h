/* Memory by liveness.
 *
 * A result is allocated when its task starts (a received one: when the transfer starts) and freed
 * when the last task that reads it ends, on any stream; at equal times frees come first. Inputs
 * live for the whole step, outputs from their making to its end. A result takes the buffer of the
 * operand that its op's line names (ds_op_inplace) if nothing reads that later in the program or
 * still reads it on another stream; optimizer results always do. Views own no bytes. What is
 * offloaded takes memory of the device's host by the same rules.
 *
 * What counts as used is a choice (ds_mem_mode): the live bytes; live bytes in whole blocks of an
 * allocator; or what a caching allocator has reserved, with what the driver, the process and its
 * communicators hold beside it. */
#ifndef DS_MEM_MEM_H
#define DS_MEM_MEM_H

#include "ir/base/units.h"
#include "sim/engine/engine.h"

typedef enum ds_mem_mode {
    DS_MEM_EXACT,    /* live bytes */
    DS_MEM_ROUNDED,  /* every buffer in whole blocks of 512 B */
    DS_MEM_ALLOCATOR /* segments of a caching allocator (allocator.h), and overheads */
} ds_mem_mode;
/* "exact", "rounded", "allocator"; the other way round false if it is none of them. */
const char *ds_mem_mode_name(ds_mem_mode mode);
bool ds_mem_mode_parse(const char *text, ds_mem_mode *out);

/* Whose buffers count beside the program's tensors (framework.c, fsdp.c). */
typedef enum ds_mem_framework {
    DS_MEM_PLAIN,
    DS_MEM_DEEPSPEED,
    DS_MEM_FSDP,
    DS_MEM_TORCHTITAN
} ds_mem_framework;
/* Words of the scenario's key `framework`; false for others. */
bool ds_mem_framework_parse(const char *text, ds_mem_framework *out);

typedef struct ds_mem_options {
    ds_mem_mode mode;
    ds_mem_framework framework; /* counted in DS_MEM_ALLOCATOR */
    /* A dropout keeps a byte an element from its last forward execution to its backward op, as
     * frameworks do that store the mask; else masks are drawn again from their names and take
     * nothing. */
    bool keep_masks;
} ds_mem_options;

/* Beside the categories of values: what DS_MEM_ALLOCATOR counts besides. */
enum {
    DS_MEM_CONTEXT = DS_CATEGORY_COUNT, /* the driver's share, the process and its kernels */
    DS_MEM_COMMUNICATOR,                /* buffers of communicators */
    DS_MEM_FRAMEWORK,                   /* the framework's own buffers */
    DS_MEM_WORKSPACE,                   /* scratch of ops, and of cuBLAS (workspace.c) */
    DS_MEM_UNUSED,                      /* reserved by the allocator, held by nothing */
    DS_MEM_CATEGORY_COUNT
};
const char *ds_mem_category_name(int category);
/* Of bytes by category: those that are there from the start to the end without a tensor. */
static inline int64_t ds_mem_beside(const int64_t *by) {
    int64_t process = ds_bytes_sum(by[DS_MEM_CONTEXT], by[DS_MEM_COMMUNICATOR]);
    return ds_bytes_sum(process, by[DS_MEM_FRAMEWORK]);
}
/* How many of the categories a mode knows: DS_CATEGORY_COUNT or DS_MEM_CATEGORY_COUNT. */
int ds_mem_n_categories(ds_mem_mode mode);

/* One change of a class's memory. */
typedef struct ds_mem_event {
    int64_t time_ps;
    int64_t delta_bytes; /* > 0: allocation; in ROUNDED and ALLOCATOR whole blocks */
    uint32_t value;      /* the buffer's first value instance, with what it is of that */
} ds_mem_event;

/* In `value`: not the value, but what else the op that makes it has. */
#define DS_MEM_MASK    0x80000000u /* a dropout's mask */
#define DS_MEM_SCRATCH 0x40000000u /* scratch while the op runs */
#define DS_MEM_LIBRARY 0xc0000000u /* workspace of the library that the op calls */
#define DS_MEM_COPY    0x20000000u /* its narrow copy (ds_plan_copy) */
#define DS_MEM_SECOND  0x60000000u /* scratch that is a tensor beside the first */
#define DS_MEM_THIRD   0xe0000000u /* the same, beside both */
static inline uint32_t ds_mem_value(uint32_t value) {
    return value & ~(DS_MEM_LIBRARY | DS_MEM_COPY);
}
static inline uint32_t ds_mem_part(uint32_t value) {
    return value & (DS_MEM_LIBRARY | DS_MEM_COPY);
}
/* The category of the buffer of an event, or of a live buffer. */
static inline uint32_t ds_mem_category(const ds_plan *plan, uint32_t value) {
    uint32_t part = ds_mem_part(value);
    bool kept = part == DS_MEM_MASK || part == DS_MEM_COPY;
    return !part ? plan->values.at[value].category : kept ? DS_CAT_ACTIVATION : DS_MEM_WORKSPACE;
}
/* The text after the path of the op: "", " (mask)", " (copy)", " (scratch)", " (cuBLAS)". */
const char *ds_mem_part_text(uint32_t value);

typedef struct ds_mem_class {
    ds_mem_event *events; /* by time, frees first */
    uint32_t n_events;
    int64_t *reserved_bytes; /* ALLOCATOR: of all segments after each event; else NULL */
    int64_t peak_bytes;
    int64_t peak_ps;         /* the first time at which the peak is reached */
    uint32_t most_event;     /* events[0 … most_event]: buffers hold most, for the first time */
    uint32_t over_event;     /* the first event beyond the capacity; DS_NONE: none */
    int64_t allocated_bytes; /* most that buffers held at once: below the peak in ALLOCATOR */
    int64_t peak_by_category[DS_MEM_CATEGORY_COUNT];  /* when buffers hold most, and UNUSED the rest
                                                         of the peak: the sum is the peak */
    int64_t most_by_category[DS_MEM_CATEGORY_COUNT];  /* each at its own peak */
    int64_t input_by_category[DS_MEM_CATEGORY_COUNT]; /* what is there from the start to the end */
    /* What one device keeps in its host's memory; whatever the mode, bytes as they are. */
    ds_mem_event *host_events;
    uint32_t n_host_events;
} ds_mem_class;

/* What all devices keep at one host. */
typedef struct ds_mem_host {
    uint32_t vertex;
    uint32_t n_devices; /* whose host it is, and that keep something there */
    int64_t peak_bytes;
    int64_t peak_ps; /* the first time at which the peak is reached */
} ds_mem_host;

typedef struct ds_mem {
    ds_mem_class *classes; /* per class of the plan */
    uint32_t n_classes;
    ds_mem_mode mode;
} ds_mem;

/* A buffer alive when a class's buffers hold most. */
typedef struct ds_mem_live {
    uint32_t value; /* as in ds_mem_event */
    int64_t bytes;
} ds_mem_live;

/* O(values · classes + events · log events), in ALLOCATOR times free blocks.
 * DS_ERR_OVERFLOW beyond int64 bytes; *out is then still to be deinitialised. */
ds_status ds_mem_compute(const ds_plan *plan, const ds_run *run, const ds_mem_options *options,
                         ds_mem *out, ds_error *err);
void ds_mem_deinit(ds_mem *mem);

/* The buffers alive when the buffers of a class hold most, largest first (ties: earliest value), on the heap. */
ds_mem_live *ds_mem_live_at_peak(const ds_mem *mem, uint32_t cls, uint32_t *n);

/* The hosts at which something is kept, by vertex; on the heap. Hosts of as many devices of each
 * class are counted once. DS_ERR_OVERFLOW beyond int64 bytes. O(devices · classes + events · log
 * events). */
ds_status ds_mem_hosts(const ds_plan *plan, const ds_mem *mem, ds_mem_host **out, uint32_t *n,
                       ds_error *err);
/* The most that one device of a class keeps at its host; DS_MANY_BYTES: beyond int64. O(events). */
int64_t ds_mem_host_peak(const ds_mem_class *c);

/* Bytes beside tensors of a class: of the context (the driver's share included) and of its
 * communicators, from the catalogue. A communicator is a set of devices that a communicating op
 * brings together, whatever axes or group named it; both directions of a send are one.
 * O(records · classes · members). */
void ds_mem_overheads(const ds_plan *plan, int64_t *context_bytes, int64_t *communicator_bytes);

/* Bytes of a framework's own buffers, per class (framework.c has the formulas and their sources).
 * O(values · classes + instances · classes). */
void ds_mem_framework_bytes(const ds_plan *plan, ds_mem_framework framework, int64_t *bytes);

#endif
