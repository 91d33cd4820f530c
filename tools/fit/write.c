/* A table changed in memory goes back into its file. */
#include "ir/base/arena.h"
#include "ir/base/file.h"
#include "ir/base/output.h"
#include "tools/fit/fit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of the file with the rows of the table; lines that are no rows stay. A record may have
 * several lines. */
static void rewrite(const ds_csv *csv, FILE *in, ds_buf *out) {
    char *line = NULL;
    size_t cap = 0;
    uint32_t row = 0, end = 0;
    for (uint32_t number = 1; getline(&line, &cap, in) > 0; number++) {
        if (number == csv->header_line) {
            ds_csv_put_row(out, csv->columns, csv->n_columns);
        } else if (row < csv->rows.n && csv->rows.at[row].line == number) {
            end = csv->rows.at[row].end;
            ds_csv_put_row(out, csv->rows.at[row++].cells, csv->n_columns);
        } else if (number >= end) {
            ds_buf_put(out, line);
        }
    }
    if (!feof(in) && !ferror(in)) ds_out_of_memory(cap);
    free(line);
}

static ds_status new_text(const ds_csv *csv, bool whole, ds_buf *out, ds_error *err) {
    if (whole) {
        ds_csv_put_row(out, csv->columns, csv->n_columns);
        for (uint32_t i = 0; i < csv->rows.n; i++)
            ds_csv_put_row(out, csv->rows.at[i].cells, csv->n_columns);
        return DS_OK;
    }
    FILE *in;
    DS_TRY(ds_file_open(csv->file, DS_NOWHERE, &in, err));
    rewrite(csv, in, out);
    fclose(in);
    return DS_OK;
}

ds_status fit_write(const ds_csv *csv, bool whole, ds_error *err) {
    ds_buf text = {0};
    ds_status status = new_text(csv, whole, &text, err);
    if (status == DS_OK)
        status = ds_output_write(csv->file, DS_OUTPUT_OVERWRITE, text.text, text.n, err);
    ds_buf_deinit(&text);
    return status;
}

ds_status fit_write_or_check(const ds_csv *csv, bool whole, fit_mode mode, uint32_t n_off,
                             ds_error *err) {
    if (mode == FIT_WRITE) return fit_write(csv, whole, err);
    if (mode == FIT_PRINT || !n_off) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "%s: %u constants are not those of the fit; write them with --write",
                        csv->file, n_off);
}

ds_status fit_put_lines(const char *folder, const char *name, const char *word, bool with,
                        ds_buf *out, ds_error *err) {
    ds_buf path = {0};
    char *line = NULL;
    size_t cap = 0, n = strlen(word);
    FILE *in;
    ds_buf_printf(&path, "%s/%s", folder, name);
    ds_status status = ds_file_open(path.text, DS_NOWHERE, &in, err);
    ds_buf_deinit(&path);
    DS_TRY(status);
    while (getline(&line, &cap, in) > 0) {
        const char *comma = strchr(line, ',');
        bool has = strncmp(line, word, n) == 0 || (comma && strncmp(comma + 1, word, n) == 0);
        if (has == with) ds_buf_put(out, line);
    }
    free(line);
    fclose(in);
    return DS_OK;
}

ds_status fit_replace_lines(const char *folder, const char *name, const char *word,
                            const ds_buf *lines, ds_error *err) {
    ds_buf path = {0}, text = {0};
    ds_buf_printf(&path, "%s/%s", folder, name);
    ds_status status = fit_put_lines(folder, name, word, false, &text, err);
    if (status == DS_OK && lines->n) ds_buf_put(&text, lines->text);
    if (status == DS_OK)
        status = ds_output_write(path.text, DS_OUTPUT_OVERWRITE, text.text, text.n, err);
    ds_buf_deinit(&text);
    ds_buf_deinit(&path);
    return status;
}
