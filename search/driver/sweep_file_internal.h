/* A sweep's file while it grows; internal to search. */
#ifndef DS_SEARCH_DRIVER_SWEEP_FILE_INTERNAL_H
#define DS_SEARCH_DRIVER_SWEEP_FILE_INTERNAL_H

#include "ir/base/csv.h"
#include "ir/base/output.h"

typedef struct ds_sweep_file {
    const char *path;
    ds_output out;     /* where rows go */
    ds_csv_stream old; /* the file that is resumed; open to the end, since closing drops the lock */
    ds_buf pending;    /* rows that are not written yet */
    ds_buf tail;       /* the bytes after the last whole record of `old` */
    uint64_t n_old, tail_line; /* bytes of the whole records of `old`; line of the tail */
} ds_sweep_file;

/* Opens for writing, and locks against another sweep on the same file. With `resume`, call
 * ds_sweep_file_replay next, which reads the records of an existing file; without, ir/base/output.h
 * has the policy for an existing file. No file is made or changed before the first flush. */
ds_status ds_sweep_file_open(ds_sweep_file *file, const char *path, bool resume, bool overwrite,
                             ds_error *err);
/* Calls take(context, record, the record's number from 1) for every whole record of the file that
 * is resumed. *any: the file had a whole record. */
ds_status ds_sweep_file_replay(ds_sweep_file *file,
                               ds_status (*take)(void *context, const ds_csv_stream *record,
                                                 uint64_t number, ds_error *err),
                               void *context, bool *any, ds_error *err);
/* Writes all pending rows. The first of these rows replaces the part of a record that a killed
 * sweep has left, and must begin with that part; else another program wrote the part, and the file
 * stays as it was (DS_ERR_DATA). */
ds_status ds_sweep_file_flush(ds_sweep_file *file, ds_error *err);
/* Call after the last row: DS_ERR_DATA if bytes follow the last record. */
ds_status ds_sweep_file_finish(ds_sweep_file *file, ds_error *err);
ds_status ds_sweep_file_close(ds_sweep_file *file, ds_error *err);

/* DS_ERR_DATA: this sweep cannot resume the file. */
ds_status ds_sweep_file_refuse(const ds_sweep_file *file, uint64_t line, const char *why,
                               ds_error *err);

#endif
