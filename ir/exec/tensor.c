/* Counted buffers and boxes of row-major tensors. */
#include "ir/exec/tensor.h"

#include "ir/base/arena.h"
#include "ir/base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ds_buffer {
    uint32_t owners;
    int64_t bytes;
    ds_exec_memory *memory;
    double at[];
};

const char *ds_dims_text(uint32_t rank, const int64_t *dims, char out[DS_DIMS_TEXT]) {
    size_t n = 0;
    out[n++] = '[';
    for (uint32_t d = 0; d < rank; d++)
        n += (size_t)snprintf(out + n, DS_DIMS_TEXT - n, "%s%lld", d ? ", " : "",
                              (long long)dims[d]);
    snprintf(out + n, DS_DIMS_TEXT - n, "]");
    return out;
}

ds_status ds_tensor_count(uint32_t rank, const int64_t *dims, ds_loc loc, int64_t *out,
                          ds_error *err) {
    int64_t n = 1, bytes;
    bool empty = false, ok = true;
    char text[DS_DIMS_TEXT];
    for (uint32_t d = 0; d < rank; d++) {
        if (dims[d] < 0)
            return ds_error_set(err, DS_ERR_SHAPE, loc, "a tensor of %s has a negative dim",
                                ds_dims_text(rank, dims, text));
        empty = empty || dims[d] == 0;
        ok = ok && (dims[d] == 0 || ds_mul_i64(n, dims[d], &n));
    }
    if (empty) n = 0;
    if (!ok || !ds_mul_i64(n, (int64_t)sizeof(double), &bytes))
        return ds_error_set(err, DS_ERR_OVERFLOW, loc, "a tensor of %s has more than 2^63 bytes",
                            ds_dims_text(rank, dims, text));
    *out = n;
    return DS_OK;
}

ds_status ds_tensor_new(ds_exec_memory *memory, uint32_t rank, const int64_t *dims, ds_loc loc,
                        ds_tensor *out, ds_error *err) {
    *out = (ds_tensor){.rank = rank};
    for (uint32_t d = 0; d < rank; d++) out->dims[d] = dims[d];
    DS_TRY(ds_tensor_count(rank, dims, loc, &out->n, err));
    int64_t bytes = out->n * (int64_t)sizeof(double);
    if (bytes > memory->max_bytes - memory->live_bytes) {
        char text[DS_DIMS_TEXT];
        return ds_error_set(err, DS_ERR_LIMIT, loc,
                            "a tensor of %s needs %lld bytes beside the %lld in use, but at most "
                            "%lld are allowed (--max-bytes)",
                            ds_dims_text(rank, dims, text), (long long)bytes,
                            (long long)memory->live_bytes, (long long)memory->max_bytes);
    }
    memory->live_bytes += bytes;
    if (memory->live_bytes > memory->peak_bytes) memory->peak_bytes = memory->live_bytes;
    out->buffer = ds_xcalloc(1, sizeof *out->buffer + (size_t)bytes);
    out->buffer->owners = 1;
    out->buffer->bytes = bytes;
    out->buffer->memory = memory;
    out->at = out->buffer->at;
    return DS_OK;
}

ds_tensor ds_tensor_share(const ds_tensor *tensor) {
    if (tensor->buffer) tensor->buffer->owners++;
    return *tensor;
}

void ds_tensor_drop(ds_tensor *tensor) {
    ds_buffer *buffer = tensor->buffer;
    tensor->buffer = NULL;
    tensor->at = NULL;
    if (!buffer || --buffer->owners) return;
    buffer->memory->live_bytes -= buffer->bytes;
    free(buffer);
}

bool ds_tensor_same_shape(const ds_tensor *a, const ds_tensor *b) {
    if (a->rank != b->rank) return false;
    for (uint32_t d = 0; d < a->rank; d++)
        if (a->dims[d] != b->dims[d]) return false;
    return true;
}

/* Elements of the first `d` dims, and of those after dim d. */
int64_t ds_tensor_outer(const ds_tensor *tensor, uint32_t d) {
    int64_t n = 1;
    for (uint32_t i = 0; i < d; i++) n *= tensor->dims[i];
    return n;
}

int64_t ds_tensor_inner(const ds_tensor *tensor, uint32_t d) {
    int64_t n = 1;
    for (uint32_t i = d + 1; i < tensor->rank; i++) n *= tensor->dims[i];
    return n;
}

static void copy_row(double *dst, const double *src, int64_t n, ds_combine combine) {
    if (!combine) {
        memcpy(dst, src, (size_t)n * sizeof *dst);
        return;
    }
    for (int64_t i = 0; i < n; i++) dst[i] = combine(dst[i], src[i]);
}

void ds_tensor_copy_box(ds_tensor *dst, const int64_t *dst_lo, const ds_tensor *src,
                        const int64_t *src_lo, const int64_t *extent, ds_combine combine) {
    uint32_t rank = dst->rank;
    if (rank == 0) {
        copy_row(dst->at, src->at, 1, combine);
        return;
    }
    for (uint32_t d = 0; d < rank; d++)
        if (extent[d] <= 0) return;
    int64_t at[DS_MAX_RANK] = {0};
    for (;;) { /* one contiguous row of the last dim after another */
        int64_t to = 0, from = 0;
        for (uint32_t d = 0; d < rank; d++) {
            to = to * dst->dims[d] + dst_lo[d] + at[d];
            from = from * src->dims[d] + src_lo[d] + at[d];
        }
        copy_row(dst->at + to, src->at + from, extent[rank - 1], combine);
        uint32_t d = rank - 1;
        while (d > 0 && ++at[d - 1] == extent[d - 1]) at[--d] = 0;
        if (d == 0) return;
    }
}
