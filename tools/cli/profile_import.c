/* distsim profile import: measurements of others into the folder of a profile. Whatever the format
 * (profile_import_read.c), rows come out in the columns of the profile's file and are appended to the
 * folder's rows. */
#include "ir/base/file.h"
#include "ir/base/output.h"
#include "sim/cost/cost.h"
#include "tools/cli/profile.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

typedef profile_importer importer;

/* ---- checks ---- */

static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

static const char *at(const ds_csv *csv, uint32_t row, const char *column) {
    uint32_t c = ds_csv_find(csv, column);
    return c == DS_CSV_NO_COLUMN ? "" : csv->rows.at[row].cells[c];
}

static ds_status bad_cell(importer *im, const ds_csv *csv, uint32_t row, const char *column,
                          const char *wanted) {
    return ds_error_set(im->err, DS_ERR_DATA, DS_NOWHERE, "%s: measurement %u: %s = '%s': %s",
                        im->options->file, row + 1, column, at(csv, row, column), wanted);
}

static bool is_one_of(const char *text, const char *const *names) {
    for (; *names; names++)
        if (strcmp(text, *names) == 0) return true;
    return false;
}

/* The keys of its class, whole numbers from 1 on; those of other classes empty or whole numbers. */
static ds_status check_op(importer *im, const ds_csv *csv, uint32_t row) {
    static const char *const products[] = {"batch", "m", "n", "k", NULL};
    static const char *const attention[] = {"batch",  "heads",    "kv_heads", "seq_q",
                                            "seq_kv", "head_dim", NULL};
    static const char *const memory[] = {"tokens", "width", NULL};
    static const char *const classes[] = {"gemm", "conv", "recurrent", "attention", "memory", NULL};
    const char *class = at(csv, row, "class"), *causal = at(csv, row, "causal");
    const char *const *keys = strcmp(class, "memory") == 0      ? memory
                              : strcmp(class, "attention") == 0 ? attention
                                                                : products;
    ds_dtype dtype;
    if (!is_one_of(class, classes))
        return bad_cell(im, csv, row, "class", "gemm, conv, recurrent, attention or memory");
    if (!*at(csv, row, "op")) return bad_cell(im, csv, row, "op", "an operation's name is missing");
    if (!ds_dtype_parse(at(csv, row, "dtype"), &dtype))
        return bad_cell(im, csv, row, "dtype", "not a dtype of the language");
    if (*causal && strcmp(causal, "0") != 0 && strcmp(causal, "1") != 0)
        return bad_cell(im, csv, row, "causal", "0 or 1");
    for (uint32_t c = 3; c + 1 < PROFILE_OP_COLUMNS; c++) {
        const char *cell = at(csv, row, profile_op_columns[c]);
        int64_t n = 0;
        bool key = is_one_of(profile_op_columns[c], keys);
        if ((*cell || key) && (!profile_whole_number(cell, &n) || n < key))
            return bad_cell(im, csv, row, profile_op_columns[c],
                            "not a whole number of at least 1");
    }
    return DS_OK;
}

static ds_status check_collective(importer *im, const ds_csv *csv, uint32_t row) {
    int64_t n;
    if (!profile_is_collective(at(csv, row, "collective")))
        return bad_cell(im, csv, row, "collective", "not a collective of the language");
    if (!profile_whole_number(at(csv, row, "group_size"), &n) || n < 2 || n > UINT32_MAX)
        return bad_cell(im, csv, row, "group_size", "not a number of devices, 2 or more");
    if (!profile_whole_number(at(csv, row, "size_bytes"), &n) || n < 1)
        return bad_cell(im, csv, row, "size_bytes", "not a number of bytes");
    return DS_OK;
}

/* Measurements of the same source twice would count as two. */
static ds_status check_new(importer *im, const char *file) {
    ds_buf path = {0};
    ds_csv old;
    ds_buf_printf(&path, "%s/%s", im->options->folder, file);
    ds_status status = DS_OK;
    if (exists(path.text)) {
        status = ds_csv_read(path.text, &old, im->err);
        bool known = false;
        for (uint32_t r = 0; status == DS_OK && r < old.rows.n; r++)
            known = known || strcmp(at(&old, r, "source"), im->source) == 0;
        if (known)
            status = ds_error_set(im->err, DS_ERR_DATA, DS_NOWHERE,
                                  "%s has rows of source '%s': is %s in it? Other measurements "
                                  "need a --source of their own",
                                  path.text, im->source, im->options->file);
        if (status == DS_OK || known) ds_csv_deinit(&old);
    }
    ds_buf_deinit(&path);
    return status;
}

/* The rows of `text` under their columns. */
static ds_status read_taken(importer *im, const char *file, const char *const *columns, uint32_t n,
                            const ds_buf *text, ds_csv *out) {
    ds_buf whole = {0};
    ds_csv_put_row(&whole, columns, n);
    ds_buf_put_n(&whole, text->text, text->n);
    ds_status status = ds_csv_parse(file, whole.text, whole.n, out, im->err);
    ds_buf_deinit(&whole);
    return status;
}

static ds_status check_rows(importer *im, const char *file, const char *const *columns, uint32_t n,
                            const ds_buf *text,
                            ds_status (*check)(importer *im, const ds_csv *csv, uint32_t row)) {
    ds_csv rows;
    if (!text->n) return DS_OK;
    DS_TRY(check_new(im, file));
    DS_TRY(read_taken(im, file, columns, n, text, &rows));
    ds_status status = DS_OK;
    for (uint32_t r = 0; status == DS_OK && r < rows.rows.n; r++) status = check(im, &rows, r);
    ds_csv_deinit(&rows);
    return status;
}

/* The device of the folder's profile, else of --device. */
static ds_status device_of(importer *im, ds_buf *out) {
    ds_buf path = {0};
    ds_csv csv;
    ds_buf_printf(&path, "%s/profile.csv", im->options->folder);
    ds_status status = DS_OK;
    if (exists(path.text)) {
        status = ds_csv_read(path.text, &csv, im->err);
        if (status == DS_OK) {
            if (csv.rows.n) ds_buf_put(out, at(&csv, 0, "device"));
            ds_csv_deinit(&csv);
        }
    } else if (im->options->device) {
        ds_buf_put(out, im->options->device);
    } else {
        status = ds_error_set(im->err, DS_ERR_VALUE, DS_NOWHERE,
                              "%s has no profile.csv: a new profile needs --device",
                              im->options->folder);
    }
    ds_buf_deinit(&path);
    return status;
}

/* Is the device of the file another one than the profile's? Names that the catalogue does not know
 * ("NVIDIA H100 80GB HBM3") are compared by their first word, if that is one it knows. */
static ds_status compare_devices(importer *im, const ds_profiles *profiles, uint32_t kind) {
    static const char *const makers[] = {"NVIDIA ", "Tesla ", "AMD ", "Instinct "};
    const char *name = im->device, *canonical = ds_profiles_kind(profiles, kind)->name;
    char word[64];
    uint32_t other;
    ds_error ignored;
    for (uint32_t i = 0; i < COUNT(makers); i++)
        if (strncmp(name, makers[i], strlen(makers[i])) == 0) name += strlen(makers[i]);
    snprintf(word, sizeof word, "%.*s", (int)strcspn(name, " -"), name);
    bool same = true;
    if (ds_profiles_find_kind(profiles, name, DS_NOWHERE, &other, &ignored) == DS_OK)
        same = other == kind;
    else if (ds_profiles_find_kind(profiles, word, DS_NOWHERE, &other, &ignored) == DS_OK)
        same = strncasecmp(canonical, word, strlen(word)) == 0;
    if (same) return DS_OK;
    return ds_error_set(im->err, DS_ERR_DATA, DS_NOWHERE,
                        "%s was measured on '%s', the profile is of %s: another folder, with "
                        "--device",
                        im->options->file, im->device, canonical);
}

static ds_status check_device(importer *im) {
    ds_profiles *profiles;
    ds_buf device = {0};
    uint32_t kind;
    ds_status status = device_of(im, &device);
    if (status == DS_OK && device.n) {
        status = ds_profiles_load(im->options->profiles, &profiles, im->err);
        if (status == DS_OK) {
            status = ds_profiles_find_kind(profiles, device.text, DS_NOWHERE, &kind, im->err);
            if (status == DS_OK && *im->device) status = compare_devices(im, profiles, kind);
            ds_profiles_free(profiles);
        }
    }
    ds_buf_deinit(&device);
    return status;
}

/* ---- the folder ---- */

/* Makes a file of the folder with this text unless it is there. */
static ds_status make_file(importer *im, const char *name, const char *text) {
    ds_buf path = {0};
    ds_buf_printf(&path, "%s/%s", im->options->folder, name);
    ds_status status = exists(path.text)
                           ? DS_OK
                           : ds_output_write(path.text, DS_OUTPUT_NEW, text, strlen(text), im->err);
    ds_buf_deinit(&path);
    return status;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static ds_status make_profile(importer *im) {
    const profile_import_options *o = im->options;
    ds_buf path = {0}, text = {0};
    ds_buf_printf(&path, "%s/profile.csv", o->folder);
    bool there = exists(path.text);
    ds_buf_deinit(&path);
    if (there) return DS_OK;
    const char *cells[] = {o->name ? o->name : base_name(o->folder), o->device, "0",
                           o->software ? o->software : "not stated", im->source};
    ds_buf_put(&text, "name,device,issue_us,software,source\n");
    ds_csv_put_row(&text, cells, COUNT(cells));
    ds_status status = make_file(im, "profile.csv", text.text);
    ds_buf_deinit(&text);
    return status;
}

/* Appends a record to a table of the folder, in the order of that file's columns; `columns` and
 * `cells` name and hold what is known. */
static void put_record(const ds_csv *csv, const char *const *columns, const char *const *cells,
                       uint32_t n, ds_buf *out) {
    const char **record = ds_xcalloc(csv->n_columns, sizeof *record);
    for (uint32_t c = 0; c < csv->n_columns; c++) {
        record[c] = "";
        for (uint32_t i = 0; i < n; i++)
            if (strcmp(columns[i], csv->columns[c]) == 0) record[c] = cells[i];
    }
    ds_csv_put_row(out, record, csv->n_columns);
    free(record);
}

/* A table with all of `columns`: a row's cells would be lost otherwise. */
static ds_status check_columns(importer *im, const ds_csv *csv, const char *const *columns,
                               uint32_t n) {
    uint32_t ignored;
    for (uint32_t i = 0; i < n; i++) DS_TRY(ds_csv_need(csv, columns[i], &ignored, im->err));
    return DS_OK;
}

static ds_status append(const char *path, const ds_buf *records, ds_error *err) {
    ds_buf text = {0};
    ds_status status = ds_file_read(path, DS_NOWHERE, PROFILE_MOST_BYTES, &text, err);
    if (status == DS_OK && text.n && text.text[text.n - 1] != '\n') ds_buf_putc(&text, '\n');
    if (status == DS_OK && records->n) {
        ds_buf_put_n(&text, records->text, records->n);
        status = ds_output_write(path, DS_OUTPUT_OVERWRITE, text.text, text.n, err);
    }
    ds_buf_deinit(&text);
    return status;
}

static ds_status make_source(importer *im) {
    static const char *const columns[] = {"key", "title", "place", "revision", "licence"};
    const profile_import_options *o = im->options;
    const char *cells[] = {im->source, o->title ? o->title : "imported measurements",
                           o->place ? o->place : base_name(o->file), "",
                           o->licence ? o->licence : "facts"};
    DS_TRY(make_file(im, "sources.csv", "key,title,place,revision,licence\n"));
    ds_buf path = {0}, record = {0};
    ds_csv csv;
    ds_buf_printf(&path, "%s/sources.csv", o->folder);
    ds_status status = ds_csv_read(path.text, &csv, im->err);
    if (status == DS_OK) {
        bool known = false;
        uint32_t key = ds_csv_find(&csv, "key");
        for (uint32_t i = 0; key != DS_CSV_NO_COLUMN && i < csv.rows.n; i++)
            known = known || strcmp(csv.rows.at[i].cells[key], im->source) == 0;
        if (!known) put_record(&csv, columns, cells, COUNT(columns), &record);
        ds_csv_deinit(&csv);
        status = append(path.text, &record, im->err);
    }
    ds_buf_deinit(&record);
    ds_buf_deinit(&path);
    return status;
}

/* The rows of `text` (columns without source) into a file of the folder. */
static ds_status put_rows(importer *im, const char *file, const char *const *columns, uint32_t n,
                          const ds_buf *text) {
    ds_buf header = {0}, path = {0}, records = {0};
    const char *names[PROFILE_OP_COLUMNS + 1], *cells[PROFILE_OP_COLUMNS + 1];
    for (uint32_t i = 0; i < n; i++) {
        names[i] = columns[i];
        ds_buf_printf(&header, "%s,", columns[i]);
    }
    names[n] = "source";
    ds_buf_put(&header, "source\n");
    ds_buf_printf(&path, "%s/%s", im->options->folder, file);
    ds_csv old, rows;
    ds_status status = make_file(im, file, header.text);
    if (status == DS_OK) status = read_taken(im, file, columns, n, text, &rows);
    if (status == DS_OK) {
        status = ds_csv_read(path.text, &old, im->err);
        if (status == DS_OK) {
            status = check_columns(im, &old, names, n + 1);
            for (uint32_t r = 0; status == DS_OK && r < rows.rows.n; r++) {
                for (uint32_t c = 0; c < n; c++) cells[c] = rows.rows.at[r].cells[c];
                cells[n] = im->source;
                put_record(&old, names, cells, n + 1, &records);
            }
            ds_csv_deinit(&old);
        }
        ds_csv_deinit(&rows);
    }
    if (status == DS_OK) status = append(path.text, &records, im->err);
    ds_buf_deinit(&records);
    ds_buf_deinit(&path);
    ds_buf_deinit(&header);
    return status;
}

/* What build would refuse later is refused now, before anything is written. */
static ds_status check_all(importer *im) {
    DS_TRY(check_device(im));
    DS_TRY(check_rows(im, "ops.csv", profile_op_columns, PROFILE_OP_COLUMNS, &im->ops, check_op));
    return check_rows(im, "collectives.csv", profile_collective_columns, PROFILE_COLLECTIVE_COLUMNS,
                      &im->collectives, check_collective);
}

static ds_status put_all(importer *im) {
    const char *folder = im->options->folder;
    DS_TRY(check_all(im));
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return ds_error_set(im->err, DS_ERR_IO, DS_NOWHERE, "cannot make %s: %s", folder,
                            strerror(errno));
    DS_TRY(make_profile(im));
    DS_TRY(make_source(im));
    if (im->n_ops)
        DS_TRY(put_rows(im, "ops.csv", profile_op_columns, PROFILE_OP_COLUMNS, &im->ops));
    if (im->n_collectives)
        DS_TRY(put_rows(im, "collectives.csv", profile_collective_columns,
                        PROFILE_COLLECTIVE_COLUMNS, &im->collectives));
    printf("%s: %u measured ops, %u collectives into %s\n", im->options->file, im->n_ops,
           im->n_collectives, folder);
    return DS_OK;
}

/* A key of the letters, digits and dashes of the file's name. */
static void name_source(importer *im) {
    const char *text = im->options->source ? im->options->source : base_name(im->options->file);
    size_t n = 0;
    for (; *text && n + 1 < sizeof im->source; text++)
        im->source[n++] = isalnum((unsigned char)*text) ? (char)tolower((unsigned char)*text) : '-';
    im->source[n] = 0;
}

ds_status profile_import(const profile_import_options *options, ds_error *err) {
    importer im = {.options = options, .err = err};
    name_source(&im);
    ds_status status = profile_import_read(&im);
    if (status == DS_OK) status = put_all(&im);
    ds_buf_deinit(&im.ops);
    ds_buf_deinit(&im.collectives);
    return status;
}
