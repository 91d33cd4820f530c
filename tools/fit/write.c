/* A table changed in memory goes back into its file. */
#include "tools/fit/fit.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The text of the file with the rows of the table; lines that are no rows stay. */
static ds_status rewrite(const ds_csv *csv, FILE *in, ds_buf *out, ds_error *err) {
    char line[4096];
    uint32_t number = 0, row = 0;
    while (fgets(line, sizeof line, in)) {
        number++;
        if (!strchr(line, '\n'))
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s:%u: a line over %zu bytes",
                                csv->file, number, sizeof line - 2);
        if (number == csv->header_line)
            ds_csv_put_row(out, csv->columns, csv->n_columns);
        else if (row == csv->rows.n || csv->rows.at[row].line != number)
            ds_buf_put(out, line);
        else
            ds_csv_put_row(out, csv->rows.at[row++].cells, csv->n_columns);
    }
    return DS_OK;
}

static ds_status new_text(const ds_csv *csv, bool whole, ds_buf *out, ds_error *err) {
    if (whole) {
        ds_csv_put_row(out, csv->columns, csv->n_columns);
        for (uint32_t i = 0; i < csv->rows.n; i++)
            ds_csv_put_row(out, csv->rows.at[i].cells, csv->n_columns);
        return DS_OK;
    }
    FILE *in = fopen(csv->file, "r");
    if (!in) return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot read %s", csv->file);
    ds_status status = rewrite(csv, in, out, err);
    fclose(in);
    return status;
}

ds_status fit_write(const ds_csv *csv, bool whole, ds_error *err) {
    ds_buf text = {0};
    ds_status status = new_text(csv, whole, &text, err);
    FILE *out = status == DS_OK ? fopen(csv->file, "w") : NULL;
    bool done = out && fwrite(text.text, 1, text.n, out) == text.n;
    if (out && fclose(out) != 0) done = false;
    if (status == DS_OK && !done)
        status = ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot write %s", csv->file);
    ds_buf_deinit(&text);
    return status;
}
