/* Whole files and their limits; what lies near the program. */
#include "ir/base/file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A scratch file of n bytes, each the lowest byte of its place. */
static void make(char *path, size_t n) {
    strcpy(path, "/tmp/test_file_XXXXXX");
    FILE *f = fdopen(mkstemp(path), "wb");
    cr_assert_not_null(f);
    for (size_t i = 0; i < n; i++) fputc((int)(i & 255), f);
    fclose(f);
}

Test(file, is_read_whole) {
    static const size_t sizes[] = {0, 1, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 100000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        char path[64];
        make(path, sizes[k]);
        ds_buf buf = {0};
        ds_buf_put(&buf, "before");
        cr_assert_eq(ds_file_read(path, DS_NOWHERE, sizes[k], &buf, NULL), DS_OK);
        cr_assert_eq(buf.n, 6 + sizes[k]);
        cr_assert_eq(memcmp(buf.text, "before", 6), 0);
        for (size_t i = 0; i < sizes[k]; i++)
            cr_assert_eq((unsigned char)buf.text[6 + i], i & 255, "byte %zu of %zu", i, sizes[k]);
        ds_buf_deinit(&buf);
        unlink(path);
    }
}

Test(file, too_large_or_absent_is_an_error) {
    char path[64];
    make(path, (1 << 20) + 1);
    ds_buf buf = {0};
    ds_error err;
    cr_assert_eq(ds_file_read(path, DS_NOWHERE, 1 << 20, &buf, &err), DS_ERR_LIMIT);
    cr_assert_not_null(strstr(err.message, "has more than 1 MiB"), "%s", err.message);
    unlink(path);
    ds_loc loc = {.file = "a.dir", .line = 3, .col = 1, .len = 1};
    cr_assert_eq(ds_file_read(path, loc, 1 << 20, &buf, &err), DS_ERR_IO);
    cr_assert_not_null(strstr(err.message, path), "%s", err.message);
    cr_assert_eq(err.loc.line, 3);
    cr_assert_eq(ds_file_read("/", DS_NOWHERE, 1 << 20, &buf, &err), DS_ERR_IO, "a folder");
    ds_buf_deinit(&buf);
}

Test(file, near_the_program) {
    ds_buf path = {0};
    char real[4096];
    ssize_t n = readlink("/proc/self/exe", real, sizeof real - 1);
    cr_assert_gt(n, 0);
    real[n] = '\0';
    const char *name = strrchr(real, '/') + 1;
    cr_assert(ds_file_near_program(name, &path));
    cr_assert_str_eq(path.text, real);
    path.n = 0;
    *strrchr(real, '/') = '\0';
    strcpy(strrchr(real, '/'), "/share/x");
    cr_assert(ds_file_near_program("../share/x", &path));
    cr_assert_str_eq(path.text, real);
    path.n = 0;
    cr_assert_not(ds_file_near_program("../../../../../../../../../../../../../../x", &path));
    cr_assert_eq(path.n, 0);
    ds_buf_deinit(&path);
}

Test(file, descriptors) {
    static const char *const none[] = {"/dev/stdins", "/dev/fd/",  "/dev/fd/x",
                                       "/dev/fd/1x",  "/dev/null", "-"};
    cr_expect_eq(ds_file_descriptor("/dev/stdin"), 0);
    cr_expect_eq(ds_file_descriptor("/dev/stderr"), 2);
    cr_expect_eq(ds_file_descriptor("/dev/fd/63"), 63);
    cr_expect_eq(ds_file_descriptor("/proc/self/fd/1"), 1);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        cr_expect_eq(ds_file_descriptor(none[i]), -1, "%s", none[i]);
}

/* A named FIFO is refused at once, the pipe of a descriptor is read. */
Test(file, fifos_are_not_waited_for, .timeout = 20) {
    char name[] = "/tmp/fifo-XXXXXX", path[40];
    cr_assert_not_null(mkdtemp(name));
    snprintf(path, sizeof path, "%s/p", name);
    cr_assert_eq(mkfifo(path, 0600), 0);
    ds_buf text = {0};
    ds_error err;
    cr_expect_eq(ds_file_read(path, DS_NOWHERE, 10, &text, &err), DS_ERR_IO);
    cr_expect_not_null(strstr(err.message, "FIFO"), "%s", err.message);
    cr_expect_eq(ds_file_check(path, &err), DS_ERR_IO);
    unlink(path);
    rmdir(name);
    int ends[2];
    cr_assert(pipe(ends) == 0 && write(ends[1], "pipe", 4) == 4);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    cr_expect_eq(ds_file_read(path, DS_NOWHERE, 10, &text, &err), DS_OK, "%s", err.message);
    cr_expect_str_eq(text.text, "pipe");
    ds_buf_deinit(&text);
}
