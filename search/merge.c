/* Files of sweeps: shards put together, rows found again. */
#include "search/sweep.h"

#include "search/sweep_file_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_COLUMNS = 256, MIN_HASH_DIGITS = 4 };

static uint32_t find_column(char *const *columns, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(columns[i], name) == 0) return i;
    return UINT32_MAX;
}

static ds_status no_sweep(const char *path, ds_error *err) {
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s is no file of a sweep", path);
}

static ds_status cannot_read(const char *path, ds_error *err) {
    return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot read %s: %s", path, strerror(errno));
}

/* ---- merging ---- */

typedef struct input {
    const char *path;
    FILE *file;
    char *line, *copy; /* the current row, and one that is cut into cells */
    size_t cap;
    uint64_t number; /* of its candidate */
    uint64_t first;  /* that of its first row */
    char sweep[32];
    bool begun, ended;
} input;

typedef struct merger {
    input *inputs;
    uint32_t n;
    char *header;
    uint32_t n_columns, candidate, sweep;
} merger;

static ds_status read_row(const merger *m, input *in, ds_error *err) {
    char *cells[MAX_COLUMNS], *end = NULL;
    if (!ds_sweep_line(in->file, &in->line, &in->cap)) {
        in->ended = true;
        return DS_OK;
    }
    free(in->copy);
    in->copy = ds_xmalloc(strlen(in->line) + 1);
    strcpy(in->copy, in->line);
    bool torn = feof(in->file); /* without its newline: the last cell may lack its end */
    if (torn || ds_rows_split(in->copy, cells, MAX_COLUMNS) != m->n_columns)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%s: a row is not whole: resume its sweep first", in->path);
    errno = 0;
    in->number = strtoull(cells[m->candidate], &end, 10);
    if (*end || end == cells[m->candidate] || errno) return no_sweep(in->path, err);
    snprintf(in->sweep, sizeof in->sweep, "%s", cells[m->sweep]);
    if (!in->begun) in->first = in->number;
    in->begun = true;
    return DS_OK;
}

static ds_status read_header(merger *m, input *in, ds_error *err) {
    in->file = fopen(in->path, "rb");
    if (!in->file) return cannot_read(in->path, err);
    if (!ds_sweep_line(in->file, &in->line, &in->cap)) return no_sweep(in->path, err);
    if (m->header && strcmp(m->header, in->line) != 0)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s and %s have different columns",
                            m->inputs[0].path, in->path);
    if (m->header) return DS_OK;
    char *cells[MAX_COLUMNS];
    m->header = ds_xmalloc(strlen(in->line) + 1);
    strcpy(m->header, in->line);
    m->n_columns = ds_rows_split(in->line, cells, MAX_COLUMNS);
    if (!m->n_columns || m->n_columns > MAX_COLUMNS) return no_sweep(in->path, err);
    m->candidate = find_column(cells, m->n_columns, "candidate");
    m->sweep = find_column(cells, m->n_columns, "sweep");
    bool found = m->candidate != UINT32_MAX && m->sweep != UINT32_MAX;
    return found ? DS_OK : no_sweep(in->path, err);
}

/* The input with the lowest candidate; NULL at the end of all. */
static input *lowest(const merger *m) {
    input *best = NULL;
    for (uint32_t i = 0; i < m->n; i++) {
        input *in = &m->inputs[i];
        if (!in->ended && (!best || in->number < best->number)) best = in;
    }
    return best;
}

/* Of n shards that are all there, one has the candidates i, i + n, i + 2 n, …: the path of the one
 * that should have had the candidate; NULL if they are no such shards. */
static const char *shard_of(const merger *m, uint64_t candidate) {
    const char *found = NULL;
    for (uint32_t i = 0; i < m->n; i++) {
        const input *in = &m->inputs[i];
        if (!in->begun || in->first >= m->n) return NULL;
        if (in->first == candidate % m->n) found = in->path;
    }
    return found;
}

/* At the end of all: have there been as many rows as the sweep has candidates? */
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

static ds_status check_row(const merger *m, const input *in, uint64_t expected, ds_error *err) {
    if (in->number < expected)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s: candidate %" PRIu64 " comes twice",
                            in->path, in->number);
    if (in->number > expected)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "candidate %" PRIu64 " is missing: a shard is not complete, or not "
                            "given",
                            expected);
    for (uint32_t i = 0; i < m->n; i++)
        if (!m->inputs[i].ended && strcmp(m->inputs[i].sweep, in->sweep) != 0)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s and %s are of different sweeps",
                                in->path, m->inputs[i].path);
    return DS_OK;
}

static ds_status merge(merger *m, ds_sweep_file *out, uint64_t count, uint64_t *n_rows,
                       ds_error *err) {
    enum { PENDING_MAX = 1 << 16 };
    for (uint32_t i = 0; i < m->n; i++) DS_TRY(read_header(m, &m->inputs[i], err));
    if (!m->header) return DS_OK; /* no files */
    ds_buf_printf(&out->pending, "%s\n", m->header);
    for (uint32_t i = 0; i < m->n; i++) DS_TRY(read_row(m, &m->inputs[i], err));
    for (input *in; (in = lowest(m)) != NULL; ++*n_rows) {
        DS_TRY(check_row(m, in, *n_rows, err));
        ds_buf_put(&out->pending, in->line);
        ds_buf_putc(&out->pending, '\n');
        if (out->pending.n > PENDING_MAX) DS_TRY(ds_sweep_file_flush(out, err));
        DS_TRY(read_row(m, in, err));
    }
    return check_count(m, *n_rows, count, err);
}

/* The output is none of the inputs, and is not there unless it may be overwritten. */
static ds_status check_out(const merger *m, const char *out_path, bool overwrite, ds_error *err) {
    struct stat st;
    for (uint32_t i = 0; i < m->n; i++)
        if (ds_sweep_same_file(out_path, m->inputs[i].path))
            return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                                "-o %s is one of the shards: say another file", out_path);
    if (overwrite || strcmp(out_path, "-") == 0 || stat(out_path, &st) != 0) return DS_OK;
    if (!S_ISREG(st.st_mode) || st.st_size == 0) return DS_OK;
    return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "%s exists: --overwrite replaces it", out_path);
}

/* Through a temporary file beside the output, so that it is old or whole. */
static ds_status merge_to(merger *m, const char *out_path, uint64_t count, uint64_t *n_rows,
                          ds_error *err) {
    struct stat st;
    bool direct = strcmp(out_path, "-") == 0 ||
                  (stat(out_path, &st) == 0 && !S_ISREG(st.st_mode)); /* /dev/null, a pipe */
    ds_buf temporary = {0};
    ds_buf_printf(&temporary, "%s%s", out_path, direct ? "" : ".new");
    ds_sweep_file out;
    ds_status status = ds_sweep_file_open(&out, temporary.text, false, true, err);
    if (status == DS_OK) {
        status = merge(m, &out, count, n_rows, err);
        if (status != DS_OK) out.pending.n = 0;
        ds_status closed = ds_sweep_file_close(&out, status == DS_OK ? err : NULL);
        if (status == DS_OK) status = closed;
        if (status == DS_OK && !direct && rename(temporary.text, out_path) != 0)
            status = ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot replace %s: %s", out_path,
                                  strerror(errno));
        if (status != DS_OK && !direct) unlink(temporary.text);
    }
    ds_buf_deinit(&temporary);
    return status;
}

ds_status ds_sweep_merge(const char *const *paths, uint32_t n, const char *out_path, bool overwrite,
                         uint64_t count, uint64_t *n_rows, ds_error *err) {
    merger m = {.inputs = ds_xcalloc(n, sizeof *m.inputs), .n = n};
    *n_rows = 0;
    for (uint32_t i = 0; i < n; i++) m.inputs[i].path = paths[i];
    ds_status status = check_out(&m, out_path, overwrite, err);
    if (status == DS_OK) status = merge_to(&m, out_path, count, n_rows, err);
    for (uint32_t i = 0; i < n; i++) {
        if (m.inputs[i].file) fclose(m.inputs[i].file);
        free(m.inputs[i].line);
        free(m.inputs[i].copy);
    }
    free(m.inputs);
    free(m.header);
    return status;
}

/* ---- finding ---- */

const char *ds_sweep_cell(const ds_sweep_row *row, const char *column) {
    for (uint32_t i = 0; i < row->n; i++)
        if (strcmp(row->columns[i], column) == 0) return row->cells[i];
    return NULL;
}

static const char **keep(ds_arena *arena, char *const *cells, uint32_t n) {
    const char **kept = DS_NEW_N(arena, const char *, n);
    for (uint32_t i = 0; i < n; i++) kept[i] = ds_arena_strdup(arena, cells[i]);
    return kept;
}

/* The first row of one file, or none. */
static ds_status first_row(const char *path, FILE *file, char **line, size_t *cap, ds_arena *arena,
                           ds_sweep_row *out, ds_error *err) {
    char *cells[MAX_COLUMNS];
    if (!ds_sweep_line(file, line, cap)) return no_sweep(path, err);
    out->n = ds_rows_split(*line, cells, MAX_COLUMNS);
    if (!out->n || out->n > MAX_COLUMNS) return no_sweep(path, err);
    out->columns = keep(arena, cells, out->n);
    static const char *const needed[] = {"sweep", "source", "settings"};
    for (int i = 0; i < 3; i++)
        if (find_column(cells, out->n, needed[i]) == UINT32_MAX) return no_sweep(path, err);
    if (!ds_sweep_line(file, line, cap)) return DS_OK;
    if (ds_rows_split(*line, cells, MAX_COLUMNS) != out->n)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%s: a row is not whole: resume its sweep first", path);
    out->cells = keep(arena, cells, out->n);
    return DS_OK;
}

ds_status ds_sweep_first_row(const char *const *paths, uint32_t n, ds_arena *arena,
                             ds_sweep_row *out, ds_error *err) {
    *out = (ds_sweep_row){0};
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < n && status == DS_OK && !out->cells; i++) {
        char *line = NULL;
        size_t cap = 0;
        FILE *file = fopen(paths[i], "rb");
        if (!file) return cannot_read(paths[i], err);
        status = first_row(paths[i], file, &line, &cap, arena, out, err);
        free(line);
        fclose(file);
    }
    return status;
}

typedef struct finder {
    const char *path, *hash;
    FILE *file;
    char *line;
    size_t cap;
} finder;

static ds_status find(finder *f, ds_arena *arena, ds_sweep_row *out, ds_error *err) {
    char *cells[MAX_COLUMNS];
    size_t n = strlen(f->hash);
    if (!ds_sweep_line(f->file, &f->line, &f->cap)) return no_sweep(f->path, err);
    out->n = ds_rows_split(f->line, cells, MAX_COLUMNS);
    uint32_t column = out->n <= MAX_COLUMNS ? find_column(cells, out->n, "hash") : UINT32_MAX;
    if (column == UINT32_MAX) return no_sweep(f->path, err);
    out->columns = keep(arena, cells, out->n);
    while (ds_sweep_line(f->file, &f->line, &f->cap)) {
        if (ds_rows_split(f->line, cells, MAX_COLUMNS) != out->n) continue;
        if (strncmp(cells[column], f->hash, n) != 0) continue;
        if (out->cells && strcmp(out->cells[column], cells[column]) != 0)
            return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                                "several rows of %s begin with %s: %s, %s", f->path, f->hash,
                                out->cells[column], cells[column]);
        if (!out->cells) out->cells = keep(arena, cells, out->n);
    }
    if (out->cells) return DS_OK;
    return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "no row of %s has the hash %s", f->path,
                        f->hash);
}

ds_status ds_sweep_find_row(const char *path, const char *hash, ds_arena *arena, ds_sweep_row *out,
                            ds_error *err) {
    *out = (ds_sweep_row){0};
    if (strlen(hash) < MIN_HASH_DIGITS || hash[strspn(hash, "0123456789abcdef")])
        return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                            "'%s' is no hash: one has 16 digits of 0-9a-f, of which %d or more are "
                            "given",
                            hash, MIN_HASH_DIGITS);
    finder f = {.path = path, .hash = hash, .file = fopen(path, "rb")};
    if (!f.file) return cannot_read(path, err);
    ds_status status = find(&f, arena, out, err);
    free(f.line);
    fclose(f.file);
    return status;
}
