/* One pass over the bytes. A cell is copied into the arena when it ends; the cells of a record are
 * collected in a heap vector and copied once the record ends, so a table costs its own size. */
#include "ir/base/csv.h"

#include "ir/base/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tables beyond this are a mistake (a log, a binary), and line numbers stay within 32 bits. */
#define MAX_BYTES ((size_t)1 << 30)

typedef struct reader {
    ds_csv *csv;
    const char *at, *end;
    uint32_t line;
    DS_VEC(const char *) cells; /* of the record being read, heap */
    ds_buf cell;
    ds_error *err;
} reader;

static ds_status fail(const ds_csv *csv, uint32_t line, ds_error *err, const char *what) {
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s:%u: %s", csv->file, line, what);
}

static bool at_end_of_line(const reader *r) {
    return r->at == r->end || *r->at == '\n' ||
           (*r->at == '\r' && r->at + 1 < r->end && r->at[1] == '\n');
}

static void skip_end_of_line(reader *r) {
    if (r->at < r->end && *r->at == '\r') r->at++;
    if (r->at < r->end) r->at++;
    r->line++;
}

static void skip_line(reader *r) {
    while (!at_end_of_line(r)) r->at++;
    skip_end_of_line(r);
}

/* The inside of a quoted cell; the opening quote is read already. */
static ds_status read_quoted(reader *r) {
    uint32_t opened = r->line;
    for (; r->at < r->end; r->at++) {
        if (*r->at == '"') {
            if (r->at + 1 == r->end || r->at[1] != '"') {
                r->at++;
                return DS_OK;
            }
            r->at++;
        }
        if (*r->at == '\n') r->line++;
        ds_buf_putc(&r->cell, *r->at);
    }
    return fail(r->csv, opened, r->err, "a quoted cell that is never closed");
}

static ds_status read_cell(reader *r) {
    r->cell.n = 0;
    if (r->at < r->end && *r->at == '"') {
        r->at++;
        DS_TRY(read_quoted(r));
        if (!at_end_of_line(r) && *r->at != ',')
            return fail(r->csv, r->line, r->err, "text after the closing quote of a cell");
    }
    for (; !at_end_of_line(r) && *r->at != ','; r->at++) {
        if (*r->at == '"')
            return fail(r->csv, r->line, r->err,
                        "a quote inside a cell that does not start with one (write \"\" in a "
                        "quoted cell)");
        ds_buf_putc(&r->cell, *r->at);
    }
    DS_HPUSH(&r->cells, ds_arena_strndup(&r->csv->arena, r->cell.n ? r->cell.text : "", r->cell.n));
    return DS_OK;
}

/* Reads one record into r->cells. */
static ds_status read_record(reader *r) {
    r->cells.n = 0;
    for (;;) {
        DS_TRY(read_cell(r));
        if (at_end_of_line(r)) break;
        r->at++; /* the comma */
    }
    skip_end_of_line(r);
    return DS_OK;
}

static const char **take_cells(reader *r) {
    const char **cells = DS_NEW_N(&r->csv->arena, const char *, r->cells.n);
    memcpy(cells, r->cells.at, r->cells.n * sizeof *cells);
    return cells;
}

static ds_status take_header(reader *r, uint32_t line) {
    ds_csv *csv = r->csv;
    csv->n_columns = r->cells.n;
    csv->header_line = line;
    csv->columns = take_cells(r);
    for (uint32_t i = 0; i < csv->n_columns; i++) {
        if (!*csv->columns[i])
            return ds_error_set(r->err, DS_ERR_DATA, DS_NOWHERE, "%s:%u: column %u has no name",
                                csv->file, line, i + 1);
        if (ds_csv_find(csv, csv->columns[i]) != i)
            return ds_error_set(r->err, DS_ERR_DATA, DS_NOWHERE, "%s:%u: two columns named '%s'",
                                csv->file, line, csv->columns[i]);
    }
    return DS_OK;
}

static ds_status read_table(reader *r) {
    ds_csv *csv = r->csv;
    while (r->at < r->end) {
        if (*r->at == '#' || at_end_of_line(r)) {
            skip_line(r);
            continue;
        }
        uint32_t line = r->line;
        DS_TRY(read_record(r));
        if (!csv->columns) {
            DS_TRY(take_header(r, line));
            continue;
        }
        if (r->cells.n != csv->n_columns)
            return ds_error_set(r->err, DS_ERR_DATA, DS_NOWHERE,
                                "%s:%u: %u cells, but the header names %u columns", csv->file, line,
                                r->cells.n, csv->n_columns);
        ds_csv_row row = {.line = line, .end = r->line, .cells = take_cells(r)};
        DS_PUSH(&csv->arena, &csv->rows, row);
    }
    if (!csv->columns) return fail(csv, r->line, r->err, "an empty table: not even column names");
    return DS_OK;
}

ds_status ds_csv_parse(const char *file, const char *text, size_t n, ds_csv *out, ds_error *err) {
    *out = (ds_csv){0};
    ds_arena_init(&out->arena);
    out->file = ds_arena_strdup(&out->arena, file);
    reader r = {.csv = out, .at = text, .end = text + n, .line = 1, .err = err};
    ds_status status = DS_OK;
    const char *nul = n ? memchr(text, '\0', n) : NULL;
    if (n > MAX_BYTES) {
        status = ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                              "%s: %zu bytes; a table may have at most %zu", file, n, MAX_BYTES);
    } else if (nul) {
        for (const char *p = text; p < nul; p++) r.line += *p == '\n';
        status = fail(out, r.line, err, "a NUL byte: this is not a text file");
    } else {
        if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) r.at += 3;
        status = read_table(&r);
    }
    free(r.cells.at);
    ds_buf_deinit(&r.cell);
    if (status != DS_OK) ds_csv_deinit(out);
    return status;
}

ds_status ds_csv_read(const char *path, ds_csv *out, ds_error *err) {
    *out = (ds_csv){0};
    ds_buf text = {0};
    ds_status status = ds_file_read(path, DS_NOWHERE, MAX_BYTES, &text, err);
    if (status == DS_OK) status = ds_csv_parse(path, text.n ? text.text : "", text.n, out, err);
    ds_buf_deinit(&text);
    return status;
}

void ds_csv_deinit(ds_csv *csv) {
    ds_arena_deinit(&csv->arena);
    *csv = (ds_csv){0};
}

uint32_t ds_csv_find(const ds_csv *csv, const char *column) {
    for (uint32_t i = 0; i < csv->n_columns; i++)
        if (strcmp(csv->columns[i], column) == 0) return i;
    return DS_CSV_NO_COLUMN;
}

ds_status ds_csv_need(const ds_csv *csv, const char *column, uint32_t *index, ds_error *err) {
    *index = ds_csv_find(csv, column);
    if (*index != DS_CSV_NO_COLUMN) return DS_OK;
    const char *near = ds_suggest(column, csv->columns, csv->n_columns);
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s:%u: no column '%s'%s%s%s", csv->file,
                        csv->header_line, column, near ? " (is '" : "", near ? near : "",
                        near ? "' meant to be it?)" : "");
}

ds_status ds_csv_error(const ds_csv *csv, const ds_csv_row *row, ds_error *err, const char *format,
                       ...) {
    char what[DS_ERROR_MESSAGE_MAX / 2];
    va_list ap;
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);
    return fail(csv, row->line, err, what);
}

/* ---- record by record ---- */

enum { MAX_RECORD = 1 << 26 }; /* a record beyond this is a file that is no table */

struct ds_csv_scratch {
    ds_csv csv;
    reader reader;
    uint64_t next_line;
};

void ds_csv_begin(ds_csv_stream *s, const char *path, FILE *file) {
    *s = (ds_csv_stream){.path = path, .file = file};
    s->scratch = ds_xcalloc(1, sizeof *s->scratch);
    s->scratch->csv.file = path;
    s->scratch->reader.csv = &s->scratch->csv;
    s->scratch->next_line = 1;
    ds_arena_init(&s->scratch->csv.arena);
}

ds_status ds_csv_open(ds_csv_stream *s, const char *path, ds_error *err) {
    FILE *file;
    *s = (ds_csv_stream){0};
    DS_TRY(ds_file_open(path, DS_NOWHERE, &file, err));
    ds_csv_begin(s, path, file);
    return DS_OK;
}

/* Reads up to the first end of a line outside quotes. A cell has no quote outside its own quotes,
 * so counting quotes is enough. */
static ds_status read_raw(ds_csv_stream *s, ds_error *err) {
    bool quoted = false, nul = false;
    int c;
    s->whole = false;
    while (!s->whole && s->raw.n < MAX_RECORD && (c = getc(s->file)) != EOF) {
        ds_buf_putc(&s->raw, (char)c);
        quoted ^= c == '"';
        nul |= c == '\0';
        s->scratch->next_line += c == '\n';
        s->whole = c == '\n' && !quoted;
    }
    if (ferror(s->file))
        return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot read %s: %s", s->path,
                            strerror(errno));
    if (s->raw.n >= MAX_RECORD)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "%s:%" PRIu64 ": a record of more than %d MiB: this is no table",
                            s->path, s->line, MAX_RECORD >> 20);
    return nul ? fail(&s->scratch->csv, (uint32_t)s->line, err,
                      "a NUL byte: this is not a text file")
               : DS_OK;
}

ds_status ds_csv_next(ds_csv_stream *s, bool *found, ds_error *err) {
    reader *r = &s->scratch->reader;
    s->raw.n = s->n = 0;
    s->line = s->scratch->next_line;
    DS_TRY(read_raw(s, err));
    *found = s->raw.n > 0;
    if (!s->whole) return DS_OK;
    ds_arena_deinit(&s->scratch->csv.arena);
    r->at = s->raw.text;
    r->end = s->raw.text + s->raw.n;
    r->line = (uint32_t)s->line;
    r->err = err;
    DS_TRY(read_record(r));
    s->n = r->cells.n;
    s->cells = r->cells.at;
    return DS_OK;
}

void ds_csv_close(ds_csv_stream *s) {
    if (s->file) fclose(s->file);
    if (s->scratch) {
        ds_arena_deinit(&s->scratch->csv.arena);
        free(s->scratch->reader.cells.at);
        ds_buf_deinit(&s->scratch->reader.cell);
        free(s->scratch);
    }
    ds_buf_deinit(&s->raw);
    *s = (ds_csv_stream){0};
}

/* ---- writing ---- */

/* A first cell that starts with '#' would read back as a comment. */
void ds_csv_put_cell(ds_buf *out, const char *cell, bool first) {
    if (!strpbrk(cell, ",\"\r\n") && !(first && *cell == '#')) {
        ds_buf_put(out, cell);
        return;
    }
    ds_buf_putc(out, '"');
    for (const char *p = cell; *p; p++) {
        if (*p == '"') ds_buf_putc(out, '"');
        ds_buf_putc(out, *p);
    }
    ds_buf_putc(out, '"');
}

void ds_csv_put_row(ds_buf *out, const char *const *cells, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (i) ds_buf_putc(out, ',');
        ds_csv_put_cell(out, cells[i], i == 0);
    }
    if (n == 1 && !*cells[0]) ds_buf_put(out, "\"\""); /* a blank line is no record */
    ds_buf_putc(out, '\n');
}
