#include "ir/base/diag.h"

#include <criterion/criterion.h>
#include <string.h>

Test(diag, keeps_what_it_is_given) {
    ds_diags diags;
    ds_diags_init(&diags);
    char hint[] = "did you mean 'width'?", file[] = "a.dir";
    ds_loc loc = {file, 3, 7, 5};
    ds_diags_add(&diags, DS_SEV_ERROR, DS_ERR_NAME, loc, hint, "unknown name '%s'", "widht");
    ds_diags_add(&diags, DS_SEV_WARNING, DS_ERR_NAME, loc, NULL, "param '%s' is unused", "dp");
    hint[0] = file[0] = '?';
    cr_assert_eq(diags.all.n, 2);
    cr_assert_eq(diags.n_errors, 1);
    cr_assert_str_eq(diags.all.at[0].message, "unknown name 'widht'");
    cr_assert_str_eq(diags.all.at[0].hint, "did you mean 'width'?");
    cr_assert_eq(diags.all.at[0].code, DS_ERR_NAME);
    cr_assert_eq(diags.all.at[0].loc.line, 3);
    cr_assert_str_eq(diags.all.at[0].loc.file, "a.dir");
    cr_assert_eq(diags.all.at[1].severity, DS_SEV_WARNING);
    cr_assert_null(diags.all.at[1].hint);
    ds_diags_deinit(&diags);
    cr_assert_eq(diags.all.n, 0);
}

Test(diag, messages_have_no_limit) {
    ds_diags diags;
    ds_diags_init(&diags);
    char wide[5000];
    memset(wide, 'x', sizeof wide);
    wide[sizeof wide - 1] = '\0';
    ds_diags_add(&diags, DS_SEV_ERROR, DS_ERR_VALUE, DS_NOWHERE, NULL, "%s", wide);
    cr_assert_str_eq(diags.all.at[0].message, wide);
    ds_diags_deinit(&diags);
}

Test(diag, takes_errors) {
    ds_diags diags;
    ds_diags_init(&diags);
    for (int i = 0; i < 100; i++) {
        ds_error err;
        ds_error_set(&err, DS_ERR_SHAPE, (ds_loc){"a.dir", (uint32_t)i, 1, 1}, "dim %d", i);
        ds_diags_add_error(&diags, &err);
    }
    cr_assert_eq(diags.n_errors, 100);
    cr_assert_str_eq(diags.all.at[42].message, "dim 42");
    cr_assert_eq(diags.all.at[42].code, DS_ERR_SHAPE);
    cr_assert_eq(diags.all.at[42].loc.line, 42);
    ds_diags_deinit(&diags);
}
