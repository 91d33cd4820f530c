#include "ir/base/csv.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ds_csv parse(const char *text) {
    ds_csv csv;
    ds_error err;
    cr_assert_eq(ds_csv_parse("t.csv", text, strlen(text), &csv, &err), DS_OK, "%s", err.message);
    return csv;
}

static void expect_error(const char *text, size_t n, const char *message) {
    ds_csv csv;
    ds_error err = {0};
    cr_assert_eq(ds_csv_parse("t.csv", text, n, &csv, &err), DS_ERR_DATA);
    cr_assert_str_eq(err.message, message);
}

Test(csv, columns_by_name_and_lines) {
    ds_csv csv = parse("# measured\nname,us\n\n# between\na,1\r\nb,2\n\nc,3");
    cr_assert_eq(csv.n_columns, 2);
    cr_assert_eq(ds_csv_find(&csv, "us"), 1);
    cr_assert_eq(ds_csv_find(&csv, "ms"), DS_CSV_NO_COLUMN);
    cr_assert_eq(csv.rows.n, 3);
    uint32_t lines[3] = {5, 6, 8};
    const char *names[3] = {"a", "b", "c"}, *us[3] = {"1", "2", "3"};
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(csv.rows.at[i].line, lines[i]);
        cr_assert_str_eq(csv.rows.at[i].cells[0], names[i]);
        cr_assert_str_eq(csv.rows.at[i].cells[1], us[i]);
    }
    ds_csv_deinit(&csv);
}

Test(csv, quotes) {
    ds_csv csv =
        parse("\xef\xbb\xbf\"a b\",c\n\"x, \"\"y\"\"\",\"two\nlines\"\n,\n\"\",#no comment\n");
    cr_assert_str_eq(csv.columns[0], "a b");
    cr_assert_eq(csv.rows.n, 3);
    cr_assert_str_eq(csv.rows.at[0].cells[0], "x, \"y\"");
    cr_assert_str_eq(csv.rows.at[0].cells[1], "two\nlines");
    cr_assert_eq(csv.rows.at[1].line, 4, "a cell over two lines counts both");
    cr_assert_str_eq(csv.rows.at[1].cells[1], "");
    cr_assert_str_eq(csv.rows.at[2].cells[1], "#no comment");
    ds_csv_deinit(&csv);
}

Test(csv, header_only_has_no_rows) {
    ds_csv csv = parse("a,b");
    cr_assert_eq(csv.rows.n, 0);
    ds_csv_deinit(&csv);
}

#define EXPECT(text, message) expect_error(text, sizeof(text) - 1, message)
Test(csv, malformed) {
    EXPECT("", "t.csv:1: an empty table: not even column names");
    EXPECT("# only\n", "t.csv:2: an empty table: not even column names");
    EXPECT("a,b\n1\n", "t.csv:2: 1 cells, but the header names 2 columns");
    EXPECT("a,b\n1,2\n1,2,3\n", "t.csv:3: 3 cells, but the header names 2 columns");
    EXPECT("a,,b\n", "t.csv:1: column 2 has no name");
    EXPECT("a,b,a\n", "t.csv:1: two columns named 'a'");
    EXPECT("a\n\"x\n", "t.csv:2: a quoted cell that is never closed");
    EXPECT("a\n\"x\"y\n", "t.csv:2: text after the closing quote of a cell");
    EXPECT("a\nx\"y\n", "t.csv:2: a quote inside a cell that does not start with one (write \"\" "
                        "in a quoted cell)");
    EXPECT("a\n1\nx\0y\n", "t.csv:3: a NUL byte: this is not a text file");
}

Test(csv, a_missing_column_suggests_a_near_one) {
    ds_csv csv = parse("time_us,m\n");
    uint32_t at;
    ds_error err;
    cr_assert_eq(ds_csv_need(&csv, "time_us", &at, &err), DS_OK);
    cr_assert_eq(at, 0);
    cr_assert_eq(ds_csv_need(&csv, "time_ms", &at, &err), DS_ERR_DATA);
    cr_assert_str_eq(err.message, "t.csv:1: no column 'time_ms' (is 'time_us' meant to be it?)");
    cr_assert_eq(ds_csv_need(&csv, "efficiency", &at, &err), DS_ERR_DATA);
    cr_assert_str_eq(err.message, "t.csv:1: no column 'efficiency'");
    ds_csv_deinit(&csv);
}

Test(csv, a_missing_file_is_an_io_error) {
    ds_csv csv;
    ds_error err;
    cr_assert_eq(ds_csv_read("/nonexistent/x.csv", &csv, &err), DS_ERR_IO);
    cr_assert_eq(ds_csv_read("/", &csv, &err), DS_ERR_IO);
}

/* What is written reads back the same: random cells over the characters that matter. */
Test(csv, round_trip) {
    const char alphabet[] = "a,\"\n\r# 1";
    uint32_t seed = 1;
    for (int round = 0; round < 500; round++) {
        char cells[4][8];
        const char *at[4];
        for (int c = 0; c < 4; c++) {
            seed = seed * 1664525u + 1013904223u;
            uint32_t bits = seed, n = (bits >> 8) % 7;
            for (uint32_t i = 0; i < n; i++) {
                seed = seed * 1664525u + 1013904223u;
                cells[c][i] = alphabet[(seed >> 16) % (sizeof alphabet - 1)];
            }
            cells[c][n] = '\0';
            at[c] = cells[c];
        }
        uint32_t n = 1 + (uint32_t)round % 4;
        const char *header[4] = {"w", "x", "y", "z"};
        ds_buf out = {0};
        ds_csv_put_row(&out, header, n);
        ds_csv_put_row(&out, at, n);
        ds_csv csv = parse(out.text);
        cr_assert_eq(csv.rows.n, 1, "%s", out.text);
        for (uint32_t c = 0; c < n; c++) cr_assert_str_eq(csv.rows.at[0].cells[c], at[c]);
        ds_csv_deinit(&csv);
        ds_buf_deinit(&out);
    }
}

/* ---- record by record ---- */

static FILE *file_of(const char *text, size_t n) {
    FILE *file = tmpfile();
    cr_assert(file && fwrite(text, 1, n, file) == n);
    rewind(file);
    return file;
}

/* Cells of up to two of seven bytes that mean something come back, three in a record; so do those
 * before a cut, wherever it is. */
Test(csv, written_records_are_read_whole) {
    static const char bytes[] = {'a', ',', '"', '\n', '\r', '#', '\''};
    enum { N = sizeof bytes, CELLS = 1 + N + N * N };
    char cells[CELLS][3] = {""};
    uint32_t n = 1;
    for (uint32_t i = 0; i < N; i++) cells[n++][0] = bytes[i];
    for (uint32_t i = 0; i < N * N; i++, n++) {
        cells[n][0] = bytes[i / N];
        cells[n][1] = bytes[i % N];
    }
    cr_assert_eq(n, CELLS);
    ds_buf text = {0};
    for (uint32_t i = 0; i < CELLS; i++) {
        const char *record[] = {cells[i], cells[(7 * i + 3) % CELLS], cells[CELLS - 1 - i]};
        ds_csv_put_row(&text, record, 3);
    }
    for (size_t cut = 0; cut <= text.n; cut += cut < 40 ? 1 : text.n - 40 > cut ? 29 : 1) {
        ds_csv_stream s;
        ds_error err;
        bool found = true;
        size_t read = 0;
        ds_csv_begin(&s, "t.csv", file_of(text.text, cut));
        for (uint32_t i = 0;; i++) {
            cr_assert_eq(ds_csv_next(&s, &found, &err), DS_OK, "%s", err.message);
            if (!found) break;
            read += s.raw.n;
            if (!s.whole) continue;
            cr_assert_eq(s.n, 3);
            cr_expect_str_eq(s.cells[0], cells[i]);
            cr_expect_str_eq(s.cells[1], cells[(7 * i + 3) % CELLS]);
            cr_expect_str_eq(s.cells[2], cells[CELLS - 1 - i]);
        }
        cr_expect_eq(read, cut);
        ds_csv_close(&s);
    }
    ds_csv csv; /* and the reader of whole tables says the same */
    ds_error err;
    ds_buf table = {0};
    ds_buf_put(&table, "x,y,z\n");
    ds_buf_put_n(&table, text.text, text.n);
    cr_assert_eq(ds_csv_parse("t.csv", table.text, table.n, &csv, &err), DS_OK, "%s", err.message);
    cr_assert_eq(csv.rows.n, CELLS);
    for (uint32_t i = 0; i < CELLS; i++) cr_expect_str_eq(csv.rows.at[i].cells[0], cells[i]);
    ds_csv_deinit(&csv);
    ds_buf_deinit(&table);
    ds_buf_deinit(&text);
}

Test(csv, streams_refuse_what_is_no_record) {
    static const char *const texts[] = {"a\"b,c\"\n", "\"a\"b\n"};
    ds_csv_stream s;
    ds_error err;
    bool found;
    for (int i = 0; i < 2; i++) {
        ds_csv_begin(&s, "t.csv", file_of(texts[i], strlen(texts[i])));
        cr_expect_eq(ds_csv_next(&s, &found, &err), DS_ERR_DATA);
        cr_expect_eq(strncmp(err.message, "t.csv:1: ", 9), 0, "%s", err.message);
        ds_csv_close(&s);
    }
    ds_csv_begin(&s, "t.csv", file_of("a\nb\0\n", 5));
    cr_expect_eq(ds_csv_next(&s, &found, &err), DS_OK);
    cr_expect_eq(ds_csv_next(&s, &found, &err), DS_ERR_DATA);
    cr_expect_str_eq(err.message, "t.csv:2: a NUL byte: this is not a text file");
    ds_csv_close(&s);
}
