/* The one policy for files that distsim writes.
 *
 * `-` is standard output. A regular file that exists is refused unless DS_OUTPUT_OVERWRITE is set.
 * A regular file, new or replaced, is written beside its place, synchronised and renamed: a reader
 * finds the old content or the new content. Symbolic links are followed, and stay. Character
 * devices, FIFOs with a reader and descriptors of this process (/dev/stdout, /dev/fd/N) are written
 * to, and never replaced. Everything else (folders, block devices, sockets) is refused. */
#ifndef DS_BASE_OUTPUT_H
#define DS_BASE_OUTPUT_H

#include "ir/base/error.h"
#include "ir/base/str.h"

typedef enum ds_output_flags {
    DS_OUTPUT_NEW = 0,
    DS_OUTPUT_OVERWRITE = 1, /* an existing regular file may be replaced */
    DS_OUTPUT_REGULAR = 2    /* nothing but a regular file will do: a database, a table to resume */
} ds_output_flags;

typedef struct ds_output {
    const char *path; /* as it was given */
    char *target;     /* where the path's links lead; NULL: the path is written to directly */
    char *temporary;  /* the file beside the target, until ds_output_commit; else NULL */
    int fd;
    unsigned flags;
} ds_output;

/* Asks, before long work, whether ds_output_open would refuse the path; writes nothing.
 * Errors: DS_ERR_USAGE if the policy refuses the path, DS_ERR_IO if the file is not writable. */
ds_status ds_output_check(const char *path, unsigned flags, ds_error *err);
/* Whether `path` leads to a regular file; `target` (to be freed) is where its links lead. */
bool ds_output_is_regular(const char *path, char **target);

/* Opens a path. Errors: as ds_output_check; DS_ERR_IO. Close the output after DS_OK. */
ds_status ds_output_open(ds_output *out, const char *path, unsigned flags, ds_error *err);
/* DS_ERR_STDOUT for standard output, DS_ERR_IO for the others. */
ds_status ds_output_put(ds_output *out, const char *text, size_t n, ds_error *err);
/* Puts the file in its place; later bytes are appended to the file. Does nothing for a path that is
 * written to directly. DS_ERR_USAGE if a file has appeared meanwhile and DS_OUTPUT_OVERWRITE is not
 * set. */
ds_status ds_output_commit(ds_output *out, ds_error *err);
/* Closes the output, and removes a file that was not committed. */
ds_status ds_output_close(ds_output *out, ds_error *err);

/* Opens, puts n bytes, commits and closes. */
ds_status ds_output_write(const char *path, unsigned flags, const char *text, size_t n,
                          ds_error *err);

/* Do both paths lead to one regular file, or would they once the file is made? */
bool ds_output_same(const char *a, const char *b);

#endif
