/* Files: reading them, finding those that come with the program. */
#ifndef DS_BASE_FILE_H
#define DS_BASE_FILE_H

#include "ir/base/error.h"
#include "ir/base/str.h"

#include <stdio.h>

/* Opens a file of the user for reading, and never waits for it: a FIFO is refused, since it may
 * have no writer. A pipe that the process was started with is read by its descriptor (/dev/stdin,
 * /dev/fd/N). `loc` is the place in a source text that names the file, or DS_NOWHERE. DS_ERR_IO. */
ds_status ds_file_open(const char *path, ds_loc loc, FILE **out, ds_error *err);
/* The errors of ds_file_open, for a path that a library opens by itself. */
ds_status ds_file_check(const char *path, ds_error *err);
/* N for /dev/fd/N and /proc/self/fd/N, 0 to 2 for /dev/stdin, /dev/stdout and /dev/stderr; else -1.
 */
int ds_file_descriptor(const char *path);

/* Appends the bytes of a file; an empty one leaves `out` as it is. `loc` is the place in a source
 * text that names the file, or DS_NOWHERE. DS_ERR_IO if ds_file_open or reading fails, DS_ERR_LIMIT
 * if it has more than max_bytes, of which no more than a block is read. O(size). */
ds_status ds_file_read(const char *path, ds_loc loc, size_t max_bytes, ds_buf *out, ds_error *err);

/* Appends the absolute path of `relative`, seen from the folder of the running executable:
 * "../share/distsim" is "/opt/share/distsim" for /opt/bin/distsim. An installation is found by it
 * wherever it was moved. False, and nothing appended, where the system does not tell
 * (/proc/self/exe) or `relative` leads above the root. Says nothing about what is there. */
bool ds_file_near_program(const char *relative, ds_buf *out);

/* realpath on the heap; NULL if the path leads nowhere. */
char *ds_file_real_path(const char *path);

#endif
