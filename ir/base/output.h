/* The one policy for files that distsim writes.
 *
 * `-` is standard output. A regular file that exists is refused unless it may be overwritten. A new
 * file, and one that is replaced, is written beside its place, synchronised and renamed: whoever
 * looks finds the old content or the new one. Symbolic links are followed, and stay. Character
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
    char *target;     /* where its links lead; NULL: written to directly */
    char *temporary;  /* beside the target until it is in place; else NULL */
    int fd;
    unsigned flags;
} ds_output;

/* Could it be opened, as far as can be told without writing? For the time before long work.
 * Errors: DS_ERR_USAGE for what the policy refuses. */
ds_status ds_output_check(const char *path, unsigned flags, ds_error *err);
/* Whether `path` leads to a regular file; `target` (to be freed) is where its links lead. */
bool ds_output_is_regular(const char *path, char **target);

/* Opens a path. Errors: as ds_output_check; DS_ERR_IO. Close it if that succeeds. */
ds_status ds_output_open(ds_output *out, const char *path, unsigned flags, ds_error *err);
/* DS_ERR_STDOUT for standard output, DS_ERR_IO for the others. */
ds_status ds_output_put(ds_output *out, const char *text, size_t n, ds_error *err);
/* Puts the file in its place; further bytes are appended to it. Nothing for what is written to
 * directly. DS_ERR_USAGE if a file without leave to overwrite has appeared meanwhile. */
ds_status ds_output_commit(ds_output *out, ds_error *err);
/* Closes; what was not committed is removed. */
ds_status ds_output_close(ds_output *out, ds_error *err);

/* All at once: n bytes, in place. */
ds_status ds_output_write(const char *path, unsigned flags, const char *text, size_t n,
                          ds_error *err);

/* Are they one file, or would they be once they are made? `-` and what is no regular file is none.
 */
bool ds_output_same(const char *a, const char *b);

#endif
