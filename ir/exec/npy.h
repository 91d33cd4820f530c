/* NumPy's .npy files, version 1.0: what exec reads inputs from and writes results to.
 *
 * Read: <f4, <f8, <i4, <i8 and |i1, in C order. Everything else (big-endian, Fortran order,
 * structured or complex dtypes) is refused with what was found. Written: <f8 for floats, <i8 for
 * integers and bool, whatever the narrower dtype: the numbers are exact.
 * Source: numpy.lib.format, "NumPy format", version 1.0. */
#ifndef DS_EXEC_NPY_H
#define DS_EXEC_NPY_H

#include "ir/exec/exec.h"

/* Elements are on the heap: free(out->at). out->name is not set; dtype says what the file held.
 * Errors: DS_ERR_IO, DS_ERR_DATA, DS_ERR_UNSUPPORTED, DS_ERR_LIMIT (more than max_bytes once they
 * are doubles). O(size). */
ds_status ds_npy_read(const char *path, int64_t max_bytes, ds_exec_tensor *out, ds_error *err);
/* The whole file's bytes. O(elements). */
void ds_npy_print(const ds_exec_tensor *tensor, ds_buf *out);

#endif
