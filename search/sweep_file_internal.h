/* A sweep's file while it grows; internal to search. */
#ifndef DS_SEARCH_SWEEP_FILE_INTERNAL_H
#define DS_SEARCH_SWEEP_FILE_INTERNAL_H

#include "ir/base/csv.h"
#include "ir/base/output.h"

typedef struct ds_sweep_file {
    const char *path;
    ds_output out;     /* where rows go */
    ds_csv_stream old; /* what is gone on with; open to the end, since closing it drops its lock */
    ds_buf pending;    /* rows that are not written yet */
    ds_buf tail;       /* what follows the last whole record of `old` */
    uint64_t n_old, tail_line; /* bytes of its whole records; where the tail begins */
} ds_sweep_file;

/* Opens for writing, and locks against another sweep on the same file. With `resume` the records of
 * a file that is there are read next (ds_sweep_file_replay); else ir/base/output.h says what
 * becomes of it. Nothing is there, and nothing changed, before the first flush. */
ds_status ds_sweep_file_open(ds_sweep_file *file, const char *path, bool resume, bool overwrite,
                             ds_error *err);
/* Calls take(context, record, number of it from 1) for every whole record of the file that is gone
 * on with; *any says if there was one. */
ds_status ds_sweep_file_replay(ds_sweep_file *file,
                               ds_status (*take)(void *context, const ds_csv_stream *record,
                                                 uint64_t number, ds_error *err),
                               void *context, bool *any, ds_error *err);
/* Writes all that is pending. What a killed sweep has left of a record is replaced by the first of
 * them, which must begin so: else it is none of this sweep's, and the file stays as it was
 * (DS_ERR_DATA). */
ds_status ds_sweep_file_flush(ds_sweep_file *file, ds_error *err);
/* No row is to come: DS_ERR_DATA if something follows the last record. */
ds_status ds_sweep_file_finish(ds_sweep_file *file, ds_error *err);
ds_status ds_sweep_file_close(ds_sweep_file *file, ds_error *err);

/* DS_ERR_DATA: the file is not of the sweep that is to go on with it. */
ds_status ds_sweep_file_refuse(const ds_sweep_file *file, uint64_t line, const char *why,
                               ds_error *err);

#endif
