#include "ir/base/output.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static void go(void) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/output-XXXXXX", base ? base : "/tmp");
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
}

static void leave(void) {
    char command[100];
    cr_assert_eq(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(output, .init = go, .fini = leave);

static void expect_text(const char *path, const char *text) {
    char got[100] = "";
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s is missing", path);
    got[fread(got, 1, sizeof got - 1, file)] = '\0';
    fclose(file);
    cr_expect_str_eq(got, text, "%s", path);
}

static ds_status put(const char *path, unsigned flags, const char *text) {
    ds_error err = {0};
    ds_status status = ds_output_write(path, flags, text, strlen(text), &err);
    cr_expect_eq(status, err.code, "%s", err.message);
    return status;
}

static int entries(void) {
    FILE *list = popen("ls -A | wc -l", "r");
    int n = -1;
    cr_assert_eq(fscanf(list, "%d", &n), 1);
    pclose(list);
    return n;
}

Test(output, refuses_what_exists_and_replaces_whole) {
    cr_expect_eq(put("a", DS_OUTPUT_NEW, "one"), DS_OK);
    cr_expect_eq(put("a", DS_OUTPUT_NEW, "two"), DS_ERR_USAGE);
    expect_text("a", "one");
    chmod("a", 0640);
    cr_expect_eq(put("a", DS_OUTPUT_OVERWRITE, "three"), DS_OK);
    expect_text("a", "three");
    struct stat st;
    cr_expect(stat("a", &st) == 0 && (st.st_mode & 07777) == 0640);
    cr_expect_eq(entries(), 1, "nothing is left beside it");
}

/* Until it is committed the old file is there; without a commit it stays. */
Test(output, is_old_or_new) {
    ds_output out;
    ds_error err;
    put("a", DS_OUTPUT_NEW, "old");
    for (int commit = 0; commit < 2; commit++) {
        cr_assert_eq(ds_output_open(&out, "a", DS_OUTPUT_OVERWRITE, &err), DS_OK);
        cr_assert_eq(ds_output_put(&out, "new", 3, &err), DS_OK);
        expect_text("a", "old");
        if (commit) cr_assert_eq(ds_output_commit(&out, &err), DS_OK);
        expect_text("a", commit ? "new" : "old");
        if (commit) cr_assert_eq(ds_output_put(&out, "er", 2, &err), DS_OK);
        cr_assert_eq(ds_output_close(&out, &err), DS_OK);
        expect_text("a", commit ? "newer" : "old");
        cr_expect_eq(entries(), 1);
    }
}

/* A file that appears between the check and the commit is not replaced. */
Test(output, replaces_nothing_that_appears_meanwhile) {
    ds_output out;
    ds_error err;
    cr_assert_eq(ds_output_open(&out, "a", DS_OUTPUT_NEW, &err), DS_OK);
    put("a", DS_OUTPUT_NEW, "another's");
    cr_assert_eq(ds_output_put(&out, "mine", 4, &err), DS_OK);
    cr_expect_eq(ds_output_commit(&out, &err), DS_ERR_USAGE);
    ds_output_close(&out, NULL);
    expect_text("a", "another's");
    cr_expect_eq(entries(), 1);
}

Test(output, follows_links) {
    mkdir("d", 0700);
    cr_assert(symlink("d/b", "link") == 0 && symlink("../link", "d/again") == 0 &&
              symlink("round", "round") == 0);
    cr_expect_eq(put("d/again", DS_OUTPUT_NEW, "one"), DS_OK);
    expect_text("d/b", "one");
    cr_expect_eq(put("link", DS_OUTPUT_NEW, "two"), DS_ERR_USAGE);
    cr_expect_eq(put("link", DS_OUTPUT_OVERWRITE, "two"), DS_OK);
    expect_text("d/b", "two");
    struct stat st;
    cr_expect(lstat("link", &st) == 0 && S_ISLNK(st.st_mode));
    cr_expect(lstat("d/again", &st) == 0 && S_ISLNK(st.st_mode));
    cr_expect_eq(put("round", DS_OUTPUT_OVERWRITE, "x"), DS_ERR_USAGE);
    cr_expect(ds_output_same("link", "./d/../d/b") && ds_output_same("new", "./new"));
    cr_assert_eq(symlink("new", "to-new"), 0);
    cr_expect(ds_output_same("to-new", "new") && !ds_output_same("to-new", "newer"));
    cr_expect(!ds_output_same("-", "-") && !ds_output_same("/dev/null", "/dev/null"));
}

/* Also with leave to overwrite: the special file stays, and a FIFO without a reader is no wait. */
Test(output, never_replaces_what_is_no_file, .timeout = 20) {
    cr_assert_eq(mkfifo("p", 0600), 0);
    cr_expect_eq(put("p", DS_OUTPUT_OVERWRITE, "x"), DS_ERR_USAGE);
    cr_expect_eq(put("/dev/null", DS_OUTPUT_NEW, "x"), DS_OK);
    cr_expect_eq(put("/dev/null", DS_OUTPUT_OVERWRITE | DS_OUTPUT_REGULAR, "x"), DS_ERR_USAGE);
    cr_expect_eq(put(".", DS_OUTPUT_OVERWRITE, "x"), DS_ERR_USAGE);
    cr_expect_eq(put("no/where", DS_OUTPUT_OVERWRITE, "x"), DS_ERR_IO);
    int reader = open("p", O_RDONLY | O_NONBLOCK);
    cr_expect_eq(put("p", DS_OUTPUT_NEW, "through"), DS_OK);
    char got[8] = "";
    cr_expect_eq(read(reader, got, sizeof got), 7);
    cr_expect_str_eq(got, "through");
    close(reader);
    struct stat st;
    cr_expect(stat("p", &st) == 0 && S_ISFIFO(st.st_mode));
    cr_expect(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
    cr_expect_eq(put("/dev/full", DS_OUTPUT_NEW, "x"), DS_ERR_IO);
}
