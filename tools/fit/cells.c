/* Cells of a table by the names of their columns. */
#include "tools/fit/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ds_status fit_cell(const ds_csv *csv, uint32_t row, const char *column, const char **out,
                   ds_error *err) {
    uint32_t at;
    DS_TRY(ds_csv_need(csv, column, &at, err));
    *out = csv->rows.at[row].cells[at];
    return DS_OK;
}

ds_status fit_number(const ds_csv *csv, uint32_t row, const char *column, double *out,
                     ds_error *err) {
    const char *text;
    char *end;
    DS_TRY(fit_cell(csv, row, column, &text, err));
    *out = strtod(text, &end);
    if (*text && !*end && isfinite(*out)) return DS_OK;
    return ds_csv_error(csv, &csv->rows.at[row], err, "%s = '%s': not a number", column, text);
}

ds_status fit_rate(const ds_csv *csv, uint32_t row, const char *column, int64_t *bytes_per_s,
                   ds_error *err) {
    double gb_per_s;
    DS_TRY(fit_number(csv, row, column, &gb_per_s, err));
    if (!(gb_per_s >= 1e-9 && gb_per_s <= 1e9))
        return ds_csv_error(csv, &csv->rows.at[row], err,
                            "%s = %g: a rate is from 1e-9 to 1e9 GB/s", column, gb_per_s);
    *bytes_per_s = llround(gb_per_s * 1e9);
    return DS_OK;
}

ds_status fit_set(ds_csv *csv, uint32_t row, const char *column, const char *format, double value,
                  ds_error *err) {
    uint32_t at;
    DS_TRY(ds_csv_need(csv, column, &at, err));
    csv->rows.at[row].cells[at] = ds_arena_printf(&csv->arena, format, value);
    return DS_OK;
}

void fit_add_columns(ds_csv *csv, const char *const *names, uint32_t n_names) {
    for (uint32_t i = 0; i < n_names; i++) {
        uint32_t n = csv->n_columns;
        if (ds_csv_find(csv, names[i]) != DS_CSV_NO_COLUMN) continue;
        const char **columns = ds_arena_alloc(&csv->arena, (n + 1) * sizeof *columns);
        memcpy(columns, csv->columns, n * sizeof *columns);
        columns[n] = names[i];
        csv->columns = columns;
        for (uint32_t r = 0; r < csv->rows.n; r++) {
            const char **cells = ds_arena_alloc(&csv->arena, (n + 1) * sizeof *cells);
            memcpy(cells, csv->rows.at[r].cells, n * sizeof *cells);
            cells[n] = "";
            csv->rows.at[r].cells = cells;
        }
        csv->n_columns = n + 1;
    }
}

void fit_add_ratios(ds_csv *csv) {
    static const char *const ratios[] = {"ratio_p05", "ratio_p25", "ratio_p50", "ratio_p75",
                                         "ratio_p95"};
    fit_add_columns(csv, ratios, 5);
}

uint32_t fit_group(fit_groups *groups, const char *name) {
    const char *interned = ds_intern(&groups->names, name);
    for (uint32_t i = 0; i < groups->seen.n; i++)
        if (groups->seen.at[i] == interned) return i;
    DS_HPUSH(&groups->seen, interned);
    return groups->seen.n - 1;
}

void fit_groups_deinit(fit_groups *groups) {
    free(groups->seen.at);
    ds_strtab_deinit(&groups->names);
}
