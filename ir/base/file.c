#define _XOPEN_SOURCE 700 /* realpath */
#include "ir/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ds_status read_stream(FILE *stream, const char *path, ds_loc loc, size_t max_bytes,
                             ds_buf *out, ds_error *err) {
    char block[1 << 14];
    size_t total = 0, n;
    while ((n = fread(block, 1, sizeof block, stream)) > 0) {
        ds_buf_put_n(out, block, n);
        total += n;
        if (total > max_bytes)
            return ds_error_set(err, DS_ERR_LIMIT, loc, "%s has more than %zu MiB", path,
                                max_bytes >> 20);
    }
    if (ferror(stream))
        return ds_error_set(err, DS_ERR_IO, loc, "cannot read %s: %s", path, strerror(errno));
    return DS_OK;
}

ds_status ds_file_read(const char *path, ds_loc loc, size_t max_bytes, ds_buf *out, ds_error *err) {
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return ds_error_set(err, DS_ERR_IO, loc, "cannot open %s: %s", path, strerror(errno));
    ds_status status = read_stream(stream, path, loc, max_bytes, out, err);
    fclose(stream);
    return status;
}

bool ds_file_near_program(const char *relative, ds_buf *out) {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    if (n <= 0 || n == sizeof path) return false;
    path[n] = '\0';
    for (bool up = true; up;) { /* first the executable's name, then a folder for each "../" */
        char *slash = strrchr(path, '/');
        if (!slash) return false;
        *slash = '\0';
        up = strncmp(relative, "../", 3) == 0;
        if (up) relative += 3;
    }
    ds_buf_printf(out, "%s/%s", path, relative);
    return true;
}

char *ds_file_real_path(const char *path) {
    char *real = realpath(path, NULL);
    if (!real && errno == ENOMEM) ds_out_of_memory(0);
    return real;
}
