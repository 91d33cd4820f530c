/* Files of sweeps: merging shards, finding rows. */
#include "search/driver/sweep.h"

#include "ir/base/csv.h"
#include "ir/base/output.h"
#include "search/driver/rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_HASH_DIGITS = 4, PENDING_MAX = 1 << 16 };

static ds_status no_sweep(const char *path, ds_error *err) {
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s is no file of a sweep", path);
}

/* The first record names the columns. */
static ds_status read_columns(ds_csv_stream *rows, ds_error *err) {
    bool found;
    DS_TRY(ds_csv_next(rows, &found, err));
    return found && rows->whole ? DS_OK : no_sweep(rows->path, err);
}

static ds_status find_column(const ds_csv_stream *rows, const char *name, uint32_t *out,
                             ds_error *err) {
    for (*out = 0; *out < rows->n; ++*out)
        if (strcmp(rows->cells[*out], name) == 0) return DS_OK;
    return no_sweep(rows->path, err);
}

static ds_status torn(const char *path, ds_error *err) {
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "%s: a row is not whole: resume its sweep first", path);
}

/* ---- merging ---- */

typedef struct input {
    const char *path;
    ds_csv_stream rows;
    uint64_t number; /* of the current row's candidate */
    uint64_t first;  /* of the first row's candidate */
    bool begun, ended;
} input;

typedef struct merger {
    input *inputs;
    uint32_t n;
    ds_buf header;
    uint32_t n_columns, candidate, sweep;
    const char *first; /* the file of the row that was read first, */
    ds_buf name;       /* and the sweep of that row */
    ds_output out;
    ds_buf pending;
} merger;

/* All rows of all files must be of one sweep. */
static ds_status check_sweep(merger *m, const input *in, ds_error *err) {
    const char *name = in->rows.cells[m->sweep];
    if (!m->first) {
        m->first = in->path;
        ds_buf_put(&m->name, name);
    }
    if (strcmp(m->name.text, name) == 0) return DS_OK;
    return m->first == in->path
               ? ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                              "%s:%" PRIu64 ": this row is of another sweep than the first",
                              in->path, in->rows.line)
               : ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s and %s are of different sweeps",
                              m->first, in->path);
}

static ds_status read_row(merger *m, input *in, ds_error *err) {
    bool found;
    char *end = NULL;
    DS_TRY(ds_csv_next(&in->rows, &found, err));
    in->ended = !found;
    if (!found) return DS_OK;
    if (in->rows.n != m->n_columns) return torn(in->path, err);
    const char *number = in->rows.cells[m->candidate];
    errno = 0;
    in->number = strtoull(number, &end, 10);
    if (*end || end == number || errno) return no_sweep(in->path, err);
    DS_TRY(check_sweep(m, in, err));
    if (!in->begun) in->first = in->number;
    in->begun = true;
    return DS_OK;
}

static ds_status read_header(merger *m, input *in, ds_error *err) {
    DS_TRY(ds_csv_open(&in->rows, in->path, err));
    DS_TRY(read_columns(&in->rows, err));
    const ds_buf *raw = &in->rows.raw;
    if (m->header.n && (m->header.n != raw->n || memcmp(m->header.text, raw->text, raw->n) != 0))
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s and %s have different columns",
                            m->inputs[0].path, in->path);
    if (m->header.n) return DS_OK;
    ds_buf_put_n(&m->header, raw->text, raw->n);
    m->n_columns = in->rows.n;
    DS_TRY(find_column(&in->rows, "candidate", &m->candidate, err));
    return find_column(&in->rows, "sweep", &m->sweep, err);
}

/* The input with the lowest candidate; NULL: all inputs have ended. */
static input *lowest(const merger *m) {
    input *best = NULL;
    for (uint32_t i = 0; i < m->n; i++) {
        input *in = &m->inputs[i];
        if (!in->ended && (!best || in->number < best->number)) best = in;
    }
    return best;
}

/* Of n shards of one sweep, one has the candidates i, i + n, i + 2 n, …. The path of the shard that
 * should have the candidate; NULL if the files are not the shards of one sweep. */
static const char *shard_of(const merger *m, uint64_t candidate) {
    const char *found = NULL;
    for (uint32_t i = 0; i < m->n; i++) {
        const input *in = &m->inputs[i];
        if (!in->begun || in->first >= m->n) return NULL;
        if (in->first == candidate % m->n) found = in->path;
    }
    return found;
}

/* At the end of all files: are there as many rows as the sweep has candidates? */
static ds_status check_count(const merger *m, uint64_t n_rows, uint64_t count, ds_error *err) {
    if (n_rows == count) return DS_OK;
    if (n_rows > count)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "there are %" PRIu64 " rows, and the sweep has %" PRIu64 " candidates",
                            n_rows, count);
    const char *path = shard_of(m, n_rows);
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "candidate %" PRIu64 " of %" PRIu64 " is missing, and all after it: %s is "
                        "not complete; resume its sweep first",
                        n_rows, count, path ? path : "a shard");
}

static ds_status check_row(const input *in, uint64_t expected, ds_error *err) {
    if (in->number < expected)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s: candidate %" PRIu64 " comes twice",
                            in->path, in->number);
    if (in->number > expected)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "candidate %" PRIu64 " is missing: a shard is not complete, or not "
                            "given",
                            expected);
    return DS_OK;
}

static ds_status flush(merger *m, ds_error *err) {
    DS_TRY(ds_output_put(&m->out, m->pending.text, m->pending.n, err));
    m->pending.n = 0;
    return DS_OK;
}

static ds_status merge_rows(merger *m, uint64_t count, uint64_t *n_rows, ds_error *err) {
    for (uint32_t i = 0; i < m->n; i++) DS_TRY(read_header(m, &m->inputs[i], err));
    if (!m->n) return DS_OK;
    ds_buf_put_n(&m->pending, m->header.text, m->header.n);
    for (uint32_t i = 0; i < m->n; i++) DS_TRY(read_row(m, &m->inputs[i], err));
    for (input *in; (in = lowest(m)) != NULL; ++*n_rows) {
        DS_TRY(check_row(in, *n_rows, err));
        ds_buf_put_n(&m->pending, in->rows.raw.text, in->rows.raw.n);
        if (m->pending.n > PENDING_MAX) DS_TRY(flush(m, err));
        DS_TRY(read_row(m, in, err));
    }
    DS_TRY(check_count(m, *n_rows, count, err));
    return flush(m, err);
}

static ds_status check_out(const merger *m, const char *out_path, ds_error *err) {
    for (uint32_t i = 0; i < m->n; i++)
        if (ds_output_same(out_path, m->inputs[i].path))
            return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                                "-o %s is one of the shards: say another file", out_path);
    return DS_OK;
}

static ds_status merge_to(merger *m, const char *out_path, bool overwrite, uint64_t count,
                          uint64_t *n_rows, ds_error *err) {
    DS_TRY(check_out(m, out_path, err));
    DS_TRY(ds_output_open(&m->out, out_path, overwrite ? DS_OUTPUT_OVERWRITE : DS_OUTPUT_NEW, err));
    ds_status status = merge_rows(m, count, n_rows, err);
    if (status == DS_OK) status = ds_output_commit(&m->out, err);
    ds_status closed = ds_output_close(&m->out, status == DS_OK ? err : NULL);
    return status == DS_OK ? closed : status;
}

ds_status ds_sweep_merge(const char *const *paths, uint32_t n, const char *out_path, bool overwrite,
                         uint64_t count, uint64_t *n_rows, ds_error *err) {
    merger m = {.inputs = ds_xcalloc(n, sizeof *m.inputs), .n = n};
    *n_rows = 0;
    for (uint32_t i = 0; i < n; i++) m.inputs[i].path = paths[i];
    ds_status status = merge_to(&m, out_path, overwrite, count, n_rows, err);
    for (uint32_t i = 0; i < n; i++) ds_csv_close(&m.inputs[i].rows);
    free(m.inputs);
    ds_buf_deinit(&m.header);
    ds_buf_deinit(&m.name);
    ds_buf_deinit(&m.pending);
    return status;
}

/* ---- finding ---- */

const char *ds_sweep_cell(const ds_sweep_row *row, const char *column) {
    for (uint32_t i = 0; i < row->n; i++)
        if (strcmp(row->columns[i], column) == 0) return row->cells[i];
    return NULL;
}

/* Copies the cells; `plain`: without the apostrophes that a table for spreadsheets adds. */
static const char **keep(ds_arena *arena, const ds_csv_stream *rows, bool plain) {
    const char **kept = DS_NEW_N(arena, const char *, rows->n);
    for (uint32_t i = 0; i < rows->n; i++)
        kept[i] = ds_arena_strdup(arena, plain ? ds_rows_plain(rows->cells[i]) : rows->cells[i]);
    return kept;
}

static bool is_for_spreadsheets(const ds_sweep_row *row) {
    return strcmp(row->columns[row->n - 1], DS_ROWS_SPREADSHEET) == 0;
}

static ds_status keep_columns(ds_csv_stream *rows, ds_arena *arena, ds_sweep_row *out,
                              ds_error *err) {
    DS_TRY(read_columns(rows, err));
    out->n = rows->n;
    out->columns = keep(arena, rows, false);
    return DS_OK;
}

/* The first row of one file, or none. */
static ds_status first_row(ds_csv_stream *rows, ds_arena *arena, ds_sweep_row *out, ds_error *err) {
    static const char *const needed[] = {"sweep", "source", "settings"};
    bool found;
    DS_TRY(keep_columns(rows, arena, out, err));
    for (uint32_t i = 0, at; i < 3; i++) DS_TRY(find_column(rows, needed[i], &at, err));
    DS_TRY(ds_csv_next(rows, &found, err));
    if (!found) return DS_OK;
    if (rows->n != out->n) return torn(rows->path, err);
    out->cells = keep(arena, rows, is_for_spreadsheets(out));
    return DS_OK;
}

ds_status ds_sweep_first_row(const char *const *paths, uint32_t n, ds_arena *arena,
                             ds_sweep_row *out, ds_error *err) {
    *out = (ds_sweep_row){0};
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < n && status == DS_OK && !out->cells; i++) {
        ds_csv_stream rows;
        DS_TRY(ds_csv_open(&rows, paths[i], err));
        status = first_row(&rows, arena, out, err);
        ds_csv_close(&rows);
    }
    return status;
}

static ds_status find_hash(ds_csv_stream *rows, const char *hash, ds_arena *arena,
                           ds_sweep_row *out, ds_error *err) {
    uint32_t column;
    bool found = true;
    size_t n = strlen(hash);
    DS_TRY(keep_columns(rows, arena, out, err));
    DS_TRY(find_column(rows, "hash", &column, err));
    while (true) {
        DS_TRY(ds_csv_next(rows, &found, err));
        if (!found) break;
        if (rows->n != out->n || strncmp(rows->cells[column], hash, n) != 0) continue;
        if (out->cells && strcmp(out->cells[column], rows->cells[column]) != 0)
            return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                                "several rows of %s begin with %s: %s, %s", rows->path, hash,
                                out->cells[column], rows->cells[column]);
        if (!out->cells) out->cells = keep(arena, rows, is_for_spreadsheets(out));
    }
    if (out->cells) return DS_OK;
    return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "no row of %s has the hash %s", rows->path,
                        hash);
}

ds_status ds_sweep_find_row(const char *path, const char *hash, ds_arena *arena, ds_sweep_row *out,
                            ds_error *err) {
    *out = (ds_sweep_row){0};
    if (strlen(hash) < MIN_HASH_DIGITS || hash[strspn(hash, "0123456789abcdef")])
        return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                            "'%s' is no hash: one has 16 digits of 0-9a-f, of which %d or more are "
                            "given",
                            hash, MIN_HASH_DIGITS);
    ds_csv_stream rows;
    DS_TRY(ds_csv_open(&rows, path, err));
    ds_status status = find_hash(&rows, hash, arena, out, err);
    ds_csv_close(&rows);
    return status;
}
