/* Diagnostics as text: the place, the line, the carets. */
#include "ir/lang/lang.h"

#include <criterion/criterion.h>
#include <string.h>

static void check(const char *text, size_t n, ds_loc loc, const char *expected) {
    ds_unit *unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(unit, "t.dir", text, n);
    ds_error err;
    ds_buf out = {0};
    loc.file = module->path;
    ds_error_set(&err, DS_ERR_NAME, loc, "wrong");
    ds_error_print(unit, &err, &out);
    cr_assert_str_eq(out.text, expected, "got:\n%s", out.text);
    ds_buf_deinit(&out);
    ds_unit_free(unit);
}

static ds_loc at(uint32_t line, uint32_t col, uint32_t len) {
    return (ds_loc){.line = line, .col = col, .len = len};
}

Test(lang_diag, underlines_the_token) {
    const char *text = "one\ntwo three\n";
    check(text, strlen(text), at(2, 5, 5),
          "t.dir:2:5: error: wrong\n   2 | two three\n     |     ^^^^^\n");
}

Test(lang_diag, ends_of_lines_and_files) {
    check("one\r\n", 5, at(1, 4, 1), "t.dir:1:4: error: wrong\n   1 | one\n     |    ^\n");
    check("one\n", 4, at(2, 1, 1), "t.dir:2:1: error: wrong\n   2 | \n     | ^\n");
    check("", 0, at(1, 1, 1), "t.dir:1:1: error: wrong\n   1 | \n     | ^\n");
    check("one", 3, at(9, 1, 1), "t.dir:9:1: error: wrong\n");
}

Test(lang_diag, tabs_are_four_blanks) {
    const char *text = "\ta\tb";
    check(text, strlen(text), at(1, 4, 1),
          "t.dir:1:4: error: wrong\n   1 |     a    b\n     |          ^\n");
}

Test(lang_diag, characters_of_many_bytes_take_one_column) {
    const char *text = "\xc3\xa9\xe2\x82\xac x";
    check(text, strlen(text), at(1, 7, 1),
          "t.dir:1:7: error: wrong\n   1 | \xc3\xa9\xe2\x82\xac x\n     |    ^\n");
}

Test(lang_diag, invalid_bytes_are_question_marks) {
    check("a\xff\x01\xc3 b", 6, at(1, 6, 1),
          "t.dir:1:6: error: wrong\n   1 | a??? b\n     |      ^\n");
}

Test(lang_diag, long_lines_are_cut) {
    char text[1001];
    memset(text, 'x', 1000);
    memcpy(text + 500, "HERE", 4);
    text[1000] = '\0';
    ds_buf expected = {0};
    ds_buf_put(&expected, "t.dir:1:501: error: wrong\n   1 | ...");
    for (int k = 0; k < 80; k++) ds_buf_putc(&expected, 'x');
    ds_buf_put(&expected, "HERE");
    for (int k = 0; k < 76; k++) ds_buf_putc(&expected, 'x');
    ds_buf_put(&expected, "...\n     |    ");
    for (int k = 0; k < 80; k++) ds_buf_putc(&expected, ' ');
    ds_buf_put(&expected, "^^^^\n");
    check(text, 1000, at(1, 501, 4), expected.text);
    ds_buf_deinit(&expected);
}

Test(lang_diag, warnings_and_hints) {
    ds_unit *unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(unit, "t.dir", "dir 1\nparam dp = 1\n", 19);
    ds_diag diag = {.severity = DS_SEV_WARNING,
                    .code = DS_ERR_NAME,
                    .loc = {module->path, 2, 7, 2},
                    .message = "param 'dp' is unused",
                    .hint = "remove it"};
    ds_buf out = {0};
    ds_diag_print(unit, &diag, &out);
    cr_assert_str_eq(out.text, "t.dir:2:7: warning: param 'dp' is unused\n   2 | param dp = 1\n"
                               "     |       ^^\n     = hint: remove it\n");
    ds_buf_deinit(&out);
    ds_error nowhere;
    ds_error_set(&nowhere, DS_ERR_IO, DS_NOWHERE, "no\x1bplace");
    ds_error_print(unit, &nowhere, &out);
    cr_assert_str_eq(out.text, "error: no?place\n");
    ds_buf_deinit(&out);
    ds_unit_free(unit);
}
