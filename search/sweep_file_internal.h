/* A sweep's file while it grows; internal to search. */
#ifndef DS_SEARCH_SWEEP_FILE_INTERNAL_H
#define DS_SEARCH_SWEEP_FILE_INTERNAL_H

#include "ir/base/error.h"
#include "ir/base/str.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct ds_sweep_file {
    const char *path;
    int fd;
    ds_buf pending; /* rows that are not written yet */
} ds_sweep_file;

/* Opens for writing, and locks against another sweep on the same file. With `keep` the bytes that
 * are there stay. Without, a file that is not empty is DS_ERR_IO unless `overwrite`. */
ds_status ds_sweep_file_open(ds_sweep_file *file, const char *path, bool keep, bool overwrite,
                             ds_error *err);
/* Calls take(context, line, line number from 1) for every complete line, without its newline, cuts
 * off what follows the last one, and goes on writing there. */
ds_status ds_sweep_file_replay(ds_sweep_file *file,
                               ds_status (*take)(void *context, char *line, uint64_t number,
                                                 ds_error *err),
                               void *context, ds_error *err);
/* Writes all that is pending. */
ds_status ds_sweep_file_flush(ds_sweep_file *file, ds_error *err);
ds_status ds_sweep_file_close(ds_sweep_file *file, ds_error *err);

/* Are they one file, or would they be once they are made? "-" is none. */
bool ds_sweep_same_file(const char *a, const char *b);

/* The next line of a file without its newline, a last one without one too; false at the end. */
bool ds_sweep_line(FILE *file, char **line, size_t *cap);

#endif
