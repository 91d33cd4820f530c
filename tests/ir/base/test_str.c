#include "ir/base/str.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(strtab, equal_strings_have_one_copy) {
    ds_strtab tab;
    ds_strtab_init(&tab);
    const char *first[5000];
    char name[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "v%d", i);
        first[i] = ds_intern(&tab, name);
        cr_assert_str_eq(first[i], name);
    }
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "v%dtail", i);
        cr_assert_eq(ds_intern_n(&tab, name, strlen(name) - 4), first[i]);
    }
    cr_assert_eq(tab.n, 5000);
    ds_strtab_deinit(&tab);
}

Test(strtab, a_prefix_is_another_string_and_nul_ends_one) {
    ds_strtab tab;
    ds_strtab_init(&tab);
    const char *abc = ds_intern(&tab, "abc");
    cr_assert_neq(ds_intern_n(&tab, "abc", 2), abc);
    cr_assert_neq(ds_intern(&tab, ""), abc);
    cr_assert_eq(ds_intern_n(&tab, "abc\0def", 7), abc);
    ds_strtab_deinit(&tab);
}

Test(buf, grows) {
    ds_buf buf = {0};
    ds_buf_put(&buf, "");
    cr_assert_str_eq(buf.text, "");
    for (int i = 0; i < 1000; i++) ds_buf_printf(&buf, "%d,", i % 10);
    ds_buf_putc(&buf, '!');
    cr_assert_eq(buf.n, 2001);
    cr_assert_eq(strlen(buf.text), 2001);
    cr_assert_eq(strncmp(buf.text, "0,1,2,3,4,5,6,7,8,9,0,", 22), 0);
    cr_assert_eq(buf.text[2000], '!');
    ds_buf_deinit(&buf);
    cr_assert_null(buf.text);
}

/* Distances from the definition (optimal string alignment): one transposition is one edit. */
Test(buf, integers_and_long_texts_print_as_printf_has_them) {
    const int64_t values[] = {0, 7, -1, 10, 1234567890123456789, INT64_MAX, INT64_MIN};
    char expected[32], wide[700];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        ds_buf buf = {0};
        ds_buf_put_int(&buf, values[i]);
        snprintf(expected, sizeof expected, "%lld", (long long)values[i]);
        cr_expect_str_eq(buf.text, expected);
        ds_buf_deinit(&buf);
    }
    ds_arena arena;
    ds_arena_init(&arena);
    for (int n = 1; n < (int)sizeof wide; n += 7) { /* over all room that is kept for one pass */
        ds_buf buf = {0};
        snprintf(wide, sizeof wide, "%*d", n, 5);
        ds_buf_put(&buf, "x");
        ds_buf_printf(&buf, "%*d", n, 5);
        cr_expect_eq(buf.n, strlen(wide) + 1);
        cr_expect_str_eq(buf.text + 1, wide);
        cr_expect_str_eq(ds_arena_printf(&arena, "%*d", n, 5), wide);
        ds_buf_deinit(&buf);
    }
    ds_arena_deinit(&arena);
}

Test(suggest, edit_distance) {
    cr_assert_eq(ds_edit_distance("", ""), 0);
    cr_assert_eq(ds_edit_distance("", "abc"), 3);
    cr_assert_eq(ds_edit_distance("kitten", "sitting"), 3);
    cr_assert_eq(ds_edit_distance("matmul", "matmlu"), 1);
    cr_assert_eq(ds_edit_distance("ca", "abc"), 3); /* 2 without the restriction of OSA */
    char longer[80];
    memset(longer, 'a', sizeof longer);
    longer[79] = '\0';
    cr_assert_eq(ds_edit_distance(longer, "a"), UINT32_MAX);
}

Test(suggest, nearest_within_a_third) {
    const char *const ops[] = {"matmul", "relu", "gelu", "softmax"};
    cr_assert_str_eq(ds_suggest("matmull", ops, 4), "matmul");
    cr_assert_str_eq(ds_suggest("rleu", ops, 4), "relu");
    cr_assert_str_eq(ds_suggest("sotfmx", ops, 4), "softmax");
    cr_assert_null(ds_suggest("conv2d", ops, 4));
    cr_assert_null(ds_suggest("relu", ops, 0));
}

Test(suggest, words_of_other_programs) {
    const char *const names[] = {"bf16", "GB/s", "Gb/s", "relu", "swish"};
    cr_assert_str_eq(ds_suggest("bfloat16", names, 5), "bf16");
    cr_assert_str_eq(ds_suggest("BFloat16", names, 5), "bf16");
    cr_assert_str_eq(ds_suggest("GBps", names, 5), "GB/s");
    cr_assert_str_eq(ds_suggest("Gbps", names, 5), "Gb/s");
    cr_assert_str_eq(ds_suggest("ReLU", names, 5), "relu");
    cr_assert_null(ds_suggest("bfloat16", names + 1, 4));
    cr_assert_not_null(ds_word_fix("FSDP"));
    cr_assert_null(ds_word_fix("dp"));
}
