/* Comma-separated tables, as RFC 4180 has them and as measurement files are in practice.
 *
 * The first record names the columns. Cells may be quoted ("a ""b"", c"), quoted cells may span
 * lines. Records end with LF or CRLF; blank lines and lines that start with '#' are skipped; a
 * UTF-8 byte order mark is skipped. A record with another number of cells than the header, a stray
 * quote, a NUL byte, and an empty or repeated column name are errors.
 *
 * Tables are read whole (ds_csv) or record by record in constant memory (ds_csv_stream); both take
 * records apart by the same code, and all tables of distsim are written by ds_csv_put_cell.
 *
 * Messages start with "file:line:", because tables are often read by the dozen into temporaries
 * that do not outlive the error. */
#ifndef DS_BASE_CSV_H
#define DS_BASE_CSV_H

#include "ir/base/arena.h"
#include "ir/base/error.h"
#include "ir/base/str.h"

#include <stdio.h>

typedef struct ds_csv_row {
    uint32_t line;      /* where the record starts, from 1 */
    uint32_t end;       /* the line after the record */
    const char **cells; /* n_columns of them, without their quotes, never NULL */
} ds_csv_row;

typedef struct ds_csv {
    ds_arena arena; /* owns everything below */
    const char *file;
    const char **columns;
    uint32_t n_columns;
    uint32_t header_line; /* where the columns are named */
    DS_VEC(ds_csv_row) rows;
} ds_csv;

/* Reads a whole file, or a text already in memory (`file` is its name in messages; both are
 * copied). On error nothing is left to free. Errors: DS_ERR_IO, DS_ERR_DATA. O(size). */
ds_status ds_csv_read(const char *path, ds_csv *out, ds_error *err);
ds_status ds_csv_parse(const char *file, const char *text, size_t n, ds_csv *out, ds_error *err);
void ds_csv_deinit(ds_csv *csv);

#define DS_CSV_NO_COLUMN UINT32_MAX
/* The index of a column, DS_CSV_NO_COLUMN if the table lacks it. */
uint32_t ds_csv_find(const ds_csv *csv, const char *column);
/* The same for a column that must be there: DS_ERR_DATA with a suggestion. */
ds_status ds_csv_need(const ds_csv *csv, const char *column, uint32_t *index, ds_error *err);

/* DS_ERR_DATA with "file:line: " before the message. */
ds_status ds_csv_error(const ds_csv *csv, const ds_csv_row *row, ds_error *err, const char *format,
                       ...) __attribute__((format(printf, 4, 5)));

/* Records one by one. The file has neither comments nor blank lines: both would be records. */
typedef struct ds_csv_stream {
    const char *path;
    FILE *file;
    uint64_t line; /* where the record starts, from 1 */
    ds_buf raw;    /* the record's bytes in the file, with the end of the line */
    bool whole;    /* the record has the end of its line; else the file ends within the record */
    uint32_t n;    /* cells; 0 of a record that is not whole */
    const char *const *cells;
    struct ds_csv_scratch *scratch;
} ds_csv_stream;

/* Begins with the file's first byte; the stream owns the file. */
void ds_csv_begin(ds_csv_stream *stream, const char *path, FILE *file);
/* Opens the file first. DS_ERR_IO; ds_csv_close is allowed after an error, too. */
ds_status ds_csv_open(ds_csv_stream *stream, const char *path, ds_error *err);
/* The next record; *found is false at the end of the file. The cells last until the next call.
 * DS_ERR_DATA for a malformed record, DS_ERR_LIMIT for a record of more than 64 MiB. */
ds_status ds_csv_next(ds_csv_stream *stream, bool *found, ds_error *err);
void ds_csv_close(ds_csv_stream *stream);

/* Appends one cell, in quotes where the cell needs quotes; `first`: the first cell of its record.
 */
void ds_csv_put_cell(ds_buf *out, const char *cell, bool first);
/* Appends one record and a newline. */
void ds_csv_put_row(ds_buf *out, const char *const *cells, uint32_t n);

#endif
