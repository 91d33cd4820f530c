/* Whole records, appended. A killed process leaves at most one record that is not whole. A sweep
 * that resumes replaces the file by a file without that record, and never touches a file that is no
 * beginning of the sweep's own table. */
#include "search/driver/sweep_file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ds_status fail(const char *verb, const char *path, ds_error *err) {
    return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot %s %s: %s", verb, path,
                        strerror(errno));
}

ds_status ds_sweep_file_refuse(const ds_sweep_file *file, uint64_t line, const char *why,
                               ds_error *err) {
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "%s:%" PRIu64 ": %s; only the sweep that began a table resumes the table",
                        file->path, line, why);
}

/* ---- locks ---- */

static ds_status locked(const char *path, ds_error *err) {
    return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "another sweep is writing %s", path);
}

/* Locks a regular file against another sweep. Devices like /dev/null are not locked. */
static ds_status lock(const ds_sweep_file *file, int fd, ds_error *err) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return DS_OK;
    if (fcntl(fd, F_SETLK, &whole) == 0 || (errno != EACCES && errno != EAGAIN)) return DS_OK;
    return locked(file->path, err);
}

/* Refuses a file that another sweep writes at the moment. */
static ds_status check_unlocked(const char *path, ds_error *err) {
    char *target;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!ds_output_is_regular(path, &target)) return DS_OK;
    int fd = open(target, O_RDONLY | O_CLOEXEC);
    bool is = fd >= 0 && fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    if (fd >= 0) close(fd);
    free(target);
    return is ? locked(path, err) : DS_OK;
}

/* ---- opening ---- */

/* Another sweep may have replaced the file between its opening and its lock. */
static bool is_still(const char *path, int fd) {
    struct stat opened, now;
    return fstat(fd, &opened) == 0 && stat(path, &now) == 0 && opened.st_dev == now.st_dev &&
           opened.st_ino == now.st_ino;
}

static ds_status go_on_with(ds_sweep_file *file, const char *target, ds_error *err) {
    int fd = open(target, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    FILE *old = fd < 0 ? NULL : fdopen(fd, "r+b");
    if (!old) {
        if (fd >= 0) close(fd);
        return fail("open", file->path, err);
    }
    ds_csv_begin(&file->old, file->path, old);
    DS_TRY(lock(file, fd, err));
    if (!is_still(file->path, fd)) return locked(file->path, err);
    file->out = (ds_output){.path = file->path, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    return file->out.fd < 0 ? fail("open", file->path, err) : DS_OK;
}

static ds_status begin_file(ds_sweep_file *file, bool resume, bool overwrite, ds_error *err) {
    char *target = NULL;
    bool exists = ds_output_is_regular(file->path, &target);
    ds_status status = DS_OK;
    if (exists && resume)
        status = go_on_with(file, target, err);
    else if (exists && !overwrite)
        status = ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                              "%s exists: --resume goes on with it, --overwrite begins anew",
                              file->path);
    else
        status = check_unlocked(file->path, err);
    if (status == DS_OK && !file->old.file)
        status = ds_output_open(&file->out, file->path,
                                (overwrite ? DS_OUTPUT_OVERWRITE : DS_OUTPUT_NEW) |
                                    (resume ? DS_OUTPUT_REGULAR : 0u),
                                err);
    if (status == DS_OK && !file->old.file) status = lock(file, file->out.fd, err);
    free(target);
    return status;
}

ds_status ds_sweep_file_open(ds_sweep_file *file, const char *path, bool resume, bool overwrite,
                             ds_error *err) {
    *file = (ds_sweep_file){.path = path, .out = {.path = path, .fd = -1}};
    ds_status status = begin_file(file, resume, overwrite, err);
    if (status != DS_OK) ds_sweep_file_close(file, NULL);
    return status;
}

ds_status ds_sweep_file_replay(ds_sweep_file *file,
                               ds_status (*take)(void *context, const ds_csv_stream *record,
                                                 uint64_t number, ds_error *err),
                               void *context, bool *any, ds_error *err) {
    ds_csv_stream *old = &file->old;
    uint64_t number = 0;
    bool found = old->file != NULL;
    *any = false;
    while (found) {
        DS_TRY(ds_csv_next(old, &found, err));
        if (!found || !old->whole) break;
        DS_TRY(take(context, old, ++number, err));
        file->n_old += old->raw.n;
        *any = true;
    }
    if (found) ds_buf_put_n(&file->tail, old->raw.text, old->raw.n);
    if (found) file->tail_line = old->line;
    if (old->file && lseek(file->out.fd, (off_t)file->n_old, SEEK_SET) < 0)
        return fail("read", file->path, err);
    return DS_OK;
}

/* ---- writing ---- */

static ds_status copy_old(ds_sweep_file *file, ds_output *out, ds_error *err) {
    char block[1 << 16];
    if (fseeko(file->old.file, 0, SEEK_SET) != 0) return fail("read", file->path, err);
    for (uint64_t left = file->n_old; left;) {
        size_t n =
            fread(block, 1, left < sizeof block ? (size_t)left : sizeof block, file->old.file);
        if (!n) return fail("read", file->path, err);
        DS_TRY(ds_output_put(out, block, n, err));
        left -= n;
    }
    return DS_OK;
}

/* Replaces the file by its whole records and the pending rows. */
static ds_status replace(ds_sweep_file *file, ds_error *err) {
    ds_output new;
    DS_TRY(ds_output_open(&new, file->path, DS_OUTPUT_OVERWRITE | DS_OUTPUT_REGULAR, err));
    ds_status status = lock(file, new.fd, err);
    if (status == DS_OK) status = copy_old(file, &new, err);
    if (status == DS_OK) status = ds_output_put(&new, file->pending.text, file->pending.n, err);
    if (status == DS_OK) status = ds_output_commit(&new, err);
    ds_output_close(status == DS_OK ? &file->out : &new, NULL);
    if (status == DS_OK) file->out = new;
    return status;
}

static ds_status refuse_tail(const ds_sweep_file *file, ds_error *err) {
    return ds_sweep_file_refuse(file, file->tail_line,
                                file->n_old ? "the text after the last row does not begin the "
                                              "next row"
                                            : "the columns are not this sweep's",
                                err);
}

ds_status ds_sweep_file_flush(ds_sweep_file *file, ds_error *err) {
    const ds_buf *tail = &file->tail, *pending = &file->pending;
    if (!pending->n) return DS_OK;
    if (!tail->n) {
        ds_status status = ds_output_put(&file->out, pending->text, pending->n, err);
        file->pending.n = 0; /* also after an error: no row is written twice */
        DS_TRY(status);
        DS_TRY(ds_output_commit(&file->out, err));
    } else {
        if (tail->n >= pending->n || memcmp(tail->text, pending->text, tail->n) != 0)
            return refuse_tail(file, err);
        DS_TRY(replace(file, err));
    }
    file->tail.n = file->pending.n = 0;
    return DS_OK;
}

ds_status ds_sweep_file_finish(ds_sweep_file *file, ds_error *err) {
    DS_TRY(ds_sweep_file_flush(file, err));
    return file->tail.n ? refuse_tail(file, err) : DS_OK;
}

ds_status ds_sweep_file_close(ds_sweep_file *file, ds_error *err) {
    ds_status status = ds_output_close(&file->out, err);
    ds_csv_close(&file->old);
    ds_buf_deinit(&file->pending);
    ds_buf_deinit(&file->tail);
    return status;
}
