/* Dense tensors of doubles, row-major, in counted buffers.
 *
 * A value never changes once it is computed, so devices, views and collectives share buffers: a
 * tensor that is all_gathered to 8 devices is in memory once. Whoever writes an element has made
 * the tensor itself and not given it away yet. */
#ifndef DS_EXEC_TENSOR_H
#define DS_EXEC_TENSOR_H

#include "ir/core/type.h"

/* What all tensors of a run take together, and how much they may. */
typedef struct ds_exec_memory {
    int64_t live_bytes, peak_bytes, max_bytes;
} ds_exec_memory;

typedef struct ds_buffer ds_buffer;

typedef struct ds_tensor {
    uint32_t rank;
    int64_t dims[DS_MAX_RANK];
    int64_t n;         /* elements */
    double *at;        /* NULL: no data yet */
    ds_buffer *buffer; /* counted; owns `at` */
} ds_tensor;

/* The number of elements; DS_ERR_OVERFLOW if it or the bytes leave int64. `loc` is for messages. */
ds_status ds_tensor_count(uint32_t rank, const int64_t *dims, ds_loc loc, int64_t *out,
                          ds_error *err);
/* A tensor of zeros. DS_ERR_LIMIT if the run would then hold more than max_bytes. O(elements). */
ds_status ds_tensor_new(ds_exec_memory *memory, uint32_t rank, const int64_t *dims, ds_loc loc,
                        ds_tensor *out, ds_error *err);
/* One more owner of the same elements. */
ds_tensor ds_tensor_share(const ds_tensor *tensor);
/* One owner less; frees what no one owns. A zeroed tensor is fine. */
void ds_tensor_drop(ds_tensor *tensor);

bool ds_tensor_same_shape(const ds_tensor *a, const ds_tensor *b);

/* Copies the box of `extent` elements a dim from src at src_lo to dst at dst_lo; both have that
 * rank. `add`: how an element d of dst and s of src become dst's: NULL copies. O(box). */
typedef double (*ds_combine)(double d, double s);
void ds_tensor_copy_box(ds_tensor *dst, const int64_t *dst_lo, const ds_tensor *src,
                        const int64_t *src_lo, const int64_t *extent, ds_combine combine);

/* Elements before and after dim d: strides of a row-major tensor. */
int64_t ds_tensor_outer(const ds_tensor *tensor, uint32_t d);
int64_t ds_tensor_inner(const ds_tensor *tensor, uint32_t d);

/* "[2, 3]" into a buffer of DS_DIMS_TEXT bytes; returns it. */
#define DS_DIMS_TEXT 192
const char *ds_dims_text(uint32_t rank, const int64_t *dims, char out[DS_DIMS_TEXT]);

#endif
