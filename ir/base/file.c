#define _XOPEN_SOURCE 700 /* realpath */
#include "ir/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int ds_file_descriptor(const char *path) {
    static const char *const names[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    for (int i = 0; i < 3; i++)
        if (strcmp(path, names[i]) == 0) return i;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) != 0 || path[n] < '0' || path[n] > '9') continue;
        char *end;
        long number = strtol(path + n, &end, 10);
        return *end || number > 1 << 20 ? -1 : (int)number;
    }
    return -1;
}

/* O_NONBLOCK opens a FIFO without waiting; a file that is read blocks as usual. */
static ds_status open_now(const char *path, ds_loc loc, int *fd, ds_error *err) {
    struct stat st;
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (*fd < 0)
        return ds_error_set(err, DS_ERR_IO, loc, "cannot open %s: %s", path, strerror(errno));
    if (fstat(*fd, &st) == 0 && S_ISFIFO(st.st_mode) && ds_file_descriptor(path) < 0) {
        close(*fd);
        return ds_error_set(err, DS_ERR_IO, loc,
                            "cannot open %s: it is a FIFO, which may have no writer; a pipe is "
                            "read as /dev/stdin",
                            path);
    }
    fcntl(*fd, F_SETFL, fcntl(*fd, F_GETFL) & ~O_NONBLOCK);
    return DS_OK;
}

ds_status ds_file_open(const char *path, ds_loc loc, FILE **out, ds_error *err) {
    int fd;
    *out = NULL;
    DS_TRY(open_now(path, loc, &fd, err));
    *out = fdopen(fd, "rb");
    if (*out) return DS_OK;
    close(fd);
    return ds_error_set(err, DS_ERR_IO, loc, "cannot open %s: %s", path, strerror(errno));
}

ds_status ds_file_check(const char *path, ds_error *err) {
    int fd;
    DS_TRY(open_now(path, DS_NOWHERE, &fd, err));
    close(fd);
    return DS_OK;
}

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
    FILE *stream;
    DS_TRY(ds_file_open(path, loc, &stream, err));
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
