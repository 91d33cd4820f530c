/* Files: reading a whole one, finding those that come with the program. */
#ifndef DS_BASE_FILE_H
#define DS_BASE_FILE_H

#include "ir/base/error.h"
#include "ir/base/str.h"

/* Appends the bytes of a file; an empty one leaves `out` as it is. `loc` is the place in a source
 * text that names the file, or DS_NOWHERE. DS_ERR_IO if it cannot be opened or read, DS_ERR_LIMIT
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
