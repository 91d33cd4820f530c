/* Whole lines, appended. A process that is killed leaves at most one line half written, which has
 * no newline yet; whoever resumes cuts it off. */
#include "search/sweep_file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ds_status fail(const char *verb, const char *path, ds_error *err) {
    return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot %s %s: %s", verb, path,
                        strerror(errno));
}

/* Of a file that others may be writing: a device, like /dev/null, is anybody's. */
static ds_status lock(const ds_sweep_file *file, ds_error *err) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(file->fd, F_SETLK, &whole) == 0 || (errno != EACCES && errno != EAGAIN)) return DS_OK;
    return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "another sweep is writing %s", file->path);
}

static ds_status begin(ds_sweep_file *file, bool keep, bool overwrite, ds_error *err) {
    struct stat st;
    if (fstat(file->fd, &st) != 0) return fail("read", file->path, err);
    if (!S_ISREG(st.st_mode)) return DS_OK;
    DS_TRY(lock(file, err));
    if (fstat(file->fd, &st) != 0) return fail("read", file->path, err); /* locked: its size */
    if (keep || st.st_size == 0) return DS_OK;
    if (!overwrite)
        return ds_error_set(err, DS_ERR_IO, DS_NOWHERE,
                            "%s exists: --resume goes on with it, --overwrite begins anew",
                            file->path);
    return ftruncate(file->fd, 0) == 0 ? DS_OK : fail("empty", file->path, err);
}

ds_status ds_sweep_file_open(ds_sweep_file *file, const char *path, bool keep, bool overwrite,
                             ds_error *err) {
    *file = (ds_sweep_file){.path = path, .fd = STDOUT_FILENO};
    if (strcmp(path, "-") == 0) return DS_OK;
    file->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file->fd < 0) return fail("open", path, err);
    ds_status status = begin(file, keep, overwrite, err);
    if (status != DS_OK) {
        close(file->fd);
        file->fd = STDOUT_FILENO;
    }
    return status;
}

/* The folder of a path, by its inode, and what follows it. */
static const char *split_path(const char *path, struct stat *folder) {
    const char *slash = strrchr(path, '/');
    ds_buf text = {0};
    ds_buf_put(&text, slash ? "" : ".");
    if (slash) ds_buf_put_n(&text, path, (size_t)(slash - path) + 1);
    if (stat(text.text, folder) != 0) *folder = (struct stat){0};
    ds_buf_deinit(&text);
    return slash ? slash + 1 : path;
}

bool ds_sweep_same_file(const char *a, const char *b) {
    struct stat x, y;
    if (strcmp(a, "-") == 0 || strcmp(b, "-") == 0) return false;
    if (strcmp(a, b) == 0) return stat(a, &x) != 0 || S_ISREG(x.st_mode);
    bool has_a = stat(a, &x) == 0, has_b = stat(b, &y) == 0;
    if (has_a && has_b) return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    if (has_a || has_b) return false;
    const char *name_a = split_path(a, &x), *name_b = split_path(b, &y);
    return x.st_ino && x.st_dev == y.st_dev && x.st_ino == y.st_ino && strcmp(name_a, name_b) == 0;
}

bool ds_sweep_line(FILE *file, char **line, size_t *cap) {
    ssize_t n = getline(line, cap, file);
    if (n < 0 && !feof(file) && !ferror(file)) ds_out_of_memory(*cap);
    if (n < 0) return false;
    if (n && (*line)[n - 1] == '\n') (*line)[n - 1] = '\0';
    return true;
}

ds_status ds_sweep_file_replay(ds_sweep_file *file,
                               ds_status (*take)(void *context, char *line, uint64_t number,
                                                 ds_error *err),
                               void *context, ds_error *err) {
    FILE *in = fopen(file->path, "rb");
    if (!in) return fail("read", file->path, err);
    char *line = NULL;
    size_t cap = 0;
    off_t end = 0;
    ssize_t n = 0;
    uint64_t number = 0;
    ds_status status = DS_OK;
    while (status == DS_OK && (n = getline(&line, &cap, in)) > 0 && line[n - 1] == '\n') {
        end += n;
        line[n - 1] = '\0';
        status = take(context, line, ++number, err);
    }
    if (status == DS_OK && !feof(in) && n < 0) status = fail("read", file->path, err);
    free(line);
    fclose(in); /* this drops the lock: fcntl's are the process's */
    if (status == DS_OK) status = lock(file, err);
    if (status == DS_OK && (ftruncate(file->fd, end) != 0 || lseek(file->fd, end, SEEK_SET) < 0))
        status = fail("cut", file->path, err);
    return status;
}

ds_status ds_sweep_file_flush(ds_sweep_file *file, ds_error *err) {
    for (size_t done = 0; done < file->pending.n;) {
        ssize_t n = write(file->fd, file->pending.text + done, file->pending.n - done);
        if (n < 0 && errno != EINTR) return fail("write", file->path, err);
        if (n > 0) done += (size_t)n;
    }
    file->pending.n = 0;
    return DS_OK;
}

ds_status ds_sweep_file_close(ds_sweep_file *file, ds_error *err) {
    ds_status status = file->pending.n ? ds_sweep_file_flush(file, err) : DS_OK;
    ds_buf_deinit(&file->pending);
    if (file->fd == STDOUT_FILENO) return status;
    if (close(file->fd) != 0 && status == DS_OK) status = fail("write", file->path, err);
    file->fd = STDOUT_FILENO;
    return status;
}
