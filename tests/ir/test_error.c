#include "ir/base/error.h"

#include <criterion/criterion.h>
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
