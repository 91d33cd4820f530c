#include "ir/base/output.h"

#include "ir/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LINKS = 40 }; /* as Linux follows */

static ds_status io_error(const char *verb, const char *path, ds_error *err) {
    return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot %s %s: %s", verb, path,
                        strerror(errno));
}

/* ---- what a path is ---- */

static bool is_stdout(const char *path) {
    return strcmp(path, "-") == 0 || ds_file_descriptor(path) == STDOUT_FILENO;
}

static char *copy(const char *text) {
    return strcpy(ds_xmalloc(strlen(text) + 1), text);
}

/* The path that a link holds, seen from the link's folder. */
static char *read_link(const char *path) {
    char text[PATH_MAX];
    ssize_t n = readlink(path, text, sizeof text);
    if (n <= 0 || n == (ssize_t)sizeof text) return NULL;
    ds_buf out = {0};
    const char *slash = text[0] == '/' ? NULL : strrchr(path, '/');
    if (slash) ds_buf_put_n(&out, path, (size_t)(slash - path) + 1);
    ds_buf_put_n(&out, text, (size_t)n);
    return out.text;
}

/* The path where all links end, whether a file is there or not; NULL for a circle of links. To be
 * freed. */
static char *follow(const char *path) {
    char *at = copy(path);
    struct stat st;
    for (int i = 0; at && lstat(at, &st) == 0 && S_ISLNK(st.st_mode); i++) {
        char *next = i < MAX_LINKS ? read_link(at) : NULL;
        free(at);
        at = next;
    }
    return at;
}

static ds_status refuse(const char *path, const char *why, ds_error *err) {
    return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE, "%s %s", path, why);
}

/* Of a path to something other than a regular file. */
static ds_status check_special(const char *path, mode_t mode, unsigned flags, ds_error *err) {
    if (S_ISDIR(mode)) return refuse(path, "is a folder, not a file", err);
    if (S_ISBLK(mode)) return refuse(path, "is a block device: it is not written to", err);
    if (S_ISSOCK(mode)) return refuse(path, "is a socket: it is not written to", err);
    return flags & DS_OUTPUT_REGULAR ? refuse(path, "is no regular file", err) : DS_OK;
}

/* Checks the policy. *target is NULL for a path that is written to directly, and after an error. */
static ds_status classify(const char *path, unsigned flags, char **target, ds_error *err) {
    struct stat st;
    *target = NULL;
    if (!*path) return refuse("an output", "has an empty file name", err);
    if (is_stdout(path) || ds_file_descriptor(path) >= 0)
        return flags & DS_OUTPUT_REGULAR ? refuse(path, "is no regular file", err) : DS_OK;
    char *end = follow(path);
    if (!end) return refuse(path, "is a link that never leads to a file", err);
    ds_status status = DS_OK;
    bool exists = stat(end, &st) == 0;
    if (exists && !S_ISREG(st.st_mode)) {
        free(end);
        return check_special(path, st.st_mode, flags, err);
    }
    if (exists && !(flags & DS_OUTPUT_OVERWRITE))
        status = refuse(path, "exists: --overwrite replaces it", err);
    else if (exists && access(end, W_OK) != 0)
        status = io_error("write", path, err);
    if (status == DS_OK)
        *target = end;
    else
        free(end);
    return status;
}

ds_status ds_output_check(const char *path, unsigned flags, ds_error *err) {
    char *target;
    ds_status status = classify(path, flags, &target, err);
    free(target);
    return status;
}

bool ds_output_is_regular(const char *path, char **target) {
    struct stat st;
    bool named = !is_stdout(path) && ds_file_descriptor(path) < 0;
    char *end = named ? follow(path) : NULL;
    bool is = end && stat(end, &st) == 0 && S_ISREG(st.st_mode);
    *target = is ? end : NULL;
    if (!is) free(end);
    return is;
}

/* ---- opening ---- */

/* A FIFO without a reader is refused, since opening the FIFO would block for ever. */
static ds_status open_direct(ds_output *out, ds_error *err) {
    int own = is_stdout(out->path) ? STDOUT_FILENO : ds_file_descriptor(out->path);
    fflush(stdout); /* what was printed comes first */
    if (own >= 0) {
        out->fd = fcntl(own, F_DUPFD_CLOEXEC, 0);
    } else {
        out->fd = open(out->path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        if (out->fd < 0 && errno == ENXIO)
            return refuse(out->path, "is a FIFO that nobody reads", err);
        if (out->fd >= 0) fcntl(out->fd, F_SETFL, fcntl(out->fd, F_GETFL) & ~O_NONBLOCK);
    }
    return out->fd < 0 ? io_error("open", out->path, err) : DS_OK;
}

/* The mode of the file that is replaced, or what the umask leaves of rw-rw-rw-. */
static mode_t mode_for(const char *path) {
    struct stat old;
    if (stat(path, &old) == 0) return old.st_mode & 07777;
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static ds_status open_beside(ds_output *out, ds_error *err) {
    ds_buf name = {0};
    ds_buf_printf(&name, "%s.XXXXXX", out->target);
    out->fd = mkstemp(name.text);
    if (out->fd < 0) {
        ds_buf_deinit(&name);
        return io_error("write", out->path, err);
    }
    fcntl(out->fd, F_SETFD, FD_CLOEXEC);
    out->temporary = name.text;
    return fchmod(out->fd, mode_for(out->target)) == 0 ? DS_OK : io_error("write", out->path, err);
}

ds_status ds_output_open(ds_output *out, const char *path, unsigned flags, ds_error *err) {
    *out = (ds_output){.path = path, .fd = -1, .flags = flags};
    DS_TRY(classify(path, flags, &out->target, err));
    ds_status status = out->target ? open_beside(out, err) : open_direct(out, err);
    if (status != DS_OK) ds_output_close(out, NULL);
    return status;
}

/* ---- writing ---- */

ds_status ds_output_put(ds_output *out, const char *text, size_t n, ds_error *err) {
    for (size_t done = 0; done < n;) {
        ssize_t now = write(out->fd, text + done, n - done);
        if (now < 0 && errno == EINTR) continue;
        if (now < 0 && is_stdout(out->path))
            return ds_error_set(err, DS_ERR_STDOUT, DS_NOWHERE, "cannot write to stdout: %s",
                                strerror(errno));
        if (now < 0) return io_error("write", out->path, err);
        done += (size_t)now;
    }
    return DS_OK;
}

/* After a crash the new name is there only if the folder was synchronised. Not every file system
 * can synchronise a folder, so errors are ignored. */
static void sync_folder(const char *path) {
    ds_buf folder = {0};
    const char *slash = strrchr(path, '/');
    ds_buf_put_n(&folder, slash ? path : ".", slash ? (size_t)(slash - path) + 1 : 1);
    int fd = open(folder.text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!fsync(fd);
        close(fd);
    }
    ds_buf_deinit(&folder);
}

/* Without DS_OUTPUT_OVERWRITE by link(), which replaces nothing; on file systems without links by
 * rename(). */
static ds_status put_in_place(ds_output *out, ds_error *err) {
    if (!(out->flags & DS_OUTPUT_OVERWRITE)) {
        if (link(out->temporary, out->target) == 0) {
            unlink(out->temporary);
            return DS_OK;
        }
        if (errno == EEXIST) return refuse(out->path, "exists: --overwrite replaces it", err);
    }
    return rename(out->temporary, out->target) == 0 ? DS_OK : io_error("replace", out->path, err);
}

ds_status ds_output_commit(ds_output *out, ds_error *err) {
    if (!out->temporary) return DS_OK;
    if (fsync(out->fd) != 0) return io_error("write", out->path, err);
    DS_TRY(put_in_place(out, err));
    free(out->temporary);
    out->temporary = NULL;
    sync_folder(out->target);
    return DS_OK;
}

ds_status ds_output_close(ds_output *out, ds_error *err) {
    ds_status status = DS_OK;
    if (out->temporary) unlink(out->temporary);
    if (out->fd >= 0 && close(out->fd) != 0) status = io_error("write", out->path, err);
    free(out->temporary);
    free(out->target);
    *out = (ds_output){.path = out->path, .fd = -1};
    return status;
}

ds_status ds_output_write(const char *path, unsigned flags, const char *text, size_t n,
                          ds_error *err) {
    ds_output out;
    DS_TRY(ds_output_open(&out, path, flags, err));
    ds_status status = ds_output_put(&out, text, n, err);
    if (status == DS_OK) status = ds_output_commit(&out, err);
    ds_status closed = ds_output_close(&out, status == DS_OK ? err : NULL);
    return status == DS_OK ? closed : status;
}

/* ---- one file or two ---- */

/* Splits a path into the inode of its folder and the name after the folder. */
static const char *split_path(const char *path, struct stat *folder) {
    const char *slash = strrchr(path, '/');
    ds_buf text = {0};
    ds_buf_put(&text, slash ? "" : ".");
    if (slash) ds_buf_put_n(&text, path, (size_t)(slash - path) + 1);
    if (stat(text.text, folder) != 0) *folder = (struct stat){0};
    ds_buf_deinit(&text);
    return slash ? slash + 1 : path;
}

static bool would_be_same(const char *a, const char *b) {
    struct stat x, y;
    const char *name_a = split_path(a, &x), *name_b = split_path(b, &y);
    return x.st_ino && x.st_dev == y.st_dev && x.st_ino == y.st_ino && strcmp(name_a, name_b) == 0;
}

bool ds_output_same(const char *a, const char *b) {
    struct stat x, y;
    if (is_stdout(a) || is_stdout(b)) return false;
    if (strcmp(a, b) == 0) return stat(a, &x) != 0 || S_ISREG(x.st_mode);
    bool has_a = stat(a, &x) == 0, has_b = stat(b, &y) == 0;
    if (has_a && has_b) return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    if (has_a || has_b) return false;
    char *end_a = follow(a), *end_b = follow(b);
    bool same = end_a && end_b && would_be_same(end_a, end_b);
    free(end_a);
    free(end_b);
    return same;
}
