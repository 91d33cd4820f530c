#include "ir/base/error.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static ds_status fails(ds_error *err) {
    ds_loc loc = {"a.dir", 3, 4, 2};
    return ds_error_set(err, DS_ERR_SHAPE, loc, "%d does not divide %d", 3, 8);
}

static ds_status passes_on(int *reached, ds_error *err) {
    DS_TRY(fails(err));
    *reached = 1;
    return DS_OK;
}

Test(error, carries_code_place_and_values) {
    ds_error err;
    cr_assert_eq(fails(&err), DS_ERR_SHAPE);
    cr_assert_eq(err.code, DS_ERR_SHAPE);
    cr_assert_str_eq(err.message, "3 does not divide 8");
    cr_assert_str_eq(err.loc.file, "a.dir");
    cr_assert_eq(err.loc.line, 3);
    cr_assert_eq(fails(NULL), DS_ERR_SHAPE);
}

/* Place and message are the error's own: what the error is about may be freed before it is printed.
 */
Test(error, outlives_what_it_is_about) {
    char *name = strdup("gone.dir");
    ds_error err, copy;
    ds_error_set(&err, DS_ERR_TYPE, (ds_loc){name, 7, 8, 9}, "wrong in %s", name);
    copy = err;
    memset(name, '?', strlen(name));
    free(name);
    ds_loc at = ds_error_loc(&copy);
    memset(&err, '?', sizeof err);
    cr_assert_str_eq(at.file, "gone.dir");
    cr_assert(at.line == 7 && at.col == 8 && at.len == 9);
    cr_assert_str_eq(copy.message, "wrong in gone.dir");
    ds_error_set(&copy, DS_ERR_TYPE, ds_error_loc(&copy), "again"); /* its own place */
    cr_assert_str_eq(copy.loc.file, "gone.dir");
    ds_error_move(&copy, DS_NOWHERE);
    cr_assert_null(ds_error_loc(&copy).file);
    ds_error_move(NULL, at);
}

Test(error, of_a_long_path_the_end_is_kept) {
    char path[DS_ERROR_FILE_MAX + 10];
    memset(path, 'd', sizeof path);
    strcpy(path + sizeof path - 7, "/x.dir");
    ds_error err;
    ds_error_set(&err, DS_ERR_IO, (ds_loc){path, 1, 1, 1}, "wrong");
    cr_assert_eq(strlen(err.loc.file), DS_ERROR_FILE_MAX - 1);
    cr_assert_eq(strncmp(err.loc.file, "...ddd", 6), 0);
    cr_assert_str_eq(err.loc.file + 3, path + sizeof path - 1 - (DS_ERROR_FILE_MAX - 1 - 3));
}

Test(error, try_returns_at_the_first_failure) {
    int reached = 0;
    ds_error err;
    cr_assert_eq(passes_on(&reached, &err), DS_ERR_SHAPE);
    cr_assert_eq(reached, 0);
}

Test(error, long_messages_are_cut) {
    static char wide[2 * DS_ERROR_MESSAGE_MAX];
    memset(wide, 'x', sizeof wide - 1);
    ds_error err;
    ds_error_set(&err, DS_ERR_IO, DS_NOWHERE, "%s", wide);
    cr_assert_eq(strlen(err.message), DS_ERROR_MESSAGE_MAX - 1);
}

/* The contract of the command line: 0 ok, 1 the program, 2 usage, 3 internal. */
Test(error, every_status_has_a_name_a_text_and_an_exit_code) {
#define DS_X(name, exit_code, text)                                                                \
    cr_assert_str_eq(ds_status_name(DS_ERR_##name), #name);                                        \
    cr_assert(strlen(ds_status_text(DS_ERR_##name)) > 0);                                          \
    cr_assert(ds_status_exit_code(DS_ERR_##name) >= 1 && ds_status_exit_code(DS_ERR_##name) <= 3);
    DS_ERROR_MAP(DS_X)
#undef DS_X
    cr_assert_eq(ds_status_exit_code(DS_OK), 0);
    cr_assert_eq(ds_status_exit_code(DS_ERR_MEMORY), 1);
    cr_assert_eq(ds_status_exit_code(DS_ERR_USAGE), 2);
    cr_assert_eq(ds_status_exit_code(DS_ERR_INTERNAL), 3);
}
